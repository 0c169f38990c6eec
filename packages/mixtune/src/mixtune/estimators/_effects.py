"""Which columns drive the prediction: average effects with intervals, and what each column adds to single rows.

An effect is the average change of the prediction over the focal rows when one column goes from a low to a high value
and the others stay as they are: a difference of the partial dependence (Friedman, Greedy function approximation, Ann.
Stat. 29, 2001). It is in the units of the target, whatever feature map or scale the model has. Contributions are
Shapley values (Strumbelj and Kononenko, Explaining prediction models, Knowl. Inf. Syst. 41, 2014), estimated with
random orders of the columns and the focal rows as background.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax, stdtrit
from sklearn.utils.validation import check_is_fitted

from mixtune.arrays import Booleans, Floats, Integers
from mixtune.data import frame_of
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._base import all_scores, column_names
from mixtune.estimators._inputs import check_new
from mixtune.estimators._saving import fitted_map
from mixtune.features import Clipped, Concatenate, Identity

#: Effects are averages over at most so many focal rows, at even steps.
MOST_ROWS = 200
#: Only so many effects, the largest, have intervals: each of the others would cost a solve.
MOST_INTERVALS = 60
#: Where columns of numbers start and end: quantiles of the focal rows.
FROM, TO = 0.1, 0.9
#: Values along a curve, and quantiles of the focal rows that it starts and ends at.
CURVE_POINTS, CURVE_ENDS = 13, (0.02, 0.98)
#: Focal rows that contributions are measured against; each serves two orders of the columns.
BACKGROUND = 50
#: Fewest sources whose spread says how far the focal domain may lie from them.
SPREAD_SOURCES = 3
HOW = (
    "95% intervals combine what the focal rows and the averaged fits leave open, how far these fits lie apart, and how "
    "far the sources' own effects lie apart; the focal rows are taken as given."
)
NO_INTERVALS = "There are no intervals: {why}."


@dataclass(frozen=True)
class ColumnEffect:
    """How the prediction changes, on average over the focal rows, when one column changes.

    Attributes
    ----------
    column : str
    output : str
        What is predicted: the class whose probability changes, or the output; "" if there is a single one.
    start, end : float or str
        The values between which the column changes: for numbers the 10% and 90% quantiles of the focal rows, for
        columns of zeros and ones 0 and 1, for categories the most frequent one and another.
    effect : float
        In the units of the target; for classes, a difference of probabilities.
    low, high : float or None
        Its 95% interval.
    slope : float or None
        The effect for one unit of the column; None for categories.
    sources : float or None
        The same effect in the sources' own models on the same rows, averaged with their weights.
    spread : float or None
        Standard deviation of these effects between the sources.
    """

    column: str
    output: str
    start: float | str
    end: float | str
    effect: float
    low: float | None = None
    high: float | None = None
    slope: float | None = None
    sources: float | None = None
    spread: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the sources' effect lies outside the interval of the focal one."""
        known = self.sources is not None and self.low is not None and self.high is not None
        return known and not self.low <= self.sources <= self.high  # type: ignore[operator]


@dataclass(frozen=True)
class ColumnEffects:
    """Effects of all columns, the largest first.

    Attributes
    ----------
    effects : tuple of ColumnEffect
    rows : int
        Number of focal rows over which effects are averaged.
    constant : tuple of str
        Columns that are constant in these rows, so that their effects cannot be computed.
    how : str
        How the intervals are computed, or why there are none.
    """

    effects: tuple[ColumnEffect, ...]
    rows: int
    constant: tuple[str, ...]
    how: str

    def to_frame(self) -> Any:
        """One row for each effect, as a pandas frame."""
        names = [field.name for field in fields(ColumnEffect)]
        return frame_of({name: [getattr(each, name) for each in self.effects] for name in names})

    def to_json(self) -> dict[str, Any]:
        """As the file of a model holds them, for :meth:`from_json`."""
        about = {"effects_are": self.how, "effects_over": self.rows, "effects_without": list(self.constant)}
        return {"effects": [asdict(each) for each in self.effects], **about}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ColumnEffects | None:
        """What a file holds; None where it holds nothing, or something else.

        Examples
        --------
        >>> some = ColumnEffects((ColumnEffect("size", "", 1.0, 2.0, 0.5),), 10, (), "as said")
        >>> ColumnEffects.from_json(some.to_json()) == some, ColumnEffects.from_json({"effects": [1]}) is None
        (True, True)
        """
        kinds: dict[str, Any] = {"column": str, "output": str, "start": str | float, "end": str | float}
        kinds |= {"effect": float} | dict.fromkeys(("low", "high", "slope", "sources", "spread"), float | NoneType)
        effects, how, rows = (found.get(f"effects{part}") for part in ("", "_are", "_over"))
        constant = found.get("effects_without", [])
        if not isinstance(effects, list) or not isinstance(constant, list):
            return None
        for each in effects:
            if not isinstance(each, dict) or each.keys() != kinds.keys():
                return None
            if not all(isinstance(each[name], kind) for name, kind in kinds.items()):
                return None
        made = tuple(ColumnEffect(**each) for each in effects)
        return cls(made, rows if isinstance(rows, int) else 0, tuple(map(str, constant)), str(how or ""))


