"""Validation of what users pass, where scikit-learn's own checks would not name the column or would let it through."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from mixtune._array import MOST_FOCAL, computed
from mixtune.data import as_floats, check_names, is_table, known_frame
from mixtune.errors import DataError


def check_frame(X: Any, *, most: int = MOST_FOCAL) -> Any:
    """Return ``X`` in memory; raise for repeated column names and for columns of text or dates.

    A Dask collection may have up to ``most`` rows.

    Examples
    --------
    >>> import pandas as pd
    >>> check_frame(pd.DataFrame({"area": [120.0], "sold": pd.to_datetime(["2026-01-01"])}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: column "sold" of X holds dates or times ...
    """
    X = known_frame(computed(X, most=most)[0], "X")
    names = [str(name) for name in getattr(X, "column_names", getattr(X, "columns", ()))]
    check_names(names, "X")
    _check_numbers(X, "X")
    return X


def check_new(model: BaseEstimator, X: Any) -> np.ndarray[Any, Any]:
    """Validated rows to predict; they must have the columns that the model was fitted to."""
    with within_bounds("X"):
        return validate_data(model, check_frame(X, most=sys.maxsize), reset=False, dtype=np.float64)


@contextmanager
def within_bounds(where: str) -> Iterator[None]:
    """Turn the OverflowError of integers beyond float64 into a clear error."""
    try:
        yield
    except OverflowError as error:
        raise DataError(f"{where} holds whole numbers beyond 1e308; rescale them") from error


def check_targets(y: Any) -> None:
    """Raise for targets of text or dates; NumPy would read dates as numbers of days or nanoseconds.

    Examples
    --------
    >>> check_targets(["high", "low"])
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: y holds text, not numbers; encode it as numbers first
    """
    _check_numbers(y, "y")


def _check_numbers(value: Any, where: str) -> None:
    """Raise for a frame, column or array that does not hold numbers; scikit-learn checks everything else."""
    if isinstance(value, list | tuple | pa.Array | pa.ChunkedArray):
        try:
            value = np.asarray(value)
        except (TypeError, ValueError):
            return
    if not _may_hold_others(value):
        return
    try:
        with within_bounds(where):
            as_floats(value, where, copy=False)
    except DataError:
        if not _turns_into_numbers(value):
            raise


def _may_hold_others(value: Any) -> bool:
    """Whether a value may hold anything but numbers: text, dates, objects of a frame."""
    many: Any = getattr(value, "dtypes", None)
    types = list(many) if hasattr(many, "__iter__") else [getattr(value, "dtype", None)]
    if is_table(value):
        return isinstance(value, pa.Table) or not all(_is_number(dtype) for dtype in types)
    return getattr(types[0], "kind", "") in ("U", "S", "M", "m")


def _is_number(dtype: Any) -> bool:
    """Whether a dtype of NumPy, pandas or polars is numeric."""
    kind = getattr(dtype, "kind", None)
    return kind in "biuf" if kind is not None else bool(getattr(dtype, "is_numeric", bool)())


def _turns_into_numbers(value: Any) -> bool:
    """Whether objects convert to finite numbers, as True and 10**30 do; dates do not count."""
    try:
        array = np.asarray(value)
        return array.dtype.kind not in "Mm" and bool(np.all(np.isfinite(array.astype(np.float64))))
    except (TypeError, ValueError, OverflowError):
        return False
