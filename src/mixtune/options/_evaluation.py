"""What a trained policy tells: its value with a Monte Carlo error, an upper bound, Greeks, and where it stops.

**Upper bound.** For any martingale M with M_0 = 0 the price is at most E max_t (h_t - M_t), h_t the discounted payoff
(Rogers 2002, Haugh and Kogan 2004). The best M is the martingale part of the value process. Here, as Haugh and Kogan
do, it is built from a regressed value V_t = max(h_t, continuation_t):

    M_t - M_{t-1} = V_t(X_t) - E[V_t(X_t) | X_{t-1}],

the expectation by one-interval inner simulations from every outer state. Inner noise leaves M a martingale, so the
bound stays valid and only becomes a little wider.

**Greeks** by common random numbers: the same normals, a bumped market, the same exercise policy. To first order a bump
does not change the value through the policy (it is nearly optimal), so the policy is kept and only the paths move with
the market. Differences of paired cash flows have small variance, and a standard error.

**Exercise region.** At each date the policy decides on a grid of prices. For one asset the region of a put lies below
a critical price and that of a call above one: that boundary is read off. For two assets the region is kept as a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mixtune._array import Booleans, Floats
from mixtune._checks import check_whole
from mixtune.errors import ParameterError
from mixtune.options._features import OneDateMap, stack_inputs
from mixtune.options._payoffs import PayoffFunction
from mixtune.options._settings import METHOD, TimeGrid
from mixtune.options.processes import Process, State
from mixtune.options.training import PathData, Policy, exercises

#: Inner states evaluated at a time.
CHUNK_STATES = 100_000


class Interval:
    """A Monte Carlo price with its 95% confidence interval."""

    price: float
    standard_error: float

    @property
    def ci_low(self) -> float:
        return self.price - 1.96 * self.standard_error

    @property
    def ci_high(self) -> float:
        return self.price + 1.96 * self.standard_error


@dataclass(frozen=True)
class Estimate(Interval):
    """A Monte Carlo mean with its standard error."""

    value: float
    standard_error: float

    @property
    def price(self) -> float:  # type: ignore[override]
        """The value again, under the name that results and bounds have for it."""
        return self.value

    @classmethod
    def of(cls, samples: Floats, *, drawn: str = "independent") -> Estimate:
        """The mean of samples whose paths were drawn "independent", "antithetic" or by "sobol" points.

        Antithetic pairs are dependent, and so are the points of one Sobol scrambling: pair means and scramblings' means
        are the independent samples then.
        """
        mean = float(samples.mean())
        if drawn == "antithetic":
            half = len(samples) // 2
            samples = (samples[:half] + samples[half : 2 * half]) / 2
        elif drawn == "sobol":
            samples = np.array([part.mean() for part in np.array_split(samples, METHOD.scramblings)])
        error = float(samples.std(ddof=1)) / math.sqrt(len(samples)) if len(samples) > 1 else math.inf
        return cls(mean, error)


@dataclass(frozen=True)
class UpperBound(Interval):
    """An estimate of a number that is at least the price, with its 95% interval."""

    price: float
    standard_error: float
    outer_paths: int
    inner_paths: int
    method: str = "dual martingale, one-interval nested simulation (Haugh-Kogan)"


def upper_bound(
    policy: Policy,
    process: Process,
    *,
    grid: TimeGrid,
    payoff: PayoffFunction,
    rng: np.random.Generator,
    outer_paths: int = 1000,
    inner_paths: int = 200,
    with_hidden: bool = True,
) -> UpperBound:
    """Upper bound from a policy's (first model's) continuation values.

    Parameters
    ----------
    policy : Policy
        Trained on all paths, not only those in the money: values are needed everywhere.
    outer_paths, inner_paths : int
        Paths of the bound itself, and one-interval continuations from each of their states (paired antithetically).
    """
    outer_paths = check_whole("outer_paths", outer_paths, least=2)
    pairs = (check_whole("inner_paths", inner_paths, least=2) + 1) // 2
    state_map = policy.state
    if not isinstance(state_map, OneDateMap):
        raise ParameterError("the upper bound needs features of one date (random or polynomial), not recurrent ones")

    def discounted(state: State, date: int) -> Floats:
        return np.asarray(payoff(state.prices)) * grid.discount[date]

    def value(state: State, date: int) -> Floats:
        """``V_t = max(h_t, continuation_t)``."""
        now = discounted(state, date)
        if date == grid.n_dates:
            return now
        U = state_map.transform(stack_inputs(state.prices, now, state.hidden if with_hidden else None), date)
        return np.maximum(now, U @ policy.coefs[date][:, 0])

    def expected(state: State, date: int) -> Floats:
        """``E[V_t(X_t) | X_{t-1}]`` for every outer state, by antithetic pairs, in chunks of outer states."""
        means = []
        step = max(1, CHUNK_STATES // (2 * pairs))
        for begin in range(0, outer_paths, step):
            part = state.take(np.arange(begin, min(begin + step, outer_paths)))
            half = rng.standard_normal((part.n_paths, pairs, process.normals_per_interval))
            normals = np.concatenate([half, -half], axis=1).reshape(part.n_paths * 2 * pairs, -1)
            after = process.advance(part.repeat(2 * pairs), normals=normals, **grid.interval(date - 1))
            means.append(value(after, date).reshape(part.n_paths, 2 * pairs).mean(axis=1))
        return np.concatenate(means)

    state = process.start(outer_paths)
    martingale = np.zeros(outer_paths)
    best = discounted(state, 0)
    for date in range(1, grid.n_dates + 1):
        before = expected(state, date)
        normals = rng.standard_normal((outer_paths, process.normals_per_interval))
        state = process.advance(state, normals=normals, **grid.interval(date - 1))
        martingale += value(state, date) - before
        best = np.maximum(best, discounted(state, date) - martingale)
    found = Estimate.of(best)
    return UpperBound(found.value, found.standard_error, outer_paths, inner_paths)


@dataclass(frozen=True, eq=False)
class Greek:
    """A sensitivity, one entry per bumped quantity, with standard errors."""

    value: Floats
    standard_error: Floats


def greeks(process: Process, difference: Callable[[Process, Process], Floats], *, drawn: str) -> dict[str, Greek]:
    """Delta and vega by central differences.

    Delta is the change of the price per unit of each asset's spot. Vega is its change per unit of volatility, all
    assets together: for Black-Scholes the volatility itself; for stochastic volatility a common factor on sqrt(v0)
    and sqrt(v_mean), per unit of sqrt(v0).

    Parameters
    ----------
    process : Process
    difference : callable
        From two markets to the difference of the option's cash flows between them, path by path.
    drawn : str
        How these paths were drawn, as for :meth:`Estimate.of`.
    """

    def slope(width: float, up: dict[str, Any], down: dict[str, Any]) -> Estimate:
        """Of the price, between the market changed in one way and in the other."""
        markets = (replace(process, **changes) for changes in (up, down))  # type: ignore[type-var]
        return Estimate.of(difference(*markets) / width, drawn=drawn)

    bump = METHOD.bump
    spot = np.broadcast_to(np.asarray(process.spot, dtype=np.float64), (process.n_assets,))
    by_asset = []
    for asset in range(process.n_assets):
        width = bump * (abs(spot[asset]) or 1.0)
        move = np.where(np.arange(len(spot)) == asset, width, 0.0)
        by_asset.append(slope(2 * width, {"spot": spot + move}, {"spot": spot - move}))
    if hasattr(process, "volatility"):
        volatility = np.asarray(process.volatility)
        level = float(volatility.mean())
        up, down = ({"volatility": volatility * factor} for factor in (1 + bump, 1 - bump))
    else:
        v0, v_mean = process.v0, process.v_mean  # type: ignore[attr-defined]
        level = math.sqrt(float(v0))
        up, down = ({"v0": v0 * f**2, "v_mean": v_mean * f**2} for f in (1 + bump, 1 - bump))
    found = {"delta": by_asset, "vega": [slope(2 * bump * level, up, down)]}
    return {name: Greek(*np.array([(e.value, e.standard_error) for e in each]).T) for name, each in found.items()}


@dataclass(frozen=True, eq=False)
class ExerciseRegion:
    """Exercise decisions on a grid of prices.

    Attributes
    ----------
    times : array (dates - 1,)
        The dates before maturity.
    axis : array (points,)
        Prices of each asset.
    stop : array of bool (dates - 1, points) or (dates - 1, points, points)
    seen : array of bool, same shape
        Prices that training paths reached at the date; beyond them the policy extrapolates.
    boundary : array (dates - 1,) or None
        One asset: the critical price, NaN at dates where the policy never stops inside the prices seen.
    """

    times: Floats
    axis: Floats
    stop: Booleans
    seen: Booleans
    boundary: Floats | None


def exercise_region(
    policy: Policy, data: PathData, *, grid: TimeGrid, payoff: PayoffFunction, points: int = 101
) -> ExerciseRegion | None:
    """The region of the first model, over the central prices seen in ``data``; None for three or more assets."""
    if data.n_assets > 2 or not isinstance(policy.state, OneDateMap) or grid.n_dates < 2:
        return None
    tails = [METHOD.region_tail, 1 - METHOD.region_tail]
    low, high = np.quantile(data.prices[:, 1:], tails)
    axis = np.linspace(low, high, points)
    mesh = np.stack(np.meshgrid(*[axis] * data.n_assets, indexing="ij"), axis=-1).reshape(-1, data.n_assets)
    raw = np.asarray(payoff(mesh))
    stops, seens, boundary = [], [], []
    for date in range(1, grid.n_dates):
        discounted = raw * grid.discount[date]
        hidden = None
        if data.hidden is not None:  # unobserved on the grid: held at its mean
            hidden = np.broadcast_to(data.hidden[:, date].mean(axis=0), (len(mesh), data.hidden.shape[2]))
        U = policy.state.transform(stack_inputs(mesh, discounted, hidden), date)
        stop = exercises(discounted, U @ policy.coefs[date][:, 0], policy.only_positive)
        lowest, highest = np.quantile(data.prices[:, date], tails)
        seen = np.all((mesh >= lowest) & (mesh <= highest), axis=1)
        stops.append(stop.reshape([points] * data.n_assets))
        seens.append(seen.reshape([points] * data.n_assets))
        if data.n_assets == 1:
            # Next to the waiting region: the highest stopping price of a put, the lowest of a call.
            nearest = np.max if raw[0] >= raw[-1] else np.min
            boundary.append(nearest(axis[stop & seen]) if np.any(stop & seen) else math.nan)
    critical = np.array(boundary) if boundary else None
    return ExerciseRegion(grid.times[1:-1], axis, np.array(stops), np.array(seens), critical)


@dataclass(frozen=True, eq=False)
class PriceResult(Interval):
    """The price of an American or Bermudan option.

    Attributes
    ----------
    price, standard_error, ci_low, ci_high : float
        A lower bound in expectation: the mean discounted cash flow of the learned exercise policy on paths that did not
        train it, with its 95% interval; or the immediate payoff where that is more.
    european : Estimate
        The same paths held to maturity: exercising early must be worth at least this.
    upper : UpperBound or None
        A dual upper bound, where asked for.
    exercise_probability : array (dates + 1,)
        Share of evaluation paths that exercise at each date (zero payoffs at maturity excluded).
    region : ExerciseRegion or None
        Where it pays to stop, for one and two assets.
    greeks : dict of str to Greek
    policy : Policy
    seconds : dict of str to float
        Time spent simulating, training, evaluating, bounding.
    settings : dict
        All that is needed to repeat the run.
    """

    price: float
    standard_error: float
    european: Estimate
    exercise_probability: Floats
    policy: Policy
    upper: UpperBound | None = None
    region: ExerciseRegion | None = None
    greeks: dict[str, Greek] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def below_european(self) -> bool:
        """Whether holding to maturity did better on the same paths: noise, or a policy that needs more paths."""
        return self.price < self.european.value

    @property
    def gap(self) -> float | None:
        """Upper bound less price: what better policies and martingales could still gain."""
        return None if self.upper is None else self.upper.price - self.price

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        facts: dict[str, Any] = {"price": self.price, "standard_error": self.standard_error}
        facts |= {"european": self.european.value, "below_european": self.below_european}
        if self.upper is not None:
            facts |= {"upper_price": self.upper.price, "upper_method": self.upper.method, "gap": self.gap}
        for prefix, part in (("", self), ("european_", self.european), ("upper_", self.upper)):
            if part is not None:
                facts |= {f"{prefix}ci_low": part.ci_low, f"{prefix}ci_high": part.ci_high}
        facts["exercise_probability"] = self.exercise_probability.tolist()
        for name, greek in self.greeks.items():
            facts[name] = greek.value.tolist()
            facts[f"{name}_standard_error"] = greek.standard_error.tolist()
        if self.region is not None and self.region.boundary is not None:
            facts["boundary"] = [None if math.isnan(b) else b for b in self.region.boundary.tolist()]
        return facts | {"seconds": self.seconds, "settings": self.settings}
