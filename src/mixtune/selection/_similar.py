"""Sources whose features are like a domain's: the threshold of Algorithm 1, on distances between moments.

Features say where a domain comes from (a market, a camera, a season) even where targets are too few or too noisy to.
The distance is the 2-Wasserstein distance between normal distributions with the domains' means m and covariances S,

    |m_1 - m_2|^2 + tr S_1 + tr S_2 - 2 tr (S_1^{1/2} S_2 S_1^{1/2})^{1/2},

whose second part is the Bures distance of the covariances: sums of the features are all that it needs. Samples of one
distribution are apart by chance already, the more the fewer rows there are: the threshold is a multiple of the least
distance, and of what chance alone makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune._array import Floats
from mixtune.moments import roots_of
from mixtune.selection._sample import Sample
from mixtune.selection._settings import SETTINGS

__all__ = ["Distances", "Inputs", "similar"]


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances of a domain to the sources (N,), and what chance makes of them (N,)."""

    values: Floats
    chance: Floats


@dataclass(frozen=True, eq=False)
class Inputs:
    """Means (N, p) of the sources' features, roots of their covariances, and the rows (N,) behind them.

    Roots are (N, p, p), or (N, p) where columns are so many that they are taken to vary independently.
    """

    means: Floats
    roots: Floats
    totals: Floats

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Inputs:
        """From the samples' moments."""
        full = samples[0].free.width <= SETTINGS.covariance_columns
        return cls(
            np.stack([sample.center.features for sample in samples]),
            np.stack([_root(sample, full=full) for sample in samples]),
            np.array([sample.total for sample in samples]),
        )

    def distances(self, sample: Sample) -> Distances:
        """Distances of a domain's features to those of all sources."""
        root = _root(sample, full=self.roots.ndim == 3)
        squares = np.sum((self.means - sample.center.features) ** 2, axis=1)
        rows = 1.0 / self.totals + 1.0 / sample.total
        # What is common to both domains, where nothing differs: the covariance of their rows together.
        share = sample.total / (sample.total + self.totals)
        if root.ndim == 1:
            variances = (share * root[:, None] ** 2).T + ((1 - share) * self.roots.T**2).T
            # A sample mean varies by variance/n, a sample standard deviation by half of that.
            chance = 1.5 * variances.sum(axis=1) * rows
            return Distances(np.sqrt(squares + np.sum((self.roots - root) ** 2, axis=1)), np.sqrt(chance))
        # tr (S_1^{1/2} S_2 S_1^{1/2})^{1/2} is the sum of the singular values of L_1' L_2.
        common = np.linalg.svd(self.roots.swapaxes(1, 2) @ root, compute_uv=False).sum(axis=1)
        traces = np.sum(self.roots**2, axis=(1, 2)), np.sum(root**2)
        values = np.sqrt(np.maximum(squares + traces[0] + traces[1] - 2 * common, 0.0))
        pooled = share[:, None, None] * (root @ root.T)
        pooled = pooled + (1 - share)[:, None, None] * (self.roots @ self.roots.swapaxes(1, 2))
        return Distances(values, np.sqrt(_chance(np.linalg.eigvalsh(pooled)) * rows))


def _root(sample: Sample, *, full: bool) -> Floats:
    """The root of the covariance (p, p) of a sample's features, or their standard deviations (p,)."""
    center, moments = sample.center.features, sample.moments
    if full:
        second = moments.gram[:-1, :-1] / sample.total
        return roots_of(second - np.outer(center, center))
    squares = np.diagonal(moments.gram) if moments.rows is None else np.sum(moments.rows[0] ** 2, axis=0)
    return np.sqrt(np.maximum(squares[:-1] / sample.total - center**2, 0.0))


def _chance(values: Floats) -> Floats:
    """Expected squared distance (N,) of two samples of one normal distribution, times 1/(1/n + 1/m), to first order.

    ``values`` are eigenvalues (N, p) of its covariance. Means are apart by their sum. An error D of the covariance is
    a distance of ``sum_ij D_ij^2/(2 (a_i + a_j))`` in its eigenbasis, and D_ij has variance a_i a_j (1 + [i = j]).
    """
    values = np.maximum(values, 0.0)
    pairs = values[:, :, None] * values[:, None]
    sums = values[:, :, None] + values[:, None]
    bures = 0.5 * np.sum(pairs / np.where(sums > 0, sums, 1.0), axis=(1, 2)) + 0.25 * values.sum(axis=1)
    return values.sum(axis=1) + bures


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
