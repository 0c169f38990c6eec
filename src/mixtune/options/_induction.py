"""Backward induction, once: from maturity to the first date, learn the value of waiting and decide who stops.

Everything that differs between least-squares Monte Carlo, its randomised and recurrent versions and transfer between
markets is in the state map (what is regressed on) and in the continuation models (how). Several models are trained in
one pass: they share paths, features and Gram matrices, and each carries its own values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.errors import DataError, ParameterError
from mixtune.options._models import ContinuationModel, Stage
from mixtune.options._paths import PathData
from mixtune.options._state import StateMap

__all__ = ["Policy", "train"]

Floats = np.ndarray[Any, Any]

#: Paths evaluated at a time: their features stay in the cache.
CHUNK_PATHS = 4096


@dataclass(frozen=True, eq=False)
class Policy:
    """When to exercise: stop at the first date whose payoff exceeds the predicted value of waiting.

    Attributes
    ----------
    state : StateMap
        Fitted.
    coefs : array (dates, p, models)
        Coefficients of the continuation value; entry 0 is not used.
    names : tuple of str
        The models.
    only_positive : bool
        Never exercise a payoff of zero.
    """

    state: StateMap
    coefs: Floats
    names: tuple[str, ...]
    only_positive: bool

    def continuation(self, data: PathData, date: int) -> Floats:
        """Predicted value of waiting at a date, (paths, models)."""
        return self.state.features(data, date) @ self.coefs[date]

    def cash_flows(self, data: PathData) -> tuple[Floats, Floats]:
        """Discounted cash flow of every path under every model, and the date it comes at; (paths, models) each."""
        flows = np.empty((len(data), len(self.names)))
        dates = np.empty(flows.shape, dtype=np.int16)
        for begin in range(0, len(data), CHUNK_PATHS):
            rows = slice(begin, begin + CHUNK_PATHS)
            part = data.take(rows)
            flow = np.repeat(part.payoffs[:, -1:], len(self.names), axis=1)
            when = np.full(flow.shape, data.n_dates, dtype=np.int16)
            for date, U in self.state.backward(part):
                stop = exercises(part.payoffs[:, date, None], U @ self.coefs[date], self.only_positive)
                np.copyto(flow, part.payoffs[:, date, None], where=stop)
                np.copyto(when, np.int16(date), where=stop)
            flows[rows], dates[rows] = flow, when
        return flows, dates

    def joined(self, other: Policy) -> Policy:
        """Both policies' models side by side; they must share the state map."""
        if other.state is not self.state or other.only_positive != self.only_positive:
            raise ParameterError("policies can be joined only if they use the same state map and exercise rule")
        coefs = np.concatenate([self.coefs, other.coefs], axis=2)
        return Policy(self.state, coefs, self.names + other.names, self.only_positive)


def exercises(payoff: Floats, continuation: Floats, only_positive: bool) -> np.ndarray[Any, Any]:
    """Whether stopping now beats waiting."""
    stop = payoff > continuation
    return stop & (payoff > 0) if only_positive else stop


def train(
    data: Sequence[PathData],
    models: Sequence[ContinuationModel],
    *,
    state: StateMap,
    focal: int = 0,
    in_the_money: bool = True,
    only_positive: bool = True,
    progress: Callable[[], None] | None = None,
) -> Policy:
    """Learn exercise policies by backward induction.

    Parameters
    ----------
    data : sequence of PathData
        Training paths, one entry per dataset.
    models : sequence of ContinuationModel
    state : StateMap
        Already fitted.
    focal : int
        The dataset that is priced.
    in_the_money : bool
        Regress on paths in the money only (on all at dates where they are not more than the features); the paper
        regresses on all.
    only_positive : bool
        Never exercise a payoff of zero; the paper's rule compares payoff and continuation only.
    progress : callable, optional
        Called after every date.
    """
    if not data or not models:
        raise ParameterError("pricing needs at least one dataset of paths and one model")
    n_dates = data[0].n_dates
    for d in data:
        if (d.n_dates, d.n_assets) != (n_dates, data[0].n_assets):
            raise DataError(
                f'paths "{d.name}" have {d.n_dates} dates and {d.n_assets} assets, "{data[0].name}" has {n_dates} and '
                f"{data[0].n_assets}; use the same for all"
            )
    values = [np.repeat(d.payoffs[:, -1:], len(models), axis=1) for d in data]
    coefs: Floats | None = None
    for steps in zip(*(state.backward(d) for d in data), strict=True):
        date, features = steps[0][0], [U for _, U in steps]
        payoffs = [d.payoffs[:, date, None] for d in data]
        stage = _stage(features, values, payoffs, focal, in_the_money)
        fitted = np.stack([model.fit(stage, m) for m, model in enumerate(models)], axis=1)
        for U, payoff, value in zip(features, payoffs, values):
            np.copyto(value, payoff, where=exercises(payoff, U @ fitted, only_positive))
        coefs = np.zeros((n_dates, *fitted.shape)) if coefs is None else coefs
        coefs[date] = fitted
        if progress is not None:
            progress()
    if coefs is None:  # a single date: nothing to decide before maturity
        coefs = np.zeros((n_dates, 0, len(models)))
    return Policy(state, coefs, tuple(model.name for model in models), only_positive)


def _stage(
    features: list[Floats], values: list[Floats], payoffs: list[Floats], focal: int, in_the_money: bool
) -> Stage:
    """The rows that enter the regressions at a date: all, or those in the money where they outnumber the features."""
    if not in_the_money:
        return Stage(features, values, focal)
    chosen_features, chosen_values = [], []
    for U, value, payoff in zip(features, values, payoffs):
        keep = payoff[:, 0] > 0
        if keep.sum() <= U.shape[1]:
            keep[:] = True
        chosen_features.append(U[keep])
        chosen_values.append(value[keep])
    return Stage(chosen_features, chosen_values, focal)
