"""The paper's baselines and other plain methods as estimators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from mixtune._messages import nearest, quoted
from mixtune.arrays import SMALL, Floats, Integers
from mixtune.checks import check_nonnegative
from mixtune.choice import tree_threads
from mixtune.errors import ParameterError
from mixtune.estimators._base import MomentRegressor, Shown
from mixtune.estimators._fits import PooledRidge, Solved, State, mean_of_locals, pooled
from mixtune.estimators._inputs import Sources, TakesSources, as_sources, check_new, read_focal, read_sources, trim
from mixtune.estimators._saving import savable

#: Candidates of ``ridge="loo"``, for standardised features.
RIDGES = tuple(np.logspace(-3, 5, 17).tolist())


@dataclass(eq=False, repr=False)
class _Baseline(Shown, MomentRegressor):
    """A ridge fit with one ridge, given or chosen by leave-one-out on the focal rows."""

    _stored_attributes: ClassVar[tuple[str, ...]] = ("ridge_",)

    _: KW_ONLY
    ridge: Any = 1.0

    @abstractmethod
    def _fits(self, state: State) -> Callable[[float], Solved]:
        """The baseline at any ridge."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.ridge, str) and self.ridge != "loo":
            raise ParameterError(f"ridge must be a number >= 0 or 'loo'; got {self.ridge!r}")
        if not isinstance(self.ridge, str):
            check_nonnegative("ridge", self.ridge)

    def _solve_state(self, state: State, rows: Any) -> Solved:
        at = self._fits(state)
        if not isinstance(self.ridge, str):
            self.ridge_ = float(self.ridge)
            return at(self.ridge_)
        errors = self._errors(at)
        if not np.any(np.isfinite(errors)):
            raise ParameterError(
                "ridge='loo' cannot tell candidates apart by leaving out one sample of the "
                f"{len(state.focal.X)} focal rows; pass at least 2 rows or set ridge to a number"
            )
        self.ridge_ = RIDGES[int(np.argmin(errors))]
        return at(self.ridge_)

    def _errors(self, at: Callable[[float], Solved]) -> Floats:
        """Leave-one-out errors of all candidates."""
        if isinstance(at, PooledRidge):
            return at.errors(RIDGES)
        return np.array([at(ridge).uncertainty.left_out.error for ridge in RIDGES])


@savable
class LocalRegressor(_Baseline):
    """LO: ridge regression on the focal rows alone; sources only contribute to the standardisation.

    Parameters
    ----------
    feature_map : object with transform(X), optional
    ridge : float or "loo"
        On standardised features; "loo" chooses the ridge with the smallest leave-one-out error on the focal rows.
    standardise, fit_intercept, focal_name, device
        As for :class:`RegretOptimalRegressor`.

    Examples
    --------
    >>> model = LocalRegressor(ridge=0.0).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])
    >>> model.predict([[3.0]]).round(6)
    array([7.])
    """

    def _fits(self, state: State) -> Callable[[float], Solved]:
        return pooled(state, [0])


@savable
class JointRegressor(_Baseline):
    """JO: ridge regression on all rows pooled.

    Parameters
    ----------
    feature_map, ridge, standardise, fit_intercept, focal_name, device
        As for :class:`LocalRegressor`.

    Examples
    --------
    >>> sources = {"b": ([[2.0], [3.0]], [2.0, 3.0])}
    >>> JointRegressor(ridge=0.0).fit([[0.0], [1.0]], [0.0, 1.0], sources=sources).predict([[4.0]]).round(6)
    array([4.])
    """

    def _fits(self, state: State) -> Callable[[float], Solved]:
        return pooled(state, range(len(state.names)))


