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
trapezoid rule on times that are dense near zero, where h behaves like a power of time. The rule is implicit: each step
is a quadratic equation, which is solved exactly. Two numbers of steps are extrapolated; prices have about seven digits.

**The bias of time steps.** A European option is priced in the simulation as well, with the same steps between the
exercise dates. This price differs from the exact one by noise and by the error of the steps. To separate the error from
the noise, paths of the variance alone are drawn from Sobol points. Given the variance, the price is lognormal and the
option has the value of Black's formula, which removes most of the noise. The expected price and the integrated
variance, whose means are known, are control variates. The remaining noise is estimated from independent scramblings.
Where the process chooses its own steps and the bias exceeds the tolerance, the steps are shortened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from mixtune.arrays import to_numpy
from mixtune.errors import ParameterError
from mixtune_options._arrays import Array, Floats, match
from mixtune_options._heston import LAW, Heston, VarianceProcess
from mixtune_options._payoffs import PAYOFFS, Call, GeometricBasketPut, Payoff, PayoffFunction, Put
from mixtune_options._process import BlackScholes, Process, mean_over, normal_blocks, per_asset
from mixtune_options._rough import RoughHeston
from mixtune_options._settings import TimeGrid

#: Steps of the rough Riccati equation; a second solution with half of them is used for the extrapolation.
RICCATI_STEPS = 256
#: Nodes of the Fourier integral, equally spaced in t where u = exp(pi/2 sinh t) / (volatility sqrt(maturity)).
#: Prices and variances that move nearly together make it decay slowly; the rough equation is costly for every node.
NODES, ROUGH_NODES, RANGE = 1001, 201, (-4.2, 2.8)
#: Models whose discounted prices, with dividends, are martingales.
MARTINGALES = (BlackScholes, Heston, RoughHeston)
#: A difference counts as a bias if it exceeds its tolerance by more than this many standard errors.
SURE = 4.0
#: Scramblings and points of each, for paths of the variance alone.
SCRAMBLINGS, POINTS = 8, 4096
#: Sobol points are used up to this many coordinates; with more they are not worth their cost.
MOST_COORDINATES = 2000
#: Where assets differ, at most this many are examined.
MOST_ASSETS = 5
#: How often steps are shortened, each time to a half, before a bias is reported instead.
MOST_HALVINGS = 2
#: Discounted European values (paths,) from prices (paths, assets) and a date.
BaseValue = Callable[[Array, int], Array]
#: Of the expected variance, at which an approximate value is taken.
SHARES_OF_VARIANCE = np.array([1.0, 0.5, 2.0])
#: From samples, one per path, to their mean and its standard error.
Mean = Callable[[Floats], tuple[float, float]]


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
    >>> from mixtune_options import Heston, Put, RoughHeston, TimeGrid
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
    return grid.discount[-1] * calls_or_puts(sign, calls, forward, strikes)


def approximate_value(process: Process, payoff: PayoffFunction, grid: TimeGrid) -> BaseValue | None:
    """Black's formula with the expected variance to maturity, as features where variances are random; else None.

    It takes inputs (paths, k) of one date, prices first and variances last, and gives discounted values (paths, 3): at
    this variance, half of it and twice as much, between which skew and early exercise move the value.
    """
    if not isinstance(payoff, Call | Put) or not isinstance(process, Heston) or process.n_assets != 1:
        return None
    if process.cash_dividends or process.scheme == "paper":
        return None
    sign, strike, discount = payoff.sign, float(payoff.strike), grid.discount
    level, speed = (float(np.squeeze(value)) for value in (process.v_mean, process.v_speed))

    def value(X: Array, date: int) -> Array:
        inputs = to_numpy(X)
        left = grid.maturity - float(grid.times[date])
        span = -math.expm1(-speed * left) / speed if speed > 0 else left
        total = np.maximum(level * (left - span) + span * inputs[:, -1], 0.0)
        dividends = float(mean_over(process.dividend, float(grid.times[date]), grid.maturity)[0]) * left
        forward = np.maximum(inputs[:, 0], 0.0) * math.exp(-dividends) * discount[date] / discount[-1]
        forward, deviation = forward[:, None], np.sqrt(total[:, None] * SHARES_OF_VARIANCE)
        calls = black_call(np.maximum(forward, 1e-300), strike, deviation)
        return match(discount[-1] * calls_or_puts(sign, calls, forward, strike), X)

    return value


def forward_price(process: BlackScholes | VarianceProcess, grid: TimeGrid) -> float:
    """The mean price of the asset of a process at maturity."""
    dividends = float(mean_over(process.dividend, 0.0, grid.maturity)[0]) * grid.maturity
    return float(np.asarray(process.spot)[0]) * math.exp(-dividends - math.log(grid.discount[-1]))


