"""Learn from the sources how heads vary between domains: a hierarchical normal model, and the family that it gives.

Heads theta_i ~ N(mu, S), targets of domain i with noise of variance s_i^2. The mean says what the domains share, S in
which directions they differ: ridge in the metric S is exactly the prior of a mixed model with all random slopes. Two
shrinkages of S are of use: one for domains that differ along a few common directions, and one towards a sparse
diagonal, for domains that differ in a few coefficients. Sources of two kinds (one of them misleading, say) are told
apart by a mixture of two such priors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mixtune.arrays import Floats, Integers
from mixtune.choice._families import Fits, Inputs, Label, Memo, Prior, evidence, recalled, similar
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Batch, Regression, Sample, roots_of, times, turned


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


class StackedMoments(NamedTuple):
    """Moments of all sources, stacked: grams (N, d, d), crosses (N, d), squares (N,), sums of sample weights (N,)."""

    grams: Floats
    crosses: Floats
    squares: Floats
    totals: Floats

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> StackedMoments:
        found = [sample.full for sample in samples]
        grams, crosses = np.stack([r.gram for r in found]), np.stack([r.cross for r in found])
        return cls(grams, crosses, np.array([r.square for r in found]), np.array([r.total for r in found]))

    @property
    def mean_gram(self) -> Floats:
        return self.grams.sum(axis=0) / self.totals.sum()

    def posteriors(self, noises: Floats, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Means (N, d) and covariances (N, d, d) of the sources' heads under the prior N(mean, covariance)."""
        inverse = np.linalg.inv(covariance)
        uncertainties = np.linalg.inv(self.grams / noises[:, None, None] + inverse)
        return times(uncertainties, self.crosses / noises[:, None] + mean @ inverse), uncertainties


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

    def local(self, weights: Floats, spread: float) -> tuple[Floats, Floats]:
        """Mean and covariance seen by weights on the sources; pseudo-domains of covariance ``spread`` S are added."""
        pseudo = SETTINGS.pseudo_domains
        effective = 1.0 / np.sum(weights**2, axis=-1)
        mean = weights @ self.heads
        apart = self.heads - mean[..., None, :]
        sums = np.tensordot(weights, self.uncertainties, 1) + turned(weights[..., None] * apart) @ apart
        grown = np.asarray(effective)[..., None, None]
        sums = grown * sums + pseudo * spread * self.covariance
        return mean, self.shrinkage(sums, effective + pseudo) * (1 + 1 / grown)


def learn_hierarchy(sums: StackedMoments, shrinkage: Shrinkage) -> Hierarchy:
    """Expectation-maximisation from a pooled start."""
    count, width = sums.crosses.shape
    identity = np.eye(width)
    size = max(np.trace(sums.mean_gram) / width, SETTINGS.smallest_variance)
    mean = np.linalg.solve(sums.grams.sum(axis=0) + 1e-3 * size * identity, sums.crosses.sum(axis=0))
    left = float(_squares(sums, np.broadcast_to(mean, (count, width))).sum() / sums.totals.sum())
    noise = max(0.7 * left, SETTINGS.smallest_variance)
    # Sources with fewer rows than columns are fitted exactly, and would say that there is no noise.
    smallest = max(SETTINGS.smallest_noise * left, SETTINGS.smallest_variance)
    noises = np.full(count, noise)
    covariance = noise / size * identity
    for _ in range(SETTINGS.hierarchy_steps):
        heads, uncertainties = sums.posteriors(noises, mean, covariance)
        mean = heads.mean(axis=0)
        apart = heads - mean
        covariance = shrinkage(uncertainties.sum(axis=0) + apart.T @ apart, float(count))
        squares = _squares(sums, heads) + np.einsum("nij,nij->n", sums.grams, uncertainties)
        each = np.maximum(squares / sums.totals, smallest)
        noise = float(np.exp(np.mean(np.log(each))))
        noises = (each * sums.totals + SETTINGS.noise_rows * noise) / (sums.totals + SETTINGS.noise_rows)
        covariance = covariance + 1e-6 * noise / size * identity
    spread = max(float(np.var(np.log(each)) - np.mean(2 / sums.totals)), 0.01)
    return Hierarchy(mean, covariance, noise, spread, noises, heads, uncertainties, shrinkage)


@dataclass(frozen=True, eq=False)
class Groups:
    """A mixture of two priors: shares (2,), means (2, d), covariances (2, d, d), memberships (2, N)."""

    shares: Floats
    means: Floats
    covariances: Floats
    memberships: Floats


