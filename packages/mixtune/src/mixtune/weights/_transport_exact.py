"""Transport problems solved exactly: by sorting on the line, by network simplex with a proof of optimality elsewhere.

**The line.** In one dimension the best plan keeps the order, so the distance is the area between the two quantile
functions. Both are step functions, and with n and m equally heavy rows all their steps lie at whole multiples of
1 / (n m). Counting in those units makes the merge of the two exact integer arithmetic.

**The proof.** A transport problem has a dual: for any potential v on the columns,

    sum_j b_j v_j + sum_i a_i min_j (C_ij - v_j)

is a lower bound on the cost of every plan (the semi-dual). A plan whose marginals are right and whose cost meets that
bound is optimal, whatever found it. The network simplex can stop early and still report success for a plan that does
not move all mass, so its result is returned only after this check; until the check passes, it runs on.

**Few pairs.** A plan between n and m points uses fewer than n + m of the n m pairs. A few rounds of entropic scaling
(Sinkhorn) in single precision give rough potentials, and the pairs of small reduced cost under them are the candidates.
The network simplex solves on those alone, in a fraction of the time it takes on all. Its potentials then price every
pair: pairs of negative reduced cost join the candidates and the solver continues from where it was. When there are none
left, the plan is optimal among all plans. It passes the same check, and all pairs are used where it does not.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import warnings
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from mixtune.arrays import Array, Floats, Integers, slices
from mixtune.errors import ConvergenceError

#: Of the first and of the last attempt; measured: 3,000 x 3,000 needs up to 400,000, 100,000 x 100 up to 1,000,000.
PIVOTS = (1_000_000, 4_096_000_000)
CHUNK_ENTRIES = 2_000_000
# Measured, cold and warm (medians of 3, d = 3): 50,000 x 100 7.1 s and 3.7 s, 20,000 x 500 3.5 s and 2.8 s, but
# 10,000 x 1,000 2.6 s and 2.5 s, 2,000 x 2,000 0.6 s and 0.7 s: a warm start pays for long thin problems only.
WARM_ENTRIES, WARM_ASPECT = 1_000_000, 40
# Measured, all pairs and few (CPU time): d = 10: 100 x 100 0.7 and 1.0 ms, 300 x 300 9 and 5 ms, 1,000 x 1,000 150 and
# 35 ms, 3,000 x 3,000 2.2 and 0.55 s; but 1,000 x 1,000 in two columns 90 and 160 ms, where many plans cost the same.
THIN_ENTRIES, THIN_COLUMNS = 40_000, 4
# Neither the sharpness nor the number of scalings matters much: fewer of them leave more pairs to be found by pricing.
SHARPNESS = 0.1  # entropic smoothing, in units of the mean cost of the cheapest partners
SCALINGS = 20
PAIRS_PER_POINT = 8
THIN_ROUNDS = 10
LEAST_EXPONENT = -60.0  # single precision ends at -87, and sums must never be zero
TOO_MANY = 0.15  # of all pairs still promising: solving on all of them is then no slower

#: Potentials of rows and columns to start from, or none.
Potentials = tuple[Floats | None, Floats | None]

_import_lock = threading.Lock()


@cache
def network_simplex() -> Any:
    """POT's module of compiled solvers, ``emd_c`` and ``emd_c_sparse``.

    They are called directly because they return their status, where ``ot.emd`` warns through filters that all threads
    share. Importing POT loads all its modules, half a second, and every array library it can find, PyTorch alone for
    seconds, and none is used here: empty packages with POT's folders stand in for it during this one import, and POT's
    own switches turn the array libraries off. The packages are dropped from `sys.modules` afterwards, so that an
    ``import ot`` elsewhere in the process finds all of it. Without compiled bytecode, Python warns about POT's source
    files, which must not stop a process that turns warnings into errors.
    """
    with _import_lock, warnings.catch_warnings():
        for category in (SyntaxWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r".*[/\\]ot[/\\]")
        if "ot" in sys.modules:
            return importlib.import_module("ot.lp.emd_wrap")
        switches = [f"POT_BACKEND_DISABLE_{name}" for name in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW")]
        before = {name: os.environ.get(name) for name in switches}
        os.environ.update(dict.fromkeys(switches, "1"))
        try:
            sys.modules.update(_empty_packages())
            return importlib.import_module("ot.lp.emd_wrap")
        finally:
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value
            for name in [name for name in sys.modules if name == "ot" or name.startswith("ot.")]:
                del sys.modules[name]


def _empty_packages() -> dict[str, ModuleType]:
    """POT and its package of linear programs without what their ``__init__`` imports."""
    spec = importlib.util.find_spec("ot")
    if spec is None or not spec.submodule_search_locations:
        return {}
    found = {}
    for name in ("ot", "ot.lp"):
        found[name] = ModuleType(name)
        folders = [os.path.join(root, *name.split(".")[1:]) for root in spec.submodule_search_locations]
        found[name].__path__ = folders
    return found


# --- the line ---------------------------------------------------------------------------------------------------------


def staircase(n: int, m: int) -> tuple[Integers, Integers, Floats]:
    """Pair n with m equally heavy rows in their given order.

    Returns
    -------
    rows, columns, mass
        The pairs that share mass, and how much; the masses sum to one.

    Examples
    --------
    >>> rows, columns, mass = staircase(2, 3)
    >>> rows.tolist(), columns.tolist(), (6 * mass).tolist()
    ([0, 0, 1, 1], [0, 1, 1, 2], [2.0, 1.0, 1.0, 2.0])
    """
    starts = np.union1d(np.arange(n, dtype=np.int64) * m, np.arange(m, dtype=np.int64) * n)
    lengths = np.diff(starts, append=np.int64(n) * m)
    return starts // m, starts // n, lengths / (n * m)


def line_distances(X: Floats, Y: Floats) -> Floats:
    """Wasserstein-1 distance between X and Y in every column, each column on its own.

    Examples
    --------
    >>> import numpy as np
    >>> line_distances(np.array([[0.0], [1.0]]), np.array([[5.0], [6.0]])).tolist()
    [5.0]
    """
    rows, columns, mass = staircase(len(X), len(Y))
    apart: Floats = np.abs(np.sort(X, axis=0)[rows] - np.sort(Y, axis=0)[columns])
    return mass @ apart


# --- all pairs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """An optimal plan between weighted points: its cost per unit of mass, the dual bound, potentials and flow."""

    cost: float
    lower: float
    row_potential: Floats
    column_potential: Floats
    flow: Floats

    def scaled(self, exponent: int) -> Plan:
        """The same plan with all costs multiplied by this power of two."""
        cost, lower = (float(np.ldexp(part, exponent)) for part in (self.cost, self.lower))
        u, v = (np.ldexp(part, exponent) for part in (self.row_potential, self.column_potential))
        return Plan(cost, lower, u, v, self.flow)


def unit_costs(X: Floats, Y: Floats) -> tuple[Floats, int]:
    """Distances divided by the power of two that brings the largest into [1/2, 1), and its exponent.

    The solver's potentials carry an absolute error of about 1e-16 times the number of points, whatever the costs.
    """
    cost = np.asarray(cdist(X, Y))
    exponent = int(np.frexp(cost.max())[1])
    return np.ldexp(cost, -exponent, out=cost), exponent


def masses(n: int, m: int) -> tuple[Floats, Floats]:
    """Equal masses on n and on m rows as whole numbers with one common total, so that flows are free of rounding."""
    shared = int(np.gcd(n, m))
    return np.full(n, float(m // shared)), np.full(m, float(n // shared))


def semi_dual(cost: Floats, a: Floats, b: Floats, v: Floats) -> float:
    """Lower bound on the cost per unit of mass of every plan, from any potential `v` on the columns."""
    return float((b @ v + a @ _cheapest(cost, v)) / a.sum())


def _cheapest(cost: Floats, v: Floats) -> Floats:
    """min_j (C_ij - v_j) of every row."""
    parts = slices(len(cost), CHUNK_ENTRIES // cost.shape[1])
    return np.concatenate([(cost[part] - v).min(axis=1) for part in parts])


def proven(value: float, lower: float, largest: float) -> bool:
    """Whether a plan's cost meets the dual bound, given the largest cost of a pair."""
    return value - lower <= 1e-9 * value + 1e-11 * largest


