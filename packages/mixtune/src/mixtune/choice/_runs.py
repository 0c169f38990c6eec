"""The choice for many runs side by side, on a device: what :func:`choose` makes of each run alone.

A run is a focal domain and its sources, all with the same number n of rows and with more columns than rows. A device
needs much work in one call and is slow at spectra, so that all is products, Cholesky factors and triangular solves of
stacks of matrices, with a factor for each ridge.

Pooled priors are Gaussian processes on the rows. With coefficients mu + delta_i, mu ~ N(0, shared I) and
delta_i ~ N(0, own I), rows of the domains i and j have the covariance shared U_i U_j' + [i = j] own U_i U_i'. What one
source says of a task's rows needs n x n matrices only; what several say of mu are sums of p x p precisions.

Few numbers of each run (noise, which sources count, shares of the candidates) are worked out on the host, by the
functions that do so for one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mixtune.arrays import EPSILON, Array, Floats, Integers, all_finite, match, namespace, to_numpy, triangular_solve
from mixtune.choice._choose import (
    Plan,
    averaging_shares,
    enough_sources,
    plan_of_sizes,
    rank_of_sums,
    ranked_parts,
)
from mixtune.choice._families import Distances, FocalFamily, Inputs, deviations, marginal_distances
from mixtune.choice._model_averaging import (
    SummedTask,
    clipped_products,
    negligible_part,
    prior_weights,
    robust_errors,
    weights_of_runs,
)
from mixtune.choice._pooled import FamilyVariances, SourceRidges, pooled_labels, stacked_labels, subset_weights
from mixtune.choice._settings import SETTINGS
from mixtune.moments import RANK_TOLERANCE, best_ridges, generalised_error, is_constant, left_out_residuals

#: Of more columns the estimators choose among principal directions.
MOST_COLUMNS = 512


def choose_runs(features: Array, targets: Array, *, seed: int = 0) -> tuple[Array, Array] | None:
    """Average candidates for the focal domain of every run, as :func:`choose` does for one run.

    Features are standardised over all domains of a run, and the intercept is free.

    Parameters
    ----------
    features : tensor (runs, domains, n, p)
        The focal domain first, without a constant.
    targets : tensor (runs, domains, n)
    seed : int
        Which sources are drawn for validation.

    Returns
    -------
    coefficients, predictions : tensors (runs, p + 1) and (runs, n); or None
        Coefficients, that of the constant last, and predictions of focal rows by fits without them. None if the runs
        are not of the kind that this is for: more columns than rows, so many that no covariance between coefficients
        is learned, but no principal directions either, few sources, validation tasks, and no row that decides its own
        prediction.
    """
    runs, domains, count, columns = features.shape
    few = domains - 1 <= min(SETTINGS.evidence_sources, *SETTINGS.one_level_sources)
    fewest = max(count, SETTINGS.narrow_columns - 1, SETTINGS.covariance_columns) + 1
    if not few or not fewest <= columns <= MOST_COLUMNS:
        return None
    units, U, y = _standardised(features.reshape(runs, -1, columns), targets.reshape(runs, -1))
    U, y = U.reshape(features.shape), y.reshape(targets.shape)
    plans = _plans(U, y, seed)
    if any(plan.spare or not plan.tasks for plan in plans):
        return None
    places = np.array([[0, *(1 + k for k, _ in plan.tasks)] for plan in plans])
    size = _target_size(y)
    free, full = (_View.of(U, y / size[:, None, None], centred=centred) for centred in (True, False))
    tasks, alone = _Tasks.of(U, places), free.ridge_path()
    own_level = _source_ridges(alone, free.level)
    one_level = _source_ridges(full.ridge_path(), full.level)
    families = [
        _focal_only(free, tasks, alone),
        _pooled(free, tasks, own_level),
        _stacked(free, tasks, own_level, alone),
        _pooled(full, tasks, one_level, one_level=True),
    ]
    left_out = namespace(U).concat([family.left_out for family in families], axis=2)
    if not all_finite(left_out):
        return None
    shares = match(_shares(left_out, tasks.of_domains(free.targets), places, domains - 1), U)
    slopes, first = [], 0
    for family in families:
        last = first + family.left_out.shape[2]
        slopes.append(family.head(shares[:, first:last]))
        level, first = shares[:, :first].sum(axis=1), last
    # The last family has the constant among its columns; the intercept of the others is what their slopes leave.
    inside = sum(slopes[:-1])
    intercept = (
        slopes[-1][:, -1] + level * full.targets[:, 0].mean(axis=1) - (inside * U[:, 0].mean(axis=1)).sum(axis=1)
    )
    found = units.coefficients(size[:, None] * (inside + slopes[-1][:, :-1]), size * intercept)
    return found, targets[:, 0] - size[:, None] * (shares[:, None] @ left_out[:, 0])[:, 0]


class _Units(NamedTuple):
    """Of every run, what was subtracted from features (runs, p) and targets (runs,), and what features are in."""

    shift: Array
    scale: Array
    level: Array

    def coefficients(self, slopes: Array, intercept: Array) -> Array:
        """Coefficients of features as they are, that of the constant last, from those of prepared ones."""
        slopes = slopes / self.scale
        constant = intercept + self.level - (slopes * self.shift).sum(axis=1)
        return namespace(slopes).concat([slopes, constant[:, None]], axis=1)


def _standardised(features: Array, targets: Array) -> tuple[_Units, Array, Array]:
    """All rows (runs, m, p) and targets (runs, m) of every run about their mean, features with unit spread."""
    xp = namespace(features)
    shift, level = xp.mean(features, axis=1), xp.mean(targets, axis=1)
    U = features - shift[:, None]
    spread = xp.sqrt(xp.mean(U**2, axis=1))
    scale = xp.where(is_constant(shift, spread, U.shape[1]), xp.ones_like(spread), spread)
    return _Units(shift, scale, level), U / scale[:, None], targets - level[:, None]


def _target_size(y: Array) -> Array:
    """Standard deviation of all targets (runs, domains, n) of every run, or 1 where they do not vary."""
    xp = namespace(y)
    square = xp.mean(y**2, axis=(1, 2))
    variance = square - xp.mean(y, axis=(1, 2)) ** 2
    return xp.where(variance > 64 * EPSILON * square, xp.sqrt(abs(variance)), xp.ones_like(variance))


def _plans(U: Array, y: Array, seed: int) -> list[Plan]:
    """What is drawn for every run."""
    xp, (count, columns) = namespace(U), U.shape[2:]
    squares = U**2
    parts = ranked_parts(xp.sum(squares, axis=-1), xp.sum(squares * abs(U), axis=-1), y)
    sums = to_numpy(xp.sum(xp.stack(parts, axis=-1), axis=2))[:, 1:].tolist()

    def plan(own: list[list[float]]) -> Plan:
        ranks = [rank_of_sums(count, float(count), each) for each in own]
        sizes = dict.fromkeys(range(len(own)), count)
        return plan_of_sizes(count, sizes, columns + 1, ranks.__getitem__, np.random.default_rng(seed))

    return [plan(own) for own in sums]


@dataclass(frozen=True, eq=False)
class _Tasks:
    """The focal domain and the sources that take its role, by places (runs, T) among the domains.

    ``allowed`` (runs, T, N) says which sources inform them, and ``distances`` how far away these are.
    """

    index: tuple[Array, Array]
    allowed: Floats
    distances: Distances

    @classmethod
    def of(cls, U: Array, places: Integers) -> _Tasks:
        xp, (runs, domains, count, _) = namespace(U), U.shape
        index = xp.arange(runs, device=U.device)[:, None], xp.asarray(places, device=U.device)
        allowed = (places[..., None] != 1 + np.arange(domains - 1)).astype(np.float64)
        means = xp.mean(U, axis=2)
        spreads, totals = deviations(means, xp.mean(U**2, axis=2)), xp.full((1,), count, dtype=U.dtype, device=U.device)
        sources = Inputs(means[:, None, 1:], spreads[:, None, 1:], totals)
        found = marginal_distances(Inputs(means[index][:, :, None], spreads[index][:, :, None], totals), sources)
        return cls(index, allowed, Distances(to_numpy(found.values), to_numpy(found.chance)))

    def of_domains(self, values: Array) -> Array:
        """Values (runs, T, ...) of the tasks, from those of all domains (runs, D, ...)."""
        return values[self.index]


@dataclass(frozen=True, eq=False)
class _Path:
    """Fits at several shifts of a kernel: shifts (..., Q), duals and diagonals (..., Q, n) of (K + shift)^{-1}."""

    shifts: Array
    duals: Array
    diagonals: Array

    @classmethod
    def of(cls, kernel: Array, shifts: Array, right: Array) -> _Path:
        """For kernels (..., n, n) and what they are to explain (..., n)."""
        xp = namespace(kernel)
        inverse = triangular_solve(xp.linalg.cholesky(_plus(kernel[..., None, :, :], shifts)), _unit(kernel))
        duals = inverse.mT @ (inverse @ right[..., None, :, None])
        return cls(shifts, duals[..., 0], xp.sum(inverse**2, axis=-2))

    @classmethod
    def of_prior(cls, kernel: Array, noise: Array, right: Array) -> _Path:
        """Around a prior, at all its scales, from the noise (runs,) of every run."""
        shifts = noise[:, None] / match(SETTINGS.pooled_scales, kernel)
        return cls.of(kernel, shifts.reshape(len(kernel), *[1] * (kernel.ndim - 3), -1), right)

    def left_out(self, level: float) -> Array:
        """Residuals (..., Q, n) of left-out rows; ``level`` is what a free intercept adds to leverages."""
        shifts = self.shifts[..., None]
        return left_out_residuals(shifts * self.duals, 1.0 - shifts * self.diagonals + level)


def _plus(matrix: Array, shift: Array) -> Array:
    """Matrices (..., k, k) with shifts (...) added on their diagonals."""
    return matrix + shift[..., None, None] * _unit(matrix)


def _unit(like: Array) -> Array:
    """The unit matrix of the size of square matrices."""
    return namespace(like).eye(like.shape[-1], dtype=like.dtype, device=like.device)


@dataclass(frozen=True, eq=False)
class _View:
    """All domains, each about its mean, where intercepts are free, or with the constant as a column.

    Rows (runs, D, n, p), targets (runs, D, n), kernels U U', mean eigenvalues (runs, D) of U'U, and what a free
    intercept adds to leverages.
    """

    rows: Array
    targets: Array
    kernels: Array
    eigenvalues: Array
    level: float

    @classmethod
    def of(cls, U: Array, y: Array, *, centred: bool) -> _View:
        xp, count = namespace(U), U.shape[2]
        means, level = xp.mean(U, axis=2, keepdims=True), 1.0 / count if centred else 0.0
        if centred:
            rows, targets = U - means, y - xp.mean(y, axis=2, keepdims=True)
        else:
            rows, targets = xp.concat([U, xp.ones_like(U[..., :1])], axis=-1), y
        kernels = rows @ rows.mT
        trace = xp.sum(xp.linalg.diagonal(kernels), axis=-1)
        # What was there before the means were taken out leaves rounding behind.
        before = level * count**2 * xp.sum(means**2, axis=(2, 3))
        values = xp.where(trace > RANK_TOLERANCE * before, trace / count, xp.ones_like(trace))
        return cls(rows, targets, kernels, values, level)

    def ridge_path(self) -> _Path:
        """Ridge regression on the rows of each domain alone."""
        shifts = self.eigenvalues[..., None] * match(SETTINGS.focal_ridges, self.rows)
        return _Path.of(self.kernels, shifts, self.targets)

    def told(self, variance: Array, noise: Array) -> Array:
        """``L^{-1} [U, y]`` (runs, N, n, p + 1) of the sources, where L L' = variance U U' + noise.

        The variance is (runs,), the noise (runs, N).
        """
        xp = namespace(self.rows)
        root = xp.linalg.cholesky(_plus(_of_run(variance, self.kernels) * self.kernels[:, 1:], noise))
        return triangular_solve(root, xp.concat([self.rows[:, 1:], self.targets[:, 1:, :, None]], axis=-1))


def _of_run(numbers: Array, like: Array) -> Array:
    """Numbers (runs,) with as many axes as an array (runs, ...)."""
    return numbers.reshape(-1, *[1] * (like.ndim - 1))


def _source_ridges(path: _Path, level: float) -> SourceRidges:
    """What ridge regressions on the rows of each source tell of it, by generalised cross-validation."""
    xp, count = namespace(path.duals), path.duals.shape[-1]
    squares = path.shifts**2 * xp.sum(path.duals**2, axis=-1)
    freedom = path.shifts * xp.sum(path.diagonals, axis=-1) - level * count
    ridges, squares, freedom = to_numpy(xp.stack([path.shifts, squares, freedom])[:, :, 1:])
    return SourceRidges.of(ridges, generalised_error(squares, freedom, count), squares, freedom)


class _Family(NamedTuple):
    """Residuals (runs, T, C, n) of left-out rows, and focal coefficients (runs, p) by shares (runs, C)."""

    left_out: Array
    head: Callable[[Array], Array]


def _focal_only(view: _View, tasks: _Tasks, alone: _Path) -> _Family:
    """Ridge regression on a task's own rows."""

    def head(shares: Array) -> Array:
        return (shares[:, None] @ alone.duals[:, 0] @ view.rows[:, 0])[:, 0]

    return _Family(tasks.of_domains(alone.left_out(view.level)), head)


