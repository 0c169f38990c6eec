"""Families of candidates: ways to turn sources into a prior for a task, each with a path of effective ridges.

* focal only: no source, ridge paths around zero;
* alike: one learned prior for all sources;
* nearest: a learned prior from the sources under which the task's rows are likeliest;
* similar: a learned prior from the sources whose features are like the task's;
* groups: two learned priors, each counting as likely as it makes the task's rows;
* context: a learned prior whose mean depends on the task's mean features.

The learned ones need few columns. With many columns, or few sources, :mod:`mixtune.selection._pooled` and
:mod:`mixtune.selection._stacked` serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mixtune.selection._context import Context
from mixtune.selection._hierarchy import (
    Groups,
    Hierarchy,
    Shrinkage,
    Sums,
    evidence,
    find_groups,
    learn_hierarchy,
    task_noise,
)
from mixtune.selection._similar import THRESHOLD, Inputs, similar
from mixtune.selection._task import Floats, Paths, Task, dual_paths, primal_paths, roots_of

__all__ = ["Family", "Fits", "FocalFamily", "Label", "LearnedFamily", "Memo", "Prior", "recalled"]

#: Multiples of the prior's covariance along a path.
SCALES = np.array([0.125, 0.25, 0.5, 1.0, 2.0, 4.0])
#: Tightness of the priors about the "nearest" sources, and about the "similar" ones.
NEAREST, SIMILAR = 0.1, 0.3
PSEUDO = 2.0
#: Ridges of the focal-only family, relative to the mean eigenvalue.
FOCAL_RIDGES = np.logspace(-3.5, 2.5, 13)
#: Fewest sources for two groups, and for a mean that depends on what a domain is like.
GROUPED = 8

Label = tuple[str, dict[str, Any]]
#: What a family computed of one task and need not compute again when sources are left out.
Memo = dict[Any, Any]


@dataclass(frozen=True, eq=False)
class Prior:
    """N(mean, scale covariance) with noise; about the task's own mean where the intercept is free."""

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

    def fits(self, task: Task, allowed: Floats, memo: Memo | None = None) -> Fits:
        """Fit a task with the sources where ``allowed`` (N,) is true; one ``memo`` serves one task."""

    def prior(self, task: Task, allowed: Floats, index: int) -> Prior:
        """The prior behind one candidate."""


