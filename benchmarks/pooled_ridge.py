"""Claim: a full regret-optimal fit of 10 domains costs at most 1.5 times scikit-learn's Ridge on the pooled rows.

100,000 rows, 1000 features; Ridge solves by Cholesky. Ours makes ten heads, predictive weights and the solution: once
through the core (Moments, PredictiveWeights, RegretProblem), once as RegretOptimalRegressor, which also checks and
standardises the rows, as Ridge checks and centres them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from sklearn.linear_model import Ridge

from benchmarks.timing import Claim, best_of
from mixtune import Moments, PredictiveWeights, RegretOptimalRegressor, RegretProblem, solve

ROWS, FEATURES, DOMAINS = 100_000, 1000, 10


def draw(rows: int = ROWS, features: int = FEATURES, domains: int = DOMAINS) -> tuple[np.ndarray, np.ndarray, list]:
    """Pooled rows of domains whose heads scatter around a common one, and the place of each domain in them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features))
    parts = [slice(a, b) for a, b in pairwise(np.linspace(0, rows, domains + 1).astype(int).tolist())]
    common = rng.standard_normal(features) / features**0.5
    y = rng.standard_normal(rows)
    for part in parts:
        y[part] += X[part] @ (common + 0.1 * rng.standard_normal(features) / features**0.5)
    return X, y, parts


def by_problem(X: np.ndarray, y: np.ndarray, parts: list[slice]) -> np.ndarray:
    """Moments, heads, predictive weights and the solution."""
    moments = [Moments.from_rows(X[part], y[part]) for part in parts]
    heads = [m.head(ridge=1.0) for m in moments]
    weights = PredictiveWeights(sharing=1.0).weigh(moments=moments, heads=heads)
    options = {"transfer": 1.0, "stability": 1.0, "horizon": 10}
    return solve(RegretProblem(moments=moments, weights=weights, heads=heads, **options)).coef


def by_estimator(X: np.ndarray, y: np.ndarray, parts: list[slice]) -> np.ndarray:
    """RegretOptimalRegressor as its users call it: the first domain is the focal one."""
    sources = {f"source {i}": (X[part], y[part]) for i, part in enumerate(parts[1:], start=1)}
    return RegretOptimalRegressor().fit(X[parts[0]], y[parts[0]], sources=sources).coef_


def measure(rows: int = ROWS, features: int = FEATURES, domains: int = DOMAINS, *, rounds: int = 3) -> Iterator[Claim]:
    X, y, parts = draw(rows, features, domains)
    size = f"n = {rows}, p = {features}, N = {domains}"
    for name, ours in (("the core", by_problem), ("RegretOptimalRegressor", by_estimator)):
        if not np.all(np.isfinite(ours(X, y, parts))):
            raise RuntimeError(f"{name} gave coefficients that are not finite")
        mine, ridge = best_of(
            lambda ours=ours: ours(X, y, parts),
            lambda: Ridge(alpha=1.0, solver="cholesky").fit(X, y),
            rounds=rounds,
        )
        yield Claim(f"{name} / pooled Ridge, {size}", mine, ridge, 1.5)
