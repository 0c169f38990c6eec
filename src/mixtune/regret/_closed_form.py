"""Algorithm 2 in closed form: one ridge solve, for any weights and any horizon.

The end point depends on (transfer, stability, horizon) through ``rho`` alone (and on the start through ``pull``). The
terminal loss sees only theta^w, and the cheapest way to move theta^w by delta moves head k by (w_k/|w|^2) delta. With
M = Theta_ref + pull z(0), m = sum_k w_k M_k and r = rho/|w|^2:

    delta = (A + r I)^{-1} (b - A m),   theta^w(T) = m + delta,   theta_k(T) = M_k + (w_k/|w|^2) delta.

Every earlier iterate lies on the segments from there back to the start, at the speed the schedule gives. The proof is
on the theory page; ``reference.py`` holds the recursion this replaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import Array, match, namespace
from mixtune.moments import AUTO, SolverOptions
from mixtune.regret._problem import RegretProblem, heads_weights
from mixtune.regret._schedule import Schedule
from mixtune.regret._solution import RegretSolution

__all__ = ["ClosedFormPath", "closed_form"]

Floats = np.ndarray[Any, Any]


def closed_form(problem: RegretProblem, options: SolverOptions = AUTO) -> RegretSolution:
    """Solve by one ridge step from the mixed prior mean."""
    schedule = Schedule(problem.transfer, problem.stability, problem.horizon)
    reference = problem.as_matrices(problem.reference)
    anchor = problem.mix(reference)
    offset = offset_mix = None
    if problem.start is not problem.reference:
        offset = problem.as_matrices(problem.start) - reference
        offset_mix = problem.mix(offset)
    effective_ridge = schedule.rho / problem.weight_square
    stats = None
    if problem.horizon == 0:
        delta = namespace(anchor).zeros_like(anchor)
    else:
        prior = anchor if offset_mix is None else anchor + schedule.pull * offset_mix
        # Where nothing holds the heads back: the minimum-norm least-squares solution, wherever they started.
        origin = prior if effective_ridge > 0 else namespace(prior).zeros_like(prior)
        step = problem.system.ridge_step(origin, effective_ridge, options)
        delta, stats = (step.delta if effective_ridge > 0 else step.delta - prior), step.stats
    path = ClosedFormPath(problem, schedule, anchor, delta, offset, offset_mix)
    return RegretSolution(problem, path, "closed-form", effective_ridge, stats)


@dataclass(frozen=True, eq=False)
class ClosedFormPath:
    """``z(t) = a_t z(0) + s_t (w/|w|^2) x delta`` with scalars a_t, s_t: any step from three stored arrays.

    ``anchor`` = sum_k w_k Theta_ref_k; ``offset`` = z(0) and ``offset_mix`` = sum_k w_k z_k(0), None where the start is
    the reference.
    """

    problem: RegretProblem
    schedule: Schedule
    anchor: Array
    delta: Array
    offset: Array | None
    offset_mix: Array | None

    @property
    def steps(self) -> int:
        return self.schedule.horizon

    def _shares(self, t: Floats) -> tuple[Floats, Floats]:
        """``(a_t, s_t)``: what z(t) keeps of z(0), and the part of delta walked."""
        walked = self.schedule.end_share(t)
        return self.schedule.start_share(t) + self.schedule.pull * walked, walked

    def coef(self, t: Floats) -> Array:
        kept, walked = (_outer(share, self.delta) for share in self._shares(t))
        coef = self.anchor + walked * self.delta
        return coef if self.offset_mix is None else coef + kept * self.offset_mix

    def heads(self, t: Floats) -> Array:
        kept, walked = (_outer(share, self.delta)[:, None] for share in self._shares(t))
        shares = heads_weights(self.problem.weights / self.problem.weight_square, self.delta)
        heads = self.problem.as_matrices(self.problem.reference) + walked * (shares * self.delta)
        return heads if self.offset is None else heads + kept * self.offset

    def controls(self, t: Floats) -> Array:
        """``Theta(t+1) - Theta(t)`` from the differences of the shares, which do not cancel."""
        walked = self.schedule.end_step(t)
        kept = self.schedule.start_step(t) + self.schedule.pull * walked
        shares = heads_weights(self.problem.weights / self.problem.weight_square, self.delta)
        controls = _outer(walked, self.delta)[:, None] * (shares * self.delta)
        return controls if self.offset is None else controls + _outer(kept, self.delta)[:, None] * self.offset

    def loss(self, t: Floats) -> Floats:
        kept, walked = self._shares(t)
        base, gradient, curvature = self._loss_terms
        shares = np.stack([walked, kept][: len(gradient)])
        values = base - 2 * gradient @ shares + np.einsum("it,ij,jt->t", shares, curvature, shares)
        return np.maximum(values, 0.0)

    @cached_property
    def _loss_terms(self) -> tuple[float, Floats, Floats]:
        """The loss as a quadratic in (walked, kept), around the anchor."""
        system, xp = self.problem.system, namespace(self.delta)
        directions = [self.delta] if self.offset_mix is None else [self.delta, self.offset_mix]
        slope = system.gradient(self.anchor)
        images = [system.apply(v) for v in directions]
        gradient = np.array([float(xp.sum(v * slope)) for v in directions])
        curvature = np.array([[float(xp.sum(v * image)) for image in images] for v in directions])
        return system.loss(self.anchor), gradient, curvature

    def running_cost(self, t: Floats) -> Floats:
        """Summation by parts: lambda |z_t|^2 + beta (<z_t, z_t - z_{t-1}> - <z_0, z_1 - z_0>) for t >= 1."""
        now, before = self._shares(t), self._shares(np.maximum(t - 1, 0))
        first, second = self._shares(np.zeros(1)), self._shares(np.ones(1))
        step = tuple(a - b for a, b in zip(now, before))
        opening = tuple(b - a for a, b in zip(first, second))
        cost = self.schedule.transfer * self._inner(now, now) + self.schedule.stability * (
            self._inner(now, step) - self._inner(first, opening)
        )
        return np.where(t > 0, np.maximum(cost, 0.0), 0.0)

    def _inner(self, left: tuple[Floats, ...], right: tuple[Floats, ...]) -> Floats:
        """``<z, z'>`` for two points given by their shares (kept, walked)."""
        start, mixed, end = self._norms
        return left[0] * right[0] * start + (left[0] * right[1] + left[1] * right[0]) * mixed + left[1] * right[1] * end

    @cached_property
    def _norms(self) -> tuple[float, float, float]:
        xp, weight_square = namespace(self.delta), self.problem.weight_square
        end = float(xp.sum(self.delta**2)) / weight_square
        if self.offset is None or self.offset_mix is None:
            return 0.0, 0.0, end
        return float(xp.sum(self.offset**2)), float(xp.sum(self.offset_mix * self.delta)) / weight_square, end


def _outer(scalars: Floats, like: Array) -> Array:
    """Scalars (T,) shaped (T, 1, 1) in the library of ``like``."""
    return match(scalars, like)[:, None, None]
