"""Weights of the candidates: what cross-domain validation and leave-one-out make of them, and a guard against harm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import Floats, Integers
from mixtune.moments import Sample, best_ridge
from mixtune.selection._compare import compare, gain_posterior
from mixtune.selection._settings import SETTINGS


@dataclass(frozen=True, eq=False)
class ValidationTask:
    """Residuals (C, m) on the rows kept for testing, and of left-out rows (C, n), both with the weights of their rows.

    ``targets`` (m,) are those of the rows kept for testing.

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

    @property
    def errors(self) -> Floats:
        """Mean squared error of every candidate."""
        return (self.residuals**2) @ (self.weight / self.weight.sum())

    def error(self, shares: Floats) -> float:
        """Mean squared error of the average."""
        return float((shares @ self.residuals) ** 2 @ (self.weight / self.weight.sum()))


def averaged(task: ValidationTask, shares: Floats) -> ValidationTask:
    """The task with two candidates: the average, and the focal-only fit."""
    both = [shares, np.eye(len(shares))[task.alone]]
    residuals, left_out = (np.stack([mix(each, part) for each in both]) for part in (task.residuals, task.left_out))
    return replace(task, residuals=residuals, left_out=left_out, alone=1)


def average_weights(
    scores: Floats,
    prior: Floats,
    tasks: Sequence[ValidationTask],
    count: float,
    *,
    enough: int,
    negligible: float = 0.0,
) -> Floats:
    """Weights of the candidates: fitted to the validation tasks, then tilted by leave-one-out on ``count`` rows.

    ``scores`` are leave-one-out errors, ``prior`` the weights before anything is known; where ``enough`` sources were
    validated, their tasks decide freely.
    """
    return tilted_weights(scores, weights_of_tasks(prior, tasks, enough=enough), count, negligible=negligible)


@dataclass(frozen=True, eq=False)
class TaskWeights:
    """Weights (C,) that validation tasks give the candidates, and how many times its share a row must say to move them.

    ``tasks`` are those that they come from; without any, the weights are those before anything is known.
    """

    shares: Floats
    trust: float
    tasks: Sequence[ValidationTask]


def weights_of_tasks(prior: Floats, tasks: Sequence[ValidationTask], *, enough: int) -> TaskWeights:
    """Weights fitted to the validation tasks alone; see :func:`average_weights`."""
    trust = SETTINGS.rows_trust
    if not tasks:
        return TaskWeights(prior, trust, tasks)
    sources = len(validated_sources(tasks))
    pull = SETTINGS.prior_pull * max(enough / sources, 1.0) ** 2
    told = max(sources - SETTINGS.untold_sources, 0) / SETTINGS.told_errors
    # The better the tasks know the weights, the less the few focal rows may move them.
    trust += SETTINGS.tasks_trust * min(sources / SETTINGS.enough_sources, 1.0)
    return TaskWeights(stacked_weights(tasks, prior, pull, told=told), trust, tasks)


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
    tasks: Sequence[ValidationTask],
    *,
    negligible: float = 0.0,
) -> Floats:
    """Move weights to the focal-only fit by as much as it is likelier than not that transfer does harm here.

    Sources that agree with one another, and not with the focal domain, do well in every validation task; only the
    focal rows can tell. ``ours`` and ``alone`` are left-out residuals of the average and of the focal-only fit.
    """
    # Residuals that are negligible, of both, must not decide by their rounding.
    small = negligible**0.5
    found = compare("focal only", ours * (np.abs(ours) > small), alone * (np.abs(alone) > small), weight)
    grid, share = gain_posterior(found, transfer_gains(tasks, shares), count)
    harm = float(np.clip(2 * (share @ (grid > 0)) - 1, 0.0, 1.0))
    return (1 - harm) * shares + harm * focal


