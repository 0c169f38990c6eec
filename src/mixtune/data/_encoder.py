"""Tables with numbers and texts in, a float matrix out: what was learned of the columns, and its use on new rows.

The encoder is learned from the training tables, travels with the model as JSON, and treats every later table in the
same way. What it remembers of each column is pure data. Levels and medians are taken over the rows of all tables, focal
and sources together, so that every domain is encoded in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from types import NoneType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._array import Booleans, Floats
from mixtune._messages import Note, Wording, nearest, quoted, setting
from mixtune.data._parse_column import (
    MARKERS,
    Cells,
    Fault,
    check_column,
    count_flags,
    is_missing,
    is_texts,
    parse_column,
    phrase,
)
from mixtune.data._tables import Table, as_table, unusable_columns
from mixtune.errors import DataError

#: The level that stands for missing texts.
MISSING = "(missing)"

_VERSION = 1
_FILL = phrase("fill or drop these rows, or train with {fix}", fix=setting("missing", "impute"))


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, used as they are.

    Parameters
    ----------
    name
        The column.
    median
        What stands in for missing values, or None where they are refused.
    indicator
        Whether a second column says which values were missing.

    Examples
    --------
    >>> NumberColumn("age", 40.0, indicator=True).outputs
    ('age', 'age (missing)')
    """

    kind: ClassVar = "numbers"
    name: str
    median: float | None = None
    indicator: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return (self.name, f"{self.name} {MISSING}") if self.indicator else (self.name,)

    def read(self, column: Any, *, markers: bool) -> Cells | Fault:
        """Read a column of a new table as numbers, or say why it cannot be."""
        cells = check_column(column, self.name, markers=markers, category=False, fill=_FILL)
        if not is_texts(cells):
            return cells
        text, row = first_text(cells)
        finding = f'holds text (the first is "{text}" in data row {row}), and held numbers in training'
        return Fault(finding, "write it as numbers")

    def encode(self, cells: Cells, block: Floats) -> list[Note]:
        """Fill ``block`` and return what is worth a note."""
        missing = is_missing(cells, len(block))
        block[:, 0] = np.nan if cells is None else cells
        if not missing.any():
            return []
        block[missing, 0] = self.median
        if self.indicator:
            block[:, 1] = missing
            return []
        values = f"{count_flags(missing, 'missing value')}, none in training"
        fate = f"filled with the median of the training rows, {self.median:g}"
        return [_column_note("first-missing-values", self.name, values, fate)]


@dataclass(frozen=True)
class LevelColumn:
    """A column of categories: one column of zeros and ones for each level, and a single one for two levels.

    Parameters
    ----------
    name
        The column.
    levels
        The levels found in training, sorted; ``"(missing)"`` comes last if values were missing.

    Examples
    --------
    >>> LevelColumn("colour", ("blue", "green", "red")).outputs
    ('colour=blue', 'colour=green', 'colour=red')
    >>> LevelColumn("open", ("no", "yes")).outputs
    ('open=yes',)
    """

    kind: ClassVar = "levels"
    name: str
    levels: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        shown = self.levels[1:] if len(self.levels) == 2 else self.levels
        return tuple(f"{self.name}={level}" for level in shown)

    def read(self, column: Any, *, markers: bool) -> Cells | Fault:
        """Read a column of a new table as texts, or say why it cannot be."""
        return check_column(column, self.name, markers=markers, category=True, fill=_FILL)

    def encode(self, cells: Cells, block: Floats) -> list[Note]:
        """Fill ``block``, which holds zeros, and return what is worth a note."""
        texts = pa.nulls(len(block), pa.large_string()) if cells is None else cells
        missing = is_missing(cells, len(block))
        if MISSING in self.levels:
            texts, missing = pc.fill_null(texts, MISSING), np.zeros(len(block), dtype=bool)
        found = pc.index_in(texts, value_set=pa.array(self.levels, pa.large_string()))
        codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
        if len(self.levels) == 2:
            block[:, 0] = codes == 1
        else:
            rows = np.flatnonzero(codes >= 0)
            block[rows, codes[rows]] = 1.0
        return self._notes(texts, missing, (codes < 0) & ~missing)

    def _notes(self, texts: Any, missing: Booleans, unseen: Booleans) -> list[Note]:
        level = f'"{self.levels[0]}"' if len(self.levels) == 2 else "none of the known levels"
        fate = f"they count as {level}"
        notes = []
        if unseen.any():
            levels = sorted(pc.unique(texts.filter(pa.array(unseen))).to_pylist())
            values = f"{count_flags(unseen, 'value')} not seen in training ({quoted(levels)})"
            notes.append(_column_note("unseen-levels", self.name, values, fate))
        if missing.any():
            values = f"{count_flags(missing, 'missing value')}, none in training"
            notes.append(_column_note("first-missing-values", self.name, values, fate))
        return notes


