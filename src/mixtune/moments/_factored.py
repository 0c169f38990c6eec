"""Ridge solves by factorising a matrix: Cholesky where it is definite up to rounding, its spectrum where it is not."""

from __future__ import annotations

from dataclasses import dataclass

from mixtune._array import (
    Array,
    add_to_diagonal,
    cholesky,
    cholesky_solve,
    namespace,
    one_norm,
    reciprocal_condition,
)

__all__ = ["EPSILON", "Eigenbasis", "factor_definite", "rounding_of", "solve_definite"]

EPSILON = 2.0**-52


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


def solve_definite(matrix: Array, shift: float, rhs: Array, summed: float = 0.0) -> Array | None:
    """``(matrix + shift I)^{-1} rhs`` by Cholesky, or None where rounding leaves the matrix singular.

    Only the lower triangle of ``matrix`` is read.
    """
    factor = factor_definite(matrix, shift, summed)
    return None if factor is None else cholesky_solve(factor, rhs)


def factor_definite(matrix: Array, shift: float, summed: float = 0.0) -> Array | None:
    """The Cholesky factor of ``matrix + shift I``, or None where rounding leaves the matrix singular."""
    noise = rounding_of(matrix.shape[0])
    scale = float(namespace(matrix).max(namespace(matrix).linalg.diagonal(matrix)))
    factor = cholesky(add_to_diagonal(matrix, shift), overwrite=True)
    if factor is None:
        return None
    # A shift well above rounding settles it; otherwise ask how close to singular the matrix is.
    blur = max(summed / scale, 1.0) if scale > 0 else 1.0
    if shift <= noise * blur * scale and reciprocal_condition(one_norm(matrix) + shift, factor) < noise * blur:
        return None
    return factor
