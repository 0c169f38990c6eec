r"""Market models: Black-Scholes and fractional Brownian motion, Heston and rough Heston.

**Gaussian models**, here, are sampled exactly on any dates. Fractional Brownian motion has memory, and is a standard
test of stopping without the Markov property:

.. math:: \operatorname{E} B_s B_t = \tfrac12 \left( s^{2H} + t^{2H} - |t - s|^{2H} \right)

The Cholesky factor of this covariance makes exact paths, one new normal per date. Row by row it also continues a path
exactly given its past.

:class:`Heston` and :class:`RoughHeston` have modules of their own, which say how they are stepped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mixtune._array import Array, Floats, freeze, is_numpy, match, namespace
from mixtune._checks import check_positive, check_whole
from mixtune.errors import ParameterError
from mixtune.options._heston import Heston
from mixtune.options._process import (
    Process,
    State,
    TermStructure,
    combine,
    constant_columns,
    correlated,
    correlation_factor,
    correlation_matrix,
    curve_per_asset,
    mean_over,
    per_asset,
)
from mixtune.options._rough import RoughHeston
from mixtune.options._settings import TimeGrid

__all__ = ["BlackScholes", "FractionalBrownianMotion", "Heston", "Process", "RoughHeston", "State", "TermStructure"]


@dataclass(frozen=True, eq=False, kw_only=True)
class BlackScholes(Process):
    """Lognormal prices, with volatilities that are constant or known functions of time.

    Parameters
    ----------
    spot
        Prices at time 0, > 0: one number, or one per asset.
    volatility
        Yearly volatilities, >= 0: one number, or one per asset; or a :class:`TermStructure`.
    dividend
        Continuous dividend yields: one number, or one per asset; or a :class:`TermStructure`.
    n_assets
        Number of assets.
    correlation
        Between the assets' returns: one number for all pairs, or a matrix.
    cash_dividends
        Pairs of time and amount (one number, or one per asset): the price falls by the amount at that time, at most to
        zero. An exercise at the same time receives the price after the fall.

    Notes
    -----
    Every interval is one exact draw, so there is no discretisation error whatever the dates. The exercise interval
    uses one normal per asset, and as many more for each cash dividend inside it.

    Examples
    --------
    >>> from mixtune.options import TimeGrid
    >>> process = BlackScholes(spot=[90, 100], volatility=0.2, dividend=0.1, n_assets=2, correlation=0.3)
    >>> process.sample(4, TimeGrid(maturity=3, dates=9, rate=0.05), np.random.default_rng(0)).shape
    (4, 10, 2)
    """

    spot: ArrayLike
    volatility: ArrayLike | TermStructure
    dividend: ArrayLike | TermStructure = 0.0
    n_assets: int = 1
    correlation: ArrayLike = 0.0
    cash_dividends: Any = ()
    pieces: int = 1
    _matrix: Floats | None = field(init=False, repr=False)
    _factor: Floats | None = field(init=False, repr=False)

    follows_arrays = True

    def __post_init__(self) -> None:
        n_assets = self._check_assets()
        matrix = correlation_matrix(self.correlation, n_assets)
        self._store(
            volatility=curve_per_asset("volatility", self.volatility, n_assets, least=0),
            _matrix=matrix,
            _factor=None if matrix is None else correlation_factor(matrix),
        )

    def start(self, n_paths: int) -> State:
        return State(constant_columns(self.spot, n_paths))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> State:
        dividend, dt = mean_over(self.dividend, begin, end), end - begin
        volatility, factor = self._volatility_over(begin, end)
        normals = correlated(factor, normals)
        moves = normals * match(volatility * math.sqrt(dt), normals)
        moves += match((rate - dividend - 0.5 * volatility**2) * dt, normals)
        with np.errstate(over="ignore"):
            moves = np.exp(moves, out=moves) if is_numpy(moves) else namespace(moves).exp(moves)
            moves *= state.prices
        return State(moves)

    def total_volatility(self, begin: float, end: float) -> Floats:
        """Standard deviation of the log-prices' moves over an interval, one per asset."""
        return self._volatility_over(begin, end)[0] * math.sqrt(end - begin)

    def covariance(self, begin: float, end: float) -> Floats:
        """Of the log-prices' moves over an interval, (assets, assets)."""
        volatility, factor = self._volatility_over(begin, end)
        loadings = np.diag(volatility) if factor is None else volatility[:, None] * factor
        return loadings @ loadings.T * (end - begin)

    def _volatility_over(self, begin: float, end: float) -> tuple[Floats, Floats | None]:
        """Volatilities that give the variance over an interval, and a factor of the correlation of the moves there."""
        if not isinstance(self.volatility, TermStructure):
            return np.asarray(self.volatility), self._factor
        values, weights = np.asarray(self.volatility.values), self.volatility.weights(begin, end)
        products = (values.T * weights) @ values  # of the volatilities of each pair, integrated
        total = np.sqrt(np.diag(products))
        volatility = total / math.sqrt(end - begin)
        if self._matrix is None:
            return volatility, None
        # Volatilities that change in different ways make assets less correlated over the interval than at each time.
        scale = np.where(total > 0, total, 1.0)
        together = np.where(np.eye(self.n_assets, dtype=bool), 1.0, self._matrix * products / np.outer(scale, scale))
        return volatility, correlation_factor(together)


