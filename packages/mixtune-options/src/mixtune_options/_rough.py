r"""Rough Heston: prices whose variance has memory and is rougher than Brownian motion,

.. math:: v_t = v_0 + \int_0^t K(t - s) \left[ k (\bar v - v_s)\,ds + \sigma \sqrt{v_s}\,dB_s \right], \quad
    K(t) = \frac{t^{H - 1/2}}{\Gamma(H + 1/2)}

**"inverse-gaussian"**, the default, never looks at the variance itself, which is wild, but at the variance integrated
over a step, U, and at the noise that drives the price, Z, the integral of sqrt(v) dB. Solving the equation for the
drift turns K into the Mittag-Leffler kernel

.. math:: \kappa(t) = \sigma t^{\alpha - 1} E_{\alpha, \alpha}(-k t^\alpha), \quad \alpha = H + 1/2,

and over a step of length dt

.. math:: U = \hat U + \int G(t - s)\,dZ_s, \quad G(t) = \int_0^t \kappa

with the expectation of U known from the past. Two approximations make this a scheme: G is replaced by its mean g over
the step, and every later weight of the step's noise by its mean over the step. Since Z is a Brownian motion run for the
time U, ``U = expected + g Z`` says that U is the time at which a Brownian motion with drift reaches a level. It has the
inverse Gaussian law, and Z follows from it. Prices are martingales without any correction. That integrated
weights converge with very few steps, for small H even faster, is the observation of Abi Jaber and Attal; means over the
step instead of their values at its left end raise the order. Where the expectation of U would be negative, the step has
no variance and the deficit is carried on, which keeps the mean. Against Fourier prices, 16 steps to maturity keep the
error near the money below 0.1% for ordinary parameters (``python -m benchmarks prices``); ``for_grid`` takes more where
the variance is small against its noise and the kernel smooth, when deficits are frequent.

**"volterra"** and **"markovian"** are Euler schemes for v, floored at zero, with the kernel taken at the left end of
every step. They converge slowly, at about the power 2H of the step, and prices are some percent too high with the
default 10 steps per date. The paper uses the first. "volterra" stores every increment: exact weights, at a cost that
grows with the past. "markovian" writes the kernel as a sum of exponentials, so that a few factors, each decaying at its
own speed, carry the past whatever its length; so does "inverse-gaussian". With the same normals both Euler schemes give
the same paths up to the error of that sum (about 1e-5 of the kernel with the default factors). At H = 1/2 the kernel is
1, and both are the classical Heston model with "log-euler" steps.

References: El Euch and Rosenbaum, *The characteristic function of rough Heston models* (2019); Abi Jaber and El Euch,
*Multifactor approximation of rough volatility models* (2019); Abi Jaber and Attal, *Simulating integrated Volterra
square-root processes and Volterra Heston models via Inverse Gaussian* (2025); Weideman and Trefethen (2007) for the
contour of the Mittag-Leffler function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from scipy.optimize import nnls

from mixtune import checks
from mixtune.errors import ParameterError
from mixtune_options._arrays import Array, Floats, read_only
from mixtune_options._heston import LAW, IntegratedState, VarianceProcess, VarianceState, draw_integrated
from mixtune_options._process import SAME_TIME, State, combine, mean_over
from mixtune_options._settings import TOLERANCE, TimeGrid, numbers, set_fields

#: Steps between two looks at the whole past in the Euler schemes, and steps per exercise interval.
BLOCK_STEPS, EULER_SUBSTEPS = 16, 10
#: Steps to maturity of "inverse-gaussian" at the default tolerance, at the least and at the most.
STEPS, MOST_STEPS = 16, 1000
#: The kernel must be right from a fraction of a step on: a step's noise acts on the next one at all lags from zero.
SHORTEST_SHARE = 0.02
#: And somewhat beyond maturity, for sensitivities to the time that passes.
LONGEST_SHARE = 1.1
#: Lags that the exponentials fit where the dates are not known.
KERNEL_RANGE = (1e-4, 30.0)
#: Nodes of the contour integral: its error falls like 2.85^-nodes, and 32 reach rounding.
CONTOUR_NODES = 32


@dataclass(frozen=True, eq=False)
class HistoryState(VarianceState):
    """Prices, variances and all past increments of the variance.

    Attributes
    ----------
    increments : ndarray of shape (paths, assets, steps so far)
    times : ndarray of shape (steps so far,)
        When each increment began.
    """

    increments: Floats
    times: Floats

    shared = frozenset({"times"})


@dataclass(frozen=True, eq=False)
class FactorState(VarianceState):
    """Prices, variances and the factors that carry the past, of shape (paths, assets, factors)."""

    factors: Floats


@dataclass(frozen=True, eq=False)
class DeficitState(IntegratedState):
    """As for the classical model, and the factors that carry the past, of shape (paths, assets, factors).

    The variance is the one that is expected on average over a step from now on.
    """

    factors: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class RoughHeston(VarianceProcess):
    """Independent assets with the same rough stochastic variance law.

    Parameters
    ----------
    spot, v0, v_mean, v_speed, v_vol, rho, dividend, n_assets, cash_dividends
        As for :class:`Heston`; the law of the variance is the same for all assets.
    hurst
        Roughness H, above 0 and at most 1/2; smaller is rougher.
    scheme
        "inverse-gaussian" draws the integrated variance and needs few steps. "volterra" and "markovian" are Euler
        schemes; the first keeps the whole past, the second a few factors.
    substeps
        Steps per exercise interval: by default as many as the dates and parameters need (see :meth:`for_grid`), and 10
        for the Euler schemes.
    factors
        Number of exponentials that carry the past; all schemes but "volterra".
    kernel_range
        Shortest and longest lag that the exponentials must fit; steps must not be shorter nor maturities longer. By
        default found from the dates, and (1e-4, 30) for "markovian".

    Attributes
    ----------
    kernel_error : float
        Largest relative error of the sum of exponentials over ``kernel_range``; 0 for "volterra".

    Notes
    -----
    An interval uses ``2 * substeps`` normals per asset, ``3 * substeps`` for "inverse-gaussian"; in each substep those
    of all variances come first.

    Examples
    --------
    >>> from mixtune_options import TimeGrid
    >>> market = dict(spot=100, v0=0.01, v_mean=0.01, v_speed=2, v_vol=0.2, rho=-0.3, hurst=0.1)
    >>> grid = TimeGrid(maturity=1, dates=3, rate=0.05)
    >>> RoughHeston(**market).for_grid(grid).substeps
    6
    >>> exact = RoughHeston(**market, scheme="volterra").sample(100, grid, np.random.default_rng(0))
    >>> quick = RoughHeston(**market, scheme="markovian").sample(100, grid, np.random.default_rng(0))
    >>> bool(abs(exact - quick).max() < 0.01)
    True
    """

    hurst: float
    scheme: str = "inverse-gaussian"
    factors: int = 20
    kernel_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in LAW:
            if np.ndim(getattr(self, name)) > 0:
                raise ParameterError(f"{name} of rough Heston must be one number, the same for all assets")
        super().__post_init__()
        hurst = checks.check_positive("hurst", self.hurst)
        if hurst > 0.5:
            raise ParameterError(f"hurst must be above 0 and at most 1/2; got {self.hurst!r}")
        checks.check_choice("scheme", self.scheme, ("inverse-gaussian", "volterra", "markovian"))
        substeps, lags = self.substeps, self.kernel_range
        if self.scheme != "inverse-gaussian":
            substeps = EULER_SUBSTEPS if substeps is None else substeps
            lags = KERNEL_RANGE if lags is None else lags
        if lags is not None:
            ends = numbers("kernel_range", lags)
            if ends.shape != (2,) or not 0 < ends[0] < ends[1]:
                raise ParameterError(
                    f"kernel_range must be two lags, 0 < shortest < longest; got {self.kernel_range!r}"
                )
            lags = (float(ends[0]), float(ends[1]))
        substeps = None if substeps is None else checks.check_whole("substeps", substeps, least=1)
        factors = checks.check_whole("factors", self.factors, least=2)
        set_fields(self, hurst=hurst, substeps=substeps, factors=factors, kernel_range=lags)

    def for_grid(self, grid: TimeGrid, *, tolerance: float = TOLERANCE) -> Self:
        chosen = super().for_grid(grid, tolerance=tolerance)
        if self.scheme != "inverse-gaussian":
            return chosen
        if chosen.substeps is None:
            steps = self._steps(grid.maturity) * math.sqrt(TOLERANCE / checks.check_positive("tolerance", tolerance))
            share = float(grid.steps.max()) / grid.maturity
            # Rounding must not add a step where an interval is a whole number of them.
            substeps = max(1, math.ceil(min(steps, MOST_STEPS) * share - 1e-9))
            chosen = replace(chosen, substeps=substeps)
        if chosen.kernel_range is None:
            times = np.unique(np.concatenate([grid.times, [time for time, _ in self.cash_dividends]]))
            steps_here = np.diff(times[times <= grid.maturity])
            shortest = float(steps_here[steps_here > SAME_TIME].min()) / chosen._chosen_substeps
            longest = LONGEST_SHARE * grid.maturity
            chosen = replace(chosen, kernel_range=(SHORTEST_SHARE * shortest, longest))
        return chosen

    def _steps(self, maturity: float) -> float:
        """Steps to maturity that keep the error of "inverse-gaussian" within the default tolerance."""
        level = float(self.mean_variance(maturity)[0])
        if level == 0:
            return 1
        # The spread of the variance against its level; a smooth kernel (large H) makes deficits more frequent.
        spread = self.v_vol**2 * maturity ** (2 * self.hurst) / level
        return STEPS * (1.0 + 0.25 * spread * (2 * self.hurst) ** 2)

    def mean_variance(self, maturity: float) -> Floats:
        return np.full(self.n_assets, self._expected_variance(0.0, maturity) / maturity)

    @property
    def kernel_error(self) -> float:
        if self.scheme == "volterra":
            return 0.0
        speeds, weights = self._exponentials
        lags = np.geomspace(*(self.kernel_range or KERNEL_RANGE), 100 * self.factors)
        exact = _kernel(lags, self.hurst)
        if self.scheme == "inverse-gaussian":
            exact = mittag_leffler(lags, self.hurst + 0.5, self.hurst + 0.5, self.v_speed)
        return float(np.max(np.abs(np.exp(-np.outer(lags, speeds)) @ weights / exact - 1.0)))

    @property
    def _exponentials(self) -> tuple[Floats, Floats]:
        """Speeds and weights of the kernel, for "inverse-gaussian" that with the drift solved; both per unit v_vol."""
        speed = self.v_speed if self.scheme == "inverse-gaussian" else 0.0
        return exponentials(self.hurst, self.factors, *(self.kernel_range or KERNEL_RANGE), speed)

    def start(self, n_paths: int) -> VarianceState:
        now = super().start(n_paths)
        if self.scheme == "volterra":
            return HistoryState(now.prices, now.variance, np.empty((n_paths, self.n_assets, 0)), np.empty(0))
        factors = np.zeros((self._exponentials[0].size, self.n_assets, n_paths)).T
        if self.scheme == "markovian":
            return FactorState(now.prices, now.variance, factors)
        return DeficitState(now.prices, now.variance, np.zeros_like(now.prices), factors)

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> VarianceState:
        assert isinstance(state, VarianceState)
        dt = (end - begin) / self._chosen_substeps
        shortest, longest = self.kernel_range or KERNEL_RANGE
        # A small tolerance: dates are multiples of a rounded step.
        if self.scheme != "volterra" and (dt < shortest * (1 - 1e-9) or end > longest * (1 + 1e-9)):
            raise ParameterError(
                f"the factors fit lags from {shortest:g} to {longest:g}; steps of {dt:g} up to time {end:g} leave "
                "that range; pass a wider kernel_range (and more factors)"
            )
        if isinstance(state, DeficitState):
            after = self._integrated(state, begin, end, rate, normals)
            return replace(after, variance=np.maximum(self._expected(after, end, dt) / dt, 0.0))
        per_step = 2 * self.n_assets
        for first in range(0, self._chosen_substeps, BLOCK_STEPS):
            piece = normals[:, first * per_step : (first + BLOCK_STEPS) * per_step]
            state = self._block(state, begin + first * dt, dt, rate, piece)
        return state

    # --- inverse Gaussian steps ---------------------------------------------------------------------------------------

    def _expected_variance(self, begin: float, end: float) -> float:
        """The variance expected today, integrated over an interval."""
        own = _survival(end, self.hurst, self.v_speed) - _survival(begin, self.hurst, self.v_speed)
        return self.v_mean * (end - begin) + (self.v0 - self.v_mean) * own

    def _expected(self, state: Any, now: float, dt: float) -> Floats:
        """The variance that is expected over the step from now, (paths, assets), without the deficit."""
        ahead, factors = self._weights(dt).ahead, state.factors.T
        from_past = combine(ahead[None], factors.reshape(len(factors), -1)).reshape(factors.shape[1:])
        return from_past.T + self._expected_variance(now, now + dt)

    def _draw(
        self, state: DeficitState, now: float, dt: float, normal: Floats, choice: Floats
    ) -> tuple[Floats, Floats, DeficitState]:
        weights, expected = self._weights(dt), self._expected(state, now, dt) + state.deficit
        noise, integral, deficit = draw_integrated(expected, weights.own, dt, normal, choice)
        # Transposed, to match the memory layout of the arrays.
        factors = weights.decay[:, None, None] * state.factors.T
        factors += weights.taken[:, None, None] * noise.T
        return noise, integral, replace(state, factors=factors.T, deficit=deficit)

    def _weights(self, dt: float) -> IntegratedWeights:
        lags = self.kernel_range or KERNEL_RANGE
        return integrated_weights(dt, self.v_vol, self.hurst, self.v_speed, self.factors, *lags)

    # --- Euler steps --------------------------------------------------------------------------------------------------

    def _block(self, state: VarianceState, begin: float, dt: float, rate: float, normals: Array) -> VarianceState:
        """Take a few steps, with the past of before entering in one product."""
        size = (self.n_assets, state.n_paths)
        steps = normals.shape[1] // (2 * self.n_assets)
        offsets, span = dt * np.arange(steps + 1), dt * steps
        if isinstance(state, HistoryState):
            memory = state.increments.T
            # Weight of every past increment in the variance at the end of every step.
            weights = _kernel((begin - state.times) + offsets[1:, None], self.hurst)
        else:
            assert isinstance(state, FactorState)
            memory = state.factors.T
            speeds, kernel_weights = self._exponentials
            weights = kernel_weights * np.exp(-np.outer(offsets[1:], speeds))
        # What the past of before adds to the variance at the end of each step, (steps, assets * paths).
        curve = self.v0 + combine(weights, memory.reshape(len(memory), size[0] * size[1]))
        kernel = _kernel(dt * np.arange(steps, 0, -1), self.hurst)
        increments, variance = np.empty(curve.shape), state.variance.T.reshape(-1)
        log_returns = np.zeros(variance.shape)
        for step, (own, other) in enumerate(normals.T.reshape(steps, 2, -1)):
            moved, increments[step] = self._euler(variance, dt, own, other)
            log_returns += moved
            log_returns -= (0.5 * dt) * variance
            variance = np.einsum("s,sn->n", kernel[steps - 1 - step :], increments[: step + 1])
            variance += curve[step]
            np.maximum(variance, 0.0, out=variance)
        drift = ((rate - mean_over(self.dividend, begin, begin + span)) * span)[:, None]
        with np.errstate(over="ignore"):
            now = state.prices * np.exp(log_returns.reshape(size) + drift).T, variance.reshape(size).T
        if isinstance(state, HistoryState):
            joined = np.concatenate([memory, increments.reshape(steps, *size)]).T
            return HistoryState(*now, joined, np.concatenate([state.times, begin + offsets[:-1]]))
        # Every factor decays over the block, and takes in each increment, decayed since that began.
        aged = combine(np.exp(-np.outer(speeds, span - offsets[:-1])), increments).reshape(-1, *size)
        aged += np.exp(-speeds * span)[:, None, None] * memory
        return FactorState(*now, aged.T)


def _kernel(lags: Array, hurst: float) -> Floats:
    """The fractional kernel; exactly 1 at H = 1/2."""
    return np.power(lags, hurst - 0.5) / math.gamma(hurst + 0.5)


@lru_cache(maxsize=64)
def exponentials(
    hurst: float, factors: int, shortest: float, longest: float, speed: float = 0.0
) -> tuple[Floats, Floats]:
    """Speeds x and weights c >= 0 such that sum_i c_i exp(-x_i t) fits the kernel between the two lags.

    The kernel is a mixture of exponentials of all speeds; some of these, spaced geometrically over the range that
    matters and with the speed 0, are reweighted to make the relative error small (non-negative least squares). With
    ``speed`` it is the kernel with the mean reversion solved, which is such a mixture too.

    Examples
    --------
    >>> speeds, weights = exponentials(0.1, 20, 1e-4, 30.0)
    >>> round(float(weights @ np.exp(-speeds)) * math.gamma(0.6), 4)
    1.0
    """
    if hurst == 0.5:
        return read_only(np.array([float(speed)])), read_only(np.ones(1))
    speeds = np.concatenate([[0.0], np.geomspace(0.5 / longest, 4.0 / shortest, factors - 1)])
    lags = np.geomspace(shortest, longest, 40 * factors)
    kernel = mittag_leffler(lags, hurst + 0.5, hurst + 0.5, speed) if speed > 0 else _kernel(lags, hurst)
    relative = np.exp(-np.outer(lags, speeds)) / kernel[:, None]
    weights, _ = nnls(relative, np.ones(lags.size), maxiter=1000 * factors)
    return read_only(speeds[weights > 0]), read_only(weights[weights > 0])


def mittag_leffler(times: Floats, alpha: float, beta: float, speed: float) -> Floats:
    """``t^(beta - 1) E_{alpha, beta}(-speed t^alpha)`` for 0 < alpha <= 1, by a contour integral of its transform.

    Examples
    --------
    >>> bool(np.allclose(mittag_leffler(np.array([0.5, 2.0]), 1.0, 1.0, 3.0), np.exp([-1.5, -6.0]), rtol=1e-9))
    True
    """
    n = CONTOUR_NODES
    angle = -math.pi + (2 * np.arange(n) + 1) * math.pi / n
    node = n * (0.1309 - 0.1194 * angle**2 + 0.25j * angle)
    weight = np.exp(node) * (0.25 + 0.2388j * angle)
    z = node / np.asarray(times)[:, None]
    return ((z ** (alpha - beta) / (z**alpha + speed)) @ weight).real / np.asarray(times)


@lru_cache(maxsize=4096)
def _survival(time: float, hurst: float, speed: float) -> float:
    """Integral of ``E_alpha(-speed t^alpha)``, the share of today's variance in the later one, up to a time."""
    return float(mittag_leffler(np.array([time]), hurst + 0.5, 2.0, speed)[0]) if time > 0 else 0.0


