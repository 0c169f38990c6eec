"""The problem (datasets as moments, their weights, where the heads start and what holds them back) and its solution.

The paper's energy functional, with Theta = (theta_1, ..., theta_N) and theta^w = sum_i w_i theta_i:

    L(Theta^{0..T}) = sum_{t=0}^{T-1} [ lambda |Theta(t+1) - Theta_ref|^2 + beta |Theta(t+1) - Theta(t)|^2 ]
                      + sum_i w_i |Y_i - U_i theta^w(T)|^2,            Theta(0) = Theta_start.

lambda is ``transfer``, beta ``stability``, T ``horizon``, kappa ``ridge``; start and reference are both the local heads
Theta* unless given. One type of solution serves every method, over a path that can be evaluated at any step without
being stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mixtune.arrays import (
    Array,
    Floats,
    all_finite,
    as_float64,
    count_nonfinite,
    freeze,
    is_numpy,
    match,
    namespace,
    to_numpy,
)
from mixtune.checks import check_nonnegative, check_simplex, check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.moments import Moments, SolveStats, System, check_alike, local_heads, weighted_system

if TYPE_CHECKING:
    from mixtune.regret.reference import ValueFunction

MOST_STEPS = 2**53

_assign = object.__setattr__  # how a frozen dataclass fills its own fields


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegretProblem:
    """The problem that :func:`mixtune.solve` solves.

    Parameters
    ----------
    moments : sequence of Moments
        One per dataset D_1..D_N, all over the same feature map.
    weights : array (N,)
        w on the simplex; any object NumPy can read, such as the result of a weighting rule.
    heads : array (N, p) or (N, p, D), optional
        Pre-trained heads Theta*. Pass these or ``ridge``.
    ridge : float or array (N,), optional
        kappa: compute the heads by local ridge regression.
    transfer : float or sequence of T floats
        lambda >= 0: the penalty on the distance of the iterates from the reference; one for each step where it varies.
    stability : float or sequence of T floats
        beta >= 0: the penalty on the size of the steps.
    horizon : int
        T >= 0: the number of steps.
    start, reference : array, optional
        Theta(0) and Theta_ref, (N, p[, D]) or one head (p[, D]) for all; the pre-trained heads by default.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, RegretProblem, solve
    >>> rng = np.random.default_rng(0)
    >>> U, truth = rng.standard_normal((2, 20, 3)), np.array([1.0, -1.0, 0.5])
    >>> moments = [Moments.from_rows(u, u @ truth) for u in U]
    >>> problem = RegretProblem(
    ...     moments=moments, weights=[0.7, 0.3], ridge=1.0, transfer=0.1, stability=1.0, horizon=5
    ... )
    >>> solve(problem).coef.round(1)
    array([ 1. , -1. ,  0.5])
    """

    moments: Sequence[Moments]
    weights: Array
    heads: Array = None
    ridge: float | Sequence[float] | None = None
    transfer: Any  # a number, or a sequence of them
    stability: Any
    horizon: int
    start: Array = None
    reference: Array = None

    def __post_init__(self) -> None:
        moments = _check_moments(self.moments)
        _assign(self, "moments", moments)
        _assign(self, "weights", check_simplex(self.weights, len(moments)))
        _assign(self, "horizon", check_whole("horizon", self.horizon))
        for name in ("transfer", "stability"):
            _assign(self, name, check_penalty(name, getattr(self, name), self.horizon))
        if self.horizon > MOST_STEPS:
            raise ParameterError(f"horizon must be at most 2**53, where float64 skips integers; got {self.horizon}")
        if (self.heads is None) == (self.ridge is None):
            raise ParameterError("give either heads (the pre-trained ones) or ridge (to make them), and not both")
        if self.ridge is None:
            heads = self._check_heads("heads", self.heads, one_for_all=False)
        else:
            ridges = [self.ridge] * len(moments) if np.ndim(self.ridge) == 0 else list(self.ridge)  # type: ignore[arg-type]
            if len(ridges) != len(moments):
                raise ParameterError(f"ridge must be one number or one per dataset ({len(moments)}); got {len(ridges)}")
            heads = local_heads(moments, ridges)  # type: ignore[arg-type]
        _assign(self, "heads", freeze(heads))
        for name in ("start", "reference"):
            given = getattr(self, name)
            _assign(self, name, self.heads if given is None else freeze(self._check_heads(name, given)))

    def __repr__(self) -> str:
        sizes = f"n_domains={self.n_domains}, n_features={self.moments[0].n_features}"
        strengths = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in ("transfer", "stability"))
        return f"RegretProblem({sizes}, {strengths}, horizon={self.horizon})"

    def replaced(self, **changes: Any) -> RegretProblem:
        """The same problem and heads, with some arguments changed.

        Examples
        --------
        >>> from mixtune import Moments, RegretProblem
        >>> moments = [Moments(2, [[1.0]], [1.0], 1.0)]
        >>> problem = RegretProblem(moments=moments, weights=[1.0], ridge=1.0, transfer=1, stability=1, horizon=2)
        >>> problem.replaced(horizon=5)
        RegretProblem(n_domains=1, n_features=1, transfer=1, stability=1, horizon=5)
        """
        # By default these are the heads themselves, which the solver recognises.
        heads = {name: None for name in ("start", "reference") if getattr(self, name) is self.heads}
        return replace(self, **{"ridge": None, **heads, **changes})

    @property
    def n_domains(self) -> int:
        return len(self.moments)

    @property
    def single_output(self) -> bool:
        return self.moments[0].single_output

    @cached_property
    def system(self) -> System:
        """The weighted least-squares problem of the terminal loss: A, b, c."""
        return weighted_system(self.moments, self.weights)

    @property
    def weight_square(self) -> float:
        """``|w|^2``."""
        return float(self.weights @ self.weights)

    def mix(self, heads: Array) -> Array:
        """``theta^w = sum_k w_k theta_k`` for heads (..., N, p, D)."""
        return namespace(heads).sum(heads_weights(self.weights, heads) * heads, axis=-3)

    def as_matrices(self, heads: Array) -> Array:
        """Heads (..., N, p) of a single-output problem as (..., N, p, 1); others as they are."""
        return heads[..., None] if self.single_output else heads

    def as_given(self, array: Array) -> Array:
        """The inverse of :meth:`as_matrices` for heads or coefficients."""
        return array[..., 0] if self.single_output else array

    def energy(self, trajectory: Array) -> float:
        """``L(Theta^{0..T})`` of any trajectory of heads, (T + 1, N, p) or (T + 1, N, p, D).

        Examples
        --------
        >>> import numpy as np
        >>> from mixtune import Moments, RegretProblem, solve
        >>> moments = [Moments(2, [[1.0]], [1.0], 1.0)]
        >>> problem = RegretProblem(moments=moments, weights=[1.0], ridge=1.0, transfer=1, stability=1, horizon=2)
        >>> best, still = solve(problem), np.broadcast_to(problem.heads, (3, 1, 1))
        >>> bool(np.isclose(problem.energy(best.heads_at([0, 1, 2])), best.energy)), problem.energy(still) > best.energy
        (True, True)
        """
        path = StoredPath(self, self.as_matrices(trajectory))
        return RegretSolution(self, path, "given", None).energy

    def value_functions(self) -> list[ValueFunction]:
        """The least cost from each step t = 0..T on, as a function of the heads: P(t), S(t) and r(t) of the paper.

        They are computed as Algorithm 2 does, with dense matrices.

        Examples
        --------
        >>> from mixtune import Moments, RegretProblem, solve
        >>> moments = [Moments(2, [[1.0]], [1.0], 1.0)]
        >>> problem = RegretProblem(moments=moments, weights=[1.0], ridge=1.0, transfer=1, stability=1, horizon=2)
        >>> bool(abs(problem.value_functions()[0](problem.heads) - solve(problem).energy) < 1e-12)
        True
        """
        from mixtune.regret.reference import value_functions  # which needs this class

        return value_functions(self)

    def _check_heads(self, name: str, heads: Array, *, one_for_all: bool = True) -> Array:
        like = self.moments[0].cross
        xp = namespace(like)
        if isinstance(heads, list | tuple) and heads and hasattr(heads[0], "ndim"):
            if len({tuple(head.shape) for head in heads}) > 1:
                raise DataError(f"{name} must all have the same shape; got {sorted({tuple(h.shape) for h in heads})}")
            heads = namespace(*heads).stack(list(heads))
        if not is_numpy(like):
            heads = match(heads, like)
        heads = as_float64(heads, what=name, copy=True)
        namespace(heads, like)
        full = (len(self.moments), *tuple(like.shape))
        if one_for_all and tuple(heads.shape) == full[1:]:
            heads = xp.asarray(xp.broadcast_to(heads, full), copy=True)
        if tuple(heads.shape) != full:
            options = f"{full} or {full[1:]}" if one_for_all else f"{full}"
            raise DataError(f"{name} must have shape {options}; got {tuple(heads.shape)}")
        if not all_finite(heads):
            raise DataError(f"{name} must be finite; {count_nonfinite(heads)} of its values are NaN or infinite")
        return heads


class Path(Protocol):
    """A trajectory Theta(0..steps). ``t`` is a 1-D array of whole numbers; D is always an axis here."""

    @property
    def steps(self) -> int: ...

    def coef(self, t: Floats) -> Array:
        """``theta^w(t)``, (len(t), p, D)."""

    def heads(self, t: Floats) -> Array:
        """``Theta(t)``, (len(t), N, p, D)."""

    def controls(self, t: Floats) -> Array:
        """``Theta(t+1) - Theta(t)``, (len(t), N, p, D)."""

    def loss(self, t: Floats) -> Floats:
        """Weighted loss of ``theta^w(t)``."""

    def running_cost(self, t: Floats) -> Floats:
        """Transfer and stability costs of the first t steps."""


@dataclass(frozen=True, eq=False, repr=False)
class RegretSolution:
    """The final heads of an algorithm, and its trajectory.

    Attributes
    ----------
    problem : RegretProblem
    method : str
        "closed-form", "riccati", "accelerated" or "descent".
    effective_ridge : float or None
        r = rho/|w|^2, the single ridge to which (transfer, stability, horizon) are equivalent: ``coef`` is the weighted
        ridge solution of strength r around the mixed prior. Infinite for horizon 0, zero in the weighted least-squares
        limit, None for gradient descent.
    stats : SolveStats or None
        How the closed form's ridge problem was solved ("primal cholesky", "dual cholesky", "conjugate gradients",
        "eigenbasis"), at what cost, and how accurately; None for horizon 0 and for the other methods.
    """

    problem: RegretProblem
    path: Path
    method: str
    effective_ridge: float | None
    stats: SolveStats | None = None

    def __repr__(self) -> str:
        costs = f"loss={self.loss:.6g}, energy={self.energy:.6g}"
        return f"RegretSolution(method={self.method!r}, steps={self.steps}, {costs})"

    @property
    def steps(self) -> int:
        """T, or the number of gradient steps."""
        return self.path.steps

    @property
    def is_least_squares(self) -> bool:
        """Whether there was no penalty (transfer = stability = 0): plain weighted least squares.

        ``coef`` is then the minimum-norm weighted least-squares solution, for any heads.
        """
        return self.effective_ridge == 0

    @cached_property
    def coef(self) -> Array:
        """``theta^w(T)``, (p,) or (p, D): predict with ``features @ coef``."""
        return freeze(self.coef_at(self.steps))

    @cached_property
    def heads(self) -> Array:
        """``Theta(T)``, (N, p) or (N, p, D)."""
        return freeze(self.heads_at(self.steps))

    @cached_property
    def loss(self) -> float:
        """Weighted terminal loss ``l(Theta(T), w)``."""
        return float(self.loss_at(self.steps))

    @cached_property
    def energy(self) -> float:
        """``L(Theta^{0..T})``: running cost plus terminal loss."""
        return float(self.energy_at(self.steps))

    @cached_property
    def ideal_loss(self) -> float:
        """``l*``: the smallest weighted loss of any coefficients."""
        return self.problem.system.least_loss

    @property
    def regret(self) -> float:
        """``R = L - l*``; never negative (values below zero by rounding are set to zero)."""
        return max(self.energy - self.ideal_loss, 0.0)

    def coef_at(self, t: Any) -> Array:
        """``theta^w(t)``; an array of t puts time on the first axes."""
        return self._evaluate(t, lambda u: self.problem.as_given(self.path.coef(u)))

    def heads_at(self, t: Any) -> Array:
        """``Theta(t)``; an array of t puts time on the first axes."""
        return self._evaluate(t, lambda u: self.problem.as_given(self.path.heads(u)))

    def controls_at(self, t: Any) -> Array:
        """``alpha(t) = Theta(t+1) - Theta(t)`` for 0 <= t < T."""
        return self._evaluate(t, lambda u: self.problem.as_given(self.path.controls(u)), last=self.steps - 1)

    def loss_at(self, t: Any) -> Any:
        """Weighted loss of the iterate at t."""
        return self._evaluate(t, self.path.loss)

    def energy_at(self, t: Any) -> Any:
        """``L(Theta^{0..t})``: the cost of the first t steps plus the loss reached."""
        return self._evaluate(t, lambda u: self.path.running_cost(u) + self.path.loss(u))

    def predict(self, features: Array) -> Array:
        """Predictions ``features @ coef`` for features (n, p), in float64 and in the library of the solution.

        Pass the features of the inputs, ``phi.transform(X)``, not the inputs themselves.
        """
        coef = self.coef
        if hasattr(features, "to_numpy") and not hasattr(features, "__array_namespace__"):
            features = features.to_numpy()  # a data frame
        features = as_float64(features, what="features")
        namespace(features, coef)
        if features.ndim != 2 or features.shape[1] != coef.shape[0]:
            raise DataError(
                f"features must have shape (n, {coef.shape[0]}), as the feature map gives them; "
                f"got {tuple(features.shape)}; did you forget phi.transform(X)?"
            )
        if not all_finite(features):
            raise DataError(f"features must be finite; {count_nonfinite(features)} values are NaN or infinite")
        return features @ coef

    def _evaluate(self, t: Any, function: Any, last: int | None = None) -> Any:
        last = self.steps if last is None else last
        times = np.asarray(t)
        whole = times.dtype.kind in "iu" or (times.dtype.kind == "f" and bool(np.all(times == np.floor(times))))
        if not whole or np.any(times < 0) or np.any(times > last):
            raise ParameterError(f"t must be whole numbers from 0 to {last}; got {t!r}")
        values = function(times.reshape(-1).astype(np.float64))
        if times.ndim == 1:
            return values
        return values[0] if times.ndim == 0 else values.reshape((*times.shape, *values.shape[1:]))


@dataclass(frozen=True, eq=False)
class StoredPath:
    """A trajectory that was computed step by step: the references and other algorithms. ``theta`` is (T+1, N, p, D)."""

    problem: RegretProblem
    theta: Array

    @property
    def steps(self) -> int:
        return int(self.theta.shape[0]) - 1

    def heads(self, t: Floats) -> Array:
        return namespace(self.theta).stack([self.theta[int(u), ...] for u in t])

    def controls(self, t: Floats) -> Array:
        return self.heads(t + 1) - self.heads(t)

    def coef(self, t: Floats) -> Array:
        return self.problem.mix(self.heads(t))

    def loss(self, t: Floats) -> Floats:
        return np.array([self.problem.system.loss(coef) for coef in self.coef(t)])

    def running_cost(self, t: Floats) -> Floats:
        return self._running_costs[t.astype(np.int64)]

    @cached_property
    def _running_costs(self) -> Floats:
        xp, after = namespace(self.theta), self.theta[1:, ...]
        away = xp.sum((after - self.problem.as_matrices(self.problem.reference)) ** 2, axis=(1, 2, 3))
        moved = xp.sum((after - self.theta[:-1, ...]) ** 2, axis=(1, 2, 3))
        transfer, stability = (np.asarray(p) for p in (self.problem.transfer, self.problem.stability))
        costs = transfer * to_numpy(away) + stability * to_numpy(moved)
        return np.concatenate([[0.0], np.cumsum(costs)])


def heads_weights(weights: Floats, heads: Array) -> Array:
    """``weights`` (N,) in the library of ``heads``, shaped to multiply (..., N, p, D)."""
    return match(weights, heads)[:, None, None]


def check_penalty(name: str, value: Any, horizon: int) -> float | tuple[float, ...]:
    """A number, or one for each step."""
    if np.ndim(value) == 0:
        return check_nonnegative(name, value)
    penalties = tuple(check_nonnegative(name, one) for one in value)
    if len(penalties) != horizon:
        raise ParameterError(f"{name} must be one number or one per step ({horizon}); got {len(penalties)}")
    return penalties


def _shown(penalty: float | Sequence[float]) -> str:
    if isinstance(penalty, Sequence):
        return f"[{penalty[0]:g}, ..., {penalty[-1]:g}]" if penalty else "[]"
    return f"{penalty:g}"


def _check_moments(moments: Any) -> tuple[Moments, ...]:
    if isinstance(moments, Moments):
        raise DataError("moments must be a list with one entry per dataset; put a single one in a list: [moments]")
    moments = tuple(moments)
    if not moments:
        raise DataError("there are no datasets: moments is empty")
    for index, m in enumerate(moments):
        if not isinstance(m, Moments):
            raise DataError(f"moments[{index}] is a {type(m).__name__}; build it with Moments.from_rows(U, Y)")
        if m.count == 0:
            raise DataError(f"moments[{index}] is empty: it has no rows; leave that dataset out")
    check_alike(moments)
    return moments
