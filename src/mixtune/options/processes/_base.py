"""What a market model must answer: where it starts, and where one exercise interval takes it.

A model is a frozen description; the :class:`State` carries everything the future depends on. Paths can therefore be
continued from any state, many times over, which is what nested simulation needs. Sampling whole paths is the same
step, repeated from the start.

Arrays have paths as their first axis but keep them contiguous in memory (Fortran order), because one NumPy
operation on many paths of one asset is far quicker than many operations on few assets of one path.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mixtune._checks import check_whole
from mixtune._device import to_device
from mixtune.errors import ParameterError
from mixtune.options._device import empty
from mixtune.options._grid import TimeGrid
from mixtune.options._normals import normal_blocks
from mixtune.options.processes._state import State

__all__ = ["Floats", "Process", "State", "per_asset"]

Floats = np.ndarray[Any, Any]


class Process(ABC):
    """A market model that moves paths of ``n_assets`` prices from one exercise date to the next.

    Models say how to start and how to advance; sampling is built on these two.
    """

    n_assets: int
    spot: ArrayLike

    @property
    def follows_arrays(self) -> bool:
        """Whether steps are taken in the array library of the normals; otherwise in NumPy only."""
        return False

    @property
    @abstractmethod
    def normals_per_interval(self) -> int:
        """How many standard normals one path needs for one exercise interval."""

    @abstractmethod
    def start(self, n_paths: int) -> State:
        """Paths at time 0."""

    @abstractmethod
    def _step(self, state: State, *, begin: float, end: float, rate: float, normals: Floats) -> State:
        """Advance without checking the arguments."""

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
        if normals.shape != (state.n_paths, self.normals_per_interval):
            raise ParameterError(
                f"normals must have shape ({state.n_paths}, {self.normals_per_interval}), one row per path and one "
                f"column per normal of an interval; got {normals.shape}"
            )
        if not (0 <= begin < end < math.inf and math.isfinite(rate)):
            raise ParameterError(f"an interval needs 0 <= begin < end and a finite rate; got {begin}, {end}, {rate}")
        return self._step(state, begin=float(begin), end=float(end), rate=float(rate), normals=normals)

    def walk(self, state: State, grid: TimeGrid, normals: Floats, *, first: int = 0) -> Iterator[State]:
        """Continue paths from a date of the grid, yielding the state at each following date.

        Parameters
        ----------
        state
            Paths at date ``first``.
        grid
            The dates and rates.
        normals
            Of shape (paths, intervals, normals_per_interval): as many intervals as are to be walked.
        first
            Index of the date to start from.

        Examples
        --------
        >>> from mixtune.options.processes import BlackScholes
        >>> process, grid = BlackScholes(spot=100, volatility=0.2), TimeGrid(maturity=1, dates=4)
        >>> Z = np.random.default_rng(0).standard_normal((3, 4, 1))
        >>> *_, last = process.walk(process.start(3), grid, Z)
        >>> bool(np.allclose(last.prices, process.sample(3, grid, np.random.default_rng(0))[:, -1]))
        True
        """
        first = check_whole("first", first)
        if normals.ndim != 3 or first + normals.shape[1] > grid.n_dates:
            raise ParameterError(
                f"from date {first} of {grid.n_dates}, at most {grid.n_dates - first} intervals follow; "
                f"got normals of shape {normals.shape}"
            )
        for offset in range(normals.shape[1]):
            begin, end = grid.times[first + offset : first + offset + 2]
            rate = grid.rates[first + offset]
            state = self.advance(state, begin=begin, end=end, rate=rate, normals=normals[:, offset])
            yield state

    def sample(
        self,
        n_paths: int,
        grid: TimeGrid,
        rng: np.random.Generator,
        *,
        antithetic: bool = False,
        sobol: bool = False,
        chunk_paths: int | None = None,
    ) -> Floats:
        """Simulate paths from time 0 to maturity.

        Parameters
        ----------
        n_paths
            How many.
        grid
            The dates and rates.
        rng
            Generator of the normals.
        antithetic
            Whether the second half of the paths mirrors the first; ``n_paths`` must be even.
        sobol
            Whether to use scrambled Sobol points; best with a power of two for ``n_paths``.
        chunk_paths
            Paths simulated at a time. It bounds memory and changes nothing else.

        Returns
        -------
        ndarray of shape (n_paths, n_dates + 1, n_assets)

        Examples
        --------
        >>> from mixtune.options.processes import Heston
        >>> heston = Heston(spot=100, v0=0.01, v_mean=0.01, v_speed=2, v_vol=0.2, rho=-0.3, dividend=0.1, n_assets=2)
        >>> heston.sample(5, TimeGrid(maturity=3, dates=9, rate=0.05), np.random.default_rng(0)).shape
        (5, 10, 2)
        """
        paths = np.empty((check_whole("n_paths", n_paths, least=1), grid.n_dates + 1, self.n_assets))
        for rows, date, state in self._simulate(n_paths, grid, rng, antithetic, sobol, chunk_paths):
            paths[rows, date] = state.prices
        return _finite(paths)

    def sample_with_hidden(
        self,
        n_paths: int,
        grid: TimeGrid,
        rng: np.random.Generator,
        *,
        antithetic: bool = False,
        sobol: bool = False,
        chunk_paths: int | None = None,
        device: str | None = None,
    ) -> tuple[Floats, Floats]:
        """Simulate paths as :meth:`sample` does, and record the hidden state (such as variances) as well.

        With a ``device`` ("cuda", or "cpu" for PyTorch without one) the same normals are moved there first, and the
        paths are tensors on it.

        Returns
        -------
        prices : ndarray of shape (n_paths, n_dates + 1, n_assets)
        hidden : ndarray of shape (n_paths, n_dates + 1, n_hidden)
            ``State.hidden`` at every date; without columns where a model hides nothing.
        """
        shape = (check_whole("n_paths", n_paths, least=1), grid.n_dates + 1)
        there = device if self.follows_arrays else None
        prices, hidden = (empty((*shape, k), there) for k in (self.n_assets, self.start(1).hidden.shape[1]))
        for rows, date, state in self._simulate(n_paths, grid, rng, antithetic, sobol, chunk_paths, there):
            prices[rows, date], hidden[rows, date] = state.prices, state.hidden
        if there != device:
            prices, hidden = to_device(prices, device), to_device(hidden, device)
        return _finite(prices), _finite(hidden)

    def _simulate(
        self,
        n_paths: int,
        grid: TimeGrid,
        rng: np.random.Generator,
        antithetic: bool,
        sobol: bool,
        chunk: int | None,
        device: str | None = None,
    ) -> Iterator[tuple[slice, int, State]]:
        """Yield which paths, which date, and their state there."""
        options: dict[str, Any] = {"antithetic": antithetic, "sobol": sobol, "block_paths": chunk}
        for rows, normals in normal_blocks(n_paths, grid.n_dates, self.normals_per_interval, rng, **options):
            for date, state in enumerate(self.states(grid, to_device(normals, device))):
                yield rows, date, state

    def states(self, grid: TimeGrid, normals: Floats) -> Iterator[State]:
        """Yield the states of one block of paths at time 0 and all dates; normals as (intervals, normals, paths)."""
        state = self.start(normals.shape[2]).like(normals)
        yield state
        for interval, Z in enumerate(normals):
            begin, end = grid.times[interval : interval + 2].tolist()
            state = self._step(state, begin=begin, end=end, rate=float(grid.rates[interval]), normals=Z.T)
            yield state


def per_asset(name: str, value: ArrayLike, n_assets: int, *, least: float = -math.inf, strict: bool = False) -> Floats:
    """``value`` as a read-only array of one number per asset, each at least ``least`` (above it if ``strict``).

    Examples
    --------
    >>> per_asset("spot", 100, 2).tolist()
    [100.0, 100.0]
    """
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be a number, or one number per asset; got {value!r}") from None
    if array.shape not in ((), (n_assets,)):
        raise ParameterError(
            f"{name} must be one number or {n_assets}, one per asset; got shape {array.shape}; n_assets={n_assets}"
        )
    inside = array > least if strict else array >= least
    if not (np.all(np.isfinite(array)) and np.all(inside)):
        bound = "" if least == -math.inf else f" {'>' if strict else '>='} {least:g}"
        raise ParameterError(f"{name} must be finite{bound}; got {value!r}")
    array = np.broadcast_to(array, (n_assets,)).copy()
    array.flags.writeable = False
    return array


def constant_columns(values: Floats, n_paths: int) -> Floats:
    """The same row of values for every path, with paths contiguous in memory."""
    return np.repeat(values[:, None], check_whole("n_paths", n_paths, least=1), axis=1).T


def _finite(values: Floats) -> Floats:
    # One overflow makes the sum infinite or NaN, and a sum is quicker than a look at every value.
    if not math.isfinite(float(values.sum())):
        raise ParameterError(
            "the simulated paths overflow; check that rates, volatilities and variances are per year and "
            "not in percent, or use more substeps"
        )
    return values
