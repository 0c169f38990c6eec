"""Distances between samples: the functions that the weights of a dataset are made from.

Each function checks its samples, brings them into a common frame, calls one of the algorithms of this folder and says
with the number what the number is: exact, between proven bounds, or another quantity.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.weights.transport._bracket import bracket
from mixtune.weights.transport._exact import Plan, solve_within
from mixtune.weights.transport._line import line_distances
from mixtune.weights.transport._result import TransportDistance
from mixtune.weights.transport._samples import Rows, as_rows, as_same_columns, common_frame, restore
from mixtune.weights.transport._screen import axes_bound
from mixtune.weights.transport._sliced import sliced_interval

__all__ = ["METHODS", "distances_to", "sampling_floor", "wasserstein_distance"]

METHODS = ("auto", "exact", "line", "sliced", "bracket")

SUBSAMPLE = 1_000
DIRECTIONS = 200
# Measured: 3,000 x 3,000 takes 2.6 s and 0.4 GB exactly, 0.7 s as a bracket; the exact time grows faster.
MAX_EXACT_ENTRIES = 10_000_000
#: What is refused even when asked for by name: about 9 GB.
HARD_EXACT_ENTRIES = 200_000_000
RTOL = 1e-3
#: What the pairs in work may hold together, unless `jobs` says otherwise: eight of the largest that "auto" solves.
MEMORY, BYTES_PER_PAIR = 3.6e9, 45


def wasserstein_distance(
    A: Any,
    B: Any,
    *,
    method: str = "auto",
    seed: int = 0,
    subsample: int = SUBSAMPLE,
    directions: int = DIRECTIONS,
    max_exact_entries: int = MAX_EXACT_ENTRIES,
    rtol: float = RTOL,
) -> TransportDistance:
    """Wasserstein-1 distance between two samples, with equal weights on rows and Euclidean cost.

    Parameters
    ----------
    A, B
        Samples of shape (n, d) and (m, d), or (n,) and (m,) for one column: arrays, tensors or lists.
    method
        - ``"line"``: one column only; the closed form.
        - ``"exact"``: network simplex on all n x m costs, certified by duality.
        - ``"bracket"``: proven bounds for any size, tightened until they are within `rtol` of each other or the
          effort is spent, in memory proportional to n + m. `value` is their midpoint.
        - ``"sliced"``: the mean over random directions of the distances of the projections. **A different
          quantity**, never larger than the Wasserstein distance; do not compare it with the other methods.
        - ``"auto"``: the line for one column, exact up to `max_exact_entries` pairs, the bracket beyond.
    seed
        Seeds subsamples and directions. No proven bound depends on it beyond its width.
    subsample
        Rows of each sample whose exact solution starts ``"bracket"``, and ``"exact"`` when one sample is much longer.
    directions
        Number of directions of ``"sliced"``.
    max_exact_entries
        Largest n x m that ``"auto"`` solves exactly, at about 45 bytes for each pair. ``"exact"`` by name goes up to
        2e8 pairs, or this number if it is larger.
    rtol
        Width of the bracket, relative to its upper end, at which ``"bracket"`` stops.

    Returns
    -------
    TransportDistance
        The value and its bounds; see there for what they mean.

    Raises
    ------
    DataError
        If a sample is empty, not finite, not a table, or the columns differ.
    ParameterError
        If a setting is out of range, the method is unknown or does not fit the data.
    ConvergenceError
        If ``"exact"`` could not be certified; an uncertified number is never returned.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> found = wasserstein_distance(A, A + [3.0, 4.0])
    >>> round(found.value, 12), found.method, found.certified
    (5.0, 'exact', True)
    """
    settings = _Settings(method, seed, subsample, directions, max_exact_entries, rtol)
    X, Y = as_same_columns([A, B], ["A", "B"])
    return _distance(X, Y, settings)


def distances_to(
    focal: Any,
    others: Sequence[Any],
    *,
    method: str = "auto",
    seed: int = 0,
    jobs: int | None = None,
    limit: float = float("inf"),
    subsample: int = SUBSAMPLE,
    directions: int = DIRECTIONS,
    max_exact_entries: int = MAX_EXACT_ENTRIES,
    rtol: float = RTOL,
) -> list[TransportDistance]:
    """Distances between one sample and each of several others, several pairs at a time.

    Every pair gets the answer that :func:`wasserstein_distance` gives with the same settings, whatever the number of
    jobs. All samples are checked before any work starts.

    Parameters
    ----------
    focal
        The sample to measure from.
    others
        The samples to measure to.
    jobs
        Pairs in work at a time, each in its own thread and with its own memory; by default one for each processor,
        fewer where together they would need more than 4 GB.
    limit
        Do not solve for distances that are proven to be larger than this. Three bounds are tried in turn: the distance
        of the means, distances along orthogonal axes, and potentials on the way to the solution. Such pairs come back
        with that bound as `value` and `lower`, `upper` infinite and method ``"screened"``. Not for ``"sliced"``.
    method, seed, subsample, directions, max_exact_entries, rtol
        As in :func:`wasserstein_distance`.

    Returns
    -------
    list of TransportDistance
        In the order of `others`.

    Examples
    --------
    >>> [found.value for found in distances_to([0.0, 1.0], [[0.0, 1.0], [2.0, 3.0]])]
    [0.0, 2.0]
    >>> focal = [[0.0, 0.0], [1.0, 0.0]]
    >>> near, far = distances_to(focal, [[[0.0, 1.0], [1.0, 1.0]], [[9.0, 9.0]]], limit=5.0)
    >>> near.method, far.method, far.lower > 5.0
    ('exact', 'screened', True)
    """
    settings = _Settings(method, seed, subsample, directions, max_exact_entries, rtol)
    limit = check_nonnegative("limit", limit, allow_infinite=True)
    if jobs is not None:
        check_whole("jobs", jobs, least=1)
    if hasattr(others, "shape"):
        raise DataError("others must be a list with one array for each sample; put a single array in a list")
    names = ["focal", *(f"others[{index}]" for index in range(len(others)))]
    X, *rest = as_same_columns([focal, *others], names)
    for Y in rest:
        settings.choose(X, Y)
    workers = _default_jobs(X, rest, settings) if jobs is None else jobs
    with ThreadPoolExecutor(max_workers=workers) as pool:  # the solver runs outside Python's lock
        return list(pool.map(lambda Y: _distance(X, Y, settings, limit), rest))


def sampling_floor(
    X: Any,
    *,
    seed: int = 0,
    method: str = "auto",
    subsample: int = SUBSAMPLE,
    directions: int = DIRECTIONS,
    max_exact_entries: int = MAX_EXACT_ENTRIES,
    rtol: float = RTOL,
) -> TransportDistance:
    """Distance between two random halves of one sample: what sampling alone makes of a true distance of zero.

    Two samples of n rows from one distribution in d dimensions are about n^(-1/d) apart, which in high dimension hardly
    shrinks with n and swamps any signal: a distance between two datasets that is not clearly above the floor of each
    says nothing about how their distributions differ. The halves have half the rows, so the floor of the whole sample
    is a little lower. One split is itself random, in one dimension by about half its size: average over several
    seeds before calling a close comparison.

    Parameters
    ----------
    X
        A sample with at least two rows; an odd row goes to the second half.
    seed
        Seeds the halves as well as the method.
    method, subsample, directions, max_exact_entries, rtol
        As in :func:`wasserstein_distance`.

    Returns
    -------
    TransportDistance
        The distance between the halves.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((400, 50))
    >>> shift = np.full(50, 0.1)  # moves every row by 0.7
    >>> floor = sampling_floor(X).value
    >>> bool(floor > 5 * np.linalg.norm(shift))
    True
    """
    settings = _Settings(method, seed, subsample, directions, max_exact_entries, rtol)
    rows = as_rows(X, "X")
    if len(rows) < 2:
        raise DataError("X has 1 row; two halves need at least 2 rows")
    order = np.random.default_rng(seed).permutation(len(rows))
    half = len(rows) // 2
    return _distance(rows[order[:half]], rows[order[half:]], settings)


@dataclass(frozen=True)
class _Settings:
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


def _default_jobs(X: Rows, others: Sequence[Rows], settings: _Settings) -> int:
    """One job for each processor this process may use, as far as memory goes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    held = [len(X) * len(Y) for Y in others if settings.choose(X, Y) == "exact"]
    room = int(MEMORY // (BYTES_PER_PAIR * max(held))) if held else cores
    return max(1, min(cores, room, len(others)))


def _distance(A: Rows, B: Rows, settings: _Settings, limit: float = math.inf) -> TransportDistance:
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
        lower, upper = bracket(X, Y, seed=settings.seed, subsample=settings.subsample, rtol=settings.rtol, limit=limit)
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
