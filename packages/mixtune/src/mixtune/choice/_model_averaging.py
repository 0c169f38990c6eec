"""Weights of the candidates: what cross-domain validation and leave-one-out make of them, and a guard against harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mixtune.arrays import EPSILON, Array, Booleans, Floats, Integers, match, namespace, partitioned
from mixtune.choice._compare import OWN_ROWS, compare, gain_posterior
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Sample, best_ridge, best_ridges, times

#: Of Newton's method: most steps, of which 5 are typical, and the longest and shortest change of a logarithm.
MOST_STEPS, LONGEST_STEP, SHORTEST_STEP = 100, 8.0, 1e-10


@dataclass(frozen=True, eq=False)
class ValidationTask:
    """Residuals (C, m) on the rows kept for testing, and of left-out rows (C, n), both with the weights of their rows.

    ``targets`` (m,) are those of the rows kept for testing, and ``inputs`` (m, k) the features that are inputs.

    ``source`` took the focal role, ``alone`` is the focal-only candidate that leave-one-out would have taken, and mean
    squared errors below ``negligible`` count as equal.
    """

    source: int
    residuals: Floats
    weight: Floats
    left_out: Floats
    alone: int
    negligible: float = SETTINGS.negligible_error
    left_out_weight: Floats | None = None
    targets: Floats | None = None
    inputs: Floats | None = None
    stands_for: ClassVar[int] = 1

    @property
    def errors(self) -> Floats:
        """Mean squared error of every candidate."""
        return (self.residuals**2) @ (self.weight / self.weight.sum())

    def error(self, shares: Floats) -> float:
        """Mean squared error of the average."""
        return float((shares @ self.residuals) ** 2 @ (self.weight / self.weight.sum()))

    @property
    def total(self) -> float:
        """The number of rows that were kept for testing, each counting as its weight."""
        return float(self.weight.sum())

    def products(self) -> Floats:
        """Mean products (C, C) of the candidates' residuals, relative to the error of the best of them."""
        # Of targets that do not vary many candidates are exact, which says nothing.
        varying = self.targets is None or np.ptp(self.targets) > 0
        least = np.asarray(self.negligible**0.5 if varying else 0.0)
        return clipped_products(self.residuals, self.weight, self.errors, np.asarray(self.negligible), least)

    def inside(self, shares: Floats) -> float:
        """Mean square of the average's residuals of left-out rows."""
        return float(np.average(mix(shares, self.left_out) ** 2, weights=self.left_out_weight))

    def averaged(self, shares: Floats) -> ValidationTask:
        """The task with two candidates: the average, and the focal-only fit."""
        parts = self.residuals, self.left_out
        residuals, left_out = (np.array([mix(shares, part), part[self.alone]]) for part in parts)
        return replace(self, residuals=residuals, left_out=left_out, alone=1)


