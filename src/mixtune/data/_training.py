"""Files with numbers and texts in, domains out: the way of the command line's tables to an estimator.

Reading, which columns, which domain, the target, what to learn of the columns, the encoding: each step refuses
what it cannot use before the next one starts, and whatever was done without asking is told in a note.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mixtune._messages import quoted
from mixtune.data._cells import option
from mixtune.data._domain import Domain
from mixtune.data._domains import Domains
from mixtune.data._encoding import Encoded, TableEncoder
from mixtune.data._grouping import split_by_label
from mixtune.data._learning import Part, learn_columns, learn_target, level_notes
from mixtune.data._readers import CsvFormat, as_paths, file_label, is_parquet, read_table
from mixtune.data._training_checks import (
    Roles,
    check_domain_option,
    check_known,
    check_long_numbers,
    check_options,
    common_inputs,
    distinct_files,
    focal_file,
    label_rows,
    names_of,
)
from mixtune.errors import DataError

__all__ = ["TrainingTables", "read_new", "read_training"]


@dataclass(frozen=True, eq=False)
class TrainingTables:
    """What was read for training.

    Attributes
    ----------
    domains
        The domains, encoded. Classes of a target of texts are the codes 0, 1, ... into ``encoder.target.classes``.
    encoder
        How their columns were turned into numbers; it does the same for new tables.
    notes
        What was done that the user should know.
    """

    domains: Domains
    encoder: TableEncoder
    notes: tuple[str, ...]


def read_training(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str,
    domain: str | None = None,
    focal: str | None = None,
    ignore: str | Sequence[str] = (),
    columns: str | Sequence[str] | None = None,
    categories: str | Sequence[str] = (),
    missing: Literal["refuse", "impute"] = "refuse",
    max_levels: int = 30,
    target_kind: Literal["auto", "number", "classes"] = "auto",
    drop_missing_target: bool = False,
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str = ".",
) -> TrainingTables:
    """Read training tables with columns of numbers and of text: one file with a domain column, or one file a domain.

    Parameters
    ----------
    paths
        The file, or the files; without ``domain`` each is one domain, named after its file.
    target
        The column to predict: numbers, or text or truth values for classes.
    domain
        The column of domain labels, if all domains are in one file.
    focal
        Name of the focal domain; the first file by default. With ``domain`` it must be given.
    ignore
        Columns to leave out.
    columns
        The input columns; by default all but the target, the domain labels and the ignored ones.
    categories
        Columns to read as categories although they are written as numbers.
    missing
        ``"refuse"``, or ``"impute"``: the median and a column that says where, for text a level ``"(missing)"``.
    max_levels
        The most levels that a column of text may have.
    target_kind
        Whether the target is a number or a class; by default text and truth values are classes.
    drop_missing_target
        Whether to drop rows without a target, instead of refusing them.
    encoding, separator, decimal
        How CSV files are written, as for :meth:`Domains.from_files`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "data.csv")
    ...     _ = file.write_text("site,size,colour,y\\nn,1,red,10\\nn,2,blue,20\\ns,3,red,30\\ns,4,red,40\\n")
    ...     read = read_training(file, target="y", domain="site", focal="s")
    >>> read.domains
    Domains(2 domains, focal='s', 4 rows, 2 columns, 1 output)
    >>> read.encoder.names
    ('size', 'colour=red')
    """
    roles = Roles(target, domain, names_of(ignore, "ignore"), names_of(categories, "categories"))
    check_options(roles, missing=missing, max_levels=max_levels, target_kind=target_kind)
    form = CsvFormat(encoding, separator, decimal)
    files, notes = distinct_files(as_paths(paths))
    check_domain_option(files, domain, focal)
    labels = [file_label(path) for path in files]
    if domain is None:
        name = focal_file(labels, focal, files)
    parts = [_read_part(path, form, roles) for path in files]
    check_known(roles, parts)
    codes: NDArray[np.int64] | None = None
    if domain is not None:
        codes, labels, name = label_rows(parts[0], domain, focal)
    inputs = common_inputs(parts, roles, columns)
    for part, path in zip(parts, files):
        check_long_numbers(part, path, form, (*inputs, target))
    spec, values, kept = learn_target(parts, target, kind=target_kind, drop=drop_missing_target)
    notes += _dropped_notes(files, kept) + level_notes(target, spec.classes or (), option("drop_missing_target", True))
    parts = [part.keep(rows) for part, rows in zip(parts, kept)]
    codes = None if codes is None else codes[kept[0]]
    _check_focal_rows(parts, codes, labels, name)
    known, learned = learn_columns(
        [part for part in parts if part.table.num_rows],
        inputs,
        impute=missing == "impute",
        max_levels=max_levels,
        categories=roles.categories,
    )
    used = {target, domain, *(column.name for column in known)}
    unused = [column for part in parts for column in part.table.column_names if column not in used]
    encoder = TableEncoder(
        tuple(known), spec, impute=missing == "impute", domain=domain, focal=name, unused=tuple(dict.fromkeys(unused))
    )
    members = _members(encoder, parts, values, labels, codes)
    domains = Domains(members, focal=name)
    return TrainingTables(domains, encoder, (*notes, *learned, *_domain_notes(domains, encoder)))


def read_new(
    path: str | os.PathLike[str],
    encoder: TableEncoder,
    *,
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str = ".",
) -> Encoded:
    """Read a file of new rows and encode it as the training tables were.

    Parameters
    ----------
    path
        A CSV or Parquet file with the input columns; it may have the target and others, which are left out.
    encoder
        As learned by :func:`read_training`.
    encoding, separator, decimal
        How a CSV file is written.

    Examples
    --------
    >>> import tempfile
    >>> from mixtune.data._encoding import LevelColumn, NumberColumn, TargetColumn
    >>> encoder = TableEncoder((NumberColumn("size"), LevelColumn("colour", ("blue", "red"))), TargetColumn("y"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "new.csv")
    ...     _ = file.write_text("id,colour,size\\n007,red,1.50\\n008,green,2.50\\n")
    ...     new = read_new(file, encoder)
    >>> new.X
    array([[1.5, 1. ],
           [2.5, 0. ]])
    >>> new.table.to_pydict()["id"]
    ['007', '008']
    """
    path, form = Path(path), CsvFormat(encoding, separator, decimal)
    part = Part(f'"{path}"', read_table(path, form, text=encoder.text_columns))
    encoded = encoder.encode(part.table, part.where)
    check_long_numbers(part, path, form, encoder.inputs)
    # Read again as written: labels such as 007 must come out as they went in.
    written = part.table if is_parquet(path) else read_table(path, form, text=part.table.column_names)
    return Encoded(encoded.X, encoded.names, encoded.notes, written)


def _read_part(path: Path, form: CsvFormat, roles: Roles) -> Part:
    text = [*roles.categories, *([] if roles.domain is None else [roles.domain])]
    return Part(f'"{path}"', read_table(path, form, text=text))


def _dropped_notes(files: Sequence[Path], kept: Sequence[NDArray[np.bool_]]) -> list[str]:
    # Notes are kept with models, which are passed on: the folders of the training data stay private.
    lost = [(f'"{path.name}"', int((~rows).sum())) for path, rows in zip(files, kept)]
    return [
        f"{count} row{'s' if count > 1 else ''} of {where} without a target {'are' if count > 1 else 'is'} left out"
        for where, count in lost
        if count
    ]


def _check_focal_rows(
    parts: Sequence[Part], codes: NDArray[np.int64] | None, labels: Sequence[str], focal: str
) -> None:
    place = list(labels).index(focal)
    rows = parts[place].table.num_rows if codes is None else int((codes == place).sum())
    if rows == 0:
        raise DataError(
            f'every row of the focal domain "{focal}" lacks a target; there must be focal rows to learn from'
        )


def _members(
    encoder: TableEncoder,
    parts: Sequence[Part],
    values: Sequence[NDArray[np.float64]],
    labels: Sequence[str],
    codes: NDArray[np.int64] | None,
) -> tuple[Domain, ...]:
    if codes is not None:
        X = encoder.encode(parts[0].table, parts[0].where).X
        # Labels whose rows all lack a target are gone; the others keep their order.
        present, codes = np.unique(codes, return_inverse=True)
        return split_by_label(X, values[0], encoder.names, codes, [labels[index] for index in present])
    return tuple(
        # Encoded values are finite, and nobody else holds these arrays.
        Domain._from_checked(label, encoder.encode(part.table, part.where).X, y, encoder.names)
        for label, part, y in zip(labels, parts, values)
        if part.table.num_rows
    )


def _domain_notes(domains: Domains, encoder: TableEncoder) -> list[str]:
    """Say which domains are too small or too uniform to tell much."""
    notes = []
    if single := [domain.name for domain in domains.members if domain.n_rows == 1]:
        notes.append(f"{len(single)} domain{'s have' if len(single) > 1 else ' has'} one row: {quoted(single)}")
    flat = [domain for domain in domains.members if domain.n_rows > 1 and domain.y.min() == domain.y.max()]
    classes = encoder.target.classes
    if domains.focal_domain in flat:
        value = domains.focal_domain.y[0]
        shown = value if classes is None else f'"{classes[int(value)]}"'
        notes.append(f"every focal target is {shown}")
    if sources := [domain.name for domain in flat if domain.name != domains.focal]:
        notes.append(f"all targets are the same within {len(sources)} of the sources: {quoted(sources)}")
    return notes
