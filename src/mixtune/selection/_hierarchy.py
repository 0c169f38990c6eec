"""Learn from the sources how heads vary between domains: a hierarchical normal model by expectation-maximisation.

Heads theta_i ~ N(mu, S), targets of domain i with noise of variance s_i^2. The mean says what the domains share, S in
which directions they differ: ridge in the metric S is exactly the prior of a mixed model with all random slopes. Two
shrinkages of S are of use: one for domains that differ along a few common directions, and one towards a sparse
diagonal, for domains that differ in a few coefficients. Sources of two kinds (one of them misleading, say) are told
apart by a mixture of two such priors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.selection._task import Floats, Task, roots_of

__all__ = ["Groups", "Hierarchy", "Shrinkage", "Sums", "evidence", "find_groups", "learn_hierarchy", "task_noise"]

#: Rows that the common noise counts as, when each domain's noise is estimated.
NOISE_ROWS = 10.0
#: Smallest noise and spread, relative to targets of unit variance.
FLOOR = 1e-10


@dataclass(frozen=True)
class Shrinkage:
    """How a sum M over W domains becomes a covariance: ``(M + diagonal diag(M)/W)/(W + zero + diagonal)``.

    ``zero`` counts domains without any spread, which drives directions without evidence to nothing; ``diagonal``
    counts domains whose coefficients vary independently.
    """

    zero: float
    diagonal: float

    def __call__(self, sums: Floats, count: Floats | float) -> Floats:
        count = np.asarray(count, dtype=np.float64)[..., None, None]
        index = np.arange(sums.shape[-1])
        own = np.zeros_like(sums)
        own[..., index, index] = sums[..., index, index]
        return (sums + self.diagonal * own / count) / (count + self.zero + self.diagonal)


@dataclass(frozen=True, eq=False)
class Sums:
    """Moments of all sources, stacked: grams (N, d, d), crosses (N, d), squares (N,), counts (N,)."""

    grams: Floats
    crosses: Floats
    squares: Floats
    counts: Floats

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Sums:
        return cls(
            np.stack([t.gram for t in tasks]),
            np.stack([t.cross for t in tasks]),
            np.array([t.square for t in tasks]),
            np.array([t.count for t in tasks]),
        )

    @property
    def mean_gram(self) -> Floats:
        return self.grams.sum(axis=0) / self.counts.sum()


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """The learned prior, and what it says about each source.

    Attributes
    ----------
    mean, covariance : arrays (d,) and (d, d)
        mu and S.
    noise, noise_spread : float
        Typical noise variance, and the variance of its logarithm between domains.
    noises : array (N,)
    heads, uncertainties : arrays (N, d) and (N, d, d)
        Posterior means and covariances of the sources' heads.
    shrinkage : Shrinkage
    """

    mean: Floats
    covariance: Floats
    noise: float
    noise_spread: float
    noises: Floats
    heads: Floats
    uncertainties: Floats
    shrinkage: Shrinkage

    def local(self, weights: Floats, tightness: float, pseudo: float) -> tuple[Floats, Floats]:
        """Mean and covariance seen by weights on the sources; ``pseudo`` domains of ``tightness`` S are added."""
        effective = 1.0 / np.sum(weights**2)
        mean = weights @ self.heads
        apart = self.heads - mean
        sums = np.einsum("n,nij->ij", weights, self.uncertainties) + (weights[:, None] * apart).T @ apart
        sums = effective * sums + pseudo * tightness * self.covariance
        return mean, self.shrinkage(sums, effective + pseudo) * (1 + 1 / effective)


def learn_hierarchy(
    sums: Sums, shrinkage: Shrinkage, *, steps: int = 40, centers: Callable[[Floats, Floats], Floats] | None = None
) -> Hierarchy:
    """Expectation-maximisation from a pooled start.

    ``centers`` makes the prior mean of each head (N, d) from all heads and their covariance: by default their mean.
    """
    count, width = sums.crosses.shape
    identity = np.eye(width)
    size = max(np.trace(sums.mean_gram) / width, FLOOR)
    mean = np.linalg.solve(sums.grams.sum(axis=0) + 1e-3 * size * identity, sums.crosses.sum(axis=0))
    noise = max(0.7 * float(_squares(sums, np.tile(mean, (count, 1))).sum() / sums.counts.sum()), FLOOR)
    noises = np.full(count, noise)
    covariance = noise / size * identity
    means = np.broadcast_to(mean, (count, width))
    for _ in range(steps):
        heads, uncertainties = _posteriors(sums.grams, sums.crosses, noises, means, covariance)
        means = np.broadcast_to(heads.mean(axis=0), heads.shape) if centers is None else centers(heads, covariance)
        apart = heads - means
        covariance = shrinkage(uncertainties.sum(axis=0) + apart.T @ apart, float(count))
        left = _squares(sums, heads) + np.einsum("nij,nji->n", sums.grams, uncertainties)
        each = np.maximum(left / sums.counts, FLOOR)
        noise = float(np.exp(np.mean(np.log(each))))
        noises = (each * sums.counts + NOISE_ROWS * noise) / (sums.counts + NOISE_ROWS)
        covariance = covariance + 1e-6 * noise / size * identity
    spread = max(float(np.var(np.log(each)) - np.mean(2 / sums.counts)), 0.01)
    return Hierarchy(means.mean(axis=0), covariance, noise, spread, noises, heads, uncertainties, shrinkage)


@dataclass(frozen=True, eq=False)
class Groups:
    """A mixture of two priors: shares (2,), means (2, d), covariances (2, d, d), memberships (2, N)."""

    shares: Floats
    means: Floats
    covariances: Floats
    memberships: Floats


def find_groups(
    sums: Sums, prior: Hierarchy, *, steps: int = 15, tightness: float = 0.3, pseudo: float = 2.0
) -> Groups:
    """Two groups of sources, started from the sign along the direction in which their heads differ most."""
    count, width = sums.crosses.shape
    gram = sums.mean_gram
    root = np.linalg.cholesky(gram + 1e-9 * max(np.trace(gram), FLOOR) * np.eye(width))
    side = np.linalg.svd((prior.heads - prior.heads.mean(axis=0)) @ root, full_matrices=False)[0][:, 0] > 0
    member = np.where(np.stack([~side, side]), 0.95, 0.05)
    means = member @ prior.heads / member.sum(axis=1, keepdims=True)
    covariances = np.stack([0.5 * prior.covariance] * 2)
    shares = np.full(2, 0.5)
    tiny = 1e-9 * np.trace(prior.covariance) / width * np.eye(width)
    for _ in range(steps):
        inverse = np.linalg.inv(covariances)
        precision = (sums.grams / prior.noises[:, None, None])[None] + inverse[:, None]
        pull = (sums.crosses / prior.noises[:, None])[None] + np.einsum("kij,kj->ki", inverse, means)[:, None]
        uncertainties = np.linalg.inv(precision)
        heads = np.einsum("knij,knj->kni", uncertainties, pull)
        score = 0.5 * (np.linalg.slogdet(inverse)[1][:, None] - np.linalg.slogdet(precision)[1])
        score += 0.5 * np.einsum("kni,kni->kn", pull, heads)
        score -= 0.5 * np.einsum("ki,kij,kj->k", means, inverse, means)[:, None]
        score += np.log(shares)[:, None]
        member = np.exp(score - score.max(axis=0))
        member /= member.sum(axis=0)
        total = member.sum(axis=1) + 1e-9
        shares = (total + 1) / (count + 2)
        means = np.einsum("kn,kni->ki", member, heads) / total[:, None]
        apart = heads - means[:, None]
        spread = np.einsum("kn,knij->kij", member, uncertainties)
        spread += np.einsum("kn,kni,knj->kij", member, apart, apart) + pseudo * tightness * prior.covariance
        covariances = prior.shrinkage(spread, total + pseudo) + tiny
    return Groups(shares, means, covariances, member)


def evidence(task: Task, means: Floats, covariances: Floats, noise: float) -> Floats:
    """Log marginal likelihood of a task's targets under heads N(means[k], covariances[k]), up to a constant."""
    left = task.square - 2 * means @ task.cross + np.einsum("ki,ij,kj->k", means, task.gram, means)
    pull = task.cross - means @ task.gram
    system = np.eye(task.gram.shape[0]) + covariances @ task.gram / noise
    explained = np.einsum("ki,kij,kj->k", pull, np.linalg.solve(system, covariances), pull) / noise
    return -0.5 * (np.linalg.slogdet(system)[1] + (left - explained) / noise + task.count * np.log(noise))


