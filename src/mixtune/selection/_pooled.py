"""Priors around a pooled head, for many columns or few sources.

Heads theta_i = mu + delta_i with mu ~ N(0, (1 - rho) v I) and delta_i ~ N(0, rho v I): two numbers instead of a learned
covariance. Each source says of mu what its rows allow, with precision B_i = G_i (s_i^2 I + rho v G_i)^{-1}; a subset of
sources, the likeliest ones for the task first or those of like features, adds up to a mean and a covariance for the
task's head. One direction more is let free: along the pooled head itself, since domains often differ in how strongly
the same thing counts.

Domains may have levels of their own, and then each is taken about its mean; or one level with small differences, and
then the constant is a feature like any other. Which it is makes as much difference as all else: both are candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.linalg

from mixtune._array import cholesky
from mixtune.selection._families import Fits, Label, Memo, Prior, recalled
from mixtune.selection._similar import THRESHOLD, Inputs, similar
from mixtune.selection._source import PooledSource
from mixtune.selection._task import Floats, Paths, Task, dual_paths, primal_paths
from mixtune.selection._threads import in_threads

__all__ = ["PooledFamily"]

#: rho: what part of a head's variance is the domain's own, with free intercepts and with one level.
OWN, OWN_LEVEL = (0.03, 0.3), (0.003, 0.03)
#: Multiples of the prior's covariance along a path.
SCALES = np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
#: Variance along the pooled head, relative to its square.
STRETCH = 0.25
#: Sizes of the subsets of likeliest sources, and the temperature of softer weights.
SIZES = (1, 2, 8)
TEMPERATURE = 2.0
#: Most sources whose evidence is computed in full; of more, the error of their heads decides which are likeliest.
WEIGHED = 12
#: Most bytes of messages to keep; beyond, a message is made when asked for, and only their sums are kept.
KEPT_BYTES = 2**28
#: Most sources with a soft weight each where messages are not kept; the others then have one weight, their mean.
SOFT = 64

#: A path: heads (Q, p), leverages (Q, n), and the mean variance of its prior.
Path = tuple[Floats, Floats, float]


@dataclass(frozen=True, eq=False)
class PooledFamily:
    """Two-parameter priors around the head of pooled sources; the intercept is free, or has ``one_level``."""

    sources: tuple[PooledSource, ...]
    own: tuple[float, ...]
    one_level: bool
    inputs: Inputs

    @classmethod
    def learn(cls, sources: Sequence[Task], *, one_level: bool = False) -> PooledFamily:
        views = [_view(source, one_level) for source in sources]
        found = in_threads(PooledSource.of, views, width=sources[0].design.shape[1])
        family = cls(tuple(found), OWN_LEVEL if one_level else OWN, one_level, Inputs.of(sources))
        family.totals, family.heads  # noqa: B018  made now, since fits may be made in several threads
        return family

    @cached_property
    def noise(self) -> float:
        """Geometric mean of the sources' noise variances."""
        return float(np.exp(np.mean([np.log(source.noise) for source in self.sources])))

    @cached_property
    def variance(self) -> float:
        """v: geometric mean of the prior variances that the sources' own ridges stand for."""
        return float(np.exp(np.mean([np.log(source.variance) for source in self.sources])))

    def message(self, place: int, index: int) -> tuple[Floats, Floats]:
        """What a source says of mu, for one rho."""
        if self._keeps:
            return self._messages[place][index]
        return self.sources[index].message(self.own[place] * self.variance)

    @property
    def _keeps(self) -> bool:
        """Whether messages are few enough to keep."""
        return 8 * len(self.own) * len(self.sources) * len(self.sources[0].cross) ** 2 <= KEPT_BYTES

    @cached_property
    def _messages(self) -> list[list[tuple[Floats, Floats]]]:
        """For each rho and source its message."""
        width = len(self.sources[0].cross)
        ways = [partial(PooledSource.message, own=own * self.variance) for own in self.own]
        return [in_threads(way, self.sources, width=width) for way in ways]

    def release(self) -> None:
        """Let go of the messages, which can be made again."""
        self.__dict__.pop("_messages", None)

    @cached_property
    def totals(self) -> list[tuple[Floats, Floats]]:
        """For each rho: the sum of all messages."""
        width = len(self.sources[0].cross)
        found = [(np.zeros((width, width)), np.zeros(width)) for _ in self.own]
        for place, (told, toward) in enumerate(found):
            for index in range(len(self.sources)):
                message = self.message(place, index)
                told += message[0]
                toward += message[1]
        return found

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        count = len(self.sources)
        return tuple(sorted({min(size, count) for size in (*SIZES, count)}))

    @cached_property
    def kinds(self) -> list[dict[str, float]]:
        subsets = [
            *({"sources": float(size)} for size in self.sizes),
            {"temperature": TEMPERATURE},
            {"distance": THRESHOLD},
        ]
        return [subset | {"own variance": own} for subset in subsets for own in self.own]

    @property
    def labels(self) -> list[Label]:
        level = ", one level" if self.one_level else ""
        return [
            (("similar" if "distance" in kind else "pooled") + level, kind | {"scale": float(q)})
            for kind in self.kinds
            for q in SCALES
        ]

    def fits(self, task: Task, allowed: Floats, memo: Memo | None = None) -> Fits:
        rows = _view(task, self.one_level).centred
        found: list[Path] = []
        weights = self._weights(task, allowed, memo)
        kept = memo is not None and bool(allowed.all())
        known: Memo = dict(memo or {})
        for weight in weights:
            for place in range(len(self.own)):
                key = (place, weight.tobytes())
                if key not in known:
                    total = self._sum(weight, place, known.get(place))
                    known[key] = self._path(rows, place, _Pooled.of(total, overwrite=not kept))
                    if kept:
                        known[place] = total
                found.append(known[key])
        if memo is not None and kept:
            # Leaving a source out may leave a path as it is, or takes one message from the last sum.
            memo.update(known)
        heads, leverages, variances = zip(*found)
        paths = Paths.of(task, np.vstack(heads), np.vstack(leverages), free_intercept=not self.one_level)
        shares = np.repeat([weight / weight.sum() for weight in weights], len(self.own) * len(SCALES), axis=0)
        return Fits(paths, shares, np.concatenate([self.noise / (SCALES * variance) for variance in variances]))

    def prior(self, task: Task, allowed: Floats, index: int) -> Prior:
        kind, scale = divmod(index, len(SCALES))
        subset, place = divmod(kind, len(self.own))
        weight = self._weights(task, allowed)[subset]
        pooled = _Pooled.of(self._sum(weight, place), overwrite=True)
        free = not self.one_level
        return Prior(pooled.mean, self._covariance(pooled, place), self.noise, float(SCALES[scale]), free)

    def _path(self, rows: Task, place: int, pooled: _Pooled) -> Path:
        """One path; in the dual form, the mean variance is that over the directions of the rows."""
        if rows.rows > rows.design.shape[1]:
            covariance = self._covariance(pooled, place)
            factor = np.linalg.cholesky(covariance)
            heads, leverages = primal_paths(rows, pooled.mean[None], factor[None], self.noise, SCALES)
            return heads, leverages, max(float(np.trace(covariance)) / len(covariance), 1e-300)
        own = self.own[place] * self.variance
        # Half a solve makes the kernel; the other half is for as many vectors only as the path has points.
        half = pooled.half(np.vstack([pooled.pull, rows.design]).T)
        fitted = half[:, 1:].T @ half[:, 0]
        kernel = own * rows.kernel + half[:, 1:].T @ half[:, 1:] + STRETCH * np.outer(fitted, fitted)
        variance = float(np.trace(kernel)) / max(float(np.trace(rows.kernel)), 1e-300)
        duals, leverages = dual_paths(rows, fitted, kernel, self.noise, SCALES)
        solved = pooled.half(np.column_stack([half[:, 0], half[:, 1:] @ duals]), transposed=True)
        mean, inside = solved[:, 0], solved[:, 1:].T
        heads = mean + own * (duals.T @ rows.design) + inside + STRETCH * np.outer(fitted @ duals, mean)
        return heads, leverages, max(variance, 1e-300)

    def _covariance(self, pooled: _Pooled, place: int) -> Floats:
        own = self.own[place] * self.variance * np.eye(len(pooled.mean))
        return own + pooled.covariance + STRETCH * np.outer(pooled.mean, pooled.mean)

    def _sum(self, weight: Floats, place: int, near: _Sum | None = None) -> _Sum:
        """Weighted messages of the sources and the prior of mu, added up from where the fewest are missing."""
        common = _common(weight)
        if near is not None and np.sum(weight != near.weight) < np.sum(weight != common):
            start, precision, pull = near.weight, near.precision.copy(), near.pull.copy()
        else:
            told, toward = self.totals[place]
            precision = common * told if common else np.zeros_like(told)
            start, pull = np.full(len(weight), common), common * toward
            np.einsum("ii->i", precision)[:] += 1.0 / max((1 - self.own[place]) * self.variance, 1e-300)
        for index in np.flatnonzero(weight != start):
            told, toward = self.message(place, int(index))
            more = weight[index] - start[index]
            precision += told if more == 1.0 else more * told
            pull += more * toward
        return _Sum(weight, precision, pull)

    def _weights(self, task: Task, allowed: Floats, memo: Memo | None = None) -> list[Floats]:
        """Weights of the sources' messages: the likeliest few in full, softer ones, and those of like features."""
        rows = _view(task, self.one_level).centred
        score = np.where(allowed > 0, self._scores(rows, allowed), -np.inf)
        order = np.argsort(-score, kind="stable")[: int(np.sum(allowed > 0))]
        found = []
        for size in self.sizes:
            weight = np.zeros(len(score))
            weight[order[:size]] = 1.0
            found.append(weight)
        soft = np.exp((score - score.max()) / TEMPERATURE)
        if len(order) > SOFT and not self._keeps:
            soft[order[SOFT:]] = soft[order[SOFT:]].mean()
        distances = recalled(memo, "distances", lambda: self.inputs.distances(task))
        return [*found, soft, similar(distances, allowed)]

    def _scores(self, rows: Task, allowed: Floats) -> Floats:
        """How likely each source makes the task's targets."""
        if len(self.sources) > WEIGHED:
            return -0.5 * rows.count * np.log(np.maximum(rows.mean_squares(self.heads), 1e-12))
        own, shared = self.own[0] * self.variance, (1 - self.own[0]) * self.variance
        return np.array(
            [
                source.evidence(rows, own, shared, self.noise) if usable else 0.0
                for source, usable in zip(self.sources, allowed)
            ]
        )

    @cached_property
    def heads(self) -> Floats:
        """The sources' own ridge heads (N, p)."""
        return np.stack([source.head for source in self.sources])


