"""Conjugate gradients for (A + r I) delta = b - A theta where neither A nor its dual should be formed.

All outputs are solved together, each with its own step lengths, so that one product with A serves them all; an output
that has converged is left out of further steps. The residual of the recursion drifts from the true one. When it is
small enough, the residual is therefore computed afresh from the rows, and if that is too large, the iteration
continues from there: the residual of every result was measured.

A random sketch of a positive semidefinite matrix: its strong directions, learned from a few products.

With Omega a Gaussian p x k matrix and Y = A Omega, the Nystroem approximation Y (Omega'Y)^+ Y' = V diag(values) V'
finds the directions in which A is large (Frangella, Tropp and Udell 2023). Conjugate gradients preconditioned by

    P^{-1} = V diag((tail + r) / (values + r)) V' + (I - V V'),      tail = the smallest value found,

see a condition number of about (tail + r)/(least + r) instead of (largest + r)/(least + r).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mixtune.arrays import EPSILON, Array, Booleans, Floats, Integers, match, namespace, to_numpy
from mixtune.errors import ConvergenceError
from mixtune.moments._cost import SLOW, SolverOptions, SolveStats, Step, iterative_cost, largest_rank, machine_limit

if TYPE_CHECKING:
    from mixtune.moments._system import System

#: Columns a sketch begins with.
FIRST_RANK = 32
#: Share of the steps that a doubled sketch saves where values fall off as 1/k: 1 - 1/sqrt(2).
GAIN = 0.3

BEYOND = "conjugate gradients ran into values beyond float64; rescale the features and targets"
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
        keep = core_values > CUT * core_values[-1]
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


@np.errstate(all="ignore")  # values beyond float64 are diagnosed on the way
def iterate(system: System, theta: Array, shift: float, options: SolverOptions, *, most_steps: int) -> Step:
    """``(A + shift I)^{-1} (b - A theta)`` by preconditioned conjugate gradients.

    Raises
    ------
    ConvergenceError
        Where the residual does not come down to ``options.tolerance`` within ``most_steps`` steps.
    """
    xp = namespace(theta)
    rhs = system.gradient(theta)
    p, outputs = rhs.shape
    sizes = _norms(rhs)
    delta = xp.zeros_like(rhs)
    if not np.all(np.isfinite(sizes)):
        raise ConvergenceError(BEYOND)
    if not np.any(sizes > 0):
        return Step(delta, _stats(system, p, outputs, 0, 0.0, 0.0))
    limit = machine_limit(theta) if options.limit is None else options.limit
    _prepare(system.sketch, shift, options.tolerance, outputs, largest_rank(p, outputs, limit))
    precondition = system.sketch.preconditioner(shift)
    residual, steps, ratio, goals = rhs, 0, math.inf, 0.5 * options.tolerance * sizes
    while True:
        part, walked = _iterations(system, shift, precondition, residual, goals, most_steps - steps)
        delta, steps = delta + part, steps + walked
        residual = system.gradient(theta + delta) - shift * delta
        left = _norms(residual)
        before, ratio = ratio, float(np.max(left[sizes > 0] / sizes[sizes > 0]))
        # Below this a residual is rounding of the sums it is made from: nothing is left to gain.
        scale = system.sketch.largest + shift
        floor = 32 * EPSILON * (scale * _norms(theta + delta) + math.sqrt(scale * system.target_square))
        if np.all(left <= np.maximum(options.tolerance * sizes, floor)):
            size = shift * float(np.linalg.norm(_norms(delta)))
            bound = float(np.linalg.norm(left)) / size if size > 0 else None
            return Step(delta, _stats(system, p, outputs, steps, ratio, bound))
        if steps >= most_steps or not ratio < 0.5 * before:
            reached = f"conjugate gradients reached a relative residual of {ratio:.1e} in {steps} steps"
            beside = f"it is {shift:.3g} beside features whose strongest direction has {system.sketch.largest:.3g}"
            remedy = f'use solver="direct", a larger ridge ({beside}), or a larger tolerance'
            raise ConvergenceError(f"{reached}; tolerance is {options.tolerance:.0e}; {remedy}")


def _stats(system: System, p: int, outputs: int, steps: int, ratio: float, bound: float | None) -> SolveStats:
    rank = system.sketch.drawn
    cost = iterative_cost(system.entries, p, outputs, rank=rank, steps=steps)
    return SolveStats(cost.method, cost.flops, cost.bytes, steps, rank, ratio, bound)


def _prepare(sketch: Sketch, shift: float, tolerance: float, outputs: int, most: int) -> None:
    """Grow the sketch while its columns cost less than the steps that they may save, and did save some before."""
    if sketch.drawn == 0 and most > 0:
        sketch.grow(min(FIRST_RANK, most))
    steps = _expected_steps(sketch, shift, tolerance)
    while sketch.drawn < most and not sketch.complete and GAIN * steps * (SLOW + outputs) > sketch.drawn:
        sketch.grow(min(2 * sketch.drawn, most))
        before, steps = steps, _expected_steps(sketch, shift, tolerance)
        if steps > (1.0 - GAIN / 2) * before:
            return


def _expected_steps(sketch: Sketch, shift: float, tolerance: float) -> float:
    """The textbook bound for a condition number of 1 + tail/shift."""
    least = max(shift, 1e-12 * sketch.largest)
    return 0.5 * math.sqrt(1.0 + sketch.tail / least) * math.log(2.0 / tolerance) if least > 0 else 1.0


def _iterations(
    system: System, shift: float, precondition: Callable[[Array], Array], rhs: Array, goals: Floats, most: int
) -> tuple[Array, int]:
    """Conjugate gradients from zero, by the recursion alone, until every column's residual is below its goal."""
    xp = namespace(rhs)
    arrived = xp.zeros_like(rhs)
    columns = np.arange(rhs.shape[1])
    steps, still = 0, _norms(rhs) > goals
    x, residual, direction = arrived, rhs, precondition(rhs)
    product = xp.sum(residual * direction, axis=0)
    while True:
        if not np.all(still):
            arrived[:, _index(columns[~still], rhs)] = _columns(x, ~still)
            columns = columns[still]
            x, residual, direction = (_columns(array, still) for array in (x, residual, direction))
            product = product[_index(np.flatnonzero(still), rhs)]
        if not len(columns) or steps == most:
            break
        image = system.apply(direction) + shift * direction
        curvature = xp.sum(direction * image, axis=0)
        sound = to_numpy(curvature) > 0
        if not np.all(np.isfinite(to_numpy(curvature))):
            raise ConvergenceError(BEYOND)
        length = xp.where(curvature > 0, product / xp.where(curvature > 0, curvature, xp.ones_like(curvature)), 0.0)
        x, residual = x + length * direction, residual - length * image
        steps += 1
        preconditioned = precondition(residual)
        before, product = product, xp.sum(residual * preconditioned, axis=0)
        sound &= to_numpy(product) > 0
        direction = preconditioned + (product / before) * direction
        # A direction without curvature is rounding: that column has gone as far as it can.
        still = (_norms(residual) > goals[columns]) & sound
    if len(columns):
        arrived[:, _index(columns, rhs)] = x
    return arrived, steps


def _norms(array: Array) -> Floats:
    xp = namespace(array)
    return to_numpy(xp.sqrt(xp.sum(array**2, axis=0)))


def _index(places: Integers, like: Array) -> Array:
    return namespace(like).asarray(places, device=like.device)


def _columns(array: Array, chosen: Booleans) -> Array:
    return namespace(array).take(array, _index(np.flatnonzero(chosen), array), axis=1)
