"""A Monte Carlo mean and how far it may be off, whichever way the paths were drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["SCRAMBLINGS", "Estimate"]

#: Independent randomisations of the Sobol points, from which their standard error is read.
SCRAMBLINGS = 32


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean with its standard error."""

    value: float
    standard_error: float

    @classmethod
    def of(cls, samples: np.ndarray[Any, Any], *, drawn: str = "independent") -> Estimate:
        """The mean of samples whose paths were drawn "independent", "antithetic" or by "sobol" points.

        Antithetic pairs are dependent, and so are the points of one Sobol scrambling: pair means and scramblings' means
        are the independent samples then.
        """
        mean = float(samples.mean())
        if drawn == "antithetic":
            half = len(samples) // 2
            samples = (samples[:half] + samples[half : 2 * half]) / 2
        elif drawn == "sobol":
            samples = np.array([part.mean() for part in np.array_split(samples, SCRAMBLINGS)])
        error = float(samples.std(ddof=1)) / math.sqrt(len(samples)) if len(samples) > 1 else math.inf
        return cls(mean, error)

    @property
    def ci_low(self) -> float:
        return self.value - 1.96 * self.standard_error

    @property
    def ci_high(self) -> float:
        return self.value + 1.96 * self.standard_error
