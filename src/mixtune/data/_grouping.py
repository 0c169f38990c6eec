"""From a label per row to one domain per label, in time close to linear in the rows.

Rows are sorted by label once and the domains are slices of the sorted arrays, so a million rows in a hundred
thousand domains cost seconds, not hours.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from mixtune.data._arrays import Array
from mixtune.data._domain import Domain
from mixtune.errors import DataError, ParameterError

__all__ = ["label_codes", "split_by_label"]


def label_codes(labels: Any, focal: Hashable, where: str, *, n_rows: int) -> tuple[NDArray[np.int64], list[str], str]:
    """Number the labels in the order of their first appearance.

    Parameters
    ----------
    labels
        One hashable label per row. Space around texts does not count: "x" and "x " are one label.
    focal
        The label of the focal domain.
    where
        How an error names the labels.
    n_rows
        How many labels there must be.

    Returns
    -------
    tuple
        The number of each row's label, the labels as text, and the focal label as text.

    Examples
    --------
    >>> label_codes(["b", "a", "b"], "a", "labels", n_rows=3)
    (array([0, 1, 0]), ['b', 'a'], 'a')
    """
    rows = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    try:
        hash(focal)
    except TypeError as error:
        raise ParameterError(f"focal={focal!r} must be one label, such as a text or a number, not several") from error
    if len(rows) != n_rows:
        raise DataError(f"there are {len(rows)} {where} for {n_rows} rows; pass one label per row")
    numbers: dict[Hashable, int] = {}
    try:
        codes = np.array([numbers.setdefault(label, len(numbers)) for label in rows], dtype=np.int64)
    except TypeError as error:
        raise DataError(f"{where} must be one text or number per row: {error}") from error
    missing = [number for label, number in numbers.items() if _is_missing(label)]
    if missing:
        lost = np.isin(codes, missing)
        first = int(lost.argmax()) + 1
        raise DataError(
            f"{where}: {int(lost.sum())} of {n_rows} rows have no label (the first is data row {first}); "
            "label or drop these rows"
        )
    # Each distinct label is stripped once, not each row's.
    stripped = {label: label.strip() if isinstance(label, str) else label for label in numbers}
    distinct = {label: number for number, label in enumerate(dict.fromkeys(stripped.values()))}
    if len(distinct) < len(numbers):
        codes = np.array([distinct[label] for label in stripped.values()], dtype=np.int64)[codes]
    names = [str(label) for label in distinct]
    focal = focal.strip() if isinstance(focal, str) else focal
    # 1 and 1.0 are the same label though not the same text, so the focal label is looked up first.
    return codes, names, names[distinct[focal]] if focal in distinct else str(focal)


def _is_missing(label: Hashable) -> bool:
    """Whether a label is None, NaN, a missing-value marker or blank."""
    if label is None or (isinstance(label, str) and not label.strip()):
        return True
    # NaN and its relatives are not equal to themselves; some markers do not even answer with a truth value.
    itself: object = label == label
    return not (isinstance(itself, bool | np.bool_) and bool(itself))


def split_by_label(
    X: Array, y: Array, columns: tuple[str, ...] | None, codes: NDArray[np.int64], names: list[str]
) -> tuple[Domain, ...]:
    """Cut ``X`` and ``y`` into one domain per label, keeping the order of rows within each.

    Examples
    --------
    >>> X, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 3.0])
    >>> [domain.y.tolist() for domain in split_by_label(X, y, None, np.array([0, 1, 0]), ["a", "b"])]
    [[1.0, 3.0], [2.0]]
    """
    xp = array_namespace(X, y)
    order = xp.asarray(np.argsort(codes, kind="stable"), device=device(X))
    # Taking rows makes the one copy that the domains then share as slices.
    X, y = xp.take(X, order, axis=0), xp.take(y, order, axis=0)
    ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
    spans = list(zip(names, [0, *ends[:-1]], ends, strict=True))
    finite = bool(xp.all(xp.isfinite(X))) and bool(xp.all(xp.isfinite(y)))
    # One look at all rows is enough if they are fine; if not, the domain's own check says where.
    build = Domain._from_checked if finite else Domain
    return tuple(build(name, X[start:end], y[start:end], columns) for name, start, end in spans)
