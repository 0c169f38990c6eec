"""Price on paths that were observed rather than simulated, with transfer from the paths of other markets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mixtune._checks import check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.options._assemble import Clock, assemble
from mixtune.options._boundary import exercise_region
from mixtune.options._grid import TimeGrid
from mixtune.options._induction import train
from mixtune.options._models import ContinuationModel, Transfer, TunedLocal
from mixtune.options._paths import PathData
from mixtune.options._result import PriceResult
from mixtune.options._state import RandomState
from mixtune.options._threads import one_thread
from mixtune.weights import PredictiveWeights

__all__ = ["price_observed"]

Floats = np.ndarray[Any, Any]


@one_thread
def price_observed(
    data: Mapping[str, Floats],
    payoff: Callable[[Floats], Floats],
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
    clock = Clock(None)
    built = {name: PathData.build(name, paths, grid=grid, payoff=payoff) for name, paths in data.items()}
    here, others = built.pop(focal), list(built.values())
    if not np.all(here.prices[:, 0] == here.prices[0, 0]):
        raise DataError(
            f'the paths of "{focal}" start at different prices, but an option is priced from one; divide each path by '
            "its first price and multiply by today's"
        )
    if len(here) < 2 * folds:
        raise DataError(f'"{focal}" has {len(here)} paths; {folds} folds need at least {2 * folds}')
    level = float(here.payoffs[:, -1].var()) if sharing is None else sharing
    model: ContinuationModel = TunedLocal(0, "local")
    if others:
        model = Transfer(PredictiveWeights(level), ridge, transfer, stability, 1, "transfer")
    order = np.random.default_rng(seed).permutation(len(here))
    flows, dates = np.empty(len(here)), np.empty(len(here), dtype=np.int16)
    with clock("train and evaluate"):
        for held_out in np.array_split(order, folds):
            kept = np.setdiff1d(order, held_out)
            training = [here.take(kept), *others]
            state = RandomState(width=width, seed=seed).fitted(training)
            policy = train(training, [model], state=state, in_the_money=False)
            found = policy.cash_flows(here.take(held_out))
            flows[held_out], dates[held_out] = found[0][:, 0], found[1][:, 0]
    settings = {
        "method": model.name,
        "focal": focal,
        "datasets": {d.name: len(d) for d in [here, *others]},
        "folds": folds,
        "sharing": level,
        "transfer": transfer,
        "stability": stability,
        "ridge": ridge,
        "seed": seed,
    }
    region = exercise_region(policy, here, grid=grid, payoff=payoff)
    return assemble(here, flows, dates, policy, "independent", None, region, {}, clock.seconds, settings)
