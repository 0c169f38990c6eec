"""Claim: 95% intervals of lower bounds cover in 92 to 98% of 200 seeds.

A lower bound estimates what its exercise policy earns. Each seed has a policy of its own. What that earns is found by
the same estimate on 40 times as many paths, whose first fortieth are those of the seed. The interval of the seed covers
if that value is inside. The last line has an option without early exercise, whose value is known in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing import Claim, Figure
from mixtune_options import BlackScholes, CustomPayoff, Heston, MaxCall, Put, TimeGrid, price

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
    """Whether the interval of one seed has what its policy earns on many paths."""
    few, many = (
        price(market, payoff, GRID, paths=count, training_paths=PATHS, seed=seed, **options)
        for count in (PATHS, MORE * PATHS)
    )
    return bool(few.ci_low <= many.price <= few.ci_high)


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
