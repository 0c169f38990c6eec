r"""European values without simulation: a closed form for Black-Scholes, Fourier integrals for Heston and rough Heston.

With the characteristic function of the log-price relative to the forward F,

.. math:: \varphi(z) = \operatorname{E} \exp(i z \log (S_T / F)), \qquad
    \text{call} = D \Big( F - \frac{\sqrt{F K}}{\pi} \int_0^\infty
    \operatorname{Re} \frac{e^{i u \log(F / K)} \varphi(u - i / 2)}{u^2 + 1/4}\,du \Big)

(Lewis 2001; D the discount factor). Both models have ``log phi = k v_mean int h + v0 int F(h)``, where h solves the
Riccati equation

.. math:: D^\alpha h = F(h) = -\tfrac12 (z^2 + i z) + (i \rho \sigma z - k) h + \tfrac12 \sigma^2 h^2

of order alpha = H + 1/2 (El Euch and Rosenbaum 2019). For the classical model, H = 1/2, it is solved in closed form,
written so that a small volatility of the variance loses no digits. For the rough one it is solved by the product
trapezoid rule on times that crowd at zero, where h behaves like a power of time. The rule is implicit, and each step a
quadratic equation that is solved exactly. Two step numbers are extrapolated; prices have about seven digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from mixtune._array import Array, Floats, match, to_numpy
from mixtune.errors import ParameterError
from mixtune.options._heston import LAW, VarianceProcess
from mixtune.options._payoffs import PAYOFFS, Call, GeometricBasketPut, Payoff, PayoffFunction, Put
from mixtune.options._process import mean_over, per_asset
from mixtune.options._settings import TimeGrid
from mixtune.options.processes import BlackScholes, Heston, Process, RoughHeston

#: Steps of the rough Riccati equation; a second solution with half of them is used for the extrapolation.
RICCATI_STEPS = 256
#: Nodes of the Fourier integral, equally spaced in t where u = exp(pi/2 sinh t) / (volatility sqrt(maturity)).
#: Prices and variances that move nearly together make it decay slowly; the rough equation is costly for every node.
NODES, ROUGH_NODES, RANGE = 1001, 201, (-4.2, 2.8)
#: Models whose discounted prices, with dividends, are martingales.
MARTINGALES = (BlackScholes, Heston, RoughHeston)
#: Discounted European values (paths,) from prices (paths, assets) and a date.
BaseValue = Callable[[Array, int], Array]


def european(process: Process, payoff: Payoff, grid: TimeGrid) -> float:
    """The exact price of a European call or put that pays at the last date of ``grid``.

    Parameters
    ----------
    process
        Black-Scholes, Heston or rough Heston, with one asset and without cash dividends. The scheme and its steps do
        not matter.
    payoff
        A call or a put.
    grid
        Maturity and rates.

    Examples
    --------
    >>> from mixtune.options import Heston, Put, RoughHeston, TimeGrid
    >>> law = dict(spot=100, v0=0.04, v_mean=0.04, v_speed=0.3, v_vol=0.3, rho=-0.7)
    >>> grid = TimeGrid(maturity=1, dates=1)
    >>> round(european(Heston(**law), Put(100), grid), 6)
    7.205958
    >>> round(european(RoughHeston(**law, hurst=0.1), Put(100), grid), 4)
    6.9239
    """
    if not isinstance(payoff, Call | Put) or process.n_assets != 1:
        raise ParameterError("exact European prices are known for calls and puts on one asset; simulate the others")
    return float(vanilla(process, np.array([payoff.strike]), payoff.sign, grid)[0])


def vanilla(process: Process, strikes: Floats, sign: int, grid: TimeGrid) -> Floats:
    """Prices of European calls (sign 1) or puts (sign -1) on the asset of a process, one per strike."""
    if not isinstance(process, BlackScholes | VarianceProcess):
        raise ParameterError(f"{type(process).__name__} has no European prices without simulation")
    if process.cash_dividends:
        raise ParameterError("there is no European price without simulation where cash dividends are paid")
    strikes, forward = np.asarray(strikes, dtype=np.float64), forward_price(process, grid)
    if isinstance(process, BlackScholes):
        calls = black_call(forward, strikes, float(process.total_volatility(0.0, grid.maturity)[0]))
    else:
        calls = _fourier_call(process, forward, strikes, grid.maturity)
    return grid.discount[-1] * of_kind(sign, calls, forward, strikes)


def forward_price(process: BlackScholes | VarianceProcess, grid: TimeGrid) -> float:
    """The mean price of the asset of a process at maturity."""
    dividends = float(mean_over(process.dividend, 0.0, grid.maturity)[0]) * grid.maturity
    return float(np.asarray(process.spot)[0]) * math.exp(-dividends - math.log(grid.discount[-1]))


def of_kind(sign: int, calls: Floats, forward: Any, strikes: Any) -> Floats:
    """Calls as they are (sign 1), or as puts by their parity (sign -1); never below the value without deviation."""
    found = calls if sign > 0 else calls - forward + strikes
    return np.maximum(found, np.maximum(sign * (forward - strikes), 0.0))


def black_call(forward: Any, strikes: Any, deviation: Any) -> Floats:
    """Call on a lognormal variable with this mean and this standard deviation of the logarithm, not discounted."""
    # Without deviation the limit is the payoff. A strike of zero is always exceeded.
    deviation = np.maximum(deviation, 1e-150)
    with np.errstate(divide="ignore", over="ignore"):
        d1 = np.log(forward / strikes) / deviation + 0.5 * deviation
    return forward * ndtr(d1) - strikes * ndtr(d1 - deviation)


def _fourier_call(process: VarianceProcess, forward: float, strikes: Floats, maturity: float) -> Floats:
    deviation = math.sqrt(float(process.mean_variance(maturity)[0]) * maturity)
    law = [float(per_asset(name, getattr(process, name), 1)[0]) for name in LAW]
    if deviation == 0 or law[3] == 0:
        return black_call(forward, strikes, deviation)
    t, step = np.linspace(*RANGE, ROUGH_NODES if isinstance(process, RoughHeston) else NODES, retstep=True)
    u = np.exp(0.5 * math.pi * np.sinh(t)) / deviation
    weights = step * u * 0.5 * math.pi * np.cosh(t) / (u * u + 0.25)
    if isinstance(process, RoughHeston):
        log_phi = rough_exponent(u - 0.5j, maturity, *law, hurst=process.hurst)
    else:
        log_phi = heston_exponent(u - 0.5j, maturity, *law)
    positive = np.where(strikes > 0, strikes, forward)
    integrals = np.exp(1j * np.outer(np.log(forward / positive), u) + log_phi).real @ weights
    return np.where(strikes > 0, forward - np.sqrt(forward * positive) / math.pi * integrals, forward)


def heston_exponent(z: Any, maturity: float, v0: float, v_mean: float, v_speed: float, v_vol: float, rho: float) -> Any:
    """``log phi(z)`` of the classical model, for v_vol > 0."""
    squared, xi = z * z + 1j * z, v_speed - 1j * rho * v_vol * z
    root = np.sqrt(xi * xi + v_vol**2 * squared)
    total, decay = xi + root, np.exp(-root * maturity)
    # Heston's g, and the root of the Riccati equation that h tends to.
    g, limit = -(v_vol**2) * squared / (total * total), -squared / total
    level = limit * maturity - 2.0 * _log1p(g * (1.0 - decay) / (1.0 - g)) / v_vol**2
    return v_speed * v_mean * level + v0 * limit * (1.0 - decay) / (1.0 - g * decay)


def _log1p(z: Any) -> Any:
    """``log(1 + z)`` with all digits for small complex z, which NumPy's function loses."""
    return 0.5 * np.log1p(z.real * (2.0 + z.real) + z.imag**2) + 1j * np.arctan2(z.imag, 1.0 + z.real)


