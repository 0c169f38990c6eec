"""Price an option: simulate, learn when to stop, evaluate on fresh paths, bound from above.

Defaults are the library's: inputs standardised, ridge chosen by leave-one-out at every date, regression on paths in the
money, a payoff of zero never exercised, and the variance of a simulated model observed. ``preset="paper"`` gives the
settings of the paper's tables instead.

Linear algebra runs on one thread while pricing: the matrices are small, and threads waiting for each other cost more
than they bring (measured on busy cores: ten times as much).

A trained policy gives a value with a Monte Carlo error, an upper bound, Greeks, and the region where it stops.

**Upper bound.** For any martingale M with M_0 = 0 the price is at most E max_t (h_t - M_t), h_t the discounted payoff
(Rogers 2002, Haugh and Kogan 2004). The best M is the martingale part of the value process. Here, as Haugh and Kogan
do, it is built from a regressed value V_t = max(h_t, continuation_t):

    M_t - M_{t-1} = V_t(X_t) - E[V_t(X_t) | X_{t-1}],

the expectation by one-interval inner simulations from every outer state. Inner noise leaves M a martingale, so the
bound stays valid and only becomes a little wider.

**Control.** Cash flows are compared with a martingale that starts at zero (see :mod:`mixtune_options._martingale`),
which leaves their mean and takes off most of their variance. The same martingale makes an upper bound without nested
simulation, which is used where that is not possible.

Where only the price without early exercise is known (Heston), the same martingale is fitted for the option held to
maturity, on the same paths. What its mean is off by, times a regression coefficient, is taken off the price. That takes
off noise, and the error of the time steps with it.

**Today.** Whether to exercise at once is decided on the training paths. Taking the larger of the payoff and the
estimate would be biased upwards.

**Exercise region.** At each date the policy decides on a grid of prices. For one asset the region of a put lies below
a critical price and that of a call above one: that boundary is found by bisection. For two assets the region is kept as
a grid.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from mixtune import checks
from mixtune.errors import DataError, ParameterError
from mixtune.weights import PredictiveWeights
from mixtune_options import _european as exact
from mixtune_options import training as learn
from mixtune_options._arrays import Array, Booleans, Floats, Integers
from mixtune_options._greeks import Greek, Market, Sensitivity, Valued
from mixtune_options._heston import VarianceProcess
from mixtune_options._martingale import exchangeable, moves, relative_gains, symmetric, without_noise
from mixtune_options._paths import PathData, observed_paths, simulate, with_observed
from mixtune_options._payoffs import PathPayoff, Payoff, PayoffFunction
from mixtune_options._process import Process, State
from mixtune_options._rare import Tilt, find_tilt, is_rare, spread_paths, tilted_paths
from mixtune_options._settings import METHOD, PriceSettings, TimeGrid, numbers

#: Inner states evaluated at a time.
CHUNK_STATES = 100_000
#: How often a cell of the price grid is divided where the boundary is looked for, and into how many points: like 12
#: bisections, in fewer calls.
REFINEMENTS, REFINED_POINTS = 2, 65
#: Parts of the training paths on which observed policies are compared with holding.
INNER_FOLDS = 3
#: Of the regret-optimal solution, where one of these is set by hand.
STRENGTH = {"transfer": 2.0, "stability": 1.0, "ridge": 1.0}
#: Paths on which a payoff is tried with its assets in other orders.
SYMMETRY_PATHS = 50
#: Training paths where the option is held to maturity and what that is worth is known.
HELD_PATHS = 1000
#: How the upper bound is found where the money is rarely reached.
TILTED_BOUND = "dual martingale, European values, importance sampling"
#: Training paths from which approximate European values are features: with few, more features cost more than they
#: bring.
ENOUGH_PATHS = 5000
#: Relative differences of prices below this are rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Estimate:
    """A Monte Carlo mean with its standard error and 95% confidence interval."""

    price: float
    standard_error: float

    @property
    def value(self) -> float:
        """The price again, for means that are not prices."""
        return self.price

    @property
    def ci_low(self) -> float:
        return self.price - 1.96 * self.standard_error

    @property
    def ci_high(self) -> float:
        return self.price + 1.96 * self.standard_error

    @staticmethod
    def of(samples: Floats, *, drawn: str = "independent") -> Estimate:
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
        return Estimate(mean, float(samples.std(ddof=1)) / math.sqrt(len(samples)) if len(samples) > 1 else math.inf)


@dataclass(frozen=True)
class UpperBound(Estimate):
    """An estimate of a number that is at least the price, with its 95% interval."""

    outer_paths: int
    inner_paths: int
    method: str = "dual martingale, one-interval nested simulation (Haugh-Kogan)"


def upper_bound(
    policy: learn.Policy,
    process: Process,
    *,
    grid: TimeGrid,
    payoff: PayoffFunction,
    rng: np.random.Generator,
    outer_paths: int = 1000,
    inner_paths: int = 200,
    with_hidden: bool = True,
    held: learn.Policy | None = None,
    european: float | None = None,
) -> UpperBound:
    """Upper bound from a policy's (first model's) continuation values.

    Parameters
    ----------
    policy : Policy
        Trained on all paths, not only those in the money: values are needed everywhere.
    outer_paths, inner_paths : int
        Paths of the bound itself, and one-interval continuations from each of their states (paired antithetically).
    held, european
        A policy with the same state map that holds to maturity, and what that is worth: what the same paths say of it
        is the control.
    """
    process = process.for_grid(grid)
    outer_paths = checks.check_whole("outer_paths", outer_paths, least=2)
    pairs = (checks.check_whole("inner_paths", inner_paths, least=2) + 1) // 2
    if not isinstance(policy.state, learn.OneDateMap):
        raise ParameterError("the upper bound needs features of one date (random or polynomial), not recurrent ones")
    policies = (policy,) if held is None else (policy, held)
    dual = _Dual(policies=policies, process=process, grid=grid, payoff=payoff, with_hidden=with_hidden)
    # Blocks of outer states from which inner simulations start together.
    size = max(1, CHUNK_STATES // (2 * pairs))
    chunks = [np.arange(begin, min(begin + size, outer_paths)) for begin in range(0, outer_paths, size)]
    state = process.start(outer_paths)
    martingales, best = np.zeros((2, len(policies), outer_paths))
    best[0] = 0.0 if policy.hold else dual.discounted(state, 0)
    for date in range(1, grid.n_dates + 1):
        before = np.concatenate([dual.expected(state.take(rows), date, pairs, rng) for rows in chunks], axis=1)
        normals = rng.standard_normal((outer_paths, process.normals_per_interval))
        state = process.advance(state, normals=normals, **grid.interval(date - 1))
        martingales += dual.values(state, date) - before
        now = dual.discounted(state, date) - martingales
        # What is held pays at maturity only.
        best = np.stack([now[k] if each.hold else np.maximum(best[k], now[k]) for k, each in enumerate(policies)])
    found = Estimate.of(best[0] if european is None else without_noise(best[0], best[-1] - european))
    return UpperBound(found.value, found.standard_error, outer_paths, inner_paths)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Dual:
    """Regressed values of policies with one state map, of which dual martingales are made."""

    policies: tuple[learn.Policy, ...]
    process: Process
    grid: TimeGrid
    payoff: PayoffFunction
    with_hidden: bool

    def values(self, state: State, date: int) -> Floats:
        """``V_t = max(h_t, continuation_t)`` of every policy (policies, paths); the continuation of what is held."""
        now = self.discounted(state, date)
        if date == self.grid.n_dates:
            return np.stack([now] * len(self.policies))
        U = self._features(state, date, now)
        waiting = [policy.waiting(U, state.prices, date)[:, 0] for policy in self.policies]
        return np.stack([w if policy.hold else np.maximum(now, w) for w, policy in zip(waiting, self.policies)])

    def expected(self, part: State, date: int, pairs: int, rng: np.random.Generator) -> Floats:
        """``E[V_t(X_t) | X_{t-1}]`` at ``date`` of each policy from every state before, by antithetic pairs.

        European values and fitted moves, whose means are known, are taken off first.
        """
        first, shape = self.policies[0], (part.n_paths, -1)
        half = rng.standard_normal((part.n_paths, pairs, self.process.normals_per_interval))
        normals = np.concatenate([half, -half], axis=1).reshape(part.n_paths * 2 * pairs, -1)
        repeated = part.repeat(2 * pairs)
        after = self.process.advance(repeated, normals=normals, **self.grid.interval(date - 1))
        left = self.values(after, date) - self._known(after, date)
        if first.martingale is not None:
            U = np.ones((part.n_paths, 1))
            if date > 1:
                U = first.state.few(self._features(part, date - 1, self.discounted(part, date - 1)))
            noise = np.moveaxis(self.process.noise(normals.T[None])[0], -1, 0)
            growth = None if first.growth is None else first.growth[date - 1]
            gains = relative_gains(repeated.prices, after.prices, growth)
            phi = moves(noise, repeated.prices, first.state.ranked, gains)
            phi = phi.reshape(*shape, phi.shape[1])
            for row, policy in zip(left, self.policies):
                assert policy.martingale is not None
                row -= np.einsum("oik,ok->oi", phi, U @ policy.martingale[date - 1]).reshape(-1)
        return left.reshape(len(left), *shape).mean(axis=2) + self._known(part, date - 1)

    def discounted(self, state: State, date: int) -> Floats:
        return np.asarray(self.payoff(state.prices)) * self.grid.discount[date]

    def _features(self, state: State, date: int, payoff: Floats) -> Floats:
        hidden = with_observed(self.payoff, state.prices, state.hidden if self.with_hidden else None)
        state_map = self.policies[0].state
        assert isinstance(state_map, learn.OneDateMap)
        return state_map.transform(learn.stack_inputs(state.prices, payoff, hidden), date)

    def _known(self, state: State, date: int) -> Floats | float:
        base = self.policies[0].base
        return 0.0 if base is None else base(state.prices, date)


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
    policy: learn.Policy, data: PathData, *, grid: TimeGrid, payoff: PayoffFunction, points: int = 101
) -> ExerciseRegion | None:
    """The region of the first model, over the central prices seen in ``data``.

    None for three or more assets, and where prices alone do not say what the option pays.
    """
    if data.n_assets > 2 or not isinstance(policy.state, learn.OneDateMap) or grid.n_dates < 2:
        return None
    if isinstance(payoff, PathPayoff):
        return None
    tails = [METHOD.region_tail, 1 - METHOD.region_tail]
    low, high = np.quantile(data.prices[:, 1:], tails)
    axis = np.linspace(low, high, points)
    mesh = np.stack(np.meshgrid(*[axis] * data.n_assets, indexing="ij"), axis=-1).reshape(-1, data.n_assets)
    raw, shape = np.asarray(payoff(mesh)), (grid.n_dates - 1, *[points] * data.n_assets)
    decide = [partial(decisions, policy, date=d, data=data, grid=grid, payoff=payoff) for d in range(1, grid.n_dates)]
    stops = np.stack([each(mesh) for each in decide])
    lowest, highest = np.quantile(data.prices[:, 1:-1], tails, axis=(0, 2))[..., None, None]
    seens = np.all((mesh >= lowest) & (mesh <= highest), axis=2)
    boundary = None
    if data.n_assets == 1:
        # Next to the waiting region: the highest stopping price of a put, the lowest of a call.
        up = bool(raw[0] >= raw[-1])
        parts = zip(stops, seens, decide)
        boundary = np.array([_critical_price(axis, stop, seen, up, at) for stop, seen, at in parts])
    return ExerciseRegion(grid.times[1:-1], axis, stops.reshape(shape), seens.reshape(shape), boundary)


def decisions(
    policy: learn.Policy, prices: Floats, date: int, *, data: PathData, grid: TimeGrid, payoff: PayoffFunction
) -> Booleans:
    """Whether the first model stops at these prices (rows, assets); hidden state is held at its mean in ``data``."""
    discounted = np.asarray(payoff(prices)) * grid.discount[date]
    more, hidden = with_observed(payoff, prices, None), None
    if data.hidden is not None:
        count = data.hidden.shape[2] - (0 if more is None else more.shape[1])
        hidden = np.broadcast_to(data.hidden[:, date, :count].mean(axis=0), (len(prices), count))
    assert isinstance(policy.state, learn.OneDateMap)
    inputs = learn.stack_inputs(prices, discounted, with_observed(payoff, prices, hidden))
    waiting = policy.waiting(policy.state.transform(inputs, date), prices, date)[:, 0]
    return policy.stops(discounted, waiting)


def _critical_price(
    axis: Floats, stop: Booleans, seen: Booleans, up: bool, decide: Callable[[Floats], Booleans]
) -> float:
    """The price where stopping ends, by repeated division between two points of the grid; NaN where nothing stops."""
    inside = np.flatnonzero(stop & seen)
    if not inside.size:
        return math.nan
    last = int(inside[-1] if up else inside[0])
    beyond = last + (1 if up else -1)
    if not 0 <= beyond < len(axis) or stop[beyond]:
        return float(axis[last])
    stopping, waiting = float(axis[last]), float(axis[beyond])
    for _ in range(REFINEMENTS):
        between = np.linspace(stopping, waiting, REFINED_POINTS)
        # The first of them that waits; the last is known to.
        first = int(np.argmin(np.append(decide(between[1:-1, None]), False))) + 1
        stopping, waiting = float(between[first - 1]), float(between[first])
    return (stopping + waiting) / 2


@dataclass(frozen=True, eq=False)
class PriceResult(Estimate):
    """The price of an American or Bermudan option.

    Attributes
    ----------
    price, standard_error, ci_low, ci_high : float
        A lower bound in expectation: the mean discounted cash flow of the learned exercise policy on paths that did not
        train it, with its 95% interval; or the payoff today where the training paths say that waiting is worth less.
    european : Estimate
        The option without early exercise: in closed form where there is one (with no error), else the same paths held
        to maturity.
    premium : Estimate
        What early exercise adds, path by path: the price must be worth at least the European one.
    bias : Bias or None
        What the time steps of the simulation do to the European price on the same paths; None for models that are
        sampled exactly, and where the European price is not known without simulation.
    upper : UpperBound or None
        A dual upper bound, where asked for.
    exercise_probability : array (dates + 1,)
        Share of evaluation paths that exercise at each date (zero payoffs at maturity excluded).
    region : ExerciseRegion or None
        Where it pays to stop, for one and two assets.
    greeks : dict of str to Greek
    policy : Policy
    flows, stopping_dates : array (paths,)
        Discounted cash flow of every evaluation path under the policy, and the index of the date it comes at.
    times : array (dates + 1,)
        Time 0 and the dates.
    seconds : dict of str to float
        Time spent simulating, training, evaluating, bounding.
    settings : dict
        All that is needed to repeat the run.
    """

    european: Estimate
    premium: Estimate
    flows: Floats
    stopping_dates: Array
    times: Floats
    exercise_probability: Floats
    policy: learn.Policy
    bias: exact.Bias | None = None
    upper: UpperBound | None = None
    region: ExerciseRegion | None = None
    greeks: dict[str, Greek] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def below_european(self) -> bool:
        """Whether holding to maturity does better: noise, or a policy that needs more paths."""
        return self.premium.value < -ROUNDING * self.european.value

    @property
    def exercise_time(self) -> float:
        """Mean time at which the option is exercised, over the paths that exercise it; NaN if none does."""
        paid = self.flows > 0
        return float(self.times[self.stopping_dates[paid]].mean()) if paid.any() else math.nan

    @property
    def profit_and_loss(self) -> Floats:
        """Of every evaluation path, the discounted cash flow less the price paid."""
        return self.flows - self.price

    @property
    def gap(self) -> float | None:
        """Upper bound less price: what better policies and martingales could still gain."""
        return None if self.upper is None else self.upper.price - self.price

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        facts: dict[str, Any] = {"price": self.price, "standard_error": self.standard_error}
        facts |= {"european": self.european.value, "below_european": self.below_european}
        facts["bias"] = None if self.bias is None else self.bias.as_dict()
        if self.upper is not None:
            facts |= {"upper_price": self.upper.price, "upper_method": self.upper.method, "gap": self.gap}
        for prefix, part in (("", self), ("european_", self.european), ("upper_", self.upper)):
            if part is not None:
                facts |= {f"{prefix}ci_low": part.ci_low, f"{prefix}ci_high": part.ci_high}
        facts["exercise_probability"] = self.exercise_probability.tolist()
        low, middle, high = np.quantile(self.profit_and_loss, [0.05, 0.5, 0.95]).tolist()
        facts["profit_and_loss"] = {"5%": low, "50%": middle, "95%": high}
        facts["exercise_time"] = None if math.isnan(self.exercise_time) else self.exercise_time
        for name, greek in self.greeks.items():
            facts[name] = greek.value.tolist()
            facts[f"{name}_standard_error"] = greek.standard_error.tolist()
        if self.region is not None and self.region.boundary is not None:
            facts["boundary"] = [None if math.isnan(b) else b for b in self.region.boundary.tolist()]
        return facts | {"seconds": self.seconds, "settings": self.settings}


def price(
    process: Process,
    payoff: PayoffFunction,
    grid: TimeGrid,
    settings: PriceSettings | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> PriceResult:
    """Price a Bermudan option on the dates of ``grid`` by (randomised) least-squares Monte Carlo.

    Parameters
    ----------
    process : Process
        The market, such as :class:`mixtune_options.BlackScholes`.
    payoff : callable
        Prices (..., assets) to payoffs (...).
    grid : TimeGrid
        Exercise dates and rates.
    settings : PriceSettings, optional
        How to price. Give this, or its fields as keywords, of which ``seed`` is required; keywords win.
    progress : callable, optional
        Called with the name of each stage as it starts.
    **options
        Fields of :class:`PriceSettings`: method, preset, paths, training_paths, width, degree, control, in_the_money,
        observe_hidden, antithetic, sobol, upper, upper_paths, inner_paths, greeks, bias_tolerance, device, seed.

    Returns
    -------
    PriceResult

    Examples
    --------
    >>> from mixtune_options import BlackScholes, Put, TimeGrid, price
    >>> market = BlackScholes(spot=36.0, volatility=0.2)
    >>> result = price(market, Put(40.0), TimeGrid(maturity=1.0, dates=10, rate=0.06), paths=4000, seed=0)
    >>> bool(4.2 < result.price < 4.6)
    True
    """
    settings, seconds = resolve_settings(settings, options), dict[str, float]()
    check_parts(process, payoff, grid, settings)
    stage = partial(_timed, seconds=seconds, progress=progress)
    with threadpool_limits(limits=1):
        with stage("choose steps"):
            how: dict[str, Any] = {"tolerance": settings.bias_tolerance, "seed": settings.seed}
            process, steps = exact.with_chosen_steps(process, payoff, grid, **how)
        run = PricingRun(process, payoff, grid, settings, steps)
        with stage("simulate"):
            paths = run.paths(settings.device)
        return replace(run.result(*paths, stage=stage), seconds=seconds)


def resolve_settings(settings: PriceSettings | None, options: dict[str, Any]) -> PriceSettings:
    """Settings with the options given beside them, and with what follows from both."""
    if not isinstance(settings, PriceSettings | None):
        raise ParameterError(f"settings must be a PriceSettings; got {type(settings).__name__}; pass fields by name")
    settings = PriceSettings(**options) if settings is None else replace(settings, **options)
    settings = replace(settings, training_paths=settings.training_paths or settings.paths)
    return replace(settings, in_the_money=False, observe_hidden=False) if settings.paper else settings


def check_parts(process: Process, payoff: PayoffFunction, grid: TimeGrid, settings: PriceSettings) -> None:
    """Refuse, before any work, what is no market, payoff or grid, and bounds that these do not have."""
    if not isinstance(process, Process):
        raise ParameterError(f"process must be a market such as BlackScholes(...); got {process!r}")
    if not callable(payoff) or isinstance(payoff, type):
        raise ParameterError(f"payoff must be a function of prices such as Put(100.0); got {payoff!r}")
    check_grid("grid", grid)
    along = settings.method == "recurrent" or isinstance(payoff, PathPayoff)
    if settings.upper and along and (settings.paper or settings.control is False):
        raise ParameterError("the upper bound of recurrent features or path payoffs needs control=True")


def check_grid(name: str, grid: TimeGrid) -> None:
    """Refuse what holds no dates."""
    if not isinstance(grid, TimeGrid):
        raise ParameterError(f"{name} must be a TimeGrid(maturity=..., dates=..., rate=...); got {grid!r}")


@dataclass(frozen=True, eq=False)
class PricingRun:
    """The steps of one pricing run. Training, evaluation and upper bound have independent random streams."""

    process: Process
    payoff: PayoffFunction
    grid: TimeGrid
    settings: PriceSettings
    steps: exact.Bias | None = None
    holds: bool | None = None  # where it is decided already whether early exercise is worth nothing

    @property
    def streams(self) -> list[np.random.SeedSequence]:
        return np.random.SeedSequence(self.settings.seed).spawn(3)

    def paths(self, device: str | None) -> tuple[PathData, PathData]:
        """Training and evaluation paths."""
        count = self.settings.training_paths
        if self.waits_for_sure and count is not None:
            count = min(count, HELD_PATHS)  # nothing to learn
        return self.draw(self.streams[0], paths=count, device=device), self.evaluation_paths(device)

    def result(
        self, training: PathData, evaluation: PathData, *, stage: Callable[[str], Any] = nullcontext
    ) -> PriceResult:
        """Learn, evaluate and bound on these paths; ``stage`` announces and times what begins."""
        with stage("train"):
            tilt = self.tilt(training)
            if tilt is not None:
                training = self.spread(training)
            policy = self.train(training, moving=tilt is None)
            held = None if tilt is not None else self.held(training, policy)
        with stage("evaluate"):
            earned = policy.evaluate(evaluation).fetched()
            # The value of the same paths if held, less its known price, has mean zero.
            control = None if held is None else held.evaluate(evaluation).fetched().controlled - self.european
            training, evaluation, policy = training.fetched(), evaluation.fetched(), policy.fetched()
            held = None if held is None else held.fetched()
        stop_now = tilt is None and self.stops_now(policy, held, earned, evaluation)
        found: dict[str, Any] = {"region": exercise_region(policy, training, grid=self.grid, payoff=self.payoff)}
        if self.settings.upper:
            with stage("upper bound"):
                found["upper"] = None if tilt is not None else self.upper_bound(policy, training, earned, held)
        if self.settings.greeks:
            with stage("greeks"):
                found["greeks"] = self.greeks(policy, held, stop_now, (training, evaluation))
        record = self.record(policy) | {"importance_sampling": tilt is not None}
        found |= {"policy": policy, "settings": record, "times": self.grid.times}
        samples = earned.controlled if control is None else without_noise(earned.controlled, control)
        how: dict[str, Any] = {"european": self.known_price(self.process, self.grid), "drawn": self.settings.drawn}
        priced = _priced(evaluation, earned, samples, stop_now=stop_now, **how, **found)
        if tilt is not None:
            priced = self.reweighted(priced, tilt)
        return replace(priced, bias=self.bias(evaluation, priced))

    def tilt(self, training: PathData) -> Tilt | None:
        """How evaluation paths are drawn where hardly any path is worth exercising."""
        settings = self.settings
        if settings.paper or not self.controlled or self.waits_for_sure or settings.device is not None:
            return None
        if isinstance(self.payoff, PathPayoff) or not is_rare(training):
            return None
        return find_tilt(self.process, self.payoff, self.grid, np.random.default_rng(self.rare_streams[0]))

    def spread(self, training: PathData) -> PathData:
        """As many training paths from prices spread between today's and those well in the money."""
        assert isinstance(self.payoff, Payoff)
        rng, hidden = np.random.default_rng(self.rare_streams[1]), self.settings.observe_hidden
        return spread_paths(self.process, self.payoff, self.grid, rng, paths=len(training), hidden=hidden)

    def reweighted(self, priced: PriceResult, tilt: Tilt) -> PriceResult:
        """The same result with price, premium and bound from paths that reach the money, counted with their weights.

        European values are taken off before, where they are known, and without the weights' noise: weights have mean 1.
        """
        common = (self.process, self.payoff, self.grid, np.random.default_rng(self.rare_streams[2]))
        settings = self.settings
        paths, weights = tilted_paths(*common, tilt=tilt, paths=settings.paths, hidden=settings.observe_hidden)
        earned, known = priced.policy.evaluate(paths), self.known_price(self.process, self.grid)
        held, flows = np.asarray(paths.payoffs[:, -1]), np.asarray(earned.controlled)
        best = np.asarray(paths.payoffs.max(axis=1) if earned.best is None else earned.best)
        typical = 0.0 if known is None or earned.control is None else known
        samples = typical + weights * (flows - typical)
        if known is not None and earned.control is None:
            # What the option held to maturity is worth is known today, not on the way.
            samples = without_noise(samples, weights * held - known)
        found, european = Estimate.of(samples), Estimate.of(weights * held) if known is None else priced.european
        upper = None
        if self.settings.upper:
            bound = Estimate.of(typical + weights * (best - typical))
            upper = UpperBound(bound.value, bound.standard_error, len(paths), 0, TILTED_BOUND)
        premium = Estimate(found.value - european.value, found.standard_error)
        price, error = found.value, found.standard_error
        return replace(priced, price=price, standard_error=error, european=european, premium=premium, upper=upper)

    @property
    def rare_streams(self) -> list[np.random.SeedSequence]:
        return np.random.SeedSequence(self.settings.seed).spawn(4)[3].spawn(3)

    @property
    def controlled(self) -> bool:
        return not self.settings.paper if self.settings.control is None else self.settings.control

    @cached_property
    def ranked(self) -> bool:
        """Whether the value does not depend on the order of the assets."""
        several = self.process.n_assets > 1 and not self.settings.paper and exchangeable(self.process)
        if not several or isinstance(self.payoff, PathPayoff):
            return False
        # Any prices do, if they differ between assets: here those of a few paths at the last date.
        few = self.process.sample(SYMMETRY_PATHS, self.grid, np.random.default_rng(self.settings.seed))
        return symmetric(self.payoff, few[:, -1])

    @cached_property
    def hold(self) -> bool:
        """Whether early exercise is worth nothing for certain; the paper does not ask."""
        if self.holds is not None:
            return self.holds
        return not self.settings.paper and exact.never_exercised(self.process, self.payoff, self.grid)

    @cached_property
    def european(self) -> float | None:
        """What the option is worth if held, where that is known today only; see :meth:`base`."""
        return exact.known_european(self.process, self.payoff, self.grid) if self.controlled else None

    @property
    def waits_for_sure(self) -> bool:
        """Whether waiting today means to hold, and what that is worth is known."""
        return self.european is not None and (self.hold or self.grid.n_dates == 1)

    def held(self, training: PathData, policy: learn.Policy) -> learn.Policy | None:
        """A policy that holds to maturity, where the price of that is known."""
        if self.european is None:
            return None
        return policy if self.waits_for_sure else self.train(training, state=policy.state, hold=True)

    def base(self, market: Process, grid: TimeGrid) -> exact.BaseValue | None:
        """European values of the option in a market, where they are known and wanted."""
        return exact.european_value(market, self.payoff, grid) if self.controlled else None

    def evaluation_paths(self, device: str | None = None) -> PathData:
        """Paths to evaluate on; the same normals whatever the market, so that Greeks compare path by path."""
        settings, stream = self.settings, self.streams[1]
        streams = stream.spawn(METHOD.scramblings) if settings.sobol else [stream]
        counts = [len(part) for part in np.array_split(range(settings.paths), len(streams))]
        how = {"antithetic": settings.antithetic, "sobol": settings.sobol, "device": device}
        return PathData.joined([self.draw(s, paths=n, **how) for n, s in zip(counts, streams)])

    def draw(self, stream: np.random.SeedSequence, **how: Any) -> PathData:
        """Paths of the market; the options are those of :func:`simulate`."""
        how |= {"rng": np.random.default_rng(stream), "hidden": self.settings.observe_hidden}
        return simulate(self.process, self.payoff, self.grid, noise=self.controlled, **how)

    def train(
        self,
        training: PathData,
        *,
        state: learn.StateMap | None = None,
        everywhere: bool = False,
        hold: bool | None = None,
        moving: bool = True,
    ) -> learn.Policy:
        """The exercise policy; with values that hold everywhere, not only where it may stop.

        Without ``moving`` no moves are fitted: their errors would be larger than a price that is tiny.
        """
        hold = self.hold if hold is None else hold
        settings, paper = self.settings, self.settings.paper
        model = learn.Local(0, METHOD.paper_ridge, "LO-1") if paper else learn.TunedLocal(0, settings.method)
        inside = settings.in_the_money and not everywhere and not hold
        growth = exact.mean_growth(self.process, self.grid) if isinstance(self.process, VarianceProcess) else None
        rule: dict[str, Any] = {"in_the_money": inside, "only_positive": not paper, "hold": hold, "growth": growth}
        rule |= {"base": self.base(self.process, self.grid), "martingale": self.controlled and moving}
        if state is None:
            variables = training.n_assets + (0 if training.hidden is None else training.hidden.shape[-1])
            more = None
            if settings.observe_hidden and len(training) >= ENOUGH_PATHS:
                more = exact.approximate_value(self.process, self.payoff, self.grid)
            state = learn.state_map(settings, variables=variables, ranked=self.ranked, more=more).fitted([training])
        return learn.train([training], [model], state=state, **rule)

    def stops_now(
        self, policy: learn.Policy, held: learn.Policy | None, earned: learn.Evaluation, evaluation: PathData
    ) -> bool:
        """Whether to exercise at once."""
        assert policy.value is not None
        # The paper takes the larger of both, which is biased; decided on training paths, it is not.
        waiting = float(earned.flows[:, 0].mean()) if self.settings.paper else float(policy.value[0])
        if self.european is not None and held is not None and held.value is not None:
            waiting += self.european - float(held.value[0])  # what the training paths are off by
        return float(evaluation.payoffs[0, 0]) > waiting and not policy.hold

    def upper_bound(
        self,
        policy: learn.Policy,
        training: PathData,
        earned: learn.Evaluation,
        held: learn.Policy | None,
    ) -> UpperBound:
        settings, rng = self.settings, np.random.default_rng(self.streams[2])
        if self.european is not None and self.waits_for_sure:
            now = 0.0 if self.hold else float(training.payoffs[0, 0])
            return UpperBound(max(now, self.european), 0.0, 0, 0, "the European price")
        if settings.method == "recurrent" or isinstance(self.payoff, PathPayoff):
            assert earned.best is not None  # there is a control: check_parts
            found = Estimate.of(earned.best, drawn=settings.drawn)
            return UpperBound(found.value, found.standard_error, settings.paths, 0, "dual martingale, fitted moves")
        # Values are needed everywhere, so this policy learns from all paths.
        how: dict[str, Any] = {"outer_paths": settings.upper_paths, "inner_paths": settings.inner_paths}
        how |= {"rng": rng, "with_hidden": settings.observe_hidden}
        if settings.paper:
            state = learn.RandomState(width=METHOD.width, seed=settings.seed).fitted([training])
            policy = learn.train([training], [learn.TunedLocal(0, "value")], state=state, in_the_money=False)
        else:
            policy = self.train(training, state=policy.state, everywhere=True)
            how |= {"european": self.european, "held": held}
        return upper_bound(policy, self.process, grid=self.grid, payoff=self.payoff, **how)

    def mean(self, samples: Floats) -> tuple[float, float]:
        """Of samples, one per evaluation path, with its standard error."""
        found = Estimate.of(samples, drawn=self.settings.drawn)
        return found.value, found.standard_error

    def bias(self, evaluation: PathData, found: Estimate) -> exact.Bias | None:
        """What the time steps do to the European price; a warning where that is more than accepted."""
        accepted = self.settings.bias_tolerance
        if found.price > 0:
            accepted = max(accepted, METHOD.bias_errors * found.standard_error / found.price)
        bias = self.steps
        if bias is None:
            # Payoffs at maturity as they are, without the control of the American price.
            how: dict[str, Any] = {"estimate": self.mean, "tolerance": accepted}
            bias = exact.observed_bias(self.process, self.payoff, self.grid, evaluation.prices[:, -1], **how)
        if bias is None:
            return None
        bias = replace(bias, tolerance=accepted)
        # The paper's scheme is biased by design; who asks for it is not warned.
        if bias.missed and getattr(self.process, "scheme", None) != "paper" and not self.settings.paper:
            note = f"the time steps of the simulation bias prices by {bias}; leave scheme and substeps to the library"
            warnings.warn(note, UserWarning, stacklevel=4)
        return bias

    def greeks(
        self, policy: learn.Policy, held: learn.Policy | None, stop_now: bool, paths: tuple[PathData, PathData]
    ) -> dict[str, Greek]:
        """Greeks, from training and evaluation paths of today's market."""
        multiples = exact.mean_growth(self.process, self.grid) is not None
        now = paths if multiples else self.paths(None)
        learned = not self.hold and self.grid.n_dates > 1

        def valued(market: Market) -> list[Valued]:
            there = replace(self, process=market.process, grid=market.grid, holds=self.hold)
            training, evaluation = moved(market, there)
            if stop_now:
                return [Valued(evaluation.payoffs[:, 0])]
            home, followed, waiting = self, policy, held
            if market.refit:
                home, followed = there, there.train(training)
                waiting = there.held(training, followed)
            return [home.earned(followed, waiting, each, there) for each in (evaluation, training)[: 1 + learned]]

        def moved(market: Market, there: PricingRun) -> Sequence[PathData]:
            """Paths of another market; with the exercise dates of this one, where policies are not learned again."""
            if market.factors is not None:
                return [(there if market.refit else self).rescaled(each, market.factors) for each in now]
            if market.process is self.process and market.grid is self.grid:
                return now
            drawn = there.paths(None)
            return drawn if market.refit else [self.rescaled(each, np.ones(1)) for each in drawn]

        how: dict[str, Any] = {"process": self.process, "grid": self.grid, "now": now[1], "mean": self.mean}
        how |= {"alike": self.ranked and bool(np.ptp(self.process.spot) == 0), "multiples": multiples}
        how["european"] = (lambda *market: None) if stop_now else self.known_price
        return Sensitivity(valued=valued, **how).greeks()

    def earned(
        self, policy: learn.Policy, held: learn.Policy | None, evaluation: PathData, there: PricingRun
    ) -> Valued:
        """What policies for these dates earn in another market, less their martingales, on paths of that market."""
        discount = float(there.grid.discount[1] / self.grid.discount[1])  # dates may have come closer
        known = there.known_price(there.process, there.grid)

        def controlled(policy: learn.Policy) -> Floats:
            growth = None if policy.growth is None else exact.mean_growth(there.process, there.grid)
            flows = replace(policy, growth=growth).evaluate(evaluation).controlled
            if policy.base is None or known is None:
                return discount * flows
            # European values begin with those of this market; until the first date the other one is right.
            return discount * (flows - policy.base(evaluation.prices[:1, 0], 0)) + known

        return Valued(controlled(policy), None if held is None or known is None else controlled(held) - known)

    def known_price(self, market: Process, grid: TimeGrid) -> float | None:
        """The European price in a market, where it is known and wanted."""
        base = self.base(market, grid)
        if base is not None:
            return float(base(market.start(1).prices, 0)[0])
        return exact.known_european(market, self.payoff, grid) if self.controlled else None

    def rescaled(self, paths: PathData, factors: Floats) -> PathData:
        """Paths with prices (dates + 1, assets) times as high, and the payoffs of these dates."""
        own = self.process.start(1).hidden.shape[1]
        hidden = None if paths.hidden is None else paths.hidden[..., :own]
        moved = PathData.build(paths.name, paths.prices * factors, grid=self.grid, payoff=self.payoff, hidden=hidden)
        return replace(moved, noise=paths.noise)

    def record(self, policy: learn.Policy) -> dict[str, Any]:
        """All that is needed to repeat the run."""
        grid, market = self.grid, {"process": repr(self.process), "payoff": repr(self.payoff)}
        dates = {"maturity": grid.maturity, "dates": grid.n_dates, "rates": np.unique(grid.rates).tolist()}
        chosen = {"width": getattr(policy.state, "width", None), "control": self.controlled}
        chosen["european_control"] = self.european is not None
        return asdict(self.settings) | chosen | {"device": self.settings.device or "cpu"} | dates | market


