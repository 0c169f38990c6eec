"""What scikit-learn's checks would refuse without naming the column, or let through: frames and targets as given."""

from __future__ import annotations

from typing import Any

from mixtune.data._arrays import as_floats
from mixtune.data._tables import is_table
from mixtune.errors import DataError

__all__ = ["check_frame", "check_targets"]


def check_frame(X: Any) -> None:
    """Refuse a frame whose column names occur twice, or with text or dates, naming the columns.

    Examples
    --------
    >>> import pandas as pd
    >>> check_frame(pd.DataFrame({"area": [120.0], "sold": pd.to_datetime(["2026-01-01"])}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: column "sold" of X holds dates or times ...
    """
    names = [str(name) for name in getattr(X, "columns", ())]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f"X has more than one column named {', '.join(twice[:5])}; give each column its own name")
    if is_table(X):
        _check_numbers(X, "X")


def check_targets(y: Any) -> None:
    """Refuse text and dates as numbers to be predicted: dates would pass for nanoseconds.

    Examples
    --------
    >>> check_targets(["high", "low"])
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: y holds text, not numbers; encode it as numbers first
    """
    if isinstance(y, list | tuple) and any(isinstance(value, str) for value in y):
        raise DataError("y holds text, not numbers; encode it as numbers first")
    _check_numbers(y, "y")


def _check_numbers(value: Any, where: str) -> None:
    """Read what is not plainly numbers as such, which names what cannot be; scikit-learn sees to objects in arrays."""
    many: Any = getattr(value, "dtypes", None)
    types = list(many) if hasattr(many, "__iter__") else [getattr(value, "dtype", None)]
    if all(dtype is None or _is_number(dtype) for dtype in types):
        return
    if is_table(value) or getattr(types[0], "kind", None) not in ("O", "c"):
        as_floats(value, where, copy=False)


def _is_number(dtype: Any) -> bool:
    """Whether a type of NumPy, pandas or polars holds numbers only."""
    kind = getattr(dtype, "kind", None)
    return kind in "biuf" if kind is not None else bool(getattr(dtype, "is_numeric", bool)())
