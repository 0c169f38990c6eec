"""The normal equations of a (weighted) least-squares problem, in whichever form is smaller.

With X the stacked rows and T the stacked targets, everything the method asks of data is about

    A = X'X,   b = X'T,   c = |T|^2:    loss(theta) = |T - X theta|^2 = c - 2 <b, theta> + <theta, A theta>.

:class:`GramSystem` keeps (A, b, c): p x p, however many rows went in. :class:`RowSystem` keeps (X, T), mostly while
there are fewer rows than features, and works with the n x n matrix X X' instead (the dual). Both have the
same methods, so callers need not know which one they hold. Both can also solve by conjugate gradients, which need only
products with the matrix, where that is cheaper or where memory is short.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mixtune.arrays import (
    EPSILON,
    Array,
    Floats,
    add_to_diagonal,
    as_float64,
    cholesky,
    cholesky_solve,
    column_gram,
    is_numpy,
    namespace,
    one_norm,
    one_thread_for,
    reciprocal_condition,
    row_gram,
    slices,
    to_numpy,
)
from mixtune.errors import ConvergenceError
from mixtune.moments._cost import (
    AUTO,
    CONJUGATE_GRADIENTS,
    DUAL,
    EIGENBASIS,
    MOST_STEPS,
    PRIMAL,
    USUAL_STEPS,
    Cost,
    SolverOptions,
    SolveStats,
    Step,
    gram_costs,
    plan,
    row_costs,
)
from mixtune.moments._rows import float64_blocks

if TYPE_CHECKING:
    from mixtune.moments._iterative import Sketch

#: Stacked rows up to this many numbers are one array of their own: 128 MB.
STACKED = 16_777_216
#: Inner products of at most so many rows are kept, half a megabyte: a sum over datasets needs them again.
KEPT_ROWS = 256
#: Numbers in a block: with few columns to multiply it should stay in the cache between its two products, with many it
#: should be high enough for a product of matrices. Other libraries may sit on devices that like large blocks.
NARROW_BLOCK, WIDE_BLOCK, LARGE_BLOCK = 131_072, 2_097_152, 16_777_216
FEW_COLUMNS, MANY_COLUMNS = 8, 512


def rounding_of(size: int) -> float:
    """Relative to a matrix of this size: what its rounding may amount to, with a wide margin."""
    return 1e3 * size * EPSILON


@dataclass(frozen=True, eq=False)
class Eigenbasis:
    """The non-zero part of A's spectrum: ``A = sum_k values[k] vectors[:, k] vectors[:, k]'``."""

    values: Array
    vectors: Array

    def solve(self, shift: float, rhs: Array) -> Array:
        """``(A + shift)^+ rhs`` for ``rhs`` in the range of A: one ridge solve for O(p^2), for any shift >= 0."""
        return self.vectors @ ((self.vectors.T @ rhs) / (self.values[:, None] + shift))


def solve_definite(
    matrix: Array, shift: float, rhs: Array, summed: float = 0.0, *, overwrite: bool = False
) -> Array | None:
    """``(matrix + shift I)^{-1} rhs`` by Cholesky, or None where rounding leaves the matrix singular.

    Only the lower triangle of ``matrix`` is read; with ``overwrite`` it may be lost.
    """
    factor = factor_definite(matrix, shift, summed, overwrite=overwrite)
    return None if factor is None else cholesky_solve(factor, rhs)


def factor_definite(matrix: Array, shift: float, summed: float = 0.0, *, overwrite: bool = False) -> Array | None:
    """The Cholesky factor of ``matrix + shift I``, or None where rounding leaves the matrix singular."""
    noise = rounding_of(matrix.shape[0])
    scale = float(namespace(matrix).max(namespace(matrix).linalg.diagonal(matrix)))
    # A shift well above rounding settles it; otherwise ask how close to singular the matrix is.
    blur = max(summed / scale, 1.0) if scale > 0 else 1.0
    doubtful = not shift > noise * blur * scale
    norm = one_norm(matrix) + shift if doubtful else 0.0
    factor = cholesky(add_to_diagonal(matrix, shift, overwrite=overwrite), overwrite=True)
    if factor is None or (doubtful and reciprocal_condition(norm, factor) < noise * blur):
        return None
    return factor


class System(ABC):
    """A least-squares problem: its loss, its gradient, and the ridge step from any starting point."""

    @abstractmethod
    def apply(self, theta: Array) -> Array:
        """``A theta`` for theta of shape (p, D)."""

    @abstractmethod
    def gradient(self, theta: Array) -> Array:
        """``b - A theta``: half the negative gradient of the loss."""

    def loss(self, theta: Array) -> float:
        """``|T - X theta|^2``, summed over outputs; never negative."""
        return float(self.column_losses(theta, theta.shape[1])[0])

    @abstractmethod
    def column_losses(self, columns: Array, outputs: int) -> Array:
        """:meth:`loss` of many thetas at once: k of them side by side, (p, k D) -> (k,)."""

    def quadratic(self, theta: Array, directions: Sequence[Array]) -> tuple[float, Floats, Floats]:
        """``c, g, H`` of the loss ``c - 2 g's + s'H s`` of ``theta + sum_i s_i directions[i]``."""
        xp, slope = namespace(theta), self.gradient(theta)
        images = [self.apply(v) for v in directions]
        gradient = np.array([float(xp.sum(v * slope)) for v in directions])
        curvature = np.array([[float(xp.sum(v * image)) for image in images] for v in directions])
        return self.loss(theta), gradient, curvature

    def step(self, theta: Array, shift: float) -> Array:
        """``(A + shift I)^{-1} (b - A theta)``; the minimum-norm step where that matrix is singular."""
        return self.ridge_step(theta, shift).delta

    def ridge_step(self, theta: Array, shift: float, options: SolverOptions = AUTO) -> Step:
        """:meth:`step` by the cheapest way that fits into memory, or the one asked for, and how it went."""
        first, *rest = plan(self.costs(), options, shift=shift, like=theta)
        if first.method != CONJUGATE_GRADIENTS:
            return self._factored_step(theta, shift, first)
        from mixtune.moments._iterative import iterate  # only here, where a matrix is too large to factor

        # If conjugate gradients take as long as the factorisation would, the factorisation is used instead.
        most_steps = min([MOST_STEPS, *(int(USUAL_STEPS * cost.work / first.work) for cost in rest)])
        try:
            return iterate(self, theta, shift, options, most_steps=most_steps)
        except ConvergenceError:
            if not rest:
                raise
            return self._factored_step(theta, shift, rest[0])

    @abstractmethod
    def costs(self) -> tuple[Cost, ...]:
        """What each way of solving takes here."""

    @abstractmethod
    def _factored_step(self, theta: Array, shift: float, cost: Cost) -> Step:
        """The step by a factorisation."""

    @cached_property
    def sketch(self) -> Sketch:
        """The strong directions of A found so far, for conjugate gradients; good for any shift."""
        from mixtune.moments._iterative import Sketch

        return Sketch(self.apply, self.zero)

    @property
    @abstractmethod
    def entries(self) -> int:
        """Numbers read for a product with A, at four operations each and output."""

    @property
    @abstractmethod
    def target_square(self) -> float:
        """``c = |T|^2``, over all outputs."""

    @abstractmethod
    def eigenbasis(self) -> Eigenbasis:
        """The spectrum of A above rounding."""

    @cached_property
    def least_loss(self) -> float:
        """``l*``: the smallest loss any theta reaches."""
        return self.loss(self.step(namespace(self.zero).zeros_like(self.zero), 0.0))

    @property
    @abstractmethod
    def zero(self) -> Array:
        """An array of theta's shape and library."""

    @cached_property
    @abstractmethod
    def on_host(self) -> System:
        """The same problem as NumPy arrays."""


