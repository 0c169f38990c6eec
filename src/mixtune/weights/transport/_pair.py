"""One pair of samples: which algorithm it gets, and what comes out of it.

Samples are brought into a common frame, cheap proven bounds decide about a limit where there is one, and only then is
there anything to solve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mixtune._array import Array
from mixtune._checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import ParameterError
from mixtune.weights.transport._bracket import bracket
from mixtune.weights.transport._exact import Plan, solve_within
from mixtune.weights.transport._line import line_distances
from mixtune.weights.transport._result import TransportDistance
from mixtune.weights.transport._samples import Rows, common_frame, restore
from mixtune.weights.transport._screen import axes_bound
from mixtune.weights.transport._sliced import sliced_interval

__all__ = ["DIRECTIONS", "MAX_EXACT_ENTRIES", "METHODS", "RTOL", "SUBSAMPLE", "Settings", "pair_distance"]

METHODS = ("auto", "exact", "line", "sliced", "bracket")

SUBSAMPLE = 1_000
DIRECTIONS = 200
# Measured: 3,000 x 3,000 takes 2.6 s and 0.4 GB exactly, 0.7 s as a bracket; the exact time grows faster.
MAX_EXACT_ENTRIES = 10_000_000
#: What is refused even when asked for by name: about 9 GB.
HARD_EXACT_ENTRIES = 200_000_000
RTOL = 1e-3


@dataclass(frozen=True)
class Settings:
    """The options of :func:`wasserstein_distance`, checked."""

    method: str
    seed: int
    subsample: int
    directions: int
    max_exact_entries: int
    rtol: float

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        for name, least in (("seed", 0), ("subsample", 1), ("directions", 2), ("max_exact_entries", 1)):
            check_whole(name, getattr(self, name), least=least)
        check_nonnegative("rtol", self.rtol)

    def choose(self, X: Rows, Y: Rows) -> str:
        """The method for these samples, or an error if the one asked for cannot handle them."""
        columns, entries = X.shape[1], len(X) * len(Y)
        if self.method == "auto":
            return "line" if columns == 1 else "exact" if entries <= self.max_exact_entries else "bracket"
        if self.method == "line" and columns > 1:
            raise ParameterError(f"method 'line' needs one column, the samples have {columns}; use 'auto'")
        if self.method == "exact" and entries > max(self.max_exact_entries, HARD_EXACT_ENTRIES):
            raise ParameterError(
                f"method 'exact' on {len(X)} x {len(Y)} rows needs about {45e-9 * entries:.1f} GB; use 'bracket',"
                f" or raise max_exact_entries (now {self.max_exact_entries}) to at least {entries}"
            )
        return self.method


def pair_distance(
    A: Rows, B: Rows, settings: Settings, *, limit: float = math.inf, home: Array = None
) -> TransportDistance:
    """The distance, its bounds, and what they are; `home` is where large pairs are looked at (see `_pricing`)."""
    method = settings.choose(A, B)
    (X, Y), exponent = common_frame([A, B])
    upper = math.inf
    limit = float(np.ldexp(limit, -exponent))
    if method == "line":
        value = lower = upper = float(line_distances(X, Y)[0])
    elif method == "sliced":
        value, lower, upper = sliced_interval(X, Y, directions=settings.directions, seed=settings.seed)
    elif (bound := _cheap_bound(X, Y, limit)) is not None:
        method, value, lower = "screened", bound, bound
    elif method == "exact":
        found = solve_within(X, Y, limit, seed=settings.seed, subsample=settings.subsample)
        if isinstance(found, Plan):
            value, lower, upper = found.cost, found.lower, found.cost
            if upper - lower > 1e-6 * upper:  # outliers far beyond the distance: rounding leaves only bounds
                method, value = "bracket", lower + (upper - lower) / 2.0
        else:
            method, value, lower = "screened", found, found
    else:
        seed, subsample, rtol = settings.seed, settings.subsample, settings.rtol
        lower, upper = bracket(X, Y, seed=seed, subsample=subsample, rtol=rtol, limit=limit, home=home)
        if lower > limit:
            method, value, upper = "screened", lower, math.inf
        else:
            value = lower + (upper - lower) / 2.0
    return TransportDistance(
        value=restore(value, exponent),
        lower=restore(lower, exponent),
        upper=restore(upper, exponent) if method != "screened" else math.inf,
        method=method,
        certified=method != "sliced",
        rows=(len(A), len(B)),
    )


def _cheap_bound(X: Rows, Y: Rows, limit: float) -> float | None:
    """A lower bound above the limit, from the cheapest that gives one; None where a solution is needed."""
    if math.isinf(limit):
        return None
    means = float(np.linalg.norm(X.mean(axis=0) - Y.mean(axis=0))) * (1.0 - 1e-12)
    if means > limit:
        return means
    axes = axes_bound(X, Y)
    return axes if axes > limit else None
