"""A fitted model as data that the page computes predictions from, in the reader's browser.

Arrays of numbers are packed as base64 of their bytes, which is half the size of their digits and exact.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

from mixtune.features import Clipped, Concatenate, Identity, LearnedColumns, RandomFeatures, Splines, TreeColumn
from mixtune.report.wording import clean

#: A larger model, in characters, would make the page slow to load.
MOST_CHARACTERS = 3_000_000
#: More columns than this nobody sets by hand.
MOST_COLUMNS = 60


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
    if described is None or len(inputs) > MOST_COLUMNS:
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
    limits = inner._feature_range()
    scale = getattr(inner, "_log_scale", None)
    found = {
        "map": described,
        "low": None if limits[0] is None else packed(limits[0]),
        "high": None if limits[1] is None else packed(limits[1]),
        "coef": packed(inner.coef_),
        "intercept": np.reshape(inner.intercept_, -1).tolist(),
        "smearing": None if scale is None else scale.smearing,
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
    if isinstance(each, LearnedColumns):
        head = packed(each.heads.mean(axis=0))
        return {"kind": "learned", "wide": _layer(each.wide), "head": head, **_trees(each.oriented, each.trees)}
    if isinstance(each, TreeColumn):
        return {"kind": "trees", **_trees(each.oriented, each.trees)}
    return None


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
