"""Several prices from one call: strikes by maturities on the same paths, and the limit of many exercise dates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from mixtune import checks
from mixtune.errors import ParameterError
from mixtune_options._arrays import Floats
from mixtune_options._european import steps_bias, steps_for_all
from mixtune_options._paths import PathData
from mixtune_options._payoffs import CustomPayoff, PathPayoff, Payoff, PayoffFunction
from mixtune_options._pricer import Estimate, PriceResult, PricingRun, check_grid, check_parts, price, resolve_settings
from mixtune_options._process import Process
from mixtune_options._settings import PriceSettings, TimeGrid, numbers


@dataclass(frozen=True, eq=False)
class PriceGrid:
    """Prices by strike and maturity.

    Attributes
    ----------
    strikes : array (strikes,)
    maturities : array (maturities,)
    results : tuple of tuple of PriceResult
        By strike, then by maturity.
    """

    strikes: Floats
    maturities: Floats
    results: tuple[tuple[PriceResult, ...], ...]

    @property
    def prices(self) -> Floats:
        """Lower bounds (strikes, maturities)."""
        return np.array([[result.price for result in row] for row in self.results])

    @property
    def standard_errors(self) -> Floats:
        """Of the prices, (strikes, maturities)."""
        return np.array([[result.standard_error for result in row] for row in self.results])

    def as_rows(self) -> list[dict[str, float]]:
        """One row per option, for a table or a data frame; with its upper bound and Greeks where they were computed."""
        return [
            {"strike": strike, "maturity": maturity, **_numbers(result)}
            for strike, row in zip(self.strikes.tolist(), self.results)
            for maturity, result in zip(self.maturities.tolist(), row)
        ]


def _numbers(result: PriceResult) -> dict[str, float]:
    """Price, upper bound and Greeks, each with its standard error; Greeks of several assets are numbered."""
    known = {"price": result.price, "standard_error": result.standard_error}
    known |= {"european": result.european.value, "exercise_time": result.exercise_time}
    found: dict[str, tuple[float, float]] = {}
    if result.upper is not None:
        found["upper_price"] = result.upper.price, result.upper.standard_error
    for name, greek in result.greeks.items():
        pairs = zip(greek.value.tolist(), greek.standard_error.tolist())
        found |= {name if greek.value.size == 1 else f"{name}_{k}": pair for k, pair in enumerate(pairs)}
    for name, (value, error) in found.items():
        known |= {name: value, f"{name}_standard_error": error}
    return known


def price_grid(
    process: Process,
    payoff: Callable[[float], PayoffFunction],
    grid: TimeGrid,
    settings: PriceSettings | None = None,
    *,
    strikes: Sequence[float],
    maturities: Sequence[float] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> PriceGrid:
    """Price options of several strikes and maturities on one simulation.

    Parameters
    ----------
    process : Process
        The market.
    payoff : callable
        From a strike to a payoff, such as the class :class:`Put`.
    grid : TimeGrid
        The exercise dates of the longest maturity; shorter ones use those that come before.
    settings : PriceSettings, optional
        As for :func:`price`, and so are the keywords.
    strikes : sequence of float
    maturities : sequence of float, optional
        Dates of the grid; the last by default.
    progress : callable, optional
        Called with the number of options done and of all.

    Returns
    -------
    PriceGrid

    Examples
    --------
    >>> from mixtune_options import BlackScholes, Put
    >>> market, dates = BlackScholes(spot=100.0, volatility=0.2), TimeGrid(maturity=1.0, dates=4, rate=0.05)
    >>> found = price_grid(market, Put, dates, strikes=[90, 100, 110], maturities=[0.5, 1.0], paths=2000, seed=0)
    >>> found.prices.shape
    (3, 2)
    >>> bool(np.all(np.diff(found.prices, axis=0) > 0))
    True
    """
    settings = resolve_settings(settings, options)
    check_grid("grid", grid)
    wanted = _listed("strikes", strikes, "numbers")
    last = _listed("maturities", [grid.maturity] if maturities is None else maturities, "dates of the grid")
    ends = [_date(grid, maturity) for maturity in last.tolist()]
    if not callable(payoff) or isinstance(payoff, Payoff | CustomPayoff | PathPayoff):
        raise ParameterError(f"payoff must turn a strike into a payoff, as the class Put does; got {payoff!r}")
    payoffs = [payoff(strike) for strike in wanted.tolist()]
    for option in payoffs:
        check_parts(process, option, grid, settings)
    cuts = [TimeGrid.from_times(grid.times[: end + 1], rate=grid.rates[:end]) for end in ends]
    how: dict[str, Any] = {"tolerance": settings.bias_tolerance, "seed": settings.seed}
    rows: list[list[PriceResult]] = [[] for _ in payoffs]
    with threadpool_limits(limits=1):
        # One simulation for all, with steps that are short enough for all: what an option pays is put in afterwards.
        process = steps_for_all(process, [*product(payoffs, cuts)], **how).for_grid(grid)
        shared = PricingRun(process, CustomPayoff(lambda prices: np.zeros(prices.shape[:-1])), grid, settings)
        training, evaluation = shared.paths(settings.device)
        for column, dates in enumerate(cuts):
            for row, option in enumerate(payoffs):
                run = PricingRun(process, option, dates, settings, steps_bias(process, option, dates, **how))
                paths = (_first_dates(data, dates, option) for data in (training, evaluation))
                rows[row].append(run.result(*paths))
                if progress is not None:
                    progress(column * len(payoffs) + row + 1, len(payoffs) * len(ends))
    return PriceGrid(wanted, grid.times[ends], tuple(map(tuple, rows)))


def _listed(name: str, value: ArrayLike, what: str) -> Floats:
    """A list of numbers as an array, with at least one of them."""
    found = numbers(name, value)
    if found.ndim != 1 or not found.size:
        raise ParameterError(f"{name} must be a list of {what}; got {value!r}")
    return found


def _date(grid: TimeGrid, maturity: float) -> int:
    """Index of a maturity among the dates of a grid."""
    near = int(np.argmin(np.abs(grid.times - float(maturity))))
    if near == 0 or not math.isclose(grid.times[near], maturity, rel_tol=1e-9):
        raise ParameterError(
            f"maturity {maturity:g} is not one of the dates of the grid; near it is {grid.times[max(near, 1)]:g}"
        )
    return near


def _first_dates(data: PathData, grid: TimeGrid, payoff: PayoffFunction) -> PathData:
    """The first dates of paths, with the payoffs of an option."""
    points = grid.n_dates + 1
    hidden = None if data.hidden is None else data.hidden[:, :points]
    built = PathData.build(data.name, data.prices[:, :points], grid=grid, payoff=payoff, hidden=hidden)
    return replace(built, noise=None if data.noise is None else data.noise[:, : grid.n_dates])


@dataclass(frozen=True, eq=False)
class AmericanLimit(Estimate):
    """The price with exercise at any time, extrapolated from Bermudan prices.

    Attributes
    ----------
    price, standard_error, ci_low, ci_high : float
        Extrapolated from the two largest numbers of dates.
    change : float
        By how much this differs from the extrapolation one step before, a measure of its error; NaN with two numbers.
    dates : tuple of int
    bermudan : tuple of PriceResult
        One per number of dates.
    """

    change: float
    dates: tuple[int, ...]
    bermudan: tuple[PriceResult, ...]


def american_limit(
    process: Process,
    payoff: PayoffFunction,
    settings: PriceSettings | None = None,
    *,
    maturity: float,
    rate: ArrayLike = 0.0,
    dates: Sequence[int] = (10, 20, 40),
    **options: Any,
) -> AmericanLimit:
    """Extrapolate Bermudan prices in the number of exercise dates to exercise at any time.

    The difference to the limit is proportional to 1/dates in the first order, so that two numbers of dates make an
    extrapolation (Richardson; for options Geske and Johnson, J. Finance 39, 1984). The prices have independent errors.

    Parameters
    ----------
    process, payoff, settings
        As for :func:`price`, and so are the keywords.
    maturity, rate
        As for :class:`TimeGrid`, with one rate.
    dates : sequence of int
        Two or more numbers of dates, increasing.

    Examples
    --------
    >>> from mixtune_options import BlackScholes, Put
    >>> market = BlackScholes(spot=36.0, volatility=0.2)
    >>> limit = american_limit(market, Put(40.0), maturity=1.0, rate=0.06, paths=4000, seed=0)
    >>> bool(abs(limit.price - 4.4865) < 0.01)  # by finite differences
    True
    """
    counts = [checks.check_whole("dates", count, least=1) for count in np.atleast_1d(np.asarray(dates, dtype=object))]
    if len(counts) < 2 or any(after <= before for before, after in pairwise(counts)):
        raise ParameterError(f"dates must be two or more increasing numbers such as (10, 20); got {dates!r}")
    settings = resolve_settings(settings, options)
    streams = np.random.SeedSequence(settings.seed).generate_state(len(counts)).tolist()
    grids = [TimeGrid(maturity=maturity, dates=count, rate=rate) for count in counts]
    found = tuple(price(process, payoff, grid, replace(settings, seed=stream)) for grid, stream in zip(grids, streams))

    def limit(last: int) -> Estimate:
        few, many = counts[last - 1], counts[last]
        ahead, behind = many / (many - few), few / (many - few)
        value = ahead * found[last].price - behind * found[last - 1].price
        error = math.hypot(ahead * found[last].standard_error, behind * found[last - 1].standard_error)
        return Estimate(value, error)

    best = limit(len(counts) - 1)
    change = best.value - limit(len(counts) - 2).value if len(counts) > 2 else math.nan
    return AmericanLimit(best.value, best.standard_error, change, tuple(counts), found)