@dataclass(frozen=True, eq=False)
class RowContributions:
    """Contributions of the columns to the predictions of some rows; their sum is the prediction minus the average.

    Attributes
    ----------
    columns : tuple of str
    average : float
        The mean prediction of the background rows.
    predictions : array (n,)
    values : array (n, columns)
    """

    columns: tuple[str, ...]
    average: float
    predictions: Floats
    values: Floats

    def to_frame(self) -> Any:
        """One row for each predicted row, with the average and the prediction beside the columns, as a pandas frame."""
        ends = {"average": np.full(len(self.values), self.average), "prediction": self.predictions}
        return frame_of({**dict(zip(self.columns, self.values.T)), **ends})


@dataclass(frozen=True)
class Inputs:
    """One column of the user: the places of the inputs that it becomes, and the levels of a category."""

    name: str
    places: tuple[int, ...]
    levels: tuple[str, ...] = ()

    def codes(self, X: Floats) -> Integers:
        """The place of each row's level."""
        marked = X[:, self.places]
        return (marked[:, 0] > 0.5).astype(np.int64) if len(self.places) == 1 else np.argmax(marked, axis=1)

    def counts(self, X: Floats) -> Integers:
        """How many rows have each level."""
        return np.bincount(self.codes(X), minlength=len(self.levels))

    def at_level(self, level: int) -> Floats:
        """Its inputs at one of its levels: of two levels there is one input, which marks the second."""
        if len(self.places) == 1:
            return np.array([float(level == 1)])
        return np.eye(len(self.levels))[level]


@dataclass(frozen=True, eq=False)
class Typical:
    """Where the training rows lie, input by input; all arrays are (d,).

    Attributes
    ----------
    start : array
        A typical focal row: medians, and the most frequent level of each category.
    low, high : arrays
        The range of all training rows.
    focal_low, focal_high : arrays
        The range of the focal rows.
    whole : array of bool
        Whether the focal rows hold whole numbers only.
    """

    start: Floats
    low: Floats
    high: Floats
    focal_low: Floats
    focal_high: Floats
    whole: Booleans

    @classmethod
    def of(cls, inputs: Sequence[Inputs], parts: Sequence[Floats]) -> Typical:
        """Of the rows of all domains, the focal ones first."""
        focal = parts[0]
        whole = np.all(focal == np.round(focal), axis=0)
        start = np.median(focal, axis=0)
        start = np.where(whole, np.round(start), start)
        for each in inputs:
            if each.levels:
                start[list(each.places)] = each.at_level(int(np.argmax(each.counts(focal))))
        low, high = np.min([part.min(0) for part in parts], 0), np.max([part.max(0) for part in parts], 0)
        return cls(start, low, high, focal.min(axis=0), focal.max(axis=0), whole)

    def to_json(self) -> dict[str, Any]:
        """As the file of a model holds it, for :meth:`from_json`."""
        return {"typical": {field.name: getattr(self, field.name).tolist() for field in fields(self)}}

    @classmethod
    def from_json(cls, found: Mapping[str, Any], width: int) -> Typical | None:
        """What a file holds; None where it holds nothing, or something that does not fit ``width`` inputs."""
        parts = found.get("typical")
        if not isinstance(parts, dict) or parts.keys() != {field.name for field in fields(cls)}:
            return None
        for part in parts.values():
            if not isinstance(part, list) or len(part) != width or not all(isinstance(x, bool | float) for x in part):
                return None
        arrays = {name: np.array(part, dtype=bool if name == "whole" else np.float64) for name, part in parts.items()}
        return cls(**arrays) if all(np.all(np.isfinite(each)) for each in arrays.values()) else None


