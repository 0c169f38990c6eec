"""Distances between samples, and the diameter of all of them: what the weights of datasets are made from.

A distance says with its number what the number is: exact, between proven bounds, or another quantity. Samples are
checked, brought into a common frame, compared with cheap proven bounds where there is a limit, and only then solved.

The common frame: all samples of one computation are shifted by one vector and divided by one power of two, so that
their coordinates lie in [-1, 1]. The shift does not change distances between points, the division is exact, and squares
can neither overflow nor underflow: data near 1e150 or 1e-150, or far from the origin, lose no accuracy.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array, is_torch_array
from joblib import cpu_count

from mixtune.arrays import Array, Floats, as_float64, check_unmasked, count_nonfinite, slices, to_numpy
from mixtune.checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.weights._transport_bounds import axes_bound, bracket, sliced_interval
from mixtune.weights._transport_exact import CHUNK_ENTRIES, Plan, line_distances, solve_within

METHODS = ("auto", "exact", "line", "sliced", "bracket")

SUBSAMPLE = 1_000
DIRECTIONS = 200
# Measured: 3,000 x 3,000 takes 2.6 s and 0.4 GB exactly, 0.7 s as a bracket; the exact time grows faster.
MAX_EXACT_ENTRIES = 10_000_000
#: Refused even when asked for by name: about 9 GB.
HARD_EXACT_ENTRIES = 200_000_000
RTOL = 1e-3
#: Memory of all pairs in work, unless `jobs` says otherwise: eight of the largest that "auto" solves.
MEMORY, BYTES_PER_PAIR = 3.6e9, 45


@dataclass(frozen=True)
class TransportDistance:
    """A distance between two samples, with what is known about its error.

    Attributes
    ----------
    value
        The distance. For ``"bracket"`` the midpoint of the bounds.
    lower, upper
        Bounds on the quantity that `method` names. Rigorous up to rounding when `certified`; otherwise a 95 %
        Monte Carlo interval.
    method
        ``"exact"``, ``"line"`` and ``"bracket"`` are the Wasserstein-1 distance, by network simplex, by the closed
        form on the line, and between two bounds. ``"screened"`` is a lower bound on it that settled the question: it
        exceeds the limit asked about, and `upper` is infinite. ``"sliced"`` is the sliced Wasserstein-1 distance,
        another quantity.
    certified
        Whether `lower` and `upper` are proven bounds.
    rows
        The numbers of rows of the two samples.

    Examples
    --------
    >>> found = TransportDistance(value=1.5, lower=1.0, upper=2.0, method="bracket", certified=True, rows=(10, 20))
    >>> found.gap, float(found)
    (1.0, 1.5)
    """

    value: float
    lower: float
    upper: float
    method: str
    certified: bool
    rows: tuple[int, int]

    @property
    def gap(self) -> float:
        """The width of the interval, ``upper - lower``."""
        return self.upper - self.lower

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Diameter:
    """The Euclidean diameter of a set of points, or an upper bound on it.

    Attributes
    ----------
    value
        The largest distance between two points, or a number that is at least as large.
    exact
        Whether `value` is the diameter itself (up to rounding).
    """

    value: float
    exact: bool

    def __float__(self) -> float:
        return self.value


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
        Samples of shape (n, d) and (m, d), or (n,) and (m,) for one column: arrays, tensors or lists. For PyTorch or
        CuPy arrays, computations over all pairs of a bracket run in that library and on their device.
    method
        - ``"line"``: one column only; the closed form.
        - ``"exact"``: network simplex on all n x m costs, certified by duality.
        - ``"bracket"``: proven bounds for any size, tightened until they are within `rtol` of each other or the
          effort is spent, in memory proportional to n + m. `value` is their midpoint.
        - ``"sliced"``: the mean over random directions of the distances of the projections. **A different
          quantity**, never larger than the Wasserstein distance; do not compare it with the other methods.
        - ``"auto"``: the line for one column, exact up to `max_exact_entries` pairs, the bracket beyond.
    seed
        Seed of subsamples and directions. It only affects how tight the proven bounds are.
    subsample
        Rows of each sample whose exact solution starts ``"bracket"``.
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
        The value and its bounds, which that class describes.

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
    limit: float = math.inf,
) -> list[TransportDistance]:
    """Distances between one sample and each of several others, several pairs at a time.

    Every pair gets the answer that :func:`wasserstein_distance` gives, whatever the number of jobs. All samples are
    checked before any work starts.

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
    method, seed
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
    settings = Settings(method, seed)
    limit = check_nonnegative("limit", limit, allow_infinite=True)
    if jobs is not None:
        check_whole("jobs", jobs, least=1)
    if hasattr(others, "shape"):
        raise DataError("others must be a list with one array for each sample; put a single array in a list")
    X, *rest = as_same_columns([focal, *others], ["focal", *(f"others[{i}]" for i in range(len(others)))])
    for Y in rest:
        settings.choose(X, Y)
    home = home_of([focal, *others])
    workers = _default_jobs(X, rest, settings) if jobs is None else jobs
    distance = partial(pair_distance, X, settings=settings, limit=limit, home=home)
    if workers == 1:
        return [distance(Y) for Y in rest]
    with ThreadPoolExecutor(max_workers=workers) as pool:  # the solver runs outside Python's lock
        return list(pool.map(distance, rest))


