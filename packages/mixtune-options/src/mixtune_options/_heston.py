r"""Heston: prices whose variance is itself random and returns to its mean,

.. math:: dS = (r - \delta) S\,dt + \sqrt{v}\,S\,dW, \quad dv = k (\bar v - v)\,dt + \sigma \sqrt{v}\,dB,
    \quad d\langle W, B \rangle = \rho\,dt

Four ways to step it: the paper's, one plain Euler step per date; the usual Euler scheme for the logarithm with smaller
steps; Andersen's quadratic-exponential scheme with martingale correction; and a scheme that draws the integrated
variance from the inverse Gaussian law, which needs very few steps where the variance rarely comes near zero.

**Inverse Gaussian steps.** The variance integrated over a step is its known expectation plus an integral of the noise Z
of the step. The weight of the noise is replaced by its mean g over the step. Then U = expected + g Z, with Z a Brownian
motion at time U, makes U the time at which a Brownian motion with drift reaches a level: it has the inverse Gaussian
law (Abi Jaber 2024, with the weights at the end of the step). Prices are martingales without correction. Where the
expectation is negative the step has no variance, and the deficit is carried on, which keeps the mean. ``for_grid``
takes this scheme where the spread of the variance, ``sigma^2 min(maturity, 1 / k) / mean variance``, is at most 4, with
16 to 32 steps to maturity: Fourier prices near the money are met within 0.1%. Correlated assets need the other scheme.

**Steps of the quadratic-exponential scheme.** It draws the next variance with the right mean and variance, and replaces
the variance integrated over the step by the trapezoid rule. What the rule misses is

- the part of the integrated variance that both ends leave open. Through the correlation it moves the price: a share
  ``(rho k dt)^2 / 12`` of the squared return is lost;
- the effect of that part on the curvature of option prices, about ``(sigma dt)^2 / (96 mean variance maturity)`` of a
  price at the money.

Both are of second order in the step dt. ``for_grid`` chooses dt so that ``k dt <= 0.12`` and
``sigma dt <= 0.14 sqrt(mean variance * maturity)``, with at least five steps to maturity. Against Fourier prices this
keeps the error near the money below 0.1% (``python -m benchmarks prices``). Other tolerances scale the step by their
root.

Several assets have parameters of their own and correlated prices. Variances follow prices: ``dB_i = rho_i dW_i`` plus
noise of their own, which makes every correlation matrix of the prices possible.

References: Heston (1993); Andersen, *Simple and efficient simulation of the Heston stochastic volatility model*,
J. Comp. Finance 11 (2008); Abi Jaber, *Simulation of square-root processes made simple* (2024); Michael, Schucany and
Haas (1976) for draws from the inverse Gaussian law; Lord, Koekkoek and van Dijk (2010) for full truncation.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from mixtune import checks
from mixtune.errors import ParameterError
from mixtune_options._arrays import Array, Floats, match, namespace
from mixtune_options._process import Process, State, TermStructure, correlated, joint_factor, mean_over, per_asset
from mixtune_options._settings import TOLERANCE, TimeGrid, set_fields

#: The parameters of the variance, in the order in which functions take them.
LAW = ("v0", "v_mean", "v_speed", "v_vol", "rho")
#: Steps per exercise interval where the scheme has a fixed number; "qe" chooses.
FIXED_SUBSTEPS = {"paper": 1, "log-euler": 20}
#: Where the quadratic-exponential scheme changes from the quadratic to the exponential case; Andersen's choice.
SWITCH = 1.5
#: Longest step of the quadratic-exponential scheme at the default tolerance: in units of the mean-reversion time, of
#: the time in which the noise of the variance matters, and of the maturity.
REVERSION, NOISE, SHARE = 0.12, 0.14, 0.2
#: Steps to maturity of "inverse-gaussian", and the spread of the variance up to which it is taken.
FEW_STEPS, MOST_SPREAD = 16, 4.0
#: A step's variance is never taken below this share of the step's length, to keep divisions finite.
LEAST_VARIANCE = 1e-14
#: Steps to maturity at the most; a market that needs more is reported by the bias estimate of its price.
MOST_STEPS = 5000


@dataclass(frozen=True, eq=False)
class VarianceState(State):
    """Prices and variances of some paths, each of shape (paths, assets).

    Between steps of a truncated Euler scheme a variance may be negative; ``hidden`` shows it cut off at zero.
    """

    variance: Floats

    @property
    def hidden(self) -> Floats:
        return self.variance.clip(0.0)


@dataclass(frozen=True, eq=False)
class IntegratedState(VarianceState):
    """Prices, variances, and the deficit of integrated variance that is carried on, (paths, assets), <= 0."""

    deficit: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class VarianceProcess(Process):
    """Settings that Heston and its rough version share; see :class:`Heston`."""

    spot: ArrayLike
    v0: Any
    v_mean: Any
    v_speed: Any
    v_vol: Any
    rho: Any
    dividend: ArrayLike | TermStructure = 0.0
    n_assets: int = 1
    cash_dividends: Any = ()
    pieces: int = 1
    scheme: str = "auto"
    substeps: int | None = None

    def __post_init__(self) -> None:
        n_assets = self._check_assets()
        rho = per_asset("rho", self.rho, n_assets)
        if not np.all(np.abs(rho) <= 1):
            raise ParameterError(f"rho must be a correlation, between -1 and 1; got {self.rho!r}")
        for name in ("v0", "v_mean", "v_speed", "v_vol"):
            value, one = getattr(self, name), np.ndim(getattr(self, name)) == 0
            found = checks.check_nonnegative(name, value) if one else per_asset(name, value, n_assets, least=0)
            set_fields(self, **{name: found})
        set_fields(self, rho=float(rho[0]) if np.ndim(self.rho) == 0 else rho)

    @property
    def _normals_per_step(self) -> int:
        """For every asset; those of the variance come first."""
        return 3 if self.scheme == "inverse-gaussian" else 2

    @property
    def _chosen_substeps(self) -> int:
        if self.substeps is None:
            raise ParameterError(
                "the number of substeps depends on the dates; call for_grid(grid) first, or pass substeps"
            )
        return self.substeps

    @property
    def normals_per_piece(self) -> int:
        return self._normals_per_step * self.n_assets * self._chosen_substeps

    def start(self, n_paths: int) -> VarianceState:
        prices = self._columns(self.spot, n_paths)
        return VarianceState(prices, self._columns(per_asset("v0", self.v0, self.n_assets), n_paths))

    def noise(self, normals: Array) -> Array:
        # Each step has the normals of all variances and then those of all prices; their sums drive a piece.
        intervals, _, paths = normals.shape
        Z = normals.reshape(intervals, self.pieces, -1, self._normals_per_step, self.n_assets, paths)
        if self.scheme == "inverse-gaussian":
            # The first normal is the size of the variance's noise, the second its sign.
            Z = np.stack([np.copysign(Z[:, :, :, 0], Z[:, :, :, 1]), Z[:, :, :, 2]], axis=3)
        return (Z.sum(2) / math.sqrt(Z.shape[2])).reshape(intervals, -1, self.n_assets, paths)

    @abstractmethod
    def mean_variance(self, maturity: float) -> Floats:
        """The expected variance, averaged over the time to maturity, for every asset."""

    @abstractmethod
    def _draw(
        self, state: Any, now: float, dt: float, normal: Floats, choice: Floats
    ) -> tuple[Floats, Floats, IntegratedState]:
        """Noise and integrated variance of one step of "inverse-gaussian", and the state after it at the old prices."""

    def _integrated(
        self, state: IntegratedState, begin: float, end: float, rate: float, normals: Floats
    ) -> IntegratedState:
        """Steps of "inverse-gaussian": prices follow from the noise and the integrated variance of each."""
        steps, rho = self._chosen_substeps, np.asarray(self.rho)
        dt = (end - begin) / steps
        total = (rate - mean_over(self.dividend, begin, end)) * (end - begin)
        for step, (normal, choice, other) in enumerate(normals.T.reshape(steps, 3, self.n_assets, -1)):
            noise, integral, state = self._draw(state, begin + step * dt, dt, normal.T, choice.T)
            change = rho * noise
            change -= 0.5 * integral
            change += np.sqrt((1.0 - rho**2) * integral) * other.T
            change += total
            total = change
        with np.errstate(over="ignore"):
            return replace(state, prices=state.prices * np.exp(total))

    def conditional_law(self, grid: TimeGrid, normals: Floats) -> tuple[Floats, Floats, Floats]:
        """The law of one asset's log-price at maturity given the path of its variance; not for Euler schemes.

        Parameters
        ----------
        grid
            The dates.
        normals : ndarray of shape (dates, substeps, paths), or twice the substeps for "inverse-gaussian"
            Normals that drive the variance.

        Returns
        -------
        mean, spread : ndarray of shape (paths,)
            Logarithm of the expected price over the forward, and variance of the log-price.
        control : ndarray of shape (paths,)
            With mean 0 in this scheme: the spread, or the integrated variance, less its mean.
        """
        steps, rho, state = self._chosen_substeps, float(self.rho), self.start(normals.shape[2])
        assert isinstance(state, IntegratedState)
        mean, total = np.zeros((2, *state.prices.shape))
        for begin, interval, Z in zip(grid.times.tolist(), grid.steps.tolist(), normals):
            dt = interval / steps
            for step, (normal, choice) in enumerate(Z.reshape(steps, 2, -1, 1)):
                noise, integral, state = self._draw(state, begin + step * dt, dt, normal, choice)
                mean += rho * noise - 0.5 * rho**2 * integral
                total += integral
        # The deficit is what is still missing from the mean of the integrated variance.
        control = total + state.deficit - grid.maturity * self.mean_variance(grid.maturity)
        return mean[:, 0], (1.0 - rho**2) * total[:, 0], control[:, 0]

    def _euler(
        self, variance: Array, dt: float, own: Array, other: Array, *, start: Array | float = 0.0
    ) -> tuple[Array, Array]:
        """An Euler step at variances >= 0: return of the price without drift, and ``start`` plus their change."""
        law = (self.v_mean, self.v_speed, self.v_vol, self.rho)
        v_mean, v_speed, v_vol, rho = (value if np.ndim(value) == 0 else match(value, variance) for value in law)
        moved = namespace(variance).sqrt(variance * dt)
        change = moved * own
        change *= v_vol
        change += start
        change += (v_speed * dt) * (v_mean - variance)
        mixed = (1.0 - rho**2) ** 0.5 * other
        mixed += rho * own
        moved *= mixed
        return moved, change

    def only(self, asset: int) -> Self:
        """The market of one of the assets, without cash dividends."""
        own: dict[str, Any] = {name: float(per_asset(name, getattr(self, name), self.n_assets)[asset]) for name in LAW}
        own |= {"spot": float(np.asarray(self.spot)[asset]), "n_assets": 1, "cash_dividends": (), "pieces": 1}
        if isinstance(self.dividend, TermStructure):
            own["dividend"] = TermStructure(self.dividend.times, np.asarray(self.dividend.values)[:, asset])
        else:
            own["dividend"] = float(np.asarray(self.dividend)[asset])
        if hasattr(self, "correlation"):
            own["correlation"] = 0.0
        return replace(self, **own)


@dataclass(frozen=True, eq=False, kw_only=True)
class Heston(VarianceProcess):
    """Assets with stochastic variances; prices may be correlated, and every asset may have its own parameters.

    Parameters
    ----------
    spot
        Prices at time 0, > 0: one number, or one per asset.
    v0
        Variance at time 0, >= 0: one number, or one per asset, as are the next four.
    v_mean
        Variance it returns to, >= 0.
    v_speed
        How fast it returns, >= 0.
    v_vol
        Volatility of the variance, >= 0.
    rho
        Correlation of an asset with its own variance, between -1 and 1.
    dividend
        Continuous dividend yields: one number, or one per asset; or a :class:`TermStructure`.
    n_assets
        Number of assets.
    correlation
        Between the assets' returns: one number for all pairs, or a matrix.
    cash_dividends
        Pairs of time and amount (one number, or one per asset): the price falls by the amount at that time, at most to
        zero. An exercise at the same time receives the price after the fall.
    scheme
        "auto": one of the next two, whichever needs fewer steps. "inverse-gaussian": draws the integrated variance.
        "qe": quadratic-exponential with martingale correction. "log-euler": Euler for the log-price, full
        truncation of the variance. "paper": arithmetic Euler for the price, full truncation, one step per date.
    substeps
        Steps per exercise interval. By default 1 for "paper", 20 for "log-euler"; for the others as many as the dates
        and parameters need (see :meth:`for_grid`). With a number given, "auto" is "qe".

    Notes
    -----
    An interval uses ``2 * substeps`` normals per asset, ``3 * substeps`` for "inverse-gaussian"; in each substep those
    of all variances come first. "inverse-gaussian", "qe" and "log-euler" reproduce the mean of the price exactly; so
    does "paper" up to ``(1 + (r - dividend) dt)`` in the place of the exponential, and its prices may become negative.

    Examples
    --------
    >>> from mixtune_options import TimeGrid
    >>> heston = Heston(spot=100, v0=0.04, v_mean=0.04, v_speed=2, v_vol=0.3, rho=-0.7, scheme="qe")
    >>> paths = heston.sample(20_000, TimeGrid(maturity=1, dates=4), np.random.default_rng(0), sobol=True)
    >>> bool(abs(paths[:, -1].mean() - 100) < 0.05)
    True
    """

    correlation: ArrayLike = 0.0
    _factor: Floats | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.check_choice("scheme", self.scheme, ("auto", "inverse-gaussian", "qe", "log-euler", "paper"))
        substeps = FIXED_SUBSTEPS.get(self.scheme) if self.substeps is None else self.substeps
        factor = joint_factor(self.correlation, self.rho, self.n_assets)
        if self.scheme == "inverse-gaussian" and factor is not None:
            raise ParameterError('correlated assets need scheme "qe"; leave scheme out')
        substeps = None if substeps is None else checks.check_whole("substeps", substeps, least=1)
        scheme = "qe" if self.scheme == "auto" and substeps is not None else self.scheme
        # Other schemes need functions that few array libraries have.
        follows_arrays = scheme in FIXED_SUBSTEPS
        set_fields(self, substeps=substeps, scheme=scheme, follows_arrays=follows_arrays, _factor=factor)

    def for_grid(self, grid: TimeGrid, *, tolerance: float = TOLERANCE) -> Self:
        chosen = super().for_grid(grid, tolerance=tolerance)
        if chosen.substeps is not None:
            return chosen
        lengths = {"qe": self._longest_step(grid.maturity)}
        spread = self._spread(grid.maturity)
        if self._factor is None and (spread <= MOST_SPREAD or self.scheme == "inverse-gaussian"):
            lengths["inverse-gaussian"] = grid.maturity / (FEW_STEPS * (1.0 + spread / MOST_SPREAD))
        scheme = max(lengths, key=lambda name: lengths[name]) if self.scheme == "auto" else self.scheme
        dt = lengths[scheme] * math.sqrt(checks.check_positive("tolerance", tolerance) / TOLERANCE)
        dt = max(dt, grid.maturity / MOST_STEPS)
        # Rounding must not add a step where an interval is a whole number of them.
        return replace(chosen, scheme=scheme, substeps=max(1, math.ceil(float(grid.steps.max()) / dt - 1e-9)))

    def _spread(self, maturity: float) -> float:
        """The variance of the variance against its level, for the worst asset."""
        level, v_speed = self.mean_variance(maturity), np.asarray(self.v_speed, dtype=np.float64)
        time = np.minimum(maturity, 1.0 / np.maximum(v_speed, 1e-12))
        return float(np.max(np.asarray(self.v_vol) ** 2 * time / np.where(level > 0, level, math.inf)))

    def _longest_step(self, maturity: float) -> float:
        """The longest step that keeps the error of "qe" within the default tolerance, for the worst asset."""
        with np.errstate(divide="ignore"):
            reversion = REVERSION / np.asarray(self.v_speed, dtype=np.float64)
            noise = NOISE * np.sqrt(self.mean_variance(maturity) * maturity) / np.asarray(self.v_vol, dtype=np.float64)
        # A variance that is zero throughout needs no steps.
        noise = np.where(np.isnan(noise) | (noise == 0), math.inf, noise)
        return min(SHARE * maturity, float(np.min(reversion)), float(np.min(noise)))

    def start(self, n_paths: int) -> VarianceState:
        now = super().start(n_paths)
        if self.scheme != "inverse-gaussian":
            return now
        return IntegratedState(now.prices, now.variance, np.zeros_like(now.prices))

    def mean_variance(self, maturity: float) -> Floats:
        v0, v_mean, v_speed = (per_asset("", value, self.n_assets) for value in (self.v0, self.v_mean, self.v_speed))
        return v_mean + (v0 - v_mean) * _span(v_speed, maturity) / maturity

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> VarianceState:
        assert isinstance(state, VarianceState)
        dt = (end - begin) / self._chosen_substeps
        if isinstance(state, IntegratedState):
            return self._integrated(state, begin, end, rate, normals)
        variance, d = state.variance, self.n_assets
        drift = match(rate - mean_over(self.dividend, begin, end), normals)
        arithmetic = self.scheme == "paper"
        total = state.prices if arithmetic else drift * (end - begin)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is reported by the sampler
            for column in range(0, normals.shape[1], 2 * d):
                both = correlated(self._factor, normals[:, column : column + 2 * d])
                if self.scheme == "qe":
                    change, spread, variance = self._quadratic_exponential(variance, dt, both[:, :d])
                    change += np.sqrt(spread) * both[:, d:]
                else:
                    # Full truncation: the right-hand sides use the positive part of the variance.
                    positive = variance.clip(0.0)
                    change, variance = self._euler(positive, dt, both[:, :d], both[:, d:], start=variance)
                    if not arithmetic:
                        change -= (0.5 * dt) * positive
                if arithmetic:
                    change += 1.0 + drift * dt
                    change *= total
                else:
                    change += total
                total = change
            prices = total if arithmetic else state.prices * namespace(total).exp(total)
        return VarianceState(prices, variance)

    def _draw(
        self, state: IntegratedState, now: float, dt: float, normal: Floats, choice: Floats
    ) -> tuple[Floats, Floats, IntegratedState]:
        v_mean, v_speed, v_vol = map(np.asarray, (self.v_mean, self.v_speed, self.v_vol))
        span, x = _span(v_speed, dt), v_speed * dt
        # The mean over the step of (1 - exp(-k t)) / k; by its series where the formula would lose digits.
        mean_span = np.where(x > 1e-4, (dt - span) / np.where(x > 1e-4, x, 1.0), 0.5 * dt * (1.0 - x / 3.0))
        expected = v_mean * (dt - span) + span * state.variance + state.deficit
        noise, integral, deficit = draw_integrated(expected, v_vol * mean_span, dt, normal, choice)
        following = v_mean + (state.variance - v_mean) * np.exp(-x) + (v_vol * span / dt) * noise
        return noise, integral, replace(state, variance=following, deficit=deficit)

    def _quadratic_exponential(self, variance: Floats, dt: float, own: Floats) -> tuple[Floats, Floats, Floats]:
        """Mean of the log-price's change without drift, its variance, and the next variance; as in Andersen (2008).

        Mean and variance are those given the noise of the variance; the rest of the change is normal. Everything is
        written in that noise per unit of ``v_vol``, so that nothing is divided by a small ``v_vol``.
        """
        v_mean, v_speed, v_vol, rho = map(np.asarray, (self.v_mean, self.v_speed, self.v_vol, self.rho))
        decay, gone, span = np.exp(-v_speed * dt), -np.expm1(-v_speed * dt), _span(v_speed, dt)
        # The mean of the next variance, and its variance per unit of v_vol^2. The floor concerns a variance that has
        # died out for good.
        mean = np.maximum(v_mean * gone + decay * variance, 1e-30)
        unit = (decay * span) * variance + 0.5 * v_mean * span * gone
        # Weights of the integrated variance (trapezoid) and of the correlation in the log-price.
        leftover = 0.5 * dt * (1.0 - rho**2)
        after = rho * (1.0 + 0.5 * v_speed * dt) - 0.25 * dt * v_vol
        noise, log_mean = variance_noise(mean, unit, v_vol, own, after + 0.5 * leftover * v_vol)
        following = np.maximum(mean + v_vol * noise, 0.0)
        change = after * noise
        change -= 0.5 * leftover * (variance + mean)
        change -= log_mean
        return change, leftover * (variance + following), following

    def conditional_law(self, grid: TimeGrid, normals: Floats) -> tuple[Floats, Floats, Floats]:
        if self.scheme == "inverse-gaussian":
            return super().conditional_law(grid, normals)
        variance = np.full(normals.shape[2], float(self.v0))
        mean, spread, expected = np.zeros_like(variance), np.zeros_like(variance), 0.0
        level, v_mean, share = float(self.v0), float(self.v_mean), 0.5 * (1.0 - float(self.rho) ** 2)
        for interval, Z in zip(grid.steps.tolist(), normals):
            dt = interval / self._chosen_substeps
            for own in Z:
                change, added, variance = self._quadratic_exponential(variance, dt, own)
                mean += change + 0.5 * added
                spread += added
                after = v_mean + (level - v_mean) * math.exp(-float(self.v_speed) * dt)
                expected, level = expected + share * dt * (level + after), after
        return mean, spread, spread - expected


def _span(speed: Any, dt: float) -> Floats:
    """``(1 - exp(-speed dt)) / speed``, which is dt where the speed is 0."""
    speed = np.asarray(speed, dtype=np.float64)
    return np.where(speed > 0, -np.expm1(-speed * dt) / np.where(speed > 0, speed, 1.0), dt)


def variance_noise(mean: Floats, unit: Floats, scale: Floats, normal: Floats, tilt: Floats) -> tuple[Floats, Floats]:
    """Draw noise e with mean 0 and variance ``unit`` such that ``mean + scale e`` is not negative.

    Also gives log E exp(tilt e).

    Andersen's matched moments: a squared normal where the variable is large against its spread, a point mass at zero
    with an exponential tail where it is small. A scale of 0 gives the normal law.
    """
    psi = scale**2 * unit / (mean * mean)
    ratio = 2.0 / np.clip(psi, 1e-18, SWITCH)
    b2 = ratio - 1.0 + np.sqrt(ratio * (ratio - 1.0))
    size = np.sqrt(unit / (4.0 * b2 + 2.0))
    noise = 2.0 * np.sqrt(b2)
    noise += normal
    noise *= normal
    noise -= 1.0
    noise *= size
    y = 2.0 * tilt * size
    _check_room(1.0 - y)
    log_mean = 0.5 * (y * y * b2 / (1.0 - y) - y - np.log1p(-y))
    high = psi > SWITCH
    if high.any():
        rest = 2.0 / (psi[high] + 1.0)  # the probability that the variance is not zero, 1 - p
        level, width = mean[high], np.broadcast_to(scale, psi.shape)[high]
        beta, A = rest / level, np.broadcast_to(tilt, psi.shape)[high] / width
        _check_room(beta - A)
        # 1 - U with U uniform is the upper tail of the normal, which keeps its digits.
        tail = ndtr(-normal[high])
        noise[high] = (np.log(np.maximum(rest / tail, 1.0)) / beta - level) / width
        log_mean[high] = np.log1p(rest * A / (beta - A)) - A * level
    return noise, log_mean


def draw_integrated(
    expected: Floats, own: Any, dt: float, normal: Floats, choice: Floats
) -> tuple[Floats, Floats, Floats]:
    """Noise and integrated variance of a step, given its expectation, and the deficit that the next step takes over.

    ``own`` is the weight of the noise in the integrated variance.
    """
    least = LEAST_VARIANCE * dt
    level = np.maximum(expected, least)
    noise = first_passage_noise(level, own, normal, choice)
    return noise, level + own * noise, np.minimum(expected - least, 0.0)


def first_passage_noise(level: Floats, own: Any, normal: Floats, choice: Floats) -> Floats:
    """Noise Z such that ``level + own Z`` is the first time at which a Brownian motion that is Z there reaches it.

    The time has the inverse Gaussian law with mean ``level`` and variance ``own^2 level``. Michael, Schucany and Haas:
    the square of a normal leaves two times, of which one is chosen. Written so that ``own = 0`` gives a normal.
    """
    square = normal * normal
    square /= 2.0 * level
    root = own * square
    root += np.sqrt(square * (2.0 + own**2 * square))
    room = 1.0 + own * root
    low = ndtr(choice) * (1.0 + room) <= room
    noise = level * root
    noise[low] /= -room[low]
    return noise


def _check_room(room: Floats) -> None:
    if not np.all(room > 0):
        raise ParameterError(
            'the price has no finite mean over one step of scheme "qe" with these rho and v_vol; use more substeps'
        )
