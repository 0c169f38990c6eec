"""Backward induction, and the parts of a pricing run for those who put one together themselves.

From maturity to the first date, learn the value of waiting and decide which paths stop. Everything that differs between
least-squares Monte Carlo, its randomised and recurrent versions and transfer between markets is in the state map (what
is regressed on) and in the continuation models (how). Several models are trained in one pass: they share the stage,
that is paths and features at a date, and each carries its own values. What several models need (coefficients with the
same ridge, Gram matrices) is computed once.

**State maps.** The inputs at date t are the prices, the discounted payoff and, where given, further observed state. A
state map turns them into features: random features (RLSM), polynomials (LSM), or a random recurrent network that has
seen the whole path so far (for models whose future depends on more than the present). Maps are fitted once on training
paths, for scaling only, and then frozen.

Arrays may belong to NumPy or PyTorch. Several runs may lie side by side on a first axis, for devices that need much
work in one call: a run of backward induction on a hundred paths is a long row of small matrices, and a device takes
longer to start each operation than to compute it. Independent runs of the same size share these calls.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from itertools import combinations_with_replacement
from operator import add
from typing import Any, Self

import numpy as np
from array_api_compat import is_torch_array

from mixtune import checks
from mixtune.arrays import to_numpy
from mixtune.errors import DataError, ParameterError
from mixtune.features import RandomFeatures
from mixtune.moments import Moments, loo_ridge
from mixtune.regret import RegretProblem, solve
from mixtune.weights import PredictiveWeights, WassersteinWeights
from mixtune_options._arrays import Array, Floats, all_finite, is_numpy, match, namespace, torch_module
from mixtune_options._european import BaseValue
from mixtune_options._martingale import TOP_ASSETS, fit_moves, in_order, increments, moves, relative_gains
from mixtune_options._paths import PathData, simulate, simulate_runs
from mixtune_options._ridge_runs import RunFits, best_ridges, joint_runs, ridge_runs
from mixtune_options._settings import METHOD, PriceSettings

# Paths, state maps, continuation models, backward induction.
__all__ = ["PathData", "simulate", "simulate_runs"]
__all__ += ["PolynomialState", "RandomState", "RecurrentState", "RunStates", "StateMap"]
__all__ += ["ContinuationModel", "Joint", "Local", "MeanOfLocals", "Stage", "Transfer"]
__all__ += ["Policy", "TunedJoint", "TunedLocal", "TunedTransfer", "train"]

#: Paths evaluated at a time: their features stay in the cache; on a device they are many enough to keep it busy.
CHUNK_PATHS, DEVICE_CHUNK_PATHS = 4096, 500_000
#: Random units and other columns on which the coefficients of a martingale are regressed: they need less detail than
#: the value itself, and each more adds noise.
FEW_UNITS, FEW = 8, 16
#: So many times as many paths as units are worth looking for the units that change sign on them.
MANY_ROWS = 10


# --- state maps ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FactoredFeatures:
    """Features ``rows @ map`` (n, p) of many NumPy paths as their two factors; see :meth:`RandomFeatures.factored`."""

    rows: Floats
    map: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.map.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, keep: Any) -> FactoredFeatures:
        return replace(self, rows=self.rows[keep])

    def __matmul__(self, coef: Floats) -> Floats:
        return self.rows @ (self.map @ coef)

    def moments(self, Y: Floats) -> Moments:
        return Moments.from_rows(self.rows, Y).mapped(self.map)


def dense(U: Array | FactoredFeatures) -> Array:
    """Features as one array."""
    return U.rows @ U.map if isinstance(U, FactoredFeatures) else U


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

    def predicted(
        self, data: PathData, coefs: Array, *, features: bool, positive: bool
    ) -> Iterator[tuple[int, Array, Array]]:
        """``(date, features, features @ coefs[date])`` in the order of :meth:`backward`.

        Maps may leave the features out (None) unless they are asked for, and predict infinity where the payoff is zero
        if only a positive one is exercised.
        """
        for date, U in self.backward(data):
            yield date, U, U @ coefs[date]

    #: Whether assets are sorted by price before anything else.
    ranked: bool = False

    def few(self, U: Array) -> Array:
        """A few of the features, for the many regressions of a martingale."""
        return U[:, :FEW]


class OneDateMap(StateMap):
    """Maps that look at one date only."""

    @abstractmethod
    def transform(self, X: Array, date: int) -> Array:
        """Features of inputs (n, k) as :func:`stack_inputs` orders them."""

    def features(self, data: PathData, date: int) -> Array:
        return self.transform(_inputs(data, date), date)


def stack_inputs(prices: Array, payoff: Array, hidden: Array | None) -> Array:
    """Inputs (paths, k) from prices (paths, d), discounted payoff (paths,) and hidden state (paths, h)."""
    parts = [part for part in (prices, payoff[..., None], hidden) if part is not None]
    return namespace(prices).concat(parts, axis=-1)


def _inputs(data: PathData, date: int | slice) -> Array:
    """Prices, discounted payoff and hidden state at a date, (paths, k), or at several, (paths, dates, k)."""
    hidden = None if data.hidden is None else data.hidden[..., date, :]
    return stack_inputs(data.prices[..., date, :], data.payoffs[..., date], hidden)


def rank_assets(X: Array, *, assets: int) -> Array:
    """Inputs (..., k) with the assets from the most expensive to the cheapest, hidden state of an asset with it.

    Examples
    --------
    >>> rank_assets(np.array([[90.0, 110.0, 10.0, 0.1, 0.2]]), assets=2).tolist()
    [[110.0, 90.0, 10.0, 0.2, 0.1]]
    """
    xp, begin = namespace(X), assets + 1
    order = xp.argsort(X[..., :assets], axis=-1, descending=True, stable=True)
    parts = [in_order(X[..., :assets], order), X[..., assets:begin]]
    # Hidden state comes asset by asset, once or more; what is left belongs to all assets.
    for _ in range((X.shape[-1] - begin) // assets):
        parts.append(in_order(X[..., begin : begin + assets], order))
        begin += assets
    return xp.concat([*parts, X[..., begin:]], axis=-1)


@dataclass(frozen=True, eq=False)
class DateScaling:
    """Mean and spread of the inputs at each date, (dates + 1, k); of several runs, (runs, dates + 1, k)."""

    mean: Floats
    spread: Floats

    @classmethod
    def of(cls, data: Sequence[PathData], *, ranked: bool = False) -> DateScaling:
        inputs = [_inputs(d, slice(None)) for d in data]
        if ranked:
            inputs = [rank_assets(X, assets=data[0].n_assets) for X in inputs]
        pooled = np.concatenate(list(map(to_numpy, inputs)), axis=-3)
        spread = pooled.std(axis=-3)
        # Nothing is learned from a column that varies by rounding only, such as the price today: it counts as zero on
        # other paths, too, as those of the Greeks, which start elsewhere.
        return cls(pooled.mean(axis=-3), np.where(spread > 1e-12 * np.abs(pooled).max(axis=-3), spread, np.inf))

    def apply(self, X: Array, date: int) -> Array:
        mean, spread = (match(part[..., date, :], X)[..., None, :] for part in (self.mean, self.spread))
        return (X - mean) / spread


@dataclass(frozen=True, kw_only=True)
class RandomState(OneDateMap):
    """RLSM: one random hidden layer, the same at all dates.

    Parameters
    ----------
    width, activation, slope, seed
        As in :class:`mixtune.RandomFeatures`.
    standardise : bool
        Scale inputs by their mean and spread at each date, and features by 1/sqrt(width); the paper feeds raw prices.
    columns : bool
        Add the (standardised) inputs themselves: prices, payoff and hidden state.
    ranked : bool
        Sort the assets by price first. For payoffs that do not depend on their order, on assets of the same law, this
        says so to the regression.
    more : function of inputs (n, k) and a date, optional
        Further features (n, m) that resemble the value, such as an approximate European price; scaled by their spread.

    Examples
    --------
    >>> from mixtune_options import BlackScholes, MaxCall, TimeGrid
    >>> market, grid = BlackScholes(spot=100, volatility=0.2, n_assets=3), TimeGrid(maturity=1, dates=2)
    >>> data = simulate(market, MaxCall(100), grid, paths=50, rng=np.random.default_rng(0))
    >>> state = RandomState(width=10, columns=True, ranked=True, seed=0).fitted([data])
    >>> state.features(data, 1).shape  # ten units, a constant, three prices, the payoff
    (50, 15)
    """

    width: int
    activation: str = "leaky_relu"
    slope: float = METHOD.paper_slope
    standardise: bool = True
    columns: bool = False
    ranked: bool = False
    seed: int
    more: Callable[[Array, int], Array] | None = field(default=None, repr=False)
    unit: float = field(default=1.0, repr=False)
    scaling: DateScaling | None = field(default=None, repr=False)
    layer: RandomFeatures | None = field(default=None, repr=False)
    n_assets: int = field(default=1, repr=False)

    def fitted(self, data: Sequence[PathData]) -> RandomState:
        n_inputs = _inputs(data[0].take(slice(0, 1)), 0).shape[-1]
        units: dict[str, Any] = {"width": self.width, "activation": self.activation, "slope": self.slope}
        layer = RandomFeatures(n_inputs=n_inputs, **units, normalise=self.standardise, seed=self.seed)
        scaling = DateScaling.of(data, ranked=self.ranked) if self.standardise else None
        # The spread of the payoff at maturity, which is about that of values.
        unit = float(np.std(to_numpy(data[0].payoffs[..., -1]))) or 1.0
        return replace(self, scaling=scaling, layer=layer, n_assets=data[0].n_assets, unit=unit)

    def transform(self, X: Array, date: int, *, out: Array | None = None) -> Array:
        assert self.layer is not None, "fit the state map first"
        more = None if self.more is None else self.more(X, date) / self.unit
        X = self._scaled(X, date)
        if more is not None:
            X = namespace(X).concat([X, more], axis=1)
            X, inputs = X, X[:, : X.shape[1] - more.shape[1]]
        else:
            inputs = X
        if not self.columns:
            return self.layer.transform(inputs, out=out)
        units = self.layer.n_features_out
        if out is None:
            xp = namespace(X)
            out = xp.empty((len(X), units + X.shape[1]), dtype=xp.float64, device=X.device)
        self.layer.transform(inputs, out=out[:, :units])
        out[:, units:] = X
        return out

    def _scaled(self, X: Array, date: int) -> Array:
        X = rank_assets(X, assets=self.n_assets) if self.ranked else X
        return X if self.scaling is None else self.scaling.apply(X, date)

    def few(self, U: Array) -> Array:
        assert self.layer is not None, "fit the state map first"
        units = self.layer.n_features_out
        # Some units and the constant; the first prices, the payoff and what else is observed.
        parts = [U[:, :FEW_UNITS], U[:, units - 1 : units]] if units > FEW_UNITS else [U[:, :units]]
        first = min(self.n_assets, TOP_ASSETS)
        parts += [U[:, units : units + first], U[:, units + self.n_assets : units + self.n_assets + FEW]]
        return namespace(U).concat(parts, axis=1)

    def backward(self, data: PathData) -> Iterator[tuple[int, Array]]:
        """As for all maps; the features of one date are overwritten by those of the next, and many may be factored."""
        assert self.layer is not None, "fit the state map first"
        xp = namespace(data.prices)
        more = 0
        if self.columns:
            first = _inputs(data.take(slice(0, 1)), 0)
            more = first.shape[-1] + (0 if self.more is None else self.more(first, 0).shape[-1])
        shape = (len(data), self.layer.n_features_out + more)
        buffer = xp.empty(shape, dtype=xp.float64, device=data.prices.device)
        many = is_numpy(data.prices) and not self.columns and len(data) >= MANY_ROWS * self.width
        for date in range(data.n_dates - 1, 0, -1):
            X = _inputs(data, date)
            factors = self.layer.factored(self._scaled(X, date)) if many else None
            yield date, self.transform(X, date, out=buffer) if factors is None else FactoredFeatures(*factors)

    def predicted(
        self, data: PathData, coefs: Array, *, features: bool, positive: bool
    ) -> Iterator[tuple[int, Array, Array]]:
        if features or self.columns or not is_numpy(data.prices):
            yield from super().predicted(data, coefs, features=features, positive=positive)
            return
        assert self.layer is not None, "fit the state map first"
        for date in range(data.n_dates - 1, 0, -1):
            inside = data.payoffs[:, date] > 0 if positive else slice(None)
            found = np.full((len(data), coefs.shape[-1]), np.inf)
            found[inside] = self.layer.products(self._scaled(_inputs(data, date)[inside], date), coefs[date])
            yield date, None, found


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
        checks.check_whole("degree", self.degree, least=1)

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
        checks.check_whole("width", self.width, least=1)
        checks.check_positive("memory", self.memory)
        checks.check_positive("input_scale", self.input_scale)

    def fitted(self, data: Sequence[PathData]) -> RecurrentState:
        return replace(self, scaling=DateScaling.of(data))

    def features(self, data: PathData, date: int) -> Array:
        return self._forward(data, date)[-1]

    def few(self, U: Array) -> Array:
        return U[:, -FEW:]  # the present inputs and the constant

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

    def fitted(self, data: Sequence[PathData]) -> RunStates:
        """The map with its layers drawn, and the scaling of every run."""
        first = self.states[0].fitted(data)
        assert first.layer is not None
        seeds = [state.seed for state in self.states]
        return RunStates(tuple(replace(first, seed=seed, layer=replace(first.layer, seed=seed)) for seed in seeds))

    def features(self, data: PathData, date: int) -> Array:
        """Features (runs, paths, p) at ``date``."""
        X = self.states[0]._scaled(_inputs(data, date), date)
        layers = [state.layer for state in self.states if state.layer is not None]
        assert len(layers) == len(self.states), "fit the state map first"
        return RandomFeatures.side_by_side(layers, X)


def state_map(
    settings: PriceSettings, *, variables: int, ranked: bool, more: Callable[[Array, int], Array] | None = None
) -> StateMap:
    """The map that a pricing run on so many observed variables asks for, not fitted yet."""
    seed = settings.seed
    if settings.paper:
        return RandomState(width=METHOD.paper_width, slope=METHOD.paper_slope, standardise=False, seed=seed)
    if settings.method == "lsm":
        return PolynomialState(degree=settings.degree)
    width = default_width(variables, ranked=ranked) if settings.width is None else settings.width
    if settings.method == "recurrent":
        return RecurrentState(width=width, seed=seed)
    return RandomState(width=width, columns=True, ranked=ranked, more=more, seed=seed)


def default_width(variables: int, *, ranked: bool) -> int:
    """How many random units a value of so many variables needs.

    Examples
    --------
    >>> [default_width(n, ranked=False) for n in (1, 2, 5, 20)]
    [20, 30, 60, 100]
    """
    return min(10 * (variables + 1), METHOD.ranked_width if ranked else METHOD.width)


# --- continuation models ------------------------------------------------------------------------------------------


class Stage:
    """One exercise date: features (n, p) of every dataset, and values (n, models) with one column per model."""

    def __init__(self, features: Sequence[Array], values: Sequence[Array], focal: int) -> None:
        self.features, self.values, self.focal = list(features), list(values), focal
        self._pooled: dict[tuple[float, tuple[int, ...]], Array] = {}
        #: By model, the prediction (n,) of each focal row by a fit without it; models that have them put them here.
        self.left_out: dict[int, Array] = {}

    def without_own(self, waiting: Array, kept: Any) -> Array:
        """Predictions (paths, models) of the focal paths, those ``kept`` by fits without them where models have these.

        A fit to a path knows how the path goes on, and would stop it too well: values of earlier dates would be too
        high, the more so the fewer the paths.
        """
        for model, own in self.left_out.items():
            left_out, fitted = match(own, waiting), waiting[..., kept, model]
            waiting[..., kept, model] = namespace(waiting).where(abs(left_out) < np.inf, left_out, fitted)
        return waiting

    @cached_property
    def moments(self) -> list[Moments]:
        """Moments of every dataset with all models' values as outputs."""
        moments = [
            U.moments(Y) if isinstance(U, FactoredFeatures) else Moments.from_rows(U, Y)
            for U, Y in zip(self.features, self.values)
        ]
        for m in moments:
            _ = m.gram  # formed once; every model below shares it
        return moments

    def pooled(self, ridge: float, datasets: tuple[int, ...]) -> Array:
        """Ridge coefficients of some datasets pooled, for every model's values: (p, models)."""
        if unknown := [i for i in datasets if not 0 <= i < len(self.features)]:
            raise ParameterError(f"there is no dataset {unknown[0]}; there are {len(self.features)}")
        key = (ridge, datasets)
        if key not in self._pooled:
            self._pooled[key] = self._fit_pooled(ridge, datasets)
        return self._pooled[key]

    def local(self, ridge: float) -> Array:
        """Ridge coefficients of every dataset on its own, (N, p, models)."""
        found = [self.pooled(ridge, (i,)) for i in range(len(self.features))]
        return namespace(*found).stack(found, axis=-3)

    def _fit_pooled(self, ridge: float, datasets: tuple[int, ...]) -> Array:
        return reduce(add, (self.moments[i] for i in datasets)).head(ridge)


