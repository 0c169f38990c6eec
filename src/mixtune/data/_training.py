"""Files with numbers and texts in, domains out: how the command line's tables reach an estimator.

Reading, which columns, which domain, the target, what the columns hold, the encoding: each step refuses what it cannot
use before the next one starts, and a note reports whatever was done without asking.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._array import Booleans, Integers
from mixtune._checks import check_whole
from mixtune._messages import Note, Wording, counted, nearest, quoted, setting
from mixtune.data._domain import Domain, column_difference
from mixtune.data._domains import Domains, check_single_file, label_codes, split_by_label
from mixtune.data._encoder import Encoded, Part, TableEncoder, infer_columns, infer_target, level_notes
from mixtune.data._parse_column import Fault, inexact, inexact_integer, phrase
from mixtune.data._readers import CsvFormat, as_paths, file_label, is_parquet, read_table
from mixtune.data._tables import as_names, choose_inputs, unusable_columns
from mixtune.errors import DataError, ParameterError

_MOST_DOMAINS = 10_000
#: In so few rows, one row per label is no sign of an identifier.
_FEW_DOMAINS = 10


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
    """Read training tables with columns of numbers and of text: one file with a domain column, or one file per domain.

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
    roles = _Roles(target, domain, _names(ignore, "ignore"), _names(categories, "categories"))
    _check_options(roles, focal=focal, missing=missing, max_levels=max_levels, target_kind=target_kind)
    form, impute = CsvFormat(encoding, separator, decimal), missing == "impute"
    files, notes = _distinct_files(as_paths(paths))
    labels = [file_label(path) for path in files]
    if domain is None:
        name = _focal_file(labels, focal, files)
    else:
        check_single_file(files, domain)
    text = (*roles.categories, *([] if domain is None else [domain]))
    parts = [Part(f'"{path}"', read_table(path, form, text=text)) for path in files]
    _check_known(roles, parts)
    inputs = _common_inputs(parts, roles, columns)
    codes: Integers | None = None
    if domain is not None:
        codes, labels, name = _label_rows(parts[0], domain, focal)
    for part, path in zip(parts, files):
        _check_long_numbers(part, path, form, (*inputs, target), target)
    spec, values, kept = infer_target(parts, target, kind=target_kind, drop=drop_missing_target)
    notes += _dropped_notes(files, kept) + level_notes(target, spec.classes or (), setting("drop_missing_target"))
    parts = [part.keep(rows, y) for part, rows, y in zip(parts, kept, values)]
    codes = None if codes is None else codes[kept[0]]
    place = labels.index(name)
    if not (parts[place].table.num_rows if codes is None else np.any(codes == place)):
        raise DataError(f'every row of the focal domain "{name}" lacks a target; give at least one of them a target')
    held = [part for part in parts if part.table.num_rows]
    known, inferred = infer_columns(held, inputs, impute=impute, max_levels=max_levels, categories=roles.categories)
    used = {target, domain, *(column.name for column in known)}
    unused = dict.fromkeys(column for part in parts for column in part.table.column_names if column not in used)
    encoder = TableEncoder(tuple(known), spec, impute=impute, domain=domain, focal=name, unused=tuple(unused))
    domains = Domains(_members(encoder, parts, labels, codes), focal=name)
    return TrainingTables(domains, encoder, (*notes, *inferred, *_domain_notes(domains, encoder)))


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
    >>> from mixtune.data import LevelColumn, NumberColumn, TargetColumn
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
    _check_long_numbers(part, path, form, encoder.inputs)
    # Read again as written: labels such as 007 must come out as they went in.
    written = part.table if is_parquet(path) else read_table(path, form, text=part.table.column_names)
    return replace(encoded, table=written)


@dataclass(frozen=True)
class _Roles:
    """The columns that have a part of their own."""

    target: str
    domain: str | None
    ignore: tuple[str, ...]
    categories: tuple[str, ...]


def _names(value: str | Sequence[str], option: str) -> tuple[str, ...]:
    """Read an option that takes no column name, one or several."""
    return as_names(value, option) if isinstance(value, str) or len(value) else ()