@dataclass(frozen=True, eq=False)
class GramSystem(System):
    """``gram`` (p, p), ``cross`` (p, D), ``square`` (D,).

    ``summed`` is the largest diagonal that was ever summed on the way to ``gram``, where larger than what is left:
    rounding of that size remains after subtraction, and no direction below it can be told from zero.
    """

    gram: Array
    cross: Array
    square: Array
    summed: float = 0.0

    @property
    def zero(self) -> Array:
        return self.cross

    @cached_property
    def on_host(self) -> GramSystem:
        return GramSystem(to_numpy(self.gram), to_numpy(self.cross), to_numpy(self.square), self.summed)

    def apply(self, theta: Array) -> Array:
        return self.gram @ theta

    def gradient(self, theta: Array) -> Array:
        return self.cross - self.gram @ theta

    def loss(self, theta: Array) -> float:  # in half the time of many losses, which small problems feel
        xp = namespace(self.cross)
        return max(float(xp.sum(theta * (self.gram @ theta - 2.0 * self.cross)) + xp.sum(self.square)), 0.0)

    def column_losses(self, columns: Array, outputs: int) -> Array:
        xp = namespace(self.cross)
        crosses = xp.tile(self.cross, (1, columns.shape[1] // outputs))
        # <theta, A theta - b> - <theta, b> + c: one product with A.
        inner = xp.sum(columns * (self.gram @ columns - 2.0 * crosses), axis=0)
        losses = xp.sum(xp.reshape(inner, (-1, outputs)), axis=1) + xp.sum(self.square)
        return xp.maximum(losses, xp.zeros_like(losses))  # NaN, from heads that overflow, stays

    @property
    def entries(self) -> int:
        return int(self.gram.shape[0]) ** 2 // 2

    @property
    def target_square(self) -> float:
        return float(namespace(self.square).sum(self.square))

    def costs(self) -> tuple[Cost, ...]:
        return gram_costs(*self.cross.shape)

    def _factored_step(self, theta: Array, shift: float, cost: Cost) -> Step:
        rhs = self.gradient(theta)
        solved = solve_definite(self.gram, shift, rhs, self.summed)
        if solved is not None:
            return Step(solved, SolveStats(PRIMAL, cost.flops, cost.bytes))
        return Step(self.eigenbasis().solve(shift, rhs), SolveStats(EIGENBASIS, cost.flops, cost.bytes))

    @cached_property
    def _eigenbasis(self) -> Eigenbasis:
        values, vectors = namespace(self.gram).linalg.eigh(self.gram)
        keep = values > values.shape[0] * EPSILON * max(float(values[-1]), self.summed)
        return Eigenbasis(values[keep], vectors[:, keep])

    def eigenbasis(self) -> Eigenbasis:
        return self._eigenbasis


class Part(NamedTuple):
    """Rows (n, p) of any floating type, targets (n, D) in float64, and how much they count."""

    rows: Array
    targets: Array
    weight: float = 1.0


class RowSystem(System):
    """``rows`` (n, p) and ``targets`` (n, D), mostly with n < p.

    ``parts`` are where they come from: one array each, or several that are multiplied block by block and stacked only
    on first access to ``rows``. ``kernel`` are inner products of few rows, from the first factorisation on; ``known``
    are weights of and inner products within each part, where others have formed them.
    """

    parts: tuple[Part, ...]
    kernel: Array | None = None

    def __init__(self, rows: Array, targets: Array, known: Sequence[tuple[float, Array]] = ()) -> None:
        self.rows, self.targets, self.known = rows, targets, known
        self.parts, self.blocked = (Part(rows, targets),), False

    @classmethod
    def of_parts(cls, parts: Sequence[Part]) -> RowSystem:
        """Rows that stay where they are."""
        system = cls.__new__(cls)
        system.parts, system.blocked = tuple(parts), True
        return system

    def __repr__(self) -> str:
        return f"RowSystem(shape={self.shape}, parts={len(self.parts)})"

    @cached_property
    def rows(self) -> Array:
        return stack(self.parts)[0]

    @cached_property
    def targets(self) -> Array:
        return namespace(self.parts[0].targets).concat([part.weight**0.5 * part.targets for part in self.parts])

    @property
    def zero(self) -> Array:
        first = self.parts[0]
        xp = namespace(first.targets)
        shape = (first.rows.shape[1], first.targets.shape[1])
        return xp.zeros(shape, dtype=xp.float64, device=first.targets.device)

    @cached_property
    def on_host(self) -> RowSystem:
        return RowSystem(to_numpy(self.rows), to_numpy(self.targets))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return sum(int(part.rows.shape[0]) for part in self.parts), int(self.parts[0].rows.shape[1])

    @property
    def entries(self) -> int:
        n, p = self.shape
        return n * p

    @property
    def target_square(self) -> float:
        return float(namespace(self.targets).sum(self.targets**2))

    def costs(self) -> tuple[Cost, ...]:
        return row_costs(*self.shape, int(self.parts[0].targets.shape[1]))

    def apply(self, theta: Array) -> Array:
        return add_up(w * (V.T @ (V @ theta)) for V, _, w in self._blocks(theta.shape[1]))

    def gradient(self, theta: Array) -> Array:
        return add_up(w * (V.T @ (Y - V @ theta)) for V, Y, w in self._blocks(theta.shape[1]))

    def column_losses(self, columns: Array, outputs: int) -> Array:
        xp, count = namespace(columns), columns.shape[1] // outputs
        blocks = self._blocks(columns.shape[1])
        squares = add_up(w * xp.sum((xp.tile(Y, (1, count)) - V @ columns) ** 2, axis=0) for V, Y, w in blocks)
        return xp.sum(xp.reshape(squares, (-1, outputs)), axis=1)

    def quadratic(self, theta: Array, directions: Sequence[Array]) -> tuple[float, Floats, Floats]:
        # Products of the residuals and of their changes along the directions, in one pass over the rows.
        xp, outputs = namespace(theta), theta.shape[1]
        columns = xp.concat([theta, *directions], axis=1)
        products = np.zeros((len(directions) + 1,) * 2)
        with one_thread_for(self.shape[0] * self.shape[1] * columns.shape[1]):
            for V, Y, w in self._blocks(columns.shape[1]):
                images = V @ columns
                images[:, :outputs] = Y - images[:, :outputs]
                added = xp.reshape(images.T, (len(products), -1))
                products += w * to_numpy(added @ added.T)
        return float(products[0, 0]), products[0, 1:], products[1:, 1:]

    def _factored_step(self, theta: Array, shift: float, cost: Cost) -> Step:
        if cost.method == PRIMAL:
            return self._primal._factored_step(theta, shift, cost)
        blocks = self._blocks(theta.shape[1])
        residual = namespace(theta).concat([w**0.5 * (Y - V @ theta) for V, Y, w in blocks])
        gram = self._row_gram()
        dual = solve_definite(gram, shift, residual, overwrite=gram is not self.kernel)
        if dual is not None:
            delta, low = self.zero, 0
            for V, _, w in self._blocks(theta.shape[1]):
                delta += w**0.5 * (V.T @ dual[low : low + V.shape[0], :])
                low += V.shape[0]
            return Step(delta, SolveStats(DUAL, cost.flops, cost.bytes))
        left, singular, right = self._svd
        filtered = (left.T @ residual) * (singular / (singular**2 + shift))[:, None]
        return Step(right.T @ filtered, SolveStats(EIGENBASIS, cost.flops, cost.bytes))

    def _row_gram(self) -> Array:
        """``X X'``, of which the lower triangle will be read."""
        if self.kernel is not None:
            return self.kernel
        if not self.blocked:
            gram = row_gram(self.rows, self.known)
            self.kernel = gram if len(gram) <= KEPT_ROWS else None
            return gram
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

    @cached_property
    def _primal(self) -> GramSystem:
        blocks = ((V, w) for U, Y, w in self.parts for V, _ in float64_blocks(U, Y))
        gram = add_up(column_gram(V) if w == 1.0 else w * column_gram(V) for V, w in blocks)
        return GramSystem(gram, self.gradient(self.zero), namespace(gram).sum(self.targets**2, axis=0))

    @cached_property
    def _svd(self) -> tuple[Array, Array, Array]:
        xp = namespace(self.rows)
        left, singular, right = xp.linalg.svd(self.rows, full_matrices=False)
        keep = singular > max(self.rows.shape) * EPSILON * float(xp.max(singular))
        return left[:, keep], singular[keep], right[keep, :]

    def eigenbasis(self) -> Eigenbasis:
        if self.blocked and self.shape[0] >= self.shape[1]:
            return self._primal.eigenbasis()
        _, singular, right = self._svd
        return Eigenbasis(singular**2, right.T)

    def _blocks(self, columns: int) -> Iterator[tuple[Array, Array, float]]:
        """Rows in float64 with their targets and weight, in blocks for products with so many columns."""
        if not self.blocked:
            yield self.rows, self.targets, 1.0
            return
        for U, Y, w in self.parts:
            for part in slices(int(U.shape[0]), _block_rows(U, columns)):
                yield as_float64(U[part, :], what="U"), Y[part, :], w


def row_system(parts: Sequence[Part], kernels: Sequence[Array | None] = ()) -> RowSystem:
    """The least-squares problem of all parts: stacked while that is small, else left where they are.

    ``kernels`` are inner products within each part, where they are known.
    """
    size = sum(int(part.rows.shape[0]) for part in parts) * int(parts[0].rows.shape[1])
    if size > STACKED:
        return RowSystem.of_parts(parts)
    known = [(part.weight, kernel) for part, kernel in zip(parts, kernels) if kernel is not None]
    return RowSystem(*stack(parts), known if len(known) == len(parts) else ())


def stack(parts: Sequence[Part]) -> tuple[Array, Array]:
    """All rows and targets on top of each other in float64, each part scaled by the root of its weight."""
    whole = [(as_float64(U, what="U"), Y, w) for U, Y, w in parts]
    if len(whole) == 1 and whole[0][2] == 1.0:
        return whole[0][:2]
    xp, low = namespace(whole[0][0]), 0
    rows, targets = xp.concat([U for U, _, _ in whole]), xp.concat([Y for _, Y, _ in whole])
    for U, _, w in whole:  # scaled in place: allocating a copy takes longer than the product
        rows[low : low + len(U)] *= w**0.5
        targets[low : low + len(U)] *= w**0.5
        low += len(U)
    return rows, targets


def add_up(terms: Iterable[Array]) -> Array:
    """The sum of fresh arrays, added up in the first of them."""
    return reduce(operator.iadd, terms)


def _block_rows(U: Array, columns: int) -> int:
    if not is_numpy(U) or columns >= MANY_COLUMNS:
        return max(256, LARGE_BLOCK // int(U.shape[1]))
    return max(16, (NARROW_BLOCK if columns <= FEW_COLUMNS else WIDE_BLOCK) // int(U.shape[1]))