class RunStage(Stage):
    """One exercise date of several runs; all arrays have the runs as their first axis."""

    @cached_property
    def single_runs(self) -> list[Stage]:
        """The stages of the runs, in NumPy."""
        features, values = ([to_numpy(array) for array in arrays] for arrays in (self.features, self.values))
        runs = range(len(features[0]))
        return [Stage([U[run] for U in features], [Y[run] for Y in values], self.focal) for run in runs]

    @cached_property
    def constant(self) -> int | None:
        """The place of the first feature that is the same, and not zero, in all rows of a run; None if runs differ."""
        xp, first = namespace(*self.features), self.features[0][:, :1]
        same = [xp.all(first == U, axis=1) for U in self.features]
        found = to_numpy(xp.all(xp.stack([*same, first[:, 0] != 0]), axis=0))
        places = set(np.argmax(found, axis=1).tolist())
        return places.pop() if found.any(axis=1).all() and len(places) == 1 else None

    def fit_side_by_side(
        self, model: int, datasets: Sequence[int], learn: Callable[[Array, Array], RunFits | None]
    ) -> Array | None:
        """Coefficients (runs, p) of a linear fit to some datasets, the focal one first, on a device.

        ``learn`` takes rows (runs, m, p - 1) without the constant and their values, to what
        :func:`mixtune.choice.choose_runs` returns. None where this is not possible: run by run then.
        """
        if not is_torch_array(self.features[0]) or self.constant is None:
            return None
        xp, order = namespace(*self.features), [self.focal, *(i for i in datasets if i != self.focal)]
        U, y = (xp.concat([arrays[i] for i in order], axis=1) for arrays in (self.features, self.values))
        varying = [place for place in range(U.shape[-1]) if place != self.constant]
        try:
            found = learn(U[..., varying], y[..., model])
        except xp.linalg.LinAlgError:
            return None
        if found is None:
            return None
        coef = xp.zeros_like(U[:, 0])
        coef[:, varying] = found[0][:, :-1]
        coef[:, self.constant] = found[0][:, -1] / U[:, 0, self.constant]
        self.left_out[model] = found[1]
        return coef

    @cached_property
    def grams(self) -> list[Array]:
        """``U'U`` of every dataset, (runs, p, p) each."""
        return [U.mT @ U for U in self.features]

    def transfer(self, model: int, *, ridge: float, weights: PredictiveWeights, rho: float) -> Array | None:
        """Regret-optimal coefficients (runs, p) with predictive weights, as :func:`mixtune.solve` gives them.

        ``theta = m + (A + r)^{-1} (b - A m)`` with ``A = sum_i w_i U_i'U_i``, ``b - A m`` the weighted sum of
        ``U_i'(y_i - U_i m)``, m the weighted mean of the local coefficients and ``r = rho/|w|^2``. None where that is
        not safe in floating point: the general solver decides then, run by run.
        """
        xp, like = namespace(*self.features), self.features[0]
        heads, targets = self.local(ridge)[..., model], [Y[..., model] for Y in self.values]
        errors = targets[self.focal][..., None] - self.features[self.focal] @ heads.mT
        scores = to_numpy(xp.mean(errors**2, axis=1))
        if not np.all(np.isfinite(scores)):
            return None
        shares = np.stack([weights.shares(each, self.focal) for each in scores])
        w = match(shares / shares.sum(axis=1, keepdims=True), like)
        mean = xp.sum(w[..., None] * heads, axis=1)
        A, slope = xp.zeros_like(self.grams[0]), xp.zeros_like(mean)
        for i, (U, y) in enumerate(zip(self.features, targets)):
            A += w[:, i, None, None] * self.grams[i]
            residual = y - (U @ mean[..., None])[..., 0]
            slope += w[:, i, None] * (U.mT @ residual[..., None])[..., 0]
        step = _solve(A, rho / xp.sum(w**2, axis=1), slope[..., None])
        return None if step is None else mean + step[..., 0]

    def _fit_pooled(self, ridge: float, datasets: tuple[int, ...]) -> Array:
        xp, runs = namespace(*self.features), len(self.features[0])
        if len(datasets) > 1 or any(U.shape != self.features[0].shape for U in self.features):
            U, Y = (xp.concat([arrays[i] for i in datasets], axis=1) for arrays in (self.features, self.values))
            return _ridge_heads(U, Y, ridge)
        # All datasets, where they have equally many rows, side by side as if they were more runs.
        found = _ridge_heads(xp.concat(self.features), xp.concat(self.values), ridge)
        self._pooled |= {(ridge, (i,)): found[i * runs : (i + 1) * runs] for i in range(len(self.features))}
        return self._pooled[ridge, datasets]


