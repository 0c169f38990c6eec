"""What else one could do with the same rows: one comparison for fits, the command line, pages and Python.

The methods are the same everywhere (:func:`rivals`): the estimator, the same estimator with the focal rows alone and
with all rows pooled, boosted trees, and the mean of the focal targets. Rows are predicted by fits that have not seen
them, in nested cross-validation: every method chooses its settings inside the training folds. (Leaving one row out in
closed form keeps what was learned from it; few rows alone would look better than they are.) A fit is judged on one draw
of the folds, ``mixtune compare`` on that draw and further ones. Sources take part in every fit and are never tested on.
The errors of two methods on the same rows are correlated, so the interval of their ratio comes from the paired losses
of the rows (delta method); with folds that are drawn again, it also counts what the draw does.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import stdtrit
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from mixtune._messages import counted, deprecated, nearest
from mixtune._registry import storable
from mixtune.arrays import Floats, Integers, device_or_cpu, one_thread_if_small
from mixtune.choice import MIXTUNE, OWN_ROWS, POOLED, Comparison, TransferGain
from mixtune.data import Domain, Domains
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._base import all_scores
from mixtune.estimators._baselines import (
    DomainColumnClassifier,
    DomainColumnRegressor,
    FocalMean,
    LocalRegressor,
    joined_labels,
    smoothed,
)
from mixtune.estimators._inputs import Sources, TakesSources, as_sources
from mixtune.moments import Rows

#: Names of two methods: predict the mean, and gradient boosting with the domain as a category.
MEAN, BOOSTING = "mean", "boosting"
#: What :func:`mixtune.fit_table` and ``mixtune fit`` can fit, the first by default.
METHODS = (MIXTUNE, OWN_ROWS, POOLED)
#: Ridge regressions on all rows, with and without a column for each domain.
RIDGES_ON_ALL = {POOLED: False, "pooled, with the domain": True}
#: Probabilities count as at least this, so that one certain mistake does not make the log loss infinite.
LEAST_PROBABILITY = 1e-15
#: With fewer focal rows, the training part of a fold is too small to choose settings on.
LEAST_ROWS = 5
#: A fit is compared with others on so many folds, with at most so many rows of all sources together.
FOLDS, MOST_SOURCE_ROWS = 5, 20_000
#: Folds are drawn anew until the draw makes the interval wider by at most this part, and so often at least and at most.
SEED_PART, LEAST_REPEATS, MOST_REPEATS = 0.1, 3, 10


#: Fitted attributes of which files of earlier versions hold the values.
_FORMER_ATTRIBUTES = ("compared_", "transfer_gain_", "_rival_residuals")


@storable
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
    if not np.all(np.isfinite(found.residuals)) or len(found.residuals) < 2:
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


@storable
@dataclass(frozen=True)
class Compared:
    """One method on focal rows that it has not seen.

    Attributes
    ----------
    error
        Root mean squared error, or log loss of classes; None where the method failed.
    standard_error
        Of the error, over the rows.
    ratio, ratio_low, ratio_high
        Error relative to that of own rows alone on the same rows, with a 95% interval; None where there is none.
    seconds
        Mean time of a fit.
    failures
        How many fits failed, and ``failure``, how the first one did.
    measures
        RMSE, MAE and R^2, or accuracy, log loss and AUC, over the rows of all repeats.
    reduction
        By what part mixtune's error is lower than this one, with the ends of its 95% interval; None if not known.
    repeats
        How often folds were drawn.
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
    reduction: tuple[float, float, float] | None = None
    repeats: int = 1


