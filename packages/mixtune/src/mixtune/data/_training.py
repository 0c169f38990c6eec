"""Tables with numbers, texts and dates in, domains out: how files and data frames reach an estimator.

Reading, which columns, which domain, the target, what the columns hold, the encoding. A note reports whatever was done
without asking; what cannot be used is refused, and all of it in one error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._messages import Note, Place, Wording, closest, counted, counted_note, nearest, quoted, setting
from mixtune.arrays import Booleans, Integers
from mixtune.checks import check_whole
from mixtune.data._csv_files import FileTable
from mixtune.data._domain import Domain, column_difference
from mixtune.data._domains import Domains, check_single_file, label_codes, split_by_label
from mixtune.data._encoder import MISSING, DateColumn, Encoded, LevelColumn, NumberColumn, TableEncoder
from mixtune.data._gaps import every_gap, without_gaps
from mixtune.data._infer import Part, infer_columns, infer_target, left_out, level_notes, similar_notes
from mixtune.data._leaks import (
    Suspect,
    copied_note,
    domain_parts,
    findings_first,
    leak_notes,
    repeat_notes,
    shared_notes,
)
from mixtune.data._parse_column import (
    Fault,
    inexact_integer,
    is_text,
    mixed_marks,
    phrase,
    plain_text,
    written_texts,
)
from mixtune.data._readers import as_paths, file_label, read_file, shown_path
from mixtune.data._tables import Table, as_names, choose_inputs, composed, is_index_name, is_table, object_table
from mixtune.errors import DataError, MixtuneError, ParameterError

_MOST_DOMAINS = 10_000
#: A name that no column has.
_ROW = "\0 row"
#: In so few rows, one row per label is no sign of an identifier.
_FEW_DOMAINS = 10
#: How many of the last rows may hold totals, and the words that label totals in spreadsheets.
_FOOTER = 5
_TOTAL = re.compile(
    r"(?i)(?:(?:grand|sub)[ -]?)?totals?(?: general)?|sum|average|summe|gesamt(?:summe)?|insgesamt|somme|totale|suma"
)


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
    paths: Any,
    *,
    target: str,
    domain: str | None = None,
    focal: str | None = None,
    every: bool = False,
    exclude: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    columns: str | Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
    categories: str | Sequence[str] = (),
    text: str | Sequence[str] = (),
    text_model: str | os.PathLike[str] | None = None,
    images: str | Sequence[str] = (),
    image_model: str | os.PathLike[str] | None = None,
    missing: Literal["refuse", "impute"] = "impute",
    max_levels: int = 30,
    target_kind: Literal["auto", "number", "classes"] = "auto",
    drop_missing_target: bool = True,
    encoding: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
) -> TrainingTables:
    """Read training tables without preparation: one table with a domain column, or one file per domain.

    Missing values are imputed, dates become numbers, text becomes categories, and identifiers are left out; ``notes``
    lists where.

    Parameters
    ----------
    paths
        The file, or the files; without ``domain`` each is one domain, named after its file. Or one table: a pandas or
        polars frame, a pyarrow table or a dict of columns.
    target
        The column to predict: numbers, or text or truth values for classes. If it is 0 or 1 in every row, these are
        two classes.
    domain
        The column of domain labels, if all domains are in one table. Rows without a label are left out.
    focal
        Name of the focal domain; the first file by default. With ``domain`` it must be given.
    every
        Whether all domains are to be predicted for. ``domain`` must be given then, and ``focal`` not; the largest
        domain comes as the focal one.
    exclude
        Domains to leave out, such as sources that mislead.
    ignore
        Columns to leave out.
    columns
        The input columns; by default all but the target, the domain labels and the ignored ones.
    keep
        Columns to use although they look like identifiers.
    categories
        Columns to read as categories although they are written as numbers.
    text, text_model
        Columns of free text, and the folder of a sentence encoder for them, as sentence-transformers saves it; by
        default the encoder of the extra ``text``. What it computes is kept in the user's cache folder.
    images, image_model
        Columns of paths of images, and the file of a network for them, as ``torch.export.save`` writes it: it takes
        batches of shape (n, 3, 224, 224) in the colours that ImageNet networks expect.
    missing
        ``"impute"``: the median, with a column that marks missing values, and a category ``"(missing)"`` for text; or
        ``"refuse"``.
    max_levels
        The largest number of categories of a text column; if there are more, the rarest are merged as ``"(other)"``.
    target_kind
        Whether the target is a number or a class; by default text, truth values, and 0 and 1 are classes.
    drop_missing_target
        Whether to leave out rows without a target, instead of refusing them.
    encoding, separator, decimal
        How CSV files are written; detected by default.

    Examples
    --------
    >>> table = {"site": ["n", "n", "s", "s"], "size": [1, 2, None, 4], "colour": ["red", "blue", "red", "red"]}
    >>> read = read_training(table | {"y": [10, 20, 30, 40]}, target="y", domain="site", focal="s")
    >>> read.domains
    Domains(2 domains, focal='s', 4 rows, 3 columns, 1 output)
    >>> read.encoder.names, read.notes
    (('size', 'size (missing)', 'colour=red'), ('missing values were imputed: "size" (1)',))
    """
    given = {"ignore": ignore, "categories": categories, "keep": keep, "text": text, "images": images}
    roles = _Roles(target, domain, **{role: _names(names, role) for role, names in given.items()})
    _check_options(roles, focal=focal, missing=missing, max_levels=max_levels, target_kind=target_kind)
    target, domain = composed(target), None if domain is None else composed(domain)
    roles = replace(roles, target=target, domain=domain)
    if every and (domain is None or focal is not None):
        raise ParameterError("to predict for every domain, name the column of domain labels and leave focal out")
    reading = {"encoding": encoding, "separator": separator, "decimal": decimal}
    parts, labels, notes = _read_parts(paths, roles, reading)
    parts, totals = _without_totals(parts)
    notes += totals
    roles = roles.among(_all_names(parts))
    # Whatever is wrong is collected, so that one error tells all of it.
    problems = _Problems()
    problems.attempt(_check_known, roles, parts)
    impute = missing == "impute"
    inputs, index = problems.attempt(_common_inputs, parts, roles, columns, focal, impute=impute) or ((), [])
    parts = [_with_columns(part, inputs) for part in parts]
    rows = problems.attempt(_label_parts, parts, labels, roles, focal, every) or _Labelled(parts, labels, "", None, [])
    rows = problems.attempt(_without_domains, rows, _names(exclude, "exclude")) or rows
    parts, labels, name, codes, told = rows
    found = None
    if all(target in part.table.column_names for part in parts):
        found = problems.attempt(infer_target, parts, target, kind=target_kind, drop=drop_missing_target)
    if found is not None:
        spec, values, kept, about = found
        notes += [*index, *told, *_dropped_notes(parts, kept), *about]
        notes += level_notes(target, spec.classes or (), setting("drop_missing_target"))
        parts = [part.keep(rows, y) for part, rows, y in zip(parts, kept, values)]
        codes = None if codes is None else codes[kept[0]]
        problems.attempt(_check_focal_rows, parts, labels, name, codes)
    options: Any = {"impute": impute, "max_levels": max_levels, "keep": roles.keep}
    present = [_with_copies(part) for part in parts if part.table.num_rows]
    notes += [copied_note(part.copies, part.table.num_rows, part.name) for part in present if part.copies]
    networks = {"text": str(text_model or ""), "images": str(image_model or "")}
    options["embedded"] = {name: (role, networks[role]) for role in networks for name in getattr(roles, role)}
    inferred = problems.attempt(infer_columns, present, inputs, categories=roles.categories, **options)
    problems.check()
    assert found is not None
    assert inferred is not None
    if not inferred[0]:
        reasons = "; ".join((*index, *inferred[1]))
        raise DataError(f"there are no input columns that can be used; add at least one ({reasons})")
    used = {target, domain, *(column.name for column in inferred[0])}
    unused = tuple(column for column in _all_names(parts) if column not in used)
    marks = [part.decimal for part in parts]
    encoder = TableEncoder(
        tuple(inferred[0]),
        spec,
        impute=options["impute"],
        domain=domain,
        focal=None if every else name,
        unused=unused,
        decimal="," if 2 * marks.count(",") > len(marks) else ".",
    )
    domains = Domains(_members(encoder, parts, labels, codes), focal=name)
    if every:
        notes += every_gap(domains, encoder)
    else:
        domains, encoder, lacking = without_gaps(domains, encoder)
        notes += lacking
    remarks = findings_first((*notes, *inferred[1], *_domain_notes(domains, encoder)))
    return TrainingTables(domains, encoder, (*finding_notes(domains, encoder, every=every), *remarks))


def read_new(
    path: str | os.PathLike[str],
    encoder: TableEncoder,
    *,
    encoding: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
) -> Encoded:
    """Read a file of new rows and encode it as the training tables were.

    Parameters
    ----------
    path
        A file with the input columns; it may have the target and others, which are left out.
    encoder
        As learned by :func:`read_training`.
    encoding, separator, decimal
        How a CSV file is written; detected by default.

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
           [2.5, 0.5]])
    >>> new.table.to_pydict()["id"]
    ['007', '008']
    """
    path = Path(path)
    reading: dict[str, Any] = {"encoding": encoding, "separator": separator, "decimal": decimal}
    # Every cell is read by itself, so that it does not matter which others there are; labels such as 007 stay.
    read = read_file(path, as_written=True, expected=(*encoder.inputs, *encoder.text_columns), **reading)
    marks = _decimal_marks(read, encoder, shown_path(path)) if decimal is None else decimal
    encoded = encoder.encode(read.table, f'"{shown_path(path)}"', decimal=marks)
    return replace(encoded, table=read.table, form=read.form, notes=(*read.notes, *encoded.notes))


def _decimal_marks(read: FileTable, encoder: TableEncoder, path: Path) -> str:
    """The decimal marks that numbers of a file may have, that of training first; what leaves open which is refused."""
    if read.form is None or read.form.separator == ",":
        return "."
    for column in encoder.columns:
        if (
            not isinstance(column, NumberColumn)
            or column.decimal is not None
            or column.name not in read.table.column_names
        ):
            continue
        texts = written_texts(read.table.column(column.name))
        if texts is not None and (mixed := mixed_marks(texts, encoder.decimal)):
            finding = f'column "{column.name}" of "{path}" holds "{mixed[0]}" and "{mixed[1]}"'
            remedy = phrase(
                "say what the second means with {one} or {other}",
                one=setting("decimal", "."),
                other=setting("decimal", ","),
            )
            raise Fault(f"{finding}, which have different decimal marks or marks of thousands", remedy).error("decimal")
    return encoder.decimal + ",."[encoder.decimal == ","]


@dataclass(frozen=True)
class _Roles:
    """The columns that have a part of their own."""

    target: str
    domain: str | None
    ignore: tuple[str, ...]
    categories: tuple[str, ...]
    keep: tuple[str, ...]
    text: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    def among(self, known: Sequence[str]) -> _Roles:
        """The same with lists of names taken apart: "a,b" are two columns, unless one is called so."""
        named: dict[str, Any] = {
            role: tuple(dict.fromkeys(each for name in getattr(self, role) for each in _apart(name, known) if each))
            for role in ("ignore", "categories", "keep", "text", "images")
        }
        return replace(self, **named)


def _apart(name: str, known: Sequence[str]) -> list[str]:
    return [name] if name in known or "," not in name else [each.strip() for each in name.split(",")]


class _Problems:
    """Errors that are collected, so that all of them are told at once."""

    def __init__(self) -> None:
        self._found: list[MixtuneError] = []

    def attempt(self, step: Callable[..., Any], *given: Any, **options: Any) -> Any:
        """What the step returns, or None where it raises an error, which is kept."""
        try:
            return step(*given, **options)
        except MixtuneError as error:
            self._found += error.fields.get("problems", (error,))
            return None

    def check(self) -> None:
        """Raise what was found, as one error."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            fixes = self._fixes()
            listed = Wording(self._listed("python"), self._listed("terminal"))
            told: dict[str, Any] = {"count": len(self._found), "listed": listed, "problems": tuple(self._found)}
            raise DataError("there are {count} problems: {listed}", code="several", fixes=fixes, **told)

    def _fixes(self) -> dict[str, Any]:
        """The settings that mend all of them; none where one cannot be mended so."""
        known: list[dict[str, Any]] = [error.fields.get("fixes", {}) for error in self._found]
        fixes: dict[str, Any] = {}
        for each in known if all(known) else []:
            both = [fix["ignore"] for fix in (fixes, each) if fix.get("ignore")]
            fixes |= {**each, **({"ignore": ",".join(both)} if both else {})}
        return fixes

    def _listed(self, place: Place) -> str:
        return "; ".join(f"({number}) {error.render(place)}" for number, error in enumerate(self._found, 1))


