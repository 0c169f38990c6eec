"""What a continuation value is regressed on: features of the state at an exercise date.

The inputs at date t are the prices, the discounted payoff and, where given, further observed state. A state map turns
them into features: random features (RLSM), polynomials (LSM), or a random recurrent network that has seen the whole
path so far (for models whose future depends on more than the present). Maps are fitted once on training paths, for
scaling only, and then frozen.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any, Protocol

import numpy as np

from mixtune._array import match, namespace, to_numpy
from mixtune._checks import check_positive, check_whole
from mixtune.features import RandomFeatures
from mixtune.options._paths import PathData

__all__ = ["DateByDate", "PolynomialState", "RandomState", "RecurrentState", "StateMap", "inputs", "stack_inputs"]

Floats = np.ndarray[Any, Any]


class StateMap(Protocol):
    """Features of path data at a date."""

    def fitted(self, data: Sequence[PathData]) -> StateMap:
        """The map with its scaling read off training paths."""

    def features(self, data: PathData, date: int) -> Floats:
        """Features (paths, p) at ``date``."""

    def backward(self, data: PathData) -> Iterator[tuple[int, Floats]]:
        """``(date, features)`` from the last date before maturity down to 1; use each before asking for the next."""


class DateByDate(ABC):
    """Maps that look at one date only."""

    @abstractmethod
    def transform(self, X: Floats, date: int) -> Floats:
        """Features of inputs (n, k) as :func:`inputs` orders them."""

    def features(self, data: PathData, date: int) -> Floats:
        return self.transform(inputs(data, date), date)

    def backward(self, data: PathData) -> Iterator[tuple[int, Floats]]:
        for date in range(data.n_dates - 1, 0, -1):
            yield date, self.features(data, date)


def inputs(data: PathData, date: int) -> Floats:
    """Prices, discounted payoff and hidden state at a date, (paths, k)."""
    hidden = None if data.hidden is None else data.hidden[..., date, :]
    return stack_inputs(data.prices[..., date, :], data.payoffs[..., date], hidden)


def stack_inputs(prices: Floats, payoff: Floats, hidden: Floats | None) -> Floats:
    """Inputs (paths, k) from prices (paths, d), discounted payoff (paths,) and hidden state (paths, h)."""
    parts = [prices, payoff[..., None]] if hidden is None else [prices, payoff[..., None], hidden]
    return namespace(prices).concat(parts, axis=-1)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and spread of the inputs at each date, (dates + 1, k)."""

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, data: Sequence[PathData]) -> Scaling:
        means, spreads = [], []
        for date in range(data[0].n_dates + 1):
            pooled = np.concatenate([to_numpy(inputs(d, date)) for d in data])
            spread = pooled.std(axis=0)
            means.append(pooled.mean(axis=0))
            # A column that does not vary carries nothing: any positive divisor will do.
            spreads.append(np.where(spread > 1e-12 * np.abs(pooled).max(axis=0), spread, 1.0))
        return cls(np.array(means), np.array(spreads))

    def apply(self, X: Floats, date: int) -> Floats:
        return (X - match(self.mean[date], X)) / match(self.spread[date], X)


@dataclass(frozen=True, kw_only=True)
class RandomState(DateByDate):
    """RLSM: one random hidden layer, the same at all dates.

    Parameters
    ----------
    width, activation, slope, seed
        As in :class:`mixtune.RandomFeatures`.
    standardise : bool
        Scale inputs by their mean and spread at each date, and features by 1/sqrt(width); the paper feeds raw prices.
    """

    width: int
    activation: str = "leaky_relu"
    slope: float = 0.01
    standardise: bool = True
    seed: int
    scaling: Scaling | None = field(default=None, repr=False)
    layer: RandomFeatures | None = field(default=None, repr=False)

    def fitted(self, data: Sequence[PathData]) -> RandomState:
        layer = RandomFeatures(
            n_inputs=inputs(data[0].take(slice(0, 1)), 0).shape[-1],
            width=self.width,
            activation=self.activation,
            slope=self.slope,
            normalise=self.standardise,
            seed=self.seed,
        )
        scaling = Scaling.of(data) if self.standardise else None
        return replace(self, scaling=scaling, layer=layer)

    def transform(self, X: Floats, date: int, *, out: Floats | None = None) -> Floats:
        assert self.layer is not None, "fit the state map first"
        return self.layer.transform(X if self.scaling is None else self.scaling.apply(X, date), out=out)

    def backward(self, data: PathData) -> Iterator[tuple[int, Floats]]:
        """As for all maps; the features of one date are overwritten by those of the next."""
        assert self.layer is not None, "fit the state map first"
        xp = namespace(data.prices)
        buffer = xp.empty((len(data), self.layer.n_features_out), dtype=xp.float64, device=data.prices.device)
        for date in range(data.n_dates - 1, 0, -1):
            yield date, self.transform(inputs(data, date), date, out=buffer)


