r"""Market models: Black-Scholes and fractional Brownian motion, Heston and rough Heston.

**Gaussian models** are sampled exactly on any dates. Fractional Brownian motion has memory, and is a standard test of
stopping without the Markov property:

.. math:: \operatorname{E} B_s B_t = \tfrac12 \left( s^{2H} + t^{2H} - |t - s|^{2H} \right)

The Cholesky factor of this covariance makes exact paths, one new normal per date. Row by row it also continues a path
exactly given its past.

**Heston**: prices whose variance is itself random and returns to its mean,

.. math:: dS = (r - \delta) S\,dt + \sqrt{v}\,S\,dW, \quad dv = k (\bar v - v)\,dt + \sigma \sqrt{v}\,dB,
    \quad d\langle W, B \rangle = \rho\,dt

Three ways to step it: the paper's, one plain Euler step per date; the usual Euler scheme for the logarithm with smaller
steps; and Andersen's quadratic-exponential scheme, accurate with large steps.

**Rough Heston** has a variance with memory, rougher than Brownian motion:

.. math:: v_t = v_0 + \int_0^t K(t - s) \left[ k (\bar v - v_s)\,ds + \sigma \sqrt{v_s}\,dB_s \right], \quad
    K(t) = \frac{t^{H - 1/2}}{\Gamma(H + 1/2)}

The Euler scheme replaces the integral by a sum over all past steps, floors the variance at zero, and takes Euler steps
of the log-price. What differs between the two schemes is how the past is kept. "volterra" stores every increment: exact
weights, at a cost that grows with the past. "markovian" writes the kernel as a sum of exponentials, so that a few
factors, each decaying at its own speed, carry the past whatever its length. With the same normals both give the same
paths up to the error of that sum (about 1e-5 of the kernel with the default factors). At H = 1/2 the kernel is 1, and
both are the classical Heston model with "log-euler" steps.

References: Heston (1993); Andersen, *Simple and efficient simulation of the Heston stochastic volatility model*,
J. Comp. Finance 11 (2008); Lord, Koekkoek and van Dijk (2010) for full truncation; El Euch and Rosenbaum, *The
characteristic function of rough Heston models* (2019); Abi Jaber and El Euch, *Multifactor approximation of rough
volatility models* (2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls
from scipy.special import ndtr

from mixtune._array import Array, Floats, freeze, is_numpy, match, namespace
from mixtune._checks import check_choice, check_nonnegative, check_positive, check_whole
from mixtune._messages import setting
from mixtune.errors import ParameterError
from mixtune.options._process import Process, State, combine, constant_columns, per_asset
from mixtune.options._settings import TimeGrid, numbers

__all__ = ["BlackScholes", "FractionalBrownianMotion", "Heston", "Process", "RoughHeston", "State"]

#: How far below zero rounding may push the smallest eigenvalue of a correlation matrix.
ROUNDING = 1e-10
DEFAULT_SUBSTEPS = {"paper": 1, "log-euler": 20, "qe": 2}
#: Where the quadratic-exponential scheme changes from the quadratic to the exponential case; Andersen's choice.
SWITCH = 1.5
#: Steps of rough Heston between two looks at the whole past.
BLOCK_STEPS = 16


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
    >>> from mixtune.options import TimeGrid
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

    follows_arrays = True

    def __post_init__(self) -> None:
        n_assets = check_whole("n_assets", self.n_assets, least=1)
        self._store(
            spot=per_asset("spot", self.spot, n_assets, least=0, strict=True),
            volatility=per_asset("volatility", self.volatility, n_assets, least=0),
            dividend=per_asset("dividend", self.dividend, n_assets),
            _factor=_correlation_factor(self.correlation, n_assets),
        )

    def start(self, n_paths: int) -> State:
        return State(constant_columns(self.spot, n_paths))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> State:
        volatility, dividend, dt = np.asarray(self.volatility), np.asarray(self.dividend), end - begin
        if self._factor is not None:
            factor = self._factor
            normals = combine(factor, normals.T).T if is_numpy(normals) else normals @ match(factor.T, normals)
        moves = normals * match(volatility * math.sqrt(dt), normals)
        moves += match((rate - dividend - 0.5 * volatility**2) * dt, normals)
        with np.errstate(over="ignore"):
            moves = np.exp(moves, out=moves) if is_numpy(moves) else namespace(moves).exp(moves)
            moves *= state.prices
        return State(moves)


def _correlation_factor(correlation: ArrayLike, n_assets: int) -> Array | None:
    """A matrix whose product with its transpose is the correlation matrix; none if the assets are independent."""
    matrix = numbers("correlation", correlation)
    if matrix.shape not in ((), square := (n_assets, n_assets)):
        raise ParameterError(f"correlation must be one number or a matrix of shape {square}; got shape {matrix.shape}")
    if not np.all(np.abs(matrix) <= 1):
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


@dataclass(frozen=True, eq=False)
class VarianceState(State):
    """Prices and variances of some paths, each of shape (paths, assets).

    Between steps of a truncated Euler scheme a variance may be negative; ``hidden`` shows it cut off at zero.
    """

    variance: Floats

    @property
    def hidden(self) -> Floats:
        return self.variance.clip(0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class VarianceProcess(Process):
    """Settings that Heston and its rough version share; see :class:`Heston`."""

    spot: ArrayLike
    v0: float
    v_mean: float
    v_speed: float
    v_vol: float
    rho: float
    dividend: ArrayLike = 0.0
    n_assets: int = 1

    def __post_init__(self) -> None:
        n_assets = check_whole("n_assets", self.n_assets, least=1)
        rho = float(per_asset("rho", self.rho, 1)[0])
        if not -1 <= rho <= 1:
            raise ParameterError(f"rho must be a correlation, between -1 and 1; got {self.rho!r}")
        self._store(
            spot=per_asset("spot", self.spot, n_assets, least=0, strict=True),
            dividend=per_asset("dividend", self.dividend, n_assets),
            rho=rho,
            **{name: check_nonnegative(name, getattr(self, name)) for name in ("v0", "v_mean", "v_speed", "v_vol")},
        )

    @property
    def normals_per_interval(self) -> int:
        return 2 * self.n_assets * self.substeps  # type: ignore[attr-defined]

    def start(self, n_paths: int) -> VarianceState:
        prices = constant_columns(self.spot, n_paths)
        return VarianceState(prices, np.full_like(prices, self.v0))

    def noise(self, normals: Array) -> Array:
        # Each step has the normals of all variances and then those of all prices; their sums drive the interval.
        by_step = normals.reshape(normals.shape[0], -1, 2, self.n_assets, normals.shape[2])
        return by_step.sum(1) / math.sqrt(by_step.shape[1])

    def mixed(self, own: Floats, other: Floats) -> Floats:
        """Normals of the price: ``rho`` parts those of its variance, the rest its own."""
        mixed = math.sqrt(1.0 - self.rho**2) * other
        mixed += self.rho * own
        return mixed


@dataclass(frozen=True, eq=False, kw_only=True)
class Heston(VarianceProcess):
    """Independent assets with the same stochastic variance law.

    Parameters
    ----------
    spot
        Prices at time 0, > 0: one number, or one per asset.
    v0
        Variance at time 0, >= 0.
    v_mean
        Variance it returns to, >= 0.
    v_speed
        How fast it returns, >= 0.
    v_vol
        Volatility of the variance, >= 0.
    rho
        Correlation of an asset with its own variance, between -1 and 1.
    dividend
        Continuous dividend yields: one number, or one per asset.
    n_assets
        Number of independent assets.
    scheme
        "qe": quadratic-exponential with martingale correction. "log-euler": Euler for the log-price, full
        truncation of the variance. "paper": arithmetic Euler for the price, full truncation, one step per date.
    substeps
        Steps per exercise interval; by default 1 for "paper", 2 for "qe" and 20 for "log-euler".

    Notes
    -----
    An interval uses ``2 * substeps`` normals per asset; in each substep those of all variances come first. "qe" and
    "log-euler" reproduce the mean of the price exactly; so does "paper" up to ``(1 + (r - dividend) dt)`` in the
    place of the exponential, and its prices may become negative.

    Examples
    --------
    >>> from mixtune.options import TimeGrid
    >>> heston = Heston(spot=100, v0=0.04, v_mean=0.04, v_speed=2, v_vol=0.3, rho=-0.7, scheme="qe")
    >>> paths = heston.sample(20_000, TimeGrid(maturity=1, dates=4), np.random.default_rng(0), sobol=True)
    >>> bool(abs(paths[:, -1].mean() - 100) < 0.05)
    True
    """

    scheme: str = "qe"
    substeps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("scheme", self.scheme, tuple(DEFAULT_SUBSTEPS))
        substeps = DEFAULT_SUBSTEPS[self.scheme] if self.substeps is None else self.substeps
        # The two cases of "qe" need functions that few array libraries have.
        self._store(substeps=check_whole("substeps", substeps, least=1), follows_arrays=self.scheme != "qe")
        if self.scheme == "qe" and self.v_vol == 0:
            raise ParameterError('scheme "qe" needs v_vol > 0; use {fix}', fix=setting("scheme", "log-euler"))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> VarianceState:
        assert isinstance(state, VarianceState)
        assert self.substeps is not None
        dt = (end - begin) / self.substeps
        move = self._quadratic_exponential if self.scheme == "qe" else self._euler
        variance, drift, d = state.variance, match(rate - np.asarray(self.dividend), normals), self.n_assets
        arithmetic = self.scheme == "paper"
        total = state.prices if arithmetic else drift * (end - begin)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported by the sampler
            for column in range(0, normals.shape[1], 2 * d):
                own, other = normals[:, column : column + d], normals[:, column + d : column + 2 * d]
                change, variance = move(variance, dt, own, other)
                if arithmetic:
                    change += 1.0 + drift * dt
                    change *= total
                else:
                    change += total
                total = change
            prices = total if arithmetic else state.prices * namespace(total).exp(total)
        return VarianceState(prices, variance)

    def _euler(self, variance: Array, dt: float, own: Array, other: Array) -> tuple[Array, Array]:
        """Return of the price ("paper") or change of its logarithm, both without drift, and the next variance.

        Full truncation: the right-hand sides see the positive part of the variance.
        """
        positive = variance.clip(0.0)
        change = namespace(variance).sqrt(positive * dt)
        following = change * own
        following *= self.v_vol
        following += variance
        following += (self.v_speed * dt) * (self.v_mean - positive)
        change *= self.mixed(own, other)
        if self.scheme == "log-euler":
            change -= (0.5 * dt) * positive
        return change, following

    def _quadratic_exponential(self, variance: Floats, dt: float, own: Floats, other: Floats) -> tuple[Floats, Floats]:
        """Change of the log-price without drift, and the next variance; symbols as in Andersen (2008)."""
        decay = math.exp(-self.v_speed * dt)
        gone = -math.expm1(-self.v_speed * dt)
        span = gone / self.v_speed if self.v_speed > 0 else dt
        # The first two moments of the next variance. The floor concerns a variance that has died out for good.
        m = np.maximum(self.v_mean * gone + decay * variance, 1e-30)
        s2 = (self.v_vol**2 * decay * span) * variance + 0.5 * self.v_mean * self.v_vol**2 * span * gone
        psi = s2 / (m * m)
        # Weights of the integrated variance (trapezoid) and of the correlation in the log-price.
        ratio, leftover = self.rho / self.v_vol, 0.5 * dt * (1.0 - self.rho**2)
        after = 0.5 * dt * (self.v_speed * ratio - 0.5) + ratio
        following, log_mean = _matched(m, psi, own, after + 0.5 * leftover)
        change = np.sqrt(leftover * (variance + following))
        change *= other
        change += after * following
        change -= 0.5 * leftover * variance
        change -= log_mean
        return change, following


def _matched(m: Floats, psi: Floats, normal: Floats, A: float) -> tuple[Floats, Floats]:
    """Draw the next variance v with mean ``m`` and variance ``psi m^2``; also log E exp(A v), for the correction."""
    ratio = 2.0 / np.clip(psi, 1e-14, SWITCH)
    b2 = ratio - 1.0 + np.sqrt(ratio * (ratio - 1.0))
    a = m / (1.0 + b2)
    following = np.sqrt(b2)
    following += normal
    following *= following
    following *= a
    room = 1.0 - 2.0 * A * a
    _check_room(room)
    log_mean = A * b2 * a / room
    log_mean -= 0.5 * np.log(room)
    high = psi > SWITCH
    if high.any():
        rest = 2.0 / (psi[high] + 1.0)  # the probability that the variance is not zero, 1 - p
        beta = rest / m[high]
        _check_room(beta - A)
        # 1 - U with U uniform is the upper tail of the normal, which keeps its digits.
        tail = ndtr(-normal[high])
        following[high] = np.log(np.maximum(rest / tail, 1.0)) / beta
        log_mean[high] = np.log1p(rest * A / (beta - A))
    return following, log_mean


def _check_room(room: Floats) -> None:
    if not np.all(room > 0):
        raise ParameterError(
            'the price has no finite mean over one step of scheme "qe" with these rho and v_vol; use more substeps'
        )


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
        As for :class:`Heston`.
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
    >>> from mixtune.options import TimeGrid
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

    def __post_init__(self) -> None:
        super().__post_init__()
        hurst = check_positive("hurst", self.hurst)
        if hurst > 0.5:
            raise ParameterError(f"hurst must be above 0 and at most 1/2; got {self.hurst!r}")
        check_choice("scheme", self.scheme, ("volterra", "markovian"))
        lags = numbers("kernel_range", self.kernel_range)
        if lags.shape != (2,) or not 0 < lags[0] < lags[1]:
            raise ParameterError(f"kernel_range must be two lags, 0 < shortest < longest; got {self.kernel_range!r}")
        counts = {"substeps": check_whole("substeps", self.substeps, least=1)}
        counts["factors"] = check_whole("factors", self.factors, least=2)
        self._store(hurst=hurst, kernel_range=tuple(lags.tolist()), **counts)

    @property
    def kernel_error(self) -> float:
        if self.scheme == "volterra":
            return 0.0
        speeds, weights = exponentials(self.hurst, self.factors, *self.kernel_range)
        lags = np.geomspace(*self.kernel_range, 100 * self.factors)
        return float(np.max(np.abs(np.exp(-np.outer(lags, speeds)) @ weights / _kernel(lags, self.hurst) - 1.0)))

    def start(self, n_paths: int) -> VarianceState:
        now = super().start(n_paths)
        if self.scheme == "volterra":
            return HistoryState(now.prices, now.variance, np.empty((n_paths, self.n_assets, 0)), np.empty(0))
        speeds, _ = exponentials(self.hurst, self.factors, *self.kernel_range)
        return FactorState(now.prices, now.variance, np.zeros((speeds.size, self.n_assets, n_paths)).T)

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> VarianceState:
        assert isinstance(state, VarianceState)
        dt = (end - begin) / self.substeps
        shortest, longest = self.kernel_range
        # A small tolerance: dates are multiples of a rounded step.
        if self.scheme == "markovian" and (dt < shortest * (1 - 1e-9) or end > longest * (1 + 1e-9)):
            raise ParameterError(
                f"the factors fit lags from {shortest:g} to {longest:g}; steps of {dt:g} up to time {end:g} leave "
                "that range; pass a wider kernel_range (and more factors)"
            )
        per_step = 2 * self.n_assets
        for first in range(0, self.substeps, BLOCK_STEPS):
            piece = normals[:, first * per_step : (first + BLOCK_STEPS) * per_step]
            state = self._block(state, begin + first * dt, dt, rate, piece)
        return state

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

    def _substeps(self, state: VarianceState, curve: Floats, dt: float, normals: Floats) -> tuple[Floats, ...]:
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


def _kernel(lags: Array, hurst: float) -> Floats:
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
    return freeze(speeds), freeze(weights)
