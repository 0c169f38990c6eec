"""What the page says about columns: effects and their curves, the largest errors, distributions, the model itself.

The page computes predictions in the reader's browser: for this the model is passed on as data. Arrays of numbers are
packed as base64 of their bytes, which is half the size of their digits and exact.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mixtune.arrays import Floats
from mixtune.choice import MIXTUNE
from mixtune.features import (
    Clipped,
    Concatenate,
    Identity,
    KernelFeatures,
    LearnedColumns,
    RandomFeatures,
    Splines,
    TreeColumn,
)
from mixtune.report.wording import clean

if TYPE_CHECKING:
    from mixtune.estimators import ColumnEffect, ColumnEffects, Inputs, LeftOutRows

#: So many columns of numbers, those with the largest effects, get a curve.
MOST_CURVES = 4
#: So many columns get a distribution, and so many bins it has.
MOST_SPREADS, BINS = 8, 12
#: How many of the largest errors are explained.
MOST_MISSES = 5
#: A larger model, in characters, would make the page slow to load.
MOST_CHARACTERS = 3_000_000
#: More columns than this nobody sets by hand.
MOST_COLUMNS = 60


@dataclass(frozen=True, eq=False)
class ColumnSpread:
    """How a column is distributed in the focal rows and in the sources: shares of bins or of levels."""

    name: str
    focal: Floats
    sources: Floats
    edges: Floats | None = None
    levels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Miss:
    """A focal row whose left-out prediction is far off, and what each column adds to its prediction.

    Attributes
    ----------
    row : int
        From 0.
    actual, left_out : str or float
        The target or the class, and the prediction without the row or the probability of the class.
    average, predicted : float
        The mean prediction, and that of the row by the model itself; contributions lead from one to the other.
    parts : tuple of (column, value, contribution)
        The largest contributions first.
    """

    row: int
    actual: str | float
    left_out: float
    average: float
    predicted: float
    parts: tuple[tuple[str, str | float, float], ...]


@dataclass(frozen=True, eq=False)
class ColumnFacts:
    """All that is said about columns; ``panel`` is the model as JSON, or None where the page cannot compute it."""

    effects: ColumnEffects
    curves: dict[str, tuple[ColumnEffect, ...]]
    misses: tuple[Miss, ...]
    spreads: tuple[ColumnSpread, ...]
    panel: str | None


def stored_columns(model: Any) -> ColumnFacts | None:
    """What the file of a model of tables says about its columns; None where it says nothing."""
    from mixtune.estimators import Scores, Typical, user_columns

    effects = getattr(model, "stored_effects", None)
    if effects is None:
        return None
    inputs, typical = user_columns(model), Typical.from_json(model.about, len(model.encoder.names))
    panel = None if typical is None else panel_json(Scores.of(model), inputs, typical)
    return ColumnFacts(effects, {}, (), (), panel)


def read_columns(
    model: Any, *, left_out: LeftOutRows | None, columns: Any = None, parts: Sequence[Floats] | None = None
) -> ColumnFacts | None:
    """Read what a fitted model says about its columns; None where it holds no rows and none are passed.

    Parameters
    ----------
    model
        A fitted estimator that tunes itself.
    left_out
        Its left-out focal rows.
    columns : TableEncoder or sequence of str, optional
        How tables became the inputs, or the names of the inputs.
    parts : sequence of arrays, optional
        The inputs of all domains, the focal ones first, for a model from a file.
    """
    from mixtune.estimators import Scores, Typical, column_effects, effect_curves, user_columns

    scores = Scores.of(model)
    rows = getattr(scores.inner, "_inputs", None)
    # The rows of the fit are found by the functions below; others are passed on.
    focal = None if rows or parts is None else parts[0]
    parts = [part.X for part in rows.values()] if rows else parts
    if parts is None:
        return None
    inputs = user_columns(model, columns)
    effects = column_effects(model, focal, columns=columns)
    # Columns by their largest effect.
    ranked = list(dict.fromkeys(each.column for each in effects.effects))
    numbers = [name for name in ranked if not next(each for each in inputs if each.name == name).levels]
    curves = effect_curves(model, focal, names=numbers[:MOST_CURVES], columns=columns)
    by_name = {each.name: each for each in inputs}
    return ColumnFacts(
        effects=effects,
        curves=curves,
        misses=() if left_out is None else _misses(model, inputs, parts[0], left_out, focal, columns),
        spreads=tuple(_spread(by_name[name], parts) for name in ranked[:MOST_SPREADS]) if len(parts) > 1 else (),
        panel=panel_json(scores, inputs, Typical.of(inputs, parts)),
    )


def _spread(column: Inputs, parts: Sequence[Floats]) -> ColumnSpread:
    focal, others = parts[0], np.concatenate(parts[1:])
    if column.levels:
        own, rest = (column.counts(X) for X in (focal, others))
        return ColumnSpread(column.name, own / own.sum(), rest / rest.sum(), levels=column.levels)
    values = [X[:, column.places[0]] for X in (focal, others)]
    # Extreme values of sources count in the outer bins, so that one of them does not squeeze all others.
    first, last = np.quantile(values[1], [0.005, 0.995])
    first, last = min(first, values[0].min()), max(last, values[0].max())
    edges = np.linspace(first, last if last > first else first + 1.0, BINS + 1)
    own, rest = (np.histogram(np.clip(each, edges[0], edges[-1]), edges)[0] for each in values)
    return ColumnSpread(column.name, own / own.sum(), rest / rest.sum(), edges=edges)


def _misses(
    model: Any, inputs: Any, X: Floats, left_out: LeftOutRows, focal: Floats | None, columns: Any
) -> tuple[Miss, ...]:
    """The largest errors of the first output; of classes, the rows whose class was given the least probability."""
    from mixtune.estimators import row_contributions

    own = left_out.predicted[MIXTUNE]
    if left_out.classes:
        left = own[np.arange(len(own)), left_out.actual]
        worst = np.argsort(left, kind="stable")[:MOST_MISSES].tolist()
    else:
        left = own[:, 0]
        worst = np.argsort(-np.abs(left_out.actual[:, 0] - left), kind="stable")[:MOST_MISSES].tolist()
    found = []
    for row in worst:
        place = int(left_out.actual[row]) if left_out.classes else 0
        # Of two classes there is the probability of the second only.
        turned = len(left_out.classes) == 2 and place == 0
        output = 0 if len(left_out.classes) <= 2 else place
        told = row_contributions(model, X[[row]], focal, output=output, columns=columns)
        sign = -1.0 if turned else 1.0
        values = (sign * told.values[0]).tolist()
        order = np.argsort(-np.abs(values), kind="stable").tolist()
        shown = tuple((inputs[k].name, _value(inputs[k], X[row]), values[k]) for k in order)
        ends = [1.0 - end if turned else end for end in (told.average, float(told.predictions[0]))]
        actual = left_out.classes[place] if left_out.classes else float(left_out.actual[row, 0])
        found.append(Miss(row, actual, float(left[row]), ends[0], ends[1], shown))
    return tuple(found)


def _value(column: Inputs, row: Floats) -> str | float:
    return column.levels[int(column.codes(row[None])[0])] if column.levels else float(row[column.places[0]])


def panel_json(scores: Any, inputs: Any, typical: Any) -> str | None:
    """The model as JSON that may stand in a script element; None where it has a map that the page cannot compute.

    Parameters
    ----------
    scores : mixtune.estimators.Scores
        The model.
    inputs : sequence of mixtune.estimators.Inputs
        The columns of the user.
    typical : mixtune.estimators.Typical
        Where the training rows lie.
    """
    inner = scores.inner
    fitted = getattr(inner, "feature_map_", getattr(inner, "feature_map", None))
    described = {"kind": "inputs"} if fitted is None else describe_map(fitted)
    limits = inner._feature_range()
    # Ranges are those of whitened kernels, which the page does not have.
    beyond = limits[0] is not None and _has_kernel(fitted)
    if described is None or beyond or len(inputs) > MOST_COLUMNS:
        return None
    columns = []
    for each in inputs:
        if each.levels:
            level = int(each.codes(typical.start[None])[0])
            columns.append({"name": clean(each.name), "places": each.places, "levels": each.levels, "value": level})
            continue
        place = each.places[0]
        ends = [float(typical.low[place]), float(typical.high[place])]
        step = 1.0 if typical.whole[place] else 10.0 ** math.floor(math.log10((ends[1] - ends[0] or 1.0) / 200))
        reach = [float(typical.focal_low[place]), float(typical.focal_high[place])]
        about = {"name": clean(each.name), "places": each.places, "range": ends, "focal": reach, "step": step}
        columns.append({**about, "value": float(typical.start[place])})
    scale = getattr(inner, "_log_scale", None)
    found = {
        "map": described,
        "low": None if limits[0] is None else packed(limits[0]),
        "high": None if limits[1] is None else packed(limits[1]),
        "coef": packed(page_coefficients(fitted, np.asarray(inner.coef_))),
        "intercept": np.reshape(inner.intercept_, -1).tolist(),
        "log": None if scale is None else asdict(scale),
        "sharpness": scores.sharpness,
        "outputs": list(scores.all_outputs),
        "start": typical.start.tolist(),
        "columns": columns,
    }
    text = json.dumps(found, allow_nan=False, separators=(",", ":"))
    # In a script element only a tag could end the text.
    return None if len(text) > MOST_CHARACTERS else text.replace("<", "\\u003c")


def packed(array: Any) -> dict[str, str]:
    """An array as the page unpacks it.

    Examples
    --------
    >>> packed(np.array([1, 2]))
    {'type': 'u1', 'packed': 'AQI='}
    """
    values = np.asarray(array)
    if values.dtype.kind in "iu":
        most = int(values.max(initial=0))
        kind = "u1" if most < 2**8 else "u2" if most < 2**16 else "u4"
    else:
        kind = "f8"
    content = np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()
    return {"type": kind, "packed": base64.b64encode(content).decode()}


def describe_map(each: Any) -> dict[str, Any] | None:
    """A feature map as data; None for one that the page does not know."""
    if isinstance(each, Concatenate):
        parts = [describe_map(part) for part in each.maps]
        return None if None in parts else {"kind": "joined", "maps": parts}
    if isinstance(each, Clipped):
        inner = describe_map(each.inner)
        return inner and {"kind": "clipped", "low": packed(each.low), "high": packed(each.high), "inner": inner}
    if isinstance(each, Identity) and not each.constant:
        return {"kind": "inputs"}
    if isinstance(each, Splines):
        return {"kind": "splines", "knots": [packed(knots) for knots in each.knots]}
    if isinstance(each, RandomFeatures) and each.dtype == "float64":
        return {"kind": "random", "constant": each.constant, **_layer(each)}
    if isinstance(each, KernelFeatures):
        variances = {name: getattr(each.kernel, name) for name in ("shared_curve", "shared_slopes", "shared_level")}
        arrays = {"lengths": each.kernel.lengths, "own_lengths": each.kernel.own_lengths}
        arrays |= {"landmarks": each.landmarks, "own_landmarks": each.own_landmarks}
        units = {name: packed(value) for name, value in vars(each.units).items()}
        return {"kind": "kernel", **variances, "units": units, **{name: packed(part) for name, part in arrays.items()}}
    if isinstance(each, LearnedColumns):
        head = packed(each.heads.mean(axis=0))
        return {"kind": "learned", "wide": _layer(each.wide), "head": head, **_trees(each.oriented, each.trees)}
    if isinstance(each, TreeColumn):
        return {"kind": "trees", **_trees(each.oriented, each.trees)}
    return None


def page_coefficients(each: Any, coef: Floats) -> Floats:
    """Coefficients for the features as the page computes them: kernels between a row and landmarks are not whitened."""
    if isinstance(each, Concatenate):
        parts = np.split(coef, np.cumsum([part.n_features_out for part in each.maps])[:-1])
        return np.concatenate([page_coefficients(part, rows) for part, rows in zip(each.maps, parts)])
    if isinstance(each, Clipped):
        return page_coefficients(each.inner, coef)
    return each.kernel_coefficients(coef) if isinstance(each, KernelFeatures) else coef


def _has_kernel(each: Any) -> bool:
    parts = each.maps if isinstance(each, Concatenate) else [each.inner] if isinstance(each, Clipped) else []
    return isinstance(each, KernelFeatures) or any(map(_has_kernel, parts))


def _layer(each: RandomFeatures) -> dict[str, Any]:
    factor = each.output_scale / (math.sqrt(each.width) if each.normalise else 1.0)
    # One number may stand for all columns.
    shift, scale = (np.broadcast_to(part, each.n_inputs) for part in (each.input_shift, each.input_scale))
    arrays = {"weights": each.weights, "bias": each.bias, "shift": shift, "scale": scale}
    settings = {"activation": each.activation, "slope": each.slope, "factor": factor}
    return {**settings, **{name: packed(np.asarray(array, dtype=np.float64)) for name, array in arrays.items()}}


def _trees(oriented: Any, folds: Any) -> dict[str, Any]:
    """The trees of all folds as one forest; a leaf, which is its own child, has its value in place of a threshold."""
    starts = np.cumsum([0, *(len(each.column) for each in folds)])
    count = len(folds)
    leaves = [each.left == np.arange(len(each.left)) for each in folds]
    number = [np.where(leaf, each.value / count, each.threshold) for leaf, each in zip(leaves, folds)]
    joined = {
        "column": np.concatenate([each.column for each in folds]),
        "left": np.concatenate([each.left + start for each, start in zip(folds, starts)]),
        "right": np.concatenate([each.right + start for each, start in zip(folds, starts)]),
        "number": np.concatenate(number),
        "roots": np.concatenate([each.roots + start for each, start in zip(folds, starts)]),
    }
    base = float(np.mean([each.base for each in folds]))
    placed = {"shift": packed(oriented.shift), "scale": packed(oriented.scale), "order": packed(oriented.order)}
    return {"oriented": placed, "trees": {"base": base, **{name: packed(part) for name, part in joined.items()}}}
