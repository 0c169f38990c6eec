"""Plain alternatives as estimators, and the comparison of an estimator with them on focal rows that no fit has seen.

The comparison is made either by nested cross-validation (every method chooses its settings inside the training folds),
or on held-out rows. Sources take part in every fit and are never tested on. The errors of two methods on the same rows
are correlated, so the interval of their ratio comes from the paired losses of the rows (delta method).
"""

from __future__ import annotations

import math
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import stdtrit
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import KFold

from mixtune._messages import counted, deprecated, nearest, quoted
from mixtune.arrays import SMALL, Floats, Integers
from mixtune.checks import check_nonnegative
from mixtune.choice import MEAN_OF_LOCALS, MIXTUNE, OWN_ROWS, POOLED, tree_threads
from mixtune.data import Domain, Domains
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._base import MomentRegressor, all_scores
from mixtune.estimators._fits import PooledRidge, Solved, State, is_auto, mean_of_locals, pooled
from mixtune.estimators._inputs import Sources, TakesSources, as_sources, check_new, read_focal, read_sources, trim
from mixtune.estimators._saving import savable

#: Candidates of ``ridge="loo"``, for standardised features.
RIDGES = tuple(np.logspace(-3, 5, 17).tolist())

#: Ridge regressions on all rows, with and without a column for each domain.
RIDGES_ON_ALL = {POOLED: False, "pooled, with the domain": True}
#: Names of two methods: predict the mean, and gradient boosting with the domain as a category.
MEAN, BOOSTING = "mean", "boosting"
#: Probabilities count as at least this, so that one certain mistake does not make the log loss infinite.
LEAST_PROBABILITY = 1e-15
#: With fewer focal rows, the training part of a fold is too small to choose settings on.
LEAST_ROWS = 5


@dataclass(eq=False, repr=False)
class _Baseline(MomentRegressor):
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
        labels, given = _joined_labels(y, as_sources(sources))
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
            self.classes_ = np.unique(_joined_labels(y, as_sources(sources))[0])
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


def _joined_labels(y: Any, sources: Sources | None) -> tuple[Any, Mapping[str, Any]]:
    """The labels of all rows, focal ones first, and the sources by name."""
    given: Mapping[str, Any] = {} if sources is None else dict(sources.items())
    return np.concatenate([np.asarray(y), *(np.asarray(each.y) for each in given.values())]), given


@dataclass(frozen=True)
class Measures:
    """Measures of the quality of predictions; those that do not apply are None.

    Attributes
    ----------
    rmse, mae : float or None
        Root mean squared and mean absolute error, in the units of the target.
    r2 : float or None
        The part of the targets' variance that the predictions explain; 0 is what their own mean would give.
    accuracy : float or None
        Share of rows that are classified correctly.
    log_loss : float or None
        Mean negative logarithm of the predicted probability of the true class.
    auc : float or None
        Probability that a row of the class has a larger score than one of another; a mean over more than two classes.
    """

    rmse: float | None = None
    mae: float | None = None
    r2: float | None = None
    accuracy: float | None = None
    log_loss: float | None = None
    auc: float | None = None

    @classmethod
    def of_numbers(cls, actual: Floats, predicted: Floats, weight: Floats | None = None) -> Measures:
        """From targets and predictions (n,) or (n, D).

        Examples
        --------
        >>> Measures.of_numbers(np.array([0.0, 2.0]), np.array([1.0, 2.0])).r2
        0.5
        """
        share = np.full(len(actual), 1.0 / len(actual)) if weight is None else weight / weight.sum()
        apart = (actual - predicted).reshape(len(actual), -1)
        if not np.all(np.isfinite(apart)):
            return cls()
        square = float(share @ np.mean(apart**2, axis=1))
        targets = actual.reshape(len(actual), -1)
        spread = float(share @ np.mean((targets - share @ targets) ** 2, axis=1))
        mae = float(share @ np.mean(np.abs(apart), axis=1))
        return cls(square**0.5, mae, 1 - square / spread if spread > 0 else None)

    @classmethod
    def of_classes(cls, labels: Integers, probabilities: Floats) -> Measures:
        """From the places (n,) of the true classes and probabilities (n, K).

        Examples
        --------
        >>> found = Measures.of_classes(np.array([0, 1]), np.array([[0.75, 0.25], [0.5, 0.5]]))
        >>> found.accuracy, round(found.log_loss, 3), found.auc
        (0.5, 0.49, 1.0)
        """
        if not np.all(np.isfinite(probabilities)):
            return cls()
        right = float(np.mean(np.argmax(probabilities, axis=1) == labels))
        given = np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY)
        classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
        areas = [_area(labels == place, probabilities[:, place]) for place in classes]
        known = [area for area in areas if area is not None]
        log_loss = float(-np.mean(np.log(given)))
        return cls(accuracy=right, log_loss=log_loss, auc=float(np.mean(known)) if known else None)


