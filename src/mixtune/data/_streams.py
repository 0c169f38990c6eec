"""Sources larger than memory: files, folders and mapped arrays as a stream of blocks.

On the data's way this stands where :class:`mixtune.Domains` stands for data that fit: rows with the name of their
domain, checked before long work begins, read in pieces that may also be read on other machines.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mixtune._messages import nearest, quoted
from mixtune.data._blocks import Block, Reading
from mixtune.data._pieces import ArrayPiece, Piece, TablePiece, file_kind, file_schema, opened
from mixtune.data._readers import CsvFormat, as_paths, file_label
from mixtune.data._tables import as_names, check_names, choose_inputs
from mixtune.errors import DataError, ParameterError

__all__ = ["Stream", "open_stream"]

_KINDS = ".parquet, .pq, .arrow, .feather, .ipc, .csv, .tsv (also with .gz) or a pair of .npy files"


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows on disk, with what is known about them before reading.

    Attributes
    ----------
    pieces : tuple of Piece
    columns : tuple of str or None
        Names of the input columns, where they have any.
    n_inputs, n_outputs : int
    """

    pieces: tuple[Piece, ...]
    columns: tuple[str, ...] | None
    n_inputs: int
    n_outputs: int

    @property
    def rows(self) -> int | None:
        """How many rows there are; None where only reading tells."""
        sizes = [piece.rows for piece in self.pieces]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def blocks(self, rows: int) -> Iterator[Block]:
        """All rows, at most ``rows`` at a time."""
        for piece in self.pieces:
            yield from piece.blocks(rows)

    def split(self, rows: int) -> list[Piece]:
        """The stream as pieces of about ``rows`` rows, to be read anywhere in any order."""
        return [part for piece in self.pieces for part in piece.split(rows)]


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
        ones, or names of .npy files.
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
    if _is_pair(source):
        return _array_stream([("0", source)], target, columns, labels=domain)
    if isinstance(source, Mapping):
        if not source:
            raise ParameterError("source is empty; pass at least one domain")
        items = [(str(name).strip(), given) for name, given in source.items()]
        if domain is not None:
            raise ParameterError("a dict names its domains already; leave domain out, or pass the files as a list")
        if all(_is_pair(given) for _, given in items):
            return _array_stream(items, target, columns, labels=None)
        return _table_stream(
            [(name, path) for name, given in items for path in _files(given)], target, None, columns, form, ignore
        )
    files = _files(source)
    if domain is not None:
        if not isinstance(domain, str):
            raise ParameterError(f"domain={domain!r} must be the name of a column of the files")
        return _table_stream([(None, path) for path in files], target, domain, columns, form, ignore)
    named = [(file_label(path) if file_kind(path) in ("csv", "parquet") else path.stem, path) for path in files]
    if repeated := sorted({name for name, _ in named if [other for other, _ in named].count(name) > 1}):
        raise DataError(
            f"more than one file is named {quoted(repeated)}, and every file is a domain of its own; "
            "pass domain, the column that names the domains, or a dict of names and files"
        )
    return _table_stream(named, target, None, columns, form, ignore)


def _is_pair(source: Any) -> bool:
    """Whether these are (X, y), as arrays or .npy files."""

    def is_array(value: Any) -> bool:
        if isinstance(value, str | os.PathLike):
            return file_kind(Path(value)) == "npy"
        return hasattr(value, "shape") and hasattr(value, "dtype")

    return isinstance(source, tuple) and len(source) == 2 and all(map(is_array, source))


def _files(source: Any) -> list[Path]:
    """The files of a source, folders opened, in the order of their names."""
    found = []
    for path in as_paths(source):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and not _is_hidden(file, path))
            tables = [file for file in inside if file_kind(file) not in ("", "npy")]
            if not tables:
                raise DataError(f'the folder "{path}" holds no tables; files must end in {_KINDS}')
            found.extend(tables)
        elif not path.is_file():
            raise DataError(f'"{path}" is not a file; check the path')
        elif file_kind(path) in ("", "npy"):
            raise DataError(f'"{path}" cannot be streamed; pass {_KINDS}')
        else:
            found.append(path)
    return found


def _is_hidden(file: Path, folder: Path) -> bool:
    """Whether a file is somebody's note to self, such as _SUCCESS or .part.crc."""
    return any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)


