r"""The interface of market models: where they start, and how they move over one exercise interval.

A model is a frozen description; the :class:`State` carries everything the future depends on. Paths can therefore be
continued from any state, many times over, which is what nested simulation needs. Sampling whole paths is the same
step, repeated from the start.

Arrays have paths as their first axis but keep them contiguous in memory (Fortran order), because one NumPy
operation on many paths of one asset is far quicker than many operations on few assets of one path.

Random numbers are always drawn by NumPy, so that a run has the same paths wherever it computes. The normals of a path
are consecutive draws of one stream: simulating in blocks of any size gives the same paths, and a longer run begins with
the paths of a shorter one. There are three sources: pseudo-random numbers, the same numbers with their mirror images
(antithetic), and scrambled Sobol points, which fill the space more evenly. The first Sobol coordinates are the best:
they drive the directions along which a Brownian path varies most (principal components), not its first interval.

**Gaussian models** are in this module, too. They are sampled exactly on any dates. Fractional Brownian motion has
memory, and is a standard test of stopping without the Markov property:

.. math:: \operatorname{E} B_s B_t = \tfrac12 \left( s^{2H} + t^{2H} - |t - s|^{2H} \right)

The Cholesky factor of this covariance makes exact paths, one new normal per date. Row by row it also continues a path
exactly given its past.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import qmc

from mixtune import checks
from mixtune.errors import ParameterError
from mixtune_options._arrays import Array, Floats, is_numpy, match, namespace, read_only, to_device, torch_module
from mixtune_options._settings import TOLERANCE, TimeGrid, numbers, set_fields

#: Normals in one block unless told otherwise: 4 MB, so that a block's working arrays stay near the cache.
BLOCK_NORMALS = 1 << 19
#: Paths in one block at the least: below, NumPy's calls cost more than the arithmetic.
BLOCK_PATHS = 1024
#: SciPy's Sobol points are multiples of 2**-30; half a cell keeps them off 0, whose normal would be infinite.
HALF_CELL = 2.0**-31
#: Multiplications in one matrix product below which OpenBLAS stays on one thread.
ONE_THREAD = 250_000
#: How far below zero rounding may push the smallest eigenvalue of a correlation matrix.
ROUNDING = 1e-10
#: Times that differ by less are the same: dates are multiples of rounded steps.
SAME_TIME = 1e-9


@dataclass(frozen=True, eq=False)
class State:
    """Prices of some paths at one time, and whatever else their future depends on.

    Attributes
    ----------
    prices : ndarray of shape (paths, assets)
    """

    prices: Array

    #: Fields that all paths have in common.
    shared: ClassVar[frozenset[str]] = frozenset()

    @property
    def n_paths(self) -> int:
        """Number of paths."""
        return int(self.prices.shape[0])

    @property
    def hidden(self) -> Array:
        """What a model knows besides prices, such as variances, of shape (paths, any number)."""
        return self.prices[:, :0]

    def take(self, indices: ArrayLike) -> Self:
        """Keep the paths with these indices (or where a mask is true), in this order.

        Examples
        --------
        >>> State(np.array([[1.0], [2.0], [3.0]])).take([2, 0]).prices.ravel().tolist()
        [3.0, 1.0]
        """
        return self._changed(lambda array: array.T[..., np.asarray(indices)].T)

    def repeat(self, times: int) -> Self:
        """Repeat every path ``times`` times, copies side by side.

        Examples
        --------
        >>> State(np.array([[1.0], [2.0]])).repeat(2).prices.ravel().tolist()
        [1.0, 1.0, 2.0, 2.0]
        """
        times = checks.check_whole("times", times, least=1)
        return self._changed(lambda array: np.repeat(array.T, times, axis=-1).T)

    def like(self, array: Array) -> Self:
        """The same state in the array library and on the device of ``array``."""
        return self if is_numpy(array) else self._changed(lambda own: match(own.T, array).T)

    def _changed(self, change: Callable[[Array], Array]) -> Self:
        own = [item.name for item in fields(self) if item.name not in self.shared]
        return replace(self, **{name: change(getattr(self, name)) for name in own})


class Process(ABC):
    """A market model that moves paths of ``n_assets`` prices from one exercise date to the next.

    Models say how to start and how to advance; sampling is built on these two.
    """

    n_assets: int
    spot: ArrayLike
    #: Continuous dividend yields, of models that have them.
    dividend: Any = 0.0
    #: Whether steps are taken in the array library of the normals; otherwise in NumPy only.
    follows_arrays: bool = False
    #: Times and amounts per asset, in the order of time; see :func:`dividend_schedule`.
    cash_dividends: Any = ()
    #: Parts into which cash dividends cut an interval at the most; :meth:`for_grid` finds it.
    pieces: int = 1

    @property
    def normals_per_piece(self) -> int:
        """How many standard normals one path needs between two exercise or dividend dates."""
        return self.n_assets

    @property
    def normals_per_interval(self) -> int:
        """How many standard normals one path needs for one exercise interval."""
        return self.normals_per_piece * self.pieces

    def for_grid(self, grid: TimeGrid, *, tolerance: float = TOLERANCE) -> Self:
        """The same market, with the steps that it takes between these dates chosen.

        Sampling does this by itself. Do it before :meth:`advance`, or to see the steps.

        Parameters
        ----------
        grid
            The dates.
        tolerance
            Discretisation error to aim at, as a share of the price. Models that are sampled exactly have none.

        Examples
        --------
        >>> from mixtune_options import Heston
        >>> heston = Heston(spot=100, v0=0.04, v_mean=0.04, v_speed=2, v_vol=0.3, rho=-0.7)
        >>> heston.for_grid(TimeGrid(maturity=5, dates=1)).substeps
        21
        >>> heston.for_grid(TimeGrid(maturity=5, dates=10)).substeps
        3
        """
        times = [time for time, _ in self.cash_dividends]
        cuts = [sum(begin + SAME_TIME < t < end - SAME_TIME for t in times) for begin, end in pairwise(grid.times)]
        pieces = 1 + max(cuts)
        return self if pieces <= self.pieces else replace(self, pieces=pieces)  # type: ignore[type-var]

    def delayed(self, by: float) -> Self:
        """The same market, with the known dates of cash dividends and curves later by a time."""
        curves = {name: value for name, value in vars(self).items() if isinstance(value, TermStructure)}
        changes: dict[str, Any] = {name: curve.delayed(by) for name, curve in curves.items()}
        if self.cash_dividends:
            changes["cash_dividends"] = [(time + by, cash) for time, cash in self.cash_dividends]
        return replace(self, **changes) if changes else self  # type: ignore[type-var]

    @abstractmethod
    def start(self, n_paths: int) -> State:
        """Paths at time 0."""

    @abstractmethod
    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> State:
        """Advance without checking the arguments."""

    def _check_assets(self) -> int:
        """Check the parameters that all models of traded assets share: number of assets, prices and dividends."""
        n_assets = checks.check_whole("n_assets", self.n_assets, least=1)
        spot = per_asset("spot", self.spot, n_assets, least=0, strict=True)
        dividend = curve_per_asset("dividend", self.dividend, n_assets)
        cash, pieces = (
            dividend_schedule(self.cash_dividends, n_assets),
            checks.check_whole("pieces", self.pieces, least=1),
        )
        # Models are frozen for users.
        set_fields(self, spot=spot, dividend=dividend, cash_dividends=cash, pieces=pieces)
        return n_assets

    @staticmethod
    def _columns(values: ArrayLike, n_paths: int) -> Floats:
        """The same row of values for every path, with paths contiguous in memory."""
        return np.repeat(np.asarray(values)[:, None], checks.check_whole("n_paths", n_paths, least=1), axis=1).T

    def advance(self, state: State, *, begin: float, end: float, rate: float, normals: Floats) -> State:
        """Move paths over one exercise interval.

        Parameters
        ----------
        state
            Paths at time ``begin``, from ``start`` or ``advance`` of this process.
        begin, end
            The interval.
        rate
            Interest rate over the interval; prices drift at the rate less their dividend.
        normals
            Standard normals of shape (paths, normals_per_interval).

        Returns
        -------
        State
            The paths at time ``end``. The given state is left as it is, to be continued again.
        """
        own = type(self.start(1))
        if type(state) is not own:
            raise ParameterError(
                f"{type(self).__name__} continues a {own.__name__}; got {type(state).__name__}; begin with start()"
            )
        normals = np.asarray(normals, dtype=np.float64)
        if normals.shape != (shape := (state.n_paths, self.normals_per_interval)):
            raise ParameterError(f"normals must have shape {shape}, one row per path; got {normals.shape}")
        if not (0 <= begin < end < math.inf and math.isfinite(rate)):
            raise ParameterError(f"an interval needs 0 <= begin < end and a finite rate; got {begin}, {end}, {rate}")
        return self._move(state, begin=float(begin), end=float(end), rate=float(rate), normals=normals)

    def _move(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> State:
        """Advance over one interval, and let the prices fall by the cash dividends that are paid on the way."""
        due = [(t, cash) for t, cash in self.cash_dividends if begin + SAME_TIME < t <= end + SAME_TIME]
        width, used = normals.shape[1] // self.pieces, 0
        for time, cash in [*due, (end, None)]:
            until = end if time > end - SAME_TIME else time
            if until > begin:
                part = normals[:, used : used + width]
                state = self._step(state, begin=begin, end=until, rate=rate, normals=part)
                begin, used = until, used + width
            if cash is not None:
                state = replace(state, prices=(state.prices - match(cash, normals)).clip(0.0))
        return state

    def sample(self, n_paths: int, grid: TimeGrid, rng: np.random.Generator, **options: Any) -> Floats:
        """Simulate paths from time 0 to maturity.

        Parameters
        ----------
        n_paths
            How many.
        grid
            The dates and rates.
        rng
            Generator of the normals.
        **options
            ``antithetic``, ``sobol`` and ``chunk_paths`` as for :meth:`sample_with_noise`.

        Returns
        -------
        ndarray of shape (n_paths, n_dates + 1, n_assets)

        Examples
        --------
        >>> from mixtune_options import Heston
        >>> heston = Heston(spot=100, v0=0.01, v_mean=0.01, v_speed=2, v_vol=0.2, rho=-0.3, dividend=0.1, n_assets=2)
        >>> heston.sample(5, TimeGrid(maturity=3, dates=9, rate=0.05), np.random.default_rng(0)).shape
        (5, 10, 2)
        """
        return self.sample_with_hidden(n_paths, grid, rng, **options)[0]

    def sample_with_hidden(
        self, n_paths: int, grid: TimeGrid, rng: np.random.Generator, **options: Any
    ) -> tuple[Array, Array]:
        """Simulate paths as :meth:`sample` does, and record the hidden state (such as variances) as well.

        Parameters
        ----------
        n_paths, grid, rng
            As for :meth:`sample`.
        **options
            ``antithetic``, ``sobol``, ``chunk_paths`` and ``device`` as for :meth:`sample_with_noise`.

        Returns
        -------
        prices : ndarray of shape (n_paths, n_dates + 1, n_assets)
        hidden : ndarray of shape (n_paths, n_dates + 1, n_hidden)
            ``State.hidden`` at every date; without columns where a model has no hidden state.
        """
        prices, hidden, _ = self.sample_with_noise(n_paths, grid, rng, keep=False, **options)
        return prices, hidden

    def sample_with_noise(
        self,
        n_paths: int,
        grid: TimeGrid,
        rng: np.random.Generator,
        *,
        antithetic: bool = False,
        sobol: bool = False,
        chunk_paths: int | None = None,
        device: str | None = None,
        keep: bool = True,
    ) -> tuple[Array, Array, Array]:
        """Simulate as :meth:`sample_with_hidden` does, and keep :meth:`noise` of every interval as well.

        Parameters
        ----------
        n_paths, grid, rng
            As for :meth:`sample`.
        antithetic
            Whether the second half of the paths mirrors the first; ``n_paths`` must be even.
        sobol
            Whether to use scrambled Sobol points; best with a power of two for ``n_paths``.
        chunk_paths
            Paths simulated at a time. It bounds memory and changes nothing else.
        device
            "cuda", or "cpu" for PyTorch without one: the same normals are moved there first, and the paths are
            tensors on it.
        keep
            Whether to keep the noise.

        Returns
        -------
        prices, hidden
            As for :meth:`sample_with_hidden`.
        noise : ndarray of shape (n_paths, n_dates, kinds, n_assets), or None

        Examples
        --------
        >>> from mixtune_options import BlackScholes
        >>> grid, rng = TimeGrid(maturity=1, dates=3), np.random.default_rng(0)
        >>> BlackScholes(spot=100, volatility=0.2).sample_with_noise(5, grid, rng)[2].shape
        (5, 3, 1, 1)
        """
        self = self.for_grid(grid)
        shape = (checks.check_whole("n_paths", n_paths, least=1), grid.n_dates + 1)
        there = device if self.follows_arrays else None
        xp = np if there is None else torch_module()
        sizes = (self.n_assets, self.start(1).hidden.shape[1])
        prices, hidden = (xp.empty((*shape, size), dtype=xp.float64, device=there or "cpu") for size in sizes)
        noise = None
        how: dict[str, Any] = {"antithetic": antithetic, "sobol": sobol, "block_paths": chunk_paths}
        for rows, block in normal_blocks(n_paths, grid.n_dates, self.normals_per_interval, rng, **how):
            normals = to_device(block, there)
            for date, state in enumerate(self.states(grid, normals)):
                prices[rows, date], hidden[rows, date] = state.prices, state.hidden
            if keep:
                by_path = xp.moveaxis(self.noise(normals), -1, 0)
                if noise is None:
                    noise = xp.empty((n_paths, *by_path.shape[1:]), dtype=by_path.dtype, device=by_path.device)
                noise[rows] = by_path
        if there != device:
            prices, hidden = to_device(prices, device), to_device(hidden, device)
            noise = None if noise is None else to_device(noise, device)
        # One overflow makes the sum infinite or NaN, and a sum is quicker than a look at every value.
        if not math.isfinite(float(prices.sum()) + float(hidden.sum())):
            raise ParameterError(
                "the simulated paths overflow; check that rates, volatilities and variances are per year and "
                "not in percent, or use more substeps"
            )
        return prices, hidden, noise

    def noise(self, normals: Array) -> Array:
        """What drove each asset in each interval, as standard normals that do not depend on the past.

        Parameters
        ----------
        normals : array of shape (intervals, normals_per_interval, paths)

        Returns
        -------
        array of shape (intervals, kinds, n_assets, paths)
            One kind for prices, or two where variances have normals of their own; as many again for each piece into
            which cash dividends cut an interval.
        """
        intervals, count, paths = normals.shape
        assets = self.n_assets if count % self.n_assets == 0 else 1
        return normals.reshape(intervals, count // assets, assets, paths)

    def states(self, grid: TimeGrid, normals: Array) -> Iterator[State]:
        """Yield the states of one block of paths at time 0 and all dates; normals as (intervals, normals, paths)."""
        state = self.start(normals.shape[2]).like(normals)
        yield state
        for interval, Z in enumerate(normals):
            state = self._move(state, **grid.interval(interval), normals=Z.T)
            yield state


def per_asset(name: str, value: ArrayLike, n_assets: int, *, least: float = -math.inf, strict: bool = False) -> Floats:
    """``value`` as a read-only array of one number per asset, bounded as by :func:`numbers`.

    Examples
    --------
    >>> per_asset("spot", 100, 2).tolist()
    [100.0, 100.0]
    """
    array = numbers(name, value, least=least, strict=strict)
    if array.shape not in ((), (n_assets,)):
        raise ParameterError(f"{name} must be one number or {n_assets}, one per asset; got shape {array.shape}")
    return read_only(np.broadcast_to(array, (n_assets,)).copy())


@dataclass(frozen=True, eq=False)
class TermStructure:
    """A setting that changes with time, constant between the given times.

    Parameters
    ----------
    times
        When each value ends, increasing and above 0. The last value holds ever after.
    values
        One number per time, or one row per time with a number per asset.

    Examples
    --------
    >>> curve = TermStructure(times=[0.5, 1.0], values=[0.2, 0.3])
    >>> round(float(curve.integral(0.25, 2.0)), 12)
    0.5
    """

    times: ArrayLike
    values: ArrayLike

    def __post_init__(self) -> None:
        times, values = numbers("times", self.times, least=0, strict=True), numbers("values", self.values)
        if times.ndim != 1 or times.size == 0 or not np.all(np.diff(times) > 0):
            raise ParameterError(f"times of a term structure must be a list that increases; got {self.times!r}")
        if values.ndim not in (1, 2) or len(values) != times.size:
            raise ParameterError(f"a term structure needs one value per time, {times.size}; got shape {values.shape}")
        set_fields(self, times=read_only(times), values=read_only(values))

    def __mul__(self, factor: float) -> TermStructure:
        """The curve with all values multiplied."""
        return TermStructure(self.times, np.asarray(self.values) * factor)

    __rmul__ = __mul__

    def delayed(self, by: float) -> TermStructure:
        """The curve with all its times later by so much."""
        return TermStructure(np.asarray(self.times) + by, self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.values, dtype=dtype)

    def weights(self, begin: float, end: float) -> Floats:
        """How long each value holds between two times."""
        ends = np.append(np.asarray(self.times)[:-1], math.inf)
        begins = np.append(0.0, np.asarray(self.times)[:-1])
        return np.maximum(np.minimum(ends, end) - np.maximum(begins, begin), 0.0)

    def integral(self, begin: float, end: float) -> Floats:
        """Of the values over time, one number per asset."""
        return self.weights(begin, end) @ np.asarray(self.values)


def curve_per_asset(name: str, value: Any, n_assets: int, *, least: float = -math.inf) -> Floats | TermStructure:
    """``value`` as one number per asset, or as a term structure with one column per asset."""
    if not isinstance(value, TermStructure):
        return per_asset(name, value, n_assets, least=least)
    rows = [per_asset(name, row, n_assets, least=least) for row in np.asarray(value.values)]
    return TermStructure(value.times, np.stack(rows))


def mean_over(value: Any, begin: float, end: float) -> Floats:
    """The mean of a number per asset, or of a term structure, over an interval."""
    if isinstance(value, TermStructure):
        return value.integral(begin, end) / (end - begin)
    return np.asarray(value)


def dividend_schedule(value: Any, n_assets: int) -> tuple[tuple[float, Floats], ...]:
    """Cash dividends as (time, amount per asset) in the order of time.

    Examples
    --------
    >>> dividend_schedule([(0.75, 2.0), (0.25, 1.0)], 1)
    ((0.25, array([1.])), (0.75, array([2.])))
    """
    try:
        pairs = [(time, amount) for time, amount in value]
    except (TypeError, ValueError):
        raise ParameterError(f"cash_dividends must be pairs of time and amount; got {value!r}") from None
    times = [float(numbers("the time of a dividend", time, least=0, strict=True)) for time, _ in pairs]
    amounts = [per_asset("dividend", amount, n_assets, least=0) for _, amount in pairs]
    return tuple(sorted(zip(times, amounts), key=lambda pair: pair[0]))


def correlation_matrix(correlation: ArrayLike, n_assets: int) -> Floats | None:
    """The correlations of the assets, checked; None if the assets are independent.

    Examples
    --------
    >>> correlation_matrix(0.5, 2)
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    matrix = numbers("correlation", correlation)
    if matrix.shape not in ((), square := (n_assets, n_assets)):
        raise ParameterError(f"correlation must be one number or a matrix of shape {square}; got shape {matrix.shape}")
    if not np.all(np.abs(matrix) <= 1):
        raise ParameterError("correlation must lie between -1 and 1")
    if matrix.ndim == 0:
        matrix = np.where(np.eye(n_assets, dtype=bool), 1.0, matrix)
    if not np.allclose(matrix, matrix.T, rtol=0, atol=ROUNDING):
        raise ParameterError("correlation must be symmetric; pass the mean of the matrix and its transpose")
    if not np.allclose(np.diag(matrix), 1.0, rtol=0, atol=ROUNDING):
        raise ParameterError("correlation must have ones on its diagonal; pass volatilities as volatility")
    if np.array_equal(matrix, np.eye(n_assets)):
        return None
    smallest = np.linalg.eigvalsh(matrix)[0]
    if smallest < -ROUNDING * n_assets:
        hint = f"; one number for all pairs must be >= {-1 / (n_assets - 1):.6g}" if np.ndim(correlation) == 0 else ""
        raise ParameterError(
            f"correlation must be positive semi-definite; its smallest eigenvalue is {smallest:.3g}{hint}"
        )
    return matrix


