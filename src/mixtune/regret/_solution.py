"""The solution: one type for every method, over a path that can be evaluated at any step without being stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from mixtune._array import Array, Floats, all_finite, as_float64, count_nonfinite, freeze, namespace, to_numpy
from mixtune.errors import DataError, ParameterError
from mixtune.moments import SolveStats
from mixtune.regret._problem import RegretProblem


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
    """Where an algorithm ends and how it gets there.

    Attributes
    ----------
    problem : RegretProblem
    method : str
        "closed-form", "riccati", "accelerated" or "descent".
    effective_ridge : float or None
        r = rho/|w|^2, the one ridge that (transfer, stability, horizon) amount to: ``coef`` is the weighted ridge
        solution of strength r around the mixed prior. Infinite for horizon 0, zero in the weighted least-squares
        limit, None for gradient descent.
    stats : SolveStats or None
        How the closed form's ridge problem was solved ("primal cholesky", "dual cholesky", "conjugate gradients",
        "eigenbasis"), what that took, and how exact it is; None for horizon 0 and for the other methods.
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
        """Whether nothing held the heads back (transfer = stability = 0): plain weighted least squares.

        ``coef`` is then the minimum-norm weighted least-squares solution, whatever the heads were.
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
        """``l*``: the least weighted loss any coefficients reach."""
        return self.problem.system.least_loss

    @property
    def regret(self) -> float:
        """``R = L - l*``; never negative (rounding below zero is cut off)."""
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

        Pass what the feature map makes of the inputs, ``phi.transform(X)``, not the inputs themselves.
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
        xp = namespace(self.theta)
        return xp.stack([self.theta[int(u), ...] for u in t])

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
        costs = to_numpy(self.problem.transfer * away + self.problem.stability * moved)
        return np.concatenate([[0.0], np.cumsum(costs)])
