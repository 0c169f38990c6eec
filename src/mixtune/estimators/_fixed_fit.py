"""One fit at fixed parameters, over moments: local heads, weights, the regret-optimal solution, its intercept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from mixtune._array import Floats, device_or_cpu, to_numpy, torch_device
from mixtune.estimators._preparation import Prepared
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.moments import (
    MANY,
    Center,
    Fit,
    Moments,
    Rows,
    augmented,
    common_center,
    leave_one_out,
    no_center,
    own_center,
    posterior,
    recentred,
    weighted_system,
)
from mixtune.moments import local_heads as stacked
from mixtune.regret import RegretProblem, RegretSolution, solve
from mixtune.weights import DomainWeights


@dataclass(frozen=True, eq=False)
class State:
    """What a fit keeps: augmented moments of every domain (focal first) and the focal rows, in prepared units."""

    names: tuple[str, ...]
    moments: tuple[Moments, ...]
    focal: Rows
    fit_intercept: bool
    gone: frozenset[str] = frozenset()

    @classmethod
    def of(cls, prepared: Prepared) -> State:
        """The moments of prepared rows."""
        moments = tuple(augmented(rows, prepared.scaling) for rows in prepared.mapped)
        return cls(prepared.names, moments, prepared.focal, prepared.fit_intercept)

    @property
    def single_output(self) -> bool:
        return self.moments[0].single_output

    @cached_property
    def centers(self) -> tuple[Center, ...]:
        """Each domain's own mean (the origin without an intercept)."""
        return tuple((own_center if self.fit_intercept else no_center)(m) for m in self.moments)

    @cached_property
    def centred(self) -> Moments:
        """The focal domain's moments about its own mean."""
        return recentred(self.moments[0], self.centers[0])

    def common(self, weights: Floats) -> Center:
        """The common mean under domain weights (the origin without an intercept)."""
        return common_center(self.moments, weights) if self.fit_intercept else no_center(self.moments[0])

    @cached_property
    def target_variance(self) -> float:
        """Mean square of all targets about their common mean, over rows and outputs."""
        ones = np.ones(len(self.moments))
        center = common_center(self.moments, ones)
        square = sum(float(np.sum(recentred(m, center, keep=False).square)) for m in self.moments)
        return square / (center.total * self.moments[0].n_outputs)


@dataclass(frozen=True, eq=False)
class Heads:
    """Local ridge heads (N, p[, D]) with their intercepts (N[, D])."""

    coef: Floats
    intercept: Floats

    @property
    def augmented(self) -> Floats:
        """Heads on ``[U, 1]``: intercepts as the last coefficient."""
        return np.concatenate([self.coef, self.intercept[:, None]], axis=1)


@dataclass(frozen=True, eq=False)
class Solved:
    """A fit in prepared units: what a subclass's ``_solve`` returns.

    Attributes
    ----------
    coef : array (p,) or (p, D)
    intercept : scalar or array (D,)
    uncertainty : Uncertainty
    attributes : dict
        Further fitted attributes, by name, stored as they are.
    heads : Heads or None
        Local heads, stored as ``heads_`` and ``head_intercepts_`` in the units of the features.
    """

    coef: Floats
    intercept: Any
    uncertainty: Uncertainty
    attributes: dict[str, Any]
    heads: Heads | None = None


@dataclass(frozen=True, eq=False)
class Held:
    """What a regret problem holds beside moments and weights; start and reference are None where they are the heads."""

    heads: Floats
    transfer: float
    stability: float
    horizon: int
    start: Floats | None
    reference: Floats | None

    @classmethod
    def of(cls, problem: RegretProblem) -> Held:
        """All but the moments and weights of a problem."""
        start, reference = (None if x is problem.heads else x for x in (problem.start, problem.reference))
        return cls(problem.heads, problem.transfer, problem.stability, problem.horizon, start, reference)

    def solve(self, state: State, weights: DomainWeights) -> RegretSolution:
        """The solution again, from the state and the weights of its fit."""
        moments, _ = _problem_moments(state, weights)
        return solve(RegretProblem(moments=moments, weights=weights.values, **vars(self)))


