"""Rows of one dataset: the container that all packages share, and rows that become moments.

Shapes are checked first. Values are checked through the sums, which needs no further pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import array_api_compat
import numpy as np

from mixtune.arrays import Array, Floats, as_float64, count_nonfinite, is_numpy, namespace, slices
from mixtune.checks import set_fields
from mixtune.errors import DataError

#: Rows converted to float64 at a time when the input is not float64 already (bounds the extra memory).
BLOCK_BYTES = 67_108_864
#: Numbers worked on at a time: 1 MB, which stays in the cache of a core.
RUN_ENTRIES = 131_072


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs or features (n, p), targets (n,) or (n, D), and sample weights (n,) or None for ones."""

    X: Floats
    y: Floats
    sample_weight: Floats | None = None

    @property
    def weight(self) -> Floats:
        """Sample weights, ones where none were given."""
        return np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight

    @property
    def targets(self) -> Floats:
        """Targets as (n, D)."""
        return self.y.reshape(len(self.y), -1)

    @property
    def total(self) -> float:
        """The number of rows, each counting as its sample weight."""
        return float(len(self.y)) if self.sample_weight is None else float(self.sample_weight.sum())

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape

    @cached_property
    def sizes(self) -> tuple[Floats, Floats]:
        """Sums of squares and of absolute cubes of each row (n,): any order and sign of the columns gives the same."""
        norms, cubes = np.empty(len(self.y)), np.empty(len(self.y))
        for run in self._runs():
            X = self.features_of(run)
            squares = X * X
            norms[run], cubes[run] = squares.sum(axis=1), np.einsum("ij,ij->i", squares, np.abs(X))
        return norms, cubes

    def along(self, direction: Floats) -> Floats:
        """Inner products (n,) of the rows with a direction (p,)."""
        return np.concatenate([self.features_of(run) @ direction for run in self._runs()])

    def features_of(self, index: Any) -> Floats:
        """The features of some of the rows."""
        return self.X[index]

    def _runs(self) -> list[slice]:
        """Slices of rows that stay in the cache of a core."""
        return slices(len(self.y), RUN_ENTRIES // max(self.shape[1], 1))

    def scaled(self, features: Callable[[Floats], Floats]) -> Rows:
        """The same rows with other features."""
        return Rows(features(self.X), self.y, self.sample_weight)

    def part(self, index: Any) -> Rows:
        """Some of the rows: a slice (not copied), or their places."""
        weight = None if self.sample_weight is None else self.sample_weight[index]
        return Rows(self.features_of(index), self.y[index], weight)

    def joined(self, other: Rows) -> Rows:
        """These rows and then the others."""
        given = self.sample_weight is not None or other.sample_weight is not None
        weight = np.concatenate([self.weight, other.weight]) if given else None
        return Rows(np.concatenate([self.X, other.X]), np.concatenate([self.y, other.y]), weight)


class LazyRows(Rows):
    """Rows whose features are made from others when they are asked for: mostly, only some of them are.

    Examples
    --------
    >>> rows = LazyRows(Rows(np.arange(6.0).reshape(3, 2), np.ones(3)), lambda X: 10 * X[:, 1:], np.zeros(3))
    >>> rows.part([0, 2]).X.tolist(), rows.shape, "X" in vars(rows)
    ([[10.0], [50.0]], (3, 1), False)
    >>> rows.X.tolist()
    [[10.0], [30.0], [50.0]]
    """

    _rows: Rows
    _features: Callable[[Floats], Floats]

    def __init__(self, rows: Rows, features: Callable[[Floats], Floats], y: Floats) -> None:
        set_fields(self, y=y, sample_weight=rows.sample_weight, _rows=rows, _features=features)

    @cached_property
    def X(self) -> Floats:
        """All features."""
        return self.features_of(slice(None))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.y), self.features_of(slice(0, 1)).shape[1]

    def features_of(self, index: Any) -> Floats:
        made = vars(self).get("X")
        return self._features(self._rows.X[index]) if made is None else made[index]