def _priced(
    paths: PathData,
    earned: learn.Evaluation,
    samples: Floats,
    *,
    stop_now: bool,
    european: float | None = None,
    drawn: str = "independent",
    **found: Any,
) -> PriceResult:
    """The price of following a policy on paths, or of exercising at once, with the other results.

    ``samples`` are the cash flows of the paths less terms of mean zero.
    """
    flows, dates = earned.flows[:, 0], earned.dates[:, 0]
    estimate, held = Estimate.of(samples, drawn=drawn), paths.payoffs[:, -1]
    if stop_now:
        flows, dates = np.array(paths.payoffs[:, 0]), np.zeros(len(flows), dtype=np.int16)
        estimate = Estimate(float(flows[0]), 0.0)
    if european is None:
        without, premium = (Estimate.of(each, drawn=drawn) for each in (held, flows - held))
    else:
        without = Estimate(european, 0.0)
        premium = Estimate(estimate.value - european, estimate.standard_error)
    found |= {"european": without, "premium": premium, "flows": flows, "stopping_dates": dates}
    found["exercise_probability"] = np.bincount(dates[flows > 0], minlength=paths.n_dates + 1) / len(flows)
    return PriceResult(price=estimate.value, standard_error=estimate.standard_error, **found)


def price_observed(
    data: Mapping[str, Floats],
    payoff: PayoffFunction,
    grid: TimeGrid,
    *,
    focal: str,
    folds: int = 5,
    width: int | None = None,
    spot: ArrayLike | None = None,
    grids: Mapping[str, TimeGrid] | None = None,
    sharing: float | None = None,
    transfer: float | None = None,
    stability: float | None = None,
    ridge: float | None = None,
    seed: int,
) -> PriceResult:
    """Price on observed paths of the focal regime, with transfer from the paths of others.

    Every focal path is priced by a policy that did not see it (``folds``-fold cross-fitting), so that the price stays a
    lower bound in expectation. With other datasets the policy is learned by the self-tuning method
    (:class:`mixtune.RegretOptimalRegressorCV`) at every date; without, it is local, its ridge tuned by leave-one-out.
    Where policies earn less than holding to maturity by more than a standard error, on paths that they did not see
    either, the option is held: few paths may not say when to exercise. The result's ``policy`` and ``region`` are
    learned from all paths; ``settings["hold"]`` and ``settings["exercise_today"]`` say whether, by the same comparison,
    it is better to hold or to exercise at once.

    Parameters
    ----------
    data : mapping of str to array (paths, dates + 1[, assets])
        All paths of all regimes start at today's prices of the focal one, unless ``spot`` is given.
    payoff, grid
        As for :func:`price`.
    focal : str
        The regime to price.
    folds : int
        Parts of the focal paths that are held out in turn.
    width : int, optional
        Random units; by default as many as the number of assets and of other observed variables asks for.
    spot : float or array (assets,), optional
        Today's prices: every path is multiplied to begin there, so that only returns count.
    grids : mapping of str to TimeGrid, optional
        Dates and rates of regimes that have their own. Where there are more or fewer dates than the focal regime has,
        those that lie nearest to the focal ones are used, as shares of the time to maturity.
    sharing, transfer, stability, ridge : float, optional
        Given any of them, transfer is the regret-optimal solution on standardised features with these settings (2, 1
        and 1 for the last three by default) instead of the self-tuning method. ``sharing`` is the information-sharing
        level of the predictive weights, in squared payoff units; the variance of the focal payoffs at maturity by
        default.
    """
    if not isinstance(data, Mapping):
        raise ParameterError(
            f"data must map names of markets to their paths; got {type(data).__name__}; pass {{'today': paths}}"
        )
    if focal not in list(data):
        known = ", ".join(map(str, list(data)[:8])) or "none"
        raise ParameterError(f"there are no paths named {focal!r}; there are {known}")
    folds, seed = checks.check_whole("folds", folds, least=2), checks.check_whole("seed", seed)
    width = width if width is None else checks.check_whole("width", width, least=1)
    own = {} if grids is None else grids
    if not isinstance(own, Mapping):
        raise ParameterError(f"grids must map names of markets to a TimeGrid each; got {type(grids).__name__}")
    for name, one in {"grid": grid, **{f"grids[{name!r}]": one for name, one in own.items()}}.items():
        check_grid(name, one)
    if unknown := [name for name in own if name not in data]:
        raise ParameterError(f"grids has {unknown[0]!r}, and data has no paths of that name")
    if spot is not None:
        data = {name: _from_spot(name, paths, spot) for name, paths in data.items()}
    _check_lengths(data, own, focal)
    dates = {name: own.get(name, grid) for name in data}
    built = {n: PathData.build(n, paths, grid=dates[n], payoff=payoff) for n, paths in data.items()}
    built = {n: _at_focal_dates(paths, dates[n], dates[focal]) for n, paths in built.items()}
    here, others = built.pop(focal), list(built.values())
    _check_markets(here, others)
    if len(here) < 2 * folds:
        raise DataError(f'"{focal}" has {len(here)} paths; {folds} folds need at least {2 * folds}')
    given = {"sharing": sharing, "transfer": transfer, "stability": stability, "ridge": ridge}
    by_hand = {name: value for name, value in given.items() if others and value is not None}
    strength: dict[str, Any] = {"sharing": float(here.payoffs[:, -1].var()), **STRENGTH, **by_hand}
    model: learn.ContinuationModel = learn.TunedLocal(0, "local")
    if by_hand:
        regret = {name: strength[name] for name in STRENGTH}
        model = learn.Transfer(PredictiveWeights(strength["sharing"]), **regret, horizon=1, name="transfer")
    elif others:
        model = learn.TunedTransfer("self-tuning transfer")
    market = ObservedMarkets(here, others, model, width, seed)
    seconds: dict[str, float] = {}
    with threadpool_limits(limits=1), _timed("train and evaluate", seconds, None):
        earned, held = market.cross_fit(folds)
        every = np.arange(len(here))
        policy, (waiting, hold) = market.policy(every), market.hold_or_follow(every)
    datasets = {d.name: len(d) for d in [here, *others]}
    settings = {"method": model.name, "focal": focal, "datasets": datasets, "folds": folds, "seed": seed}
    settings |= {"width": getattr(policy.state, "width", None)}
    settings |= {"folds_held": held, "hold": hold, "exercise_today": float(here.payoffs[0, 0]) > waiting}
    settings |= strength if by_hand else {}
    found: dict[str, Any] = {"policy": policy, "seconds": seconds, "settings": settings}
    found |= {"times": dates[focal].times, "region": exercise_region(policy, here, grid=dates[focal], payoff=payoff)}
    return _priced(here, earned, earned.controlled, stop_now=bool(np.all(earned.dates == 0)), **found)


