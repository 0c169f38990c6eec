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
from numpy.typing import NDArray

from mixtune._messages import quoted
from mixtune.data._cells import MARKERS, Cells, check_texts, missing_in, option, read_cells
from mixtune.data._encoded_columns import MISSING, LevelColumn, NumberColumn, TargetColumn
from mixtune.data._encoding import InputColumn
from mixtune.data._tables import Fault, Table, count_flags, describe_faults
from mixtune.errors import DataError

__all__ = ["Part", "constant_notes", "learn_columns", "learn_target", "level_notes"]

_MOST_CLASSES = 1000


@dataclass(frozen=True, eq=False)
class Part:
    """One training table and how messages name it."""

    where: str
    table: Table

    def keep(self, rows: NDArray[np.bool_]) -> Part:
        """Keep the flagged rows; the name says so, since rows are counted anew."""
        gone = int((~rows).sum())
        if not gone:
            return self
        return Part(f"{self.where} (without {gone} rows that lack a target)", self.table.filter(pa.array(rows)))


def learn_columns(
    parts: Sequence[Part], inputs: Sequence[str], *, impute: bool, max_levels: int, categories: Sequence[str]
) -> tuple[list[InputColumn], list[str]]:
    """Learn the input columns, and return them with notes.

    Examples
    --------
    >>> table = pa.table({"age": [30, 40], "sex": ["f", "m"], "unit": ["cm", "cm"]})
    >>> columns, notes = learn_columns(
    ...     [Part("the table", table)], table.column_names, impute=False, max_levels=30, categories=()
    ... )
    >>> columns
    [NumberColumn(name='age', median=None, indicator=False), LevelColumn(name='sex', levels=('f', 'm'))]
    >>> notes
    ['column "unit" is "cm" in every row and is left out']
    """
    cells = [_read_part(part, inputs, impute=impute, categories=categories) for part in parts]
    columns: list[InputColumn] = []
    notes: list[str] = []
    faults: dict[str, Fault] = {}
    filled: list[str] = []
    for name in inputs:
        found = [part[name] for part in cells]
        _check_one_kind(name, parts, found, option("missing", "impute"))
        lost = sum(int(missing_in(values, part.table.num_rows).sum()) for values, part in zip(found, parts))
        known = [values for values in found if values is not None]
        if not known:
            notes.append(f'column "{name}" has no values and is left out')
        elif isinstance(known[0], np.ndarray):
            columns.append(_learn_numbers(name, known, impute=impute, indicator=lost > 0))
            notes += [] if lost else constant_notes(name, known)
        else:
            column = _learn_levels(name, known, lost > 0, max_levels, notes)
            if isinstance(column, Fault):
                faults[name] = column
            elif column is not None:
                columns.append(column)
        if lost and columns and columns[-1].name == name:
            filled.append(f'"{name}" ({lost})')
    if faults:
        raise DataError(describe_faults(faults, _all_of(parts)))
    if filled:
        notes.append(f"missing values were filled in: {', '.join(filled)}")
    return columns, notes


