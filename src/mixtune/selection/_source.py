"""What one source says about a head that all domains share: its rows through their spectrum, its noise, its ridge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixtune.selection._families import FOCAL_RIDGES
from mixtune.selection._hierarchy import evidence
from mixtune.selection._task import Floats, Paths, Task, spectrum

__all__ = ["PooledSource"]


@dataclass(frozen=True, eq=False)
class PooledSource:
    """One source about its own mean: eigenvalues and -vectors of its Gram matrix, U'y, noise, prior variance, head."""

    values: Floats
    vectors: Floats
    cross: Floats
    noise: float
    variance: float
    head: Floats

    @classmethod
    def of(cls, task: Task) -> PooledSource:
        """Its ridge is the one of least leave-one-out error."""
        rows = task.centred
        n, width = rows.design.shape
        if n >= width:
            values, vectors = spectrum(rows.scaled.T @ rows.scaled)
        else:
            values, left = spectrum(rows.scaled @ rows.scaled.T)
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
        # A matrix times its own transpose is half the work, and symmetric.
        root = self.vectors * np.sqrt(self.values * filters)
        return root @ root.T, self.vectors @ (filters * (self.vectors.T @ self.cross))

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
            values, vectors = spectrum(kernel)
            values += noise
            return float(-0.5 * np.sum(np.log(values) + (vectors.T @ left) ** 2 / values))
        covariance = base * np.eye(task.design.shape[1]) + (self.vectors * (known - shared)) @ self.vectors.T
        return float(evidence(task, mean[None], covariance[None], noise)[0])
