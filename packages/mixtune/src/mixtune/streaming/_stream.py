"""Sources larger than memory: files, folders, mapped arrays and Dask collections as a stream of blocks.

For data that do not fit this takes the place of :class:`mixtune.Domains`: rows with the name of their domain, checked
before long work begins. They come in chunks. A chunk is a stretch of a file or of an array, read block by block and
never whole. It knows where its rows are and how to read them, and it is small, so that it can be sent to another
process and read there. Blocks come out of it as plain arrays, with the name of the domain of every row.
"""

from __future__ import annotations

import itertools
import mmap
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from mixtune._messages import Wording, nearest, quoted, setting
from mixtune.arrays import Array, Integers, check_unmasked, is_collection
from mixtune.checks import import_extra
from mixtune.data import (
    CsvFormat,
    as_names,
    as_paths,
    as_table,
    check_names,
    check_streamed_csv,
    choose_inputs,
    file_label,
    plain_text,
    to_matrix,
)
from mixtune.errors import DataError, ParameterError
from mixtune.files import array_digest

#: Called with the rows done and the rows in all, None where only reading tells.
Progress: TypeAlias = Callable[[int, int | None], None]
#: The first row group or record batch of a stretch of a file, and the first one after it.
Part: TypeAlias = tuple[int, int]

_KIND = re.compile(r"\.(?:(?P<parquet>parquet|pq)|(?P<arrow>arrow|feather|ipc)|(?P<csv>[ct]sv(\.gz)?)|(?P<npy>npy))$")
#: Text parsed at a time. A line must fit; columns are typed beforehand, so a small size costs nothing.
_CSV_BYTES = 2**20
_KINDS = ".parquet, .pq, .arrow, .feather, .ipc, .csv, .tsv (also with .gz) or a pair of .npy files"


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in memory: ``X`` (n, d), ``y`` (n,) or (n, D); row i belongs to domain ``names[codes[i]]``.

    A partition of a Dask collection is a chunk of one block.
    """

    X: Array
    y: Array
    names: tuple[str, ...]
    codes: Integers

    def by_domain(self) -> Iterator[tuple[str, Array, Array]]:
        """The rows of each domain, in the order in which they came.

        Examples
        --------
        >>> block = Block(np.array([[1.0], [2.0], [3.0]]), np.zeros(3), ("a", "b"), np.array([1, 0, 1]))
        >>> [(name, X[:, 0].tolist()) for name, X, _ in block.by_domain()]
        [('a', [2.0]), ('b', [1.0, 3.0])]
        """
        counts = np.bincount(self.codes, minlength=len(self.names))
        X, y = self.X, self.y
        if np.count_nonzero(counts) > 1:
            order = np.argsort(self.codes, kind="stable")
            X, y = X[order], y[order]
        for name, count, end in zip(self.names, counts.tolist(), np.cumsum(counts).tolist(), strict=True):
            if count:
                yield name, X[end - count : end], y[end - count : end]

    def blocks(self, rows: int) -> Iterator[Block]:
        yield self

    def identity(self) -> list[Any]:
        return [list(self.names), array_digest({"X": self.X, "y": self.y, "codes": self.codes})]


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns of a table are inputs, targets and domain labels, and how CSV is written."""

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    single_output: bool
    domain: str | None
    form: CsvFormat

    @property
    def types(self) -> dict[str, Any]:
        """All columns to read, with the types that they have in CSV: numbers, and labels."""
        labels = {} if self.domain is None else {self.domain: pa.string()}
        return dict.fromkeys((*self.inputs, *self.targets), pa.float64()) | labels

    def block(self, table: Any, name: str | None, where: str) -> Block:
        """A slice of a table, or a partition of a data frame, as a block; what is not a finite number is refused."""
        table = table if isinstance(table, pa.Table) else as_table(table, where)
        X = to_matrix(table, self.inputs, where, other_columns(self.domain))
        y = to_matrix(table, self.targets, where)
        y = y[:, 0] if self.single_output else y
        labels = None if self.domain is None else table.column(self.domain)
        return array_block(X, y, labels, str(name), f'column "{self.domain}" of {where}')


