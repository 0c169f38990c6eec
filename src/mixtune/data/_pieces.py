"""Pieces of large sources: a stretch of a file or of an array, read block by block and never whole.

A piece knows where its rows lie and how to read them. It is small, so it can be sent to another process and read
there. Blocks come out of it as plain arrays, with the name of the domain of every row.
"""

from __future__ import annotations

import itertools
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from mixtune.data._readers import UTF8, CsvFormat
from mixtune.data._tables import LIST_COLUMNS, Table, to_matrix
from mixtune.errors import DataError

__all__ = ["ArrayPiece", "Block", "Piece", "Reading", "TablePiece", "file_kind", "file_schema", "table_block"]

Floats = NDArray[Any]

_ENDINGS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), "csv"),
    ".npy": "npy",
}
#: Text parsed at a time: lines must fit, and columns are typed beforehand, so small costs nothing.
_CSV_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in memory: ``X`` (n, d), ``y`` (n,) or (n, D); row i belongs to domain ``names[codes[i]]``.

    ``codes`` is None where all rows belong to ``names[0]``.
    """

    X: Floats
    y: Floats
    names: tuple[str, ...]
    codes: NDArray[np.int64] | None = None

    def by_domain(self) -> Iterator[tuple[str, Floats, Floats]]:
        """The rows of each domain, in the order in which they came.

        Examples
        --------
        >>> block = Block(np.array([[1.0], [2.0], [3.0]]), np.zeros(3), ("a", "b"), np.array([1, 0, 1]))
        >>> [(name, X[:, 0].tolist()) for name, X, _ in block.by_domain()]
        [('a', [2.0]), ('b', [1.0, 3.0])]
        """
        if self.codes is None:
            yield self.names[0], self.X, self.y
            return
        counts = np.bincount(self.codes, minlength=len(self.names))
        if np.count_nonzero(counts) == 1:
            yield self.names[int(counts.argmax())], self.X, self.y
            return
        order = np.argsort(self.codes, kind="stable")
        X, y, ends = self.X[order], self.y[order], np.cumsum(counts)
        for name, count, end in zip(self.names, counts.tolist(), ends.tolist(), strict=True):
            if count:
                yield name, X[end - count : end], y[end - count : end]


@dataclass(frozen=True)
class Reading:
    """Which columns of a table are inputs, targets and domain labels, and how CSV is written."""

    columns: tuple[str, ...]
    targets: tuple[str, ...]
    single_output: bool
    domain: str | None = None
    form: CsvFormat = UTF8

    @property
    def names(self) -> list[str]:
        """All columns to read."""
        return [*self.columns, *self.targets, *([] if self.domain is None else [self.domain])]


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
    """Row groups (Parquet), record batches (Arrow) or all (CSV) of a file; ``name`` is the domain without a column."""

    path: str
    reading: Reading
    name: str | None
    part: tuple[int, int] | None = None
    rows: int | None = None

    def blocks(self, rows: int) -> Iterator[Block]:
        where, first = f'"{self.path}"', 0
        try:
            for table in self._tables(rows):
                for begin in range(0, table.num_rows, rows):
                    part = table.slice(begin, rows)
                    yield table_block(part, self.reading, self.name, f"{where} (rows from {first + begin + 1:,})")
                first += table.num_rows
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{where} cannot be read: {error}") from error

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
        begin = held = 0
        for index, size in enumerate(sizes):
            held += size
            if held >= rows or index == len(sizes) - 1:
                pieces.append(replace(self, part=(begin, index + 1), rows=held))
                begin, held = index + 1, 0
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


def table_block(table: Table, reading: Reading, name: str | None, where: str) -> Block:
    """A slice of a table as a block; whatever is not a finite number is refused."""
    X = to_matrix(table, reading.columns, where, LIST_COLUMNS)
    y = to_matrix(table, reading.targets, where)
    y = y[:, 0] if reading.single_output else y
    if reading.domain is None:
        assert name is not None
        return Block(X, y, (name,))
    names, codes = label_block(table.column(reading.domain), f'column "{reading.domain}" of {where}')
    return Block(X, y, names, codes)


def label_block(labels: Any, where: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The distinct labels as text without space around, and the number of each row's label."""
    column = labels if isinstance(labels, pa.ChunkedArray | pa.Array) else pa.array(labels)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if missing := column.null_count:
        raise DataError(f"{where}: {missing} of {len(column)} rows have no label; label or drop these rows")
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    texts = [str(label).strip() for label in distinct]
    used = np.bincount(codes, minlength=len(distinct)) > 0
    if any(use and (not text or label != label) for use, text, label in zip(used, texts, distinct, strict=True)):
        raise DataError(f"{where} has rows with an empty label; label or drop these rows")
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return tuple(numbers), np.array([numbers[text] for text in texts], dtype=np.int64)[codes]


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
