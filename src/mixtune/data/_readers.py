"""Files in, tables out: CSV and Parquet through pyarrow, with errors that name the file."""

import codecs
import gzip
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pyarrow.types as kinds

from mixtune._messages import Wording, quoted, setting
from mixtune.data._parse_column import DECIMAL_COMMA, Fault, phrase
from mixtune.data._tables import Table, check_names, is_table
from mixtune.errors import DataError, ParameterError

# The longer endings come first, so that .csv.gz is not taken for another kind.
_ENDINGS = (".csv.gz", ".tsv.gz", ".csv", ".tsv", ".parquet", ".pq")
_SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_PARQUET = (".parquet", ".pq")
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Parameters
    ----------
    encoding
        Any text encoding that Python knows, such as "utf-8", "latin-1" or "cp1252".
    separator
        The character between columns; by default a comma, and a tab for files ending in .tsv.
    decimal
        "." or ",": what stands before the decimals.

    Examples
    --------
    >>> CsvFormat(separator=",", decimal=",")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: separator and decimal are both ","; a file needs two different characters
    """

    encoding: str = "utf-8"
    separator: str | None = None
    decimal: str = "."

    def __post_init__(self) -> None:
        given: dict[str, Any] = {name: setting(name, value) for name, value in vars(self).items()}
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name)
        except (LookupError, TypeError) as error:
            raise ParameterError('{encoding} is unknown; use one such as "latin-1" or "cp1252"', **given) from error
        mark = self.separator
        if mark is not None and not (isinstance(mark, str) and re.fullmatch(r'[^\r\n"\x80-\U0010ffff]', mark)):
            raise ParameterError('{separator} must be one character, such as "," or ";" or "\\t"', **given)
        if self.decimal not in (".", ","):
            raise ParameterError('{decimal} must be "." or ","', **given)
        if mark == self.decimal:
            raise ParameterError(f'separator and decimal are both "{mark}"; a file needs two different characters')


#: Commas, decimal points, UTF-8.
UTF8 = CsvFormat()


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
            raise ParameterError(f"paths holds a {type(item).__name__}, not files; pass it to Domains.from_table")
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
    ending = _ending(path)
    return path.name[: -len(ending)] if ending else path.stem


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet by its name: its columns then have types, which CSV leaves to guess.

    Examples
    --------
    >>> is_parquet(Path("north.parquet")), is_parquet(Path("north.csv"))
    (True, False)
    """
    return _ending(path) in _PARQUET


