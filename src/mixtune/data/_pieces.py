"""Pieces of large sources: a stretch of a file or of an array, read block by block and never whole.

A piece knows where its rows lie and how to read them. It is small, so it can be sent to another process and read
there. Blocks come out of it as plain arrays, with the name of the domain of every row.
"""

from __future__ import annotations

import itertools
import mmap
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from mixtune.data._blocks import Block, Floats, Reading, label_block, table_block
from mixtune.data._readers import CsvFormat
from mixtune.data._tables import LIST_COLUMNS, Table
from mixtune.errors import DataError

__all__ = ["ArrayPiece", "Piece", "TablePiece", "file_kind", "file_schema", "opened"]

_ENDINGS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), "csv"),
    ".npy": "npy",
}
#: Text parsed at a time: lines must fit, and columns are typed beforehand, so small costs nothing.
_CSV_BYTES = 2**20


class Piece(ABC):
    """A stretch of a source; ``rows`` is how many rows it holds, None where only reading tells."""

    rows: int | None

    @abstractmethod
    def blocks(self, rows: int) -> Iterator[Block]:
        """The rows, at most ``rows`` at a time."""

    @abstractmethod
    def split(self, rows: int) -> list[Piece]:
        """The same rows as pieces of about ``rows`` each, as far as the source can be entered in the middle."""

    @abstractmethod
    def absolute(self) -> Piece:
        """The same with full names of files, for processes that run in another folder."""

    @abstractmethod
    def identity(self) -> list[Any] | None:
        """What tells this piece from any other and changes when its file does; None where there is no such thing."""


@dataclass(frozen=True)
class TablePiece(Piece):
    """Row groups (Parquet), record batches (Arrow) or all (CSV) of a file; ``name`` is the domain without a column.

    ``first`` is how many rows of the file come before.
    """

    path: str
    reading: Reading
    name: str | None
    part: tuple[int, int] | None = None
    rows: int | None = None
    first: int = 0

    def blocks(self, rows: int) -> Iterator[Block]:
        where, first = f'"{self.path}"', self.first
        try:
            for table in self._tables(rows):
                for begin in range(0, table.num_rows, rows):
                    part = table.slice(begin, rows)
                    yield table_block(part, self.reading, self.name, f"{where} (rows from {first + begin + 1:,})")
                first += table.num_rows
        except (OSError, pa.ArrowException) as error:
            raise DataError(self._explained(str(error))) from error

    def _explained(self, error: str) -> str:
        """Why the file cannot be read; Arrow counts the columns of CSV, which are better told by name."""
        found = re.search(r"CSV column #(\d+)", error)
        if found is None:
            return f'"{self.path}" cannot be read: {error}'
        name = file_schema(self.path, self.reading.form)[0].names[int(found[1])]
        return (
            f'column "{name}" of "{self.path}" cannot be read as numbers ({error}); encode text as numbers, '
            f'read decimal commas with decimal=","{LIST_COLUMNS}'
        )

    def _tables(self, rows: int) -> Iterator[Table]:
        kind = file_kind(Path(self.path))
        if kind == "parquet":
            # Without buffering ahead a row group is decoded page by page, however large it is.
            with parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=2**16) as file:
                groups = None if self.part is None else list(range(*self.part))
                for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=self.reading.names):
                    yield pa.Table.from_batches([batch])
        elif kind == "arrow":
            # Not memory-mapped: pages that were looked at would count as memory of this process.
            with pa.OSFile(self.path) as source, pa.ipc.open_file(source) as reader:
                begin, end = self.part or (0, reader.num_record_batches)
                for index in range(begin, end):
                    yield pa.Table.from_batches([reader.get_batch(index)]).select(self.reading.names)
        else:
            with _open_csv(self.path, self.reading.form, self.reading) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])

    def split(self, rows: int) -> list[Piece]:
        kind = file_kind(Path(self.path))
        if kind == "csv" or self.part is not None:
            return [self]
        if kind == "arrow":
            with pa.OSFile(self.path) as source, pa.ipc.open_file(source) as reader:
                sizes = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
        else:
            with parquet.ParquetFile(self.path) as file:
                sizes = [file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups)]
        pieces: list[Piece] = []
        begin = held = first = 0
        for index, size in enumerate(sizes):
            held += size
            if held >= rows or index == len(sizes) - 1:
                pieces.append(replace(self, part=(begin, index + 1), rows=held, first=first))
                begin, held, first = index + 1, 0, first + held
        return pieces

    def absolute(self) -> Piece:
        return replace(self, path=os.path.abspath(self.path))

    def identity(self) -> list[Any]:
        found = os.stat(self.path)
        return [os.path.abspath(self.path), found.st_size, found.st_mtime_ns, list(self.part or ())]


