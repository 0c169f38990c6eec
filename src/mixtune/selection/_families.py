"""Families of candidates: ways to turn sources into a prior for a domain, each with a path of effective ridges.

* focal only: no source, ridge paths around zero;
* alike: one learned prior for all sources;
* nearest: a learned prior from the sources under which the domain's rows are likeliest;
* similar: a learned prior from the sources whose features are like the domain's;
* groups: two learned priors, each counting as likely as it makes the domain's rows;
* context: a learned prior whose mean depends on the domain's mean features.

The learned ones need few columns. With many columns, or few sources, :mod:`mixtune.selection._pooled` serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mixtune._array import Floats
from mixtune.moments import Paths, roots_of
from mixtune.selection._hierarchy import (
    Context,
    Groups,
    Hierarchy,
    Shrinkage,
    StackedMoments,
    evidence,
    find_groups,
    learn_hierarchy,
    task_noise,
)
from mixtune.selection._sample import Sample
from mixtune.selection._settings import SETTINGS, as_array
from mixtune.selection._similar import Inputs, similar

__all__ = ["Family", "Fits", "FocalFamily", "Label", "LearnedFamily", "Memo", "Prior", "recalled"]

Label = tuple[str, dict[str, Any]]
#: What a family computed of one task and need not compute again when sources are left out.
Memo = dict[Any, Any]


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

    def prior(self, task: Sample, allowed: Floats, index: int) -> Prior:
        """The prior behind one candidate."""


@dataclass(frozen=True, eq=False)
class FocalFamily:
    """Ridge regression on the task's own rows, its intercept free."""

    n_sources: int

    @property
    def labels(self) -> list[Label]:
        return [("focal only", {"relative ridge": ridge}) for ridge in SETTINGS.focal_ridges]

    def fits(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> Fits:
        return recalled(memo, "fits", lambda: self._fits(task))

    def _fits(self, task: Sample) -> Fits:
        ridges = self._ridges(task)
        return Fits(task.free.ridge_path(ridges), np.zeros((len(ridges), self.n_sources)), ridges)

    def prior(self, task: Sample, allowed: Floats, index: int) -> Prior:
        # Ridge regression is a prior N(0, I/ridge) with unit noise.
        width = task.free.width
        return Prior(np.zeros(width), np.eye(width), 1.0, 1.0 / self._ridges(task)[index], True)

    def _ridges(self, task: Sample) -> Floats:
        return as_array(SETTINGS.focal_ridges) * task.free.mean_eigenvalue


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
        return [(family, settings | {"scale": q}) for family, settings in kinds for q in SETTINGS.learned_scales]

    def fits(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> Fits:
        noise, weights, means, covariances = self._priors(task, allowed, memo)
        scales = as_array(SETTINGS.learned_scales)
        heads, leverages = task.full.prior_paths(means, roots_of(covariances), noise, scales)
        ridges = noise / (scales * _mean_variance(covariances, task.intercept)[:, None]).ravel()
        weights = np.repeat(weights, len(scales), axis=0)
        if self.groups is not None:
            groups = self.groups
            share, member, group = self._grouped(task, allowed, noise, memo)
            both = recalled(
                memo,
                "groups",
                lambda: task.full.prior_paths(groups.means, roots_of(groups.covariances), noise, scales),
            )
            mixed = [np.tensordot(share, part.reshape(2, len(scales), -1), 1) for part in both]
            heads, leverages = np.vstack([heads, mixed[0]]), np.vstack([leverages, mixed[1]])
            weights = np.vstack([weights, np.tile(member, (len(scales), 1))])
            variance = _mean_variance(groups.covariances, task.intercept)[group]
            ridges = np.concatenate([ridges, noise / (scales * variance)])
        return Fits(task.full.finish(heads, leverages), weights, ridges)

    def prior(self, task: Sample, allowed: Floats, index: int) -> Prior:
        noise, _, means, covariances = self._priors(task, allowed)
        kind, place = divmod(index, len(SETTINGS.learned_scales))
        scale = SETTINGS.learned_scales[place]
        if kind < len(means):
            return Prior(means[kind], covariances[kind], noise, scale, False)
        assert self.groups is not None
        group = self._grouped(task, allowed, noise)[2]
        return Prior(self.groups.means[group], self.groups.covariances[group], noise, scale, False)

    def _priors(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> tuple[float, Floats, Floats, Floats]:
        full, sparse = self.full, self.sparse
        noise = recalled(memo, "noise", lambda: task_noise(task.full, full))
        equal = allowed / allowed.sum()
        found = [(equal, equal @ sparse.heads, sparse.covariance * (1 + 1 / allowed.sum()))]
        near = _softmax(recalled(memo, "near", lambda: _source_evidence(task, full, noise)), allowed)
        found.append((near, *full.local(near, SETTINGS.nearest_spread)))
        like = similar(recalled(memo, "distances", lambda: self.inputs.distances(task)), allowed)
        like /= like.sum()
        found.append((like, *sparse.local(like, SETTINGS.similar_spread)))
        if self.context is not None:
            found.append(self.context.prior(task, allowed))
        weights, means, covariances = (np.stack(part) for part in zip(*found))
        return noise, weights, means, covariances

    def _grouped(
        self, task: Sample, allowed: Floats, noise: float, memo: Memo | None = None
    ) -> tuple[Floats, Floats, int]:
        """Shares of the two groups, the weights on sources they amount to, and the likelier group."""
        groups = self.groups
        assert groups is not None
        likely = recalled(memo, "group", lambda: evidence(task.full, groups.means, groups.covariances, noise))
        share = _softmax(likely + np.log(groups.shares), np.ones(2))
        member = groups.memberships * allowed
        member = share @ (member / np.maximum(member.sum(axis=1, keepdims=True), 1e-300))
        return share, member / max(member.sum(), 1e-300), int(np.argmax(share))


def recalled(memo: Memo | None, key: Any, make: Callable[[], Any]) -> Any:
    """What the memo holds under ``key``, made where there is none."""
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    return memo[key]


def _source_evidence(task: Sample, prior: Hierarchy, noise: float) -> Floats:
    """How likely each source's own head, give or take, makes the task's targets."""
    return evidence(task.full, prior.heads, prior.uncertainties + SETTINGS.nearest_spread * prior.covariance, noise)


def _softmax(score: Floats, allowed: Floats) -> Floats:
    score = np.where(allowed > 0, score, -np.inf)
    share = np.exp(score - score.max())
    return share / share.sum()


def _mean_variance(covariances: Floats, intercept: bool) -> Floats:
    variances = np.diagonal(covariances, axis1=1, axis2=2)[:, : -1 if intercept else None]
    if variances.shape[1] == 0:
        return np.ones(len(covariances))
    return np.maximum(variances.mean(axis=1), 1e-300)
