"""From labelled rows, tables and files to domains: one domain per label, or one per file.

Rows are sorted by label once and the domains are slices of the sorted arrays, so a million rows in a hundred
thousand domains take seconds, not hours.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from mixtune._array import Array, Integers
from mixtune._messages import setting
from mixtune.data._domain import Domain, column_difference
from mixtune.data._readers import CsvFormat, file_label, read_table
from mixtune.data._tables import LIST_COLUMNS, Table, as_names, choose_inputs, to_matrix
from mixtune.errors import DataError, ParameterError


def check_single_file(files: Sequence[Path], domain: str) -> None:
    """Refuse a domain column together with several files."""
    if len(files) > 1:
        template = "{given} goes with one file, {count} are given; drop domain or join the files"
        raise ParameterError(template, given=setting("domain", domain), count=len(files))


def domains_of_table(
    table: Table,
    *,
    target: str | Sequence[str],
    domain: str,
    focal: Hashable,
    columns: str | Sequence[str] | None,
    where: str,
) -> tuple[tuple[Domain, ...], str]:
    """Cut a table by its column of labels; return the domains and the focal domain's name.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"school": [1, 2, 1], "size": [1, 2, 3], "score": [0.1, 0.2, 0.3]})
    >>> domains_of_table(table, target="score", domain="school", focal=2, columns=None, where="the table")
    ((Domain('1', 2 rows, 1 column, 1 output), Domain('2', 1 row, 1 column, 1 output)), '2')
    """
    inputs = choose_inputs(table, targets=as_names(target, "target"), domain=domain, columns=columns, where=where)
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows; pass at least one")
    labels = table.column(domain).to_pylist()
    codes, names, name = label_codes(labels, focal, f'column "{domain}" of {where}', n_rows=table.num_rows)
    return split_by_label(*_rows(table, inputs, target, where), inputs, codes, names), name


def domains_of_files(
    paths: Sequence[Path], *, target: str | Sequence[str], columns: str | Sequence[str] | None, form: CsvFormat
) -> tuple[Domain, ...]:
    """Read one domain from each file, with the columns in the order of the first file."""
    targets = as_names(target, "target")
    members: list[Domain] = []
    inputs: tuple[str, ...] = ()
    for path in paths:
        table, where = read_table(path, form), f'"{path}"'
        found = choose_inputs(table, targets=targets, domain=None, columns=columns, where=where)
        inputs = inputs or found
        if set(found) != set(inputs):
            raise DataError(f'{where} and "{paths[0]}" differ in columns: {column_difference(found, inputs)}')
        members.append(Domain(file_label(path), *_rows(table, inputs, target, where), inputs))
    return tuple(members)


def _rows(table: Table, inputs: Sequence[str], target: str | Sequence[str], where: str) -> tuple[Array, Array]:
    """Inputs and targets of a table; the targets have one dimension where one column is named."""
    X, y = to_matrix(table, inputs, where, LIST_COLUMNS), to_matrix(table, as_names(target, "target"), where)
    return X, y[:, 0] if isinstance(target, str) else y


def label_codes(labels: Any, focal: Hashable, where: str, *, n_rows: int) -> tuple[Integers, list[str], str]:
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
    if missing := [number for label, number in numbers.items() if _is_missing(label)]:
        lost = np.isin(codes, missing)
        raise DataError(
            f"{where}: {int(lost.sum())} of {n_rows} rows have no label (the first is data row "
            f"{int(lost.argmax()) + 1}); label or drop these rows"
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
    X: Array, y: Array, columns: tuple[str, ...] | None, codes: Integers, names: Sequence[str]
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
    finite = bool(xp.all(xp.isfinite(X))) and bool(xp.all(xp.isfinite(y)))
    # One look at all rows is enough if they are fine; if not, the domain's own check says where.
    build = Domain._from_checked if finite else Domain
    spans = zip(names, [0, *ends[:-1]], ends, strict=True)
    return tuple(build(name, X[start:end], y[start:end], columns) for name, start, end in spans)