def _ridge_heads(U: Array, Y: Array, ridge: float) -> Array:
    """Ridge coefficients (runs, p, models), by the smaller of the two systems, rows or features."""
    shift = namespace(U).full((U.shape[0],), ridge, dtype=U.dtype, device=U.device)
    dual = U.shape[1] < U.shape[2]
    found = _solve(U @ U.mT, shift, Y) if dual else _solve(U.mT @ U, shift, U.mT @ Y)
    if found is None:
        raise ParameterError(f"ridge {ridge:g} is below the rounding error of these features; use a larger one")
    return U.mT @ found if dual else found


def _solve(matrix: Array, shift: Array, rhs: Array) -> Array | None:
    """``(matrix + shift I)^{-1} rhs`` for symmetric matrices (runs, k, k); None where rounding may hide a shift."""
    xp = namespace(matrix)
    largest = xp.max(xp.linalg.diagonal(matrix), axis=-1)
    if not xp.all(shift > 1e3 * matrix.shape[-1] * float(np.finfo(np.float64).eps) * largest):
        return None
    shifted = matrix + shift[:, None, None] * xp.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    if is_torch_array(matrix):
        return torch_module().cholesky_solve(rhs, xp.linalg.cholesky(shifted))
    return xp.linalg.solve(shifted, rhs)


