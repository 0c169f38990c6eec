"""How claims are measured: both sides alternate in one process, the best of several rounds counts."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass


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


def best_of(ours: Callable[[], object], other: Callable[[], object], *, rounds: int) -> tuple[float, float]:
    """Best times of two functions that take turns, so that a slow moment of the machine hits both."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for side, function in enumerate((ours, other)):
            begin = time.perf_counter()
            function()
            best[side] = min(best[side], time.perf_counter() - begin)
    return best[0], best[1]


def peak_bytes(function: Callable[[], object]) -> int:
    """Peak of the memory NumPy and Python allocate during a call."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