@savable
@dataclass(eq=False, repr=False)
class JointSubsetRegressor(_Baseline):
    """JSO: ridge regression on the rows of some domains pooled.

    Parameters
    ----------
    feature_map : object with transform(X), optional
    subset : sequence of str, optional
        Names of the domains to pool, which may include the focal one (``focal_name``); all by default.
    ridge, standardise, fit_intercept, focal_name, device
        As for :class:`LocalRegressor`.

    Examples
    --------
    >>> sources = {"b": ([[2.0], [3.0]], [2.0, 3.0]), "c": ([[2.0]], [99.0])}
    >>> model = JointSubsetRegressor(subset=["focal", "b"], ridge=0.0)
    >>> model.fit([[0.0], [1.0]], [0.0, 1.0], sources=sources).predict([[4.0]]).round(6)
    array([4.])
    """

    _: KW_ONLY
    subset: Sequence[str] | None = None

    def _fits(self, state: State) -> Callable[[float], Solved]:
        return pooled(state, self._chosen(state.names))

    def _chosen(self, names: Sequence[str]) -> list[int]:
        if self.subset is None:
            return list(range(len(names)))
        if isinstance(self.subset, str) or not self.subset or len(set(self.subset)) < len(self.subset):
            raise ParameterError(f"subset must list at least one domain, each once; got {self.subset!r}")
        unknown = [str(name) for name in self.subset if name not in names]
        if unknown:
            raise ParameterError(f"subset names {quoted(unknown)}, not a domain; {nearest(unknown[0], list(names))}")
        return sorted(list(names).index(name) for name in self.subset)


@savable
class MeanOfLocalsRegressor(_Baseline):
    """MLO: the mean of local models, that is, of the ridge models of all domains, including intercepts.

    Parameters
    ----------
    feature_map, ridge, standardise, fit_intercept, focal_name, device
        As for :class:`LocalRegressor`.

    Examples
    --------
    >>> sources = {"b": ([[0.0], [1.0]], [0.0, 3.0])}
    >>> MeanOfLocalsRegressor(ridge=0.0).fit([[0.0], [1.0]], [0.0, 1.0], sources=sources).predict([[1.0]]).round(6)
    array([2.])
    """

    def _fits(self, state: State) -> Callable[[float], Solved]:
        return partial(mean_of_locals, state)


