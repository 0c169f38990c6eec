"""Constants of the scaling model (docs/scaling.md): what one worker, one merge, one message and one task cost.

Measured on a local cluster of two worker processes of one thread each. No limit belongs to these.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.dask_moments import cluster
from benchmarks.out_of_core import COLUMNS, phi, write_rows
from benchmarks.timing import Figure, seconds
from mixtune import Moments
from mixtune.streaming import stream_moments

WIDTHS = (64, 256, 1024)


def row_seconds(rows: int) -> dict[str, float]:
    """Seconds a row in one thread, from Parquet with random features, by the number of features."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(limits=1):
        path = Path(folder) / "rows.parquet"
        write_rows(path, rows)
        for width in WIDTHS:
            options = {"feature_map": phi(width), "target": "y", "domain": "site", "columns": COLUMNS}
            found[str(width)] = seconds(lambda o=options: stream_moments(path, **o), rounds=2) / rows
    return found


def merge_seconds_per_byte(features: int = 1024) -> float:
    """Seconds for each byte of sums that a merge adds to others."""
    from mixtune.streaming._dask import merge_domains

    rng = np.random.default_rng(0)
    moments = Moments.from_rows(rng.standard_normal((features + 1, features)), rng.standard_normal(features + 1))
    parts = [{"a": moments}] * 4
    with threadpool_limits(limits=1):
        return seconds(lambda: merge_domains(parts), rounds=5) / (4 * 8 * features**2)


def task_seconds(client: Any, tasks: int) -> float:
    """Seconds a task of a tree like ours where the tasks do nothing: graph, scheduler and messages."""
    from dask import delayed

    nothing = delayed(_nothing, pure=False)
    parts, count = [nothing([]) for _ in range(tasks)], tasks
    while len(parts) > 1:
        parts = [nothing(parts[begin : begin + 4]) for begin in range(0, len(parts), 4)]
        count += len(parts)
    begin = time.perf_counter()
    client.compute(parts[0]).result()
    return (time.perf_counter() - begin) / count


def byte_seconds(client: Any, megabytes: int = 64) -> float:
    """Seconds a byte that one worker sends to the other."""
    one, other = list(client.scheduler_info()["workers"])
    taken = []
    for _ in range(4):
        made = client.submit(_made, megabytes, workers=[one], pure=False)
        made.result()
        begin = time.perf_counter()
        client.submit(_size, made, workers=[other], pure=False).result()
        taken.append(time.perf_counter() - begin)
    return min(taken) / (megabytes * 1e6)


def _nothing(_parts: Any) -> int:
    return 0


def _made(megabytes: int) -> np.ndarray:
    return np.ones(megabytes * 125_000)


def _size(array: np.ndarray) -> int:
    return array.nbytes


def measure(rows: int = 200_000, tasks: int = 2000) -> Iterator[Figure]:
    try:
        import distributed  # noqa: F401
    except ImportError:
        return
    yield Figure("rate", "seconds a row in one thread, by features", row_seconds(rows))
    with cluster() as client:
        task_seconds(client, tasks // 10)  # the workers import what they need
        rates = {
            "merge_seconds_per_byte": merge_seconds_per_byte(),
            "seconds_per_task": task_seconds(client, tasks),
            "seconds_per_byte": byte_seconds(client),
        }
    yield Figure("rate", "merges, tasks and messages of a cluster", rates)