def correlation_factor(matrix: Floats) -> Floats:
    """A matrix whose product with its transpose is the given one."""
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:  # singular: some asset is a combination of others
        eigenvalues, vectors = np.linalg.eigh(matrix)
        return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)), dtype=np.float64)


def joint_factor(correlation: ArrayLike, rho: Any, n_assets: int) -> Floats | None:
    """A factor of the correlation of the variances' noise and of the prices' own noise; None if all are independent.

    Prices W have the given correlation C, and ``B_i = rho_i W_i`` plus independent noise. The prices' own noise is what
    is left of W_i beside B_i.
    """
    matrix = correlation_matrix(correlation, n_assets)
    if matrix is None:
        return None
    rho = per_asset("rho", rho, n_assets)
    # The loading of W on B and on the rest: cross-correlations are products of loadings with C.
    loadings = np.concatenate([rho, np.sqrt(1.0 - rho**2)])
    joint = np.outer(loadings, loadings) * np.tile(matrix, (2, 2))
    same = np.tile(np.eye(n_assets, dtype=bool), (2, 2))
    return correlation_factor(np.where(same, np.eye(2 * n_assets), joint))


def correlated(factor: Floats | None, normals: Array) -> Array:
    """Independent normals (paths, k) with the correlation of a factor; None leaves them independent."""
    if factor is None:
        return normals
    return combine(factor, normals.T).T if is_numpy(normals) else normals @ match(factor.T, normals)