@dataclass(frozen=True, eq=False)
class SummedTask:
    """A validation task that was done elsewhere, of which only sums over its rows are known.

    Attributes
    ----------
    source, alone, negligible
        As of :class:`ValidationTask`.
    total : float
        The number of rows that were kept for testing.
    squares, clipped, left : arrays (C, C)
        Mean products of residuals on these rows; those of :meth:`ValidationTask.products`; and mean products of
        residuals of left-out rows, over the candidates for which all of them are finite.
    finite : array (C,) of bool
        Whether a candidate can do without each of its rows.
    stands_for : int
        Of how many sources these are the sums.
    """

    source: int
    total: float
    squares: Floats
    clipped: Floats
    left: Floats
    finite: Booleans
    alone: int
    negligible: float = SETTINGS.negligible_error
    stands_for: int = 1

    @classmethod
    def of(cls, task: ValidationTask) -> SummedTask:
        """The sums of a task."""
        finite = np.all(np.isfinite(task.left_out), axis=1)
        left = np.where(finite[:, None], task.left_out, 0.0)
        squares = (task.residuals * (task.weight / task.weight.sum())) @ task.residuals.T
        known = np.ones(left.shape[1]) if task.left_out_weight is None else task.left_out_weight
        inside = (left * (known / known.sum())) @ left.T
        return cls(
            task.source, task.total, squares, task.products(), inside, finite, task.alone, float(task.negligible)
        )

    @classmethod
    def of_sums(cls, squares: Floats, clipped: Floats, count: int) -> SummedTask:
        """A task that stands for ``count`` sources, from weighted means of their products (C, C)."""
        own = len(SETTINGS.focal_ridges)
        alone = int(np.argmin(np.diagonal(squares)[:own]))
        nothing = np.zeros_like(squares)
        finite = np.zeros(len(squares), dtype=bool)
        return cls(0, 1.0, squares, clipped, nothing, finite, alone, stands_for=count)

    @classmethod
    def merged(cls, tasks: Sequence[SummedTask]) -> SummedTask:
        """The sum of tasks, each weighed by the root of its test rows, with errors relative to its own rows alone."""
        says = np.sqrt([task.total for task in tasks])
        says = says / says.sum()
        squares = sum(say * task.squares / max(task.errors[task.alone], 1e-12) for say, task in zip(says, tasks))
        clipped = sum(say * task.clipped for say, task in zip(says, tasks))
        return cls.of_sums(np.asarray(squares), np.asarray(clipped), len(tasks))

    @property
    def errors(self) -> Floats:
        """Mean squared error of every candidate."""
        return np.maximum(np.diagonal(self.squares), 0.0)

    def error(self, shares: Floats) -> float:
        """Mean squared error of the average."""
        return max(float(shares @ self.squares @ shares), 0.0)

    def products(self) -> Floats:
        return self.clipped

    def inside(self, shares: Floats) -> float:
        """Mean square of the average's residuals of left-out rows."""
        used = shares > 0
        return float(shares @ self.left @ shares) if np.all(self.finite[used]) else np.inf

    def averaged(self, shares: Floats) -> SummedTask:
        """The task with two candidates: the average, and the focal-only fit."""
        both = np.stack([shares, np.eye(len(shares))[self.alone]])
        squares, clipped, left = (both @ part @ both.T for part in (self.squares, self.clipped, self.left))
        finite = np.array([bool(np.all(self.finite[each > 0])) for each in both])
        return replace(self, squares=squares, clipped=clipped, left=left, finite=finite, alone=1)


Task = ValidationTask | SummedTask


@dataclass(frozen=True, eq=False)
class TaskWeights:
    """Weights (C,) that validation tasks give the candidates, and how many times its share a row must say to move them.

    ``tasks`` are those that they come from; without any, the weights are those before anything is known.
    """

    shares: Floats
    trust: float
    tasks: Sequence[Task]


def weights_of_tasks(prior: Floats, tasks: Sequence[Task], *, enough: int) -> TaskWeights:
    """Weights fitted to the validation tasks alone; ``prior`` are those before anything is known.

    Where ``enough`` sources were validated, their tasks decide freely.
    """
    if not tasks:
        return TaskWeights(prior, SETTINGS.rows_trust, tasks)
    pull, told, trust = _said(tasks, enough)
    return TaskWeights(stacked_weights(tasks, prior, pull, told=told), trust, tasks)


def weights_of_runs(prior: Floats, runs: Sequence[Sequence[Task]], *, enough: int) -> list[TaskWeights]:
    """The same for the validation tasks of several runs, of equally many sources, all in one call."""
    pull, told, trust = _said(runs[0], enough)
    crosses, priors = zip(*(_stacked(tasks, prior, told) for tasks in runs))
    shares = _simplex_weights(np.stack(crosses), np.stack(priors), pull)
    return [TaskWeights(share, trust, tasks) for share, tasks in zip(shares, runs)]


def _said(tasks: Sequence[Task], enough: int) -> tuple[float, float, float]:
    """What the number of validated sources says: the pull to prior weights, how errors change these, and the trust."""
    sources = len(validated_sources(tasks)) + sum(task.stands_for - 1 for task in tasks)
    pull = SETTINGS.prior_pull * max(enough / sources, 1.0) ** 2
    told = max(sources - SETTINGS.untold_sources, 0) / SETTINGS.told_errors
    # The better the tasks know the weights, the less the few focal rows may move them.
    trust = SETTINGS.rows_trust + SETTINGS.tasks_trust * min(sources / SETTINGS.enough_sources, 1.0)
    return pull, told, trust


def tilted_weights(scores: Floats, known: TaskWeights, count: float, *, negligible: float = 0.0) -> Floats:
    """The same weights, tilted by leave-one-out errors (C,) on ``count`` rows."""
    finite = np.isfinite(scores)
    if not finite.any():
        # Nothing can be left out: what validation says, or without any the last candidate.
        return known.shares if known.tasks else np.eye(len(scores))[-1]
    best = max(float(scores[finite].min()), negligible, 1e-300)
    with np.errstate(over="ignore"):
        exponent = np.where(finite, -(scores - best) / (known.trust * best / count), -np.inf) + np.log(known.shares)
    tilted = np.exp(exponent - exponent.max())
    return tilted / tilted.sum()


