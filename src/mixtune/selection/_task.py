"""A task: rows of one domain to learn from, and ridge paths around given priors with every row left out in turn.

A prior N(mean, q S) on the head and noise of variance s^2 make the posterior mean a ridge fit around ``mean``, in the
metric S, of effective ridge s^2/q. One eigendecomposition serves a whole path over q, with leverages, and therefore
leave-one-out residuals, for every q.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

__all__ = ["SAMPLE_ROWS", "Floats", "Paths", "Task", "direction", "dual_paths", "primal_paths", "roots_of", "spectrum"]

Floats = np.ndarray[Any, Any]

#: Where 1 - leverage falls below this, leaving the row out says nothing.
SATURATED = 1e-9
#: Widest designs for learned covariances, and for being generous with fits.
NARROW, CHEAP = 40, 200
#: Rows to tell by where a domain's features lie.
SAMPLE_ROWS = 32
#: What is known of all rows where only some are judged.
SUMS = ("gram", "cross", "square", "count", "rows")


@dataclass(frozen=True, eq=False)
class Task:
    """Design (n, d), targets (n,), sample weights (n,).

    ``intercept`` says that the first column of ``design`` is the constant.
    """

    design: Floats
    y: Floats
    weight: Floats
    intercept: bool

    @cached_property
    def scaled(self) -> Floats:
        """Rows times the root of their weights."""
        return self.design * np.sqrt(self.weight)[:, None]

    @cached_property
    def gram(self) -> Floats:
        return self.scaled.T @ self.scaled

    @cached_property
    def kernel(self) -> Floats:
        """Inner products of the rows (n, n), without their weights."""
        return self.design @ self.design.T

    @cached_property
    def cross(self) -> Floats:
        return self.design.T @ (self.weight * self.y)

    @cached_property
    def square(self) -> float:
        return float(self.weight @ self.y**2)

    @cached_property
    def count(self) -> float:
        """The number of rows, each counting as its weight."""
        return float(self.weight.sum())

    @cached_property
    def rows(self) -> int:
        """How many rows the sums are over: more than are here where only some are judged."""
        return len(self.y)

    @property
    def is_narrow(self) -> bool:
        """Whether there are few enough columns to learn a covariance of their coefficients."""
        return self.design.shape[1] <= NARROW

    @property
    def is_dear(self) -> bool:
        """Whether there are so many columns that fits are not to be wasted."""
        return self.design.shape[1] > CHEAP

    @cached_property
    def unit(self) -> Floats:
        """What goes when a row is left out: one of its copies, or all of a row of weight below 1."""
        return np.minimum(self.weight, 1.0)

    def error(self, residuals: Floats) -> Floats:
        """Weighted mean squares over the last axis."""
        return (residuals**2) @ (self.weight / self.weight.sum())

    def mean_squares(self, heads: Floats) -> Floats:
        """Weighted mean squared errors of heads (K, d), over all rows behind the sums."""
        if self.rows == len(self.y):
            return self.error(self.y - heads @ self.design.T)
        total = self.square - 2 * heads @ self.cross + np.sum((heads @ self.gram) * heads, axis=1)
        return np.maximum(total, 0.0) / self.count

    def part(self, index: Any) -> Task:
        """Some of the rows."""
        return Task(self.design[index], self.y[index], self.weight[index], self.intercept)

    def judged(self, index: Any) -> Task:
        """Some of the rows to leave out in turn, with the sums of all: enough for paths through d x d matrices."""
        found = self.part(index)
        found.__dict__.update({name: getattr(self, name) for name in (*SUMS, "sample")})
        if self.intercept:
            found.__dict__.update(center=self.center, centred=self.centred.judged(index))
        return found

    @cached_property
    def centred(self) -> Task:
        """Without the constant column: all about the weighted means, which an unpenalised intercept amounts to."""
        if not self.intercept:
            return self
        center, level = self.center
        return Task(self.design[:, 1:] - center, self.y - level, self.weight, False)

    @cached_property
    def levelled(self) -> Task:
        """The same with the constant as a feature like any other."""
        found = Task(self.design, self.y, self.weight, False)
        found.__dict__.update({name: vars(self)[name] for name in SUMS if name in vars(self)})
        return found

    @cached_property
    def sample(self) -> Floats:
        """Features of ``SAMPLE_ROWS`` rows at even quantiles along a direction that tells any two rows apart.

        Rows count as their weights and in any order; where there are fewer, they come several times.
        """
        features = self.design[:, 1 if self.intercept else 0 :]
        order = np.argsort(features @ direction(features.shape[1]), kind="stable")
        reached = np.cumsum(self.weight[order])
        places = (np.arange(SAMPLE_ROWS) + 0.5) / SAMPLE_ROWS * reached[-1]
        return features[order[np.minimum(np.searchsorted(reached, places), len(order) - 1)]]

    @cached_property
    def center(self) -> tuple[Floats, float]:
        """Weighted means of the features and the targets."""
        share = self.weight / self.count
        return share @ self.design[:, 1:], float(share @ self.y)


@dataclass(frozen=True, eq=False)
class Paths:
    """Fits along paths: heads (C, d), residuals of left-out rows (C, n), leverages (C, n) of one copy of each row."""

    heads: Floats
    left_out: Floats
    leverages: Floats

    @classmethod
    def of(cls, task: Task, heads: Floats, leverages: Floats, *, free_intercept: bool) -> Paths:
        """Finish fits on a task, or on its centred form where the intercept is free."""
        rows = task.centred if free_intercept else task
        residuals = rows.y - heads @ rows.design.T
        if free_intercept and task.intercept:
            center, level = task.center
            heads = np.column_stack([level - heads @ center, heads])
            leverages = leverages + task.unit / task.count
        rest = 1.0 - leverages
        left_out = np.where(rest > SATURATED, residuals / np.where(rest > SATURATED, rest, 1.0), np.inf)
        return cls(heads, left_out, leverages)


def direction(width: int) -> Floats:
    """One along which any two rows of so many columns differ."""
    return np.sin(1.0 + np.arange(width))


def primal_paths(task: Task, means: Floats, factors: Floats, noise: float, scales: Floats) -> tuple[Floats, Floats]:
    """Heads (K Q, d) and leverages (K Q, n) of the priors N(means[k], q L_k L_k'), through d x d matrices."""
    inner = np.swapaxes(factors, 1, 2) @ task.gram @ factors
    values, vectors = np.linalg.eigh(inner)
    basis = factors @ vectors
    pull = np.einsum("kji,kj->ki", basis, task.cross - means @ task.gram)
    filters = scales[:, None] / (scales[:, None] * np.maximum(values, 0.0)[:, None] + noise)
    heads = means[:, None] + np.einsum("kji,kqi->kqj", basis, filters * pull[:, None])
    squares = (task.design @ basis) ** 2
    leverages = task.unit * (filters @ np.swapaxes(squares, 1, 2))
    count = len(means) * len(scales)
    return heads.reshape(count, heads.shape[-1]), leverages.reshape(count, len(task.y))


def roots_of(covariances: Floats) -> Floats:
    """Factors L with L L' = S, also where S is singular to rounding."""
    values, vectors = np.linalg.eigh(covariances)
    return vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]