def transport(cost: Floats, a: Floats, b: Floats, *, start: Potentials = (None, None)) -> Plan:
    """Solve one transport problem on all pairs and certify the solution.

    Parameters
    ----------
    cost
        Cost of each pair, at most about one (`unit_costs`), one row for each entry of `a`. The solver is faster with
        the longer side on the rows.
    a, b
        Positive masses with equal totals.
    start
        Potentials of rows and columns to start from.

    Raises
    ------
    ConvergenceError
        If the proof is still missing at the last limit on pivots.
    """
    solver = network_simplex()
    cost = np.ascontiguousarray(cost)
    largest = float(cost.max())
    for limit in PIVOTS:
        flow, _, u, v, code = solver.emd_c(a, b, cost, limit, 1, *start)
        value = float(np.vdot(flow, cost) / a.sum())
        lower = semi_dual(cost, a, b, v)
        moved = np.allclose(flow.sum(axis=1), a, rtol=1e-12) and np.allclose(flow.sum(axis=0), b, rtol=1e-12)
        if code == 1 and moved and proven(value, lower, largest):
            return Plan(value, max(0.0, min(lower, value)), u, v, flow)
        start = (u, v)
    problem = f"transport between {len(a)} and {len(b)} points is not certified after {limit} pivots"
    bounds = f"bounds so far: at least {lower:.6g} of a largest cost {largest:.6g}"
    remedy = "use method='bracket', which returns proven bounds at any time, or fewer rows"
    raise ConvergenceError(f"{problem} ({bounds}); {remedy}")