def normal_blocks(
    n_paths: int,
    n_intervals: int,
    per_interval: int,
    rng: np.random.Generator,
    *,
    antithetic: bool = False,
    sobol: bool = False,
    block_paths: int | None = None,
) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of paths with their standard normals, so that memory stays bounded however many paths there are.

    Parameters
    ----------
    n_paths, n_intervals, per_interval
        How many paths, intervals and normals per interval.
    rng
        Generator of the draws; for Sobol points, of their scrambling.
    antithetic
        Whether path ``n_paths / 2 + i`` mirrors path ``i``; the number of paths must be even.
    sobol
        Whether to use scrambled Sobol points; powers of two are the best numbers of paths for them.
    block_paths
        Paths in one block.

    Yields
    ------
    rows : slice
        Which paths.
    normals : ndarray of shape (n_intervals, per_interval, paths of the block)
        Paths vary fastest: whole rows of paths are what NumPy works through at full speed.

    Examples
    --------
    >>> (_, Z), (_, mirrored) = normal_blocks(4, 9, 2, np.random.default_rng(0), antithetic=True)
    >>> Z.shape, bool((mirrored == -Z).all())
    ((9, 2, 2), True)
    """
    n_paths = checks.check_whole("n_paths", n_paths, least=1)
    fitting = max(BLOCK_PATHS, BLOCK_NORMALS // (n_intervals * per_interval))
    step = fitting if block_paths is None else checks.check_whole("chunk_paths", block_paths, least=1)
    if not isinstance(rng, np.random.Generator):
        raise ParameterError(f"rng must be a generator such as numpy.random.default_rng(0); got {rng!r}")
    if antithetic and sobol:
        raise ParameterError("antithetic and sobol exclude each other; Sobol points are balanced already")
    if antithetic and n_paths % 2:
        raise ParameterError(f"antithetic paths come in pairs; pass an even n_paths, such as {n_paths + 1}")

    def pseudorandom(count: int) -> Floats:
        return np.ascontiguousarray(rng.standard_normal((count, n_intervals, per_interval)).transpose(1, 2, 0))

    draw = _sobol_normals(n_intervals, per_interval, rng) if sobol else pseudorandom
    count = n_paths // 2 if antithetic else n_paths
    for begin in range(0, count, step):
        rows = slice(begin, min(begin + step, count))
        block = draw(rows.stop - rows.start)
        yield rows, block
        if antithetic:
            yield slice(count + rows.start, count + rows.stop), -block


def _sobol_normals(n_intervals: int, per_interval: int, rng: np.random.Generator) -> Callable[[int], Floats]:
    """A function that draws the normals of the next so many paths from a scrambled Sobol sequence."""
    width = n_intervals * per_interval
    if width > qmc.Sobol.MAXDIM:
        raise ParameterError(
            f"Sobol points have at most {qmc.Sobol.MAXDIM} coordinates; {n_intervals} intervals with "
            f"{per_interval} normals each need {width}; use fewer substeps, or pseudo-random numbers"
        )
    # An integer seed means the same to every SciPy, old or new; a generator does not.
    seed = int(rng.integers(2**62))
    try:
        engine = qmc.Sobol(width, scramble=True, rng=seed)
    except TypeError:  # SciPy before 1.15
        engine = qmc.Sobol(width, scramble=True, seed=seed)
    directions = _brownian_directions(n_intervals)
    # SciPy warns if the first call does not ask for a power of two, so one point is always drawn ahead.
    ahead = engine.random(1)

    def draw(count: int) -> Floats:
        nonlocal ahead
        points = np.concatenate([ahead, engine.random(count)])
        ahead = points[count:].copy()
        Z = ndtri(points[:count] + HALF_CELL).T.reshape(n_intervals, -1)
        return combine(directions, Z).reshape(n_intervals, per_interval, count)

    return draw


def _brownian_directions(n_intervals: int) -> Floats:
    """Orthogonal matrix from principal components of a Brownian path to its standardised increments.

    Examples
    --------
    >>> Q = _brownian_directions(4)
    >>> np.allclose(Q @ Q.T, np.eye(4))
    True
    """
    index = np.arange(1, n_intervals + 1)
    variances, components = np.linalg.eigh(np.minimum.outer(index, index).astype(np.float64))
    paths = (components * np.sqrt(variances))[:, ::-1]
    paths *= np.where(paths.sum(axis=0) < 0, -1.0, 1.0)  # the sign LAPACK leaves open
    return np.diff(paths, axis=0, prepend=0.0)


def combine(weights: Floats, rows: Floats) -> Floats:
    """``weights @ rows`` for few rows with very many columns.

    In pieces, because one call would wake the linear algebra library's threads, which for this little work costs more
    than it saves, and several times more when other programs want the cores.

    Examples
    --------
    >>> combine(np.array([[1.0, -1.0]]), np.array([[5.0, 7.0], [2.0, 3.0]]))
    array([[3., 4.]])
    """
    combined = np.empty((weights.shape[0], rows.shape[1]))
    step = max(16, ONE_THREAD // max(1, weights.size))
    for begin in range(0, rows.shape[1], step):
        piece = slice(begin, begin + step)
        np.matmul(weights, rows[:, piece], out=combined[:, piece])
    return combined


# --- Gaussian models ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class BlackScholes(Process):
    """Lognormal prices, with volatilities that are constant or known functions of time.

    Parameters
    ----------
    spot
        Prices at time 0, > 0: one number, or one per asset.
    volatility
        Yearly volatilities, >= 0: one number, or one per asset; or a :class:`TermStructure`.
    dividend
        Continuous dividend yields: one number, or one per asset; or a :class:`TermStructure`.
    n_assets
        Number of assets.
    correlation
        Between the assets' returns: one number for all pairs, or a matrix.
    cash_dividends
        Pairs of time and amount (one number, or one per asset): the price falls by the amount at that time, at most to
        zero. An exercise at the same time receives the price after the fall.

    Notes
    -----
    Every interval is one exact draw, so there is no discretisation error whatever the dates. The exercise interval
    uses one normal per asset, and as many more for each cash dividend inside it.

    Examples
    --------
    >>> from mixtune_options import TimeGrid
    >>> process = BlackScholes(spot=[90, 100], volatility=0.2, dividend=0.1, n_assets=2, correlation=0.3)
    >>> process.sample(4, TimeGrid(maturity=3, dates=9, rate=0.05), np.random.default_rng(0)).shape
    (4, 10, 2)
    """

    spot: ArrayLike
    volatility: ArrayLike | TermStructure
    dividend: ArrayLike | TermStructure = 0.0
    n_assets: int = 1
    correlation: ArrayLike = 0.0
    cash_dividends: Any = ()
    pieces: int = 1
    _matrix: Floats | None = field(init=False, repr=False)
    _factor: Floats | None = field(init=False, repr=False)

    follows_arrays = True

    def __post_init__(self) -> None:
        n_assets = self._check_assets()
        volatility = curve_per_asset("volatility", self.volatility, n_assets, least=0)
        matrix = correlation_matrix(self.correlation, n_assets)
        factor = None if matrix is None else correlation_factor(matrix)
        set_fields(self, volatility=volatility, _matrix=matrix, _factor=factor)

    def start(self, n_paths: int) -> State:
        return State(self._columns(self.spot, n_paths))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> State:
        dividend, dt = mean_over(self.dividend, begin, end), end - begin
        volatility, factor = self._volatility_over(begin, end)
        normals = correlated(factor, normals)
        moves = normals * match(volatility * math.sqrt(dt), normals)
        moves += match((rate - dividend - 0.5 * volatility**2) * dt, normals)
        with np.errstate(over="ignore"):
            moves = np.exp(moves, out=moves) if is_numpy(moves) else namespace(moves).exp(moves)
            moves *= state.prices
        return State(moves)

    def total_volatility(self, begin: float, end: float) -> Floats:
        """Standard deviation of the log-prices' moves over an interval, one per asset."""
        return self._volatility_over(begin, end)[0] * math.sqrt(end - begin)

    def covariance(self, begin: float, end: float) -> Floats:
        """Covariance of the log-prices' moves over an interval, (assets, assets)."""
        volatility, factor = self._volatility_over(begin, end)
        loadings = np.diag(volatility) if factor is None else volatility[:, None] * factor
        return loadings @ loadings.T * (end - begin)

    def _volatility_over(self, begin: float, end: float) -> tuple[Floats, Floats | None]:
        """Volatilities that give the variance over an interval, and a factor of the correlation of the moves there."""
        if not isinstance(self.volatility, TermStructure):
            return np.asarray(self.volatility), self._factor
        values, weights = np.asarray(self.volatility.values), self.volatility.weights(begin, end)
        products = (values.T * weights) @ values  # of the volatilities of each pair, integrated
        total = np.sqrt(np.diag(products))
        volatility = total / math.sqrt(end - begin)
        if self._matrix is None:
            return volatility, None
        # Volatilities that change in different ways make assets less correlated over the interval than at each time.
        scale = np.where(total > 0, total, 1.0)
        together = np.where(np.eye(self.n_assets, dtype=bool), 1.0, self._matrix * products / np.outer(scale, scale))
        return volatility, correlation_factor(together)


