"""Positive targets over orders of magnitude: whether to model their logarithm, and the way back.

The scale is that on which errors are closer to normal, on left-out focal rows and in cross-domain validation. The
exponential of a mean of logarithms is too small for the mean of the targets; Duan's smearing factor, the mean of the
exponentials of left-out residuals, corrects it (Duan, Smearing estimate, J. Am. Stat. Assoc. 78, 1983).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Floats
from mixtune._registry import storable
from mixtune.errors import DataError
from mixtune.moments import Rows, check_target_size
from mixtune.selection import Choice

#: Focal rows that the tests of one validated source count as.
TEST_ROWS = 10.0
#: Largest logarithm of a prediction; beyond, float64 ends.
LARGEST_LOG = 700.0


@storable
@dataclass(frozen=True)
class LogScale:
    """The way back from logarithms to targets: predictions are ``smearing * exp(logarithm)``."""

    smearing: float

    def __post_init__(self) -> None:
        if not (isinstance(self.smearing, float) and 0 < self.smearing < np.inf):
            raise DataError(f"the smearing factor must be a positive number; got {self.smearing!r}")

    @classmethod
    def of(cls, left_out: Floats, weight: Floats) -> LogScale:
        """From left-out residuals of logarithms; rows that cannot be left out do not count."""
        known = np.isfinite(left_out)
        if not known.any():
            return cls(1.0)
        return cls(float(np.average(np.exp(np.minimum(left_out[known], LARGEST_LOG)), weights=weight[known])))

    def predictions(self, logs: Floats) -> Floats:
        """Of the mean of the targets, from predictions of logarithms."""
        return self.smearing * np.exp(np.minimum(logs, LARGEST_LOG))

    def std(self, logs: Floats, std: Floats) -> Floats:
        """Standard deviations of log-normal targets, from those of logarithms."""
        return self.predictions(logs) * np.sqrt(np.expm1(np.minimum(std, 5.0) ** 2))


@dataclass(frozen=True)
class LogTargets:
    """Logarithms of streamed targets."""

    def __call__(self, y: Floats) -> Floats:
        values = np.asarray(y, dtype=np.float64)
        if np.any(values <= 0):
            raise DataError("targets on the log scale must be positive in every row", code="not-positive")
        return np.log(values)


def left_out_targets(logs: Floats, left_out: Floats, weight: Floats) -> Floats:
    """Residuals of left-out targets, from those of their logarithms; the factor comes from the other residuals."""
    back = LogScale.of(left_out, weight)
    known = np.isfinite(left_out)
    found = np.full(np.shape(logs), np.inf)
    found[known] = np.exp(logs[known]) - back.predictions(logs[known] - left_out[known])
    return found


def log_span(rows: Mapping[str, Rows]) -> float:
    """The 95% over the 5% quantile of all targets; 0 where there are several outputs, or some are not positive."""
    parts = [part.targets for part in rows.values()]
    if parts[0].shape[1] > 1 or any(np.min(part) <= 0 for part in parts):
        return 0.0
    low, high = np.quantile(np.concatenate(parts), [0.05, 0.95])
    return float(high / low)


def logged(rows: Mapping[str, Rows]) -> dict[str, Rows]:
    """The same rows with logarithms of the targets. Errors are in units of targets, whose squares must be numbers."""
    check_target_size(np.array([max(float(np.max(part.y)) for part in rows.values())]))
    return {name: Rows(part.X, np.log(part.y), part.sample_weight) for name, part in rows.items()}


def log_is_better(plain: Choice, logs: Choice, targets: Floats, levels: tuple[float, float]) -> bool:
    """Whether left-out targets and tests are likelier with normal errors of their logarithms than of themselves.

    Box and Cox compare scales so (An analysis of transformations, J. R. Stat. Soc. B 26, 1964): with errors of
    logarithms in units of the targets' geometric mean. Squared errors of targets would let the largest few decide.

    Parameters
    ----------
    plain, logs : Choice
        Of fits to targets and to their logarithms.
    targets : array (n,)
        Those of the focal rows.
    levels : (float, float)
        What the targets of both fits lie about.
    """
    weight = logs.focal.known.weight
    evidence = float(weight.sum()) * _evidence(plain.left_out, logs.left_out, np.log(targets), weight)
    before: dict[int, Any] = {task.source: task for task in plain.tasks}
    tasks: Sequence[Any] = logs.tasks
    for task in tasks:
        # Both fits are tested on the same rows, unless ties between rows were broken by the targets.
        if (same := before.get(task.source)) is not None and len(same.weight) == len(task.weight):
            values = task.targets * logs.size + levels[1]
            parts = same.residuals[0] * plain.size, task.residuals[0] * logs.size
            evidence += TEST_ROWS / len(logs.tasks) * logs.n_plays * _evidence(*parts, values, task.weight)
    return evidence > 0


def _evidence(plain: Floats, left: Floats, logs: Floats, weight: Floats) -> float:
    """The mean log likelihood of rows by residuals of logarithms, less that by residuals of targets."""
    usable = np.isfinite(plain) & np.isfinite(left)
    if not usable.any():
        return 0.0
    errors = [np.average(part[usable] ** 2, weights=weight[usable]) for part in (plain, left)]
    if min(errors) <= 0:  # one of them is exact
        return float(np.sign(errors[0] - errors[1]))
    return float(0.5 * np.log(errors[0] / errors[1]) - np.average(logs[usable], weights=weight[usable]))
