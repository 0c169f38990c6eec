"""Dask collections as users hand them over: told from other data, and brought into memory where they are small."""

from __future__ import annotations

from typing import Any

from mixtune.errors import DataError

__all__ = ["MOST_FOCAL", "computed", "is_collection"]

#: The most rows of a Dask collection that are brought into memory as focal rows.
MOST_FOCAL = 100_000


def is_collection(value: Any) -> bool:
    """Whether this is a Dask array or data frame.

    Examples
    --------
    >>> import dask.array as da
    >>> is_collection(da.ones(3)), is_collection([1.0])
    (True, False)
    """
    return hasattr(value, "__dask_graph__") and hasattr(value, "to_delayed")


def computed(*values: Any, most: int = MOST_FOCAL) -> tuple[Any, ...]:
    """The values, with Dask collections among them brought into memory.

    Raises
    ------
    DataError
        If a collection has more than ``most`` rows.

    Examples
    --------
    >>> import dask.array as da
    >>> computed(da.arange(3, chunks=2), None)
    (array([0, 1, 2]), None)
    """
    for value in values:
        if is_collection(value) and (rows := _rows(value)) > most:
            raise DataError(
                f"a Dask collection of {rows:,} rows was passed as the focal rows, which are held in memory; pass at "
                f"most {most:,} of them, and large data as sources"
            )
    return tuple(value.compute() if is_collection(value) else value for value in values)


def _rows(collection: Any) -> int:
    # The rows of a data frame, and of what was made from one, are known only after counting them.
    known = collection.shape[0] if hasattr(collection, "chunks") else len(collection)
    return int(known if known == known else collection.compute_chunk_sizes().shape[0])
