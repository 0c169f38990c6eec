"""One domain as the choice sees it: sums over all its rows and, where they are known, the rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import EPSILON, Floats
from mixtune.moments import Center, Moments, Regression, Rows, augmented, no_center, own_center, recentred

__all__ = ["Sample", "target_scale"]


class Sample:
    """Moments of ``[U, 1]`` and one target, and the rows behind them if they are known.

    Sources inform priors through their moments alone. Rows are needed of the focal domain, and of sources that take
    the focal role in cross-domain validation.

    Parameters
    ----------
    moments : Moments
        Over the features and a constant 1 as the last one, every row scaled by the root of its sample weight.
    rows : Rows, optional
        The rows, without the constant; or some of them, to leave out in turn.
    intercept : bool
        Whether the constant is part of the model.

    Examples
    --------
    >>> sample = Sample.of(Rows(np.array([[0.0], [2.0]]), np.array([1.0, 3.0])))
    >>> sample.center.features, sample.free.gram
    (array([1.]), array([[2.]]))
    """

    def __init__(self, moments: Moments, rows: Rows | None = None, *, intercept: bool = True) -> None:
        self.moments, self.rows, self.intercept = moments, rows, intercept

    @classmethod
    def of(cls, rows: Rows, *, intercept: bool = True) -> Sample:
        """Moments of rows, and the rows."""
        return cls(augmented(rows), rows, intercept=intercept)

    @cached_property
    def center(self) -> Center:
        """Weighted means of features and targets."""
        return own_center(self.moments)

    @property
    def total(self) -> float:
        """The number of rows, each counting as its sample weight."""
        return self.center.total

    @property
    def columns(self) -> int:
        """How many coefficients the model has, that of the constant among them."""
        return self.moments.n_features - (not self.intercept)

    @cached_property
    def free(self) -> Regression:
        """The regression with an intercept that no prior knows of: all about the means."""
        center = self.center if self.intercept else no_center(self.moments)
        rows = self.rows
        if rows is not None and self.intercept:
            rows = Rows(rows.X - center.features, rows.y - center.targets, rows.sample_weight)
        system = recentred(self.moments, center).system
        return Regression(system, rows, self.total, center if self.intercept else None, count=self._count)

    @cached_property
    def full(self) -> Regression:
        """The regression with the constant as a feature like any other; as :attr:`free` where there is none."""
        if not self.intercept:
            return self.free
        rows = self.rows
        if rows is not None:
            rows = Rows(np.column_stack([rows.X, np.ones(len(rows.y))]), rows.y, rows.sample_weight)
        return Regression(self.moments.system, rows, self.total, count=self._count)

    @property
    def _count(self) -> float:
        """How many rows there are, those of weight above 1 counting as so many."""
        return max(self.total, float(self.moments.count))

    @property
    def known(self) -> Rows:
        """The rows of a sample that has them."""
        assert self.rows is not None
        return self.rows

    def part(self, index: Any) -> Sample:
        """A sample of some of the rows."""
        return Sample.of(self.known.part(index), intercept=self.intercept)

    def judged(self, index: Any) -> Sample:
        """The same sums with some of the rows to leave out in turn."""
        return Sample(self.moments, self.known.part(index), intercept=self.intercept)

    def divided(self, size: float) -> Sample:
        """The same with targets divided by ``size``."""
        rows = None if self.rows is None else Rows(self.rows.X, self.rows.y / size, self.rows.sample_weight)
        return Sample(self.moments.divided(size), rows, intercept=self.intercept)

    def predict(self, head: Floats) -> Floats:
        """Predictions (n,) of the rows by coefficients (d,), that of the constant last."""
        X = self.known.X
        return X @ head[:-1] + head[-1] if self.intercept else X @ head


def target_scale(samples: Sequence[Sample]) -> float:
    """Standard deviation of all targets, or 1 where they do not vary."""
    total = sum(sample.total for sample in samples)
    square = sum(float(sample.moments.square) for sample in samples) / total
    mean = sum(sample.total * float(sample.center.targets) for sample in samples) / total
    variance = square - mean**2
    return float(np.sqrt(variance)) if variance > 64 * EPSILON * square else 1.0