def _all_names(parts: Sequence[Part]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part.table.column_names))


def _read_parts(paths: Any, roles: _Roles, reading: Mapping[str, Any]) -> tuple[list[Part], list[str], list[Note]]:
    """The tables, the domain of each, and notes on how they were read."""
    if is_table(paths):
        return [Part("the table", object_table(paths, "the table"))], ["the table"], []
    files, notes = _distinct_files(as_paths(paths))
    if roles.domain is not None:
        check_single_file(files, roles.domain)
    written = (*roles.categories, *roles.text, *roles.images)
    text = tuple(each for name in written for each in {name, *map(str.strip, name.split(","))})
    text = (*text, *([] if roles.domain is None else [roles.domain]))
    parts = []
    for path in files:
        read = _with_long_numbers(read_file(path, text=text, expected=[roles.target], **reading), path, reading)
        mark = "." if read.form is None else read.form.decimal
        parts.append(Part(f'"{shown_path(path)}"', read.table, decimal=mark, name=shown_path(path).name))
        notes += read.notes
    return parts, [file_label(path) for path in files], notes


def _without_totals(parts: Sequence[Part]) -> tuple[list[Part], list[Note]]:
    """The tables without totals among their last rows, marked by a word such as "Total" that occurs only once."""
    kept, notes = [], []
    for part in parts:
        table, start = part.table, max(part.table.num_rows - _FOOTER, 0)
        found = {
            row: text.strip()
            for row, cells in enumerate(table.slice(start).to_pylist() if start else (), start)
            for name, text in cells.items()
            if isinstance(text, str) and _TOTAL.fullmatch(text.strip())
            if pc.sum(pc.equal(table.column(name), text)).as_py() == 1
        }
        if found:
            words = 'of totals at the end of "{file}" {are} left out ({labels})'
            told = {"file": part.name, "labels": quoted(list(found.values()))}
            notes.append(counted_note("totals", len(found), "row", words, **told))
            part = replace(part, table=table.filter(pa.array([row not in found for row in range(table.num_rows)])))
        kept.append(part)
    return kept, notes


