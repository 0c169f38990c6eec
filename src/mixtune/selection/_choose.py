"""The choice, made for the user: candidates of several families, averaged with shares that the data earn.

Two judges. Leave-one-out on the focal rows, in closed form, says how candidates do on the case at hand, but is noisy
when rows are few. Plays say how they do in general: a source plays the focal domain with as many rows as the focal
domain has, the other sources help, and its remaining rows test (where it has none to spare, its rows are left out in
turn instead). Where sources are few, each plays twice, with other rows. The shares minimise the squared error of the
averaged prediction over all plays, held to shares by the single candidates' errors the more the fewer sources play, and
are then tilted by exp(-LOO).
The fit to the focal rows alone is always a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from mixtune.selection._families import Family, Fits, FocalFamily, Label, LearnedFamily, Memo, Prior
from mixtune.selection._plays import by_content, plays_of
from mixtune.selection._pooled import PooledFamily
from mixtune.selection._shares import (
    ENOUGH,
    alone_of,
    gains_of,
    guarded,
    inflation_of,
    mix,
    play_errors_of,
    players_of,
    prior_shares,
    scores_of,
    shares_of,
)
from mixtune.selection._stacked import StackedFamily
from mixtune.selection._task import Floats, Task
from mixtune.selection._threads import in_threads

__all__ = ["Choice", "choose"]

#: Fewest sources for learned covariances; most for which the pooled family joins them.
LEARNED_SOURCES, POOLED_SOURCES = 3, 12
#: Most sources for which the pooled family comes with one level too, where fits are cheap and where not: the spectra of
#: the sources are most of the cost.
LEVEL_SOURCES = (40, 12)
#: Most focal rows to judge candidates on at once.
JUDGED = 4000


@dataclass(frozen=True, eq=False)
class _Pool:
    """All families, side by side."""

    families: tuple[Family, ...]

    @classmethod
    def of(cls, sources: Sequence[Task]) -> _Pool:
        count = len(sources)
        families: list[Family] = [FocalFamily(count)]
        if count:
            learned = sources[0].is_narrow and count >= LEARNED_SOURCES
            if learned:
                families.append(LearnedFamily.learn(sources))
            if not learned or count <= POOLED_SOURCES:
                pooled = PooledFamily.learn(sources)
                families += [pooled, StackedFamily(pooled)]
                if sources[0].intercept and count <= LEVEL_SOURCES[sources[0].is_dear]:
                    families.append(PooledFamily.learn(sources, one_level=True))
        return cls(tuple(families))

    @property
    def labels(self) -> list[Label]:
        return [label for family in self.families for label in family.labels]

    def fits(self, task: Task, allowed: Floats, memos: Sequence[Memo] | None = None) -> list[Fits]:
        """What all families make of a task; ``memos``, one of each family, serve one task."""
        if memos is None:
            return [family.fits(task, allowed) for family in self.families]
        return [family.fits(task, allowed, memo) for family, memo in zip(self.families, memos)]

    def release(self) -> None:
        """Let go of what is large and can be made again."""
        for family in self.families:
            if isinstance(family, PooledFamily):
                family.release()

    def prior(self, task: Task, allowed: Floats, index: int) -> Prior:
        for family in self.families:
            count = len(family.labels)
            if index < count:
                return family.prior(task, allowed, index)
            index -= count
        raise AssertionError(index)


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, and why.

    Attributes
    ----------
    head : array (d,)
        The average of the candidates' heads.
    labels : list of (family, settings)
    shares, errors, ridges : arrays (C,)
        Of each candidate: its share, leave-one-out mean squared error, effective ridge.
    play_errors : array (C,) or None
        Mean squared error over the plays, relative to the best candidate of each (geometric mean).
    weights : array (C, N)
        Weights of the sources in each candidate's prior mean (stacked: as the rows find them, none below zero).
    own : array (C,)
        Part of the fitted degrees of freedom that comes from the task's rows.
    left_out, spreads : arrays (n,)
        Residual of each row by the average without it; 1 + leverage/(1 - leverage) for the largest share.
    focal_left_out : array (n,)
        The same residuals for the best of the focal-only candidates.
    prior : Prior
        Behind the largest share.
    n_plays : int
        How many sources played the focal domain.
    play_gains : array (n_plays,)
        Log of the root mean squared error of each on its tests: of the average over the focal-only fit.
    inflation : float
        Error on tests of the plays over their leave-one-out error, >= 1: what leave-one-out overlooks.
    """

    head: Floats
    labels: list[Label]
    shares: Floats
    errors: Floats
    ridges: Floats
    play_errors: Floats | None
    weights: Floats
    own: Floats
    left_out: Floats
    spreads: Floats
    focal_left_out: Floats
    prior: Prior
    n_plays: int
    play_gains: Floats
    inflation: float
    size: float
    task: Task
    pool: _Pool

    @cached_property
    def _memos(self) -> list[Memo]:
        """What families make of the task with all sources, of which much remains when one of them is left out."""
        memos: list[Memo] = [{} for _ in self.pool.families]
        self.pool.fits(self.task, np.ones(self.weights.shape[1]), memos)
        return memos

    def without(self, index: int | None) -> tuple[Floats, Floats]:
        """Head, and residuals of left-out rows, with one source (or none) left out and the shares kept.

        The residuals are those of the rows that the candidates were judged on: all of them up to 4,000.
        """
        kept = np.ones(self.weights.shape[1])
        shares = self.shares
        if index is not None:
            kept[index] = 0.0
        if index is not None and not kept.any():
            shares = np.eye(len(shares))[alone_of(self.labels, self.errors)]
            kept[index] = 1.0
        fits = self.pool.fits(self.task, kept, self._memos)
        head = shares @ np.concatenate([f.paths.heads for f in fits])
        return head * self.size, mix(shares, np.concatenate([f.paths.left_out for f in fits])) * self.size


