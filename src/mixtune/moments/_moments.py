"""Moments: the sums a dataset's features boil down to, and the currency of everything after them.

``count = n``, ``gram = U'U``, ``cross = U'Y``, ``square = |Y|^2`` are all that heads, losses, weights and the
regret-optimal solution need of a dataset. They add (more rows, another site), subtract (forget a site, leave rows
out) and stream. While a dataset has fewer rows than features its rows are the smaller description: they are kept, and
the p x p Gram matrix is formed only when somebody asks for it. So are the rows of very wide datasets on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal, SupportsFloat

import array_api_compat
import numpy as np

from mixtune._array import (
    Array,
    Floats,
    all_finite,
    as_float64,
    column_gram,
    freeze,
    is_numpy,
    match,
    namespace,
    to_device,
    to_numpy,
)
from mixtune._checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import DataError
from mixtune.moments._cost import SolverOptions
from mixtune.moments._precision import PRECISIONS, narrow_gram, rounding
from mixtune.moments._rows import RowParts, ShiftedRows, check_rows, float64_blocks, nonfinite_error
from mixtune.moments._system import GramSystem, Part, System, rounding_of, row_system

#: Rows as moments keep them: a copy of their own, made anew from others, or where the user has them.
Kept = tuple[Array, Array] | ShiftedRows | RowParts

#: Numbers converted at a time where rows stay where they are.
BLOCK_ENTRIES = 2**20
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
        self._fill(_given_sums(count, gram, cross, square))

    def _fill(self, sums: Sums) -> None:
        self._count = sums.count
        self._single = sums.single
        self._cross = freeze(sums.cross)
        self._square = freeze(sums.square)
        self._kept = sums.rows
        self._summed = sums.summed
        self._gram = None if sums.gram is None else freeze(sums.gram)

    @classmethod
    def _make(cls, count: int, single: bool, **parts: Any) -> Moments:
        return cls._of(Sums(count, single, **parts))

    @classmethod
    def _of(cls, sums: Sums) -> Moments:
        moments = cls.__new__(cls)
        moments._fill(sums)
        return moments

    # --- construction -------------------------------------------------------------------------------------------

    @classmethod
    def from_rows(cls, U: Array, Y: Array, *, keep_rows: bool = False, precision: str = "float64") -> Moments:
        """Moments of features ``U`` (n, p) and targets ``Y`` (n,) or (n, D).

        Sums are accumulated in float64 whatever the inputs are. With n < p the rows themselves are kept (copied).

        Parameters
        ----------
        U, Y : array
            Of any array library; memory maps are read in blocks.
        keep_rows : bool
            For features so wide that a p x p matrix should not be formed: keep the rows, however many, where they are
            and in the precision they have. Nothing is copied, so do not change them afterwards.
        precision : {"float64", "float32", "tf32", "split"}
            What products are formed in; sums are float64, and so are rows that are kept. See the page on numerics.
        """
        return cls._of(_row_sums(U, Y, keep_rows=keep_rows, precision=precision)).rounded(precision)

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
        return [cls._of(sums) for sums in _group_sums(U, Y, sizes)]

    @classmethod
    def from_shifted(cls, rows: ShiftedRows, *, single: bool) -> Moments:
        """Moments of fewer rows than features about another origin, keeping what the rows are made from."""
        return cls._of(_shifted_sums(rows, single=single))

    @classmethod
    def from_blocks(
        cls, blocks: Iterable[tuple[Array, Array]], *, keep_rows: bool = False, precision: str = "float64"
    ) -> Moments:
        """Moments of a stream of ``(U, Y)`` blocks; memory stays at three Gram matrices plus p rows or one block.

        ``keep_rows`` and ``precision`` as for :meth:`from_rows`.

        Examples
        --------
        >>> import numpy as np
        >>> from mixtune import Moments
        >>> U, y = np.ones((10, 2)), np.arange(10.0)
        >>> Moments.from_blocks((U[i : i + 3], y[i : i + 3]) for i in range(0, 10, 3)).count
        10
        """
        waiting: list[Moments] = []
        for U, Y in blocks:
            waiting.append(cls.from_rows(U, Y, keep_rows=keep_rows, precision=precision))
            # Small blocks wait until together they outnumber the features: one product instead of many thin ones.
            fresh = sum(m.count for m in waiting if m.keeps_rows)
            if not keep_rows and (fresh >= waiting[0].n_features or not waiting[-1].keeps_rows):
                waiting = [cls._of(_merged_sums(waiting))]
        if not waiting:
            raise DataError("there are no blocks: the iterable given to from_blocks was empty")
        total = waiting[0] if len(waiting) == 1 else cls._of(_merged_sums(waiting))
        return total.rounded(precision)

    # --- what they hold -----------------------------------------------------------------------------------------

    @property
    def gram(self) -> Array:
        """``U'U``, shape (p, p); formed when first asked for where rows are kept."""
        if self._gram is None:
            assert self._kept is not None
            self._gram = freeze(_gram_of(self._kept))
        return self._gram

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
    def keeps_rows(self) -> bool:
        """Whether the rows are at hand (n < p, or kept on request)."""
        return self._kept is not None

    @property
    def rows(self) -> tuple[Array, Array] | None:
        """``(U, Y)`` in float64 where the rows are kept (n < p, or on request), else None; Y has shape (n, D)."""
        return self._kept.load() if isinstance(self._kept, ShiftedRows | RowParts) else self._kept

    @property
    def parts(self) -> tuple[tuple[Array, Array], ...]:
        """The kept rows in the pieces and the precision they are kept in; none where no row is."""
        if isinstance(self._kept, RowParts):
            return self._kept.pairs
        rows = self.rows
        return () if rows is None else (rows,)

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
        kept = self._kept if isinstance(self._kept, RowParts) else self.rows
        rows = kept.outputs(one) if isinstance(kept, RowParts) else kept and (kept[0], kept[1][:, one])
        parts = {"cross": self._cross[:, one], "square": self._square[one], "rows": rows}
        return self._of(replace(self._sums, single=True, **parts))

    def divided(self, size: float) -> Moments:
        """Moments of the targets divided by ``size``, sharing the Gram matrix."""
        rows = None if self.rows is None else (self.rows[0], self.rows[1] / size)
        return self._of(replace(self._sums, cross=self._cross / size, square=self._square / size**2, rows=rows))

    def mapped(self, matrix: Floats) -> Moments:
        """Moments of the features ``U @ matrix``, for a matrix (p, k)."""
        if self.rows is not None:
            U, Y = self.rows
            return self.from_rows(U @ matrix, Y[:, 0] if self._single else Y)
        gram, cross = matrix.T @ self.gram @ matrix, matrix.T @ self._cross
        return self._of(replace(self._sums, gram=(gram + gram.T) / 2, cross=cross))

    def without_rows(self) -> Moments:
        """The same sums, with no row kept: what a site may share that must not share rows."""
        return self._of(replace(self._sums, gram=self.gram, rows=None))

    def on_device(self, device: str | None) -> Moments:
        """The same sums as tensors on a device of PyTorch, such as "cuda"; for None as NumPy arrays."""
        return self._of(_converted_sums(self, to_numpy if device is None else partial(to_device, device=device)))

    def rounded(self, precision: str) -> Moments:
        """The same sums, told how strong a direction may look that is only rounding of products in that precision."""
        if self.keeps_rows or precision == "float64":
            return self
        noise = rounding(self.gram, precision)
        return self._of(replace(self._sums, summed=noise)) if noise else self

    @property
    def _sums(self) -> Sums:
        return Sums(self.count, self._single, self._gram, self._cross, self._square, self._kept, self._summed)

    def __repr__(self) -> str:
        kept = ", rows kept" if self.keeps_rows else ""
        return f"Moments(count={self.count}, n_features={self.n_features}, n_outputs={self.n_outputs}{kept})"

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return self._of(_merged_sums([self, other]))

    def __radd__(self, other: object) -> Moments:
        # sum() starts from the integer 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return self._of(_remaining_sums(self, other))

    # --- use ----------------------------------------------------------------------------------------------------

    @cached_property
    def system(self) -> System:
        """The least-squares problem of this dataset alone."""
        if self.keeps_rows:
            return row_system([Part(U, Y) for U, Y in self.parts])
        return GramSystem(self.gram, self._cross, self._square, self._summed)

    def head(
        self,
        ridge: float,
        *,
        solver: Literal["auto", "direct", "iterative"] = "auto",
        tolerance: float = 1e-10,
        memory_limit: int | str | None = None,
    ) -> Array:
        """Local ridge head: ``argmin |Y - U theta|^2 + ridge |theta|^2``, shape (p,) or (p, D).

        ``ridge=0`` gives the minimum-norm least-squares solution, also with more features than rows. Sums know
        features only through U'U, whose condition number is the square of U's: without rows, directions weaker than
        about 1e-7 of the strongest are lost to rounding. The other arguments are those of :func:`mixtune.solve`.
        """
        ridge = check_nonnegative("ridge", ridge)
        options = SolverOptions(solver, tolerance, memory_limit)
        theta = self.system.ridge_step(namespace(self._cross).zeros_like(self._cross), ridge, options).delta
        return theta[:, 0] if self._single else theta

    def loss(self, theta: Array) -> float:
        """Sum of squared errors ``|Y - U theta|^2`` of a head (p,) or (p, D), over all outputs."""
        return self.system.loss(_check_head(self, theta))

    def losses(self, heads: Array) -> np.ndarray[Any, Any]:
        """:meth:`loss` of each of several heads, (N, p) or (N, p, D)."""
        return _head_losses(self, heads)


