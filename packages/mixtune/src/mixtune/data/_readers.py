"""Files in, tables out: CSV, Parquet, Arrow, Excel and JSON, also compressed, with errors that name the file."""

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

from mixtune._messages import Note, Wording, counted_note, quoted
from mixtune.checks import import_extra
from mixtune.data._csv_files import UTF8, CsvFormat, FileTable, detect_csv, plain_name, read_csv
from mixtune.data._parse_column import Fault, phrase
from mixtune.data._tables import Table, check_names, composed, is_table, records_table
from mixtune.errors import DataError, ParameterError

#: What stands for standard input.
STDIN = Path("-")

_TABS = (".tsv", ".tab")
#: The kinds of files by the endings of their names; .csv comes first in messages.
_KINDS = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".dat"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".feather", ".arrow", ".ipc"), "arrow"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
}


def _unzip(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = (each for each in archive.infolist() if not each.is_dir())
        members = [each for each in files if not each.filename.startswith("__MACOSX")]
        if len(members) != 1:
            raise OSError(f"it holds {len(members)} files, not one; unpack it")
        return archive.read(members[0])


_PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zip": _unzip,
}
_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException)


def as_paths(paths: Any) -> list[Path]:
    """Read an option that takes one path or several, and say so when it is given something else.

    Examples
    --------
    >>> [path.name for path in as_paths(["a.csv", Path("b.csv")])]
    ['a.csv', 'b.csv']
    """
    try:
        items = [paths] if isinstance(paths, str | os.PathLike) or is_table(paths) else list(paths)
    except TypeError as error:
        raise ParameterError(f"paths={paths!r} must be a path or several paths") from error
    for item in items:
        if is_table(item):
            kind = type(item).__name__
            raise ParameterError(f"paths holds a {kind}, not files; pass it to Domains.from_table or fit_table")
        if not isinstance(item, str | os.PathLike):
            raise ParameterError(f"paths holds {item!r}, which is not a path; pass texts or pathlib.Path objects")
    if not items:
        raise ParameterError("paths is empty; pass at least one file")
    return [Path(item) for item in items]


def file_label(path: Path) -> str:
    """Name a domain after its file, without the ending.

    Examples
    --------
    >>> file_label(Path("data/north.csv")), file_label(Path("data/south.csv.gz"))
    ('north', 'south')
    """
    ending, shown = "".join(_endings(path)), shown_path(path)
    # Some systems take the accents of file names apart.
    return composed(shown.name[: -len(ending)] if ending else shown.stem)


def shown_path(path: Path) -> Path:
    """How messages name a file.

    Examples
    --------
    >>> shown_path(STDIN).name, shown_path(Path("north.csv")).name
    ('standard input', 'north.csv')
    """
    return Path("standard input") if path == STDIN else path


def read_file(
    path: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    text: Sequence[str] = (),
    expected: Sequence[str] = (),
    as_written: bool = False,
) -> FileTable:
    """Read a file as it comes: what is not known of a CSV file is found out, and small damage is mended with a note.

    Parameters
    ----------
    path
        The file, or "-" for standard input; where the ending of the name does not say the kind, the content does.
    encoding, separator, decimal
        How CSV is written; None is found out.
    text
        Columns of a CSV file to read as they are written.
    expected
        Other columns that the file should have, which help to find out the separator.
    as_written
        Whether to read all columns of a CSV file as they are written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "north.txt")
    ...     _ = file.write_text("size price\\n1 2.5\\n")
    ...     read = read_file(file)
    >>> read.table.to_pydict(), read.notes
    ({'size': [1], 'price': [2.5]}, ['"north.txt" is read with blanks between its columns'])
    """
    path = Path(path)
    given: dict[str, Any] = {"encoding": encoding, "separator": separator, "decimal": decimal}
    with _named_errors(shown_path(path)):
        data, ending = _load(path, guess=True)
        path = shown_path(path)
        kind = _KINDS.get(ending) or _guess_kind(data, path)
        form: CsvFormat | None = None
        if kind == "csv":
            given |= {"tabs": ending in _TABS, "expected": expected, "as_written": as_written}
            table, form, notes = detect_csv(data, path, text, **given)
        else:
            table, notes = _read_typed(data, path, kind)
        table, renamed = _distinct_names(table, path)
    _check_rows(table, path)
    return FileTable(table, form, notes + renamed)


