"""A random sketch of a positive semidefinite matrix: its strong directions, learned from a few products.

With Omega a Gaussian p x k matrix and Y = A Omega, the Nystroem approximation Y (Omega'Y)^+ Y' = V diag(values) V'
finds the directions in which A is large (Frangella, Tropp and Udell 2023). Conjugate gradients preconditioned by

    P^{-1} = V diag((tail + r) / (values + r)) V' + (I - V V'),      tail = the smallest value found,

see a condition number of about (tail + r)/(least + r) instead of (largest + r)/(least + r).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mixtune._array import Array, match, namespace

__all__ = ["Sketch"]

#: Values of the k x k core below this share of its largest are rounding, or would carry it into the directions.
CUT = 1e-9


class Sketch:
    """Directions of A that grow in number on demand; nothing but products with A is asked for.

    Parameters
    ----------
    apply : callable
        (p, k) -> A times it.
    like : array
        Says which library and device to work in; its length is p.
    seed : int
        Of the Gaussian directions: the same problem gives the same sketch.

    Examples
    --------
    >>> A = np.diag([100.0, 10.0, 1e-3, 1e-3, 1e-3])
    >>> sketch = Sketch(lambda theta: A @ theta, np.zeros(5))
    >>> sketch.grow(3)
    >>> sketch.values[:2].round(2)
    array([100.,  10.])
    """

    def __init__(self, apply: Callable[[Array], Array], like: Array, seed: int = 0) -> None:
        self._apply, self._like = apply, like
        self._rng = np.random.default_rng(seed)
        xp = namespace(like)
        empty = xp.zeros((like.shape[0], 0), dtype=xp.float64, device=like.device)
        self._directions = self._images = self.vectors = empty
        self.values = empty[0, :]
        self.complete = False

    @property
    def rank(self) -> int:
        """Directions found."""
        return int(self.values.shape[0])

    @property
    def drawn(self) -> int:
        """Columns drawn and multiplied."""
        return int(self._directions.shape[1])

    @property
    def largest(self) -> float:
        return float(self.values[0]) if self.rank else 0.0

    @property
    def tail(self) -> float:
        """The smallest value found: what is left of A is about this large."""
        return float(self.values[-1]) if self.rank else 0.0

    def grow(self, columns: int) -> None:
        """Draw up to ``columns`` columns in all; earlier products are used again."""
        xp, size = namespace(self._like), int(self._like.shape[0])
        fresh = match(self._rng.standard_normal((size, min(columns, size) - self.drawn)), self._like)
        self._directions = xp.concat([self._directions, fresh], axis=1)
        self._images = xp.concat([self._images, self._apply(fresh)], axis=1)
        core = self._directions.T @ self._images
        core_values, core_vectors = xp.linalg.eigh((core + core.T) / 2)
        keep = core_values > CUT * max(float(core_values[-1]), 0.0)
        # Fewer directions than columns: no further column would find a strong one.
        self.complete = not bool(xp.all(keep))
        if not bool(xp.any(keep)):
            return
        half = self._images @ (core_vectors[:, keep] / xp.sqrt(core_values[keep]))
        vectors, singular, _ = xp.linalg.svd(half, full_matrices=False)
        self.values, self.vectors = singular**2, vectors

    def preconditioner(self, shift: float) -> Callable[[Array], Array]:
        """``P^{-1}`` for A + shift I."""
        if not self.rank:
            return lambda residual: residual
        shrink = ((self.tail + shift) / (self.values + shift) - 1.0)[:, None]
        vectors = self.vectors
        return lambda residual: residual + vectors @ (shrink * (vectors.T @ residual))
