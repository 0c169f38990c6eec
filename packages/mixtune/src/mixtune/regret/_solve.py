"""The regret-optimal algorithm in closed form: one ridge solve, for any weights and any horizon.

**The end point** depends on (transfer, stability, horizon) through ``rho`` alone (and on the start through ``pull``).
The terminal loss sees only theta^w, and the cheapest way to move theta^w by delta moves head k by (w_k/|w|^2) delta.
With M = Theta_ref + pull z(0), m = sum_k w_k M_k and r = rho/|w|^2:

    delta = (A + r I)^{-1} (b - A m),   theta^w(T) = m + delta,   theta_k(T) = M_k + (w_k/|w|^2) delta.

**The path** to it: for fixed end points the running cost separates over coordinates, and with
cosh(omega) = 1 + lambda/(2 beta)

    z(t) = z(0) sinh((T-t) omega)/sinh(T omega) + z(T) sinh(t omega)/sinh(T omega),   z = Theta - Theta_ref,

whose cost is  rho |z(T)|^2 - 2 sigma <z(0), z(T)> + (rho - lambda) |z(0)|^2  with

    rho = lambda + beta (1 - B),  sigma = beta S,
    1 - B = (1 - e^-omega)(1 + e^-(2T-1)omega)/(1 - e^-2T omega),  S = e^-(T-1)omega (1 - e^-2omega)/(1 - e^-2T omega).

These forms neither overflow nor cancel. lambda = 0 is the limit omega -> 0 (equal steps along a straight line),
beta = 0 the limit omega -> infinity (stay at the reference, jump at the last step). The proof is on the theory page;
``reference.py`` holds the paper's Algorithm 2, the recursion this replaces.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from mixtune.arrays import Array, Floats, match, namespace, one_thread_for
from mixtune.checks import check_choice
from mixtune.errors import ParameterError
from mixtune.moments import AUTO, SolverOptions
from mixtune.regret._problem import RegretProblem, RegretSolution, heads_weights


def solve(
    problem: RegretProblem,
    *,
    method: Literal["closed-form", "riccati", "accelerated"] = "closed-form",
    solver: Literal["auto", "direct", "iterative"] = "auto",
    tolerance: float = 1e-10,
    memory_limit: int | str | None = None,
) -> RegretSolution:
    """The unique regret-optimal algorithm for ``problem``.

    Parameters
    ----------
    problem : RegretProblem
    method : {"closed-form", "riccati", "accelerated"}
        "closed-form": one p x p (or n x n) solve. "riccati": the paper's Algorithm 2, dense, for small problems.
        "accelerated": its Algorithm 3, a heuristic whose mixture is exact at equal weights. It holds all heads to the
        mean of the pre-trained ones, as the paper does, unless the problem has a ``reference`` of its own.

        .. versionchanged:: 0.2
           "accelerated" held every head to itself by default; pass ``reference=heads`` for that.
    solver : {"auto", "direct", "iterative"}
        How the ridge problem of the closed form is solved. "direct": a Cholesky factor of the p x p matrix or of its n
        x n dual, whichever is cheaper. "iterative": conjugate gradients with a random sketch as preconditioner, for
        features so wide that neither should be formed; keep the rows then (``Moments.from_rows(..., keep_rows=True)``).
        "auto": the solver with the fewest operations that fits into memory; ``solution.stats`` reports which one.
    tolerance : float
        Relative residual at which conjugate gradients stop.
    memory_limit : int or str, optional
        Memory for the solver in addition to the data, such as "4 GB"; by default half the memory of the machine.

    Returns
    -------
    RegretSolution

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, RegretProblem, solve
    >>> rng = np.random.default_rng(1)
    >>> moments = [Moments.from_rows(rng.standard_normal((8, 2)), rng.standard_normal(8)) for _ in range(3)]
    >>> problem = RegretProblem(
    ...     moments=moments, weights=[0.5, 0.3, 0.2], ridge=1.0, transfer=0.5, stability=1.0, horizon=4
    ... )
    >>> bool(np.allclose(solve(problem).coef, solve(problem, method="riccati").coef))
    True
    >>> solve(problem).stats.method, solve(problem, solver="iterative").stats.method
    ('primal cholesky', 'conjugate gradients')
    """
    if not isinstance(problem, RegretProblem):
        raise ParameterError(f"solve takes a RegretProblem; got a {type(problem).__name__}")
    check_choice("method", method, ("closed-form", "riccati", "accelerated"))
    options = SolverOptions(solver, tolerance, memory_limit)
    if method == "closed-form":
        return _closed_form(problem, options)
    if options != AUTO:
        raise ParameterError(f'solver, tolerance and memory_limit belong to method="closed-form"; got {method!r}')
    from mixtune.regret import reference  # which needs Schedule from here

    return reference.riccati(problem) if method == "riccati" else reference.accelerated(problem)


@dataclass(frozen=True)
class Schedule:
    """The scalars of the optimal path for lambda = ``transfer``, beta = ``stability``, T = ``horizon``.

    The penalties may be sequences of T numbers: lambda_t and beta_t of the step from t to t + 1. The sinh of constant
    penalties are then replaced by a recursion over the steps. With p_0 = infinity and q_0 = p_0,

        p_{t+1} = lambda_t + beta_t p_t/(beta_t + p_t),   q_{t+1} = beta_t q_t/(beta_t + p_t),

    rho = p_T, sigma = q_T, and z(t) = (beta_t z(t+1) + q_t z(0))/(beta_t + p_t) backwards from z(T).

    Examples
    --------
    >>> constant, sequence = Schedule(0.5, 2.0, 3), Schedule([0.5] * 3, [2.0] * 3, 3)
    >>> round(constant.rho - sequence.rho, 12), round(constant.sigma - sequence.sigma, 12)
    (0.0, 0.0)
    """

    transfer: float | Sequence[float]
    stability: float | Sequence[float]
    horizon: int

    @property
    def varies(self) -> bool:
        """Whether a penalty is a sequence."""
        return np.ndim(self.transfer) + np.ndim(self.stability) > 0

    @property
    def transfers(self) -> Floats:
        """lambda_t, (T,)."""
        return np.broadcast_to(np.asarray(self.transfer, dtype=np.float64), (self.horizon,))

    @property
    def stabilities(self) -> Floats:
        """beta_t, (T,)."""
        return np.broadcast_to(np.asarray(self.stability, dtype=np.float64), (self.horizon,))

    @cached_property
    def _varying(self) -> "_Varying":
        return _Varying.of(self.transfers, self.stabilities)

    @property
    def start_cost(self) -> float:
        """The weight of ``|z(0)|^2`` in the least running cost between z(0) and z(T)."""
        if self.varies and self.horizon > 0:
            return self._varying.start_cost
        return self.rho - self._constant[0]

    @property
    def _constant(self) -> tuple[float, float]:
        """lambda and beta where both are numbers."""
        return float(self.transfer), float(self.stability)  # type: ignore[arg-type]

    @property
    def omega(self) -> float:
        """``arccosh(1 + lambda/(2 beta))`` without cancellation; infinite for beta = 0."""
        transfer, stability = self._constant
        if transfer == 0:
            return 0.0 if stability > 0 else math.inf
        ratio = transfer / (4 * stability) if stability > 0 else math.inf
        return 2 * math.asinh(math.sqrt(ratio)) if math.isfinite(ratio) else math.inf

    @property
    def rho(self) -> float:
        """The weight of ``|z(T)|^2``: all that the end point sees of lambda, beta and T. Infinite for T = 0."""
        if self.horizon == 0:
            return math.inf
        if self.varies:
            return self._varying.rho
        omega, T, (transfer, stability) = self.omega, self.horizon, self._constant
        if omega == 0:
            return stability / T
        if math.isinf(omega):
            return transfer + stability
        held = math.expm1(-omega) * (1 + math.exp(-(2 * T - 1) * omega)) / math.expm1(-2 * T * omega)  # 1 - B
        return transfer + stability * held

    @property
    def sigma(self) -> float:
        """The pull of ``z(0)`` on ``z(T)``."""
        if self.horizon == 0:
            return math.inf
        if self.varies:
            return self._varying.sigma
        omega, T, (_, stability) = self.omega, self.horizon, self._constant
        if omega == 0:
            return stability / T
        if math.isinf(omega):
            return stability if T == 1 else 0.0
        return stability * math.exp(-(T - 1) * omega) * math.expm1(-2 * omega) / math.expm1(-2 * T * omega)

    @property
    def pull(self) -> float:
        """``sigma/rho``: the share of ``z(0)`` that the prior mean of the end point keeps (1 for T = 0)."""
        if self.horizon == 0:
            return 1.0
        return self.sigma / self.rho if self.rho > 0 else 0.0

    def end_step(self, t: Floats) -> Floats:
        """``end_share(t + 1) - end_share(t)`` without cancellation, for 0 <= t < T."""
        if self.varies:
            return self.end_share(np.asarray(t) + 1) - self.end_share(t)
        omega, T = self.omega, self.horizon
        t = np.asarray(t, dtype=np.float64)
        if omega == 0:
            return np.full(t.shape, 1.0 / T)
        if math.isinf(omega):
            return np.where(t == T - 1, 1.0, 0.0)
        with np.errstate(under="ignore"):
            grown = np.exp((t + 1 - T) * omega) * (1 + np.exp(-(2 * t + 1) * omega))
        return grown * math.expm1(-omega) / math.expm1(-2 * T * omega)

    def start_step(self, t: Floats) -> Floats:
        """``start_share(t + 1) - start_share(t)``."""
        if self.varies:
            return self.start_share(np.asarray(t) + 1) - self.start_share(t)
        return -self.end_step(self.horizon - 1 - np.asarray(t))

    def start_share(self, t: Floats) -> Floats:
        """``sinh((T-t) omega)/sinh(T omega)``: the share of ``z(0)`` left at step t."""
        if self.horizon == 0:
            return np.ones(np.shape(t))
        if self.varies:
            return self._varying.start_shares[np.asarray(t, dtype=np.int64)]
        return self.end_share(self.horizon - t)

    def end_share(self, t: Floats) -> Floats:
        """``sinh(t omega)/sinh(T omega)``: the share of ``z(T)`` reached at step t."""
        t = np.asarray(t, dtype=np.float64)
        if self.horizon == 0:
            return np.zeros(t.shape)
        if self.varies:
            return self._varying.end_shares[t.astype(np.int64)]
        omega, T = self.omega, self.horizon
        if omega == 0:
            return t / T
        if math.isinf(omega):
            return np.where(t == T, 1.0, 0.0)
        with np.errstate(under="ignore"):
            return np.exp((t - T) * omega) * np.expm1(-2 * t * omega) / math.expm1(-2 * T * omega)


@dataclass(frozen=True, eq=False)
class _Varying:
    """The same scalars by recursion, for penalties that vary over time; shares at t = 0..T."""

    rho: float
    sigma: float
    start_cost: float
    start_shares: Floats
    end_shares: Floats

    @classmethod
    def of(cls, transfers: Floats, stabilities: Floats) -> "_Varying":
        """Forward for the least cost of arriving, p z^2 - 2 q z z(0) + r z(0)^2, and backward for the path."""
        T = len(transfers)
        arriving = [(transfers[0] + stabilities[0], stabilities[0])]
        cost = stabilities[0]
        for transfer, stability in zip(transfers[1:], stabilities[1:]):
            p, q = arriving[-1]
            held = stability + p
            kept = stability / held if held > 0 else 0.0
            cost -= q * q / held if held > 0 else 0.0
            arriving.append((transfer + kept * p, kept * q))
        start, end = np.zeros(T + 1), np.zeros(T + 1)
        start[0], end[T] = 1.0, 1.0
        for t in range(T - 1, 0, -1):
            p, q = arriving[t - 1]
            held = stabilities[t] + p
            if held > 0:
                end[t] = stabilities[t] / held * end[t + 1]
                start[t] = stabilities[t] / held * start[t + 1] + q / held
        rho, sigma = arriving[-1]
        return cls(float(rho), float(sigma), float(cost), start, end)


def _closed_form(problem: RegretProblem, options: SolverOptions) -> RegretSolution:
    """Solve by one ridge step from the mixed prior mean."""
    schedule = Schedule(problem.transfer, problem.stability, problem.horizon)
    reference = problem.as_matrices(problem.reference)
    anchor = problem.mix(reference)
    nothing = namespace(anchor).zeros_like(anchor)
    same = problem.start is problem.reference
    offset = nothing[None, ...] if same else problem.as_matrices(problem.start) - reference
    offset_mix = nothing if same else problem.mix(offset)
    effective_ridge = schedule.rho / problem.weight_square
    delta, stats = nothing, None
    if problem.horizon > 0:
        prior = anchor + schedule.pull * offset_mix
        # Where nothing holds the heads back: the minimum-norm least-squares solution, wherever they started.
        origin = prior if effective_ridge > 0 else nothing
        rows, width = sum(m.count for m in problem.moments), problem.moments[0].n_features
        with one_thread_for(rows * width**2):
            step = problem.system.ridge_step(origin, effective_ridge, options)
        delta, stats = (step.delta if effective_ridge > 0 else step.delta - prior), step.stats
    path = ClosedFormPath(problem, schedule, anchor, delta, offset, offset_mix)
    return RegretSolution(problem, path, "closed-form", effective_ridge, stats)


@dataclass(frozen=True, eq=False)
class ClosedFormPath:
    """``z(t) = a_t z(0) + s_t (w/|w|^2) x delta`` with scalars a_t, s_t: any step from three stored arrays.

    ``anchor`` = sum_k w_k Theta_ref_k; ``offset`` = z(0), a single head of zeros for all where the start is the
    reference, and ``offset_mix`` = sum_k w_k z_k(0).
    """

    problem: RegretProblem
    schedule: Schedule
    anchor: Array
    delta: Array
    offset: Array
    offset_mix: Array

    @property
    def steps(self) -> int:
        return self.schedule.horizon

    def _shares(self, t: Floats) -> tuple[Floats, Floats]:
        """``(a_t, s_t)``: what z(t) keeps of z(0), and the part of delta covered."""
        walked = self.schedule.end_share(t)
        return self.schedule.start_share(t) + self.schedule.pull * walked, walked

    def coef(self, t: Floats) -> Array:
        kept, walked = (_outer(share, self.delta) for share in self._shares(t))
        return self.anchor + walked * self.delta + kept * self.offset_mix

    def heads(self, t: Floats) -> Array:
        return self.problem.as_matrices(self.problem.reference) + self._combined(*self._shares(t))

    def controls(self, t: Floats) -> Array:
        """``Theta(t+1) - Theta(t)`` from the differences of the shares, which do not cancel."""
        walked = self.schedule.end_step(t)
        return self._combined(self.schedule.start_step(t) + self.schedule.pull * walked, walked)

    def _combined(self, kept: Floats, walked: Floats) -> Array:
        """``kept z(0) + walked (w/|w|^2) x delta``, (T, N, p, D)."""
        shares = heads_weights(self.problem.weights / self.problem.weight_square, self.delta)
        moved = _outer(walked, self.delta)[:, None] * (shares * self.delta)
        return moved + _outer(kept, self.delta)[:, None] * self.offset

    def loss(self, t: Floats) -> Floats:
        base, gradient, curvature = self._loss_terms
        shares = np.stack(self._shares(t))
        values = base - 2 * gradient @ shares + np.einsum("it,ij,jt->t", shares, curvature, shares)
        return np.maximum(values, 0.0)

    @cached_property
    def _loss_terms(self) -> tuple[float, Floats, Floats]:
        """The loss as a quadratic in (kept, walked), around the anchor."""
        return self.problem.system.quadratic(self.anchor, [self.offset_mix, self.delta])

    def running_cost(self, t: Floats) -> Floats:
        """Summation by parts: lambda |z_t|^2 + beta (<z_t, z_t - z_{t-1}> - <z_0, z_1 - z_0>) for t >= 1."""
        if self.schedule.varies:
            return self._running_costs[t.astype(np.int64)]
        transfer, stability = float(self.problem.transfer), float(self.problem.stability)
        now, before, first, second = map(self._shares, (t, np.maximum(t - 1, 0), np.zeros(1), np.ones(1)))
        step, opening = (tuple(a - b for a, b in zip(*pair)) for pair in ((now, before), (second, first)))
        moved = self._inner(now, step) - self._inner(first, opening)
        cost = transfer * self._inner(now, now) + stability * moved
        return np.where(t > 0, np.maximum(cost, 0.0), 0.0)

    @cached_property
    def _running_costs(self) -> Floats:
        """Of the first t steps, t = 0..T, step by step."""
        before, after = (self._shares(np.arange(k, self.steps + k)) for k in (0.0, 1.0))
        step = tuple(b - a for a, b in zip(before, after))
        costs = self.schedule.transfers * self._inner(after, after)
        costs = costs + self.schedule.stabilities * self._inner(step, step)
        return np.concatenate([[0.0], np.cumsum(costs)])

    def _inner(self, left: tuple[Floats, ...], right: tuple[Floats, ...]) -> Floats:
        """``<z, z'>`` for two points given by their shares (kept, walked)."""
        start, mixed, end = self._norms
        return left[0] * right[0] * start + (left[0] * right[1] + left[1] * right[0]) * mixed + left[1] * right[1] * end

    @cached_property
    def _norms(self) -> tuple[float, float, float]:
        xp, weight_square = namespace(self.delta), self.problem.weight_square
        mixed, end = (float(xp.sum(part * self.delta)) / weight_square for part in (self.offset_mix, self.delta))
        return float(xp.sum(self.offset**2)), mixed, end


def _outer(scalars: Floats, like: Array) -> Array:
    """Scalars (T,) shaped (T, 1, 1) in the library of ``like``."""
    return match(scalars, like)[:, None, None]
