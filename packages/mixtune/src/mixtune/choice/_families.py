"""Families of candidates: ways to turn sources into a prior for a domain, each with a path of effective ridges.

* focal only: no source, ridge paths around zero;
* alike: one learned prior for all sources;
* nearest: a learned prior from the sources under which the domain's rows are likeliest;
* similar: a learned prior from the sources whose features are like the domain's;
* groups: two learned priors, weighted by the likelihood of the domain's rows.

The learned ones (:mod:`mixtune.choice._hierarchy`) need few columns. With many columns, or few sources,
:mod:`mixtune.choice._pooled` is used.

Features say where a domain comes from (a market, a camera, a season) even where targets are too few or too noisy to.
The distance is the 2-Wasserstein distance between normal distributions with the domains' means m and covariances S,

    |m_1 - m_2|^2 + tr S_1 + tr S_2 - 2 tr (S_1^{1/2} S_2 S_1^{1/2})^{1/2},

whose second part is the Bures distance of the covariances: sums of the features are all that it needs. Samples of one
distribution are apart by chance already, the more the fewer rows there are: the threshold is a multiple of the least
distance, and of what chance alone makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mixtune.arrays import Array, Floats, namespace
from mixtune.choice._settings import SETTINGS
from mixtune.moments import RANK_TOLERANCE, Batch, Paths, Regression, Sample, roots_of, turned

Label = tuple[str, dict[str, Any]]
#: What a family computed of one task and need not compute again when sources are left out.
Memo = dict[Any, Any]
#: What a memo holds that is the same for any rows of the task; and under which key, which candidates are used at all.
ROW_FREE = ("scores", "distances", "noise", "near", "group")
USED = "used"


@dataclass(frozen=True, eq=False)
class Prior:
    """N(mean, scale covariance) with noise: of the slopes where the intercept is free, else with the intercept last."""

    mean: Floats
    covariance: Floats
    noise: float
    scale: float
    free_intercept: bool


@dataclass(frozen=True, eq=False)
class Fits:
    """What a family makes of a task: paths, weights on the sources (C, N), effective ridges (C,)."""

    paths: Paths
    weights: Floats
    ridges: Floats


class Family(Protocol):
    """Candidates that differ between tasks only through the task's rows; their number and order are fixed."""

    @property
    def labels(self) -> list[Label]: ...

    def fits(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> Fits:
        """Fit a task with the sources where ``allowed`` (N,) is true; one ``memo`` serves one task."""

    def prior(self, task: Sample, allowed: Floats, index: int, memo: Memo | None = None) -> Prior:
        """The prior behind one candidate; ``memo`` is that of the task's fits."""


@dataclass(frozen=True, eq=False)
class FocalFamily:
    """Ridge regression on the task's own rows, its intercept free."""

    n_sources: int

    @property
    def labels(self) -> list[Label]:
        return [("focal only", {"relative ridge": float(ridge)}) for ridge in SETTINGS.focal_ridges]

    def fits(self, task: Sample | Batch, allowed: Floats, memo: Memo | None = None) -> Fits:
        ridges = self._ridges(task)
        unweighted = np.zeros((*ridges.shape, self.n_sources))
        return recalled(memo, "fits", lambda: Fits(task.free.ridge_path(ridges), unweighted, ridges))

    def prior(self, task: Sample, allowed: Floats, index: int, memo: Memo | None = None) -> Prior:
        # Ridge regression is a prior N(0, I/ridge) with unit noise.
        width = task.free.width
        return Prior(np.zeros(width), np.eye(width), 1.0, 1.0 / self._ridges(task)[index], True)

    def _ridges(self, task: Sample | Batch) -> Floats:
        return SETTINGS.focal_ridges * np.asarray(task.free.mean_eigenvalue)[..., None]


def recalled(memo: Memo | None, key: Any, make: Callable[[], Any]) -> Any:
    """What the memo holds under ``key``, made where there is none."""
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    return memo[key]


def evidence(task: Regression, means: Floats, covariances: Floats, noise: Floats | float) -> Floats:
    """Log marginal likelihood of a task's targets under heads N(means[k], covariances[k]), up to a constant."""
    design, targets, rest = task.compressed
    count, variance = targets.shape[-1], np.asarray(noise)[..., None]
    rows = design[..., None, :, :]
    roots = np.linalg.cholesky(rows @ covariances @ turned(rows) + variance[..., None, None] * np.eye(count))
    left = np.linalg.solve(roots, (targets[..., None, :] - means @ turned(design))[..., None])[..., 0]
    spreads = np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(axis=-1)
    rest = np.asarray(rest)[..., None] / variance + (np.asarray(task.total)[..., None] - count) * np.log(variance)
    return -spreads - 0.5 * (np.sum(left**2, axis=-1) + rest)


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

    def distances(self, sample: Sample | Batch) -> Distances:
        """Distances of a domain's features to those of all sources."""
        root = _root(sample, full=self.roots.ndim == 3)[..., None, :]
        total = np.asarray(sample.total)[..., None]
        ours = Inputs(sample.center.features[..., None, :], root, total)
        if self.roots.ndim == 2:
            return marginal_distances(ours, self)
        squares = np.sum((self.means - ours.means) ** 2, axis=-1)
        rows, share = 1.0 / self.totals + 1.0 / total, _share(ours, self)
        # tr (S_1^{1/2} S_2 S_1^{1/2})^{1/2} is the sum of the singular values of L_1' L_2.
        root = np.swapaxes(root, -2, -3)
        common = np.linalg.svd(turned(self.roots) @ root, compute_uv=False).sum(axis=-1)
        traces = np.sum(self.roots**2, axis=(-2, -1)), np.sum(root**2, axis=(-2, -1))
        values = np.sqrt(np.maximum(squares + traces[0] + traces[1] - 2 * common, 0.0))
        pooled = share[..., None] * (root @ turned(root))
        pooled = pooled + (1 - share)[..., None] * (self.roots @ turned(self.roots))
        return Distances(values, np.sqrt(_chance(np.asarray(np.linalg.eigvalsh(pooled), np.float64)) * rows))


def marginal_distances(ours: Inputs, sources: Inputs) -> Distances:
    """Distances where columns are taken to vary independently; domains lie along the axis before the columns."""
    xp = namespace(sources.means)
    squares = xp.sum((sources.means - ours.means) ** 2, axis=-1) + xp.sum((sources.roots - ours.roots) ** 2, axis=-1)
    share = _share(ours, sources)
    variances = share * ours.roots**2 + (1 - share) * sources.roots**2
    # A sample mean varies by variance/n, a sample standard deviation by half of that.
    chance = 1.5 * xp.sum(variances, axis=-1) * (1.0 / sources.totals + 1.0 / ours.totals)
    return Distances(xp.sqrt(squares), xp.sqrt(chance))


def _share(ours: Inputs, sources: Inputs) -> Floats:
    """Our share in what is common to both domains, where nothing differs: the covariance of their rows together."""
    return (ours.totals / (ours.totals + sources.totals))[..., None]


def deviations(means: Array, squares: Array) -> Array:
    """Standard deviations of columns, from their means and mean squares."""
    xp, variances = namespace(means), squares - means**2
    return xp.sqrt(xp.where(variances > RANK_TOLERANCE * squares, variances, xp.zeros_like(variances)))


def _root(sample: Sample | Batch, *, full: bool) -> Floats:
    """The root of the covariance (p, p) of a sample's features, or their standard deviations (p,)."""
    center, spread = sample.center.features, deviations(sample.center.features, sample.squares)
    if not full:
        return spread
    # Columns that do not vary beyond rounding (all of them, in a domain of one row) have no spread at all.
    varies = spread > 0
    covariance = sample.products - center[..., :, None] * center[..., None, :]
    return roots_of(covariance * (varies[..., :, None] & varies[..., None, :]))


def _chance(values: Floats) -> Floats:
    """Expected squared distance (N,) of two samples of one normal distribution, times 1/(1/n + 1/m), to first order.

    ``values`` are eigenvalues (N, p) of its covariance. Means are apart by their sum. An error D of the covariance is
    a distance of ``sum_ij D_ij^2/(2 (a_i + a_j))`` in its eigenbasis, and D_ij has variance a_i a_j (1 + [i = j]).
    """
    values = np.maximum(values, 0.0)
    pairs = values[..., :, None] * values[..., None, :]
    sums = values[..., :, None] + values[..., None, :]
    bures = 0.5 * np.sum(pairs / np.where(sums > 0, sums, 1.0), axis=(-2, -1)) + 0.25 * values.sum(axis=-1)
    return values.sum(axis=-1) + bures


def similar(found: Distances, allowed: Floats) -> Floats:
    """Which of the allowed sources are within the threshold: (N,) of 0 and 1.

    Where a source has fewer rows than the nearest one, chance may take it farther away.

    Examples
    --------
    >>> similar(Distances(np.array([0.5, 1.0, 1.9, 2.1]), np.full(4, 0.1)), np.array([0.0, 1.0, 1.0, 1.0]))
    array([0., 1., 1., 0.])
    """
    usable = allowed > 0
    nearest = np.argmin(np.where(usable, found.values, np.inf), axis=-1)[..., None]
    least, chance = (np.take_along_axis(part, nearest, axis=-1) for part in (found.values, found.chance))
    fewer = np.where(chance > 0, np.maximum(found.chance / np.where(chance > 0, chance, 1.0), 1.0), 1.0)
    reach = SETTINGS.similar_reach * np.maximum(least * fewer, found.chance)
    return (usable & (found.values <= reach)).astype(np.float64)
