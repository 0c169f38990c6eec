"""The second level of the average: between feature maps, each with an average of its own.

All maps see the same rows in the same validation tasks, so that their residuals can be compared row by row. The weights
minimise the squared error of the averaged prediction over validation tasks and left-out focal rows together, with a
small pull towards equal weights. Without validation tasks, left-out rows alone decide.

Where focal rows are many, the fit to them alone is averaged with the result in the same way. It is known well then, and
where the focal domain is unlike the sources, an average that leaves it out does worse than it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from mixtune.arrays import Floats, Integers, match
from mixtune.choice._choose import Choice, Pool, choose, draw_plan
from mixtune.choice._families import Label
from mixtune.choice._model_averaging import (
    Task,
    Validated,
    ValidationTask,
    relative_errors,
    robust_losses,
    stacked_weights,
)
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Moments, Sample


@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """The features of one map: its name, the places (p,) of its features among all, and directions (p, k) in them.

    ``learned`` says that targets of the sources made some of them, so that no fit on them is one to focal rows alone.
    Those learned for one output of several are for this ``output`` only. With ``own_rows``, all fits on them are to the
    rows of one domain alone.
    """

    name: str
    places: Integers
    basis: Floats | None = None
    learned: bool = False
    output: int | None = None
    own_rows: bool = False

    def features(self, U: Floats) -> Floats:
        """The features of this block, from rows (n, width) with all features."""
        own = U if len(self.places) == U.shape[1] else U[:, self.places]
        return own if self.basis is None else own @ self.basis

    def moments(self, moments: Moments) -> Moments:
        """The moments of this block, from moments over all features with the constant as the last one."""
        constant = moments.n_features - 1
        own = moments if len(self.places) == constant else moments.selected(np.append(self.places, constant))
        return own if self.basis is None else own.mapped(match(scipy.linalg.block_diag(self.basis, 1.0), own.cross))

    def coefficients(self, slopes: Floats, width: int) -> Floats:
        """Coefficients of all features from those of this block; further axes stay."""
        found = np.zeros((width, *slopes.shape[1:]))
        found[self.places] = slopes if self.basis is None else self.basis @ slopes
        return found


def scattered(heads: Sequence[Floats], blocks: Sequence[FeatureBlock], width: int, *, intercept: bool) -> Floats:
    """Coefficients of all features, and of the constant last, from those of each map, whose predictions add up."""
    found = np.zeros(width + intercept)
    for block, head in zip(blocks, heads):
        found[:width] += block.coefficients(head[:-1] if intercept else head, width)
        if intercept:
            found[-1] += head[-1]
    return found


@dataclass(frozen=True, eq=False)
class MapAverage(Validated):
    """Choices of several maps, averaged.

    Parameters
    ----------
    choices : sequence of Choice
    blocks : sequence of FeatureBlock
        Features of each map; maps may share some.
    width : int
        The number of all features.
    known_weights : array (M,), optional
        Weights of the maps, where they are known.
    """

    choices: Sequence[Choice]
    blocks: Sequence[FeatureBlock]
    width: int
    known_weights: Floats | None = None

    @cached_property
    def map_weights(self) -> Floats:
        """Weights (M,) of the maps."""
        if self.known_weights is not None:
            return self.known_weights
        if len(self.choices) == 1:
            return np.ones(1)
        focal = np.stack([choice.judged_left_out / choice.size for choice in self.choices])
        equal = np.full(len(focal), 1.0 / len(focal))
        tasks, says = list(self._map_tasks), [float(task.weight.sum()) ** 0.5 for task in self._map_tasks]
        if np.all(np.isfinite(focal)):
            tasks.append(ValidationTask(-1, focal, self.choices[0].task.known.weight, focal, 0))
            known = min(self.choices[0].task.total / SETTINGS.maps_focal_rows, 1.0)
            says.append(known * sum(says) if says else 1.0)
        if not tasks:
            return equal
        # A few left-out rows say little about which map is best.
        few = max(SETTINGS.maps_rows / self.choices[0].task.total, 1.0)
        pull = SETTINGS.maps_pull[0] if self._map_tasks else SETTINGS.maps_pull[1] * few
        return stacked_weights(tasks, equal, pull, says=np.array(says))

    def with_own_rows(self) -> MapAverage:
        """The average of this one and of the fit to the focal rows alone, where these rows are many."""
        plain = self.choices[self.plain]
        rows, own = plain.task, plain.focal_judged_left_out
        least = max(SETTINGS.own_fit_rows, SETTINGS.own_fit_rows_per_column * rows.columns)
        if rows.total < least or not plain.allowed.any():
            return self
        focal = np.stack([self.mixed([choice.judged_left_out for choice in self.choices]), own]) / self.size
        if not np.all(np.isfinite(focal)):
            return self
        says = [task.total**0.5 for task in self.tasks]
        says.append(rows.total / SETTINGS.own_fit_focal_rows * sum(says) if says else 1.0)
        tasks = [*self.tasks, ValidationTask(-1, focal, rows.known.weight, focal, 1)]
        part = float(stacked_weights(tasks, np.full(2, 0.5), SETTINGS.maps_pull[0], says=np.array(says))[1])
        weights = (1 - part) * self.map_weights
        weights[self.plain] += part
        choices = list(self.choices)
        choices[self.plain] = plain.towards_own_rows(part / float(weights[self.plain]))
        return replace(self, choices=choices, known_weights=weights)

    @cached_property
    def _map_tasks(self) -> list[ValidationTask]:
        """The validation tasks that all maps have, with a candidate for each map; those with rows only."""
        common = min(len(choice.tasks) for choice in self.choices)
        joined: Any = [[choice.tasks[place] for choice in self.choices] for place in range(common)]
        return [
            replace(
                parts[0],
                residuals=np.stack([part.residuals[0] for part in parts]),
                left_out=np.stack([part.left_out[0] for part in parts]),
            )
            for parts in joined
        ]

    @cached_property
    def plain(self) -> int:
        """The map for fits without transfer: the best for the focal rows of those without learned columns."""
        usable = np.array([place for place, block in enumerate(self.blocks) if not block.learned])
        weight = self.choices[0].focal.known.weight
        losses = robust_losses(np.stack([self.choices[place].focal_left_out for place in usable]), weight)
        share = weight / weight.sum()
        errors = losses @ share
        best = int(usable[np.argmin(errors)])
        known = np.isfinite(errors)
        if not known[0] or weight.sum() >= SETTINGS.own_fit_rows:
            return best
        # With few rows the best of several is so by chance, too: one must be better than the first by a standard error.
        less = losses[0] - losses[known]
        better = less @ share > np.sqrt((less - (less @ share)[:, None]) ** 2 @ share * np.sum(share**2))
        return best if better.any() else int(usable[0])

    @cached_property
    def tasks(self) -> list[Task]:
        """Validation tasks with two candidates: the average over all maps, and the focal-only fit of the plain one."""
        if len(self.choices) == 1:
            return list(self.choices[0].tasks)
        found: list[Task] = []
        for place in range(len(self._map_tasks)):
            parts: Any = [choice.tasks[place] for choice in self.choices]
            both: dict[str, Any] = {}
            for name in ("residuals", "left_out"):
                own = [getattr(part, name) for part in parts]
                both[name] = np.stack([self.mixed([each[0] for each in own]), own[self.plain][1]])
            found.append(replace(parts[0], **both))
        return found

    @property
    def size(self) -> float:
        """What targets were divided by."""
        return self.choices[0].size

    @property
    def head(self) -> Floats:
        """Coefficients of all features, that of the constant last where there is an intercept."""
        return self._scattered([choice.head for choice in self.choices])

    def _scattered(self, heads: Sequence[Floats]) -> Floats:
        weighted = [weight * head for weight, head in zip(self.map_weights, heads)]
        return scattered(weighted, self.blocks, self.width, intercept=self.choices[0].task.intercept)

    @cached_property
    def labels(self) -> list[Label]:
        """Of all candidates, with the name of the map where there are several."""
        several = len(self.choices) > 1
        return [
            (family, ({"map": block.name} if several else {}) | settings)
            for block, choice in zip(self.blocks, self.choices)
            for family, settings in choice.labels
        ]

    @cached_property
    def shares(self) -> Floats:
        return np.concatenate([weight * choice.shares for weight, choice in zip(self.map_weights, self.choices)])

    @cached_property
    def errors(self) -> Floats:
        return np.concatenate([choice.errors for choice in self.choices])

    @cached_property
    def ridges(self) -> Floats:
        return np.concatenate([choice.ridges for choice in self.choices])

    @cached_property
    def weights(self) -> Floats:
        return np.concatenate([choice.weights for choice in self.choices])

    @cached_property
    def own(self) -> Floats:
        return np.concatenate([choice.own for choice in self.choices])

    def provided(self, index: Any = slice(None)) -> tuple[float, Floats]:
        """The shares of the prediction that the rows themselves and each source provide; or those of one candidate."""
        shares = self.shares if isinstance(index, slice) else np.ones(1)
        sources = self.weights[index]
        own = np.where(sources.sum(axis=1) > 0, self.own[index], 1.0)
        return float(shares @ own), (shares * (1 - own)) @ sources

    @cached_property
    def play_errors(self) -> Floats | None:
        """Mean squared error over the common validation tasks, relative to the best candidate of each."""
        common = min(len(choice.tasks) for choice in self.choices)
        return relative_errors(np.hstack([choice.task_errors[:common] for choice in self.choices]))

    @property
    def left_out(self) -> Floats:
        return self.mixed([choice.left_out for choice in self.choices])

    @property
    def focal_left_out(self) -> Floats:
        return self.choices[self.plain].focal_left_out

    def mixed(self, parts: Sequence[Floats]) -> Floats:
        """The weighted average over maps; maps of weight 0 are left out."""
        # The built-in sum takes a fifth of the time of NumPy's for two short arrays, of which there are thousands.
        return sum((weight * part for weight, part in zip(self.map_weights, parts) if weight > 0), np.zeros(()))

    @cached_property
    def top(self) -> int:
        """The map with the candidate of the largest share."""
        largest = [weight * choice.shares.max() for weight, choice in zip(self.map_weights, self.choices)]
        return int(np.argmax(largest))

    @property
    def largest(self) -> Choice:
        """The choice of that map."""
        return self.choices[self.top]

    @property
    def spreads(self) -> Floats:
        return self.largest.spreads

    @property
    def map_play_errors(self) -> Floats | None:
        """Mean squared error (M,) of the maps' averages over the validation tasks, relative to the best of each."""
        return relative_errors(np.array([task.errors for task in self._map_tasks]))

    @cached_property
    def kept(self) -> tuple[Floats, Floats, Floats]:
        """As :meth:`without`, with no source left out."""
        return self.without(None)

    def without(self, index: int | None) -> tuple[Floats, Floats, Floats]:
        """With one source (or none) left out and all weights kept: coefficients, left-out residuals, focal fits."""
        found = [choice.without(index) for choice in self.choices]
        fits = [choice.task.predict(head) for choice, (head, _) in zip(self.choices, found)]
        return self._scattered([head for head, _ in found]), self.mixed([left for _, left in found]), self.mixed(fits)

    def variances(self, directions: Floats) -> tuple[Floats, Floats, Floats]:
        """How well linear functions (m, width + 1) of the coefficients are known, that of the constant last.

        Returns
        -------
        within, alone : arrays (m,)
            What rows and priors leave open, on average over the candidates, and what the focal rows alone leave open,
            both relative to the variance of the noise.
        between : array (m,)
            Mean square distance of the candidates from their average.
        """
        intercept = self.choices[0].task.intercept
        known = directions if intercept else directions[:, :-1]
        middle, parts = known @ self.head, []
        for place, (weight, block, choice) in enumerate(zip(self.map_weights, self.blocks, self.choices)):
            own = np.hstack([block.features(known[:, : self.width]), known[:, self.width :]])
            if weight > SETTINGS.smallest_share:
                parts.append(weight * np.stack([choice.within(own), choice.between(own, middle)]))
            if place == self.plain:
                alone = choice.alone(own)
        within, between = np.sum(parts, axis=0)
        return within, alone, between

    def error(self, residuals: Floats) -> float:
        """Weighted mean square over the rows that candidates were judged on."""
        return float(self.choices[0].task.free.error(residuals))


def choose_maps(
    samples: Sequence[Sequence[Sample]], blocks: Sequence[FeatureBlock], width: int, *, seed: int = 0
) -> MapAverage:
    """Choose within every map, with the same draws, and average over maps.

    Parameters
    ----------
    samples : sequence of sequences of Sample
        For each map: the focal domain and the sources, as for :func:`choose`.
    blocks : sequence of FeatureBlock
    width : int
        The number of all features.
    seed : int
        Which rows and sources are drawn for validation.
    """
    first = samples[0]
    plan = draw_plan(first[0], first[1:], seed=seed)
    several = len(samples) > 1
    if several:
        plan = plan.shuffled(seed)
    choices = [
        choose(
            own[0],
            own[1:],
            plan=plan.first(SETTINGS.map_tasks) if place else plan,
            pool=Pool.own_rows(own[1:]) if block.own_rows else None,
            every=not place,
        )
        for place, (own, block) in enumerate(zip(samples, blocks))
    ]
    return MapAverage(choices, tuple(blocks), width).with_own_rows()