def array_block(X: Array, y: Array, labels: Any, name: str, where: str = "domain") -> Block:
    """Rows as a block; all of them belong to domain ``name`` where there are no labels."""
    for part, array in (("X", X), ("y", y), ("domain", labels)):
        check_unmasked(array, f'{part} of domain "{name}"')
    names, codes = ((name,), np.zeros(len(X), dtype=np.int64)) if labels is None else label_codes(labels, where)
    return Block(np.asarray(X), np.asarray(y), names, codes)


def other_columns(domain: str | None) -> Wording:
    """What else can be done about an input column that is not numbers."""
    labels = "" if domain is not None else ", name the column that says where rows come from with --domain"
    terminal = f", or leave the column out with --ignore{labels}, or fit without --stream or --engine dask"
    return Wording(", or list the columns to use with columns=[...]", terminal)


def label_codes(labels: Any, where: str) -> tuple[tuple[str, ...], Integers]:
    """The distinct labels as text without space around, and the number of each row's label."""
    column = labels.combine_chunks() if isinstance(labels, pa.ChunkedArray) else pa.array(labels)
    # Categories may have levels that no row has.
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    encoded = column.dictionary_encode("encode")  # a missing label is one of the distinct ones
    distinct, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    texts = ["" if label is None else plain_text(str(label)) for label in distinct]
    # NaN is the label that differs from itself.
    blank = [not text or label != label for text, label in zip(texts, distinct, strict=True)]
    if lost := int(np.array(blank, dtype=bool)[codes].sum()):
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
    part: Part | None = None
    rows: int | None = None
    first: int = 0

    def blocks(self, rows: int) -> Iterator[Block]:
        """The rows, at most ``rows`` at a time."""
        first = self.first
        with _open_table(self.path, self.roles.form, self.roles) as file:
            for batch in file.batches(self.part, rows):
                table = pa.Table.from_batches([batch]).select(list(self.roles.types))
                for begin in range(0, table.num_rows, rows):
                    where = f'"{self.path}" (rows from {first + begin + 1:,})'
                    yield self.roles.block(table.slice(begin, rows), self.name, where)
                first += table.num_rows

    def split(self, rows: int) -> list[Chunk]:
        """The same rows as chunks of about ``rows`` each, as far as the file can be entered in the middle.

        The file has its full name, for processes that run in another folder.
        """
        whole = replace(self, path=os.path.abspath(self.path))
        with _open_table(self.path, self.roles.form) as file:
            sizes = file.sizes()
        chunks: list[Chunk] = []
        begin = held = first = 0
        for end, size in enumerate(sizes, start=1):
            held += size
            if held >= rows or end == len(sizes):
                chunks.append(replace(whole, part=(begin, end), rows=held, first=first))
                begin, held, first = end, 0, first + held
        return chunks or [whole]

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
        X, y = open_array(self.X), open_array(self.y)
        for begin in range(self.begin, self.end, rows):
            here = slice(begin, min(begin + rows, self.end))
            labels = None if self.labels is None else self.labels[here]
            block = array_block(_floats(X[here]), _floats(y[here]), labels, self.name)
            _drop_pages(X)
            _drop_pages(y)
            yield block

    def split(self, rows: int) -> list[Chunk]:
        X, y = (os.path.abspath(array) if isinstance(array, str) else array for array in (self.X, self.y))
        edges = [*range(self.begin, self.end, rows), self.end]
        return [replace(self, X=X, y=y, begin=begin, end=end) for begin, end in itertools.pairwise(edges)]

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
    found = _KIND.search(str(path).lower())
    return "" if found is None else str(found.lastgroup)


class _TableFile(NamedTuple):
    """An open file: what is known before its rows are read, and its record batches.

    ``rows`` is None where only reading tells. ``sizes`` gives the rows of each part at which the file can be entered,
    nothing for CSV; ``batches`` takes a range of these parts, or None for all, and the most rows of a batch where the
    format lets one choose.
    """

    schema: Any
    rows: int | None
    sizes: Callable[[], list[int]]
    batches: Callable[[Part | None, int], Iterable[Any]]