def _column_note(code: str, column: str, values: str, fate: str) -> Note:
    return Note(code, 'column "{column}" has {values}; {fate}', column=column, values=values, fate=fate)


@dataclass(frozen=True)
class TargetColumn:
    """The column to predict.

    Parameters
    ----------
    name
        The column.
    classes
        The classes in the order of their codes 0, 1, ...; None for a target of numbers.

    Examples
    --------
    >>> TargetColumn("sold", ("no", "yes")).kind, TargetColumn("price").kind
    ('classes', 'number')
    """

    name: str
    classes: tuple[str, ...] | None = None

    @property
    def kind(self) -> str:
        """``"number"`` (regression) or ``"classes"`` (classification)."""
        return "number" if self.classes is None else "classes"

    def encode(self, cells: Cells) -> Floats:
        """Return the targets as numbers: as they are, or the codes of the classes."""
        if self.classes is None:
            return np.asarray(cells, dtype=np.float64)
        codes = pc.index_in(cells, value_set=pa.array(self.classes, pa.large_string()))
        return codes.cast(pa.float64()).to_numpy(zero_copy_only=False)


InputColumn: TypeAlias = NumberColumn | LevelColumn


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows as numbers.

    Attributes
    ----------
    X
        Rows by columns, float64, without missing values.
    names
        Names of the columns of ``X``.
    notes
        What was done that the user should know.
    table
        The rows as they came, to write predictions beside them. From a CSV file, every cell is the text in the file.
    """

    X: Floats
    names: tuple[str, ...]
    notes: tuple[Note, ...]
    table: Table


@dataclass(frozen=True)
class TableEncoder:
    """Turns tables with numbers and texts into float matrices, always with the same columns.

    Parameters
    ----------
    columns
        What is known of each input column, in order.
    target
        The column to predict; it may be absent from new tables and is not read there.
    impute
        Whether missing values are filled in; otherwise they are refused.
    domain, focal
        The column of domain labels, if there was one, and the focal label: the model predicts for that domain.
    unused
        Columns of the training tables that are not used.

    Examples
    --------
    >>> encoder = TableEncoder((NumberColumn("age"), LevelColumn("sex", ("f", "m"))), TargetColumn("wage"))
    >>> encoder.names
    ('age', 'sex=m')
    >>> encoder.encode({"sex": ["m", "f", "x"], "age": [30, 40, 50]}, "the table").X
    array([[30.,  1.],
           [40.,  0.],
           [50.,  0.]])
    >>> TableEncoder.from_dict(encoder.to_dict()) == encoder
    True
    """

    columns: tuple[InputColumn, ...]
    target: TargetColumn
    impute: bool = False
    domain: str | None = None
    focal: str | None = None
    unused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.columns:
            raise DataError("there are no input columns that can be used; add at least one")
        if self.impute and any(isinstance(column, NumberColumn) and column.median is None for column in self.columns):
            raise DataError("missing values are to be filled in, but a column of numbers has no median; give it one")
        if repeated := sorted(name for name, count in Counter(self.names).items() if count > 1):
            raise DataError(f"two columns would both be encoded as {quoted(repeated)}; rename one of them")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        return tuple(name for column in self.columns for name in column.outputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns that a table must have."""
        return tuple(column.name for column in self.columns)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns to read as they are written: those with levels, and the domain labels."""
        levels = tuple(column.name for column in self.columns if isinstance(column, LevelColumn))
        return levels if self.domain is None else (*levels, self.domain)

    def encode(self, table: Any, where: str = "the table") -> Encoded:
        """Turn a table into numbers.

        Parameters
        ----------
        table
            A pandas or polars frame, a pyarrow table or a dict of columns, with at least the input columns.
        where
            How errors and notes name the table.

        Raises
        ------
        DataError
            If a column is missing, or values are missing and not to be filled in, or of another kind than in training.
        """
        table = as_table(table, where)
        self._check_columns(table, where)
        names = self.names
        X = np.zeros((table.num_rows, len(names)))
        faults: dict[str, Fault] = {}
        notes = self._notes(table, where)
        start = 0
        for column in self.columns:
            cells = column.read(table.column(column.name), markers=self.impute)
            stop = start + len(column.outputs)
            if isinstance(cells, Fault):
                faults[column.name] = cells
            else:
                notes += column.encode(cells, X[:, start:stop])
            start = stop
        if faults:
            raise unusable_columns(faults, where)
        return Encoded(X, names, tuple(notes), table)

    def _check_columns(self, table: Table, where: str) -> None:
        if table.num_rows == 0:
            raise DataError(f"{where} has no rows; pass at least one")
        inputs, found = set(self.inputs), set(table.column_names)
        if lost := [name for name in self.inputs if name not in found]:
            free = [name for name in table.column_names if name not in inputs]
            hint = nearest(lost[0], free) if len(lost) == 1 and free else ""
            # Columns that are left over say little, unless one of them is nearly the one.
            hint = hint if hint.startswith("did you mean") else f"add {'it' if len(lost) == 1 else 'these columns'}"
            raise DataError(f"{where} has no column {quoted(lost, 20)}, which the model was trained on; {hint}")

    def _notes(self, table: Table, where: str) -> list[Note]:
        """Say which columns are not known, and which rows come from another domain than the model predicts for."""
        notes = []
        known = {*self.inputs, *self.unused, self.target.name, self.domain}
        if extra := [name for name in table.column_names if name not in known]:
            template = "{where} has columns that the model does not know, left out: {columns}"
            notes.append(Note("unknown-columns", template, where=where, columns=quoted(extra)))
        if self.domain not in table.column_names:
            return notes
        column = table.column(self.domain)
        kind = column.type
        # Fractions and truth values have more than one spelling; better no note than a wrong one.
        spellings = kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)
        labels = None if spellings else parse_column(column, markers=False, category=True)
        if is_texts(labels):
            other = pc.fill_null(pc.not_equal(labels, self.focal), False).to_numpy(zero_copy_only=False)
            template = '{labels} other than "{focal}"; these rows are predicted as if they were "{focal}"'
            found = f'column "{self.domain}" of {where} has {count_flags(other, "label")}'
            notes += [Note("other-domains", template, labels=found, focal=self.focal)] if other.any() else []
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as a dict of plain values that JSON can hold."""
        plain = asdict(self, dict_factory=_with_lists)
        columns = [{"kind": column.kind, **fields} for column, fields in zip(self.columns, plain["columns"])]
        return {"version": _VERSION, **plain, "columns": columns}

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> TableEncoder:
        """Build the encoder again, refusing a description that :meth:`to_dict` cannot have written.

        Examples
        --------
        >>> TableEncoder.from_dict({"version": 1, "columns": "all"})
        Traceback (most recent call last):
            ...
        mixtune.errors.DataError: the description of the table encoder is damaged: 'columns' is not a list; save the model again
        """  # noqa: E501
        try:
            if spec["version"] != _VERSION:
                wanted = f"this mixtune reads version {_VERSION}; use the mixtune that wrote it"
                raise DataError(f"the table encoder is of version {spec['version']!r}, {wanted}")
            if not isinstance(spec["columns"], list):
                raise _damaged("'columns' is not a list")
            columns = tuple(_rebuild(_COLUMNS[column["kind"]], column) for column in spec["columns"])
            return _rebuild(cls, spec, columns=columns, target=_rebuild(TargetColumn, spec["target"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(f"{type(error).__name__} {error}") from error


_COLUMNS: dict[str, Any] = {column.kind: column for column in (NumberColumn, LevelColumn)}
#: The types that the values of a description may have, by their names.
_TYPES: dict[str, set[type]] = {"name": {str}, "domain": {str, NoneType}, "focal": {str, NoneType}}
_TYPES |= {"impute": {bool}, "indicator": {bool}, "median": {int, float, NoneType}}
_TYPES |= {"levels": {list}, "unused": {list}, "classes": {list, NoneType}}


def _with_lists(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in pairs}


def _rebuild(cls: Any, spec: Mapping[str, Any], **known: Any) -> Any:
    """Build a dataclass from its description; a list must hold distinct texts and becomes a tuple."""
    for name in (field.name for field in fields(cls) if field.name not in known):
        value = spec[name]
        # Not isinstance: a truth value is an int as well.
        fits = type(value) in _TYPES[name] and (not isinstance(value, float) or math.isfinite(value))
        if fits and isinstance(value, list):
            fits = all(isinstance(text, str) for text in value) and len(set(value)) == len(value)
        if not fits or (name == "levels" and len(value) < 2):
            raise _damaged(f"{name!r} is {value!r}")
        known[name] = tuple(value) if isinstance(value, list) else value
    return cls(**known)


def _damaged(what: str) -> DataError:
    return DataError(f"the description of the table encoder is damaged: {what}; save the model again")


_MOST_CLASSES = 1000
_IMPUTE = setting("missing", "impute")
_DROP = setting("drop_missing_target")


@dataclass(frozen=True, eq=False)
class Part:
    """One training table, how messages name it, and its targets once they are known."""

    where: str
    table: Table
    y: Any = ()

    def keep(self, rows: Booleans, y: Floats) -> Part:
        """Keep the flagged rows and their targets; the name says so, since rows are counted anew."""
        gone = int((~rows).sum())
        where = f"{self.where} (without {gone} rows that lack a target)" if gone else self.where
        return Part(where, self.table.filter(pa.array(rows)) if gone else self.table, y)


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
        column: InputColumn
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
            if len(levels) == 1:
                template = 'column "{column}" is "{level}" in every row and is left out'
                notes.append(Note("constant-column", template, column=name, level=levels[0]))
                continue
            notes += level_notes(name, levels, _IMPUTE)
            column = LevelColumn(name, levels)
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
    if kind == "number" and is_texts(cells):
        remedy = phrase("write numbers, or pass {fix}", fix=setting("target_kind", "classes"))
        cells = Fault(f'holds text (such as "{first_text(cells)[0]}")', remedy)
    if isinstance(cells, Fault):
        raise unusable_columns({name: cells}, part.where)
    return cells


def _check_one_kind(name: str, parts: Sequence[Part], found: Sequence[Cells], fill: Wording) -> None:
    """Refuse a column that holds numbers in one table and texts in another."""
    numbers = next((index for index, cells in enumerate(found) if isinstance(cells, np.ndarray)), None)
    texts = next((index for index, cells in enumerate(found) if is_texts(cells)), None)
    if numbers is None or texts is None:
        return
    value, row = first_text(found[texts])
    finding = f'column "{name}" holds numbers in {parts[numbers].where} and text in {parts[texts].where}'
    hint = phrase("if it marks a missing value, pass {fill}; ", fill=fill) if value in MARKERS else ""
    advice = "{hint}write it in one way, or read it as text everywhere with {fix}"
    remedy = phrase(advice, hint=hint, fix=setting("categories", name))
    raise Fault(f'{finding} (the first is "{value}" in data row {row})', remedy).error("two-kinds")


def first_text(texts: Any) -> tuple[str, int]:
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


def _infer_levels(name: str, known: Sequence[Any], missing: bool, max_levels: int) -> tuple[str, ...] | Fault:
    values = pa.chunked_array(known, pa.large_string())
    found = pc.unique(values).drop_null()
    if len(found) > max_levels:
        rows, shown = len(values) - values.null_count, quoted(sorted(found[:3].to_pylist()))
        what = f"has {len(found):,} different texts in {rows:,} rows (such as {shown}), more than {max_levels} levels"
        advice = "is it an identifier? Leave it out with {ignore}, join rare levels, or raise the limit with {limit}"
        fixes = {"ignore": setting("ignore", name), "limit": setting("max_levels", len(found))}
        return Fault(what, phrase(advice, **fixes))
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
        finding = f'column "{name}" of {where} has {len(found):,} different texts in {len(values):,} rows'
        raise DataError(f"{finding}, too many for classes; name a target of numbers or of a few classes")
    if len(found) == 1:
        raise DataError(f'every target in column "{name}" of {where} is "{found[0]}"; there must be two classes')
    whole = all(text.removeprefix("-").isdecimal() for text in found)
    # Not int, which refuses more than 4,300 digits.
    return tuple(sorted(found, key=Decimal) if whole else sorted(found))


def _all_of(parts: Sequence[Part]) -> str:
    return parts[0].where if len(parts) == 1 else f"the {len(parts)} tables"
