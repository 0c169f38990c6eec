"""Claim: from n = 100,000 rows at p = 1024, moments + solve cost at most 1.05 times the bare product U'U.

Split into four domains the same rows also need four heads, five factorisations instead of two: at most 1.3 times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Claim, best_of
from mixtune import EqualWeights, Moments, RegretProblem, solve


def measure(n: int = 100_000, p: int = 1024, *, rounds: int = 6) -> Iterator[Claim]:
    rng = np.random.default_rng(0)
    U, y = rng.standard_normal((n, p)), rng.standard_normal(n)
    for domains, limit in ((1, 1.05), (4, 1.3)):
        edges = np.linspace(0, n, domains + 1).astype(int)
        parts = [slice(a, b) for a, b in itertools.pairwise(edges)]

        def ours(parts: list[slice] = parts) -> object:
            moments = [Moments.from_rows(U[part], y[part]) for part in parts]
            weights = EqualWeights().weigh(moments=moments)
            problem = RegretProblem(
                moments=moments, weights=weights, ridge=1.0, transfer=1.0, stability=1.0, horizon=10
            )
            return solve(problem).coef

        mine, bare = best_of(ours, lambda parts=parts: [U[part].T @ U[part] for part in parts], rounds=rounds)
        yield Claim(f"moments + solve / bare U'U, n = {n}, p = {p}, N = {domains}", mine, bare, limit)