def guarded(
    ours: Floats,
    alone: Floats,
    weight: Floats,
    count: float,
    shares: Floats,
    focal: Floats,
    tasks: Sequence[Task],
    *,
    negligible: float = 0.0,
) -> Floats:
    """Move weights to the focal-only fit by as much as it is likelier than not that transfer does harm here.

    Sources that agree with one another, and not with the focal domain, do well in every validation task; only the
    focal rows can tell. ``ours`` and ``alone`` are left-out residuals of the average and of the focal-only fit.
    """
    # Residuals that are negligible, of both, must not decide by their rounding.
    small = negligible**0.5
    found = compare(OWN_ROWS, ours * (np.abs(ours) > small), alone * (np.abs(alone) > small), weight)
    grid, share = gain_posterior(found, transfer_gains(tasks, shares), count)
    harm = float(np.clip(2 * (share @ (grid > 0)) - 1, 0.0, 1.0))
    return (1 - harm) * shares + harm * focal


def stacked_weights(
    tasks: Sequence[Task],
    equal: Floats,
    pull: float,
    *,
    told: float = 0.0,
    says: Floats | None = None,
) -> Floats:
    """Simplex weights of least mean squared error of the averaged prediction over tasks.

    The error of averages is flat in many directions: there, candidates with smaller errors of their own come first, by
    exp(-told error). ``says`` are weights of the tasks; by default, the square roots of their total weights.
    """
    return _simplex_weights(*_stacked(tasks, equal, told, says), pull)


def _stacked(tasks: Sequence[Task], equal: Floats, told: float, says: Floats | None = None) -> tuple[Floats, Floats]:
    """Mean products (C, C) of the candidates' residuals over tasks, and weights (C,) before averages are compared."""
    cross = np.zeros((len(equal), len(equal)))
    # Many rows know a task's error better than few, but of one source only.
    says = np.sqrt([task.total for task in tasks]) if says is None else says
    for task, say in zip(tasks, says / says.sum()):
        cross += say * task.products()
    errors = np.diagonal(cross)
    return cross, np.maximum(equal * np.exp(-told * (errors - errors.min())), 1e-300)