def _with_long_numbers(read: FileTable, path: Path, reading: Mapping[str, Any]) -> FileTable:
    """Keep whole numbers of a CSV file as text that are too long for integers: they were read as floats, rounded."""
    table = read.table
    floats = [name for name in table.column_names if kinds.is_floating(table.column(name).type)]
    large = [name for name in floats if (pc.max(pc.abs(table.column(name))).as_py() or 0) > 2**53]
    if read.form is None or not large:
        return read
    written = read_file(path, text=large, **reading).table
    for name in large:
        column = pc.utf8_trim_whitespace(written.column(name).combine_chunks().cast(pa.large_string()))
        if inexact_integer(column):
            table = table.set_column(table.column_names.index(name), name, column)
    return read._replace(table=table)


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
    repeated = Note("repeated-files", "{files} given more than once; each is read once", files=again)
    return list(named.values()), [repeated] if len(first) < len(files) else []


class _Labelled(NamedTuple):
    """Tables whose rows have labels: the labels, the focal one, the label of each row of one table, and notes."""

    parts: list[Part]
    labels: list[str]
    focal: str
    codes: Integers | None
    notes: list[Note]


def _label_parts(parts: list[Part], labels: list[str], roles: _Roles, focal: str | None, every: bool) -> _Labelled:
    """Find the domain of every row, and the focal domain."""
    if roles.domain is None:
        return _Labelled(parts, labels, _focal_file(labels, focal, parts), None, [])
    if roles.domain not in parts[0].table.column_names:
        return _Labelled(parts, labels, "", None, [])  # reported with the columns
    part, lost = _with_labels(parts[0], roles.domain)
    codes, labels, name, spelt = _label_rows(part, roles.domain, focal, every=every)
    return _Labelled([part], labels, name, codes, lost + spelt)


