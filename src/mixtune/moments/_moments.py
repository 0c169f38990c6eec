"""Moments: the sums a dataset's features boil down to, and the currency of everything after them.

``count = n``, ``gram = U'U``, ``cross = U'Y``, ``square = |Y|^2`` are all that heads, losses, weights and the
regret-optimal solution need of a dataset. They add (more rows, another site), subtract (forget a site, leave rows
out) and stream. While a dataset has fewer rows than features its rows are the smaller description: they are kept, and
the p x p Gram matrix is formed only when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, SupportsFloat

import array_api_compat
import numpy as np

from mixtune._array import Array, all_finite, as_float64, column_gram, freeze, is_numpy, match, namespace
from mixtune._checks import check_nonnegative, check_whole
from mixtune.errors import DataError
from mixtune.moments._rows import ShiftedRows, check_rows, float64_blocks, nonfinite_error
from mixtune.moments._system import EPSILON, GramSystem, RowSystem, System

__all__ = ["Moments", "check_alike"]

#: From this many heads on, their losses come from one product; and how many numbers it may hold.
MANY_HEADS, LOSSES_AT_ONCE = 64, 4_000_000


class Moments:
    """Sums over the rows of one dataset: ``count``, ``gram``, ``cross``, ``square``.

    Build them with :meth:`from_rows` or :meth:`from_blocks`; combine them with ``+``, ``-`` and ``sum``.

    Parameters
    ----------
    count : int
        Number of rows n.
    gram : array (p, p)
        ``U'U``.
    cross : array (p,) or (p, D)
        ``U'Y``; its number of dimensions says whether targets are a vector or a matrix.
    square : float or array (D,)
        Sum of squared targets, per output.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments
    >>> U, y = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])
    >>> moments = Moments.from_rows(U, y)
    >>> moments.head(ridge=0.0).round(6)
    array([1., 2.])
    >>> moments.loss([1.0, 1.0])
    5.0
    >>> (moments + moments - moments).count
    3
    """

    def __init__(self, count: int, gram: Array, cross: Array, square: SupportsFloat | Array) -> None:
        gram = as_float64(gram, what="gram", copy=True)
        cross = as_float64(cross, what="cross", copy=True)
        single = cross.ndim == 1
        cross = cross[:, None] if single else cross
        xp = namespace(gram)
        square = xp.reshape(xp.asarray(square, dtype=xp.float64, device=gram.device), (-1,))
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or cross.ndim != 2 or cross.shape[0] != gram.shape[0]:
            raise DataError(
                f"moments need gram (p, p) and cross (p,) or (p, D); got {tuple(gram.shape)} and {tuple(cross.shape)}"
            )
        if square.shape[0] != cross.shape[1]:
            raise DataError(f"square has {square.shape[0]} entries for {cross.shape[1]} outputs; pass one per output")
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0:
            raise DataError(f"count must be a whole number >= 0; got {count!r}")
        if not (all_finite(gram) and all_finite(cross) and all_finite(square)):
            raise DataError("moments must be finite; these hold NaN or infinity")
        diagonal = xp.linalg.diagonal(gram)
        if bool(xp.any(diagonal < 0)) or bool(xp.any(square < 0)):
            raise DataError("gram's diagonal and square are sums of squares; these hold negative numbers")
        largest = float(xp.max(xp.abs(gram)))
        if float(xp.max(xp.abs(gram - gram.T))) > 1e-9 * largest:
            raise DataError("gram must be symmetric, as U'U is")
        self._fill(int(count), single, gram=gram, cross=cross, square=square, rows=None)

    def _fill(
        self,
        count: int,
        single: bool,
        *,
        gram: Array | None,
        cross: Array,
        square: Array,
        rows: tuple[Array, Array] | ShiftedRows | None,
        summed: float = 0.0,
    ) -> None:
        self._count = count
        self._single = single
        self._cross = freeze(cross)
        self._square = freeze(square)
        self._kept = rows
        # The largest diagonal that was ever summed: subtraction leaves rounding of that size behind.
        self._summed = summed
        if gram is not None:
            self.__dict__["gram"] = freeze(gram)

    @classmethod
    def _make(cls, count: int, single: bool, **parts: Any) -> Moments:
        moments = cls.__new__(cls)
        moments._fill(count, single, **parts)
        return moments

    # --- construction -------------------------------------------------------------------------------------------

    @classmethod
    def from_rows(cls, U: Array, Y: Array) -> Moments:
        """Moments of features ``U`` (n, p) and targets ``Y`` (n,) or (n, D).

        Sums are accumulated in float64 whatever the inputs are. With n < p the rows themselves are kept (copied).
        """
        U, Y, single = check_rows(U, Y)
        if U.shape[0] < U.shape[1]:
            return cls._from_few_rows(U, Y, single)
        xp = namespace(U)
        gram = cross = None
        with np.errstate(all="ignore"):  # non-finite sums are diagnosed below
            for block, targets in float64_blocks(U, Y):
                g, c = column_gram(block), block.T @ targets
                s = xp.sum(targets**2, axis=0)
                if gram is None:
                    gram, cross, square = g, c, s
                else:
                    gram += g
                    cross += c
                    square += s
        if not (all_finite(xp.linalg.diagonal(gram)) and all_finite(cross) and all_finite(square)):
            raise nonfinite_error(U, Y)
        return cls._make(int(U.shape[0]), single, gram=gram, cross=cross, square=square, rows=None)

    @classmethod
    def _from_few_rows(cls, U: Array, Y: Array, single: bool) -> Moments:
        U = freeze(as_float64(U, what="U", copy=True))
        Y = freeze(as_float64(Y, what="Y", copy=True))
        xp = namespace(U)
        with np.errstate(all="ignore"):
            cross, square = U.T @ Y, xp.sum(Y**2, axis=0)
            usable = all_finite(cross) and all_finite(square) and bool(xp.isfinite(xp.sum(U**2)))
        if not usable:
            raise nonfinite_error(U, Y)
        return cls._make(int(U.shape[0]), single, gram=None, cross=cross, square=square, rows=(U, Y))

    @classmethod
    def from_groups(cls, U: Array, Y: Array, sizes: Sequence[int]) -> list[Moments]:
        """Moments of many datasets that lie one below the other: ``sizes[0]`` rows, then ``sizes[1]``, and so on.

        The same as :meth:`from_rows` on each part, but checked together, and rows that are kept share one copy.

        Examples
        --------
        >>> import numpy as np
        >>> from mixtune import Moments
        >>> U, y = np.eye(6), np.arange(6.0)
        >>> [m.count for m in Moments.from_groups(U, y, [2, 3, 1])]
        [2, 3, 1]
        """
        U, Y, single = check_rows(U, Y)
        sizes = [check_whole("sizes", size, least=1) for size in sizes]
        if sum(sizes) != U.shape[0]:
            raise DataError(f"sizes add up to {sum(sizes)} rows, U has {U.shape[0]}; give the rows of every dataset")
        edges = np.cumsum([0, *sizes]).tolist()
        parts = [slice(a, b) for a, b in pairwise(edges)]
        if not is_numpy(U) or max(sizes) >= U.shape[1]:
            return [cls.from_rows(U[part], Y[part, 0] if single else Y[part]) for part in parts]
        U = freeze(as_float64(U, what="U", copy=True))
        Y = freeze(as_float64(Y, what="Y", copy=True))
        with np.errstate(all="ignore"):
            crosses = [U[part].T @ Y[part] for part in parts]
            squares = np.add.reduceat(Y**2, edges[:-1])
            usable = np.all(np.isfinite(squares)) and np.isfinite(np.vdot(U, U))
        if not (usable and all(np.all(np.isfinite(cross)) for cross in crosses)):
            raise nonfinite_error(U, Y)
        return [
            cls._make(size, single, gram=None, cross=cross, square=square, rows=(U[part], Y[part]))
            for size, part, cross, square in zip(sizes, parts, crosses, squares)
        ]

    @classmethod
    def from_shifted(cls, rows: ShiftedRows, *, single: bool) -> Moments:
        """Moments of fewer rows than features about another origin, keeping what the rows are made from."""
        with np.errstate(all="ignore"):
            U, Y = rows.load()
            cross, square = U.T @ Y, namespace(Y).sum(Y**2, axis=0)
        if not (all_finite(cross) and all_finite(square)):
            raise nonfinite_error(U, Y)
        return cls._make(int(U.shape[0]), single, gram=None, cross=cross, square=square, rows=rows)

    @classmethod
    def from_blocks(cls, blocks: Iterable[tuple[Array, Array]]) -> Moments:
        """Moments of a stream of ``(U, Y)`` blocks; memory stays at three Gram matrices plus p rows or one block.

        Examples
        --------
        >>> import numpy as np
        >>> from mixtune import Moments
        >>> U, y = np.ones((10, 2)), np.arange(10.0)
        >>> Moments.from_blocks((U[i : i + 3], y[i : i + 3]) for i in range(0, 10, 3)).count
        10
        """
        total: Moments | None = None
        waiting: list[Moments] = []
        for U, Y in blocks:
            part = cls.from_rows(U, Y)
            waiting.append(part)
            # Small blocks wait until together they outnumber the features: one product instead of many thin ones.
            if sum(m.count for m in waiting) >= part.n_features:
                total = _merge([total, *waiting] if total else waiting)
                waiting = []
        if waiting:
            total = _merge([total, *waiting] if total else waiting)
        if total is None:
            raise DataError("there are no blocks: the iterable given to from_blocks was empty")
        return total

    # --- what they hold -----------------------------------------------------------------------------------------

    @cached_property
    def gram(self) -> Array:
        """``U'U``, shape (p, p)."""
        rows = self._rows
        assert rows is not None
        return freeze(column_gram(rows[0]))

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._count

    @property
    def cross(self) -> Array:
        """``U'Y``, shape (p,) or (p, D) like the targets."""
        return self._cross[:, 0] if self._single else self._cross

    @property
    def square(self) -> Array:
        """Sum of squared targets: a scalar, or one per output (D,)."""
        return self._square[0] if self._single else self._square

    @property
    def _rows(self) -> tuple[Array, Array] | None:
        return self._kept.load() if isinstance(self._kept, ShiftedRows) else self._kept

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows are at hand (n < p)."""
        return self._kept is not None

    @property
    def rows(self) -> tuple[Array, Array] | None:
        """``(U, Y)`` where the rows are kept (n < p), else None; Y has shape (n, D)."""
        return self._rows

    @property
    def n_features(self) -> int:
        return int(self._cross.shape[0])

    @property
    def n_outputs(self) -> int:
        return int(self._cross.shape[1])

    @property
    def single_output(self) -> bool:
        """Whether the targets were a vector (n,) rather than a matrix (n, D)."""
        return self._single

    def output(self, index: int) -> Moments:
        """Moments of one output alone, sharing the Gram matrix (or the rows)."""
        one = slice(index, index + 1)
        kept = self._rows
        rows = None if kept is None else (kept[0], kept[1][:, one])
        parts = {"cross": self._cross[:, one], "square": self._square[one], "rows": rows}
        return self._make(self.count, True, gram=self.__dict__.get("gram"), summed=self._summed, **parts)

    def without_rows(self) -> Moments:
        """The same sums, with no row kept: what a site may share that must not share rows."""
        parts = {"gram": self.gram, "cross": self._cross, "square": self._square, "rows": None}
        return self._make(self.count, self._single, summed=self._summed, **parts)

    def __repr__(self) -> str:
        kept = ", rows kept" if self.keeps_rows else ""
        return f"Moments(count={self.count}, n_features={self.n_features}, n_outputs={self.n_outputs}{kept})"

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return _merge([self, other])

    def __radd__(self, other: object) -> Moments:
        # sum() starts from the integer 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        check_alike([self, other])
        xp = namespace(self._cross)
        count = self.count - other.count
        gram, square = self.gram - other.gram, self._square - other._square
        slack = 1e3 * self.n_features * EPSILON
        diagonal = xp.linalg.diagonal(gram)
        impossible = (
            count < 0
            or bool(xp.any(diagonal < -slack * xp.linalg.diagonal(self.gram)))
            or bool(xp.any(square < -slack * self._square))
        )
        if impossible:
            raise DataError(
                f"cannot subtract moments of {other.count} rows from moments of {self.count}: "
                "they were never part of them; subtract only what was added"
            )
        parts = {"gram": gram, "cross": self._cross - other._cross, "square": xp.maximum(square, xp.zeros_like(square))}
        summed = max(self._summed, other._summed, float(xp.max(xp.linalg.diagonal(self.gram))))
        return self._make(count, self._single, rows=None, summed=summed, **parts)

    # --- use ----------------------------------------------------------------------------------------------------

    @cached_property
    def system(self) -> System:
        """The least-squares problem of this dataset alone."""
        rows = self._rows
        if rows is not None:
            return RowSystem(*rows)
        return GramSystem(self.gram, self._cross, self._square, self._summed)

    def head(self, ridge: float) -> Array:
        """Local ridge head: ``argmin |Y - U theta|^2 + ridge |theta|^2``, shape (p,) or (p, D).

        ``ridge=0`` gives the minimum-norm least-squares solution, also with more features than rows. The n x n dual
        is used while the rows are kept. Sums know features only through U'U, whose condition number is the square of
        U's: without rows, directions weaker than about 1e-7 of the strongest are lost to rounding.
        """
        ridge = check_nonnegative("ridge", ridge)
        theta = self.system.step(namespace(self._cross).zeros_like(self._cross), ridge)
        return theta[:, 0] if self._single else theta

    def loss(self, theta: Array) -> float:
        """Sum of squared errors ``|Y - U theta|^2`` of a head (p,) or (p, D), over all outputs."""
        return self.system.loss(self._check_theta(theta))

    def losses(self, heads: Array) -> np.ndarray[Any, Any]:
        """:meth:`loss` of each of several heads, (N, p) or (N, p, D)."""
        stacked = self._stacked(heads)
        if stacked is None:
            return np.array([self.loss(theta) for theta in heads])
        found = np.empty(len(stacked))
        step = max(1, LOSSES_AT_ONCE // (max(self.n_features, self.count) * self.n_outputs))
        for begin in range(0, len(stacked), step):
            # Heads side by side, one column for each head and output: a single product.
            part = stacked[begin : begin + step]
            columns = part.transpose(1, 0, 2).reshape(self.n_features, -1)
            found[begin : begin + step] = self.system.column_losses(columns, self.n_outputs)
        return found

    def _stacked(self, heads: Array) -> np.ndarray[Any, Any] | None:
        """Many NumPy heads as (N, p, D), or None where the plain loop is as good."""
        shape = (self.n_features,) if self._single else tuple(self._cross.shape)
        many = len(heads) >= MANY_HEADS and is_numpy(self._cross)
        if not many or not all(is_numpy(head) and head.shape == shape for head in heads):
            return None
        stacked = np.stack([np.asarray(head, dtype=np.float64) for head in heads])
        return stacked[:, :, None] if self._single else stacked

    def _check_theta(self, theta: Array) -> Array:
        if array_api_compat.is_array_api_obj(theta):
            namespace(theta, self._cross)
        theta = as_float64(theta if is_numpy(self._cross) else match(theta, self._cross), what="theta")
        expected = (self.n_features,) if self._single else tuple(self._cross.shape)
        if tuple(theta.shape) != expected:
            raise DataError(f"a head of these moments has shape {expected}; got {tuple(theta.shape)}")
        return theta[:, None] if self._single else theta


def _merge(moments: Sequence[Moments]) -> Moments:
    """The sum of several moments, by one product over all rows that are still kept."""
    check_alike(moments)
    first = moments[0]
    xp = namespace(first._cross)
    count, single = sum(m.count for m in moments), first._single
    cross, square = sum(m._cross for m in moments), sum(m._square for m in moments)
    kept = [rows for rows in (m._rows for m in moments) if rows is not None]
    if len(kept) == len(moments) and count < first.n_features:
        rows = tuple(freeze(xp.concat([pair[side] for pair in kept])) for side in (0, 1))
        return Moments._make(count, single, gram=None, cross=cross, square=square, rows=rows)
    gram = sum(m.gram for m in moments if not m.keeps_rows)
    if kept:
        U = xp.concat([pair[0] for pair in kept])
        gram = gram + column_gram(U)
    summed = max(m._summed for m in moments)
    return Moments._make(count, single, gram=gram, cross=cross, square=square, rows=None, summed=summed)


def check_alike(moments: Sequence[Moments]) -> None:
    """Refuse moments over different features, outputs or array libraries."""
    first = moments[0]
    for index, m in enumerate(moments[1:], start=1):
        if m.n_features != first.n_features:
            raise DataError(
                f"moments {index} have {m.n_features} features, moments 0 have {first.n_features}; "
                "use the same feature map for all"
            )
        if m._cross.shape != first._cross.shape or m._single != first._single:
            raise DataError(
                f"moments {index} have targets of shape {_target_shape(m)}, moments 0 of {_target_shape(first)}; "
                "pass the same outputs for all"
            )
    namespace(*(m._cross for m in moments))


def _target_shape(m: Moments) -> str:
    return "(n,)" if m.single_output else f"(n, {m.n_outputs})"
