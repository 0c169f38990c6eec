"""Moments: the sums a dataset's features boil down to, and the currency of everything after them.

``count = n``, ``gram = U'U``, ``cross = U'Y``, ``square = |Y|^2`` are all that heads, losses, weights and the
regret-optimal solution need of a dataset. They add (more rows, another site), subtract (forget a site, leave rows
out) and stream. While a dataset has fewer rows than features its rows are the smaller description: they are kept, and
the p x p Gram matrix is formed only when somebody asks for it. So are the rows of very wide datasets on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Literal, SupportsFloat

import numpy as np

from mixtune._array import Array, freeze, namespace, to_device, to_numpy
from mixtune._checks import check_nonnegative
from mixtune.errors import DataError
from mixtune.moments._cost import SolverOptions
from mixtune.moments._gathering import (
    Sums,
    check_alike,
    converted_sums,
    given_sums,
    gram_of,
    group_sums,
    merged_sums,
    remaining_sums,
    shifted_sums,
)
from mixtune.moments._losses import check_head, head_losses
from mixtune.moments._parts import Part, row_system
from mixtune.moments._precision import narrow_sums, rounding
from mixtune.moments._rows import RowParts, ShiftedRows
from mixtune.moments._system import GramSystem, System

__all__ = ["Moments", "check_alike"]


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
        self._fill(given_sums(count, gram, cross, square))

    def _fill(self, sums: Sums) -> None:
        self._count = sums.count
        self._single = sums.single
        self._cross = freeze(sums.cross)
        self._square = freeze(sums.square)
        self._kept = sums.rows
        self._summed = sums.summed
        if sums.gram is not None:
            self.__dict__["gram"] = freeze(sums.gram)

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
        return cls._of(narrow_sums(U, Y, precision=precision, keep_rows=keep_rows)).rounded(precision)

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
        return [cls._of(sums) for sums in group_sums(U, Y, sizes)]

    @classmethod
    def from_shifted(cls, rows: ShiftedRows, *, single: bool) -> Moments:
        """Moments of fewer rows than features about another origin, keeping what the rows are made from."""
        return cls._of(shifted_sums(rows, single=single))

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
                waiting = [cls._of(merged_sums(waiting))]
        if not waiting:
            raise DataError("there are no blocks: the iterable given to from_blocks was empty")
        total = waiting[0] if len(waiting) == 1 else cls._of(merged_sums(waiting))
        return total.rounded(precision)

    # --- what they hold -----------------------------------------------------------------------------------------

    @cached_property
    def gram(self) -> Array:
        """``U'U``, shape (p, p)."""
        assert self._kept is not None
        return freeze(gram_of(self._kept))

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

    def without_rows(self) -> Moments:
        """The same sums, with no row kept: what a site may share that must not share rows."""
        return self._of(replace(self._sums, gram=self.gram, rows=None))

    def on_device(self, device: str | None) -> Moments:
        """The same sums as tensors on a device of PyTorch, such as "cuda"; for None as NumPy arrays."""
        return self._of(converted_sums(self, to_numpy if device is None else partial(to_device, device=device)))

    def rounded(self, precision: str) -> Moments:
        """The same sums, told how strong a direction may look that is only rounding of products in that precision."""
        noise = 0.0 if self.keeps_rows else rounding(self.gram, precision)
        return self._of(replace(self._sums, summed=noise)) if noise else self

    @property
    def _sums(self) -> Sums:
        gram = self.__dict__.get("gram")
        return Sums(self.count, self._single, gram, self._cross, self._square, self._kept, self._summed)

    def __repr__(self) -> str:
        kept = ", rows kept" if self.keeps_rows else ""
        return f"Moments(count={self.count}, n_features={self.n_features}, n_outputs={self.n_outputs}{kept})"

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return self._of(merged_sums([self, other]))

    def __radd__(self, other: object) -> Moments:
        # sum() starts from the integer 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return self._of(remaining_sums(self, other))

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
        return self.system.loss(check_head(self, theta))

    def losses(self, heads: Array) -> np.ndarray[Any, Any]:
        """:meth:`loss` of each of several heads, (N, p) or (N, p, D)."""
        return head_losses(self, heads)
