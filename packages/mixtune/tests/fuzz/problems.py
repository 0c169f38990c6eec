"""Random transfer problems for the fuzz suites: any shape, container, type and magnitude."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from hypothesis import strategies as st

from mixtune.estimators import (
    JointRegressor,
    LocalRegressor,
    MeanOfLocalsRegressor,
    MultiDomainClassifier,
    MultiDomainRegressor,
    RegretOptimalClassifier,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
)

REGRESSORS = {
    "tuned": partial(RegretOptimalRegressorCV, feature_map=None),
    "fixed": RegretOptimalRegressor,
    "equal": lambda: RegretOptimalRegressor(weights="equal"),
    "wasserstein": lambda: RegretOptimalRegressor(weights="wasserstein"),
    "local": LocalRegressor,
    "joint": JointRegressor,
    "mean of locals": MeanOfLocalsRegressor,
}
CLASSIFIERS = {
    "tuned classifier": partial(RegretOptimalClassifierCV, feature_map=None),
    "fixed classifier": RegretOptimalClassifier,
}


#: With maps made from the rows, and scales of targets; in the long form only, since each fit takes half a second.
DEFAULTS = {"default": RegretOptimalRegressorCV} if "MIXTUNE_FUZZ_EXAMPLES" in os.environ else {}


@dataclass(frozen=True)
class Problem:
    """Focal rows first: inputs, targets and sample weights of every domain, and rows to predict."""

    X: tuple[np.ndarray, ...]
    y: tuple[np.ndarray, ...]
    weight: tuple[np.ndarray | None, ...]
    new: np.ndarray
    names: tuple[str, ...] = ()

    @property
    def sources(self):
        names = self.names or tuple(f"s{i}" for i in range(1, len(self.X)))
        return {
            name: (X, y) if weight is None else (X, y, weight)
            for name, X, y, weight in zip(names, self.X[1:], self.y[1:], self.weight[1:])
        }

    def fit(self, make):
        """A fitted estimator."""
        return make().fit(self.X[0], self.y[0], self.weight[0], sources=self.sources or None)

    def predict_every(self, *, classes):
        """Predictions, or probabilities, of new rows by models for every domain: three of them, and an unknown one."""
        names = ("focal", *self.sources)
        domain = np.repeat(names, [len(y) for y in self.y])
        weight = None if any(each is None for each in self.weight) else np.concatenate(self.weight)
        model = (MultiDomainClassifier if classes else MultiDomainRegressor)(feature_map=None)
        model.fit(np.concatenate(self.X), np.concatenate(self.y), weight, domain=domain)
        predict = model.predict_proba if classes else model.predict
        shown = ("focal", *sorted(self.sources)[:2], "unknown")
        return np.concatenate([predict(self.new, domain=[name] * len(self.new)) for name in shown])

    def map(self, *, X=None, y=None):
        """The same problem with inputs or targets transformed in all domains alike."""
        moved = replace(self, X=tuple(map(X, self.X)), new=X(self.new)) if X else self
        return replace(moved, y=tuple(map(y, moved.y))) if y else moved

    def labels(self):
        """The same rows with two classes: above and below the median of all targets."""
        middle = np.median(np.concatenate(self.y))
        return replace(self, y=tuple(np.where(y > middle, "yes", "no") for y in self.y))


def draw(seed, *, rows, width, sources, source_rows, noise=1.0, apart=0.3, weighted=None):
    """A regular problem: linear targets whose slopes differ a little between domains."""
    rng = np.random.default_rng(seed)
    slope = rng.standard_normal(width)
    sizes = [rows, *rng.integers(source_rows[0], source_rows[1] + 1, sources)]
    X = tuple(rng.standard_normal((size, width)) + 0.3 * rng.standard_normal(width) for size in sizes)
    y = tuple(
        part @ (slope + apart * rng.standard_normal(width))
        + noise * rng.standard_normal(len(part))
        + rng.standard_normal()
        for part in X
    )
    sizes = {"whole": lambda n: rng.integers(1, 4, n).astype(float), "parts": lambda n: rng.uniform(0.01, 1.0, n)}
    weight = tuple(sizes[weighted](len(part)) if weighted else None for part in X)
    return Problem(X, y, weight, rng.standard_normal((6, width)))


#: What random problems are made of.
CHOICES = {
    "rows": [1, 2, 3, 5, 8, 15, 40],
    "width": [1, 2, 3, 5, 12, 45],
    "sources": [0, 1, 2, 3, 5, 9],
    "source_rows": [(1, 1), (1, 3), (2, 2), (5, 20), (30, 60)],
    "apart": [0.0, 0.3, 3.0],
    "weighted": [None, "whole", "parts"],
    "noise": [0.0, 0.1, 1.0],
}
problems = st.builds(
    draw, st.integers(0, 2**32 - 1), **{name: st.sampled_from(values) for name, values in CHOICES.items()}
)
