"""The choice when only sums over all sources are known: how sources differ is learned from sums over posteriors.

Heads theta_i ~ N(mu, S) as in :mod:`mixtune.choice._hierarchy`, but expectation-maximisation takes one pass: each
source computes its posterior from a pooled start under several sizes of S, and the size under which the targets of all
sources together are likeliest gives mu and S. Candidates are the fit to a domain's own rows, this prior, and pooled
priors from the sum of all sources. In validation a source takes its own part out of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mixtune.arrays import Floats
from mixtune.choice._choose import Choice, Plan, Pool, by_content, choose, joined_paths, target_scale
from mixtune.choice._families import Fits, FocalFamily, Label, Memo, Prior, evidence
from mixtune.choice._hierarchy import Hierarchy, Shrinkage, task_noise
from mixtune.choice._model_averaging import (
    SummedTask,
    ValidationTask,
    focal_only_best,
    negligible_error,
    robust_errors,
)
from mixtune.choice._pooled import PooledFamily
from mixtune.choice._remote import common_mean
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Moments, Origin, Rows, Sample, roots_of

#: Sizes of S that are tried, relative to what the noise of one row amounts to.
SIZES = np.logspace(-3, 2, 11)


@dataclass(frozen=True, eq=False)
class PooledStart:
    """What every source starts from: the pooled head (d,), typical noise, and the mean eigenvalue of the features."""

    mean: Floats
    noise: float
    size: float

    @classmethod
    def of(cls, total: Sample) -> PooledStart:
        """From the sum of all sources."""
        full = total.full
        width = len(full.cross)
        size = max(float(np.trace(full.gram)) / (width * full.total), SETTINGS.smallest_variance)
        mean = np.linalg.solve(full.gram + 1e-3 * size * np.eye(width), full.cross)
        left = max(float(full.square - 2 * full.cross @ mean + mean @ full.gram @ mean), 0.0) / full.total
        return cls(np.asarray(mean, np.float64), max(0.7 * left, SETTINGS.smallest_variance), size)

    def posteriors(self, source: Sample) -> SourceTerms:
        """What one source adds to the sums, for each size of S."""
        full, width = source.full, len(self.mean)
        heads, seconds, likely = [], [], []
        for scale in SIZES:
            variance, noise = scale * self.noise / self.size, self.noise
            for _ in range(2):
                known = np.linalg.inv(full.gram / noise + np.eye(width) / variance)
                head = known @ (full.cross / noise + self.mean / variance)
                left = full.square - 2 * full.cross @ head + head @ full.gram @ head + np.trace(full.gram @ known)
                each = max(float(left) / full.total, SETTINGS.smallest_noise * self.noise)
                rows = SETTINGS.noise_rows
                noise = (each * full.total + rows * self.noise) / (full.total + rows)
            heads.append(head)
            seconds.append(np.outer(head, head) + known)
            likely.append(float(evidence(full, self.mean[None], variance * np.eye(width)[None], noise)[0]))
        return SourceTerms(np.stack(heads), np.stack(seconds), np.array(likely), float(np.log(noise)), 1)


@dataclass(frozen=True, eq=False)
class SourceTerms:
    """Sums over ``count`` sources, for each size of S: heads (G, d), second moments (G, d, d), log evidence (G,).

    ``log_noise`` is the sum of the logarithms of their noise.
    """

    heads: Floats
    seconds: Floats
    evidence: Floats
    log_noise: float
    count: int

    @classmethod
    def blank(cls, width: int) -> SourceTerms:
        """The sums over no source, for ``width`` coefficients."""
        sizes = len(SIZES)
        return cls(np.zeros((sizes, width)), np.zeros((sizes, width, width)), np.zeros(sizes), 0.0, 0)

    def __add__(self, other: SourceTerms) -> SourceTerms:
        heads, seconds = self.heads + other.heads, self.seconds + other.seconds
        likely, noise = self.evidence + other.evidence, self.log_noise + other.log_noise
        return SourceTerms(heads, seconds, likely, noise, self.count + other.count)

    def __sub__(self, other: SourceTerms) -> SourceTerms:
        heads, seconds = self.heads - other.heads, self.seconds - other.seconds
        likely, noise = self.evidence - other.evidence, self.log_noise - other.log_noise
        return SourceTerms(heads, seconds, likely, noise, self.count - other.count)

    def prior(self) -> Hierarchy:
        """mu and S under the size that makes the targets of all sources likeliest."""
        best = int(np.argmax(self.evidence))
        mean = self.heads[best] / self.count
        apart = self.seconds[best] - self.count * np.outer(mean, mean)
        shrinkage = Shrinkage(zero=float(np.clip(self.count / 4, 8, 16)), diagonal=30.0)
        noise = float(np.exp(self.log_noise / self.count))
        tiny = 1e-6 * np.trace(apart) / len(mean) * np.eye(len(mean))
        covariance = shrinkage((apart + apart.T) / 2 + tiny, float(self.count)) * (1 + 1 / self.count)
        values, vectors = np.linalg.eigh(covariance)
        # Taking one source out of sums that were rounded may leave directions below zero.
        covariance = (vectors * np.maximum(values, 1e-9 * values[-1])) @ vectors.T
        none = np.empty(0)
        return Hierarchy(mean, covariance, noise, 0.25, none, none, none, shrinkage)


@dataclass(frozen=True, eq=False)
class SummedFamily:
    """One learned prior for all sources, from sums."""

    learned: Hierarchy

    @property
    def labels(self) -> list[Label]:
        return [("alike", {"scale": float(scale)}) for scale in SETTINGS.learned_scales]

    def fits(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> Fits:
        learned, scales = self.learned, SETTINGS.learned_scales
        noise = task_noise(task.full, learned)
        covariance = learned.covariance[None]
        heads, leverages = task.full.prior_paths(learned.mean[None], roots_of(covariance), noise, scales)
        spread = max(float(np.mean(np.diagonal(learned.covariance)[:-1])), 1e-300)
        return Fits(task.full.finish(heads, leverages), np.ones((len(scales), 1)), noise / (scales * spread))

    def prior(self, task: Sample, allowed: Floats, index: int, memo: Memo | None = None) -> Prior:
        learned, scale = self.learned, float(SETTINGS.learned_scales[index])
        return Prior(learned.mean, learned.covariance, float(task_noise(task.full, learned)), scale, False)


def summed_pool(total: Sample, terms: SourceTerms | None) -> Pool:
    """Candidates from the sum of all sources and, where they are known, sums over their posteriors."""
    learned = [] if terms is None else [SummedFamily(terms.prior())]
    return Pool((FocalFamily(1), *learned, PooledFamily.learn([total])), total.columns)


@dataclass(frozen=True, eq=False)
class SummedSources:
    """What all sources know of the sum of their moments: it, the common mean, and what targets are divided by."""

    total: Moments
    mean: Origin
    size: float

    @classmethod
    def of(cls, focal: Rows, total: Moments) -> SummedSources:
        """From focal rows and the sum of the moments of ``[U, 1]`` of all sources."""
        whole = cls(total, common_mean(focal, [total], Origin.zero(focal.shape[1])), 1.0)
        return replace(whole, size=target_scale([whole.sample(focal), whole.near]))

    @staticmethod
    def no_terms(width: int) -> SourceTerms:
        """Sums over the posteriors of no source, for ``width`` coefficients."""
        return SourceTerms.blank(width)

    @staticmethod
    def candidates() -> int:
        """How many candidates there are."""
        width = 2
        unit = Sample(Moments(9, 3.0 * np.eye(width), np.zeros(width), 9.0))
        blank = SourceTerms.blank(width)
        terms = replace(blank, seconds=np.tile(np.eye(width), (len(SIZES), 1, 1)), count=1)
        return len(summed_pool(unit, terms).labels)

    @cached_property
    def near(self) -> Sample:
        """The sum about the common mean, targets divided."""
        zero = Origin.zero(len(self.mean.features))
        return Sample(zero.move(self.total, self.mean)).divided(self.size)

    def sample(self, rows: Rows) -> Sample:
        """Rows of one domain likewise."""
        return Sample.of(self.mean.rows(rows)).divided(self.size)

    def terms(self, rows: Rows) -> SourceTerms:
        """What one source adds to the sums over posteriors."""
        return PooledStart.of(self.near).posteriors(self.sample(rows))

    @staticmethod
    def spares(rows: int, count: int) -> bool:
        """Whether so many rows are enough to learn from ``count`` of them and to test on others."""
        return rows >= count + max(8, count // 4)

    def play(self, rows: Rows, terms: SourceTerms, count: int, seed: int) -> SummedTask | None:
        """One validation task of a source, without its own part of the sums; None where it has no rows to spare.

        ``rows`` are all rows of the source, ``terms`` the sums over all sources, and ``count`` is how many rows the
        focal domain has.
        """
        own = self.sample(rows)
        if not self.spares(len(own.known.y), count):
            return None
        others = terms - PooledStart.of(self.near).posteriors(own)
        rest = Sample(self.near.moments - own.moments.without_rows())
        order = np.random.default_rng([seed, len(own.known.y)]).permutation(by_content(own.known))
        task, test = own.part(order[:count]), own.known.part(order[count : count + SETTINGS.test_rows])
        pool = summed_pool(rest, others)
        heads, left_out, _ = joined_paths(pool.fits(task, np.ones(1)))
        negligible = negligible_error(task)
        alone = focal_only_best(pool.labels, robust_errors(left_out, task.known.weight, negligible))
        residuals = test.y - (heads[:, :-1] @ test.X.T + heads[:, -1:])
        return SummedTask.of(ValidationTask(0, residuals, test.weight, left_out, alone, negligible))

    def choose(self, rows: Rows, terms: SourceTerms | None, tasks: Sequence[SummedTask]) -> Choice:
        """The choice for focal rows, from these sums, those over posteriors, and those over validation tasks."""
        plain = replace(self, size=1.0)
        focal, total = plain.sample(rows), plain.near
        pool = summed_pool(total.divided(target_scale([focal, total])), terms)
        plan = Plan(None, max(round(focal.total), 1), False, [])
        return choose(focal, [total], plan=plan, tasks=tasks, pool=pool)