@dataclass(frozen=True, eq=False)
class NoiseState(State):
    """Prices, and the normals that made them, of shape (paths, assets, dates so far), with the times of these dates."""

    noise: Floats
    times: Floats

    shared = frozenset({"times"})


@dataclass(frozen=True, eq=False, kw_only=True)
class FractionalBrownianMotion(Process):
    """Independent fractional Brownian motions, as they are or as exponents of prices.

    Parameters
    ----------
    hurst
        H between 0 and 1; 1/2 is Brownian motion.
    spot
        Where paths start: one number, or one per asset.
    volatility
        Factor of the motion, >= 0: one number, or one per asset.
    exponential
        Whether paths are ``spot * exp(volatility * B)`` rather than ``spot + volatility * B``.
    n_assets
        Number of independent motions.

    Notes
    -----
    There is no risk-neutral drift: these paths are not those of a traded asset (unless H = 1/2), and the rate of a
    grid only discounts.

    Examples
    --------
    >>> motion = FractionalBrownianMotion(hurst=0.3)
    >>> paths = motion.sample(20_000, TimeGrid(maturity=4, dates=8), np.random.default_rng(0), sobol=True)
    >>> bool(abs(paths[:, -1].var() / 4**0.6 - 1) < 0.02)
    True
    """

    hurst: float
    spot: ArrayLike = 0.0
    volatility: ArrayLike = 1.0
    exponential: bool = False
    n_assets: int = 1

    def __post_init__(self) -> None:
        hurst = check_positive("hurst", self.hurst)
        if hurst >= 1:
            raise ParameterError(f"hurst must be between 0 and 1; got {self.hurst!r}")
        n_assets = check_whole("n_assets", self.n_assets, least=1)
        spot = per_asset("spot", self.spot, n_assets)
        if self.exponential and not np.all(spot > 0):
            raise ParameterError(f"exponential paths need spot > 0; got {self.spot!r}")
        self._store(hurst=hurst, spot=spot, volatility=per_asset("volatility", self.volatility, n_assets, least=0))

    def start(self, n_paths: int) -> NoiseState:
        prices = constant_columns(self.spot, n_paths)
        return NoiseState(prices, np.empty((n_paths, self.n_assets, 0)), np.empty(0))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> NoiseState:
        assert isinstance(state, NoiseState)
        known = state.times[-1] if state.times.size else 0.0
        if begin != known:
            raise ParameterError(f"these paths are known up to time {known:g}; continue them from there")
        noise = np.concatenate([state.noise.T, normals.T[None]])
        times = np.append(state.times, end)
        row = _motion_factor(self.hurst, tuple(times.tolist()))[-1]
        motion = np.einsum("t,tdn->dn", row, noise)
        return NoiseState(self._prices(motion), noise.T, times)

    def states(self, grid: TimeGrid, normals: Array) -> Iterator[State]:
        # All dates in one product, rather than row by row.
        factor = _motion_factor(self.hurst, tuple(grid.times[1:].tolist()))
        motions = combine(factor, normals.reshape(grid.n_dates, -1)).reshape(normals.shape)
        yield State(self.start(normals.shape[2]).prices)
        for motion in motions:
            yield State(self._prices(motion))

    def _prices(self, motion: Floats) -> Floats:
        """Prices (paths, assets) from the motion (assets, paths)."""
        spot, moves = np.asarray(self.spot), motion.T * np.asarray(self.volatility)
        with np.errstate(over="ignore"):
            return spot * np.exp(moves) if self.exponential else spot + moves


@lru_cache(maxsize=256)
def _motion_factor(hurst: float, times: tuple[float, ...]) -> Floats:
    """Cholesky factor of the covariance at these times.

    Examples
    --------
    >>> np.allclose(_motion_factor(0.5, (1.0, 2.0)), [[1, 0], [1, 1]])
    True
    """
    t = np.array(times)
    power = t ** (2 * hurst)
    covariance = 0.5 * (power[:, None] + power - np.abs(t[:, None] - t) ** (2 * hurst))
    try:
        return freeze(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        raise ParameterError(
            f"the {t.size} dates are too close together to tell apart for hurst={hurst:g}; use fewer dates"
        ) from None
