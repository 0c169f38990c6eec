"""Tables with named columns, read through Arrow: one place that knows which columns are numbers.

pandas and polars frames, pyarrow tables and plain dicts of columns all become one pyarrow table; a column
then either turns into floats or is refused with its name, the number of rows concerned and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from mixtune.data._words import nearest, quoted
from mixtune.errors import DataError, ParameterError

__all__ = ["Table", "as_names", "as_table", "choose_inputs", "is_table", "to_matrix"]

Table: TypeAlias = Any
"""A ``pyarrow.Table``."""


def is_table(value: Any) -> bool:
    """Whether ``value`` has named columns: a frame, a pyarrow table or a dict."""
    return isinstance(value, dict | pa.Table) or hasattr(value, "iloc") or hasattr(value, "__arrow_c_stream__")


def as_table(value: Any, where: str) -> Table:
    """Turn a frame or a dict of columns into a pyarrow table.

    Examples
    --------
    >>> as_table({"x": [1, 2], "y": [3.0, 4.0]}, "the table").column_names
    ['x', 'y']
    """
    if not is_table(value):
        raise DataError(f"{where} has no named columns; pass a data frame, a pyarrow table or a dict of columns")
    try:
        if hasattr(value, "iloc"):
            # pa.table would keep a pandas index as one more column.
            table = pa.Table.from_pandas(value, preserve_index=False)
        else:
            table = pa.table(value)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{where} cannot be read as columns of one type each: {error}") from error
    check_names(table.column_names, where)
    return table


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse column names that occur twice."""
    repeated = sorted({name for name in names if list(names).count(name) > 1})
    if repeated:
        raise DataError(f"{where} has more than one column named {quoted(repeated)}; give each column its own name")


def as_names(value: str | Sequence[str], option: str) -> tuple[str, ...]:
    """Read an option that takes one column name or several."""
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ParameterError(f"{option}={value!r} must be a column name or distinct column names")
    return names


def choose_inputs(
    table: Table,
    *,
    targets: Sequence[str],
    domain: str | None,
    columns: str | Sequence[str] | None,
    where: str,
) -> tuple[str, ...]:
    """Pick the input columns: the given ones, or all but the targets and the domain labels.

    Examples
    --------
    >>> table = as_table({"x": [1], "z": [2], "y": [3], "school": ["a"]}, "the table")
    >>> choose_inputs(table, targets=["y"], domain="school", columns=None, where="the table")
    ('x', 'z')
    """
    taken = (*targets, *([] if domain is None else [domain]))
    chosen = None if columns is None else as_names(columns, "columns")
    for name in (*taken, *(chosen or ())):
        if name not in table.column_names:
            raise DataError(f'{where} has no column "{name}"; {nearest(name, table.column_names)}')
    if len(set(taken)) < len(taken):
        raise ParameterError(f'domain="{domain}" is also a target; pass the column that names the domains')
    if chosen is None:
        chosen = tuple(name for name in table.column_names if name not in taken)
    if both := [name for name in chosen if name in taken]:
        raise ParameterError(f"columns names {quoted(both)}, which is a target or the domain column; leave it out")
    if not chosen:
        raise DataError(f"{where} has no input columns besides {quoted(taken)}; add at least one")
    return chosen


def to_matrix(table: Table, names: Sequence[str], where: str) -> NDArray[Any]:
    """Stack the named columns into a float matrix, refusing whatever is not a number.

    Returns
    -------
    ndarray of shape (rows, len(names))
        float32 if all these columns are, else float64.

    Examples
    --------
    >>> to_matrix(as_table({"x": [1, 2], "z": [True, False]}, "the table"), ["x", "z"], "the table")
    array([[1., 1.],
           [2., 0.]])
    >>> to_matrix(as_table({"x": ["1.5", "?", "2"]}, "the table"), ["x"], "the table")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: column "x" of the table holds text: 1 of 3 rows is not a number (the first is "?" in data row 2); encode it as numbers, or leave it out by listing the columns to use
    """  # noqa: E501
    single = all(kinds.is_float32(table.schema.field(name).type) for name in names)
    matrix = np.empty((table.num_rows, len(names)), dtype=np.float32 if single else np.float64)
    for index, name in enumerate(names):
        matrix[:, index] = _numbers(table.column(name), f'column "{name}" of {where}')
    return matrix


def _numbers(column: Any, label: str) -> NDArray[Any]:
    """Return one column as an array of finite numbers."""
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if kinds.is_decimal(kind):
        column = column.cast(pa.float64())
    elif kinds.is_temporal(kind):
        raise DataError(f"{label} holds dates or times ({kind}); turn it into numbers, such as days since a fixed day")
    elif _is_text(kind):
        raise DataError(_describe_text(column, label))
    elif not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_null(kind)):
        raise DataError(f"{label} holds {kind}, not numbers; spread it over columns of numbers, or leave it out")
    missing = column.is_null(nan_is_null=True).to_numpy()
    if missing.any():
        raise DataError(f"{label} has {_count(missing, 'missing value')}; fill or drop these rows")
    values: NDArray[Any] = column.to_numpy()
    infinite = ~np.isfinite(values)
    if infinite.any():
        raise DataError(f"{label} has {_count(infinite, 'infinite value')}; fill or drop these rows")
    return values


def _is_text(kind: Any) -> bool:
    checks = (
        "is_string",
        "is_large_string",
        "is_string_view",
        "is_binary",
        "is_large_binary",
        "is_binary_view",
    )
    return any(getattr(kinds, check)(kind) for check in checks if hasattr(kinds, check))


def _count(flags: NDArray[np.bool_], noun: str) -> str:
    count = int(flags.sum())
    first = int(flags.argmax()) + 1
    return f"{count} {noun}{'s' if count > 1 else ''} in {len(flags)} rows (the first in data row {first})"


def _describe_text(column: Any, label: str) -> str:
    """Say how many entries of a text column are not numbers, and which comes first."""
    bad = [(row, text) for row, text in enumerate(column.to_pylist(), start=1) if not _is_number(text)]
    if not bad:
        return f"{label} holds numbers written as text; convert it to a number type first"
    row, text = bad[0]
    shown = "missing" if text is None else f'"{text}"'
    verdict = "is not a number" if len(bad) == 1 else "are not numbers"
    return (
        f"{label} holds text: {len(bad)} of {len(column)} rows {verdict} "
        f"(the first is {shown} in data row {row}); "
        "encode it as numbers, or leave it out by listing the columns to use"
    )


def _is_number(text: Any) -> bool:
    try:
        return text is not None and bool(np.isfinite(float(text)))
    except ValueError:
        return False
