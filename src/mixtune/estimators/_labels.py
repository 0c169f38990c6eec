"""Domain labels: one for each row, passed beside the rows or as one of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import _num_samples

from mixtune._array import Integers, computed, to_numpy
from mixtune._messages import nearest
from mixtune.data import is_table, known_frame
from mixtune.errors import DataError, ParameterError

#: A label with more values than this is almost certainly an identifier of rows, and as many models take hours.
MOST_DOMAINS = 20_000


@dataclass(frozen=True, eq=False)
class Labels:
    """The domain of each row: a place (n,) among names, which are in the order of their first row."""

    places: Integers
    names: tuple[str, ...]

    def among(self, known: Sequence[str]) -> Integers:
        """The place of each row's domain among ``known`` names; -1 where it is not one of them."""
        place = {name: k for k, name in enumerate(known)}
        return np.array([place.get(name, -1) for name in self.names], dtype=np.int64)[self.places]


def split_labels(X: Any, domain: Any, column: Any) -> tuple[Any, Labels | None]:
    """Rows without the column of labels, and the labels: those of ``domain``, or else of the column.

    Parameters
    ----------
    X : array-like or data frame
    domain : array-like (n,) or None
    column : str, int or None
        The name of the column in a frame, or its place in an array.

    Examples
    --------
    >>> X, labels = split_labels({"x": [1.0, 2.0, 3.0], "site": ["b", "a", "b"]}, None, "site")
    >>> X.column_names, labels.names, labels.places.tolist()
    (['x'], ('b', 'a'), [0, 1, 0])
    """
    if column is None:
        return X, None if domain is None else read_labels(domain, _num_samples(known_frame(X, "X")))
    if domain is not None:
        raise ParameterError(f"the model reads labels from column {column!r}; leave domain out of this call")
    (X,) = computed(X)
    own, X = _taken_out(known_frame(X, "X"), column)
    return X, read_labels(own, _num_samples(X))


def _taken_out(X: Any, column: Any) -> tuple[Any, Any]:
    """A column, and the rows without it."""
    if is_table(X):
        names = [str(name) for name in getattr(X, "column_names", getattr(X, "columns", ()))]
        if column not in names:
            raise DataError(f"X has no column {column!r} of domain labels; {nearest(str(column), names)}")
        if isinstance(X, pa.Table):
            return X.column(column), X.drop_columns(column)
        return X[column], X.drop(columns=column) if hasattr(X, "iloc") else X.drop(column)
    array = np.asarray(X)
    if isinstance(column, str) or array.ndim != 2 or not -array.shape[1] <= column < array.shape[1]:
        raise DataError(
            f"X of shape {array.shape} has no column {column!r} of domain labels; pass a data frame that has it, or "
            "fit(X, y, domain=labels)"
        )
    return array[:, column], np.delete(array, column, axis=1)


def read_labels(labels: Any, count: int) -> Labels:
    """Read one label for each of ``count`` rows; numbers and texts are both named by their text.

    Examples
    --------
    >>> read_labels([14, 3, 14], 3).names
    ('14', '3')
    """
    (labels,) = computed(labels)
    try:
        encoded = _as_arrow(labels).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise DataError(f"domain must be one text or number per row: {error}") from error
    if len(encoded) != count:
        raise DataError(f"there are {len(encoded)} domain labels for {count} rows; pass one label per row")
    missing = np.flatnonzero(np.asarray(encoded.indices.is_null()))
    names = [_text(value) for value in encoded.dictionary.to_pylist()]
    places = np.asarray(encoded.indices.fill_null(0), dtype=np.int64)
    absent = [k for k, name in enumerate(names) if name in ("", "nan")]
    if len(missing) or np.any(np.isin(places, absent)):
        rows = np.union1d(missing, np.flatnonzero(np.isin(places, absent)))
        raise DataError(
            f"{len(rows)} of {count} rows have no domain label, the first is row {rows[0]} (from 0); name them, or "
            "leave these rows out"
        )
    # Texts that differ in space around them only, or 1 and 1.0, are one domain.
    unique = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return Labels(np.array([unique[name] for name in names], dtype=np.int64)[places], tuple(unique))


def _as_arrow(labels: Any) -> Any:
    if hasattr(labels, "to_arrow"):
        labels = labels.to_arrow()
    if not isinstance(labels, pa.Array | pa.ChunkedArray):
        array = labels if hasattr(labels, "iloc") else np.asarray(to_numpy(labels))
        if getattr(array, "ndim", 1) != 1:
            raise DataError(f"domain has shape {np.shape(array)}; pass one label per row")
        labels = pa.array(array, from_pandas=True)
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    if pa.types.is_dictionary(labels.type):
        labels = labels.dictionary_decode()
    return labels


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def check_domains(names: Sequence[str]) -> None:
    """Raise where labels are so many that they hardly name domains."""
    if len(names) > MOST_DOMAINS:
        raise DataError(
            f"there are {len(names)} domains, more than {MOST_DOMAINS}; is the label an identifier of rows? group the "
            "rows into fewer domains"
        )
