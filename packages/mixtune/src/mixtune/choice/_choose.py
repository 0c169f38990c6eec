"""The choice, made for the user: candidates of several families, averaged with weights that the data earn.

Two judges. Leave-one-out on the focal rows, in closed form, says how candidates do on the case at hand, but is noisy
when rows are few. Cross-domain validation says how they do in general: each source takes the focal role with as many
rows as the focal domain has (twice, with other rows, where sources are few), the other sources inform its priors, and
its remaining rows test all candidates; where it has none to spare, its rows are left out in turn instead. What is drawn
follows the content of rows and sources, not the order they came in. The weights minimise the squared error of
the averaged prediction over all validation tasks, held to weights by the single candidates' errors the more the fewer
sources were validated, and are then tilted by exp(-LOO). The fit to the focal rows alone is always a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, repeat
from typing import Any, cast

import numpy as np

from mixtune.arrays import EPSILON, Array, Booleans, Floats, Integers, in_threads
from mixtune.choice._families import ROW_FREE, USED, Family, Fits, FocalFamily, Label, Memo, Prior
from mixtune.choice._hierarchy import LearnedFamily
from mixtune.choice._model_averaging import (
    Task,
    TaskWeights,
    Validated,
    ValidationTask,
    focal_only_best,
    guarded,
    mix,
    negligible_error,
    negligible_part,
    nested_left_out,
    prior_weights,
    relative_errors,
    robust_errors,
    robust_limit,
    tilted_weights,
    weights_of_tasks,
)
from mixtune.choice._pooled import PooledFamily, StackedFamily
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Batch, Paths, Rows, Sample


@dataclass(frozen=True, eq=False)
class Pool:
    """All families, side by side, and how many coefficients their fits have."""

    families: tuple[Family, ...]
    columns: int = 0

    @classmethod
    def of(
        cls, sources: Sequence[Sample], *, every: bool = True, learned: bool = True, used: int | None = None
    ) -> Pool:
        """All families that suit the sources; ``every`` with those that seldom differ from others.

        Without ``learned``, no covariance between domains is learned, which takes most of the time.

        ``used`` is how many sources inform one domain: all by default, one less where they are all domains.
        """
        count = len(sources) if used is None else used
        families: list[Family] = [FocalFamily(len(sources))]
        if count:
            columns = sources[0].columns
            if learned and columns <= SETTINGS.narrow_columns and count >= SETTINGS.learned_sources:
                families.append(LearnedFamily.learn(sources))
            else:
                pooled = PooledFamily.learn(sources)
                families += [pooled, StackedFamily(pooled)]
                if (
                    every
                    and sources[0].intercept
                    and count <= SETTINGS.one_level_sources[columns > SETTINGS.wide_columns]
                ):
                    families.append(PooledFamily.learn(sources, one_level=True))
        return cls(tuple(families), sources[0].columns if count else 0)

    @classmethod
    def own_rows(cls, sources: Sequence[Sample]) -> Pool:
        """Only fits to the rows of a domain alone."""
        return cls((FocalFamily(len(sources)),), sources[0].columns if sources else 0)

    @property
    def labels(self) -> list[Label]:
        return [label for family in self.families for label in family.labels]

    def fits(self, task: Sample, allowed: Floats, memos: Sequence[Memo] | None = None) -> list[Fits]:
        """What all families make of a task; ``memos``, one of each family, serve one task."""
        return [family.fits(task, allowed, memo) for family, memo in zip(self.families, memos or repeat(None))]

    def row_memos(self, memos: Sequence[Memo], used: Booleans) -> list[Memo]:
        """What memos hold for any rows of their task; of candidates that are not ``used`` (C,), nothing is computed."""
        found, first = [], 0
        for family, memo in zip(self.families, memos):
            own = used[first : first + len(family.labels)]
            first += len(own)
            found.append({USED: own} | {key: memo[key] for key in ROW_FREE if key in memo})
        return found

    def batch_size(self, sources: int, rows: int) -> int:
        """How many validation tasks of so many rows are done in one call: one, if a family knows no batches."""
        if not all(isinstance(family, FocalFamily | LearnedFamily) for family in self.families):
            return 1
        entries = self.columns * (sources * self.columns + 8 * rows)
        return max(SETTINGS.batch_entries // max(entries, 1), 1)

    def batch_paths(self, tasks: Batch, allowed: Floats) -> Paths:
        """The paths of all families for tasks of equally many rows; ``allowed`` (T, N) has the sources of each."""
        # Where a family knows no batches, there are none.
        found = [cast(FocalFamily | LearnedFamily, family).fits(tasks, allowed).paths for family in self.families]
        return Paths(*(np.concatenate(parts, axis=1) for parts in zip(*found)))

    def release(self) -> None:
        """Let go of what is large and can be made again."""
        for family in self.families:
            if isinstance(family, PooledFamily):
                family.release()

    def prior(self, task: Sample, allowed: Floats, index: int, memos: Sequence[Memo] | None = None) -> Prior:
        """The prior behind one candidate; ``memos`` are those of the task's fits."""
        for family, memo in zip(self.families, memos or repeat(None)):
            if index < len(family.labels):
                return family.prior(task, allowed, index, memo)
            index -= len(family.labels)
        raise IndexError("there are fewer candidates")  # pragma: no cover - candidates are counted from these families


