"""Learn from the sources how heads vary between domains: a hierarchical normal model, and the family that it gives.

Heads theta_i ~ N(mu, S), targets of domain i with noise of variance s_i^2. The mean says what the domains share, S in
which directions they differ: ridge in the metric S is exactly the prior of a mixed model with all random slopes. Two
shrinkages of S are of use: one for domains that differ along a few common directions, and one towards a sparse
diagonal, for domains that differ in a few coefficients. Sources of two kinds (one of them misleading, say) are told
apart by a mixture of two such priors.

The prior mean may depend on what a domain is like. Quarters with large houses, schools with able pupils: how targets
depend on features often goes with what the features of a domain are like on average, which is known before any of its
targets. So heads are theta_i ~ N(mu + Gamma c_i, S), where c_i are the mean features of domain i in units of their
spread between domains, shrunk by how well its rows determine them. Every row of Gamma has a ridge of its own, learned
together with S: one that explains nothing goes to 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mixtune._array import Floats, Integers
from mixtune.moments import Batch, Regression, Sample, roots_of, turned
from mixtune.selection._families import Fits, Inputs, Label, Memo, Prior, evidence, recalled, similar
from mixtune.selection._settings import SETTINGS


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

    def posteriors(self, noises: Floats, means: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """Means (N, d) and covariances (N, d, d) of the sources' heads under the priors N(means, covariance)."""
        inverse = np.linalg.inv(covariance)
        uncertainties = np.linalg.inv(self.grams / noises[:, None, None] + inverse)
        heads = np.einsum("nij,nj->ni", uncertainties, self.crosses / noises[:, None] + means @ inverse)
        return heads, uncertainties


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


def learn_hierarchy(
    sums: StackedMoments, shrinkage: Shrinkage, *, centers: Callable[[Floats, Floats], Floats] | None = None
) -> Hierarchy:
    """Expectation-maximisation from a pooled start.

    ``centers`` makes the prior mean of each head (N, d) from all heads and their covariance: by default their mean.
    """
    count, width = sums.crosses.shape
    identity = np.eye(width)
    size = max(np.trace(sums.mean_gram) / width, SETTINGS.smallest_variance)
    mean = np.linalg.solve(sums.grams.sum(axis=0) + 1e-3 * size * identity, sums.crosses.sum(axis=0))
    means = np.broadcast_to(mean, (count, width))
    left = float(_squares(sums, means).sum() / sums.totals.sum())
    noise = max(0.7 * left, SETTINGS.smallest_variance)
    # Sources with fewer rows than columns are fitted exactly, and would say that there is no noise.
    smallest = max(SETTINGS.smallest_noise * left, SETTINGS.smallest_variance)
    noises = np.full(count, noise)
    covariance = noise / size * identity
    for _ in range(SETTINGS.hierarchy_steps):
        heads, uncertainties = sums.posteriors(noises, means, covariance)
        means = np.broadcast_to(heads.mean(axis=0), heads.shape) if centers is None else centers(heads, covariance)
        apart = heads - means
        covariance = shrinkage(uncertainties.sum(axis=0) + apart.T @ apart, float(count))
        squares = _squares(sums, heads) + np.einsum("nij,nji->n", sums.grams, uncertainties)
        each = np.maximum(squares / sums.totals, smallest)
        noise = float(np.exp(np.mean(np.log(each))))
        noises = (each * sums.totals + SETTINGS.noise_rows * noise) / (sums.totals + SETTINGS.noise_rows)
        covariance = covariance + 1e-6 * noise / size * identity
    spread = max(float(np.var(np.log(each)) - np.mean(2 / sums.totals)), 0.01)
    return Hierarchy(means.mean(axis=0), covariance, noise, spread, noises, heads, uncertainties, shrinkage)


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
    for _ in range(SETTINGS.group_steps):
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
        spread += np.einsum("kn,kni,knj->kij", member, apart, apart) + pseudo * SETTINGS.group_spread * prior.covariance
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
    curved = np.einsum("ni,nij,nj->n", heads, sums.grams, heads)
    return np.maximum(sums.squares - 2 * np.einsum("ni,ni->n", sums.crosses, heads) + curved, 0.0)


@dataclass(frozen=True, eq=False)
class Descriptions:
    """How a domain's mean features become numbers of order one.

    Attributes
    ----------
    center, between, within : arrays (p,)
        Mean of the sources' means; variance between sources, and within them.
    """

    center: Floats
    between: Floats
    within: Floats

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Descriptions:
        """Learn from the sources' features."""
        means = np.stack([sample.center.features for sample in samples])
        within = np.mean([np.diagonal(sample.free.gram) / sample.total for sample in samples], axis=0)
        # What the means of few rows vary by chance.
        chance = within * np.mean([1.0 / sample.total for sample in samples])
        between = np.maximum(means.var(axis=0) - chance, SETTINGS.least_between * within)
        return cls(means.mean(axis=0), np.where(between > 0, between, 1.0), within)

    def __call__(self, sample: Sample | Batch) -> Floats:
        """``(1, c)`` of a domain: (p + 1,)."""
        reliability = self.between / (self.between + self.within / np.asarray(sample.total)[..., None])
        described = (sample.center.features - self.center) / np.sqrt(self.between) * reliability
        return np.concatenate([np.ones((*described.shape[:-1], 1)), described], axis=-1)


