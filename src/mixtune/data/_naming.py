"""Columns by name: rows of inputs arranged as a transformer that remembers names wants them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from mixtune._messages import quoted
from mixtune.data._arrays import Array
from mixtune.errors import DataError

__all__ = ["arrange"]


def arrange(X: Array, columns: Sequence[str], wanted: Sequence[str], whose: str) -> Any:
    """Pick the wanted columns of ``X`` by name, in the wanted order.

    Parameters
    ----------
    X
        Rows by columns: an array or a tensor.
    columns
        The names of the columns of ``X``.
    wanted
        The names to pick.
    whose
        Who wants them, for the error.

    Returns
    -------
    DataFrame or ndarray
        A pandas frame, so that a transformer may go on choosing by name; without pandas, an array.

    Examples
    --------
    >>> arrange(np.array([[1.0, 2.0]]), ["size", "age"], ["age", "size"], "the scaler").to_numpy()
    array([[2., 1.]])
    >>> arrange(np.array([[1.0, 2.0]]), ["size", "age"], ["rooms"], "the scaler")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the scaler was fitted on columns that the data lack: "rooms"; the data have "size", "age"; fit it on these columns
    """  # noqa: E501
    places = {name: place for place, name in enumerate(columns)}
    if missing := [name for name in wanted if name not in places]:
        raise DataError(
            f"{whose} was fitted on columns that the data lack: {quoted(missing, 20)}; "
            f"the data have {quoted(columns, 20)}; fit it on these columns"
        )
    rows = np.asarray(X.detach().cpu()) if is_torch_array(X) else np.asarray(X)
    rows = rows[:, [places[name] for name in wanted]]
    try:
        pandas = import_module("pandas")
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=list(wanted))
