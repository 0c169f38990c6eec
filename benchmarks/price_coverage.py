"""Claim: 95% intervals of lower bounds cover in 92 to 98% of 200 seeds.

A lower bound estimates what its exercise policy earns. Each seed has a policy of its own; what that earns is found on
40 times as many fresh paths. The interval of the seed covers if that value is inside. The last line has an option
without early exercise, whose value is known in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing import Claim, Figure
from mixtune.options import BlackScholes, CustomPayoff, Heston, MaxCall, Put, TimeGrid, price, simulate

PATHS = 2000
MORE = 40
GRID = TimeGrid(maturity=1, dates=5, rate=0.06)
FIVE = BlackScholes(spot=100.0, volatility=0.2, dividend=0.1, n_assets=5)
HESTON = Heston(spot=100.0, v0=0.04, v_mean=0.09, v_speed=2.0, v_vol=0.5, rho=-0.7)
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "put": (BlackScholes(spot=95.0, volatility=0.2), Put(100.0), {}),
    "put, no control": (BlackScholes(spot=95.0, volatility=0.2), Put(100.0), {"control": False}),
    "max-call on 5 assets": (FIVE, MaxCall(100.0), {}),
    "Heston put": (HESTON, Put(100.0), {}),
}


def covers(market: Any, payoff: Any, options: dict[str, Any], seed: int) -> bool:
    """Whether the interval of one seed has what its policy earns on many fresh paths."""
    result = price(market, payoff, GRID, paths=PATHS, seed=seed, **options)
    if result.exercise_probability[0] == 1:
        return True
    rng = np.random.default_rng((seed, 1))
    found = result.policy.evaluate(simulate(market, payoff, GRID, paths=MORE * PATHS, rng=rng, noise=True))
    control = 0.0 if found.control is None else found.control
    return bool(result.ci_low <= float((found.flows[:, 0] - control).mean()) <= result.ci_high)


def measure(seeds: int = 200) -> Iterator[Claim | Figure]:
    shares = {name: np.mean([covers(*case, seed) for seed in range(seeds)]) for name, case in CASES.items()}
    one = TimeGrid(maturity=1, dates=1, rate=0.06)
    market, payoff = BlackScholes(spot=95.0, volatility=0.2), CustomPayoff(lambda P: np.maximum(100.0 - P[..., 0], 0.0))
    exact = price(market, Put(100.0), one, paths=2, seed=0).european.value
    found = [price(market, payoff, one, paths=PATHS, seed=seed) for seed in range(seeds)]
    shares["European put by simulation"] = np.mean([each.ci_low <= exact <= each.ci_high for each in found])
    for name, share in shares.items():
        yield Figure("share", f"{name}: intervals that cover", {"of seeds": float(share)})
        yield Claim(f"|coverage - 95%|, {name}", abs(float(share) - 0.95), 1.0, 0.03, f"; {seeds} seeds", "of all")
