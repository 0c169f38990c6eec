"""Claim: 10,000 domains of 50 rows at p = 100 are fitted within 20 s and 2 GB, rows that were given included.

Two ways in: moments (batched), heads, predictive weights and the solution by RegretProblem; and RegretOptimalRegressor
with 9,999 sources. Each is measured in a process of its own, as the largest resident memory is that of a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.timing import Claim

DOMAINS, ROWS, FEATURES = 10_000, 50, 100


def by_problem() -> object:
    import numpy as np

    from mixtune import Moments, PredictiveWeights, RegretProblem, solve

    U, y = draw()
    begin = clock()
    moments = Moments.from_groups(U, y, np.full(DOMAINS, ROWS))
    problem = RegretProblem(
        moments=moments, weights=np.full(DOMAINS, 1 / DOMAINS), ridge=1.0, transfer=1.0, stability=1.0, horizon=10
    )
    weights = PredictiveWeights(sharing=10.0).weigh(moments=moments, heads=problem.heads)
    solution = solve(problem.replaced(weights=weights))
    assert np.all(np.isfinite(solution.coef))
    return clock() - begin


def by_estimator() -> object:
    import numpy as np

    from mixtune.estimators import RegretOptimalRegressor

    U, y = draw()
    parts = [slice(i * ROWS, (i + 1) * ROWS) for i in range(DOMAINS)]
    sources = {str(i): (U[part], y[part]) for i, part in enumerate(parts[1:], start=1)}
    begin = clock()
    model = RegretOptimalRegressor().fit(U[parts[0]], y[parts[0]], sources=sources)
    assert np.all(np.isfinite(model.coef_))
    return clock() - begin


def draw() -> tuple:
    """Domains whose heads scatter around a common one."""
    import numpy as np

    rng = np.random.default_rng(0)
    U = rng.standard_normal((DOMAINS * ROWS, FEATURES))
    heads = rng.standard_normal(FEATURES) + 0.3 * rng.standard_normal((DOMAINS, FEATURES))
    y = np.einsum("inp,ip->in", U.reshape(DOMAINS, ROWS, FEATURES), heads).reshape(-1)
    return U, y + rng.standard_normal(len(y))


def clock() -> float:
    import time

    return time.perf_counter()


def measure() -> Iterator[Claim]:
    for name, way in (("moments, heads, weights, solve", "by_problem"), ("RegretOptimalRegressor", "by_estimator")):
        code = (
            f"import json, resource; from benchmarks.many_domains import {way}; seconds = {way}(); "
            "print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        seconds, megabytes = json.loads(done.stdout)
        what = f"{name}, N = {DOMAINS}, {ROWS} rows, p = {FEATURES}"
        yield Claim(f"{what} / 20 s", seconds, 20.0, 1.0)
        yield Claim(f"{what}: memory of the process / 2 GB", megabytes, 2048.0, 1.0, unit="MB")