class DomainColumnRegressor(TakesSources, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """All rows pooled, with the domain as a further column, in a regressor of scikit-learn.

    Parameters
    ----------
    kind : {"boosting", "ridge"}
        Histogram gradient boosting with the domain as a category, or ridge regression with a column of zeros and ones
        for each domain.
    seed : int
        Of the boosting.

    Examples
    --------
    >>> X = np.arange(40.0)[:, None]
    >>> model = DomainColumnRegressor("ridge").fit(X, X[:, 0], sources={"b": (X, X[:, 0] + 100.0)})
    >>> bool(abs(model.predict([[20.0]])[0] - 20.0) < 1.0)
    True
    """

    def __init__(self, kind: str = "boosting", seed: int = 0) -> None:
        self.kind = kind
        self.seed = seed

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to the focal rows and the rows of all sources."""
        if self.kind not in ("boosting", "ridge"):
            raise ParameterError(f"kind={self.kind!r} is unknown; choose boosting or ridge")
        focal = trim(read_focal(self, X, y, sample_weight, reset=True)[1])
        parts = [focal, *read_sources(as_sources(sources), focal, None, "focal").values()]
        place = np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
        rows, y, weight = (np.concatenate(each) for each in zip(*((part.X, part.y, part.weight) for part in parts)))
        self.domains_, self.shift_, self.scale_ = len(parts), rows.mean(axis=0), rows.std(axis=0)
        self.scale_[self.scale_ == 0] = 1.0
        # On busy cores, threads wait for one another.
        with tree_threads().limit(limits=1 if rows.size <= SMALL else None):
            self.model_ = self._model().fit(self._inputs(rows, place), y, weight)
        return self

    def predict(self, X: Any) -> Floats:
        """Predictions for rows of the focal domain."""
        rows = check_new(self, X)
        return np.asarray(self.model_.predict(self._inputs(rows, np.zeros(len(rows), dtype=np.int64))))

    def _model(self) -> Any:
        if self.kind == "ridge":
            from sklearn.linear_model import RidgeCV

            return RidgeCV(RIDGES)
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(categorical_features=[len(self.shift_)], random_state=self.seed)

    def _inputs(self, X: Floats, place: Integers) -> Floats:
        if self.kind == "boosting":
            return np.column_stack([X, place])
        return np.hstack([(X - self.shift_) / self.scale_, place[:, None] == np.arange(self.domains_)])


class DomainColumnClassifier(DomainColumnRegressor):
    """All rows pooled, with the domain as a category, in scikit-learn's histogram gradient boosting.

    Parameters
    ----------
    seed : int
        Of the boosting.

    Examples
    --------
    >>> X = np.arange(60.0)[:, None]
    >>> model = DomainColumnClassifier().fit(X, X[:, 0] > 30, sources={"b": (X, X[:, 0] > 20)})
    >>> model.predict([[5.0], [55.0]])
    array([False,  True])
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    kind = "boosting"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to the focal rows and the rows of all sources."""
        labels, given = joined_labels(y, as_sources(sources))
        self.classes_, codes = np.unique(labels, return_inverse=True)
        parts = np.split(codes.astype(np.float64), np.cumsum([len(np.asarray(y)), *(len(s.y) for s in given.values())]))
        coded = Sources({name: s._replace(y=part) for (name, s), part in zip(given.items(), parts[1:])})
        return super().fit(X, parts[0], sample_weight, sources=coded)

    def predict(self, X: Any) -> Any:
        """The likeliest class of rows of the focal domain."""
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, K) for rows of the focal domain."""
        rows = check_new(self, X)
        return np.asarray(self.model_.predict_proba(self._inputs(rows, np.zeros(len(rows), dtype=np.int64))))

    def _model(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(categorical_features=[len(self.shift_)], random_state=self.seed)


class FocalMean(TakesSources, BaseEstimator):  # type: ignore[misc]
    """Predicts the mean of the focal targets, or how common each class is among them, whatever the row.

    Parameters
    ----------
    classes : bool
        Whether targets are classes.

    Examples
    --------
    >>> FocalMean().fit([[0.0], [1.0]], [2.0, 4.0]).predict([[9.0]])
    array([3.])
    >>> sources = {"b": ([[1.0]], ["yes"])}
    >>> FocalMean(classes=True).fit([[0.0], [1.0]], ["no", "no"], sources=sources).predict_proba([[9.0]])
    array([[0.75, 0.25]])
    """

    def __init__(self, classes: bool = False) -> None:
        self.classes = classes

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Remember the mean; sources only say which classes there are."""
        values = np.asarray(y)
        if self.classes:
            self.classes_ = np.unique(joined_labels(y, as_sources(sources))[0])
            self.mean_ = smoothed(np.sum(values[:, None] == self.classes_, axis=0).astype(np.float64))
        else:
            self.mean_ = np.average(values, axis=0, weights=sample_weight)
        return self

    def predict(self, X: Any) -> Any:
        """The mean, or the commonest class."""
        return np.repeat((self.classes_[np.argmax(self.mean_)] if self.classes else self.mean_)[None], len(X), axis=0)

    def predict_proba(self, X: Any) -> Floats:
        """How common each class is, with one more row of each."""
        return np.repeat(self.mean_[None], len(X), axis=0)


def joined_labels(y: Any, sources: Sources | None) -> tuple[Any, Mapping[str, Any]]:
    """The labels of all rows, focal ones first, and the sources by name."""
    given: Mapping[str, Any] = {} if sources is None else dict(sources.items())
    return np.concatenate([np.asarray(y), *(np.asarray(each.y) for each in given.values())]), given


def smoothed(counts: Floats) -> Floats:
    """Probabilities from counts of classes, along the last axis, with one more of each class.

    Examples
    --------
    >>> smoothed(np.array([3.0, 1.0]))
    array([0.66666667, 0.33333333])
    """
    return (counts + 1) / (counts.sum(axis=-1, keepdims=True) + counts.shape[-1])
