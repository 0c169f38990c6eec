"""Priors around a pooled head, for many columns or few sources.

Heads theta_i = mu + delta_i with mu ~ N(0, (1 - rho) v I) and delta_i ~ N(0, rho v I): two numbers instead of a learned
covariance. Each source says of mu what its rows allow, with precision B_i = G_i (s_i^2 I + rho v G_i)^{-1}; a subset of
sources, the likeliest ones for the task first or those of like features, adds up to a mean and a covariance for the
task's head. One direction more is let free: along the pooled head itself, since domains often differ in how strongly
the same thing counts.

Domains may have levels of their own, and then each is taken about its mean; or one level with small differences, and
then the constant is a feature like any other. Which it is makes as much difference as all else: both are candidates.

Stacked candidates are sums of the sources' heads, with weights that the rows find, and something of their own:
theta = sum_i a_i theta_i + delta with a_i ~ N(1/N, t) and delta ~ N(0, rho v I). That is one more prior, N(mean of the
heads, rho v I + t sum_i theta_i theta_i'), so that leaving a row out finds other weights too. They need not be
positive: a source that says the opposite is as good as one that says the truth, once a few rows have told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from mixtune.arrays import Floats, Integers, in_threads
from mixtune.choice._families import USED, Distances, Fits, Inputs, Label, Memo, Prior, recalled, similar
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Directions, Regression, Sample, best_ridges, half_solve, lower_root

#: With at most this many rows per column, the spectrum of a source is cheaper than a p x p factor.
FEW_DIRECTIONS = 0.5

#: What a source says of the common head: precision (p, p), and precision times mean (p,).
Message = tuple[Floats, Floats]


class Told(NamedTuple):
    """The prior of a task's rows: their means (r,), and their covariance (r, r) by that of mu.

    ``solve`` turns duals (Q, r) into the mean of mu (p,), and its covariance times ``design' duals`` (Q, p).
    """

    fitted: Floats
    spread: Floats
    solve: Callable[[Floats], tuple[Floats, Floats]]


class Path(NamedTuple):
    """One path: heads (Q, p), leverages (Q, n), and the mean variance of its prior."""

    heads: Floats
    leverages: Floats
    variance: float


class SourceRidges(NamedTuple):
    """Of sources (...,): the place of their best ridge, noise, prior variance, degrees of freedom behind the noise."""

    best: Integers
    noise: Floats
    variance: Floats
    freedom: Floats

    @classmethod
    def of(cls, ridges: Floats, errors: Floats, squares: Floats, freedom: Floats) -> SourceRidges:
        """From what generalised cross-validation says of ridges (..., Q), all of the same shape."""
        # Errors below the smallest noise tie: where targets do not vary at all, they are rounding.
        best = best_ridges(ridges, np.maximum(errors, SETTINGS.smallest_variance))
        at = partial(np.take_along_axis, indices=best[..., None], axis=-1)
        ridge, error, square, left = (at(part)[..., 0] for part in (ridges, errors, squares, freedom))
        noise = np.maximum(square / np.maximum(left, 1.0), SETTINGS.smallest_variance)
        return cls(best, noise, noise / ridge, np.where(np.isfinite(error), left, 0.0))


class FamilyVariances(NamedTuple):
    """Of a pooled family (...,): the typical noise of its sources, and the variance v that their ridges stand for.

    It is divided into what varies between domains, and what they have in common.
    """

    noise: Floats
    variance: Floats
    own: Floats
    shared: Floats

    @classmethod
    def of(cls, noise: Floats, variance: Floats, freedom: Floats, *, one_level: bool) -> FamilyVariances:
        """From noise, prior variances and degrees of freedom of the sources (..., N)."""
        # A source of one or two rows hardly knows its noise, so that it counts for little.
        trust = freedom / (freedom + SETTINGS.noise_rows)
        total = trust.sum(axis=-1, keepdims=True)
        trust = np.where(total > 0, trust / np.where(total > 0, total, 1.0), 1.0 / noise.shape[-1])
        noise, variance = np.exp(np.sum(trust * np.log(np.stack([noise, variance])), axis=-1))
        share = SETTINGS.own_variance_one_level if one_level else SETTINGS.own_variance
        return cls(noise, variance, share * variance, np.maximum((1 - share) * variance, 1e-300))


@dataclass(frozen=True, eq=False)
class PooledSource:
    """One source: the directions of its Gram matrix, noise, prior variance, head.

    ``freedom`` are the degrees of freedom that its noise was estimated from; one row leaves none.
    """

    directions: Directions
    noise: float
    variance: float
    head: Floats
    freedom: float

    @classmethod
    def of(cls, source: Regression) -> PooledSource:
        """Its ridge is the one of least error by generalised cross-validation, which needs no rows."""
        known, ridges = source.directions, SETTINGS.focal_ridges * source.mean_eigenvalue
        found = SourceRidges.of(ridges, *source.generalised_errors(ridges))
        head = known.basis @ (known.pulls / (known.values + ridges[found.best]))
        noise, variance, freedom = (float(part) for part in found[1:])
        return cls(known, noise, variance, head, freedom)

    def message(self, own: float) -> Message:
        """Precision about mu (p, p), and precision times mean (p,), with domains' own variance ``own``."""
        values, gains, basis, pulls = self.directions
        spreads = self.noise + own * values
        # A matrix times its own transpose is half the work, and symmetric.
        root = basis * np.sqrt(gains / spreads)
        return root @ root.T, basis @ (pulls / spreads)

    def evidence(self, task: Regression, own: float, shared: float, noise: float) -> float:
        """Log likelihood of a task's targets if only this source informed its prior."""
        told = self.about(task, own, shared)
        root = lower_root(own * task.kernel + told.spread, noise)
        left = half_solve(root, task.targets - told.fitted)
        rest = task.compressed[2] / noise + (task.total - len(left)) * np.log(noise)
        return float(-np.sum(np.log(np.diagonal(root))) - 0.5 * (np.vdot(left, left) + rest))

    def about(self, task: Regression, own: float, shared: float) -> Told:
        """The prior of a task's rows from this source alone, through the spectrum of its own rows."""
        values, gains, basis, pulls = self.directions
        spreads = self.noise + (own + shared) * values
        # The variance of mu: shared I outside the span of the source's rows, less inside it.
        less, toward = shared**2 * gains / spreads, shared * pulls / spreads
        across = task.design @ basis
        projected = across * np.sqrt(less)

        def solve(duals: Floats) -> tuple[Floats, Floats]:
            inside = shared * (duals @ task.design) - (less * (duals @ across)) @ basis.T
            return basis @ toward, inside

        return Told(across @ toward, shared * task.kernel - projected @ projected.T, solve)