def choose(focal: Task, sources: Sequence[Task], *, seed: int = 0) -> Choice:
    """Average candidates for the focal task with shares from plays and leave-one-out.

    Parameters
    ----------
    focal, sources : Task
        On one scale of features; targets about a common level.
    seed : int
        Which rows and sources play.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> def task(n, slope):
    ...     x = rng.standard_normal(n)
    ...     return Task(np.column_stack([np.ones(n), x]), slope * x + rng.standard_normal(n), np.ones(n), True)
    >>> found = choose(task(8, 2.0), [task(60, slope) for slope in (1.9, 2.0, 2.1, 2.05)])
    >>> bool(abs(found.head[1] - 2.0) < 0.2)
    True
    """
    size = _target_scale([focal, *sources])
    tasks = [Task(t.design, t.y / size, t.weight, t.intercept) for t in (focal, *sources)]
    focal, sources = tasks[0], tasks[1:]
    pool = _Pool.of(sources)
    allowed = np.ones(len(sources))
    rng = np.random.default_rng(seed)
    judged = focal
    # Some rows, with the sums of all, do for paths through d x d matrices only.
    partly = len(focal.y) > max(JUDGED, focal.design.shape[1])
    if partly:
        judged = focal.judged(np.sort(by_content(focal)[rng.choice(len(focal.y), JUDGED, replace=False)]))
    jobs: list[Callable[[], Any]] = [
        partial(pool.fits, judged, allowed),
        *plays_of(pool.fits, pool.labels, focal, sources, rng),
    ]
    fits, *plays = in_threads(_done, jobs, width=focal.design.shape[1])
    heads, left_out = np.concatenate([f.paths.heads for f in fits]), np.concatenate([f.paths.left_out for f in fits])
    names = np.array([family for family, _ in pool.labels])
    scores = scores_of(judged, left_out)
    enough = ENOUGH if focal.is_narrow else ENOUGH // 2
    shares = shares_of(scores, prior_shares(names), plays, focal.count, enough=enough)
    focal_shares = np.eye(len(shares))[alone_of(pool.labels, scores)] if sources else shares
    shares = guarded(judged, left_out, shares, focal_shares, plays)
    top = int(np.argmax(shares))
    leverages = np.concatenate([f.paths.leverages for f in fits])
    own = leverages @ (judged.weight / judged.unit) * (len(focal.y) / len(judged.y))
    if partly:
        rows = _all_rows(pool, focal, allowed, np.stack([shares, focal_shares]), top)
    else:
        rows = np.stack([mix(shares, left_out), mix(focal_shares, left_out), leverages[top]])
    prior = pool.prior(focal, allowed, top)
    pool.release()
    return Choice(
        head=shares @ heads * size,
        labels=pool.labels,
        shares=shares,
        errors=judged.error(left_out) * size**2,
        ridges=np.concatenate([f.ridges for f in fits]),
        play_errors=play_errors_of(plays),
        weights=np.concatenate([f.weights for f in fits]),
        own=np.clip(own / max(min(focal.count, focal.design.shape[1]), 1), 0.0, 1.0),
        left_out=rows[0] * size,
        spreads=1.0 + rows[2] / np.maximum(1.0 - rows[2], 1e-9),
        focal_left_out=rows[1] * size,
        prior=prior,
        n_plays=len(players_of(plays)),
        play_gains=gains_of(plays, shares),
        inflation=inflation_of(plays, shares),
        size=size,
        task=judged,
        pool=pool,
    )


def _all_rows(pool: _Pool, focal: Task, allowed: Floats, mixes: Floats, top: int) -> Floats:
    """Left-out residuals of the mixes, and leverages of one candidate, for all rows, block by block."""
    parts = []
    for start in range(0, len(focal.y), JUDGED):
        fits = pool.fits(focal.judged(slice(start, start + JUDGED)), allowed)
        left_out = np.concatenate([f.paths.left_out for f in fits])
        leverages = np.concatenate([f.paths.leverages for f in fits])[top]
        parts.append(np.vstack([*(mix(share, left_out) for share in mixes), leverages]))
    return np.hstack(parts)


def _done(job: Callable[[], Any]) -> Any:
    return job()


def _target_scale(tasks: Sequence[Task]) -> float:
    """Standard deviation of all targets, or 1 where they do not vary."""
    y, weight = (np.concatenate([getattr(t, name) for t in tasks]) for name in ("y", "weight"))
    mean = float(weight @ y / weight.sum())
    spread = float(np.sqrt(weight @ (y - mean) ** 2 / weight.sum()))
    return spread if spread > 1e-12 * max(abs(mean), 1e-300) else 1.0
