"""Fits at fixed parameters, over moments: local heads, the regret-optimal solution, pooled fits, their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from mixtune._array import Floats, device_or_cpu, to_numpy, torch_device
from mixtune._checks import check_positive
from mixtune._messages import Wording
from mixtune._registry import field_values, storable
from mixtune.errors import ParameterError
from mixtune.estimators._preparation import State
from mixtune.moments import (
    MANY,
    Center,
    Fit,
    LeaveOneOut,
    Moments,
    Posterior,
    Rows,
    leave_one_out,
    posterior,
    recentred,
    weighted_system,
)
from mixtune.moments import local_heads as stacked
from mixtune.regret import RegretProblem, RegretSolution, joint_subset_head, solve
from mixtune.selection import Comparison, compare
from mixtune.weights import DomainWeights

#: Leave-one-out residuals below this fraction of the targets' standard deviation are rounding and count as zero.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Leave-one-out residuals of the focal rows, and how the spread varies with the inputs.

    Parameters
    ----------
    make_left_out : callable
        Returns the :class:`LeaveOneOut`; called on first use.
    make_posterior : callable
        Returns the :class:`Posterior`, or None for the same spread everywhere.
    """

    make_left_out: Callable[[], LeaveOneOut]
    make_posterior: Callable[[], Posterior | None]

    @cached_property
    def left_out(self) -> LeaveOneOut:
        """Leave-one-out predictions, residuals and spreads."""
        return self.make_left_out()

    @cached_property
    def posterior(self) -> Posterior | None:
        """The spread for any row."""
        return self.make_posterior()

    def std(self, U: Floats) -> Floats:
        """Predictive standard deviation (n, D), scaled so that leave-one-out residuals have unit mean square."""
        self._check()
        return np.sqrt(self._spread(U)[:, None] * self.left_out.noise)

    def half_width(self, U: Floats, coverage: float) -> Floats:
        """Half-width (n, D) of conformal intervals: a quantile of leave-one-out residuals, scaled by the spread."""
        coverage = check_positive("coverage", coverage)
        if coverage >= 1:
            raise ParameterError(f"coverage must be between 0 and 1; got {coverage!r}")
        self._check()
        scores = np.abs(self.left_out.residuals) / np.sqrt(self.left_out.spreads)[:, None]
        count = float(np.sum(self.left_out.copies))
        # Subtract a little, so that 0.9 * 10 = 9.000000000000002 is still rank 9.
        rank = math.ceil((count + 1) * coverage - 1e-9)
        if rank > count:
            needed = math.ceil(coverage / (1 - coverage) - 1e-9)
            rows = "there is 1" if count == 1 else f"there are {count:g}"
            lower = ("lower coverage or use predict(X, return_std=True)", "give --interval a lower value or use --std")
            wanted = "intervals of coverage {coverage:g} need at least {needed} focal rows, {rows}; {fix}"
            told: dict[str, Any] = {"coverage": coverage, "needed": needed, "rows": rows, "fix": Wording(*lower)}
            raise ParameterError(wanted, code="few-rows", **told)
        quantiles = np.array([_ranked(column, self.left_out.copies, rank) for column in scores.T])
        return np.sqrt(self._spread(U))[:, None] * quantiles

    def _spread(self, U: Floats) -> Floats:
        return np.ones(len(U)) if self.posterior is None else self.posterior.spread(U)

    def _check(self) -> None:
        if not np.all(np.isfinite(self.left_out.residuals)):
            raise ParameterError(
                "leave-one-out cannot judge this fit: without one of its focal rows nothing is left to predict that "
                "row from; pass more focal rows or a positive ridge, transfer or stability"
            )


def _same(value: Any) -> Any:
    return value


storable(
    Uncertainty,
    write=lambda found: {"left_out": found.left_out, "posterior": found.posterior},
    read=lambda parts: Uncertainty(partial(_same, parts["left_out"]), partial(_same, parts["posterior"])),
)


def _ranked(scores: Floats, copies: Floats, rank: int) -> float:
    """The score of the given rank, counting from 1 from the smallest, each score ``copies`` times."""
    order = np.argsort(scores, kind="stable")
    place = int(np.searchsorted(np.cumsum(copies[order]), rank - 1e-9))
    return float(scores[order][min(place, len(scores) - 1)])


@dataclass(frozen=True, eq=False)
class Heads:
    """Local ridge heads (N, p[, D]) with their intercepts (N[, D])."""

    coef: Floats
    intercept: Floats


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
    attributes: dict[str, Any] = field(default_factory=dict)
    heads: Heads | None = None


@storable
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


def _write_solution(solution: RegretSolution) -> dict[str, Any]:
    if solution.method != "closed-form":
        raise ParameterError(f"a solution by {solution.method} cannot be saved; solve in closed form")
    problem = solution.problem
    return {"moments": list(problem.moments), "weights": problem.weights, **field_values(Held.of(problem))}