def task_noise(task: Task, prior: Hierarchy) -> float:
    """A task's noise variance: its evidence over a grid, held together by how much noise varies between domains."""
    steps = np.linspace(-3.0, 3.0, 13)
    noises = prior.noise * np.exp(steps)
    # The evidence, for all noises from one eigendecomposition.
    root = roots_of(prior.covariance)
    values, vectors = np.linalg.eigh(root.T @ task.gram @ root)
    left = task.square - 2 * prior.mean @ task.cross + prior.mean @ task.gram @ prior.mean
    pull = (root @ vectors).T @ (task.cross - task.gram @ prior.mean)
    spreads = noises[:, None] + np.maximum(values, 0.0)
    score = -0.5 * (np.log(spreads / noises[:, None]).sum(axis=1) + (left - (pull**2 / spreads).sum(axis=1)) / noises)
    score -= 0.5 * (task.count * np.log(noises) + steps**2 / prior.noise_spread)
    share = np.exp(score - score.max())
    return float(prior.noise * np.exp(share @ steps / share.sum()))


def _posteriors(
    grams: Floats, crosses: Floats, noises: Floats, means: Floats, covariance: Floats
) -> tuple[Floats, Floats]:
    inverse = np.linalg.inv(covariance)
    uncertainties = np.linalg.inv(grams / noises[:, None, None] + inverse)
    heads = np.einsum("nij,nj->ni", uncertainties, crosses / noises[:, None] + means @ inverse)
    return heads, uncertainties


def _squares(sums: Sums, heads: Floats) -> Floats:
    """Sum of squared residuals of each source under its head."""
    curved = np.einsum("ni,nij,nj->n", heads, sums.grams, heads)
    return np.maximum(sums.squares - 2 * np.einsum("ni,ni->n", sums.crosses, heads) + curved, 0.0)
