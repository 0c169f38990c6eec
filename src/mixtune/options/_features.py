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
from typing import Any, Self

import numpy as np

from mixtune._array import Array, Floats, match, namespace, to_numpy
from mixtune._checks import check_positive, check_whole
from mixtune.errors import ParameterError
from mixtune.features import RandomFeatures
from mixtune.options._paths import PathData
from mixtune.options._settings import METHOD, PriceSettings


class StateMap(ABC):
    """Features of path data at a date."""

    @abstractmethod
    def fitted(self, data: Sequence[PathData]) -> Self:
        """The map with its scaling read off training paths."""

    @abstractmethod
    def features(self, data: PathData, date: int) -> Array:
        """Features (paths, p) at ``date``."""

    def backward(self, data: PathData) -> Iterator[tuple[int, Array]]:
        """``(date, features)`` from the last date before maturity down to 1; use each before asking for the next."""
        for date in range(data.n_dates - 1, 0, -1):
            yield date, self.features(data, date)


class OneDateMap(StateMap):
    """Maps that look at one date only."""

    @abstractmethod
    def transform(self, X: Array, date: int) -> Array:
        """Features of inputs (n, k) as :func:`stack_inputs` orders them."""

    def features(self, data: PathData, date: int) -> Array:
        return self.transform(_inputs(data, date), date)


def stack_inputs(prices: Array, payoff: Array, hidden: Array | None) -> Array:
    """Inputs (paths, k) from prices (paths, d), discounted payoff (paths,) and hidden state (paths, h)."""
    parts = [prices, payoff[..., None]] if hidden is None else [prices, payoff[..., None], hidden]
    return namespace(prices).concat(parts, axis=-1)


def _inputs(data: PathData, date: int) -> Array:
    """Prices, discounted payoff and hidden state at a date, (paths, k)."""
    hidden = None if data.hidden is None else data.hidden[..., date, :]
    return stack_inputs(data.prices[..., date, :], data.payoffs[..., date], hidden)


@dataclass(frozen=True, eq=False)
class DateScaling:
    """Mean and spread of the inputs at each date, (dates + 1, k)."""

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, data: Sequence[PathData]) -> DateScaling:
        means, spreads = [], []
        for date in range(data[0].n_dates + 1):
            pooled = np.concatenate([to_numpy(_inputs(d, date)) for d in data])
            spread = pooled.std(axis=0)
            means.append(pooled.mean(axis=0))
            # A column that varies by rounding only carries no information: any positive divisor will do.
            spreads.append(np.where(spread > 1e-12 * np.abs(pooled).max(axis=0), spread, 1.0))
        return cls(np.array(means), np.array(spreads))

    def apply(self, X: Array, date: int) -> Array:
        return (X - match(self.mean[date], X)) / match(self.spread[date], X)


@dataclass(frozen=True, kw_only=True)
class RandomState(OneDateMap):
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
    slope: float = METHOD.paper_slope
    standardise: bool = True
    seed: int
    scaling: DateScaling | None = field(default=None, repr=False)
    layer: RandomFeatures | None = field(default=None, repr=False)

    def fitted(self, data: Sequence[PathData]) -> RandomState:
        n_inputs = _inputs(data[0].take(slice(0, 1)), 0).shape[-1]
        units: dict[str, Any] = {"width": self.width, "activation": self.activation, "slope": self.slope}
        layer = RandomFeatures(n_inputs=n_inputs, **units, normalise=self.standardise, seed=self.seed)
        return replace(self, scaling=DateScaling.of(data) if self.standardise else None, layer=layer)

    def transform(self, X: Array, date: int, *, out: Array | None = None) -> Array:
        assert self.layer is not None, "fit the state map first"
        return self.layer.transform(X if self.scaling is None else self.scaling.apply(X, date), out=out)

    def backward(self, data: PathData) -> Iterator[tuple[int, Array]]:
        """As for all maps; the features of one date are overwritten by those of the next."""
        assert self.layer is not None, "fit the state map first"
        xp = namespace(data.prices)
        buffer = xp.empty((len(data), self.layer.n_features_out), dtype=xp.float64, device=data.prices.device)
        for date in range(data.n_dates - 1, 0, -1):
            yield date, self.transform(_inputs(data, date), date, out=buffer)


