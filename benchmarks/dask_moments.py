"""Claims about a local Dask cluster of two worker processes, moments from Parquet at 256 features.

Workers stay within 4 GB at any number of rows (1,000,000 here; with --full 10,000,000), and one of them killed in the
middle of the run changes nothing: the sums equal those of one process to 1e-12, every block counted once.

A tuned fit that takes the sums of all rows from the same two workers, draws its samples in the same pass and chooses
costs at most 2 times the sums alone.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.out_of_core import COLUMNS, DOMAINS, phi, write_rows
from benchmarks.timing import Claim, best_of, own_peak
from mixtune import Moments, RegretOptimalRegressorCV, StreamedSources
from mixtune.streaming import gather_moments, stream_moments

FEATURES, WORKERS, ROWS, FULL_ROWS = 256, 2, 1_000_000, 10_000_000
OPTIONS: dict[str, Any] = {
    "feature_map": phi(FEATURES),
    "target": "y",
    "domain": "site",
    "columns": COLUMNS,
}


@contextmanager
def cluster(workers: int = WORKERS) -> Iterator[Any]:
    """A client of processes of one thread and 4 GB each."""
    from distributed import Client, LocalCluster

    each = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": "4GB", "dashboard_address": ":0"}
    with LocalCluster(**each) as started, Client(started) as client:
        yield client


def gather(path: Path, client: Any, kept: Path, progress: Callable[[int, int | None], None] | None = None) -> Any:
    return gather_moments(path, scheduler=client, folder=kept, progress=progress, **OPTIONS)


def apart(found: Mapping[str, Moments], alone: Mapping[str, Moments]) -> float:
    """The largest difference of the sums, relative to the largest of them; infinite where rows are lost or doubled."""
    if set(found) != set(alone) or any(found[name].count != alone[name].count for name in alone):
        return float("inf")
    pairs = [
        (getattr(found[name], part), getattr(alone[name], part))
        for name in alone
        for part in ("gram", "cross", "square")
    ]
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs)


def killed(path: Path, rows: int, kept: Path) -> Mapping[str, Moments]:
    """The moments, with one worker killed once a fifth of the rows is done."""
    with cluster() as client:
        pids = list(client.run(os.getpid).values())
        gone: list[int] = []

        def kill_one(done: int, _total: int | None) -> None:
            if done >= rows // 5 and not gone:
                gone.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        found = gather(path, client, kept, kill_one)
        if not gone or pids[0] in client.run(os.getpid).values():
            raise RuntimeError("no worker was killed; nothing is shown")
        return found


def tuned(path: Path, client: Any) -> object:
    """A tuned fit to 200 focal rows with all rows of the sources."""
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((200, len(COLUMNS))), rng.standard_normal(200)
    options = {name: value for name, value in OPTIONS.items() if name != "feature_map"}
    stream = StreamedSources(path, engine="dask", scheduler=client, progress=False, **options)
    model = RegretOptimalRegressorCV(OPTIONS["feature_map"]).fit(X, y, sources=stream)
    if sum(stream.rows_used().values()) < 100_000:
        raise RuntimeError("the fit did not see all rows; nothing is shown")
    return model


def measure(rows: int = ROWS, *, full: bool = False) -> Iterator[Claim]:
    try:
        import distributed  # noqa: F401
    except ImportError:
        return
    rows = FULL_ROWS if full else rows
    size = f"n = {rows}, p = {FEATURES}, {WORKERS} workers"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path, rows)
        begin = time.perf_counter()
        alone = stream_moments(path, **OPTIONS)
        streamed = time.perf_counter() - begin
        with cluster() as client:
            begin = time.perf_counter()
            found = gather(path, client, Path(folder) / "kept")
            taken = time.perf_counter() - begin
            peaks = client.run(own_peak).values()
            begin = time.perf_counter()
            gather(path, client, Path(folder) / "kept")
            resumed = time.perf_counter() - begin
            whole, sums = best_of(
                lambda: tuned(path, client),
                lambda: gather_moments(path, scheduler=client, **OPTIONS),
                rounds=1 + (not full),
            )
        note = f"; {rows / taken:,.0f} rows/s; again, with all blocks kept: {resumed:.2g} s"
        yield Claim(f"Dask / one process, {DOMAINS} domains, {size}", taken, streamed, 2.0, note)
        yield Claim(f"difference from one process / 1e-12, {size}", apart(found, alone), 1e-12, 1.0, unit="")
        yield Claim(f"peak memory of a worker / 4 GB, {size}", max(peaks) / 1e6, 4000.0, 1.0, unit="MB")
        yield Claim(f"tuned fit on all rows / the sums alone, {size}", whole, sums, 2.0)
        error = apart(killed(path, rows, Path(folder) / "other"), alone)
        yield Claim(f"one worker killed: difference / 1e-12, {size}", error, 1e-12, 1.0, unit="")
