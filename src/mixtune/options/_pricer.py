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

**Greeks** by common random numbers: the same normals, a bumped market, the same exercise policy. To first order a bump
does not change the value through the policy (it is nearly optimal), so the policy is kept and only the paths move with
the market. Differences of paired cash flows have small variance, and a standard error.

**Exercise region.** At each date the policy decides on a grid of prices. For one asset the region of a put lies below
a critical price and that of a call above one: that boundary is read off. For two assets the region is kept as a grid.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mixtune._array import Array, Booleans, Floats, to_numpy
from mixtune._checks import check_whole
from mixtune._messages import Note
from mixtune.errors import DataError, ParameterError
from mixtune.options import training as learn
from mixtune.options._bias import Bias, observed_bias, with_chosen_steps
from mixtune.options._paths import PathData, simulate
from mixtune.options._payoffs import PayoffFunction
from mixtune.options._settings import METHOD, PriceSettings, TimeGrid
from mixtune.options.processes import Process, State
from mixtune.weights import PredictiveWeights

#: Inner states evaluated at a time.
CHUNK_STATES = 100_000


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
) -> UpperBound:
    """Upper bound from a policy's (first model's) continuation values.

    Parameters
    ----------
    policy : Policy
        Trained on all paths, not only those in the money: values are needed everywhere.
    outer_paths, inner_paths : int
        Paths of the bound itself, and one-interval continuations from each of their states (paired antithetically).
    """
    process = process.for_grid(grid)
    outer_paths = check_whole("outer_paths", outer_paths, least=2)
    pairs = (check_whole("inner_paths", inner_paths, least=2) + 1) // 2
    state_map = policy.state
    if not isinstance(state_map, learn.OneDateMap):
        raise ParameterError("the upper bound needs features of one date (random or polynomial), not recurrent ones")

    def discounted(state: State, date: int) -> Floats:
        return np.asarray(payoff(state.prices)) * grid.discount[date]

    def value(state: State, date: int) -> Floats:
        """``V_t = max(h_t, continuation_t)``."""
        now = discounted(state, date)
        if date == grid.n_dates:
            return now
        U = state_map.transform(learn.stack_inputs(state.prices, now, state.hidden if with_hidden else None), date)
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
        level, powers = float(np.mean(process.volatility)), {"volatility": 1}
    else:
        level, powers = math.sqrt(process.v0), {"v0": 2, "v_mean": 2}  # type: ignore[attr-defined]
    factors = (1 + bump, 1 - bump)
    up, down = ({name: getattr(process, name) * f**power for name, power in powers.items()} for f in factors)
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
    policy: learn.Policy, data: PathData, *, grid: TimeGrid, payoff: PayoffFunction, points: int = 101
) -> ExerciseRegion | None:
    """The region of the first model, over the central prices seen in ``data``; None for three or more assets."""
    if data.n_assets > 2 or not isinstance(policy.state, learn.OneDateMap) or grid.n_dates < 2:
        return None
    tails = [METHOD.region_tail, 1 - METHOD.region_tail]
    low, high = np.quantile(data.prices[:, 1:], tails)
    axis = np.linspace(low, high, points)
    mesh = np.stack(np.meshgrid(*[axis] * data.n_assets, indexing="ij"), axis=-1).reshape(-1, data.n_assets)
    raw = np.asarray(payoff(mesh))
    shape = (grid.n_dates - 1, *[points] * data.n_assets)
    stops, seens = np.empty((2, grid.n_dates - 1, len(mesh)), dtype=bool)
    for date in range(1, grid.n_dates):
        discounted = raw * grid.discount[date]
        hidden = None
        if data.hidden is not None:  # unobserved on the grid: held at its mean
            hidden = np.broadcast_to(data.hidden[:, date].mean(axis=0), (len(mesh), data.hidden.shape[2]))
        U = policy.state.transform(learn.stack_inputs(mesh, discounted, hidden), date)
        stops[date - 1] = learn.exercises(discounted, U @ policy.coefs[date][:, 0], policy.only_positive)
        lowest, highest = np.quantile(data.prices[:, date], tails)
        seens[date - 1] = np.all((mesh >= lowest) & (mesh <= highest), axis=1)
    boundary = None
    if data.n_assets == 1:
        # Next to the waiting region: the highest stopping price of a put, the lowest of a call.
        nearest = np.fmax if raw[0] >= raw[-1] else np.fmin
        boundary = nearest.reduce(np.where(stops & seens, axis, math.nan), axis=1)
    return ExerciseRegion(grid.times[1:-1], axis, stops.reshape(shape), seens.reshape(shape), boundary)