@dataclass
class _Record:
    """Losses of one method: one list for each row, with one loss for each repeat; and targets with predictions."""

    losses: list[list[float]]
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def rivals(model: Any, *, classes: bool = False) -> dict[str, Any]:
    """mixtune and the alternatives, unfitted.

    They are the same estimator with the focal rows alone, and with all rows pooled as if they were of one domain;
    gradient boosting on all rows with the domain as a category; and the mean of the focal targets.

    Parameters
    ----------
    model
        The estimator to judge, unfitted.
    classes
        Whether targets are classes.

    Examples
    --------
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> list(rivals(RegretOptimalRegressor()))
    ['mixtune', 'own rows alone', 'pooled', 'boosting', 'mean']
    """
    boosting: Any = DomainColumnClassifier() if classes else DomainColumnRegressor()
    others = {name: OtherRows(model, name) for name in (OWN_ROWS, POOLED)}
    return {MIXTUNE: model, **others, BOOSTING: boosting, MEAN: FocalMean(classes)}


def method_named(name: str) -> str:
    """One of :data:`METHODS`, also where it is written with hyphens.

    Examples
    --------
    >>> method_named("own-rows-alone")
    'own rows alone'
    >>> method_named("pool")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: method="pool" is unknown; did you mean "pooled"?
    """
    found = name.replace("-", " ")
    if found not in METHODS:
        raise ParameterError(f'method="{name}" is unknown; {nearest(found, METHODS)}')
    return found


def rows_of_method(method: str, X: Any, y: Any, sample_weight: Any, sources: Any) -> tuple[Any, Any, Any, Any]:
    """What a method is fitted to: focal rows, their targets and weights, and sources.

    Examples
    --------
    >>> sources = {"b": ([[2.0]], [9.0])}
    >>> X, y, weight, sources = rows_of_method("pooled", [[0.0], [1.0]], [0.0, 1.0], None, sources)
    >>> X[:, 0].tolist(), y.tolist(), weight, sources
    ([0.0, 1.0, 2.0], [0.0, 1.0, 9.0], None, None)
    """
    if method == MIXTUNE:
        return X, y, sample_weight, sources
    given = as_sources(sources)
    if method == OWN_ROWS or given is None:
        return X, y, sample_weight, None
    parts = [(X, y, sample_weight), *((each.X, each.y, each.sample_weight) for _, each in given.items())]
    inputs, targets = (np.concatenate([np.asarray(part[place]) for part in parts]) for place in (0, 1))
    if all(part[2] is None for part in parts):
        return inputs, targets, None, None
    weights = [np.ones(len(part[1])) if part[2] is None else np.asarray(part[2]) for part in parts]
    return inputs, targets, np.concatenate(weights), None


