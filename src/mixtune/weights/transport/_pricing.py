"""One look at every pair of points without ever holding them all: pricing.

Given potentials u on the rows of X and v on the rows of Y, the pairs that an optimal plan may use are those whose
reduced cost |x_i - y_j| - u_i - v_j is small. This module walks over all pairs strip by strip, keeps for each point the
cheapest partner in each of a few random groups of partners, and returns along the way the two semi-dual minima

    min_j (|x_i - y_j| - v_j)    and    min_i (|x_i - y_j| - u_i),

from which proven lower bounds follow (the c-transforms of v and u). The walk takes place in the array library and on
the device of `home`, so that samples which came from a GPU are priced there; everything else stays with NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from mixtune._array import Array, is_numpy, match, namespace, on_device, to_numpy
from mixtune.weights.transport._samples import Rows

__all__ = ["Distances", "Priced", "price"]

Vector = NDArray[np.float64]
Index = NDArray[np.int64]

_STRIP_ENTRIES = 4_000_000  # 32 MB
_DEVICE_STRIP_ENTRIES = 64_000_000  # 0.5 GB, a few times: launches cost more than memory there
_FEW_COLUMNS = 10  # measured: up to here differences cost 2.5 to 4 ns a pair, as much as products and the root


class Distances:
    """Distances between the rows of X and Y, one rectangle at a time, never above the true distances.

    With many columns, and outside NumPy, they come from matrix products, which are faster than differences but lose the
    digits of short distances. A bound on that loss is subtracted before the root, so that lower bounds built on these
    distances stay valid. `worst_loss` bounds how far below the true distances any of them can be, `mean_loss` how far
    the average over any plan can be. Distances come in the library and on the device of `home`, NumPy without one.
    """

    def __init__(self, X: Rows, Y: Rows, home: Array = None) -> None:
        self.worst_loss = self.mean_loss = 0.0
        self._differences = X.shape[1] <= _FEW_COLUMNS and home is None
        self._left, self._right = X, Y
        if not self._differences:
            # What is lost grows with the norms; outliers keep theirs.
            middle = np.median(np.concatenate([X, Y]), axis=0)
            X, Y = X - middle, Y - middle
            x_square, y_square = np.einsum("ij,ij->i", X, X), np.einsum("ij,ij->i", Y, Y)
            # More than twice the classical bound for inner products, as a fraction of |x|^2 + |y|^2.
            lost = 4 * (X.shape[1] + 8) * np.finfo(np.float64).eps
            x_loss, y_loss = np.sqrt(2 * lost * x_square), np.sqrt(2 * lost * y_square)
            self.worst_loss = float(x_loss.max() + y_loss.max())
            self.mean_loss = float(x_loss.mean() + y_loss.mean())
            self._left = np.column_stack([-2.0 * X, (1.0 - lost) * x_square, np.ones(len(X))])
            self._right = np.column_stack([Y, np.ones(len(Y)), (1.0 - lost) * y_square])
        if home is not None:
            self._left, self._right = match(self._left, home), match(self._right, home)

    def between(self, rows: slice, columns: slice) -> Array:
        """Distances between a range of the rows of X and a range of the rows of Y."""
        left, right = self._left[rows], self._right[columns]
        if self._differences:
            return np.asarray(cdist(left, right))
        square = left @ right.T
        if is_numpy(square):
            np.maximum(square, 0.0, out=square)
            return np.sqrt(square, out=square)
        xp = namespace(square)
        return xp.sqrt(xp.maximum(square, xp.zeros_like(square[:1, :1])))


@dataclass(frozen=True)
class Priced:
    """Semi-dual minima of the rows and columns, and candidate pairs."""

    row_minimum: Vector
    column_minimum: Vector
    rows: Index
    columns: Index


def price(
    X: Rows, Y: Rows, u: Vector, v: Vector, *, rng: np.random.Generator, groups: int = 8, home: Array = None
) -> Priced:
    """Walk over all pairs once, one strip of rows after the other.

    Parameters
    ----------
    u, v
        Potentials of the rows of X and of Y.
    rng
        Shuffles the groups, so that repeated calls see other groups and in time every useful pair.
    groups
        Candidates for each point: the best partner in each group.
    home
        An array whose library and device do the work; NumPy without one.
    """
    n, m = len(X), len(Y)
    row_order, column_order = rng.permutation(n), rng.permutation(m)
    u, v = u[row_order], v[column_order]
    distances = Distances(X[row_order], Y[column_order], home)
    here = v if home is None else home
    row_potential, column_potential = match(u, here), match(v, here)
    # Long strips rather than square tiles: threaded matrix products wait for each other at the end of every call.
    at_once = _DEVICE_STRIP_ENTRIES if on_device(here) else _STRIP_ENTRIES
    strips = _ranges(n, min(-(-n // groups), max(1, at_once // m)))
    column_groups = _ranges(m, -(-m // groups))
    for_rows, for_columns = _Best(n, groups, here), _Best(m, groups, here)
    for number, rows in enumerate(strips):
        reduced = distances.between(rows, slice(0, m))
        reduced -= column_potential
        reduced -= row_potential[rows, None]
        for group, columns in enumerate(column_groups):
            for_rows.update(rows, group, reduced[:, columns], offset=columns.start)
        for_columns.update(slice(0, m), number % groups, reduced.T, offset=rows.start)
    row_minimum, column_minimum = np.empty(n), np.empty(m)
    row_minimum[row_order] = for_rows.minimum() + u
    column_minimum[column_order] = for_columns.minimum() + v
    own, partner = for_rows.pairs()
    own_columns, partner_rows = for_columns.pairs()
    return Priced(
        row_minimum,
        column_minimum,
        rows=row_order[np.concatenate([own, partner_rows])],
        columns=column_order[np.concatenate([partner, own_columns])],
    )


class _Best:
    """Best partner so far of each point in each group, by reduced cost; kept where `like` is."""

    def __init__(self, points: int, groups: int, like: Array) -> None:
        self._xp = namespace(like)
        self._value = self._xp.full((points, groups), np.inf, dtype=self._xp.float64, device=like.device)
        self._partner = self._xp.zeros((points, groups), dtype=self._xp.int64, device=like.device)

    def update(self, points: slice, group: int, reduced: Array, *, offset: int) -> None:
        """Compare with new partners, one column of `reduced` each, numbered from `offset`."""
        partner, value = self._xp.argmin(reduced, axis=1), self._xp.min(reduced, axis=1)
        better = value < self._value[points, group]
        self._value[points, group] = self._xp.where(better, value, self._value[points, group])
        self._partner[points, group] = self._xp.where(better, partner + offset, self._partner[points, group])

    def minimum(self) -> Vector:
        """The best value of each point."""
        return to_numpy(self._value).min(axis=1)

    def pairs(self) -> tuple[Index, Index]:
        """Points and partners; groups that were never met (fewer points than groups) are left out."""
        point, group = np.nonzero(np.isfinite(to_numpy(self._value)))
        return point, to_numpy(self._partner)[point, group]


def _ranges(points: int, width: int) -> list[slice]:
    return [slice(start, min(start + width, points)) for start in range(0, points, width)]