def inputs_of(names: Sequence[str], encoder: Any = None) -> tuple[Inputs, ...]:
    """The columns of the user; without an encoder every input is one.

    Examples
    --------
    >>> inputs_of(["size", "age"])[1]
    Inputs(name='age', places=(1,), levels=())
    """
    if encoder is None:
        return tuple(Inputs(str(name), (place,)) for place, name in enumerate(names))
    found, start = [], 0
    for column in encoder.columns:
        places = tuple(range(start, start + len(column.outputs)))
        start += len(places)
        if column.kind == "levels":
            found.append(Inputs(column.name, places, column.levels))
        else:  # parts of a date and the mark of missing values are numbers of their own
            found += [Inputs(name, (place,)) for name, place in zip(column.outputs, places)]
    return tuple(found)


def column_effects(model: Any, X: Any = None, *, columns: Any = None) -> ColumnEffects:
    """Average effects of the columns on the prediction over the focal rows, with 95% intervals.

    Parameters
    ----------
    model
        A fitted estimator of this package, or a :class:`TableModel`.
    X : rows, optional
        The focal rows; for a TableModel, a table. By default those of the fit. A model from a file does not contain
        them; a TableModel from a file has the effects that were computed when it was saved.
    columns : TableEncoder or sequence of str, optional
        How tables became the inputs, so that the inputs of one categorical column are changed together, or the names of
        the inputs. A TableModel has its own.

    Returns
    -------
    ColumnEffects

    Notes
    -----
    Intervals are conditional on the rows and use the noise of left-out rows. Their variance has two parts: the
    posterior variance of the averaged fits, and their distance from the average. It is at least that of the simplest
    model of many domains, which combines the effects in the sources' own models, with their variance, and the effect in
    the focal rows alone. Only self-tuned estimators have intervals, and only before they are saved: the
    file of an estimator does not hold what they need. The file of a TableModel holds its effects with intervals.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def draw(n):
    ...     X = rng.standard_normal((n, 2))
    ...     return X, 3 * X[:, 0] + rng.standard_normal(n)
    >>> from mixtune.estimators import RegretOptimalRegressorCV
    >>> X, y = draw(20)
    >>> sources = {name: draw(60) for name in "abcd"}
    >>> found = column_effects(RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=sources))
    >>> [(each.column, round(each.slope)) for each in found.effects]
    [('x0', 3), ('x1', 0)]
    >>> found.effects[0].low < 3 * (found.effects[0].end - found.effects[0].start) < found.effects[0].high
    True
    """
    scores = Scores.of(model)
    stored: ColumnEffects | None = getattr(model, "stored_effects", None)
    if X is None and stored is not None and not getattr(scores.inner, "_inputs", None):
        return stored
    inputs, rows = _read(model, scores, X, columns)
    rows = rows[_even(len(rows), MOST_ROWS)]
    contrasts, constant = [], []
    for column in inputs:
        made = list(_contrasts(column, rows))
        contrasts += made
        constant += [] if made else [column.name]
    why = scores.why_no_intervals
    found = _effects(scores, rows, contrasts, intervals=MOST_INTERVALS if why is None else 0)
    how = HOW if why is None else NO_INTERVALS.format(why=why)
    return ColumnEffects(tuple(found), len(rows), tuple(constant), how)