def check_rows(U: Array, Y: Array) -> tuple[Array, Array, bool]:
    """Check shapes and types; values are checked through the sums, which needs no further pass."""
    # Lists and data frames become NumPy arrays; arrays stay in their library.
    U = U if array_api_compat.is_array_api_obj(U) else as_float64(U, what="U")
    Y = Y if array_api_compat.is_array_api_obj(Y) else as_float64(Y, what="Y")
    for name, array in (("U", U), ("Y", Y)):
        if is_numpy(array) and array.dtype.kind not in "fiub":
            raise DataError(f"{name} holds values of type {array.dtype}; pass numbers")
    namespace(U, Y)
    if U.ndim != 2 or Y.ndim not in (1, 2):
        raise DataError(f"U must be (n, p) and Y (n,) or (n, D); got {tuple(U.shape)} and {tuple(Y.shape)}")
    if U.shape[0] != Y.shape[0]:
        raise DataError(f"U has {U.shape[0]} rows but Y has {Y.shape[0]} targets; pass one target per row")
    if U.shape[0] == 0 or U.shape[1] == 0 or (Y.ndim == 2 and Y.shape[1] == 0):
        raise DataError(f"U of shape {tuple(U.shape)} and Y of shape {tuple(Y.shape)} hold no data")
    single = Y.ndim == 1
    return U, (Y[:, None] if single else Y), single


def float64_blocks(U: Array, Y: Array) -> Iterator[tuple[Array, Array]]:
    """The rows as float64: all at once where they are already, else block by block to bound the copy."""
    xp = namespace(U)
    if U.dtype == xp.float64 and not isinstance(U, np.memmap):
        yield as_float64(U, what="U"), as_float64(Y, what="Y")
        return
    for part in slices(U.shape[0], max(U.shape[1], BLOCK_BYTES // (8 * U.shape[1]))):
        yield as_float64(U[part], what="U"), as_float64(Y[part], what="Y")


def nonfinite_error(U: Array, Y: Array) -> DataError:
    bad = [f"{count} in {name}" for name, count in (("U", _bad(U)), ("Y", _bad(Y))) if count]
    if bad:
        return DataError(f"values must be finite; found NaN or infinite values: {', '.join(bad)}")
    return DataError("the sums of squares overflow float64; rescale the features and targets (values beyond 1e150)")


def _bad(array: Array) -> int:
    return sum(count_nonfinite(as_float64(array[part], what="rows")) for part in slices(array.shape[0], 65_536))


@dataclass(frozen=True, eq=False)
class ShiftedRows:
    """Rows about another origin, made anew each time they are asked for, so that many datasets need no second copy.

    Attributes
    ----------
    design : array (n, p + 1)
        Features with a last column r that says how often, or how heavily, the origin is subtracted from each row.
    targets : array (n, D)
    origin, level : arrays (p,) and (D,)
        The rows are ``design[:, :-1] - r origin`` with targets ``targets - r level``.
    """

    design: Array
    targets: Array
    origin: Array
    level: Array

    def load(self) -> tuple[Array, Array]:
        """Features (n, p) and targets (n, D)."""
        root = self.design[:, -1:]
        return self.design[:, :-1] - root * self.origin, self.targets - root * self.level


@dataclass(frozen=True, eq=False)
class RowParts:
    """Rows kept on request, in the arrays and the precision of the user; they are copied only when needed.

    Attributes
    ----------
    pairs : tuple of (U, Y)
        Features (n_i, p) of any type of number, targets (n_i, D) in float64.
    """

    pairs: tuple[tuple[Array, Array], ...]

    def load(self) -> tuple[Array, Array]:
        """Features (n, p) and targets (n, D), in float64."""
        whole = [(as_float64(U, what="U"), Y) for U, Y in self.pairs]
        if len(whole) == 1:
            return whole[0]
        concat = namespace(whole[0][0]).concat
        return concat([U for U, _ in whole]), concat([Y for _, Y in whole])
