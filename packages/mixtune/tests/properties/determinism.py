"""Results of every public estimator on fixed data, stored in golden.json beside this file.

``python tests/properties/determinism.py`` says how far results here are from the stored ones. With ``--write`` it
stores them anew: do so only where a change of results is meant, and say so in the changelog. With ``--print`` it prints
those of the given sizes as JSON.

The data come from NumPy's legacy generator, whose numbers are the same in every version.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mixtune import RandomFeatures, StreamedSources
from mixtune.estimators import (
    JointRegressor,
    JointSubsetRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
)

STORED = Path(__file__).with_name("golden.json")
#: Largest differences that are promised, in standard deviations of the targets (of weights and probabilities: absolute;
#: of numbers beyond 1: relative). Leave-one-out divides by what a fit leaves of each row, which is little where there
#: are more columns than rows and hardly any ridge, and rounding is magnified.
TOLERANCE, LEFT_OUT_TOLERANCE = 1e-9, 1e-7

REGRESSORS: dict[str, Callable[..., Any]] = {
    "RegretOptimalRegressorCV": partial(RegretOptimalRegressorCV, feature_map=None),
    "RegretOptimalRegressorCV auto": RegretOptimalRegressorCV,
    "RegretOptimalRegressor": RegretOptimalRegressor,
    "RegretOptimalRegressor equal": lambda **options: RegretOptimalRegressor(weights="equal", **options),
    "RegretOptimalRegressor wasserstein": lambda **options: RegretOptimalRegressor(weights="wasserstein", **options),
    "JointRegressor": JointRegressor,
    "JointSubsetRegressor": lambda **options: JointSubsetRegressor(subset=["focal", "s0"], **options),
    "LocalRegressor": lambda **options: LocalRegressor(ridge="loo", **options),
    "MeanOfLocalsRegressor": MeanOfLocalsRegressor,
}
CLASSIFIERS: dict[str, Callable[..., Any]] = {
    "RegretOptimalClassifierCV": partial(RegretOptimalClassifierCV, feature_map=None),
    "RegretOptimalClassifierCV auto": RegretOptimalClassifierCV,
    "RegretOptimalClassifier": RegretOptimalClassifier,
}


def draw(seed: int, rows: int, width: int, source_rows: list[int], outputs: int = 1) -> tuple[Any, ...]:
    """Focal rows, sources and new rows; linear targets with noise whose slopes differ a little between domains."""
    rng = np.random.RandomState(seed)
    slope = rng.randn(width, outputs)

    def domain(count: int) -> tuple[Any, Any]:
        X = rng.randn(count, width) + 0.3 * rng.randn(width)
        y = X @ (slope + 0.3 * rng.randn(width, outputs)) + rng.randn(count, outputs)
        return X, y if outputs > 1 else y[:, 0]

    X, y = domain(rows)
    return X, y, {f"s{i}": domain(count) for i, count in enumerate(source_rows)}, rng.randn(6, width)


#: Rows and columns of the focal domain, and rows of the sources: narrow, wider than its focal rows, and large enough
#: for BLAS to use several threads.
SIZES: dict[str, tuple[int, int, list[int]]] = {
    "small": (15, 3, [40, 60, 50, 45]),
    "wide": (12, 30, [60, 80, 70]),
    "large": (80, 100, [500, 600]),
}


def results(sizes: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Named results, in units of the targets' spread."""
    for size in sizes:
        rows, width, source_rows = SIZES[size]
        X, y, sources, new = draw(len(size), rows, width, source_rows)
        spread = np.concatenate([y, *(v for _, v in sources.values())]).std()
        for name, make in REGRESSORS.items():
            if size == "large" and ("wasserstein" in name or "auto" in name):
                continue  # the first takes seconds; the second is linear in so many columns
            model = make().fit(X, y, sources=sources)
            yield f"{name}, {size}: predictions", model.predict(new) / spread
            yield f"{name}, {size}: leave-one-out error", model.loo_error_ / spread**2
            if size == "small":
                yield f"{name}, {size}: intervals", np.array(model.predict_interval(new)) / spread
                yield f"{name}, {size}: standard deviations", model.predict(new, return_std=True)[1] / spread
            if hasattr(model, "weights_"):
                yield f"{name}, {size}: weights", model.weights_.values
                yield f"{name}, {size}: gain", model.transfer_gain_.reduction
        if size == "large":
            continue
        for name, make in CLASSIFIERS.items():
            labels = {key: (U, np.where(v > 0, "yes", "no")) for key, (U, v) in sources.items()}
            model = make().fit(X, np.where(y > 0, "yes", "no"), sources=labels)
            yield f"{name}, {size}: probabilities", model.predict_proba(new)
    if "small" in sizes:
        yield from variants()


def variants() -> Iterator[tuple[str, Any]]:
    """The same estimators with sample weights, several outputs, a feature map, and streamed sources."""
    X, y, sources, new = draw(5, 15, 3, [40, 60, 50], outputs=2)
    weight = np.random.RandomState(6).rand(15) + 0.5
    spread = np.concatenate([y, *(v for _, v in sources.values())]).std()
    features = RandomFeatures(n_inputs=3, width=40, seed=1)
    for name in ("RegretOptimalRegressorCV", "RegretOptimalRegressor", "JointRegressor"):
        make = REGRESSORS[name]
        yield f"{name}, weighted, two outputs", make().fit(X, y, weight, sources=sources).predict(new) / spread
        yield f"{name}, random features", make(feature_map=features).fit(X, y, sources=sources).predict(new) / spread
        streamed = make().fit(X, y, sources=StreamedSources(sources))
        yield f"{name}, streamed", streamed.predict(new) / spread


def collect(sizes: Iterable[str] = SIZES) -> dict[str, list[float]]:
    """Results as JSON holds them."""
    return {name: np.asarray(value, dtype=float).ravel().tolist() for name, value in results(sizes)}


def differences(found: dict[str, list[float]], stored: dict[str, list[float]]) -> dict[str, float]:
    """The largest difference of each result; infinite where a result is new, missing or of another length."""
    return {
        name: float(np.max(np.abs(np.subtract(found[name], stored[name])) / np.maximum(1.0, np.abs(stored[name]))))
        if len(found.get(name, ())) == len(stored.get(name, ())) > 0
        else float("inf")
        for name in {**stored, **found}
    }


def beyond(found: dict[str, list[float]], stored: dict[str, list[float]]) -> dict[str, float]:
    """The results that differ by more than is promised, and by how much."""
    return {
        name: size
        for name, size in differences(found, stored).items()
        if not size <= (LEFT_OUT_TOLERANCE if name.endswith("leave-one-out error") else TOLERANCE)
    }


def read() -> dict[str, list[float]]:
    """The stored results."""
    return json.loads(STORED.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the results of this machine")
    parser.add_argument("--print", nargs="+", choices=SIZES, help="print those of these sizes as JSON")
    given = parser.parse_args()
    if given.print:
        print(json.dumps(collect(given.print)))
        return 0
    found = collect()
    if given.write:
        lines = (f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in found.items())
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    every, far = differences(found, read()), beyond(found, read())
    for left_out in (False, True):
        sizes = {name: size for name, size in every.items() if name.endswith("leave-one-out error") == left_out}
        name = max(sizes, key=sizes.__getitem__)
        print(f"{len(sizes)} results; largest difference {sizes[name]:.1e}, in {name}")
    print(f"{len(far)} beyond the tolerance", *far, sep="\n")
    return int(bool(far))


if __name__ == "__main__":
    sys.exit(main())