def effect_curves(
    model: Any, X: Any = None, *, names: Sequence[str], columns: Any = None
) -> dict[str, tuple[ColumnEffect, ...]]:
    """The effect of going from the middle of a column to each of several values, for columns of numbers.

    Parameters
    ----------
    model, X, columns
        As for :func:`column_effects`.
    names
        Of which columns; categories and columns of fewer than three values are left out.

    Returns
    -------
    dict
        For each column effects with the same ``start``, in the order of their ``end``; of the first output.
    """
    scores = Scores.of(model)
    inputs, rows = _read(model, scores, X, columns)
    rows = rows[_even(len(rows), MOST_ROWS)]
    made: list[Contrast] = []
    for column in inputs:
        values = rows[:, column.places[0]]
        if column.name in names and not column.levels and len(np.unique(values)) > 2:
            first, last = (float(value) for value in np.quantile(values, CURVE_ENDS))
            ends, middle = np.linspace(first, last, CURVE_POINTS).tolist(), float(np.median(values))
            made += [Contrast(column, middle, end, np.array([middle]), np.array([end])) for end in ends]
    most = 0 if scores.why_no_intervals else len(made)
    curves: dict[str, list[ColumnEffect]] = {name: [] for name in names}
    for each in _effects(scores, rows, made, intervals=most, outputs=1):
        curves[each.column].append(each)
    return {name: tuple(sorted(curve, key=lambda each: float(each.end))) for name, curve in curves.items() if curve}


def row_contributions(
    model: Any, rows: Any, X: Any = None, *, output: int | None = None, columns: Any = None, seed: int = 0
) -> RowContributions:
    """Contribution of each column to the predictions of chosen rows, relative to the focal rows.

    Parameters
    ----------
    model
        A fitted estimator of this package, or a :class:`TableModel`.
    rows
        The rows to explain; for a TableModel, a table.
    X, columns
        As for :func:`column_effects`.
    output : int, optional
        The output, or the class whose probability is explained; by default the first output, or the last class.
    seed : int
        Seed of the orders in which columns are exchanged. These matter only if columns interact.

    Returns
    -------
    RowContributions
        In the units of the target for numbers, and in probabilities for classes.

    Examples
    --------
    >>> from mixtune.estimators import LocalRegressor
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    >>> model = LocalRegressor(ridge=0.0).fit(X, X @ [3.0, 0.5] + 1.0)
    >>> row_contributions(model, [[2.0, 2.0]], X).values.round(6)
    array([[3. , 0.5]])
    """
    scores = Scores.of(model)
    inputs, background = _read(model, scores, X, columns)
    chosen = _read(model, scores, rows, columns)[1]
    background = background[_even(len(background), BACKGROUND)]
    place = scores.default_output if output is None else output
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(len(inputs)) for _ in background]
    values = np.stack([_shapley(scores, row, background, inputs, orders, place) for row in chosen])
    average = float(scores.predict(background)[:, place].mean())
    return RowContributions(tuple(column.name for column in inputs), average, scores.predict(chosen)[:, place], values)