@dataclass(frozen=True, kw_only=True)
class PolynomialState(DateByDate):
    """LSM: all monomials of the standardised prices (and hidden state) up to ``degree``, and the payoff.

    Parameters
    ----------
    degree : int
        2 or 3 in practice; the number of features grows like assets^degree.
    """

    degree: int = 3
    n_assets: int = field(default=1, repr=False)
    scaling: Scaling | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_whole("degree", self.degree, least=1)

    def fitted(self, data: Sequence[PathData]) -> PolynomialState:
        return replace(self, n_assets=data[0].n_assets, scaling=Scaling.of(data))

    def transform(self, X: Floats, date: int) -> Floats:
        assert self.scaling is not None, "fit the state map first"
        X = self.scaling.apply(X, date)
        xp = namespace(X)
        variables = [X[:, k] for k in range(X.shape[1]) if k != self.n_assets]
        columns = [xp.ones_like(X[:, 0]), X[:, self.n_assets]]
        for degree in range(1, self.degree + 1):
            for chosen in combinations_with_replacement(variables, degree):
                columns.append(xp.prod(xp.stack(chosen), axis=0))
        return xp.stack(columns, axis=1)


@dataclass(frozen=True, kw_only=True)
class RecurrentState:
    """Randomised recurrent features: ``h_t = tanh(W x_t + V h_{t-1} + b)``, with the current inputs and a constant.

    For models with memory (rough volatility): the hidden state has seen the whole path.

    Parameters
    ----------
    width : int
    memory : float
        Spectral scale of V: the share of the past that is carried on, in (0, 1) for a fading memory.
    input_scale : float
    seed : int
    """

    width: int
    memory: float = 0.9
    input_scale: float = 1.0
    seed: int
    scaling: Scaling | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_whole("width", self.width, least=1)
        check_positive("memory", self.memory)
        check_positive("input_scale", self.input_scale)

    def fitted(self, data: Sequence[PathData]) -> RecurrentState:
        return replace(self, scaling=Scaling.of(data))

    def _states(self, data: PathData, last: int) -> list[Floats]:
        """Hidden states at dates 0..last."""
        assert self.scaling is not None, "fit the state map first"
        size = self.scaling.mean.shape[1]
        rng = np.random.default_rng(self.seed)
        W = self.input_scale * rng.standard_normal((size, self.width)) / np.sqrt(size)
        V = self.memory * rng.standard_normal((self.width, self.width)) / np.sqrt(self.width)
        bias = 0.5 * rng.standard_normal(self.width)
        xp = namespace(data.prices)
        W, V, bias = (match(array, data.prices) for array in (W, V, bias))
        hidden, states = match(np.zeros((len(data), self.width)), data.prices), []
        for date in range(last + 1):
            X = self.scaling.apply(inputs(data, date), date)
            hidden = xp.tanh(X @ W + hidden @ V + bias)
            states.append(hidden)
        return states

    def _features(self, hidden: Floats, data: PathData, date: int) -> Floats:
        assert self.scaling is not None
        X = self.scaling.apply(inputs(data, date), date)
        xp = namespace(X)
        return xp.concat([hidden / math.sqrt(self.width), X, xp.ones_like(X[:, :1])], axis=1)

    def features(self, data: PathData, date: int) -> Floats:
        return self._features(self._states(data, date)[-1], data, date)

    def backward(self, data: PathData) -> Iterator[tuple[int, Floats]]:
        states = self._states(data, data.n_dates - 1)
        for date in range(data.n_dates - 1, 0, -1):
            yield date, self._features(states[date], data, date)
