"""Claim: with very wide features, conjugate gradients take a fraction of the time of forming and factoring a matrix.

At n = 12,000 rows and p = 8,000 features (spectrum decaying as k^-1, as that of smooth random features does) the
regret-optimal solution by conjugate gradients, to a relative residual of 1e-10, takes at most half of the time of the
Gram matrix with its Cholesky factor. At n = 2,000, p = 50,000 the dual, which is chosen by itself, costs at most twice
the bare product U U' (a few passes over the rows come on top).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Claim, best_of
from mixtune import Moments, RegretProblem, RegretSolution, solve


def _problem(n: int, p: int, decay: float, domains: int) -> RegretProblem:
    rng = np.random.default_rng(0)
    U = rng.standard_normal((n, p))
    U *= np.arange(1.0, p + 1) ** -decay
    y = rng.standard_normal(n)
    edges = np.linspace(0, n, domains + 1).astype(int)
    moments = [Moments.from_rows(U[a:b], y[a:b], keep_rows=True) for a, b in itertools.pairwise(edges)]
    weights, heads = np.full(domains, 1 / domains), np.zeros((domains, p))
    return RegretProblem(moments=moments, weights=weights, heads=heads, transfer=0.1, stability=1.0, horizon=10)


def measure(n: int = 12_000, p: int = 8_000, few: int = 2_000, wide: int = 50_000) -> Iterator[Claim]:
    problem = _problem(n, p, 0.5, 3)
    found: dict[str, RegretSolution] = {}

    def solved(solver: str) -> object:
        # A problem of its own: what one solve leaves behind must not help the next.
        found[solver] = solve(problem.replaced(), solver=solver)  # type: ignore[arg-type]
        return found[solver].coef

    ours, other = best_of(lambda: solved("iterative"), lambda: solved("direct"), rounds=1)
    walked, exact = found["iterative"], found["direct"].coef
    error = np.linalg.norm(walked.coef - exact) / np.linalg.norm(exact)
    note = f" ({walked.stats.iterations} steps, rank {walked.stats.rank}, relative error {error:.0e})"
    yield Claim(f"conjugate gradients / Gram + Cholesky, n = {n}, p = {p}", ours, other, 0.5, note)
    del walked, exact
    found.clear()

    flat = _problem(few, wide, 0.5, 1)
    U = flat.moments[0].parts[0][0]
    ours, other = best_of(lambda: solve(flat).coef, lambda: U @ U.T, rounds=3)
    yield Claim(f"solve / bare U U', n = {few}, p = {wide}", ours, other, 2.0, f" (chosen: {solve(flat).stats.method})")
