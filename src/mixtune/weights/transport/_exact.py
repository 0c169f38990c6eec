"""Exact transport by network simplex, believed only with a proof.

A transport problem has a dual: for any potential v on the columns,

    sum_j b_j v_j + sum_i a_i min_j (C_ij - v_j)

is a lower bound on the cost of every plan (the semi-dual). A plan whose marginals are right and whose cost meets that
bound is optimal, whoever found it. The network simplex can stop early and still report 'primal = dual' for a plan that
does not move all mass, so nothing it says is returned before this check; until the check passes, it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from mixtune.errors import ConvergenceError
from mixtune.weights.transport._samples import Rows

__all__ = ["Plan", "masses", "semi_dual", "solve_samples", "transport", "unit_costs"]

Vector = NDArray[np.float64]

FIRST_LIMIT = 1_000_000  # pivots; measured: 3,000 x 3,000 needs up to 400,000, 100,000 x 100 up to 1,000,000
LAST_LIMIT = 4**6 * FIRST_LIMIT
_CHUNK_ENTRIES = 2_000_000
# Measured, cold and warm (medians of 3, d = 3): 50,000 x 100 7.1 s and 3.7 s, 20,000 x 500 3.5 s and 2.8 s, but
# 10,000 x 1,000 2.6 s and 2.5 s, 2,000 x 2,000 0.6 s and 0.7 s: a warm start pays for long thin problems only.
_WARM_ENTRIES, _WARM_ASPECT = 1_000_000, 40


@dataclass(frozen=True)
class Plan:
    """An optimal plan between weighted points: its cost per unit of mass, the dual bound, potentials and flow."""

    cost: float
    lower: float
    row_potential: Vector
    column_potential: Vector
    flow: NDArray[np.float64]

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
    tolerance = 1e-11 * float(cost.max())
    limit = first_limit
    while True:
        alpha, beta = start if start is not None else (None, None)
        flow, _, u, v, code = emd_c(a, b, cost, limit, 1, alpha, beta)
        value = float(np.vdot(flow, cost) / a.sum())
        lower = semi_dual(cost, a, b, v)
        moved = np.allclose(flow.sum(axis=1), a, rtol=1e-12) and np.allclose(flow.sum(axis=0), b, rtol=1e-12)
        if code == 1 and moved and value - lower <= 1e-9 * value + tolerance:
            return Plan(value, max(0.0, min(lower, value)), u, v, flow)
        if 4 * limit > last_limit:
            raise ConvergenceError(
                f"transport between {len(a)} and {len(b)} points is not certified after {limit} pivots (bounds so far:"
                f" at least {lower:.6g} of a largest cost {cost.max():.6g}); use method='bracket', which returns"
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
    if len(X) < len(Y):  # the longer side on the rows is several times faster at 100 x 50,000
        plan = solve_samples(Y, X, seed=seed, subsample=subsample, first_limit=first_limit, last_limit=last_limit)
        return Plan(plan.cost, plan.lower, plan.column_potential, plan.row_potential, plan.flow.T)
    cost, exponent = unit_costs(X, Y)
    a, b = masses(len(X), len(Y))
    start = None
    size = max(subsample, len(X) // 5)
    if cost.size >= _WARM_ENTRIES and len(X) >= _WARM_ASPECT * len(Y) and size < len(X):
        start = _subsample_potentials(X, Y, cost, exponent, size=size, seed=seed, subsample=subsample)
    plan = transport(cost, a, b, start=start, first_limit=first_limit, last_limit=last_limit)
    return plan.scaled(exponent)


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
