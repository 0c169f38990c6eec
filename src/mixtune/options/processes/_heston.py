r"""Heston: prices whose variance is itself random and returns to its mean.

.. math:: dS = (r - \delta) S\,dt + \sqrt{v}\,S\,dW, \quad dv = k (\bar v - v)\,dt + \sigma \sqrt{v}\,dB,
    \quad d\langle W, B \rangle = \rho\,dt

Three ways to step it: the paper's, one plain Euler step per date; the usual Euler scheme for the logarithm with smaller
steps; and Andersen's quadratic-exponential scheme, accurate with large steps.

References: Heston (1993); Andersen, *Simple and efficient simulation of the Heston stochastic volatility model*,
J. Comp. Finance 11 (2008); Lord, Koekkoek and van Dijk (2010) for full truncation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from mixtune._array import match, namespace
from mixtune._checks import check_choice, check_nonnegative, check_whole
from mixtune.errors import ParameterError
from mixtune.options.processes._base import Floats, Process, State, constant_columns, per_asset

__all__ = ["Heston", "VarianceProcess", "VarianceState"]

DEFAULT_SUBSTEPS = {"paper": 1, "log-euler": 20, "qe": 2}
#: Where the quadratic-exponential scheme changes from the one to the other; Andersen's choice.
SWITCH = 1.5


@dataclass(frozen=True, eq=False)
class VarianceState(State):
    """Prices and variances of some paths, each of shape (paths, assets).

    Between steps of a truncated Euler scheme a variance may be negative; ``hidden`` shows it cut off at zero.
    """

    variance: Floats

    @property
    def hidden(self) -> Floats:
        return _positive(self.variance)


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
        checked = {
            "spot": per_asset("spot", self.spot, n_assets, least=0, strict=True),
            "dividend": per_asset("dividend", self.dividend, n_assets),
            "rho": rho,
        }
        for name in ("v0", "v_mean", "v_speed", "v_vol"):
            checked[name] = check_nonnegative(name, getattr(self, name))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

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
    >>> from mixtune.options._grid import TimeGrid
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
        object.__setattr__(self, "substeps", check_whole("substeps", substeps, least=1))
        if self.scheme == "qe" and self.v_vol == 0:
            raise ParameterError('scheme "qe" needs v_vol > 0; use scheme="log-euler" for a variance without noise')

    @property
    def follows_arrays(self) -> bool:
        return self.scheme != "qe"  # whose two cases need functions that few array libraries have

    @property
    def normals_per_interval(self) -> int:
        assert self.substeps is not None
        return 2 * self.n_assets * self.substeps

    def start(self, n_paths: int) -> VarianceState:
        prices = constant_columns(np.asarray(self.spot), n_paths)
        return VarianceState(prices, np.full_like(prices, self.v0))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Floats) -> VarianceState:
        assert isinstance(state, VarianceState)
        assert self.substeps is not None
        dt = (end - begin) / self.substeps
        move = {"paper": self._paper, "log-euler": self._log_euler, "qe": self._quadratic_exponential}[self.scheme]
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

    def _truncated(self, variance: Floats, dt: float, own: Floats) -> tuple[Floats, Floats, Floats]:
        """Euler step of the variance with its positive part on the right-hand side; that part and its root, too."""
        positive = _positive(variance)
        root = namespace(variance).sqrt(positive * dt)
        following = root * own
        following *= self.v_vol
        following += variance
        following += (self.v_speed * dt) * (self.v_mean - positive)
        return positive, root, following

    def _paper(self, variance: Floats, dt: float, own: Floats, other: Floats) -> tuple[Floats, Floats]:
        """Return of the price, to which the drift is added, and the next variance."""
        _, root, following = self._truncated(variance, dt, own)
        root *= self.mixed(own, other)
        return root, following

    def _log_euler(self, variance: Floats, dt: float, own: Floats, other: Floats) -> tuple[Floats, Floats]:
        """Change of the log-price without drift, and the next variance."""
        positive, root, following = self._truncated(variance, dt, own)
        root *= self.mixed(own, other)
        root -= (0.5 * dt) * positive
        return root, following

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


def _positive(variance: Floats) -> Floats:
    xp = namespace(variance)
    return xp.maximum(variance, xp.zeros((), dtype=variance.dtype, device=variance.device))


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
