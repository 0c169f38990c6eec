"""Paths as the pricer sees them: prices, discounted payoffs, and what else may be observed.

They are simulated from a process, one run or several side by side, or observed: arrays and files in, checked arrays
out. Prices may be zero or negative; spreads and rates are.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mixtune import checks
from mixtune.arrays import to_numpy
from mixtune.errors import DataError
from mixtune_options._arrays import Array, Floats, all_finite, as_float64, match, namespace, to_device, torch_module
from mixtune_options._payoffs import PathPayoff, PayoffFunction
from mixtune_options._process import Process
from mixtune_options._settings import TimeGrid

ENDINGS = (".npy", ".csv", ".parquet")
#: Normals of one run from which threads that draw them are worth starting.
DRAWN_IN_THREADS = 100_000
#: Larger prices have no square in float64, or hardly one.
_LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class PathData:
    """Paths of one market regime; with one more axis in front, those of several runs side by side.

    Attributes
    ----------
    name : str
    prices : array (paths, dates + 1, assets)
    payoffs : array (paths, dates + 1)
        Discounted to time 0 with the regime's own rates.
    hidden : array (paths, dates + 1, k) or None
        Further observed state, such as variances.
    noise : array (paths, dates, kinds, assets) or None
        The normals that drove each interval, where kept; see :meth:`Process.noise`.
    """

    name: str
    prices: Array
    payoffs: Array
    hidden: Array | None = None
    noise: Array | None = None

    @classmethod
    def build(
        cls, name: str, prices: Array, *, grid: TimeGrid, payoff: PayoffFunction, hidden: Array | None = None
    ) -> PathData:
        """Check paths against the grid and discount their payoffs."""
        label = f'paths "{name}"'
        prices = _checked(as_float64(prices, label), label, grid.n_dates)
        # Payoffs of the path so far know their dates; others see prices only.
        amounts = payoff.along(prices, grid.times) if isinstance(payoff, PathPayoff) else payoff(prices)
        payoffs = match(amounts, prices) * match(grid.discount, prices)
        if payoffs.shape != prices.shape[:2] or not all_finite(payoffs):
            raise DataError(f"the payoff of {label} must be one finite number per path and date")
        if negative := int((payoffs < 0).sum()):
            raise DataError(
                f"{negative} payoffs of {label} are negative; nobody has to exercise: return max(payoff, 0)"
            )
        return cls(name, prices, payoffs, with_observed(payoff, prices, hidden, grid.times))

    @classmethod
    def joined(cls, parts: Sequence[PathData]) -> PathData:
        """Several sets of paths of one market as one."""
        if len(parts) == 1:
            return parts[0]
        return parts[0]._changed(lambda name: namespace(parts[0].prices).concat([getattr(p, name) for p in parts]))

    def in_runs(self, runs: int) -> PathData:
        """The paths cut into equal runs, one after the other, that lie side by side on a first axis."""
        return self._changed(lambda name: getattr(self, name).reshape(runs, -1, *getattr(self, name).shape[1:]))

    def __len__(self) -> int:
        """Number of paths (of each run)."""
        return int(self.payoffs.shape[-2])

    @property
    def runs(self) -> int | None:
        """How many runs lie side by side; None for the paths of a single one."""
        return int(self.payoffs.shape[0]) if self.payoffs.ndim == 3 else None

    @property
    def n_dates(self) -> int:
        return int(self.payoffs.shape[-1]) - 1

    @property
    def n_assets(self) -> int:
        return int(self.prices.shape[-1])

    def take(self, rows: Any) -> PathData:
        """Some of the paths (of each run), by slice or indices."""
        where = rows if self.runs is None else (slice(None), rows)
        return self._changed(lambda name: getattr(self, name)[where])

    def at(self, points: Any) -> PathData:
        """Paths of a single run at some of their points in time, without the noise between them."""
        return replace(self, noise=None)._changed(lambda name: getattr(self, name)[:, points])

    def fetched(self) -> PathData:
        """The same paths in NumPy."""
        return self._changed(lambda name: to_numpy(getattr(self, name)))

    def _changed(self, change: Callable[[str], Array]) -> PathData:
        hidden, noise = (None if getattr(self, name) is None else change(name) for name in ("hidden", "noise"))
        return PathData(self.name, change("prices"), change("payoffs"), hidden, noise)


def with_observed(
    payoff: PayoffFunction, prices: Array, hidden: Array | None, times: Floats | None = None
) -> Array | None:
    """The hidden state, and what else the payoff says that its value depends on."""
    if isinstance(payoff, PathPayoff):
        assert times is not None
        more = payoff.observed_along(prices, times)
    else:
        more = payoff.observed(prices) if hasattr(payoff, "observed") else None
    if more is None or hidden is None:
        return hidden if more is None else more
    return namespace(prices).concat([hidden, match(more, prices)], axis=-1)


def simulate(
    process: Process,
    payoff: PayoffFunction,
    grid: TimeGrid,
    *,
    paths: int,
    rng: np.random.Generator,
    name: str = "simulated",
    hidden: bool = True,
    noise: bool = False,
    **how: Any,
) -> PathData:
    """Paths of a process as the pricer wants them.

    ``hidden`` says whether the hidden state is observed, ``noise`` whether the normals are kept. Further options
    (``antithetic``, ``sobol``, ``device``) are those of :meth:`Process.sample_with_noise`.
    """
    prices, observed, kept = process.sample_with_noise(paths, grid, rng, keep=noise, **how)
    data = PathData.build(name, prices, grid=grid, payoff=payoff, hidden=observed if hidden else None)
    return replace(data, noise=kept)


def simulate_runs(
    process: Process,
    payoff: PayoffFunction,
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
    >>> from mixtune_options import BlackScholes, Put
    >>> rngs = [np.random.default_rng(seed) for seed in (0, 1)]
    >>> grid = TimeGrid(maturity=1.0, dates=3)
    >>> simulate_runs(BlackScholes(spot=100, volatility=0.2), Put(100), grid, paths=5, rngs=rngs).prices.shape
    (2, 5, 4, 1)
    """
    process = process.for_grid(grid)
    there = device if process.follows_arrays else None
    shape = (len(rngs), paths, grid.n_dates, process.normals_per_interval)
    if there is not None and there.startswith("cuda"):
        # Pinned memory, which a CUDA device reads without a detour.
        Z = torch_module().empty(shape, dtype=torch_module().float64, pin_memory=True).numpy()
    else:
        Z = np.empty(shape)
    if Z[0].size < DRAWN_IN_THREADS:
        for rng, out in zip(rngs, Z):
            rng.standard_normal(out=out)
    else:
        with ThreadPoolExecutor() as threads:  # NumPy draws without holding the interpreter
            list(threads.map(lambda rng, out: rng.standard_normal(out=out), rngs, Z))
    normals = to_device(Z, there)
    xp = namespace(normals)
    by_date = xp.reshape(xp.permute_dims(normals, (2, 3, 0, 1)), (*shape[2:], -1))
    prices = xp.stack([state.prices for state in process.states(grid, by_date)], axis=1)
    if there != device:
        prices = to_device(prices, device)
    return PathData.build(name, prices, grid=grid, payoff=payoff).in_runs(len(rngs))