def sampling_floor(X: Any, *, seed: int = 0, **options: Any) -> TransportDistance:
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
    **options
        `method`, `subsample`, `directions`, `max_exact_entries` and `rtol` of :func:`wasserstein_distance`.

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
    settings = Settings(seed=seed, **options)
    rows = as_rows(X, "X")
    if len(rows) < 2:
        raise DataError("X has 1 row; two halves need at least 2 rows")
    return pair_distance(*random_halves(rows, seed), settings, home=home_of([X]))


def random_halves(rows: Floats, seed: int) -> tuple[Floats, Floats]:
    """The rows in two random halves; an odd row goes to the second."""
    order, half = np.random.default_rng(seed).permutation(len(rows)), len(rows) // 2
    return rows[order[:half]], rows[order[half:]]


# --- one pair ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """The options of :func:`wasserstein_distance`, checked."""

    method: str = "auto"
    seed: int = 0
    subsample: int = SUBSAMPLE
    directions: int = DIRECTIONS
    max_exact_entries: int = MAX_EXACT_ENTRIES
    rtol: float = RTOL

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        for name, least in (("seed", 0), ("subsample", 1), ("directions", 2), ("max_exact_entries", 1)):
            check_whole(name, getattr(self, name), least=least)
        check_nonnegative("rtol", self.rtol)

    def choose(self, X: Floats, Y: Floats) -> str:
        """The method for these samples, or an error if the one asked for cannot handle them."""
        columns, entries = X.shape[1], len(X) * len(Y)
        if self.method == "auto":
            return "line" if columns == 1 else "exact" if entries <= self.max_exact_entries else "bracket"
        if self.method == "line" and columns > 1:
            raise ParameterError(f"method 'line' needs one column, the samples have {columns}; use 'auto'")
        if self.method == "exact" and entries > max(self.max_exact_entries, HARD_EXACT_ENTRIES):
            need = f"method 'exact' on {len(X)} x {len(Y)} rows needs about {45e-9 * entries:.1f} GB"
            more = f"raise max_exact_entries (now {self.max_exact_entries}) to at least {entries}"
            raise ParameterError(f"{need}; use 'bracket', or {more}")
        return self.method


def pair_distance(
    A: Floats, B: Floats, settings: Settings, *, limit: float = math.inf, home: Array = None
) -> TransportDistance:
    """The distance, its bounds, and what they are; `home` is where large pairs are priced (see `price`)."""
    method = settings.choose(A, B)
    (X, Y), exponent = common_frame([A, B])
    limit = float(np.ldexp(limit, -exponent))
    seed = settings.seed
    if method == "line":
        value = lower = upper = float(line_distances(X, Y)[0])
    elif method == "sliced":
        value, lower, upper = sliced_interval(X, Y, directions=settings.directions, seed=seed)
    else:
        if (bound := _cheap_bound(X, Y, limit)) is not None:
            lower, upper = bound, math.inf
        elif method == "exact":
            found = solve_within(X, Y, limit)
            lower, upper = (found.lower, found.cost) if isinstance(found, Plan) else (found, math.inf)
        else:
            effort: dict[str, Any] = {"subsample": settings.subsample, "rtol": settings.rtol}
            lower, upper = bracket(X, Y, seed=seed, limit=limit, home=home, **effort)
        if math.isinf(upper):
            method, value = "screened", lower
        elif method == "exact" and upper - lower <= 1e-6 * upper:
            value = upper
        else:  # an exact solution too, where outliers far beyond the distance leave only bounds after rounding
            method, value = "bracket", lower + (upper - lower) / 2.0
    value, lower = restore(value, exponent), restore(lower, exponent)
    upper = math.inf if method == "screened" else restore(upper, exponent)
    return TransportDistance(value, lower, upper, method, method != "sliced", (len(A), len(B)))


def _cheap_bound(X: Floats, Y: Floats, limit: float) -> float | None:
    """A lower bound above the limit, from the cheapest that gives one; None where a solution is needed."""
    if math.isinf(limit):
        return None
    means = float(np.linalg.norm(X.mean(axis=0) - Y.mean(axis=0))) * (1.0 - 1e-12)
    best = means if means > limit else axes_bound(X, Y)
    return best if best > limit else None


