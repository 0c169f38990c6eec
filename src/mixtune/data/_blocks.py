"""Blocks of rows: plain arrays, with the name of the domain of every row, as they come out of large sources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mixtune.data._readers import UTF8, CsvFormat
from mixtune.data._tables import LIST_COLUMNS, Table, to_matrix
from mixtune.errors import DataError

__all__ = ["Block", "Reading", "label_block", "table_block"]

Floats = NDArray[Any]


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