@dataclass(frozen=True, eq=False)
class Sums:
    """What moments are filled with; cross is (p, D) and square (D,) whatever the targets' shape.

    ``summed`` is the largest diagonal that was ever summed: subtraction leaves rounding of that size behind.
    """

    count: int
    single: bool
    gram: Array | None
    cross: Array
    square: Array
    rows: Kept | None
    summed: float = 0.0


def _given_sums(count: int, gram: Array, cross: Array, square: SupportsFloat | Array) -> Sums:
    """Sums that somebody else has formed, copied and checked."""
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
    return Sums(int(count), single, gram, cross, square, None)


def _row_sums(U: Array, Y: Array, *, keep_rows: bool = False, precision: str = "float64") -> Sums:
    """Sums over rows; rows are kept (in float64) while they are fewer than the features, or on request."""
    check_choice("precision", precision, PRECISIONS)
    U, Y, single = check_rows(U, Y)
    if keep_rows:
        return _reference_sums(U, Y, single)
    return _few_sums(U, Y, single) if U.shape[0] < U.shape[1] else _all_sums(U, Y, single, precision)


def _all_sums(U: Array, Y: Array, single: bool, precision: str = "float64") -> Sums:
    xp = namespace(U)
    gram = cross = square = None
    with np.errstate(all="ignore"):  # non-finite sums are diagnosed below
        if precision != "float64":
            gram = narrow_gram(U, precision=precision)
        for block, targets in float64_blocks(U, Y):
            c, s = block.T @ targets, xp.sum(targets**2, axis=0)
            cross, square = (c, s) if cross is None else (cross + c, square + s)
            if precision == "float64":
                products = column_gram(block)
                if gram is None:
                    gram = products
                else:
                    gram += products
    if not (all_finite(xp.linalg.diagonal(gram)) and all_finite(cross) and all_finite(square)):
        if precision == "float64":
            raise nonfinite_error(U, Y)
        _all_sums(U, Y, single)  # names what is not finite, if it is the rows
        raise DataError('the squares of the features overflow float32; pass dtype="float64" or scale the features')
    return Sums(int(U.shape[0]), single, gram, cross, square, None)