def read_table(path: str | os.PathLike[str], form: CsvFormat = UTF8, *, text: Sequence[str] = ()) -> Table:
    """Read one file; the ending of its name says of which kind it is, and .gz, .bz2, .xz or .zip that it is compressed.

    Parameters
    ----------
    path
        The file. CSV has a header line.
    form
        How CSV is written; a file that is written otherwise is refused. Other kinds need none of it.
    text
        Columns of a CSV file to read as they are written: labels such as 007 and 7 are not the same.

    Returns
    -------
    pyarrow.Table
        With at least one row and distinct column names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "north.csv")
    ...     _ = file.write_text("size;price\\n1;2,5\\n3;4,5\\n")
    ...     read_table(file, CsvFormat(separator=";", decimal=",")).to_pydict()
    {'size': [1, 3], 'price': [2.5, 4.5]}
    """
    path = Path(path)
    with _named_errors(path):
        data, ending = _load(path, guess=False)
        kind = _KINDS[ending]
        if kind == "csv":
            table = read_csv(data, path, form, text, tabs=ending in _TABS)
        else:
            table, _ = _read_typed(data, path, kind)
    table = table.rename_columns(list(map(composed, table.column_names)))
    check_names(table.column_names, f'"{path}"')
    _check_rows(table, path)
    return table


def _endings(path: Path) -> tuple[str, str]:
    """The ending that says the kind of file and the one that says how it is compressed, each may be empty."""
    name = path.name.lower()
    packed = next((ending for ending in _PACKED if name.endswith(ending)), "")
    return next((each for each in _KINDS if name.removesuffix(packed).endswith(each)), ""), packed


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Say which file cannot be read."""
    try:
        yield
    except _UNREADABLE as error:
        kind = "".join(_endings(path))[1:].upper() or "a table"
        raise DataError(f'"{path}" cannot be read as {kind}: {error}') from error


def _load(path: Path, *, guess: bool) -> tuple[Any, str]:
    """The bytes of a file, decompressed, as a pyarrow buffer, and the ending that says its kind."""
    if path == STDIN:
        return pa.py_buffer(_stdin()), ""
    if path.is_dir():
        kind = next((found for file in sorted(path.glob("*")) if (found := "".join(_endings(file)))), ".csv")
        files = Wording(f'sorted(pathlib.Path("{path}").glob("*{kind}"))', f"{path}/*{kind}")
        remedy = phrase("pass the files in it, such as {files}", files=files)
        raise Fault(f'"{path}" is a folder', remedy).error("folder")
    ending, packed = _endings(path)
    if not ending and not guess:
        known = f"{', '.join(_KINDS)}, or one of these and {', '.join(_PACKED)}"
        raise DataError(f'"{path}" is of an unknown type; the name must end in one of {known}')
    if not path.is_file():
        raise DataError(f'"{path}" is not a file; check the path')
    if packed:
        return pa.py_buffer(_PACKED[packed](path.read_bytes())), ending
    with pa.memory_map(str(path)) as file:
        return file.read_buffer(), ending


@cache
def _stdin() -> bytes:
    """Standard input, which can be read only once."""
    return sys.stdin.buffer.read()


def _guess_kind(data: Any, path: Path) -> str:
    """The kind of a file by its first bytes."""
    start = data[:512].to_pybytes()
    if start.startswith(b"\xd0\xcf\x11\xe0"):
        raise DataError(f'"{path}" is an Excel file in the old format (.xls); save it as .xlsx or .csv')
    marks = {b"PAR1": "parquet", b"ARROW1": "arrow", b"FEA1": "arrow", b"PK\x03\x04": "excel"}
    found = next((kind for mark, kind in marks.items() if start.startswith(mark)), None)
    return found or ("json" if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") else "csv")


def _read_typed(data: Any, path: Path, kind: str) -> tuple[Table, list[Note]]:
    """Read a file whose cells have types."""
    if kind == "excel":
        return read_excel(data.to_pybytes(), path)
    if kind == "json":
        return read_json(data.to_pybytes(), path), []
    if kind == "arrow":
        return _read_arrow(data), []
    # Not parquet.read_table: that one adds columns from folder names such as school=3.
    with parquet.ParquetFile(pa.BufferReader(data)) as file:
        return file.read(), []


def _read_arrow(data: Any) -> Table:
    try:
        return feather.read_table(pa.BufferReader(data))
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.BufferReader(data)).read_all()


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
    openpyxl = import_extra("openpyxl", "excel", "reading Excel files")
    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except (OSError, ValueError, KeyError) as error:
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


def _distinct_names(table: Table, path: Path) -> tuple[Table, list[Note]]:
    """Column names on one line, without surrounding spaces, and unique: repeated names get a number."""
    names: list[str] = []
    repeated: dict[str, None] = {}
    before: Counter[str] = Counter()
    for place, name in enumerate(map(plain_name, table.column_names)):
        again = before[name]
        before[name] += 1
        if name and again:
            repeated[name] = None
        names.append(f"Unnamed: {place}" if not name else f"{name} ({again + 1})" if again else name)
    template = '"{file}" has more than one column named {names}; the later ones are numbered, such as "{such}"'
    such = f"{next(iter(repeated), '')} (2)"
    note = Note("repeated-names", template, file=path.name, names=quoted(list(repeated)), such=such)
    return table.rename_columns(names), [note] if repeated else []


def _check_rows(table: Table, path: Path) -> None:
    if table.num_rows == 0:
        raise DataError(f'"{path}" has no rows; leave it out')
