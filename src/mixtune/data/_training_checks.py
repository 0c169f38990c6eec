"""What the training files must agree on before anything is learned from them: names, labels, columns, sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from mixtune._messages import nearest, quoted
from mixtune.data._cells import option, whole_beyond
from mixtune.data._grouping import label_codes
from mixtune.data._learning import Part
from mixtune.data._members import column_difference
from mixtune.data._readers import CsvFormat, file_label, is_parquet, read_table
from mixtune.data._tables import as_names, choose_inputs, is_text
from mixtune.errors import DataError, ParameterError

__all__ = [
    "Roles",
    "check_domain_option",
    "check_known",
    "check_long_numbers",
    "check_options",
    "common_inputs",
    "distinct_files",
    "focal_file",
    "label_rows",
    "names_of",
]

_MOST_DOMAINS = 10_000
_FEW_DOMAINS = 10


@dataclass(frozen=True)
class Roles:
    """The columns that have a part of their own."""

    target: str
    domain: str | None
    ignore: tuple[str, ...]
    categories: tuple[str, ...]


def names_of(value: str | Sequence[str], name: str) -> tuple[str, ...]:
    """Read an option that takes no column name, one or several."""
    return as_names(value, name) if isinstance(value, str) or len(value) else ()


def check_options(roles: Roles, *, missing: str, max_levels: int, target_kind: str) -> None:
    """Refuse settings outside their range, and a column with two roles."""
    if missing not in ("refuse", "impute"):
        raise ParameterError(f'missing={missing!r} must be "refuse" or "impute"')
    if target_kind not in ("auto", "number", "classes"):
        raise ParameterError(f'target_kind={target_kind!r} must be "auto", "number" or "classes"')
    if isinstance(max_levels, bool) or not isinstance(max_levels, int) or max_levels < 2:
        raise ParameterError(f"max_levels={max_levels!r} must be a whole number, at least 2")
    for role, name in (("target", roles.target), ("domain", roles.domain)):
        if not isinstance(name, str) and not (role == "domain" and name is None):
            raise ParameterError(f"{role}={name!r} must be the name of one column")
        if name in (*roles.ignore, *(roles.categories if role == "domain" else ())):
            raise ParameterError(f'column "{name}" is the {role} and cannot be ignored or a category; name another')


def distinct_files(files: list[Path]) -> tuple[list[Path], list[str]]:
    """Take each file once: a pattern such as *.csv often catches the focal file again."""
    first: dict[Path, Path] = {}
    for path in files:
        first.setdefault(path.resolve(), path)
    again = len(files) - len(first)
    kept = list(first.values())
    labels = [file_label(path) for path in kept]
    for index, label in enumerate(labels):
        if label in labels[:index]:
            other = kept[labels.index(label)]
            raise DataError(f'"{other}" and "{kept[index]}" would both be the domain "{label}"; rename one of them')
    return kept, [f"{again} file{'s' if again > 1 else ''} given more than once, read once"] if again else []


def check_domain_option(files: Sequence[Path], domain: str | None, focal: str | None) -> None:
    """Refuse a domain column together with several files."""
    if domain is not None and len(files) > 1:
        raise ParameterError(
            f'domain="{domain}" goes with one file, {len(files)} are given; drop domain or join the files'
        )
    if focal is not None and not isinstance(focal, str):
        raise ParameterError(f"focal={focal!r} must be the name of one domain, as text")


def focal_file(labels: Sequence[str], focal: str | None, files: Sequence[Path]) -> str:
    """Find the focal domain among those named after their files."""
    if focal is None or focal in labels:
        return labels[0] if focal is None else focal
    if len(files) == 1:
        raise DataError(
            f'"{files[0]}" is one domain, "{labels[0]}", not "{focal}"; name the column of domain labels with '
            f"{option('domain', 'COLUMN')}, or pass one file a domain"
        )
    raise DataError(f'there is no domain "{focal}" among the files; {nearest(focal, labels)}')


def check_known(roles: Roles, parts: Sequence[Part]) -> None:
    """Refuse to leave out, or to read as categories, a column that no table has."""
    known = list(dict.fromkeys(name for part in parts for name in part.table.column_names))
    for role, given in (("ignore", roles.ignore), ("categories", roles.categories)):
        for name in given:
            if name not in known:
                raise ParameterError(f'{role} names "{name}", which no table has; {nearest(name, known)}')
    for part in parts:
        for wanted in (roles.target, *([] if roles.domain is None else [roles.domain])):
            if wanted not in part.table.column_names:
                raise DataError(f'{part.where} has no column "{wanted}"; {nearest(wanted, part.table.column_names)}')


def label_rows(part: Part, domain: str, focal: str | None) -> tuple[NDArray[np.int64], list[str], str]:
    """Number the domain of each row, after a look at how many there are."""
    column, rows = part.table.column(domain), part.table.num_rows
    count = _count_labels(column)
    # In a handful of rows one row a label is no sign of an identifier.
    if count > _MOST_DOMAINS or (count > _FEW_DOMAINS and rows < 2 * count):
        raise DataError(
            f'column "{domain}" of {part.where} has {count:,} different labels for {rows:,} rows; is it an identifier? '
            f"Name the column that says where rows come from with {option('domain', 'COLUMN')}"
        )
    codes, labels, name = label_codes(column.to_pylist(), focal, f'column "{domain}" of {part.where}', n_rows=rows)
    if focal is None:
        largest = [labels[index] for index in np.argsort(-np.bincount(codes), kind="stable")]
        raise ParameterError(
            f"focal is not given; name the domain to predict for with {option('focal', 'LABEL')}, "
            f"one of {quoted(largest)}"
        )
    if name not in labels:
        raise DataError(
            f'no row of {part.where} has "{name}" in column "{domain}", so there are 0 focal rows; '
            f"{nearest(name, labels)}"
        )
    return codes, labels, name


def _count_labels(column: Any) -> int:
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_nested(column.type):
        return 1  # Lists cannot be labels; whoever numbers the labels says so.
    return int(pc.count_distinct(column.cast(pa.large_string()) if is_text(column.type) else column).as_py())


def common_inputs(parts: Sequence[Part], roles: Roles, columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Choose the input columns, which all tables must have."""
    inputs: tuple[str, ...] = ()
    if both := [name for name in names_of(columns or (), "columns") if name in roles.ignore]:
        raise ParameterError(f"columns and ignore both name {quoted(both)}; name it in one of them")
    for part in parts:
        kept = [name for name in part.table.column_names if name not in roles.ignore]
        found = choose_inputs(
            part.table.select(kept),
            targets=[roles.target],
            domain=roles.domain,
            columns=columns,
            where=part.where,
            otherwise=f", or leave it out with {option('ignore', 'COLUMN')}",
        )
        inputs = inputs or found
        if set(found) != set(inputs):
            raise DataError(
                f"{part.where} and {parts[0].where} differ in columns: {column_difference(found, inputs)}, "
                f"or leave out the others with {option('ignore', 'COLUMN')}"
            )
    return inputs


def check_long_numbers(part: Part, path: Path, form: CsvFormat, names: Iterable[str]) -> None:
    """Refuse whole numbers in a CSV file that are too long for integers: they were read as floats, rounded."""
    if is_parquet(path):
        return
    suspects = [name for name in names if _may_be_rounded(part.table.column(name))]
    if not suspects:
        return
    written = read_table(path, form, text=suspects)
    for name in suspects:
        if found := whole_beyond(_trimmed(written.column(name))):
            raise DataError(
                f'column "{name}" of {part.where} holds whole numbers beyond 2^53 (such as {found}), which floats '
                f"cannot tell apart; leave identifiers out with {option('ignore', name)}, or write fewer digits"
            )


def _may_be_rounded(column: Any) -> bool:
    if not kinds.is_floating(column.type):
        return False
    ends = pc.min_max(column).as_py()
    return any(end is not None and abs(end) > 2**53 for end in ends.values())


def _trimmed(column: Any) -> Any:
    return pc.utf8_trim_whitespace(column.combine_chunks().cast(pa.large_string()))
