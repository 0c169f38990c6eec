"""Predictive uncertainty: standard deviations and intervals calibrated by leave-one-out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from mixtune._array import Floats
from mixtune._checks import check_positive
from mixtune._messages import Wording
from mixtune.errors import ParameterError
from mixtune.moments import LeaveOneOut, Posterior


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Leave-one-out residuals of the focal rows, and how the spread varies with the inputs.

    Parameters
    ----------
    make_left_out : callable
        Returns the :class:`LeaveOneOut`; called on first use.
    make_posterior : callable
        Returns the :class:`Posterior`, or None for the same spread everywhere.
    """

    make_left_out: Callable[[], LeaveOneOut]
    make_posterior: Callable[[], Posterior | None]

    @classmethod
    def known(cls, left_out: LeaveOneOut, posterior: Posterior | None) -> Uncertainty:
        """From values that are known already, as in a model loaded from a file."""
        return cls(partial(_same, left_out), partial(_same, posterior))

    @cached_property
    def left_out(self) -> LeaveOneOut:
        """Leave-one-out predictions, residuals and spreads."""
        return self.make_left_out()

    @cached_property
    def posterior(self) -> Posterior | None:
        """The spread for any row."""
        return self.make_posterior()

    def std(self, U: Floats) -> Floats:
        """Predictive standard deviation (n, D), scaled so that leave-one-out residuals have unit mean square."""
        self._check()
        return np.sqrt(self._spread(U)[:, None] * self.left_out.noise)

    def half_width(self, U: Floats, coverage: float) -> Floats:
        """Half-width (n, D) of conformal intervals: a quantile of leave-one-out residuals, scaled by the spread."""
        coverage = check_positive("coverage", coverage)
        if coverage >= 1:
            raise ParameterError(f"coverage must be between 0 and 1; got {coverage!r}")
        self._check()
        scores = np.abs(self.left_out.residuals) / np.sqrt(self.left_out.spreads)[:, None]
        count = float(np.sum(self.left_out.copies))
        # Subtract a little, so that 0.9 * 10 = 9.000000000000002 is still rank 9.
        rank = math.ceil((count + 1) * coverage - 1e-9)
        if rank > count:
            needed = math.ceil(coverage / (1 - coverage) - 1e-9)
            are = "is" if count == 1 else "are"
            raise ParameterError(
                "intervals of coverage {coverage:g} need at least {needed} focal rows, there {are} {count:g}; {fix}",
                code="few-rows",
                coverage=coverage,
                needed=needed,
                are=are,
                count=count,
                fix=Wording(
                    "lower coverage or use predict(X, return_std=True)", "give --interval a lower value or use --std"
                ),
            )
        quantiles = np.array([_ranked(column, self.left_out.copies, rank) for column in scores.T])
        return np.sqrt(self._spread(U))[:, None] * quantiles

    def _spread(self, U: Floats) -> Floats:
        return np.ones(len(U)) if self.posterior is None else self.posterior.spread(U)

    def _check(self) -> None:
        if not np.all(np.isfinite(self.left_out.residuals)):
            raise ParameterError(
                "leave-one-out cannot judge this fit: without one of its focal rows nothing is left to predict that "
                "row from; pass more focal rows or a positive ridge, transfer or stability"
            )


def _same(value: Any) -> Any:
    return value


def _ranked(scores: Floats, copies: Floats, rank: int) -> float:
    """The score of the given rank, counting from 1 from the smallest, each score ``copies`` times."""
    order = np.argsort(scores, kind="stable")
    place = int(np.searchsorted(np.cumsum(copies[order]), rank - 1e-9))
    return float(scores[order][min(place, len(scores) - 1)])