def _check_options(roles: _Roles, *, focal: Any, missing: str, max_levels: int, target_kind: str) -> None:
    """Refuse settings outside their range, and a column with two roles."""
    choices = {"missing": ("refuse", "impute"), "target_kind": ("auto", "number", "classes")}
    for option, value in (("missing", missing), ("target_kind", target_kind)):
        if value not in choices[option]:
            known = '" or "'.join(choices[option])
            raise ParameterError('{given} must be "{known}"', given=setting(option, value), known=known)
    check_whole("max_levels", max_levels, least=2)
    if focal is not None and not isinstance(focal, str):
        raise ParameterError(f"focal={focal!r} must be the name of one domain, as text")
    for role, name in (("target", roles.target), ("domain", roles.domain)):
        if not isinstance(name, str) and not (role == "domain" and name is None):
            raise ParameterError(f"{role}={name!r} must be the name of one column")
        if name in (*roles.ignore, *(roles.categories if role == "domain" else ())):
            raise ParameterError(f'column "{name}" is the {role} and cannot be ignored or a category; name another')


def _distinct_files(files: list[Path]) -> tuple[list[Path], list[Note]]:
    """Take each file once: a pattern such as *.csv often catches the focal file again."""
    first: dict[Path, Path] = {}
    for path in files:
        first.setdefault(path.resolve(), path)
    named: dict[str, Path] = {}
    for path in first.values():
        label = file_label(path)
        if (other := named.setdefault(label, path)) != path:
            raise DataError(f'"{other}" and "{path}" would both be the domain "{label}"; rename one of them')
    again = counted((len(files) - len(first), "file"))
    repeated = Note("repeated-files", "{files} given more than once, read once", files=again)
    return list(named.values()), [repeated] if len(first) < len(files) else []


def _focal_file(labels: Sequence[str], focal: str | None, files: Sequence[Path]) -> str:
    """Find the focal domain among those named after their files."""
    if focal is None or focal in labels:
        return labels[0] if focal is None else focal
    if len(files) > 1:
        raise DataError(f'there is no domain "{focal}" among the files; {nearest(focal, labels)}')
    advice = "name the column of domain labels with {fix}, or pass one file per domain"
    finding = f'"{files[0]}" is one domain, "{labels[0]}", not "{focal}"'
    raise Fault(finding, phrase(advice, fix=setting("domain", "COLUMN"))).error("no-domain")


def _check_known(roles: _Roles, parts: Sequence[Part]) -> None:
    """Refuse to leave out, or to read as categories, a column that no table has."""
    known = dict.fromkeys(name for part in parts for name in part.table.column_names)
    for role, given in (("ignore", roles.ignore), ("categories", roles.categories)):
        for name in given:
            if name not in known:
                raise ParameterError(f'{role} names "{name}", which no table has; {nearest(name, list(known))}')


def _label_rows(part: Part, domain: str, focal: str | None) -> tuple[Integers, list[str], str]:
    """Number the domain of each row; so many that they look like identifiers of rows are refused."""
    where, rows = f'column "{domain}" of {part.where}', part.table.num_rows
    codes, labels, name = label_codes(part.table.column(domain).to_pylist(), focal, where, n_rows=rows)
    if len(labels) > _MOST_DOMAINS or (len(labels) > _FEW_DOMAINS and rows < 2 * len(labels)):
        finding = f"{where} has {len(labels):,} different labels for {rows:,} rows"
        advice = "is it an identifier? Name the column that says where rows come from with {fix}"
        raise Fault(finding, phrase(advice, fix=setting("domain", "COLUMN"))).error("too-many-domains")
    if focal is None:
        largest = [labels[index] for index in np.argsort(-np.bincount(codes), kind="stable")]
        template = "focal is not given; name the domain to predict for with {fix}, one of {labels}"
        raise ParameterError(template, fix=setting("focal", "LABEL"), labels=quoted(largest))
    if name not in labels:
        finding = f'no row of {part.where} has "{name}" in column "{domain}", so there are 0 focal rows'
        raise DataError(f"{finding}; {nearest(name, labels)}")
    return codes, labels, name


