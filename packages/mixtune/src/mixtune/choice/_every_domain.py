"""The choice for every domain at once: priors, spectra and validation tasks are made once, and shared.

Every domain is a source of all others. Priors are learned from all domains together, and each domain uses them with its
own contribution switched off, as cross-domain validation does with the source in the focal role. What remains of the
domain itself is its part in quantities that are common to all: the covariance between coefficients, the noise, groups.

Validation tasks are shared too. Domains are split into folds; tasks of a fold are played by domains of the other folds,
with the whole fold switched off, so that the rows of a domain neither inform nor test the weights of its candidates.
Domains with about as many rows share tasks of that many rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from mixtune.arrays import Booleans, Floats, Integers, in_threads
from mixtune.choice._choose import (
    Choice,
    Plan,
    Pool,
    choice_of,
    content_order,
    draw_tasks,
    judged_rows,
    target_scale,
    validated_weights,
    validation_tasks,
)
from mixtune.choice._families import Distances, Inputs, Memo
from mixtune.choice._hierarchy import LearnedFamily
from mixtune.choice._model_averaging import TaskWeights
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Batch, Sample

#: The key under which families store the distances of a task to the sources.
DISTANCES = "distances"


@dataclass(frozen=True, eq=False)
class _Group:
    """Domains that share validation tasks: what was drawn, and which sources (P,) may inform the tasks."""

    plan: Plan
    allowed: Floats


@dataclass(frozen=True, eq=False)
class _Groups:
    """All groups, and the group of each domain (N,)."""

    groups: Sequence[_Group]
    of_domain: Integers


def choose_every(samples: Sequence[Sequence[Sample]], *, places: Integers, seed: int = 0) -> Iterator[list[Choice]]:
    """Choose for every domain in turn, within every map.

    Parameters
    ----------
    samples : sequence of sequences of Sample
        For each map: all domains, with their rows, as for :func:`choose_maps`; at least two domains.
    places : array (P,)
        The domains that priors are learned from.
    seed : int
        Which rows and sources are drawn for validation.

    Yields
    ------
    list of Choice
        Of each domain in order, one for each map. Weights are those of the domains at ``places``.
    """
    groups = _draw_groups(samples[0], places, seed)
    shared = [_Shared.learn(own, places, groups, first=place == 0) for place, own in enumerate(samples)]
    for index in range(len(samples[0])):
        judged = judged_rows(samples[0][index], np.random.default_rng([seed, 3]))
        yield [each.choice(index, judged) for each in shared]


@dataclass(frozen=True, eq=False)
class _Shared:
    """What all domains share in one map: candidates, and the weights that validation tasks give them by group."""

    pool: Pool
    samples: Sequence[Sample]
    places: Integers
    size: float
    weights: Sequence[TaskWeights]
    of_domain: Integers
    #: Distances of the domains at ``places`` to one another, by their places; empty where no family needs them.
    distances: Mapping[int, Distances]

    @classmethod
    def learn(cls, samples: Sequence[Sample], places: Integers, groups: _Groups, *, first: bool) -> _Shared:
        """Learn priors from the domains at ``places``, and let them play the tasks of all groups."""
        size = target_scale(samples)
        sources = [samples[place].divided(size) for place in places]
        pool = Pool.of(sources, every=first, used=min(len(sources), len(samples) - 1))
        weights = []
        for group in groups.groups:
            plan = group.plan if first else group.plan.first(SETTINGS.map_tasks)
            jobs = validation_tasks(_compared_with(pool, group.allowed > 0), sources, plan, group.allowed)
            done = in_threads(lambda job: job(), jobs, width=pool.columns)
            weights.append(validated_weights(pool, [*chain.from_iterable(done)]))
        return cls(pool, samples, places, size, weights, groups.of_domain, _distances(pool, sources, places))

    def choice(self, index: int, judged: Integers | None) -> Choice:
        """The choice for one domain, informed by all others."""
        given = self.samples[index]
        focal = given.divided(self.size)
        task = focal if judged is None else focal.judged(judged)
        allowed = (self.places != index).astype(np.float64)
        known = self.weights[int(self.of_domain[index])]
        known_distances = {DISTANCES: self.distances[index]} if index in self.distances else {}
        memos: list[Memo] = [dict(known_distances) for _ in self.pool.families]
        fits = self.pool.fits(task, allowed, memos)
        return choice_of(self.pool, given, task, allowed, fits, known, self.size, memos)


@dataclass(frozen=True, eq=False)
class _SomeInputs(Inputs):
    """Features of the sources, of which only those at some places (N,) are compared with those of a task."""

    places: Booleans

    def distances(self, sample: Sample | Batch) -> Distances:
        """Distances to these sources; the others are infinitely far away."""
        near = Inputs(self.means[self.places], self.roots[self.places], self.totals[self.places]).distances(sample)
        shape = (*near.values.shape[:-1], len(self.places))
        values, chance = np.full(shape, np.inf), np.ones(shape)
        values[..., self.places], chance[..., self.places] = near.values, near.chance
        return Distances(values, chance)


def _compared_with(pool: Pool, places: Booleans) -> Pool:
    """The same candidates, for tasks that use only the sources at some places; other distances are not computed."""

    def some(family: Any) -> Any:
        if not isinstance(family, LearnedFamily):
            return family
        known = family.inputs
        return replace(family, inputs=_SomeInputs(known.means, known.roots, known.totals, places))

    return replace(pool, families=tuple(map(some, pool.families)))


def _distances(pool: Pool, sources: Sequence[Sample], places: Integers) -> dict[int, Distances]:
    """Distances between all pairs of domains; each pair is computed once."""
    found = next((family.inputs for family in pool.families if isinstance(family, LearnedFamily)), None)
    if found is None:
        return {}
    values, chance = np.empty((2, len(sources), len(sources)))
    for k, source in enumerate(sources):
        pairs = Inputs(found.means[k:], found.roots[k:], found.totals[k:]).distances(source)
        values[k, k:] = values[k:, k] = pairs.values
        chance[k, k:] = chance[k:, k] = pairs.chance
    return {place: Distances(*both) for place, *both in zip(places.tolist(), values, chance)}


def _draw_groups(samples: Sequence[Sample], places: Integers, seed: int) -> _Groups:
    """Groups of domains by fold and by the logarithm of their rows; all follow the content of domains, not their order.

    The tasks of a group are in random order, so that the first ones stand for all.
    """
    count = len(samples)
    folds = int(np.clip(SETTINGS.shared_folds // count, 2, count))
    fold = np.empty(count, dtype=np.int64)
    fold[content_order([sample.known for sample in samples])] = np.arange(count) % folds
    totals = np.array([sample.total for sample in samples])
    level = np.round(np.log2(np.maximum(totals, 1.0))).astype(np.int64)
    groups: list[_Group] = []
    of_domain = np.empty(count, dtype=np.int64)
    sources = [samples[place] for place in places]
    for each in np.unique(level).tolist():
        rows = max(round(float(np.median(totals[level == each]))), 1)
        for own in np.unique(fold[level == each]).tolist():
            allowed = (fold[places] != own).astype(np.float64)
            rng = np.random.default_rng([seed, each, own])
            usable = np.flatnonzero(allowed).tolist()
            plan = draw_tasks(rows, sources, usable, rng, most=SETTINGS.shared_tasks)
            of_domain[(level == each) & (fold == own)] = len(groups)
            groups.append(_Group(plan.shuffled(seed), allowed))
    return _Groups(groups, of_domain)