def _from_spot(name: str, paths: Floats, spot: ArrayLike) -> Floats:
    """Paths multiplied to begin at these prices."""
    array = observed_paths(paths)
    today = numbers("spot", spot, least=0.0, strict=True)
    if today.shape not in ((), array.shape[2:]):
        raise ParameterError(f"spot must be one number or {array.shape[2]}, one per asset; got shape {today.shape}")
    if np.any(array[:, 0] == 0):
        raise DataError(f'a path of "{name}" begins at 0 and cannot be multiplied to begin at spot; leave it out')
    return array / array[:, :1] * today


def _check_lengths(data: Mapping[str, Floats], grids: Mapping[str, TimeGrid], focal: str) -> None:
    """Paths of other markets with another number of dates than the focal ones need a grid of their own."""
    here = getattr(data[focal], "shape", ())[1:2]
    for name, paths in data.items():
        points = getattr(paths, "shape", ())[1:2]
        if here and points and points != here and name not in grids:
            raise DataError(
                f'paths "{name}" have {points[0] - 1} dates, "{focal}" has {here[0] - 1}; pass those of this market: '
                f"grids={{{name!r}: TimeGrid(maturity=..., dates={points[0] - 1}, rate=...)}}"
            )


def _at_focal_dates(data: PathData, own: TimeGrid, focal: TimeGrid) -> PathData:
    """Paths at those of their dates that lie nearest to the focal ones, as shares of the time to maturity."""
    if own.n_dates == focal.n_dates:
        return data
    shares, wanted = own.times / own.maturity, focal.times / focal.maturity
    return data.at(np.abs(shares[:, None] - wanted).argmin(axis=0))


