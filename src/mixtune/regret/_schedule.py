"""How the optimal trajectory walks between its end points: the scalars behind (transfer, stability, horizon).

For fixed end points the running cost separates over coordinates, and with cosh(omega) = 1 + lambda/(2 beta)

    z(t) = z(0) sinh((T-t) omega)/sinh(T omega) + z(T) sinh(t omega)/sinh(T omega),   z = Theta - Theta_ref,

whose cost is  rho |z(T)|^2 - 2 sigma <z(0), z(T)> + (rho - lambda) |z(0)|^2  with

    rho = lambda + beta (1 - B),  sigma = beta S,
    1 - B = (1 - e^-omega)(1 + e^-(2T-1)omega)/(1 - e^-2T omega),  S = e^-(T-1)omega (1 - e^-2omega)/(1 - e^-2T omega).

These forms neither overflow nor cancel. lambda = 0 is the limit omega -> 0 (a straight walk at constant speed),
beta = 0 the limit omega -> infinity (stay at the reference, jump at the last step).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Schedule"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Schedule:
    """The trajectory's scalars for lambda = ``transfer``, beta = ``stability``, T = ``horizon``."""

    transfer: float
    stability: float
    horizon: int

    @property
    def omega(self) -> float:
        """``arccosh(1 + lambda/(2 beta))`` without cancellation; infinite for beta = 0."""
        if self.transfer == 0:
            return 0.0 if self.stability > 0 else math.inf
        ratio = self.transfer / (4 * self.stability) if self.stability > 0 else math.inf
        return 2 * math.asinh(math.sqrt(ratio)) if math.isfinite(ratio) else math.inf

    @property
    def rho(self) -> float:
        """The weight of ``|z(T)|^2``: all that the end point sees of lambda, beta and T. Infinite for T = 0."""
        if self.horizon == 0:
            return math.inf
        return self.transfer + self._stiffness

    @property
    def sigma(self) -> float:
        """The pull of ``z(0)`` on ``z(T)``."""
        if self.horizon == 0:
            return math.inf
        omega, T = self.omega, self.horizon
        if omega == 0:
            return self.stability / T
        if math.isinf(omega):
            return self.stability if T == 1 else 0.0
        return self.stability * math.exp(-(T - 1) * omega) * math.expm1(-2 * omega) / math.expm1(-2 * T * omega)

    @property
    def pull(self) -> float:
        """``sigma/rho``: the share of ``z(0)`` that the prior mean of the end point keeps (1 for T = 0)."""
        if self.horizon == 0:
            return 1.0
        return self.sigma / self.rho if self.rho > 0 else 0.0

    @property
    def _stiffness(self) -> float:
        """``beta (1 - B)``."""
        omega, T = self.omega, self.horizon
        if omega == 0:
            return self.stability / T
        if math.isinf(omega):
            return self.stability
        return self.stability * math.expm1(-omega) * (1 + math.exp(-(2 * T - 1) * omega)) / math.expm1(-2 * T * omega)

    def end_step(self, t: Floats) -> Floats:
        """``end_share(t + 1) - end_share(t)`` without cancellation, for 0 <= t < T."""
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
        return -self.end_step(self.horizon - 1 - np.asarray(t))

    def start_share(self, t: Floats) -> Floats:
        """``sinh((T-t) omega)/sinh(T omega)``: the share of ``z(0)`` left at step t."""
        if self.horizon == 0:
            return np.ones(np.shape(t))
        return self.end_share(self.horizon - t)

    def end_share(self, t: Floats) -> Floats:
        """``sinh(t omega)/sinh(T omega)``: the share of ``z(T)`` reached at step t."""
        omega, T = self.omega, self.horizon
        t = np.asarray(t, dtype=np.float64)
        if T == 0:
            return np.zeros(t.shape)
        if omega == 0:
            return t / T
        if math.isinf(omega):
            return np.where(t == T, 1.0, 0.0)
        with np.errstate(under="ignore"):
            return np.exp((t - T) * omega) * np.expm1(-2 * t * omega) / math.expm1(-2 * T * omega)
