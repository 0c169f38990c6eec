"""Distances between samples: the functions that the weights of a dataset are made from.

Each function checks its samples, hands pairs to `_pair`, and says with each number what it is: exact, between proven
bounds, or another quantity.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mixtune._checks import check_nonnegative, check_whole
from mixtune.errors import DataError
from mixtune.weights.transport._pair import (
    DIRECTIONS,
    MAX_EXACT_ENTRIES,
    METHODS,
    RTOL,
    SUBSAMPLE,
    Settings,
    pair_distance,
)
from mixtune.weights.transport._result import TransportDistance
from mixtune.weights.transport._samples import Rows, as_rows, as_same_columns, home_of

__all__ = ["METHODS", "distances_to", "sampling_floor", "wasserstein_distance"]

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
        Samples of shape (n, d) and (m, d), or (n,) and (m,) for one column: arrays, tensors or lists. With
        PyTorch or CuPy arrays, whatever looks at all pairs of a bracket runs in that library and on their device.
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
    settings = Settings(method, seed, subsample, directions, max_exact_entries, rtol)
    X, Y = as_same_columns([A, B], ["A", "B"])
    return pair_distance(X, Y, settings, home=home_of([A, B]))


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
    settings = Settings(method, seed, subsample, directions, max_exact_entries, rtol)
    limit = check_nonnegative("limit", limit, allow_infinite=True)
    if jobs is not None:
        check_whole("jobs", jobs, least=1)
    if hasattr(others, "shape"):
        raise DataError("others must be a list with one array for each sample; put a single array in a list")
    names = ["focal", *(f"others[{index}]" for index in range(len(others)))]
    X, *rest = as_same_columns([focal, *others], names)
    for Y in rest:
        settings.choose(X, Y)
    home = home_of([focal, *others])
    workers = _default_jobs(X, rest, settings) if jobs is None else jobs
    with ThreadPoolExecutor(max_workers=workers) as pool:  # the solver runs outside Python's lock
        return list(pool.map(lambda Y: pair_distance(X, Y, settings, limit=limit, home=home), rest))


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
    settings = Settings(method, seed, subsample, directions, max_exact_entries, rtol)
    rows = as_rows(X, "X")
    if len(rows) < 2:
        raise DataError("X has 1 row; two halves need at least 2 rows")
    order = np.random.default_rng(seed).permutation(len(rows))
    half = len(rows) // 2
    return pair_distance(rows[order[:half]], rows[order[half:]], settings, home=home_of([X]))


def _default_jobs(X: Rows, others: Sequence[Rows], settings: Settings) -> int:
    """One job for each processor this process may use, as far as memory goes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    held = [len(X) * len(Y) for Y in others if settings.choose(X, Y) == "exact"]
    room = int(MEMORY // (BYTES_PER_PAIR * max(held))) if held else cores
    return max(1, min(cores, room, len(others)))
