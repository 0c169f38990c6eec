"""``python -m benchmarks prices``: prices at default settings against references that others made.

References are closed forms, QuantLib's finite differences and analytic engines, published tables, and for rough Heston
the Fourier price of :func:`mixtune_options.european` (which the tests hold against QuantLib at H = 1/2, and against the
Adams method). Where early exercise is worth nothing (calls without dividends at positive rates, puts at rates that are
not positive) the European price is the price of the American option, whatever the number of dates.

Each case is judged three times:

- the truth lies between the lower and the upper bound, each widened to its 99% interval (and by 0.002% of the price,
  since controlled prices may be more exact than their reference);
- the price is off by at most 0.2% beyond its 99% interval;
- delta, gamma, vega, theta and rho are within 3 standard errors of the exact ones. These are differences of the
  reference, extrapolated from two widths; what the extrapolation changes is an estimate of their own error, which is
  allowed for, and so is rounding.

Published values by simulation have errors of their own, half the width of their 95% interval; it is allowed for.
"""

from __future__ import annotations

import csv
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from scipy.integrate import quad
from scipy.special import ndtr

from mixtune.errors import MixtuneError, ParameterError
from mixtune_options import (
    BlackScholes,
    Call,
    GeometricBasketPut,
    Heston,
    MaxCall,
    Process,
    Put,
    RoughHeston,
    TermStructure,
    TimeGrid,
    european,
    price,
)

#: Two-sided 99% of the normal law, the bias accepted beyond it, and the standard errors accepted for Greeks.
NORMAL_99, ACCEPTED, GREEK_ERRORS = 2.5758, 0.002, 3.0
#: By how much references are off themselves, as a share of the price: finite differences and rounded tables.
REFERENCE_ERROR = 2e-5
#: Relative error of exact Greeks by rounding.
ROUNDING = 2e-5
DAYS, MOST_DAYS = 365, 60_000
GREEKS = ("delta", "gamma", "vega", "theta", "rho")

TEXTS = ("group", "name", "source")


@dataclass(frozen=True, eq=False)
class Case:
    """An option with a reference.

    Attributes
    ----------
    reference : callable
        From the dates and the process (so that both can be moved) to the exact price; made only when the case is run.
    source : str
        Whose price that is.
    greeks : tuple of str
        Which Greeks are compared too.
    error : float
        Of the reference, where it is a simulation.
    """

    group: str
    name: str
    process: Process
    payoff: Any
    grid: TimeGrid
    reference: Callable[[TimeGrid, Any], float]
    source: str
    greeks: tuple[str, ...] = ()
    error: float = 0.0

    @property
    def runs_here(self) -> bool:
        return "QuantLib" not in self.source or importlib.util.find_spec("QuantLib") is not None


@dataclass(frozen=True)
class Comparison:
    """A Greek with its standard error, the exact one, and the error of that."""

    value: float
    error: float
    exact: float
    exact_error: float

    @property
    def right(self) -> bool:
        slack = self.exact_error + ROUNDING * abs(self.exact) + 1e-9
        return abs(self.value - self.exact) <= GREEK_ERRORS * self.error + slack


@dataclass(frozen=True)
class Result:
    """What one case gave; empty where there is none."""

    group: str
    name: str
    source: str
    exact: float
    price: float
    standard_error: float
    upper: float
    upper_error: float
    bias: float | None
    reference_error: float
    seconds: float
    greeks: Mapping[str, Comparison] = field(default_factory=dict)

    @property
    def bracketed(self) -> bool:
        """Whether the bounds, with their 99% intervals, hold the truth."""
        low, slack = self.price - NORMAL_99 * self.standard_error, self._slack
        return low - slack <= self.exact <= self.upper + NORMAL_99 * self.upper_error + slack

    @property
    def excess(self) -> float:
        """How far the price is from the truth beyond its 99% interval, as a share of the truth."""
        beyond = abs(self.price - self.exact) - NORMAL_99 * self.standard_error - self.reference_error
        return max(beyond, 0.0) / self.exact

    @property
    def _slack(self) -> float:
        return REFERENCE_ERROR * self.exact + self.reference_error + 1e-9

    @property
    def right(self) -> bool:
        return self.excess <= ACCEPTED

    @property
    def holds(self) -> bool:
        return self.bracketed and self.right and all(greek.right for greek in self.greeks.values())


# --- references -------------------------------------------------------------------------------------------------------


def exact_european(payoff: Any, grid: TimeGrid, process: Any) -> float:
    """For options that are never exercised early."""
    return european(process, payoff, grid)


