"""Heads that are sums of the sources' heads, with weights that the task's rows find, and something of their own.

theta = sum_i a_i theta_i + delta with a_i ~ N(1/N, t) and delta ~ N(0, rho v I): one more prior, N(mean of the heads,
rho v I + t sum_i theta_i theta_i'), so that leaving a row out finds other weights too. They need not be positive: a
source that says the opposite is as good as one that says the truth, once a few rows have told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixtune.selection._families import Fits, Label, Memo, Prior
from mixtune.selection._pooled import SCALES, PooledFamily
from mixtune.selection._task import Floats, Paths, Task, dual_paths, primal_paths, roots_of

__all__ = ["StackedFamily"]

#: t: variance of the weight of one source.
FREEDOM = 0.5


@dataclass(frozen=True, eq=False)
class StackedFamily:
    """Priors along the heads of a pooled family's sources; the intercept is free."""

    pooled: PooledFamily

    @property
    def labels(self) -> list[Label]:
        return [("stacked", {"own variance": own, "scale": float(q)}) for own in self.pooled.own for q in SCALES]

    def fits(self, task: Task, allowed: Floats, memo: Memo | None = None) -> Fits:
        rows, mean, along = task.centred, *self._heads(allowed)
        found = [self._path(rows, mean, along, place) for place in range(len(self.pooled.own))]
        heads, leverages, pulls, variances = zip(*found)
        # What each source adds to the mean; one that counts reversed is not among the weights.
        share = np.maximum(allowed / allowed.sum() + FREEDOM * np.vstack(pulls) @ self.pooled.heads.T, 0.0) * allowed
        none = ~share.any(axis=1)
        share[none] = allowed
        paths = Paths.of(task, np.vstack(heads), np.vstack(leverages), free_intercept=True)
        ridges = np.concatenate([self.pooled.noise / (SCALES * variance) for variance in variances])
        return Fits(paths, share / share.sum(axis=1, keepdims=True), ridges)

    def prior(self, task: Task, allowed: Floats, index: int) -> Prior:
        place, scale = divmod(index, len(SCALES))
        mean, along = self._heads(allowed)
        return Prior(mean, self._covariance(along, place), self.pooled.noise, float(SCALES[scale]), True)

    def _heads(self, allowed: Floats) -> tuple[Floats, Floats]:
        """Mean of the allowed heads (p,), and all of them (N, p) with zeros for the others."""
        along = self.pooled.heads * allowed[:, None]
        return along.sum(axis=0) / allowed.sum(), along

    def _covariance(self, along: Floats, place: int) -> Floats:
        return self._own(place) * np.eye(along.shape[1]) + FREEDOM * along.T @ along

    def _own(self, place: int) -> float:
        return self.pooled.own[place] * self.pooled.variance

    def _path(self, rows: Task, mean: Floats, along: Floats, place: int) -> tuple[Floats, Floats, Floats, float]:
        """Heads, leverages, S^{-1} of what the rows add to the mean, and the mean variance as for pooled paths."""
        noise = self.pooled.noise
        if rows.rows > rows.design.shape[1]:
            covariance = self._covariance(along, place)
            heads, leverages = primal_paths(rows, mean[None], roots_of(covariance[None]), noise, SCALES)
            pulls = (rows.cross - heads @ rows.gram) * (SCALES / noise)[:, None]
            return heads, leverages, pulls, max(float(np.trace(covariance)) / len(covariance), 1e-300)
        projected = rows.design @ along.T
        kernel = self._own(place) * rows.kernel + FREEDOM * projected @ projected.T
        duals, leverages = dual_paths(rows, rows.design @ mean, kernel, noise, SCALES)
        pulls = duals.T @ rows.design
        heads = mean + self._own(place) * pulls + FREEDOM * (duals.T @ projected) @ along
        variance = float(np.trace(kernel)) / max(float(np.trace(rows.kernel)), 1e-300)
        return heads, leverages, pulls, max(variance, 1e-300)