@contextmanager
def _open_table(path: str, form: CsvFormat, roles: ColumnRoles | None = None) -> Iterator[_TableFile]:
    """A reader of the file; the columns of CSV are typed where their roles are known."""
    kind, types = file_kind(path), None if roles is None else roles.types
    names = types and list(types)
    try:
        if kind == "parquet":
            # Without buffering ahead a row group is decoded page by page, however large it is.
            with parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**16) as file:
                sizes = [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)]

                def groups(part: Part | None, rows: int) -> Iterable[Any]:
                    return file.iter_batches(rows, part and range(*part), names)

                yield _TableFile(file.schema_arrow, sum(sizes), lambda: sizes, groups)
        elif kind == "arrow":
            # Not memory-mapped: pages that were looked at would count as memory of this process.
            with pa.OSFile(path) as source, pa.ipc.open_file(source) as reader:
                every = range(reader.num_record_batches)

                def batches(part: Part | None, rows: int = 0) -> Iterable[Any]:
                    return map(reader.get_batch, range(*part) if part else every)

                yield _TableFile(reader.schema, None, lambda: [batch.num_rows for batch in batches(None)], batches)
        else:
            separator = form.separator or ("\t" if ".tsv" in Path(path).name.lower() else ",")
            check_streamed_csv(path, form, separator, tuple(_file_identity(path)))
            parse = csv.ParseOptions(delimiter=separator)
            read = csv.ReadOptions(block_size=_CSV_BYTES, encoding=form.encoding)
            # Arrow would infer the types from the first block and fail on 1.5 after many whole numbers.
            convert = csv.ConvertOptions(decimal_point=form.decimal, column_types=types, include_columns=names)
            with csv.open_csv(path, read, parse, convert) as reader:
                yield _TableFile(reader.schema, None, list, lambda part, rows: reader)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        found = re.search(r"CSV column #(\d+)", str(error))
        if roles is None or found is None:
            # Arrow quotes the row, which may be long.
            fields: dict[str, Any] = {
                "path": path,
                "first": str(error).splitlines()[0][:200],
                "fix": setting("encoding", "latin-1"),
            }
            advice = "; give every row as many cells as the header has" if "Expected" in fields["first"] else ""
            if isinstance(error, UnicodeError) or "UTF8" in fields["first"]:
                advice = "; pass {fix}, or the encoding of the file"
            raise DataError('"{path}" cannot be read: {first}' + advice, **fields) from error
        # Arrow gives the number of the column, its name says more.
        with _open_table(path, form) as file:
            column = file.schema.names[int(found[1])]
        problem = f'column "{column}" of "{path}" cannot be read as numbers ({error})'
        template = "{problem}; encode text as numbers, read decimal commas with {decimal}{otherwise}"
        otherwise, decimal = other_columns(roles.domain), setting("decimal", ",")
        raise DataError(template, problem=problem, decimal=decimal, otherwise=otherwise) from error


def open_array(array: Any) -> Any:
    """The array of a .npy file, mapped, or the array itself."""
    return np.load(array, mmap_mode="r", allow_pickle=False) if isinstance(array, str) else array


def _file_identity(path: str) -> list[Any]:
    found = os.stat(path)
    return [os.path.abspath(path), found.st_size, found.st_mtime_ns]


def _floats(rows: Any) -> Array:
    values = np.asarray(rows)
    return np.array(values, dtype=np.float32 if values.dtype == np.float32 else np.float64)


