"""What can be known of a distance without solving for it on all pairs: bounds, brackets, and the sliced distance.

**Axes.** Along any direction the distance of the projections, which is a sort, bounds the distance from below.
Directions that are orthogonal to each other do more together: whatever the plan, the mean of |x - y| is at least the
length of the vector of the means of |x_k - y_k|, and each of these is at least the distance along axis k, so

    W1(X, Y) >= sqrt(sum_k W1(X_k, Y_k)^2)        in every orthonormal basis.

This is never below the distance of the means, and it also sees samples that differ in spread or shape alone.

**Bracket.** When the matrix of all costs is too large to hold: any explicit plan costs at least the distance; any
potentials give a semi-dual bound from below, and any 1-Lipschitz function f gives mean_X f - mean_Y f. Both sides start
rough, from exact solutions between random blocks of rows, and then tighten in rounds. Each round

1. prices all pairs under the current potentials (`price`): a lower bound, and the pairs worth considering;
2. solves the transport problem restricted to those pairs: a plan (an upper bound) and better potentials.

In practice the two bounds meet after a few rounds. Stopping earlier is always safe: the bounds hold at every moment.
Steps over all pairs run in the array library and on the device the samples came from; the plans are NumPy's.

**Pricing.** Given potentials u on the rows of X and v on the rows of Y, the pairs that an optimal plan may use are
those whose reduced cost |x_i - y_j| - u_i - v_j is small. `price` visits all pairs strip by strip without ever holding
them all, keeps for each point the cheapest partner in each of a few random groups of partners, and returns along the
way the two semi-dual minima (the c-transforms of v and u)

    min_j (|x_i - y_j| - v_j)    and    min_i (|x_i - y_j| - u_i).
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import stdtrit

from mixtune.arrays import Array, Floats, Integers, is_numpy, match, namespace, on_device, slices, to_numpy
from mixtune.weights._transport_exact import (
    CHUNK_ENTRIES,
    PAIRS_PER_POINT,
    line_distances,
    masses,
    solve_on_pairs,
    solve_samples,
    transport,
    unit_costs,
)

ROUNDS = 12
PRICED_ENTRIES = 20_000_000_000  # beyond, a round would take minutes; the rough bounds are the answer
#: Up to here a device still prices all pairs once, 20 s on an H200: with ten columns or more that turns a lower bound
#: of a quarter of the distance into one of more than nine tenths.
DEVICE_PRICED_ENTRIES = 400_000_000_000
BLOCK_ENTRIES = 250_000
DEVICE_CHUNK_ENTRIES = 64_000_000  # 0.5 GB, a few times: launches cost more than memory there
STRIP_ENTRIES = 4_000_000  # 32 MB
FEW_COLUMNS = 10  # measured: up to here differences cost 2.5 to 4 ns a pair, as much as products and the root
PROJECTED_ENTRIES = 2_000_000  # projections held at once: 16 MB, and a few sorted copies of it


# --- projections ------------------------------------------------------------------------------------------------------


def principal_axes(X: Floats, Y: Floats) -> Floats:
    """Principal axes of the two samples together, as orthonormal columns.

    Examples
    --------
    >>> import numpy as np
    >>> np.abs(principal_axes(np.array([[1.0, 1.0]]), np.array([[-1.0, -1.0]]))).round(3)
    array([[0.707, 0.707],
           [0.707, 0.707]])
    """
    return np.linalg.eigh(np.cov(np.concatenate([X, Y]), rowvar=False))[1]


def axes_bound(X: Floats, Y: Floats) -> float:
    """Lower bound on the Wasserstein-1 distance from the distances along given and along principal axes.

    Principal axes of more columns than rows cost more than the exact solution would: these samples have only the given
    ones.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> round(axes_bound(X, 3.0 * X), 9)
    2.0
    """
    best = _along_axes(X, Y)
    if 1 < X.shape[1] <= min(len(X), len(Y)):
        axes = principal_axes(X, Y)
        best = max(best, _along_axes(X @ axes, Y @ axes))
    # Rotation and sums lose a few digits; a bound must not.
    return max(0.0, best * (1.0 - 1e-12) - 1e-14 * float(max(np.abs(X).max(), np.abs(Y).max())))


def _along_axes(X: Floats, Y: Floats) -> float:
    parts = slices(X.shape[1], PROJECTED_ENTRIES // (len(X) + len(Y)))
    return float(np.sqrt(sum(float(np.sum(line_distances(X[:, part], Y[:, part]) ** 2)) for part in parts)))


def sliced_interval(X: Floats, Y: Floats, *, directions: int, seed: int) -> tuple[float, float, float]:
    """Mean over random directions of the distances on the line, and a 95 % interval around it.

    This is not an approximation of the Wasserstein-1 distance but a metric of its own, never above it and in d
    dimensions smaller by a factor of the order of sqrt(d). Its error is Monte Carlo error over directions.

    Returns
    -------
    value, lower, upper
        The mean, and Student's interval for the mean over all directions.
    """
    rng = np.random.default_rng(seed)
    found: list[Floats] = []
    for part in slices(directions, PROJECTED_ENTRIES // (len(X) + len(Y))):
        normal = rng.standard_normal((X.shape[1], part.stop - part.start))
        unit = normal / np.linalg.norm(normal, axis=0)
        found.append(line_distances(X @ unit, Y @ unit))
    distances = np.concatenate(found)
    value = float(distances.mean())
    margin = float(stdtrit(directions - 1, 0.975) * distances.std(ddof=1) / np.sqrt(directions))
    return value, max(0.0, value - margin), value + margin


# --- pricing ----------------------------------------------------------------------------------------------------------


class Distances:
    """Distances between the rows of X and Y, one rectangle at a time, never above the true distances.

    With many columns, and outside NumPy, they come from matrix products, which are faster than differences but lose the
    digits of short distances. A bound on that loss is subtracted before the root, so that lower bounds built on these
    distances stay valid. `worst_loss` bounds how far below the true distances any of them can be, `mean_loss` how far
    the average over any plan can be. Distances come in the library and on the device of `home`, NumPy without one.
    """

    def __init__(self, X: Floats, Y: Floats, home: Array = None) -> None:
        self.worst_loss = self.mean_loss = 0.0
        self._differences = X.shape[1] <= FEW_COLUMNS and home is None
        self._left, self._right = X, Y
        if not self._differences:
            # What is lost grows with the norms, so points are centred; outliers keep their norms.
            middle = np.median(np.concatenate([X, Y]), axis=0)
            X, Y = X - middle, Y - middle
            x_square, y_square = np.einsum("ij,ij->i", X, X), np.einsum("ij,ij->i", Y, Y)
            # More than twice the classical bound for inner products, as a fraction of |x|^2 + |y|^2.
            lost = 4 * (X.shape[1] + 8) * np.finfo(np.float64).eps
            x_loss, y_loss = np.sqrt(2 * lost * x_square), np.sqrt(2 * lost * y_square)
            self.worst_loss = float(x_loss.max() + y_loss.max())
            self.mean_loss = float(x_loss.mean() + y_loss.mean())
            self._left = np.column_stack([-2.0 * X, (1.0 - lost) * x_square, np.ones(len(X))])
            self._right = np.column_stack([Y, np.ones(len(Y)), (1.0 - lost) * y_square])
        if home is not None:
            self._left, self._right = match(self._left, home), match(self._right, home)

    def between(self, rows: slice, columns: slice) -> Array:
        """Distances between a range of the rows of X and a range of the rows of Y."""
        left, right = self._left[rows], self._right[columns]
        if self._differences:
            return np.asarray(cdist(left, right))
        square = left @ right.T
        if is_numpy(square):
            np.maximum(square, 0.0, out=square)
            return np.sqrt(square, out=square)
        xp = namespace(square)
        return xp.sqrt(xp.maximum(square, xp.zeros_like(square[:1, :1])))


@dataclass(frozen=True)
class Priced:
    """Semi-dual minima of the rows and columns, and candidate pairs."""

    row_minimum: Floats
    column_minimum: Floats
    rows: Integers
    columns: Integers


def price(
    X: Floats, Y: Floats, u: Floats, v: Floats, *, rng: np.random.Generator, groups: int = 8, home: Array = None
) -> Priced:
    """Walk over all pairs once, one strip of rows after the other.

    Parameters
    ----------
    u, v
        Potentials of the rows of X and of Y.
    rng
        Shuffles the groups, so that repeated calls see other groups and in time every useful pair.
    groups
        Candidates for each point: the best partner in each group.
    home
        An array whose library and device do the work; NumPy without one.
    """
    n, m = len(X), len(Y)
    row_order, column_order = rng.permutation(n), rng.permutation(m)
    u, v = u[row_order], v[column_order]
    distances = Distances(X[row_order], Y[column_order], home)
    here = v if home is None else home
    row_potential, column_potential = match(u, here), match(v, here)
    # Long strips rather than square tiles: threaded matrix products wait for each other at the end of every call.
    at_once = DEVICE_CHUNK_ENTRIES if on_device(here) else STRIP_ENTRIES
    strips = slices(n, min(-(-n // groups), at_once // m))
    column_groups = slices(m, -(-m // groups))
    for_rows, for_columns = _Best(n, groups, here), _Best(m, groups, here)
    for number, rows in enumerate(strips):
        reduced = distances.between(rows, slice(0, m))
        reduced -= column_potential
        reduced -= row_potential[rows, None]
        for group, columns in enumerate(column_groups):
            for_rows.update(rows, group, reduced[:, columns], offset=columns.start)
        for_columns.update(slice(0, m), number % groups, reduced.T, offset=rows.start)
    row_minimum, column_minimum = np.empty(n), np.empty(m)
    row_minimum[row_order] = for_rows.minimum() + u
    column_minimum[column_order] = for_columns.minimum() + v
    own, partner = for_rows.pairs()
    own_columns, partner_rows = for_columns.pairs()
    rows_of_pairs, columns_of_pairs = np.concatenate([own, partner_rows]), np.concatenate([partner, own_columns])
    return Priced(row_minimum, column_minimum, row_order[rows_of_pairs], column_order[columns_of_pairs])


class _Best:
    """Best partner so far of each point in each group, by reduced cost; kept where `like` is."""

    def __init__(self, points: int, groups: int, like: Array) -> None:
        self._xp = namespace(like)
        self._value = self._xp.full((points, groups), np.inf, dtype=self._xp.float64, device=like.device)
        self._partner = self._xp.zeros((points, groups), dtype=self._xp.int64, device=like.device)

    def update(self, points: slice, group: int, reduced: Array, *, offset: int) -> None:
        """Compare with new partners, one column of `reduced` each, numbered from `offset`."""
        partner, value = self._xp.argmin(reduced, axis=1), self._xp.min(reduced, axis=1)
        better = value < self._value[points, group]
        self._value[points, group] = self._xp.where(better, value, self._value[points, group])
        self._partner[points, group] = self._xp.where(better, partner + offset, self._partner[points, group])

    def minimum(self) -> Floats:
        """The best value of each point."""
        return to_numpy(self._value).min(axis=1)

    def pairs(self) -> tuple[Integers, Integers]:
        """Points and partners; groups that were never met (fewer points than groups) are left out."""
        point, group = np.nonzero(np.isfinite(to_numpy(self._value)))
        return point, to_numpy(self._partner)[point, group]


# --- bracket ----------------------------------------------------------------------------------------------------------


def bracket(
    X: Floats, Y: Floats, *, seed: int, subsample: int, rtol: float, limit: float = np.inf, home: Array = None
) -> tuple[float, float]:
    """Lower and upper bound on the Wasserstein-1 distance, within memory proportional to the number of rows.

    With more than `PRICED_ENTRIES` pairs these are the rough bounds; on a device, one round of pricing still tightens
    the lower one.

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
        Stop also when the lower bound exceeds this; the upper bound is then infinite.
    home
        An array whose library and device price all pairs; NumPy without one.
    """
    rng = np.random.default_rng(seed)
    lower, u, v = _lipschitz_bound(X, Y, rng=rng, subsample=subsample, home=home)
    if lower > limit:
        return lower, np.inf
    upper, pairs, entries = np.inf, None, len(X) * len(Y)
    plans = entries <= PRICED_ENTRIES
    priced_at_all = plans or (on_device(home) and entries <= DEVICE_PRICED_ENTRIES)
    finest = max(1e-12, Distances(X, Y, home).mean_loss)  # rounding hides anything below
    for _ in range(ROUNDS if priced_at_all else 0):
        priced = price(X, Y, u, v, rng=rng, home=home)
        lower = max(lower, priced.row_minimum.mean() + v.mean(), u.mean() + priced.column_minimum.mean())
        if lower > limit:
            return float(lower), np.inf
        if pairs is None:  # only now: a limit is often decided without any plan
            upper, pairs = _block_plan(X, Y, rng=rng)
        if not plans or upper - lower <= max(rtol * upper, finest):
            break
        pairs = np.union1d(pairs, priced.rows * len(Y) + priced.columns)
        cost, pairs, u, v = _restricted_plan(X, Y, pairs, start=(priced.row_minimum, v))
        upper = min(upper, cost)
    if pairs is None:
        upper, _ = _block_plan(X, Y, rng=rng)
    return float(max(0.0, min(lower, upper))), float(upper)


def _lipschitz_bound(
    X: Floats, Y: Floats, *, rng: np.random.Generator, subsample: int, home: Array = None
) -> tuple[float, Floats, Floats]:
    """Lower bound from functions f(z) = min_j (|z - y_j| - v_j) that solve the problem between random rows.

    Each such f is 1-Lipschitz whatever the v_j. Also returns potentials on all rows to start from.
    """
    rows, columns = rng.permutation(len(X))[:subsample], rng.permutation(len(Y))[:subsample]
    small = solve_samples(X[rows], Y[columns])
    u, on_Y = (_envelope(Z, Y[columns], small.column_potential, home) for Z in (X, Y))
    v, on_X = (_envelope(Z, X[rows], small.row_potential, home) for Z in (Y, X))
    lower = max(u.mean() - on_Y.mean(), v.mean() - on_X.mean()) - Distances(X, Y, home).worst_loss
    between_means = float(np.linalg.norm(X.mean(axis=0) - Y.mean(axis=0)))
    return max(float(lower), between_means), u, -on_Y


def _envelope(Z: Floats, anchors: Floats, heights: Floats, home: Array = None) -> Floats:
    """min_j (|z - anchor_j| - height_j) for every row z."""
    distances = Distances(Z, anchors, home)
    here = match(heights, heights if home is None else home)
    xp = namespace(here)
    parts = slices(len(Z), (DEVICE_CHUNK_ENTRIES if on_device(here) else CHUNK_ENTRIES) // len(anchors))
    return to_numpy(xp.concat([xp.min(distances.between(part, slice(None)) - here, axis=1) for part in parts]))


def _block_plan(X: Floats, Y: Floats, *, rng: np.random.Generator) -> tuple[float, Integers]:
    """Cut both shuffled samples into blocks of equal mass and couple block with block, exactly.

    Masses are whole numbers (each row of X has len(Y) units and the reverse), so a row on the border between two blocks
    is divided between them without rounding.
    """
    n, m = len(X), len(Y)
    blocks = int(np.ceil(np.sqrt(n * m / BLOCK_ENTRIES)))
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


def _share(low: int, high: int, *, unit: int) -> tuple[Integers, Floats]:
    """Points of `unit` units each, laid end to end: those that meet [low, high), and how much of each does."""
    points = np.arange(low // unit, -(-high // unit), dtype=np.int64)
    amount = np.minimum((points + 1) * unit, high) - np.maximum(points * unit, low)
    return points, amount.astype(np.float64)


def _restricted_plan(
    X: Floats, Y: Floats, pairs: Integers, *, start: tuple[Floats, Floats]
) -> tuple[float, Integers, Floats, Floats]:
    """Cheapest plan that uses only the given pairs, coded as row * len(Y) + column.

    Returns its cost, the pairs worth keeping, and potentials of rows and columns.
    """
    n, m = len(X), len(Y)
    i, j = pairs // m, pairs % m
    parts = slices(len(pairs), CHUNK_ENTRIES // X.shape[1])
    lengths = np.concatenate([np.linalg.norm(X[i[part]] - Y[j[part]], axis=1) for part in parts])
    exponent = int(np.frexp(lengths.max())[1])  # costs of order one, as in `unit_costs`
    unit, u, v = (np.ldexp(part, -exponent) for part in (lengths, *start))
    a, b = masses(n, m)
    plan = solve_on_pairs(i, j, unit, a, b, start=(u, v))
    used = np.searchsorted(pairs, plan.rows * m + plan.columns)
    cost = float(plan.flow @ lengths[used] / a.sum()) if plan.moves_all(a, b) else np.inf
    u, v = np.ldexp(plan.row_potential, exponent), np.ldexp(plan.column_potential, exponent)
    reduced = lengths - u[i] - v[j]
    reduced[used] = -np.inf  # the plan itself stays, so that the next problem has a solution
    keep = min(len(pairs), max(PAIRS_PER_POINT * (n + m), len(used)))
    return cost, np.sort(pairs[np.argpartition(reduced, keep - 1)[:keep]]), u, v
