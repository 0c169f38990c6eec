"""Greeks by common random numbers: the same normals, a bumped market, the same exercise policy.

To first order a bump does not change the value through the policy (it is nearly optimal), so the policy is kept and
only the paths move with the market. Differences of paired cash flows have small variance, and a standard error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.options._estimate import Estimate
from mixtune.options._induction import Policy
from mixtune.options._paths import PathData
from mixtune.options.processes import Process

__all__ = ["Greek", "delta", "vega"]

Floats = np.ndarray[Any, Any]
Simulate = Callable[[Process], PathData]


@dataclass(frozen=True, eq=False)
class Greek:
    """A sensitivity, one entry per bumped quantity, with standard errors."""

    value: Floats
    standard_error: Floats


def delta(
    policy: Policy, process: Process, simulate: Simulate, *, drawn: str, immediate: bool, bump: float = 0.01
) -> Greek:
    """Change of the price per unit of each asset's spot, by central differences of relative size ``bump``.

    ``drawn`` says how the simulated paths were drawn, ``immediate`` that the option is exercised today.
    """
    spot = np.broadcast_to(np.asarray(process.spot, dtype=np.float64), (process.n_assets,))
    found = []
    for asset in range(process.n_assets):
        width = bump * (abs(spot[asset]) or 1.0)
        up, down = (_changed(process, spot=_moved(spot, asset, sign * width)) for sign in (1, -1))
        found.append(_difference(policy, simulate, up, down, 2 * width, drawn, immediate))
    return Greek(np.array([value for value, _ in found]), np.array([error for _, error in found]))


def vega(
    policy: Policy, process: Process, simulate: Simulate, *, drawn: str, immediate: bool, bump: float = 0.01
) -> Greek:
    """Change of the price per unit of volatility, all assets together.

    For Black-Scholes the volatility itself; for stochastic volatility a common factor on sqrt(v0) and sqrt(v_mean),
    per unit of sqrt(v0).
    """
    if hasattr(process, "volatility"):
        volatility = np.asarray(process.volatility)
        level = float(volatility.mean())
        up, down = (_changed(process, volatility=volatility * (1 + sign * bump)) for sign in (1, -1))
    else:
        v0, v_mean = process.v0, process.v_mean  # type: ignore[attr-defined]
        level = math.sqrt(float(v0))
        up, down = (
            _changed(process, v0=v0 * factor, v_mean=v_mean * factor) for factor in ((1 + bump) ** 2, (1 - bump) ** 2)
        )
    value, error = _difference(policy, simulate, up, down, 2 * bump * level, drawn, immediate)
    return Greek(np.array([value]), np.array([error]))


def _changed(process: Process, **changes: Any) -> Process:
    """The same market with some of its numbers changed."""
    return dataclasses.replace(process, **changes)  # type: ignore[type-var]


def _difference(
    policy: Policy, simulate: Simulate, up: Process, down: Process, width: float, drawn: str, immediate: bool
) -> tuple[float, float]:
    """Paired difference of cash flows; those of exercising today where that is what the price says."""
    flows = [
        paths.payoffs[:, 0] if immediate else policy.cash_flows(paths)[0][:, 0]
        for paths in (simulate(market) for market in (up, down))
    ]
    found = Estimate.of((flows[0] - flows[1]) / width, drawn=drawn)
    return found.value, found.standard_error


def _moved(spot: Floats, asset: int, change: float) -> Floats:
    moved = spot.copy()
    moved[asset] += change
    return moved
