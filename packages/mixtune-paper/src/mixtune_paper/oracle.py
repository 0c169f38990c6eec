"""What is missing to the oracle: from the self-tuning method of Table 1 to 50,000 paths of the main market, in steps.

Each step changes one thing, on the same evaluation paths and the same random layer, so that differences are run by run
and add up to the whole:

1. **the choice of markets**: the method has only the markets that are alike;
2. **the choice of a model**: their paths are pooled (JSO, tuned) instead of weighted;
3. **likeness**: as many paths, all of them of the main market;
4. **the number of paths**: 50,000 of them;
5. **conventions**: those of the paper's oracle (inputs as they are, ridge 2, payoffs of zero may be exercised).

One more step beyond the oracle, twice as many units, shows what its 300 random features cost. What the method loses
against 50,000 paths is also told by exercise date: two policies that follow those paths before a date, or before the
next date, and the method from there on, differ by the decisions of that date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from mixtune_options import training as learn
from mixtune_paper._arrays import Floats
from mixtune_paper._store import Outcome
from mixtune_paper._study import Experiment, Findings, Panel, Results, change, lines_of
from mixtune_paper.american import TABLE1_SETTINGS, RunData, TableSettings, draw_run, layer

__all__ = ["ORACLE", "OracleSettings"]

LOCAL, TUNED, TOLD = "LO-1", "RO (tuned)", "RO (tuned), only alike markets"
PAPER, WIDE = "LO-1, conventions of the paper", "more units"


@dataclass(frozen=True, kw_only=True)
class OracleSettings:
    """Table 1 with several numbers of paths of the main market, the last of them the oracle's.

    ``alike`` are the numbers of markets that are pooled, the main one and the first that are like it; the last of
    them has as many paths as ``same``. ``wide`` is the number of units of the wider layer.
    """

    table: TableSettings = field(default_factory=lambda: replace(TABLE1_SETTINGS, more_paths=(300, 700, 3000, 50_000)))
    alike: tuple[int, ...] = (1, 2, 4, 7)
    same: int = 700
    wide: int = 600

    @property
    def most(self) -> int:
        return self.table.more_paths[-1]

    @property
    def joint(self) -> str:
        return _alike(self.alike[-1])

    @property
    def steps(self) -> dict[str, tuple[str, str]]:
        """By what changes, the methods before and after."""
        return {
            "the choice of markets: only those that are alike": (TUNED, TOLD),
            "the choice of a model: their paths pooled": (TOLD, self.joint),
            "likeness: as many paths of the main market": (self.joint, _own(self.same)),
            f"the number of paths: {self.most} of the main market": (_own(self.same), _own(self.most)),
            "conventions of the paper's oracle": (_own(self.most), PAPER),
            "all steps": (TUNED, PAPER),
            f"beyond: {self.wide} instead of {self.table.width} units": (_own(self.most), WIDE),
        }


def _own(paths: int) -> str:
    return f"{paths} paths of the main market"


def _alike(markets: int) -> str:
    return f"{markets} alike"


def _run(settings: OracleSettings, seed: int) -> Outcome:
    run, standardised = draw_run(settings.table, seed), layer(settings.table, seed, standardise=True)
    policy = _policy(settings, run, standardised.fitted(run.training))
    methods, oracle = (TUNED, settings.joint), _own(settings.most)
    wide = replace(standardised, width=settings.wide).fitted(run.training)
    as_printed = partial(learn.train, state=run.state, in_the_money=False, only_positive=False)
    most, ridge = [run.more[settings.most]], settings.table.ridge
    policies = [
        _with_hybrids(policy, oracle, methods),
        learn.train(most, [learn.TunedLocal(0, WIDE)], state=wide, in_the_money=False),
        as_printed(most, [learn.Local(0, ridge, PAPER)]),
        as_printed(run.training[:1], [learn.Local(0, ridge, LOCAL)]),
    ]
    rows: dict[str, dict[str, float]] = {}
    for each in policies:
        flows = each.cash_flows(run.evaluation)[0]
        noise = flows.std(axis=0) / np.sqrt(len(flows))
        found = zip(each.names, flows.mean(axis=0).tolist(), noise.tolist())
        rows |= {name: {"price": price, "noise": error} for name, price, error in found}
    curves = {name: _by_date(policy, run.evaluation, name, oracle) for name in methods}
    for name in methods:
        hybrids = [rows.pop(_hybrid(name, date)) for date in range(1, settings.table.dates)]
        curves[name]["lost"] = np.diff([row["price"] for row in (*hybrids, rows[oracle])])
    return Outcome(rows, curves)


def _policy(settings: OracleSettings, run: RunData, state: learn.StateMap) -> learn.Policy:
    """All methods that share the random layer on standardised inputs."""
    learned = partial(learn.train, state=state, in_the_money=False)
    models = [learn.TunedTransfer(TUNED), *(learn.TunedJoint(tuple(range(n)), _alike(n)) for n in settings.alike)]
    policy = learned(run.training, models)
    policy = policy.joined(learned(run.training[: settings.alike[-1]], [learn.TunedTransfer(TOLD)]))
    for paths, data in run.more.items():
        # With many paths the ridge hardly matters, and some of them are enough to choose it.
        tuned = learn.TunedLocal(0, _own(paths)) if paths == settings.most else learn.TunedJoint((0,), _own(paths))
        policy = policy.joined(learned([data], [tuned]))
    return policy


def _hybrid(name: str, date: int) -> str:
    return f"{name} from date {date}"


def _with_hybrids(policy: learn.Policy, oracle: str, methods: tuple[str, ...]) -> learn.Policy:
    """The policy's models, and those that follow the oracle before a date and a method from it on."""
    best, coefs, names = policy.coefs[..., policy.names.index(oracle)], [policy.coefs], [*policy.names]
    for method in methods:
        own = policy.coefs[..., policy.names.index(method)]
        for date in range(1, len(policy.coefs)):
            coefs.append(np.concatenate([best[:date], own[date:]])[..., None])
            names.append(_hybrid(method, date))
    return replace(policy, coefs=np.concatenate(coefs, axis=-1), names=tuple(names), value=None)