def _table_stream(
    files: Sequence[tuple[str | None, Path]],
    target: Any,
    domain: str | None,
    columns: Any,
    form: CsvFormat,
    ignore: Sequence[str],
) -> Stream:
    if target is None:
        raise ParameterError("target is missing; pass the column to predict, such as target='y'")
    targets = as_names(target, "target")
    times = Counter((name, path.resolve()) for name, path in files)
    if repeated := [path for (_, path), count in times.items() if count > 1]:
        raise DataError(f'"{repeated[0]}" is given more than once, and its rows would count as often; pass it once')
    pieces: list[Piece] = []
    chosen: tuple[str, ...] = ()
    for name, path in files:
        schema, rows = file_schema(str(path), form)
        check_names(schema.names, f'"{path}"')
        label = name if domain is None or domain in schema.names else _folder_label(path, domain, schema.names)
        column = domain if domain in schema.names else None
        where = f'"{path}"'
        known = schema.empty_table()
        if chosen:
            choose_inputs(known, targets=targets, domain=column, columns=chosen, where=where)
            if columns is None and (more := set(known.column_names) - {*chosen, *targets, domain, *ignore}):
                raise DataError(
                    f"{where} has columns that the first file has not: {quoted(sorted(more))}; add them there, or say "
                    "which columns to use"
                )
        else:
            known = known.drop_columns(_ignored(ignore, known.column_names)) if ignore else known
            chosen = choose_inputs(known, targets=targets, domain=column, columns=columns, where=where)
        if rows == 0:
            raise DataError(f"{where} has no rows; leave it out")
        reading = Reading(chosen, targets, isinstance(target, str), column, form)
        pieces.append(TablePiece(str(path), reading, label, None, rows))
    # One look at real rows finds text and missing columns before long work begins.
    if next(pieces[0].blocks(100), None) is None:
        raise DataError(f'"{files[0][1]}" has no rows; leave it out')
    return Stream(tuple(pieces), chosen, len(chosen), len(targets))


def _ignored(ignore: Sequence[str], names: Sequence[str]) -> list[str]:
    for name in ignore:
        if name not in names:
            raise ParameterError(f'ignore names "{name}", which no table has; {nearest(name, names)}')
    return list(ignore)


def _folder_label(path: Path, domain: str, names: Sequence[str]) -> str:
    for part in path.parts:
        if part.startswith(f"{domain}="):
            return unquote(part.removeprefix(f"{domain}="))
    raise DataError(f'"{path}" has no column "{domain}", and no folder {domain}=...; {nearest(domain, names)}')


def _array_stream(items: list[tuple[str, tuple[Any, Any]]], target: Any, columns: Any, *, labels: Any) -> Stream:
    if target is not None or columns is not None:
        raise ParameterError("arrays have no named columns; leave target and columns out, and pass pairs (X, y)")
    pieces: list[Piece] = []
    shapes: dict[tuple[int, tuple[int, ...]], str] = {}
    for name, pair in items:
        X, y = (str(part) if isinstance(part, str | os.PathLike) else part for part in pair)
        try:
            (rows, width), targets = opened(X).shape, opened(y).shape
        except (OSError, ValueError) as error:
            raise DataError(
                f'domain "{name}": X must be an array (n, d), in memory or in a .npy file: {error}'
            ) from error
        for what, array in (("X", opened(X)), ("y", opened(y))):
            if getattr(array.dtype, "kind", "O") not in "fiub":
                raise DataError(f'{what} of domain "{name}" holds values of type {array.dtype}; pass numbers')
        if len(targets) not in (1, 2) or targets[0] != rows or rows == 0 or width == 0:
            raise DataError(
                f'domain "{name}" has X of shape {(rows, width)} and y of shape {targets}; '
                "pass at least one row, and one target per row"
            )
        shapes.setdefault((width, targets[1:]), name)
        if labels is not None and len(labels) != rows:
            raise DataError(f"there are {len(labels)} labels in domain for {rows} rows; pass one label per row")
        pieces.append(ArrayPiece(X, y, name, 0, rows, labels))
    if len(shapes) > 1:
        told = ", ".join(
            f'"{name}" has {width} columns and targets {(*rest,)}' for (width, rest), name in shapes.items()
        )
        raise DataError(f"the domains differ in shape: {told}; pass the same columns and outputs for all")
    width, rest = next(iter(shapes))
    return Stream(tuple(pieces), None, width, rest[0] if rest else 1)
