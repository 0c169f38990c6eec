"""Sizes of problems, each run as its users would run it: seconds, and megabytes at the peak of a process of its own.

These are the measured lines of the table 'what to use when' (docs/scaling.md). No limit belongs to them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import Figure, in_own_process, own_peak


@dataclass(frozen=True)
class Size:
    """Rows in all, features, domains; what runs; whether it takes minutes."""

    rows: int
    features: int
    domains: int
    what: str
    slow: bool = False

    @property
    def about(self) -> str:
        return f"{self.rows:,} x {self.features:,} x {self.domains:,}, {self.what}"


def fixed(size: Size) -> float:
    """RegretOptimalRegressor on arrays in memory."""
    from benchmarks.growth import draw, estimate

    rows = draw(size.domains, size.rows // size.domains, size.features)
    return _timed(lambda: estimate(rows, 10))


def tuned(size: Size) -> float:
    """RegretOptimalRegressorCV on arrays in memory."""
    from benchmarks.growth import draw, tune

    rows = draw(size.domains, size.rows // size.domains, size.features)
    return _timed(lambda: tune(rows))


def core(size: Size) -> float:
    """Moments and the solution from arrays in memory."""
    from benchmarks.growth import draw, fit

    rows = draw(size.domains, size.rows // size.domains, size.features)
    return _timed(lambda: fit(rows, 10))


def stream(size: Size) -> float:
    """Moments and the solution from a Parquet file with random features."""
    from benchmarks.out_of_core import fit, write_rows

    with tempfile.TemporaryDirectory() as folder:
        write_rows(path := Path(folder) / "rows.parquet", size.rows)
        return _timed(lambda: fit(path, features=size.features))


WAYS: dict[str, Callable[[Size], float]] = {
    "RegretOptimalRegressorCV": tuned,
    "RegretOptimalRegressor": fixed,
    "Moments, RegretProblem": core,
    "stream_moments, Parquet": stream,
}
SIZES = (
    Size(1_000, 20, 10, "RegretOptimalRegressorCV"),
    Size(20_000, 200, 50, "RegretOptimalRegressorCV"),
    Size(100_000, 1_000, 10, "RegretOptimalRegressorCV", slow=True),
    Size(1_000, 20, 10, "RegretOptimalRegressor"),
    Size(100_000, 1_000, 10, "RegretOptimalRegressor"),
    Size(500_000, 100, 10_000, "RegretOptimalRegressor"),
    Size(1_000, 20_000, 10, "RegretOptimalRegressor"),
    Size(100_000, 1_000, 10, "Moments, RegretProblem"),
    Size(200_000, 1_024, 4, "stream_moments, Parquet"),
    Size(1_000_000, 256, 4, "stream_moments, Parquet"),
)


def measure(most_rows: int | None = None, *, full: bool = False) -> Iterator[Figure]:
    """All sizes, or those with at most so many rows; the slow ones only in full."""
    for place, size in enumerate(SIZES):
        if (size.slow and not full) or (most_rows is not None and size.rows > most_rows):
            continue
        seconds, megabytes = in_own_process("benchmarks.sizes", str(place))
        values = {"rows": size.rows, "features": size.features, "domains": size.domains, "what": size.what}
        yield Figure("size", size.about, {**values, "seconds": seconds, "megabytes": megabytes})


def _timed(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


if __name__ == "__main__":
    chosen = SIZES[int(sys.argv[1])]
    print(json.dumps([WAYS[chosen.what](chosen), own_peak() / 1e6]))
