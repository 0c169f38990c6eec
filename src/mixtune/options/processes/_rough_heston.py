r"""Rough Heston: a variance with memory, rougher than Brownian motion.

.. math:: v_t = v_0 + \int_0^t K(t - s) \left[ k (\bar v - v_s)\,ds + \sigma \sqrt{v_s}\,dB_s \right], \quad
    K(t) = \frac{t^{H - 1/2}}{\Gamma(H + 1/2)}

The Euler scheme replaces the integral by a sum over all past steps, floors the variance at zero, and takes Euler steps
of the log-price. What differs between the two schemes is how the past is kept. "volterra" stores every increment: exact
weights, at a cost that grows with the past. "markovian" writes the kernel as a sum of exponentials, so that a few
factors, each decaying at its own speed, carry the past whatever its length. With the same normals both give the same
paths up to the error of that sum (about 1e-5 of the kernel with the default factors).

At H = 1/2 the kernel is 1, and both are the classical Heston model with "log-euler" steps.

References: El Euch and Rosenbaum, *The characteristic function of rough Heston models* (2019); Abi Jaber and El Euch,
*Multifactor approximation of rough volatility models* (2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import nnls

from mixtune._checks import check_choice, check_positive, check_whole
from mixtune.errors import ParameterError
from mixtune.options._normals import combine
from mixtune.options.processes._base import Floats, State, constant_columns
from mixtune.options.processes._heston import VarianceProcess, VarianceState

__all__ = ["RoughHeston"]

SCHEMES = ("volterra", "markovian")
#: Steps taken between two looks at the whole past.
BLOCK_STEPS = 16


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


@dataclass(frozen=True, eq=False, kw_only=True)
class RoughHeston(VarianceProcess):
    """Independent assets with the same rough stochastic variance law.

    Parameters
    ----------
    spot, v0, v_mean, v_speed, v_vol, rho, dividend, n_assets
        As for :class:`~mixtune.options.processes.Heston`.
    hurst
        Roughness H, above 0 and at most 1/2; smaller is rougher.
    scheme
        "volterra" keeps the whole past, "markovian" a few factors: choose it for many steps or nested simulation.
    substeps
        Steps per exercise interval.
    factors
        Number of exponentials of "markovian".
    kernel_range
        Shortest and longest lag that the exponentials must fit; steps must not be shorter nor maturities longer.

    Attributes
    ----------
    kernel_error : float
        Largest relative error of the sum of exponentials over ``kernel_range``; 0 for "volterra".

    Notes
    -----
    An interval uses ``2 * substeps`` normals per asset; in each substep those of all variances come first. The step
    size matters: for small H the Euler scheme converges slowly, at about the power 2H of the step.

    Examples
    --------
    >>> from mixtune.options._grid import TimeGrid
    >>> market = dict(spot=100, v0=0.01, v_mean=0.01, v_speed=2, v_vol=0.2, rho=-0.3, hurst=0.1)
    >>> grid = TimeGrid(maturity=1, dates=3, rate=0.05)
    >>> exact = RoughHeston(**market).sample(100, grid, np.random.default_rng(0))
    >>> quick = RoughHeston(**market, scheme="markovian").sample(100, grid, np.random.default_rng(0))
    >>> bool(abs(exact - quick).max() < 0.01)
    True
    """

    hurst: float
    scheme: str = "volterra"
    substeps: int = 10
    factors: int = 20
    kernel_range: tuple[float, float] = (1e-4, 30.0)
    kernel_error: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        hurst = check_positive("hurst", self.hurst)
        if hurst > 0.5:
            raise ParameterError(f"hurst must be above 0 and at most 1/2; got {self.hurst!r}")
        check_choice("scheme", self.scheme, SCHEMES)
        substeps = check_whole("substeps", self.substeps, least=1)
        factors = check_whole("factors", self.factors, least=2)
        shortest, longest = _check_range(self.kernel_range)
        error = 0.0
        if self.scheme == "markovian":
            speeds, weights = exponentials(hurst, factors, shortest, longest)
            lags = np.geomspace(shortest, longest, 100 * factors)
            error = float(np.max(np.abs(np.exp(-np.outer(lags, speeds)) @ weights / _kernel(lags, hurst) - 1.0)))
        checked = {"hurst": hurst, "substeps": substeps, "factors": factors, "kernel_error": error}
        for name, value in (checked | {"kernel_range": (shortest, longest)}).items():
            object.__setattr__(self, name, value)

    @property
    def normals_per_interval(self) -> int:
        return 2 * self.n_assets * self.substeps

    def start(self, n_paths: int) -> VarianceState:
        prices = constant_columns(np.asarray(self.spot), n_paths)
        variance = np.full_like(prices, self.v0)
        if self.scheme == "volterra":
            return HistoryState(prices, variance, np.empty((n_paths, self.n_assets, 0)), np.empty(0))
        speeds, _ = exponentials(self.hurst, self.factors, *self.kernel_range)
        return FactorState(prices, variance, np.zeros((speeds.size, self.n_assets, n_paths)).T)

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Floats) -> VarianceState:
        assert isinstance(state, VarianceState)
        dt = (end - begin) / self.substeps
        if self.scheme == "markovian":
            self._check_lags(dt, end)
        per_step = 2 * self.n_assets
        for first in range(0, self.substeps, BLOCK_STEPS):
            piece = normals[:, first * per_step : (first + BLOCK_STEPS) * per_step]
            state = self._block(state, begin + first * dt, dt, rate, piece)
        return state

    def _block(self, state: VarianceState, begin: float, dt: float, rate: float, normals: Floats) -> VarianceState:
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
            speeds, kernel_weights = exponentials(self.hurst, self.factors, *self.kernel_range)
            weights = kernel_weights * np.exp(-np.outer(offsets[1:], speeds))
        curve = self.v0 + combine(weights, memory.reshape(len(memory), size[0] * size[1]))
        variance, increments, log_returns = self._substeps(state, curve, dt, normals)
        log_returns += ((rate - np.asarray(self.dividend)) * span)[:, None]
        with np.errstate(over="ignore"):
            prices = state.prices * np.exp(log_returns).T
        if isinstance(state, HistoryState):
            joined = np.concatenate([memory, increments.reshape(steps, *size)]).T
            return HistoryState(prices, variance, joined, np.concatenate([state.times, begin + offsets[:-1]]))
        # Every factor decays over the block, and takes in each increment, decayed since that began.
        aged = combine(np.exp(-np.outer(speeds, span - offsets[:-1])), increments).reshape(-1, *size)
        aged += np.exp(-speeds * span)[:, None, None] * memory
        return FactorState(prices, variance, aged.T)

    def _substeps(
        self, state: VarianceState, curve: Floats, dt: float, normals: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Step on, given what the past of before adds to the variance at the end of each step.

        Returns
        -------
        variance : ndarray of shape (paths, assets)
            At the end.
        increments : ndarray of shape (steps, assets * paths)
        log_returns : ndarray of shape (assets, paths)
            Without the drift.
        """
        size, steps = (self.n_assets, state.n_paths), len(curve)
        Z = normals.T.reshape(steps, 2, -1)
        kernel = _kernel(dt * np.arange(steps, 0, -1), self.hurst)
        increments = np.empty(curve.shape)
        variance = state.variance.T.reshape(-1)
        log_returns = np.zeros(variance.shape)
        for step, (own, other) in enumerate(Z):
            root = np.sqrt(variance * dt)
            np.multiply(root, own, out=increments[step])
            increments[step] *= self.v_vol
            increments[step] += (self.v_speed * dt) * (self.v_mean - variance)
            root *= self.mixed(own, other)
            log_returns += root
            log_returns -= (0.5 * dt) * variance
            variance = np.einsum("s,sn->n", kernel[steps - 1 - step :], increments[: step + 1])
            variance += curve[step]
            np.maximum(variance, 0.0, out=variance)
        return variance.reshape(size).T, increments, log_returns.reshape(size)

    def _check_lags(self, dt: float, end: float) -> None:
        shortest, longest = self.kernel_range
        # A hair of tolerance: dates are multiples of a rounded step.
        if dt < shortest * (1 - 1e-9) or end > longest * (1 + 1e-9):
            raise ParameterError(
                f"the factors fit lags from {shortest:g} to {longest:g}; steps of {dt:g} up to time {end:g} leave "
                "that range; pass a wider kernel_range (and more factors)"
            )


