"""Large sources in chunks: a stretch of a file or of an array, read block by block and never whole.

A chunk knows where its rows are and how to read them. It is small, so it can be sent to another process and read there.
Blocks come out of it as plain arrays, with the name of the domain of every row.
"""

from __future__ import annotations

import itertools
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from mixtune._array import Array, Integers
from mixtune._files import array_digest
from mixtune._messages import Wording, setting
from mixtune.data import UTF8, CsvFormat, to_matrix
from mixtune.errors import DataError

_ENDINGS = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".tsv.gz"), "csv"),
    ".npy": "npy",
}
#: Text parsed at a time. A line must fit; columns are typed beforehand, so a small size costs nothing.
_CSV_BYTES = 2**20


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in memory: ``X`` (n, d), ``y`` (n,) or (n, D); row i belongs to domain ``names[codes[i]]``.

    ``codes`` is None where all rows belong to ``names[0]``. A partition of a Dask collection is a chunk of one block.
    """

    X: Array
    y: Array
    names: tuple[str, ...]
    codes: Integers | None = None

    def by_domain(self) -> Iterator[tuple[str, Array, Array]]:
        """The rows of each domain, in the order in which they came.

        Examples
        --------
        >>> block = Block(np.array([[1.0], [2.0], [3.0]]), np.zeros(3), ("a", "b"), np.array([1, 0, 1]))
        >>> [(name, X[:, 0].tolist()) for name, X, _ in block.by_domain()]
        [('a', [2.0]), ('b', [1.0, 3.0])]
        """
        codes = np.zeros(len(self.X), dtype=np.int64) if self.codes is None else self.codes
        counts = np.bincount(codes, minlength=len(self.names))
        X, y = self.X, self.y
        if np.count_nonzero(counts) > 1:
            order = np.argsort(codes, kind="stable")
            X, y = X[order], y[order]
        for name, count, end in zip(self.names, counts.tolist(), np.cumsum(counts).tolist(), strict=True):
            if count:
                yield name, X[end - count : end], y[end - count : end]

    def blocks(self, rows: int) -> Iterator[Block]:
        yield self

    def identity(self) -> list[Any]:
        codes = np.zeros(0, dtype=np.int64) if self.codes is None else self.codes
        return [list(self.names), array_digest({"X": self.X, "y": self.y, "codes": codes})]


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns of a table are inputs, targets and domain labels, and how CSV is written."""

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    single_output: bool
    domain: str | None = None
    form: CsvFormat = UTF8

    @property
    def names(self) -> list[str]:
        """All columns to read."""
        return [*self.inputs, *self.targets, *([] if self.domain is None else [self.domain])]

    def block(self, table: Any, name: str | None, where: str) -> Block:
        """A slice of a table as a block; whatever is not a finite number is refused."""
        X = to_matrix(table, self.inputs, where, other_columns(self.domain))
        y = to_matrix(table, self.targets, where)
        y = y[:, 0] if self.single_output else y
        if self.domain is None:
            return Block(X, y, (str(name),))
        return Block(X, y, *label_codes(table.column(self.domain), f'column "{self.domain}" of {where}'))


def array_block(X: Array, y: Array, labels: Any, name: str) -> Block:
    """Rows of arrays as a block; all of them belong to domain ``name`` where there are no labels."""
    return Block(X, y, (name,)) if labels is None else Block(X, y, *label_codes(labels, "domain"))


def other_columns(domain: str | None) -> Wording:
    """What else can be done about an input column that is not numbers."""
    labels = "" if domain is not None else ", name the column that says where rows come from with --domain"
    return Wording(
        ", or list the columns to use with columns=[...]",
        f", or leave the column out with --ignore{labels}, or fit without --stream or --engine dask",
    )