def _without_domains(rows: _Labelled, exclude: Sequence[str]) -> _Labelled:
    """Leave some domains out; "a,b" are two of them, unless one is called so."""
    labels = rows.labels
    asked = [each for name in exclude for each in _apart(name, labels)]
    left: list[str] = []
    for name in asked:
        same = [label for label in labels if label == name] or [label for label in labels if _same_label(label, name)]
        if len(same) != 1:
            template = 'exclude names "{name}", which is not a domain; {hint}'
            right = [*(each for each in asked if each in labels), *filter(None, [closest(name, labels)])]
            fields = {"name": name, "hint": nearest(name, labels), "fixes": {"exclude": ",".join(right)}}
            raise ParameterError(template, code="no-domain-to-exclude", **fields)
        if same[0] == rows.focal:
            raise ParameterError(f'exclude names "{name}", the focal domain; leave it out of exclude')
        left.append(same[0])
    if not left:
        return rows
    kept = [place for place, label in enumerate(labels) if label not in left]
    note = Note("excluded", "left out as asked for: {names}", names=quoted(sorted(set(left))))
    names, notes = [labels[place] for place in kept], [*rows.notes, note]
    if rows.codes is None:
        return rows._replace(parts=[rows.parts[place] for place in kept], labels=names, notes=notes)
    stays = np.isin(rows.codes, kept)
    codes = np.searchsorted(kept, rows.codes[stays])
    (part,) = rows.parts
    part = replace(part, table=part.table.filter(pa.array(stays)))
    return rows._replace(parts=[part], labels=names, codes=codes, notes=notes)


