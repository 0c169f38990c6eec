"""Claim: cost does not grow with T, and grows at most linearly in N and in n; tuned fits in outputs and classes, too.

Memory of tuned fits grows at most linearly as well. With the columns, a tuned fit grows at most as the products of all
pairs of them do.

The curves that the pages draw come after the claims. A fit here is moments, heads, equal weights, the solution and its
energy. The curves also follow RegretOptimalRegressor, which checks, standardises and weighs, and the tuned
RegretOptimalRegressorCV. Curves of their own follow time and memory of the tuned regressor and the tuned classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.timing import Claim, Figure, best_of, peak_bytes, seconds
from mixtune import (
    EqualWeights,
    Moments,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    RegretProblem,
    solve,
)

Rows = list[tuple[np.ndarray, np.ndarray]]

#: The axes: name, values, and (domains, rows in all, features, horizon) at a value.
AXES: tuple[tuple[str, tuple[int, ...], Callable[[int], tuple[int, int, int, int]]], ...] = (
    ("n", tuple(1000 * 4**k for k in range(5)), lambda n: (4, n, 256, 10)),
    ("p", tuple(2**k for k in range(5, 12)), lambda p: (4, 20_000, p, 10)),
    ("N", tuple(4**k for k in range(1, 7)), lambda N: (N, 100 * N, 100, 10)),
    ("T", tuple(10**k for k in range(0, 10, 3)), lambda T: (8, 3200, 200, T)),
)
#: The axes of tuned fits: name, values, and (domains, rows of each, columns, outputs, classes) at a value.
TUNED_AXES: tuple[tuple[str, tuple[int, ...], Callable[[int], tuple[int, int, int, int, int]]], ...] = (
    ("n", tuple(50 * 4**k for k in range(5)), lambda n: (9, n, 16, 1, 2)),
    ("p", tuple(8 * 4**k for k in range(4)), lambda p: (9, 100, p, 1, 2)),
    ("N", tuple(8 * 4**k for k in range(5)), lambda N: (N + 1, 60, 8, 1, 2)),
    ("outputs", (1, 2, 4, 8), lambda outputs: (9, 100, 16, outputs, 0)),
    ("classes", (2, 4, 8, 16), lambda classes: (9, 100, 16, 0, classes)),
)
#: The tuned fit is followed where it takes seconds: rows and features at most.
TUNED_ENTRIES = 20_000 * 256


def fit(rows: Rows, horizon: int) -> object:
    moments = [Moments.from_rows(U, y) for U, y in rows]
    weights = EqualWeights().weigh(moments=moments)
    solution = solve(
        RegretProblem(moments=moments, weights=weights, ridge=1.0, transfer=0.1, stability=1.0, horizon=horizon)
    )
    return solution.coef, solution.energy


def estimate(rows: Rows, horizon: int) -> object:
    """The same as RegretOptimalRegressor; the first domain is focal."""
    (X, y), *others = rows
    sources = {f"source {i}": pair for i, pair in enumerate(others)}
    return RegretOptimalRegressor(horizon=horizon).fit(X, y, sources=sources)


def tune(rows: Rows) -> object:
    """With all parameters chosen from the data."""
    (X, y), *others = rows
    return RegretOptimalRegressorCV(feature_map=None).fit(
        X, y, sources={f"source {i}": pair for i, pair in enumerate(others)}
    )


def draw(domains: int, n: int, p: int) -> Rows:
    """Domains of n rows whose heads scatter around a common one."""
    rng = np.random.default_rng(0)
    common, rows = rng.standard_normal(p) / p**0.5, []
    for _ in range(domains):
        U = rng.standard_normal((n, p))
        rows.append((U, U @ (common + 0.3 * rng.standard_normal(p) / p**0.5) + rng.standard_normal(n)))
    return rows


def curves(*, most: float = 1e12, rounds: int = 2) -> Iterator[Figure]:
    """Seconds against n, p, N and T; sizes with more than ``most`` multiplications are left out."""
    for axis, values, size_at in AXES:
        found: dict[str, list[float | int | None]] = {axis: [], "core": [], "estimator": [], "tuned": []}
        for value in values:
            domains, n, p, horizon = size_at(value)
            if n * p * p > most:
                continue
            rows = draw(domains, n // domains, p)
            times = rounds if n * p * p > 10**9 else 3 * rounds
            found[axis].append(value)
            found["core"].append(seconds(partial(fit, rows, horizon), rounds=times))
            found["estimator"].append(seconds(partial(estimate, rows, horizon), rounds=times))
            followed = axis != "T" and n * p <= TUNED_ENTRIES and domains <= 1024
            found["tuned"].append(seconds(partial(tune, rows)) if followed else None)
        domains, n, p, horizon = size_at(0)
        kept = {"N": domains, "n": n, "p": p, "T": horizon}
        # Rows come by domain where N varies.
        text = ", ".join(f"{name} = {value}" for name, value in kept.items() if name != axis and value)
        yield Figure("curve", f"{axis}: {text}" + (", 100 rows each" if axis == "N" else ""), found)


def classify(rows: Rows, classes: int) -> object:
    """The tuned classifier, with classes by quantiles of the targets."""
    edges = np.quantile(rows[0][1], np.arange(1, classes) / classes)
    (X, y), *others = [(U, np.digitize(v, edges)) for U, v in rows]
    sources = {f"source {i}": pair for i, pair in enumerate(others)}
    return RegretOptimalClassifierCV(feature_map=None).fit(X, y, sources=sources)


def several(rows: Rows, outputs: int) -> Rows:
    """The same rows with more outputs, each another function of the first."""
    return [(U, np.column_stack([np.sin((k + 1) * v) + v for k in range(outputs)])) for U, v in rows]


def tuned_growth() -> Iterator[Claim]:
    """Tuned fits: each axis four times as long costs at most four times as much, and a little."""
    limit = 4 * 1.25
    for width in (8, 100):
        for what, large, small in (
            ("the sources", draw(33, 60, width), draw(9, 60, width)),
            ("the rows", draw(9, 800, width), draw(9, 200, width)),
        ):
            mine, other = best_of(partial(tune, large), partial(tune, small), rounds=3)
            yield Claim(f"tuned: 4 times {what}, p = {width}", mine, other, limit)
            bytes_ = [peak_bytes(partial(tune, rows)) / 1e6 for rows in (large, small)]
            yield Claim(f"tuned: 4 times {what}, p = {width}: memory", *bytes_, limit, unit="MB")
    rows = draw(9, 60, 8)
    mine, other = best_of(lambda: tune(draw(9, 100, 400)), lambda: tune(draw(9, 100, 100)), rounds=3)
    yield Claim("tuned: 4 times the columns, p = 400 / p = 100, against products of all pairs", mine, other, 16)
    mine, other = best_of(lambda: tune(several(rows, 4)), lambda: tune(rows), rounds=3)
    yield Claim("tuned: 4 outputs / 1 output", mine, other, limit)
    mine, other = best_of(lambda: classify(rows, 8), lambda: classify(rows, 2), rounds=3)
    yield Claim("tuned: 8 classes / 2 classes", mine, other, 8 * 1.25)


def tuned_curves() -> Iterator[Figure]:
    """Seconds, and megabytes at the peak, of the tuned regressor and classifier."""
    for axis, values, size_at in TUNED_AXES:
        found: dict[str, list[float | int]] = {axis: list(values)}
        for value in values:
            domains, n, p, outputs, classes = size_at(value)
            rows = draw(domains, n, p)
            fits: dict[str, Callable[[], object]] = {}
            if outputs:
                fits["regressor"] = partial(tune, rows if outputs == 1 else several(rows, outputs))
            if classes:
                fits["classifier"] = partial(classify, rows, classes)
            for name, one in fits.items():
                found.setdefault(name, []).append(seconds(one, rounds=2))
                found.setdefault(f"{name} MB", []).append(peak_bytes(one) / 1e6)
        sources, n, p, _, _ = size_at(0)
        kept = {"N": sources - 1, "n": n, "p": p}
        text = ", ".join(f"{name} = {kept[name]}" for name in kept if name != axis)
        yield Figure("tuned", f"{axis}: {text}", found)


def measure() -> Iterator[Claim | Figure]:
    rows = draw(8, 400, 200)
    mine, other = best_of(lambda: fit(rows, 10**9), lambda: fit(rows, 1), rounds=20)
    yield Claim("T = 1,000,000,000 / T = 1", mine, other, 1.25)
    many, few = draw(64, 400, 200), draw(8, 400, 200)
    mine, other = best_of(lambda: fit(many, 10), lambda: fit(few, 10), rounds=20)
    yield Claim("8 times the domains", mine, other, 8 * 1.25)
    tall, short = draw(4, 40_000, 200), draw(4, 5_000, 200)
    mine, other = best_of(lambda: fit(tall, 10), lambda: fit(short, 10), rounds=10)
    yield Claim("8 times the rows", mine, other, 8 * 1.25)
    yield from tuned_growth()
    yield from curves()
    yield from tuned_curves()