def _common_inputs(parts: Sequence[Part], roles: _Roles, columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Choose the input columns, which all tables must have."""
    ignored = set(roles.ignore)
    if both := [name for name in _names(columns or (), "columns") if name in ignored]:
        raise ParameterError(f"columns and ignore both name {quoted(both)}; name it in one of them")
    leave: Wording = phrase(", or leave it out with {fix}", fix=setting("ignore", "COLUMN"))
    named: dict[str, Any] = {"targets": [roles.target], "domain": roles.domain, "columns": columns}
    inputs: tuple[str, ...] = ()
    for part in parts:
        kept = part.table.select([name for name in part.table.column_names if name not in ignored])
        found = choose_inputs(kept, **named, where=part.where, otherwise=leave)
        inputs = inputs or found
        if set(found) != set(inputs):
            finding = f"{part.where} and {parts[0].where} differ in columns: {column_difference(found, inputs)}"
            template = "{finding}, or leave out the others with {fix}"
            raise DataError(template, code="different-columns", finding=finding, fix=setting("ignore", "COLUMN"))
    return inputs


def _check_long_numbers(
    part: Part, path: Path, form: CsvFormat, names: Iterable[str], target: str | None = None
) -> None:
    """Refuse whole numbers in a CSV file that are too long for integers: they were read as floats, rounded."""
    if is_parquet(path):
        return
    floats = {name: part.table.column(name) for name in names if kinds.is_floating(part.table.column(name).type)}
    large = [name for name, column in floats.items() if (pc.max(pc.abs(column)).as_py() or 0) > 2**53]
    if not large:
        return
    written = read_table(path, form, text=large)
    for name in large:
        column = written.column(name).combine_chunks()
        if found := inexact_integer(pc.utf8_trim_whitespace(column.cast(pa.large_string()))):
            remedy = phrase("leave identifiers out with {fix}, or write fewer digits", fix=setting("ignore", name))
            if name == target:  # which cannot be left out
                remedy = phrase("correct this number, or write fewer digits")
            raise unusable_columns({name: inexact(found)._replace(remedy=remedy)}, part.where)


def _dropped_notes(files: Sequence[Path], kept: Sequence[Booleans]) -> list[Note]:
    # Notes are kept with models, which are passed on: the folders of the training data stay private.
    lost = {path.name: int((~rows).sum()) for path, rows in zip(files, kept)}
    template = '{rows} of "{file}" without a target {are} left out'
    return [
        Note("dropped-rows", template, rows=counted((count, "row")), file=name, are="are" if count > 1 else "is")
        for name, count in lost.items()
        if count
    ]


def _members(encoder: TableEncoder, parts: Sequence[Part], labels: Sequence[str], codes: Any) -> tuple[Domain, ...]:
    # Files and labels whose rows all lack a target are gone; the others keep their order.
    rows = [(encoder.encode(part.table, part.where).X, part.y, encoder.names) for part in parts if len(part.y)]
    if codes is not None:
        present, codes = np.unique(codes, return_inverse=True)
        return split_by_label(*rows[0], codes, [labels[index] for index in present])
    held = [label for label, part in zip(labels, parts) if len(part.y)]
    # Encoded values are finite, and no one else holds these arrays.
    return tuple(Domain._from_checked(label, *own) for label, own in zip(held, rows))


def _domain_notes(domains: Domains, encoder: TableEncoder) -> list[Note]:
    """Say which domains are too small or too uniform to be informative."""
    notes = []
    if single := [domain.name for domain in domains if domain.n_rows == 1]:
        count, verb = counted((len(single), "domain")), "have" if len(single) > 1 else "has"
        notes.append(Note("one-row", "{count} {verb} one row: {names}", count=count, verb=verb, names=quoted(single)))
    flat = [domain for domain in domains if domain.n_rows > 1 and domain.y.min() == domain.y.max()]
    if domains.focal_domain in flat:
        value, classes = domains.focal_domain.y[0], encoder.target.classes
        shown = value if classes is None else f'"{classes[int(value)]}"'
        notes.append(Note("constant-focal-target", "every focal target is {value}", value=shown))
    if sources := [domain.name for domain in flat if domain.name != domains.focal]:
        template = "all targets are the same within {count} of the sources: {names}"
        notes.append(Note("constant-source-targets", template, count=len(sources), names=quoted(sources)))
    return notes