def _focal_file(labels: Sequence[str], focal: str | None, parts: Sequence[Part]) -> str:
    """Find the focal domain among those named after their files."""
    focal = None if focal is None else plain_text(focal)
    if focal is None or focal in labels:
        return labels[0] if focal is None else focal
    if len(parts) > 1:
        finding = f'there is no domain "{focal}" among the files; {nearest(focal, labels)}'
        raise DataError("{finding}", code="no-focal", finding=finding, fixes=_spelling("focal", focal, labels))
    advice = "name the column of domain labels with {fix}, or pass one file per domain"
    finding = f'{parts[0].where} is one domain, "{labels[0]}", not "{focal}"'
    column = _holder(parts[0].table, focal)
    fault = Fault(finding, phrase(advice, fix=setting("domain", column or "COLUMN")))
    raise fault.error("no-domain", fixes={} if column is None else {"domain": column})


def _holder(table: Table, label: str | None) -> str | None:
    """The first column that has this label in one of its rows."""
    for name in [] if label is None else table.column_names:
        column = table.column(name)
        if kinds.is_nested(column.type):
            continue
        if any(_same_label(str(value), label or "") for value in pc.unique(column).to_pylist()[:_MOST_DOMAINS]):
            return str(name)
    return None


def _spelling(option: str, name: str, known: Sequence[str]) -> dict[str, Any]:
    """The setting with the name that was probably meant."""
    found = closest(name, known)
    return {} if found is None else {option: found}


def _blank_cells(column: Any) -> Booleans:
    """Flag the cells without a value."""
    blank = column.is_null(nan_is_null=True)
    if is_text(column.type):
        blank = pc.or_kleene(blank, pc.equal(pc.utf8_trim_whitespace(column.cast(pa.large_string())), ""))
    return np.asarray(pc.fill_null(blank, True))


