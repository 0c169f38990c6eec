"""Price an option: simulate, learn when to stop, evaluate on fresh paths, bound from above.

Defaults are the library's: inputs standardised, ridge chosen by leave-one-out at every date, regression on paths in the
money, a payoff of zero never exercised, and the variance of a simulated model observed. ``preset="paper"`` gives the
settings of the paper's tables instead.

Linear algebra runs on one thread while pricing: the matrices are small, and threads waiting for each other cost more
than they bring (measured on busy cores: ten times as much).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mixtune._array import Floats, to_numpy
from mixtune._checks import check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.options._evaluation import Estimate, PriceResult, UpperBound, exercise_region, greeks, upper_bound
from mixtune.options._features import RandomState, state_map
from mixtune.options._paths import PathData, simulate
from mixtune.options._payoffs import PayoffFunction
from mixtune.options._settings import METHOD, PriceSettings, TimeGrid
from mixtune.options.processes import Process
from mixtune.options.training import Local, Policy, Transfer, TunedLocal, train
from mixtune.weights import PredictiveWeights


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
        observe_hidden, antithetic, sobol, upper, upper_paths, inner_paths, greeks, device, seed.

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
    run, seconds = _Run(process, payoff, grid, settings), dict[str, float]()
    stage = partial(_timed, seconds=seconds, progress=progress)
    with threadpool_limits(limits=1):
        with stage("simulate"):
            training, evaluation = run.training_paths(), run.evaluation_paths(process, settings.device)
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
    found |= {"policy": policy, "seconds": seconds, "settings": run.record()}
    return _result(evaluation, flows, dates, drawn=settings.drawn, **found)


@dataclass(frozen=True, eq=False)
class _Run:
    """The steps of one pricing run. Training, evaluation and upper bound have independent random streams."""

    process: Process
    payoff: PayoffFunction
    grid: TimeGrid
    settings: PriceSettings

    @property
    def hidden(self) -> bool:
        """Whether the exercise decision sees the hidden state."""
        return self.settings.observe_hidden and not self.settings.paper

    @property
    def streams(self) -> list[np.random.SeedSequence]:
        return np.random.SeedSequence(self.settings.seed).spawn(3)

    def training_paths(self) -> PathData:
        count, device = self.settings.training_paths or self.settings.paths, self.settings.device
        return self._draw(self.process, paths=count, stream=self.streams[0], device=device)

    def evaluation_paths(self, market: Process, device: str | None = None) -> PathData:
        """Paths to evaluate on; the same normals whatever the market, so that Greeks compare path by path."""
        settings, stream = self.settings, self.streams[1]
        streams = stream.spawn(METHOD.scramblings) if settings.sobol else [stream]
        counts = [len(part) for part in np.array_split(range(settings.paths), len(streams))]
        how: dict[str, Any] = {"antithetic": settings.antithetic, "sobol": settings.sobol, "device": device}
        return PathData.joined([self._draw(market, paths=n, stream=s, **how) for n, s in zip(counts, streams)])

    def _draw(self, market: Process, *, paths: int, stream: np.random.SeedSequence, **how: Any) -> PathData:
        rng = np.random.default_rng(stream)
        return simulate(market, self.payoff, self.grid, paths=paths, rng=rng, hidden=self.hidden, **how)

    def train(self, training: PathData) -> Policy:
        settings, paper = self.settings, self.settings.paper
        model = Local(0, METHOD.paper_ridge, "LO-1") if paper else TunedLocal(0, settings.method)
        state = state_map(settings).fitted([training])
        in_the_money = settings.in_the_money and not paper
        return train([training], [model], state=state, in_the_money=in_the_money, only_positive=not paper)

    def upper_bound(self, training: PathData) -> UpperBound:
        settings, rng = self.settings, np.random.default_rng(self.streams[2])
        # Values are needed everywhere, so this policy learns from all paths.
        state = RandomState(width=settings.width, seed=settings.seed).fitted([training])
        policy = train([training], [TunedLocal(0, "value")], state=state, in_the_money=False)
        option: dict[str, Any] = {"grid": self.grid, "payoff": self.payoff, "with_hidden": self.hidden}
        sizes: dict[str, Any] = {"outer_paths": settings.upper_paths, "inner_paths": settings.inner_paths}
        return upper_bound(policy, self.process, rng=rng, **option, **sizes)

    def difference(self, policy: Policy, immediate: bool, up: Process, down: Process) -> Floats:
        """Paired difference of cash flows between two markets; of payoffs today where exercising at once is best."""
        both = [self.evaluation_paths(market) for market in (up, down)]
        flows = [paths.payoffs[:, 0] if immediate else policy.cash_flows(paths)[0][:, 0] for paths in both]
        return flows[0] - flows[1]

    def record(self) -> dict[str, Any]:
        """All that is needed to repeat the run."""
        settings, grid = self.settings, self.grid
        count, device = settings.training_paths or settings.paths, settings.device or "cpu"
        used = {"training_paths": count, "observe_hidden": self.hidden, "device": device}
        dates = {"maturity": grid.maturity, "dates": grid.n_dates, "rates": np.unique(grid.rates).tolist()}
        return asdict(settings) | used | dates | {"process": repr(self.process), "payoff": repr(self.payoff)}


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
        # Payoffs and continuation values belong to price levels: paths from elsewhere would teach the wrong ones.
        if not np.allclose(market.prices[:, 0], today, rtol=1e-9, atol=0.0):
            raise DataError(
                f'the paths of "{market.name}" do not all start at today\'s price of "{focal}" ({today.tolist()} in '
                "its first path); divide each path by its first price and multiply by today's"
            )
    if len(here) < 2 * folds:
        raise DataError(f'"{focal}" has {len(here)} paths; {folds} folds need at least {2 * folds}')
    level = float(here.payoffs[:, -1].var()) if sharing is None else sharing
    regret = Transfer(PredictiveWeights(level), ridge, transfer, stability, 1, "transfer")
    model = regret if others else TunedLocal(0, "local")
    order = np.random.default_rng(seed).permutation(len(here))
    flows, dates = np.empty(len(here)), np.empty(len(here), dtype=np.int16)
    seconds: dict[str, float] = {}
    with threadpool_limits(limits=1), _timed("train and evaluate", seconds, None):
        for held_out in np.array_split(order, folds):
            training = [here.take(np.setdiff1d(order, held_out)), *others]
            state = RandomState(width=width, seed=seed).fitted(training)
            policy = train(training, [model], state=state, in_the_money=False)
            found = policy.cash_flows(here.take(held_out))
            flows[held_out], dates[held_out] = found[0][:, 0], found[1][:, 0]
    datasets = {d.name: len(d) for d in [here, *others]}
    settings = {"method": model.name, "focal": focal, "datasets": datasets, "folds": folds, "seed": seed}
    settings |= {"sharing": level, "transfer": transfer, "stability": stability, "ridge": ridge}
    region = exercise_region(policy, here, grid=grid, payoff=payoff)
    return _result(here, flows, dates, policy=policy, region=region, seconds=seconds, settings=settings)


def _result(
    evaluation: PathData, flows: Floats, dates: np.ndarray[Any, Any], *, drawn: str = "independent", **found: Any
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