def _by_date(policy: learn.Policy, paths: learn.PathData, method: str, oracle: str) -> dict[str, Floats]:
    """Error of a method's value of waiting against the oracle's on paths in the money: root mean square, and mean."""
    places = [policy.names.index(method), policy.names.index(oracle)]
    found = []
    for date, _, waiting in policy.state.predicted(paths, policy.coefs[..., places], features=False, positive=False):
        error = (waiting[:, 0] - waiting[:, 1])[paths.payoffs[:, date] > 0]
        found.append((float(np.sqrt(np.mean(error**2))), float(np.mean(error))) if len(error) else (0.0, 0.0))
    rmse, bias = np.array(found[::-1]).T
    return {"rmse": rmse, "bias": bias}


def _summarise(settings: OracleSettings, results: Results) -> Findings:
    base = float(results.values(LOCAL, "price").mean())

    def rp(name: str) -> Floats:
        return results.values(name, "price") / base

    rows = [{"step": step, **change(rp(after), rp(before))} for step, (before, after) in settings.steps.items()]
    per_market, dates = settings.table.training_paths, range(1, settings.table.dates)
    grown = {f"{per_market} paths each of alike markets": {n * per_market: _alike(n) for n in settings.alike}}
    grown["the main market"] = {n: _own(n) for n in settings.table.more_paths}
    lines: list[Mapping[str, Any]] = []
    for label, names in grown.items():
        lines += lines_of("rows", label, list(names), np.stack([rp(name) for name in names.values()], axis=1))
    flat = np.repeat(rp(TUNED)[:, None], 2, axis=1)
    lines += lines_of("rows", f"{TUNED}, all markets", [per_market, settings.most], flat)
    for name in (TUNED, settings.joint):
        for panel, scale in (("lost", base), ("rmse", 1.0), ("bias", 1.0)):
            lines += lines_of(panel, name, list(dates), results.curves(name, panel) / scale)
    return results.findings(rows, _sentences(settings, results, base), panels=PANELS, lines=lines)


PANELS = {
    "rows": Panel("Price and number of paths", "training paths", "RP", log_x=True),
    "lost": Panel("Lost by the decisions of a date", "exercise date", "RP"),
    "rmse": Panel("Error of the value of waiting", "exercise date", "root mean square"),
    "bias": Panel("Its mean", "exercise date", "mean"),
}


def _sentences(settings: OracleSettings, results: Results, base: float) -> list[str]:
    noise = float(results.values(_own(settings.most), "noise").mean()) / base
    lost = results.curves(TUNED, "lost").mean(axis=0) / base
    worst = int(np.argmax(lost)) + 1
    return [
        "RP is relative to LO-1 with the paper's settings. Differences are run by run, on the same evaluation paths, "
        "and all but the last two add up to the last but one.",
        f"One price on {settings.table.evaluation_paths} evaluation paths has a standard error of {noise:.4f}; methods "
        "of a run share these paths, so that most of it cancels in differences.",
        f"The decisions of date {worst} lose most, {lost[worst - 1]:.4f} of {lost.sum():.4f}: these are costs against "
        f"{_own(settings.most)}, by {TUNED}.",
    ]


ORACLE = Experiment("oracle", OracleSettings(), _run, _summarise, runs=20, revision=2)
