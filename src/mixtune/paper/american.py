"""Tables 1 and 2: American options priced with few paths of the market at hand and paths of other markets.

Every run draws new paths and a new random layer; all methods of a run share them. A method learns its exercise policy
on training paths and is priced on 50,000 fresh paths of the main market; its relative performance (RP) is its mean
price over all runs divided by that of LO-1, the local method on the main market. Settings are the paper's to the
letter; ``LO-1 (ridge tuned)`` is added to show what they hide: with its ridge chosen by leave-one-out, the local
method alone does better than most of the table.

Table 1 goes on beyond the paper: the same paths with no number set by hand. ``RO (tuned)`` is the library's self-tuning
estimator at every date; LO, JO and JSO with leave-one-out ridges are its rivals. These rows share the library's own
conventions: inputs standardised before the same random layer, and a payoff of zero never exercised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import to_numpy
from mixtune.options import Heston, MaxCall, Process, RoughHeston, TimeGrid
from mixtune.options import training as learn
from mixtune.paper._published import TABLE_1, TABLE_2
from mixtune.paper._store import Outcome
from mixtune.paper._study import Experiment, Results
from mixtune.paper._table_summary import TableSummary, summarise_table
from mixtune.weights import PredictiveWeights, WassersteinWeights, WeightRule

__all__ = ["TABLE1", "TABLE2", "TableSettings", "draw_run", "draw_runs", "run_beyond", "run_table", "run_together"]

Floats = np.ndarray[Any, Any]
OTHER_MARKETS = [(r, v_vol, v) for r in (0.05, 0.5) for v_vol in (0.15, 0.2, 0.25) for v in (0.005, 0.015)]


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """The paper's experiments 1 and 2. Prices are in units of the strike times 100."""

    rough: bool
    sharing: tuple[float, ...]
    temperatures: tuple[float, ...] = (1e-5, 1e-2, 1e-1)
    wasserstein_threshold: float = 100.0
    wasserstein_rows: int = 1000
    more_paths: tuple[int, ...] = ()
    training_paths: int = 100
    large_paths: int = 50_000
    evaluation_paths: int = 50_000
    width: int = 300
    ridge: float = 2.0
    transfer: float = 2.0
    stability: float = 1.0
    maturity: float = 3.0
    dates: int = 9
    strike: float = 100.0

    def grid(self, rate: float) -> TimeGrid:
        return TimeGrid(maturity=self.maturity, dates=self.dates, rate=rate)

    def markets(self) -> list[tuple[Process, float, int]]:
        """(process, rate, training paths) of every dataset, the main one first."""
        if self.rough:
            few, many = self.training_paths, self.large_paths
            return [(_market(rough=True), 0.05, few), (_market(), 0.5, many), (_market(), 0.05, few)]
        others = [(_market(v_vol=v_vol, v=v), rate, self.training_paths) for rate, v_vol, v in OTHER_MARKETS]
        return [(_market(), 0.05, self.training_paths), *others]

    def models(self) -> list[learn.ContinuationModel]:
        """The methods that learn from the datasets of :meth:`markets`."""
        count = len(self.markets())
        models: list[learn.ContinuationModel] = [learn.Local(i, self.ridge, f"LO-{i + 1}") for i in range(count)]
        models += [learn.MeanOfLocals(self.ridge), learn.Joint(self.ridge, tuple(range(count)))]
        if not self.rough:
            models.append(learn.Joint(self.ridge, tuple(range(7)), "JSO-{1..7}"))
        models += [self._transfer(PredictiveWeights(eta), f"RO (eta={eta:g})") for eta in self.sharing]
        for gamma in self.temperatures:
            rule = WassersteinWeights(gamma, self.wasserstein_threshold, rescale=False, floor=False, screen=True)
            name = f"RO (W1, gamma={gamma:g})"
            # The authors' Wasserstein runs: lambda = 3, beta = 0.
            models.append(learn.Transfer(rule, self.ridge, 3.0, 0.0, 1, name, self.wasserstein_rows))
        return [*models, learn.TunedLocal(0, "LO-1 (ridge tuned)")]

    def device_models(self) -> list[learn.ContinuationModel]:
        """Those of :meth:`models` that several runs learn together on a device."""
        rules = {model.name: model.weights for model in self.models() if isinstance(model, learn.Transfer)}
        return [model for model in self.models() if not isinstance(rules.get(model.name), WassersteinWeights)]

    def tuned_models(self) -> list[learn.ContinuationModel]:
        """Table 1's methods without hand-set numbers; JSO is still told which datasets are like the main one."""
        if self.rough:
            return []
        return [
            learn.TunedJoint((0,), "LO-1 (tuned)"),
            learn.TunedJoint(tuple(range(len(self.markets()))), "JO (tuned)"),
            learn.TunedJoint(tuple(range(7)), "JSO-{1..7} (tuned)"),
            learn.TunedTransfer("RO (tuned)"),
        ]

    def _transfer(self, rule: WeightRule, name: str) -> learn.Transfer:
        return learn.Transfer(rule, self.ridge, self.transfer, self.stability, 1, name)


def _market(*, v_vol: float = 0.2, v: float = 0.01, rough: bool = False) -> Process:
    common: dict[str, Any] = {
        "spot": 100.0,
        "v0": v,
        "v_mean": v,
        "v_speed": 2.0,
        "v_vol": v_vol,
        "rho": -0.3,
        "dividend": 0.1,
    }
    if rough:
        return RoughHeston(**common, n_assets=2, hurst=0.1, scheme="volterra", substeps=10)
    return Heston(**common, n_assets=2, scheme="paper")


