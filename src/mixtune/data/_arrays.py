"""From whatever the user holds to a float array: the first thing that happens to any data.

Lists, NumPy arrays, pandas and polars frames, pyarrow tables and PyTorch tensors come in; a float array comes
out, NumPy unless a tensor came in. Everything that cannot be read as numbers is refused here, with its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_torch_array

from mixtune.data._tables import as_table, is_table, to_matrix
from mixtune.errors import DataError

__all__ = ["Array", "as_floats", "check_finite"]

Array: TypeAlias = Any
"""A NumPy array or a PyTorch tensor; the type checker cannot know which, the code never has to."""


def as_floats(value: Any, where: str, *, copy: bool) -> tuple[Array, tuple[str, ...] | None]:
    """Read ``value`` as a float array and return it with its column names, where it has any.

    Parameters
    ----------
    value
        A list, NumPy array, frame, series, pyarrow table or PyTorch tensor.
    where
        How an error names the data, such as ``'X of domain "a"'``.
    copy
        Whether the result must own its memory. Without it, an array that fits already is passed on as it is.

    Returns
    -------
    tuple
        The array (float32 stays float32, all else becomes float64), and the names or ``None``.

    Examples
    --------
    >>> as_floats([[1, 2], [3, 4]], "X", copy=True)
    (array([[1., 2.],
           [3., 4.]]), None)
    """
    if is_torch_array(value):
        return _from_tensor(value, where, copy=copy), None
    if is_series := hasattr(value, "to_frame"):
        value = value.to_frame()
    if is_table(value):
        table = as_table(value, where)
        matrix = to_matrix(table, table.column_names, where)
        return (matrix[:, 0] if is_series else matrix), tuple(table.column_names)
    return _from_numpy(value, where, copy=copy), None


def _from_tensor(value: Array, where: str, *, copy: bool) -> Array:
    xp = array_namespace(value)
    if xp.isdtype(value.dtype, "complex floating"):
        raise DataError(f"{where} holds complex numbers; pass real ones, such as their real and imaginary parts")
    dtype = value.dtype if value.dtype in (xp.float32, xp.float64) else xp.float64
    value = value.detach().to(dtype)
    return (value.clone() if copy else value).contiguous()


def _from_numpy(value: Any, where: str, *, copy: bool) -> Array:
    if hasattr(value, "toarray"):
        raise DataError(f"{where} is sparse; pass a dense array, such as its .toarray()")
    try:
        if np.ma.isMaskedArray(value):
            # np.asarray would drop the mask and let the values under it through.
            value = np.ma.filled(value.astype(np.float64), np.nan)
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        if array.dtype.kind == "O" and any(type(one) is int and not -(2**63) <= one < 2**64 for one in array.flat):
            raise DataError(f"{where} holds whole numbers beyond 64 bits; pass floats, rescaled where beyond 1e308")
        kind = _KINDS.get(array.dtype.kind, "objects")
        raise DataError(f"{where} holds {kind}, not numbers; encode it as numbers first")
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    return np.array(array, dtype=dtype, order="C") if copy else np.ascontiguousarray(array, dtype=dtype)


_KINDS = {"U": "text", "S": "text", "T": "text", "M": "dates", "m": "durations", "c": "complex numbers"}


def check_finite(matrix: Array, where: str, columns: Sequence[str] | None = None) -> None:
    """Refuse NaN and infinite values, saying how many there are and in which columns.

    Parameters
    ----------
    matrix
        A float array of two dimensions.
    where
        How the error names the data.
    columns
        The names of the columns; their positions stand in when there are none.

    Examples
    --------
    >>> check_finite(np.array([[1.0, np.nan], [2.0, np.inf]]), 'X')
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: X has 2 values that are NaN or infinite, in column 1; drop or fill these rows
    """
    xp = array_namespace(matrix)
    finite = xp.isfinite(matrix)
    if bool(xp.all(finite)):
        return
    counts = xp.sum(xp.astype(~finite, xp.int64), axis=0).tolist()
    bad = [index for index, count in enumerate(counts) if count]
    shown = ", ".join(f'"{columns[index]}"' if columns else str(index) for index in bad[:5])
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    total = sum(counts)
    values = "1 value that is" if total == 1 else f"{total} values that are"
    raise DataError(
        f"{where} has {values} NaN or infinite, in column{'s' if len(bad) > 1 else ''} {shown}{more}; "
        "drop or fill these rows"
    )