def find_groups(sums: StackedMoments, prior: Hierarchy) -> Groups:
    """Two groups of sources, started from the sign along the direction in which their heads differ most."""
    count, width = sums.crosses.shape
    gram = sums.mean_gram
    root = np.linalg.cholesky(gram + 1e-9 * max(np.trace(gram), SETTINGS.smallest_variance) * np.eye(width))
    side = np.linalg.svd((prior.heads - prior.heads.mean(axis=0)) @ root, full_matrices=False)[0][:, 0] > 0
    member = np.where(np.stack([~side, side]), 0.95, 0.05)
    means = member @ prior.heads / member.sum(axis=1, keepdims=True)
    covariances = np.stack([0.5 * prior.covariance] * 2)
    shares = np.full(2, 0.5)
    tiny = 1e-9 * np.trace(prior.covariance) / width * np.eye(width)
    pseudo = SETTINGS.pseudo_domains
    told, toward = sums.grams / prior.noises[:, None, None], sums.crosses / prior.noises[:, None]
    for _ in range(SETTINGS.group_steps):
        inverse = np.linalg.inv(covariances)
        precision = told + inverse[:, None]
        pull = toward + np.einsum("kij,kj->ki", inverse, means)[:, None]
        uncertainties = np.linalg.inv(precision)
        heads = times(uncertainties, pull)
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
        spread = np.einsum("kn,knij->kij", member, uncertainties) + turned(member[..., None] * apart) @ apart
        spread += pseudo * SETTINGS.group_spread * prior.covariance
        covariances = prior.shrinkage(spread, total + pseudo) + tiny
    return Groups(shares, means, covariances, member)


def task_noise(task: Regression, prior: Hierarchy) -> Floats:
    """A task's noise variance: its evidence over a grid, held together by how much noise varies between domains."""
    steps = np.linspace(-3.0, 3.0, 13)
    noises = prior.noise * np.exp(steps)
    # The evidence, for all noises from one eigendecomposition.
    design, targets, rest = task.compressed
    values, vectors = np.linalg.eigh(design @ prior.covariance @ turned(design))
    left = turned(vectors) @ (targets - design @ prior.mean)[..., None]
    spreads = noises[:, None] + np.maximum(values, 0.0)[..., None, :]
    score = -0.5 * (np.log(spreads) + turned(left**2) / spreads).sum(axis=-1)
    left_over, spare = np.asarray(rest)[..., None], np.asarray(task.total)[..., None] - targets.shape[-1]
    score -= 0.5 * (left_over / noises + spare * np.log(noises) + steps**2 / prior.noise_spread)
    share = np.exp(score - score.max(axis=-1, keepdims=True))
    return prior.noise * np.exp(share @ steps / share.sum(axis=-1))


def _squares(sums: StackedMoments, heads: Floats) -> Floats:
    """Sum of squared residuals of each source under its head."""
    # A product for each source is faster than one sum over three factors.
    return np.maximum(sums.squares + np.einsum("ni,ni->n", times(sums.grams, heads) - 2 * sums.crosses, heads), 0.0)


