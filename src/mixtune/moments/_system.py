"""The normal equations of a (weighted) least-squares problem, in whichever form is smaller.

With X the stacked rows and T the stacked targets, everything the method asks of data is about

    A = X'X,   b = X'T,   c = |T|^2:    loss(theta) = |T - X theta|^2 = c - 2 <b, theta> + <theta, A theta>.

:class:`GramSystem` keeps (A, b, c): p x p, however many rows went in. :class:`RowSystem` keeps (X, T), mostly while
there are fewer rows than features, and works with the n x n matrix X X' instead (the dual). Both answer the same
questions, so callers need not know which one they hold; and both can leave the matrix unfactored and walk to the
solution by products with it, where that is cheaper or all that memory allows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from mixtune._array import Array, column_gram, namespace, row_gram
from mixtune.errors import ConvergenceError
from mixtune.moments._cost import (
    AUTO,
    CONJUGATE_GRADIENTS,
    DUAL,
    EIGENBASIS,
    PRIMAL,
    USUAL_STEPS,
    Cost,
    SolverOptions,
    SolveStats,
    gram_costs,
    plan,
    row_costs,
)
from mixtune.moments._factored import EPSILON, Eigenbasis, solve_definite
from mixtune.moments._iterative import MOST_STEPS, Step, iterate
from mixtune.moments._nystroem import Sketch

__all__ = ["EPSILON", "Eigenbasis", "GramSystem", "RowSystem", "System"]


class System(ABC):
    """A least-squares problem: its loss, its gradient, and the ridge step from any starting point."""

    @abstractmethod
    def apply(self, theta: Array) -> Array:
        """``A theta`` for theta of shape (p, D)."""

    @abstractmethod
    def gradient(self, theta: Array) -> Array:
        """``b - A theta``: half the negative gradient of the loss."""

    @abstractmethod
    def loss(self, theta: Array) -> float:
        """``|T - X theta|^2``, summed over outputs; never negative."""

    @abstractmethod
    def column_losses(self, columns: Array, outputs: int) -> Array:
        """:meth:`loss` of many thetas at once: k of them side by side, (p, k D) -> (k,)."""

    def step(self, theta: Array, shift: float) -> Array:
        """``(A + shift I)^{-1} (b - A theta)``; the minimum-norm step where that matrix is singular."""
        return self.ridge_step(theta, shift).delta

    def ridge_step(self, theta: Array, shift: float, options: SolverOptions = AUTO) -> Step:
        """:meth:`step` by the cheapest way that fits into memory, or the one asked for, and how it went."""
        first, *rest = plan(self.costs(), options, shift=shift, like=theta)
        if first.method != CONJUGATE_GRADIENTS:
            return self._factored_step(theta, shift, first)
        if not rest:
            return iterate(self, theta, shift, options)
        # A walk that takes as long as the factorisation would have taken is given up for it.
        most_steps = min(MOST_STEPS, int(USUAL_STEPS * rest[0].work / first.work))
        try:
            return iterate(self, theta, shift, options, most_steps=most_steps)
        except ConvergenceError:
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
        xp = namespace(self.zero)
        origin = xp.zeros_like(self.zero)
        return self.loss(self.step(origin, 0.0))

    @property
    @abstractmethod
    def zero(self) -> Array:
        """An array of theta's shape and library."""


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

    def apply(self, theta: Array) -> Array:
        return self.gram @ theta

    def gradient(self, theta: Array) -> Array:
        return self.cross - self.gram @ theta

    def loss(self, theta: Array) -> float:
        xp = namespace(self.cross)
        # <theta, A theta - b> - <theta, b> + c: one product with A.
        inner = xp.sum(theta * (self.gram @ theta - 2.0 * self.cross))
        return max(float(inner + xp.sum(self.square)), 0.0)

    def column_losses(self, columns: Array, outputs: int) -> Array:
        xp = namespace(self.cross)
        crosses = xp.tile(self.cross, (1, columns.shape[1] // outputs))
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
        xp = namespace(self.gram)
        values, vectors = xp.linalg.eigh(self.gram)
        keep = values > values.shape[0] * EPSILON * max(float(values[-1]), self.summed)
        return Eigenbasis(values[keep], vectors[:, keep])

    def eigenbasis(self) -> Eigenbasis:
        return self._eigenbasis


@dataclass(frozen=True, eq=False)
class RowSystem(System):
    """``rows`` (n, p) and ``targets`` (n, D), mostly with n < p."""

    rows: Array
    targets: Array

    @property
    def zero(self) -> Array:
        xp = namespace(self.rows)
        shape = (self.rows.shape[1], self.targets.shape[1])
        return xp.zeros(shape, dtype=self.rows.dtype, device=self.rows.device)

    def apply(self, theta: Array) -> Array:
        return self.rows.T @ (self.rows @ theta)

    def gradient(self, theta: Array) -> Array:
        return self.rows.T @ (self.targets - self.rows @ theta)

    def loss(self, theta: Array) -> float:
        xp = namespace(self.rows)
        return float(xp.sum((self.targets - self.rows @ theta) ** 2))

    def column_losses(self, columns: Array, outputs: int) -> Array:
        xp = namespace(self.rows)
        targets = xp.tile(self.targets, (1, columns.shape[1] // outputs))
        squares = xp.sum((targets - self.rows @ columns) ** 2, axis=0)
        return xp.sum(xp.reshape(squares, (-1, outputs)), axis=1)

    @property
    def entries(self) -> int:
        n, p = self.shape
        return n * p

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    @property
    def target_square(self) -> float:
        return float(namespace(self.targets).sum(self.targets**2))

    def costs(self) -> tuple[Cost, ...]:
        return row_costs(*self.shape, int(self.targets.shape[1]))

    def _factored_step(self, theta: Array, shift: float, cost: Cost) -> Step:
        if cost.method == PRIMAL:
            return self._primal._factored_step(theta, shift, cost)
        residual = self._left_over(theta)
        dual = solve_definite(self._row_gram(), shift, residual)
        if dual is not None:
            return Step(self._combined(dual), SolveStats(DUAL, cost.flops, cost.bytes))
        left, singular, right = self._svd
        filtered = (left.T @ residual) * (singular / (singular**2 + shift))[:, None]
        return Step(right.T @ filtered, SolveStats(EIGENBASIS, cost.flops, cost.bytes))

    def _left_over(self, theta: Array) -> Array:
        """``T - X theta``."""
        return self.targets - self.rows @ theta

    def _row_gram(self) -> Array:
        """``X X'``, of which the lower triangle will be read."""
        return row_gram(self.rows)

    def _combined(self, dual: Array) -> Array:
        """``X' dual``."""
        return self.rows.T @ dual

    @cached_property
    def _primal(self) -> GramSystem:
        xp = namespace(self.rows)
        return GramSystem(column_gram(self.rows), self.rows.T @ self.targets, xp.sum(self.targets**2, axis=0))

    @cached_property
    def _svd(self) -> tuple[Array, Array, Array]:
        xp = namespace(self.rows)
        left, singular, right = xp.linalg.svd(self.rows, full_matrices=False)
        keep = singular > max(self.rows.shape) * EPSILON * float(xp.max(singular))
        return left[:, keep], singular[keep], right[keep, :]

    def eigenbasis(self) -> Eigenbasis:
        _, singular, right = self._svd
        return Eigenbasis(singular**2, right.T)