def observed_paths(source: Any, *, dates: int | None = None) -> Floats:
    """Read paths from an array or from one file.

    Parameters
    ----------
    source
        Array of shape (paths, dates + 1) or (paths, dates + 1, assets), the first point being today; or a file:
        ``.npy`` with such an array, ``.csv`` or ``.parquet`` with one path per row, one point in time per column
        and one asset. A first line of a CSV file that is not numbers is its header.
    dates
        How many exercise dates after today there must be; any number from 1 if left out.

    Returns
    -------
    ndarray of shape (paths, dates + 1, assets)
        float64, a copy.

    Raises
    ------
    DataError
        If paths have different lengths, the wrong number of dates, or values that are missing or infinite.

    Examples
    --------
    >>> observed_paths([[100, 101, 99], [100, 98, 97]]).shape
    (2, 3, 1)
    >>> observed_paths([[100, 101, float("nan")], [100, 98, 97]])
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: 1 of 6 values of the paths is NaN or infinite, the first in path 0 at point 2; fill or drop such paths
    """  # noqa: E501
    if dates is not None:
        checks.check_whole("dates", dates, least=1)
    where = f'"{Path(source)}"' if isinstance(source, str | os.PathLike) else "the paths"
    read = _read(Path(source)) if isinstance(source, str | os.PathLike) else source
    return _checked(_as_array(read, where), where, dates)