def label_codes(labels: Any, where: str) -> tuple[tuple[str, ...], Integers]:
    """The distinct labels as text without space around, and the number of each row's label."""
    column = labels if isinstance(labels, pa.ChunkedArray | pa.Array) else pa.array(labels)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    # Categories may have levels that no row has.
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    texts = [str(label).strip() for label in distinct]
    # NaN is the label that differs from itself.
    blank = [not text or label != label for text, label in zip(texts, distinct, strict=True)]
    if lost := int(np.array([*blank, True])[codes].sum()):
        raise DataError(f"{where}: {lost} of {len(codes)} rows have no label; label or drop these rows")
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return tuple(numbers), np.array([numbers[text] for text in texts], dtype=np.int64)[codes]


@dataclass(frozen=True)
class TableChunk:
    """Row groups (Parquet), record batches (Arrow) or all (CSV) of a file; ``name`` is the domain without a column.

    ``rows`` is how many rows it holds, None where only reading tells; ``first`` is how many rows of the file come
    before.
    """

    path: str
    roles: ColumnRoles
    name: str | None
    part: tuple[int, int] | None = None
    rows: int | None = None
    first: int = 0

    def blocks(self, rows: int) -> Iterator[Block]:
        """The rows, at most ``rows`` at a time."""
        first = self.first
        try:
            for table in self._tables(rows):
                for begin in range(0, table.num_rows, rows):
                    where = f'"{self.path}" (rows from {first + begin + 1:,})'
                    yield self.roles.block(table.slice(begin, rows), self.name, where)
                first += table.num_rows
        except (OSError, pa.ArrowException) as error:
            raise self._explained(str(error)) from error

    def _explained(self, error: str) -> DataError:
        """Why the file cannot be read; Arrow gives the number of a column of CSV, its name says more."""
        found = re.search(r"CSV column #(\d+)", error)
        if found is None:
            return DataError(f'"{self.path}" cannot be read: {error}')
        column = file_schema(self.path, self.roles.form)[0].names[int(found[1])]
        return DataError(
            "{problem}; encode text as numbers, read decimal commas with {decimal}{otherwise}",
            problem=f'column "{column}" of "{self.path}" cannot be read as numbers ({error})',
            decimal=setting("decimal", ","),
            otherwise=other_columns(self.roles.domain),
        )

    def _tables(self, rows: int) -> Iterator[Any]:
        with _opened(self.path, self.roles.form, self.roles) as file:
            if isinstance(file, parquet.ParquetFile):
                groups = None if self.part is None else list(range(*self.part))
                batches = file.iter_batches(batch_size=rows, row_groups=groups, columns=self.roles.names)
            elif isinstance(file, pa.RecordBatchFileReader):
                batches = (file.get_batch(index) for index in range(*(self.part or (0, file.num_record_batches))))
            else:
                batches = file
            for batch in batches:
                yield pa.Table.from_batches([batch]).select(self.roles.names)

    def split(self, rows: int) -> list[Chunk]:
        """The same rows as chunks of about ``rows`` each, as far as the file can be entered in the middle."""
        with _opened(self.path, self.roles.form) as file:
            if isinstance(file, parquet.ParquetFile):
                sizes = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]
            elif isinstance(file, pa.RecordBatchFileReader):
                sizes = [file.get_batch(index).num_rows for index in range(file.num_record_batches)]
            else:
                return [self]
        chunks: list[Chunk] = []
        begin = held = first = 0
        for end, size in enumerate(sizes, start=1):
            held += size
            if held >= rows or end == len(sizes):
                chunks.append(replace(self, part=(begin, end), rows=held, first=first))
                begin, held, first = end, 0, first + held
        return chunks

    def identity(self) -> list[Any]:
        """What tells this chunk from any other and changes when its file does; None where there is no such thing."""
        return [_file_identity(self.path), list(self.part or ()), self.name]