@dataclass(frozen=True, eq=False)
class FocalFamily:
    """Ridge regression on the task's own rows, its intercept free."""

    n_sources: int

    @property
    def labels(self) -> list[Label]:
        return [("focal only", {"relative ridge": float(ridge)}) for ridge in FOCAL_RIDGES]

    def fits(self, task: Task, allowed: Floats, memo: Memo | None = None) -> Fits:
        return recalled(memo, "fits", lambda: self._fits(task))

    def _fits(self, task: Task) -> Fits:
        rows, ridges = task.centred, self._ridges(task)
        width = rows.design.shape[1]
        # A prior N(0, I/ridge) with unit noise.
        if width <= rows.rows:
            eye = np.eye(width)[None]
            heads, leverages = primal_paths(rows, np.zeros((1, width)), eye, 1.0, 1.0 / ridges)
        else:
            duals, leverages = dual_paths(rows, np.zeros(len(rows.y)), rows.kernel, 1.0, 1.0 / ridges)
            heads = duals.T @ rows.design
        paths = Paths.of(task, heads, leverages, free_intercept=True)
        return Fits(paths, np.zeros((len(ridges), self.n_sources)), ridges)

    def prior(self, task: Task, allowed: Floats, index: int) -> Prior:
        width = task.centred.design.shape[1]
        return Prior(np.zeros(width), np.eye(width), 1.0, 1.0 / self._ridges(task)[index], True)

    def _ridges(self, task: Task) -> Floats:
        rows = task.centred
        rank = max(min(task.count, rows.design.shape[1]), 1)
        wide = rows.design.shape[1] > rows.rows
        size = float(np.vdot(rows.scaled, rows.scaled) if wide else np.trace(rows.gram)) / rank
        return FOCAL_RIDGES * (size if size > 0 else 1.0)


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
    def learn(cls, sources: Sequence[Task]) -> LearnedFamily:
        """Learn from the sources' moments, and some rows of their features."""
        sums, count = Sums.of(sources), len(sources)
        full = learn_hierarchy(sums, Shrinkage(zero=min(count / 2, 32.0), diagonal=3.0))
        sparse = learn_hierarchy(sums, Shrinkage(zero=float(np.clip(count / 4, 8, 16)), diagonal=30.0))
        inputs = Inputs.of(sources)
        if count < GROUPED:
            return cls(full, sparse, None, None, inputs)
        # Without an intercept, features are not taken about their means, and neither are domains told apart by them.
        context = Context.learn(sources, sums, sparse.shrinkage) if sources[0].intercept else None
        return cls(full, sparse, find_groups(sums, sparse), context, inputs)

    @property
    def labels(self) -> list[Label]:
        kinds: list[Label] = [("alike", {}), ("nearest", {}), ("similar", {"distance": THRESHOLD})]
        if self.context is not None:
            kinds.append(("context", {}))
        if self.groups is not None:
            kinds.append(("groups", {}))
        return [(family, settings | {"scale": float(q)}) for family, settings in kinds for q in SCALES]

    def fits(self, task: Task, allowed: Floats, memo: Memo | None = None) -> Fits:
        noise, weights, means, covariances = self._priors(task, allowed, memo)
        heads, leverages = primal_paths(task, means, roots_of(covariances), noise, SCALES)
        ridges = noise / (SCALES * _mean_variance(covariances, task.intercept)[:, None]).ravel()
        weights = np.repeat(weights, len(SCALES), axis=0)
        if self.groups is not None:
            groups = self.groups
            share, member, group = self._grouped(task, allowed, noise, memo)
            both = recalled(
                memo, "groups", lambda: primal_paths(task, groups.means, roots_of(groups.covariances), noise, SCALES)
            )
            mixed = [np.tensordot(share, a.reshape(2, len(SCALES), -1), 1) for a in both]
            heads, leverages = np.vstack([heads, mixed[0]]), np.vstack([leverages, mixed[1]])
            weights = np.vstack([weights, np.tile(member, (len(SCALES), 1))])
            ridges = np.concatenate(
                [ridges, noise / (SCALES * _mean_variance(groups.covariances, task.intercept)[group])]
            )
        return Fits(Paths.of(task, heads, leverages, free_intercept=False), weights, ridges)

    def prior(self, task: Task, allowed: Floats, index: int) -> Prior:
        noise, _, means, covariances = self._priors(task, allowed)
        kind, scale = divmod(index, len(SCALES))
        if kind < len(means):
            return Prior(means[kind], covariances[kind], noise, float(SCALES[scale]), False)
        assert self.groups is not None
        group = self._grouped(task, allowed, noise)[2]
        covariance = self.groups.covariances[group]
        return Prior(self.groups.means[group], covariance, noise, float(SCALES[scale]), False)

    def _priors(self, task: Task, allowed: Floats, memo: Memo | None = None) -> tuple[float, Floats, Floats, Floats]:
        full, sparse = self.full, self.sparse
        noise = recalled(memo, "noise", lambda: task_noise(task, full))
        equal = allowed / allowed.sum()
        found = [(equal, equal @ sparse.heads, sparse.covariance * (1 + 1 / allowed.sum()))]
        near = _softmax(recalled(memo, "near", lambda: _source_evidence(task, full, noise)), allowed)
        found.append((near, *full.local(near, NEAREST, PSEUDO)))
        like = similar(recalled(memo, "distances", lambda: self.inputs.distances(task)), allowed)
        like /= like.sum()
        found.append((like, *sparse.local(like, SIMILAR, PSEUDO)))
        if self.context is not None:
            found.append(self.context.prior(task, allowed))
        weights, means, covariances = (np.stack(part) for part in zip(*found))
        return noise, weights, means, covariances

    def _grouped(
        self, task: Task, allowed: Floats, noise: float, memo: Memo | None = None
    ) -> tuple[Floats, Floats, int]:
        """Shares of the two groups, the weights on sources they amount to, and the likelier group."""
        groups = self.groups
        assert groups is not None
        likely = recalled(memo, "group", lambda: evidence(task, groups.means, groups.covariances, noise))
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


def _source_evidence(task: Task, prior: Hierarchy, noise: float) -> Floats:
    """How likely each source's own head, give or take, makes the task's targets."""
    return evidence(task, prior.heads, prior.uncertainties + NEAREST * prior.covariance, noise)


def _softmax(score: Floats, allowed: Floats) -> Floats:
    score = np.where(allowed > 0, score, -np.inf)
    share = np.exp(score - score.max())
    return share / share.sum()


def _mean_variance(covariances: Floats, intercept: bool) -> Floats:
    variances = np.diagonal(covariances, axis1=1, axis2=2)[:, 1 if intercept else 0 :]
    if variances.shape[1] == 0:
        return np.ones(len(covariances))
    return np.maximum(variances.mean(axis=1), 1e-300)
