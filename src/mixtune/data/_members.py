"""From tables with named columns to domains: one table with a column of labels, or one file a domain."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from array_api_compat import device, is_torch_array
from numpy.typing import NDArray

from mixtune._messages import quoted
from mixtune.data._domain import Domain
from mixtune.data._grouping import label_codes, split_by_label
from mixtune.data._readers import CsvFormat, file_label, read_table
from mixtune.data._tables import LIST_COLUMNS, Table, as_names, choose_inputs, to_matrix
from mixtune.errors import DataError

__all__ = ["check_alike", "column_difference", "members_of_files", "members_of_table"]


def members_of_table(
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
    >>> members_of_table(table, target="score", domain="school", focal=2, columns=None, where="the table")
    ((Domain('1', 2 rows, 1 column, 1 output), Domain('2', 1 row, 1 column, 1 output)), '2')
    """
    targets = as_names(target, "target")
    inputs = choose_inputs(table, targets=targets, domain=domain, columns=columns, where=where)
    if table.num_rows == 0:
        raise DataError(f"{where} has no rows; pass at least one")
    labels = table.column(domain).to_pylist()
    codes, names, name = label_codes(labels, focal, f'column "{domain}" of {where}', n_rows=table.num_rows)
    X, y = to_matrix(table, inputs, where, LIST_COLUMNS), _target_values(table, target, where)
    return split_by_label(X, y, inputs, codes, names), name


def members_of_files(
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
        X, y = to_matrix(table, inputs, where, LIST_COLUMNS), _target_values(table, target, where)
        members.append(Domain(file_label(path), X, y, inputs))
    return tuple(members)


def check_alike(domain: Domain, focal: Domain) -> None:
    """Refuse a domain that cannot be set beside the focal one."""
    for what in ("columns", "outputs"):
        count, wanted = getattr(domain, f"n_{what}"), getattr(focal, f"n_{what}")
        if count != wanted:
            raise DataError(
                f'domain "{domain.name}" has {count} {what}, the focal domain "{focal.name}" has {wanted}; '
                f"pass the same {what}"
            )
    if domain.y.ndim != focal.y.ndim:
        raise DataError(
            f'domain "{domain.name}" has targets of shape {tuple(domain.y.shape)}, the focal domain "{focal.name}" of '
            f"{tuple(focal.y.shape)}; pass all of them as (n,) or all as (n, outputs)"
        )
    names = f'domain "{domain.name}" and the focal domain "{focal.name}"'
    if domain.columns is not None and focal.columns is not None and domain.columns != focal.columns:
        raise DataError(f"{names} differ in columns: {column_difference(domain.columns, focal.columns)}")
    if is_torch_array(domain.X) != is_torch_array(focal.X):
        raise DataError(f"{names}: only one of them holds PyTorch tensors; pass one kind of array")
    if device(domain.X) != device(focal.X):
        raise DataError(f"{names} are on {device(domain.X)} and {device(focal.X)}; pass them on one device")


def column_difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Say how one list of column names differs from another, and what to do.

    Examples
    --------
    >>> column_difference(["size", "age"], ["size", "rooms"])
    'missing "rooms" and extra "age"; pass the same columns'
    >>> column_difference(["age", "size"], ["size", "age"])
    'the same names in another order ("age", "size"); pass them in one order'
    """
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    parts = [f"{verb} {quoted(names)}" for verb, names in (("missing", missing), ("extra", extra)) if names]
    if parts:
        return f"{' and '.join(parts)}; pass the same columns"
    swapped = [name for name, other in zip(found, wanted) if name != other]
    return f"the same names in another order ({quoted(swapped)}); pass them in one order"


def _target_values(table: Table, target: str | Sequence[str], where: str) -> NDArray[Any]:
    values = to_matrix(table, as_names(target, "target"), where)
    return values[:, 0] if isinstance(target, str) else values