def _kernel(lags: Floats, hurst: float) -> Floats:
    """The fractional kernel; exactly 1 at H = 1/2."""
    return np.power(lags, hurst - 0.5) / math.gamma(hurst + 0.5)


@lru_cache(maxsize=64)
def exponentials(hurst: float, factors: int, shortest: float, longest: float) -> tuple[Floats, Floats]:
    """Speeds x and weights c >= 0 such that sum_i c_i exp(-x_i t) fits the kernel between the two lags.

    The kernel is a mixture of exponentials of all speeds; some of these, spaced geometrically over the range that
    matters and with the speed 0, are reweighted to make the relative error small (non-negative least squares).

    Examples
    --------
    >>> speeds, weights = exponentials(0.1, 20, 1e-4, 30.0)
    >>> round(float(weights @ np.exp(-speeds)) * math.gamma(0.6), 4)
    1.0
    """
    if hurst == 0.5:
        speeds, weights = np.zeros(1), np.ones(1)
    else:
        speeds = np.concatenate([[0.0], np.geomspace(0.5 / longest, 4.0 / shortest, factors - 1)])
        lags = np.geomspace(shortest, longest, 40 * factors)
        relative = np.exp(-np.outer(lags, speeds)) / _kernel(lags, hurst)[:, None]
        weights, _ = nnls(relative, np.ones(lags.size), maxiter=1000 * factors)
        speeds, weights = speeds[weights > 0], weights[weights > 0]
    speeds.flags.writeable = weights.flags.writeable = False
    return speeds, weights


def _check_range(value: Any) -> tuple[float, float]:
    try:
        shortest, longest = (float(number) for number in value)
    except (TypeError, ValueError):
        shortest = longest = 0.0
    if not 0 < shortest < longest < math.inf:
        raise ParameterError(f"kernel_range must be two lags, 0 < shortest < longest; got {value!r}")
    return shortest, longest
