"""Tables with named columns, read through Arrow: one place that knows which columns are numbers.

pandas and polars frames, pyarrow tables and plain dicts of columns all become one pyarrow table; a column
then either turns into floats or is refused with its name, the number of rows concerned and what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from mixtune._messages import Wording, nearest, quoted
from mixtune.errors import DataError, ParameterError

__all__ = [
    "DECIMAL_COMMA",
    "LIST_COLUMNS",
    "Fault",
    "Table",
    "as_names",
    "as_table",
    "check_names",
    "choose_inputs",
    "count_flags",
    "describe_faults",
    "is_table",
    "is_text",
    "to_matrix",
]

Table: TypeAlias = Any
"""A ``pyarrow.Table``."""

DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")
"""A number such as 1,5."""

LIST_COLUMNS = ", or list the columns to use with columns=[...]"
"""What else one can do about an input column; a target cannot be left out."""

# What to_csv, read_csv and to_parquet of pandas call an index that nobody named.
_INDEX = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")
_MARKERS = {"", "?", "-", "--", ".", "*", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "missing", "unknown"}


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
    if isinstance(value, str | os.PathLike):
        raise DataError(f"{where} is given as {value!r}; pass a file to Domains.from_files, or read it first")
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
    otherwise: str | Wording = LIST_COLUMNS,
) -> tuple[str, ...]:
    """Pick the input columns: the given ones, or all but the targets and the domain labels.

    ``otherwise`` ends the error about a column of row numbers: what else can be done about it.

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
        if index := [name for name in chosen if _INDEX.fullmatch(name)]:
            raise DataError(
                "{where} has a column named {index}, which looks like row numbers written along; "
                "write the table with index=False{otherwise}",
                where=where,
                index=quoted(index),
                otherwise=otherwise,
            )
    if both := [name for name in chosen if name in taken]:
        raise ParameterError(f"columns names {quoted(both)}, which is a target or the domain column; leave it out")
    if not chosen:
        raise DataError(f"{where} has no input columns besides {quoted(taken)}; add at least one")
    return chosen


def to_matrix(table: Table, names: Sequence[str], where: str, otherwise: str | Wording = "") -> NDArray[Any]:
    """Stack the named columns into a float matrix, refusing whatever is not a number.

    Parameters
    ----------
    table, names
        The table and its columns to take.
    where
        How an error names the table.
    otherwise
        Ends an error: what else can be done about the columns, such as :data:`LIST_COLUMNS`.

    Returns
    -------
    ndarray of shape (rows, len(names))
        float32 if all these columns are, else float64.

    Raises
    ------
    DataError
        About all the columns that cannot be used, not only the first.

    Examples
    --------
    >>> to_matrix(as_table({"x": [1, 2], "z": [True, False]}, "the table"), ["x", "z"], "the table")
    array([[1., 1.],
           [2., 0.]])
    >>> to_matrix(as_table({"x": ["a", "b", "2"]}, "the table"), ["x"], "the table")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: column "x" of the table holds text: 2 of 3 rows are not numbers (the first is "a" in data row 1); encode text as numbers
    """  # noqa: E501
    single = all(kinds.is_float32(table.schema.field(name).type) for name in names)
    matrix = np.empty((table.num_rows, len(names)), dtype=np.float32 if single else np.float64)
    faults: dict[str, Fault] = {}
    for index, name in enumerate(names):
        values = _numbers(table.column(name))
        if isinstance(values, Fault):
            faults[name] = values
        else:
            matrix[:, index] = values
    if faults:
        raise DataError("{faults}{otherwise}", faults=describe_faults(faults, where), otherwise=otherwise)
    return matrix


class Fault(NamedTuple):
    """Why a column cannot be used, and what to do about it."""

    finding: str
    remedy: str
    alternative: str = ""


def describe_faults(faults: dict[str, Fault], where: str, limit: int = 20) -> str:
    """Say what is wrong with each column and then what to do, each remedy once."""
    advice = [words for fault in faults.values() for words in (fault.remedy, fault.alternative) if words]
    remedies = ", ".join(dict.fromkeys(advice))
    findings = [f'"{name}" {fault.finding}' for name, fault in faults.items()]
    if len(findings) == 1:
        name, fault = next(iter(faults.items()))
        return f'column "{name}" of {where} {fault.finding}; {remedies}'
    rest = list(faults)[limit:]
    more = f"; and also {quoted(rest, len(rest))}" if rest else ""
    return f"{len(faults)} columns of {where} cannot be used: {'; '.join(findings[:limit])}{more}; {remedies}"


def _numbers(column: Any) -> NDArray[Any] | Fault:
    """Return one column as an array of finite numbers, or why it is not one."""
    if kinds.is_dictionary(column.type):
        # Arrow cannot look views up, which polars has for text.
        view = column.type.value_type == pa.string_view()
        column = pa.chunked_array([column.to_pylist()]) if view else column.cast(column.type.value_type)
    kind = column.type
    if kinds.is_decimal(kind):
        column = column.cast(pa.float64())
    elif kinds.is_temporal(kind):
        return Fault(f"holds dates or times ({kind})", "turn dates into numbers, such as days since a fixed day")
    elif is_text(kind):
        return _describe_text(column)
    elif not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_null(kind)):
        return Fault(f"holds {kind}, not numbers", "spread such values over columns of numbers")
    missing = column.is_null(nan_is_null=True).to_numpy()
    if missing.any():
        return Fault(f"has {count_flags(missing, 'missing value')}", _FILL)
    values: NDArray[Any] = column.to_numpy()
    infinite = ~np.isfinite(values)
    if infinite.any():
        return Fault(f"has {count_flags(infinite, 'infinite value')}", _FILL)
    return values


_FILL = "fill or drop the rows with missing or infinite values"


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds text, or bytes that may be text."""
    checks = (
        "is_string",
        "is_large_string",
        "is_string_view",
        "is_binary",
        "is_large_binary",
        "is_binary_view",
    )
    return any(getattr(kinds, check)(kind) for check in checks if hasattr(kinds, check))


def count_flags(flags: NDArray[np.bool_], noun: str) -> str:
    """Say how many rows are flagged, out of how many, and which is the first."""
    count = int(flags.sum())
    first = int(flags.argmax()) + 1
    return f"{count:,} {noun}{'s' if count > 1 else ''} in {len(flags):,} rows (the first in data row {first})"


def _describe_text(column: Any) -> Fault:
    """Say how many entries of a text column are not numbers, and which comes first."""
    bad = [(row, text) for row, text in enumerate(column.to_pylist(), start=1) if not _is_number(text)]
    if not bad:
        return Fault("holds numbers written as text", "convert such text to a number type first")
    row, text = bad[0]
    shown = "missing" if text is None else f'"{text}"'
    verdict = "is not a number" if len(bad) == 1 else "are not numbers"
    finding = f"holds text: {len(bad):,} of {len(column):,} rows {verdict} (the first is {shown} in data row {row})"
    words = {str(text).strip().lower() for _, text in bad if text is not None}
    if words and all(DECIMAL_COMMA.fullmatch(word) for word in words):
        return Fault(finding, 'read decimal commas with decimal=","')
    if words <= _MARKERS or 2 * len(bad) <= len(column):
        return Fault(f"{finding}, which may mark missing values", _FILL, "encode text as numbers")
    return Fault(finding, "encode text as numbers")


def _is_number(text: Any) -> bool:
    try:
        return text is not None and bool(np.isfinite(float(text)))
    except ValueError:
        return False
