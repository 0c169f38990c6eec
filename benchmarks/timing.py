"""How claims are measured: both sides alternate in one process, the best of several rounds counts.

Times are those of the clock on the wall; with ``--cpu``, for a machine that others use, CPU seconds of one thread.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Claim:
    """One measured line: ``ratio`` = ours / other, against its limit. Times in seconds, memory in megabytes."""

    name: str
    ours: float
    other: float
    limit: float
    note: str = ""
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return self.ours / self.other

    @property
    def holds(self) -> bool:
        return self.ratio <= self.limit

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "MISSED"
        sides = f"{self.ours:.4g} {self.unit} against {self.other:.4g} {self.unit}"
        return f"{verdict:6}  {self.name}: ratio {self.ratio:.4g} (limit {self.limit:.4g}); {sides}{self.note}"


@dataclass(frozen=True)
class Figure:
    """Measured numbers that no limit belongs to: points of a curve, constants of a cost model, one size.

    ``kind`` says which of these it is, ``about`` what was measured, ``values`` the numbers by name; the values of a
    curve are a list for each axis.
    """

    kind: str
    about: str
    values: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind:6}  {self.about}: " + ", ".join(f"{name} {_short(v)}" for name, v in self.values.items())


class Clock:
    """What times are taken with."""

    now: Callable[[], float] = staticmethod(time.perf_counter)
    #: What pages say of it; nothing of the clock on the wall.
    words: str | None = None

    @classmethod
    def use_cpu(cls) -> None:
        """Take CPU seconds, and compute in one thread: threads that wait for each other count as well."""
        import scipy.linalg  # noqa: F401 - it has a BLAS library of its own, which is limited only once it is loaded
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=1)
        cls.now, cls.words = staticmethod(time.process_time), "CPU seconds of one thread"


def best_of(ours: Callable[[], object], other: Callable[[], object], *, rounds: int) -> tuple[float, float]:
    """Best times of two functions that take turns, so that a slow moment of the machine hits both."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, function in enumerate((ours, other)):
            begin = Clock.now()
            function()
            best[side] = min(best[side], Clock.now() - begin)
    return best[0], best[1]


def seconds(function: Callable[[], object], *, rounds: int = 1) -> float:
    """Best time of one function."""
    return best_of(function, lambda: None, rounds=rounds)[0]


def peak_bytes(function: Callable[[], object]) -> int:
    """Peak of the memory NumPy and Python allocate during a call."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def own_peak() -> int:
    """Bytes at the peak of this process. What getrusage says may, on Linux, be the peak of the process it came from."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return 1024 * int(found[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def in_own_process(module: str, *arguments: str) -> Any:
    """What ``python -m module`` prints as JSON, for measurements that need a process of their own."""
    command = [sys.executable, "-m", module, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_short(one) for one in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
