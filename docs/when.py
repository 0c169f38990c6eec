"""What to use when: a table of sizes, from measured runs and, beyond them, from what was measured.

Measured lines are runs of `python -m benchmarks sizes` (and of the benchmarks named with them). The others follow from
a cost model with five constants, fitted to the growth curves, or from the simulation of a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.results import Results, read
from docs.performance import RESULTS
from docs.scaling import Job, Rates, simulate
from scipy.optimize import nnls

#: What a line of the growth curves is called in the table.
CALLED = {"core": "Moments, RegretProblem", "estimator": "RegretOptimalRegressor", "tuned": "RegretOptimalRegressorCV"}
DASK = "gather_moments, Dask"


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    rows: float
    features: int
    domains: int
    what: str
    seconds: float
    megabytes: float | None
    how: str

    def __str__(self) -> str:
        memory = "" if self.megabytes is None else _memory(self.megabytes)
        cells = (f"{self.rows:,.0f}", f"{self.features:,}", f"{self.domains:,}", self.what, _time(self.seconds))
        return "| " + " | ".join((*cells, memory, self.how)) + " |"


@dataclass(frozen=True)
class CostModel:
    """``seconds = c . (1, N, n p, n p^2, N p^3)``: a start, each domain, each pass over rows, products, factors."""

    constants: tuple[float, ...]
    off: float  #: the largest factor between model and measurement

    @classmethod
    def of(cls, results: Results, line: str) -> CostModel:
        """The non-negative constants that fit the curves of a line best, relative to the times measured."""
        terms, times = [], []
        for curve in results.figures("curve"):
            axis = curve.about.partition(":")[0]
            kept = {name: int(value) for name, value in re.findall(r"\b([nNp]) = (\d+)", curve.about)}
            for value, taken in zip(curve.values[axis], curve.values[line]):
                size = kept | {axis: value}
                size.setdefault("n", 100 * size["N"])  # where N varies every domain has 100 rows
                if taken is not None:
                    terms.append(_terms(size["n"], size["p"], size["N"]))
                    times.append(taken)
        scaled = np.array(terms) / np.array(times)[:, None]
        constants, _ = nnls(scaled, np.ones(len(times)))
        found = scaled @ constants
        return cls(tuple(constants.tolist()), float(np.max(np.maximum(found, 1 / found))))

    def seconds(self, rows: float, features: int, domains: int) -> float:
        return float(np.dot(self.constants, _terms(rows, features, domains)))


def _terms(n: float, p: int, N: int) -> tuple[float, ...]:
    return 1.0, float(N), n * p, n * p**2, N * p**3


def sizes(results: Results) -> list[dict[str, Any]]:
    """What `python -m benchmarks sizes` gave."""
    return [figure.values for figure in results.parts["sizes"].figures] if "sizes" in results.parts else []


def measured(results: Results) -> Iterator[Line]:
    """Sizes that were run."""
    for v in sizes(results):
        yield Line(v["rows"], v["features"], v["domains"], v["what"], v["seconds"], v["megabytes"], "measured: `sizes`")
    if (run := dask_run(results)) is not None:
        yield run


def dask_run(results: Results) -> Line | None:
    """The largest run on a cluster of two workers, if there was one."""
    claims = results.parts["dask_moments"].claims if "dask_moments" in results.parts else ()
    taken = next((claim for claim in claims if claim.name.startswith("Dask / one process")), None)
    if taken is None:
        return None
    domains, n, p, workers = _numbers(taken.name, r"(\d+) domains", r"n = (\d+)", r"p = (\d+)", r"(\d+) workers")
    peak = next(claim.ours for claim in claims if claim.name.startswith("peak memory"))
    return Line(n, p, domains, f"{DASK}, {workers} workers", taken.ours, peak, "measured: `dask_moments`")


def model_check(results: Results, rates: Rates) -> str:
    """The model beside the run that was really made."""
    run = dask_run(results)
    if run is None:
        return "Not compared with a run yet: `python -m benchmarks dask_moments`."
    (workers,) = _numbers(run.what, r"(\d+) workers")
    job = Job(run.features, run.domains, int(run.rows) // workers)
    return (
        f"Against a run that was made: {run.rows:,.0f} rows, {run.features} features and {run.domains} domains on "
        f"{workers} workers took {_time(run.seconds)} (`python -m benchmarks dask_moments --full`); the model says "
        f"{_time(simulate(job, workers, rates))}. In that run the scheduler, the client and the workers share "
        f"{results.machine['cores']} cores, and the sums of every block are written to disk."
    )


def on_devices() -> Iterator[Line]:
    """Moments and solution on an accelerator, from the files of such machines."""
    for path in sorted(RESULTS.glob("performance-*.json")):
        results = read(path)
        for claim in results.parts["gpu"].claims if "gpu" in results.parts else ():
            if claim.name.startswith("moments + solve, n ="):
                n, p = _numbers(claim.name, r"n = (\d+)", r"p = (\d+)")
                what = f"Moments on {results.machine['accelerator']}"
                yield Line(n, p, 2, what, claim.ours, None, "measured: `gpu`")


def beyond(results: Results, rates: Rates) -> Iterator[Line]:
    """Sizes that follow from what was measured."""
    # Rows and features as given, standardised, and with a column of ones; the core holds them once.
    for line, copies, (n, p, N) in (
        ("tuned", 3, (100_000, 200, 100)),
        ("estimator", 3, (1_000_000, 500, 20)),
        ("core", 1, (1_000_000, 2_000, 20)),
    ):
        held = 200 + 8 * (copies * n * p + 2 * N * p**2) / 1e6
        how = f"extrapolated: curves of `growth`, within {CostModel.of(results, line).off:.1f}x there"
        yield Line(n, p, N, CALLED[line], CostModel.of(results, line).seconds(n, p, N), held, how)
    streamed = [values for values in sizes(results) if "stream" in values["what"]]
    for values, n in zip(streamed, (10**8, 10**8)):
        taken = n * values["seconds"] / values["rows"]
        how = "extrapolated: linear in rows from `sizes`"
        yield Line(n, values["features"], values["domains"], values["what"], taken, values["megabytes"], how)
    for workers, rows in ((100, 10**9), (1000, 10**10)):
        job = Job(256, rows_per_worker=rows // workers)
        what = f"{DASK}, {workers:,} workers"
        yield Line(rows, 256, job.domains, what, simulate(job, workers, rates), None, "simulated, see above")


def when_table(results: Results, rates: Rates) -> str:
    """All lines, the smallest first."""
    lines = [*measured(results), *on_devices(), *beyond(results, rates)]
    lines.sort(key=lambda line: (line.rows * line.features, line.what))
    head = ["| rows | features | domains | what runs | time | memory of a process | |", "|---|---|---|---|---|---|---|"]
    return "\n".join(head + [str(line) for line in lines])


def _numbers(text: str, *patterns: str) -> list[int]:
    """The whole numbers that patterns find in a text."""
    found = [re.search(pattern, text) for pattern in patterns]
    return [int(match[1]) for match in found if match is not None]


def _time(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def _memory(megabytes: float) -> str:
    return f"{megabytes / 1000:.2g} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
