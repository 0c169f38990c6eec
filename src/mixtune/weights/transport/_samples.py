"""Rows in, clean rows out: the one door through which samples enter the transport code.

Every sample is checked here and brought to float64. Then all samples of one computation are shifted by one vector and
divided by one power of two, so that their coordinates lie in [-1, 1]. Distances between points do not notice the
shift, the division is exact, and squares can neither overflow nor vanish: data near 1e150 or 1e-150, or far from the
origin, are as good as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array, is_torch_array
from numpy.typing import NDArray

from mixtune._array import Array, as_float64, to_numpy
from mixtune.errors import DataError

__all__ = ["Rows", "as_rows", "as_same_columns", "common_frame", "home_of", "restore"]

Rows = NDArray[np.float64]


def as_rows(sample: Any, name: str) -> Rows:
    """Check one sample and return it as a float64 array of shape (rows, columns)."""
    if np.ma.isMaskedArray(sample) and np.ma.is_masked(sample):
        raise DataError(f"{name} is a masked array with masked entries; drop or fill them first")
    rows = to_numpy(as_float64(sample, what=name))
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2:
        raise DataError(f"{name} has {rows.ndim} dimensions; pass shape (rows, columns), or (rows,) for one column")
    if rows.size == 0:
        raise DataError(f"{name} is empty (shape {rows.shape}); pass at least one row and one column")
    bad = int(rows.size - np.count_nonzero(np.isfinite(rows)))
    if bad:
        raise DataError(f"{name} has {bad} entries that are NaN or infinite; drop or impute those rows first")
    return rows


def as_same_columns(samples: Sequence[Any], names: Sequence[str]) -> list[Rows]:
    """Check several samples that have to live in one space."""
    checked = [as_rows(sample, name) for sample, name in zip(samples, names)]
    columns = checked[0].shape[1]
    for rows, name in zip(checked, names):
        if rows.shape[1] != columns:
            raise DataError(
                f"{name} has {rows.shape[1]} columns, {names[0]} has {columns}; pass the same columns in both"
            )
    return checked


def home_of(samples: Sequence[Any]) -> Array:
    """The first sample that is not NumPy's: an example of the library and device to look at pairs with; else None."""
    for sample in samples:
        if is_torch_array(sample) or is_cupy_array(sample):
            return sample
    return None


def common_frame(samples: Sequence[Rows]) -> tuple[list[Rows], int]:
    """Shift and scale all samples alike into [-1, 1]; also return the exponent of two that was divided out."""
    scaled, first = _divide(samples)
    low = np.min([rows.min(axis=0) for rows in scaled], axis=0)
    high = np.max([rows.max(axis=0) for rows in scaled], axis=0)
    middle = low + (high - low) / 2.0
    scaled, second = _divide([rows - middle for rows in scaled])
    return scaled, first + second


def restore(value: float, exponent: int) -> float:
    """Bring a distance back to the units of the data; refuse one that no float64 can hold."""
    with np.errstate(over="ignore"):
        restored = float(np.ldexp(value, exponent))
    if not np.isfinite(restored):
        raise DataError("the distance exceeds the largest float64; divide the data by a large constant first")
    return restored


def _divide(samples: Sequence[Rows]) -> tuple[list[Rows], int]:
    largest = max(float(np.abs(rows).max()) for rows in samples)
    exponent = int(np.frexp(largest)[1])
    return [np.ldexp(rows, -exponent) for rows in samples], exponent