def _area(positive: Any, scores: Floats) -> float | None:
    """The area under the ROC curve; None where all rows are on one side."""
    ones = int(np.sum(positive))
    if ones in (0, len(scores)):
        return None
    above = float(rankdata(scores)[positive].sum()) - ones * (ones + 1) / 2
    return above / (ones * (len(scores) - ones))


@dataclass(frozen=True, eq=False)
class LeftOutRows:
    """The focal rows of a self-tuning fit, each predicted without itself.

    Attributes
    ----------
    actual : array (n, D) or (n,) of int
        Targets, or places of the true classes.
    predicted : dict
        For each method predictions (n, D), or probabilities (n, K).
    """

    actual: Any
    predicted: dict[str, Floats]
    weight: Floats
    classes: tuple[str, ...] = ()

    def measures(self) -> dict[str, Measures]:
        """The measures of every method."""
        if self.classes:
            return {name: Measures.of_classes(self.actual, each) for name, each in self.predicted.items()}
        return {name: Measures.of_numbers(self.actual, each, self.weight) for name, each in self.predicted.items()}


def left_out_rows(model: Any) -> LeftOutRows | None:
    """Left-out predictions of a fitted model and of the simpler methods; None where none are known.

    Probabilities of the alternatives are calibrated on the same left-out scores. Models that were saved before there
    was a record of the alternatives have their own predictions and the mean of the targets only.
    """
    from mixtune.estimators._classifier import fit_sharpness, softmax_scores

    inner = getattr(model, "regressor_", model)
    found = inner._uncertainty.left_out
    if len(found.residuals) < 2 or not np.all(np.isfinite(found.residuals)):
        return None
    scale = getattr(inner, "_log_scale", None)
    actual = found.predictions + found.residuals + np.reshape(inner._scaling.target_shift, -1)
    actual = actual if scale is None else np.exp(actual)
    own = np.reshape(inner.loo_predictions_, actual.shape)
    residuals = {MIXTUNE: actual - own}
    known = getattr(inner, "_rival_residuals", None)
    if known is not None:
        residuals |= dict(zip((each.method for each in inner.compared_[1:]), known))
    predicted = {name: actual - part for name, part in residuals.items() if np.all(np.isfinite(part))}
    if model is inner:
        total = found.sample_weight.sum()
        others = (found.sample_weight @ actual - found.sample_weight[:, None] * actual) / (
            total - found.sample_weight[:, None]
        )
        return LeftOutRows(actual, {**predicted, MEAN: others}, found.sample_weight)
    signs = all_scores(actual)
    places = np.argmax(signs, axis=1)
    shares: dict[str, Floats] = {}
    for name, part in predicted.items():
        scores = all_scores(part)
        sharpness = model.sharpness_ if name == MIXTUNE else fit_sharpness(scores, places, found.sample_weight)
        shares[name] = softmax_scores(scores, sharpness)
    # Counts of all rows: leaving one out makes its class rarer, so that classes of equal size would always be wrong.
    counts = np.bincount(places, minlength=signs.shape[1]).astype(np.float64)
    shares[MEAN] = np.repeat(smoothed(counts)[None], len(places), axis=0)
    return LeftOutRows(places, shares, found.sample_weight, tuple(map(str, model.classes_.tolist())))