def _check_markets(here: PathData, others: list[PathData]) -> None:
    """All markets must have the same assets, and paths from the same prices."""
    today = here.prices[0, 0]
    for market in (here, *others):
        if market.n_assets != here.n_assets:
            raise DataError(f'paths "{market.name}" have {market.n_assets} assets, "{here.name}" has {here.n_assets}')
        # Payoffs and continuation values belong to price levels: paths from elsewhere would teach the wrong ones.
        if not np.allclose(market.prices[:, 0], today, rtol=1e-9, atol=0.0):
            raise DataError(
                f'the paths of "{market.name}" do not all start at today\'s price of "{here.name}" ({today.tolist()} '
                "in its first path); divide each path by its first price and multiply by today's, or pass spot"
            )


@dataclass(frozen=True, eq=False)
class ObservedMarkets:
    """Observed focal paths and those of other markets, and how a policy is learned from them."""

    here: PathData
    others: list[PathData]
    model: learn.ContinuationModel
    width: int | None
    seed: int

    def policy(self, rows: Integers) -> learn.Policy:
        """Learned from some focal paths and all others."""
        training = [self.here.take(rows), *self.others]
        variables = self.here.n_assets + (0 if self.here.hidden is None else self.here.hidden.shape[-1])
        width = learn.default_width(variables, ranked=False) if self.width is None else self.width
        state = learn.RandomState(width=width, seed=self.seed).fitted(training)
        return learn.train(training, [self.model], state=state, in_the_money=False)

    def cross_fit(self, folds: int) -> tuple[learn.Evaluation, int]:
        """What all focal paths earn, and in how many folds the option is held."""
        here, order = self.here, np.random.default_rng(self.seed).permutation(len(self.here))
        flows, dates = np.array(here.payoffs[:, -1:]), np.full((len(here), 1), here.n_dates)
        now, holding = float(here.payoffs[0, 0]), 0
        for held_out in np.array_split(order, folds):
            rows = np.setdiff1d(order, held_out)
            # All is decided without the paths held out: whether to hold, and whether to exercise today.
            waiting, hold = self.hold_or_follow(rows)
            if hold:
                holding += 1
            else:
                flows[held_out], dates[held_out] = self.policy(rows).cash_flows(here.take(held_out))
            if now > waiting:
                flows[held_out], dates[held_out] = now, 0
        return learn.Evaluation(flows, dates), holding

    def hold_or_follow(self, rows: Integers) -> tuple[float, bool]:
        """What waiting today is worth, and whether it means to hold, from paths that policies did not see.

        The option is held where policies earn less than at maturity by more than one standard error.
        """
        earned = np.empty(len(rows))
        for part in np.array_split(np.random.default_rng(self.seed).permutation(len(rows)), INNER_FOLDS):
            policy = self.policy(np.setdiff1d(rows, rows[part]))
            earned[part] = policy.cash_flows(self.here.take(rows[part]))[0][:, 0]
        held = self.here.payoffs[rows, -1]
        gain = Estimate.of(earned - held)
        hold = gain.value < -gain.standard_error
        return float((held if hold else earned).mean()), hold


@contextmanager
def _timed(stage: str, seconds: dict[str, float], progress: Callable[[str], None] | None) -> Iterator[None]:
    """Announce a stage, and note how long it took."""
    if progress is not None:
        progress(stage)
    begin = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - begin
