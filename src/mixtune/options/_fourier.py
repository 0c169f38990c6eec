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

**Bias of simulated prices.** The European option on the same evaluation paths as the American one has a known price, so
the difference shows what the time steps of the simulation do to prices. The terminal price, whose mean is known too, is
its control variate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from mixtune._array import Floats
from mixtune.errors import ParameterError
from mixtune.options._heston import Heston, VarianceProcess
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
#: Standard errors that a difference must have beyond its tolerance before it is taken for a bias.
SURE = 3.0


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


def black_call(forward: float, strikes: Floats, deviation: float) -> Floats:
    """Call on a lognormal variable with this mean and this standard deviation of the logarithm, not discounted."""
    if deviation == 0:
        return np.maximum(forward - strikes, 0.0)
    with np.errstate(divide="ignore"):  # a strike of zero is always exceeded
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


#: The order in which both exponents take the parameters.
LAW = ("v0", "v_mean", "v_speed", "v_vol", "rho")


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


# --- bias of simulated prices -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bias:
    """What the time steps of the simulation do to a European price on the same paths.

    Attributes
    ----------
    option : str
        The European option that was compared: the priced one held to maturity, or a put on an asset with its strike.
    exact : float
        Its price without simulation.
    simulated, standard_error : float
        Its price on the evaluation paths with the terminal price as control variate.
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
        """Whether the difference exceeds the tolerance by more than three standard errors."""
        return abs(self.relative) > self.tolerance + SURE * self.relative_error

    def __str__(self) -> str:
        found = f"{self.relative:+.3%} ± {1.96 * self.relative_error:.3%}"
        return f"{found} of the European {self.option} (exact {self.exact:.4f}, accepted {self.tolerance:.2%})"


def discretisation_bias(
    process: Process,
    payoff: Any,
    grid: TimeGrid,
    terminal: Floats,
    *,
    estimate: Callable[[Floats], tuple[float, float]],
    tolerance: float,
) -> Bias | None:
    """The bias of a simulated European option; None for models that are sampled exactly or have no exact price.

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
    for asset in range(process.n_assets):
        sample = _european_flows(process, payoff, grid, terminal[:, asset], asset)
        if sample is not None:
            option, exact, flows = sample
            found.append(Bias(option, exact, *estimate(flows), tolerance=tolerance))
    return max(found, key=lambda bias: abs(bias.relative) - SURE * bias.relative_error, default=None)


def _european_flows(
    process: Heston | RoughHeston, payoff: Any, grid: TimeGrid, prices: Floats, asset: int
) -> tuple[str, float, Floats] | None:
    """A European option on one asset: its name, its exact price, and its cash flows on simulated terminal prices."""
    spot = float(np.asarray(process.spot)[asset])
    own = isinstance(payoff, Call | Put)
    strike, sign = float(getattr(payoff, "strike", spot)), payoff.sign if own else -1
    exact = float(vanilla(process, np.array([strike]), sign, grid, asset=asset)[0])
    flows = grid.discount[-1] * np.maximum(sign * (prices - strike), 0.0)
    if exact < 1e-6 * spot or not np.any(flows != flows[0]):
        return None  # a price of nothing, or known for sure, has no relative error
    if process.scheme != "paper":  # whose prices do not have the exact mean
        mean = spot * math.exp(-float(mean_over(process.dividend, 0.0, grid.maturity)[asset]) * grid.maturity)
        control = grid.discount[-1] * prices - mean
        flows = flows - (flows - flows.mean()) @ control / (control @ control) * control
    name = f"{'call' if sign > 0 else 'put'}, strike {strike:g}" + ("" if process.n_assets == 1 else f", asset {asset}")
    return name, exact, flows