def rough_exponent(z: Any, maturity: float, *law: float, hurst: float, steps: int = RICCATI_STEPS) -> Any:
    """``log phi(z)`` of the rough model, extrapolated from two numbers of steps: the rule is of second order."""
    coarse, fine = (_riccati(z, maturity, *law, hurst=hurst, steps=n) for n in (steps // 2, steps))
    return (4.0 * fine - coarse) / 3.0


def _riccati(z: Any, maturity: float, *law: float, hurst: float, steps: int) -> Any:
    """``log phi(z)`` with so many steps of the rule."""
    v0, v_mean, v_speed, v_vol, rho = law
    alpha = hurst + 0.5
    times = maturity * (np.arange(steps + 1) / steps) ** (2.0 / alpha)
    lengths = np.diff(times)
    constant, linear, square = -0.5 * (z * z + 1j * z), 1j * rho * v_vol * z - v_speed, 0.5 * v_vol**2
    h, F = np.zeros((2, steps + 1, z.size), dtype=complex)
    F[0] = constant
    for n in range(1, steps + 1):
        weights = _product_weights(times[: n + 1], lengths[:n], alpha)
        known, last = weights[:-1] @ F[:n], weights[-1]
        # h = known + last F(h), a quadratic equation; the root that tends to known as the step shrinks.
        b, c = 1.0 - last * linear, known + last * constant
        h[n] = 2.0 * c / (b + np.sqrt(b * b - 4.0 * last * square * c))
        F[n] = constant + h[n] * (linear + square * h[n])
    trapezoid = 0.5 * (np.append(lengths, 0.0) + np.append(0.0, lengths))
    return v_speed * v_mean * (trapezoid @ h) + v0 * (trapezoid @ F)


def _product_weights(times: Floats, lengths: Floats, alpha: float) -> Floats:
    """Weights of a function's values that integrate it, piecewise linear, against the kernel up to the last time."""
    lag = times[-1] - times
    powers, higher = lag**alpha / alpha, lag ** (alpha + 1) / (alpha + 1)
    mass = powers[:-1] - powers[1:]
    right = (lag[:-1] * mass - (higher[:-1] - higher[1:])) / lengths
    return (np.append(mass - right, 0.0) + np.append(0.0, right)) / math.gamma(alpha)


# --- at every date ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EuropeanValue:
    """The value of an option without early exercise at every date, discounted to time 0: lognormal underlying.

    Attributes
    ----------
    payoff : Put, Call or GeometricBasketPut
    variance : array (dates + 1,)
        Of the logarithm of the underlying from each date to maturity.
    growth : array (dates + 1,)
        Factor from the underlying at each date to its mean at maturity.
    discount : float
        Of maturity.
    """

    payoff: Any
    variance: Floats
    growth: Floats
    discount: float

    def __call__(self, prices: Array, date: int) -> Array:
        """Values (paths,) at prices (paths, assets)."""
        forward = to_numpy(self.payoff.underlying(prices)) * self.growth[date]
        calls = black_call(forward, self.payoff.strike, math.sqrt(self.variance[date]))
        return match(self.discount * of_kind(self.payoff.sign, calls, forward, self.payoff.strike), prices)


def european_value(process: Process, payoff: PayoffFunction, grid: TimeGrid) -> EuropeanValue | None:
    """The closed form, where there is one.

    Examples
    --------
    >>> market, grid = BlackScholes(spot=100, volatility=0.2), TimeGrid(maturity=1, dates=4, rate=0.05)
    >>> european_value(market, Put(100), grid)(np.array([[100.0]]), 0).round(4)
    array([5.5735])
    """
    if type(process) is not BlackScholes or process.cash_dividends:
        return None
    if type(payoff) not in (Put, Call, GeometricBasketPut):
        return None
    variance, drift = np.zeros((2, grid.n_dates + 1))
    for date, time in enumerate(grid.times[:-1].tolist()):
        # The logarithm of the geometric mean is the mean of the logarithms; of one asset it is its own.
        covariance = process.covariance(time, grid.maturity)
        variance[date] = covariance.mean()
        dividends = mean_over(process.dividend, time, grid.maturity) * (grid.maturity - time)
        drift[date] = 0.5 * variance[date] - float(np.mean(dividends + 0.5 * np.diag(covariance)))
    rates = grid.discount / grid.discount[-1]
    return EuropeanValue(payoff, variance, rates * np.exp(drift), float(grid.discount[-1]))


def known_european(process: Process, payoff: PayoffFunction, grid: TimeGrid) -> float | None:
    """The price without early exercise where it is known today, and no closed form is known at later dates."""
    if not isinstance(process, VarianceProcess) or process.n_assets > 1 or mean_growth(process, grid) is None:
        return None
    return european(process, payoff, grid) if isinstance(payoff, Put | Call) else None


def mean_growth(process: Process, grid: TimeGrid) -> Floats | None:
    """Factors (dates, assets) from prices at each date to their means at the next; None where they are not exact.

    Examples
    --------
    >>> market, grid = BlackScholes(spot=100, volatility=0.2, dividend=0.02), TimeGrid(maturity=1, dates=2, rate=0.05)
    >>> mean_growth(market, grid).round(4).tolist()
    [[1.0151], [1.0151]]
    """
    if type(process) not in MARTINGALES or process.cash_dividends or getattr(process, "scheme", None) == "paper":
        return None
    ends = zip(grid.times[:-1].tolist(), grid.times[1:].tolist())
    dividends = np.stack([mean_over(process.dividend, *interval) for interval in ends])
    return np.exp((grid.rates[:, None] - dividends) * grid.steps[:, None])


def never_exercised(process: Process, payoff: PayoffFunction, grid: TimeGrid) -> bool:
    """Whether holding to maturity is certain to be the best (Merton 1973).

    Payoffs are convex: the mean of what a later date pays is at least the payoff of the mean prices. For calls without
    dividends at rates that are not negative, and for puts at rates that are not positive, that is at least the payoff
    now. Cash dividends make waiting with a put even better.

    Examples
    --------
    >>> market, year = BlackScholes(spot=100, volatility=0.2), TimeGrid(maturity=1, dates=5, rate=0.02)
    >>> never_exercised(market, Call(100), year), never_exercised(market, Put(100), year)
    (True, False)
    """
    known = type(process) in MARTINGALES and getattr(process, "scheme", None) != "paper"
    if not known or type(payoff) not in PAYOFFS.values() or (process.cash_dividends and payoff.sign > 0):  # type: ignore[attr-defined]
        return False
    dividends, sign = np.asarray(process.dividend), payoff.sign  # type: ignore[attr-defined]
    return bool(np.all(sign * dividends <= 0) and np.all(sign * grid.rates >= 0))
