r"""European prices without simulation: a closed form for Black-Scholes, Fourier integrals for Heston and rough Heston.

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
from typing import Any

import numpy as np
from scipy.special import ndtr

from mixtune._array import Floats
from mixtune.errors import ParameterError
from mixtune.options._heston import LAW, VarianceProcess
from mixtune.options._payoffs import Call, Payoff, Put
from mixtune.options._process import Process, mean_over, per_asset
from mixtune.options._rough import RoughHeston
from mixtune.options._settings import TimeGrid
from mixtune.options.processes import BlackScholes

#: Steps of the rough Riccati equation; a second solution with half of them is used for the extrapolation.
RICCATI_STEPS = 256
#: Nodes of the Fourier integral, equally spaced in t where u = exp(pi/2 sinh t) / (volatility sqrt(maturity)).
#: Prices and variances that move nearly together make it decay slowly; the rough equation is costly for every node.
NODES, ROUGH_NODES, RANGE = 1001, 201, (-4.2, 2.8)


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


def vanilla(process: Process, strikes: Floats, sign: int, grid: TimeGrid, *, asset: int = 0) -> Floats:
    """Prices of European calls (sign 1) or puts (sign -1) on one asset of a process, one per strike."""
    if not isinstance(process, BlackScholes | VarianceProcess):
        raise ParameterError(f"{type(process).__name__} has no European prices without simulation")
    if process.cash_dividends:
        raise ParameterError("there is no European price without simulation where cash dividends are paid")
    strikes, maturity = np.asarray(strikes, dtype=np.float64), grid.maturity
    growth = -float(mean_over(process.dividend, 0.0, maturity)[asset]) * maturity - math.log(grid.discount[-1])
    forward = float(np.asarray(process.spot)[asset]) * math.exp(growth)
    if isinstance(process, BlackScholes):
        volatility = process.total_volatility(0.0, maturity)[asset]
        calls = black_call(forward, strikes, float(volatility))
    else:
        calls = _fourier_call(process, forward, strikes, maturity, asset)
    if sign < 0:
        calls = calls - forward + strikes
    return grid.discount[-1] * np.maximum(calls, np.maximum(sign * (forward - strikes), 0.0))


def black_call(forward: Any, strikes: Any, deviation: Any) -> Floats:
    """Call on a lognormal variable with this mean and this standard deviation of the logarithm, not discounted."""
    # Without deviation the limit is the payoff. A strike of zero is always exceeded.
    deviation = np.maximum(deviation, 1e-150)
    with np.errstate(divide="ignore", over="ignore"):
        d1 = np.log(forward / strikes) / deviation + 0.5 * deviation
    return forward * ndtr(d1) - strikes * ndtr(d1 - deviation)


def _fourier_call(process: VarianceProcess, forward: float, strikes: Floats, maturity: float, asset: int) -> Floats:
    deviation = math.sqrt(float(process.mean_variance(maturity)[asset]) * maturity)
    law = [float(per_asset(name, getattr(process, name), process.n_assets)[asset]) for name in LAW]
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