def _pooled(view: _View, tasks: _Tasks, sources: SourceRidges, *, one_level: bool = False) -> _Family:
    """Priors around the head of pooled sources, as of :class:`PooledFamily`."""
    xp, (runs, _, count, columns) = namespace(view.rows), view.rows.shape
    found = FamilyVariances.of(*sources[1:], one_level=one_level)
    noise, own, shared = (match(part, view.rows) for part in (found.noise, found.own, found.shared))
    noises = match(sources.noise, view.rows)
    rows, targets, kernels = (tasks.of_domains(part) for part in (view.rows, view.targets, view.kernels))

    # How likely each source alone makes the targets of a task.
    told = view.told(own + shared, noises)
    across = told[..., :-1].reshape(runs, -1, columns) @ rows.reshape(runs, -1, columns).mT
    across = xp.permute_dims(across.reshape(runs, -1, count, rows.shape[1], count), (0, 3, 1, 2, 4))
    between = _of_run(shared, across)
    fitted = between[..., 0] * (across.mT @ told[:, None, ..., -1:])[..., 0]
    spread = (_of_run(own, across) + between) * kernels[:, :, None] - between**2 * (across.mT @ across)
    root = xp.linalg.cholesky(_plus(spread, noise[:, None, None]))
    left = triangular_solve(root, (targets[:, :, None] - fitted)[..., None])[..., 0]
    scores = to_numpy(-xp.sum(xp.log(xp.linalg.diagonal(root)) + 0.5 * left**2, axis=-1))

    # What each subset of sources says of mu: precision, and precision times mean.
    weights = np.stack(subset_weights(scores, tasks.distances, tasks.allowed), axis=2)
    tried, subsets = weights.shape[1:3]
    told = view.told(own, noises)
    told = (told[..., :-1].mT @ told).reshape(runs, noises.shape[1], -1)
    sums = match(weights.reshape(runs, tried * subsets, -1), view.rows) @ told
    sums = sums.reshape(runs, tried, subsets, columns, columns + 1)
    root = xp.linalg.cholesky(_plus(sums[..., :-1], 1.0 / shared[:, None, None]))
    across = xp.broadcast_to(rows.mT[:, :, None], (runs, tried, subsets, columns, count))
    half = triangular_solve(root, xp.concat([sums[..., -1:], across], axis=-1))
    pulled, across = half[..., 0], half[..., 1:]

    fitted = (across.mT @ pulled[..., None])[..., 0]
    along = SETTINGS.stretch * fitted[..., None] * fitted[..., None, :]
    kernel = _of_run(own, along) * kernels[:, :, None] + across.mT @ across + along
    path = _Path.of_prior(kernel, noise, targets[:, :, None] - fitted)

    def head(shares: Array) -> Array:
        share = shares.reshape(runs, subsets, -1)
        duals = (share[..., None, :] @ path.duals[:, 0])[..., 0, :]
        part = xp.sum(share, axis=-1) + SETTINGS.stretch * xp.sum(duals * fitted[:, 0], axis=-1)
        inside = part[..., None] * pulled[:, 0] + (across[:, 0] @ duals[..., None])[..., 0]
        common = triangular_solve(root[:, 0], inside[..., None], transposed=True)[..., 0]
        pulls = (xp.sum(duals, axis=1, keepdims=True) @ view.rows[:, 0])[:, 0]
        return xp.sum(common, axis=1) + own[:, None] * pulls

    return _Family(path.left_out(view.level).reshape(runs, tried, -1, count), head)


