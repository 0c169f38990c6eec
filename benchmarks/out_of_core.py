"""Claim: from Parquet, moments with random features computed on the fly cost at most 1.5 times the bare work.

The bare work is the sum of reading the file, the matrix product behind the features, and U'U, each on whole arrays in
memory: 200,000 rows, 1024 features. Memory (the peak of a fresh process, Python and libraries included) is at most
1 GB at any number of rows.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks.timing import Claim, in_own_process, own_peak, seconds
from mixtune import EqualWeights, RandomFeatures, RegretProblem, solve
from mixtune.streaming import stream_moments

INPUTS, FEATURES, DOMAINS = 20, 1024, 4
COLUMNS = [f"x{i}" for i in range(INPUTS)]


def phi(features: int = FEATURES) -> RandomFeatures:
    """Random features, a constant among them."""
    return RandomFeatures(n_inputs=INPUTS, width=features - 1, activation="relu", seed=0)


def write_rows(path: Path, rows: int, *, at_once: int = 100_000) -> None:
    rng = np.random.default_rng(0)
    writer = None
    for begin in range(0, rows, at_once):
        size = min(at_once, rows - begin)
        columns = {name: rng.standard_normal(size) for name in (*COLUMNS, "y")}
        table = pa.table({**columns, "site": rng.integers(0, DOMAINS, size)})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def fit(path: Path, dtype: str = "float64", *, features: int = FEATURES) -> object:
    """Moments of all domains and the solution."""
    moments = list(stream_moments(path, feature_map=phi(features), target="y", domain="site", dtype=dtype).values())
    weights = EqualWeights().weigh(moments=moments)
    options = {"ridge": 1.0, "transfer": 1.0, "stability": 1.0, "horizon": 10}
    return solve(RegretProblem(moments=moments, weights=weights, **options)).coef


def bare(path: Path) -> float:
    """Reading, the product of the layer, and the product of the features, one after the other."""
    held: dict[str, np.ndarray] = {}
    weights = phi().weights

    def read() -> None:
        table = parquet.read_table(path, columns=COLUMNS)
        held["X"] = np.column_stack([column.to_numpy() for column in table.columns])

    def features() -> None:
        held["U"] = held["X"] @ weights

    return seconds(read) + seconds(features) + seconds(lambda: held["U"].T @ held["U"])


def peak(path: Path) -> float:
    """Megabytes at the peak of a process that does the fit."""
    return in_own_process("benchmarks.out_of_core", str(path)) / 1e6


def measure(rows: int = 200_000, rounds: int = 3) -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path, rows)
        times = [
            (seconds(lambda: stream_moments(path, feature_map=phi(), target="y", columns=COLUMNS)), bare(path))
            for _ in range(rounds)
        ]
        ours, other = (min(side) for side in zip(*times))
        yield Claim(f"moments from Parquet / bare work, n = {rows}, p = {FEATURES}", ours, other, 1.5)
        whole = seconds(lambda: fit(path), rounds=rounds)
        yield Claim(f"the same with {DOMAINS} domains mixed, and the solution", whole, other, 1.5)
        single = seconds(lambda: fit(path, "float32"), rounds=rounds)
        yield Claim("the same in float32 with float64 sums", single, other, 1.5)
        for factor in (1, 4):
            write_rows(path, factor * rows)
            yield Claim(f"peak memory / 1 GB, n = {factor * rows}", peak(path), 1000.0, 1.0, unit="MB")


if __name__ == "__main__":
    fit(Path(sys.argv[1]))
    print(own_peak())