class ContinuationModel(ABC):
    """Learns the coefficients of the continuation value at a stage."""

    name: str

    @abstractmethod
    def fit(self, stage: Stage, model: int) -> Array:
        """Coefficients (p,) from the stage's features and column ``model`` of its values."""

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        """:meth:`fit` for several runs at once, (runs, p).

        By default run by run, in NumPy and threads: for models whose work is not linear algebra alone.
        """
        with ThreadPoolExecutor() as threads:
            found = list(threads.map(lambda single: self.fit(single, model), stage.single_runs))
        left_out = [single.left_out[model] for single in stage.single_runs if model in single.left_out]
        if left_out:
            stage.left_out[model] = np.stack(left_out)
        return match(np.stack(found), stage.features[0])


class _LinearModel(ContinuationModel):
    """Models whose :meth:`fit` reads off a stage of one run and one of several in the same way."""

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        return self.fit(stage, model)


@dataclass(frozen=True)
class Local(_LinearModel):
    """LO-i: ridge regression on one dataset."""

    dataset: int
    ridge: float
    name: str

    def fit(self, stage: Stage, model: int) -> Array:
        return stage.pooled(self.ridge, (self.dataset,))[..., model]


@dataclass(frozen=True)
class MeanOfLocals(_LinearModel):
    """MLO: the mean of all local coefficients."""

    ridge: float
    name: str = "MLO"

    def fit(self, stage: Stage, model: int) -> Array:
        local = stage.local(self.ridge)
        return namespace(local).mean(local[..., model], axis=-2)