@dataclass(frozen=True, kw_only=True)
class PolynomialState(OneDateMap):
    """LSM: all monomials of the standardised prices (and hidden state) up to ``degree``, and the payoff.

    Parameters
    ----------
    degree : int
        2 or 3 in practice; the number of features grows like assets^degree.
    """

    degree: int = 3
    n_assets: int = field(default=1, repr=False)
    scaling: DateScaling | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_whole("degree", self.degree, least=1)

    def fitted(self, data: Sequence[PathData]) -> PolynomialState:
        return replace(self, n_assets=data[0].n_assets, scaling=DateScaling.of(data))

    def transform(self, X: Array, date: int) -> Array:
        assert self.scaling is not None, "fit the state map first"
        X = self.scaling.apply(X, date)
        xp = namespace(X)
        # The payoff stands between prices and hidden state, and enters linearly.
        variables = [X[:, k] for k in range(X.shape[1]) if k != self.n_assets]
        columns = [xp.ones_like(X[:, 0]), X[:, self.n_assets]]
        for degree in range(1, self.degree + 1):
            for chosen in combinations_with_replacement(variables, degree):
                columns.append(xp.prod(xp.stack(chosen), axis=0))
        return xp.stack(columns, axis=1)


@dataclass(frozen=True, kw_only=True)
class RecurrentState(StateMap):
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
    memory: float = METHOD.memory
    input_scale: float = METHOD.input_scale
    seed: int
    scaling: DateScaling | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_whole("width", self.width, least=1)
        check_positive("memory", self.memory)
        check_positive("input_scale", self.input_scale)

    def fitted(self, data: Sequence[PathData]) -> RecurrentState:
        return replace(self, scaling=DateScaling.of(data))

    def features(self, data: PathData, date: int) -> Array:
        return self._forward(data, date)[-1]

    def backward(self, data: PathData) -> Iterator[tuple[int, Array]]:
        return reversed(list(enumerate(self._forward(data, data.n_dates - 1)))[1:])

    def _forward(self, data: PathData, last: int) -> list[Array]:
        """Features at dates 0..last."""
        assert self.scaling is not None, "fit the state map first"
        size, rng = self.scaling.mean.shape[1], np.random.default_rng(self.seed)
        W = self.input_scale * rng.standard_normal((size, self.width)) / np.sqrt(size)
        V = self.memory * rng.standard_normal((self.width, self.width)) / np.sqrt(self.width)
        bias = METHOD.bias_scale * rng.standard_normal(self.width)
        W, V, bias, hidden = (match(a, data.prices) for a in (W, V, bias, np.zeros((len(data), self.width))))
        xp, found = namespace(data.prices), []
        for date in range(last + 1):
            X = self.scaling.apply(_inputs(data, date), date)
            hidden = xp.tanh(X @ W + hidden @ V + bias)
            found.append(xp.concat([hidden / math.sqrt(self.width), X, xp.ones_like(X[:, :1])], axis=1))
        return found


@dataclass(frozen=True, eq=False)
class RunStates(StateMap):
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
        X = _inputs(data, date)
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


def state_map(settings: PriceSettings) -> StateMap:
    """The map that a pricing run asks for, not fitted yet."""
    width, seed = settings.width, settings.seed
    if settings.paper:
        return RandomState(width=METHOD.paper_width, slope=METHOD.paper_slope, standardise=False, seed=seed)
    if settings.method == "lsm":
        return PolynomialState(degree=settings.degree)
    if settings.method == "recurrent":
        return RecurrentState(width=width, seed=seed)
    return RandomState(width=width, seed=seed)
