"""Tables with named columns, read through Arrow.

pandas and polars frames, pyarrow tables and plain dicts of columns all become one pyarrow table. Its columns then
either become one matrix of numbers, or are refused together: with their names, the rows concerned and what to do.
"""

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.interchange
import pyarrow.types as kinds

from mixtune._messages import Wording, nearest, quoted, setting
from mixtune.arrays import check_unmasked
from mixtune.data._parse_column import Fault, parse_numbers, phrase
from mixtune.errors import DataError, ParameterError

#: A ``pyarrow.Table``.
Table: TypeAlias = Any

#: What else one can do about an input column; a target cannot be left out.
LIST_COLUMNS = Wording(
    ", or list the columns to use with columns=[...]", ", or leave out such columns with --ignore COLUMN"
)

#: What to do about whole numbers that no integer type holds.
RESCALE = "pass floats, rescaled where beyond 1e308"

#: Of so many columns an error says what is wrong; it names the others.
_MOST_FAULTS = 20
#: What gives away that a value has named columns, whether or not they can be read.
_TABLE_SIGNS = ("__arrow_c_stream__", "__dataframe__", "columns", "column_names")
# The names that to_csv, read_csv and to_parquet of pandas give to an index without a name.
_INDEX = re.compile(r"\s*|Unnamed: \d+|__index_level_\d+__")


def is_index_name(name: str) -> bool:
    """Whether a column has the name that tools give to row numbers: none, or "Unnamed: 0".

    Examples
    --------
    >>> is_index_name("Unnamed: 0"), is_index_name("size")
    (True, False)
    """
    return bool(_INDEX.fullmatch(name))


def is_table(value: Any) -> bool:
    """Whether ``value`` has named columns: a frame, a pyarrow table or a dict."""
    named = isinstance(value, dict) or any(hasattr(value, name) for name in _TABLE_SIGNS)
    # Some of SciPy's sparse matrices are dicts.
    return named and not hasattr(value, "toarray")


def known_frame(value: Any, where: str) -> Any:
    """Turn a table whose names scikit-learn does not see into one where it does; anything else is returned as it is.

    NumPy, and with it scikit-learn, takes the columns of such a table by position, whatever their names.

    Examples
    --------
    >>> known_frame({"x": [1, 2]}, "X").column_names
    ['x']
    """
    check_unmasked(value, where)
    known = hasattr(value, "iloc") or isinstance(value, pa.Table) or type(value).__module__.startswith("polars")
    return as_table(value, where) if is_table(value) and not known else value


def as_table(value: Any, where: str) -> Table:
    """Turn a frame or a dict of columns into a pyarrow table.

    Examples
    --------
    >>> as_table({"x": [1, 2], "y": [3.0, 4.0]}, "the table").column_names
    ['x', 'y']
    """
    if isinstance(value, str | os.PathLike):
        raise DataError(f"{where} is given as {value!r}; pass a file to Domains.from_files, or read it first")
    check_unmasked(value, where)
    if not is_table(value):
        raise DataError(f"{where} has no named columns; pass a data frame, a pyarrow table or a dict of columns")
    try:
        if hasattr(value, "iloc"):
            # pa.table would keep a pandas index as one more column.
            table = pa.Table.from_pandas(value, preserve_index=False)
        elif isinstance(value, dict | pa.RecordBatch) or hasattr(value, "__arrow_c_stream__"):
            table = pa.table(value)
        elif not hasattr(value, "columns") and hasattr(value, "__dataframe__"):
            table = pa.interchange.from_dataframe(value)
        else:
            columns = [(str(name), pa.array(value[name])) for name in value.columns]
            table = pa.Table.from_arrays([values for _, values in columns], [name for name, _ in columns])
    except OverflowError as error:
        raise DataError(f"{where} holds whole numbers beyond 64 bits; {RESCALE}") from error
    except (TypeError, ValueError, LookupError, AttributeError, pa.ArrowException) as error:
        raise DataError(f"{where} cannot be read as columns of one type each: {error}") from error
    names = [composed(name) for name in table.column_names]
    check_names(names, where)
    return table if names == table.column_names else table.rename_columns(names)


def composed(name: str) -> str:
    """A name with accents as Unicode's NFC composes them: programs write the same letters in two ways.

    Examples
    --------
    >>> composed("gro\u0308\u00dfe") == "gr\u00f6\u00dfe"
    True
    """
    return unicodedata.normalize("NFC", name)