def _with_labels(part: Part, domain: str) -> tuple[Part, list[Note]]:
    """The rows that have a label; blank cells below labels that occur once, as in merged cells, take that label."""
    column = part.table.column(domain).combine_chunks()
    known = ~_blank_cells(column)
    if known.all() or not known.any():
        return part, []
    labels = column.filter(pa.array(known))
    if known[0] and 2 <= len(labels) < len(known) / 2 and len(pc.unique(labels)) == len(labels):
        filled = pc.fill_null_forward(pc.if_else(pa.array(known), column, None))
        table = part.table.set_column(part.table.column_names.index(domain), domain, filled)
        template = 'blank cells in column "{column}" are read as the label above them'
        return replace(part, table=table), [Note("merged-labels", template, column=domain)]
    words = 'without a label in column "{column}" {are} left out'
    note = counted_note("unlabelled-rows", int((~known).sum()), "row", words, column=domain)
    return replace(part, table=part.table.filter(pa.array(known))), [note]


def _check_known(roles: _Roles, parts: Sequence[Part]) -> None:
    """Refuse to leave out, to keep, or to read in some way, a column that no table has."""
    known = _all_names(parts)
    for role in ("ignore", "categories", "keep", "text", "images"):
        for name in getattr(roles, role):
            if name not in known:
                others = [each for each in getattr(roles, role) if each in known]
                right = [*others, *filter(None, [closest(name, known)])]
                template, finding = "{finding}; {hint}", f'{role} names "{name}", which is not a column of any table'
                fields = {"finding": finding, "hint": nearest(name, known), "fixes": {role: ",".join(right)}}
                raise ParameterError(template, code="no-column", **fields)


def _label_rows(
    part: Part, domain: str, focal: str | None, *, every: bool = False
) -> tuple[Integers, list[str], str, list[Note]]:
    """Number the domain of each row; so many that they look like identifiers of rows are refused.

    Without a focal domain the largest is taken where ``every`` domain counts, else it is asked for.
    """
    where, rows = f'column "{domain}" of {part.where}', part.table.num_rows
    codes, labels, name, same = label_codes(part.table.column(domain).to_pylist(), focal, where, n_rows=rows)
    joined = same.notes(f'column "{domain}"')
    if len(labels) > _MOST_DOMAINS or (len(labels) > _FEW_DOMAINS and rows < 2 * len(labels)):
        finding = f"{where} has {len(labels):,} different labels for {rows:,} rows"
        advice = "is it an identifier? Name the column with the domain of each row with {fix}"
        raise Fault(finding, phrase(advice, fix=setting("domain", "COLUMN"))).error("too-many-domains")
    if focal is None:
        largest = [labels[index] for index in np.argsort(-np.bincount(codes), kind="stable")]
        if every:
            return codes, labels, largest[0], [*joined, *similar_notes(domain, labels, "labels")]
        template = "focal is not given; name the domain to predict for with {fix}, one of {labels}"
        fixes = {"focal": largest[0]}
        raise ParameterError(template, fix=setting("focal", "LABEL"), labels=quoted(largest), fixes=fixes)
    if name in labels:
        return codes, labels, name, [*joined, *similar_notes(domain, labels, "labels")]
    if len(alike := [label for label in labels if _same_label(label, name)]) == 1:
        note = Note("focal-spelling", 'the focal domain is "{label}"', label=alike[0])
        return codes, labels, alike[0], [*joined, note]
    finding = f'no row of {part.where} has "{name}" in column "{domain}", so there are 0 focal rows'
    fixes = _spelling("focal", name, labels)
    hint = nearest(name, labels)
    raise DataError("{finding}; {hint}", code="no-focal", finding=finding, hint=hint, fixes=fixes)


def _same_label(label: str, name: str) -> bool:
    """Whether two labels differ only in capital letters and blanks, or are the same number."""
    if " ".join(label.casefold().split()) == " ".join(name.casefold().split()):
        return True
    try:
        return float(label) == float(name)
    except ValueError:
        return False


