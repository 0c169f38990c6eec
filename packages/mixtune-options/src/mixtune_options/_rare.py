r"""Options that are rarely worth exercising: importance sampling where ordinary paths do not reach the money.

Where hardly any path ends in the money, backward induction has nothing to learn from, and the estimate has no spread:
both bounds are the value without early exercise, with standard errors of rounding size. Two things are changed then.

**Training paths** start from prices spread between today's and those at which the option is well in the money. What
happens to a path from there on follows the same law, so continuation values are regressed as usual.

**Evaluation paths** are drawn with the mean of their normals moved along directions d (one for every asset where the
highest or lowest price counts), by several multiples a of them (0 among them, which bounds the weights), and each
counts with its likelihood ratio

.. math:: w = \Big( \sum_k \alpha_k \exp\big(\langle a_k d_k, Z \rangle - \tfrac12 |a_k d_k|^2\big) \Big)^{-1}

Directions are found much as by the cross-entropy method (Rubinstein and Kroese 2004): the strike is moved towards its
place in steps that a tenth of the paths reach, and d is the mean of the normals of these. Weighted means are unbiased
whatever the directions are, so that bounds stay valid.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mixtune.arrays import to_numpy
from mixtune_options._arrays import Floats
from mixtune_options._european import MARTINGALES
from mixtune_options._paths import PathData
from mixtune_options._payoffs import Payoff, PayoffFunction
from mixtune_options._process import Process
from mixtune_options._settings import TimeGrid

#: Exercise is rare where fewer training paths than this end in the money, or a smaller share of them; with few paths,
#: a share below the last number.
FEWEST_PATHS, LEAST_SHARE, FEW_SHARE = 100, 0.02, 0.1
#: Multiples of the direction that evaluation paths move along, in equal parts.
MULTIPLES = np.array([0.0, 0.7, 0.85, 1.0, 1.15, 1.3])
#: Paths and steps of the cross-entropy method, and the share of paths that a step aims at.
PILOT_PATHS, MOST_STEPS, ELITE = 2000, 40, 0.1
#: How far beyond the strike training paths start, in standard deviations of the logarithm at maturity.
BEYOND = 1.0


UNREACHED = (
    "hardly any path ends in the money, and no way there was found: the price and its interval are those of the few "
    "paths that do; use a payoff with a strike, or more paths"
)


def is_rare(training: PathData) -> bool:
    """Whether hardly any path ends in the money, and nothing is to be had today; not where all paths are one."""
    ends = to_numpy(training.prices[:, -1])
    reached = int(np.sum(to_numpy(training.payoffs[:, -1]) > 0))
    few = reached < max(LEAST_SHARE * len(training), min(FEWEST_PATHS, FEW_SHARE * len(training)))
    return few and float(training.payoffs[0, 0]) == 0 and bool(np.ptp(ends, axis=0).any())


@dataclass(frozen=True, eq=False)
class Tilt:
    """How the normals of evaluation paths are moved.

    Attributes
    ----------
    directions : array (ways, normals_per_interval)
        Ways into the money: one, or one for each asset where the highest or lowest price counts. All intervals have
        the same.
    intervals : int
    """

    directions: Floats
    intervals: int

    def shifts(self, paths: int) -> Floats:
        """What is added to the normals of one interval, (paths, normals_per_interval)."""
        which, way = np.arange(paths) % len(MULTIPLES), np.arange(paths) // len(MULTIPLES) % len(self.directions)
        return MULTIPLES[which][:, None] * self.directions[way]

    def weights(self, total: Floats) -> Floats:
        """Likelihood ratios of paths, from the sums (paths, normals_per_interval) of their normals over intervals."""
        along, squares = total @ self.directions.T, self.intervals * np.sum(self.directions**2, axis=1)
        exponents = MULTIPLES[:, None] * along[:, None, :] - 0.5 * MULTIPLES[:, None] ** 2 * squares
        largest = exponents.max(axis=(1, 2))
        return np.exp(-largest) / np.mean(np.exp(exponents - largest[:, None, None]), axis=(1, 2))


def find_tilt(process: Process, payoff: PayoffFunction, grid: TimeGrid, rng: np.random.Generator) -> Tilt | None:
    """The tilt under which about half of the paths end in the money; None, with a warning, where none is found."""
    found: list[Floats | None] = [None]
    if isinstance(payoff, Payoff) and isinstance(process, MARTINGALES):
        process = process.for_grid(grid)
        found = [_direction(process, payoff, grid, rng, score) for score in _scores(payoff, process.n_assets)]
    directions = [direction for direction in found if direction is not None]
    if len(directions) < len(found):
        warnings.warn(UNREACHED, UserWarning, stacklevel=5)
        return None
    return Tilt(np.stack(directions), grid.n_dates)


def _scores(payoff: Payoff, assets: int) -> list[Callable[[Floats], Floats]]:
    """What has to reach the strike, one function for each way: of the prices (paths, assets)."""
    if assets > 1 and payoff.over in ("maximum", "minimum"):
        return [partial(_price_of, asset=asset) for asset in range(assets)]
    return [payoff.underlying]


def _price_of(prices: Floats, asset: int) -> Floats:
    return prices[:, asset]


def _direction(
    process: Process, payoff: Payoff, grid: TimeGrid, rng: np.random.Generator, score: Callable[[Floats], Floats]
) -> Floats | None:
    """Move the strike towards its place, and the normals to where a tenth of the paths reach it."""
    shape = (grid.n_dates, process.normals_per_interval, PILOT_PATHS)
    direction, goal = np.zeros(shape[1]), payoff.sign * payoff.strike
    for _ in range(MOST_STEPS):
        Z = rng.standard_normal(shape) + direction[:, None]
        scores = payoff.sign * np.asarray(score(_end(process, grid, Z)))
        level = min(goal, float(np.quantile(scores, 1 - ELITE)))
        # Without the likelihood ratios of the method, which leave one path where normals are many.
        direction = Z.mean(axis=0)[:, scores >= level].mean(axis=1)
        if level == goal:
            return direction
    return None


def _end(process: Process, grid: TimeGrid, normals: Floats) -> Floats:
    *_, last = process.states(grid, normals)
    return np.asarray(last.prices)


def spread_paths(
    process: Process, payoff: Payoff, grid: TimeGrid, rng: np.random.Generator, *, paths: int, hidden: bool
) -> PathData:
    """Training paths that start between today's prices and those well in the money, with their noise."""
    process = process.for_grid(grid)
    start = process.start(paths)
    today = float(payoff.underlying(start.prices[:1])[0])
    Z = rng.standard_normal((grid.n_dates, process.normals_per_interval, paths))
    ends = payoff.underlying(_end(process, grid, Z))
    spread = float(np.std(np.log(np.maximum(ends, today * 1e-9))))
    farthest = np.log(max(payoff.strike, 1e-9 * today) / today) + payoff.sign * BEYOND * spread
    factors = np.exp(rng.permutation(np.linspace(0.0, farthest, paths)))
    return sample_normals(process, payoff, grid, Z, hidden=hidden, factors=factors)