def observed_folder(folder: str | os.PathLike[str], *, dates: int | None = None) -> dict[str, Floats]:
    """Read all path files of a folder, one dataset each.

    Parameters
    ----------
    folder
        Holds ``.npy``, ``.csv`` and ``.parquet`` files as for :func:`observed_paths`; others are skipped.
    dates
        As for :func:`observed_paths`. All files must have the same number of assets.

    Returns
    -------
    dict of str to ndarray of shape (paths, dates + 1, assets)
        By the files' names without their endings, in alphabetical order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "calm.csv").write_text("100,101,102\\n100,99,100\\n")
    ...     np.save(Path(folder, "storm.npy"), np.ones((5, 3)))
    ...     {name: paths.shape for name, paths in observed_folder(folder).items()}
    {'calm': (2, 3, 1), 'storm': (5, 3, 1)}
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f'"{root}" is not a folder; check the path, or read one file with observed_paths')
    files = sorted(path for path in root.iterdir() if path.suffix.lower() in ENDINGS and path.is_file())
    if not files:
        raise DataError(f'"{root}" holds no paths; put files ending in {", ".join(ENDINGS)} there')
    found: dict[str, Floats] = {}
    for path in files:
        if path.stem in found:
            raise DataError(f'"{root}" holds two files named "{path.stem}"; rename or move one of them')
        found[path.stem] = observed_paths(path, dates=dates)
        first, paths = next(iter(found.values())), found[path.stem]
        if paths.shape[2] != first.shape[2]:
            raise DataError(
                f'"{path.name}" has {paths.shape[2]} assets, "{files[0].name}" has {first.shape[2]}; use the same'
            )
    return found


def _read(path: Path) -> Any:
    """What one file holds, not checked yet."""
    if path.is_dir():
        raise DataError(f'"{path}" is a folder; read all its files with observed_folder')
    if not path.is_file():
        raise DataError(f'"{path}" is not a file; check the path')
    ending = path.suffix.lower()
    if ending == ".npy":
        try:
            return np.load(path, allow_pickle=False)
        except (OSError, EOFError, ValueError) as error:
            raise DataError(f'"{path}" cannot be read as an array of numbers: {error}') from error
    if ending == ".csv":
        return _read_csv(path)
    if ending == ".parquet":
        return _read_parquet(path)
    raise DataError(f'"{path}" is of an unknown kind; its name must end in one of {", ".join(ENDINGS)}')


def _read_csv(path: Path) -> Any:
    """One path per line; empty cells become NaN, to be counted later."""
    paths = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, cells in enumerate(csv.reader(file), start=1):
                try:
                    paths.append([float(cell) if cell.strip() else np.nan for cell in cells])
                except ValueError as error:
                    if number > 1:  # the first line may be a header
                        raise DataError(f'"{path}", line {number}: {error}; write numbers only') from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f'"{path}" cannot be read as CSV: {error}') from error
    return [numbers for numbers in paths if numbers] or np.empty((0, 2))


def _read_parquet(path: Path) -> Floats:
    """One path per row, columns in their order; nulls become NaN, to be counted later."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f'"{path}" cannot be read as PARQUET: {error}') from error
    if table.num_rows == 0:
        raise DataError(f'"{path}" has no rows; leave it out')
    points = []
    for name, column in zip(table.column_names, table.columns):
        values = column.to_numpy()
        if values.dtype.kind not in "fiu":
            raise DataError(
                f'column "{name}" of "{path}" holds {column.type}, not numbers; keep only prices, a column per date'
            )
        points.append(values.astype(np.float64))
    return np.stack(points, axis=1)


def _as_array(source: Any, where: str) -> Floats:
    """A new float array, or an error about the first path that does not fit."""
    try:
        raw = np.asarray(source)
    except ValueError:
        lengths = [len(row) if hasattr(row, "__len__") else 1 for row in source]
        odd = next((i for i, length in enumerate(lengths) if length != lengths[0]), 0)
        raise DataError(
            f"{where} differ in length: path {odd} has {lengths[odd]} points in time, path 0 has {lengths[0]}; cut them"
        ) from None
    if raw.dtype.kind not in "fiu":
        raise DataError(f"{where} must be numbers of shape (paths, dates + 1[, assets]); got dtype {raw.dtype}")
    return raw.astype(np.float64)


def _checked(paths: Array, where: str, dates: int | None) -> Array:
    """The paths with three axes, none of them too short, and only finite values."""
    if paths.ndim == 2:
        paths = paths[:, :, None]
    if paths.ndim != 3:
        raise DataError(f"{where} must have shape (paths, dates + 1) or (paths, dates + 1, assets); got {paths.shape}")
    count, points, assets = paths.shape
    if count == 0 or assets == 0 or points < 2:
        raise DataError(
            f"{where} must hold at least one path and one asset, and today and at least one date; got {points} points "
            f"in time, the second axis (the columns of a file) of the shape {paths.shape}"
        )
    if dates is not None and points != dates + 1:
        raise DataError(
            f"{where} must hold today and {dates} dates, {dates + 1} points in time; got {points}; cut the paths, "
            f"or use a grid with {points - 1} dates"
        )
    if not all_finite(paths):
        bad = np.argwhere(~np.isfinite(to_numpy(paths)))
        verb = "is" if len(bad) == 1 else "are"
        raise DataError(
            f"{len(bad)} of {count * points * assets} values of {where} {verb} NaN or infinite, the first in path "
            f"{bad[0][0]} at point {bad[0][1]}; fill or drop such paths"
        )
    if (largest := float(to_numpy(abs(paths).max()))) > _LARGEST:
        finding = f"prices of {where} reach {largest:.0e}, and their squares are beyond float64"
        raise DataError(f"{finding}; pass them in a larger unit")
    return paths