@dataclass(frozen=True)
class Joint(_LinearModel):
    """JO / JSO: ridge regression on some or all datasets pooled."""

    ridge: float
    subset: tuple[int, ...]
    name: str = "JO"

    def fit(self, stage: Stage, model: int) -> Array:
        return stage.pooled(self.ridge, self.subset)[..., model]


@dataclass(frozen=True)
class TunedLocal(ContinuationModel):
    """Ridge regression on one dataset, its ridge chosen by leave-one-out at every date.

    The choice is made on at most ``choice_rows`` rows (beyond that it hardly matters), the fit on all.
    """

    dataset: int
    name: str
    ridges: tuple[float, ...] = METHOD.ridges
    choice_rows: int = METHOD.choice_rows

    def fit(self, stage: Stage, model: int) -> Array:
        U, y = stage.features[self.dataset], stage.values[self.dataset][:, model]
        few = slice(0, self.choice_rows)
        choice = loo_ridge(to_numpy(dense(U[few])), to_numpy(y[few]), self.ridges)
        if len(U) <= self.choice_rows:
            return match(choice.coef, y)
        # The ridge itself carries over: it answers to noise and signal, not to the number of rows.
        return stage.moments[self.dataset].output(model).head(choice.ridge)

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        U, y = stage.features[self.dataset], stage.values[self.dataset][..., model]
        if not is_torch_array(U) or U.shape[1] > min(self.choice_rows, U.shape[2]):
            return super().fit_runs(stage, model)
        xp, ridges = namespace(U), np.asarray(self.ridges)
        # Relative to the mean eigenvalue of runs of at most as many rows as features.
        shifts = match(ridges, U) * xp.mean(xp.sum(U**2, axis=2), axis=1)[:, None]
        heads, left_out = ridge_runs(U, y, shifts, focal=U.shape[1])
        return heads[np.arange(len(U)), best_ridges(ridges, to_numpy(xp.mean(left_out**2, axis=-1)))]


@dataclass(frozen=True)
class Transfer(ContinuationModel):
    """RO: regret-optimal transfer to the focal dataset.

    ``weights`` is a rule such as :class:`mixtune.PredictiveWeights`. ``distance_rows`` caps the rows of a dataset that
    Wasserstein distances look at (the first ones: paths are exchangeable).
    """

    weights: Any
    ridge: float
    transfer: float
    stability: float
    horizon: int
    name: str
    distance_rows: int | None = None

    def __post_init__(self) -> None:
        checks.check_nonnegative("ridge", self.ridge)

    def fit(self, stage: Stage, model: int) -> Array:
        moments = [m.output(model) for m in stage.moments]
        heads = stage.local(self.ridge)[:, :, model]
        if isinstance(self.weights, WassersteinWeights):
            few = slice(0, self.distance_rows)
            rows = ((to_numpy(dense(U[few])), to_numpy(Y[few, model])) for U, Y in zip(stage.features, stage.values))
            clouds, counts = list(map(np.column_stack, rows)), list(map(len, stage.features))
            weights: Any = self.weights.weigh_clouds(clouds, focal=stage.focal, counts=counts)
        else:
            weights = self.weights.weigh(moments=moments, heads=heads, focal=stage.focal)
        strength: dict[str, Any] = {"transfer": self.transfer, "stability": self.stability, "horizon": self.horizon}
        return solve(RegretProblem(moments=moments, weights=weights, heads=heads, **strength)).coef

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        if isinstance(self.weights, PredictiveWeights):
            found = stage.transfer(model, ridge=self.ridge, weights=self.weights, rho=self.rho)
            if found is not None:
                return found
        return super().fit_runs(stage, model)

    @property
    def rho(self) -> float:
        """What a move costs, per square of its length: the effective ridge of any dataset that has all weight."""
        strength: dict[str, Any] = {"transfer": self.transfer, "stability": self.stability, "horizon": self.horizon}
        any_moments = Moments(1, [[1.0]], [1.0], 1.0)
        ridge = solve(RegretProblem(moments=[any_moments], weights=[1.0], ridge=1.0, **strength)).effective_ridge
        assert ridge is not None
        return ridge


