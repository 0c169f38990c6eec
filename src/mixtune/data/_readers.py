"""Files in, tables out: CSV and Parquet through pyarrow, with errors that name the file."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from mixtune.data._tables import Table, check_names
from mixtune.errors import DataError

__all__ = ["read_table"]

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read one CSV, TSV or Parquet file; the ending of its name says which.

    Parameters
    ----------
    path
        The file. CSV is UTF-8 with a header line.

    Returns
    -------
    pyarrow.Table
        With at least one row and distinct column names.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "north.csv")
    ...     _ = file.write_text("size,price\\n1,2.5\\n3,4.5\\n")
    ...     read_table(file).to_pydict()
    {'size': [1, 3], 'price': [2.5, 4.5]}
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (*_DELIMITERS, *_PARQUET):
        known = ", ".join((*_DELIMITERS, *_PARQUET))
        raise DataError(f'"{path}" is of an unknown kind; the name must end in one of {known}')
    if not path.is_file():
        raise DataError(f'"{path}" is not a file; check the path, and list the files of a folder one by one')
    try:
        table = _read_parquet(path) if suffix in _PARQUET else _read_csv(path, _DELIMITERS[suffix])
    except (OSError, pa.ArrowException) as error:
        raise DataError(f'"{path}" cannot be read as {suffix[1:].upper()}: {error}') from error
    check_names(table.column_names, f'"{path}"')
    if table.num_rows == 0:
        raise DataError(f'"{path}" has no rows; leave it out')
    return table


def _read_csv(path: Path, delimiter: str) -> Table:
    # Arrow infers a column's type from the first block only and then fails on 1.5 after many whole numbers,
    # so the block is the whole file (up to a gigabyte).
    block = min(max(path.stat().st_size, 1 << 20), 1 << 30)
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(block_size=block),
        parse_options=csv.ParseOptions(delimiter=delimiter),
    )
    if table.num_columns == 1 and ";" in table.column_names[0]:
        raise DataError(f'"{path}" is separated by semicolons; save it with commas (and decimal points)')
    return table


def _read_parquet(path: Path) -> Table:
    # Not parquet.read_table: that one adds columns from folder names such as school=3.
    with parquet.ParquetFile(path) as file:
        return file.read()
