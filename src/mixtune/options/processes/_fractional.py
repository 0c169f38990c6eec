r"""Fractional Brownian motion: Gaussian paths with memory, a standard test of stopping without the Markov property.

.. math:: \operatorname{E} B_s B_t = \tfrac12 \left( s^{2H} + t^{2H} - |t - s|^{2H} \right)

The Cholesky factor of this covariance makes exact paths on any dates, one new normal per date. Row by row it also
continues a path exactly given its past.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from mixtune._checks import check_positive, check_whole
from mixtune.errors import ParameterError
from mixtune.options._grid import TimeGrid
from mixtune.options._normals import combine
from mixtune.options.processes._base import Floats, Process, State, constant_columns, per_asset

__all__ = ["FractionalBrownianMotion"]


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
        volatility = per_asset("volatility", self.volatility, n_assets, least=0)
        for name, value in {"hurst": hurst, "spot": spot, "volatility": volatility}.items():
            object.__setattr__(self, name, value)

    @property
    def normals_per_interval(self) -> int:
        return self.n_assets

    def start(self, n_paths: int) -> NoiseState:
        prices = constant_columns(np.asarray(self.spot), n_paths)
        return NoiseState(prices, np.empty((n_paths, self.n_assets, 0)), np.empty(0))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Floats) -> NoiseState:
        assert isinstance(state, NoiseState)
        if state.times.size and begin != state.times[-1]:
            raise ParameterError(f"these paths are known up to time {state.times[-1]:g}; continue them from there")
        if not state.times.size and begin != 0:
            raise ParameterError(f"paths start at time 0; got begin={begin:g}")
        noise = np.concatenate([state.noise.T, normals.T[None]])
        times = np.append(state.times, end)
        row = _cholesky(self.hurst, tuple(times.tolist()))[-1]
        motion = np.einsum("t,tdn->dn", row, noise)
        return NoiseState(self._prices(motion), noise.T, times)

    def states(self, grid: TimeGrid, normals: Floats) -> Iterator[State]:
        # All dates in one product, rather than row by row.
        factor = _cholesky(self.hurst, tuple(grid.times[1:].tolist()))
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
def _cholesky(hurst: float, times: tuple[float, ...]) -> Floats:
    """Cholesky factor of the covariance at these times.

    Examples
    --------
    >>> np.allclose(_cholesky(0.5, (1.0, 2.0)), [[1, 0], [1, 1]])
    True
    """
    t = np.array(times)
    power = t ** (2 * hurst)
    covariance = 0.5 * (power[:, None] + power - np.abs(t[:, None] - t) ** (2 * hurst))
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise ParameterError(
            f"the {t.size} dates are too close together for hurst={hurst:g}: their values are all but the same; "
            "use fewer dates"
        ) from None
    factor.flags.writeable = False
    return factor