def _common_inputs(
    parts: Sequence[Part], roles: _Roles, columns: str | Sequence[str] | None, focal: str | None, *, impute: bool
) -> tuple[tuple[str, ...], list[Note]]:
    """Choose the input columns: those of all tables, which may lack some where missing values are to be imputed."""
    ignored = set(roles.ignore)
    if both := [name for name in _names(columns or (), "columns") if name in ignored]:
        raise ParameterError(f"columns and ignore both name {quoted(both)}; name it in one of them")
    named = [("target", roles.target), *([] if roles.domain is None else [("domain", roles.domain)])]
    problems = _Problems()
    for part in parts:
        for option, name in named:
            problems.attempt(_check_column, part, option, name, focal)
    problems.check()
    every = _all_names(parts)
    index = [] if columns is not None else [name for name in every if is_index_name(name)]
    given: dict[str, Any] = {"targets": [roles.target], "domain": roles.domain}
    found = []
    for part in parts:
        kept = [name for name in part.table.column_names if name not in ignored and name not in index]
        # A column that some other table has may be lacking here.
        wanted = None if columns is None else [n for n in _names(columns, "columns") if n in kept or n not in every]
        chosen = columns if wanted is None or not (wanted and impute) else wanted
        found.append(choose_inputs(part.table.select(kept), **given, columns=chosen, where=part.where))
    inputs = tuple(dict.fromkeys(name for own in found for name in own))
    notes = []
    for part, own in zip(parts, found):
        lost = [name for name in inputs if name not in own]
        if impute and set(own) & set(found[0]) and not _renamed(lost, own, found):
            template = '"{file}" has no column {columns}; all its values there are missing'
            notes += [Note("absent-columns", template, file=part.name, columns=quoted(lost))] if lost else []
        elif set(own) != set(found[0]):
            finding = f"{part.where} and {parts[0].where} differ in columns: {column_difference(own, found[0])}"
            template = "{finding}, or leave out the others with {fix}"
            others = sorted(set(own) ^ set(found[0]))
            fix, fixes = setting("ignore", ",".join(others)), {"ignore": ",".join((*roles.ignore, *others))}
            raise DataError(template, code="different-columns", finding=finding, fix=fix, fixes=fixes)
    used = [name for name in index if name not in ignored and not all(_is_blank(part.table, name) for part in parts)]
    return inputs, notes + [left_out(name, "has no name, like a column of row numbers") for name in used]


def _renamed(lost: Sequence[str], own: Sequence[str], found: Sequence[Sequence[str]]) -> bool:
    """Whether a column that a table lacks is probably one that only this table has, under another name."""
    for name in lost:
        holders = [each for each in found if name in each]
        new = [other for other in own if not any(other in each for each in holders)]
        if closest(name, new) is not None:
            return True
    return False


def _with_columns(part: Part, names: Sequence[str]) -> Part:
    """The same table with the columns that it lacks, without any value."""
    table = part.table
    for name in names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows))
    return replace(part, table=table)


def _with_copies(part: Part) -> Part:
    """The same table with the rows flagged that are no copies of earlier ones."""
    names = part.table.column_names
    if any(kinds.is_nested(column.type) for column in part.table.columns):
        return part
    numbered = part.table.append_column(_ROW, pa.array(np.arange(part.table.num_rows)))
    try:
        first = numbered.group_by(names).aggregate([(_ROW, "min")]).column(f"{_ROW}_min").to_numpy()
    except pa.ArrowException:  # of some types rows cannot be compared
        return part
    whole = np.zeros(part.table.num_rows, dtype=bool)
    whole[first] = True
    return part if whole.all() else replace(part, whole=whole)


def _is_blank(table: Table, name: str) -> bool:
    """Whether a table lacks a column, or the column has no values: spreadsheets write such columns at the end."""
    return name not in table.column_names or bool(_blank_cells(table.column(name)).all())


