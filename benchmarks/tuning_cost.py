"""Claims: a tuned fit costs at most 6 fixed fits, and all feature maps at most 5 times the inputs alone.

The exams take at most 0.1 s, and 14 domains of 100 rows and 301 columns at most 0.12 s. 500 candidates at 500 columns
cost at most 10 fits. The largest size needs --full.

The exams are 65 schools with 4,059 pupils, one school with 20 training rows focal. The wide case has 20 domains of 500
rows and 500 columns. Every candidate is judged by leave-one-out on the focal rows and again on each validation task,
where a source takes the focal role; the notes say how many candidates and how many such fits there were. As it comes,
the wide case has fewer than 500 candidates; the last line has paths of 98 effective ridges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from unittest import mock

import numpy as np

from benchmarks.timing import Claim, best_of
from benchmarks.transfer import cases, known_problem, named_problem
from benchmarks.transfer.tables import CLASSES, TABLES
from mixtune import RegretOptimalRegressor, RegretOptimalRegressorCV
from mixtune.choice import SETTINGS, _pooled
from mixtune.errors import DataError

#: As many effective ridges along a path as make 500 candidates of the wide case.
FINE = np.logspace(-2.0, 0.5, 98)


#: A tuned fit costs at most this many fixed fits.
FITS = 6
#: All feature maps cost at most this many times the inputs alone, on the exams and on all known tables together.
MAPS = 5
#: Columns, sources, rows of each, focal rows, and the limit of a tuned fit in seconds, or None.
SIZES = ((301, 13, 100, 100, 0.12), (500, 10, 5000, 1000, None))
LARGE_SIZES = ((1000, 9, 10_000, 10_000, None),)


def drawn(width: int, sources: int, rows: int, focal: int) -> tuple[tuple, dict[str, tuple]]:
    """Focal rows, and sources whose heads scatter around a common one."""
    rng = np.random.default_rng(0)
    head = rng.standard_normal(width) / width**0.5

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        U = rng.standard_normal((n, width))
        own = head + 0.3 * rng.standard_normal(width) / width**0.5
        return U, U @ own + 0.5 * rng.standard_normal(n)

    return draw(focal), {f"source {i}": draw(rows) for i in range(sources)}


def _tuned_over_fixed(width: int, sources: int, rows: int, focal: int, most: float | None) -> Iterator[Claim]:
    (U, v), others = drawn(width, sources, rows, focal)
    ours, fixed = best_of(
        lambda: RegretOptimalRegressorCV(feature_map=None).fit(U, v, sources=others),
        lambda: RegretOptimalRegressor().fit(U, v, sources=others),
        rounds=2 if most is None else 10,
    )
    about = f"p = {width}, {sources} sources x {rows:,} rows, {focal:,} focal rows"
    yield Claim(f"tuned fit / fixed fit, {about}", ours, fixed, FITS)
    if most is not None:
        yield Claim(f"tuned fit, {about} / {most} s", ours, most, 1)


def _maps_over_inputs() -> Claim:
    """A fit to 20, 60 and, where there are as many, 200 rows of each known table, all together."""
    drawn = []
    for name in (name for name in TABLES if name not in CLASSES):
        for n_train in (20, 60, 200):
            with suppress(DataError):  # no domain has as many rows
                drawn.append(next(iter(cases(known_problem(name, n_train=n_train, most_focal=1)))))
    totals = np.zeros(2)
    for case in drawn:
        totals += best_of(
            *(
                lambda case=case, way=way: RegretOptimalRegressorCV(feature_map=way).fit(
                    case.train.X, case.train.y, sources=case.mapping
                )
                for way in ("auto", None)
            ),
            rounds=2,
        )
    title = f"all feature maps / the inputs alone, {len(drawn)} fits to known tables"
    return Claim(title, float(totals[0]), float(totals[1]), MAPS)


def measure(rows: int = 500, width: int = 500, sources: int = 19, *, full: bool = False) -> Iterator[Claim]:
    case = next(iter(cases(named_problem("exam"))))
    X, y, drawer = case.train.X, case.train.y, case.mapping
    ours, fixed = best_of(
        lambda: RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=drawer),
        lambda: RegretOptimalRegressor().fit(X, y, sources=drawer),
        rounds=5,
    )
    yield Claim("tuned fit / fixed fit, exams", ours, fixed, FITS)
    yield Claim("tuned fit of the exams / a tenth of a second", ours, 0.1, 1)
    auto, linear = best_of(
        lambda: RegretOptimalRegressorCV().fit(X, y, sources=drawer),
        lambda: RegretOptimalRegressorCV(feature_map=None).fit(X, y, sources=drawer),
        rounds=3,
    )
    yield Claim("all feature maps / the inputs alone, exams", auto, linear, MAPS)
    yield _maps_over_inputs()
    for size in SIZES + LARGE_SIZES * full:
        yield from _tuned_over_fixed(*size)
    (U, v), others = drawn(width, sources, rows, 200)
    tuned = RegretOptimalRegressorCV(feature_map=None)
    for scales, limit in ((SETTINGS.pooled_scales, 20), (FINE, 10)):
        with mock.patch.object(_pooled, "SETTINGS", replace(SETTINGS, pooled_scales=scales)):
            ours, fixed = best_of(
                lambda: tuned.fit(U, v, sources=others),
                lambda: RegretOptimalRegressor().fit(U, v, sources=others),
                rounds=3,
            )
        candidates, tasks = len(tuned._choices[0].labels), 1 + tuned.n_validation_sources_
        yield Claim(
            f"tuned fit of {candidates} candidates / fixed fit, {sources + 1} domains, p = {width}",
            ours,
            fixed,
            limit,
            note=f"; {candidates} candidates on {tasks} tasks: {candidates * tasks} fits, each with leave-one-out",
        )
