"""Maps whose constants follow from rows: quadratic splines of each column, and random Fourier features.

Knots are quantiles of the columns, and the length scale is the median distance between rows. Nothing here depends on
the order of rows, on the order or sign of columns, or on their units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from mixtune._registry import check_array, register
from mixtune.arrays import EPSILON, Array, Floats, Integers, freeze
from mixtune.checks import set_fields
from mixtune.errors import DataError, ParameterError
from mixtune.features._base import through_numpy
from mixtune.features._random import RandomFeatures, with_weights

DEGREE = 2
#: Knots closer than this fraction of the range of a column count as one, and knots that differ by so many roundings
#: of its largest value.
TIED, ROUNDED = 1e-9, 4 * EPSILON
#: Number of rows that the median distance between two rows is computed from.
DISTANCE_ROWS = 300


@dataclass(frozen=True, eq=False)
class Splines:
    """B-splines of degree 2 of every column, constant beyond the outer knots.

    The basis functions of a column add up to 1; the first is left out, since a constant is part of every model. A
    column with fewer than 3 knots stays as it is.

    Parameters
    ----------
    knots
        Numbers for each column, in its units; :meth:`at_quantiles` finds them. They increase, or decrease where the
        functions are those of the column with the opposite sign.

    Examples
    --------
    >>> splines = Splines.at_quantiles(np.linspace(0, 1, 101)[:, None], knots=3)
    >>> splines.knots[0], splines.n_features_out
    (array([0. , 0.5, 1. ]), 3)
    >>> splines.transform([[0.0], [0.5], [2.0]]).round(3)
    array([[0. , 0. , 0. ],
           [0.5, 0.5, 0. ],
           [0. , 0. , 1. ]])
    """

    knots: Sequence[Floats]
    n_inputs: int = field(init=False)
    n_features_out: int = field(init=False)

    def __post_init__(self) -> None:
        found = tuple(freeze(np.array(each, dtype=np.float64)) for each in self.knots)
        steps = [np.diff(each) for each in found if each.ndim == 1 and np.all(np.isfinite(each))]
        if len(steps) < len(found) or not all(np.all(step > 0) or np.all(step < 0) for step in steps):
            raise ParameterError("knots must be finite and increasing or decreasing, a list of numbers for each column")
        set_fields(self, knots=found, n_inputs=len(found), n_features_out=sum(map(_width, found)))

    @classmethod
    def at_quantiles(
        cls, X: Floats, *, knots: int = 5, weight: Floats | None = None, signs: Floats | None = None
    ) -> Splines:
        """Splines with knots at quantiles of each column, as many as differ; a row of weight 2 counts as two rows.

        Where ``signs`` (d,) are negative, knots decrease.
        """
        places = np.linspace(0.0, 1.0, knots)
        nearest = np.maximum(TIED * np.ptp(X, axis=0), ROUNDED * np.abs(X).max(axis=0))
        # Equal weights change nothing, and take most of the time.
        weights = None if weight is None or np.ptp(weight) == 0 else weight
        ways: dict[str, Any] = {"axis": 0, "weights": weights, "method": "inverted_cdf"}
        # From below and from above, so that columns of the opposite sign have the same curves.
        found = np.quantile(X, places, **ways) / 2 - np.quantile(-X, places, **ways)[::-1] / 2
        # Knots that differ only by rounding would make a curve jump.
        made = [_apart(column, least) for column, least in zip(found.T, nearest)]
        turned = np.zeros(len(made), dtype=bool) if signs is None else signs < 0
        return cls([each[::-1] if turn else each for each, turn in zip(made, turned)])

    def transform(self, X: Array, /) -> Array:
        """Compute the splines of the rows of ``X``."""
        return through_numpy(X, self.n_inputs, lambda rows: np.hstack(list(map(_basis, rows.T, self.knots))))


def _apart(values: Floats, least: float) -> Floats:
    """Increasing values, without those that are hardly above the one before."""
    values = np.unique(values)
    return values[np.concatenate([[True], np.diff(values) > least])]


def _width(knots: Floats) -> int:
    return len(knots) + DEGREE - 2 if len(knots) > 2 else 1


def _basis(column: Floats, knots: Floats) -> Floats:
    if len(knots) <= 2:
        return column[:, None]
    sign = np.sign(knots[-1] - knots[0])
    knots = sign * knots
    inside = np.clip(sign * column, knots[0], knots[-1])
    # Between two knots three functions differ from 0, and add up to 1: one falls as the square of the distance to the
    # upper knot, from the knot before on; one rises as that to the lower knot. Outer knots count several times.
    place = np.searchsorted(knots[1:-1], inside, side="right")
    low, high = knots[place], knots[place + 1]
    before, after = knots[np.maximum(place - 1, 0)], knots[np.minimum(place + 2, len(knots) - 1)]
    first = (high - inside) ** 2 / ((high - before) * (high - low))
    last = (inside - low) ** 2 / ((after - low) * (high - low))
    rows, found = np.arange(len(column)), np.zeros((len(column), len(knots) + DEGREE - 1))
    found[rows, place], found[rows, place + 1], found[rows, place + 2] = first, 1.0 - first - last, last
    return found[:, 1:]


register(
    "feature map",
    "splines",
    Splines,
    lambda splines, _: ({"columns": splines.n_inputs}, {str(k): each for k, each in enumerate(splines.knots)}),
    lambda settings, arrays, _: Splines([arrays[str(k)] for k in range(settings["columns"])]),
)


@dataclass(frozen=True, eq=False)
class Oriented:
    """Columns in standard units, in an order and with signs that follow from their content.

    Attributes
    ----------
    shift, scale : arrays (d,)
        In the order of the inputs; the scale has the sign.
    order : array (d,) of int
        Which input comes at which place.
    """

    shift: Floats
    scale: Floats
    order: Integers

    def __post_init__(self) -> None:
        width = (np.size(self.order),)
        check_array("shift", self.shift, width)
        check_array("scale", self.scale, width)
        if np.any(self.scale == 0) or not np.array_equal(np.sort(self.order), np.arange(*width)):
            raise DataError("the units and the order of the inputs do not fit together; save the model again")

    @classmethod
    def of(cls, X: Floats, y: Floats, weight: Floats, *, shift: Floats, scale: Floats) -> Oriented:
        """From rows (n, d), targets (n,), weights (n,) and units (d,).

        Columns are ordered by their fourth moments and have positive third moments. Where these tie, as they do for two
        rows, the covariance with the targets decides.
        """
        share, Z = weight / weight.sum(), (X - shift) / scale
        centred = y - share @ y
        size = float(np.sqrt(share @ centred**2)) or 1.0
        # Far from zero a shift has fewer digits, and moments that are equal but for its rounding tie as well.
        least = np.maximum(1e-9, 16 * EPSILON * np.abs(X).max(axis=0) / np.abs(scale))
        moments = share @ (Z * Z * Z), share @ (Z * Z) ** 2, (share * centred / size) @ Z
        third, fourth, slope = (np.round(part / least) * least for part in moments)
        order = np.lexsort((np.abs(slope), np.abs(third), fourth))
        sign = np.where(third != 0, third, slope)
        return cls(shift, scale * np.where(sign >= 0, 1.0, -1.0), order)

    def __call__(self, X: Floats) -> Floats:
        """The rows of ``X`` in standard units, order and signs."""
        return ((X - self.shift) / self.scale)[:, self.order]


def fit_splines(X: Floats, weight: Floats, oriented: Oriented, *, knots: Sequence[int], most: int) -> Splines:
    """Splines with the most knots that give at most ``most`` features in all; if none do, with the fewest."""
    for count in knots:
        found = Splines.at_quantiles(X, knots=count, weight=weight, signs=oriented.scale)
        if found.n_features_out <= most:
            break
    return found


def fit_fourier(
    Z: Floats, weight: Floats, oriented: Oriented, *, width: int, seed: int
) -> tuple[RandomFeatures, RandomFeatures]:
    """Random Fourier features of the inputs behind ``Z``, and of ``Z``; length scales are the median row distance."""
    # Rows at even ranks of their norm, whatever order they come in; a row of weight 2 counts as two rows.
    order = np.lexsort((np.sum(Z**2 * np.abs(Z), axis=1), np.round(np.sum(Z**2, axis=1), 9)))
    reached = np.cumsum(weight[order])
    ranks = (np.arange(DISTANCE_ROWS) + 0.5) / DISTANCE_ROWS * reached[-1]
    some = Z[order[np.searchsorted(reached, ranks)]]
    typical = float(np.median(pdist(some)))
    length = typical if typical > 1e-9 else 1.0
    drawn = RandomFeatures.fourier(n_inputs=Z.shape[1], width=width, length_scale=length, seed=seed)
    # Of the inputs as they are: weights in their order, scales with their sign taken into the weights.
    weights = np.empty_like(drawn.weights)
    weights[oriented.order] = drawn.weights
    weights *= np.sign(oriented.scale)[:, None]
    return with_weights(drawn, weights, shift=oriented.shift, scale=np.abs(oriented.scale) * length), drawn
