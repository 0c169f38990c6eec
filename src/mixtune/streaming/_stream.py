"""Sources larger than memory: files, folders and mapped arrays as a stream of blocks.

For data that do not fit this takes the place of :class:`mixtune.Domains`: rows with the name of their domain, checked
before long work begins, in chunks that may also be read on other machines.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np

from mixtune._array import check_unmasked, is_collection
from mixtune._messages import nearest, quoted
from mixtune.data import CsvFormat, as_names, as_paths, as_table, check_names, choose_inputs, file_label
from mixtune.errors import DataError, MissingExtraError, ParameterError
from mixtune.streaming import _blocks as blocks

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the rows done and the rows in all, None where only reading tells."""


_KINDS = ".parquet, .pq, .arrow, .feather, .ipc, .csv, .tsv (also with .gz) or a pair of .npy files"


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

    chunks: tuple[blocks.Chunk, ...]
    columns: tuple[str, ...] | None
    n_inputs: int
    n_outputs: int

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where only reading tells."""
        sizes = [chunk.rows for chunk in self.chunks if chunk.rows is not None and chunk.rows == chunk.rows]
        return sum(sizes) if len(sizes) == len(self.chunks) else None

    def blocks(self, rows: int) -> Iterator[blocks.Block]:
        """All rows, at most ``rows`` at a time."""
        for chunk in self.chunks:
            yield from chunk.blocks(rows)


def reported(
    stream: Iterable[blocks.Block], progress: Progress | None, total: int | None = None
) -> Iterator[blocks.Block]:
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
    elif domain is None:
        named = [(file_label(path), path) for path in _files(source)]
        if repeated := sorted(str(name) for name, count in Counter(name for name, _ in named).items() if count > 1):
            raise DataError(
                f"more than one file is named {quoted(repeated)}, and every file is a domain of its own; "
                "pass domain, the column that names the domains, or a dict of names and files"
            )
    else:
        named = [(None, path) for path in _files(source)]
    return _table_stream(named, target, domain, columns, form, ignore)


def _is_pair(source: Any) -> bool:
    """Whether these are (X, y), as arrays or .npy files."""

    def is_array(value: Any) -> bool:
        if isinstance(value, str | os.PathLike):
            return blocks.file_kind(os.fspath(value)) == "npy"
        return hasattr(value, "shape") and hasattr(value, "dtype")

    return isinstance(source, tuple) and len(source) == 2 and all(map(is_array, source))


def _files(source: Any) -> list[Path]:
    """The files of a source, with those inside of folders, in the order of their names."""
    found = []
    for path in as_paths(source):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file())
            # Names such as _SUCCESS and .part.crc are markers rather than data.
            data = [f for f in inside if not any(part.startswith((".", "_")) for part in f.relative_to(path).parts)]
            tables = [file for file in data if blocks.file_kind(file) not in ("", "npy")]
            if not tables:
                raise DataError(f'the folder "{path}" holds no tables; files must end in {_KINDS}')
            found.extend(tables)
        elif not path.is_file():
            raise DataError(f'"{path}" is not a file; check the path')
        elif blocks.file_kind(path) in ("", "npy"):
            raise DataError(f'"{path}" cannot be streamed; pass {_KINDS}')
        else:
            found.append(path)
    return found


def _frame_stream(frame: Any, target: Any, domain: Any, columns: Any) -> Stream:
    if not hasattr(frame, "columns"):
        raise ParameterError("pass two Dask arrays, X and y, as a pair (X, y)")
    targets, where = _targets(target, domain), "the data frame"
    table = as_table(frame._meta, where)
    inputs = choose_inputs(table, targets=targets, domain=domain, columns=columns, where=where)
    roles = blocks.ColumnRoles(inputs, targets, isinstance(target, str), domain)
    make = dask_module("dask").delayed(_frame_block, pure=False)
    parts = enumerate(frame[roles.names].to_delayed())
    chunks = tuple(blocks.DelayedChunk(make(part, roles, number)) for number, part in parts)
    return Stream(chunks, inputs, len(inputs), len(targets))


def _frame_block(partition: Any, roles: blocks.ColumnRoles, number: int) -> blocks.Block:
    where = f"partition {number} of the data frame"
    return roles.block(as_table(partition, where), "0", where)


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
    chunks: list[blocks.Chunk] = []
    chosen: tuple[str, ...] = ()
    for name, path in files:
        where = f'"{path}"'
        schema, rows = blocks.file_schema(str(path), form)
        if rows == 0:
            raise DataError(f"{where} has no rows; leave it out")
        check_names(schema.names, where)
        column = domain if domain in schema.names else None
        label = _folder_label(path, domain, schema.names) if domain is not None and column is None else name
        known = schema.empty_table()
        otherwise = blocks.other_columns(domain)
        roles: dict[str, Any] = {"targets": targets, "domain": column, "where": where, "otherwise": otherwise}
        if chosen:
            choose_inputs(known, columns=chosen, **roles)
            if columns is None and (more := set(schema.names) - {*chosen, *targets, domain, *ignore}):
                raise DataError(
                    f"{where} has columns that the first file has not: {quoted(sorted(more))}; add them there, or say "
                    "which columns to use"
                )
        else:
            if unknown := [name for name in ignore if name not in schema.names]:
                raise ParameterError(
                    f'ignore names "{unknown[0]}", which no table has; {nearest(unknown[0], schema.names)}'
                )
            chosen = choose_inputs(known.drop_columns(list(ignore)), columns=columns, **roles)
        read = blocks.ColumnRoles(chosen, targets, isinstance(target, str), column, form)
        chunks.append(blocks.TableChunk(str(path), read, label, None, rows))
    # Reading a few rows finds text and missing columns before long work begins.
    if next(chunks[0].blocks(100), None) is None:
        raise DataError(f'"{files[0][1]}" has no rows; leave it out')
    return Stream(tuple(chunks), chosen, len(chosen), len(targets))


def _folder_label(path: Path, domain: str, names: Sequence[str]) -> str:
    for part in path.parts:
        if part.startswith(f"{domain}="):
            return unquote(part.removeprefix(f"{domain}="))
    raise DataError(f'"{path}" has no column "{domain}", and no folder {domain}=...; {nearest(domain, names)}')


def _array_stream(pairs: Mapping[str, tuple[Any, Any]], target: Any, columns: Any, *, labels: Any) -> Stream:
    if target is not None or columns is not None:
        raise ParameterError("arrays have no named columns; leave target and columns out, and pass pairs (X, y)")
    chunks: list[blocks.Chunk] = []
    kinds: dict[tuple[int, tuple[int, ...]], str] = {}
    for name, pair in pairs.items():
        X, y = (os.fspath(part) if isinstance(part, os.PathLike) else part for part in pair)
        try:
            arrays = {"X": blocks.mapped(X), "y": blocks.mapped(y)}
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
            raise DataError(
                f'domain "{name}" has X of shape {inputs} and y of shape {targets}; '
                "pass at least one row, and one target per row"
            )
        if labels is not None and not is_collection(labels) and len(labels) != inputs[0]:
            raise DataError(f"there are {len(labels)} labels in domain for {inputs[0]} rows; pass one label per row")
        kinds.setdefault((inputs[1], targets[1:]), name)
        if is_collection(X) or is_collection(y):
            chunks.extend(_aligned(name, X, y, labels))
        else:
            chunks.append(blocks.ArrayChunk(X, y, name, 0, inputs[0], labels))
    if len(kinds) > 1:
        found = ", ".join(f'"{name}" has {width} columns and targets {rest}' for (width, rest), name in kinds.items())
        raise DataError(f"the domains differ in shape: {found}; pass the same columns and outputs for all")
    width, rest = next(iter(kinds))
    return Stream(tuple(chunks), None, int(width), int(rest[0]) if rest else 1)


def _aligned(name: str, X: Any, y: Any, labels: Any) -> Iterator[blocks.Chunk]:
    """Chunks of whole rows of Dask arrays, those of y and the labels cut like those of X."""
    if not (is_collection(X) and is_collection(y)):
        raise ParameterError(f'domain "{name}" must come as a pair (X, y) of Dask arrays')
    if labels is not None and not is_collection(labels):
        raise ParameterError("domain must be a Dask array with the label of every row of one pair (X, y)")
    make = dask_module("dask").delayed(_array_block, pure=False)
    X = X.rechunk({1: -1})
    rows = {} if any(size != size for size in X.chunks[0]) else {0: X.chunks[0]}  # NaN where Dask does not know
    parts: list[Any] = [X.to_delayed().ravel()]
    for part, array in (("y", y), ("domain", labels)):
        if array is None:
            parts.append([None] * X.numblocks[0])
            continue
        array = array.rechunk(rows | ({1: -1} if array.ndim == 2 else {}))
        if array.numblocks[0] != X.numblocks[0]:
            raise DataError(f"{part} has {array.numblocks[0]} chunks of rows, X has {X.numblocks[0]}; chunk them alike")
        parts.append(array.to_delayed().ravel())
    for size, *arrays in zip(X.chunks[0], *parts, strict=True):
        yield blocks.DelayedChunk(make(*arrays, name), size)


def _array_block(X: Any, y: Any, labels: Any, name: str) -> blocks.Block:
    for part, array in (("X", X), ("y", y), ("domain", labels)):
        check_unmasked(array, f'{part} of domain "{name}"')
    return blocks.array_block(np.asarray(X), np.asarray(y), None if labels is None else np.asarray(labels), name)


def dask_module(name: str) -> Any:
    """Import a module of Dask, or say how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(name.split(".")[0], "dask", "work on a Dask cluster") from error