def solve_samples(X: Floats, Y: Floats) -> Plan:
    """Exact plan between two samples with equally heavy rows; flow and potentials in the order of the arguments."""
    found = solve_within(X, Y, np.inf)
    assert isinstance(found, Plan)
    return found


def solve_within(X: Floats, Y: Floats, limit: float) -> Plan | float:
    """`solve_samples`, or a proven lower bound above `limit` where one is found on the way."""
    if len(X) < len(Y):  # the longer side on the rows is several times faster at 100 x 50,000
        plan = solve_within(Y, X, limit)
        if not isinstance(plan, Plan):
            return plan
        return Plan(plan.cost, plan.lower, plan.column_potential, plan.row_potential, plan.flow.T)
    cost, exponent = unit_costs(X, Y)
    a, b = masses(len(X), len(Y))
    long_and_thin = cost.size >= WARM_ENTRIES and len(X) >= WARM_ASPECT * len(Y)
    if cost.size >= THIN_ENTRIES and X.shape[1] >= THIN_COLUMNS and not long_and_thin:
        guess = _linear_potentials(X, Y, exponent)
        found = thinned_transport(cost, a, b, guess=guess, limit=float(np.ldexp(limit, -exponent)))
        if isinstance(found, float):
            return float(np.ldexp(found, exponent))
        if (thin := _checked(found, cost, a, b)) is not None:
            return thin.scaled(exponent)
    start = _subsample_potentials(X, Y, cost, exponent) if long_and_thin else (None, None)
    return transport(cost, a, b, start=start).scaled(exponent)


def _linear_potentials(X: Floats, Y: Floats, exponent: int) -> tuple[Floats, Floats]:
    """The potentials that are optimal between far samples: the coordinate along the line through the means."""
    apart = X.mean(axis=0) - Y.mean(axis=0)
    length = float(np.linalg.norm(apart))
    along = np.ldexp(apart / length if length > 0 else apart, -exponent)
    return X @ along, -(Y @ along)