def _few_sums(U: Array, Y: Array, single: bool) -> Sums:
    U = freeze(as_float64(U, what="U", copy=True))
    Y = freeze(as_float64(Y, what="Y", copy=True))
    xp = namespace(U)
    with np.errstate(all="ignore"):
        cross, square = U.T @ Y, xp.sum(Y**2, axis=0)
        usable = all_finite(cross) and all_finite(square) and bool(xp.isfinite(xp.sum(U**2)))
    if not usable:
        raise nonfinite_error(U, Y)
    return Sums(int(U.shape[0]), single, None, cross, square, (U, Y))


def _reference_sums(U: Array, Y: Array, single: bool) -> Sums:
    """One pass over rows that stay where they are."""
    xp = namespace(U)
    Y = freeze(as_float64(Y, what="Y", copy=True))
    cross = xp.zeros((U.shape[1], Y.shape[1]), dtype=xp.float64, device=U.device)
    size = 0.0
    step = max(1, BLOCK_ENTRIES // int(U.shape[1]))
    with np.errstate(all="ignore"):
        for begin in range(0, int(U.shape[0]), step):
            block = as_float64(U[begin : begin + step, :], what="U")
            cross += block.T @ Y[begin : begin + step, :]
            size += float(xp.sum(block**2))
        square = xp.sum(Y**2, axis=0)
    if not (np.isfinite(size) and all_finite(cross) and all_finite(square)):
        raise nonfinite_error(U, Y)
    return Sums(int(U.shape[0]), single, None, cross, square, RowParts(((U, Y),)))


def _group_sums(U: Array, Y: Array, sizes: Sequence[int]) -> list[Sums]:
    """Sums of datasets that lie one below the other, checked together; rows that are kept share one copy."""
    U, Y, single = check_rows(U, Y)
    sizes = [check_whole("sizes", size, least=1) for size in sizes]
    if sum(sizes) != U.shape[0]:
        raise DataError(f"sizes add up to {sum(sizes)} rows, U has {U.shape[0]}; give the rows of every dataset")
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [slice(a, b) for a, b in pairwise(edges)]
    if not is_numpy(U) or max(sizes) >= U.shape[1]:
        return [_row_sums(U[part], Y[part, 0] if single else Y[part]) for part in parts]
    U = freeze(as_float64(U, what="U", copy=True))
    Y = freeze(as_float64(Y, what="Y", copy=True))
    with np.errstate(all="ignore"):
        crosses = [U[part].T @ Y[part] for part in parts]
        squares = np.add.reduceat(Y**2, edges[:-1])
        usable = np.all(np.isfinite(squares)) and np.isfinite(np.vdot(U, U))
    if not (usable and all(np.all(np.isfinite(cross)) for cross in crosses)):
        raise nonfinite_error(U, Y)
    return [
        Sums(size, single, None, cross, square, (U[part], Y[part]))
        for size, part, cross, square in zip(sizes, parts, crosses, squares)
    ]


def _shifted_sums(rows: ShiftedRows, *, single: bool) -> Sums:
    """Sums of fewer rows than features about another origin, keeping what the rows are made from."""
    with np.errstate(all="ignore"):
        U, Y = rows.load()
        cross, square = U.T @ Y, namespace(Y).sum(Y**2, axis=0)
    if not (all_finite(cross) and all_finite(square)):
        raise nonfinite_error(U, Y)
    return Sums(int(U.shape[0]), single, None, cross, square, rows)


def _gram_of(rows: Kept) -> Array:
    """``U'U`` of kept rows; those kept on request go through in blocks."""
    if not isinstance(rows, RowParts):
        return column_gram((rows.load() if isinstance(rows, ShiftedRows) else rows)[0])
    gram = None
    for U, Y in rows.pairs:
        for block, _ in float64_blocks(U, Y):
            gram = column_gram(block) if gram is None else gram + column_gram(block)
    return gram


def _merged_sums(moments: Sequence[Moments]) -> Sums:
    """The sum of several moments, by one product over all rows that are still kept."""
    check_alike(moments)
    first = moments[0]
    xp = namespace(first._cross)
    count, single = sum(m.count for m in moments), first.single_output
    cross, square = sum(m._cross for m in moments), sum(m._square for m in moments)
    if all(m.keeps_rows for m in moments):
        if any(isinstance(m._kept, RowParts) for m in moments):
            pairs = tuple(pair for m in moments for pair in m.parts)
            return Sums(count, single, None, cross, square, RowParts(pairs))
        if count < first.n_features:
            U, Y = (freeze(xp.concat(side)) for side in zip(*(pair for m in moments for pair in m.parts)))
            return Sums(count, single, None, cross, square, (U, Y))
    apart = [m for m in moments if not m.keeps_rows or isinstance(m._kept, RowParts)]
    gram = sum(m.gram for m in apart)
    if len(apart) < len(moments):
        gram = gram + column_gram(xp.concat([U for m in moments if m not in apart for U, _ in m.parts]))
    return Sums(count, single, gram, cross, square, None, max(m._summed for m in moments))


def _converted_sums(moments: Moments, convert: Callable[[Array], Array]) -> Sums:
    """The same sums in another array library or on another device."""
    rows = None if (kept := moments.rows) is None else (freeze(convert(kept[0])), freeze(convert(kept[1])))
    gram = None if rows else convert(moments.gram)
    cross, square = convert(moments._cross), convert(moments._square)
    return Sums(moments.count, moments.single_output, gram, cross, square, rows, moments._summed)


def _remaining_sums(whole: Moments, other: Moments) -> Sums:
    """What is left of ``whole`` without ``other``."""
    check_alike([whole, other])
    xp = namespace(whole._cross)
    count = whole.count - other.count
    gram, square = whole.gram - other.gram, whole._square - other._square
    slack = rounding_of(whole.n_features)
    diagonal = xp.linalg.diagonal(gram)
    impossible = (
        count < 0
        or bool(xp.any(diagonal < -slack * xp.linalg.diagonal(whole.gram)))
        or bool(xp.any(square < -slack * whole._square))
    )
    if impossible:
        raise DataError(
            f"cannot subtract moments of {other.count} rows from moments of {whole.count}: "
            "they were never part of them; subtract only what was added"
        )
    square = xp.maximum(square, xp.zeros_like(square))
    summed = max(whole._summed, other._summed, float(xp.max(xp.linalg.diagonal(whole.gram))))
    return Sums(count, whole.single_output, gram, whole._cross - other._cross, square, None, summed)


def check_alike(moments: Sequence[Moments]) -> None:
    """Refuse moments over different features, outputs or array libraries."""
    first = moments[0]
    for index, m in enumerate(moments[1:], start=1):
        if m.n_features != first.n_features:
            raise DataError(
                f"moments {index} have {m.n_features} features, moments 0 have {first.n_features}; "
                "use the same feature map for all"
            )
        if m._cross.shape != first._cross.shape or m.single_output != first.single_output:
            raise DataError(
                f"moments {index} have targets of shape {_target_shape(m)}, moments 0 of {_target_shape(first)}; "
                "pass the same outputs for all"
            )
    namespace(*(m._cross for m in moments))


def _target_shape(m: Moments) -> str:
    return "(n,)" if m.single_output else f"(n, {m.n_outputs})"


def _check_head(moments: Moments, theta: Array) -> Array:
    """A head of these moments as (p, D), in their array library."""
    if array_api_compat.is_array_api_obj(theta):
        namespace(theta, moments.cross)
    theta = as_float64(theta if is_numpy(moments.cross) else match(theta, moments.cross), what="theta")
    expected = tuple(moments.cross.shape)
    if tuple(theta.shape) != expected:
        raise DataError(f"a head of these moments has shape {expected}; got {tuple(theta.shape)}")
    return theta[:, None] if moments.single_output else theta


def _head_losses(moments: Moments, heads: Array) -> Floats:
    """``|Y - U theta|^2`` of each of several heads, (N, p) or (N, p, D)."""
    stacked = _stacked(moments, heads)
    if stacked is None:
        return np.array([moments.loss(theta) for theta in heads])
    found = np.empty(len(stacked))
    step = max(1, LOSSES_AT_ONCE // (max(moments.n_features, moments.count) * moments.n_outputs))
    for begin in range(0, len(stacked), step):
        # Heads side by side, one column for each head and output: a single product.
        part = stacked[begin : begin + step]
        columns = part.transpose(1, 0, 2).reshape(moments.n_features, -1)
        found[begin : begin + step] = moments.system.column_losses(columns, moments.n_outputs)
    return found


def _stacked(moments: Moments, heads: Array) -> Floats | None:
    """Many NumPy heads as (N, p, D), or None where the plain loop is as good."""
    shape = tuple(moments.cross.shape)
    many = len(heads) >= MANY_HEADS and is_numpy(moments.cross)
    if not many or not all(is_numpy(head) and head.shape == shape for head in heads):
        return None
    stacked = np.stack([np.asarray(head, dtype=np.float64) for head in heads])
    return stacked[:, :, None] if moments.single_output else stacked
