"""Greeks: how the price changes with the market, by the same normals in every market.

Greeks are differences of prices whose paths are compared one by one. Each price is estimated as the price of today is:
cash flows of an exercise policy less a martingale, which leaves little noise, so that differences over a moderate move
have little, too. The exact European price, where it is known, is taken off and its own difference added, over a move as
small as one likes.

**The policy is the best one known in every market.** When the price today or the date today changes, the policy stays:
it says what to do at the exercise dates, whatever happened before. When volatilities or rates change, a policy is
learned again, on the same normals. A fitted policy is not quite optimal. By how much it falls short is of second order
in its error, and so is the change of that with the market. Holding the stopping dates of every path instead would be
wrong to first order in the error of the policy: that is right for the best policy only.

**Standard errors contain the error of the policy.** A fitted policy earns more on the paths that it has learned from
than on others, by as much on both sides of the truth. Half the difference between the Greek on training paths and on
evaluation paths estimates what the policy is off by. Its square is added to that of the Monte Carlo error.

Where prices are proportional to the price today, paths for other prices today and other rates are multiples of those
that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mixtune_options._arrays import Floats
from mixtune_options._european import Mean
from mixtune_options._martingale import without_noise
from mixtune_options._paths import PathData
from mixtune_options._process import Process, TermStructure, mean_over
from mixtune_options._settings import METHOD, TimeGrid


@dataclass(frozen=True, eq=False)
class Greek:
    """A sensitivity, one entry per quantity that is moved, with standard errors."""

    value: Floats
    standard_error: Floats


@dataclass(frozen=True, eq=False)
class Market:
    """A market and its dates; where its paths are multiples of those of today's market, by which factors.

    ``refit`` says whether the policy has to be learned again.
    """

    process: Process
    grid: TimeGrid
    factors: Floats | None = None
    refit: bool = False


@dataclass(frozen=True, eq=False)
class Valued:
    """What the option earns in a market on every path, less its martingale.

    ``held`` is what the same paths held to maturity are off by from the exact European price, where that is used.
    """

    flows: Floats
    held: Floats | None = None


@dataclass(frozen=True)
class Stencil:
    """A derivative: weights of prices by the moves of the market, in steps, and its order."""

    weights: dict[float, float]
    order: int = 1

    def of(self, prices: Mapping[float, Any], step: float) -> Any:
        """The difference of prices, or of arrays of them."""
        return sum(weight * prices[move] for move, weight in self.weights.items()) / step**self.order


SLOPE = Stencil({1.0: 0.5, -1.0: -0.5})
#: From two widths, without the error of second order.
EXTRAPOLATED = Stencil({1.0: -1 / 6, 0.5: 4 / 3, -0.5: -4 / 3, -1.0: 1 / 6})
ONE_SIDED = Stencil({1.0: 1.0, 0.0: -1.0})
CURVATURE = Stencil({1.0: 1.0, 0.0: -2.0, -1.0: 1.0}, order=2)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sensitivity:
    """A market and an option, and how it is valued, for the Greeks of a price.

    Attributes
    ----------
    process, grid
        The market and the dates.
    now : PathData
        Evaluation paths of this market.
    valued : callable
        From a market to what the option earns there on evaluation paths and on those that its policy has learned from,
        by the same normals whatever the market; only the first where there is nothing to learn.
    mean : callable
        From samples to their mean and its standard error.
    alike : bool
        Whether all assets have the same Greeks.
    multiples : bool
        Whether prices are proportional to the price today.
    european : callable
        From a market and dates to the European price, or to None.
    """

    process: Process
    grid: TimeGrid
    now: PathData
    valued: Callable[[Market], list[Valued]]
    mean: Mean
    alike: bool
    multiples: bool
    european: Callable[[Process, TimeGrid], float | None]

    def greeks(self) -> dict[str, Greek]:
        """Delta and gamma of each asset; vega, theta and rho.

        Vega is the change per unit of volatility, of all assets together: for Black-Scholes the volatility itself; for
        stochastic volatility a common factor on sqrt(v0) and sqrt(v_mean), per unit of sqrt(v0). Theta is the
        change per year as time passes, the dates coming closer. Rho is the change per unit of the interest rate.
        """
        found: dict[str, list[tuple[float, float]]] = {}
        if hasattr(self.process, "__dataclass_fields__"):  # other markets cannot be moved
            found["delta"], found["gamma"] = map(list, zip(*self._by_asset()))
            found["vega"] = self._vega()
        step = min(METHOD.first_date_bump * self._first_date(), METHOD.time_bump * self.grid.maturity)
        found["theta"] = self._differences(lambda by: self._delayed(-by), step, SLOPE)
        # Rates work over the whole life of the option: the error of second order is not small.
        found["rho"] = self._differences(self._with_rates, METHOD.rate_bump * self._wider, EXTRAPOLATED)
        return {name: Greek(*np.array(each).T) for name, each in found.items() if each}

    def _by_asset(self) -> Iterator[list[tuple[float, float]]]:
        """Delta and gamma of each asset."""
        process, prices = self.process, self.now.prices
        spot = np.broadcast_to(np.asarray(process.spot, dtype=np.float64), (process.n_assets,))
        spread, early = (np.asarray(prices[:, date].std(axis=0)) for date in (-1, 1))
        least = 1e-4 * np.where(spot == 0, 1.0, np.abs(spot))
        # Values vary over the spread of the first date, if that is much less than that of maturity.
        steps = np.minimum(METHOD.spot_bump * self._wider * spread, METHOD.first_spread_bump * early).clip(least)
        for asset in range(1 if self.alike else process.n_assets):

            def moved(by: float, asset: int = asset) -> Market:
                there = spot + by * (np.arange(len(spot)) == asset)
                factors = np.broadcast_to(there / spot, prices.shape[1:]) if self.multiples else None
                return Market(replace(process, spot=there), self.grid, factors)  # type: ignore[type-var]

            both = self._differences(moved, float(steps[asset]), EXTRAPOLATED, CURVATURE)
            for _ in range(process.n_assets if self.alike else 1):
                yield both

    def _vega(self) -> list[tuple[float, float]]:
        """Of all volatilities together; nothing where the market has none."""
        process = self.process
        names, power = (["volatility"], 1) if hasattr(process, "volatility") else (["v0", "v_mean"], 2)
        if not hasattr(process, names[0]):
            return []
        level = float(np.mean(mean_over(getattr(process, names[0]), 0.0, self.grid.maturity) ** (1 / power)))

        def moved(factor: float, shift: float) -> Market:
            changes = {name: _moved(getattr(process, name), factor, shift, power) for name in names}
            return Market(replace(process, **changes), self.grid, refit=True)  # type: ignore[type-var]

        if level > 0:
            return self._differences(lambda by: moved(1 + by / level, 0.0), METHOD.volatility_bump * level, SLOPE)
        # Nothing to scale, and volatilities are not negative: a difference to one side, close to zero.
        return self._differences(lambda by: moved(1.0, by), METHOD.least_volatility, ONE_SIDED)

    def _differences(self, at: Callable[[float], Market], step: float, *stencils: Stencil) -> list[tuple[float, float]]:
        """Derivatives of the price over markets that move by a number, with their standard errors."""
        moves = sorted({move for stencil in stencils for move in stencil.weights})
        values = [self.valued(at(move * step)) for move in moves]
        # Exact prices have no noise: they need no wide move.
        near = METHOD.exact_bump * step
        wide, exact = ({move: self._known(at(move * by)) for move in moves} for by in (step, near))
        found = []
        for stencil in stencils:
            samples = [_samples(stencil, dict(zip(moves, each)), step) for each in zip(*values)]
            mean, error = self.mean(samples[0])
            policy = (mean - float(samples[-1].mean())) / 2
            known = stencil.of(exact, near) - stencil.of(wide, step)
            found.append((mean + known, math.hypot(error, policy)))
        return found

    @cached_property
    def _wider(self) -> float:
        """Factor of moves whose error is of higher order: without an exact part there is more noise."""
        return 1.0 if self.european(self.process, self.grid) is not None else METHOD.wide

    def _known(self, market: Market) -> float:
        """The European price; zero where it is not known."""
        return self.european(market.process, market.grid) or 0.0

    def _with_rates(self, by: float) -> Market:
        """All rates higher by a number."""
        grid = TimeGrid.from_times(self.grid.times, rate=self.grid.rates + by)
        factors = np.exp(by * grid.times)[:, None] if self.multiples else None
        return Market(self.process, grid, factors, refit=True)

    def _delayed(self, by: float) -> Market:
        """The exercise dates, and the dates that the market knows, moved away by a time."""
        later = TimeGrid.from_times([0.0, *(self.grid.times[1:] + by)], rate=self.grid.rates)
        return Market(self.process.delayed(by), later)

    def _first_date(self) -> float:
        """The first of the exercise dates and of those that the market knows."""
        process = self.process
        curves = [value for value in vars(process).values() if isinstance(value, TermStructure)]
        known = [time for time, _ in process.cash_dividends] + [float(np.asarray(c.times)[0]) for c in curves]
        return min([float(self.grid.times[1]), *known])


def _samples(stencil: Stencil, values: Mapping[float, Valued], step: float) -> Floats:
    """A derivative on every path, less the noise that the same paths held to maturity show."""
    flows = np.asarray(stencil.of({move: value.flows for move, value in values.items()}, step))
    held = {move: value.held for move, value in values.items()}
    return flows if next(iter(held.values())) is None else without_noise(flows, stencil.of(held, step))


def _moved(value: Any, factor: float, shift: float, power: int) -> Any:
    """A setting, one number, one per asset or a curve, whose root is multiplied and shifted."""
    if isinstance(value, TermStructure):
        return TermStructure(value.times, _moved(value.values, factor, shift, power))
    moved = (factor * np.asarray(value) ** (1 / power) + shift) ** power
    return float(moved) if moved.ndim == 0 else moved