@dataclass(frozen=True, eq=False)
class ArrayChunk:
    """Rows ``begin`` to ``end`` of arrays, in memory or in .npy files (given by name, mapped when read)."""

    X: Any
    y: Any
    name: str
    begin: int
    end: int
    labels: Any = None

    @property
    def rows(self) -> int:
        return self.end - self.begin

    def blocks(self, rows: int) -> Iterator[Block]:
        X, y = mapped(self.X), mapped(self.y)
        for begin in range(self.begin, self.end, rows):
            here = slice(begin, min(begin + rows, self.end))
            labels = None if self.labels is None else self.labels[here]
            block = array_block(_floats(X[here]), _floats(y[here]), labels, self.name)
            _release(X)
            _release(y)
            yield block

    def split(self, rows: int) -> list[Chunk]:
        edges = [*range(self.begin, self.end, rows), self.end]
        return [replace(self, begin=begin, end=end) for begin, end in itertools.pairwise(edges)]

    def identity(self) -> list[Any] | None:
        if not (isinstance(self.X, str) and isinstance(self.y, str)) or self.labels is not None:
            return None
        return [_file_identity(self.X), _file_identity(self.y), self.begin, self.end, self.name]


@dataclass(frozen=True, eq=False)
class DelayedChunk:
    """A partition of a Dask collection, as a block that Dask computes where it is needed."""

    block: Any
    rows: int | None = None
    name = None

    def blocks(self, rows: int) -> Iterator[Block]:
        yield self.block.compute()

    def identity(self) -> None:
        return None


Chunk: TypeAlias = TableChunk | ArrayChunk | DelayedChunk


def file_kind(path: str | Path) -> str:
    """ "parquet", "arrow", "csv" or "npy" by the ending of the name; an empty text for an unknown one.

    Examples
    --------
    >>> file_kind("a.csv.gz"), file_kind("a.feather"), file_kind("a.txt")
    ('csv', 'arrow', '')
    """
    name = str(path).lower()
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), "")


def file_schema(path: str, form: CsvFormat) -> tuple[Any, int | None]:
    """The Arrow schema of a file and its number of rows (None for CSV and Arrow), without reading the rows."""
    try:
        with _opened(path, form) as file:
            if isinstance(file, parquet.ParquetFile):
                return file.schema_arrow, file.metadata.num_rows
            return file.schema, None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise DataError(f'"{path}" cannot be read: {error}') from error


@contextmanager
def _opened(path: str, form: CsvFormat, roles: ColumnRoles | None = None) -> Iterator[Any]:
    """A reader of the file; the columns of CSV are typed where their roles are known."""
    kind = file_kind(path)
    if kind == "parquet":
        # Without buffering ahead a row group is decoded page by page, however large it is.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
            yield file
    elif kind == "arrow":
        # Not memory-mapped: pages that were looked at would count as memory of this process.
        with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
            yield reader
    else:
        options: dict[str, Any] = {"decimal_point": form.decimal}
        if roles is not None:
            # Arrow would infer the types from the first block and fail on 1.5 after many whole numbers.
            options["column_types"] = dict.fromkeys((*roles.inputs, *roles.targets), pa.float64())
            options["column_types"] |= {} if roles.domain is None else {roles.domain: pa.string()}
            options["include_columns"] = roles.names
        separator = form.separator or ("\t" if ".tsv" in Path(path).name.lower() else ",")
        with csv.open_csv(
            path,
            read_options=csv.ReadOptions(block_size=_CSV_BYTES, encoding=form.encoding),
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(**options),
        ) as reader:
            yield reader


def mapped(array: Any) -> Any:
    """The array of a .npy file, mapped, or the array itself."""
    return np.load(array, mmap_mode="r", allow_pickle=False) if isinstance(array, str) else array


def _file_identity(path: str) -> list[Any]:
    found = os.stat(path)
    return [os.path.abspath(path), found.st_size, found.st_mtime_ns]


def _floats(rows: Any) -> Array:
    values = np.asarray(rows)
    return np.array(values, dtype=np.float32 if values.dtype == np.float32 else np.float64)


def _release(array: Any) -> None:
    """Give mapped pages back: they would count as memory of this process until the machine runs short of it."""
    memory = getattr(array, "_mmap", None)
    # A private copy ("c") would lose its changes.
    if memory is not None and getattr(array, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)