@dataclass(frozen=True, eq=False)
class NoiseState(State):
    """Prices, and the normals that made them, of shape (paths, assets, dates so far), with the times of these dates."""

    noise: Floats
    times: Floats

    shared = frozenset({"times"})


@dataclass(frozen=True, eq=False, kw_only=True)
class FractionalBrownianMotion(Process):
    """Independent fractional Brownian motions, as they are or as exponents of prices.

    Parameters
    ----------
    hurst
        H between 0 and 1; 1/2 is Brownian motion.
    spot
        Where paths start: one number, or one per asset.
    volatility
        Factor of the motion, >= 0: one number, or one per asset.
    exponential
        Whether paths are ``spot * exp(volatility * B)`` rather than ``spot + volatility * B``.
    n_assets
        Number of independent motions.

    Notes
    -----
    There is no risk-neutral drift: these paths are not those of a traded asset (unless H = 1/2), and the rate of a
    grid only discounts.

    Examples
    --------
    >>> motion = FractionalBrownianMotion(hurst=0.3)
    >>> paths = motion.sample(20_000, TimeGrid(maturity=4, dates=8), np.random.default_rng(0), sobol=True)
    >>> bool(abs(paths[:, -1].var() / 4**0.6 - 1) < 0.02)
    True
    """

    hurst: float
    spot: ArrayLike = 0.0
    volatility: ArrayLike = 1.0
    exponential: bool = False
    n_assets: int = 1

    def __post_init__(self) -> None:
        hurst = checks.check_positive("hurst", self.hurst)
        if hurst >= 1:
            raise ParameterError(f"hurst must be between 0 and 1; got {self.hurst!r}")
        n_assets = checks.check_whole("n_assets", self.n_assets, least=1)
        spot = per_asset("spot", self.spot, n_assets)
        if self.exponential and not np.all(spot > 0):
            raise ParameterError(f"exponential paths need spot > 0; got {self.spot!r}")
        volatility = per_asset("volatility", self.volatility, n_assets, least=0)
        set_fields(self, hurst=hurst, spot=spot, volatility=volatility)

    def start(self, n_paths: int) -> NoiseState:
        prices = self._columns(self.spot, n_paths)
        return NoiseState(prices, np.empty((n_paths, self.n_assets, 0)), np.empty(0))

    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Array) -> NoiseState:
        assert isinstance(state, NoiseState)
        known = state.times[-1] if state.times.size else 0.0
        if begin != known:
            raise ParameterError(f"these paths are known up to time {known:g}; continue them from there")
        noise = np.concatenate([state.noise.T, normals.T[None]])
        times = np.append(state.times, end)
        row = _motion_factor(self.hurst, tuple(times.tolist()))[-1]
        motion = np.einsum("t,tdn->dn", row, noise)
        return NoiseState(self._prices(motion), noise.T, times)

    def states(self, grid: TimeGrid, normals: Array) -> Iterator[State]:
        # All dates in one product, rather than row by row.
        factor = _motion_factor(self.hurst, tuple(grid.times[1:].tolist()))
        motions = combine(factor, normals.reshape(grid.n_dates, -1)).reshape(normals.shape)
        yield State(self.start(normals.shape[2]).prices)
        for motion in motions:
            yield State(self._prices(motion))

    def _prices(self, motion: Floats) -> Floats:
        """Prices (paths, assets) from the motion (assets, paths)."""
        spot, moves = np.asarray(self.spot), motion.T * np.asarray(self.volatility)
        with np.errstate(over="ignore"):
            return spot * np.exp(moves) if self.exponential else spot + moves


@lru_cache(maxsize=256)
def _motion_factor(hurst: float, times: tuple[float, ...]) -> Floats:
    """Cholesky factor of the covariance at these times.

    Examples
    --------
    >>> np.allclose(_motion_factor(0.5, (1.0, 2.0)), [[1, 0], [1, 1]])
    True
    """
    t = np.array(times)
    power = t ** (2 * hurst)
    covariance = 0.5 * (power[:, None] + power - np.abs(t[:, None] - t) ** (2 * hurst))
    try:
        return read_only(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        raise ParameterError(
            f"the {t.size} dates are too close together to tell apart for hurst={hurst:g}; use fewer dates"
        ) from None