def _drop_pages(array: Any) -> None:
    """Give mapped pages back: they would count as memory of this process until the machine runs short of it."""
    memory = getattr(array, "_mmap", None)
    # A private copy ("c") would lose its changes.
    if memory is not None and getattr(array, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        memory.madvise(mmap.MADV_DONTNEED)


# --- streams --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows on disk, with what is known about them before reading.

    Attributes
    ----------
    chunks : tuple of Chunk
    columns : tuple of str or None
        Names of the input columns, where they have any.
    n_inputs, n_outputs : int
    """

    chunks: tuple[Chunk, ...]
    columns: tuple[str, ...] | None
    n_inputs: int
    n_outputs: int

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where only reading tells."""
        sizes = [chunk.rows for chunk in self.chunks if chunk.rows is not None and chunk.rows == chunk.rows]
        return sum(sizes) if len(sizes) == len(self.chunks) else None

    def blocks(self, rows: int) -> Iterator[Block]:
        """All rows, at most ``rows`` at a time."""
        for chunk in self.chunks:
            yield from chunk.blocks(rows)


def with_progress(stream: Iterable[Block], progress: Progress | None, total: int | None = None) -> Iterator[Block]:
    """The same blocks; reports how many rows are done each time that one has been used."""
    report, done = progress or (lambda done, total: None), 0
    report(done, total)
    for block in stream:
        yield block
        done += len(block.X)
        report(done, total)


def open_stream(
    source: Any,
    *,
    target: str | Sequence[str] | None = None,
    domain: Any = None,
    columns: str | Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str = ".",
) -> Stream:
    """Look at a source without reading its rows.

    Parameters
    ----------
    source
        Files or folders of tables (Parquet, Arrow, CSV): one path or several; or ``{name: files}`` with the files of
        each domain; or arrays, as ``{name: (X, y)}`` or one pair ``(X, y)``, where X and y are arrays, memory-mapped
        ones, Dask arrays, or names of .npy files; or a Dask data frame.
    target
        The column, or columns, to predict; arrays have none.
    domain
        The column that names each row's domain; a folder named ``column=value`` does as well. For one pair of arrays,
        the labels of all rows. By default every file is a domain of its own, named after it.
    columns
        The input columns; by default all others.
    ignore
        Columns of tables that are no inputs.
    encoding, separator, decimal
        How CSV is written.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pa.table({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0], "site": ["a", "b", "a"]})
    ...     pa.parquet.write_table(table, f"{folder}/all.parquet")
    ...     stream = open_stream(folder, target="y", domain="site")
    ...     [block.names for block in stream.blocks(2)], stream.rows
    ([('a', 'b'), ('a',)], 3)
    """
    form = CsvFormat(encoding, separator, decimal)
    if is_collection(source):
        return _frame_stream(source, target, domain, columns)
    if _is_pair(source):
        return _array_stream({"0": source}, target, columns, labels=domain)
    if isinstance(source, Mapping):
        if not source:
            raise ParameterError("source is empty; pass at least one domain")
        if domain is not None:
            raise ParameterError("a dict names its domains already; leave domain out, or pass the files as a list")
        items = {str(name).strip(): given for name, given in source.items()}
        if all(map(_is_pair, items.values())):
            return _array_stream(items, target, columns, labels=None)
        named: list[tuple[str | None, Path]] = [(name, path) for name in items for path in _files(items[name])]
    else:
        named = [(file_label(path) if domain is None else None, path) for path in _files(source)]
        times = Counter(name for name, _ in named if name is not None)
        if repeated := sorted(name for name, count in times.items() if count > 1):
            problem = f"more than one file is named {quoted(repeated)}, and every file is a domain of its own"
            remedy = "pass domain, the column that names the domains, or a dict of names and files"
            raise DataError(f"{problem}; {remedy}")
    return _table_stream(named, target, domain, columns, form, ignore)


def _is_pair(source: Any) -> bool:
    """Whether these are (X, y), as arrays or .npy files."""

    def is_array(value: Any) -> bool:
        if isinstance(value, str | os.PathLike):
            return file_kind(os.fspath(value)) == "npy"
        return hasattr(value, "shape") and hasattr(value, "dtype")

    return isinstance(source, tuple) and len(source) == 2 and all(map(is_array, source))


def _files(source: Any) -> list[Path]:
    """The files of a source, with those inside of folders, in the order of their names."""
    found: list[Path] = []
    for path in as_paths(source):
        if not (path.is_dir() or path.is_file()):
            raise DataError(f'"{path}" is not a file; check the path')
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        # Names such as _SUCCESS and .part.crc in a folder are markers rather than data.
        data = [f for f in files if not any(part.startswith((".", "_")) for part in f.relative_to(path).parts)]
        tables = [file for file in data if file_kind(file) not in ("", "npy")]
        if not tables and path.is_dir():
            raise DataError(f'the folder "{path}" holds no tables; files must end in {_KINDS}')
        if not tables:
            raise DataError(f'"{path}" cannot be streamed; pass {_KINDS}')
        found += tables
    return found


def _frame_stream(frame: Any, target: Any, domain: Any, columns: Any) -> Stream:
    if not hasattr(frame, "columns"):
        raise ParameterError("pass two Dask arrays, X and y, as a pair (X, y)")
    targets, where = _targets(target, domain), "the data frame"
    table = as_table(frame._meta, where)
    inputs = choose_inputs(table, targets=targets, domain=domain, columns=columns, where=where)
    roles = ColumnRoles(inputs, targets, isinstance(target, str), domain, CsvFormat())
    make = dask_module("dask").delayed(roles.block, pure=False)
    parts = frame[list(roles.types)].to_delayed()
    blocks = [make(part, "0", f"partition {number} of {where}") for number, part in enumerate(parts)]
    return Stream(tuple(map(DelayedChunk, blocks)), inputs, len(inputs), len(targets))


def _targets(target: Any, domain: Any) -> tuple[str, ...]:
    """The columns to predict, of tables whose domains are in another column, if any."""
    if target is None:
        raise ParameterError("target is missing; pass the column to predict, such as target='y'")
    if domain is not None and not isinstance(domain, str):
        raise ParameterError(f"domain={domain!r} must be the name of a column")
    return as_names(target, "target")


def _table_stream(
    files: list[tuple[str | None, Path]], target: Any, domain: str | None, columns: Any, form: CsvFormat, ignore: Any
) -> Stream:
    targets = _targets(target, domain)
    times = Counter((name, path.resolve()) for name, path in files)
    if repeated := [path for (_, path), count in times.items() if count > 1]:
        raise DataError(f'"{repeated[0]}" is given more than once, and its rows would count as often; pass it once')
    chunks: list[Chunk] = []
    chosen: tuple[str, ...] = ()
    for name, path in files:
        where = f'"{path}"'
        with _open_table(str(path), form) as file:
            names, known, rows = file.schema.names, file.schema.empty_table(), file.rows
        check_names(names, where)
        column = domain if domain in names else None
        label = _folder_label(path, domain, names) if domain is not None and column is None else name
        roles: dict[str, Any] = {"targets": targets, "domain": column, "where": where}
        roles["otherwise"] = other_columns(domain)
        if not chunks:
            if unknown := [name for name in ignore if name not in names]:
                hint = nearest(unknown[0], names)
                raise ParameterError(f'ignore names "{unknown[0]}", which is not a column of any table; {hint}')
            chosen = choose_inputs(known.drop_columns(list(ignore)), columns=columns, **roles)
        else:
            choose_inputs(known, columns=chosen, **roles)
            if columns is None and (more := set(names) - {*chosen, *targets, domain, *ignore}):
                problem = f"{where} has columns that the first file has not: {quoted(sorted(more))}"
                raise DataError(f"{problem}; add them there, or say which columns to use")
        read = ColumnRoles(chosen, targets, isinstance(target, str), column, form)
        chunks.append(TableChunk(str(path), read, label, None, rows))
        # Reading a few rows of the first file finds text and missing columns before long work begins.
        if rows == 0 or (len(chunks) == 1 and next(chunks[0].blocks(100), None) is None):
            raise DataError(f"{where} has no rows; leave it out")
    return Stream(tuple(chunks), chosen, len(chosen), len(targets))


def _folder_label(path: Path, domain: str, names: Sequence[str]) -> str:
    for part in path.parts:
        if part.startswith(f"{domain}="):
            return unquote(part.removeprefix(f"{domain}="))
    raise DataError(f'"{path}" has no column "{domain}", and no folder {domain}=...; {nearest(domain, names)}')


def _array_stream(pairs: Mapping[str, tuple[Any, Any]], target: Any, columns: Any, *, labels: Any) -> Stream:
    if target is not None or columns is not None:
        raise ParameterError("arrays have no named columns; leave target and columns out, and pass pairs (X, y)")
    chunks: list[Chunk] = []
    kinds: dict[tuple[int, tuple[int, ...]], str] = {}
    for name, pair in pairs.items():
        X, y = (os.fspath(part) if isinstance(part, os.PathLike) else part for part in pair)
        try:
            arrays = {"X": open_array(X), "y": open_array(y)}
        except (OSError, ValueError) as error:
            raise DataError(f'the .npy files of domain "{name}" cannot be read: {error}') from error
        for part, array in arrays.items():
            check_unmasked(array, f'{part} of domain "{name}"')
            if getattr(array.dtype, "kind", "O") not in "fiub":
                raise DataError(f'{part} of domain "{name}" holds values of type {array.dtype}; pass numbers')
        inputs, targets = (array.shape for array in arrays.values())
        # Lengths that Dask does not know are NaN.
        lengths = {length for length in (*inputs[:1], *targets[:1]) if length == length}
        if len(inputs) != 2 or len(targets) not in (1, 2) or len(lengths) > 1 or 0 in inputs:
            shapes = f'domain "{name}" has X of shape {inputs} and y of shape {targets}'
            raise DataError(f"{shapes}; pass at least one row, and one target per row")
        if labels is not None and not is_collection(labels) and len(labels) != inputs[0]:
            raise DataError(f"there are {len(labels)} labels in domain for {inputs[0]} rows; pass one label per row")
        kinds.setdefault((inputs[1], targets[1:]), name)
        if is_collection(X) or is_collection(y):
            chunks.extend(_dask_chunks(name, X, y, labels))
        else:
            chunks.append(ArrayChunk(X, y, name, 0, inputs[0], labels))
    if len(kinds) > 1:
        found = ", ".join(f'"{name}" has {width} columns and targets {rest}' for (width, rest), name in kinds.items())
        raise DataError(f"the domains differ in shape: {found}; pass the same columns and outputs for all")
    width, rest = next(iter(kinds))
    return Stream(tuple(chunks), None, int(width), int(rest[0]) if rest else 1)


def _dask_chunks(name: str, X: Any, y: Any, labels: Any) -> Iterator[Chunk]:
    """Chunks of whole rows of Dask arrays, those of y and the labels cut like those of X."""
    if not (is_collection(X) and is_collection(y)):
        raise ParameterError(f'domain "{name}" must be a pair (X, y) of Dask arrays')
    if labels is not None and not is_collection(labels):
        raise ParameterError("domain must be a Dask array with the label of every row of one pair (X, y)")
    make = dask_module("dask").delayed(array_block, pure=False)
    sizes = X.chunks[0]
    rows = {} if any(size != size for size in sizes) else {0: sizes}  # NaN where Dask does not know
    parts: list[Any] = [sizes]
    for part, array in (("X", X), ("y", y), ("domain", labels)):
        if array is None:
            parts.append([None] * len(sizes))
            continue
        array = array.rechunk(rows | ({1: -1} if array.ndim == 2 else {}))
        if array.numblocks[0] != len(sizes):
            raise DataError(f"{part} has {array.numblocks[0]} chunks of rows, X has {len(sizes)}; chunk them alike")
        parts.append(array.to_delayed().ravel())
    for size, *arrays in zip(*parts, strict=True):
        yield DelayedChunk(make(*arrays, name), size)


def dask_module(name: str) -> Any:
    """Import a module of Dask, or say how to install it."""
    return import_extra(name, "dask", "work on a Dask cluster")