@dataclass(frozen=True, eq=False)
class ArrayPiece(Piece):
    """Rows ``begin`` to ``end`` of arrays, in memory or in .npy files (given by name, mapped when read)."""

    X: Any
    y: Any
    name: str
    begin: int
    end: int
    labels: Any = None

    @property
    def rows(self) -> int:  # type: ignore[override]
        return self.end - self.begin

    def blocks(self, rows: int) -> Iterator[Block]:
        X, y = opened(self.X), opened(self.y)
        for begin in range(self.begin, self.end, rows):
            here = slice(begin, min(begin + rows, self.end))
            names, codes = ((self.name,), None) if self.labels is None else label_block(self.labels[here], "domain")
            block = Block(_floats(X[here]), _floats(y[here]), names, codes)
            _release(X)
            _release(y)
            yield block

    def split(self, rows: int) -> list[Piece]:
        edges = [*range(self.begin, self.end, rows), self.end]
        return [replace(self, begin=begin, end=end) for begin, end in itertools.pairwise(edges)]

    def absolute(self) -> Piece:
        X, y = (os.path.abspath(part) if isinstance(part, str) else part for part in (self.X, self.y))
        return replace(self, X=X, y=y)

    def identity(self) -> list[Any] | None:
        if not (isinstance(self.X, str) and isinstance(self.y, str)) or self.labels is not None:
            return None
        stats = [(os.path.abspath(path), os.stat(path)) for path in (self.X, self.y)]
        return [*([path, found.st_size, found.st_mtime_ns] for path, found in stats), self.begin, self.end]


def file_kind(path: Path) -> str:
    """ "parquet", "arrow", "csv" or "npy" by the ending of the name; an empty text for an unknown one.

    Examples
    --------
    >>> file_kind(Path("a.csv.gz")), file_kind(Path("a.feather")), file_kind(Path("a.txt"))
    ('csv', 'arrow', '')
    """
    name = path.name.lower()
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), "")


def file_schema(path: str, form: CsvFormat) -> tuple[Any, int | None]:
    """The Arrow schema of a file and its number of rows (None for CSV and Arrow), without reading the rows."""
    try:
        if (kind := file_kind(Path(path))) == "parquet":
            with parquet.ParquetFile(path) as file:
                return file.schema_arrow, file.metadata.num_rows
        if kind == "arrow":
            with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
                return reader.schema, None
        with _open_csv(path, form, None) as reader:
            return reader.schema, None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise DataError(f'"{path}" cannot be read: {error}') from error


def opened(array: Any) -> Any:
    """The array of a .npy file, mapped, or the array itself."""
    return np.load(array, mmap_mode="r", allow_pickle=False) if isinstance(array, str) else array


def _floats(rows: Any) -> Floats:
    values = np.asarray(rows)
    return np.array(values, dtype=np.float32 if values.dtype == np.float32 else np.float64)


def _release(array: Any) -> None:
    """Give mapped pages back: they would count as memory of this process until the machine runs short of it."""
    mapped = getattr(array, "_mmap", None)
    # A private copy ("c") would lose its changes.
    if mapped is not None and getattr(array, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _open_csv(path: str, form: CsvFormat, reading: Reading | None) -> Any:
    separator = form.separator or ("\t" if ".tsv" in Path(path).name.lower() else ",")
    options: dict[str, Any] = {"decimal_point": form.decimal}
    if reading is not None:
        # Arrow would guess the types from the first block and stumble over 1.5 after many whole numbers.
        options["column_types"] = dict.fromkeys((*reading.columns, *reading.targets), pa.float64())
        options["include_columns"] = reading.names
        if reading.domain is not None:
            options["column_types"][reading.domain] = pa.string()
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_CSV_BYTES, encoding=form.encoding),
        parse_options=csv.ParseOptions(delimiter=separator),
        convert_options=csv.ConvertOptions(**options),
    )
