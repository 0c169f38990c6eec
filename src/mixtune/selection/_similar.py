"""Sources whose features are like the task's: the threshold of Algorithm 1, on 1-Wasserstein distances.

Features say where a domain comes from (a market, a camera, a season) even where targets are too few or too noisy to.
Two samples of equal size are as far apart as the best assignment of one's rows to the other's costs, which takes
microseconds for the tens of rows that do here. Samples of one distribution are apart by chance already; the threshold
is therefore a multiple of the least distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mixtune.selection._task import Floats, Task

__all__ = ["THRESHOLD", "Inputs", "similar"]

#: Sources count up to this multiple of the least distance.
THRESHOLD = 2.0


@dataclass(frozen=True, eq=False)
class Inputs:
    """Samples (m_i, p) of the sources' features."""

    samples: tuple[Floats, ...]

    @classmethod
    def of(cls, sources: Sequence[Task]) -> Inputs:
        return cls(tuple(source.sample for source in sources))

    def distances(self, task: Task) -> Floats:
        """1-Wasserstein distance of the task's features to each source's (N,), from as many rows of both."""
        return np.array([_distance(task.sample, other) for other in self.samples])


def similar(distances: Floats, allowed: Floats) -> Floats:
    """Which of the allowed sources are within the threshold: (N,) of 0 and 1.

    Examples
    --------
    >>> similar(np.array([0.5, 1.0, 1.9, 2.1]), np.array([0.0, 1.0, 1.0, 1.0]))
    array([0., 1., 1., 0.])
    """
    least = float(np.min(distances[allowed > 0]))
    return ((allowed > 0) & (distances <= THRESHOLD * least)).astype(np.float64)


def _distance(first: Floats, second: Floats) -> float:
    count = min(len(first), len(second))
    cost = cdist(first[:count], second[:count])
    return float(cost[linear_sum_assignment(cost)].mean())
