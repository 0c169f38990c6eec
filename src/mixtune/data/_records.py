"""Excel and JSON: rows of Python values in, a table with one type a column out."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from mixtune._messages import Note, counted_note, quoted
from mixtune.data._tables import Table, as_table, is_nothing
from mixtune.errors import DataError, MissingExtraError


def frame_of(columns: Mapping[str, Any]) -> Any:
    """A pandas frame of columns by name.

    Examples
    --------
    >>> frame_of({"x": [1.0, 2.0]}).shape
    (2, 1)
    """
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("pandas", "data", "a frame of results") from error
    return pandas.DataFrame(dict(columns))


def read_json(data: bytes, path: Path) -> Table:
    """Read JSON lines, one object a line, or one list of objects; members of an object become columns of their own.

    Examples
    --------
    >>> read_json(b'{"x": 1, "at": {"city": "Rome"}}\\n{"x": 2.5}\\n', Path("a.jsonl")).to_pydict()
    {'x': [1.0, 2.5], 'at.city': ['Rome', None]}
    >>> read_json(b'{"source": "a service", "data": [{"x": 1}, {"x": 2}]}', Path("a.json")).to_pydict()
    {'x': [1, 2]}
    """
    try:
        text = data.decode("utf-8-sig")
        try:
            found = json.loads(text)
        except json.JSONDecodeError:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise DataError(f'"{path}" cannot be read as JSON: {error}') from error
    if isinstance(found, Mapping):
        names, rows = found.get("columns"), found.get("data")
        if isinstance(names, list) and isinstance(rows, list) and all(isinstance(row, list) for row in rows):
            if any(len(row) != len(names) for row in rows):
                raise DataError(f'rows of "{path}" do not have one value per column; write one object per row')
            return records_table(list(map(str, names)), rows)
        # Either columns by name, possibly with numbered rows as pandas writes them, or a single row.
        columns = {str(name): _without_numbers(values) for name, values in found.items()}
        if columns and all(isinstance(values, list) and not _are_rows(values) for values in columns.values()):
            if len({len(values) for values in columns.values()}) > 1:
                raise DataError(f'"{path}" holds columns of different lengths; write one object per row')
            return records_table(list(columns), list(zip(*columns.values())))
        # Web services often return the rows in one member, and others that describe them.
        lists = [values for values in columns.values() if _are_rows(values)]
        found = lists[0] if len(lists) == 1 else [found]
    if not _are_rows(found):
        raise DataError(f'"{path}" does not hold rows; write one object per line, such as {{"x": 1, "y": 2}}')
    flat = [_flat(row) for row in found]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return records_table(names, [[row.get(name) for name in names] for row in flat])


def _are_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _without_numbers(values: Any) -> Any:
    """The values of numbered rows."""
    numbered = isinstance(values, Mapping) and bool(values) and all(str(row).isdigit() for row in values)
    return list(values.values()) if numbered else values


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return flat


def read_excel(data: bytes, path: Path) -> tuple[Table, list[Note]]:
    """Read the first sheet of an Excel workbook that has rows; lines above the header are skipped."""
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        raise MissingExtraError("openpyxl", "excel", "reading Excel files") from error
    try:
        book = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except (OSError, ValueError, KeyError, InvalidFileException) as error:
        raise DataError(f'"{path}" cannot be read as an Excel workbook: {error}') from error
    sheets = {sheet.title: _used_rows(sheet) for sheet in book.worksheets}
    book.close()
    name = next((title for title, rows in sheets.items() if len(rows) > 1), None)
    if name is None:
        raise DataError(f'"{path}" has no sheet with a header and rows; leave it out')
    rows, notes = sheets[name], []
    if others := [title for title, held in sheets.items() if held and title != name]:
        template = '"{file}" has several sheets; only "{sheet}" is read, not {others}'
        notes.append(Note("sheets", template, file=path.name, sheet=name, others=quoted(others)))
    most = max(sum(cell is not None for cell in row) for row in rows[:50])
    start = next(place for place, row in enumerate(rows) if 2 * sum(cell is not None for cell in row) > most)
    if start:
        words = 'before the header of "{file}" {are} skipped'
        notes.append(counted_note("skipped-lines", start, "line", words, file=path.name))
    header, body = rows[start], rows[start + 1 :]
    width = max(place + 1 for row in (header, *body) for place, cell in enumerate(row) if cell is not None)
    names = ["" if cell is None else str(cell) for cell in (*header, *[None] * width)][:width]
    return records_table(names, [(*row, *[None] * width)[:width] for row in body]), notes


def _used_rows(sheet: Any) -> list[tuple[Any, ...]]:
    return [row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]


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
        if not columns or len(set(map(str, columns))) < len(columns):
            raise
        arrays = [_as_array([None if is_nothing(each) else each for each in value[name]]) for name in columns]
        if len({len(array) for array in arrays}) > 1:
            raise
        return pa.Table.from_arrays(arrays, [str(name) for name in columns])


def _as_array(values: list[Any]) -> Any:
    types = {type(value) for value in values if value is not None}
    if types == {int, float}:
        values = [None if value is None else float(value) for value in values]
    elif types == {datetime.date, datetime.datetime}:
        values = [
            datetime.datetime(*value.timetuple()[:3]) if type(value) is datetime.date else value for value in values
        ]
    elif len(types) > 1 or types & {list, dict}:
        values = [None if value is None else _as_text(value) for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else _as_text(value) for value in values])


def _as_text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)
