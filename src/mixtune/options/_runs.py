"""Several runs at once: arrays with the runs side by side on a first axis, for devices that need much work in one call.

A run of backward induction on a hundred paths is a long row of small matrices, and a device spends longer on being
told of each than on computing it. Independent runs of the same size share these calls: features are (runs, n, p),
values (runs, n, models), coefficients (runs, p, models), and products and factorisations go over all runs together.
Random numbers stay those of every single run, drawn by NumPy in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mixtune._array import Array, cholesky_solve, match, namespace, to_numpy
from mixtune._device import to_device
from mixtune.errors import ParameterError
from mixtune.moments import rounding_of
from mixtune.options._device import sending_buffer
from mixtune.options._grid import TimeGrid
from mixtune.options._paths import PathData
from mixtune.options._state import RandomState, inputs
from mixtune.options.processes import Process
from mixtune.weights._predictive import predictive_shares
from mixtune.weights._rule import normalise

__all__ = ["RunStage", "RunStates", "simulate_runs"]

Floats = np.ndarray[Any, Any]


def simulate_runs(
    process: Process,
    payoff: Callable[[Floats], Floats],
    grid: TimeGrid,
    *,
    paths: int,
    rngs: Sequence[np.random.Generator],
    name: str = "simulated",
    device: str | None = None,
) -> PathData:
    """Paths of a process for several runs, one generator each: those that ``simulate`` gives run by run.

    Examples
    --------
    >>> from mixtune.options import BlackScholes, Put
    >>> rngs = [np.random.default_rng(seed) for seed in (0, 1)]
    >>> grid = TimeGrid(maturity=1.0, dates=3)
    >>> simulate_runs(BlackScholes(spot=100, volatility=0.2), Put(100), grid, paths=5, rngs=rngs).prices.shape
    (2, 5, 4, 1)
    """
    there = device if process.follows_arrays else None
    Z = sending_buffer((len(rngs), paths, grid.n_dates, process.normals_per_interval), there)

    def draw(run: int) -> None:
        rngs[run].standard_normal(out=Z[run])

    with ThreadPoolExecutor() as threads:  # NumPy draws without holding the interpreter
        list(threads.map(draw, range(len(rngs))))
    normals = to_device(Z, there)
    xp = namespace(normals)
    by_date = xp.reshape(xp.permute_dims(normals, (2, 3, 0, 1)), (*Z.shape[2:], -1))
    prices = xp.stack([state.prices for state in process.states(grid, by_date)], axis=1)
    if there != device:
        prices = to_device(prices, device)
    return PathData.build(name, prices, grid=grid, payoff=payoff).in_runs(len(rngs))


@dataclass(frozen=True, eq=False)
class RunStates:
    """The random layers of several runs as one state map; they differ in nothing but their seeds."""

    states: tuple[RandomState, ...]

    def __post_init__(self) -> None:
        if any(state.standardise for state in self.states):
            raise ParameterError("several runs at once need random layers on raw inputs (standardise=False)")

    def fitted(self, data: Sequence[PathData]) -> RunStates:
        """The map with its layers drawn."""
        return RunStates(tuple(state.fitted(data) for state in self.states))

    def features(self, data: PathData, date: int) -> Array:
        """Features (runs, paths, p) at ``date``."""
        X = inputs(data, date)
        layers = [state.layer for state in self.states if state.layer is not None]
        assert len(layers) == len(self.states), "fit the state map first"
        xp, first = namespace(X), layers[0]
        # Of every layer its weights, bias, shift and scale, where X is; the last two are the same for all.
        parts = [layer._layer(xp, X.device) for layer in layers]
        weights, bias = xp.stack([part[0] for part in parts]), xp.stack([part[1] for part in parts])[:, None]
        U = xp.empty((*X.shape[:-1], first.n_features_out), dtype=X.dtype, device=X.device)
        U[..., : first.width] = first._hidden(xp, X, weights, bias, *parts[0][2:])
        U[..., first.width :] = 1.0
        return U

    def backward(self, data: PathData) -> Iterator[tuple[int, Array]]:
        """``(date, features)`` from the last date before maturity down to 1."""
        for date in range(data.n_dates - 1, 0, -1):
            yield date, self.features(data, date)


class RunStage:
    """One exercise date of several runs: features (runs, n, p) and values (runs, n, models) of every dataset."""

    def __init__(self, features: Sequence[Array], values: Sequence[Array], focal: int) -> None:
        self.features, self.values, self.focal = list(features), list(values), focal
        self._heads: dict[float, Array] = {}
        self._joint: dict[tuple[tuple[int, ...], float], Array] = {}

    @cached_property
    def fetched(self) -> list[tuple[list[Floats], list[Floats]]]:
        """Features and values run by run, in NumPy."""
        features, values = ([to_numpy(array) for array in arrays] for arrays in (self.features, self.values))
        return [([U[run] for U in features], [Y[run] for Y in values]) for run in range(len(features[0]))]

    @cached_property
    def grams(self) -> list[Array]:
        """``U'U`` of every dataset, (runs, p, p) each."""
        return [_transposed(U) @ U for U in self.features]

    def heads(self, ridge: float) -> Array:
        """Local heads of every dataset for every model's values, (runs, N, p, models)."""
        if ridge not in self._heads:
            heads = [_ridge(U, Y, ridge) for U, Y in zip(self.features, self.values)]
            self._heads[ridge] = namespace(*heads).stack(heads, axis=1)
        return self._heads[ridge]

    def joint(self, subset: tuple[int, ...], ridge: float) -> Array:
        """Ridge head of some datasets pooled, (runs, p, models)."""
        key = (subset, ridge)
        if key not in self._joint:
            xp = namespace(*self.features)
            U, Y = (xp.concat([arrays[i] for i in subset], axis=1) for arrays in (self.features, self.values))
            self._joint[key] = _ridge(U, Y, ridge)
        return self._joint[key]

    def transfer(self, model: int, *, ridge: float, sharing: float, rho: float) -> Array | None:
        """Regret-optimal coefficients (runs, p) with predictive weights, as :func:`mixtune.solve` gives them.

        ``theta = m + (A + r)^{-1} (b - A m)`` with ``A = sum_i w_i U_i'U_i``, ``b - A m`` the weighted sum of
        ``U_i'(y_i - U_i m)``, m the weighted mean of the heads and ``r = rho/|w|^2``. None where that is not safe in
        floating point: the general solver decides then, run by run.
        """
        xp, like = namespace(*self.features), self.features[0]
        heads, targets = self.heads(ridge)[..., model], [Y[..., model] for Y in self.values]
        errors = targets[self.focal][..., None] - self.features[self.focal] @ _transposed(heads)
        scores = to_numpy(xp.mean(errors**2, axis=1))
        if not np.all(np.isfinite(scores)):
            return None
        raw = [predictive_shares(each, self.focal, sharing) for each in scores]
        weights = np.stack([normalise(each, self.focal) for each in raw])
        w = match(weights, like)
        mean = xp.sum(w[..., None] * heads, axis=1)
        A, slope = xp.zeros_like(self.grams[0]), xp.zeros_like(mean)
        for i, (U, y) in enumerate(zip(self.features, targets)):
            A += w[:, i, None, None] * self.grams[i]
            residual = y - (U @ mean[..., None])[..., 0]
            slope += w[:, i, None] * (_transposed(U) @ residual[..., None])[..., 0]
        shift = rho / xp.sum(w**2, axis=1)
        if not _clear(A, shift):
            return None
        return mean + _solve(A, shift, slope[..., None])[..., 0]


