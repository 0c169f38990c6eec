"""The game behind the regret (Appendix A): what the central planner's play costs each agent, against selfish play.

Agent i owns dataset i and moves its head theta_i. Its regret (18) is lambda |theta_i(t+1) - theta*_i|^2 +
beta |theta_i(t+1) - theta_i(t)|^2 summed over the steps; its loss is w_i times that of the common model theta^w(T) on
its own rows, so that the costs of all agents, loss plus regret, add up to the energy. Three ways to play, all from the
local heads:

* **planner**: the regret-optimal algorithm, which minimises the sum of the costs (19);
* **selfish**: each agent minimises its own cost while the others do the same: a Nash equilibrium;
* **no play**: the heads stay where they are.

For given moves d_i = theta_i(T) - theta*_i the cheapest path costs rho |d_i|^2 (see the theory page), so the game is
one of moves, and its equilibrium solves

    rho d_i = w_i^2 U_i'(Y_i - U_i (m + D)),  D = sum_k w_k d_k
    =>  (rho I + sum_k w_k^3 G_k) D = sum_k w_k^3 (c_k - G_k m),    G_k = U_k'U_k,  c_k = U_k'Y_k.

So selfish play also ends in one ridge solve. The planner's has w_k |w|^2 in place of w_k^3: it counts what a move does
to all agents. Selfish agents pull the common model in their own directions, and pay for moves that cancel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixtune.moments import Moments
from mixtune.regret import RegretProblem, solve
from mixtune.weights import PredictiveWeights
from mixtune_paper._arrays import Floats
from mixtune_paper._store import Outcome
from mixtune_paper._study import Check, Experiment, Findings, Panel, Results, lines_of
from mixtune_paper.convergence import NetworkData, ProblemSettings

__all__ = ["GAME", "GameSettings", "nash_moves"]

PLAYS = ("planner", "selfish", "no play")


@dataclass(frozen=True, kw_only=True)
class GameSettings(ProblemSettings):
    """The convergence study's data behind fewer features, so that agents disagree."""

    data: NetworkData = field(default_factory=lambda: NetworkData(width=60))
    sharing: float = 10.0
    transfer: float = 0.2
    horizon: int = 20


def nash_moves(moments: Sequence[Moments], heads: Floats, *, weights: Floats, rho: float) -> Floats:
    """Moves d (N, p) from which no agent can gain by changing its own.

    Examples
    --------
    >>> moments = [Moments(1, [[1.0]], [1.0], 1.0), Moments(1, [[1.0]], [-1.0], 1.0)]
    >>> nash_moves(moments, np.zeros((2, 1)), weights=np.array([0.5, 0.5]), rho=1.0).round(3).tolist()
    [[0.25], [-0.25]]
    """
    mixed = weights @ heads
    gram = sum(w**3 * m.gram for w, m in zip(weights, moments))
    right = sum(w**3 * (m.cross - m.gram @ mixed) for w, m in zip(weights, moments))
    common = mixed + np.linalg.solve(rho * np.eye(len(mixed)) + gram, right)
    return np.stack([w**2 * (m.cross - m.gram @ common) / rho for w, m in zip(weights, moments)])


def _run(settings: GameSettings, seed: int) -> Outcome:
    moments, heads = settings.draw(seed)
    w = PredictiveWeights(settings.sharing).weigh(moments=moments, heads=heads).values
    optimal = solve(RegretProblem(moments=moments, weights=w, heads=heads, **settings.costs))
    path: Any = optimal.path
    schedule = path.schedule
    moves = {
        "planner": optimal.heads - heads,
        "selfish": nash_moves(moments, heads, weights=w, rho=schedule.rho),
        "no play": np.zeros_like(heads),
    }
    # The share of its move that an agent has made after t steps.
    walked = schedule.end_share(np.arange(settings.horizon + 1.0))
    away, step = np.cumsum(walked[1:] ** 2), np.cumsum(np.diff(walked) ** 2)
    running = np.concatenate([[0.0], settings.transfer * away + settings.stability * step])
    rows: dict[str, dict[str, float]] = {}
    curves: dict[str, dict[str, Floats]] = {}
    for name, move in moves.items():
        loss, regret = w * _losses(moments, w @ (heads + move)), schedule.rho * np.sum(move**2, axis=1)
        along = np.array([w @ _losses(moments, w @ (heads + share * move)) for share in walked])
        system = {"system_loss": along, "system_regret": running * np.sum(move**2)}
        curves[name] = {"loss": loss, "regret": regret, **system}
        rows[name] = {"system_cost": float(loss.sum() + regret.sum())}
    rows["planner"]["error_of_energy"] = abs(rows["planner"]["system_cost"] / optimal.energy - 1)
    rows["planner"]["error_of_regret"] = abs(running[-1] / schedule.rho - 1)
    rows["selfish"]["gain_of_deviation"] = _gain_of_deviation(moments, heads, moves["selfish"], w, schedule.rho)
    own = {name: curves[name]["loss"] + curves[name]["regret"] for name in PLAYS}
    rows["planner"]["agents_better_off"] = float(np.mean((own["planner"] < own["selfish"])[w > 0]))
    return Outcome(rows, curves)