def _default_jobs(X: Floats, others: Sequence[Floats], settings: Settings) -> int:
    """One job for each processor this process may use, as far as memory goes."""
    cores = cpu_count()
    held = [len(X) * len(Y) for Y in others if settings.choose(X, Y) == "exact"]
    room = int(MEMORY // (BYTES_PER_PAIR * max(held))) if held else cores
    return max(1, min(cores, room, len(others)))


# --- samples ----------------------------------------------------------------------------------------------------------


def as_rows(sample: Any, name: str) -> Floats:
    """Check one sample and return it as a float64 array of shape (rows, columns)."""
    check_unmasked(sample, name)
    rows = to_numpy(as_float64(sample, what=name))
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise DataError(f"{name} has {rows.ndim} dimensions; pass shape (rows, columns), or (rows,) for one column")
    if rows.size == 0:
        raise DataError(f"{name} is empty (shape {rows.shape}); pass at least one row and one column")
    if bad := count_nonfinite(rows):
        raise DataError(f"{name} has {bad} entries that are NaN or infinite; drop or impute those rows first")
    return rows


def as_same_columns(samples: Sequence[Any], names: Sequence[str]) -> list[Floats]:
    """Check several samples that have to live in one space."""
    checked = [as_rows(sample, name) for sample, name in zip(samples, names)]
    columns = checked[0].shape[1]
    for rows, name in zip(checked, names):
        if (width := rows.shape[1]) != columns:
            raise DataError(f"{name} has {width} columns, {names[0]} has {columns}; pass the same columns in both")
    return checked


def home_of(samples: Sequence[Any]) -> Array:
    """The first sample that is not NumPy's, whose library and device price large pairs; else None."""
    return next((sample for sample in samples if is_torch_array(sample) or is_cupy_array(sample)), None)


def common_frame(samples: Sequence[Floats]) -> tuple[list[Floats], int]:
    """Shift and scale all samples alike into [-1, 1]; also return the exponent of two that was divided out."""
    scaled, first = _divide(samples)
    low = np.min([rows.min(axis=0) for rows in scaled], axis=0)
    high = np.max([rows.max(axis=0) for rows in scaled], axis=0)
    middle = low + (high - low) / 2.0
    scaled, second = _divide([rows - middle for rows in scaled])
    return scaled, first + second


def restore(value: float, exponent: int) -> float:
    """Bring a distance back to the units of the data; refuse one that no float64 can hold."""
    with np.errstate(over="ignore"):
        restored = float(np.ldexp(value, exponent))
    if not np.isfinite(restored):
        raise DataError("the distance exceeds the largest float64; divide the data by a large constant first")
    return restored


def _divide(samples: Sequence[Floats]) -> tuple[list[Floats], int]:
    largest = max(float(np.abs(rows).max()) for rows in samples)
    exponent = int(np.frexp(largest)[1])
    return [np.ldexp(rows, -exponent) for rows in samples], exponent


# --- diameter ---------------------------------------------------------------------------------------------------------


def pooled_diameter(samples: Sequence[Any], *, max_rows: int = 20_000) -> Diameter:
    """Euclidean diameter of the union of several samples.

    Parameters
    ----------
    samples
        A list of samples, each of shape (rows, columns) or (rows,), with the same columns.
    max_rows
        Up to this many rows in all, the diameter is exact; its time grows with the square of the rows. Beyond, the
        answer is an upper bound that takes one look at each row.

    Returns
    -------
    Diameter
        `value`, and whether it is `exact`. The bound for larger pools is the smaller of the diagonal of the bounding
        box and twice the radius around the mean: at most twice the diameter.

    Raises
    ------
    DataError
        If a sample is empty, not finite, not a table, or has other columns than the first.

    Examples
    --------
    >>> pooled_diameter([[[0.0, 0.0], [1.0, 0.0]], [[3.0, 4.0]]])
    Diameter(value=5.0, exact=True)
    >>> pooled_diameter([[0.0, 1.0], [7.0]], max_rows=2)
    Diameter(value=7.0, exact=False)
    """
    if hasattr(samples, "shape") or not len(samples):
        raise DataError("samples must be a list with one array for each sample; put a single array in a list")
    check_whole("max_rows", max_rows, least=1)
    scaled, exponent = common_frame(as_same_columns(samples, [f"samples[{i}]" for i in range(len(samples))]))
    pooled = np.concatenate(scaled)
    exact = len(pooled) <= max_rows
    return Diameter(restore((_diameter if exact else _diameter_bound)(pooled), exponent), exact)


def _diameter_bound(X: Floats) -> float:
    radius = np.linalg.norm(X - X.mean(axis=0), axis=1).max()
    return float(min(np.linalg.norm(np.ptp(X, axis=0)), 2.0 * radius))


def _diameter(X: Floats) -> float:
    """Largest distance between two rows.

    Rows are visited from the outside in. By the triangle inequality through the mean, two rows at radii r and s are at
    most r + s apart, so pairs that cannot beat the best pair so far are left out.
    """
    radius = np.linalg.norm(X - X.mean(axis=0), axis=1)
    order = np.argsort(-radius)
    X, radius = X[order], radius[order]
    best = 0.0
    square = np.einsum("ij,ij->i", X, X)
    for rows in slices(len(X), CHUNK_ENTRIES // len(X)):
        # Rows beyond this place are too close to the mean to be far enough from any row of this part.
        reach = int(np.searchsorted(-radius, radius[rows.start] - best, side="right"))
        if not reach:
            break
        part = X[rows]
        # A row's own norm does not change which row is farthest from it, so it is left out of the squared distance.
        farthest = (square[:reach] - 2.0 * (part @ X[:reach].T)).argmax(axis=1)
        best = max(best, float(np.linalg.norm(part - X[farthest], axis=1).max()))
    return best
