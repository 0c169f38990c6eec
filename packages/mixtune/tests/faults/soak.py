"""Fits, saves and loads in threads for a long time, with memory and open files watched.

``python tests/faults/soak.py --minutes 60``, or ``make soak``. Every result is compared with the first of its kind.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.problems import CLASSIFIERS, REGRESSORS, draw
from mixtune import load

#: Growth of the process that counts as a leak, after a warm-up: megabytes, and open files.
MEGABYTES, FILES = 150.0, 8


def usage() -> tuple[float, int]:
    """Resident memory in megabytes, and the number of open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(list(Path("/proc/self/fd").iterdir()))


def one_round(kind: str, number: int, folder: Path) -> np.ndarray:
    """Fit, save over an older file, load, predict."""
    problem = draw(number, rows=20, width=4, sources=6, source_rows=(20, 40))
    make = {**REGRESSORS, **CLASSIFIERS}[kind]
    model = (problem.labels() if kind in CLASSIFIERS else problem).fit(make)
    path = folder / f"{threading.get_ident()}.mixtune"
    model.save(path)
    again = load(path)
    found = again.decision_function(problem.new) if kind in CLASSIFIERS else again.predict(problem.new)
    assert np.all(np.isfinite(found))
    return found


def soak(seconds: float, *, threads: int = 4, say=print) -> int:
    """Run rounds until the time is up; returns how many. Raises on another result, a leak or an error."""
    kinds = [*REGRESSORS, *CLASSIFIERS]
    expected: dict[tuple[str, int], np.ndarray] = {}
    done, start, deadline = 0, None, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(threads) as pool:
        while time.monotonic() < deadline or start is None:
            jobs = [(kind, number) for number in range(3) for kind in kinds]
            for job, found in zip(jobs, pool.map(lambda job: one_round(*job, Path(name)), jobs)):
                np.testing.assert_allclose(found, expected.setdefault(job, found), rtol=1e-9, atol=1e-9)
                done += 1
            gc.collect()
            memory, files = usage()
            start = (memory, files) if start is None else start  # the first lap warms up caches and threads
            say(f"{done} rounds, {memory:.0f} MB, {files} files")
            assert memory - start[0] < MEGABYTES, f"memory grew from {start[0]:.0f} to {memory:.0f} MB"
            assert files - start[1] < FILES, f"open files grew from {start[1]} to {files}"
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    done = soak(60 * given.minutes, say=lambda text: print(f"\r{text}   ", end="", flush=True))
    print(f"\n{done} rounds: no leak, no error, no result that differs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
