"""Claim: 10,000 domains of 50 rows at p = 100 are fitted within 20 s and 2 GB, rows that were given included.

Three ways in: moments (batched), heads, predictive weights and the solution by RegretProblem; RegretOptimalRegressor
with 9,999 sources; and RegretOptimalRegressorCV, which learns from a sample of them. The first two also with 100,000
domains of 20 rows at p = 10, within a minute. Each is measured in a process of its own, as the largest resident memory
is that of a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from benchmarks.timing import Claim, in_own_process, own_peak

#: Domains, rows of each, features, and the seconds that they may take.
MANY, VERY_MANY = (10_000, 50, 100, 20.0), (100_000, 20, 10, 60.0)
WAYS = {"by_problem": "moments, heads, weights, solve", "fixed": "RegretOptimalRegressor"}


def by_problem(count: int, rows: int, features: int) -> float:
    import numpy as np

    from mixtune import Moments, PredictiveWeights, RegretProblem, solve

    U, y = draw(count, rows, features)
    begin = clock()
    moments = Moments.from_groups(U, y, np.full(count, rows))
    problem = RegretProblem(
        moments=moments, weights=np.full(count, 1 / count), ridge=1.0, transfer=1.0, stability=1.0, horizon=10
    )
    weights = PredictiveWeights(sharing=10.0).weigh(moments=moments, heads=problem.heads)
    solution = solve(problem.replaced(weights=weights))
    assert np.all(np.isfinite(solution.coef))
    return clock() - begin


def fixed(count: int, rows: int, features: int) -> float:
    from mixtune.estimators import RegretOptimalRegressor

    return by_estimator(RegretOptimalRegressor(), count, rows, features)


def tuned(count: int, rows: int, features: int) -> float:
    from mixtune.estimators import RegretOptimalRegressorCV

    return by_estimator(RegretOptimalRegressorCV(feature_map=None), count, rows, features)


def by_estimator(model: object, count: int, rows: int, features: int) -> float:
    import numpy as np

    U, y = draw(count, rows, features)
    parts = [slice(i * rows, (i + 1) * rows) for i in range(count)]
    sources = {str(i): (U[part], y[part]) for i, part in enumerate(parts[1:], start=1)}
    begin = clock()
    model.fit(U[parts[0]], y[parts[0]], sources=sources)
    assert np.all(np.isfinite(model.coef_))
    return clock() - begin


def draw(count: int, rows: int, features: int) -> tuple:
    """Domains whose heads scatter around a common one."""
    import numpy as np

    rng = np.random.default_rng(0)
    U = rng.standard_normal((count * rows, features))
    heads = rng.standard_normal(features) + 0.3 * rng.standard_normal((count, features))
    y = np.einsum("inp,ip->in", U.reshape(count, rows, features), heads).reshape(-1)
    return U, y + rng.standard_normal(len(y))


def clock() -> float:
    import time

    return time.perf_counter()


def measure() -> Iterator[Claim]:
    for way, name in (*WAYS.items(), ("tuned", "RegretOptimalRegressorCV")):
        yield from claims(way, name, *MANY)
    for way, name in WAYS.items():
        yield from claims(way, name, *VERY_MANY)


def claims(way: str, name: str, count: int, rows: int, features: int, limit: float) -> Iterator[Claim]:
    seconds, bytes_ = in_own_process("benchmarks.many_domains", way, *map(str, (count, rows, features)))
    what = f"{name}, N = {count}, {rows} rows, p = {features}"
    yield Claim(f"{what} / {limit:g} s", seconds, limit, 1.0)
    yield Claim(f"{what}: memory of the process / 2 GB", bytes_ / 2**20, 2048.0, 1.0, unit="MB")


if __name__ == "__main__":
    way = {"by_problem": by_problem, "fixed": fixed, "tuned": tuned}[sys.argv[1]]
    print(json.dumps([way(*map(int, sys.argv[2:])), own_peak()]))