storable(RegretSolution, write=_write_solution, read=lambda parts: solve(RegretProblem(**parts)))


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
    zero = np.zeros_like(state.centred.cross)
    held = {"ridge": ridge, "transfer": ridge, "stability": 0.0, "horizon": 1, "start": zero, "reference": zero}
    solution = solve(RegretProblem(moments=[state.centred], weights=[1.0], **held))
    return solution, _solution_fit(solution, state.centers[0], ridge, 1.0)


def regret_optimal(state: State, heads: Heads, weights: DomainWeights, **held: Any) -> tuple[RegretSolution, Fit]:
    """The regret-optimal solution for transfer, stability and horizon, with all domains about their common mean."""
    moments, center = _problem_moments(state, weights)
    solution = solve(RegretProblem(moments=moments, weights=weights.values, heads=heads.coef, **held))
    ridge = math.inf if solution.effective_ridge is None else solution.effective_ridge
    return solution, _solution_fit(solution, center, ridge, float(weights.values[0]))


def pooled(state: State, chosen: Sequence[int], ridge: float) -> Solved:
    """Ridge regression on the rows of the chosen domains pooled."""
    chosen, counted = list(chosen), np.zeros(len(state.moments))
    counted[chosen] = 1.0
    center = state.common(counted)
    moments = [recentred(m, center) if used else m for m, used in zip(state.moments, counted)]
    coef = joint_subset_head(moments, subset=chosen, ridge=ridge)
    system = weighted_system([moments[i] for i in chosen], np.ones(len(chosen)))
    return solved(state, _fit(coef, center.intercept(coef), system, center, ridge, float(0 in chosen)))


def mean_of_locals(state: State, ridge: float, device: str = "cpu") -> Solved:
    """The plain mean of all domains' ridge heads, intercepts included."""
    heads = local_heads(state, ridge, device)
    head = focal_fit(state, heads, ridge)
    coef, intercept = heads.coef.mean(axis=0), heads.intercept.mean(axis=0)
    mean = _fit(coef, intercept, head.system, head.center, ridge, 1 / len(heads.coef))
    # No posterior: the mean of local models has the same spread everywhere.
    uncertainty = Uncertainty(partial(_mean_left_out, state.focal, head, mean), partial(_same, None))
    return Solved(coef, intercept, uncertainty, heads=heads)


def _mean_left_out(focal: Rows, head: Fit, mean: Fit) -> LeaveOneOut:
    """Leaving a focal row out changes only the focal model, and so the mean by its share of that change."""
    alone = leave_one_out(focal, head)
    fitted: Floats = mean.predict(focal.X)
    predictions = fitted + mean.share * (alone.predictions - head.predict(focal.X))
    residuals = np.where(np.isfinite(alone.residuals), focal.targets - predictions, np.inf)
    return LeaveOneOut(predictions, residuals, np.ones(len(fitted)), focal.weight)


def compared_of(residuals: Mapping[str, Floats], weight: Floats, least: Floats | float) -> dict[str, Comparison]:
    """Compare leave-one-out residuals of all methods with "ours"; residuals of at most ``least`` count as zero.

    Examples
    --------
    >>> found = compared_of({"ours": np.array([1.0, 1.0]), "other": np.array([2.0, 2.0])}, np.ones(2), 1e-12)
    >>> found["other"].ratio
    0.5
    """
    counted = {name: np.where(np.abs(parts) > least, parts, 0.0) for name, parts in residuals.items()}
    return {name: compare(name, counted["ours"], parts, weight) for name, parts in counted.items()}


def solved(state: State, fit: Fit, head: Fit | None = None) -> Solved:
    """A fit with its leave-one-out and posterior, both computed when first asked for; ``head`` as they need it."""
    coef, intercept = like_targets(state.focal, fit.coef, fit.intercept)
    uncertainty = Uncertainty(partial(leave_one_out, state.focal, fit, head), partial(posterior, fit))
    return Solved(coef, intercept, uncertainty)


def like_targets(focal: Rows, coef: Floats, intercept: Floats) -> tuple[Floats, Any]:
    """Coefficients (p, D) and intercepts (D,), as (p,) and a scalar if the targets are a vector."""
    return (coef[:, 0], intercept[0]) if focal.y.ndim == 1 else (coef, intercept)


def _solution_fit(solution: RegretSolution, center: Center, ridge: float, share: float) -> Fit:
    return _fit(solution.coef, center.intercept(solution.coef), solution.problem.system, center, ridge, share)


def _fit(coef: Floats, intercept: Any, system: Any, center: Center, ridge: float, share: float) -> Fit:
    intercept = np.reshape(intercept, -1)
    return Fit(np.reshape(coef, (-1, len(intercept))), intercept, system, center, ridge, share)
