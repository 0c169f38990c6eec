"""Paths that were observed or simulated elsewhere: arrays and files in, checked arrays out.

Whatever the source, the result has the shape a process's ``sample`` returns, (paths, dates + 1, assets), and only
finite numbers. Prices may be zero or negative; spreads and rates are.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

from mixtune._checks import check_whole
from mixtune.data import read_table
from mixtune.errors import DataError

__all__ = ["observed_folder", "observed_paths"]

Floats = np.ndarray[Any, Any]

ENDINGS = (".npy", ".csv", ".parquet")


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
    mixtune.errors.DataError: 1 of 6 values of the paths is NaN or infinite, the first in path 0 at point 2; fill it, or drop its path
    """  # noqa: E501
    if dates is not None:
        check_whole("dates", dates, least=1)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _checked(_read(path), f'"{path}"', dates)
    return _checked(_as_array(source, "the paths"), "the paths", dates)


def observed_folder(folder: str | os.PathLike[str], *, dates: int | None = None) -> dict[str, Floats]:
    """Read all path files of a folder, one dataset each.

    Parameters
    ----------
    folder
        Holds ``.npy``, ``.csv`` and ``.parquet`` files as for :func:`observed_paths`; others are passed over.
    dates
        As for :func:`observed_paths`. All files must have the same number of dates and of assets.

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
        if paths.shape[1:] != first.shape[1:]:
            raise DataError(
                f'"{path.name}" has {paths.shape[1] - 1} dates and {paths.shape[2]} assets, "{files[0].name}" has '
                f"{first.shape[1] - 1} and {first.shape[2]}; cut them to the same"
            )
    return found


def _read(path: Path) -> Floats:
    """The numbers of one file, not checked yet."""
    if path.is_dir():
        raise DataError(f'"{path}" is a folder; read all its files with observed_folder')
    if not path.is_file():
        raise DataError(f'"{path}" is not a file; check the path')
    ending = path.suffix.lower()
    if ending == ".npy":
        try:
            return _as_array(np.load(path, allow_pickle=False), f'"{path}"')
        except (OSError, EOFError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f'"{path}" cannot be read as an array of numbers: {error}') from error
    if ending == ".csv":
        return _read_csv(path)
    if ending == ".parquet":
        return _read_parquet(path)
    raise DataError(f'"{path}" is of an unknown kind; the name must end in one of {", ".join(ENDINGS)}')


def _read_csv(path: Path) -> Floats:
    """One path per line; empty cells become NaN, to be counted later."""
    paths: list[list[float]] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        try:
            for cells in lines:
                if not cells:
                    continue
                try:
                    numbers = [float(cell) if cell.strip() else np.nan for cell in cells]
                except ValueError as error:
                    if not paths and lines.line_num == 1:
                        continue  # a header
                    raise DataError(f'"{path}", line {lines.line_num}: {error}; write numbers only') from None
                if paths and len(numbers) != len(paths[0]):
                    raise DataError(
                        f'"{path}", line {lines.line_num} has {len(numbers)} points in time, the first path has '
                        f"{len(paths[0])}; cut all paths to the same dates"
                    )
                paths.append(numbers)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f'"{path}" cannot be read as CSV: {error}') from error
    return np.array(paths, dtype=np.float64).reshape(len(paths), -1) if paths else np.empty((0, 0))


def _read_parquet(path: Path) -> Floats:
    """One path per row, columns in their order; nulls become NaN, to be counted later."""
    table = read_table(path)
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
        if raw.dtype.kind not in "fiu":
            raise TypeError(f"dtype {raw.dtype}")
        return np.array(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} {_complaint(source, error)}") from None


def _complaint(source: Any, error: Exception) -> str:
    try:
        lengths = [len(row) for row in source]
    except TypeError:
        lengths = []
    for index, length in enumerate(lengths):
        if length != lengths[0]:
            return f"differ in length: path {index} has {length} points in time, path 0 has {lengths[0]}; cut them"
    return f"must be numbers of shape (paths, dates + 1) or (paths, dates + 1, assets): {error}"


def _checked(paths: Floats, where: str, dates: int | None) -> Floats:
    """The paths with three axes, none of them too short, and only finite values."""
    if paths.ndim == 2:
        paths = paths[:, :, None]
    if paths.ndim != 3:
        raise DataError(f"{where} must have shape (paths, dates + 1) or (paths, dates + 1, assets); got {paths.shape}")
    if paths.shape[0] == 0 or paths.shape[2] == 0:
        raise DataError(f"{where} must hold at least one path and one asset; got shape {paths.shape}")
    if paths.shape[1] < 2:
        raise DataError(
            f"{where} must hold today and at least one date; got {paths.shape[1]} points in time, "
            "which should be the second axis (the columns of a file)"
        )
    if dates is not None and paths.shape[1] != dates + 1:
        raise DataError(f"{where} must hold today and {dates} dates, {dates + 1} points in time; got {paths.shape[1]}")
    bad = ~np.isfinite(paths)
    if bad.any():
        count, (path, point, _) = int(bad.sum()), np.argwhere(bad)[0]
        is_are, fill = ("is", "fill it, or drop its path") if count == 1 else ("are", "fill them, or drop these paths")
        raise DataError(
            f"{count} of {bad.size} values of {where} {is_are} NaN or infinite, the first in path {path} at point "
            f"{point}; {fill}"
        )
    return paths
