"""Validation tasks that are done where the rows are: what is sent there, what is done there, and what comes back.

A source in the focal role needs the candidates' coefficients for its task, and how much each of its rows counts in them
(leverages). Both follow from the moments of the task's rows, which it sends. Coefficients and leverages go back: the
latter as quadratic functions of a row. What comes back are mean products of the candidates' residuals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from mixtune.arrays import Floats, Integers
from mixtune.choice._choose import (
    Choice,
    Plan,
    Pool,
    by_content,
    choose,
    joined_paths,
    plan_of,
    rank_of,
    target_scale,
)
from mixtune.choice._families import FocalFamily, Label
from mixtune.choice._model_averaging import (
    SummedTask,
    ValidationTask,
    focal_only_best,
    negligible_error,
    robust_errors,
)
from mixtune.choice._settings import SETTINGS
from mixtune.moments import Moments, Origin, Rows, Sample, augmented, left_out_residuals, pooled_scale


def common_mean(focal: Rows, moments: Sequence[Moments], origin: Origin) -> Origin:
    """The mean of focal rows and of the rows behind moments about ``origin``."""
    mean, _, level = pooled_scale([augmented(origin.rows(focal)), *moments])
    return Origin(origin.features + mean, np.asarray(origin.targets + level))


class RemoteTasks:
    """The choice with sources whose rows are elsewhere; validation tasks are done there.

    Parameters
    ----------
    focal : Rows
    moments : sequence of Moments
        Of ``[U, 1]`` of each source, about ``origin``.
    origin : Origin
    seed : int
        As for :func:`choose`.

    Attributes
    ----------
    mean : Origin
        The mean of all rows, which tasks are about.
    size : float
        What the targets of tasks are divided by.
    focal : Sample
    sources : tuple of Sample
        About the mean.
    """

    #: So many rows, at most, a task is tested on.
    test_rows = SETTINGS.test_rows

    def __init__(self, focal: Rows, moments: Sequence[Moments], origin: Origin, *, seed: int = 0) -> None:
        self.mean, self.seed = common_mean(focal, moments, origin), seed
        self.focal = Sample.of(self.mean.rows(focal))
        self.sources = tuple(Sample(origin.move(each, self.mean)) for each in moments)
        self.size = target_scale([self.focal, *self.sources])

    @cached_property
    def _pool(self) -> Pool:
        return Pool.of([source.divided(self.size) for source in self.sources])

    @property
    def labels(self) -> list[Label]:
        """Of all candidates."""
        return self._pool.labels

    def plan(self, ranks: Mapping[int, Sequence[float]]) -> Plan:
        """What is drawn, from what :meth:`rank` says of the sources that take a focal role, by their places.

        The tasks have places of rows in the order of their content (:meth:`order`).
        """
        sizes = [int(ranks[k][0]) if k in ranks else 0 for k in range(len(self.sources))]
        return plan_of(self.focal, sizes, lambda k: tuple(ranks[k]), seed=self.seed)

    def candidates(self, source: int, part: Moments) -> tuple[Floats, Floats]:
        """Coefficients (C, d) of all candidates for a task with these moments, and leverages as quadratics (C, q).

        ``part`` are moments of ``[U, 1]`` and targets divided by :attr:`size`.
        """
        allowed = np.ones(len(self.sources))
        allowed[source] = 0.0
        probes = _probes(part.n_features - 1)
        task = Sample(part, Rows(probes, np.zeros(len(probes))), intercept=self.focal.intercept)
        paths = joined_paths(self._pool.fits(task, allowed))
        return paths.heads, _quadratics(paths.leverages, part.n_features - 1)

    def choose(self, plan: Plan, tasks: Sequence[SummedTask]) -> Choice:
        """The choice with the tasks that came back."""
        return choose(self.focal, self.sources, seed=self.seed, plan=plan, tasks=tasks)

    @staticmethod
    def rank(rows: Rows) -> tuple[float, ...]:
        """What a source tells of its rows about the mean, so that the sources have an order."""
        return rank_of(rows)

    @staticmethod
    def order(rows: Rows, places: Integers) -> Integers:
        """Which rows a task is about: places in the order of their content, as places of rows."""
        return by_content(rows)[places]

    @staticmethod
    def leverages(X: Floats, quadratics: Floats) -> Floats:
        """Leverages (C, n) of rows, from quadratic functions (C, q)."""
        first, second = np.triu_indices(X.shape[1], 1)
        monomials = np.hstack([np.ones((len(X), 1)), X, X**2, X[:, first] * X[:, second]])
        return quadratics @ monomials.T

    @classmethod
    def play(
        cls, rows: Rows, order: Integers, count: int, spare: bool, heads: Floats, quadratics: Floats
    ) -> SummedTask:
        """Do one validation task, where the rows are.

        Parameters
        ----------
        rows : Rows
            All rows of the source, in prepared units and with targets divided as agreed.
        order : array of int
            The rows of the task come first, ``count`` of them, then those kept for testing.
        spare : bool
            Whether there are rows to spare for a test; else left-out rows stand in.
        heads, quadratics : arrays (C, d) and (C, q)
            From :meth:`candidates`.
        """
        part = rows.part(order[:count])
        task = Sample.of(part)
        left_out = left_out_residuals(_residuals(part, heads), cls.leverages(part.X, quadratics))
        negligible = negligible_error(task)
        # The fits to the task's own rows are the first candidates.
        scores = robust_errors(left_out, part.weight, negligible)
        alone = focal_only_best(FocalFamily(0).labels, scores)
        if spare:
            test = rows.part(order[count : count + SETTINGS.test_rows])
            found = ValidationTask(0, _residuals(test, heads), test.weight, left_out, alone, negligible)
        else:
            limit = SETTINGS.largest_residual
            found = ValidationTask(0, np.clip(left_out, -limit, limit), part.weight, left_out, alone, negligible)
        return SummedTask.of(found)


def _residuals(rows: Rows, heads: Floats) -> Floats:
    return rows.y - (heads[:, :-1] @ rows.X.T + heads[:, -1:])


def _probes(width: int) -> Floats:
    """Rows whose leverages determine those of all rows: a leverage is a quadratic function of the row."""
    unit = np.eye(width)
    first, second = np.triu_indices(width, 1)
    return np.vstack([np.zeros((1, width)), unit, -unit, unit[first] + unit[second]])


def _quadratics(values: Floats, width: int) -> Floats:
    """Coefficients (C, q) of quadratic functions from their values (C, m) at the probes."""
    zero, plus, minus, pairs = np.split(values, [1, 1 + width, 1 + 2 * width], axis=1)
    first, second = np.triu_indices(width, 1)
    crossed = pairs - plus[:, first] - plus[:, second] + zero
    return np.hstack([zero, (plus - minus) / 2, (plus + minus) / 2 - zero, crossed])
