"""Files in, tables out: CSV, Parquet, Arrow, Excel and JSON, also compressed, with errors that name the file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

from mixtune._messages import Note, Wording, quoted
from mixtune.data._csv_files import UTF8, CsvFormat, FileTable, detect_csv, plain_name, read_csv
from mixtune.data._parse_column import Fault, phrase
from mixtune.data._records import read_excel, read_json
from mixtune.data._tables import Table, check_names, is_table
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
        members = [
            each for each in archive.infolist() if not each.is_dir() and not each.filename.startswith("__MACOSX")
        ]
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
            raise ParameterError(
                f"paths holds a {type(item).__name__}, not files; pass it to Domains.from_table or fit_table"
            )
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
    return shown.name[: -len(ending)] if ending else shown.stem


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
            table, form, notes = detect_csv(data, path, text, **given, tabs=ending in _TABS, expected=expected)
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
