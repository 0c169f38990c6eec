"""Priors around a pooled head, for many columns or few sources.

Heads theta_i = mu + delta_i with mu ~ N(0, (1 - rho) v I) and delta_i ~ N(0, rho v I): two numbers instead of a learned
covariance. Each source says of mu what its rows allow, with precision B_i = G_i (s_i^2 I + rho v G_i)^{-1}; a subset of
sources, the likeliest ones for the task first, adds up to a mean and a covariance for the task's head. One direction
more is let free: along the pooled head itself, since domains often differ in how strongly the same thing counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mixtune.selection._families import FOCAL_RIDGES, Fits, Label, Prior
from mixtune.selection._hierarchy import evidence
from mixtune.selection._task import Floats, Paths, Task, dual_paths, primal_paths

__all__ = ["PooledFamily"]

#: rho: what part of a head's variance is the domain's own.
OWN = (0.03, 0.1, 0.4)
#: Multiples of the prior's covariance along a path.
SCALES = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
#: Variance along the pooled head, relative to its square.
STRETCH = 0.25
#: Sizes of the subsets of likeliest sources, and the temperature of softer weights.
SIZES = (1, 2, 4, 8, 16)
TEMPERATURE = 2.0
#: Most sources whose evidence is computed in full; of more, the error of their heads decides which are likeliest.
WEIGHED = 12


@dataclass(frozen=True, eq=False)
class _Source:
    """One source about its own mean: eigenvalues and -vectors of its Gram matrix, U'y, noise, prior variance, head."""

    values: Floats
    vectors: Floats
    cross: Floats
    noise: float
    variance: float
    head: Floats

    @classmethod
    def of(cls, task: Task) -> _Source:
        """Its ridge is the one of least leave-one-out error."""
        rows = task.centred
        n, width = rows.design.shape
        if n >= width:
            values, vectors = np.linalg.eigh(rows.gram)
            values = np.maximum(values, 0.0)
        else:
            values, left = np.linalg.eigh(rows.scaled @ rows.scaled.T)
            kept = values > 1e-12 * max(float(values[-1]), 1e-300)
            values, left = values[kept], left[:, kept]
            vectors = rows.scaled.T @ (left / np.sqrt(values))
        rank = max(int(np.sum(values > 1e-12 * max(float(values.max(initial=0.0)), 1e-300))), 1)
        size = float(values.sum()) / rank
        ridges = FOCAL_RIDGES * (size if size > 0 else 1.0)
        projected = vectors.T @ rows.cross
        filters = 1.0 / (values + ridges[:, None])
        heads = (filters * projected) @ vectors.T
        leverages = (filters @ ((rows.design @ vectors) ** 2).T) * rows.unit
        paths = Paths.of(task, heads, leverages, free_intercept=True)
        errors = task.error(np.where(np.isfinite(paths.left_out), paths.left_out, 1e6))
        best = int(np.argmin(errors))
        left_over = max(task.count - float(np.sum(filters[best] * values)) - float(task.intercept), 1.0)
        residuals = rows.y - rows.design @ heads[best]
        noise = max(float(rows.weight @ residuals**2) / left_over, 1e-10)
        return cls(values, vectors, rows.cross, noise, noise / ridges[best], heads[best])

    def message(self, own: float) -> tuple[Floats, Floats]:
        """Precision about mu (p, p), and precision times mean (p,), with domains' own variance ``own``."""
        filters = 1.0 / (self.noise + own * self.values)
        return (self.vectors * (self.values * filters)) @ self.vectors.T, self.vectors @ (
            filters * (self.vectors.T @ self.cross)
        )

    def evidence(self, task: Task, own: float, shared: float, noise: float) -> float:
        """Log likelihood of a centred task's targets if only this source informed its prior."""
        told = self.values / (self.noise + own * self.values)
        known = 1.0 / (1.0 / shared + told)
        mean = self.vectors @ (known * (self.vectors.T @ self.cross) / (self.noise + own * self.values))
        # own I + shared I outside the span of the source's rows, own I + known inside it.
        base = own + shared
        if task.rows <= task.design.shape[1]:
            left = np.sqrt(task.weight) * (task.y - task.design @ mean)
            projected = task.scaled @ self.vectors
            kernel = base * (task.scaled @ task.scaled.T) + (projected * (known - shared)) @ projected.T
            values, vectors = np.linalg.eigh(kernel)
            values = np.maximum(values, 0.0) + noise
            return float(-0.5 * np.sum(np.log(values) + (vectors.T @ left) ** 2 / values))
        covariance = base * np.eye(task.design.shape[1]) + (self.vectors * (known - shared)) @ self.vectors.T
        return float(evidence(task, mean[None], covariance[None], noise)[0])


