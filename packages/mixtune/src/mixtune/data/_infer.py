"""What the columns of training tables hold: numbers, dates, levels, or nothing that can be used.

A table is taken as it comes. Missing values are filled in, dates become numbers, rare levels are joined, identifiers
are left out; a note reports each of these. All tables are looked at together, so that every domain is read alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._messages import Note, Wording, counted, quoted, setting
from mixtune.arrays import Booleans, Floats
from mixtune.data import _parse_column as parse
from mixtune.data._embeddings import embedded_column
from mixtune.data._encoder import MISSING, OTHER, UTC, DateColumn, InputColumn, LevelColumn, NumberColumn, TargetColumn
from mixtune.data._parse_column import Cells, Fault, Written
from mixtune.data._tables import Table, unusable_columns
from mixtune.errors import DataError

_MOST_CLASSES = 1000
_IMPUTE = setting("missing", "impute")
_DROP = setting("drop_missing_target")
#: In fewer rows, different values in every row say little.
_FEW_ROWS = 20
#: Texts with at least this many spaces on average are free text, not names.
_FREE_TEXT = 5
#: Names of columns that identify rows.
_IDENTIFIER = re.compile(
    r"(?i:(?:.*[\W_])?(?:id|uid|uuid|guid|key|index|idx|rownames?|row[\W_]?(?:id|no|nr|number)))|.*[a-z]I[Dd]"
)


@dataclass(frozen=True, eq=False)
class Part:
    """One training table, how messages and notes name it, its decimal mark, and its targets once they are known.

    ``whole`` flags the rows that are no copies of earlier ones, where there are copies.
    """

    where: str
    table: Table
    y: Any = ()
    decimal: str = "."
    name: str = "the table"
    whole: Booleans | None = None

    @property
    def copies(self) -> int:
        """How many rows repeat others."""
        return 0 if self.whole is None else int((~self.whole).sum())

    def keep(self, rows: Booleans, y: Floats) -> Part:
        """Keep the flagged rows and their targets; the name says so, since rows are counted anew."""
        gone = int((~rows).sum())
        where = f"{self.where} (without {gone} rows that lack a target)" if gone else self.where
        return replace(self, where=where, table=self.table.filter(pa.array(rows)) if gone else self.table, y=y)


class _Read(NamedTuple):
    """One column of all tables: its cells table by table, how it is written, and notes on that."""

    cells: list[Any]  # Cells or a Fault
    written: Written | None
    notes: list[Note]
    #: The time zone of its times, and how it is written where it is not text.
    zone: str | None = None
    measure: Written = Written()


class _Found(NamedTuple):
    """What a column becomes, or None where it is left out; the notes on it; how many values were missing."""

    column: InputColumn | None
    notes: list[Note]
    missing: int = 0


def infer_columns(
    parts: Sequence[Part],
    inputs: Sequence[str],
    *,
    impute: bool,
    max_levels: int,
    categories: Sequence[str],
    keep: Sequence[str] = (),
    embedded: Mapping[str, tuple[str, str]] | None = None,
) -> tuple[list[InputColumn], list[Note]]:
    """Infer what the input columns hold, and return them with notes.

    Parameters
    ----------
    parts, inputs
        The tables, and the columns to look at.
    impute
        Whether missing values are to be filled in; else they are refused.
    max_levels
        The most levels of a column of text; the rarest of more are joined.
    categories, keep
        Columns whose numbers are categories, and columns to use although they look like identifiers.
    embedded
        Columns of texts and of paths of images, with the network for each: ``{name: (content, network)}``.

    Examples
    --------
    >>> table = pa.table({"age": [30, 40], "sex": ["f", "m"], "unit": ["cm", "cm"]})
    >>> columns, notes = infer_columns(
    ...     [Part("the table", table)], table.column_names, impute=False, max_levels=30, categories=()
    ... )
    >>> columns[0].name, columns[1]
    ('age', LevelColumn(name='sex', levels=('f', 'm')))
    >>> notes
    ['column "unit" is "cm" in every row and is left out']
    """
    fill = parse.phrase("fill them in, or impute them with {fix}", fix=_IMPUTE)
    columns: list[InputColumn] = []
    notes: list[Note] = []
    faults: dict[str, Fault] = {}
    filled: list[str] = []
    for name in inputs:
        category = name in categories or name in (embedded or {})
        read = _read_column(parts, name, markers=impute, category=category, fill=fill)
        if fault := next((cells for cells in read.cells if isinstance(cells, Fault)), None):
            if fault.skip:
                notes.append(left_out(name, fault.finding))
            else:
                faults[name] = fault
            continue
        if fault := _two_kinds(name, parts, read.cells, _IMPUTE):
            faults[name] = fault
            continue
        known = [cells for cells in read.cells if cells is not None]
        first = [_whole(cells, part) for cells, part in zip(read.cells, parts) if cells is not None]
        if not known:
            notes.append(Note("empty-column", 'column "{column}" has no values and is left out', column=name))
            continue
        missing = sum(int(parse.is_missing(cells, part.table.num_rows).sum()) for cells, part in zip(read.cells, parts))
        if name in (embedded or {}):
            found = _infer_embedded(name, known, missing, *(embedded or {})[name])
        else:
            options: dict[str, Any] = {"impute": impute, "max_levels": max_levels, "keep": name in keep}
            found = _infer_column(name, known, missing, read, first, **options)
        notes += found.notes
        columns += [] if found.column is None else [found.column]
        filled += [f'"{name}" ({found.missing:,})'] if found.missing and found.column is not None else []
    if faults:
        leave = parse.phrase(", or leave out such columns with {fix}", fix=setting("ignore", ",".join(faults)))
        raise unusable_columns(faults, _all_of(parts), leave, fixes=_fixes(faults))
    if filled:
        template = "missing values were imputed: {columns}"
        notes.append(Note("filled-in", template, columns=", ".join(filled)))
    return columns, notes


def _fixes(faults: Mapping[str, Fault]) -> dict[str, Any]:
    """Settings with which the columns can be used, or are left out."""
    filled = [name for name, fault in faults.items() if fault.fillable]
    others = [name for name in faults if name not in filled]
    return ({"missing": "impute"} if filled else {}) | ({"ignore": ",".join(others)} if others else {})


def left_out(name: str, finding: str) -> Note:
    """The note that a column is not used."""
    return Note("left-out", 'column "{column}" {finding}; it is left out', column=name, finding=finding)


def _whole(cells: Cells, part: Part) -> Cells:
    """The cells of rows that are no copies: copies would hide that a column has another value in every row."""
    if part.whole is None:
        return cells
    return cells.filter(pa.array(part.whole)) if parse.is_texts(cells) else cells[part.whole]


def _infer_column(
    name: str,
    known: Sequence[Any],
    missing: int,
    read: _Read,
    first: Sequence[Any],
    *,
    impute: bool,
    max_levels: int,
    keep: bool,
) -> _Found:
    """What one column becomes; the ``first`` cells are those of rows that are no copies."""
    if parse.is_texts(known[0]):
        found = _infer_levels(name, known, missing, first, max_levels=max_levels, keep=keep)
        return found._replace(notes=[*read.notes, *found.notes])
    if parse.is_dates(known[0]):
        return _infer_dates(name, known, missing, read, impute=impute)
    if not keep and not missing and (finding := _identifies(name, first)):
        return _Found(None, [_unused_note(name, finding)])
    # The median of very many rows takes time, and is of use only where missing values are filled in.
    median = float(np.nanmedian(np.concatenate(known))) if impute else None
    how = read.written or read.measure
    notes = read.notes if missing else [*read.notes, *constant_notes(name, known)]
    column = NumberColumn(name, median, missing > 0, decimal=how.decimal, unit=how.unit, signs=how.signs)
    return _Found(column, notes, missing)


def _infer_embedded(name: str, known: Sequence[Any], missing: int, content: str, network: str) -> _Found:
    column = embedded_column(name, content, network, known[0].drop_null()[0].as_py())
    template = 'column "{column}" became {width} numbers by {encoder}'
    note = Note("embedded", template, column=name, width=column.width, encoder=column.identity)
    return _Found(column, [note], missing)


def _infer_dates(name: str, known: Sequence[Any], missing: int, read: _Read, *, impute: bool) -> _Found:
    days = np.concatenate(known)
    days = days[~np.isnat(days)]
    origin = str(days.min().astype("datetime64[D]"))
    values = parse.date_parts(days, origin)
    # Dates that only name a month fall on its first day, whatever weekday that is.
    monthly = bool(np.all(days == days.astype("datetime64[M]")))
    varied = (part for part in parse.DATE_PARTS if values[part].min() < values[part].max())
    parts = tuple(part for part in varied if not (monthly and part == "weekday"))
    if not parts:
        return _Found(None, [left_out(name, f"is {origin} in every row")])
    median = float(np.median(values["days"])) if impute else None
    written = None if read.written is None else read.written.dates
    column = DateColumn(name, parts, origin, median, indicator=missing > 0, dates=written, zone=read.zone)
    template = 'column "{column}" holds dates{read}; it became {parts}'
    made = ", ".join(f"days since {origin}" if part == "days" else part for part in parts)
    words = "" if read.written is None else f" (read as {read.written.words})"
    note = Note("dates", template, column=name, read=words, parts=made)
    return _Found(column, [note, *read.notes], missing)


def _infer_levels(
    name: str, known: Sequence[Any], missing: int, first: Sequence[Any], *, max_levels: int, keep: bool
) -> _Found:
    """The levels of a column of text; texts that differ in most rows are left out, the rarest of too many joined."""
    counts = pc.value_counts(pa.chunked_array(known, pa.large_string()).drop_null())
    found = {each["values"]: each["counts"] for each in counts.to_pylist()}
    rows, marked = sum(found.values()), bool(missing) or MISSING in found
    levels = sorted(level for level in found if level != MISSING)
    held = sum(len(cells) - cells.null_count for cells in first)
    if not keep and held >= _FEW_ROWS and (len(found) == held or (len(found) > max_levels and 2 * len(found) > held)):
        finding = f"has {len(found):,} different texts in {held:,} rows (such as {quoted(levels[:2])})"
        blanks = sum(level.count(" ") for level in levels) / len(levels)
        return _Found(None, [_unused_note(name, finding, "free-text" if blanks >= _FREE_TEXT else "identifier")])
    if not levels or (len(found) == 1 and not missing):
        template = 'column "{column}" is "{level}" in every row and is left out'
        return _Found(None, [Note("constant-column", template, column=name, level=(*levels, MISSING)[0])])
    notes = level_notes(name, levels, _IMPUTE)
    if len(levels) > max_levels:
        # Ties are broken by the text, so that the order of rows does not matter.
        often = sorted(levels, key=lambda level: (-found[level], level))[: max_levels - 1]
        template = (
            'column "{column}" has {count:,} categories; the {kept} most frequent are used, the others are merged as '
            '"{other}" ({fix} changes that)'
        )
        fix = setting("max_levels", len(levels))
        notes.append(
            Note("joined-levels", template, column=name, count=len(levels), kept=len(often), other=OTHER, fix=fix)
        )
        levels = [*sorted(level for level in often if level != OTHER), OTHER]
    levels = [*levels, MISSING] if marked else levels
    # Of more than two levels, one that is new is none of them.
    share = 1 - found[levels[0]] / rows if len(levels) == 2 and not marked else 0.5
    return _Found(LevelColumn(name, tuple(levels), share), notes, missing)


def _unused_note(name: str, finding: str, code: str = "identifier") -> Note:
    kind, option = {"identifier": ("an identifier", "keep"), "free-text": ("free text", "text")}[code]
    template = 'column "{column}" {finding} and looks like {kind}; it is left out ({fix} uses it)'
    return Note(code, template, column=name, finding=finding, kind=kind, fix=setting(option, name))


def _identifies(name: str, known: Sequence[Floats]) -> str:
    """How whole numbers identify rows: they count them, or differ in every row under a name like "id"; else ""."""
    values = np.concatenate(known)
    if len(values) < _FEW_ROWS or not np.all(values == np.floor(values)):
        return ""
    if _counts(values) or all(_counts(part) for part in known):
        return "numbers its rows"
    different = _IDENTIFIER.fullmatch(name.strip()) and len(np.unique(values)) == len(values)
    return "has a different whole number in every row" if different else ""


def _counts(values: Floats) -> bool:
    """Whether numbers rise or fall from row to row, mostly by one."""
    steps = np.diff(values)
    rising = bool(np.all(steps > 0) or np.all(steps < 0))
    return len(steps) > 0 and rising and bool(np.mean(np.abs(steps) == 1) > 0.5)


def infer_target(
    parts: Sequence[Part], name: str, *, kind: str, drop: bool
) -> tuple[TargetColumn, list[Floats], list[Booleans], list[Note]]:
    """Infer what the target holds: the column, its values and a flag for the rows that have one per table, and notes.

    Examples
    --------
    >>> target, values, kept, notes = infer_target(
    ...     [Part("the table", pa.table({"sold": ["yes", "no", None]}))], "sold", kind="auto", drop=True
    ... )
    >>> target, values
    (TargetColumn(name='sold', classes=('no', 'yes')), [array([1., 0.])])
    """
    read = _read_target(parts, name, kind=kind, drop=drop)
    notes = read.notes
    if kind == "auto" and _is_binary(read.cells):
        template = (
            'every target in column "{column}" is 0 or 1, so they are treated as two classes ({fix} treats them as '
            "numbers)"
        )
        notes = [*notes, Note("binary-target", template, column=name, fix=setting("target_kind", "number"))]
        read = _read_target(parts, name, kind="classes", drop=drop)
    found = read.cells
    if fault := _two_kinds(name, parts, found, _DROP):
        raise fault.error("two-kinds")
    kept = [~parse.is_missing(cells, part.table.num_rows) for cells, part in zip(found, parts)]
    known = [cells for cells in found if cells is not None]
    if not known:
        raise DataError(f'column "{name}" of {_all_of(parts)} has no values; name the column to predict')
    classes = None if isinstance(known[0], np.ndarray) else _infer_classes(name, known, _all_of(parts))
    target = TargetColumn(name, classes)
    values = [
        np.empty(0) if cells is None else target.encode(cells.drop_null() if classes else cells[rows])
        for cells, rows in zip(found, kept)
    ]
    return target, values, kept, notes


def _is_binary(found: Sequence[Cells]) -> bool:
    """Whether all targets are the numbers 0 and 1, and both occur."""
    known = [cells for cells in found if cells is not None]
    if not known or any(parse.kind_of(cells) != "numbers" for cells in known):
        return False
    values = np.concatenate(known)
    zeros, ones = values == 0, values == 1
    return bool(np.all(zeros | ones | np.isnan(values)) and zeros.any() and ones.any())


def _read_column(
    parts: Sequence[Part], name: str, *, markers: bool, category: bool, fill: Wording, noun: str = "missing value"
) -> _Read:
    """Read one column of all tables in the same way."""
    raw = [part.table.column(name) for part in parts]
    category = category or any(kinds.is_dictionary(column.type) for column in raw)
    held = [] if category else [texts for each in raw if (texts := parse.written_texts(each)) is not None]
    joined = pa.chunked_array(held, pa.large_string()).combine_chunks() if held else None
    written = parse.find_written(joined, decimal=parts[0].decimal)
    zone, notes = _zone_of(name, raw, joined if written is not None and written.dates else None)
    if written is not None:
        signs = None if written.decimal is None else parse.all_signs(joined, written.decimal)
        written = replace(written, signs=signs, zone=zone)
    reading: dict[str, Any] = {"markers": markers, "category": category, "fill": fill, "noun": noun, "written": written}
    cells = [parse.check_column(column, **reading, zone=zone) for column in raw]
    notes += [] if written is None else _written_notes(name, joined, written, raw, cells)
    notes += _joined_notes(name, raw) if any(map(parse.is_texts, cells)) else []
    # Decimal commas of the whole file are told once, with the file.
    told = [note for note in notes if not (note.code == "decimal-commas" and parts[0].decimal == ",")]
    return _Read(cells, written, told, zone, _measure(raw))


def _joined_notes(name: str, raw: Sequence[Any]) -> list[Note]:
    """Say which texts count as one since they differ only in spaces around them or in how characters are composed."""
    texts = [column.cast(pa.large_string()) for column in raw if parse.is_text(column.type)]
    spellings: dict[str, list[str]] = {}
    for text in pc.unique(pa.chunked_array(texts, pa.large_string())).drop_null().to_pylist():
        spellings.setdefault(parse.plain_text(text), []).append(text)
    joined = {text: found for text, found in spellings.items() if text and len(found) > 1}
    template = (
        'column "{column}" has texts that differ only in spaces around them or in how characters are composed; they '
        "count as one: {texts}"
    )
    return [Note("joined-texts", template, column=name, texts=quoted(sorted(joined)))] if joined else []


def _measure(raw: Sequence[Any]) -> Written:
    """How times of day and durations are written that are no text."""
    if any(kinds.is_time(column.type) for column in raw):
        return Written(decimal=":")
    return Written(unit="days") if any(kinds.is_duration(column.type) for column in raw) else Written()


def _zone_of(name: str, raw: Sequence[Any], texts: Any) -> tuple[str | None, list[Note]]:
    """UTC where times have a time zone, since they are the same instants in every zone; None where none has one."""
    found = {column.type.tz for column in raw if kinds.is_timestamp(column.type)} - {None}
    known, without = parse.text_zones(texts) if texts is not None else (set(), 0)
    if not (found := found | known):
        return None, []
    notes = []
    if others := sorted(found - {UTC, "+00:00"}):
        template = (
            'times in column "{column}" have a time zone ({zones}); hours and days are those of UTC, so that the same '
            "instants are the same in every zone (write local times without a zone where they matter more)"
        )
        notes.append(Note("time-zones", template, column=name, zones=", ".join(others[:3])))
    naive = sum(len(column) for column in raw if kinds.is_timestamp(column.type) and column.type.tz is None)
    if without + naive:
        template = '{times} in column "{column}" without a time zone {are} read as of UTC'
        are = "is" if without + naive == 1 else "are"
        told = {"times": counted((without + naive, "time")), "column": name, "are": are}
        notes.append(Note("no-zone", template, **told))
    return UTC, notes


def _written_notes(name: str, texts: Any, written: Written, raw: Sequence[Any], cells: Sequence[Any]) -> list[Note]:
    """Say how numbers that are written as text were read, which texts are none, and which dates can be read twice."""
    notes = []
    if written.dates is not None and parse.is_ambiguous(texts, written):
        template = 'the order of day and month in column "{column}" is ambiguous; the dates are read as {words}'
        notes.append(Note("ambiguous-dates", template, column=name, words=written.words))
    if written.decimal is not None and (found := parse.signs(texts)):
        template = 'the numbers in column "{column}" are read without their signs ({signs})'
        notes.append(Note("number-signs", template, column=name, signs=", ".join(found)))
    if written.unit is not None:
        template = 'the numbers in column "{column}" are read without their unit ({unit})'
        notes.append(Note("number-unit", template, column=name, unit=written.unit))
    if written.decimal == ",":
        template = 'the numbers in column "{column}" are read with decimal commas'
        notes.append(Note("decimal-commas", template, column=name))
    if written.decimal == ":":
        notes.append(Note("hours", 'the times in column "{column}" are read as hours', column=name))
    odd = [text for column, values in zip(raw, cells) for text in parse.odd_texts(column, values)]
    return notes + parse.odd_notes(name, odd)


def _read_target(parts: Sequence[Part], name: str, *, kind: str, drop: bool) -> _Read:
    fill = parse.phrase("fill them in, or drop the rows with {fix}", fix=_DROP)
    truth = kind == "auto" and any(kinds.is_boolean(part.table.column(name).type) for part in parts)
    category = kind == "classes" or truth
    read = _read_column(parts, name, markers=drop, category=category, fill=fill, noun="missing target")
    for part, cells in zip(parts, read.cells):
        fault = cells if isinstance(cells, Fault) else None
        if kind == "number" and parse.is_texts(cells):
            remedy = parse.phrase("write numbers, or pass {fix}", fix=setting("target_kind", "classes"))
            fault = Fault(f'holds text (such as "{parse.first_text(cells)[0]}")', remedy)
        if parse.is_dates(cells):
            fault = Fault("holds dates or times", "name a target of numbers or of classes, or turn dates into numbers")
        if fault is not None:
            fixes: dict[str, Any] = {"drop_missing_target": True} if fault.fillable else {}
            raise unusable_columns({name: fault}, part.where, fixes=fixes)
    return read


def _two_kinds(name: str, parts: Sequence[Part], found: Sequence[Cells], fill: Wording) -> Fault | None:
    """What is wrong with a column that holds numbers or dates in one table and texts in another."""
    known = [(parse.kind_of(cells), part.where, cells) for part, cells in zip(parts, found) if cells is not None]
    other = next((each for each in known if each[0] != known[0][0]), None)
    if other is None:
        return None
    # The text column comes second.
    (kind, here, _), (its, there, cells) = sorted((known[0], other), key=lambda each: each[0] == "text")
    where = f'column "{name}" holds {kind} in {here} and {its} in {there}'
    hint: Any = ""
    if parse.is_texts(cells):
        value, row = parse.first_text(cells)
        where = f'{where} (the first is "{value}" in data row {row})'
        hint = parse.phrase("if it marks a missing value, pass {fill}; ", fill=fill) if value in parse.MARKERS else ""
    advice = "{hint}write it in the same way everywhere, or read it as text everywhere with {fix}"
    return Fault(where, parse.phrase(advice, hint=hint, fix=setting("categories", name)))


def constant_notes(name: str, values: Sequence[Floats]) -> list[Note]:
    """Say that a column of numbers, table by table, is the same in every row.

    Examples
    --------
    >>> constant_notes("year", [np.array([2020.0, 2020.0]), np.array([2020.0])])
    ['column "year" is 2020 in every row; nothing can be learned from it']
    >>> constant_notes("age", [np.array([30.0, 40.0])])
    []
    """
    held = [part for part in values if part.size]
    low, high = min(part.min() for part in held), max(part.max() for part in held)
    if low != high:
        return []
    template = 'column "{column}" is {value:.6g} in every row; nothing can be learned from it'
    return [Note("constant-column", template, column=name, value=float(low))]


def level_notes(name: str, levels: Sequence[str], fill: Wording) -> list[Note]:
    """Say which levels or classes may not be meant as such.

    Examples
    --------
    >>> level_notes("c", ["?", "Red", "red"], setting("missing", "impute"))
    ['column "c" has the category "?"; if that marks missing values, pass missing="impute"', 'column "c" has categories that differ only in capital letters ("Red", "red"); they count as different']
    """  # noqa: E501
    notes = []
    if marks := [level for level in levels if level in parse.MARKERS]:
        template = 'column "{column}" has the category {levels}; if that marks missing values, pass {fix}'
        notes.append(Note("marker-level", template, column=name, levels=quoted(marks), fix=fill))
    return notes + similar_notes(name, levels, "categories")


def similar_notes(name: str, levels: Sequence[str], noun: str) -> list[Note]:
    """Say which levels or labels may mean the same."""
    spellings: dict[str, list[str]] = {}
    for level in levels:
        spellings.setdefault(level.casefold(), []).append(level)
    alike = [level for same in spellings.values() if len(same) > 1 for level in same]
    template = 'column "{column}" has {noun} that differ only in capital letters ({levels}); they count as different'
    return [Note("similar-levels", template, column=name, noun=noun, levels=quoted(alike))] if alike else []


def _infer_classes(name: str, known: Sequence[Any], where: str) -> tuple[str, ...]:
    values = pa.chunked_array(known, pa.large_string()).drop_null()
    found = pc.unique(values).to_pylist()
    if len(found) > _MOST_CLASSES or (len(values) > 10 and 2 * len(found) > len(values)):
        finding = f'column "{name}" of {where} has {len(found):,} different texts in {len(values):,} rows'
        raise DataError(f"{finding}, too many for classes; name a target of numbers or of a few classes")
    if len(found) == 1:
        raise DataError(f'every target in column "{name}" of {where} is "{found[0]}"; there must be two classes')
    whole = all(text.removeprefix("-").isdecimal() for text in found)
    # Not int, which refuses more than 4,300 digits.
    return tuple(sorted(found, key=Decimal) if whole else sorted(found))


def _all_of(parts: Sequence[Part]) -> str:
    return parts[0].where if len(parts) == 1 else f"the {len(parts)} tables"