def _stacked(view: _View, tasks: _Tasks, sources: SourceRidges, alone: _Path) -> _Family:
    """Priors along the heads of the sources, as of :class:`StackedFamily`."""
    xp, runs = namespace(view.rows), len(view.rows)
    found = FamilyVariances.of(*sources[1:], one_level=False)
    noise, own = (match(part, view.rows) for part in (found.noise, found.own))
    best = alone.duals[np.arange(runs)[:, None], 1 + np.arange(sources.best.shape[1]), sources.best]
    heads = (best[..., None, :] @ view.rows[:, 1:])[..., 0, :]
    rows, targets, kernels = (tasks.of_domains(part) for part in (view.rows, view.targets, view.kernels))
    allowed = match(tasks.allowed, view.rows)
    counts = xp.sum(allowed, axis=-1, keepdims=True)
    projected = rows @ heads.mT[:, None] * allowed[:, :, None]
    kernel = _of_run(own, kernels) * kernels + SETTINGS.stacked_variance * projected @ projected.mT
    path = _Path.of_prior(kernel, noise, targets - xp.sum(projected, axis=-1) / counts)

    def head(shares: Array) -> Array:
        duals = shares[:, None] @ path.duals[:, 0]
        mean = xp.sum(shares, axis=-1)[:, None, None] * (allowed / counts)[:, :1]
        along = mean + SETTINGS.stacked_variance * duals @ projected[:, 0]
        return (along @ heads + own[:, None, None] * duals @ view.rows[:, 0])[:, 0]

    return _Family(path.left_out(view.level), head)