@dataclass(frozen=True, eq=False)
class PooledFamily:
    """Two-parameter priors around the head of pooled sources; the intercept is free."""

    sources: tuple[_Source, ...]

    @classmethod
    def learn(cls, sources: Sequence[Task]) -> PooledFamily:
        return cls(tuple(_Source.of(task) for task in sources))

    @cached_property
    def noise(self) -> float:
        """Geometric mean of the sources' noise variances."""
        return float(np.exp(np.mean([np.log(source.noise) for source in self.sources])))

    @cached_property
    def variance(self) -> float:
        """v: geometric mean of the prior variances that the sources' own ridges stand for."""
        return float(np.exp(np.mean([np.log(source.variance) for source in self.sources])))

    @cached_property
    def messages(self) -> list[list[tuple[Floats, Floats]]]:
        """For each rho and source: what it says of mu."""
        return [[source.message(own * self.variance) for source in self.sources] for own in OWN]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        count = len(self.sources)
        return tuple(sorted({min(size, count) for size in (*SIZES, count)}))

    @cached_property
    def kinds(self) -> list[dict[str, float]]:
        subsets = [*({"sources": float(size)} for size in self.sizes), {"temperature": TEMPERATURE}]
        return [subset | {"own variance": own} for subset in subsets for own in OWN]

    @property
    def labels(self) -> list[Label]:
        return [("pooled", kind | {"scale": float(q)}) for kind in self.kinds for q in SCALES]

    def fits(self, task: Task, allowed: Floats) -> Fits:
        rows = task.centred
        heads, leverages, weights, ridges = [], [], [], []
        dual = rows.rows <= rows.design.shape[1]
        for weight in self._weights(rows, allowed):
            for place, own in enumerate(OWN):
                mean, known = self._pool(weight, place, rows.design.T if dual else np.eye(rows.design.shape[1]))
                fit, leverage, variance = self._path(rows, mean, known, own * self.variance, dual=dual)
                heads.append(fit)
                leverages.append(leverage)
                weights.append(np.tile(weight / weight.sum(), (len(SCALES), 1)))
                ridges.append(self.noise / (SCALES * variance))
        paths = Paths.of(task, np.vstack(heads), np.vstack(leverages), free_intercept=True)
        return Fits(paths, np.vstack(weights), np.concatenate(ridges))

    def prior(self, task: Task, allowed: Floats, index: int) -> Prior:
        kind, scale = divmod(index, len(SCALES))
        subset, place = divmod(kind, len(OWN))
        weight = self._weights(task.centred, allowed)[subset]
        width = task.centred.design.shape[1]
        mean, known = self._pool(weight, place, np.eye(width))
        covariance = OWN[place] * self.variance * np.eye(width) + known + STRETCH * np.outer(mean, mean)
        return Prior(mean, (covariance + covariance.T) / 2, self.noise, float(SCALES[scale]), True)

    def _path(self, rows: Task, mean: Floats, known: Floats, own: float, *, dual: bool) -> tuple[Floats, Floats, float]:
        """One path; also the mean variance of its prior (in the dual form, over the directions of the rows)."""
        if dual:
            spread = own * rows.design.T + known + STRETCH * np.outer(mean, rows.design @ mean)
            size = max(float(np.vdot(rows.design, rows.design)), 1e-300)
            variance = float(np.vdot(rows.design.T, spread)) / size
            return *dual_paths(rows, mean, spread, self.noise, SCALES), max(variance, 1e-300)
        covariance = own * np.eye(len(mean)) + known + STRETCH * np.outer(mean, mean)
        factor = np.linalg.cholesky((covariance + covariance.T) / 2)
        heads, leverages = primal_paths(rows, mean[None], factor[None], self.noise, SCALES)
        return heads, leverages, max(float(np.trace(covariance)) / len(mean), 1e-300)

    def _pool(self, weight: Floats, place: int, right: Floats) -> tuple[Floats, Floats]:
        """Mean of mu, and its covariance times ``right``, given weighted messages of the sources."""
        shared = max((1 - OWN[place]) * self.variance, 1e-300)
        used = [(w, *message) for w, message in zip(weight, self.messages[place]) if w > 0]
        precision = np.eye(len(right)) / shared
        pull = np.zeros(len(right))
        for w, told, toward in used:
            precision += w * told
            pull += w * toward
        solved = np.linalg.solve(precision, np.column_stack([pull, right]))
        return solved[:, 0], solved[:, 1:]

    def _weights(self, rows: Task, allowed: Floats) -> list[Floats]:
        """Weights of the sources' messages: the likeliest few in full, then softer ones."""
        score = np.where(allowed > 0, self._scores(rows, allowed), -np.inf)
        order = np.argsort(-score, kind="stable")[: int(np.sum(allowed > 0))]
        found = []
        for size in self.sizes:
            weight = np.zeros(len(score))
            weight[order[:size]] = 1.0
            found.append(weight)
        return [*found, np.exp((score - score.max()) / TEMPERATURE)]

    def _scores(self, rows: Task, allowed: Floats) -> Floats:
        """How likely each source makes the task's targets."""
        if len(self.sources) > WEIGHED:
            return -0.5 * rows.count * np.log(np.maximum(rows.mean_squares(self.heads), 1e-12))
        own, shared = OWN[0] * self.variance, (1 - OWN[0]) * self.variance
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
