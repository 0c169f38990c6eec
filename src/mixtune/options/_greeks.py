"""Greeks: how the price changes with the market, by the same normals and the same stopping dates.

To first order a change of the market does not change the value through the policy, which is nearly optimal: where it
stops, stopping and waiting are worth the same. So the dates at which paths stop are held while the market moves, and
only the cash flows at these dates change. Their differences have a bounded variance however small the move is, and a
standard error. Where the European value has a closed form, its differences are exact, and only those of the early
exercise premium are simulated. Where only its price today is known, differences of the same paths held to maturity are
compared with the exact ones, and what they are off by is taken off, times a regression coefficient.

Where prices are proportional to the price today, paths for other prices today and other rates are multiples of those
that are there.

Gamma is the difference of two deltas: at a higher and at a lower price, each with the stopping dates that the policy
has there. The optimal policy is the same at all prices today, so that this needs no correction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import Array, Floats
from mixtune.options._martingale import BaseValue, without_noise
from mixtune.options._paths import PathData
from mixtune.options._process import Process, TermStructure, mean_over
from mixtune.options._settings import METHOD, TimeGrid

#: From samples to their mean and its standard error.
Mean = Callable[[Floats], tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Greek:
    """A sensitivity, one entry per quantity that is moved, with standard errors."""

    value: Floats
    standard_error: Floats


@dataclass(frozen=True, eq=False)
class Market:
    """A market and its dates; where its paths are multiples of those of today's market, by which factors."""

    process: Process
    grid: TimeGrid
    factors: Floats | None = None


