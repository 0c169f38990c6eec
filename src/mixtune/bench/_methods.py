"""What a method is, ours, and the peers that scikit-learn alone can express.

A method turns a case into something with ``predict``; it sees the training rows and the sources, never the test rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict

from mixtune.bench._problem import Case
from mixtune.estimators import RegretOptimalRegressorCV

__all__ = ["ALPHAS", "BUILT_IN", "OURS", "YARDSTICK", "Method", "Model", "stack"]

Floats = NDArray[np.float64]
#: How many standard deviations of the focal loss a source may cost and still be kept.
DETECTION = 1.0
ALPHAS = np.logspace(-3, 4, 15)
OURS, YARDSTICK = "mixtune", "focal"


class Model(Protocol):
    """What fitting gives; one that also has ``predict_interval(X, coverage=...)`` has its coverage measured."""

    def predict(self, X: Floats, /) -> Any:
        """Predict a target a row."""


@dataclass(frozen=True)
class Method:
    """A way to learn from a case.

    Parameters
    ----------
    name
        What ``--methods`` calls it.
    title
        What tables call it.
    fit
        From a case to a model.
    needs
        The module that it needs, if it is not always there, or "module:name" for something in it.
    most_columns
        Cases with more input columns are not for it.

    Examples
    --------
    >>> class Mean:
    ...     def __init__(self, case):
    ...         self.mean = case.train.y.mean()
    ...
    ...     def predict(self, X):
    ...         return np.full(len(X), self.mean)
    >>> Method("mean", "mean of the focal rows", Mean).name
    'mean'
    """

    name: str
    title: str
    fit: Callable[[Case], Model]
    needs: str | None = None
    most_columns: int | None = None


@dataclass(frozen=True)
class Sum:
    """A model plus a correction of it."""

    first: Model
    second: Model

    def predict(self, X: Floats, /) -> Floats:
        """Add the two predictions."""
        return np.asarray(self.first.predict(X)) + np.asarray(self.second.predict(X))


@dataclass(frozen=True)
class Blend:
    """A weighted sum of models."""

    models: tuple[Model, ...]
    weights: Floats

    def predict(self, X: Floats, /) -> Floats:
        """Blend the predictions."""
        return np.column_stack([model.predict(X) for model in self.models]) @ self.weights


def ridge(X: Floats, y: Floats) -> RidgeCV:
    """Fit a ridge with its penalty chosen by leave-one-out: the building block of all peers here."""
    return RidgeCV(alphas=ALPHAS).fit(X, y)


def stack(case: Case) -> tuple[Floats, Floats, NDArray[np.str_]]:
    """Put all rows on top of each other, sources first, with the name of the domain of each."""
    parts = (*case.sources, case.train)
    names = np.repeat([part.name for part in parts], [part.n_rows for part in parts])
    return np.vstack([part.X for part in parts]), np.concatenate([part.y for part in parts]), names


def _ours(case: Case) -> Model:
    return RegretOptimalRegressorCV().fit(case.train.X, case.train.y, sources=case.mapping)


def _focal(case: Case) -> Model:
    return ridge(case.train.X, case.train.y)


def _pooled(case: Case) -> Model:
    X, y, _ = stack(case)
    return ridge(X, y)


def _detected(case: Case) -> Model:
    """Keep the sources that do no harm in cross-validation, pool them, correct it on the focal rows (glmtrans)."""
    X, y = case.train.X, case.train.y
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))

    def losses(extra_X: Floats, extra_y: Floats) -> Floats:
        errors = []
        for kept, left in folds:
            model = ridge(np.vstack([extra_X, X[kept]]), np.concatenate([extra_y, y[kept]]))
            errors.append(np.mean((model.predict(X[left]) - y[left]) ** 2))
        return np.asarray(errors)

    alone = losses(X[:0], y[:0])
    limit = alone.mean() + DETECTION * max(float(alone.std(ddof=1)), 0.01)
    kept = [source for source in case.sources if losses(source.X, source.y).mean() <= limit]
    pool = ridge(np.vstack([*(source.X for source in kept), X]), np.concatenate([*(source.y for source in kept), y]))
    return Sum(pool, ridge(X, y - pool.predict(X)))


def _stacked(case: Case) -> Model:
    """Blend a ridge of each source and one of the focal rows with weights that are not negative."""
    X, y = case.train.X, case.train.y
    models = (*(ridge(source.X, source.y) for source in case.sources), ridge(X, y))
    # The focal ridge has seen the focal rows, so it is judged on folds that it has not seen.
    unseen = cross_val_predict(RidgeCV(alphas=ALPHAS), X, y, cv=KFold(5, shuffle=True, random_state=0))
    weights, _ = nnls(np.column_stack([*(model.predict(X) for model in models[:-1]), unseen]), y)
    return Blend(models, weights)


BUILT_IN = (
    Method(OURS, "mixtune, defaults", _ours),
    Method(YARDSTICK, "focal ridge (yardstick)", _focal),
    Method("pooled", "pooled ridge", _pooled),
    Method("detected", "source detection, residual ridge", _detected),
    Method("stacked", "non-negative stacking of ridges", _stacked),
)