def quantlib_price(payoff: Any, grid: TimeGrid, process: Any) -> float:
    """A Bermudan option on one asset by finite differences; a European Heston option by integration.

    A rough Heston model must have H = 1/2, where it is the classical one. QuantLib knows whole days only: time runs
    faster by a multiple of 8, so that dates may move by an eighth of a day.
    """
    import QuantLib as ql

    today, count = ql.Date(1, 1, 2024), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    spot = ql.QuoteHandle(ql.SimpleQuote(float(process.spot[0])))
    pace = 8 * (MOST_DAYS // round(8 * DAYS * grid.maturity))
    levels = (float(process.dividend[0]) / pace, float(grid.rates[0]) / pace)
    dividend, rate = (ql.YieldTermStructureHandle(ql.FlatForward(today, level, count)) for level in levels)
    days = [round(DAYS * pace * t) for t in grid.times[1:]]
    exercise: Any = ql.EuropeanExercise(today + days[0])
    if len(days) > 1:
        exercise = ql.BermudanExercise([today + day for day in days])
    kind = ql.Option.Put if isinstance(payoff, Put) else ql.Option.Call
    option = ql.VanillaOption(ql.PlainVanillaPayoff(kind, payoff.strike), exercise)
    if isinstance(process, Heston | RoughHeston):
        law = (*(getattr(process, name) / pace for name in ("v0", "v_speed", "v_mean", "v_vol")), process.rho)
        model = ql.HestonModel(ql.HestonProcess(rate, dividend, spot, *law))
        fine = ql.FdHestonVanillaEngine(model, max(200, 4 * len(days)), 400, 120)
        option.setPricingEngine(fine if len(days) > 1 else ql.AnalyticHestonEngine(model, 1e-10, 100_000))
        return float(option.NPV())
    flat = ql.BlackConstantVol(today, ql.NullCalendar(), float(process.volatility[0]) / math.sqrt(pace), count)
    market = ql.BlackScholesMertonProcess(spot, dividend, rate, ql.BlackVolTermStructureHandle(flat))
    paid = [
        ql.FixedDividend(float(cash[0]), today + round(DAYS * pace * when)) for when, cash in process.cash_dividends
    ]
    how = (1000, 1000, 0, ql.FdmSchemeDesc.Douglas(), False, -math.inf, ql.FdBlackScholesVanillaEngine.Spot)
    option.setPricingEngine(ql.FdBlackScholesVanillaEngine(market, ql.DividendSchedule(paid), *how))
    return float(option.NPV())


def geometric_put(strike: float, grid: TimeGrid, process: Any) -> float:
    """The geometric mean of independent lognormal prices is lognormal: a put on one asset, by finite differences."""
    volatility, n = float(process.volatility[0]), process.n_assets
    drag = 0.5 * volatility**2 * (1.0 - 1.0 / n)
    mean = float(np.exp(np.log(process.spot).mean()))
    one = BlackScholes(spot=mean, volatility=volatility / math.sqrt(n), dividend=float(process.dividend[0]) + drag)
    return quantlib_price(Put(strike), grid, one)


def largest_call(strike: float, grid: TimeGrid, process: Any) -> float:
    """A European call on the largest of independent lognormal prices of the same law, by one integral."""
    volatility, spot, n = float(process.volatility[0]), float(process.spot[0]), process.n_assets
    deviation = volatility * math.sqrt(grid.maturity)
    centre = math.log(spot) - math.log(grid.discount[-1]) - 0.5 * deviation**2

    def tail(x: float) -> float:
        return math.exp(x) * float(-np.expm1(n * np.log(ndtr((x - centre) / deviation))))

    integral = quad(tail, math.log(strike), centre + 12 * deviation, epsabs=1e-10, limit=200)[0]
    return float(grid.discount[-1]) * integral


def published(value: float, grid: TimeGrid, process: Any) -> float:
    return value


# --- cases ------------------------------------------------------------------------------------------------------------

#: Classical Heston: name, parameters. The Feller ratio 2 k v_mean / sigma^2 is in the name.
HESTON = {
    "Feller 1.8": {"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7},
    "Feller 4": {"v0": 0.01, "v_mean": 0.04, "v_speed": 4.5, "v_vol": 0.3, "rho": -0.5},
    "Feller 0.33": {"v0": 0.09, "v_mean": 0.04, "v_speed": 1.5, "v_vol": 0.6, "rho": -0.8},
    "Feller 0.63": {"v0": 0.010201, "v_mean": 0.019, "v_speed": 6.21, "v_vol": 0.61, "rho": -0.7},
    "Feller 0.04": {"v0": 0.04, "v_mean": 0.04, "v_speed": 0.5, "v_vol": 1.0, "rho": -0.9},
    "positive rho": {"v0": 0.0625, "v_mean": 0.16, "v_speed": 5.0, "v_vol": 0.9, "rho": 0.4},
    "hardly any noise": {"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 1e-8, "rho": -0.7},
}
ROUGH = {"v0": 0.04, "v_mean": 0.04, "v_speed": 0.3, "v_vol": 0.3, "rho": -0.7}
#: Bermudan max-calls on independent assets (volatility 0.2, dividend 0.1, rate 0.05, 3 years, 9 dates, strike 100): the
#: price, and half the width of its 95% interval. Table 1 of Becker, Cheridito and Jentzen, *Deep optimal stopping*,
#: JMLR 20 (2019), https://jmlr.org/papers/v20/18-232.html, compared with the copy of it in the code of Herrera et al.,
#: https://github.com/HeKrRuTe/OptStopRandNN. For two and three assets the table cites binomial trees; for five the
#: interval of Andersen and Broadie (2004), whose middle is taken.
MAX_CALLS = [
    (2, 90, 8.075, 0.0, "tree"),
    (2, 100, 13.902, 0.0, "tree"),
    (2, 110, 21.345, 0.0, "tree"),
    (3, 90, 11.29, 0.005, "tree"),
    (3, 100, 18.69, 0.005, "tree"),
    (3, 110, 27.58, 0.005, "tree"),
    (5, 90, 16.637, 0.017, "Andersen and Broadie 2004"),
    (5, 100, 26.140, 0.025, "Andersen and Broadie 2004"),
    (5, 110, 36.754, 0.044, "Andersen and Broadie 2004"),
    (10, 90, 26.240, 0.050, "Becker et al. 2019"),
    (10, 100, 38.337, 0.034, "Becker et al. 2019"),
    (10, 110, 50.886, 0.052, "Becker et al. 2019"),
    (20, 100, 51.668, 0.127, "Becker et al. 2019"),
    (50, 100, 69.736, 0.193, "Becker et al. 2019"),
]


def dates(days: int, count: int, rate: float) -> TimeGrid:
    """Equal intervals in whole days, so that day counts of other libraries agree."""
    length = max(1, round(days / count))
    return TimeGrid.from_times(np.arange(count + 1) * length / DAYS, rate=rate)


def cases() -> list[Case]:
    """All cases, in the order of the table."""
    return [*_black_scholes(), *_heston(), *_rough_heston(), *_several_assets()]


def _one(group: str, name: str, process: Process, payoff: Any, grid: TimeGrid, reference: Any, source: str) -> Case:
    return Case(group, name, process, payoff, grid, partial(reference, payoff), source, GREEKS)


def _black_scholes() -> Iterator[Case]:
    for days, count, spot, rate, dividend, volatility in (
        (10, 10, 102, 0.05, 0.0, 0.1),
        (30, 10, 100, 0.03, 0.0, 0.3),
        (365, 50, 100, 0.06, 0.0, 0.2),
        (365, 10, 90, 0.05, 0.02, 0.4),
        (1095, 10, 110, 0.05, 0.1, 0.2),
        (3650, 50, 100, 0.02, 0.0, 0.25),
        (365, 12, 100, -0.01, 0.0, 0.2),
    ):
        grid, market = dates(days, count, rate), BlackScholes(spot=spot, volatility=volatility, dividend=dividend)
        name = f"put, spot {spot}, {days} days, {count} dates, rate {rate:g}, dividend {dividend:g}, vol {volatility:g}"
        yield _one("Black-Scholes", name, market, Put(100), grid, quantlib_price, "QuantLib finite differences")
    call = BlackScholes(spot=100, volatility=0.2, dividend=0.08)
    name = "call, spot 100, 730 days, 10 dates, rate 0.03, dividend 0.08, vol 0.2"
    yield _one(
        "Black-Scholes", name, call, Call(100), dates(730, 10, 0.03), quantlib_price, "QuantLib finite differences"
    )
    for kind, payoff in (("put", Put(100)), ("call", Call(100))):
        paid = BlackScholes(spot=100, volatility=0.25, cash_dividends=[(91 / DAYS, 3.0), (273 / DAYS, 3.0)])
        name = f"{kind}, cash dividends of 3 after 91 and 273 days, 365 days, 5 dates, rate 0.05"
        grid = TimeGrid.from_times(np.arange(6) * 73 / DAYS, rate=0.05)
        yield _one("Black-Scholes", name, paid, payoff, grid, quantlib_price, "QuantLib finite differences")
    curve = BlackScholes(spot=100, volatility=TermStructure([0.25, 1.0, 2.0], [0.4, 0.2, 0.3]))
    name = "call, volatility 0.4, 0.2, 0.3 until 0.25, 1, 2 years, 20 dates, rate 0.03"
    yield _one("Black-Scholes", name, curve, Call(105), dates(730, 20, 0.03), exact_european, "Black's formula")


def _heston() -> Iterator[Case]:
    for law_name, law in HESTON.items():
        for days, rate in ((10, 0.03), (365, 0.03), (3650, 0.0)):
            grid = dates(days, 1, rate)
            yield _one(
                "Heston, one date",
                f"put, {law_name}, {days} days, rate {rate:g}",
                Heston(spot=100, **law),
                Put(100),
                grid,
                exact_european if law["v_vol"] < 1e-6 else quantlib_price,
                "Black's formula" if law["v_vol"] < 1e-6 else "QuantLib Fourier",
            )
    for law_name, days, count, rate in (
        ("Feller 1.8", 365, 10, 0.05),
        ("Feller 1.8", 1825, 50, 0.03),
        ("Feller 4", 180, 12, 0.04),
        ("Feller 0.33", 365, 10, 0.03),
        ("positive rho", 365, 10, 0.1),
        ("Feller 0.63", 365, 50, 0.0319),
        ("Feller 0.33", 1095, 10, 0.04),
    ):
        yield _one(
            "Heston, Bermudan",
            f"put, {law_name}, {days} days, {count} dates, rate {rate:g}",
            Heston(spot=100, **HESTON[law_name]),
            Put(100),
            dates(days, count, rate),
            quantlib_price,
            "QuantLib finite differences",
        )
    for law_name, days, count, rate in (("Feller 0.04", 3650, 10, -0.01), ("Feller 0.33", 1095, 50, -0.005)):
        grid = dates(days, count, rate)
        name = f"put, {law_name}, {days} days, {count} dates, rate {rate:g}, never exercised early"
        market = Heston(spot=100, **HESTON[law_name])
        yield _one("Heston, Bermudan", name, market, Put(100), grid, exact_european, "Fourier")


def _rough_heston() -> Iterator[Case]:
    for hurst in (0.05, 0.1, 0.2, 0.4):
        for days, count, rate, payoff, v_vol in (
            (10, 1, 0.0, Put(100), 0.3),
            (365, 1, 0.03, Put(100), 0.4),
            (3650, 1, 0.0, Put(90), 0.3),
            (365, 10, 0.0, Put(100), 0.3),
            (730, 50, 0.03, Call(110), 0.3),
        ):
            kind = "put" if isinstance(payoff, Put) else "call"
            name = f"{kind}, H {hurst:g}, strike {payoff.strike:g}, {days} days, {count} dates, rate {rate:g}"
            name += f", sigma {v_vol:g}"
            market = RoughHeston(spot=100, **{**ROUGH, "v_vol": v_vol}, hurst=hurst)
            yield _one("rough Heston", name, market, payoff, dates(days, count, rate), exact_european, "Fourier")

    for law_name, rate in (("Feller 1.8", 0.05), ("Feller 0.33", 0.03)):
        grid, market = dates(365, 10, rate), RoughHeston(spot=100, **HESTON[law_name], hurst=0.5)
        name = f"put, H 0.5, {law_name}, 365 days, 10 dates, rate {rate:g}"
        yield _one("rough Heston", name, market, Put(100), grid, quantlib_price, "QuantLib finite differences")


def _several_assets() -> Iterator[Case]:
    grid = TimeGrid(maturity=3.0, dates=9, rate=0.05)
    for n, spot, value, error, source in MAX_CALLS:
        market = BlackScholes(spot=spot, volatility=0.2, dividend=0.1, n_assets=n)
        name = f"max-call, {n} assets, spot {spot}"
        reference = partial(published, value)
        yield Case("several assets", name, market, MaxCall(100), grid, reference, source, error=error)
    for n in (10, 50):
        market = BlackScholes(spot=100, volatility=0.2, n_assets=n)
        year = TimeGrid(maturity=1.0, dates=5, rate=0.02)
        name = f"max-call, {n} assets, no dividends, never exercised early"
        exact = partial(largest_call, 100.0)
        yield Case("several assets", name, market, MaxCall(100), year, exact, "integral", ("vega", "theta", "rho"))
    for n in (5, 20, 50):
        market = BlackScholes(spot=100, volatility=0.4, n_assets=n)
        year = dates(365, 10, 0.06)
        name = f"geometric put, {n} assets"
        source = "QuantLib finite differences"
        exact = partial(geometric_put, 100.0)
        yield Case("several assets", name, market, GeometricBasketPut(100), year, exact, source, GREEKS)


# --- running ----------------------------------------------------------------------------------------------------------


def run_case(case: Case, *, seed: int = 0, **settings: Any) -> Result:
    """Price one case, at default settings unless told otherwise."""
    exact = case.reference(case.grid, case.process)
    begin = time.perf_counter()
    found = price(case.process, case.payoff, case.grid, seed=seed, upper=True, greeks=bool(case.greeks), **settings)
    seconds = time.perf_counter() - begin
    assert found.upper is not None
    bias = None if found.bias is None else found.bias.relative
    numbers = (exact, found.price, found.standard_error, found.upper.price, found.upper.standard_error, bias)
    greeks = {}
    for name in case.greeks:
        own = found.greeks[name]
        greeks[name] = Comparison(float(own.value[0]), float(own.standard_error[0]), *exact_greek(case, name))
    return Result(case.group, case.name, case.source, *numbers, case.error, round(seconds, 2), greeks)


def exact_greek(case: Case, name: str) -> tuple[float, float]:
    """A central difference of the reference, extrapolated from two widths, and an estimate of its error."""
    at, width = moved_by(case, name)

    def difference(by: float) -> float:
        up, down = case.reference(*at(by)), case.reference(*at(-by))
        if name == "gamma":
            return (up - 2 * case.reference(case.grid, case.process) + down) / by**2
        return (up - down) / (2 * by)

    wide, narrow = difference(width), difference(width / 2)
    best = (4 * narrow - wide) / 3
    return best, abs(best - narrow)


def moved_by(case: Case, name: str) -> tuple[Callable[[float], tuple[TimeGrid, Any]], float]:
    """Dates and market moved by a number, as the library defines the Greek, and a number to move them by."""
    process, grid = cast(Any, case.process), case.grid
    level = volatility_level(process, grid)
    first, maturity = float(grid.times[1]), grid.maturity
    if name in ("delta", "gamma"):
        spot, unit = np.asarray(process.spot, dtype=np.float64), np.arange(process.n_assets) == 0
        spread = float(spot[0]) * level * min(math.sqrt(maturity) / 10, math.sqrt(first) / 4)
        return lambda by: (grid, replace(process, spot=spot + by * unit)), spread * (2 if name == "gamma" else 1)
    if name == "theta":  # the dates come closer
        times, rate = grid.times[1:], grid.rates
        return lambda by: (TimeGrid.from_times([0.0, *(times - by)], rate=rate), process.delayed(-by)), first / 4
    if name == "rho":
        return lambda by: (TimeGrid.from_times(grid.times, rate=grid.rates + by), process), 2e-3
    if hasattr(process, "volatility"):  # a curve moves by a factor; vega is per unit of its mean
        return lambda by: (grid, replace(process, volatility=process.volatility * (1 + by / level))), 0.04 * level

    def scaled(by: float) -> tuple[TimeGrid, Any]:
        square = (1 + by / level) ** 2
        return grid, replace(process, v0=process.v0 * square, v_mean=process.v_mean * square)

    return scaled, 0.04 * level


def volatility_level(process: Any, grid: TimeGrid) -> float:
    """The mean volatility, or that of today where it is random."""
    if not hasattr(process, "volatility"):
        return math.sqrt(process.v0)
    curve = process.volatility
    is_curve = isinstance(curve, TermStructure)
    return float(np.mean(curve.integral(0.0, grid.maturity) / grid.maturity if is_curve else curve))


def read_results(path: Path) -> dict[tuple[str, str], Result]:
    """The results in a file, by group and name."""
    found = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            texts = {name: row.pop(name) for name in TEXTS}
            greeks = {}
            for name in GREEKS:
                cells = [row.pop(column) for column in greek_columns(name)]
                if all(cells):
                    greeks[name] = Comparison(*map(float, cells))
            numbers: dict[str, Any] = {name: float(value) if value else None for name, value in row.items()}
            found[texts["group"], texts["name"]] = Result(**texts, **numbers, greeks=greeks)
    return found


def greek_columns(name: str) -> list[str]:
    """The columns of a Greek in the file: as the fields of :class:`Comparison`."""
    return [name, f"{name}_error", f"exact_{name}", f"exact_{name}_error"]


def append_result(path: Path, result: Result) -> None:
    """Add a line to the file, which is begun with its head."""
    new, cells = not path.exists(), {each.name: getattr(result, each.name) for each in fields(Result)}
    del cells["greeks"]
    for name in GREEKS:
        own = astuple(result.greeks[name]) if name in result.greeks else (None,) * 4
        cells |= dict(zip(greek_columns(name), own))
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(cells)
        writer.writerow([f"{v:.8g}" if isinstance(v, float) else v for v in cells.values()])


def verdict(result: Result) -> str:
    """What of a case does not hold, if anything."""
    said = [] if result.bracketed else ["not bracketed"]
    said += [] if result.right else [f"off by {result.excess:.2%}"]
    said += [name for name, greek in result.greeks.items() if not greek.right]
    return ", ".join(said) or "holds"


def line(result: Result) -> str:
    """One case in a line."""
    interval = f"{result.price:.4f} ± {NORMAL_99 * result.standard_error:.4f}"
    said = f"{result.group}: {result.name}: exact {result.exact:.4f}, price {interval}, upper {result.upper:.4f}"
    if result.bias is not None:
        said += f", bias {result.bias:+.3%}"
    for name, own in result.greeks.items():
        said += f", {name} {own.value:.4f} ± {GREEK_ERRORS * own.error:.4f} for {own.exact:.4f}"
    return f"{verdict(result):14}  {said}; {result.seconds:.1f} s"


def summary(results: Sequence[Result]) -> str:
    """One sentence about all cases."""
    counts = [sum(result.bracketed for result in results), sum(result.right for result in results)]
    parts = []
    for name in GREEKS:
        if own := [result.greeks[name].right for result in results if name in result.greeks]:
            parts.append(f"{sum(own)} of {len(own)} {name}s")
    greeks = f"{', '.join(parts)} within {GREEK_ERRORS:g} standard errors" if parts else "no Greeks"
    return (
        f"{len(results)} cases: {counts[0]} within their bounds at 99%, {counts[1]} off by at most {ACCEPTED:.1%} "
        f"beyond the 99% interval, {greeks}"
    )


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def prices(
    out: Annotated[
        Path | None,
        typer.Option(help="CSV file of results, written case by case; what it holds already is not run again."),
    ] = None,
    only: Annotated[str | None, typer.Option(help="Run the cases whose group or name contains this.")] = None,
    paths: Annotated[int | None, typer.Option(help="Paths, instead of the default.", min=100)] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Price options at default settings and compare with references.

    Exit code 0: all cases hold; 1: some do not; 2: the command cannot be used.
    """
    console = Console(highlight=False)
    chosen = [case for case in cases() if only is None or only in f"{case.group}, {case.name}"]
    if not chosen:
        raise ParameterError(f"no case contains {only!r}; leave --only out to run all")
    if out is not None and not out.parent.is_dir():
        raise ParameterError(f"--out: there is no folder {out.parent}; make it first")
    kept = read_results(out) if out is not None and out.exists() else {}
    absent = [case for case in chosen if not case.runs_here]
    settings = {} if paths is None else {"paths": paths}
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Pricing", total=len(chosen) - len(absent))
        for case in chosen:
            if not case.runs_here:
                continue
            progress.update(task, description=escape(f"{case.group}: {case.name}"[:70]))
            result = kept.get((case.group, case.name))
            if result is None or set(result.greeks) < set(case.greeks):  # a later line of the file counts
                result = run_case(case, seed=seed, **settings)
                if out is not None:
                    append_result(out, result)
            results.append(result)
            progress.console.print(escape(line(result)), soft_wrap=True)
            progress.advance(task)
    console.print(summary(results) + ".")
    if absent:
        console.print(f"Left out, since QuantLib is not installed: {len(absent)} cases.")
    if not all(result.holds for result in results):
        raise typer.Exit(1)


def main(arguments: Sequence[str]) -> None:
    """Run the command; a mistake of the user ends with one clear line and exit code 2."""
    try:
        app(list(arguments), prog_name="python -m benchmarks prices")
    except MixtuneError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]Error:[/] {escape(str(error))}")
        sys.exit(2)