@dataclass(frozen=True, eq=False)
class Scores:
    """A fitted model as a linear function of features, and the way from its scores to what is predicted."""

    inner: Any
    sharpness: float | None
    outputs: tuple[str, ...]
    #: The same, with the first of two classes.
    all_outputs: tuple[str, ...]

    @classmethod
    def of(cls, model: Any) -> Scores:
        """Of an estimator, a classifier or a model of tables."""
        fitted = getattr(model, "estimator", model) if hasattr(model, "encoder") else model
        inner = getattr(fitted, "regressor_", fitted)
        if not hasattr(inner, "_map_rows"):
            raise ParameterError(
                f"a {type(inner).__name__} has no single model to explain; pass an estimator of a focal domain"
            )
        check_is_fitted(inner, "coef_")
        count = 1 if np.ndim(inner.coef_) == 1 else np.shape(inner.coef_)[1]
        if inner is not fitted:
            names = tuple(map(str, fitted.classes_.tolist()))
            return cls(inner, float(fitted.sharpness_), names[1:] if len(names) == 2 else names, names)
        names = ("",) if count == 1 else tuple(f"output {k + 1}" for k in range(count))
        return cls(inner, None, names, names)

    @property
    def default_output(self) -> int:
        """The one that is shown where there is room for one: the last class, or the first output."""
        return 0 if self.sharpness is None else len(self.outputs) - 1

    @property
    def why_no_intervals(self) -> str | None:
        """None where intervals can be made."""
        if not hasattr(self.inner, "_choices"):
            return f"a {type(self.inner).__name__} does not estimate the uncertainty of its choice"
        if self.inner._choices is None:
            return "the file of the model does not hold the averaged fits; call column_effects before save"
        if not np.all(np.isfinite(self.inner._uncertainty.left_out.residuals)):
            return "leave-one-out cannot judge these focal rows"
        return None

    @property
    def columnwise(self) -> bool:
        """Whether every input is one feature, which no other input changes."""
        made = fitted_map(self.inner)
        parts = made.maps if isinstance(made, Concatenate) else [made]
        inputs = [each.inner if isinstance(each, Clipped) else each for each in parts]
        return len(inputs) == 1 and (inputs[0] is None or isinstance(inputs[0], Identity))

    def features(self, X: Floats) -> Floats:
        """Features (n, p) of validated rows."""
        return np.asarray(self.inner._map_rows(X), dtype=np.float64)

    def predict(self, X: Floats) -> Floats:
        """Predictions (n, outputs): of the targets, or probabilities."""
        return self.values(self.scores(self.features(X)))

    def scores(self, features: Floats, coef: Any = None, intercept: Any = None) -> Floats:
        """Scores (n, D) of the model, or of other coefficients of the same features."""
        coef = self.inner.coef_ if coef is None else coef
        level = self.inner.intercept_ if intercept is None else intercept
        return features @ np.reshape(coef, (features.shape[1], -1)) + np.reshape(level, -1)

    def values(self, scores: Floats) -> Floats:
        """What is predicted (n, outputs), from scores (n, D)."""
        if self.sharpness is None:
            scale = getattr(self.inner, "_log_scale", None)
            return scores if scale is None else scale.predictions(scores)
        found = np.asarray(softmax(self.sharpness * all_scores(scores), axis=1))
        return found[:, 1:] if scores.shape[1] == 1 else found

    def slopes(self, scores: Floats) -> Floats:
        """Derivatives (n, outputs, D) of the predictions by the scores."""
        values, count = self.values(scores), scores.shape[1]
        if self.sharpness is None:
            log = getattr(self.inner, "_log_scale", None) is not None
            return (values if log else np.ones_like(values))[:, :, None] * np.eye(count)
        if count == 1:
            return 2 * self.sharpness * (values * (1 - values))[:, :, None]
        return self.sharpness * values[:, :, None] * (np.eye(count) - values[:, None, :])


@dataclass(frozen=True, eq=False)
class Contrast:
    """A column that goes from one value to another."""

    column: Inputs
    start: float | str
    end: float | str
    low: Floats
    high: Floats

    def rows(self, X: Floats) -> tuple[Floats, Floats]:
        """The rows with the column at its start and at its end."""
        places = list(self.column.places)
        pair = X.copy(), X.copy()
        pair[0][:, places], pair[1][:, places] = self.low, self.high
        return pair


def user_columns(model: Any, columns: Any = None) -> tuple[Inputs, ...]:
    """The columns of the user, of a fitted model; ``columns`` as for :func:`column_effects`."""
    inner, known = Scores.of(model).inner, getattr(model, "encoder", None)
    width = inner.n_features_in_
    if isinstance(columns, Sequence):
        names, encoder = tuple(map(str, columns)), None
    else:
        names = column_names(inner) or tuple(f"x{place}" for place in range(width))
        encoder = known if columns is None else columns
    if (made := len(names if encoder is None else encoder.names)) != width:
        raise DataError(f"columns tells of {made} inputs, the model takes {width}; pass the columns of its fit")
    return inputs_of(names, encoder)


def _read(model: Any, scores: Scores, X: Any, columns: Any) -> tuple[tuple[Inputs, ...], Floats]:
    """The columns of the user, and rows of inputs: those that were passed, or the focal rows of the fit."""
    known = getattr(model, "encoder", None)
    if X is None:
        rows = getattr(scores.inner, "_inputs", None)
        if not rows:
            raise ParameterError("the model does not hold its focal rows; pass them as X")
        found = next(iter(rows.values())).X
    else:
        # An array is in the order of the columns of the fit; a frame is arranged by their names.
        named = column_names(scores.inner) is not None and isinstance(X, np.ndarray)
        found = known.encode(X).X if known is not None else X if named else check_new(scores.inner, X)
    return user_columns(model, columns), np.asarray(found, dtype=np.float64)