class OtherRows(TakesSources, BaseEstimator):  # type: ignore[misc]
    """An estimator that is fitted to the focal rows alone, or to all rows pooled as if they were of one domain.

    Parameters
    ----------
    estimator
        Unfitted.
    method : {"own rows alone", "pooled"}

    Examples
    --------
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> model = OtherRows(RegretOptimalRegressor(ridge=0.0), "pooled")
    >>> model.fit([[0.0], [1.0]], [0.0, 1.0], sources={"b": ([[2.0]], [2.0])}).predict([[4.0]]).round(6)
    array([4.])
    """

    def __init__(self, estimator: Any, method: str = OWN_ROWS) -> None:
        self.estimator = estimator
        self.method = method

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, sources: Any = None) -> Self:
        """Fit to these rows."""
        rows = rows_of_method(self.method, X, y, sample_weight, sources)
        self.estimator_ = clone(self.estimator)
        if is_classifier(self.estimator) and len(known := np.unique(joined_labels(y, as_sources(sources))[0])) > 1:
            # A class may occur in the sources only.
            self.estimator_.partial_fit(rows[0], rows[1], known, rows[2])
        else:
            self.estimator_.fit(*rows[:3])
        return self

    def predict(self, X: Any) -> Any:
        """Predictions for rows of the focal domain."""
        return self.estimator_.predict(X)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities for rows of the focal domain."""
        return self.estimator_.predict_proba(X)

    @property
    def classes_(self) -> Any:
        """The classes that the fit has seen."""
        return self.estimator_.classes_


class ComparedByFolds:
    """What self-tuning estimators share: a comparison with other methods, made when it is first asked for.

    Files hold the result; of models from files of version 0.2 or earlier there is what these say.
    """

    _stored_attributes: ClassVar[tuple[str, ...]] = ("_compared", *_FORMER_ATTRIBUTES)

    _compared: tuple[Compared, ...] | None = None
    #: What files of earlier versions hold: comparisons, the gain, and left-out residuals of the other methods.
    _former: Mapping[str, Any] = MappingProxyType({})

    @property
    def comparison_(self) -> tuple[Compared, ...]:
        """This and other methods, on focal rows that the fits have not seen."""
        check_is_fitted(self)
        if self._compared is None:
            self._compared = compare_fitted(self)
        return self._compared

    @property
    def compared_(self) -> tuple[Comparison, ...]:
        """The errors of this model and of the other methods: mean squares, or log losses of classes."""
        if "compared_" in self._former:
            return tuple(self._former["compared_"])
        return tuple(map(_as_comparison, self.comparison_))

    @property
    def _rival_residuals(self) -> Floats | None:
        return self._former.get("_rival_residuals")

    def _gain(self, from_validation: float | None) -> TransferGain:
        """The gain against own rows alone, as the comparison has it."""
        if "transfer_gain_" in self._former:
            gain: TransferGain = self._former["transfer_gain_"]
            return gain
        found = next((each.reduction for each in self.comparison_ if each.method == OWN_ROWS), None)
        if found is None:
            return TransferGain(0.0, -math.inf, 1.0, 0.0, from_validation)
        return TransferGain(*found, from_rows=found[0], from_validation=from_validation)

    def save(self, path: Any, **options: Any) -> Any:
        """Write the fitted model into one file, with its comparison; see :meth:`RegretOptimalRegressor.save`."""
        self.comparison_  # noqa: B018  made now, since the file holds no rows to make it from
        return super().save(path, **options)  # type: ignore[misc]

    def _get_stored(self) -> dict[str, Any]:
        # What files of earlier versions hold is not made anew: of the scores of a classifier it would take long.
        names = [name for name in self._stored_names() if name not in _FORMER_ATTRIBUTES]  # type: ignore[attr-defined]
        return {name: getattr(self, name) for name in names if hasattr(self, name)} | dict(self._former)

    def _set_stored(self, values: dict[str, Any]) -> None:
        self._former = {name: values.pop(name) for name in _FORMER_ATTRIBUTES if name in values}
        super()._set_stored(values)  # type: ignore[misc]


def _as_comparison(each: Compared) -> Comparison:
    """The same, with the mean loss in place of its root."""
    error, spread = each.error, each.standard_error
    if each.measures is not None and each.measures.rmse is not None and error is not None and spread is not None:
        error, spread = error**2, 2 * error * spread
    middle, low, high = (0.0, 0.0, 0.0) if each.reduction is None else each.reduction
    error = math.inf if error is None else error
    return Comparison(each.method, error, spread or 0.0, 1 - middle, 1 - high, 1 - low)


def compare_fitted(model: Any) -> tuple[Compared, ...]:
    """Compare a fitted model with the other methods, on one draw of folds of its focal rows.

    A model that holds no rows, or too few, is compared with what it knows by leaving out one row at a time.

    Examples
    --------
    >>> from mixtune.estimators import RegretOptimalRegressorCV
    >>> X = np.arange(12.0)[:, None]
    >>> model = RegretOptimalRegressorCV(None).fit(X, X[:, 0] % 5, sources={"b": (X, X[:, 0])})
    >>> [each.method for each in compare_fitted(model)]
    ['mixtune', 'own rows alone', 'pooled', 'boosting', 'mean']
    """
    inner = getattr(model, "regressor_", model)
    kept = getattr(inner, "_inputs", None)
    if kept is None or len(next(iter(kept.values())).y) < LEAST_ROWS:
        return compare_left_out(model)
    (first, focal), *others = kept.items()
    step = max(-(-sum(len(part.y) for _, part in others) // MOST_SOURCE_ROWS), 1)
    parts = {first: focal, **{name: part.part(slice(None, None, step)) for name, part in others}}
    # A model may have come from a machine with another device.
    device = device_or_cpu(model.device)
    method = clone(model).set_params(device=device)
    if not (model.feature_map is None or isinstance(model.feature_map, str)):
        # Features of a map that was given are the same in every fold.
        features = inner._make_features(device)
        method.set_params(feature_map=None)
        parts = {name: part.scaled(features) for name, part in parts.items()}
    classes = model is not inner
    if classes:
        parts = {name: replace(part, y=np.argmax(all_scores(part.y), axis=1)) for name, part in parts.items()}
    focal = parts.pop(first)
    methods = rivals(method, classes=classes)
    if focal.y.ndim > 1:
        del methods[BOOSTING]
    if not parts:
        methods = {each: methods[each] for each in (MIXTUNE, MEAN)}
    sources = Sources({name: (part.X, part.y, part.weight) for name, part in parts.items()}) if parts else None
    ordered = focal.part(_content_order(focal.X, focal.y))
    ways = {each: partial(_predicted, one, ordered, sources, classes) for each, one in methods.items()}
    # What the fit warned of, the fits of the folds would say again.
    with one_thread_if_small(part.X for part in (focal, *parts.values())), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draws = FOLDS, 1, model.seed
        return _cross_validated(ways, ordered.y, classes, draws, None, weight=ordered.sample_weight)


def compare_left_out(model: Any) -> tuple[Compared, ...]:
    """Compare a fitted model with the other methods, each focal row predicted by fits that have not seen it.

    Examples
    --------
    >>> from mixtune.estimators import RegretOptimalRegressor
    >>> X = np.arange(12.0)[:, None]
    >>> model = RegretOptimalRegressor().fit(X, X[:, 0] % 5, sources={"b": (X, X[:, 0])})
    >>> [each.method for each in compare_left_out(model)]
    ['mixtune', 'own rows alone', 'pooled', 'mean of local models', 'mean']
    """
    rows = left_out_rows(model)
    if rows is None:
        return ()
    classes, records = bool(rows.classes), {}
    for name, predicted in rows.predicted.items():
        losses = _losses(predicted, rows.actual, classes)
        records[name] = _Record([[loss] for loss in losses.tolist()], [(rows.actual, predicted)])
    return _judge(records, classes, weight=rows.weight)


def compare_nested(
    domains: Domains,
    methods: Mapping[str, Any],
    *,
    classes: bool = False,
    folds: int = 5,
    repeats: int | None = None,
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
        Whether targets are classes (whole numbers); the error is then the log loss.
    folds
        Number of folds, at most one for each row.
    repeats
        How often to draw new folds; by default three to ten times, until other draws would hardly change intervals.
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
    >>> found = compare_nested(domains, rivals(RegretOptimalRegressor()))
    >>> [(each.method, each.failures) for each in found]
    [('mixtune', 0), ('own rows alone', 0), ('pooled', 0), ('boosting', 0), ('mean', 0)]
    """
    focal = domains.focal_domain
    if focal.n_rows < LEAST_ROWS:
        raise DataError(
            f'the focal domain "{focal.name}" has {counted((focal.n_rows, "row"))}, too few to hold some out; a '
            f"comparison needs at least {LEAST_ROWS}"
        )
    order = _content_order(focal.X, focal.y)
    sources, rows = Sources.from_domains(domains), Rows(focal.X[order], focal.y[order])
    ways = {name: partial(_predicted, method, rows, sources, classes) for name, method in methods.items()}
    return _cross_validated(ways, rows.y, classes, (folds, repeats, seed), progress)