def smoothed(counts: Floats) -> Floats:
    """Probabilities from counts of classes, along the last axis, with one more of each class.

    Examples
    --------
    >>> smoothed(np.array([3.0, 1.0]))
    array([0.66666667, 0.33333333])
    """
    return (counts + 1) / (counts.sum(axis=-1, keepdims=True) + counts.shape[-1])


@dataclass(frozen=True)
class Compared:
    """One method on focal rows that it has not seen.

    Attributes
    ----------
    error
        Root mean squared error, or the share of wrong classes; None where the method failed.
    standard_error
        Of the error, over the rows.
    ratio, ratio_low, ratio_high
        Error relative to that of the focal-only fit on the same rows, with a 95% interval; None where there is none.
    seconds
        Mean time of a fit.
    failures
        How many fits failed, and ``failure``, how the first one did.
    measures
        RMSE, MAE and R^2, or accuracy, log loss and AUC, over the rows of all repeats.
    """

    method: str
    error: float | None
    standard_error: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    seconds: float
    failures: int = 0
    failure: str | None = None
    measures: Measures | None = None


@dataclass
class _Record:
    """Losses of one method: one list for each row, with one loss for each repeat; and targets with predictions."""

    losses: list[list[float]]
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def rivals(model: Any, *, classes: bool = False, feature_map: Any = None, focal: str = "focal") -> dict[str, Any]:
    """mixtune and the plain alternatives, unfitted.

    They are ridge regressions on the focal rows only, on all rows pooled, and the mean of one for each domain; gradient
    boosting on all rows with the domain as a category; and the mean of the focal targets.

    Parameters
    ----------
    model
        The estimator to judge, unfitted.
    classes
        Whether targets are classes.
    feature_map, focal
        Of the alternatives, as for the estimators; with "auto" they are linear in the inputs.

    Examples
    --------
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> list(rivals(RegretOptimalRegressor()))
    ['mixtune', 'own rows alone', 'pooled', 'mean of local models', 'boosting', 'mean']
    """
    feature_map = None if is_auto(feature_map) else feature_map
    kinds = {OWN_ROWS: LocalRegressor, POOLED: JointRegressor, MEAN_OF_LOCALS: MeanOfLocalsRegressor}
    made = {name: kind(feature_map, ridge="loo", focal_name=focal) for name, kind in kinds.items()}
    boosting: Any = DomainColumnClassifier() if classes else DomainColumnRegressor()
    ridges = {name: _for_classes(each) if classes else each for name, each in made.items()}
    return {MIXTUNE: model, **ridges, BOOSTING: boosting, MEAN: FocalMean(classes)}


def _for_classes(regressor: Any) -> Any:
    """A classifier that uses the scores of a regressor."""
    from mixtune.estimators._classifier import ScoreClassifier

    return ScoreClassifier(regressor)


