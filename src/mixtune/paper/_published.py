"""The figures printed in the paper's Tables 1 and 2, to compare with."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TABLE_1", "TABLE_2", "Published"]

#: Means this close count as agreement even where intervals do not overlap.
CLOSE = 0.015


@dataclass(frozen=True)
class Published:
    """A relative performance with its 95% interval."""

    rp: float
    ci_low: float
    ci_high: float

    def agrees(self, rp: float, ci_low: float, ci_high: float) -> bool:
        """Whether the intervals overlap or the means are close."""
        return (ci_low <= self.ci_high and self.ci_low <= ci_high) or abs(rp - self.rp) <= CLOSE


TABLE_1 = {
    "LO-1": Published(1.000, 0.991, 1.009),
    "LO-2": Published(0.985, 0.977, 0.994),
    "LO-3": Published(0.966, 0.958, 0.973),
    "LO-4": Published(0.975, 0.966, 0.984),
    "LO-5": Published(0.966, 0.957, 0.975),
    "LO-6": Published(0.979, 0.971, 0.988),
    "LO-7": Published(0.978, 0.971, 0.986),
    "LO-8": Published(0.721, 0.711, 0.730),
    "LO-9": Published(0.720, 0.711, 0.729),
    "LO-10": Published(0.706, 0.696, 0.716),
    "LO-11": Published(0.725, 0.715, 0.736),
    "LO-12": Published(0.707, 0.697, 0.716),
    "LO-13": Published(0.718, 0.708, 0.727),
    "MLO": Published(0.823, 0.813, 0.833),
    "JO": Published(0.886, 0.878, 0.894),
    "JSO-{1..7}": Published(1.062, 1.057, 1.067),
    "RO (eta=10)": Published(1.000, 0.990, 1.010),
    "RO (eta=100)": Published(1.090, 1.086, 1.095),
    "RO (eta=500)": Published(1.050, 1.043, 1.057),
    "LO-1 (700 paths)": Published(1.100, 1.097, 1.104),
    "LO-1 (50000 paths)": Published(1.194, 1.192, 1.195),
}

TABLE_2 = {
    "LO-1": Published(1.000, 0.993, 1.007),
    "LO-2": Published(0.773, 0.765, 0.782),
    "LO-3": Published(1.003, 0.994, 1.012),
    "MLO": Published(0.932, 0.920, 0.944),
    "JO": Published(0.763, 0.754, 0.772),
    "RO (eta=10)": Published(0.993, 0.985, 1.000),
    "RO (eta=50)": Published(1.040, 1.034, 1.046),
    "RO (eta=100)": Published(1.040, 1.034, 1.047),
}