def _subsample_potentials(X: Floats, Y: Floats, cost: Floats, exponent: int) -> Potentials:
    """Potentials to start from: the exact solution for every fifth row of X, extended by the cheapest pairing."""
    v = solve_samples(X[::5], Y).scaled(-exponent).column_potential
    return _cheapest(cost, v), v


# --- few pairs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SparsePlan:
    """A plan on a few pairs: where mass moves, how much, potentials, and whether the solver calls it optimal."""

    rows: Integers
    columns: Integers
    flow: Floats
    row_potential: Floats
    column_potential: Floats
    optimal: bool = True

    def moves_all(self, a: Floats, b: Floats) -> bool:
        """Whether the plan has exactly these marginals."""
        sides = ((self.rows, a), (self.columns, b))
        return all(np.array_equal(np.bincount(places, self.flow, len(mass)), mass) for places, mass in sides)


def solve_on_pairs(
    i: Array, j: Array, cost: Floats, a: Floats, b: Floats, *, start: Potentials = (None, None)
) -> SparsePlan:
    """The best plan that moves mass only between rows `i` and columns `j`, pair by pair."""
    i, j = i.astype(np.uint64), j.astype(np.uint64)
    rows, columns, flow, _, u, v, code = network_simplex().emd_c_sparse(a, b, i, j, cost, PIVOTS[-1], *start)
    return SparsePlan(rows.astype(np.int64), columns.astype(np.int64), flow, u, v, code == 1)


