"""A prior mean that depends on what a domain is like: heads regressed on the domains' mean features.

Quarters with large houses, schools with able pupils: how targets depend on features often goes with what the features
of a domain are like on average, which is known before any of its targets. So heads are theta_i ~ N(mu + Gamma c_i, S),
where c_i are the mean features of domain i in units of their spread between domains, shrunk by how well its rows
determine them. Every row of Gamma has a ridge of its own, learned together with S: one that explains nothing goes to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtune.selection._hierarchy import Hierarchy, Shrinkage, Sums, learn_hierarchy
from mixtune.selection._task import Floats, Task

__all__ = ["Context"]

#: Where the ridges of Gamma start, and the range they stay in.
FIRST, RANGE = 10.0, (1e-3, 1e9)
#: Least spread between domains, relative to that within them: below, a mean tells nothing.
LEAST = 1e-4


@dataclass(frozen=True, eq=False)
class Descriptions:
    """How a domain's mean features become numbers of order one.

    Attributes
    ----------
    center, between, within : arrays (p,)
        Mean of the sources' means; variance between sources, and within them.
    """

    center: Floats
    between: Floats
    within: Floats

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Descriptions:
        """Learn from the sources' features."""
        means = np.stack([task.center[0] for task in tasks])
        within = np.mean([np.diagonal(task.centred.gram) / task.count for task in tasks], axis=0)
        # What the means of few rows vary by chance.
        chance = within * np.mean([1.0 / task.count for task in tasks])
        between = np.maximum(means.var(axis=0) - chance, LEAST * within)
        return cls(means.mean(axis=0), np.where(between > 0, between, 1.0), within)

    def __call__(self, task: Task) -> Floats:
        """``(1, c)`` of a task: (p + 1,)."""
        reliability = self.between / (self.between + self.within / task.count)
        return np.concatenate([[1.0], (task.center[0] - self.center) / np.sqrt(self.between) * reliability])


@dataclass(frozen=True, eq=False)
class Context:
    """The learned prior N(mu + Gamma c, S).

    Attributes
    ----------
    descriptions : Descriptions
    design : array (N, p + 1)
        ``(1, c_i)`` of the sources.
    ridges : array (d,)
        Of each row of Gamma.
    hierarchy : Hierarchy
        Posterior heads of the sources, and S.
    """

    descriptions: Descriptions
    design: Floats
    ridges: Floats
    hierarchy: Hierarchy

    @classmethod
    def learn(cls, tasks: Sequence[Task], sums: Sums, shrinkage: Shrinkage) -> Context:
        """Learn Gamma along with the covariance."""
        descriptions = Descriptions.of(tasks)
        regression = _Regression(np.stack([descriptions(task) for task in tasks]), sums.crosses.shape[1])
        hierarchy = learn_hierarchy(sums, shrinkage, centers=regression)
        return cls(descriptions, regression.design, regression.ridges, hierarchy)

    def prior(self, task: Task, allowed: Floats) -> tuple[Floats, Floats, Floats]:
        """Weights on the sources (N,), mean (d,) and covariance (d, d) for a task, from the allowed sources.

        A prediction of the regression is a weighted sum of the sources' heads, with weights for each coefficient; what
        is given are their averages, none below zero.
        """
        described = self.descriptions(task)
        used = self.design * allowed[:, None]
        system = used.T @ self.design + _penalties(self.ridges, len(described) - 1)
        solved = np.linalg.solve(system, np.tile(described[:, None], (len(system), 1, 1)))[..., 0]
        weights = solved @ used.T
        mean = np.einsum("rn,nr->r", weights, self.hierarchy.heads)
        # As a new observation's variance in any regression: 1 + leverage.
        grown = np.sqrt(1.0 + np.maximum(solved @ described, 0.0))
        share = np.maximum(weights.mean(axis=0), 0.0)
        return share / share.sum(), mean, self.hierarchy.covariance * np.outer(grown, grown)


class _Regression:
    """Heads on descriptions, in each step of expectation-maximisation, with ridges that are learned on the way."""

    def __init__(self, design: Floats, width: int) -> None:
        self.design, self.ridges = design, np.full(width, FIRST)

    def __call__(self, heads: Floats, covariance: Floats) -> Floats:
        """Prior means (N, d) of the heads."""
        count = self.design.shape[1] - 1
        inverse = np.linalg.inv(self.design.T @ self.design + _penalties(self.ridges, count))
        gamma = np.einsum("rij,jr->ri", inverse, self.design.T @ heads)
        # E|gamma_r|^2 in units of the variance of coefficient r is what its ridge stands for.
        variance = np.maximum(np.diagonal(covariance), 1e-300)
        square = np.sum(gamma[:, 1:] ** 2, axis=1) / variance + np.trace(inverse[:, 1:, 1:], axis1=1, axis2=2)
        self.ridges = np.clip(count / np.maximum(square, 1e-300), *RANGE)
        return self.design @ gamma.T


def _penalties(ridges: Floats, count: int) -> Floats:
    """Ridges on all but the constant: (d, count + 1, count + 1)."""
    return ridges[:, None, None] * np.diag([0.0] + [1.0] * count)