def read_table(path: str | os.PathLike[str], form: CsvFormat = UTF8, *, text: Sequence[str] = ()) -> Table:
    """Read one CSV, TSV or Parquet file; the ending of its name says which, and .gz that it is compressed.

    Parameters
    ----------
    path
        The file. CSV has a header line.
    form
        How CSV is written; Parquet needs none of it.
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
    if path.is_dir():
        kind = next((found for file in sorted(path.glob("*")) if (found := _ending(file))), ".csv")
        files = Wording(f'sorted(pathlib.Path("{path}").glob("*{kind}"))', f"{path}/*{kind}")
        remedy = phrase("pass the files in it, such as {files}", files=files)
        raise Fault(f'"{path}" is a folder', remedy).error("folder")
    ending = _ending(path)
    if path.suffix.lower() in _SPREADSHEETS:
        save = "save the sheet as CSV"
        advice = Wording(f"{save}, or pass what pandas.read_excel gives to Domains.from_table", save)
        raise Fault(f'"{path}" is a spreadsheet, which cannot be read here', advice).error("spreadsheet")
    if not ending:
        raise DataError(f'"{path}" is of an unknown kind; the name must end in one of {", ".join(_ENDINGS)}')
    if not path.is_file():
        raise DataError(f'"{path}" is not a file; check the path')
    try:
        table = _read_parquet(path) if ending in _PARQUET else _read_csv(path, ending, form, text)
    except UnicodeError as error:
        raise _wrong_encoding(path, form, str(error)) from error
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise DataError(f'"{path}" cannot be read as {ending[1:].upper()}: {error}') from error
    check_names(table.column_names, f'"{path}"')
    if table.num_rows == 0:
        raise DataError(f'"{path}" has no rows; leave it out')
    return table


def _ending(path: Path) -> str:
    """The ending that says the kind of file, in small letters, or an empty text for an unknown one."""
    return next((ending for ending in _ENDINGS if path.name.lower().endswith(ending)), "")


def _read_csv(path: Path, ending: str, form: CsvFormat, text: Sequence[str]) -> Table:
    separator = form.separator or ("\t" if ending.startswith(".tsv") else ",")
    if separator == form.decimal:
        template = '{given} is also what separates the columns of "{path}"; pass {fix}'
        given, fix = setting("decimal", form.decimal), setting("separator", ";")
        raise ParameterError(template, given=given, path=path, fix=fix)
    if form.encoding == "utf-8" and _is_utf16(path):
        raise _wrong_encoding(path, form, "it starts with the mark of UTF-16")
    source: Any = path
    size = path.stat().st_size
    if ending.endswith(".gz"):
        data = gzip.decompress(path.read_bytes())
        source, size = pa.BufferReader(data), len(data)
    # Arrow infers a column's type from the first block only and then fails on 1.5 after many whole numbers,
    # so the block is the whole file (up to a gigabyte), which as UTF-8 may take three bytes for one.
    size = size if form.encoding == "utf-8" else 3 * size
    reading = csv.ReadOptions(block_size=min(max(size, 1 << 20), 1 << 30), encoding=form.encoding)
    types = csv.ConvertOptions(decimal_point=form.decimal, column_types=dict.fromkeys(text, pa.string()))
    try:
        table = csv.read_csv(source, reading, csv.ParseOptions(delimiter=separator), types)
    except pa.ArrowInvalid as error:
        if "invalid UTF8" in str(error):
            raise _wrong_encoding(path, form, str(error)) from error
        _check_separator(path, form, separator)
        raise
    # Names that are not UTF-8 raise an error only here, when they are asked for.
    if len(table.column_names) == 1:
        _check_separator(path, form, separator)
    # Arrow hands over as bytes what is not UTF-8.
    if foreign := [field.name for field in table.schema if kinds.is_binary(field.type)]:
        raise _wrong_encoding(path, form, f"in column {quoted(foreign)}")
    return table


def _read_parquet(path: Path) -> Table:
    # Not parquet.read_table: that one adds columns from folder names such as school=3.
    with parquet.ParquetFile(path) as file:
        return file.read()


def _first_bytes(path: Path) -> bytes:
    """The first bytes of a file, decompressed: enough to look at its header and a few rows."""
    with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
        return file.read(1 << 16)


def _is_utf16(path: Path) -> bool:
    return _first_bytes(path).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _wrong_encoding(path: Path, form: CsvFormat, detail: str) -> DataError:
    """The error that a file is written in another encoding, and which one to try."""
    other = "utf-16" if _is_utf16(path) else "latin-1" if form.encoding == "utf-8" else "utf-8"
    remedy = phrase("pass {fix}, or whichever the file was written in", fix=setting("encoding", other))
    return Fault(f'"{path}" is not written in {form.encoding} ({detail})', remedy).error("encoding")


def _check_separator(path: Path, form: CsvFormat, separator: str) -> None:
    """Refuse a file whose header looks as if another character separated the columns."""
    lines = _first_bytes(path).decode(form.encoding, errors="replace").splitlines()
    header = lines[0] if lines else ""
    found = max(_SEPARATORS, key=header.count)
    if header.count(found) <= header.count(separator):
        return
    # What is typed for a tab, both in Python and on the command line, is a backslash and a t.
    fix: Wording = setting("separator", "\\t" if found == "\t" else found)
    cells = (cell for line in lines[1:50] for cell in line.split(found))
    if found != "," and form.decimal != "," and any(DECIMAL_COMMA.fullmatch(cell) for cell in cells):
        fix = phrase("{separator} and {decimal}", separator=fix, decimal=setting("decimal", ","))
    finding = f'the columns of "{path}" are separated by {_SEPARATORS[found]}'
    raise Fault(finding, phrase("pass {fix}", fix=fix)).error("separator")
