"""What a method is, mixtune itself, the alternatives that scikit-learn can express, and which methods can run here.

A method turns a case into something with ``predict``; it sees the training rows and the sources, never the test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict

from benchmarks.transfer.problems import Case
from mixtune.arrays import Floats
from mixtune.errors import ParameterError
from mixtune.estimators import RegretOptimalClassifierCV, RegretOptimalRegressorCV

#: How many standard deviations above the focal loss the loss with a source may lie for the source to be kept.
DETECTION = 1.0
ALPHAS = np.logspace(-3, 4, 15)
OURS, YARDSTICK = "mixtune", "focal"


class Model(Protocol):
    """A fitted method; the coverage of one with ``predict_interval(X, coverage=...)`` is measured too."""

    def predict(self, X: Floats, /) -> Any:
        """Predict one target for each row; where there are two classes, 0 and 1, the probability of 1."""


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
        The optional package that it needs, if any.
    most_columns
        The method is not run on cases with more input columns.
    takes_classes
        Whether it is run on cases with two classes, too.

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
    takes_classes: bool = False

    @property
    def is_installed(self) -> bool:
        """Whether the package that the method needs can be imported."""
        return self.needs is None or find_spec(self.needs) is not None


@dataclass(frozen=True)
class Blend:
    """A weighted sum of models."""

    models: tuple[Model, ...]
    weights: Floats

    def predict(self, X: Floats, /) -> Floats:
        """Blend the predictions."""
        return np.column_stack([model.predict(X) for model in self.models]) @ self.weights


@dataclass(frozen=True)
class Probability:
    """A classifier of scikit-learn's kind, asked for the probability of class 1."""

    classifier: Any

    def predict(self, X: Floats, /) -> Any:
        """Give the probability of each row."""
        return self.classifier.predict_proba(X)[:, 1]


def ridge(X: Floats, y: Floats) -> RidgeCV:
    """Fit a ridge regression with its penalty chosen by leave-one-out; all methods here are built from it."""
    return RidgeCV(alphas=ALPHAS).fit(X, y)


def logistic(X: Floats, y: Floats) -> Probability:
    """Fit a logistic regression with scikit-learn's default penalty, ``C=1``."""
    if y.min() == y.max():
        # Rows of one class only: one more row of each class, at the mean, gives their share as the rule of succession.
        X, y = np.vstack([X, np.tile(X.mean(axis=0), (2, 1))]), np.append(y, (0.0, 1.0))
    return Probability(LogisticRegression(max_iter=1000).fit(X, y))


def stack(case: Case) -> tuple[Floats, Floats, NDArray[np.str_]]:
    """Put all rows on top of each other, sources first, with the name of the domain of each."""
    parts = (*case.sources, case.train)
    names = np.repeat([part.name for part in parts], [part.n_rows for part in parts])
    return np.vstack([part.X for part in parts]), np.concatenate([part.y for part in parts]), names


def _ours(case: Case, **settings: Any) -> Model:
    if case.classes:
        classifier = RegretOptimalClassifierCV(**settings)
        return Probability(classifier.fit(case.train.X, case.train.y, sources=case.mapping))
    return RegretOptimalRegressorCV(**settings).fit(case.train.X, case.train.y, sources=case.mapping)


def _focal(case: Case) -> Model:
    return (logistic if case.classes else ridge)(case.train.X, case.train.y)


def _pooled(case: Case) -> Model:
    X, y, _ = stack(case)
    return (logistic if case.classes else ridge)(X, y)


def _detected(case: Case) -> Model:
    """Keep the sources that do no harm in cross-validation, pool them, correct the fit on the focal rows (glmtrans)."""
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
    return Blend((pool, ridge(X, y - pool.predict(X))), np.ones(2))


def _stacked(case: Case) -> Model:
    """Blend one ridge for each source and one of the focal rows with non-negative weights."""
    X, y = case.train.X, case.train.y
    models = (*(ridge(source.X, source.y) for source in case.sources), ridge(X, y))
    # The focal ridge has seen the focal rows, so the weights are fitted to its out-of-fold predictions.
    unseen = cross_val_predict(RidgeCV(alphas=ALPHAS), X, y, cv=KFold(5, shuffle=True, random_state=0))
    weights, _ = nnls(np.column_stack([*(model.predict(X) for model in models[:-1]), unseen]), y)
    return Blend(models, weights)


BUILT_IN = (
    Method(OURS, "mixtune, defaults", _ours, takes_classes=True),
    Method("linear", "mixtune, `feature_map=None`", partial(_ours, feature_map=None), takes_classes=True),
    Method(YARDSTICK, "focal ridge (yardstick)", _focal, takes_classes=True),
    Method("pooled", "pooled ridge", _pooled, takes_classes=True),
    Method("detected", "source detection, residual ridge", _detected),
    Method("stacked", "non-negative stacking of ridges", _stacked),
)


def known_methods() -> tuple[Method, ...]:
    """Return all methods, whether the packages that they need are installed or not.

    Examples
    --------
    >>> [method.name for method in known_methods()][:3]
    ['mixtune', 'linear', 'focal']
    """
    from benchmarks.transfer.peers import PEERS  # which builds on this module

    return (*BUILT_IN, *PEERS)


def available_methods() -> tuple[Method, ...]:
    """Return the methods that can run here.

    Examples
    --------
    >>> "pooled" in [method.name for method in available_methods()]
    True
    """
    return tuple(method for method in known_methods() if method.is_installed)


def methods_named(names: Sequence[str]) -> tuple[Method, ...]:
    """Return methods by name, in the given order.

    Raises
    ------
    ParameterError
        If a name is unknown, or the package that the method needs is not installed.

    Examples
    --------
    >>> [method.title for method in methods_named(["pooled"])]
    ['pooled ridge']
    """
    known = {method.name: method for method in known_methods()}
    for name in names:
        if name not in known:
            raise ParameterError(f"there is no method {name!r}; known: {', '.join(known)}")
        if not known[name].is_installed:
            raise ParameterError(
                f"method {name!r} needs {known[name].needs}, which is not installed; install it or leave it out"
            )
    return tuple(known[name] for name in dict.fromkeys(names))
