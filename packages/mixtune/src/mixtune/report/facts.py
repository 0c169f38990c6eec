"""What a fitted model says about itself, read once and checked: plain numbers, in the units of the target.

The page, the verdict and the command line all show these facts. Mean squared errors become root mean squared errors
here, and whatever a model cannot tell (distances that were not computed, removals after loading) is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import _num_samples, check_is_fitted

from mixtune.arrays import Floats
from mixtune.choice import MIXTUNE, OWN_ROWS
from mixtune.data import findings_of
from mixtune.errors import DataError, MixtuneError, ParameterError
from mixtune.report.columns import ColumnFacts, read_columns, stored_columns
from mixtune.report.wording import carried_by, comes_from, plain_value

if TYPE_CHECKING:
    from mixtune.estimators import Candidate, Compared, Measures, Sources

#: The families of candidates that are fitted to the focal rows alone, from zero.
OWN_FAMILIES = ("focal only", "focal only curves", "own curves")
#: How names of maps begin that are kernels of Gaussian processes over all domains.
KERNEL = "kernel"
#: Of the intervals on the page.
COVERAGE = 0.9
#: The paper's bound holds with probability 1 - delta.
DELTA = 0.05
#: What errors of methods are, of numbers and of classes.
RMSE, LOG_LOSS = "RMSE", "log loss"
#: So many outputs get charts of their own; of more, only the first.
MOST_OUTPUTS = 3


@dataclass(frozen=True)
class DomainFact:
    """One domain.

    Attributes
    ----------
    weight : float or None
        Its share of the prediction.
    rows : int
        0 where the number is not known.
    own_error : float or None
        Error on the focal rows of a fit to this domain alone; of the focal domain, with each row left out.
    distance : float or None
        Wasserstein distance to the focal rows.
    change, error_without, shift : float or None
        What leaving it out would do: relative change of the error, the error then, and by how much predictions move.
    change_low, change_high : float or None
        The 95% interval of the change.
    """

    name: str
    weight: float | None = None
    rows: int = 0
    own_error: float | None = None
    distance: float | None = None
    change: float | None = None
    error_without: float | None = None
    shift: float | None = None
    change_low: float | None = None
    change_high: float | None = None


@dataclass(frozen=True)
class MethodFact:
    """The error of one method on rows that it has not seen, and the model's relative to it with a 95% interval.

    The error is the RMSE or, of classes, the log loss.
    """

    method: str
    error: float | None
    standard_error: float | None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    measures: Measures | None = None

    @classmethod
    def of(cls, compared: Compared) -> MethodFact:
        """From a comparison on rows that were left out, or tested on."""
        error, spread = _finite(compared.error), _finite(compared.standard_error)
        if (found := compared.reduction) is None:
            return cls(compared.method, error, spread, measures=compared.measures)
        return cls(compared.method, error, spread, 1 - found[0], 1 - found[2], 1 - found[1], compared.measures)

    @property
    def reduction(self) -> tuple[float, float, float] | None:
        """The relative reduction of the error by the model, with the ends of its interval, where all are known."""
        known = _known(self.ratio, self.ratio_high, self.ratio_low)
        return None if known is None else (1 - known[0], 1 - known[1], 1 - known[2])


@dataclass(frozen=True)
class BoundFact:
    """Theorem 1 of the paper at the model's weights, without its entropy term, which only loosens it (equation (35)).

    Numbers are in units of the Lipschitz constant of the loss, with the theorem's unknown constant set to 1.

    Attributes
    ----------
    power : float
        ``sum_i w_i (W1_i + n_i^(-1/(d+D)))``: distances and sampling errors.
    confidence : float
        ``sqrt(ln(2N/delta)/(2 min_i n_i))``.
    alone : float
        The power of the focal rows alone; T-Gain is ``power - alone``.
    delta : float
    """

    power: float
    confidence: float
    alone: float
    delta: float

    @property
    def total(self) -> float:
        """The bound."""
        return self.power + self.confidence

    @property
    def lines(self) -> tuple[str, ...]:
        """What it says, and what it takes for granted."""
        empty = " That is 1 or more, which says nothing." if self.total >= 1 else ""
        return (
            f"If the assumptions below hold, then with probability {1 - self.delta:.0%} the mean loss on new focal "
            f"rows differs from the weighted mean loss on the rows of the fit by at most {self.total:.3g}: "
            f"{self.power:.3g} for distances and sampling, {self.confidence:.3g} for confidence.{empty}",
            f"T-Gain, what the weights change in the first part against the focal rows alone, is "
            f"{self.power - self.alone:+.3g}; a negative value favours transfer.",
            "Units: rows are divided by their diameter, and (x, y) -> loss(f(x), y) has Lipschitz constant 1; multiply "
            "by its own. Squared errors have one only where targets are bounded.",
            "The constant C of the theorem is not known; 1 is used. So the numbers compare weightings and promise "
            "nothing about errors.",
            "Assumed: the rows of each domain are independent draws from one law, all in a bounded set, with three or "
            "more columns in all. True distances are replaced by those of the samples, which sampling makes too large.",
        )


@dataclass(frozen=True)
class RidgeFact:
    """Left-out errors along effective ridges."""

    ridges: tuple[float, ...]
    errors: tuple[float, ...]
    chosen: float


@dataclass(frozen=True)
class Trajectory:
    """Loss and energy after so many steps."""

    times: tuple[int, ...]
    loss: tuple[float, ...]
    energy: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """One output on the focal rows: actual, predicted without the row, and half the width of its interval."""

    name: str
    actual: Floats
    predicted: Floats
    half: Floats | None
    why_no_interval: str = ""
    outputs: int = 1

    @property
    def residuals(self) -> Floats:
        """Actual minus predicted."""
        return self.actual - self.predicted

    @property
    def covered(self) -> int:
        """How many rows lie inside their intervals."""
        return 0 if self.half is None else int(np.sum(np.abs(self.residuals) <= self.half))


@dataclass(frozen=True, eq=False)
class ClassFact:
    """How often each class (rows) is taken for each other (columns), each focal row predicted without itself.

    ``labels`` are the places of the true classes, ``shares`` probabilities (n, K) by every method.
    """

    names: tuple[str, ...]
    counts: np.ndarray[Any, Any]
    labels: Any
    shares: Mapping[str, Floats]

    @property
    def right(self) -> int:
        return int(np.trace(self.counts))

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the share of rows that are classified correctly."""
        from scipy.stats import binomtest

        low, high = binomtest(self.right, self.rows).proportion_ci(method="wilson")
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class Facts:
    """All that is shown of a model; the sources by weight, the largest first.

    ``candidates`` are the fits that went into the average. ``maps`` are its feature maps, largest share first, and
    ``carried`` is a sentence on them; both are empty where there is one map only. With ``kernel``, the candidates are
    those of a Gaussian process over all domains, the sentence is on their families, and there are no ``maps``. The
    errors of candidates and maps are mean squares, as the estimators give them. On the ``log_scale``, errors of
    candidates, maps and removals are those of the logarithm of the target. The ``findings`` are the notes on leaks and
    repeats, which come before any gain. The ``metric`` is that of the errors in ``compared`` and of the gain. Which
    rows were fitted says the ``method``.
    """

    focal: DomainFact
    sources: tuple[DomainFact, ...]
    error: float | None
    effective_ridge: float | None
    compared: tuple[MethodFact, ...]
    candidates: tuple[Candidate, ...]
    floor: float | None
    threshold: float | None
    ridge: RidgeFact | None
    trajectory: Trajectory | None
    removable: bool
    validation_sources: int
    notes: tuple[str, ...]
    estimator: str
    parameters: dict[str, str]
    maps: tuple[Any, ...] = ()
    kernel: bool = False
    carried: str = ""
    bound: BoundFact | None = None
    target: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    classes: ClassFact | None = None
    columns: ColumnFacts | None = None
    log_scale: bool = False
    findings: tuple[str, ...] = ()
    metric: str = RMSE
    method: str = MIXTUNE

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """By what part transfer cuts the error of own rows alone, with the ends of its 95% interval, where known."""
        return next((each.reduction for each in self.compared if each.method == OWN_ROWS), None)

    @property
    def transferred(self) -> float:
        """The share of the prediction that the sources provide."""
        return math.fsum(source.weight or 0.0 for source in self.sources)

    @property
    def error_alone(self) -> float | None:
        """The left-out error of a fit to the focal rows alone."""
        return next((each.error for each in self.compared if each.method == OWN_ROWS), None)

    @property
    def covered(self) -> float | None:
        """The share of the focal rows that lie inside their intervals."""
        known = [rows for rows in self.left_out if rows.half is not None]
        return sum(each.covered for each in known) / sum(len(each.actual) for each in known) if known else None