def compare_nested(
    domains: Domains,
    methods: Mapping[str, Any],
    *,
    classes: bool = False,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> tuple[Compared, ...]:
    """Compare methods by cross-validation over the focal rows; each chooses its settings inside the training folds.

    Parameters
    ----------
    domains
        The data.
    methods
        Unfitted estimators by name, such as :func:`rivals` gives; the one named "own rows alone" is the yardstick.
    classes
        Whether targets are classes (whole numbers); the error is then the share of wrong ones.
    folds
        Number of folds, at most one for each row.
    repeats
        How often to draw new folds.
    seed
        Of the folds.
    progress
        Called with the name of the method after every fit.

    Raises
    ------
    DataError
        If there are fewer than five focal rows.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> domains = make_domains(n_domains=4, n_rows=20, seed=0).domains
    >>> found = compare_nested(domains, rivals(RegretOptimalRegressor(), focal=domains.focal))
    >>> [(each.method, each.failures) for each in found]
    [('mixtune', 0), ('own rows alone', 0), ('pooled', 0), ('mean of local models', 0), ('boosting', 0), ('mean', 0)]
    """
    focal = domains.focal_domain
    if focal.n_rows < LEAST_ROWS:
        raise DataError(
            f'the focal domain "{focal.name}" has {counted((focal.n_rows, "row"))}, too few to hold some out; a '
            f"comparison needs at least {LEAST_ROWS}"
        )
    sources, focal = Sources.from_domains(domains), _in_order(focal)
    ways = {name: partial(_predicted, method, focal, sources, classes) for name, method in methods.items()}
    return _cross_validated(ways, focal.y, classes, (folds, repeats, seed), progress)


def _cross_validated(
    ways: Mapping[str, Callable[[Integers, Integers], Any]],
    y: Floats,
    classes: bool,
    draws: tuple[int, int, int],
    progress: Callable[[str], None] | None,
) -> tuple[Compared, ...]:
    """Compare ways to predict rows from others, both given by their places; ``draws`` are folds, repeats and seed."""
    folds, repeats, seed = draws
    if folds < 2 or repeats < 1:
        raise ParameterError(f"folds={folds} and repeats={repeats} must be at least 2 and 1")
    records = {name: _Record([[] for _ in range(len(y))]) for name in ways}
    for repeat in range(repeats):
        for train, test in KFold(min(folds, len(y)), shuffle=True, random_state=seed + repeat).split(y):
            for name, way in ways.items():
                _measure(records[name], partial(way, train, test), y, test, classes)
                if progress is not None:
                    progress(name)
    return _judge(records, classes)


def _in_order(focal: Domain) -> Domain:
    """The rows in an order that follows from their content, so that folds do not depend on the order they came in."""
    order = np.lexsort((*focal.y.reshape(focal.n_rows, -1).T, *focal.X.T))
    return Domain(focal.name, focal.X[order], focal.y[order], columns=focal.columns)


def compare_held_out(train: Domains, test: Domain, models: Mapping[str, Any]) -> tuple[Compared, ...]:
    """Compare methods on held-out rows of the focal domain; those that are already fitted are used as they are.

    Parameters
    ----------
    train
        The data to learn from.
    test
        Rows of the focal domain that are not in ``train``.
    models
        Estimators by name, such as :func:`rivals` gives.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> problem = make_domains(n_domains=4, n_rows=20, seed=0)
    >>> found = compare_held_out(problem.domains, problem.test, rivals(RegretOptimalRegressor()))
    >>> found[1].method, found[1].ratio
    ('own rows alone', 1.0)
    """
    sources, focal = Sources.from_domains(train), train.focal_domain
    records = {}
    for name, model in models.items():
        begin = time.perf_counter()
        fitted = hasattr(model, "coef_")
        model = model if fitted else clone(model).fit(focal.X, focal.y, sources=sources)
        seconds = 0.0 if fitted else time.perf_counter() - begin
        predicted = _predictions(model, test.X, False)
        losses = _losses(predicted, test.y, False).tolist()
        records[name] = _Record([[loss] for loss in losses], [(test.y, predicted)], [seconds])
    return _judge(records, False)


def _predicted(method: Any, focal: Domain, sources: Sources, classes: bool, train: Integers, test: Integers) -> Floats:
    model = clone(method).fit(focal.X[train], focal.y[train], sources=sources)
    return _predictions(model, focal.X[test], classes)


def compare_every(
    domains: Domains,
    model: Any,
    *,
    classes: bool = False,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> tuple[Compared, ...]:
    """Compare a model for every domain with simpler ones, by cross-validation over the rows of all domains.

    The others are ridge regressions: one for each domain, one for all rows pooled, and one for all rows pooled with a
    column of zeros and ones for each domain. Ratios are relative to the first of these.

    Parameters
    ----------
    domains
        The data; which domain is focal does not matter.
    model
        The estimator to judge, unfitted: a MultiDomainRegressor or MultiDomainClassifier.
    classes, folds, repeats, seed, progress
        As for :func:`compare_nested`.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> from mixtune.estimators import MultiDomainRegressor
    >>> domains = make_domains(n_domains=4, n_rows=20, seed=0).domains
    >>> found = compare_every(domains, MultiDomainRegressor(feature_map=None), folds=2)
    >>> [each.method for each in found]
    ['mixtune', 'own rows alone', 'pooled', 'pooled, with the domain']
    """
    members = list(domains)
    X, y = (np.concatenate([np.asarray(getattr(each, part)) for each in members]) for part in ("X", "y"))
    domain = np.repeat(np.arange(len(members)), [each.n_rows for each in members])
    if len(y) < LEAST_ROWS:
        raise DataError(f"there are {counted((len(y), 'row'))} in all; a comparison needs at least {LEAST_ROWS}")
    ridge: Any = _for_classes(LocalRegressor(ridge="loo")) if classes else LocalRegressor(ridge="loo")
    rows = _Labelled(X, y, domain, classes)
    ways: dict[str, Callable[..., Any]] = {MIXTUNE: partial(rows.by_label, model), OWN_ROWS: partial(rows.each, ridge)}
    ways |= {name: partial(rows.pooled, ridge, marked) for name, marked in RIDGES_ON_ALL.items()}
    return _cross_validated(ways, y, classes, (folds, repeats, seed), progress)


@dataclass(frozen=True, eq=False)
class _Labelled:
    """Rows of all domains with the domain of each, and how models predict some of them from others."""

    X: Floats
    y: Floats
    domain: Integers
    classes: bool

    def by_label(self, model: Any, train: Integers, test: Integers) -> Floats:
        fitted = clone(model).fit(self.X[train], self.y[train], domain=self.domain[train])
        return _predictions(fitted, self.X[test], self.classes, domain=self.domain[test])

    def each(self, model: Any, train: Integers, test: Integers) -> Floats:
        """A model for each domain; where its rows are too few or of one class, their mean or shares of classes."""
        y, theirs = self.y[train], self.domain[test]
        width = int(y.max()) + 1 if self.classes else 0
        found = np.zeros((len(test), width) if self.classes else len(test))
        for place in np.unique(theirs):
            rows, wanted = train[self.domain[train] == place], theirs == place
            own = self.y[rows]
            known = own if len(own) else y
            if len(own) > 2 and len(np.unique(own)) > 1:
                made = _predictions(clone(model).fit(self.X[rows], own), self.X[test[wanted]], self.classes)
                found[wanted] = np.pad(made, ((0, 0), (0, width - made.shape[1]))) if self.classes else made
            elif self.classes:
                found[wanted] = np.bincount(known.astype(int), minlength=width) / len(known)
            else:
                found[wanted] = known.mean()
        return found

    def pooled(self, model: Any, marked: bool, train: Integers, test: Integers) -> Floats:
        """One model for all rows; ``marked``, with a column of zeros and ones for each domain."""
        X = self.X
        if marked:
            X = np.hstack([X, self.domain[:, None] == np.unique(self.domain[train])])
        return _predictions(clone(model).fit(X[train], self.y[train]), X[test], self.classes)


def _measure(record: _Record, predict: Callable[[], Any], y: Floats, test: Integers, classes: bool) -> None:
    """Record the losses on the rows ``test`` of what ``predict`` fits and predicts, and how long that took."""
    begin = time.perf_counter()
    # A method that fails on a fold is recorded as failed, and the others go on.
    try:
        predicted = predict()
        losses = _losses(predicted, y[test], classes)
    except (ArithmeticError, ValueError) as error:
        record.failures.append(f"{type(error).__name__}: {error}".splitlines()[0])
        return
    record.seconds.append(time.perf_counter() - begin)
    record.pairs.append((y[test], predicted))
    for row, loss in zip(test, losses.tolist()):
        record.losses[row].append(loss)


def _predictions(model: Any, X: Floats, classes: bool, **given: Any) -> Floats:
    """Predictions (n,), or probabilities (n, K) of the classes 0 to K-1; certain where a model gives none.

    ``given`` is passed on to the model.
    """
    if not classes:
        found = np.asarray(model.predict(X, **given), dtype=np.float64)
    elif hasattr(model, "predict_proba"):
        known = np.asarray(model.classes_, dtype=np.int64)
        found = np.zeros((len(X), int(known.max()) + 1))
        found[:, known] = model.predict_proba(X, **given)
    else:
        codes = np.asarray(model.predict(X, **given), dtype=np.int64)
        found = np.eye(int(codes.max()) + 1)[codes]
    if not np.isfinite(found).all():
        wrong = int((~np.isfinite(found.reshape(len(found), -1))).any(axis=1).sum())
        raise ValueError(f"{wrong} of {len(X)} predictions are not finite")
    return found


def _losses(predicted: Floats, y: Floats, classes: bool) -> Floats:
    return (np.argmax(predicted, axis=1) != y).astype(np.float64) if classes else (predicted - y) ** 2


def _measured(pairs: Sequence[tuple[Any, Any]], classes: bool) -> Measures:
    actual = np.concatenate([y for y, _ in pairs])
    if not classes:
        return Measures.of_numbers(actual, np.concatenate([predicted for _, predicted in pairs]))
    # A class that no fold of the training rows had got no probability.
    width = max(int(actual.max()) + 1, *(predicted.shape[1] for _, predicted in pairs))
    shares = [np.pad(predicted, ((0, 0), (0, width - predicted.shape[1]))) for _, predicted in pairs]
    return Measures.of_classes(actual.astype(np.int64), np.concatenate(shares))


def _judge(records: Mapping[str, _Record], classes: bool, against: str = OWN_ROWS) -> tuple[Compared, ...]:
    if against == OWN_ROWS and OWN_ROWS not in records and "focal only" in records:
        warnings.warn(deprecated("focal only", OWN_ROWS), DeprecationWarning, stacklevel=3)
        against = "focal only"
    base = records.get(against)
    yardstick = None if base is None or base.failures else _means(base)
    found = (_summary(name, record, yardstick, 1.0 if classes else 0.5) for name, record in records.items())
    return tuple(
        each if each.failures else replace(each, measures=_measured(record.pairs, classes))
        for each, record in zip(found, records.values())
    )


def _means(record: _Record) -> Floats:
    """Mean loss of each row over the repeats."""
    return np.array([math.fsum(losses) / len(losses) for losses in record.losses])


def _summary(name: str, record: _Record, yardstick: Floats | None, power: float) -> Compared:
    seconds = math.fsum(record.seconds) / max(len(record.seconds), 1)
    if record.failures:
        return Compared(name, *(None,) * 5, seconds, len(record.failures), record.failures[0])
    losses = _means(record)
    mean, n = float(losses.mean()), len(losses)
    error = mean**power
    spread = float(losses.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    # Delta method: the slope of mean**power at the mean.
    standard_error = spread * power * error / mean if mean > 0 else 0.0
    return Compared(name, error, standard_error, *_ratio(losses, yardstick, power), seconds)


def _ratio(losses: Floats, yardstick: Floats | None, power: float) -> tuple[float | None, float | None, float | None]:
    """Ratio of the errors with its interval, from the paired losses; None where an error is zero."""
    if yardstick is None or not (mean := float(losses.mean())) or not (base := float(yardstick.mean())):
        return None, None, None
    ratio = (mean / base) ** power
    paired = power * (losses / mean - yardstick / base)
    half = float(stdtrit(len(paired) - 1, 0.975)) * float(paired.std(ddof=1)) / math.sqrt(len(paired))
    return ratio, ratio * math.exp(-half), ratio * math.exp(half)
