"""Backward induction, once: from maturity to the first date, learn the value of waiting and decide who stops.

Everything that differs between least-squares Monte Carlo, its randomised and recurrent versions and transfer between
markets is in the state map (what is regressed on) and in the continuation models (how). Several models are trained in
one pass: they share paths, features and Gram matrices, and each carries its own values. Arrays may belong to NumPy or
PyTorch, and may hold several runs side by side on a first axis (see :mod:`mixtune.options._runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Array, all_finite, is_numpy, namespace, to_numpy
from mixtune.errors import DataError, ParameterError
from mixtune.options._device import put_where
from mixtune.options._models import ContinuationModel, Stage
from mixtune.options._paths import PathData
from mixtune.options._runs import RunStage
from mixtune.options._state import StateMap

__all__ = ["Policy", "train"]

Floats = np.ndarray[Any, Any]

#: Paths evaluated at a time: their features stay in the cache; on a device they are many enough to keep it busy.
CHUNK_PATHS, DEVICE_CHUNK_PATHS = 4096, 500_000


@dataclass(frozen=True, eq=False)
class Policy:
    """When to exercise: stop at the first date whose payoff exceeds the predicted value of waiting.

    Attributes
    ----------
    state : StateMap
        Fitted.
    coefs : array (dates, p, models), or (dates, runs, p, models) for several runs
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
        xp = namespace(data.payoffs)
        step = CHUNK_PATHS if is_numpy(data.payoffs) else max(1, DEVICE_CHUNK_PATHS // (data.runs or 1))
        flows, dates = [], []
        for begin in range(0, len(data), step):
            part = data.take(slice(begin, begin + step))
            flow = _columns(part.payoffs[..., -1:], len(self.names))
            when = xp.full(flow.shape, data.n_dates, dtype=xp.int16, device=flow.device)
            for date, U in self.state.backward(part):
                payoff = part.payoffs[..., date, None]
                stop = exercises(payoff, U @ self.coefs[date], self.only_positive)
                flow = put_where(flow, payoff, stop)
                when = put_where(when, xp.full((), date, dtype=xp.int16, device=flow.device), stop)
            flows.append(flow)
            dates.append(when)
        return xp.concat(flows, axis=-2), xp.concat(dates, axis=-2)

    def fetched(self) -> Policy:
        """The same policy with its coefficients in NumPy."""
        return Policy(self.state, to_numpy(self.coefs), self.names, self.only_positive)

    def joined(self, other: Policy) -> Policy:
        """Both policies' models side by side; they must share the state map."""
        if other.state is not self.state or other.only_positive != self.only_positive:
            raise ParameterError("policies can be joined only if they use the same state map and exercise rule")
        coefs = namespace(self.coefs, other.coefs).concat([self.coefs, other.coefs], axis=-1)
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
        if (d.n_dates, d.n_assets, d.runs) != (n_dates, data[0].n_assets, data[0].runs):
            raise DataError(
                f'paths "{d.name}" have {d.n_dates} dates and {d.n_assets} assets, "{data[0].name}" has {n_dates} and '
                f"{data[0].n_assets}; use the same for all"
            )
    xp = namespace(*(d.payoffs for d in data))
    values = [_columns(d.payoffs[..., -1:], len(models)) for d in data]
    fitted: dict[int, Array] = {}
    for steps in zip(*(state.backward(d) for d in data), strict=True):
        date, features = steps[0][0], [U for _, U in steps]
        payoffs = [d.payoffs[..., date, None] for d in data]
        fitted[date] = _fit(models, features, values, payoffs, focal, in_the_money)
        for i, (U, payoff) in enumerate(zip(features, payoffs)):
            stop = exercises(payoff, U @ fitted[date], only_positive)
            values[i] = put_where(values[i], payoff, stop)
        if progress is not None:
            progress()
    # A single date leaves nothing to decide before maturity.
    shape = tuple(fitted[1].shape) if fitted else (0, len(models))
    unused = xp.zeros(shape, dtype=xp.float64, device=data[0].payoffs.device)
    coefs = xp.stack([fitted.get(date, unused) for date in range(n_dates)])
    if not all_finite(coefs):
        raise DataError("the continuation values overflow; check the scale of the paths, or use a larger ridge")
    return Policy(state, coefs, tuple(model.name for model in models), only_positive)


def _columns(column: Array, count: int) -> Array:
    """A last axis of length one, repeated."""
    return namespace(column).tile(column, (1,) * (column.ndim - 1) + (count,))


def _fit(
    models: Sequence[ContinuationModel],
    features: list[Array],
    values: list[Array],
    payoffs: list[Array],
    focal: int,
    in_the_money: bool,
) -> Array:
    """Coefficients of all models at a date, (p, models) or (runs, p, models)."""
    if features[0].ndim == 2:
        stage = _stage(features, values, payoffs, focal, in_the_money)
        found = [model.fit(stage, m) for m, model in enumerate(models)]
    elif in_the_money:
        raise ParameterError("several runs at once regress on all paths; pass in_the_money=False")
    else:
        together = RunStage(features, values, focal)
        found = [model.fit_runs(together, m) for m, model in enumerate(models)]
    return namespace(*found).stack(found, axis=-1)


def _stage(
    features: list[Floats], values: list[Floats], payoffs: list[Floats], focal: int, in_the_money: bool
) -> Stage:
    """The rows that enter the regressions at a date: all, or those in the money where they outnumber the features."""
    if not in_the_money:
        return Stage(features, values, focal)
    chosen_features, chosen_values = [], []
    for U, value, payoff in zip(features, values, payoffs):
        keep = payoff[:, 0] > 0
        if int(keep.sum()) <= U.shape[1]:
            keep[:] = True
        chosen_features.append(U[keep])
        chosen_values.append(value[keep])
    return Stage(chosen_features, chosen_values, focal)