#: What a choice holds for the average, and for the best of the focal-only candidates.
_AVERAGED = ("head", "shares", "left_out", "judged_left_out")


@dataclass(frozen=True, eq=False)
class Choice(Validated):
    """What was chosen, and why.

    Attributes
    ----------
    head : array (d,)
        The average of the candidates' coefficients; that of the constant, where there is an intercept, is the last.
    labels : list of (family, settings)
    shares, errors, ridges : arrays (C,)
        Of each candidate: its share, leave-one-out mean squared error, effective ridge.
    task_errors : array (T, C)
        Mean squared errors in the validation tasks.
    weights : array (C, N)
        Weights of the sources in each candidate's prior mean (stacked: as the rows find them, none below zero).
    own : array (C,)
        Part of the fitted degrees of freedom that comes from the task's rows.
    left_out, spreads : arrays (n,)
        Residual of each row by the average without it; 1 + leverage/(1 - leverage) for the largest share.
    top : int
        The candidate with the largest share, before any weight was moved to the focal-only one.
    judged_left_out : array
        The same residuals, of the rows that candidates were judged on.
    focal_head, focal_shares, focal_left_out, focal_judged_left_out : arrays
        The same for the best of the focal-only candidates.
    tasks : list of ValidationTask
        With two candidates: the average, and the focal-only fit.
    memos : sequence of Memo, optional
        What families made of the task's rows, where these are all rows; not in files.
    """

    head: Floats
    labels: list[Label]
    shares: Floats
    errors: Floats
    ridges: Floats
    task_errors: Floats
    weights: Floats
    own: Floats
    left_out: Floats
    judged_left_out: Floats
    spreads: Floats
    top: int
    focal_left_out: Floats
    focal_judged_left_out: Floats
    focal_head: Floats
    focal_shares: Floats
    tasks: Sequence[Task]
    size: float
    task: Sample
    focal: Sample
    pool: Pool
    allowed: Floats
    memos: Sequence[Memo] | None = None

    @property
    def error(self) -> float:
        """Leave-one-out mean squared error of the average, over the rows that candidates were judged on."""
        return float(self.task.free.error(self.judged_left_out))

    @property
    def prior(self) -> Prior:
        """The prior of the candidate that ``spreads`` are of."""
        # Memos are kept where the task has all rows.
        task = self.focal.divided(self.size) if self.memos is None else self.task
        return self.pool.prior(task, self.allowed, self.top, self.memos)

    @cached_property
    def play_errors(self) -> Floats | None:
        """Mean squared error over the validation tasks, relative to the best candidate of each (geometric mean)."""
        return relative_errors(self.task_errors)

    @cached_property
    def _memos(self) -> Sequence[Memo]:
        """What families make of the task with all sources, of which much remains when one of them is left out."""
        memos = self.memos or [{} for _ in self.pool.families]
        self.pool.fits(self.task, self.allowed, memos)
        return memos

    def __getstate__(self) -> dict[str, Any]:
        # What is only remembered is made again where it is needed, and skops could not write its keys.
        return {name: value for name, value in vars(self).items() if name not in ("_memos", "memos")}

    def towards_own_rows(self, part: float) -> Choice:
        """The choice with ``part`` of its weight moved to the best of the focal-only candidates."""
        moved = {name: (1 - part) * getattr(self, name) + part * getattr(self, f"focal_{name}") for name in _AVERAGED}
        return replace(self, tasks=[task.averaged(np.array([1 - part, part])) for task in self.tasks], **moved)

    def without(self, index: int | None) -> tuple[Floats, Floats]:
        """Head, and residuals of left-out rows, with one source (or none) left out and the shares kept.

        The residuals are those of the rows that the candidates were judged on: all of them up to 4,000.
        """
        kept, shares = self.allowed.copy(), self.shares
        if index is not None and kept.sum() > 1:
            kept[index] = 0.0
        elif index is not None:
            shares = np.eye(len(shares))[focal_only_best(self.labels, self.errors)]
        paths = joined_paths(self.pool.fits(self.task, kept, self._memos))
        return shares @ paths.heads * self.size, mix(shares, paths.left_out) * self.size

    def within(self, directions: Floats) -> Floats:
        """Variances (m,) of linear functions (m, p[+1]) of coefficients over the noise, on average over candidates."""
        large = np.flatnonzero(self.shares > SETTINGS.smallest_share)
        share = self.shares[large] / self.shares[large].sum()
        priors = [self.pool.prior(self.task, self.allowed, place, self._memos) for place in large.tolist()]
        return np.sum([part * unknown_part(each, self.task, directions) for part, each in zip(share, priors)], axis=0)

    def alone(self, directions: Floats) -> Floats:
        """The same variances for the best of the focal-only candidates."""
        best = focal_only_best(self.labels, self.errors)
        return unknown_part(self.pool.prior(self.task, self.allowed, best, self._memos), self.task, directions)

    def between(self, directions: Floats, middle: Floats) -> Floats:
        """Mean square distances (m,) of the candidates' linear functions from ``middle``."""
        heads = joined_paths(self.pool.fits(self.task, self.allowed, self._memos)).heads * self.size
        return self.shares @ (heads @ directions.T - middle) ** 2