def _shares(left_out: Array, targets: Array, places: Integers, sources: int) -> Floats:
    """Shares (runs, C) of the candidates, from residuals (runs, T, C, n) of left-out rows and centred targets."""
    xp, (runs, tried, candidates, count) = namespace(left_out), left_out.shape
    weight, total = np.ones(count), float(count)
    variances = to_numpy(xp.mean(targets**2, axis=-1)).tolist()
    negligible = np.array([[negligible_part(variance) for variance in own] for own in variances])
    small = match(negligible, left_out)
    scores, focal = to_numpy(robust_errors(left_out, weight, small)), to_numpy(left_out[:, 0])
    # Sources have no rows to spare for tests: those left out in turn are their tests.
    left = left_out[:, 1:]
    tests = xp.clip(left, -SETTINGS.largest_residual, SETTINGS.largest_residual)
    varying = xp.max(targets[:, 1:], axis=-1) > xp.min(targets[:, 1:], axis=-1)
    least = xp.where(varying, xp.sqrt(small[:, 1:]), xp.zeros_like(small[:, 1:]))
    clipped = clipped_products(tests, weight, xp.mean(tests**2, axis=-1), small[:, 1:], least)
    sums = to_numpy(xp.stack([tests @ tests.mT / count, clipped, left @ left.mT / count], axis=2))
    alone = best_ridges(SETTINGS.focal_ridges, scores[:, 1:, : len(SETTINGS.focal_ridges)])
    usable = np.ones(candidates, dtype=bool)

    def task(run: int, place: int) -> SummedTask:
        squares, clipped, inside = sums[run, place]
        source, least = int(places[run, 1 + place]) - 1, float(negligible[run, 1 + place])
        return SummedTask(source, total, squares, clipped, inside, usable, int(alone[run, place]), least)

    labels = [*FocalFamily(sources).labels, *pooled_labels(sources), *stacked_labels()]
    labels += pooled_labels(sources, one_level=True)
    validated = [[task(run, place) for place in range(tried - 1)] for run in range(runs)]
    # All columns of these runs are many.
    enough = enough_sources(SETTINGS.narrow_columns + 1)
    known = weights_of_runs(prior_weights([name for name, _ in labels]), validated, enough=enough)
    judged = zip(scores[:, 0], focal, known, negligible[:, 0].tolist())
    found = [
        averaging_shares(labels, score, own, weight, told, (total, total), least) for score, own, told, least in judged
    ]
    return np.stack([shares for shares, _ in found])