def model_facts(model: Any, rows: Mapping[str, int] | None = None, *, distances: bool = True) -> Facts:
    """Read a fitted estimator, as far as it can tell by itself.

    Parameters
    ----------
    model
        Fitted, or loaded from a file. The self-tuning estimators know most, a baseline knows little.
    rows
        How many rows each domain had.
    distances
        Whether to compute the distances between domains, and the bound that follows from them, too.

    Examples
    --------
    >>> from mixtune.estimators import LocalRegressor
    >>> facts = model_facts(LocalRegressor().fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]))
    >>> facts.focal.name, facts.sources, facts.gain
    ('focal', (), None)
    """
    inner = _fitted(model)
    focal_rows = (rows or {}).get(inner.domain_names_[0])
    compared = _compared(model)
    # What a single focal row, left out or not, says about removing a source is chance.
    removals = None if focal_rows == 1 else _removals(inner)
    apart = getattr(inner, "distances_", None) if distances else None
    # Of classes, errors of domains are those of the scores, errors of methods are not.
    alone = None if model is not inner else next((each.error for each in compared if each.method == OWN_ROWS), None)
    domains = _domains(inner, rows or {}, apart, removals or {}, alone)
    floor = None if apart is None else apart.sampling_floor
    # Models of older files have no maps.
    maps = tuple(getattr(inner, "maps_", ()))
    return Facts(
        focal=domains[0],
        sources=tuple(sorted(domains[1:], key=lambda domain: -(domain.weight or 0.0))),
        error=rmse(inner.loo_error_),
        log_scale=getattr(inner, "target_scale_", "") == "log",
        effective_ridge=getattr(inner, "effective_ridge_", None),
        metric=LOG_LOSS if model is not inner else RMSE,
        compared=compared,
        candidates=tuple(getattr(inner, "candidates_", ())),
        floor=None if floor is None else float(floor.value),
        threshold=None if apart is None else float(apart.threshold),
        ridge=_ridge(getattr(inner, "ridge_path_", None)),
        trajectory=_trajectory(getattr(inner, "solution_", None)),
        removable=removals is not None,
        validation_sources=int(getattr(inner, "n_validation_sources_", 0)),
        notes=tuple(getattr(inner, "notes_", ())),
        findings=findings_of(getattr(inner, "notes_", ())),
        estimator=type(model).__name__,
        parameters={name: plain_value(value) for name, value in sorted(model.get_params(deep=False).items())},
        maps=maps if len(maps) > 1 and not _has_kernel(maps) else (),
        kernel=_has_kernel(maps),
        carried=_carried(inner, maps, classes=model is not inner),
        bound=_bound(getattr(inner, "weights_", None), apart),
    )