def posterior_covariance(prior: Prior, task: Sample) -> Floats:
    """Covariance of the coefficients given the rows of a task, over the noise; without that of a free intercept."""
    regression = task.free if prior.free_intercept else task.full
    covariance = prior.scale * prior.covariance
    inside = np.eye(len(covariance)) + covariance @ regression.gram / prior.noise
    posterior = np.linalg.solve(inside, covariance) / prior.noise
    return (posterior + posterior.T) / 2


def unknown_part(prior: Prior, task: Sample, directions: Floats) -> Floats:
    """Posterior variances (m,) of linear functions (m, p[+1]) of the coefficients, over the noise."""
    level = np.zeros(len(directions))
    if prior.free_intercept and task.intercept:
        # The intercept is the mean target less that of the features: its own error is that of a mean.
        constant, directions = directions[:, -1], directions[:, :-1]
        directions = directions - constant[:, None] * task.center.features
        level = constant**2 / task.total
    inside = np.sum((directions @ posterior_covariance(prior, task)) * directions, axis=1)
    return level + np.maximum(inside, 0.0)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is drawn before anything is fitted, the same for all feature maps.

    Attributes
    ----------
    judged : array or None
        Places of the focal rows that candidates are judged on; None for all.
    rows : int
        Rows that a source in the focal role learns from.
    spare : bool
        Whether sources have rows to spare for tests.
    tasks : list of (source, order of its rows)
    """

    judged: Integers | None
    rows: int
    spare: bool
    tasks: Sequence[tuple[int, Integers]]

    def shuffled(self, seed: int) -> Plan:
        """The same with validation tasks in random order, so that the first ones stand for all."""
        order = np.random.default_rng([seed, len(self.tasks)]).permutation(len(self.tasks))
        return replace(self, tasks=[self.tasks[place] for place in order])

    def first(self, count: int) -> Plan:
        """The same with fewer validation tasks."""
        return replace(self, tasks=self.tasks[:count])


def choose(
    focal: Sample,
    sources: Sequence[Sample],
    *,
    seed: int = 0,
    plan: Plan | None = None,
    tasks: Sequence[Task] | None = None,
    pool: Pool | None = None,
    every: bool = True,
    learned: bool = True,
) -> Choice:
    """Average candidates for the focal domain with weights from cross-domain validation and leave-one-out.

    Parameters
    ----------
    focal : Sample
        With its rows.
    sources : sequence of Sample
        With or without their rows: those without inform priors, and take no focal role. All samples are on one scale
        of features, with targets about a common level.
    seed : int
        Which rows and sources are drawn for validation.
    plan : Plan, optional
        What was drawn, by :func:`draw_plan` from other features of the same rows.
    tasks : sequence of ValidationTask or SummedTask, optional
        Validation tasks that were done elsewhere, by :class:`RemoteTasks`; none are done here then.
    pool : Pool, optional
        Other candidates than those that the sources give, for targets divided by their standard deviation.
    every : bool
        Whether to have candidates with one intercept for all sources too.
    learned : bool
        Whether to have candidates with a covariance between domains that is learned from the sources.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune.moments import Rows
    >>> rng = np.random.default_rng(0)
    >>> def sample(n, slope):
    ...     x = rng.standard_normal(n)
    ...     return Sample.of(Rows(x[:, None], slope * x + rng.standard_normal(n)))
    >>> found = choose(sample(8, 2.0), [sample(60, slope) for slope in (1.9, 2.0, 2.1, 2.05)])
    >>> bool(abs(found.head[0] - 2.0) < 0.2)
    True
    """
    size = target_scale([focal, *sources])
    given, focal, sources = focal, focal.divided(size), [source.divided(size) for source in sources]
    pool = Pool.of(sources, every=every, learned=learned) if pool is None else pool
    allowed = np.ones(len(sources))
    plan = draw_plan(focal, sources, seed=seed) if plan is None else plan
    judged = focal if plan.judged is None else focal.judged(plan.judged)
    here = validation_tasks(pool, sources, plan) if tasks is None else []
    memos: list[Memo] | None = None if plan.judged is None else [{} for _ in pool.families]
    jobs: list[Callable[[], Any]] = [partial(pool.fits, judged, allowed, memos), *here]
    fits, *done = in_threads(lambda job: job(), jobs, width=focal.columns)
    known = validated_weights(pool, [*chain.from_iterable(done)] if tasks is None else tasks)
    found = choice_of(pool, given, judged, allowed, fits, known, size, memos)
    pool.release()
    return found


def validated_weights(pool: Pool, tasks: Sequence[Task]) -> TaskWeights:
    """What validation tasks say about the weights of all candidates."""
    prior = prior_weights([name for name, _ in pool.labels])
    return weights_of_tasks(prior, tasks, enough=enough_sources(pool.columns))


def enough_sources(columns: int) -> int:
    """How many validated sources decide weights freely: fewer where columns are many."""
    return SETTINGS.enough_sources // (1 if columns <= SETTINGS.narrow_columns else 2)


def choice_of(
    pool: Pool,
    given: Sample,
    judged: Sample,
    allowed: Floats,
    fits: Sequence[Fits],
    known: TaskWeights,
    size: float,
    memos: Sequence[Memo] | None = None,
) -> Choice:
    """The average for one domain, from the fits of all candidates and what validation tasks say.

    ``given`` is the domain in the units of its targets, ``judged`` the same with targets divided by ``size`` and the
    rows that candidates are judged on; ``allowed`` (N,) says which sources inform it. ``memos`` are those of the fits.
    """
    focal, tasks = given.divided(size), known.tasks
    partly = len(judged.known.y) < len(focal.known.y)
    heads, left_out, leverages = joined_paths(fits)
    weight = judged.known.weight
    negligible = negligible_error(focal)
    scores = robust_errors(left_out, weight, negligible)
    if allowed.any():
        shares, focal_shares = averaging_shares(
            pool.labels, scores, left_out, weight, known, (focal.total, judged.total), negligible
        )
    else:
        shares = focal_shares = tilted_weights(scores, known, focal.total, negligible=negligible)
    top = int(np.argmax(shares))
    own = leverages @ (weight / judged.free.unit) * (focal.moments.count / len(weight))
    if partly:
        rows = _all_rows(
            pool, focal, allowed, np.stack([shares, focal_shares]), top, memos or [{}] * len(pool.families)
        )
    else:
        rows = np.stack([mix(shares, left_out), mix(focal_shares, left_out), leverages[top]])
    return Choice(
        head=shares @ heads * size,
        labels=pool.labels,
        shares=shares,
        errors=judged.free.error(left_out) * size**2,
        ridges=np.concatenate([f.ridges for f in fits]),
        task_errors=np.array([task.errors for task in tasks]).reshape(len(tasks), len(shares)),
        weights=np.concatenate([f.weights for f in fits]),
        own=np.clip(own / max(min(focal.total, focal.columns), 1), 0.0, 1.0),
        left_out=rows[0] * size,
        judged_left_out=mix(shares, left_out) * size,
        spreads=1.0 + rows[2] / np.maximum(1.0 - rows[2], 1e-9),
        top=top,
        focal_left_out=rows[1] * size,
        focal_judged_left_out=mix(focal_shares, left_out) * size,
        focal_head=focal_shares @ heads * size,
        focal_shares=focal_shares,
        tasks=[task.averaged(shares) for task in tasks],
        size=size,
        task=judged,
        focal=given,
        pool=pool,
        allowed=allowed,
        memos=None if partly else memos,
    )


def averaging_shares(
    labels: Sequence[Label],
    scores: Floats,
    left_out: Floats,
    weight: Floats,
    known: TaskWeights,
    totals: tuple[float, float],
    negligible: float,
) -> tuple[Floats, Floats]:
    """Shares (C,) of all candidates, and those of the best focal-only one alone.

    ``scores`` are robust errors of the ``left_out`` residuals (C, n), and ``totals`` count all rows of the domain and
    those that candidates are judged on.
    """
    shares = tilted_weights(scores, known, totals[0], negligible=negligible)
    focal_shares = np.eye(len(shares))[focal_only_best(labels, scores)]
    alone = nested_left_out(labels, left_out, weight, negligible)
    mixed = mix(shares, left_out)
    shares = guarded(mixed, alone, weight, totals[1], shares, focal_shares, known.tasks, negligible=negligible)
    return shares, focal_shares


def draw_plan(focal: Sample, sources: Sequence[Sample], *, seed: int, most: int | None = None) -> Plan:
    """Draw the rows that candidates are judged on, and validation tasks, at most ``most`` of them.

    Tasks are of sources with rows to spare, or at least half as many as the focal domain. Sources whose rows are
    unknown inform priors only. What is drawn follows the content of rows and sources, not the order they came in.
    """
    sizes = [source.size for source in sources]
    return _by_content(plan_of(focal, sizes, lambda k: rank_of(sources[k].known), seed=seed, most=most), sources)


def plan_of(
    focal: Sample, sizes: Sequence[int], rank: Callable[[int], Any], *, seed: int, most: int | None = None
) -> Plan:
    """The plan for sources of so many rows, with places in the order of their content; ``rank`` orders the sources."""
    rng = np.random.default_rng(seed)
    judged, rows = judged_rows(focal, rng), max(round(focal.total), 1)
    return plan_of_sizes(rows, dict(enumerate(sizes)), focal.columns, rank, rng, judged=judged, most=most)


def judged_rows(focal: Sample, rng: np.random.Generator) -> Integers | None:
    """Places of the rows that candidates are judged on; None for all of them."""
    count = len(focal.known.y)
    # Some rows, with the sums of all, do for paths through d x d matrices only.
    if count <= max(SETTINGS.judged_rows, focal.columns):
        return None
    return np.sort(by_content(focal.known)[rng.choice(count, SETTINGS.judged_rows, replace=False)])


def draw_tasks(
    rows: int, sources: Sequence[Sample], usable: Sequence[int], rng: np.random.Generator, *, most: int | None = None
) -> Plan:
    """Validation tasks of sources at the ``usable`` places, each of which learns from ``rows`` rows."""
    sizes = {k: sources[k].size for k in usable}
    plan = plan_of_sizes(rows, sizes, sources[0].columns, lambda k: rank_of(sources[k].known), rng, most=most)
    return _by_content(plan, sources)


def _by_content(plan: Plan, sources: Sequence[Sample]) -> Plan:
    """The plan with places of rows, from places in the order of their content."""
    orders = {k: by_content(sources[k].known) for k in {k for k, _ in plan.tasks}}
    return replace(plan, tasks=[(k, orders[k][places]) for k, places in plan.tasks])


def plan_of_sizes(
    rows: int,
    sizes: Mapping[int, int],
    columns: int,
    rank: Callable[[int], Any],
    rng: np.random.Generator,
    *,
    judged: Integers | None = None,
    most: int | None = None,
) -> Plan:
    """Validation tasks of sources that have so many rows, with places in the order of their content."""
    nothing = Plan(judged, rows, False, [])
    if rows > SETTINGS.validated_rows or len(sizes) < SETTINGS.validated_sources:
        return nothing
    able = [k for k, size in sizes.items() if size >= rows + max(8, rows // 4)]
    # Where rows cannot be spared for a test, they are left out in turn.
    spare = len(able) >= 2
    if not spare:
        able = [k for k, size in sizes.items() if size >= max(rows / 2, 8)]
    if len(able) < 2:
        return nothing
    narrow = columns <= SETTINGS.narrow_columns
    most = most or SETTINGS.most_tasks[0 if narrow else 1 + (columns > SETTINGS.wide_columns)]
    able = sorted(able, key=rank)
    if len(able) > most:
        able = [int(k) for k in rng.choice(able, most, replace=False)]
    turns = min(most // len(able), SETTINGS.tasks_per_source) if spare and narrow else 1
    return Plan(judged, rows, spare, [(k, rng.permutation(sizes[k])) for _ in range(turns) for k in able])


def validation_tasks(
    pool: Pool, sources: Sequence[Sample], plan: Plan, known: Floats | None = None
) -> list[Callable[[], list[ValidationTask]]]:
    """Jobs that do the validation tasks in order, some of them each.

    ``known`` (N,) says which sources may inform them, all by default.
    """
    most = pool.batch_size(len(sources), plan.rows)
    runs: list[list[tuple[int, Integers]]] = []
    for k, order in plan.tasks:
        last = runs[-1] if runs else []
        alike = last and len(last[0][1][: plan.rows]) == len(order[: plan.rows])
        if alike and len(last) < most:
            last.append((k, order))
        else:
            runs.append([(k, order)])
    allowed = np.ones(len(sources)) if known is None else known
    return [partial(_validate, pool, sources, plan, allowed, run) for run in runs]


def _validate(
    pool: Pool, sources: Sequence[Sample], plan: Plan, known: Floats, run: Sequence[tuple[int, Integers]]
) -> list[ValidationTask]:
    """Validation tasks of equally many rows, in one call for each family."""
    allowed = np.tile(known, (len(run), 1))
    allowed[np.arange(len(run)), [k for k, _ in run]] = 0.0
    if len(run) == 1:
        task = _task(sources[run[0][0]], run[0][1][: plan.rows])
        return [_validated(pool, sources, plan, run[0], *_one_task(pool, plan, task, allowed[0]))]
    parts = [sources[k].known.part(_places(sources[k], order[: plan.rows])) for k, order in run]
    batch = Batch(parts, intercept=sources[0].intercept)
    heads, left_out, _ = pool.batch_paths(batch, allowed)
    smallest = [negligible_part(variance) for variance in (batch.free.square / batch.total).tolist()]
    own = left_out[:, : len(SETTINGS.focal_ridges)]
    rows = zip(run, heads, left_out, own, parts, parts, smallest)
    return [_validated(pool, sources, plan, *each) for each in rows]


def _task(source: Sample, places: Integers) -> Sample:
    """The rows of a source at these places; where they are all of its rows, the source itself, with its spectrum."""
    whole = len(places) == source.size == source.moments.count
    return source if whole else source.part(_places(source, places))


def _places(source: Sample, places: Integers) -> Integers | slice:
    """The places, or all rows in their own order if all were drawn: tasks of several maps have the same rows."""
    return slice(None) if len(places) == source.size else places


def _one_task(
    pool: Pool, plan: Plan, task: Sample, allowed: Floats
) -> tuple[Floats, Floats, Floats, Rows, Rows, float]:
    """What :func:`_validated` needs, of a task that may have many columns."""
    judged = task
    if plan.spare and task.columns > SETTINGS.wide_columns and not task.free.wide:
        # Residuals of left-out rows say how wide intervals are; some rows say that as well.
        own = pool.families[0].fits(task, allowed).paths.left_out
        judged = task.judged(slice(SETTINGS.left_out_rows))
    heads, left_out, _ = joined_paths(pool.fits(judged, allowed))
    if judged is task:
        own = left_out[: len(SETTINGS.focal_ridges)]
    return heads, left_out, own, task.known, judged.known, negligible_error(task)


def _validated(
    pool: Pool,
    sources: Sequence[Sample],
    plan: Plan,
    place: tuple[int, Integers],
    heads: Floats,
    left_out: Floats,
    own: Floats,
    rows: Rows,
    judged: Rows,
    negligible: float,
) -> ValidationTask:
    """A validation task from its fits.

    ``left_out`` are residuals of the ``judged`` ones among its ``rows``, ``own`` those of all rows, by the fits to its
    rows alone.
    """
    k, order = place
    limit = robust_limit(left_out, judged.weight, negligible)
    alone = focal_only_best(pool.labels, robust_errors(own, rows.weight, negligible, limit))
    if not plan.spare:
        most = SETTINGS.largest_residual
        clipped = np.clip(left_out, -most, most)
        return ValidationTask(k, clipped, rows.weight, left_out, alone, negligible, rows.weight, rows.y)
    test = sources[k].known.part(order[plan.rows : plan.rows + SETTINGS.test_rows])
    fitted = heads[:, : test.X.shape[1]] @ test.X.T + (heads[:, -1:] if sources[k].intercept else 0.0)
    return ValidationTask(k, test.y - fitted, test.weight, left_out, alone, negligible, judged.weight, test.y)


def joined_paths(fits: Sequence[Fits]) -> Paths:
    """The paths of all families, one below the other."""
    return Paths(*(np.concatenate(parts) for parts in zip(*(f.paths for f in fits))))


def by_content(rows: Rows) -> Integers:
    """The places of rows in an order that depends neither on where they came nor on the order or sign of their columns.

    Features come first, which several outputs share. They are rounded, since the same row at another place may differ
    by rounding.
    """
    norms, cubes = rows.sizes
    # Rows with equal norms and targets are told apart by a direction along which any two rows differ.
    along = rows.along(np.sin(2.0 + np.arange(rows.shape[1])))
    return np.lexsort((rows.weight, along, rows.targets.sum(axis=1), np.round(cubes, 9), np.round(norms, 9)))


def content_order(sources: Sequence[Rows]) -> Integers:
    """The places of the sources in an order that follows from their content."""
    return np.array(sorted(range(len(sources)), key=lambda k: rank_of(sources[k])), dtype=np.int64)


def rank_of(rows: Rows) -> tuple[float, ...]:
    """What sources are ordered by; sums over rows in another order differ by rounding."""
    y = rows.targets.sum(axis=1)
    sums = [float(rows.weight @ part) for part in ranked_parts(*rows.sizes, y)]
    return rank_of_sums(len(y), rows.total, sums)


def ranked_parts(norms: Array, cubes: Array, y: Array) -> tuple[Array, ...]:
    """Of each row, what is summed over the rows of a source to rank it; see :attr:`Rows.sizes`."""
    return norms, cubes, y**2, y, norms * y


def rank_of_sums(count: int, total: float, sums: Sequence[float]) -> tuple[float, ...]:
    """What a source is ordered by, from sums of :func:`ranked_parts`."""
    return count, *(round(value, 6) for value in (total, *sums))


def _all_rows(pool: Pool, focal: Sample, allowed: Floats, mixes: Floats, top: int, memos: Sequence[Memo]) -> Floats:
    """Left-out residuals of the mixes, and leverages of one candidate, for all rows, block by block."""
    parts = []
    used = np.any(mixes > SETTINGS.rounding_share, axis=0)
    used[top] = True
    for start in range(0, len(focal.known.y), SETTINGS.judged_rows):
        block = focal.judged(slice(start, start + SETTINGS.judged_rows))
        paths = joined_paths(pool.fits(block, allowed, pool.row_memos(memos, used)))
        parts.append(np.vstack([*(mix(share, paths.left_out) for share in mixes), paths.leverages[top]]))
    return np.hstack(parts)


def target_scale(samples: Sequence[Sample]) -> float:
    """Standard deviation of all targets, or 1 where they do not vary."""
    total = sum(sample.total for sample in samples)
    square = sum(float(sample.moments.square) for sample in samples) / total
    mean = sum(sample.total * float(sample.center.targets) for sample in samples) / total
    variance = square - mean**2
    return float(np.sqrt(variance)) if variance > 64 * EPSILON * square else 1.0


def sample_sources(
    sources: Sequence[Rows], *, seed: int, prepare: Callable[[Rows], Rows] = lambda rows: rows, most: int | None = None
) -> Integers:
    """Places of the sources to learn from, in order: all of them up to ``most`` (512), of more a draw.

    How domains differ is known well from some hundred of them; of very small sources, so many are drawn that there are
    20 rows for each column. The draw is at random, since sources picked for how well they suit the focal rows would
    make leave-one-out on these rows look too good. It follows the content of the sources, not their order; ``prepare``
    takes them to units that are the same whatever theirs are.

    Examples
    --------
    >>> sources = [Rows(np.full((50, 4), float(k)), np.zeros(50)) for k in range(1000)]
    >>> sample_sources(sources[:3], seed=0), len(sample_sources(sources, seed=0))
    (array([0, 1, 2]), 512)
    """
    count, most = len(sources), SETTINGS.sampled_sources if most is None else most
    if count <= most:
        return np.arange(count)
    rows, width = sum(len(source.y) for source in sources), sources[0].shape[1]
    wanted = int(np.ceil(SETTINGS.rows_per_column * width / (rows / count)))
    order = sorted(range(count), key=lambda k: rank_of(prepare(sources[k])))
    # A generator of its own, so that what else is drawn does not depend on whether sources were.
    rng = np.random.default_rng([seed, count])
    return np.sort(rng.choice(order, min(max(most, wanted), count), replace=False))