def _even(count: int, most: int) -> Integers:
    """All places, or so many of them at even steps."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _contrasts(column: Inputs, X: Floats) -> Iterable[Contrast]:
    if column.levels:
        counts = column.counts(X)
        common = int(np.argmax(counts))
        for level in np.flatnonzero(counts).tolist():
            if level != common:
                ends = column.levels[common], column.levels[level]
                yield Contrast(column, *ends, column.at_level(common), column.at_level(level))
        return
    values = X[:, column.places[0]]
    low, high = (float(value) for value in np.quantile(values, (FROM, TO)))
    if not high > low or np.all((values == 0) | (values == 1)):
        low, high = float(values.min()), float(values.max())
    if high > low:
        yield Contrast(column, low, high, np.array([low]), np.array([high]))


def _effects(
    scores: Scores, X: Floats, contrasts: Sequence[Contrast], *, intervals: int, outputs: int | None = None
) -> list[ColumnEffect]:
    """Effects of all contrasts, the largest first; so many of them have intervals."""
    found: list[tuple[Contrast, ColumnEffect, int]] = []
    start = _Start.of(scores, X)
    for contrast, change in zip(contrasts, _changes(start, X, contrasts)):
        made = _plain_effects(start, contrast, change)[:outputs]
        found += [(contrast, effect, place) for place, effect in enumerate(made)]
    found.sort(key=lambda each: -abs(each[1].effect))
    halves = iter(_half_widths(scores, X, found[:intervals]))
    done = []
    for _, effect, _ in found:
        half = next(halves, None)
        ends = (None, None) if half is None else (effect.effect - half, effect.effect + half)
        done.append(replace(effect, low=ends[0], high=ends[1]))
    return done


class _Change(NamedTuple):
    """Features at some places before a change, and at both ends of it; at the other places they do not change."""

    places: Any
    before: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class _Start:
    """Rows as they are: their features, scores (n, D) by the model, and by the sources' own models with their weights.

    Where every column is one feature, a change of one column costs what that feature costs: with thousands of columns,
    all features for each of them would take hours.
    """

    scores: Scores
    features: Floats
    own: Floats
    sources: Sequence[tuple[Any, Floats]]
    weights: Floats

    @classmethod
    def of(cls, scores: Scores, X: Floats) -> _Start:
        inner = scores.inner
        weights = getattr(getattr(inner, "weights_", None), "values", np.ones(1))[1:]
        known = len(weights) and weights.sum() > 0 and getattr(inner, "heads_", None) is not None
        pairs = zip(inner.heads_[1:], inner.head_intercepts_[1:]) if known else ()
        # Of features that all change, nothing stays but the levels.
        features = scores.features(X) if scores.columnwise else np.zeros((len(X), len(inner.coef_)))
        heads = [(coef, scores.scores(features, coef, level)) for coef, level in pairs]
        return cls(scores, features, scores.scores(features), heads, weights)

    def effects(self, change: _Change, coef: Any, before: Floats) -> Floats:
        """Mean differences (outputs,) of predictions by coefficients whose scores were ``before``."""
        slopes = np.reshape(coef, (self.features.shape[1], -1))[change.places]
        low, high = (before + (end - change.before) @ slopes for end in (change.low, change.high))
        return np.asarray((self.scores.values(high) - self.scores.values(low)).mean(axis=0))


def _changes(start: _Start, X: Floats, contrasts: Sequence[Contrast]) -> Iterator[_Change]:
    """What each contrast changes; where columns are features of their own, of many columns at a time."""
    if not start.scores.columnwise:
        for contrast in contrasts:
            yield _Change(slice(None), start.features, *map(start.scores.features, contrast.rows(X)))
        return
    turns: Counter[Any] = Counter()
    rounds: defaultdict[int, list[int]] = defaultdict(list)
    for index, contrast in enumerate(contrasts):
        rounds[turns[contrast.column.places]].append(index)
        turns[contrast.column.places] += 1
    found: dict[int, _Change] = {}
    for members in rounds.values():
        ends = X.copy(), X.copy()
        for index in members:
            places = list(contrasts[index].column.places)
            ends[0][:, places], ends[1][:, places] = contrasts[index].low, contrasts[index].high
        low, high = map(start.scores.features, ends)
        for index in members:
            at = list(contrasts[index].column.places)
            found[index] = _Change(at, start.features[:, at], low[:, at], high[:, at])
    yield from (found[index] for index in range(len(contrasts)))


def _plain_effects(start: _Start, contrast: Contrast, change: _Change) -> list[ColumnEffect]:
    """The effects of one contrast on all outputs, without intervals."""
    effects = start.effects(change, start.scores.inner.coef_, start.own)
    known, spread = _source_effects(start, change)
    step = contrast.end - contrast.start if isinstance(contrast.end, float) else None  # type: ignore[operator]
    made = []
    for place, (output, effect) in enumerate(zip(start.scores.outputs, effects.tolist())):
        slope = effect / step if step else None
        ends = contrast.start, contrast.end
        others = (
            (None, None) if known is None else (float(known[place]), None if spread is None else float(spread[place]))
        )
        made.append(ColumnEffect(contrast.column.name, output, *ends, effect, None, None, slope, *others))
    return made


def _source_effects(start: _Start, change: _Change) -> tuple[Floats | None, Floats | None]:
    """The mean (outputs,) of the effects of the sources' own models, by their weights, and their spread."""
    if not start.sources:
        return None, None
    effects = np.stack([start.effects(change, coef, before) for coef, before in start.sources])
    weights = start.weights
    share = weights / weights.sum()
    mean, freedom = share @ effects, 1 - float(share @ share)
    # Unequal weights stand for fewer sources: the sum of squared shares is one over their number.
    return mean, np.sqrt(share @ (effects - mean) ** 2 / freedom) if freedom > 0 else None


