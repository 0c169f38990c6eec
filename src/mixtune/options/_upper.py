"""A dual upper bound: the price of seeing the future, less a martingale that makes seeing it worthless.

For any martingale M with M_0 = 0 the price is at most E max_t (h_t - M_t), h_t the discounted payoff (Rogers 2002,
Haugh and Kogan 2004). The best M is the martingale part of the value process. Here, as Haugh and Kogan do, it is built
from a regressed value V_t = max(h_t, continuation_t):

    M_t - M_{t-1} = V_t(X_t) - E[V_t(X_t) | X_{t-1}],

the expectation by one-interval inner simulations from every outer state. Inner noise leaves M a martingale, so the
bound stays valid and only becomes a little wider.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._checks import check_whole
from mixtune.errors import ParameterError
from mixtune.options._grid import TimeGrid
from mixtune.options._induction import Policy
from mixtune.options._state import DateByDate, stack_inputs
from mixtune.options.processes import Process, State

__all__ = ["UpperBound", "upper_bound"]

Floats = np.ndarray[Any, Any]

#: Inner states evaluated at a time.
CHUNK_STATES = 100_000


@dataclass(frozen=True)
class UpperBound:
    """An estimate of a number that is at least the price, with its 95% interval."""

    price: float
    standard_error: float
    outer_paths: int
    inner_paths: int
    method: str = "dual martingale, one-interval nested simulation (Haugh-Kogan)"

    @property
    def ci_low(self) -> float:
        return self.price - 1.96 * self.standard_error

    @property
    def ci_high(self) -> float:
        return self.price + 1.96 * self.standard_error


def upper_bound(
    policy: Policy,
    process: Process,
    *,
    grid: TimeGrid,
    payoff: Callable[[Floats], Floats],
    rng: np.random.Generator,
    outer_paths: int = 1000,
    inner_paths: int = 200,
    with_hidden: bool = True,
    progress: Callable[[], None] | None = None,
) -> UpperBound:
    """Upper bound from a policy's (first model's) continuation values.

    Parameters
    ----------
    policy : Policy
        Trained on all paths, not only those in the money: values are needed everywhere.
    outer_paths, inner_paths : int
        Paths of the bound itself, and one-interval continuations from each of their states (paired antithetically).
    """
    outer_paths = check_whole("outer_paths", outer_paths, least=2)
    inner_paths = check_whole("inner_paths", inner_paths, least=2)
    if not isinstance(policy.state, DateByDate):
        raise ParameterError("the upper bound needs features of one date (random or polynomial), not recurrent ones")
    value = _Value(policy, policy.state, grid, payoff, with_hidden)
    state = process.start(outer_paths)
    martingale = np.zeros(outer_paths)
    best = value.payoff(state, 0)
    for date in range(1, grid.n_dates + 1):
        interval = {
            "begin": float(grid.times[date - 1]),
            "end": float(grid.times[date]),
            "rate": float(grid.rates[date - 1]),
        }
        expected = _inner_means(process, state, value, date, interval, inner_paths, rng)
        normals = rng.standard_normal((outer_paths, process.normals_per_interval))
        state = process.advance(state, normals=normals, **interval)
        martingale += value(state, date) - expected
        best = np.maximum(best, value.payoff(state, date) - martingale)
        if progress is not None:
            progress()
    error = float(best.std(ddof=1)) / math.sqrt(outer_paths)
    return UpperBound(float(best.mean()), error, outer_paths, inner_paths)


class _Value:
    """``V_t = max(h_t, continuation_t)`` as a function of process states."""

    def __init__(
        self,
        policy: Policy,
        state_map: DateByDate,
        grid: TimeGrid,
        payoff: Callable[[Floats], Floats],
        with_hidden: bool,
    ) -> None:
        self.policy, self.state_map, self.grid = policy, state_map, grid
        self._payoff, self.with_hidden = payoff, with_hidden

    def payoff(self, state: State, date: int) -> Floats:
        return np.asarray(self._payoff(state.prices)) * self.grid.discount[date]

    def __call__(self, state: State, date: int) -> Floats:
        payoff = self.payoff(state, date)
        if date == self.grid.n_dates:
            return payoff
        hidden = state.hidden if self.with_hidden else None
        U = self.state_map.transform(stack_inputs(state.prices, payoff, hidden), date)
        return np.maximum(payoff, U @ self.policy.coefs[date][:, 0])


def _inner_means(
    process: Process,
    state: State,
    value: _Value,
    date: int,
    interval: dict[str, float],
    inner_paths: int,
    rng: np.random.Generator,
) -> Floats:
    """``E[V_t(X_t) | X_{t-1}]`` for every outer state, by antithetic pairs, in chunks of outer states."""
    pairs = (inner_paths + 1) // 2
    outer = state.prices.shape[0]
    step = max(1, CHUNK_STATES // (2 * pairs))
    means = []
    for begin in range(0, outer, step):
        part = state.take(np.arange(begin, min(begin + step, outer)))
        count = part.prices.shape[0]
        half = rng.standard_normal((count, pairs, process.normals_per_interval))
        normals = np.concatenate([half, -half], axis=1).reshape(count * 2 * pairs, -1)
        after = process.advance(part.repeat(2 * pairs), normals=normals, **interval)
        means.append(value(after, date).reshape(count, 2 * pairs).mean(axis=1))
    return np.concatenate(means)