def thinned_transport(
    cost: Floats, a: Floats, b: Floats, *, guess: tuple[Floats, Floats] | None = None, limit: float = np.inf
) -> SparsePlan | float | None:
    """Solve one transport problem on candidates, adding pairs until no pair of `cost` can improve the plan.

    Parameters
    ----------
    cost
        Cost of each pair, at most about one.
    a, b
        Positive whole masses with equal totals.
    guess
        Potentials of rows and columns that may be a better start than zeros; whichever bounds the cost higher is used.
    limit
        Stop as soon as the cost per unit of mass is proven to exceed this.

    Returns
    -------
    SparsePlan, float or None
        The plan, which the caller still has to check; a lower bound on the cost above `limit`; or None where the
        candidates did not settle.

    Examples
    --------
    >>> import numpy as np
    >>> cost = np.array([[0.0, 1.0], [1.0, 0.5]])
    >>> plan = thinned_transport(cost, np.ones(2), np.ones(2))
    >>> sorted(zip(plan.rows.tolist(), plan.columns.tolist(), plan.flow.tolist()))
    [(0, 0, 1.0), (1, 1, 1.0)]
    """
    n, m = cost.shape
    flat = cost.reshape(-1)
    rounding = 1e-15 * (n + m)  # of the solver's potentials, whatever the costs; measured 1e-16 times the points
    u, v = _rough_potentials(cost, a, b, guess)
    reduced = cost - v
    reduced -= u[:, None]
    if (lower := _bound(reduced, a, b, u, v)) > limit:
        return lower
    pairs = _candidates(reduced)
    start: Potentials = (None, None)
    for _ in range(THIN_ROUNDS):
        plan = solve_on_pairs(pairs // m, pairs % m, flat[pairs], a, b, start=start)
        if not plan.optimal:
            return None
        u, v = start = plan.row_potential, plan.column_potential
        np.subtract(cost, v, out=reduced)
        reduced -= u[:, None]
        if (lower := _bound(reduced, a, b, u, v)) > limit:
            return lower
        better = np.flatnonzero(reduced.reshape(-1) < -rounding)
        if len(better) > TOO_MANY * cost.size:
            return None
        known, pairs = len(pairs), np.union1d(pairs, _steepest(reduced, better)) if len(better) else pairs
        if len(pairs) == known:  # no new pair: what looks better is rounding
            return plan
    return None


def _checked(found: SparsePlan | None, cost: Floats, a: Floats, b: Floats) -> Plan | None:
    """A plan on few pairs as a plan on all, or None without the proof."""
    if found is None or not found.moves_all(a, b):
        return None
    i, j = found.rows, found.columns
    value = float(found.flow @ cost[i, j] / a.sum())
    lower = semi_dual(cost, a, b, found.column_potential)
    if not proven(value, lower, float(cost.max())):
        return None
    flow = np.zeros(cost.shape)
    flow[i, j] = found.flow
    return Plan(value, max(0.0, min(lower, value)), found.row_potential, found.column_potential, flow)


def _bound(reduced: Floats, a: Floats, b: Floats, u: Floats, v: Floats) -> float:
    """The semi-dual bound on the cost per unit of mass, less what rounding may have added."""
    bound = float(a @ (u + reduced.min(axis=1)) + b @ v) / float(a.sum())
    return bound - 1e-15 * sum(reduced.shape)


def _rough_potentials(cost: Floats, a: Floats, b: Floats, guess: tuple[Floats, Floats] | None) -> tuple[Floats, Floats]:
    """Potentials from a few entropic scalings, around zeros or around the guess.

    Sums go through einsum: the two threads of a matrix-vector product this small wait for each other for longer than
    they compute, all the more when other pairs are solved beside this one.
    """
    u, v, rest, charge = _reduce(cost, a, b, np.zeros(len(a)), np.zeros(len(b)))
    if guess is not None:
        guessed = _reduce(cost, a, b, *guess)
        if a @ guessed[0] + b @ guessed[1] > a @ u + b @ v:
            u, v, rest, charge = guessed
    smooth = max(SHARPNESS * charge, 1e-4)
    kernel = rest.astype(np.float32)
    kernel *= np.float32(-1.0 / smooth)
    np.maximum(kernel, np.float32(LEAST_EXPONENT), out=kernel)
    np.exp(kernel, out=kernel)  # a one in every row and column
    scale = float(len(a)) / float(a.sum())
    rows, columns = (scale * a).astype(np.float32), (scale * b).astype(np.float32)
    right = np.ones(len(b), dtype=np.float32)
    for _ in range(SCALINGS):
        left = rows / np.einsum("ij,j->i", kernel, right)
        right = columns / np.einsum("i,ij->j", left, kernel)
    tiny = float(np.finfo(np.float32).tiny)
    du, dv = (smooth * np.log(np.clip(side.astype(np.float64), tiny, 1 / tiny)) for side in (left, right))
    return du + u, dv + v


def _reduce(cost: Floats, a: Floats, b: Floats, u: Floats, v: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Charge every row, then every column, with its cheapest partner.

    Returns the new potentials, the costs reduced by them (none below zero, a zero in every row and column), and what
    the charges add up to per unit of mass.
    """
    rest = cost - v
    rest -= u[:, None]
    rows = rest.min(axis=1)
    rest -= rows[:, None]
    columns = rest.min(axis=0)
    rest -= columns
    return u + rows, v + columns, rest, float(a @ rows + b @ columns) / float(a.sum())


def _candidates(reduced: Floats) -> Integers:
    """Pairs of small reduced cost, the best of each row and column, and one plan that moves all mass."""
    n, m = reduced.shape
    wanted = PAIRS_PER_POINT * (n + m)
    flat = reduced.reshape(-1)
    level = np.quantile(flat[:: 1 + flat.size // 50_000], min(1.0, wanted / flat.size))
    near = np.flatnonzero(flat < level)[: 4 * wanted]  # more only where costs repeat
    across, down, _ = staircase(n, m)
    rows, columns = np.arange(n), np.arange(m)
    best = [rows * m + reduced.argmin(axis=1), reduced.argmin(axis=0) * m + columns]
    return np.unique(np.concatenate([near, *best, across * m + down]))


def _steepest(reduced: Floats, better: Integers) -> Integers:
    """The pairs of most negative reduced cost; all of them where they are few."""
    most = min(sum(reduced.shape) * PAIRS_PER_POINT, len(better))
    return better[np.argpartition(reduced.reshape(-1)[better], most - 1)[:most]]