def _cross_validated(
    ways: Mapping[str, Callable[[Integers, Integers], Any]],
    y: Floats,
    classes: bool,
    draws: tuple[int, int | None, int],
    progress: Callable[[str], None] | None,
    weight: Floats | None = None,
) -> tuple[Compared, ...]:
    """Compare ways to predict rows from others, both given by their places; ``draws`` are folds, repeats and seed."""
    folds, repeats, seed = draws
    if folds < 2 or (repeats is not None and repeats < 1):
        raise ParameterError(f"folds={folds} and repeats={repeats} must be at least 2 and 1")
    # Folds of one row each are the same in every draw.
    repeats = 1 if folds >= len(y) else repeats
    records = {name: _Record([[] for _ in range(len(y))]) for name in ways}
    for repeat in range(MOST_REPEATS if repeats is None else repeats):
        if repeats is None and repeat >= LEAST_REPEATS and _seeds_settled(records, classes):
            break
        for train, test in KFold(min(folds, len(y)), shuffle=True, random_state=seed + repeat).split(y):
            for name, way in ways.items():
                _measure(records[name], partial(way, train, test), y, test, classes)
                if progress is not None:
                    progress(name)
    return _judge(records, classes, weight=weight)


def _seeds_settled(records: Mapping[str, _Record], classes: bool) -> bool:
    """Whether drawing folds once more would hardly change how mixtune compares with the other methods."""
    ours = records.get(MIXTUNE)
    if ours is None or ours.failures:
        return True
    for name, record in records.items():
        if name != MIXTUNE and not record.failures:
            spread = _spread(ours, record, _power(classes), None)
            if spread is not None and math.hypot(*spread) > (1 + SEED_PART) * spread[0]:
                return False
    return True