@dataclass(frozen=True, eq=False)
class _Sum:
    """Precision of mu (p, p) and precision times mean (p,), by messages with given weights (N,)."""

    weight: Floats
    precision: Floats
    pull: Floats


@dataclass(frozen=True, eq=False)
class _Pooled:
    """What is known of mu: precision times mean, and the lower Cholesky factor of the precision."""

    pull: Floats
    factor: Floats

    @classmethod
    def of(cls, total: _Sum, *, overwrite: bool = False) -> _Pooled:
        """From a sum, whose precision may be overwritten."""
        # The condition is at most the number of sources over rho, so that the factor is safe.
        factor = cholesky(total.precision, overwrite=overwrite)
        if factor is None:  # pragma: no cover - only numbers beyond float64 get here
            raise np.linalg.LinAlgError("the precision of the pooled head is not positive definite")
        return cls(total.pull, np.asfortranarray(factor))

    @cached_property
    def mean(self) -> Floats:
        return self.half(self.half(self.pull[:, None]), transposed=True)[:, 0]

    def half(self, right: Floats, *, transposed: bool = False) -> Floats:
        """``L^{-1} right``, or ``L'^{-1} right``: the precision is L L'."""
        solved, info = scipy.linalg.lapack.dtrtrs(self.factor, right, lower=1, trans=int(transposed))
        if info != 0:  # pragma: no cover - a Cholesky factor has a positive diagonal
            raise np.linalg.LinAlgError(f"triangular solve failed (LAPACK info {info})")
        return solved

    @property
    def covariance(self) -> Floats:
        half = self.half(np.eye(len(self.pull), order="F"))
        return half.T @ half


def _common(weight: Floats) -> float:
    """The weight that most sources have, if most have the same; else 0."""
    values, counts = np.unique(weight, return_counts=True)
    most = int(np.argmax(counts))
    return float(values[most]) if 2 * counts[most] > len(weight) else 0.0


def _view(task: Task, one_level: bool) -> Task:
    return task.levelled if one_level else task