@dataclass(frozen=True, eq=False)
class IntegratedWeights:
    """Weights of one step of "inverse-gaussian".

    Attributes
    ----------
    own : float
        Of the step's noise in its own integrated variance.
    ahead : ndarray of shape (factors,)
        Of the factors in the variance integrated over the next step.
    decay, taken : ndarray of shape (factors,)
        Of a factor's past, and of the step's noise, in the factor at the end of the step.
    """

    own: float
    ahead: Floats
    decay: Floats
    taken: Floats


@lru_cache(maxsize=64)
def integrated_weights(
    dt: float, v_vol: float, hurst: float, speed: float, factors: int, shortest: float, longest: float
) -> IntegratedWeights:
    """The weights for steps of this length, each the mean of its kernel over the step."""
    speeds, weights = exponentials(hurst, factors, shortest, longest, speed)
    # The mean of G over the step is the kernel integrated twice.
    own = v_vol * float(mittag_leffler(np.array([dt]), hurst + 0.5, hurst + 2.5, speed)[0]) / dt
    taken = np.where(speeds > 0, -np.expm1(-speeds * dt) / np.where(speeds > 0, speeds * dt, 1.0), 1.0)
    arrays = (v_vol * weights * taken * dt, np.exp(-speeds * dt), taken)
    return IntegratedWeights(own, *map(read_only, arrays))
