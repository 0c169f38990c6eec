"""Claims: a fit that tunes itself costs at most 20 fits at fixed parameters, and the exams take under half a second.

The exams are 65 schools with 4,059 pupils, one school with 20 training rows focal. The wide case has 20 domains of 500
rows and 500 columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.timing import Claim, best_of
from mixtune import RegretOptimalRegressor, RegretOptimalRegressorCV
from mixtune.bench import cases, named_problem


def measure(rows: int = 500, width: int = 500, sources: int = 19) -> Iterator[Claim]:
    case = next(iter(cases(named_problem("exam"))))
    X, y, drawer = case.train.X, case.train.y, case.mapping
    ours, fixed = best_of(
        lambda: RegretOptimalRegressorCV().fit(X, y, sources=drawer),
        lambda: RegretOptimalRegressor().fit(X, y, sources=drawer),
        rounds=5,
    )
    yield Claim("tuned fit / fixed fit, exams", ours, fixed, 20)
    yield Claim("tuned fit of the exams / half a second", ours, 0.5, 1)
    rng = np.random.default_rng(0)
    head = rng.standard_normal(width) / width**0.5

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        U = rng.standard_normal((n, width))
        own = head + 0.3 * rng.standard_normal(width) / width**0.5
        return U, U @ own + 0.5 * rng.standard_normal(n)

    (U, v), others = draw(200), {f"source {i}": draw(rows) for i in range(sources)}
    ours, fixed = best_of(
        lambda: RegretOptimalRegressorCV().fit(U, v, sources=others),
        lambda: RegretOptimalRegressor().fit(U, v, sources=others),
        rounds=2,
    )
    yield Claim(f"tuned fit / fixed fit, {sources + 1} domains, p = {width}", ours, fixed, 20)