def sample_normals(
    process: Process,
    payoff: PayoffFunction,
    grid: TimeGrid,
    normals: Floats,
    *,
    hidden: bool,
    factors: Floats | None = None,
) -> PathData:
    """Paths driven by these normals (intervals, normals_per_interval, paths), from today's prices times factors."""
    state = process.start(normals.shape[2])
    if factors is not None:
        state = replace(state, prices=state.prices * factors[:, None])
    states = [state]
    for interval, Z in enumerate(normals):
        states.append(process.advance(states[-1], normals=np.ascontiguousarray(Z.T), **grid.interval(interval)))
    prices, observed = (np.stack([getattr(s, name) for s in states], axis=1) for name in ("prices", "hidden"))
    data = PathData.build("simulated", prices, grid=grid, payoff=payoff, hidden=observed if hidden else None)
    return replace(data, noise=np.moveaxis(process.noise(normals), -1, 0))


def tilted_paths(
    process: Process,
    payoff: PayoffFunction,
    grid: TimeGrid,
    rng: np.random.Generator,
    *,
    tilt: Tilt,
    paths: int,
    hidden: bool,
) -> tuple[PathData, Floats]:
    """Evaluation paths with their weights."""
    process = process.for_grid(grid)
    Z = rng.standard_normal((grid.n_dates, process.normals_per_interval, paths)) + tilt.shifts(paths).T
    weights = tilt.weights(Z.sum(axis=0).T)
    return sample_normals(process, payoff, grid, Z, hidden=hidden), weights