@dataclass(frozen=True, eq=False)
class PriceResult(Estimate):
    """The price of an American or Bermudan option.

    Attributes
    ----------
    price, standard_error, ci_low, ci_high : float
        A lower bound in expectation: the mean discounted cash flow of the learned exercise policy on paths that did not
        train it, with its 95% interval; or the immediate payoff where that is more.
    european : Estimate
        The same paths held to maturity: exercising early must be worth at least this.
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
    seconds : dict of str to float
        Time spent simulating, training, evaluating, bounding.
    settings : dict
        All that is needed to repeat the run.
    """

    european: Estimate
    exercise_probability: Floats
    policy: learn.Policy
    bias: Bias | None = None
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
        facts["bias"] = None if self.bias is None else self.bias.as_dict()
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
        The market, see :mod:`mixtune.options.processes`.
    payoff : callable
        Prices (..., assets) to payoffs (...).
    grid : TimeGrid
        Exercise dates and rates.
    settings : PriceSettings, optional
        How to price. Give this, or its fields as keywords, of which ``seed`` is required; keywords win.
    progress : callable, optional
        Called with the name of each stage as it starts.
    **options
        Fields of :class:`PriceSettings`: method, preset, paths, training_paths, width, degree, in_the_money,
        observe_hidden, antithetic, sobol, upper, upper_paths, inner_paths, greeks, bias_tolerance, device, seed.

    Returns
    -------
    PriceResult

    Examples
    --------
    >>> from mixtune.options import BlackScholes, Put, TimeGrid, price
    >>> market = BlackScholes(spot=36.0, volatility=0.2)
    >>> result = price(market, Put(40.0), TimeGrid(maturity=1.0, dates=10, rate=0.06), paths=4000, seed=0)
    >>> bool(4.2 < result.price < 4.6)
    True
    """
    settings = PriceSettings(**options) if settings is None else replace(settings, **options)
    settings = replace(settings, training_paths=settings.training_paths or settings.paths)
    if settings.paper:
        settings = replace(settings, in_the_money=False, observe_hidden=False)
    seconds = dict[str, float]()
    stage = partial(_timed, seconds=seconds, progress=progress)
    with threadpool_limits(limits=1):
        with stage("choose steps"):
            tolerance, seed = settings.bias_tolerance, settings.seed
            process, steps = with_chosen_steps(process, payoff, grid, tolerance=tolerance, seed=seed)
        run = _Run(process, payoff, grid, settings, steps)
        with stage("simulate"):
            training = run.draw(process, run.streams[0], paths=settings.training_paths, device=settings.device)
            evaluation = run.evaluation_paths(process, settings.device)
        with stage("train"):
            policy = run.train(training)
        with stage("evaluate"):
            flows, dates = (to_numpy(found)[:, 0] for found in policy.cash_flows(evaluation))
            training, evaluation, policy = training.fetched(), evaluation.fetched(), policy.fetched()
        found: dict[str, Any] = {"region": exercise_region(policy, training, grid=grid, payoff=payoff)}
        if settings.upper:
            with stage("upper bound"):
                found["upper"] = run.upper_bound(training)
        if settings.greeks:
            with stage("greeks"):
                immediate = float(evaluation.payoffs[0, 0]) > float(flows.mean())
                difference = partial(run.difference, policy, immediate)
                found["greeks"] = greeks(process, difference, drawn=settings.drawn)
        found["bias"] = run.bias(evaluation, Estimate.of(flows, drawn=settings.drawn))
    found |= {"policy": policy, "seconds": seconds, "settings": run.record()}
    return _result(evaluation, flows, dates, drawn=settings.drawn, **found)


@dataclass(frozen=True, eq=False)
class _Run:
    """The steps of one pricing run. Training, evaluation and upper bound have independent random streams."""

    process: Process
    payoff: PayoffFunction
    grid: TimeGrid
    settings: PriceSettings
    steps: Bias | None = None

    @property
    def streams(self) -> list[np.random.SeedSequence]:
        return np.random.SeedSequence(self.settings.seed).spawn(3)

    def evaluation_paths(self, market: Process, device: str | None = None) -> PathData:
        """Paths to evaluate on; the same normals whatever the market, so that Greeks compare path by path."""
        settings, stream = self.settings, self.streams[1]
        streams = stream.spawn(METHOD.scramblings) if settings.sobol else [stream]
        counts = [len(part) for part in np.array_split(range(settings.paths), len(streams))]
        how: dict[str, Any] = {"antithetic": settings.antithetic, "sobol": settings.sobol, "device": device}
        return PathData.joined([self.draw(market, s, paths=n, **how) for n, s in zip(counts, streams)])

    def draw(self, market: Process, stream: np.random.SeedSequence, **how: Any) -> PathData:
        """Paths of a market; the options are those of :func:`simulate`."""
        rng, hidden = np.random.default_rng(stream), self.settings.observe_hidden
        return simulate(market, self.payoff, self.grid, rng=rng, hidden=hidden, **how)

    def train(self, training: PathData) -> learn.Policy:
        settings, paper = self.settings, self.settings.paper
        model = learn.Local(0, METHOD.paper_ridge, "LO-1") if paper else learn.TunedLocal(0, settings.method)
        rule = {"in_the_money": settings.in_the_money, "only_positive": not paper}
        return learn.train([training], [model], state=learn.state_map(settings).fitted([training]), **rule)

    def upper_bound(self, training: PathData) -> UpperBound:
        settings, rng = self.settings, np.random.default_rng(self.streams[2])
        # Values are needed everywhere, so this policy learns from all paths.
        state = learn.RandomState(width=settings.width, seed=settings.seed).fitted([training])
        policy = learn.train([training], [learn.TunedLocal(0, "value")], state=state, in_the_money=False)
        how: dict[str, Any] = {"outer_paths": settings.upper_paths, "inner_paths": settings.inner_paths}
        how |= {"rng": rng, "with_hidden": settings.observe_hidden}
        return upper_bound(policy, self.process, grid=self.grid, payoff=self.payoff, **how)

    def bias(self, evaluation: PathData, found: Estimate) -> Bias | None:
        """What the time steps do to the European price; a warning where that is more than accepted."""
        accepted = self.settings.bias_tolerance
        if found.price > 0:
            accepted = max(accepted, METHOD.bias_errors * found.standard_error / found.price)
        bias = self.steps
        if bias is None:

            def estimate(samples: Floats) -> tuple[float, float]:
                mean = Estimate.of(samples, drawn=self.settings.drawn)
                return mean.value, mean.standard_error

            terminal = evaluation.prices[:, -1]
            bias = observed_bias(self.process, self.payoff, self.grid, terminal, estimate=estimate, tolerance=accepted)
        if bias is None:
            return None
        bias = replace(bias, tolerance=accepted)
        # The paper's scheme is biased by design; who asks for it is not warned.
        if bias.missed and getattr(self.process, "scheme", None) != "paper" and not self.settings.paper:
            note = "the time steps of the simulation bias prices by {found}; leave scheme and substeps to the library"
            warnings.warn(Note("discretisation-bias", note, found=str(bias)), UserWarning, stacklevel=3)
        return bias

    def difference(self, policy: learn.Policy, immediate: bool, up: Process, down: Process) -> Floats:
        """Paired difference of cash flows between two markets; of payoffs today where exercising at once is best."""
        both = [self.evaluation_paths(market) for market in (up, down)]
        flows = [paths.payoffs[:, 0] if immediate else policy.cash_flows(paths)[0][:, 0] for paths in both]
        return flows[0] - flows[1]

    def record(self) -> dict[str, Any]:
        """All that is needed to repeat the run."""
        grid, market = self.grid, {"process": repr(self.process), "payoff": repr(self.payoff)}
        dates = {"maturity": grid.maturity, "dates": grid.n_dates, "rates": np.unique(grid.rates).tolist()}
        return asdict(self.settings) | {"device": self.settings.device or "cpu"} | dates | market


def price_observed(
    data: Mapping[str, Floats],
    payoff: PayoffFunction,
    grid: TimeGrid,
    *,
    focal: str,
    folds: int = 5,
    width: int = 100,
    sharing: float | None = None,
    transfer: float = 2.0,
    stability: float = 1.0,
    ridge: float = 1.0,
    seed: int,
) -> PriceResult:
    """Price on observed paths of the focal regime, with transfer from the paths of others.

    Every focal path is priced by a policy that did not see it (``folds``-fold cross-fitting), so that the price stays a
    lower bound in expectation. Without other datasets the policy is local, its ridge tuned by leave-one-out. The
    result's ``policy`` and ``region`` are those of the last fold.

    Parameters
    ----------
    data : mapping of str to array (paths, dates + 1[, assets])
        All paths of all regimes start at today's prices of the focal one.
    focal : str
        The regime to price.
    sharing : float, optional
        Information-sharing level of the predictive weights, in squared payoff units; the variance of the focal
        payoffs at maturity by default.
    transfer, stability, ridge : float
        Of the regret-optimal solution on standardised features.
    """
    if focal not in data:
        raise ParameterError(f"there are no paths named {focal!r}; there are {', '.join(list(data)[:8])}")
    folds = check_whole("folds", folds, least=2)
    built = {name: PathData.build(name, paths, grid=grid, payoff=payoff) for name, paths in data.items()}
    here, others = built.pop(focal), list(built.values())
    today = here.prices[0, 0]
    for market in (here, *others):
        if market.n_assets != here.n_assets:
            raise DataError(f'paths "{market.name}" have {market.n_assets} assets, "{focal}" has {here.n_assets}')
        # Payoffs and continuation values belong to price levels: paths from elsewhere would teach the wrong ones.
        if not np.allclose(market.prices[:, 0], today, rtol=1e-9, atol=0.0):
            raise DataError(
                f'the paths of "{market.name}" do not all start at today\'s price of "{focal}" ({today.tolist()} in '
                "its first path); divide each path by its first price and multiply by today's"
            )
    if len(here) < 2 * folds:
        raise DataError(f'"{focal}" has {len(here)} paths; {folds} folds need at least {2 * folds}')
    level = float(here.payoffs[:, -1].var()) if sharing is None else sharing
    regret = learn.Transfer(PredictiveWeights(level), ridge, transfer, stability, 1, "transfer")
    model = regret if others else learn.TunedLocal(0, "local")
    order = np.random.default_rng(seed).permutation(len(here))
    flows, dates = np.empty(len(here)), np.empty(len(here), dtype=np.int16)
    seconds: dict[str, float] = {}
    with threadpool_limits(limits=1), _timed("train and evaluate", seconds, None):
        for held_out in np.array_split(order, folds):
            training = [here.take(np.setdiff1d(order, held_out)), *others]
            state = learn.RandomState(width=width, seed=seed).fitted(training)
            policy = learn.train(training, [model], state=state, in_the_money=False)
            found = policy.cash_flows(here.take(held_out))
            flows[held_out], dates[held_out] = found[0][:, 0], found[1][:, 0]
    datasets = {d.name: len(d) for d in [here, *others]}
    settings = {"method": model.name, "focal": focal, "datasets": datasets, "folds": folds, "seed": seed}
    settings |= {"sharing": level, "transfer": transfer, "stability": stability, "ridge": ridge}
    region = exercise_region(policy, here, grid=grid, payoff=payoff)
    return _result(here, flows, dates, policy=policy, region=region, seconds=seconds, settings=settings)


def _result(
    evaluation: PathData, flows: Floats, dates: Array, *, drawn: str = "independent", **found: Any
) -> PriceResult:
    """The result of a policy with these cash flows (paths,) at these dates on evaluation paths drawn so."""
    estimate, now = Estimate.of(flows, drawn=drawn), float(evaluation.payoffs[0, 0])
    stop_now = now > estimate.value
    exercised = np.zeros(len(flows), dtype=np.int16) if stop_now else dates[flows > 0]
    return PriceResult(
        price=now if stop_now else estimate.value,
        standard_error=0.0 if stop_now else estimate.standard_error,
        european=Estimate.of(evaluation.payoffs[:, -1], drawn=drawn),
        exercise_probability=np.bincount(exercised, minlength=evaluation.n_dates + 1) / len(flows),
        **found,
    )


@contextmanager
def _timed(stage: str, seconds: dict[str, float], progress: Callable[[str], None] | None) -> Iterator[None]:
    """Announce a stage, and note how long it took."""
    if progress is not None:
        progress(stage)
    begin = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - begin