def _half_widths(scores: Scores, X: Floats, found: Sequence[tuple[Contrast, ColumnEffect, int]]) -> list[float]:
    """Half-widths of 95% intervals, by the delta method from the variances of the averaged coefficients."""
    if not found:
        return []
    inner = scores.inner
    left_out, width = inner._uncertainty.left_out, len(inner._scaling.scale)
    directions = np.zeros((len(found), len(inner._choices), width + 1))
    for row, (contrast, _, place) in enumerate(found):
        for sign, rows in zip((-1.0, 1.0), contrast.rows(X)):
            features = scores.features(rows)
            slopes = scores.slopes(scores.scores(features))[:, place]
            known = np.column_stack([inner._scaling.features(features), np.ones(len(rows))])
            directions[row] += sign * (slopes.T @ known) / len(rows)
    within, alone, between = np.zeros((3, len(found)))
    for output, (choice, noise) in enumerate(zip(inner._choices, left_out.noise)):
        parts = choice.variances(directions[:, output])
        within, alone, between = within + noise * parts[0], alone + noise * parts[1], between + parts[2]
    variance = within + between
    spreads = np.array([np.nan if effect.spread is None else effect.spread for _, effect, _ in found])
    if len(inner.domain_names_) > SPREAD_SOURCES:
        with np.errstate(divide="ignore", invalid="ignore"):
            plainest = 1 / (1 / (spreads**2 * (1 + 1 / (len(inner.domain_names_) - 1))) + 1 / alone)
        variance = np.fmax(variance, plainest)
    freedom = max(float(left_out.sample_weight.sum()) - 1, 1.0)
    return (float(stdtrit(freedom, 0.975)) * np.sqrt(variance)).tolist()


def _shapley(
    scores: Scores, row: Floats, background: Floats, inputs: Sequence[Inputs], orders: Sequence[Integers], output: int
) -> Floats:
    """Contributions (columns,) to one row: columns are exchanged one by one, in each order and in its reverse."""
    steps = []
    for order, start in zip(orders, background):
        for way in (order, order[::-1]):
            mixed = np.repeat(start[None], len(inputs) + 1, axis=0)
            for step, column in enumerate(way.tolist()):
                places = list(inputs[column].places)
                mixed[step + 1 :, places] = row[places]
            steps.append(mixed)
    values = scores.predict(np.concatenate(steps))[:, output].reshape(len(steps), -1)
    found = np.zeros(len(inputs))
    for place, gains in enumerate(np.diff(values, axis=1)):
        order = orders[place // 2]
        found[order if place % 2 == 0 else order[::-1]] += gains
    return found / len(steps)
