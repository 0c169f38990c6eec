"""Moments: sums over the rows of a dataset, from which everything else is computed.

``count = n``, ``gram = U'U``, ``cross = U'Y``, ``square = |Y|^2`` are all that heads, losses, weights and the
regret-optimal solution need of a dataset. They add (more rows, another site), subtract (forget a site, leave rows
out) and stream. While a dataset has fewer rows than features, its rows are smaller: they are kept, and the p x p Gram
matrix is formed only on first access. On request, the rows of very wide datasets are kept as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, SupportsFloat

import array_api_compat
import numpy as np

from mixtune._registry import check_array, storable
from mixtune.arrays import (
    Array,
    Floats,
    Integers,
    all_finite,
    as_float64,
    check_unmasked,
    column_gram,
    freeze,
    is_numpy,
    match,
    namespace,
    one_thread_for,
    slices,
    to_device,
    to_numpy,
)
from mixtune.checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import DataError
from mixtune.moments._cost import SolverOptions
from mixtune.moments._precision import PRECISIONS, narrow_gram, rounding
from mixtune.moments._rows import RowParts, ShiftedRows, check_rows, float64_blocks, nonfinite_error
from mixtune.moments._system import GramSystem, Part, RowSystem, System, add_up, rounding_of, row_system

#: Rows as moments keep them: a copy of their own, made anew from others, or where the user has them.
Kept = tuple[Array, Array] | ShiftedRows | RowParts

#: Numbers converted at a time where rows stay where they are.
BLOCK_ENTRIES = 1_048_576
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
        ``U'Y``; it has one dimension if targets are a vector, and two if they are a matrix.
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

    _kept: Kept | None

    def __init__(self, count: int, gram: Array, cross: Array, square: SupportsFloat | Array) -> None:
        gram = as_float64(gram, what="gram", copy=True)
        cross = as_float64(cross, what="cross", copy=True)
        single = cross.ndim == 1
        cross = cross[:, None] if single else cross
        xp = namespace(gram)
        check_unmasked(square, "square")
        square = xp.reshape(xp.asarray(square, dtype=xp.float64, device=gram.device), (-1,))
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or cross.ndim != 2 or cross.shape[0] != gram.shape[0]:
            sizes = f"{tuple(gram.shape)} and {tuple(cross.shape)}"
            raise DataError(f"moments need gram (p, p) and cross (p,) or (p, D); got {sizes}")
        if square.shape[0] != cross.shape[1]:
            raise DataError(f"square has {square.shape[0]} entries for {cross.shape[1]} outputs; pass one per output")
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 0:
            raise DataError(f"count must be a whole number >= 0; got {count!r}")
        if not (all_finite(gram) and all_finite(cross) and all_finite(square)):
            raise DataError("moments must be finite; these hold NaN or infinity")
        if bool(xp.any(xp.linalg.diagonal(gram) < 0)) or bool(xp.any(square < 0)):
            raise DataError("gram's diagonal and square are sums of squares; these hold negative numbers")
        if float(xp.max(xp.abs(gram - gram.T))) > 1e-9 * float(xp.max(xp.abs(gram))):
            raise DataError("gram must be symmetric, as U'U is")
        self._fill(int(count), single, gram, cross, square)

    def _fill(
        self, count: int, single: bool, gram: Array, cross: Array, square: Array, rows: Any = None, summed: float = 0.0
    ) -> Moments:
        """Set the sums; cross is (p, D) and square (D,) whatever the shape of the targets.

        ``summed`` is the largest diagonal that was ever summed: subtraction leaves rounding of that size behind.
        """
        self._count, self._single, self._kept, self._summed = count, single, rows, summed
        self._cross, self._square = freeze(cross), freeze(square)
        self._gram = None if gram is None else freeze(gram)
        return self

    @classmethod
    def _make(cls, count: int, single: bool, **parts: Any) -> Moments:
        return cls.__new__(cls)._fill(count, single, **parts)

    def _replaced(self, **changes: Any) -> Moments:
        parts = {"single": self._single, "gram": self._gram, "cross": self._cross, "square": self._square}
        return self._make(**{"count": self._count, **parts, "rows": self._kept, "summed": self._summed, **changes})

    # --- construction -------------------------------------------------------------------------------------------

    @classmethod
    def from_rows(cls, U: Array, Y: Array, *, keep_rows: bool = False, precision: str = "float64") -> Moments:
        """Moments of features ``U`` (n, p) and targets ``Y`` (n,) or (n, D).

        Sums are accumulated in float64 for inputs of any type. With n < p the rows themselves are kept (copied).

        Parameters
        ----------
        U, Y : array
            Of any array library; memory maps are read in blocks.
        keep_rows : bool
            Whether to keep the rows, of any number, for features so wide that a p x p matrix should not be formed. They
            are not copied or converted, so do not change them afterwards.
        precision : {"float64", "float32", "tf32", "split"}
            The precision of products; sums are float64, and so are rows that are kept. See the page on numerics.
        """
        check_choice("precision", precision, PRECISIONS)
        U, Y, single = check_rows(U, Y)
        if keep_rows or U.shape[0] < U.shape[1]:
            Y = freeze(as_float64(Y, what="Y", copy=True))
            U = U if keep_rows else freeze(as_float64(U, what="U", copy=True))
            return _of_kept(U, Y, single, RowParts(((U, Y),)) if keep_rows else (U, Y))
        return _of_sums(U, Y, single, precision).rounded(precision)

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
        parts = [slice(a, b) for a, b in pairwise(np.cumsum([0, *sizes]).tolist())]
        if not is_numpy(U) or max(sizes) >= U.shape[1]:
            return [cls.from_rows(U[part], Y[part, 0] if single else Y[part]) for part in parts]
        U, Y = (freeze(as_float64(array, what=what, copy=True)) for array, what in ((U, "U"), (Y, "Y")))
        with np.errstate(all="ignore"):
            crosses = [U[part].T @ Y[part] for part in parts]
            squares = np.add.reduceat(Y**2, [part.start for part in parts])
            usable = np.all(np.isfinite(squares)) and np.isfinite(np.vdot(U, U))
        if not (usable and all(np.all(np.isfinite(cross)) for cross in crosses)):
            raise nonfinite_error(U, Y)
        return [
            cls._make(size, single, gram=None, cross=cross, square=square, rows=(U[part], Y[part]))
            for size, part, cross, square in zip(sizes, parts, crosses, squares)
        ]

    @classmethod
    def from_shifted(cls, rows: ShiftedRows, *, single: bool, keep: bool = False) -> Moments:
        """Moments of fewer rows than features about another origin, keeping them or what they are made from."""
        with np.errstate(all="ignore"):
            U, Y = rows.load()
            return _of_kept(U, Y, single, (freeze(U), freeze(Y)) if keep else rows)

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
                waiting = [_merged(waiting)]
        if not waiting:
            raise DataError("there are no blocks: the iterable given to from_blocks was empty")
        total = waiting[0] if len(waiting) == 1 else _merged(waiting)
        return total.rounded(precision)

    # --- what they hold -----------------------------------------------------------------------------------------

    @property
    def gram(self) -> Array:
        """``U'U``, shape (p, p); computed on first access if rows are kept."""
        if self._gram is None:
            blocks = (block for U, Y in self.parts for block, _ in float64_blocks(U, Y))
            self._gram = freeze(add_up(map(column_gram, blocks)))
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
        """Whether the rows are kept (n < p, or on request)."""
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
        parts = tuple((U, Y[:, one]) for U, Y in self.parts)
        rows = RowParts(parts) if isinstance(self._kept, RowParts) else next(iter(parts), None)
        return self._replaced(single=True, cross=self._cross[:, one], square=self._square[one], rows=rows)

    def divided(self, size: float) -> Moments:
        """Moments of the targets divided by ``size``, sharing the Gram matrix."""
        rows = None if self.rows is None else (self.rows[0], self.rows[1] / size)
        return self._replaced(cross=self._cross / size, square=self._square / size**2, rows=rows)

    def mapped(self, matrix: Floats) -> Moments:
        """Moments of the features ``U @ matrix``, for a matrix (p, k)."""
        if self.rows is not None:
            U, Y = self.rows
            return self.from_rows(U @ matrix, Y[:, 0] if self._single else Y)
        gram, cross = matrix.T @ self.gram @ matrix, matrix.T @ self._cross
        return self._replaced(gram=(gram + gram.T) / 2, cross=cross)

    def selected(self, places: Integers) -> Moments:
        """Moments of some of the features."""
        if self.rows is not None:
            U, Y = self.rows
            return self.from_rows(U[:, places], Y[:, 0] if self._single else Y)
        return self._replaced(gram=self.gram[places, :][:, places], cross=self._cross[places])

    def without_rows(self) -> Moments:
        """The same sums without rows, for members who must not share rows."""
        return self._replaced(gram=self.gram, rows=None)

    def on_device(self, device: str | None) -> Moments:
        """The same sums as tensors on a device of PyTorch, such as "cuda"; for None as NumPy arrays."""
        if is_numpy(self._cross) == (device is None):
            return self
        convert = to_numpy if device is None else partial(to_device, device=device)
        rows = None if (kept := self.rows) is None else (freeze(convert(kept[0])), freeze(convert(kept[1])))
        gram = None if rows else convert(self.gram)
        return self._replaced(gram=gram, cross=convert(self._cross), square=convert(self._square), rows=rows)

    def rounded(self, precision: str) -> Moments:
        """The same sums, told how strong a direction may look that is only rounding of products in that precision."""
        if self.keeps_rows or precision == "float64":
            return self
        noise = rounding(self.gram, precision)
        return self._replaced(summed=noise) if noise else self

    def __repr__(self) -> str:
        kept = ", rows kept" if self.keeps_rows else ""
        return f"Moments(count={self.count}, n_features={self.n_features}, n_outputs={self.n_outputs}{kept})"

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return _merged([self, other])

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
        slack = rounding_of(self.n_features)
        diagonal = xp.linalg.diagonal(gram)
        negative = (diagonal < -slack * xp.linalg.diagonal(self.gram), square < -slack * self._square)
        if count < 0 or any(bool(xp.any(where)) for where in negative):
            problem = f"cannot subtract moments of {other.count} rows from moments of {self.count}"
            raise DataError(f"{problem}: they were never part of them; subtract only what was added")
        square = xp.maximum(square, xp.zeros_like(square))
        summed = max(self._summed, other._summed, float(xp.max(xp.linalg.diagonal(self.gram))))
        cross = self._cross - other._cross
        return self._replaced(count=count, gram=gram, cross=cross, square=square, rows=None, summed=summed)

    # --- use ----------------------------------------------------------------------------------------------------

    @cached_property
    def system(self) -> System:
        """The least-squares problem of this dataset alone."""
        if self.keeps_rows:
            return row_system([Part(U, Y) for U, Y in self.parts])
        return GramSystem(self.gram, self._cross, self._square, self._summed)

    @property
    def kernel(self) -> Array | None:
        """Inner products (n, n) of kept rows, their lower triangle, where a head needed them and rows are few."""
        made = vars(self).get("system")  # none is made for this
        return made.kernel if isinstance(made, RowSystem) and not isinstance(self._kept, RowParts) else None

    def head(self, ridge: float, **options: Any) -> Array:
        """Local ridge head: ``argmin |Y - U theta|^2 + ridge |theta|^2``, shape (p,) or (p, D).

        ``ridge=0`` gives the minimum-norm least-squares solution, also with more features than rows. Sums know
        features only through U'U, whose condition number is the square of U's: without rows, directions weaker than
        about 1e-7 of the strongest are lost to rounding. ``options`` are ``solver``, ``tolerance`` and
        ``memory_limit`` as in :func:`mixtune.solve`.
        """
        ridge = check_nonnegative("ridge", ridge)
        start = namespace(self._cross).zeros_like(self._cross)
        with one_thread_for(self.count * self.n_features**2):
            theta = self.system.ridge_step(start, ridge, SolverOptions(**options)).delta
        return theta[:, 0] if self._single else theta

    def loss(self, theta: Array) -> float:
        """Sum of squared errors ``|Y - U theta|^2`` of a head (p,) or (p, D), over all outputs."""
        if array_api_compat.is_array_api_obj(theta):
            namespace(theta, self._cross)
        theta = as_float64(theta if is_numpy(self._cross) else match(theta, self._cross), what="theta")
        if tuple(theta.shape) != (expected := tuple(self.cross.shape)):
            raise DataError(f"a head of these moments has shape {expected}; got {tuple(theta.shape)}")
        return self.system.loss(theta[:, None] if self._single else theta)

    def losses(self, heads: Array) -> np.ndarray[Any, Any]:
        """:meth:`loss` of each of several heads, (N, p) or (N, p, D)."""
        shape = tuple(self.cross.shape)
        many = len(heads) >= MANY_HEADS and is_numpy(self.cross)
        if not many or not all(is_numpy(head) and head.shape == shape for head in heads):
            return np.array([self.loss(theta) for theta in heads])
        stacked = np.reshape(np.asarray(heads, dtype=np.float64), (-1, self.n_features, self.n_outputs))
        found = np.empty(len(stacked))
        for part in slices(len(stacked), LOSSES_AT_ONCE // (max(self.n_features, self.count) * self.n_outputs)):
            # Heads side by side, one column for each head and output: a single product.
            columns = stacked[part].transpose(1, 0, 2).reshape(self.n_features, -1)
            found[part] = self.system.column_losses(columns, self.n_outputs)
        return found


def _of_sums(U: Array, Y: Array, single: bool, precision: str = "float64") -> Moments:
    """Sums over rows that outnumber the features; the rows are not kept."""
    xp = namespace(U)
    gram = cross = square = None
    # Non-finite sums are diagnosed below.
    with np.errstate(all="ignore"), one_thread_for(U.shape[0] * U.shape[1] ** 2):
        if precision != "float64":
            gram = narrow_gram(U, precision=precision)
        for block, targets in float64_blocks(U, Y):
            c, s = block.T @ targets, xp.sum(targets**2, axis=0)
            cross, square = (c, s) if cross is None else (cross + c, square + s)
            if precision == "float64":
                gram = column_gram(block) if gram is None else add_up([gram, column_gram(block)])
    if not (all_finite(xp.linalg.diagonal(gram)) and all_finite(cross) and all_finite(square)):
        if precision == "float64":
            raise nonfinite_error(U, Y)
        _of_sums(U, Y, single)  # names what is not finite, if it is the rows
        raise DataError('the squares of the features overflow float32; pass dtype="float64" or scale the features')
    return Moments._make(int(U.shape[0]), single, gram=gram, cross=cross, square=square)


def _of_kept(U: Array, Y: Array, single: bool, kept: Kept) -> Moments:
    """Sums of rows, in one pass, and what the rows are kept as; where they stay where they are, they may be many."""
    xp = namespace(U)
    cross, size = xp.zeros((U.shape[1], Y.shape[1]), dtype=xp.float64, device=U.device), 0.0
    with np.errstate(all="ignore"), one_thread_for(U.shape[0] * U.shape[1] * Y.shape[1]):
        for part in slices(int(U.shape[0]), BLOCK_ENTRIES // int(U.shape[1])):
            block = as_float64(U[part, :], what="U")
            cross += block.T @ Y[part, :]
            size += float(xp.vdot(block, block)) if is_numpy(block) else float(xp.sum(block**2))
        square = xp.sum(Y**2, axis=0)
    if not (np.isfinite(size) and all_finite(cross) and all_finite(square)):
        raise nonfinite_error(U, Y)
    return Moments._make(int(U.shape[0]), single, gram=None, cross=cross, square=square, rows=kept)


def _merged(moments: Sequence[Moments]) -> Moments:
    """The sum of several moments, by one product over all rows that are still kept."""
    check_alike(moments)
    first = moments[0]
    xp = namespace(first._cross)
    count, cross = sum(m.count for m in moments), sum(m._cross for m in moments)
    make = partial(Moments._make, count, first.single_output, cross=cross, square=sum(m._square for m in moments))
    parted = any(isinstance(m._kept, RowParts) for m in moments)
    if all(m.keeps_rows for m in moments) and (parted or count < first.n_features):
        pairs = tuple(pair for m in moments for pair in m.parts)
        rows = RowParts(pairs) if parted else tuple(freeze(xp.concat(side)) for side in zip(*pairs))
        return make(gram=None, rows=rows)
    apart = [m for m in moments if not m.keeps_rows or isinstance(m._kept, RowParts)]
    gram = sum(m.gram for m in apart)
    if len(apart) < len(moments):
        gram = gram + column_gram(xp.concat([U for m in moments if m not in apart for U, _ in m.parts]))
    return make(gram=gram, summed=max(m._summed for m in moments))


def check_alike(moments: Sequence[Moments]) -> None:
    """Refuse moments over different features, outputs or array libraries."""
    first = moments[0]
    for index, m in enumerate(moments[1:], start=1):
        if m.n_features != first.n_features:
            features = f"{m.n_features} features, moments 0 have {first.n_features}"
            raise DataError(f"moments {index} have {features}; use the same feature map for all")
        if m._cross.shape != first._cross.shape or m.single_output != first.single_output:
            here, there = ("(n,)" if each.single_output else f"(n, {each.n_outputs})" for each in (m, first))
            shapes = f"targets of shape {here}, moments 0 of {there}"
            raise DataError(f"moments {index} have {shapes}; pass the same outputs for all")
    namespace(*(m._cross for m in moments))


def _stored(moments: Moments) -> dict[str, Any]:
    """What a file holds: where rows are kept, the Gram matrix follows from them."""
    sums = {"gram": moments.gram if moments.rows is None else None, "cross": moments._cross, "square": moments._square}
    kept = {"rows": moments.rows, "summed": float(moments._summed)}
    return {"count": moments.count, "single": moments.single_output, **sums, **kept}


def _restored(parts: dict[str, Any]) -> Moments:
    if parts["gram"] is None and parts["rows"] is None:
        raise DataError("the file holds moments with neither sums nor rows; save the model again")
    width, outputs = parts["cross"].shape
    check_whole("count", parts["count"], least=0)
    check_nonnegative("summed", parts["summed"])
    check_array("cross", parts["cross"], (width, outputs))
    check_array("square", parts["square"], (outputs,), least=0.0)
    if parts["rows"] is None:
        check_array("gram", parts["gram"], (width, width))
        check_array("diagonal of gram", np.diagonal(parts["gram"]), (width,), least=0.0)
    else:
        for name, rows, columns in zip(("features", "targets"), parts["rows"], (width, outputs), strict=True):
            check_array(name, rows, (parts["count"], columns))
    return Moments._make(**parts)


storable(Moments, write=_stored, read=_restored)
