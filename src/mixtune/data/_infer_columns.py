"""What training tables say about their columns: numbers or levels, medians, classes.

Levels and medians are taken over the rows of all tables, focal and sources together, so that every domain is
encoded in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._array import Booleans, Floats
from mixtune._messages import Note, Wording, quoted, setting
from mixtune.data._encoder import MISSING, InputColumn, LevelColumn, NumberColumn, TargetColumn
from mixtune.data._parse_column import MARKERS, Cells, Fault, check_column, is_missing, is_texts, phrase
from mixtune.data._tables import Table, unusable_columns
from mixtune.errors import DataError

_MOST_CLASSES = 1000
_IMPUTE = setting("missing", "impute")
_DROP = setting("drop_missing_target")


@dataclass(frozen=True, eq=False)
class Part:
    """One training table and how messages name it."""

    where: str
    table: Table

    def keep(self, rows: Booleans) -> Part:
        """Keep the flagged rows; the name says so, since rows are counted anew."""
        gone = int((~rows).sum())
        if not gone:
            return self
        return Part(f"{self.where} (without {gone} rows that lack a target)", self.table.filter(pa.array(rows)))


def infer_columns(
    parts: Sequence[Part], inputs: Sequence[str], *, impute: bool, max_levels: int, categories: Sequence[str]
) -> tuple[list[InputColumn], list[Note]]:
    """Infer what the input columns hold, and return them with notes.

    Examples
    --------
    >>> table = pa.table({"age": [30, 40], "sex": ["f", "m"], "unit": ["cm", "cm"]})
    >>> columns, notes = infer_columns(
    ...     [Part("the table", table)], table.column_names, impute=False, max_levels=30, categories=()
    ... )
    >>> columns
    [NumberColumn(name='age', median=None, indicator=False), LevelColumn(name='sex', levels=('f', 'm'))]
    >>> notes
    ['column "unit" is "cm" in every row and is left out']
    """
    cells = [_read_part(part, inputs, impute=impute, categories=set(categories)) for part in parts]
    columns: list[InputColumn] = []
    notes: list[Note] = []
    faults: dict[str, Fault] = {}
    filled: list[str] = []
    for name in inputs:
        found = [part[name] for part in cells]
        _check_one_kind(name, parts, found, _IMPUTE)
        known = [values for values in found if values is not None]
        if not known:
            notes.append(Note("empty-column", 'column "{column}" has no values and is left out', column=name))
            continue
        lost = sum(int(is_missing(values, part.table.num_rows).sum()) for values, part in zip(found, parts))
        column: InputColumn | None
        if isinstance(known[0], np.ndarray):
            # The median of very many rows takes time, and is of use only where missing values are filled in.
            median = float(np.nanmedian(np.concatenate(known))) if impute else None
            column = NumberColumn(name, median, indicator=lost > 0)
            notes += [] if lost else constant_notes(name, known)
        else:
            levels = _infer_levels(name, known, lost > 0, max_levels)
            if isinstance(levels, Fault):
                faults[name] = levels
                continue
            notes += level_notes(name, levels, _IMPUTE) if len(levels) > 1 else [_one_level(name, levels[0])]
            column = LevelColumn(name, levels) if len(levels) > 1 else None
        if column is not None:
            columns.append(column)
            filled += [f'"{name}" ({lost})'] if lost else []
    if faults:
        raise unusable_columns(faults, _all_of(parts))
    if filled:
        notes.append(Note("filled-in", "missing values were filled in: {columns}", columns=", ".join(filled)))
    return columns, notes


def infer_target(
    parts: Sequence[Part], name: str, *, kind: str, drop: bool
) -> tuple[TargetColumn, list[Floats], list[Booleans]]:
    """Infer what the target holds, and return it with its values and a flag for the rows that have one, per table.

    Examples
    --------
    >>> target, values, kept = infer_target(
    ...     [Part("the table", pa.table({"sold": ["yes", "no", None]}))], "sold", kind="auto", drop=True
    ... )
    >>> target, values
    (TargetColumn(name='sold', classes=('no', 'yes')), [array([1., 0.])])
    """
    found = [_read_target(part, name, kind=kind, drop=drop) for part in parts]
    _check_one_kind(name, parts, found, _DROP)
    kept = [~is_missing(cells, part.table.num_rows) for cells, part in zip(found, parts)]
    known = [cells for cells in found if cells is not None]
    if not known:
        raise DataError(f'column "{name}" of {_all_of(parts)} has no values; name the column to predict')
    classes = None if isinstance(known[0], np.ndarray) else _infer_classes(name, known, _all_of(parts))
    target = TargetColumn(name, classes)
    values = [
        np.empty(0) if cells is None else target.encode(cells.drop_null() if classes else cells[rows])
        for cells, rows in zip(found, kept)
    ]
    return target, values, kept


def _read_part(part: Part, inputs: Sequence[str], *, impute: bool, categories: set[str]) -> dict[str, Cells]:
    """Read the columns of one table, and refuse all those that cannot be used at once."""
    fill = phrase("fill them in, or have that done by {fix}", fix=_IMPUTE)
    cells: dict[str, Cells] = {}
    for name in inputs:
        column = part.table.column(name)
        category = name in categories or kinds.is_dictionary(column.type)
        cells[name] = check_column(column, name, markers=impute, category=category, fill=fill)
    if faults := {name: values for name, values in cells.items() if isinstance(values, Fault)}:
        leave = phrase(", or leave out such columns with {fix}", fix=setting("ignore", next(iter(faults))))
        raise unusable_columns(faults, part.where, leave)
    return cells


def _read_target(part: Part, name: str, *, kind: str, drop: bool) -> Cells:
    fill = phrase("fill them in, or drop the rows with {fix}", fix=_DROP)
    column = part.table.column(name)
    truth = kind == "auto" and kinds.is_boolean(column.type)
    category = kind == "classes" or kinds.is_dictionary(column.type) or truth
    cells = check_column(column, name, markers=drop, category=category, fill=fill, noun="missing target")
    if kind == "number" and not isinstance(cells, Fault) and is_texts(cells):
        remedy = phrase("write numbers, or pass {fix}", fix=setting("target_kind", "classes"))
        cells = Fault(f'holds text (such as "{_first(cells)[0]}")', remedy)
    if isinstance(cells, Fault):
        raise unusable_columns({name: cells}, part.where)
    return cells


def _check_one_kind(name: str, parts: Sequence[Part], found: Sequence[Cells], fill: Wording) -> None:
    """Refuse a column that holds numbers in one table and texts in another."""
    numbers = next((index for index, cells in enumerate(found) if isinstance(cells, np.ndarray)), None)
    texts = next((index for index, cells in enumerate(found) if is_texts(cells)), None)
    if numbers is None or texts is None:
        return
    value, row = _first(found[texts])
    told = f'column "{name}" holds numbers in {parts[numbers].where} and text in {parts[texts].where}'
    hint = phrase("if it marks a missing value, pass {fill}; ", fill=fill) if value in MARKERS else ""
    advice = "{hint}write it in one way, or read it as text everywhere with {fix}"
    remedy = phrase(advice, hint=hint, fix=setting("categories", name))
    raise Fault(f'{told} (the first is "{value}" in data row {row})', remedy).error("two-kinds")


def _first(texts: Any) -> tuple[str, int]:
    """The first text that is not a number, or else the first text, and its row."""
    valid = pc.is_valid(texts)
    odd = pc.and_(valid, pc.invert(pc.fill_null(pc.match_substring_regex(texts, r"^[+-]?[\d.]+$"), True)))
    row = pc.index(odd if pc.any(odd).as_py() else valid, True).as_py()
    return texts[row].as_py(), row + 1


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


def _one_level(name: str, level: str) -> Note:
    template = 'column "{column}" is "{level}" in every row and is left out'
    return Note("constant-column", template, column=name, level=level)


def _infer_levels(name: str, known: Sequence[Any], missing: bool, max_levels: int) -> tuple[str, ...] | Fault:
    values = pa.chunked_array(known, pa.large_string())
    found = pc.unique(values).drop_null()
    if len(found) > max_levels:
        rows, shown = len(values) - values.null_count, quoted(sorted(found[:3].to_pylist()))
        told = f"has {len(found):,} different texts in {rows:,} rows (such as {shown}), more than {max_levels} levels"
        advice = "is it an identifier? Leave it out with {ignore}, join rare levels, or raise the limit with {limit}"
        fixes = {"ignore": setting("ignore", name), "limit": setting("max_levels", len(found))}
        return Fault(told, phrase(advice, **fixes))
    levels = sorted(level for level in found.to_pylist() if level != MISSING)
    return (*levels, MISSING) if missing or len(levels) < len(found) else tuple(levels)


def level_notes(name: str, levels: Sequence[str], fill: Wording) -> list[Note]:
    """Say which levels or classes may not be meant as such.

    Examples
    --------
    >>> level_notes("c", ["?", "Red", "red"], setting("missing", "impute"))
    ['column "c" has the level "?"; if that marks missing values, pass missing="impute"', 'column "c" has levels that differ only in capital letters; they count as different']
    """  # noqa: E501
    notes = []
    if marks := [level for level in levels if level in MARKERS]:
        template = 'column "{column}" has the level {levels}; if that marks missing values, pass {fix}'
        notes.append(Note("marker-level", template, column=name, levels=quoted(marks), fix=fill))
    if len({level.casefold() for level in levels}) < len(levels):
        template = 'column "{column}" has levels that differ only in capital letters; they count as different'
        notes.append(Note("similar-levels", template, column=name))
    return notes


def _infer_classes(name: str, known: Sequence[Any], where: str) -> tuple[str, ...]:
    values = pa.chunked_array(known, pa.large_string()).drop_null()
    found = pc.unique(values).to_pylist()
    if len(found) > _MOST_CLASSES or (len(values) > 10 and 2 * len(found) > len(values)):
        raise DataError(
            f'column "{name}" of {where} has {len(found):,} different texts in {len(values):,} rows, too many for '
            "classes; name a column of numbers or of a few classes as the target"
        )
    if len(found) == 1:
        raise DataError(f'every target in column "{name}" of {where} is "{found[0]}"; there must be two classes')
    whole = all(text.removeprefix("-").isdecimal() for text in found)
    return tuple(sorted(found, key=int) if whole else sorted(found))


def _all_of(parts: Sequence[Part]) -> str:
    return parts[0].where if len(parts) == 1 else f"the {len(parts)} tables"