def read_facts(
    model: Any,
    *,
    X: Any,
    y: Any,
    sources: Any,
    target: str | Sequence[str] | None = None,
    columns: Any = None,
    explain: bool = True,
    distances: bool = True,
) -> Facts:
    """Read a fitted RegretOptimalRegressorCV or RegretOptimalClassifierCV together with what it was fitted to.

    Parameters
    ----------
    model
        Fitted.
    X, y, sources
        The focal rows and the sources of the fit.
    target : str or sequence of str, optional
        What is predicted; a name for each output.
    columns : TableEncoder or sequence of str, optional
        How tables became the inputs, or the names of the inputs.
    explain : bool
        Whether to read effects of columns, contributions and distributions, too.
    distances : bool
        As in :func:`model_facts`.

    Raises
    ------
    DataError
        If the rows are not those that the model was fitted to.
    """
    from mixtune.estimators import as_sources, left_out_rows

    inner = _fitted(model)
    if not hasattr(inner, "removal_effects"):
        raise DataError(
            f"a {type(inner).__name__} weighs no candidates and no removals, so there is too little to report; "
            "fit RegretOptimalRegressorCV or RegretOptimalClassifierCV"
        )
    rows = {} if (given := as_sources(sources)) is None else _source_rows(given, inner)
    focal, *fitted = inner.domain_names_
    if odd := sorted(set(fitted) ^ set(rows)):
        raise DataError(
            f"the model was fitted to {len(fitted)} sources, {len(rows)} were passed, and {len(odd)} are only in one "
            f"of the two, such as {odd[0]!r}; pass the X, y and sources of the fit"
        )
    facts = model_facts(model, {focal: _num_samples(X), **rows}, distances=distances)
    names = (target,) if isinstance(target, str) else tuple(map(str, target or ()))
    predicted = _matrix(inner.loo_predictions_)
    if len(predicted) != _num_samples(y):
        raise DataError(
            f"y has {_num_samples(y)} rows, the model was fitted to {len(predicted)} focal rows; "
            "pass the rows of the fit, without those of sample_weight 0"
        )
    found = left_out_rows(model)
    if explain:
        about: dict[str, Any] = {"left_out": found, "columns": columns, "parts": _parts(X, given)}
        facts = replace(facts, columns=read_columns(model, **about))
    if not np.all(np.isfinite(predicted)):
        return replace(facts, target=names)
    if model is not inner:
        shares = {} if found is None else found.predicted
        return replace(facts, target=names, classes=_classes(model, predicted, y, shares))
    return replace(facts, target=names, left_out=_left_out(inner, predicted, X, y, names))