def _problem_moments(state: State, weights: DomainWeights) -> tuple[Sequence[Moments], Center]:
    """All domains about their common mean, as the regret problem sees them."""
    if len(state.moments) == 1:
        return [state.centred], state.centers[0]
    center = state.common(weights.values)
    # Many domains are moved when they are added up, a few at a time, rather than copied.
    few = len(state.moments) < MANY
    return [recentred(m, center, keep=few) for m in state.moments], center


def local_heads(state: State, ridge: float, device: str = "cpu") -> Heads:
    """Ridge heads of all domains, each about its own mean; those of a few domains are solved for on the device."""
    if len(state.moments) < MANY:
        there = torch_device(device_or_cpu(device))
        centred = (recentred(m, center) for m, center in zip(state.moments, state.centers))
        placed = (m if there is None else m.on_device(there) for m in centred)
        coef = np.stack([to_numpy(m.head(ridge)) for m in placed])
    else:
        moved = [recentred(m, center, keep=False) for m, center in zip(state.moments, state.centers)]
        coef = stacked(moved, [ridge] * len(moved))
    intercept = np.stack([np.asarray(center.intercept(head)) for center, head in zip(state.centers, coef)])
    return Heads(coef, intercept)


def focal_fit(state: State, heads: Heads, ridge: float) -> Fit:
    """The focal head alone, as leave-one-out needs it."""
    return _fit(heads.coef[0], heads.intercept[0], state.centred.system, state.centers[0], ridge, 1.0)


def ridge_alone(state: State, ridge: float) -> tuple[RegretSolution, Fit]:
    """Plain ridge regression on the focal rows: the problem of one domain whose heads are held to zero."""
    moments = [state.centred]
    nothing = np.zeros_like(moments[0].cross)
    problem = RegretProblem(
        moments=moments,
        weights=[1.0],
        ridge=ridge,
        transfer=ridge,
        stability=0.0,
        horizon=1,
        start=nothing,
        reference=nothing,
    )
    solution = solve(problem)
    center = state.centers[0]
    return solution, _fit(solution.coef, center.intercept(solution.coef), problem.system, center, ridge, 1.0)


def regret_optimal(
    state: State, heads: Heads, weights: DomainWeights, *, transfer: float, stability: float, horizon: int
) -> tuple[RegretSolution, Fit]:
    """The regret-optimal solution with all domains about their common mean."""
    moments, center = _problem_moments(state, weights)
    problem = RegretProblem(
        moments=moments,
        weights=weights.values,
        heads=heads.coef,
        transfer=transfer,
        stability=stability,
        horizon=horizon,
    )
    solution = solve(problem)
    ridge = math.inf if solution.effective_ridge is None else solution.effective_ridge
    share = float(weights.values[0])
    return solution, _fit(solution.coef, center.intercept(solution.coef), problem.system, center, ridge, share)


def pooled_fit(state: State, chosen: Sequence[int], ridge: float, head: Callable[[Sequence[Moments]], Floats]) -> Fit:
    """A ridge fit of the chosen domains' rows pooled; ``head`` makes the coefficients from all centred moments."""
    counted = np.zeros(len(state.moments))
    counted[list(chosen)] = 1.0
    center = state.common(counted)
    moments = [recentred(m, center) if used else m for m, used in zip(state.moments, counted)]
    coef = head(moments)
    system = weighted_system([moments[i] for i in chosen], np.ones(len(chosen)))
    return _fit(coef, center.intercept(coef), system, center, ridge, float(0 in chosen))


def judged(state: State, fit: Fit, head: Fit | None) -> Uncertainty:
    """Leave-one-out and posterior of a fit, both computed when first asked for."""
    return Uncertainty(partial(leave_one_out, state.focal, fit, head), partial(posterior, fit))


def _fit(coef: Floats, intercept: Any, system: Any, center: Center, ridge: float, share: float) -> Fit:
    intercept = np.reshape(intercept, -1)
    return Fit(np.reshape(coef, (-1, len(intercept))), intercept, system, center, ridge, share)
