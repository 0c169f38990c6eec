"""Where it pays to stop: the exercise region of a policy, for one and two assets.

At each date the policy is asked on a grid of prices. For one asset the region of a put lies below a critical price and
that of a call above one: that boundary is read off; for two assets the region is a picture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.options._grid import TimeGrid
from mixtune.options._induction import Policy, exercises
from mixtune.options._paths import PathData
from mixtune.options._state import DateByDate, stack_inputs

__all__ = ["ExerciseRegion", "exercise_region"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class ExerciseRegion:
    """Exercise decisions on a grid of prices.

    Attributes
    ----------
    times : array (dates - 1,)
        The dates before maturity.
    axis : array (points,)
        Prices of each asset.
    stop : array of bool (dates - 1, points) or (dates - 1, points, points)
    seen : array of bool, same shape
        Prices that training paths reached at the date; beyond them the policy extrapolates.
    boundary : array (dates - 1,) or None
        One asset: the critical price, NaN at dates where the policy never stops inside the prices seen.
    """

    times: Floats
    axis: Floats
    stop: np.ndarray[Any, Any]
    seen: np.ndarray[Any, Any]
    boundary: Floats | None


def exercise_region(
    policy: Policy, data: PathData, *, grid: TimeGrid, payoff: Callable[[Floats], Floats], points: int = 101
) -> ExerciseRegion | None:
    """The region of the first model, over the central prices seen in ``data``; None for three or more assets."""
    if data.n_assets > 2 or not isinstance(policy.state, DateByDate) or grid.n_dates < 2:
        return None
    low, high = np.quantile(data.prices[:, 1:], [0.001, 0.999])
    axis = np.linspace(low, high, points)
    mesh = np.stack(np.meshgrid(*[axis] * data.n_assets, indexing="ij"), axis=-1).reshape(-1, data.n_assets)
    raw = np.asarray(payoff(mesh))
    stops, seens, boundary = [], [], []
    for date in range(1, grid.n_dates):
        discounted = raw * grid.discount[date]
        hidden = None
        if data.hidden is not None:  # unobserved on the grid: held at its mean
            hidden = np.broadcast_to(data.hidden[:, date].mean(axis=0), (len(mesh), data.hidden.shape[2]))
        U = policy.state.transform(stack_inputs(mesh, discounted, hidden), date)
        stop = exercises(discounted, U @ policy.coefs[date][:, 0], policy.only_positive)
        lowest, highest = np.quantile(data.prices[:, date], [0.001, 0.999])
        seen = np.all((mesh >= lowest) & (mesh <= highest), axis=1)
        stops.append(stop.reshape([points] * data.n_assets))
        seens.append(seen.reshape([points] * data.n_assets))
        if data.n_assets == 1:
            boundary.append(_critical(axis, stop & seen, raw))
    critical = np.array(boundary) if boundary else None
    return ExerciseRegion(grid.times[1:-1], axis, np.array(stops), np.array(seens), critical)


def _critical(axis: Floats, stop: np.ndarray[Any, Any], payoff: Floats) -> float:
    """The price next to the waiting region: the highest stopping price of a put, the lowest of a call."""
    prices = axis[stop]
    if len(prices) == 0:
        return float("nan")
    falls = payoff[0] >= payoff[-1]
    return float(prices.max() if falls else prices.min())
