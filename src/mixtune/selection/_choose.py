"""The choice, made for the user: candidates of several families, averaged with shares that the data earn.

Two judges. Leave-one-out on the focal rows, in closed form, says how candidates do on the case at hand, but is noisy
when rows are few. Plays say how they do in general: a source plays the focal domain with as many rows as the focal
domain has, the other sources help, and its remaining rows test. The shares minimise the squared error of the averaged
prediction over all plays, held to equal shares the more the fewer plays there are, and are then tilted by exp(-LOO).
The fit to the focal rows alone is always a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.selection._compare import compare, gain_posterior
from mixtune.selection._families import Family, Fits, FocalFamily, Label, LearnedFamily, Prior
from mixtune.selection._pooled import PooledFamily
from mixtune.selection._task import Floats, Task

__all__ = ["Choice", "choose"]

#: Widest design, and fewest sources, for learned covariances; most sources for which the pooled family joins them.
LEARNED_WIDTH, LEARNED_SOURCES, POOLED_SOURCES = 40, 3, 12
#: Most plays, most rows to test a play on, most focal rows for which plays are of use.
PLAYS, PLAY_ROWS, PLAY_FOCAL = 24, 500, 1000
#: Most focal rows to judge candidates on at once.
JUDGED = 4000
#: Weight of the pull towards equal shares at PLAYS plays; it grows as the square of what is missing.
EQUAL = 0.005
#: Residuals below this part of the targets' standard deviation are rounding.
EXACT = 1e-6


@dataclass(frozen=True, eq=False)
class _Pool:
    """All families, side by side."""

    families: tuple[Family, ...]

    @classmethod
    def of(cls, sources: Sequence[Task]) -> _Pool:
        count = len(sources)
        families: list[Family] = [FocalFamily(count)]
        if count:
            learned = sources[0].design.shape[1] <= LEARNED_WIDTH and count >= LEARNED_SOURCES
            if learned:
                families.append(LearnedFamily.learn(sources))
            if not learned or count <= POOLED_SOURCES:
                families.append(PooledFamily.learn(sources))
        return cls(tuple(families))

    @property
    def labels(self) -> list[Label]:
        return [label for family in self.families for label in family.labels]

    def fits(self, task: Task, allowed: Floats) -> list[Fits]:
        return [family.fits(task, allowed) for family in self.families]

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
        Weights of the sources in each candidate's prior mean.
    own : array (C,)
        Part of the fitted degrees of freedom that comes from the task's rows.
    left_out, spreads : arrays (n,)
        Residual of each row by the average without it; 1 + leverage/(1 - leverage) for the largest share.
    focal_left_out : array (n,)
        The same residuals for the best of the focal-only candidates.
    prior : Prior
        Behind the largest share.
    n_plays : int
    play_gains : array (n_plays,)
        Log of the root mean squared error on each play's test: of the average over the focal-only fit.
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

    def without(self, index: int | None) -> tuple[Floats, Floats]:
        """Head, and residuals of left-out rows, with one source (or none) left out and the shares kept.

        The residuals are those of the rows that the candidates were judged on: all of them up to 4,000.
        """
        kept = np.ones(self.weights.shape[1])
        shares = self.shares
        if index is not None:
            kept[index] = 0.0
        if index is not None and not kept.any():
            shares = np.eye(len(shares))[_alone(self.labels, self.errors)]
            kept[index] = 1.0
        fits = self.pool.fits(self.task, kept)
        head = shares @ _stack([f.paths.heads for f in fits])
        return head * self.size, _mix(shares, _stack([f.paths.left_out for f in fits])) * self.size


@dataclass(frozen=True, eq=False)
class _Play:
    """Residuals (C, m) on the rows kept for testing, their weights, and residuals of left-out rows (C, n).

    ``alone`` is the focal-only candidate that leave-one-out would have taken.
    """

    residuals: Floats
    weight: Floats
    left_out: Floats
    alone: int

    @property
    def errors(self) -> Floats:
        return (self.residuals**2) @ (self.weight / self.weight.sum())


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
        judged = focal.judged(np.sort(rng.choice(len(focal.y), JUDGED, replace=False)))
    fits = pool.fits(judged, allowed)
    heads, left_out = _stack([f.paths.heads for f in fits]), _stack([f.paths.left_out for f in fits])
    names = np.array([family for family, _ in pool.labels])
    scores = _scores(judged, left_out)
    plays = _plays(pool, focal, sources, rng)
    shares = _shares(scores, _prior_shares(names), plays, focal.count)
    focal_shares = np.eye(len(shares))[_alone(pool.labels, scores)] if sources else shares
    shares = _guarded(judged, left_out, shares, focal_shares, plays)
    top = int(np.argmax(shares))
    leverages = _stack([f.paths.leverages for f in fits])
    own = leverages @ (judged.weight / judged.unit) * (len(focal.y) / len(judged.y))
    if partly:
        rows = _all_rows(pool, focal, allowed, np.stack([shares, focal_shares]), top)
    else:
        rows = np.stack([_mix(shares, left_out), _mix(focal_shares, left_out), leverages[top]])
    return Choice(
        head=shares @ heads * size,
        labels=pool.labels,
        shares=shares,
        errors=judged.error(left_out) * size**2,
        ridges=np.concatenate([f.ridges for f in fits]),
        play_errors=_play_errors(plays),
        weights=_stack([f.weights for f in fits]),
        own=np.clip(own / max(min(focal.count, focal.design.shape[1]), 1), 0.0, 1.0),
        left_out=rows[0] * size,
        spreads=1.0 + rows[2] / np.maximum(1.0 - rows[2], 1e-9),
        focal_left_out=rows[1] * size,
        prior=pool.prior(focal, allowed, top),
        n_plays=len(plays),
        play_gains=_gains(plays, shares),
        inflation=_inflation(plays, shares),
        size=size,
        task=judged,
        pool=pool,
    )


def _all_rows(pool: _Pool, focal: Task, allowed: Floats, mixes: Floats, top: int) -> Floats:
    """Left-out residuals of the mixes, and leverages of one candidate, for all rows, block by block."""
    parts = []
    for start in range(0, len(focal.y), JUDGED):
        fits = pool.fits(focal.judged(slice(start, start + JUDGED)), allowed)
        left_out = _stack([f.paths.left_out for f in fits])
        leverages = _stack([f.paths.leverages for f in fits])[top]
        parts.append(np.vstack([*(_mix(mix, left_out) for mix in mixes), leverages]))
    return np.hstack(parts)


def _plays(pool: _Pool, focal: Task, sources: Sequence[Task], rng: np.random.Generator) -> list[_Play]:
    """Let sources with rows to spare play the focal domain."""
    n = max(round(focal.count), 1)
    needed = n + max(8, n // 4)
    able = [k for k, source in enumerate(sources) if len(source.y) >= needed]
    most = PLAYS if focal.design.shape[1] <= LEARNED_WIDTH else PLAYS // 4
    if n > PLAY_FOCAL or len(able) < 2 or len(sources) < LEARNED_SOURCES:
        return []
    if len(able) > most:
        able = [int(k) for k in rng.choice(able, most, replace=False)]
    found = []
    for k in able:
        order = rng.permutation(len(sources[k].y))
        allowed = np.ones(len(sources))
        allowed[k] = 0.0
        task = sources[k].part(order[:n])
        fits = pool.fits(task, allowed)
        left_out = _stack([f.paths.left_out for f in fits])
        test = sources[k].part(order[n : n + PLAY_ROWS])
        residuals = test.y - _stack([f.paths.heads for f in fits]) @ test.design.T
        found.append(_Play(residuals, test.weight, left_out, _alone(pool.labels, _scores(task, left_out))))
    return found


def _shares(scores: Floats, equal: Floats, plays: Sequence[_Play], count: float) -> Floats:
    """Shares of the candidates: stacked over plays, then tilted by leave-one-out."""
    share = equal
    trust = 4.0
    if plays:
        share = _stacked(plays, equal, EQUAL * (PLAYS / len(plays)) ** 2)
        trust = 6.0 + 14.0 * min(len(plays) / PLAYS, 1.0) if len(plays) > 6 else 4.0
    finite = np.isfinite(scores)
    if not finite.any():
        # Nothing can be left out: what the plays say, or without any the last candidate.
        return share if plays else np.eye(len(scores))[-1]
    best = max(float(scores[finite].min()), 1e-12)
    with np.errstate(over="ignore"):
        exponent = np.where(finite, -(scores - best) / (trust * best / count), -np.inf) + np.log(share)
    tilted = np.exp(exponent - exponent.max())
    return tilted / tilted.sum()


def _guarded(task: Task, left_out: Floats, shares: Floats, focal: Floats, plays: Sequence[_Play]) -> Floats:
    """Move shares to the focal-only fit by as much as it is likelier than not that transfer does harm here.

    Sources that agree with one another, and not with the focal domain, pass every play; only the focal rows can tell.
    """
    ours, alone = _mix(shares, left_out), _mix(focal, left_out)
    grid, share = gain_posterior(compare("focal only", ours, alone, task.weight), _gains(plays, shares), task.count)
    harm = max(2 * float(share @ (grid > 0)) - 1, 0.0)
    return (1 - harm) * shares + harm * focal


def _stacked(plays: Sequence[_Play], equal: Floats, pull: float, *, steps: int = 300) -> Floats:
    """Simplex weights of least mean squared error of the averaged prediction over plays, by exponentiated gradient."""
    cross = np.zeros((len(equal), len(equal)))
    for play in plays:
        good = np.sort(play.errors)[: max(3, len(equal) // 4)]
        weight = play.weight / play.weight.sum() / max(float(np.median(good)), 1e-12)
        # Two absurd rows must not decide: residuals count up to five times their typical size.
        limit = 5.0 * 1.4826 * float(np.min(np.median(np.abs(play.residuals), axis=1)))
        # Where a candidate is exact (targets that do not vary), the limit is 0 and the play says nothing.
        kept = np.clip(play.residuals, -limit, limit)
        cross += (kept * weight) @ kept.T / len(plays)
    share = equal.copy()
    for _ in range(steps):
        slope = 2 * cross @ share + pull * np.log(np.maximum(share, 1e-300) / equal)
        share = share * np.exp(-0.5 * (slope - slope.min()))
        share = np.maximum(share / share.sum(), 1e-300)
    return share / share.sum()


def _prior_shares(names: Floats) -> Floats:
    """Every family has the same share before anything is known, split evenly within."""
    counts = {name: int(np.sum(names == name)) for name in set(names.tolist())}
    return np.array([1.0 / counts[name] for name in names.tolist()]) / len(counts)


def _scores(task: Task, left_out: Floats) -> Floats:
    """Leave-one-out scores: mean squares that grow only linearly beyond three times the typical residual."""
    size = np.abs(left_out)
    # A row of weight 2 counts as two rows, in the median as well.
    middle = np.quantile(size, 0.5, axis=1, weights=np.broadcast_to(task.weight, size.shape), method="inverted_cdf")
    limit = 3.0 * 1.4826 * float(np.min(middle))
    # Where a candidate is exact to rounding, its residuals are no measure of what is typical.
    if not EXACT < limit < np.inf:
        return task.error(left_out)
    with np.errstate(over="ignore", invalid="ignore"):
        loss = np.where(size <= limit, size**2, limit * (2 * size - limit))
    return loss @ (task.weight / task.weight.sum())


def _play_errors(plays: Sequence[_Play]) -> Floats | None:
    if not plays:
        return None
    logs = np.log(np.maximum([play.errors for play in plays], 1e-300))
    return np.exp(np.mean(logs - logs.min(axis=1, keepdims=True), axis=0))


def _inflation(plays: Sequence[_Play], shares: Floats) -> float:
    """How much larger the root mean squared error of plays is on their tests than leave-one-out says, in [1, 2]."""
    ratios = []
    for play in plays:
        inside = float(np.mean(_mix(shares, play.left_out) ** 2))
        outside = float((shares @ play.residuals) ** 2 @ (play.weight / play.weight.sum()))
        if 0 < inside < np.inf and outside > 0:
            ratios.append(np.log(outside / inside))
    return float(np.clip(np.exp(0.5 * np.mean(ratios)), 1.0, 2.0)) if ratios else 1.0


def _gains(plays: Sequence[_Play], shares: Floats) -> Floats:
    """Of each play: log of the root mean squared error on its test, of the average over the focal-only fit."""
    ours = np.array([(shares @ p.residuals) ** 2 @ (p.weight / p.weight.sum()) for p in plays])
    alone = np.array([p.errors[p.alone] for p in plays])
    # Targets have unit variance: an error below a thousandth (a play of one class only, say) counts as that.
    return 0.5 * np.log(np.maximum(ours, 1e-6) / np.maximum(alone, 1e-6))


def _alone(labels: Sequence[Label], scores: Floats) -> int:
    """The best of the focal-only candidates."""
    focal = np.array([family == "focal only" for family, _ in labels])
    return int(np.argmin(np.where(focal, np.nan_to_num(scores, posinf=1e300), np.inf)))


def _mix(shares: Floats, left_out: Floats) -> Floats:
    """Averaged residuals; candidates without a share do not count, whatever they say."""
    used = shares > 0
    return shares[used] @ left_out[used]


def _stack(parts: Sequence[Floats]) -> Floats:
    return np.concatenate(parts)


def _target_scale(tasks: Sequence[Task]) -> float:
    """Standard deviation of all targets, or 1 where they do not vary."""
    y, weight = (np.concatenate([getattr(t, name) for t in tasks]) for name in ("y", "weight"))
    mean = float(weight @ y / weight.sum())
    spread = float(np.sqrt(weight @ (y - mean) ** 2 / weight.sum()))
    return spread if spread > 1e-12 * max(abs(mean), 1e-300) else 1.0