@dataclass(frozen=True, eq=False)
class Context:
    """The learned prior N(mu + Gamma c, S).

    Attributes
    ----------
    descriptions : Descriptions
    design : array (N, p + 1)
        ``(1, c_i)`` of the sources.
    ridges : array (d,)
        Of each row of Gamma.
    hierarchy : Hierarchy
        Posterior heads of the sources, and S.
    """

    descriptions: Descriptions
    design: Floats
    ridges: Floats
    hierarchy: Hierarchy

    @classmethod
    def learn(cls, samples: Sequence[Sample], sums: StackedMoments, shrinkage: Shrinkage) -> Context:
        """Learn Gamma along with the covariance."""
        descriptions = Descriptions.of(samples)
        regression = _Regression(np.stack([descriptions(sample) for sample in samples]), sums.crosses.shape[1])
        hierarchy = learn_hierarchy(sums, shrinkage, centers=regression)
        return cls(descriptions, regression.design, regression.ridges, hierarchy)

    def prior(self, sample: Sample | Batch, allowed: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights on the sources (N,), mean (d,) and covariance (d, d) for a domain, from the allowed sources.

        A prediction of the regression is a weighted sum of the sources' heads, with weights for each coefficient; what
        is given are their averages, none below zero.
        """
        described = self.descriptions(sample)
        used = self.design * allowed[..., None]
        system = (turned(used) @ self.design)[..., None, :, :] + _penalties(self.ridges, described.shape[-1] - 1)
        solved = np.linalg.solve(system, described[..., None, :, None])[..., 0]
        weights = solved @ turned(used)
        mean = np.einsum("...rn,nr->...r", weights, self.hierarchy.heads)
        # As a new observation's variance in any regression: 1 + leverage.
        grown = np.sqrt(1.0 + np.maximum((solved @ described[..., None])[..., 0], 0.0))
        share = np.maximum(weights.mean(axis=-2), 0.0)
        share /= share.sum(axis=-1, keepdims=True)
        return share, mean, self.hierarchy.covariance * (grown[..., :, None] * grown[..., None, :])


class _Regression:
    """Heads on descriptions, in each step of expectation-maximisation, with ridges that are learned on the way."""

    def __init__(self, design: Floats, width: int) -> None:
        self.design, self.ridges = design, np.full(width, SETTINGS.context_ridge)

    def __call__(self, heads: Floats, covariance: Floats) -> Floats:
        """Prior means (N, d) of the heads."""
        count = self.design.shape[1] - 1
        inverse = np.linalg.inv(self.design.T @ self.design + _penalties(self.ridges, count))
        gamma = np.einsum("rij,jr->ri", inverse, self.design.T @ heads)
        # E|gamma_r|^2 in units of the variance of coefficient r is what its ridge stands for.
        variance = np.maximum(np.diagonal(covariance), 1e-300)
        square = np.sum(gamma[:, 1:] ** 2, axis=1) / variance + np.trace(inverse[:, 1:, 1:], axis1=1, axis2=2)
        self.ridges = np.clip(count / np.maximum(square, 1e-300), *SETTINGS.context_ridge_range)
        return self.design @ gamma.T


def _penalties(ridges: Floats, count: int) -> Floats:
    """Ridges on all but the constant: (d, count + 1, count + 1)."""
    return ridges[:, None, None] * np.diag([0.0] + [1.0] * count)


@dataclass(frozen=True, eq=False)
class LearnedFamily:
    """Priors whose covariance between domains is learned from the sources.

    ``full`` keeps how coefficients vary together, ``sparse`` hardly: domains that differ in a few coefficients.
    """

    full: Hierarchy
    sparse: Hierarchy
    groups: Groups | None
    context: Context | None
    inputs: Inputs

    @classmethod
    def learn(cls, sources: Sequence[Sample]) -> LearnedFamily:
        """Learn from the sources' moments."""
        sums, count = StackedMoments.of(sources), len(sources)
        full = learn_hierarchy(sums, Shrinkage(zero=min(count / 2, 32.0), diagonal=3.0))
        sparse = learn_hierarchy(sums, Shrinkage(zero=float(np.clip(count / 4, 8, 16)), diagonal=30.0))
        inputs = Inputs.of(sources)
        if count < SETTINGS.grouped_sources:
            return cls(full, sparse, None, None, inputs)
        # Without an intercept, features are not taken about their means, and neither are domains told apart by them.
        context = Context.learn(sources, sums, sparse.shrinkage) if sources[0].intercept else None
        return cls(full, sparse, find_groups(sums, sparse), context, inputs)

    @property
    def labels(self) -> list[Label]:
        kinds: list[Label] = [("alike", {}), ("nearest", {}), ("similar", {"distance": SETTINGS.similar_reach})]
        if self.context is not None:
            kinds.append(("context", {}))
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
        if self.context is not None:
            found.append(self.context.prior(task, allowed))
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