@dataclass(frozen=True, eq=False)
class LearnedFamily:
    """Priors whose covariance between domains is learned from the sources.

    ``full`` keeps how coefficients vary together, ``sparse`` hardly: domains that differ in a few coefficients.
    """

    full: Hierarchy
    sparse: Hierarchy
    groups: Groups | None
    inputs: Inputs

    @classmethod
    def learn(cls, sources: Sequence[Sample]) -> LearnedFamily:
        """Learn from the sources' moments."""
        sums, count = StackedMoments.of(sources), len(sources)
        full = learn_hierarchy(sums, Shrinkage(zero=min(count / 2, 32.0), diagonal=3.0))
        sparse = learn_hierarchy(sums, Shrinkage(zero=float(np.clip(count / 4, 8, 16)), diagonal=30.0))
        inputs = Inputs.of(sources)
        groups = find_groups(sums, sparse) if count >= SETTINGS.grouped_sources else None
        return cls(full, sparse, groups, inputs)

    @property
    def labels(self) -> list[Label]:
        kinds: list[Label] = [("alike", {}), ("nearest", {}), ("similar", {"distance": SETTINGS.similar_reach})]
        if self.groups is not None:
            kinds.append(("groups", {}))
        return [(family, settings | {"scale": float(q)}) for family, settings in kinds for q in SETTINGS.learned_scales]

    def fits(self, task: Sample | Batch, allowed: Floats, memo: Memo | None = None) -> Fits:
        noise, weights, means, covariances = self._priors(task, allowed, memo)
        scales, variance = SETTINGS.learned_scales, np.asarray(noise)[..., None]
        heads, leverages = task.full.prior_paths(means, roots_of(covariances), noise, scales)
        spreads = _mean_variance(covariances, task.intercept)[..., None] * scales
        ridges = variance / spreads.reshape(*spreads.shape[:-2], -1)
        weights = np.repeat(weights, len(scales), axis=-2)
        if self.groups is not None:
            groups = self.groups
            share, member, group = self._grouped(task, allowed, noise, memo)
            both = recalled(
                memo, "groups", lambda: task.full.prior_paths(groups.means, roots_of(groups.covariances), noise, scales)
            )
            mixed = [_mixed(share, part, len(scales)) for part in both]
            heads, leverages = (np.concatenate(pair, axis=-2) for pair in zip((heads, leverages), mixed))
            member = np.repeat(member[..., None, :], len(scales), axis=-2)
            weights = np.concatenate([weights, member], axis=-2)
            likelier = _mean_variance(groups.covariances, task.intercept)[group]
            ridges = np.concatenate([ridges, variance / (likelier[..., None] * scales)], axis=-1)
        return Fits(task.full.finish(heads, leverages), weights, ridges)

    def prior(self, task: Sample, allowed: Floats, index: int, memo: Memo | None = None) -> Prior:
        noise, _, means, covariances = self._priors(task, allowed, memo)
        kind, place = divmod(index, len(SETTINGS.learned_scales))
        scale = float(SETTINGS.learned_scales[place])
        if kind < len(means):
            return Prior(means[kind], covariances[kind], float(noise), scale, False)
        assert self.groups is not None
        group = int(self._grouped(task, allowed, noise, memo)[2])
        return Prior(self.groups.means[group], self.groups.covariances[group], float(noise), scale, False)

    def _priors(
        self, task: Sample | Batch, allowed: Floats, memo: Memo | None = None
    ) -> tuple[Floats, Floats, Floats, Floats]:
        full, sparse = self.full, self.sparse
        noise = recalled(memo, "noise", lambda: task_noise(task.full, full))
        count = allowed.sum(axis=-1, keepdims=True)
        equal = allowed / count
        found = [(equal, equal @ sparse.heads, sparse.covariance * (1 + 1 / count[..., None]))]
        near = _softmax(recalled(memo, "near", lambda: _source_evidence(task, full, noise)), allowed)
        found.append((near, *full.local(near, SETTINGS.nearest_spread)))
        like = similar(recalled(memo, "distances", lambda: self.inputs.distances(task)), allowed)
        like /= like.sum(axis=-1, keepdims=True)
        found.append((like, *sparse.local(like, SETTINGS.similar_spread)))
        weights, means, covariances = zip(*found)
        return noise, np.stack(weights, axis=-2), np.stack(means, axis=-2), np.stack(covariances, axis=-3)

    def _grouped(
        self, task: Sample | Batch, allowed: Floats, noise: Floats, memo: Memo | None = None
    ) -> tuple[Floats, Floats, Integers]:
        """Shares of the two groups, the weights on sources they amount to, and the likelier group."""
        groups = self.groups
        assert groups is not None
        likely = recalled(memo, "group", lambda: evidence(task.full, groups.means, groups.covariances, noise))
        share = _softmax(likely + np.log(groups.shares), np.ones(2))
        member = groups.memberships * allowed[..., None, :]
        member /= np.maximum(member.sum(axis=-1, keepdims=True), 1e-300)
        member = (share[..., None, :] @ member)[..., 0, :]
        return share, member / np.maximum(member.sum(axis=-1, keepdims=True), 1e-300), np.argmax(share, axis=-1)


def _source_evidence(task: Sample | Batch, prior: Hierarchy, noise: Floats) -> Floats:
    """Log marginal likelihood of the task's targets under each source's own head, with some spread about it."""
    return evidence(task.full, prior.heads, prior.uncertainties + SETTINGS.nearest_spread * prior.covariance, noise)


def _mixed(share: Floats, paths: Floats, points: int) -> Floats:
    """The average (Q, m) of the paths (2 Q, m) of two groups."""
    both = paths.reshape(*paths.shape[:-2], 2, -1)
    return (share[..., None, :] @ both).reshape(*paths.shape[:-2], points, paths.shape[-1])


def _softmax(score: Floats, allowed: Floats) -> Floats:
    score = np.where(allowed > 0, score, -np.inf)
    share = np.exp(score - score.max(axis=-1, keepdims=True))
    return share / share.sum(axis=-1, keepdims=True)


def _mean_variance(covariances: Floats, intercept: bool) -> Floats:
    variances = np.diagonal(covariances, axis1=-2, axis2=-1)[..., : -1 if intercept else None]
    if variances.shape[-1] == 0:
        return np.ones(variances.shape[:-1])
    return np.maximum(variances.mean(axis=-1), 1e-300)
