"""Files in, tables out: CSV and Parquet through pyarrow, with errors that name the file."""

from __future__ import annotations

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

from mixtune._messages import quoted
from mixtune.data._tables import DECIMAL_COMMA, Table, check_names, is_table
from mixtune.errors import DataError, ParameterError

__all__ = ["UTF8", "CsvFormat", "as_paths", "file_label", "is_parquet", "read_table"]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_ENDINGS = (*_SEPARATORS, *(f"{ending}.gz" for ending in _SEPARATORS), *_PARQUET)


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
        try:
            object.__setattr__(self, "encoding", codecs.lookup(self.encoding).name)
        except (LookupError, TypeError) as error:
            raise ParameterError(
                f'encoding={self.encoding!r} is unknown; use one such as "utf-8", "latin-1" or "cp1252"'
            ) from error
        mark = self.separator
        if mark is not None and not (
            isinstance(mark, str) and len(mark) == 1 and mark.isascii() and mark not in '\r\n"'
        ):
            raise ParameterError(f'separator={mark!r} must be one character, such as "," or ";" or "\\t"')
        if self.decimal not in (".", ","):
            raise ParameterError(f'decimal={self.decimal!r} must be "." or ","')
        if mark == self.decimal:
            raise ParameterError(f'separator and decimal are both "{mark}"; a file needs two different characters')


UTF8 = CsvFormat()
"""Commas, decimal points, UTF-8."""


def as_paths(paths: Any) -> list[Path]:
    """Read an option that takes one path or several, and say so when it is given something else.

    Examples
    --------
    >>> [path.name for path in as_paths(["a.csv", Path("b.csv")])]
    ['a.csv', 'b.csv']
    """
    if is_table(paths):
        raise ParameterError(f"paths is a {type(paths).__name__}, not files; pass it to Domains.from_table")
    try:
        items = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    except TypeError as error:
        raise ParameterError(f"paths={paths!r} must be a path or several paths") from error
    for item in items:
        if is_table(item):
            raise ParameterError(
                f"paths holds a {type(item).__name__}, not files; join the frames and pass them to Domains.from_table, "
                "or pass inputs and targets to Domains.from_dict"
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
        raise DataError(
            f'"{path}" is a folder; pass the files in it, such as sorted(pathlib.Path("{path}").glob("*{kind}"))'
        )
    ending = _ending(path)
    if not ending:
        raise DataError(f'"{path}" is of an unknown kind; the name must end in one of {", ".join(_ENDINGS)}')
    if not path.is_file():
        raise DataError(f'"{path}" is not a file; check the path')
    try:
        table = _read_parquet(path) if ending in _PARQUET else _read_csv(path, ending, form, text)
    except UnicodeError as error:
        raise DataError(_describe_encoding(path, form, str(error))) from error
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise DataError(f'"{path}" cannot be read as {ending[1:].upper()}: {error}') from error
    check_names(table.column_names, f'"{path}"')
    if table.num_rows == 0:
        raise DataError(f'"{path}" has no rows; leave it out')
    return table


def _ending(path: Path) -> str:
    """The ending that says the kind of file, in small letters, or an empty text for an unknown one."""
    # The longest comes first, so that .csv.gz is not taken for another kind.
    return next(
        (ending for ending in sorted(_ENDINGS, key=len, reverse=True) if path.name.lower().endswith(ending)), ""
    )


def _read_csv(path: Path, ending: str, form: CsvFormat, text: Sequence[str]) -> Table:
    separator = form.separator or _SEPARATORS[ending.removesuffix(".gz")]
    if separator == form.decimal:
        raise ParameterError(
            f'decimal="{form.decimal}" is also what separates the columns of "{path}"; pass separator, such as ";"'
        )
    if form.encoding == "utf-8" and _is_utf16(path):
        raise DataError(_describe_encoding(path, form, "it starts with the mark of UTF-16"))
    source: Any = path
    size = path.stat().st_size
    if ending.endswith(".gz"):
        data = gzip.decompress(path.read_bytes())
        source, size = pa.BufferReader(data), len(data)
    # Arrow infers a column's type from the first block only and then fails on 1.5 after many whole numbers,
    # so the block is the whole file (up to a gigabyte), which as UTF-8 may take three bytes for one.
    size = size if form.encoding == "utf-8" else 3 * size
    try:
        table = csv.read_csv(
            source,
            read_options=csv.ReadOptions(block_size=min(max(size, 1 << 20), 1 << 30), encoding=form.encoding),
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(
                decimal_point=form.decimal, column_types=dict.fromkeys(text, pa.string())
            ),
        )
    except pa.ArrowInvalid as error:
        if "invalid UTF8" in str(error):
            raise DataError(_describe_encoding(path, form, str(error))) from error
        if hint := _other_separator(path, form, separator):
            raise DataError(hint) from error
        raise
    # Names that are not UTF-8 are found out when they are asked for.
    if len(table.column_names) == 1 and (hint := _other_separator(path, form, separator)):
        raise DataError(hint)
    # Arrow hands over as bytes what is not UTF-8.
    if foreign := [field.name for field in table.schema if kinds.is_binary(field.type)]:
        raise DataError(_describe_encoding(path, form, f"in column {quoted(foreign)}"))
    return table


def _read_parquet(path: Path) -> Table:
    # Not parquet.read_table: that one adds columns from folder names such as school=3.
    with parquet.ParquetFile(path) as file:
        return file.read()


def _head(path: Path) -> bytes:
    """The first bytes of a file, decompressed: enough to look at its header and a few rows."""
    with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
        return file.read(1 << 16)


def _is_utf16(path: Path) -> bool:
    return _head(path).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _describe_encoding(path: Path, form: CsvFormat, detail: str) -> str:
    """Say that a file is written in another encoding, and which one to try."""
    other = "utf-16" if _is_utf16(path) else "latin-1" if form.encoding == "utf-8" else "utf-8"
    return (
        f'"{path}" is not written in {form.encoding} ({detail}); pass encoding="{other}", '
        "or whichever the file was written in"
    )


def _other_separator(path: Path, form: CsvFormat, separator: str) -> str:
    """Say that another character separates the columns, if the header looks like it; else an empty text."""
    lines = _head(path).decode(form.encoding, errors="replace").splitlines()
    header = lines[0] if lines else ""
    found = max((";", "\t", "|", ","), key=header.count)
    if header.count(found) <= header.count(separator):
        return ""
    words = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
    shown = "\\t" if found == "\t" else found
    fields = (field for line in lines[1:50] for field in re.split(re.escape(found), line))
    commas = found != "," and form.decimal != "," and any(DECIMAL_COMMA.fullmatch(field) for field in fields)
    advice = ' and decimal=","' if commas else ""
    return f'the columns of "{path}" are separated by {words[found]}; pass separator="{shown}"{advice}'
