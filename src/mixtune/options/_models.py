"""Continuation models: how the value of waiting is learnt at one date, from one or several path datasets.

All models of a pricing run share the stage: the features of every training dataset at the date, and the current values
of every model on them. What several models need (heads with the same ridge, Gram matrices) is computed once for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import Array, match, namespace, to_numpy
from mixtune._checks import check_nonnegative
from mixtune.errors import ParameterError
from mixtune.moments import Moments
from mixtune.options._runs import RunStage
from mixtune.regret import RegretProblem, Schedule, solve
from mixtune.selection import loo_ridge
from mixtune.weights import PredictiveWeights, WassersteinWeights, WeightRule

__all__ = ["ContinuationModel", "Joint", "Local", "MeanOfLocals", "Stage", "Transfer", "TunedLocal"]

Floats = np.ndarray[Any, Any]


class Stage:
    """One exercise date: features U_i of every dataset, and targets Y_i with one column per model.

    ``keep`` selects the rows of each dataset that enter the regressions (all, or those in the money).
    """

    def __init__(self, features: Sequence[Floats], values: Sequence[Floats], focal: int) -> None:
        self.features = list(features)
        self.values = list(values)
        self.focal = focal
        self._heads: dict[float, Floats] = {}
        self._joint: dict[tuple[tuple[int, ...], float], Floats] = {}

    @cached_property
    def moments(self) -> list[Moments]:
        """Moments of every dataset with all models' values as outputs."""
        moments = [Moments.from_rows(U, Y) for U, Y in zip(self.features, self.values)]
        for m in moments:
            _ = m.gram  # formed once; every model below shares it
        return moments

    def heads(self, ridge: float) -> Floats:
        """Local heads of every dataset for every model's values, (N, p, models)."""
        if ridge not in self._heads:
            heads = [m.head(ridge) for m in self.moments]
            self._heads[ridge] = namespace(*heads).stack(heads)
        return self._heads[ridge]

    def joint(self, subset: tuple[int, ...], ridge: float) -> Floats:
        """Ridge head of some datasets pooled, (p, models)."""
        key = (subset, ridge)
        if key not in self._joint:
            pooled: Moments = sum(self.moments[i] for i in subset)  # type: ignore[assignment]
            self._joint[key] = pooled.head(ridge)
        return self._joint[key]

    def single(self, dataset: int, model: int) -> Moments:
        """Moments of one dataset with one model's values; the Gram matrix is shared."""
        return self.moments[dataset].output(model)


class ContinuationModel(ABC):
    """Learns the coefficients of the continuation value at a stage."""

    name: str

    @abstractmethod
    def fit(self, stage: Stage, model: int) -> Floats:
        """Coefficients (p,) from the stage's features and column ``model`` of its values."""

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        """:meth:`fit` for several runs at once, (runs, p).

        By default run by run, in NumPy and threads: for models whose work is not linear algebra alone.
        """

        def fit_one(rows: tuple[list[Floats], list[Floats]]) -> Floats:
            return self.fit(Stage(*rows, stage.focal), model)

        with ThreadPoolExecutor() as threads:
            found = list(threads.map(fit_one, stage.fetched))
        return match(np.stack(found), stage.features[0])


@dataclass(frozen=True)
class Local(ContinuationModel):
    """LO-i: ridge regression on one dataset."""

    dataset: int
    ridge: float
    name: str

    def fit(self, stage: Stage, model: int) -> Floats:
        self._check(len(stage.features))
        return stage.heads(self.ridge)[self.dataset, :, model]

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        self._check(len(stage.features))
        return stage.heads(self.ridge)[:, self.dataset, :, model]

    def _check(self, count: int) -> None:
        if self.dataset >= count:
            raise ParameterError(f"there is no dataset {self.dataset}; there are {count}")


@dataclass(frozen=True)
class TunedLocal(ContinuationModel):
    """Ridge regression on one dataset, its ridge chosen by leave-one-out at every date.

    The choice is made on at most ``choice_rows`` rows (beyond that it hardly matters), the fit on all.
    """

    dataset: int
    name: str
    ridges: tuple[float, ...] = tuple(10.0**k for k in range(-9, 3))
    choice_rows: int = 2000

    def fit(self, stage: Stage, model: int) -> Floats:
        U, y = stage.features[self.dataset], stage.values[self.dataset][:, model]
        few = slice(0, self.choice_rows)
        choice = loo_ridge(to_numpy(U[few]), to_numpy(y[few]), self.ridges)
        if len(U) <= self.choice_rows:
            return match(choice.coef, U)
        # The ridge itself carries over: it answers to noise and signal, not to the number of rows.
        return stage.single(self.dataset, model).head(choice.ridge)


@dataclass(frozen=True)
class MeanOfLocals(ContinuationModel):
    """MLO: the mean of all local heads."""

    ridge: float
    name: str = "MLO"

    def fit(self, stage: Stage, model: int) -> Floats:
        return namespace(stage.features[0]).mean(stage.heads(self.ridge)[:, :, model], axis=0)

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        return namespace(stage.features[0]).mean(stage.heads(self.ridge)[..., model], axis=1)


@dataclass(frozen=True)
class Joint(ContinuationModel):
    """JO / JSO: ridge regression on some or all datasets pooled."""

    ridge: float
    subset: tuple[int, ...]
    name: str = "JO"

    def fit(self, stage: Stage, model: int) -> Floats:
        return stage.joint(self.subset, self.ridge)[:, model]

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        return stage.joint(self.subset, self.ridge)[..., model]


@dataclass(frozen=True)
class Transfer(ContinuationModel):
    """RO: regret-optimal transfer to the focal dataset.

    ``distance_rows`` caps the rows of a dataset that Wasserstein distances look at (the first ones: paths are
    exchangeable).
    """

    weights: WeightRule
    ridge: float
    transfer: float
    stability: float
    horizon: int
    name: str
    distance_rows: int | None = None

    def __post_init__(self) -> None:
        check_nonnegative("ridge", self.ridge)

    def fit(self, stage: Stage, model: int) -> Floats:
        moments = [stage.single(i, model) for i in range(len(stage.features))]
        heads = stage.heads(self.ridge)[:, :, model]
        problem = RegretProblem(
            moments=moments,
            weights=self._weigh(stage, model, moments, heads),
            heads=heads,
            transfer=self.transfer,
            stability=self.stability,
            horizon=self.horizon,
        )
        return solve(problem).coef

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        if not isinstance(self.weights, PredictiveWeights):
            return super().fit_runs(stage, model)
        rho = Schedule(self.transfer, self.stability, self.horizon).rho
        found = stage.transfer(model, ridge=self.ridge, sharing=self.weights.sharing, rho=rho)
        return super().fit_runs(stage, model) if found is None else found

    def _weigh(self, stage: Stage, model: int, moments: list[Moments], heads: Floats) -> Any:
        if not isinstance(self.weights, WassersteinWeights):
            return self.weights.weigh(moments=moments, heads=heads, focal=stage.focal)
        few = slice(0, self.distance_rows)
        rows = [(to_numpy(U[few]), to_numpy(Y[few, model])) for U, Y in zip(stage.features, stage.values)]
        clouds = [np.column_stack(pair) for pair in rows]
        return self.weights.weigh_clouds(clouds, focal=stage.focal, counts=[len(U) for U in stage.features])