def stored_facts(model: Any) -> Facts:
    """What a model of tables from a file says about itself, without the rows of its fit.

    Parameters
    ----------
    model : TableModel
        As :meth:`mixtune.TableModel.load` gives it.
    """
    from mixtune.estimators import left_out_rows

    estimator, rows, name = model.estimator, model.about.get("rows"), model.encoder.target.name
    inner = _fitted(estimator)
    known = isinstance(rows, dict) and all(isinstance(each, int) for each in rows.values())
    facts = model_facts(estimator, rows if known else None)
    facts = replace(facts, target=(name,), columns=stored_columns(model))
    found = left_out_rows(estimator)
    if found is None:
        return facts
    if estimator is not inner:
        y = estimator.classes_[found.actual]
        return replace(facts, classes=_classes(estimator, _matrix(inner.loo_predictions_), y, found.predicted))
    why = "the model file does not contain the rows that they need"
    return replace(facts, left_out=(LeftOut(name, found.actual[:, 0], found.predicted[MIXTUNE][:, 0], None, why),))


def _parts(X: Any, sources: Sources | None) -> list[Floats] | None:
    """The inputs of all domains as arrays, where they are arrays of numbers."""
    parts = [X, *(() if sources is None else (each.X for _, each in sources.items()))]
    arrays = [each for each in parts if isinstance(each, np.ndarray) and each.dtype.kind in "fiu" and each.ndim == 2]
    return [each.astype(np.float64) for each in arrays] if len(arrays) == len(parts) else None