@dataclass(frozen=True, eq=False)
class RunData:
    """The paths and the random layer of one run, or of several side by side, shared by all methods."""

    training: list[learn.PathData]
    evaluation: learn.PathData
    more: dict[int, learn.PathData]
    state: learn.StateMap


def draw_run(settings: TableSettings, seed: int) -> RunData:
    """Everything random in a run; each dataset has a stream of its own."""

    def draw(process: Process, rate: float, paths: int, name: str) -> learn.PathData:
        rng = np.random.default_rng(_stream(seed, name))
        market = (process, MaxCall(settings.strike), settings.grid(rate))
        return learn.simulate(*market, paths=paths, rng=rng, name=name, hidden=False)

    return _drawn(settings, draw, _layer(settings, seed))


def draw_runs(settings: TableSettings, seeds: Sequence[int], device: str | None) -> RunData:
    """The same for several runs side by side, with their paths on a device."""

    def draw(process: Process, rate: float, paths: int, name: str) -> learn.PathData:
        rngs = [np.random.default_rng(_stream(seed, name)) for seed in seeds]
        market = (process, MaxCall(settings.strike), settings.grid(rate))
        return learn.simulate_runs(*market, paths=paths, rngs=rngs, name=name, device=device)

    return _drawn(settings, draw, learn.RunStates(tuple(_layer(settings, seed) for seed in seeds)))


def _drawn(settings: TableSettings, draw: Callable[..., learn.PathData], state: learn.StateMap) -> RunData:
    markets = settings.markets()
    training = [draw(*market, f"D{i + 1}") for i, market in enumerate(markets)]
    process, rate, _ = markets[0]
    evaluation = draw(process, rate, settings.evaluation_paths, "evaluation")
    more = {paths: draw(process, rate, paths, f"D1, {paths} paths") for paths in settings.more_paths}
    return RunData(training, evaluation, more, state.fitted(training))


def _stream(seed: int, name: str) -> np.random.SeedSequence:
    # Keyed by name: adding a dataset or a method leaves the paths of all others as they were.
    return np.random.SeedSequence(seed, spawn_key=tuple(name.encode()))


def _layer(settings: TableSettings, seed: int) -> learn.RandomState:
    layer_seed = int(_stream(seed, "layer").generate_state(1)[0])
    return learn.RandomState(
        width=settings.width, activation="leaky_relu", slope=0.01, standardise=False, seed=layer_seed
    )


def run_table(settings: TableSettings, seed: int) -> Outcome:
    """One run: prices of all methods of the paper."""
    run = draw_run(settings, seed)
    return Outcome(_prices(_paper_policy(settings, run, settings.models()), run.evaluation))


def run_beyond(settings: TableSettings, seed: int) -> Outcome:
    """One run of Table 1 and of the methods without hand-set numbers, on the same paths."""
    run = draw_run(settings, seed)
    rows = _prices(_paper_policy(settings, run, settings.models()), run.evaluation)
    # The same layer, fed with standardised inputs.
    state = learn.RandomState(width=settings.width, seed=_layer(settings, seed).seed).fitted(run.training)
    policy = learn.train(run.training, settings.tuned_models(), state=state, in_the_money=False, only_positive=True)
    return Outcome(rows | _prices(policy, run.evaluation))


def run_together(settings: TableSettings, seeds: Sequence[int], device: str | None) -> list[Outcome]:
    """Several runs at once on a device: the methods whose work is linear algebra, as :func:`run_table` prices them.

    Normals are drawn by NumPy from the streams of each run. Paths, features, regressions and evaluation are on the
    device; leave-one-out ridges are chosen in NumPy. Methods with Wasserstein weights need exact transport plans,
    which have no use for a device, and are left out.
    """
    run = draw_runs(settings, seeds, device)
    policy = _paper_policy(settings, run, settings.device_models())
    flows, _ = policy.cash_flows(run.evaluation)
    means, now = to_numpy(flows.mean(axis=1)), float(run.evaluation.payoffs[0, 0, 0])
    return [
        Outcome({name: {"price": max(float(value), now)} for name, value in zip(policy.names, row)}) for row in means
    ]


def _paper_policy(settings: TableSettings, run: RunData, models: list[learn.ContinuationModel]) -> learn.Policy:
    rule: dict[str, Any] = {"state": run.state, "in_the_money": False, "only_positive": False}
    policy = learn.train(run.training, models, **rule)
    for paths, data in run.more.items():
        policy = policy.joined(learn.train([data], [learn.Local(0, settings.ridge, f"LO-1 ({paths} paths)")], **rule))
    return policy


def _prices(policy: learn.Policy, evaluation: learn.PathData) -> dict[str, dict[str, float]]:
    flows, _ = policy.cash_flows(evaluation)
    prices = np.maximum(flows.mean(axis=0), evaluation.payoffs[0, 0])
    return {name: {"price": float(value)} for name, value in zip(policy.names, prices)}


def _summarise_table1(settings: TableSettings, results: Results) -> TableSummary:
    return summarise_table(results, TABLE_1, [model.name for model in settings.tuned_models()])


def _summarise_table2(settings: TableSettings, results: Results) -> TableSummary:
    return summarise_table(results, TABLE_2, [])


TABLE1 = Experiment(
    "table1",
    TableSettings(rough=False, sharing=(10.0, 100.0, 500.0), more_paths=(700, 50_000)),
    run_beyond,
    _summarise_table1,
    runs=100,
    revision=2,
    together=run_together,
)
TABLE2 = Experiment(
    "table2", TableSettings(rough=True, sharing=(10.0, 50.0, 100.0)), run_table, _summarise_table2, runs=100
)
