"""Saved models: one file in ``saved/`` for each kind, written once, and read by every later
version.

``build`` fits and saves them all; ``read`` loads one file and predicts the rows that the cases
draw. Files and what they predict are stored by ``write.py``. The test reads the stored files and
compares. Nothing here needs a private key: those of the federated study are computed from the names
of its members.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden import cases, commands, recorded
from mixtune import (
    Concatenate,
    Identity,
    MultiDomainClassifier,
    MultiDomainRegressor,
    RandomFeatures,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    TableModel,
    WassersteinWeights,
    fit_table,
    load,
)
from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    read_info,
)
from mixtune.features import Scaled, SklearnFeatures, Splines

SAVED = Path(__file__).with_name("saved")
STUDY = SAVED / "study"


@dataclass(frozen=True)
class Saved:
    """How a model is saved, what is read off its file, and the packages that this needs."""

    save: Callable[[Path], Any]
    read: Callable[[Path], cases.Results]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        return cases.lacking(self.needs)


def few(**options: Any) -> tuple[Any, ...]:
    """Fewer rows than the cases have: files of tuned models hold the focal rows and the trees."""
    return cases.draw(50, 10, 3, (15, 15, 15), **options)


def fitted(model: Any, **options: Any) -> Callable[[Path], Any]:
    def save(path: Path) -> None:
        X, y, sources, _ = few(**options)
        model.fit(X, y, sources=sources).save(path)

    return save


def fitted_classes(model: Any, names: tuple[Any, ...]) -> Callable[[Path], Any]:
    def save(path: Path) -> None:
        X, y, sources, _ = cases.draw(51, 16, 3, (20, 20, 20))
        sources = cases.labelled(sources, names)
        model.fit(X, cases.labels(y, names), sources=sources).save(path)

    return save


def fitted_every(model: Any, *, classes: bool = False) -> Callable[[Path], Any]:
    def save(path: Path) -> None:
        X, y, sources, _ = cases.draw(51, 16, 3, (20, 20, 20))
        inputs, targets, domain = cases.stacked(X, y, sources)
        model.fit(inputs, cases.labels(targets) if classes else targets, domain=domain).save(path)

    return save


def fitted_table(*, classes: bool = False, **options: Any) -> Callable[[Path], Any]:
    def save(path: Path) -> None:
        rows = cases.table(rows=(10, 15, 15, 15))
        if classes:
            rows["price"] = ["dear" if value > 1100 else "cheap" for value in rows["price"]]
        fit_table(rows, **cases.HERE, **options).save(path)

    return save


def fitted_updated(path: Path) -> None:
    X, y, sources, _ = few()
    model = RegretOptimalRegressor().fit(X, y, sources=sources)
    model.partial_fit(X[:4], y[:4], sources={"s0": sources["s2"]}).forget("s2").save(path)


def fitted_with_log_targets(path: Path) -> None:
    X, y, sources, _ = few()
    positive = {name: (U, np.exp(v)) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressorCV(feature_map=None, target_scale="log")
    model.fit(X, np.exp(y), sources=positive).save(path)


def fitted_by_a_command(*arguments: str) -> Callable[[Path], Any]:
    def save(path: Path) -> None:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made).resolve()
            commands.sites(folder)
            given = ["fit", "data.csv", "--target", "y", "--domain", "site", *arguments]
            done = commands.in_this_process([*given, "--out", "model.mixtune"], folder)
            assert done["code"] == 0, done["err"]
            shutil.copyfile(folder / "model.mixtune", path)

    return save


def fitted_to_sums(level: int, **settings: Any) -> Callable[[Path], Any]:
    def save(path: Path) -> None:
        study = cases.study_of(level, **settings)
        coordinator, _, received = cases.exchange(study)
        cases.federated_model(study, coordinator.combine(received)).save(path)

    return save


# --- what is read ---------------------------------------------------------------------------------


def about(path: Path) -> cases.Results:
    info = read_info(path)
    return {"estimator": info.estimator, "map": info.feature_map, "metadata": sorted(info.metadata)}


def read_model(path: Path) -> cases.Results:
    new = few()[3]
    return {**about(path), **cases.described(load(path), new)}


def read_every(path: Path) -> cases.Results:
    new = few()[3]
    return {**about(path), **cases.described(load(path), new, domain=cases.DOMAINS)}


def read_table_model(path: Path) -> cases.Results:
    model = TableModel.load(path)
    return {**about(path), **cases.table_results(model, cases.new_rows())}


def read_by_a_command(path: Path) -> cases.Results:
    """Predictions as ``mixtune predict`` prints them."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        commands.sites(folder)
        shutil.copyfile(path, folder / "model.mixtune")
        done = commands.in_this_process(["predict", "model.mixtune", "data.csv", "--json"], folder)
    return {**about(path), "code": done["code"], "out": commands.shown(done["out"])}


def maps() -> dict[str, Any]:
    """Feature maps that need no other package."""
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    X = few()[0]
    return {
        "random": RandomFeatures(n_inputs=3, width=5, seed=1),
        "fourier": RandomFeatures.fourier(n_inputs=3, width=4, length_scale=[1.0, 2.0, 3.0], seed=2),
        "splines": Splines.at_quantiles(X, knots=4),
        "joined": Concatenate([Identity(3, constant=True), RandomFeatures(n_inputs=3, width=3, seed=3)]),
        "scaled": Scaled(Identity(3), X.mean(axis=0), X.std(axis=0)),
        "pipeline": SklearnFeatures(make_pipeline(StandardScaler(), PolynomialFeatures(2)).fit(X)),
        "components": SklearnFeatures(PCA(2).fit(X)),
    }