def _fitted(model: Any) -> Any:
    """The fitted regressor: of a classifier, the one behind its scores."""
    inner = getattr(model, "regressor_", model)
    check_is_fitted(inner, "coef_")
    return inner


def _source_rows(sources: Sources, inner: Any) -> dict[str, int]:
    """How many rows the fit saw of each source."""
    rows = {name: _num_samples(source.X) for name, source in sources.items()}
    columns = getattr(inner, "feature_names_in_", None)
    for stream in sources.streams:
        rows |= stream.rows_used(None if columns is None else tuple(columns))
    return rows


def _removals(inner: Any) -> dict[str, Any] | None:
    if not hasattr(inner, "removal_effects"):
        return None
    try:
        return {removal.name: removal for removal in inner.removal_effects()}
    except MixtuneError:  # a model from a file may not hold what this needs
        return None


def _domains(
    inner: Any,
    rows: Mapping[str, int],
    distances: Any,
    removals: Mapping[str, Any],
    alone: float | None,
) -> list[DomainFact]:
    names = inner.domain_names_
    weights = getattr(inner, "weights_", None)
    scores = None if weights is None else weights.scores
    errors = {} if scores is None else {name: rmse(score) for name, score in zip(names, scores)}
    # The focal fit has seen the focal rows, the others have not: its error is that on rows it has not seen.
    if errors:
        errors[names[0]] = alone
    apart = {} if distances is None else dict(zip(distances.names, distances.distances))
    facts = []
    for place, name in enumerate(names):
        weight = None if weights is None else float(weights.values[place])
        distance = float(apart[name].value) if name in apart else None
        gone = removals.get(name)
        without: tuple[float | None, ...] = ()
        if gone is not None:
            without = (float(gone.change), rmse(gone.loo_error), float(gone.shift), gone.change_low, gone.change_high)
        facts.append(DomainFact(str(name), weight, int(rows.get(name, 0)), errors.get(name), distance, *without))
    return facts


def _compared(model: Any) -> tuple[MethodFact, ...]:
    """The model and the other methods, on focal rows that the fits have not seen."""
    from mixtune.estimators import compare_left_out

    known = getattr(model, "comparison_", None)
    found = tuple(map(MethodFact.of, compare_left_out(model) if known is None else known))
    # A baseline is compared with nothing.
    return found if len(found) > 2 else ()


def _has_kernel(maps: Sequence[Any]) -> bool:
    return any(each.name.startswith(KERNEL) for each in maps)


def _carried(inner: Any, maps: Sequence[Any], *, classes: bool) -> str:
    """Which maps, or of a Gaussian process which families of candidates, the prediction comes from."""
    # Estimators tell the shares of their first output.
    outputs = 1 if np.ndim(inner.coef_) == 1 else np.shape(inner.coef_)[1]
    of = "the prediction" if outputs == 1 else f"the first of {outputs} {'class scores' if classes else 'outputs'}"
    if _has_kernel(maps):
        return comes_from({name: math.fsum(shares) for name, shares in family_shares(inner.candidates_)}, of)
    return carried_by({each.name: each.share for each in maps}, of)


def family_shares(candidates: Sequence[Candidate]) -> list[tuple[str, list[float]]]:
    """The families of candidates and the shares of their candidates, largest family first."""
    shares: dict[str, list[float]] = {}
    for each in candidates:
        shares.setdefault(each.family, []).append(each.share)
    return sorted(shares.items(), key=lambda item: (-math.fsum(item[1]), item[0]))


def _bound(weights: Any, distances: Any) -> BoundFact | None:
    """Theorem 1 at the model's weights; None where its distances are not known, or it does not apply."""
    from mixtune.regret import generalisation_bound, t_gain

    if distances is None or weights is None or distances.names != weights.names or distances.dimension < 3:
        return None
    used = replace(distances, values=weights.values)
    try:
        found = generalisation_bound(used, delta=DELTA, loss_lipschitz=1.0, model_lipschitz=1.0)
    except ParameterError:  # distances that are only bounds
        return None
    return BoundFact(found.power, found.pac, found.power - t_gain(used), DELTA)