def _losses(moments: Sequence[Moments], coef: Floats) -> Floats:
    """Each agent's loss of a common model, without its weight."""
    return np.array([float(m.losses(coef[None])[0]) for m in moments])


def _gain_of_deviation(moments: Sequence[Moments], heads: Floats, moves: Floats, w: Floats, rho: float) -> float:
    """By what part an agent could lower its cost by its best answer to the others' moves, at most."""
    gains = []
    for i, m in enumerate(moments):
        rest = w @ (heads + moves) - w[i] * moves[i]
        best = np.linalg.solve(rho * np.eye(len(rest)) + w[i] ** 3 * m.gram, w[i] ** 2 * (m.cross - m.gram @ rest))
        now, then = (float(w[i] * m.losses((rest + w[i] * d)[None])[0] + rho * d @ d) for d in (moves[i], best))
        gains.append((now - then) / now if now > 0 else 0.0)  # an agent of weight 0 has no cost
    return max(gains)


def _summarise(settings: GameSettings, results: Results) -> Findings:
    rows: list[dict[str, str | float]] = []
    price = results.values("selfish", "system_cost") / results.values("planner", "system_cost")
    lines, steps = [], np.arange(settings.horizon + 1.0)
    start = results.curves("no play", "system_loss")[:, :1]
    for name in PLAYS:
        loss, regret = results.curves(name, "loss"), results.curves(name, "regret")
        found = {"focal_loss": loss[:, 0], "other_losses": loss[:, 1:].mean(axis=1), "focal_regret": regret[:, 0]}
        found |= {"other_regrets": regret[:, 1:].mean(axis=1), "system_cost": results.values(name, "system_cost")}
        rows.append({"play": name, **{key: float(np.median(values)) for key, values in found.items()}})
        lines += lines_of("loss", name, steps, results.curves(name, "system_loss") / start)
        if name != "no play":  # which has none
            lines += lines_of("regret", name, steps[1:], results.curves(name, "system_regret")[:, 1:] / start)
        lines += lines_of("agents", name, np.arange(1.0, loss.shape[1] + 1), loss + regret)
    panels = {
        "loss": Panel("Loss of all agents", "step", "part of the loss at the start"),
        "regret": Panel("Regret of all agents", "step", "part of the loss at the start", log_y=True),
        "agents": Panel("Cost of each agent", "agent (1 is focal)", "loss + regret", log_y=True),
    }
    better = float(results.values("planner", "agents_better_off").mean())
    sentences = [
        f"Selfish play costs the system {np.median(price):.3f} times what the planner's does (the price of anarchy; "
        f"{price.min():.3f} to {price.max():.3f}).",
        f"{better:.0%} of the agents with a positive weight have a lower cost under the planner than in selfish play.",
    ]
    none = results.values("no play", "system_cost") / results.values("planner", "system_cost")
    gained = results.largest("selfish", "gain_of_deviation")
    errors = gained, *(results.largest("planner", f"error_of_{what}") for what in ("energy", "regret"))
    check = Check(
        bool(max(errors) < 1e-8 and min(price.min(), none.min()) >= 1 - 1e-12),
        f"system cost of selfish play {price.min():.3f} to {price.max():.3f} times the planner's, of no play "
        f"{none.min():.3f} to {none.max():.3f}; no agent gains by deviating (at most {gained:.1g})",
    )
    return results.findings(rows, sentences, {"Appendix A": check}, panels, lines)


GAME = Experiment("game", GameSettings(), _run, _summarise, runs=20)