def learn_target(
    parts: Sequence[Part], name: str, *, kind: str, drop: bool
) -> tuple[TargetColumn, list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
    """Learn the target, and return it with its values and a flag for the rows that have one, for each table.

    Examples
    --------
    >>> target, values, kept = learn_target(
    ...     [Part("the table", pa.table({"sold": ["yes", "no", None]}))], "sold", kind="auto", drop=True
    ... )
    >>> target, values
    (TargetColumn(name='sold', classes=('no', 'yes')), [array([1., 0.])])
    """
    remedy = f"fill them in, or drop the rows with {option('drop_missing_target', True)}"
    found = [_read_target(part, name, kind=kind, drop=drop, remedy=remedy) for part in parts]
    _check_one_kind(name, parts, found, option("drop_missing_target", True))
    kept = [~missing_in(cells, part.table.num_rows) for cells, part in zip(found, parts)]
    known = [cells for cells in found if cells is not None]
    if not known:
        raise DataError(f'column "{name}" of {_all_of(parts)} has no values; name the column to predict')
    classes = None if isinstance(known[0], np.ndarray) else _learn_classes(name, known, _all_of(parts))
    target = TargetColumn(name, classes)
    values = [
        np.empty(0) if cells is None else target.encode(cells.drop_null() if classes else cells[rows])
        for cells, rows in zip(found, kept)
    ]
    return target, values, kept


def _read_part(part: Part, inputs: Sequence[str], *, impute: bool, categories: Sequence[str]) -> dict[str, Cells]:
    """Read the columns of one table, and refuse all those that cannot be used at once."""
    cells: dict[str, Cells] = {}
    faults: dict[str, Fault] = {}
    fill = f"fill them in, or have that done by {option('missing', 'impute')}"
    for name in inputs:
        column = part.table.column(name)
        category = name in categories or kinds.is_dictionary(column.type)
        values = read_cells(column, markers=impute, category=category)
        fault = values if isinstance(values, Fault) else None
        if fault is None and not impute and (missing := missing_in(values, part.table.num_rows)).any():
            fault = Fault(f"has {count_flags(missing, 'missing value')}", fill)
        if fault is None and not category and _is_texts(values):
            fault = check_texts(values, name, fill)
        if fault is not None:
            faults[name] = fault
        cells[name] = values
    if faults:
        leave = f", or leave out such columns with {option('ignore', next(iter(faults)))}"
        raise DataError(describe_faults(faults, part.where) + leave)
    return cells


def _read_target(part: Part, name: str, *, kind: str, drop: bool, remedy: str) -> Cells:
    column = part.table.column(name)
    category = (
        kind == "classes" or kinds.is_dictionary(column.type) or (kind == "auto" and kinds.is_boolean(column.type))
    )
    cells = read_cells(column, markers=drop, category=category)
    fault = cells if isinstance(cells, Fault) else None
    if fault is None and not drop and (missing := missing_in(cells, part.table.num_rows)).any():
        fault = Fault(f"has {count_flags(missing, 'missing target')}", remedy)
    if fault is None and not category and _is_texts(cells):
        fault = check_texts(cells, name, remedy)
    if fault is None and kind == "number" and _is_texts(cells):
        fault = Fault(f'holds text (such as "{_first(cells)[0]}")', f"write numbers, or pass {_CLASSES}")
    if fault is not None:
        raise DataError(describe_faults({name: fault}, part.where))
    return cells


_CLASSES = option("target_kind", "classes")


def _is_texts(cells: Cells) -> bool:
    return cells is not None and not isinstance(cells, np.ndarray)


def _check_one_kind(name: str, parts: Sequence[Part], found: Sequence[Cells], fill: str) -> None:
    """Refuse a column that holds numbers in one table and texts in another."""
    numbers = next((index for index, cells in enumerate(found) if isinstance(cells, np.ndarray)), None)
    texts = next((index for index, cells in enumerate(found) if _is_texts(cells)), None)
    if numbers is None or texts is None:
        return
    value, row = _first(found[texts])
    advice = f"; if it marks a missing value, pass {fill}" if value in MARKERS else ""
    raise DataError(
        f'column "{name}" holds numbers in {parts[numbers].where} and text in {parts[texts].where} '
        f'(the first is "{value}" in data row {row}){advice}; write it in one way, '
        f"or read it as text everywhere with {option('categories', name)}"
    )


def _first(texts: Any) -> tuple[str, int]:
    """The first text that is not a number, or else the first text, and its row."""
    valid = pc.is_valid(texts)
    odd = pc.and_(valid, pc.invert(pc.fill_null(pc.match_substring_regex(texts, r"^[+-]?[\d.]+$"), True)))
    row = pc.index(odd if pc.any(odd).as_py() else valid, True).as_py()
    return texts[row].as_py(), row + 1


def _learn_numbers(name: str, known: Sequence[NDArray[np.float64]], *, impute: bool, indicator: bool) -> NumberColumn:
    # The median of very many rows takes time, and is of use only where missing values are filled in.
    median = float(np.nanmedian(np.concatenate(known))) if impute else None
    return NumberColumn(name, median, indicator)


def constant_notes(name: str, values: Sequence[NDArray[np.float64]]) -> list[str]:
    """Say that a column of numbers, table by table, is the same in every row.

    Examples
    --------
    >>> constant_notes("year", [np.array([2020.0, 2020.0]), np.array([2020.0])])
    ['column "year" is 2020 in every row; nothing can be learnt from it']
    >>> constant_notes("age", [np.array([30.0, 40.0])])
    []
    """
    held = [part for part in values if part.size]
    low, high = min(part.min() for part in held), max(part.max() for part in held)
    return [f'column "{name}" is {low:.6g} in every row; nothing can be learnt from it'] if low == high else []


def _learn_levels(
    name: str, known: Sequence[Any], missing: bool, max_levels: int, notes: list[str]
) -> LevelColumn | Fault | None:
    values = pa.chunked_array(known, pa.large_string())
    found = pc.unique(values).drop_null()
    if len(found) > max_levels:
        rows = len(values) - values.null_count
        shown = quoted(sorted(found[:3].to_pylist()))
        return Fault(
            f"has {len(found):,} different texts in {rows:,} rows (such as {shown}), more than {max_levels} levels",
            f"is it an identifier? Leave it out with {option('ignore', name)}, join rare levels, "
            f"or raise the limit with {option('max_levels', len(found))}",
        )
    levels = sorted(level for level in found.to_pylist() if level != MISSING)
    if missing or len(levels) < len(found):
        levels.append(MISSING)
    if len(levels) == 1:
        notes.append(f'column "{name}" is "{levels[0]}" in every row and is left out')
        return None
    notes += level_notes(name, levels, option("missing", "impute"))
    return LevelColumn(name, tuple(levels))


def level_notes(name: str, levels: Sequence[str], fill: str) -> list[str]:
    """Say which levels or classes may not be meant as such.

    Examples
    --------
    >>> level_notes("c", ["?", "Red", "red"], "the option")
    ['column "c" has the level "?"; if that marks missing values, pass the option', 'column "c" has levels that differ only in capital letters; they count as different']
    """  # noqa: E501
    notes = []
    if marks := [level for level in levels if level in MARKERS]:
        notes.append(f'column "{name}" has the level {quoted(marks)}; if that marks missing values, pass {fill}')
    if len({level.casefold() for level in levels}) < len(levels):
        notes.append(f'column "{name}" has levels that differ only in capital letters; they count as different')
    return notes


def _learn_classes(name: str, known: Sequence[Any], where: str) -> tuple[str, ...]:
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