def _ridge(U: Array, Y: Array, ridge: float) -> Array:
    """Ridge heads (runs, p, models) of rows (runs, n, p), by the smaller of the two systems."""
    xp, rows = namespace(U), _transposed(U)
    shift = xp.full((U.shape[0],), ridge, dtype=U.dtype, device=U.device)
    dual = U.shape[1] < U.shape[2]
    matrix = U @ rows if dual else rows @ U
    if not _clear(matrix, shift):
        raise ParameterError(
            f"ridge {ridge:g} drowns in the rounding of features this large; use a larger one, or one run at a time"
        )
    return rows @ _solve(matrix, shift, Y) if dual else _solve(matrix, shift, rows @ Y)


def _clear(matrix: Array, shift: Array) -> bool:
    """Whether every shift is large enough to make its matrix (runs, k, k) definite beyond rounding."""
    xp = namespace(matrix)
    largest = xp.max(xp.linalg.diagonal(matrix), axis=-1)
    return bool(xp.all(shift > rounding_of(matrix.shape[-1]) * largest))


def _solve(matrix: Array, shift: Array, rhs: Array) -> Array:
    """``(matrix + shift I)^{-1} rhs`` for symmetric matrices, run by run."""
    xp = namespace(matrix)
    shifted = matrix + shift[:, None, None] * xp.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    if is_torch_array(matrix):
        return cholesky_solve(xp.linalg.cholesky(shifted), rhs)
    return xp.linalg.solve(shifted, rhs)


def _transposed(matrices: Array) -> Array:
    return namespace(matrices).matrix_transpose(matrices)