def _content_order(X: Floats, y: Floats) -> Integers:
    """An order of rows that follows from their content, so that folds do not depend on the order they came in."""
    return np.lexsort((*y.reshape(len(y), -1).T, *X.T))


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


def _predicted(
    method: Any, focal: Rows, sources: Sources | None, classes: bool, train: Integers, test: Integers
) -> Floats:
    rows = focal.part(train)
    weight = () if rows.sample_weight is None else (rows.sample_weight,)
    return _predictions(clone(method).fit(rows.X, rows.y, *weight, sources=sources), focal.X[test], classes)


def compare_every(
    domains: Domains,
    model: Any,
    *,
    classes: bool = False,
    folds: int = 5,
    repeats: int | None = None,
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
    # Fits for one domain do not need classifiers, which are imported late.
    from mixtune.estimators._classifier import ScoreClassifier

    ridge: Any = ScoreClassifier(LocalRegressor(ridge="loo")) if classes else LocalRegressor(ridge="loo")
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
    if not classes:
        return np.mean(((predicted - y) ** 2).reshape(len(y), -1), axis=1)
    labels = y.astype(np.int64)
    # A class that the fit has not seen got no probability.
    known = labels < predicted.shape[1]
    given = np.where(known, predicted[np.arange(len(y)), np.where(known, labels, 0)], 0.0)
    return -np.log(np.maximum(given, LEAST_PROBABILITY))


def _measured(pairs: Sequence[tuple[Any, Any]], classes: bool, weight: Floats | None = None) -> Measures:
    actual = np.concatenate([y for y, _ in pairs])
    if not classes:
        return Measures.of_numbers(actual, np.concatenate([predicted for _, predicted in pairs]), weight)
    # A class that no fold of the training rows had got no probability.
    width = max(int(actual.max()) + 1, *(predicted.shape[1] for _, predicted in pairs))
    shares = [np.pad(predicted, ((0, 0), (0, width - predicted.shape[1]))) for _, predicted in pairs]
    return Measures.of_classes(actual.astype(np.int64), np.concatenate(shares))


def _judge(
    records: Mapping[str, _Record], classes: bool, against: str = OWN_ROWS, weight: Floats | None = None
) -> tuple[Compared, ...]:
    """The errors of all methods, and how they compare with ``against`` and with mixtune, over rows with weights."""
    if against == OWN_ROWS and OWN_ROWS not in records and "focal only" in records:
        warnings.warn(deprecated("focal only", OWN_ROWS), DeprecationWarning, stacklevel=3)
        against = "focal only"
    worked = {name: record for name, record in records.items() if not record.failures}
    base, ours = worked.get(against), worked.get(MIXTUNE)
    power = _power(classes)
    found = []
    for name, record in records.items():
        seconds = math.fsum(record.seconds) / max(len(record.seconds), 1)
        if record.failures:
            found.append(Compared(name, *(None,) * 5, seconds, len(record.failures), record.failures[0]))
            continue
        ratio, reduction = _ratio(record, base, power, weight), _ratio(ours, record, power, weight)
        error, spread = _error(record, power, weight)
        low, middle, high = (None, None, None) if ratio is None else (ratio[1], ratio[0], ratio[2])
        made = Compared(name, error, spread, middle, low, high, seconds)
        if name == MIXTUNE or reduction is None:
            reduction = None
        else:
            reduction = 1 - reduction[0], 1 - reduction[2], 1 - reduction[1]
        repeats = min(map(len, record.losses), default=1)
        measures = _measured(record.pairs, classes, weight)
        found.append(replace(made, measures=measures, reduction=reduction, repeats=repeats))
    return tuple(found)


def _power(classes: bool) -> float:
    """The error is the mean loss to this power."""
    return 1.0 if classes else 0.5


def _means(record: _Record) -> Floats:
    """Mean loss of each row over the repeats."""
    return np.array([math.fsum(losses) / len(losses) for losses in record.losses])


def _shares(count: int, weight: Floats | None) -> tuple[Floats, float]:
    """What part of the mean each row is, and how many rows there are, each counting as its weight."""
    if weight is None:
        return np.full(count, 1.0 / count), float(count)
    return weight / weight.sum(), float(weight.sum())


def _error(record: _Record, power: float, weight: Floats | None) -> tuple[float, float]:
    """The error and its standard error over the rows."""
    losses = _means(record)
    shares, count = _shares(len(losses), weight)
    mean = float(shares @ losses)
    error = mean**power
    spread = math.sqrt(float(shares @ (losses - mean) ** 2) / (count - 1)) if count > 1 else math.nan
    # Delta method: the slope of mean**power at the mean.
    return error, spread * power * error / mean if mean > 0 else 0.0


def _ratio(
    record: _Record | None, other: _Record | None, power: float, weight: Floats | None
) -> tuple[float, float, float] | None:
    """Ratio of the errors with its interval; None where one is not known or zero."""
    if record is None or other is None:
        return None
    if not any(map(any, (*record.losses, *other.losses))):
        return 1.0, 1.0, 1.0
    if (spread := _spread(record, other, power, weight)) is None:
        return None
    shares, _ = _shares(len(record.losses), weight)
    ratio = float((shares @ _means(record)) / (shares @ _means(other))) ** power
    half = math.hypot(*spread)
    return ratio, ratio * math.exp(-half), ratio * math.exp(half)


def _spread(record: _Record, other: _Record, power: float, weight: Floats | None) -> tuple[float, float] | None:
    """Half the 95% interval of the logarithm of the ratio, from the paired losses of rows, and from draws of folds."""
    losses, others = _means(record), _means(other)
    shares, count = _shares(len(losses), weight)
    mean, base = float(shares @ losses), float(shares @ others)
    if not (0 < mean < math.inf and 0 < base < math.inf) or count <= 1:
        return None
    paired = power * (losses / mean - others / base)
    of_rows = float(stdtrit(count - 1, 0.975)) * math.sqrt(float(shares @ paired**2) / (count - 1))
    draws = min(map(len, (*record.losses, *other.losses)))
    if draws < 2:
        return of_rows, 0.0
    means = [[math.fsum(losses[draw] for losses in each.losses) for draw in range(draws)] for each in (record, other)]
    logs = power * (np.log(np.maximum(means[0], 1e-300)) - np.log(np.maximum(means[1], 1e-300)))
    return of_rows, float(stdtrit(draws - 1, 0.975)) * float(np.std(logs, ddof=1)) / math.sqrt(draws)
