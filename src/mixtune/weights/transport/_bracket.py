"""Proven bounds on the distance when the matrix of all costs is too large to hold.

Above: any explicit plan costs at least the distance. Below: any potentials give a semi-dual bound, and any 1-Lipschitz
function f gives mean_X f - mean_Y f. Both bounds start rough, from exact solutions between random blocks of rows, and
then tighten in rounds. Each round

1. prices all pairs under the current potentials (`_pricing`): a lower bound, and the pairs worth considering;
2. solves the transport problem restricted to those pairs: a plan (an upper bound) and better potentials.

In practice the two bounds meet after a few rounds. Stopping earlier is always safe: the bounds hold at every moment.
Whatever looks at all pairs runs in the array library and on the device the samples came from; the plans are NumPy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mixtune._array import Array, match, namespace, on_device, to_numpy
from mixtune.weights.transport._exact import masses, solve_samples, transport, unit_costs
from mixtune.weights.transport._pricing import Distances, price
from mixtune.weights.transport._samples import Rows

__all__ = ["bracket"]

Vector = NDArray[np.float64]
Index = NDArray[np.int64]

ROUNDS = 12
PRICED_ENTRIES = 20_000_000_000  # beyond, a round would take minutes; the rough bounds are the answer
#: Up to here a device still looks at all pairs once, 20 s on an H200: with ten columns or more that look turns a lower
#: bound of a quarter of the distance into one of more than nine tenths.
LOOKED_AT_ENTRIES = 400_000_000_000
_PAIRS_PER_POINT = 8  # pairs kept from one round to the next
_BLOCK_ENTRIES = 250_000
_CHUNK_ENTRIES, _DEVICE_CHUNK_ENTRIES = 2_000_000, 64_000_000
_PIVOTS = 1_000_000_000


def bracket(
    X: Rows,
    Y: Rows,
    *,
    seed: int,
    subsample: int,
    rtol: float,
    limit: float = np.inf,
    rounds: int = ROUNDS,
    priced_entries: int = PRICED_ENTRIES,
    home: Array = None,
) -> tuple[float, float]:
    """Lower and upper bound on the Wasserstein-1 distance, within memory proportional to the number of rows.

    Parameters
    ----------
    X, Y
        Samples in a common frame (coordinates in [-1, 1]).
    seed
        Seeds the choice of blocks and groups; the bounds hold for every seed.
    subsample
        Rows of each sample in the first exact solution.
    rtol
        Stop when the gap is at most this fraction of the upper bound.
    limit
        Stop also when the lower bound exceeds this; the upper bound is then infinite if none was needed.
    rounds
        Largest number of rounds; with 0, or with more than `priced_entries` pairs, only the rough bounds. On a device
        one look at all pairs still tightens the lower one.
    home
        An array whose library and device look at all pairs; NumPy without one.
    """
    rng = np.random.default_rng(seed)
    lower, u, v = _lipschitz_bound(X, Y, rng=rng, subsample=subsample, home=home)
    if lower > limit:
        return lower, np.inf
    upper, pairs = np.inf, None
    few = len(X) * len(Y) <= priced_entries
    if not few and not (on_device(home) and len(X) * len(Y) <= LOOKED_AT_ENTRIES):
        rounds = 0
    finest = max(1e-12, Distances(X, Y, home).mean_loss)  # rounding hides anything below
    for _ in range(rounds):
        priced = price(X, Y, u, v, rng=rng, home=home)
        lower = max(lower, priced.row_minimum.mean() + v.mean(), u.mean() + priced.column_minimum.mean())
        if lower > limit:
            break
        if pairs is None:  # only now: a limit is often decided without any plan
            upper, pairs = _block_plan(X, Y, rng=rng)
        if not few or upper - lower <= max(rtol * upper, finest):
            break
        pairs = np.union1d(pairs, priced.rows * len(Y) + priced.columns)
        plan = _restricted_plan(X, Y, pairs, start=(priced.row_minimum, v))
        upper = min(upper, plan.cost)
        pairs, u, v = plan.pairs, plan.row_potential, plan.column_potential
    if pairs is None and lower <= limit:
        upper, _ = _block_plan(X, Y, rng=rng)
    return float(max(0.0, min(lower, upper))), float(upper)


def _lipschitz_bound(
    X: Rows, Y: Rows, *, rng: np.random.Generator, subsample: int, home: Array = None
) -> tuple[float, Vector, Vector]:
    """Lower bound from functions f(z) = min_j (|z - y_j| - v_j) that solve the problem between random rows.

    Each such f is 1-Lipschitz whatever the v_j. Also returns potentials on all rows to start from.
    """
    rows, columns = rng.permutation(len(X))[:subsample], rng.permutation(len(Y))[:subsample]
    small = solve_samples(X[rows], Y[columns], seed=0, subsample=subsample)
    u, on_Y = (_envelope(Z, Y[columns], small.column_potential, home) for Z in (X, Y))
    v, on_X = (_envelope(Z, X[rows], small.row_potential, home) for Z in (Y, X))
    lower = max(u.mean() - on_Y.mean(), v.mean() - on_X.mean()) - Distances(X, Y, home).worst_loss
    between_means = float(np.linalg.norm(X.mean(axis=0) - Y.mean(axis=0)))
    return max(float(lower), between_means), u, -on_Y


def _envelope(Z: Rows, anchors: Rows, heights: Vector, home: Array = None) -> Vector:
    """min_j (|z - anchor_j| - height_j) for every row z."""
    distances = Distances(Z, anchors, home)
    here = match(heights, heights if home is None else home)
    xp = namespace(here)
    step = max(1, (_DEVICE_CHUNK_ENTRIES if on_device(here) else _CHUNK_ENTRIES) // len(anchors))
    parts = [slice(start, start + step) for start in range(0, len(Z), step)]
    return to_numpy(xp.concat([xp.min(distances.between(part, slice(None)) - here, axis=1) for part in parts]))


def _block_plan(X: Rows, Y: Rows, *, rng: np.random.Generator) -> tuple[float, Index]:
    """Cut both shuffled samples into blocks of equal mass and couple block with block, exactly.

    Masses are whole numbers (each row of X has len(Y) units and the reverse), so a row on the border between two blocks
    is divided between them without rounding.
    """
    n, m = len(X), len(Y)
    blocks = int(np.ceil(np.sqrt(n * m / _BLOCK_ENTRIES)))
    row_order, column_order = rng.permutation(n), rng.permutation(m)
    borders = [n * m * block // blocks for block in range(blocks + 1)]
    total, pairs = 0.0, []
    for low, high in pairwise(borders):
        rows, a = _share(low, high, unit=m)
        columns, b = _share(low, high, unit=n)
        i, j = row_order[rows], column_order[columns]
        cost, exponent = unit_costs(X[i], Y[j])
        plan = transport(cost, a, b).scaled(exponent)
        total += plan.cost * (high - low) / (n * m)
        from_, to = np.nonzero(plan.flow)
        pairs.append(i[from_] * m + j[to])
    return total, np.unique(np.concatenate(pairs))


def _share(low: int, high: int, *, unit: int) -> tuple[Index, Vector]:
    """Points of `unit` units each, laid end to end: those that meet [low, high), and how much of each does."""
    points = np.arange(low // unit, -(-high // unit), dtype=np.int64)
    amount = np.minimum((points + 1) * unit, high) - np.maximum(points * unit, low)
    return points, amount.astype(np.float64)


@dataclass(frozen=True)
class _Restricted:
    """A plan on a few pairs: its cost, the pairs worth keeping, and potentials."""

    cost: float
    pairs: Index
    row_potential: Vector
    column_potential: Vector


def _restricted_plan(X: Rows, Y: Rows, pairs: Index, *, start: tuple[Vector, Vector]) -> _Restricted:
    """Cheapest plan that uses only the given pairs, coded as row * len(Y) + column."""
    from ot.lp.emd_wrap import emd_c_sparse  # see `transport` for the choice of entry point

    n, m = len(X), len(Y)
    i, j = pairs // m, pairs % m
    lengths = _lengths(X, Y, i, j)
    exponent = int(np.frexp(lengths.max())[1])  # costs of order one, as in `unit_costs`
    unit, *potentials = (np.ldexp(part, -exponent) for part in (lengths, *start))
    a, b = masses(n, m)
    from_, to, flow, _, u, v, _ = emd_c_sparse(
        a, b, i.astype(np.uint64), j.astype(np.uint64), unit, _PIVOTS, *potentials
    )
    used = np.searchsorted(pairs, from_.astype(np.int64) * m + to.astype(np.int64))
    complete = np.array_equal(np.bincount(i[used], flow, n), a) and np.array_equal(np.bincount(j[used], flow, m), b)
    cost = float(flow @ lengths[used] / a.sum()) if complete else np.inf
    u, v = np.ldexp(u, exponent), np.ldexp(v, exponent)
    reduced = lengths - u[i] - v[j]
    reduced[used] = -np.inf  # the plan itself stays, so that the next problem has a solution
    keep = min(len(pairs), max(_PAIRS_PER_POINT * (n + m), len(used)))
    return _Restricted(cost, np.sort(pairs[np.argpartition(reduced, keep - 1)[:keep]]), u, v)


def _lengths(X: Rows, Y: Rows, i: Index, j: Index) -> Vector:
    step = max(1, _CHUNK_ENTRIES // X.shape[1])
    parts = [slice(start, start + step) for start in range(0, len(i), step)]
    return np.concatenate([np.linalg.norm(X[i[part]] - Y[j[part]], axis=1) for part in parts])
