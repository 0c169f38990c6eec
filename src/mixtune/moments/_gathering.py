"""The sums themselves: from rows, from many datasets at once, from rows about another origin, and from other sums.

Values are checked through the sums, which costs nothing; where these are not finite the rows are searched for why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np

from mixtune._array import Array, all_finite, as_float64, column_gram, freeze, is_numpy, namespace
from mixtune._checks import check_whole
from mixtune.errors import DataError
from mixtune.moments._factored import rounding_of
from mixtune.moments._rows import RowParts, ShiftedRows, check_rows, float64_blocks, nonfinite_error

if TYPE_CHECKING:
    from mixtune.moments._moments import Moments

__all__ = [
    "Kept",
    "Sums",
    "check_alike",
    "converted_sums",
    "given_sums",
    "gram_of",
    "group_sums",
    "merged_sums",
    "remaining_sums",
    "row_sums",
    "shifted_sums",
]

#: Rows as moments keep them: a copy of their own, made anew from others, or where the user has them.
Kept = tuple[Array, Array] | ShiftedRows | RowParts

#: Numbers converted at a time where rows stay where they are.
BLOCK_ENTRIES = 2**20


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


def given_sums(count: int, gram: Array, cross: Array, square: SupportsFloat | Array) -> Sums:
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


def row_sums(U: Array, Y: Array, *, keep_rows: bool = False) -> Sums:
    """Sums over rows; rows are kept while they are fewer than the features, or on request."""
    U, Y, single = check_rows(U, Y)
    if keep_rows:
        return _reference_sums(U, Y, single)
    return _few_sums(U, Y, single) if U.shape[0] < U.shape[1] else _all_sums(U, Y, single)


def _all_sums(U: Array, Y: Array, single: bool) -> Sums:
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


def group_sums(U: Array, Y: Array, sizes: Sequence[int]) -> list[Sums]:
    """Sums of datasets that lie one below the other, checked together; rows that are kept share one copy."""
    U, Y, single = check_rows(U, Y)
    sizes = [check_whole("sizes", size, least=1) for size in sizes]
    if sum(sizes) != U.shape[0]:
        raise DataError(f"sizes add up to {sum(sizes)} rows, U has {U.shape[0]}; give the rows of every dataset")
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [slice(a, b) for a, b in pairwise(edges)]
    if not is_numpy(U) or max(sizes) >= U.shape[1]:
        return [row_sums(U[part], Y[part, 0] if single else Y[part]) for part in parts]
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


def shifted_sums(rows: ShiftedRows, *, single: bool) -> Sums:
    """Sums of fewer rows than features about another origin, keeping what the rows are made from."""
    with np.errstate(all="ignore"):
        U, Y = rows.load()
        cross, square = U.T @ Y, namespace(Y).sum(Y**2, axis=0)
    if not (all_finite(cross) and all_finite(square)):
        raise nonfinite_error(U, Y)
    return Sums(int(U.shape[0]), single, None, cross, square, rows)


def gram_of(rows: Kept) -> Array:
    """``U'U`` of kept rows; those kept on request go through in blocks."""
    if not isinstance(rows, RowParts):
        return column_gram((rows.load() if isinstance(rows, ShiftedRows) else rows)[0])
    gram = None
    for U, Y in rows.pairs:
        for block, _ in float64_blocks(U, Y):
            gram = column_gram(block) if gram is None else gram + column_gram(block)
    return gram


def merged_sums(moments: Sequence[Moments]) -> Sums:
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


def converted_sums(moments: Moments, convert: Callable[[Array], Array]) -> Sums:
    """The same sums in another array library or on another device."""
    rows = None if (kept := moments.rows) is None else (freeze(convert(kept[0])), freeze(convert(kept[1])))
    gram = None if rows else convert(moments.gram)
    cross, square = convert(moments._cross), convert(moments._square)
    return Sums(moments.count, moments.single_output, gram, cross, square, rows, moments._summed)


def remaining_sums(whole: Moments, other: Moments) -> Sums:
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
