"""Exact transport by network simplex, believed only with a proof.

A transport problem has a dual: for any potential v on the columns,

    sum_j b_j v_j + sum_i a_i min_j (C_ij - v_j)

is a lower bound on the cost of every plan (the semi-dual). A plan whose marginals are right and whose cost meets that
bound is optimal, whoever found it. The network simplex can stop early and still report 'primal = dual' for a plan that
does not move all mass, so nothing it says is returned before this check; until the check passes, it runs on. Most
problems are solved on a few of their pairs (`_thinned`) and pass the same check.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from mixtune.errors import ConvergenceError
from mixtune.weights.transport._samples import Rows
from mixtune.weights.transport._thinned import SparsePlan, thinned_transport

__all__ = ["Plan", "masses", "semi_dual", "solve_samples", "solve_within", "transport", "unit_costs"]

Vector = NDArray[np.float64]

FIRST_LIMIT = 1_000_000  # pivots; measured: 3,000 x 3,000 needs up to 400,000, 100,000 x 100 up to 1,000,000
LAST_LIMIT = 4**6 * FIRST_LIMIT
_CHUNK_ENTRIES = 2_000_000
# Measured, cold and warm (medians of 3, d = 3): 50,000 x 100 7.1 s and 3.7 s, 20,000 x 500 3.5 s and 2.8 s, but
# 10,000 x 1,000 2.6 s and 2.5 s, 2,000 x 2,000 0.6 s and 0.7 s: a warm start pays for long thin problems only.
_WARM_ENTRIES, _WARM_ASPECT = 1_000_000, 40
# Measured, all pairs and few (CPU time): d = 10: 100 x 100 0.7 and 1.0 ms, 300 x 300 9 and 5 ms, 1,000 x 1,000 150 and
# 35 ms, 3,000 x 3,000 2.2 and 0.55 s; but 1,000 x 1,000 in two columns 90 and 160 ms, where many plans cost the same.
_THIN_ENTRIES, _THIN_COLUMNS = 40_000, 4


@dataclass(frozen=True)
class Plan:
    """An optimal plan between weighted points: its cost per unit of mass, the dual bound, potentials and flow."""

    cost: float
    lower: float
    row_potential: Vector
    column_potential: Vector
    flow: NDArray[np.float64]

    def turned(self) -> Plan:
        """The same plan with rows and columns exchanged."""
        return Plan(self.cost, self.lower, self.column_potential, self.row_potential, self.flow.T)

    def scaled(self, exponent: int) -> Plan:
        """The same plan with all costs multiplied by this power of two."""
        cost, lower, u, v = (
            np.ldexp(part, exponent) for part in (self.cost, self.lower, self.row_potential, self.column_potential)
        )
        return Plan(float(cost), float(lower), u, v, self.flow)


def unit_costs(X: Rows, Y: Rows) -> tuple[NDArray[np.float64], int]:
    """Distances divided by the power of two that brings the largest into [1/2, 1), and its exponent.

    The solver's potentials carry an absolute error of about 1e-16 times the number of points, whatever the costs.
    """
    cost = np.asarray(cdist(X, Y))
    exponent = int(np.frexp(cost.max())[1])
    return np.ldexp(cost, -exponent, out=cost), exponent


def masses(n: int, m: int) -> tuple[Vector, Vector]:
    """Equal masses on n and on m rows as whole numbers with one common total, so that flows are free of rounding."""
    shared = int(np.gcd(n, m))
    return np.full(n, float(m // shared)), np.full(m, float(n // shared))


def semi_dual(cost: NDArray[np.float64], a: Vector, b: Vector, v: Vector) -> float:
    """Lower bound on the cost per unit of mass of every plan, from any potential `v` on the columns."""
    step = max(1, _CHUNK_ENTRIES // cost.shape[1])
    best = [(cost[start : start + step] - v).min(axis=1) for start in range(0, len(cost), step)]
    return float((b @ v + a @ np.concatenate(best)) / a.sum())


def proven(value: float, lower: float, largest: float) -> bool:
    """Whether a plan's cost meets the dual bound, given the largest cost of a pair."""
    return value - lower <= 1e-9 * value + 1e-11 * largest


def transport(
    cost: NDArray[np.float64],
    a: Vector,
    b: Vector,
    *,
    start: tuple[Vector, Vector] | None = None,
    first_limit: int = FIRST_LIMIT,
    last_limit: int = LAST_LIMIT,
) -> Plan:
    """Solve one transport problem and certify the solution.

    Parameters
    ----------
    cost
        Cost of each pair, at most about one (`unit_costs`), one row for each entry of `a`. The solver is faster with
        the longer side on the rows.
    a, b
        Positive masses with equal totals.
    start
        Potentials of rows and columns to start from.
    first_limit, last_limit
        The limit on pivots starts at the first, grows fourfold as long as the proof is missing, and ends at the last.

    Raises
    ------
    ConvergenceError
        If the last limit did not suffice.
    """
    # What ot.emd calls: it returns its status, where ot.emd warns, through filters that all threads share.
    from ot.lp.emd_wrap import emd_c

    cost = np.ascontiguousarray(cost)
    largest = float(cost.max())
    limit = first_limit
    while True:
        alpha, beta = start if start is not None else (None, None)
        flow, _, u, v, code = emd_c(a, b, cost, limit, 1, alpha, beta)
        value = float(np.vdot(flow, cost) / a.sum())
        lower = semi_dual(cost, a, b, v)
        moved = np.allclose(flow.sum(axis=1), a, rtol=1e-12) and np.allclose(flow.sum(axis=0), b, rtol=1e-12)
        if code == 1 and moved and proven(value, lower, largest):
            return Plan(value, max(0.0, min(lower, value)), u, v, flow)
        if 4 * limit > last_limit:
            raise ConvergenceError(
                f"transport between {len(a)} and {len(b)} points is not certified after {limit} pivots (bounds so far:"
                f" at least {lower:.6g} of a largest cost {largest:.6g}); use method='bracket', which returns"
                " proven bounds at any time, or fewer rows"
            )
        limit *= 4
        start = (u, v)