#: A part of a difference of prices: its weight, the market, and the stopping dates of its paths.
Term = tuple[float, Market, Array]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sensitivity:
    """A market and an option, and how paths of both are drawn, for the Greeks of a price.

    Attributes
    ----------
    process, grid
        The market and the dates.
    paths : callable
        From a market and dates to evaluation paths, by the same normals whatever they are.
    stops : callable
        From paths to the dates (paths,) at which the policy stops.
    mean : callable
        From samples to their mean and its standard error.
    alike : bool
        Whether all assets have the same Greeks.
    base : callable, optional
        From a market and dates to the European values, or to None.
    european : callable, optional
        From a market and dates to the European price, where there is no ``base``.
    rescaled : callable, optional
        From paths, factors (dates + 1, assets) of their prices, and dates to other paths.
    """

    process: Process
    grid: TimeGrid
    paths: Callable[[Process, TimeGrid], PathData]
    stops: Callable[[PathData], Array]
    mean: Mean
    alike: bool
    base: Callable[[Process, TimeGrid], BaseValue | None] | None = None
    european: Callable[..., float] | None = None
    rescaled: Callable[[PathData, Floats, TimeGrid], PathData] | None = None

    def greeks(self) -> dict[str, Greek]:
        """Delta and gamma of each asset; vega, theta and rho.

        Vega is the change per unit of volatility, of all assets together: for Black-Scholes the volatility itself; for
        stochastic volatility a common factor on sqrt(v0) and sqrt(v_mean), per unit of sqrt(v0). Theta is the
        change per year as time passes, the dates coming closer. Rho is the change per unit of the interest rate.
        """
        found: dict[str, list[tuple[float, float]]] = {}
        if hasattr(self.process, "__dataclass_fields__"):  # other markets cannot be moved
            found["delta"], found["gamma"] = map(list, zip(*self._by_asset()))
            found["vega"] = list(self._vega())
        step = METHOD.time_bump * self._first_date()
        found["theta"] = [self._slope(lambda by: self._delayed(-by), step, jumps=self._jumps)]
        found["rho"] = [self._slope(self._with_rates, METHOD.rate_bump)]
        return {name: Greek(*np.array(each).T) for name, each in found.items() if each}

    def _by_asset(self) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        """Delta and gamma of each asset."""
        process = self.process
        spot = np.broadcast_to(np.asarray(process.spot, dtype=np.float64), (process.n_assets,))
        prices = self._now.prices
        spread, early = (np.asarray(prices[:, date].std(axis=0)) for date in (-1, 1))
        least = 1e-4 * np.where(spot == 0, 1.0, np.abs(spot))
        for asset in range(1 if self.alike else process.n_assets):
            unit = np.arange(len(spot)) == asset
            small = max(METHOD.bump * spread[asset], METHOD.bump * least[asset])
            # Gamma varies over the spread of the first date, if that is much less than that of maturity.
            wide = max(min(METHOD.second_bump * spread[asset], 0.25 * early[asset]), least[asset])

            def moved(by: float, unit: Any = unit) -> Market:
                there = spot + by * unit
                factors = None if self.rescaled is None else np.broadcast_to(there / spot, prices.shape[1:])
                return Market(replace(process, spot=there), self.grid, factors)  # type: ignore[type-var]

            def slope(centre: float, weight: float, moved: Any = moved, small: float = small) -> list[Term]:
                dates = self._dates if centre == 0 else self.stops(self._paths(moved(centre)))
                return [(sign * weight / (2 * small), moved(centre + sign * small), dates) for sign in (1, -1)]

            # European prices have no noise: their second difference needs no wide move.
            near = [(weight / small**2, moved(by * small)) for by, weight in ((1, 1.0), (0, -2.0), (-1, 1.0))]
            delta = self._combined(slope(0.0, 1.0))
            gamma = self._combined([*slope(wide, 0.5 / wide), *slope(-wide, -0.5 / wide)], near)
            for _ in range(process.n_assets if self.alike else 1):
                yield delta, gamma

    def _vega(self) -> Iterator[tuple[float, float]]:
        """Of all volatilities together; nothing where the market has none."""
        process = self.process
        if hasattr(process, "volatility"):
            names, power = ["volatility"], 1
        elif hasattr(process, "v0"):
            names, power = ["v0", "v_mean"], 2
        else:
            return
        level = float(np.mean(mean_over(getattr(process, names[0]), 0.0, self.grid.maturity) ** (1 / power)))

        def moved(factor: float, shift: float) -> Market:
            changes = {name: _moved(getattr(process, name), factor, shift, power) for name in names}
            return Market(replace(process, **changes), self.grid)  # type: ignore[type-var]

        bump = METHOD.bump
        if level > 0:
            yield self._slope(lambda by: moved(1 + by / level, 0.0), bump * level, jumps=self._jumps)
        else:  # nothing to scale, and volatilities are not negative: a difference to one side, close to zero
            near = bump**2
            yield self._combined([(sign / near, moved(1.0, by), self._dates) for by, sign in ((near, 1), (0.0, -1))])

    def _slope(self, at: Callable[[float], Market], step: float, *, jumps: bool = False) -> tuple[float, float]:
        """Of the price over markets that move, stopping dates held; with wide moves where paths jump."""
        wide = METHOD.wide * step if jumps else step
        terms = [(sign / (2 * wide), at(sign * wide), self._dates) for sign in (1, -1)]
        return self._combined(terms, [(sign / (2 * step), at(sign * step)) for sign in (1, -1)])

    @property
    def _jumps(self) -> bool:
        """Whether paths jump where the law of the variance changes: some draws choose between two values."""
        return getattr(self.process, "scheme", None) == "inverse-gaussian"

    def _combined(self, terms: list[Term], known: list[tuple[float, Market]] | None = None) -> tuple[float, float]:
        """A weighted sum of prices; the same of European prices may be made of other markets, where that is better."""
        flows, held = np.zeros((2, len(self._now)))
        for weight, market, dates in terms:
            now, last = self._flows(market, dates)
            flows += weight * now
            held += weight * last
        known = [(weight, market) for weight, market, _ in terms] if known is None else known
        exact = sum(weight * self._today(market) for weight, market in known)
        if self.european is not None:
            return self.mean(without_noise(flows, held - exact))
        mean, error = self.mean(flows)
        return mean + exact, error

    def _paths(self, market: Market) -> PathData:
        if market.factors is None or self.rescaled is None:
            return self.paths(market.process, market.grid)
        return self.rescaled(self._now, market.factors, market.grid)

    def _flows(self, market: Market, dates: Array) -> tuple[Floats, Floats]:
        """Cash flows (paths,) at these dates, less the European value at the stop; and those at maturity."""
        data, base = self._paths(market), self._base(market)
        flows = data.payoffs[np.arange(len(data)), dates].copy()
        if base is not None:
            for date in np.unique(dates):
                there = dates == date
                flows[there] -= base(data.prices[there, date], int(date))
        return flows, data.payoffs[:, -1]

    def _base(self, market: Market) -> BaseValue | None:
        return None if self.base is None else self.base(market.process, market.grid)

    def _today(self, market: Market) -> float:
        """The European price today, where it is known."""
        if self.european is not None:
            return self.european(market.process, grid=market.grid)
        base = self._base(market)
        return 0.0 if base is None else float(base(market.process.start(1).prices, 0)[0])

    def _with_rates(self, by: float) -> Market:
        """All rates higher by a number."""
        grid = TimeGrid.from_times(self.grid.times, rate=self.grid.rates + by)
        factors = None if self.rescaled is None else np.exp(by * grid.times)[:, None]
        return Market(self.process, grid, factors)

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

    @cached_property
    def _now(self) -> PathData:
        return self.paths(self.process, self.grid)

    @cached_property
    def _dates(self) -> Array:
        return self.stops(self._now)


def _moved(value: Any, factor: float, shift: float, power: int) -> Any:
    """A setting, one number, one per asset or a curve, whose root is multiplied and shifted."""
    if isinstance(value, TermStructure):
        return TermStructure(value.times, _moved(value.values, factor, shift, power))
    moved = (factor * np.asarray(value) ** (1 / power) + shift) ** power
    return float(moved) if moved.ndim == 0 else moved