def _check_column(part: Part, option: str, name: str, focal: str | None) -> None:
    if name in (known := part.table.column_names):
        return
    fields: dict[str, Any] = {"where": part.where, "column": name, "hint": nearest(name, known)}
    fixes = _spelling(option, name, known)
    if not fixes and option == "domain" and (holder := _holder(part.table, focal)):
        fixes = {"domain": holder}
    raise DataError('{where} has no column "{column}"; {hint}', code="no-column", **fields, fixes=fixes)


def _check_focal_rows(parts: Sequence[Part], labels: Sequence[str], name: str, codes: Integers | None) -> None:
    if name not in labels:
        return  # reported already
    place = labels.index(name)
    if not (parts[place].table.num_rows if codes is None else np.any(codes == place)):
        lacks = f'every row of the focal domain "{name}" lacks a target, or has text where a number is expected'
        raise DataError(f"{lacks}; give at least one of them a target")


def _dropped_notes(parts: Sequence[Part], kept: Sequence[Booleans]) -> list[Note]:
    # Notes are kept with models, which are passed on: the folders of the training data stay private.
    words = 'of "{file}" without a target {are} left out'
    return [
        counted_note("dropped-rows", lost, "row", words, file=part.name)
        for part, rows in zip(parts, kept)
        if (lost := int((~rows).sum()))
    ]


def _members(encoder: TableEncoder, parts: Sequence[Part], labels: Sequence[str], codes: Any) -> tuple[Domain, ...]:
    # Files and labels whose rows all lack a target are gone; the others keep their order.
    rows = [
        (encoder.encode(part.table, part.where, decimal=part.decimal, training=True).X, part.y, encoder.names)
        for part in parts
        if len(part.y)
    ]
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


def finding_notes(domains: Domains, encoder: TableEncoder, *, every: bool = False) -> list[Note]:
    """Say which columns give the target away, and which focal rows stand in sources, too.

    Where ``every`` domain is predicted for, no rows are focal: the rows of each are looked at.

    Examples
    --------
    >>> from mixtune.data import TargetColumn
    >>> X = np.random.default_rng(0).standard_normal((30, 1))
    >>> domains = Domains.from_dict({"a": (X[:20], 2 * X[:20, 0]), "b": (X[20:], 2 * X[20:, 0])}, focal="a")
    >>> [note.code for note in finding_notes(domains, TableEncoder((NumberColumn("x"),), TargetColumn("y")))]
    ['leak']
    """
    members = [domains.focal_domain, *domains.sources]
    X, y = (np.concatenate([np.asarray(getattr(each, part)) for each in members]) for part in ("X", "y"))
    names = [each.name for each in members]
    codes = np.repeat(np.arange(len(members)), [each.n_rows for each in members])
    looked_at = domain_parts(codes, names) if every else {"the focal rows": codes == 0}
    target, classes = encoder.target.name, encoder.target.classes is not None
    rows = [(np.asarray(each.X), np.asarray(each.y)) for each in members]
    notes = leak_notes(list(_suspects(encoder, X)), y, looked_at, classes=classes, target=target)
    return notes + (shared_notes if every else repeat_notes)(rows, names)


def _suspects(encoder: TableEncoder, X: Any) -> Iterator[Suspect]:
    """The columns of the table from their encoding, missing values as NaN."""
    ends = np.cumsum([len(column.outputs) for column in encoder.columns])
    for column, block in zip(encoder.columns, np.split(X, ends[:-1], axis=1)):
        if isinstance(column, NumberColumn):
            missing = block[:, 1] > 0 if column.indicator else np.zeros(len(X), dtype=bool)
            yield Suspect(column.name, np.where(missing, np.nan, block[:, 0]))
        elif isinstance(column, LevelColumn):
            codes = block[:, 0] if len(column.levels) == 2 else np.argmax(block, axis=1).astype(np.float64)
            unknown = column.levels.index(MISSING) if MISSING in column.levels else -1
            yield Suspect(column.name, np.where(codes == unknown, np.nan, codes), coded=True)
        elif isinstance(column, DateColumn) and "days" in column.parts:
            missing = block[:, -1] > 0 if column.indicator else np.zeros(len(X), dtype=bool)
            yield Suspect(column.name, np.where(missing, np.nan, block[:, column.parts.index("days")]))
