"""Write the saved models of this folder and what they predict: ``python tests/estimators/saved/make.py FOLDER``.

The files here were written by mixtune 0.1.0 and stay as they are: they show that later versions still load them.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler

from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    load,
)
from mixtune.features import Concatenate, Identity, RandomFeatures, SklearnFeatures, TorchFeatures
from mixtune.weights import EqualWeights, GivenWeights, PredictiveWeights, WassersteinWeights

COLUMNS = 3


def network(seed=None):
    """The network of the saved model; all zeros without a seed, because the file holds its weights."""
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(COLUMNS, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    numbers = np.random.default_rng(seed)
    for tensor in module.parameters():
        tensor.data = torch.tensor(
            numbers.standard_normal(tensor.shape) if seed is not None else np.zeros(tensor.shape)
        )
    return module


def problem(outputs=None):
    """Rows of a focal domain, of a similar source and of a misleading one."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((COLUMNS, outputs) if outputs else COLUMNS)

    def draw(rows, coef):
        X = rng.standard_normal((rows, COLUMNS)) + 0.5
        return X, X @ coef + 1.0 + 0.3 * rng.standard_normal((rows, outputs) if outputs else rows)

    return *draw(9, truth), {"near": draw(14, 1.1 * truth), "far": draw(11, -truth)}


def classes(y, names):
    return np.asarray(names)[np.digitize(y, np.linspace(0.0, 2.0, len(names) - 1))]


def models():
    X, y, sources = problem()
    maps = {
        "random": RandomFeatures(n_inputs=COLUMNS, width=5, seed=1),
        "fourier": RandomFeatures.fourier(n_inputs=COLUMNS, width=5, length_scale=[1.0, 2.0, 3.0], seed=2),
        "identity": Identity(COLUMNS, constant=True),
        "joint": Concatenate([Identity(COLUMNS), RandomFeatures(n_inputs=COLUMNS, width=3, seed=3, dtype="float32")]),
        "standard": SklearnFeatures(StandardScaler().fit(X)),
        "minmax": SklearnFeatures(MinMaxScaler().fit(X)),
        "maxabs": SklearnFeatures(MaxAbsScaler().fit(X)),
        "robust": SklearnFeatures(RobustScaler().fit(X)),
        "polynomial": SklearnFeatures(PolynomialFeatures(2).fit(X)),
        "pca": SklearnFeatures(PCA(2).fit(X)),
        "svd": SklearnFeatures(TruncatedSVD(2, random_state=0).fit(X)),
        "pipeline": SklearnFeatures(make_pipeline(StandardScaler(), "passthrough", PolynomialFeatures(2)).fit(X)),
        "network": TorchFeatures(network(4), dtype="float64"),
    }
    for name, feature_map in maps.items():
        yield f"map-{name}", RegretOptimalRegressor(feature_map).fit(X, y, sources=sources), {}
    outside = RandomFeatures(n_inputs=COLUMNS, width=4, seed=7)
    yield "map-outside", LocalRegressor(outside).fit(X, y), {"store_feature_map": False}
    weights = {
        "equal": EqualWeights(),
        "given": GivenWeights([0.6, 0.3, 0.1]),
        "predictive": PredictiveWeights(2.0),
        "wasserstein": WassersteinWeights(5.0, seed=3),
    }
    for name, rule in weights.items():
        yield f"fixed-{name}", RegretOptimalRegressor(weights=rule, horizon=3).fit(X, y, sources=sources), {}
    yield "fixed-alone", RegretOptimalRegressor(ridge=np.float32(0.25)).fit(X, y), {}
    A, b, others = problem(outputs=2)
    yield "fixed-two-outputs", RegretOptimalRegressor(transfer=0.0).fit(A, b, sources=others), {"metadata": {"a": [1]}}
    updated = RegretOptimalRegressor().fit(X, y, sources=sources)
    yield "fixed-updated", updated.partial_fit(X[:4], y[:4], sources={"near": sources["far"]}).forget("far"), {}
    yield "tuned", RegretOptimalRegressorCV(seed=0).fit(X, y, sources=sources), {}
    yield "tuned-alone", RegretOptimalRegressorCV(seed=0).fit(X, y), {}
    yield "local", LocalRegressor(ridge="loo").fit(X, y, sources=sources), {}
    yield "joint", JointRegressor(ridge=2.0).fit(X, y, sources=sources), {}
    yield "subset", JointSubsetRegressor(subset=["focal", "near"]).fit(X, y, sources=sources), {}
    yield "mean-of-locals", MeanOfLocalsRegressor().fit(X, y, sources=sources), {}
    for name, labels in {"text": ["no", "yes"], "numbers": [1, 4, 9]}.items():
        labelled = {source: (U, classes(v, labels)) for source, (U, v) in sources.items()}
        fit = {"X": X, "y": classes(y, labels), "sources": labelled}
        yield f"classifier-{name}", RegretOptimalClassifier(ridge=0.5).fit(**fit), {}
    yield "classifier-tuned", RegretOptimalClassifierCV(seed=0).fit(**fit), {}


def expectations(model, X):
    if hasattr(model, "predict_proba"):
        return {"predict": model.predict(X).tolist(), "predict_proba": model.predict_proba(X).tolist()}
    mean, deviation = model.predict(X, return_std=True)
    interval = np.stack(model.predict_interval(X, coverage=0.8))
    return {"predict": mean.tolist(), "deviation": deviation.tolist(), "interval": interval.tolist()}


def write_table(path, label):
    """A table with text and a missing number, as the command line reads it."""
    X, y, sources = problem()
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["site", "a", "b", "colour", "y"])
        for site, (U, v) in {"here": (X, y), **sources}.items():
            for place, (row, target) in enumerate(zip(U, v)):
                first = "" if place == 1 else f"{row[0]:.3f}"
                rows.writerow([site, first, f"{row[1]:.3f}", "blue" if row[2] > 0.5 else "red", label(target)])


def command_line_models(folder):
    for name, label, more in (
        ("cli", lambda target: f"{target:.3f}", ["--random-features", "4"]),
        ("cli-classes", lambda target: "high" if target > 0.5 else "low", []),
    ):
        table, out = folder / f"{name}.csv", folder / f"{name}.mixtune"
        write_table(table, label)
        given = ["--target", "y", "--domain", "site", "--focal", "here", "--missing", "impute", "--force", *more]
        command = [sys.executable, "-m", "mixtune"]
        subprocess.run([*command, "fit", str(table), *given, "--out", str(out)], check=True, capture_output=True)
        predict = [*command, "predict", str(out), str(table), "--json"]
        shown = subprocess.run(predict, check=True, capture_output=True, text=True).stdout
        yield name, load(out), {"command_line": json.loads(shown)["columns"]}


def main(folder):
    folder.mkdir(exist_ok=True)
    new = np.random.default_rng(9).standard_normal((5, COLUMNS)) * 2
    found = {}
    for name, model, options in models():
        model.save(folder / f"{name}.mixtune", **options)
        found[name] = {"estimator": type(model).__name__, "X": new.tolist(), **expectations(model, new)}
    for name, model, more in command_line_models(folder):
        inputs = np.random.default_rng(9).standard_normal((5, model.n_features_in_))
        found[name] = {"estimator": type(model).__name__, "X": inputs.tolist(), **expectations(model, inputs), **more}
    lines = [f"{json.dumps(name)}: {json.dumps(expected)}" for name, expected in found.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