MODELS: dict[str, Saved] = {
    "fixed": Saved(fitted(RegretOptimalRegressor()), read_model),
    "fixed-equal": Saved(fitted(RegretOptimalRegressor(weights="equal", horizon=3)), read_model),
    "fixed-given": Saved(
        fitted(RegretOptimalRegressor(weights={"focal": 0.5, "s0": 0.2, "s1": 0.3, "s2": 0.0})),
        read_model,
    ),
    "fixed-wasserstein": Saved(fitted(RegretOptimalRegressor(weights=WassersteinWeights(5.0, seed=3))), read_model),
    "fixed-two-outputs": Saved(fitted(RegretOptimalRegressor(), outputs=2), read_model),
    "fixed-updated": Saved(fitted_updated, read_model),
    "tuned": Saved(fitted(RegretOptimalRegressorCV()), read_model),
    "tuned-linear": Saved(fitted(RegretOptimalRegressorCV(feature_map=None), misleading=1), read_model),
    "tuned-log": Saved(fitted_with_log_targets, read_model),
    "tuned-two-outputs": Saved(fitted(RegretOptimalRegressorCV(feature_map=None), outputs=2), read_model),
    "classifier": Saved(fitted_classes(RegretOptimalClassifier(), ("no", "yes")), read_model),
    "classifier-tuned": Saved(fitted_classes(RegretOptimalClassifierCV(feature_map=None), (1, 4, 9)), read_model),
    "classifier-default-maps": Saved(fitted_classes(RegretOptimalClassifierCV(), ("a", "b")), read_model),
    "every": Saved(fitted_every(MultiDomainRegressor()), read_every),
    "every-linear": Saved(fitted_every(MultiDomainRegressor(feature_map=None)), read_every),
    "every-classifier": Saved(fitted_every(MultiDomainClassifier(feature_map=None), classes=True), read_every),
    "local": Saved(fitted(LocalRegressor(ridge="loo")), read_model),
    "joint": Saved(fitted(JointRegressor()), read_model),
    "subset": Saved(fitted(JointSubsetRegressor(subset=["focal", "s1"])), read_model),
    "mean-of-locals": Saved(fitted(MeanOfLocalsRegressor()), read_model),
    **{
        f"map-{name}": Saved(fitted(RegretOptimalRegressor(feature_map)), read_model)
        for name, feature_map in maps().items()
    },
    "table": Saved(fitted_table(), read_table_model),
    "table-linear": Saved(fitted_table(linear=True), read_table_model),
    "table-classes": Saved(fitted_table(classes=True, linear=True), read_table_model),
    "command": Saved(fitted_by_a_command("--focal", "berlin", "--linear"), read_by_a_command),
    "command-every": Saved(fitted_by_a_command("--all", "--linear"), read_by_a_command),
    # The estimator of federated studies; its files are read without keys and without their package
    # cryptography.
    "federated": Saved(fitted_to_sums(1), read_model, ("companion federated",)),
    "federated-masked": Saved(fitted_to_sums(2), read_model, ("companion federated",)),
    "federated-tuned": Saved(fitted_to_sums(1, method="tuned"), read_model, ("companion federated",)),
}


# --- a federated study ----------------------------------------------------------------------------


def save_studies(folder: Path) -> None:
    """The files of a study at level 1 and of one at level 2."""
    for level in (1, 2):
        place = folder / f"level-{level}"
        place.mkdir(parents=True, exist_ok=True)
        study = cases.study_of(level)
        _, requests, received = cases.exchange(study)
        study.save(place / "study.toml")
        for message in requests:
            message.save(place / f"q{message.step}.mxf")
        for message in received:
            message.save(place / f"{message.sender}-{message.step}.mxf")


def read_study(place: Path) -> cases.Results:
    """The study, its messages as anybody can read them, and the model made of them."""
    federated = cases.companion("federated")
    study = federated.Study.load(place / "study.toml")
    found: cases.Results = {"study": study.describe(), "fingerprint": study.fingerprint}
    for path in sorted(place.glob("*.mxf")):
        message = federated.read_message(path)
        message.check(study.card(message.sender))
        found[path.name] = [message.kind, message.step, message.sender, *message.explain()]
    rows = cases.member_rows()
    coordinator = federated.Coordinator(study, rows["north"], cases.member_key("north"))
    combined = coordinator.combine(sorted(place.glob("*.mxf")))
    model = cases.federated_model(study, combined)
    return {**found, "names": combined.names, **cases.described(model, few()[3])}


STUDIES = ("level-1", "level-2")
STUDY_NEEDS = ("cryptography", "companion federated")


def fields(name: str) -> recorded.Fields:
    """What the file of a model gives, or the folder of a study."""
    if name in STUDIES:
        return recorded.flatten(read_study(STUDY / name))
    return recorded.flatten(MODELS[name].read(SAVED / f"{name}.mixtune"))
