"""Sources whose features are like the task's: the threshold of Algorithm 1, on 1-Wasserstein distances.

Features say where a domain comes from (a market, a camera, a season) even where targets are too few or too noisy to.
Two samples of equal size are as far apart as the best assignment of one's rows to the other's costs, which takes tens
of microseconds for the tens of rows that do here. Samples of one distribution are apart by chance already, the more the
fewer rows there are: the threshold is a multiple of the least distance, and of what chance alone makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mixtune._array import Floats
from mixtune.selection._sample import Sample
from mixtune.selection._settings import SETTINGS

__all__ = ["Distances", "Inputs", "similar"]

#: Rows to tell by where a domain's features lie.
SAMPLE_ROWS = 32
#: With more sources than this, every other row of the samples does.
MANY = 12


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances of a task to the sources (N,), and a lower bound on what chance makes of them (N,)."""

    values: Floats
    chance: Floats


@dataclass(frozen=True, eq=False)
class Inputs:
    """Samples (N, m, p) of the sources' features, and from how many rows each."""

    samples: Floats
    counts: Floats

    @classmethod
    def of(cls, sources: Sequence[Sample]) -> Inputs:
        return cls(np.stack([_sampled(source) for source in sources]), np.array([source.total for source in sources]))

    def distances(self, task: Sample) -> Distances:
        """1-Wasserstein distances of the samples of features.

        On the line, samples of n and m rows with spread s are apart by about 1.5 s sqrt(1/n + 1/m) where nothing
        differs; in more dimensions by more.
        """
        step = 2 if len(self.samples) > MANY else 1
        rows = _sampled(task)[::step]
        spread = float(np.mean(np.linalg.norm(rows - rows.mean(axis=0), axis=1)))
        few = 1.0 / np.minimum(self.counts, SAMPLE_ROWS // step) + 1.0 / min(task.total, SAMPLE_ROWS // step)
        others = self.samples[:, ::step]
        costs = cdist(rows, np.concatenate(others)).reshape(len(rows), *others.shape[:2])
        values = np.array([cost[linear_sum_assignment(cost)].sum() / len(rows) for cost in np.swapaxes(costs, 0, 1)])
        return Distances(values, 1.5 * spread * np.sqrt(few))


def similar(found: Distances, allowed: Floats) -> Floats:
    """Which of the allowed sources are within the threshold: (N,) of 0 and 1.

    Where a source has fewer rows than the nearest one, chance may take it farther away.

    Examples
    --------
    >>> similar(Distances(np.array([0.5, 1.0, 1.9, 2.1]), np.full(4, 0.1)), np.array([0.0, 1.0, 1.0, 1.0]))
    array([0., 1., 1., 0.])
    """
    usable = allowed > 0
    nearest = int(np.argmin(np.where(usable, found.values, np.inf)))
    fewer = np.maximum(found.chance / found.chance[nearest], 1.0) if found.chance[nearest] > 0 else 1.0
    reach = SETTINGS.similar_reach * np.maximum(found.values[nearest] * fewer, found.chance)
    return (usable & (found.values <= reach)).astype(np.float64)


def _sampled(sample: Sample) -> Floats:
    """Features of ``SAMPLE_ROWS`` rows at even quantiles along a direction that tells any two rows apart."""
    features, weight = sample.known.X, sample.known.weight
    order = np.argsort(features @ np.sin(1.0 + np.arange(features.shape[1])), kind="stable")
    reached = np.cumsum(weight[order])
    places = (np.arange(SAMPLE_ROWS) + 0.5) / SAMPLE_ROWS * reached[-1]
    return features[order[np.minimum(np.searchsorted(reached, places), len(order) - 1)]]