def stacked_weights(
    tasks: Sequence[ValidationTask],
    equal: Floats,
    pull: float,
    *,
    told: float = 0.0,
    says: Floats | None = None,
    steps: int = 300,
) -> Floats:
    """Simplex weights of least mean squared error of the averaged prediction over tasks, by exponentiated gradient.

    The error of averages is flat in many directions: there, candidates with smaller errors of their own come first, by
    exp(-told error). ``says`` are weights of the tasks; by default, the square roots of their total weights.
    """
    cross = np.zeros((len(equal), len(equal)))
    # Many rows know a task's error better than few, but of one source only.
    says = np.sqrt([task.weight.sum() for task in tasks]) if says is None else says
    for task, say in zip(tasks, says / says.sum()):
        good = np.sort(task.errors)[: max(3, len(equal) // 4)]
        weight = task.weight / task.weight.sum() / max(float(np.median(good)), task.negligible)
        # Two outliers must not decide: residuals count up to five times their typical size.
        limit = 5.0 * 1.4826 * float(np.min(np.median(np.abs(task.residuals), axis=1)))
        # Where a candidate is exact (targets that do not vary), the limit is 0 and the task says nothing.
        kept = np.clip(task.residuals, -limit, limit)
        cross += say * (kept * weight) @ kept.T
    errors = np.diagonal(cross)
    prior = np.maximum(equal * np.exp(-told * (errors - errors.min())), 1e-300)
    share = prior / prior.sum()
    for _ in range(steps):
        slope = 2 * cross @ share + pull * np.log(np.maximum(share, 1e-300) / prior)
        share = share * np.exp(-0.5 * (slope - slope.min()))
        share = np.maximum(share / share.sum(), 1e-300)
    return share / share.sum()


def prior_weights(names: Sequence[str]) -> Floats:
    """Every family has the same weight before anything is known, split evenly within."""
    counts = Counter(names)
    return np.array([1.0 / counts[name] for name in names]) / len(counts)


def negligible_error(sample: Sample) -> float:
    """Mean squared errors below this count as equal: a small part of the variance of the targets."""
    variance = sample.free.square / sample.total
    return SETTINGS.negligible_error * (variance if variance > SETTINGS.negligible_error**2 else 1.0)


def robust_errors(left_out: Floats, weight: Floats, negligible: float = 0.0) -> Floats:
    """Leave-one-out errors (C,): means of :func:`robust_losses`, none below ``negligible``."""
    return np.maximum(robust_losses(left_out, weight, negligible) @ (weight / weight.sum()), negligible)


def robust_losses(left_out: Floats, weight: Floats, negligible: float = 0.0) -> Floats:
    """Squares (C, n) of residuals, which grow only linearly beyond three times the typical residual."""
    size = np.abs(left_out)
    # A row of weight 2 counts as two rows, in the median as well.
    weights = None if np.ptp(weight) == 0 else np.broadcast_to(weight, size.shape)
    middle = np.quantile(size, 0.5, axis=1, weights=weights, method="inverted_cdf")
    limit = 3.0 * 1.4826 * float(np.min(middle))
    # Where a candidate is exact to rounding, its residuals are no measure of what is typical.
    limit = limit if limit > max(negligible**0.5, 1e-150) else np.inf
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(size <= limit, size**2, limit * (2 * size - limit))


def relative_errors(errors: Floats) -> Floats | None:
    """Mean squared errors (T, C) of all candidates relative to the best of each task: geometric means over tasks."""
    if not len(errors):
        return None
    logs = np.log(np.maximum(errors, 1e-300))
    return np.exp(np.mean(logs - logs.min(axis=1, keepdims=True), axis=0))


def interval_inflation(tasks: Sequence[ValidationTask], shares: Floats) -> float:
    """How much larger the root mean squared error of tasks is on their tests than leave-one-out says, in [1, 2].

    Leave-one-out keeps the weights of the candidates, which the same rows helped to choose; intervals without this
    factor are too narrow.
    """
    ratios = []
    for task in tasks:
        inside = float(np.average(mix(shares, task.left_out) ** 2, weights=task.left_out_weight))
        outside = task.error(shares)
        if 0 < inside < np.inf and outside > 0:
            ratios.append(np.log(outside / inside))
    return float(np.clip(np.exp(0.5 * np.mean(ratios)), 1.0, 2.0)) if ratios else 1.0


def transfer_gains(tasks: Sequence[ValidationTask], shares: Floats) -> Floats:
    """Of each validated source: log of its root mean squared error on tests, of ours over the focal-only fit."""
    ours = np.array([task.error(shares) for task in tasks])
    alone = np.array([task.errors[task.alone] for task in tasks])
    # Targets have unit variance: an error below a thousandth (a task of one class only, say) counts as that.
    gains = 0.5 * np.log(np.maximum(ours, 1e-6) / np.maximum(alone, 1e-6))
    sources = np.array([task.source for task in tasks])
    return np.array([gains[sources == source].mean() for source in validated_sources(tasks)])


def validated_sources(tasks: Sequence[ValidationTask]) -> list[int]:
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
    chosen = [best_ridge(ridges, column) for column in others.T]
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