@dataclass(frozen=True)
class TunedTransfer(ContinuationModel):
    """Transfer to the focal dataset by :class:`mixtune.RegretOptimalRegressorCV`, with its defaults.

    Features are not clamped to the range of the training rows, since a policy is linear in them.

    Parameters
    ----------
    name : str

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> U = [np.column_stack([np.ones(n), rng.standard_normal((n, 2))]) for n in (10, 60, 60, 60)]
    >>> values = [(u @ [5.0, 1.0, -1.0] + 0.1 * rng.standard_normal(len(u)))[:, None] for u in U]
    >>> found = TunedTransfer().fit(Stage(U, values, focal=0), 0)
    >>> bool(np.all(np.abs(found - [5.0, 1.0, -1.0]) < 0.2))
    True
    """

    name: str = "RO (tuned)"

    def fit(self, stage: Stage, model: int) -> Floats:
        from mixtune.estimators import RegretOptimalRegressorCV  # scikit-learn takes a second to import

        tuned = RegretOptimalRegressorCV(None, clamp=False, target_scale="identity")
        return _fit_estimator(tuned, stage, model, range(len(stage.features)))

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        from mixtune.choice import choose_runs

        (runs, rows, _), count = stage.features[0].shape, len(stage.features)

        def learn(U: Array, y: Array) -> RunFits | None:
            return choose_runs(U.reshape(runs, count, rows, -1), y.reshape(runs, count, rows))

        alike = all(U.shape[1] == rows for U in stage.features)
        found = stage.fit_side_by_side(model, range(count), learn) if alike else None
        return super().fit_runs(stage, model) if found is None else found


@dataclass(frozen=True)
class TunedJoint(ContinuationModel):
    """JO / JSO / LO at their best: ridge regression on some datasets pooled, its ridge chosen by leave-one-out.

    Rows of the focal dataset, which must be among the pooled, are left out in turn; features are standardised as for
    :class:`TunedTransfer`.

    Parameters
    ----------
    subset : tuple of int
        Which datasets.
    name : str

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> U = [np.column_stack([np.ones(20), rng.standard_normal((20, 2))]) for _ in range(3)]
    >>> values = [(u @ [5.0, 1.0, -1.0])[:, None] for u in U]
    >>> TunedJoint((0, 2), "JSO").fit(Stage(U, values, focal=0), 0).round(2)
    array([ 5.,  1., -1.])
    """

    subset: tuple[int, ...]
    name: str

    def fit(self, stage: Stage, model: int) -> Floats:
        from mixtune.estimators import JointRegressor

        self._check(stage)
        return _fit_estimator(JointRegressor(ridge="loo"), stage, model, self.subset)

    def fit_runs(self, stage: RunStage, model: int) -> Array:
        self._check(stage)
        learn = partial(joint_runs, ridges=np.logspace(-3, 5, 17), focal=stage.features[stage.focal].shape[1])
        found = stage.fit_side_by_side(model, self.subset, learn)
        return super().fit_runs(stage, model) if found is None else found

    def _check(self, stage: Stage) -> None:
        count, focal = len(stage.features), stage.focal
        if focal not in self.subset or any(not 0 <= i < count for i in self.subset):
            raise ParameterError(
                f"subset must list the focal dataset {focal} and others below {count}; got {self.subset}"
            )


def _fit_estimator(estimator: Any, stage: Stage, model: int, subset: Sequence[int]) -> Floats:
    """Fit a linear estimator to some datasets; coefficients (p,) of the stage's features.

    Estimators standardise features and leave the intercept free. Both are undone here: the first feature that is the
    same, and not zero, in all rows of all datasets takes the intercept.
    """
    features = [dense(U) for U in stage.features]
    first = features[0][0]
    same = np.all([np.all(first == U, axis=0) for U in features], axis=0) & (first != 0)
    constant = int(np.argmax(same)) if same.any() else None
    varying = np.arange(len(first)) != constant
    estimator.set_params(fit_intercept=constant is not None)
    rows = {i: (features[i][:, varying], stage.values[i][:, model]) for i in subset}
    X, y = rows.pop(stage.focal)
    estimator.fit(X, y, sources={f"dataset {i}": pair for i, pair in rows.items()} or None)
    stage.left_out[model] = estimator.loo_predictions_
    coef = np.zeros(len(first))
    coef[varying] = estimator.coef_
    if constant is not None:
        coef[constant] = estimator.intercept_ / first[constant]
    return coef


