"""Rows of several datasets as one least-squares problem, weighted on the way instead of copied.

Large rows are kept where they are, in memory or mapped from a file, in float64 or less. Every product with them goes
through in blocks that are converted to float64 and read once: ``A theta = sum_i w_i sum_blocks V'(V theta)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from mixtune._array import Array, as_float64, column_gram, is_numpy, namespace
from mixtune.moments._rows import float64_blocks
from mixtune.moments._system import Eigenbasis, GramSystem, RowSystem

__all__ = ["Part", "PartedSystem", "row_system"]

#: Stacked rows up to this many numbers are one array of their own: 128 MB.
STACKED = 2**24
#: Numbers in a block: with few columns to multiply it should stay in the cache between its two products, with many it
#: should be high enough for a product of matrices. Other libraries may sit on devices that like large blocks.
NARROW_BLOCK, WIDE_BLOCK, LARGE_BLOCK = 2**17, 2**21, 2**24
FEW_COLUMNS, MANY_COLUMNS = 8, 512


class Part(NamedTuple):
    """Rows (n, p) of any floating type, targets (n, D) in float64, and how much they count."""

    rows: Array
    targets: Array
    weight: float = 1.0


def row_system(parts: Sequence[Part]) -> RowSystem:
    """The least-squares problem of all parts: stacked while that is small, else left where they are."""
    size = sum(int(part.rows.shape[0]) for part in parts) * int(parts[0].rows.shape[1])
    if size > STACKED:
        return PartedSystem(parts)
    return RowSystem(*stack(parts))


def stack(parts: Sequence[Part]) -> tuple[Array, Array]:
    """All rows and targets on top of each other in float64, each part scaled by the root of its weight."""
    whole = [(as_float64(U, what="U"), Y, w) for U, Y, w in parts]
    if len(whole) == 1 and whole[0][2] == 1.0:
        return whole[0][:2]
    xp = namespace(whole[0][0])
    return xp.concat([w**0.5 * U for U, _, w in whole]), xp.concat([w**0.5 * Y for _, Y, w in whole])


class PartedSystem(RowSystem):
    """A :class:`RowSystem` of several parts; ``rows`` and ``targets`` stack them only where somebody asks."""

    parts: tuple[Part, ...]

    def __init__(self, parts: Sequence[Part]) -> None:
        self.__dict__["parts"] = tuple(parts)

    def __repr__(self) -> str:
        return f"PartedSystem(shape={self.shape}, parts={len(self.parts)})"

    @cached_property
    def rows(self) -> Array:
        return stack(self.parts)[0]

    @cached_property
    def targets(self) -> Array:
        xp = namespace(self.parts[0].targets)
        return xp.concat([part.weight**0.5 * part.targets for part in self.parts])

    @property
    def zero(self) -> Array:
        first = self.parts[0]
        xp = namespace(first.targets)
        shape = (first.rows.shape[1], first.targets.shape[1])
        return xp.zeros(shape, dtype=xp.float64, device=first.targets.device)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(int(part.rows.shape[0]) for part in self.parts), int(self.parts[0].rows.shape[1])

    def apply(self, theta: Array) -> Array:
        image = namespace(theta).zeros_like(theta)
        for V, _, w in self._blocks(theta.shape[1]):
            image += w * (V.T @ (V @ theta))
        return image

    def gradient(self, theta: Array) -> Array:
        slope = namespace(theta).zeros_like(theta)
        for V, Y, w in self._blocks(theta.shape[1]):
            slope += w * (V.T @ (Y - V @ theta))
        return slope

    def loss(self, theta: Array) -> float:
        return float(self.column_losses(theta, theta.shape[1])[0])

    def column_losses(self, columns: Array, outputs: int) -> Array:
        xp = namespace(columns)
        losses = xp.zeros((columns.shape[1] // outputs,), dtype=xp.float64, device=columns.device)
        for V, Y, w in self._blocks(columns.shape[1]):
            squares = xp.sum((xp.tile(Y, (1, losses.shape[0])) - V @ columns) ** 2, axis=0)
            losses += w * xp.sum(xp.reshape(squares, (-1, outputs)), axis=1)
        return losses

    def eigenbasis(self) -> Eigenbasis:
        n, p = self.shape
        return super().eigenbasis() if n < p else self._primal.eigenbasis()

    @cached_property
    def _primal(self) -> GramSystem:
        xp, p = namespace(self.zero), self.shape[1]
        gram = xp.zeros((p, p), dtype=xp.float64, device=self.zero.device)
        for U, Y, w in self.parts:
            for V, _ in float64_blocks(U, Y):
                gram += column_gram(V) if w == 1.0 else w * column_gram(V)
        return GramSystem(gram, self.gradient(self.zero), xp.sum(self.targets**2, axis=0))

    def _left_over(self, theta: Array) -> Array:
        return namespace(theta).concat([w**0.5 * (Y - V @ theta) for V, Y, w in self._blocks(theta.shape[1])])

    def _row_gram(self) -> Array:
        xp, n = namespace(self.zero), self.shape[0]
        gram = xp.zeros((n, n), dtype=xp.float64, device=self.zero.device)
        low = 0
        for V, _, w in self._blocks(n):
            left = 0
            for other, _, v in self._blocks(n):
                high, right = low + V.shape[0], left + other.shape[0]
                gram[low:high, left:right] = (w * v) ** 0.5 * (V @ other.T)
                left = right
                if left >= high:  # the upper triangle is not read
                    break
            low += V.shape[0]
        return gram

    def _combined(self, dual: Array) -> Array:
        step = namespace(dual).zeros_like(self.zero)
        low = 0
        for V, _, w in self._blocks(dual.shape[1]):
            step += w**0.5 * (V.T @ dual[low : low + V.shape[0], :])
            low += V.shape[0]
        return step

    def _blocks(self, columns: int) -> Iterator[tuple[Array, Array, float]]:
        """Rows in float64 with their targets and weight, in blocks for products with so many columns."""
        for U, Y, w in self.parts:
            step = _block_rows(U, columns)
            for begin in range(0, int(U.shape[0]), step):
                yield as_float64(U[begin : begin + step, :], what="U"), Y[begin : begin + step, :], w


def _block_rows(U: Array, columns: int) -> int:
    if not is_numpy(U) or columns >= MANY_COLUMNS:
        return max(256, LARGE_BLOCK // int(U.shape[1]))
    return max(16, (NARROW_BLOCK if columns <= FEW_COLUMNS else WIDE_BLOCK) // int(U.shape[1]))
