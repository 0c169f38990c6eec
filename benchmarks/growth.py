"""Claim: cost does not grow with T, and grows at most linearly in N and in n."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Claim, best_of
from mixtune import EqualWeights, Moments, RegretProblem, solve


def fit(rows: list[tuple[np.ndarray, np.ndarray]], horizon: int) -> object:
    moments = [Moments.from_rows(U, y) for U, y in rows]
    weights = EqualWeights().weigh(moments=moments)
    solution = solve(
        RegretProblem(moments=moments, weights=weights, ridge=1.0, transfer=0.1, stability=1.0, horizon=horizon)
    )
    return solution.coef, solution.energy


def draw(domains: int, n: int, p: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal((n, p)), rng.standard_normal(n)) for _ in range(domains)]


def measure() -> Iterator[Claim]:
    rows = draw(8, 400, 200)
    mine, other = best_of(lambda: fit(rows, 10**9), lambda: fit(rows, 1), rounds=20)
    yield Claim("T = 1,000,000,000 / T = 1", mine, other, 1.25)
    many, few = draw(64, 400, 200), draw(8, 400, 200)
    mine, other = best_of(lambda: fit(many, 10), lambda: fit(few, 10), rounds=20)
    yield Claim("8 times the domains", mine, other, 8 * 1.25)
    tall, short = draw(4, 40_000, 200), draw(4, 5_000, 200)
    mine, other = best_of(lambda: fit(tall, 10), lambda: fit(short, 10), rounds=10)
    yield Claim("8 times the rows", mine, other, 8 * 1.25)
