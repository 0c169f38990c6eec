"""The normal equations of a (weighted) least-squares problem, in whichever form is smaller.

With X the stacked rows and T the stacked targets, everything the method asks of data is about

    A = X'X,   b = X'T,   c = |T|^2:    loss(theta) = |T - X theta|^2 = c - 2 <b, theta> + <theta, A theta>.

:class:`GramSystem` keeps (A, b, c): p x p, however many rows went in. :class:`RowSystem` keeps (X, T) while there are
fewer rows than features and works with the n x n matrix X X' instead (the dual). Both answer the same four questions,
so callers need not know which one they hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

from mixtune._array import (
    Array,
    add_to_diagonal,
    cholesky,
    cholesky_solve,
    namespace,
    one_norm,
    reciprocal_condition,
    row_gram,
)

__all__ = ["Eigenbasis", "GramSystem", "RowSystem", "System"]

EPSILON = 2.0**-52


@dataclass(frozen=True, eq=False)
class Eigenbasis:
    """The non-zero part of A's spectrum: ``A = sum_k values[k] vectors[:, k] vectors[:, k]'``."""

    values: Array
    vectors: Array

    def solve(self, shift: float, rhs: Array) -> Array:
        """``(A + shift)^+ rhs`` for ``rhs`` in the range of A: one ridge solve for O(p^2), for any shift >= 0."""
        return self.vectors @ ((self.vectors.T @ rhs) / (self.values[:, None] + shift))


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

    @abstractmethod
    def step(self, theta: Array, shift: float) -> Array:
        """``(A + shift I)^{-1} (b - A theta)``; the minimum-norm step where that matrix is singular."""

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

    def step(self, theta: Array, shift: float) -> Array:
        rhs = self.gradient(theta)
        solved = _solve_definite(self.gram, shift, rhs, self.summed)
        return solved if solved is not None else self.eigenbasis().solve(shift, rhs)

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
    """``rows`` (n, p) and ``targets`` (n, D) with n < p."""

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

    def step(self, theta: Array, shift: float) -> Array:
        residual = self.targets - self.rows @ theta
        dual = _solve_definite(row_gram(self.rows), shift, residual)
        if dual is not None:
            return self.rows.T @ dual
        left, singular, right = self._svd
        filtered = (left.T @ residual) * (singular / (singular**2 + shift))[:, None]
        return right.T @ filtered

    @cached_property
    def _svd(self) -> tuple[Array, Array, Array]:
        xp = namespace(self.rows)
        left, singular, right = xp.linalg.svd(self.rows, full_matrices=False)
        keep = singular > max(self.rows.shape) * EPSILON * float(xp.max(singular))
        return left[:, keep], singular[keep], right[keep, :]

    def eigenbasis(self) -> Eigenbasis:
        _, singular, right = self._svd
        return Eigenbasis(singular**2, right.T)


def _solve_definite(matrix: Array, shift: float, rhs: Array, summed: float = 0.0) -> Array | None:
    """``(matrix + shift I)^{-1} rhs`` by Cholesky, or None where rounding leaves the matrix singular.

    Only the lower triangle of ``matrix`` is read.
    """
    noise = 1e3 * matrix.shape[0] * EPSILON
    scale = float(namespace(matrix).max(namespace(matrix).linalg.diagonal(matrix)))
    factor = cholesky(add_to_diagonal(matrix, shift), overwrite=True)
    if factor is None:
        return None
    # A shift well above rounding settles it; otherwise ask how close to singular the matrix is.
    blur = max(summed / scale, 1.0) if scale > 0 else 1.0
    if shift <= noise * blur * scale and reciprocal_condition(one_norm(matrix) + shift, factor) < noise * blur:
        return None
    return cholesky_solve(factor, rhs)