def calls_or_puts(sign: int, calls: Floats, forward: Any, strikes: Any) -> Floats:
    """Calls as they are (sign 1), or as puts by their parity (sign -1); never below the value at zero volatility."""
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
    exponent = partial(rough_exponent, hurst=process.hurst) if isinstance(process, RoughHeston) else heston_exponent
    log_phi = exponent(u - 0.5j, maturity, *law)
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
        The discount factor of maturity.
    """

    payoff: Any
    variance: Floats
    growth: Floats
    discount: float

    def __call__(self, prices: Array, date: int) -> Array:
        """Values (paths,) at prices (paths, assets)."""
        forward = to_numpy(self.payoff.underlying(prices)) * self.growth[date]
        calls = black_call(forward, self.payoff.strike, math.sqrt(self.variance[date]))
        return match(self.discount * calls_or_puts(self.payoff.sign, calls, forward, self.payoff.strike), prices)


def european_value(process: Process, payoff: PayoffFunction, grid: TimeGrid) -> EuropeanValue | None:
    """The closed form, where there is one.

    Examples
    --------
    >>> market, grid = BlackScholes(spot=100, volatility=0.2), TimeGrid(maturity=1, dates=4, rate=0.05)
    >>> european_value(market, Put(100), grid)(np.array([[100.0]]), 0).round(4)
    array([5.5735])
    """
    known = type(payoff) in (Put, Call, GeometricBasketPut)
    if not known or type(process) is not BlackScholes or process.cash_dividends:
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


# --- the bias of time steps ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bias:
    """The error that the time steps of the simulation cause in a European price on the same paths.

    Attributes
    ----------
    option : str
        The European option that was compared: the priced one held to maturity, or a put on an asset with its strike.
    exact : float
        Its price without simulation.
    simulated, standard_error : float
        Its price in the simulation, with the same steps.
    tolerance : float
        What is accepted, as a share of the price: 0.1%, or half a standard error of the American price if that is more.
    """

    option: str
    exact: float
    simulated: float
    standard_error: float
    tolerance: float

    @property
    def relative(self) -> float:
        """The difference as a share of the exact price."""
        return (self.simulated - self.exact) / self.exact

    @property
    def relative_error(self) -> float:
        """The standard error of ``relative``."""
        return self.standard_error / self.exact

    @property
    def missed(self) -> bool:
        """Whether the difference exceeds the tolerance by more than four standard errors."""
        return abs(self.relative) > self.tolerance + SURE * self.relative_error

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "relative": self.relative, "missed": self.missed}

    def __str__(self) -> str:
        found = f"{self.relative:+.3%} ± {1.96 * self.relative_error:.3%}"
        return f"{found} of the European {self.option} (exact {self.exact:.4f}, accepted {self.tolerance:.2%})"


def with_chosen_steps(
    process: Process, payoff: Any, grid: TimeGrid, *, tolerance: float, seed: int
) -> tuple[Process, Bias | None]:
    """A process with the steps it takes between the dates, and the bias of these steps in European prices.

    The bias is None for models that are sampled exactly, and for schemes whose bias :func:`observed_bias` shows.
    """
    free = isinstance(process, Heston | RoughHeston) and process.substeps is None
    for halvings in range(MOST_HALVINGS + 1):
        # Errors are of second order: a quarter of the tolerance gives half the step.
        chosen = process.for_grid(grid, tolerance=tolerance / 4**halvings)
        bias = steps_bias(chosen, payoff, grid, tolerance=tolerance, seed=seed)
        if not free or bias is None or not bias.missed:
            break
    return chosen, bias


def steps_for_all(process: Process, options: Sequence[tuple[Any, TimeGrid]], *, tolerance: float, seed: int) -> Process:
    """A process with the most steps that one of several options needs, each with its own dates.

    All dates must be among those of the longest maturity, whose scheme is used for all.
    """
    longest = max((grid for _, grid in options), key=lambda grid: grid.maturity)
    if not isinstance(process, Heston | RoughHeston) or process.substeps is not None:
        return process.for_grid(longest, tolerance=tolerance)
    free = replace(process, scheme=process.for_grid(longest, tolerance=tolerance).scheme)
    needed = []
    for payoff, grid in options:
        enough, _ = with_chosen_steps(free, payoff, grid, tolerance=tolerance, seed=seed)
        assert isinstance(enough, VarianceProcess)
        needed.append(enough.substeps or 1)
    return replace(free, substeps=max(needed)).for_grid(longest)


def steps_bias(process: Process, payoff: Any, grid: TimeGrid, *, tolerance: float, seed: int) -> Bias | None:
    """The bias of the steps of "qe" and "inverse-gaussian", for the asset where it is largest; None for others.

    Cash dividends are left out: they do not depend on the steps.
    """
    if not isinstance(process, Heston | RoughHeston) or process.scheme not in ("qe", "inverse-gaussian"):
        return None
    # Where assets differ, those whose variance is the most random are examined.
    noise = per_asset("v_vol", process.v_vol, process.n_assets) ** 2
    level = np.maximum(process.mean_variance(grid.maturity), 1e-12)
    found = []
    for asset in sorted(_different_assets(process), key=lambda one: -noise[one] / level[one])[:MOST_ASSETS]:
        option, strike, sign, exact = _probe_option(process, payoff, grid, asset)
        if exact:
            estimate = _conditional_price(process.only(asset), strike, sign, grid, seed)
            found.append(Bias(option, exact, *estimate, tolerance=tolerance))
    return _surest(found)


def _surest(found: list[Bias]) -> Bias | None:
    """The one that most surely exceeds its tolerance; the largest where none does."""

    def rank(bias: Bias) -> tuple[float, float]:
        size = abs(bias.relative)
        return max(size - SURE * bias.relative_error, bias.tolerance), size

    return max(found, key=rank, default=None)


def _different_assets(process: VarianceProcess) -> list[int]:
    """One asset of each kind."""
    columns = [per_asset(name, getattr(process, name), process.n_assets) for name in ("spot", *LAW)]
    dividends = np.atleast_2d(np.asarray(process.dividend))
    rows = np.concatenate([np.stack(columns), np.broadcast_to(dividends, (len(dividends), process.n_assets))])
    return sorted(np.unique(rows, axis=1, return_index=True)[1].tolist())


def _probe_option(process: VarianceProcess, payoff: Any, grid: TimeGrid, asset: int) -> tuple[str, float, int, float]:
    """The European option that shows the bias: its name, its strike, whether it is a call, and its exact price.

    It is the payoff itself, or a put with its strike (the spot if none); a negligible price is set to 0.
    """
    spot = float(np.asarray(process.spot)[asset])
    strike, sign = float(getattr(payoff, "strike", spot)), payoff.sign if isinstance(payoff, Call | Put) else -1
    where = "" if process.n_assets == 1 else f", asset {asset}"
    name = f"{'call' if sign > 0 else 'put'}, strike {strike:g}{where}"
    exact = float(vanilla(process.only(asset), np.array([strike]), sign, grid)[0])
    return name, strike, sign, exact if exact > 1e-6 * spot else 0.0


def _conditional_price(
    process: Heston | RoughHeston, strike: float, sign: int, grid: TimeGrid, seed: int
) -> tuple[float, float]:
    """The simulated price of a European option on one asset, and its standard error."""
    assert process.substeps is not None
    steps, width = grid.n_dates * process.substeps, 1 if process.scheme == "qe" else 2
    forward, samples = forward_price(process, grid), []
    for scrambling in range(SCRAMBLINGS):
        rng = np.random.default_rng([seed, scrambling, POINTS])
        # Every step counts as an interval of the Sobol points: the first coordinates drive whole paths.
        blocks = normal_blocks(POINTS, steps, width, rng, sobol=steps * width <= MOST_COORDINATES)
        by_date = (normals.reshape(grid.n_dates, -1, normals.shape[2]) for _, normals in blocks)
        laws = [process.conditional_law(grid, normals) for normals in by_date]
        mean, spread, control = (np.concatenate(parts) for parts in zip(*laws))
        expected = forward * np.exp(mean)
        flows = calls_or_puts(sign, black_call(expected, strike, np.sqrt(spread)), expected, strike)
        samples.append(np.stack([grid.discount[-1] * flows, expected - forward, control]))
    values = np.stack(samples)  # (scramblings, what, points)
    flat = values.transpose(1, 0, 2).reshape(3, -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    slopes = np.linalg.lstsq(centred[1:].T, centred[0], rcond=None)[0]
    means = values.mean(axis=2)
    estimates = means[:, 0] - means[:, 1:] @ slopes
    return float(estimates.mean()), float(estimates.std(ddof=1)) / math.sqrt(SCRAMBLINGS)


def observed_bias(
    process: Process, payoff: Any, grid: TimeGrid, terminal: Floats, *, estimate: Mean, tolerance: float
) -> Bias | None:
    """The bias seen on simulated paths; None for models that are sampled exactly or have no exact price.

    The terminal price, whose mean is known, is the control variate. The noise is that of the paths: this is for schemes
    whose variance cannot be simulated on its own.

    Parameters
    ----------
    terminal : ndarray of shape (paths, assets)
        Simulated prices at maturity.
    estimate
        From samples, one per path, to their mean and standard error.
    tolerance
        As a share of the price.
    """
    if not isinstance(process, Heston | RoughHeston) or process.cash_dividends:
        return None
    found = []
    for asset, prices in enumerate(terminal.T):
        option, strike, sign, exact = _probe_option(process, payoff, grid, asset)
        flows = grid.discount[-1] * np.maximum(sign * (prices - strike), 0.0)
        if not exact or not np.any(flows != flows[0]):
            continue  # a price of zero, or without randomness, has no relative error
        if process.scheme != "paper":  # whose prices do not have the exact mean
            control = grid.discount[-1] * (prices - forward_price(process.only(asset), grid))
            flows = flows - (flows - flows.mean()) @ control / (control @ control) * control
        found.append(Bias(option, exact, *estimate(flows), tolerance=tolerance))
    return _surest(found)