# --- backward induction -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a policy earns on some paths.

    Attributes
    ----------
    flows, dates : array (paths, models)
        Discounted cash flows, and when they come.
    control : array (paths,) or None
        The martingale of the first model at its stop, above its value today: it has mean zero.
    best : array (paths,) or None
        The largest payoff less that martingale: in the mean at least the price.
    """

    flows: Array
    dates: Array
    control: Array | None = None
    best: Array | None = None

    @property
    def controlled(self) -> Array:
        """Cash flows (paths,) of the first model less its martingale, where there is one."""
        return self.flows[:, 0] if self.control is None else self.flows[:, 0] - self.control

    def fetched(self) -> Evaluation:
        """The same as NumPy arrays."""
        parts = {item.name: getattr(self, item.name) for item in fields(self)}
        return Evaluation(**{name: None if part is None else to_numpy(part) for name, part in parts.items()})


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
    base : callable or None
        European values, of which the coefficients predict only what waiting is worth beyond them.
    martingale : tuple of arrays (q, k), or None
        Coefficients of the moves of every interval, see :mod:`mixtune_options._martingale`.
    value : array (models,) or None
        What waiting is worth today, on the training paths of the focal dataset.
    growth : array (dates, assets) or None
        Factors to the mean of the next prices, where gains of the prices are among the moves.
    hold : bool
        Whether the option is held to maturity, whatever it pays before.
    """

    state: StateMap
    coefs: Array
    names: tuple[str, ...]
    only_positive: bool
    base: BaseValue | None = None
    martingale: tuple[Array, ...] | None = None
    value: Floats | None = None
    growth: Floats | None = None
    hold: bool = False

    def continuation(self, data: PathData, date: int) -> Array:
        """Predicted value of waiting at a date, (paths, models)."""
        return self.waiting(self.state.features(data, date), data.prices[..., date, :], date)

    def waiting(self, U: Array, prices: Array, date: int) -> Array:
        """The same from features (paths, p) and prices (paths, assets)."""
        return U @ self.coefs[date] + _base_value(self.base, prices, date)

    def stops(self, payoff: Array, waiting: Array) -> Array:
        """Whether it stops where it may have the payoff now or the value of waiting."""
        return exercises(payoff, waiting, self.only_positive) & (not self.hold)

    def cash_flows(self, data: PathData) -> tuple[Array, Array]:
        """Discounted cash flow of every path under every model, and the date it comes at; (paths, models) each."""
        found = self.evaluate(data)
        return found.flows, found.dates

    def evaluate(self, data: PathData) -> Evaluation:
        """Follow the policy along paths; with their noise, also the martingale that belongs to it."""
        xp = namespace(data.payoffs)
        step = CHUNK_PATHS if is_numpy(data.payoffs) else max(1, DEVICE_CHUNK_PATHS // (data.runs or 1))
        parts = [self._evaluate(data.take(slice(begin, begin + step))) for begin in range(0, len(data), step)]
        joined = {item.name: [getattr(part, item.name) for part in parts] for item in fields(Evaluation)}
        axes = {"flows": -2, "dates": -2, "control": 0, "best": 0}
        whole = {n: None if found[0] is None else xp.concat(found, axis=axes[n]) for n, found in joined.items()}
        return Evaluation(**whole)

    def _evaluate(self, data: PathData) -> Evaluation:
        """Of a block of paths, from maturity to the first date."""
        xp, last = namespace(data.payoffs), data.payoffs[..., -1:]
        flow = xp.concat([last] * len(self.names), axis=-1)
        when = xp.full(flow.shape, data.n_dates, dtype=xp.int16, device=flow.device)
        moving = self.martingale is not None and data.noise is not None
        controlled = data.runs is None and (self.base is not None or moving)
        # Of the martingale, what is still to come until the stop; and the best payoff less that until its date.
        control = xp.zeros_like(last) + _base_value(self.base, data.prices[..., -1, :], data.n_dates)
        best = last - control
        known = {"features": controlled, "positive": self.only_positive}
        for date, U, premium in self.state.predicted(data, self.coefs, **known):
            payoff, base = data.payoffs[..., date, None], _base_value(self.base, data.prices[..., date, :], date)
            stop = self.stops(payoff, premium + base)
            flow = xp.where(stop, payoff, flow)
            when = xp.where(stop, xp.full((), date, dtype=xp.int16, device=flow.device), when)
            if controlled:
                step = self._moves(data, date, self.state.few(U))
                control = xp.where(stop[..., :1], base, control + step)
                best = best - step if self.hold else xp.maximum(payoff - base, best - step)
        if not controlled:
            return Evaluation(flow, when)
        step, base = self._moves(data, 0, xp.ones_like(last)), _base_value(self.base, data.prices[..., 0, :], 0)
        control, best = control + step - base, best - step + base
        best = best if self.hold else xp.maximum(data.payoffs[..., :1], best)
        return Evaluation(flow, when, control[..., 0], best[..., 0])

    def _moves(self, data: PathData, date: int, U: Array) -> Array:
        """What the moves of the interval after ``date`` add to the martingale, (paths, 1)."""
        if self.martingale is None or data.noise is None:
            return 0.0
        phi = _moves_after(data, date, self.state.ranked, self.growth)
        return increments(self.martingale[date], U, phi)[:, None]

    def fetched(self) -> Policy:
        """The same policy with its coefficients in NumPy."""
        martingale = None if self.martingale is None else tuple(map(to_numpy, self.martingale))
        return replace(self, coefs=to_numpy(self.coefs), martingale=martingale)

    def joined(self, other: Policy) -> Policy:
        """Both policies' models side by side; they must share the state map."""
        if other.state is not self.state or other.only_positive != self.only_positive:
            raise ParameterError("policies can be joined only if they use the same state map and exercise rule")
        coefs = namespace(self.coefs, other.coefs).concat([self.coefs, other.coefs], axis=-1)
        return replace(self, coefs=coefs, names=self.names + other.names, value=None)


def _base_value(base: BaseValue | None, prices: Array, date: int) -> Array:
    """What the base of a policy is worth at a date, (paths, 1); nothing where there is none."""
    return 0.0 if base is None else base(prices, date)[..., None]


def _moves_after(data: PathData, date: int, ranked: bool, growth: Floats | None) -> Array:
    """What may move values (paths, k) in the interval after a date."""
    assert data.noise is not None
    now, factors = data.prices[:, date], None if growth is None else growth[date]
    return moves(data.noise[:, date], now, ranked, relative_gains(now, data.prices[:, date + 1], factors))


def exercises(payoff: Array, continuation: Array, only_positive: bool) -> Array:
    """Whether stopping now beats waiting."""
    return (payoff > continuation) & (payoff > 0) if only_positive else payoff > continuation


def train(
    data: Sequence[PathData],
    models: Sequence[ContinuationModel],
    *,
    state: StateMap,
    focal: int = 0,
    in_the_money: bool = True,
    only_positive: bool = True,
    base: BaseValue | None = None,
    martingale: bool = False,
    growth: Floats | None = None,
    hold: bool = False,
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
    base : callable, optional
        European values (paths,) from prices (paths, assets) and a date, discounted: the models learn the rest.
    martingale : bool
        Whether to learn a martingale as well, from the noise of one dataset and for one model. It is taken off the
        values while they are learned, which makes their regressions less noisy.
    growth : array (dates, assets), optional
        Factors to the mean of the next prices; given, the prices' own gains are part of the martingale.
    hold : bool
        Whether to hold to maturity: the values learned are those without early exercise.
    """
    if martingale and (len(data) != 1 or len(models) != 1 or data[0].noise is None):
        raise ParameterError("a martingale needs one dataset with its noise, and one model")
    if not data or not models:
        raise ParameterError("pricing needs at least one dataset of paths and one model")
    first = data[0]
    for d in data:
        if (d.n_dates, d.n_assets, d.runs) != (first.n_dates, first.n_assets, first.runs):
            raise DataError(
                f'paths "{d.name}" have {d.n_dates} dates and {d.n_assets} assets, "{first.name}" has '
                f"{first.n_dates} and {first.n_assets}; use the same for all"
            )
    if first.runs is not None and in_the_money:
        raise ParameterError("several runs regress on all paths; pass in_the_money=False")
    xp = namespace(*(d.payoffs for d in data))
    values = [xp.concat([d.payoffs[..., -1:]] * len(models), axis=-1) for d in data]
    values = [value - _base_value(base, d.prices[..., -1, :], d.n_dates) for value, d in zip(values, data)]
    fitted: dict[int, Array] = {}
    moved: dict[int, Array] = {}

    def take_moves_off(date: int, U: Array) -> None:
        phi = _moves_after(first, date, state.ranked, growth)
        gains = 0 if growth is None else min(first.n_assets, TOP_ASSETS) if state.ranked else first.n_assets
        moved[date] = fit_moves(U, phi, values[0][:, 0], gains)
        values[0] = values[0] - increments(moved[date], U, phi)[:, None]

    for steps in zip(*(state.backward(d) for d in data), strict=True):
        date, features = steps[0][0], [U for _, U in steps]
        if martingale:
            take_moves_off(date, state.few(features[0]))
        payoffs = [d.payoffs[..., date, None] for d in data]
        inside = [payoff[..., 0] > 0 for payoff in payoffs]
        # All rows where those in the money do not outnumber the features.
        kept = [I if in_the_money and int(I.sum()) > U.shape[1] else slice(None) for I, U in zip(inside, features)]
        rows = [U[keep] for U, keep in zip(features, kept)], [Y[keep] for Y, keep in zip(values, kept)]
        stage = (Stage if first.runs is None else RunStage)(*rows, focal)
        found = [
            model.fit_runs(stage, m) if isinstance(stage, RunStage) else model.fit(stage, m)
            for m, model in enumerate(models)
        ]
        fitted[date] = namespace(*found).stack(found, axis=-1)
        for i, (U, payoff, d) in enumerate(zip(features, payoffs, data)):
            held = _base_value(base, d.prices[..., date, :], date)
            waiting = U @ fitted[date]
            waiting = stage.without_own(waiting, kept[i]) if i == focal else waiting
            stop = exercises(payoff, waiting + held, only_positive) & (not hold)
            # Paths that stop are worth their payoff now; the others keep the cash flow of their later stop.
            values[i] = xp.where(stop, payoff - held, values[i])
    if martingale:
        take_moves_off(0, xp.ones_like(first.payoffs[:, :1]))
    # A single date leaves nothing to decide before maturity.
    shape = tuple(fitted[1].shape) if fitted else (0, len(models))
    unused = xp.zeros(shape, dtype=xp.float64, device=first.payoffs.device)
    coefs = xp.stack([fitted.get(date, unused) for date in range(first.n_dates)])
    if not all_finite(coefs):
        raise DataError("the continuation values overflow; check the scale of the paths, or use a larger ridge")
    names, today = tuple(model.name for model in models), data[focal]
    waiting = values[focal] + _base_value(base, today.prices[..., 0, :], 0)
    value = None if today.runs is not None else to_numpy(xp.mean(waiting, axis=0))
    found_moves = tuple(moved[date] for date in range(first.n_dates)) if martingale else None
    return Policy(state, coefs, names, only_positive, base, found_moves, value, growth, hold)