def solve_samples(
    X: Rows,
    Y: Rows,
    *,
    seed: int,
    subsample: int,
    first_limit: int = FIRST_LIMIT,
    last_limit: int = LAST_LIMIT,
) -> Plan:
    """Exact plan between two samples with equally heavy rows.

    Large, thin problems start from the potentials of a subsample of `subsample` rows or a fifth of the rows, whichever
    is more; that changes the time, never the value. Flow and potentials come back in the order of the arguments.
    """
    found = solve_within(X, Y, np.inf, seed=seed, subsample=subsample, first_limit=first_limit, last_limit=last_limit)
    assert isinstance(found, Plan)
    return found


def solve_within(
    X: Rows,
    Y: Rows,
    limit: float,
    *,
    seed: int,
    subsample: int,
    first_limit: int = FIRST_LIMIT,
    last_limit: int = LAST_LIMIT,
) -> Plan | float:
    """`solve_samples`, or a proven lower bound above `limit` where one is found on the way."""
    if len(X) < len(Y):  # the longer side on the rows is several times faster at 100 x 50,000
        options = {"seed": seed, "subsample": subsample, "first_limit": first_limit, "last_limit": last_limit}
        plan = solve_within(Y, X, limit, **options)
        return plan.turned() if isinstance(plan, Plan) else plan
    cost, exponent = unit_costs(X, Y)
    a, b = masses(len(X), len(Y))
    long_and_thin = cost.size >= _WARM_ENTRIES and len(X) >= _WARM_ASPECT * len(Y)
    if cost.size >= _THIN_ENTRIES and X.shape[1] >= _THIN_COLUMNS and not long_and_thin:
        guess = _linear_potentials(X, Y, exponent)
        found = thinned_transport(cost, a, b, guess=guess, limit=float(np.ldexp(limit, -exponent)))
        if isinstance(found, float):
            return float(np.ldexp(found, exponent))
        thin = _checked(found, cost, a, b)
        if thin is not None:
            return thin.scaled(exponent)
    start = None
    size = max(subsample, len(X) // 5)
    if long_and_thin and size < len(X):
        start = _subsample_potentials(X, Y, cost, exponent, size=size, seed=seed, subsample=subsample)
    plan = transport(cost, a, b, start=start, first_limit=first_limit, last_limit=last_limit)
    return plan.scaled(exponent)


def _linear_potentials(X: Rows, Y: Rows, exponent: int) -> tuple[Vector, Vector]:
    """The potentials that are optimal between far samples: the coordinate along the line through the means."""
    apart = X.mean(axis=0) - Y.mean(axis=0)
    length = float(np.linalg.norm(apart))
    along = np.ldexp(apart / length if length > 0 else apart, -exponent)
    return X @ along, -(Y @ along)


def _checked(found: SparsePlan | None, cost: NDArray[np.float64], a: Vector, b: Vector) -> Plan | None:
    """A plan on few pairs as a plan on all, or None without the proof."""
    if found is None:
        return None
    i, j = found.rows, found.columns
    moved = np.array_equal(np.bincount(i, found.flow, len(a)), a) and np.array_equal(
        np.bincount(j, found.flow, len(b)), b
    )
    value = float(found.flow @ cost[i, j] / a.sum())
    lower = semi_dual(cost, a, b, found.column_potential)
    if not (moved and proven(value, lower, float(cost.max()))):
        return None
    flow = np.zeros(cost.shape)
    flow[i, j] = found.flow
    return Plan(value, max(0.0, min(lower, value)), found.row_potential, found.column_potential, flow)


def _subsample_potentials(
    X: Rows, Y: Rows, cost: NDArray[np.float64], exponent: int, *, size: int, seed: int, subsample: int
) -> tuple[Vector, Vector]:
    """Potentials of all points from an exact solution between random rows, extended by the cheapest pairing."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(len(X))[:size], rng.permutation(len(Y))[:size]
    small = solve_samples(X[rows], Y[columns], seed=seed, subsample=subsample).scaled(-exponent)
    v = (cost[rows] - small.row_potential[:, None]).min(axis=0)
    v[columns] = small.column_potential
    u = np.concatenate([(part - v).min(axis=1) for part in np.array_split(cost, 1 + cost.size // _CHUNK_ENTRIES)])
    return u, v
