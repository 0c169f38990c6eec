"""Black-Scholes: correlated geometric Brownian motions, stepped exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mixtune._array import is_numpy, match, namespace
from mixtune._checks import check_whole
from mixtune.errors import ParameterError
from mixtune.options._normals import combine
from mixtune.options.processes._base import Floats, Process, State, constant_columns, per_asset

__all__ = ["BlackScholes"]

#: How far below zero rounding may push the smallest eigenvalue of a correlation matrix.
ROUNDING = 1e-10


@dataclass(frozen=True, eq=False, kw_only=True)
class BlackScholes(Process):
    """Lognormal prices with constant volatilities.

    Parameters
    ----------
    spot
        Prices at time 0, > 0: one number, or one per asset.
    volatility
        Yearly volatilities, >= 0: one number, or one per asset.
    dividend
        Continuous dividend yields: one number, or one per asset.
    n_assets
        Number of assets.
    correlation
        Between the assets' returns: one number for all pairs, or a matrix.

    Notes
    -----
    Every interval is one exact draw, so there is no discretisation error whatever the dates. The exercise interval
    uses one normal per asset.

    Examples
    --------
    >>> from mixtune.options._grid import TimeGrid
    >>> process = BlackScholes(spot=[90, 100], volatility=0.2, dividend=0.1, n_assets=2, correlation=0.3)
    >>> process.sample(4, TimeGrid(maturity=3, dates=9, rate=0.05), np.random.default_rng(0)).shape
    (4, 10, 2)
    """

    spot: ArrayLike
    volatility: ArrayLike
    dividend: ArrayLike = 0.0
    n_assets: int = 1
    correlation: ArrayLike = 0.0
    _factor: Floats | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n_assets = check_whole("n_assets", self.n_assets, least=1)
        settings = {
            "spot": per_asset("spot", self.spot, n_assets, least=0, strict=True),
            "volatility": per_asset("volatility", self.volatility, n_assets, least=0),
            "dividend": per_asset("dividend", self.dividend, n_assets),
            "_factor": _factor(self.correlation, n_assets),
        }
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    @property
    def follows_arrays(self) -> bool:
        return True

    @property
    def normals_per_interval(self) -> int:
        return self.n_assets

    def start(self, n_paths: int) -> State:
        return State(constant_columns(np.asarray(self.spot), n_paths))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Floats) -> State:
        volatility, dividend, dt = np.asarray(self.volatility), np.asarray(self.dividend), end - begin
        moves = normals
        if self._factor is not None and is_numpy(normals):
            moves = combine(self._factor, normals.T).T
        elif self._factor is not None:
            moves = normals @ match(self._factor.T, normals)
        moves = moves * match(volatility * math.sqrt(dt), normals)
        moves += match((rate - dividend - 0.5 * volatility**2) * dt, normals)
        with np.errstate(over="ignore"):
            moves = np.exp(moves, out=moves) if is_numpy(moves) else namespace(moves).exp(moves)
            moves *= state.prices
        return State(moves)


def _factor(correlation: ArrayLike, n_assets: int) -> Floats | None:
    """A matrix whose product with its transpose is the correlation matrix; none if the assets are independent."""
    try:
        matrix = np.array(correlation, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"correlation must be a number or a matrix of numbers; got {correlation!r}") from None
    if matrix.shape not in ((), (n_assets, n_assets)):
        raise ParameterError(
            f"correlation must be one number or a matrix of shape ({n_assets}, {n_assets}); got shape {matrix.shape}"
        )
    if not np.all(np.abs(matrix) <= 1):  # also refuses NaN
        raise ParameterError("correlation must lie between -1 and 1")
    if matrix.ndim == 0:
        matrix = np.where(np.eye(n_assets, dtype=bool), 1.0, matrix)
    if not np.allclose(matrix, matrix.T, rtol=0, atol=ROUNDING):
        raise ParameterError("correlation must be symmetric; pass the mean of the matrix and its transpose")
    if not np.allclose(np.diag(matrix), 1.0, rtol=0, atol=ROUNDING):
        raise ParameterError("correlation must have ones on its diagonal; pass volatilities as volatility")
    if np.array_equal(matrix, np.eye(n_assets)):
        return None
    eigenvalues, vectors = np.linalg.eigh(matrix)
    if eigenvalues[0] < -ROUNDING * n_assets:
        hint = f"; one number for all pairs must be >= {-1 / (n_assets - 1):.6g}" if np.ndim(correlation) == 0 else ""
        raise ParameterError(
            f"correlation must be positive semi-definite; its smallest eigenvalue is {eigenvalues[0]:.3g}{hint}"
        )
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:  # singular: some asset is a combination of others
        return vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
