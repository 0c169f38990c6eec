"""Claim: from the shell to the verdict, `mixtune fit` takes at most 3 CPU seconds for 4,000 rows and 10 columns.

Twenty domains of 200 rows in a CSV file. Imports are included; nothing is imported that the command does not use.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import Claim


def write_rows(path: Path, rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    X, site = rng.standard_normal((rows, columns)), np.repeat([f"s{k}" for k in range(20)], rows // 20)
    y = X @ rng.standard_normal(columns) + rng.standard_normal(rows)
    names = [f"x{k}" for k in range(columns)]
    lines = [",".join((*(f"{v:.6g}" for v in (*x, target)), label)) for x, target, label in zip(X, y, site)]
    path.write_text("\n".join([",".join((*names, "y", "site")), *lines]) + "\n", encoding="utf-8")


def cpu_seconds(command: list[str]) -> float:
    """CPU seconds of a process and of those that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(rows: int = 4000, columns: int = 10, *, rounds: int = 3) -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_rows(path, rows, columns)
        command = [sys.executable, "-m", "mixtune", "fit", str(path), "--target", "y", "--domain", "site"]
        command += ["--focal", "s0"]
        taken = min(cpu_seconds(command) for _ in range(rounds))
        yield Claim(f"mixtune fit, {rows:,} x {columns} rows / 3 CPU seconds", taken, 3.0, 1.0)