class PooledFamily:
    """Two-parameter priors around the head of pooled sources; the intercept is free, or has ``one_level``."""

    def __init__(self, sources: Sequence[PooledSource], inputs: Inputs, *, one_level: bool = False) -> None:
        self.sources, self.inputs, self.one_level = tuple(sources), inputs, one_level
        #: The sources' own ridge heads (N, p).
        self.heads = np.stack([source.head for source in self.sources])
        known = np.array([(source.noise, source.variance, source.freedom) for source in self.sources]).T
        found = FamilyVariances.of(*known, one_level=one_level)
        self.noise, self.variance, self.own, self.shared = map(float, found)
        self._kept_messages: list[Message] | None = None
        self.total = self._total()

    @classmethod
    def learn(cls, sources: Sequence[Sample], *, one_level: bool = False) -> PooledFamily:
        views = [source.full if one_level else source.free for source in sources]
        found = in_threads(PooledSource.of, views, width=sources[0].columns)
        return cls(found, Inputs.of(sources), one_level=one_level)

    def message(self, index: int) -> Message:
        """What a source says of mu."""
        # They are kept where they are few enough.
        if 8 * len(self.sources) * self.heads.shape[1] ** 2 > SETTINGS.message_bytes:
            return self.sources[index].message(self.own)
        if self._kept_messages is None:
            make = partial(PooledSource.message, own=self.own)
            self._kept_messages = in_threads(make, self.sources, width=self.heads.shape[1])
        return self._kept_messages[index]

    def release(self) -> None:
        """Let go of the messages, which can be made again."""
        self._kept_messages = None

    def _total(self) -> Message:
        """The sum of all messages."""
        width = self.heads.shape[1]
        precision, pull = np.zeros((width, width)), np.zeros(width)
        for index in range(len(self.sources)):
            told, toward = self.message(index)
            precision += told
            pull += toward
        return precision, pull

    @cached_property
    def labels(self) -> list[Label]:
        return pooled_labels(len(self.sources), one_level=self.one_level)

    def fits(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> Fits:
        regression, found = self._view(task), list[Path]()
        weights = self._weights(task, allowed, memo)
        # Leaving a source out may leave a path as it is, or takes one message from the last sum.
        known: Memo = memo if memo is not None and allowed.all() else dict(memo or {})
        for weight in weights:
            if not _is_used(memo, len(found)):
                found.append(_no_path(regression))
                continue
            if (key := weight.tobytes()) not in known:
                source = self._only_source(weight)
                if source is not None:
                    told = source.about(regression, self.own, self.shared)
                else:
                    total = self._sum(weight, known.get("sum"))
                    if known is memo:
                        known["sum"] = replace(total)  # without its factor
                    told = total.about(regression)
                known[key] = self._path(regression, told)
            found.append(known[key])
        shares = np.repeat([weight / weight.sum() for weight in weights], len(SETTINGS.pooled_scales), axis=0)
        return _fits(regression, found, shares, self.noise)

    def prior(self, task: Sample, allowed: Floats, index: int, memo: Memo | None = None) -> Prior:
        subset, scale = divmod(index, len(SETTINGS.pooled_scales))
        pooled = self._sum(self._weights(task, allowed, memo)[subset])
        covariance = self._covariance(pooled)
        return Prior(pooled.mean, covariance, self.noise, float(SETTINGS.pooled_scales[scale]), not self.one_level)

    def _view(self, task: Sample) -> Regression:
        return task.full if self.one_level else task.free

    def _path(self, task: Regression, told: Told) -> Path:
        """One path, through the kernel of the task's rows."""
        own, fitted = self.own, told.fitted
        kernel = own * task.kernel + told.spread + SETTINGS.stretch * np.outer(fitted, fitted)
        variance = task.mean_variance(kernel)
        duals, leverages = task.dual_path(fitted, kernel, self.noise, SETTINGS.pooled_scales)
        mean, inside = told.solve(duals)
        heads = mean + own * (duals @ task.design) + inside + SETTINGS.stretch * np.outer(duals @ fitted, mean)
        return Path(heads, leverages, variance)

    def _covariance(self, pooled: _Pooled) -> Floats:
        own = self.own * np.eye(len(pooled.mean))
        return own + pooled.covariance + SETTINGS.stretch * np.outer(pooled.mean, pooled.mean)

    def _sum(self, weight: Floats, near: _Pooled | None = None) -> _Pooled:
        """Weighted messages of the sources and the prior of mu, added up from where the fewest are missing."""
        common = _common(weight)
        if near is not None and np.sum(weight != near.weight) < np.sum(weight != common):
            start, precision, pull = near.weight, near.precision.copy(), near.pull.copy()
        else:
            told, toward = self.total
            precision = common * told if common else np.zeros_like(told)
            start, pull = np.full(len(weight), common), common * toward
            np.einsum("ii->i", precision)[:] += 1.0 / self.shared
        for index in np.flatnonzero(weight != start):
            told, toward = self.message(int(index))
            more = weight[index] - start[index]
            if more == -1.0:  # without a copy of the message
                precision -= told
            else:
                precision += told if more == 1.0 else more * told
            pull += more * toward
        return _Pooled(weight, precision, pull)

    def _only_source(self, weight: Floats) -> PooledSource | None:
        """The only source with weight, if it has so few rows that their spectrum is cheaper."""
        index = int(np.argmax(weight))
        source = self.sources[index]
        few = len(source.directions.values) <= FEW_DIRECTIONS * len(source.head)
        return source if few and weight[index] == weight.sum() == 1.0 else None

    def _weights(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> list[Floats]:
        """Weights of the sources' messages: the likeliest few, and those of like features."""
        scores = recalled(memo, "scores", lambda: self._scores(self._view(task), allowed))
        return subset_weights(scores, recalled(memo, "distances", lambda: self.inputs.distances(task)), allowed)

    def _scores(self, task: Regression, allowed: Floats) -> Floats:
        """How likely each source makes the task's targets."""
        # With as many rows as columns, the errors of the sources' heads tell nearly as much.
        if len(self.sources) > SETTINGS.evidence_sources or not task.wide:
            return -0.5 * task.total * np.log(np.maximum(task.mean_squares(self.heads), 1e-12))
        return np.array(
            [
                source.evidence(task, self.own, self.shared, self.noise) if usable else 0.0
                for source, usable in zip(self.sources, allowed)
            ]
        )


@dataclass(frozen=True, eq=False)
class StackedFamily:
    """Priors along the heads of a pooled family's sources; the intercept is free."""

    pooled: PooledFamily

    @property
    def labels(self) -> list[Label]:
        return stacked_labels()

    def fits(self, task: Sample, allowed: Floats, memo: Memo | None = None) -> Fits:
        mean, along = self._heads(allowed)
        if _is_used(memo, 0):
            found, pulls = self._path(task.free, mean, along)
        else:
            found, pulls = _no_path(task.free), np.zeros((len(SETTINGS.pooled_scales), task.free.width))
        # What each source adds to the mean; one that counts reversed is not among the weights.
        added = SETTINGS.stacked_variance * pulls @ self.pooled.heads.T
        share = np.maximum(allowed / allowed.sum() + added, 0.0) * allowed
        share[~share.any(axis=1)] = allowed
        return _fits(task.free, [found], share / share.sum(axis=1, keepdims=True), self.pooled.noise)

    def prior(self, task: Sample, allowed: Floats, index: int, memo: Memo | None = None) -> Prior:
        mean, along = self._heads(allowed)
        return Prior(mean, self._covariance(along), self.pooled.noise, float(SETTINGS.pooled_scales[index]), True)

    def _heads(self, allowed: Floats) -> tuple[Floats, Floats]:
        """Mean of the allowed heads (p,), and all of them (N, p) with zeros for the others."""
        along = self.pooled.heads * allowed[:, None]
        return along.sum(axis=0) / allowed.sum(), along

    def _covariance(self, along: Floats) -> Floats:
        return self.pooled.own * np.eye(along.shape[1]) + SETTINGS.stacked_variance * along.T @ along

    def _path(self, task: Regression, mean: Floats, along: Floats) -> tuple[Path, Floats]:
        """One path with the mean variance as for pooled ones, and S^{-1} of what the rows add to the mean."""
        own = self.pooled.own
        projected = task.design @ along.T
        kernel = own * task.kernel + SETTINGS.stacked_variance * projected @ projected.T
        variance = task.mean_variance(kernel)
        path = task.design @ mean, kernel, self.pooled.noise, SETTINGS.pooled_scales
        found = task.updated_path(own, SETTINGS.stacked_variance**0.5 * projected, *path)
        duals, leverages = task.dual_path(*path) if found is None else found
        pulls = duals @ task.design
        heads = mean + own * pulls + SETTINGS.stacked_variance * (duals @ projected) @ along
        return Path(heads, leverages, variance), pulls


def _is_used(memo: Memo | None, place: int) -> bool:
    """Whether a candidate of the path at this place is used."""
    used = None if memo is None else memo.get(USED)
    points = len(SETTINGS.pooled_scales)
    return used is None or bool(np.any(used[place * points : (place + 1) * points]))


def _no_path(task: Regression) -> Path:
    """In place of a path that is not used."""
    points = len(SETTINGS.pooled_scales)
    return Path(np.zeros((points, task.width)), np.zeros((points, len(task.unit))), 1.0)


def _fits(task: Regression, found: Sequence[Path], weights: Floats, noise: float) -> Fits:
    """Paths side by side, with the weights on the sources (C, N) of all their points."""
    heads, leverages, variances = zip(*found)
    ridges = noise / np.outer(variances, SETTINGS.pooled_scales).ravel()
    return Fits(task.finish(np.vstack(heads), np.vstack(leverages)), weights, ridges)


@dataclass(frozen=True, eq=False)
class _Pooled:
    """What is known of mu by messages with given weights (N,): precision (p, p), and precision times mean (p,)."""

    weight: Floats
    precision: Floats
    pull: Floats

    @cached_property
    def factor(self) -> Floats:
        """The lower Cholesky factor of the precision, whose condition is at most the number of sources over rho."""
        return lower_root(self.precision)

    @cached_property
    def mean(self) -> Floats:
        return self.half(self.half(np.array(self.pull)), transposed=True)

    def half(self, right: Floats, *, transposed: bool = False) -> Floats:
        """``L^{-1} right``, or ``L'^{-1} right``, where the precision is L L'; ``right`` is lost."""
        return half_solve(self.factor, right, transposed=transposed)

    def about(self, task: Regression) -> Told:
        """The prior of a task's rows."""
        # Half a solve gives the spread. The other half is needed only for as many vectors as a path has points.
        half = self.half(np.vstack([self.pull, task.design]).T)

        def solve(duals: Floats) -> tuple[Floats, Floats]:
            solved = self.half(np.column_stack([half[:, 0], half[:, 1:] @ duals.T]), transposed=True)
            return solved[:, 0], solved[:, 1:].T

        return Told(half[:, 1:].T @ half[:, 0], half[:, 1:].T @ half[:, 1:], solve)

    @property
    def covariance(self) -> Floats:
        half = self.half(np.eye(len(self.pull), order="F"))
        return half.T @ half


def pooled_labels(count: int, *, one_level: bool = False) -> list[Label]:
    """The candidates of a pooled family of so many sources."""
    level = ", one level" if one_level else ""
    subsets: list[tuple[str, dict[str, float]]] = [("pooled", {"sources": float(size)}) for size in subset_sizes(count)]
    subsets.append(("similar", {"distance": SETTINGS.similar_reach}))
    return [
        (name + level, subset | {"scale": float(scale)}) for name, subset in subsets for scale in SETTINGS.pooled_scales
    ]


def stacked_labels() -> list[Label]:
    """The candidates of a stacked family."""
    return [("stacked", {"scale": float(scale)}) for scale in SETTINGS.pooled_scales]


def subset_weights(scores: Floats, distances: Distances, allowed: Floats) -> list[Floats]:
    """Weights (..., N) of each subset of sources: the likeliest few of the allowed ones, and those of like features."""
    score, most = np.where(allowed > 0, scores, -np.inf), np.sum(allowed > 0, axis=-1)
    found = [_likeliest(score, np.minimum(size, most)) for size in subset_sizes(allowed.shape[-1])]
    return [*found, similar(distances, allowed)]


def subset_sizes(count: int) -> list[int]:
    """How many sources the subsets of likeliest ones have."""
    return sorted({min(size, count) for size in (*SETTINGS.subset_sizes, count)})


def _likeliest(score: Floats, size: Integers) -> Floats:
    """Weights (..., N) of the ``size`` largest scores; sources that tie for the last places share them.

    Examples
    --------
    >>> _likeliest(np.array([3.0, 1.0, 1.0, -np.inf]), np.array(2))
    array([1. , 0.5, 0.5, 0. ])
    """
    size = size[..., None]
    last = np.take_along_axis(np.sort(score, axis=-1), score.shape[-1] - size, axis=-1)
    near = 1e-9 * (1.0 + np.abs(last))
    above, tied = score > last + near, np.abs(score - last) <= near
    return above + tied * (size - above.sum(axis=-1, keepdims=True)) / tied.sum(axis=-1, keepdims=True)


def _common(weight: Floats) -> float:
    """The weight that most sources have, if most have the same; else 0."""
    values, counts = np.unique(weight, return_counts=True)
    most = int(np.argmax(counts))
    return float(values[most]) if 2 * counts[most] > len(weight) else 0.0