def records_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table of rows of Python values; a column of several types becomes text.

    Examples
    --------
    >>> records_table(["x", "c"], [(1, "a"), (2.5, 3), (None, None)]).to_pydict()
    {'x': [1.0, 2.5, None], 'c': ['a', '3', None]}
    """
    columns = [list(values) for values in zip(*rows)] if rows else [[] for _ in names]
    return pa.Table.from_arrays([_as_array(values) for values in columns], list(names))


def object_table(value: Any, where: str) -> Table:
    """A frame or a dict of columns as a table; columns of objects of several types become text.

    Examples
    --------
    >>> object_table({"x": [1, 2], "c": ["a", 3]}, "the table").to_pydict()
    {'x': [1, 2], 'c': ['a', '3']}
    """
    try:
        table = as_table(value, where)
        # Arrow cannot pick rows of the text views that polars has.
        views = {field.name: pa.large_string() for field in table.schema if str(field.type) == "string_view"}
        fields = [(field.name, views.get(field.name, field.type)) for field in table.schema]
        return table.cast(pa.schema(fields)) if views else table
    except DataError:
        columns = list(value if isinstance(value, dict) else getattr(value, "columns", ()))
        if (
            isinstance(value, pa.Table | pa.RecordBatch)
            or not columns
            or len({composed(str(name)) for name in columns}) < len(columns)
        ):
            raise
        arrays = [_as_array([None if is_nothing(each) else each for each in value[name]]) for name in columns]
        if len({len(array) for array in arrays}) > 1:
            raise
        return pa.Table.from_arrays(arrays, [composed(str(name)) for name in columns])


def _as_array(values: list[Any]) -> Any:
    values = [_plain(value) if isinstance(value, np.generic) else value for value in values]
    types = {type(value) for value in values if value is not None}
    if types == {int, float}:
        values = [None if value is None else float(value) for value in values]
    elif types == {date, datetime}:
        values = [datetime(*value.timetuple()[:3]) if type(value) is date else value for value in values]
    elif len(types) > 1 or types & {list, dict}:
        values = [None if value is None else _as_text(value) for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else _as_text(value) for value in values])


def _plain(value: np.generic) -> Any:
    """A scalar of NumPy as the value of Python, of which Arrow knows all kinds."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype(f"{'datetime64' if isinstance(value, np.datetime64) else 'timedelta64'}[us]")
    return value.item()


def _as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def is_nothing(value: Any) -> bool:
    """Whether a value is None, NaN or another marker of missing values.

    Examples
    --------
    >>> is_nothing(float("nan")), is_nothing("")
    (True, False)
    """
    # NaN and similar markers are not equal to themselves; comparing some of them does not even give a truth value.
    itself: object = value == value
    return value is None or not (isinstance(itself, bool | np.bool_) and bool(itself))


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse column names that occur twice."""
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DataError(f"{where} has more than one column named {quoted(repeated)}; give each column its own name")


def as_names(value: str | Sequence[str], option: str) -> tuple[str, ...]:
    """Read an option that takes one column name or several."""
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ParameterError(f"{option}={value!r} must be a column name or distinct column names")
    return tuple(map(composed, names))


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
    names: list[str] = table.column_names
    known = set(names)
    named = (*targets, *([] if domain is None else [domain]))
    taken = set(named)
    chosen = None if columns is None else as_names(columns, "columns")
    for name in (*named, *(chosen or ())):
        if name not in known:
            fields = {"where": where, "column": name, "hint": nearest(name, names)}
            raise DataError('{where} has no column "{column}"; {hint}', code="no-column", **fields)
    if len(taken) < len(named):
        template = "{given} is also a target; pass the column that names the domains"
        raise ParameterError(template, given=setting("domain", domain))
    if chosen is None:
        chosen = tuple(name for name in names if name not in taken)
        if index := [name for name in chosen if is_index_name(name)]:
            finding = f"{where} has a column named {quoted(index)}, which looks like row numbers of the table"
            remedy = phrase("write the table with index=False{otherwise}", otherwise=otherwise)
            raise Fault(finding, remedy).error("index-column")
    if both := [name for name in chosen if name in taken]:
        raise ParameterError(f"columns names {quoted(both)}, which is a target or the domain column; leave it out")
    if not chosen:
        raise DataError(f"{where} has no input columns besides {quoted(named)}; add at least one")
    return chosen


def to_matrix(table: Table, names: Sequence[str], where: str, otherwise: str | Wording = "") -> np.ndarray[Any, Any]:
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
    columns = [table.column(name) for name in names]
    single = all(kinds.is_float32(column.type) for column in columns)
    matrix = np.empty((table.num_rows, len(names)), dtype=np.float32 if single else np.float64)
    faults: dict[str, Fault] = {}
    for index, (name, column) in enumerate(zip(names, columns)):
        values = parse_numbers(column)
        if isinstance(values, Fault):
            faults[name] = values
        else:
            matrix[:, index] = values
    if faults:
        raise unusable_columns(faults, where, otherwise)
    return matrix


def unusable_columns(
    faults: Mapping[str, Fault], where: str, otherwise: str | Wording = "", *, fixes: Mapping[str, Any] | None = None
) -> DataError:
    """The error that says what is wrong with each column and then what to do, each remedy once.

    ``fixes`` are the settings with which it would work.
    """
    advice = dict.fromkeys(words for fault in faults.values() for words in (fault.remedy, fault.alternative) if words)
    remedies = Wording(
        ", ".join(map(str, advice)),
        ", ".join(words.terminal if isinstance(words, Wording) else words for words in advice),
    )
    if len(faults) == 1:
        ((name, fault),) = faults.items()
        findings = f'column "{name}" of {where} {fault.finding}'
    else:
        listed = [f'"{name}" {fault.finding}' for name, fault in faults.items()][:_MOST_FAULTS]
        if rest := list(faults)[_MOST_FAULTS:]:
            listed.append(f"and also {quoted(rest, len(rest))}")
        findings = f"{len(faults)} columns of {where} cannot be used: {'; '.join(listed)}"
    fields: dict[str, Any] = {"columns": tuple(faults), "where": where, "findings": findings, "remedies": remedies}
    fields["fixes"] = dict(fixes or {})
    return DataError("{findings}; {remedies}{otherwise}", code="unusable-columns", otherwise=otherwise, **fields)