def _ridge(path: Any) -> RidgeFact | None:
    pairs = [] if path is None else sorted(zip(path.ridges, path.loo_errors))
    known = [(float(ridge), square) for ridge, square in pairs if 0 < ridge < math.inf]
    kept = [(ridge, error) for ridge, square in known if (error := rmse(square)) is not None]
    if len(kept) < 2:
        return None
    ridges, errors = zip(*kept)
    return RidgeFact(ridges, errors, float(path.ridges[path.chosen]))


def _trajectory(solution: Any) -> Trajectory | None:
    if solution is None or solution.steps < 1:
        return None
    # Of hundreds of steps, a hundred draw the same curve.
    times = np.unique(np.linspace(0, solution.steps, min(solution.steps + 1, 101)).astype(int))
    loss, energy = np.asarray(solution.loss_at(times)), np.asarray(solution.energy_at(times))
    if not (np.all(np.isfinite(loss)) and np.all(np.isfinite(energy))):
        return None
    return Trajectory(tuple(times.tolist()), tuple(loss.tolist()), tuple(energy.tolist()))


def _left_out(inner: Any, predicted: Floats, X: Any, y: Any, target: Sequence[str]) -> tuple[LeftOut, ...]:
    """One entry for each output that gets charts."""
    actual, outputs = _matrix(y), predicted.shape[1]
    if actual.shape != predicted.shape:
        raise DataError(f"y has {actual.shape[1]} outputs, the model {outputs}; pass the y of the fit")
    half, why = _half_widths(inner, X, len(predicted))
    columns = [str(name) for name in getattr(y, "columns", ())]
    numbered = ["the target"] if outputs == 1 else [f"output {k + 1}" for k in range(outputs)]
    names = next(names for names in (target, columns, numbered) if len(names) == outputs)
    return tuple(
        LeftOut(names[k], actual[:, k], predicted[:, k], None if half is None else half[:, k], why, outputs)
        for k in range(outputs if outputs <= MOST_OUTPUTS else 1)
    )


def _half_widths(inner: Any, X: Any, rows: int) -> tuple[Floats | None, str]:
    try:
        lower, upper = inner.predict_interval(X, coverage=COVERAGE)
    except ParameterError as error:  # too few rows for this coverage
        return None, str(error)
    half = (_matrix(upper) - _matrix(lower)) / 2
    if len(half) != rows:
        raise DataError(f"X has {len(half)} rows, y has {rows}; pass the focal rows of the fit")
    return (half, "") if np.all(np.isfinite(half)) else (None, "the intervals are not finite")


def _classes(model: Any, scores: Floats, y: Any, shares: Mapping[str, Floats]) -> ClassFact:
    from sklearn.metrics import confusion_matrix

    classes, labels = np.asarray(model.classes_), np.asarray(y).ravel()
    if unknown := labels[~np.isin(labels, classes)].tolist():
        raise DataError(f"y holds the class {unknown[0]!r}, which the model does not know; pass the y of the fit")
    guessed = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else np.argmax(scores, axis=1)
    counts = confusion_matrix(labels, classes[guessed], labels=classes)
    names = tuple(str(name) for name in classes.tolist())
    return ClassFact(names, counts, np.searchsorted(classes, labels), shares)


def _known(middle: float | None, low: float | None, high: float | None) -> tuple[float, float, float] | None:
    return None if middle is None or low is None or high is None else (middle, low, high)


def _matrix(values: Any) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return array.reshape(len(array), -1)


def rmse(mean_square: float | None) -> float | None:
    """The root of a mean squared error, where it is known."""
    known = _finite(mean_square)
    return None if known is None or known < 0 else math.sqrt(known)


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