def spectrum(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues, none below zero, and -vectors of a positive semidefinite matrix, which is lost: no copy is made."""
    values, vectors, info = scipy.linalg.lapack.dsyevd(matrix.T, lower=1, overwrite_a=1)
    if info != 0:  # pragma: no cover - only numbers beyond float64 get here
        raise np.linalg.LinAlgError(f"eigenvalues did not converge (LAPACK info {info})")
    return np.maximum(values, 0.0), vectors


def dual_paths(task: Task, fitted: Floats, kernel: Floats, noise: float, scales: Floats) -> tuple[Floats, Floats]:
    """The same for one prior N(mean, q S), through n x n matrices: duals (n, Q) and leverages (Q, n).

    ``fitted`` is ``design mean`` (n,), ``kernel`` is ``design S design'`` (n, n); heads are ``mean + S design' duals``.
    """
    root = np.sqrt(task.weight)
    values, vectors = spectrum(root[:, None] * kernel * root)
    residual = vectors.T @ (root * (task.y - fitted))
    filters = 1.0 / (scales[:, None] * values + noise)
    duals = (scales[:, None] * filters * residual) @ vectors.T * root
    shares = (scales[:, None] * values * filters) @ (vectors**2).T
    return duals.T, shares * (task.unit / task.weight)
