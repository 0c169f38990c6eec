"""Claim: on a local Dask cluster of two workers, moments from Parquet stay within 4 GB a worker at any number of rows.

The full size is 10,000,000 rows and 256 features: python -m benchmarks.dask_moments --rows 10000000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.out_of_core import COLUMNS, DOMAINS, INPUTS, own_peak, write_rows
from benchmarks.timing import Claim
from mixtune import RandomFeatures
from mixtune.engines.dask import gather_moments
from mixtune.moments._streaming import stream_moments

FEATURES = 256


def measure(rows: int = 1_000_000, workers: int = 2) -> Iterator[Claim]:
    from distributed import Client, LocalCluster

    phi = RandomFeatures(n_inputs=INPUTS, width=FEATURES - 1, activation="relu", seed=0)
    options = {"feature_map": phi, "target": "y", "domain": "site", "columns": COLUMNS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path, rows)
        begin = time.perf_counter()
        alone = stream_moments(path, **options)
        streamed = time.perf_counter() - begin
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, memory_limit="4GB", dashboard_address=":0"
            ) as cluster,
            Client(cluster) as client,
        ):
            begin = time.perf_counter()
            found = gather_moments(path, scheduler=client, folder=Path(folder) / "kept", **options)
            taken = time.perf_counter() - begin
            peaks = client.run(own_peak).values()
            begin = time.perf_counter()
            gather_moments(path, scheduler=client, folder=Path(folder) / "kept", **options)
            resumed = time.perf_counter() - begin
    error = max(abs(found[name].gram - alone[name].gram).max() / alone[name].gram.max() for name in alone)
    if len(found) != DOMAINS or error > 1e-12:
        raise RuntimeError(f"the cluster disagrees with the stream by {error:.2g}")
    size = f"n = {rows}, p = {FEATURES}, {workers} workers"
    note = f"; {rows / taken:,.0f} rows/s; all blocks kept: {resumed:.3g} s; agrees to {error:.1g}"
    yield Claim(f"Dask / one process, {size}", taken, streamed, 2.0, note)
    yield Claim(f"peak memory of a worker / 4 GB, {size}", max(peaks) / 1e6, 4000.0, 1.0, unit="MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    for claim in measure(given.rows, given.workers):
        print(claim, flush=True)