def clipped_products(residuals: Array, weight: Floats, errors: Array, negligible: Array, least: Array) -> Array:
    """Mean products (..., C, C) of residuals (..., C, m) whose outliers count as less, relative to a good error.

    ``errors`` (..., C) are mean squares of the residuals, and errors below ``negligible`` (...) count as equal.
    Residuals up to ``least`` (...) count in full: beside a candidate that is exact, the others must not look so.
    """
    xp, count = namespace(residuals), residuals.shape[-2]
    good = xp.sort(errors, axis=-1)[..., : max(1, count // 4)]
    middle = 0.5 * (good[..., (good.shape[-1] - 1) // 2] + good[..., good.shape[-1] // 2])
    share = match(weight / weight.sum(), residuals) / xp.maximum(middle, negligible)[..., None]
    # Two outliers must not decide: residuals count up to five times their typical size.
    limit = xp.maximum(5.0 * 1.4826 * xp.min(_medians(abs(residuals), weight), axis=-1), least)[..., None, None]
    kept = xp.minimum(xp.maximum(residuals, -limit), limit)
    return (kept * share[..., None, :]) @ xp.matrix_transpose(kept)


def _simplex_weights(cross: Floats, prior: Floats, pull: float) -> Floats:
    """Weights of least ``share' cross share + pull KL(share, prior)``, by Newton's method in their logarithms.

    ``cross`` is (..., C, C) and ``prior`` (..., C): several problems are solved side by side.
    """
    shape, size = prior.shape, prior.shape[-1]
    cross, prior = cross.reshape(-1, size, size), prior.reshape(-1, size)
    found, left, ridge = np.empty_like(prior), np.arange(len(prior)), pull * np.eye(size)

    def objective(share: Floats) -> Floats:
        return (share * (times(cross, share) + pull * np.log(share / prior))).sum(axis=1)

    share = prior / prior.sum(axis=1, keepdims=True)
    now = objective(share)
    for _ in range(MOST_STEPS):
        slope = 2 * times(cross, share) + pull * np.log(share / prior)
        # With H = 2 cross diag(share) + pull I, the step is H^{-1} (c - slope), c such that the sum of shares stays.
        sides = np.stack([slope, np.ones_like(slope)], axis=2)
        solved, ones = np.moveaxis(np.linalg.solve(2 * cross * share[:, None] + ridge, sides), 2, 0)
        step = ones * ((share * solved).sum(axis=1) / (share * ones).sum(axis=1))[:, None] - solved
        gain = -(share * slope * step).sum(axis=1)
        # A share that all but vanishes may have a step of any length, which must not shorten those of the others.
        step = np.clip(step, -LONGEST_STEP, LONGEST_STEP)
        moved = _moved(share, step)
        # Soon rounding hides what the objective gains, but this last step still doubles the correct digits.
        last = gain <= 1e3 * EPSILON * (np.abs(now) + pull)
        then = objective(moved)
        while np.any(short := ~last & (then >= now) & (np.abs(step).max(axis=1) > SHORTEST_STEP)):
            step = np.where(short[:, None], step / 2, step)
            moved = _moved(share, step)
            then = objective(moved)
        worse = ~last & (then >= now)
        share, now = np.where(worse[:, None], share, moved) if worse.any() else moved, then
        if np.any(done := last | worse):
            found[left[done]] = share[done]
            left, cross, prior, share, now = (part[~done] for part in (left, cross, prior, share, now))
            if not len(left):
                break
    found[left] = share
    return found.reshape(shape)


def _moved(share: Floats, step: Floats) -> Floats:
    """Shares (B, C) whose logarithms move by ``step``; none is so small that it has no logarithm."""
    moved = np.maximum(share * np.exp(step), 1e-300)
    return moved / moved.sum(axis=-1, keepdims=True)


def _medians(values: Array, weight: Floats) -> Array:
    """Medians (..., C) of rows of values, where a value of weight 2 counts as two."""
    if weight.min() == weight.max():
        # As np.median, in a third of the time for short rows, of which there are thousands.
        half = values.shape[-1] // 2
        low = half - (values.shape[-1] % 2 == 0)
        ordered = partitioned(values, (low, half))
        return 0.5 * (ordered[..., low] + ordered[..., half])
    options: Any = {"axis": 1, "weights": np.broadcast_to(weight, values.shape), "method": "inverted_cdf"}
    # Between two values, the mean of both, as for values without weights.
    return 0.5 * (np.quantile(values, 0.5, **options) - np.quantile(-values, 0.5, **options))


def prior_weights(names: Sequence[str]) -> Floats:
    """Every family has the same weight before anything is known, split evenly within."""
    counts = Counter(names)
    return np.array([1.0 / counts[name] for name in names]) / len(counts)


def negligible_error(sample: Sample) -> float:
    """Mean squared errors below this count as equal: a small part of the variance of the targets.

    The variance is that of the rows: from sums, rounding would decide whether targets vary at all.
    """
    rows = sample.known
    level = float(sample.center.targets) if sample.intercept else 0.0
    return negligible_part(float(rows.weight @ (rows.y - level) ** 2) / rows.total)


def negligible_part(variance: float) -> float:
    """The same, from the variance of the targets."""
    return SETTINGS.negligible_error * (variance if variance > SETTINGS.negligible_error**2 else 1.0)


def robust_errors(left_out: Array, weight: Floats, negligible: Any = 0.0, limit: Array | None = None) -> Array:
    """Leave-one-out errors (..., C): means of :func:`robust_losses`, none below ``negligible`` (...)."""
    losses = robust_losses(left_out, weight, negligible, limit)
    least = match(negligible, left_out)[..., None]
    return namespace(losses).maximum(losses @ match(weight / weight.sum(), losses), least)


def robust_losses(left_out: Array, weight: Floats, negligible: Any = 0.0, limit: Array | None = None) -> Array:
    """Squares (..., C, n) of residuals, which grow only linearly beyond the limit; by default that of these."""
    size = abs(left_out)
    limit = (robust_limit(left_out, weight, negligible) if limit is None else limit)[..., None, None]
    with np.errstate(over="ignore", invalid="ignore"):
        return namespace(size).where(size <= limit, size**2, limit * (2 * size - limit))


def robust_limit(left_out: Array, weight: Floats, negligible: Any = 0.0) -> Array:
    """Three times the typical residual of the best candidate, (...)."""
    size, place = abs(left_out), (left_out.shape[-1] - 1) // 2
    xp = namespace(size)
    if np.ptp(weight) == 0:
        middle = partitioned(size, (place,))[..., place]
    else:  # a row of weight 2 counts as two rows, in the median as well
        weights = np.broadcast_to(weight, size.shape)
        middle = np.quantile(size, 0.5, axis=1, weights=weights, method="inverted_cdf")
    limit = 3.0 * 1.4826 * xp.min(middle, axis=-1)
    # Where a candidate is exact to rounding, its residuals are no measure of what is typical.
    return xp.where(limit > match(negligible, left_out) ** 0.5 + 1e-150, limit, np.inf)


def relative_errors(errors: Floats) -> Floats | None:
    """Mean squared errors (T, C) of all candidates relative to the best of each task: geometric means over tasks."""
    if not len(errors):
        return None
    logs = np.log(np.maximum(errors, 1e-300))
    return np.exp(np.mean(logs - logs.min(axis=1, keepdims=True), axis=0))


def interval_inflation(tasks: Sequence[Task], shares: Floats) -> float:
    """How much larger the root mean squared error of tasks is on their tests than leave-one-out says, in [1, 2].

    Leave-one-out keeps the weights of the candidates, which the same rows helped to choose; intervals without this
    factor are too narrow.
    """
    ratios = []
    for task in tasks:
        inside = task.inside(shares)
        outside = task.error(shares)
        if 0 < inside < np.inf and outside > 0:
            ratios.append(np.log(outside / inside))
    return float(np.clip(np.exp(0.5 * np.mean(ratios)), 1.0, 2.0)) if ratios else 1.0


def transfer_gains(tasks: Sequence[Task], shares: Floats) -> Floats:
    """Of each validated source: log of its root mean squared error on tests, of ours over the focal-only fit."""
    ours = np.array([task.error(shares) for task in tasks])
    alone = np.array([task.errors[task.alone] for task in tasks])
    # Targets have unit variance: an error below a thousandth (a task of one class only, say) counts as that.
    gains = 0.5 * np.log(np.maximum(ours, 1e-6) / np.maximum(alone, 1e-6))
    sources = np.array([task.source for task in tasks])
    return np.array([gains[sources == source].mean() for source in validated_sources(tasks)])


def validated_sources(tasks: Sequence[Task]) -> list[int]:
    """The sources that took the focal role, each once, in their order."""
    return sorted({task.source for task in tasks})


def focal_only_best(labels: Sequence[tuple[str, dict[str, Any]]], scores: Floats) -> int:
    """The best of the focal-only candidates."""
    places, ridges = _focal_only(labels)
    return int(places[best_ridge(ridges, scores[places])])


def nested_left_out(
    labels: Sequence[tuple[str, dict[str, Any]]], left_out: Floats, weight: Floats, negligible: float = 0.0
) -> Floats:
    """Left-out residuals (n,) of the focal-only fit, each row's at the ridge that is best for the other rows.

    The least of many leave-one-out errors is too small by luck, most of all with few rows.
    """
    places, ridges = _focal_only(labels)
    own = robust_losses(left_out[places], weight, negligible) * weight
    known, unknown = np.where(np.isfinite(own), own, 0.0), ~np.isfinite(own)
    others = np.maximum(known.sum(axis=1, keepdims=True) - known, 0.0)
    others[unknown.sum(axis=1, keepdims=True) > unknown] = np.inf
    chosen = best_ridges(ridges, others.T)
    return left_out[places[chosen], np.arange(len(chosen))]


def _focal_only(labels: Sequence[tuple[str, dict[str, Any]]]) -> tuple[Integers, Floats]:
    """The places of the focal-only candidates, and their ridges."""
    places = np.array([place for place, (family, _) in enumerate(labels) if family == "focal only"])
    return places, np.array([labels[place][1]["relative ridge"] for place in places])


def mix(shares: Floats, left_out: Floats) -> Floats:
    """Averaged residuals; candidates without a share do not count, whatever they say."""
    used = shares > 0
    return shares[used] @ left_out[used]


#: Shares of the two candidates that are kept of each validation task: the average, and the focal-only fit.
AVERAGE = np.array([1.0, 0.0])


class Validated:
    """What validation tasks say of an average; each has two candidates, the average and the focal-only fit."""

    tasks: Any

    @property
    def n_plays(self) -> int:
        """How many sources took the focal role."""
        return len(validated_sources(self.tasks))

    @cached_property
    def play_gains(self) -> Floats:
        """Log of the root mean squared error of each on its tests: of the average over the focal-only fit."""
        return transfer_gains(self.tasks, AVERAGE)

    @cached_property
    def inflation(self) -> float:
        """Error on tests of the validation tasks over their leave-one-out error, >= 1: what leave-one-out overlooks."""
        return interval_inflation(self.tasks, AVERAGE)
