"""Tables with numbers and texts in, a float matrix out: what was learned of the columns, and its use on new rows.

The encoder is learned from the training tables, travels with the model as JSON, and treats every later table in the
same way. What it remembers of each column is pure data. Levels and medians are taken over the rows of all tables, focal
and sources together, so that every domain is encoded in the same way.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._messages import Note, nearest, quoted, setting
from mixtune.arrays import Booleans, Floats
from mixtune.data import _parse_column as parse
from mixtune.data._csv_files import UTF8, CsvFormat
from mixtune.data._embeddings import EmbeddedColumn
from mixtune.data._labels import column_labels, label_key
from mixtune.data._parse_column import Cells, Fault, Written
from mixtune.data._tables import Table, as_table, object_table, unusable_columns
from mixtune.errors import DataError

#: The level that stands for missing texts, and the one that stands for rare and for new texts.
MISSING, OTHER = "(missing)", "(other)"
#: The time zone in which times that have one are read: the same instants are then the same in every zone.
UTC = "UTC"


#: The most numbers that one cell may become; a forged file could otherwise ask for any amount of memory.
_WIDEST = 100_000
_VERSION = 4
#: What descriptions of older versions do not have.
_LATEST: dict[str, Any] = {"signs": None, "share": 0.5, "zone": None}
_ADDED: dict[int, dict[str, Any]] = {1: {"decimal": None, "unit": None, **_LATEST}, 2: {"unit": None, **_LATEST}}
_ADDED |= {3: _LATEST, 4: {}}
#: The same of the encoder itself.
_ADDED_WHOLE: dict[int, dict[str, Any]] = {version: {"decimal": ".", "optional": []} for version in (1, 2, 3)} | {4: {}}
#: Longest unit of numbers.
_LONGEST_UNIT = 10
#: The unit of durations.
_DURATION = "days"
_FILL = parse.phrase("fill or drop these rows, or train with {fix}", fix=setting("missing", "impute"))


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
    decimal
        The decimal mark, where the numbers were written as text in training; ":" for times such as "1:30".
    unit
        What followed each number there, such as "kg"; "days" for durations.
    signs
        Which signs numbers had there, such as "%"; None for any. Where they were not written as text, they have none:
        "50%" is not 50 then, but missing.

    Examples
    --------
    >>> NumberColumn("age", 40.0, indicator=True).outputs
    ('age', 'age (missing)')
    """

    kind: ClassVar = "numbers"
    name: str
    median: float | None = None
    indicator: bool = False
    decimal: str | None = None
    unit: str | None = None
    signs: tuple[str, ...] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return (self.name, f"{self.name} {MISSING}") if self.indicator else (self.name,)

    def read(self, column: Any, *, markers: bool, decimal: str = ".", training: bool = False) -> Cells | Fault:
        """Read a column of a new table as numbers, or say why it cannot be.

        ``decimal`` is the mark where it was no text in training; of two, the second where it cannot mean thousands.
        """
        if kinds.is_time(column.type) and self.decimal != ":":
            return Fault("holds times of day, and held numbers in training", "write numbers")
        if kinds.is_duration(column.type) and self.unit != _DURATION:
            return Fault("holds durations, and held numbers in training", "write numbers")
        plain = self.decimal is None
        mark, either = self.decimal or decimal[0], plain and len(decimal) > 1
        written = Written(mark, unit=self.unit, signs=() if plain else self.signs, either=either)
        return _read_as("numbers", column, written, markers=markers)

    def reading_notes(self, column: Any) -> list[Note]:
        """What is worth a note about how a column of a new table is written."""
        said = ":" if self.decimal == ":" else self.unit or ("%" if "%" in (self.signs or ()) else None)
        plain = kinds.is_integer(column.type) or kinds.is_floating(column.type) or kinds.is_decimal(column.type)
        if said is None or not plain:
            return []
        template = (
            'column "{column}" holds plain numbers, and had "{said}" in training; they are read as if they had it'
        )
        return [Note("without-unit", template, column=self.name, said=said)]

    def encode(self, cells: Cells, block: Floats) -> list[Note]:
        """Fill ``block`` and return what is worth a note."""
        missing = parse.is_missing(cells, len(block))
        block[:, 0] = np.nan if cells is None else cells
        if not missing.any():
            return []
        block[missing, 0] = self.median
        if self.indicator:
            block[:, 1] = missing
            return []
        return _first_missing(self.name, missing, f"filled with the median of the training rows, {self.median:g}")


@dataclass(frozen=True)
class LevelColumn:
    """A column of categories: one column of zeros and ones for each level, and a single one for two levels.

    Parameters
    ----------
    name
        The column.
    levels
        The levels found in training, sorted; ``"(other)"``, for rare and for new levels, and ``"(missing)"`` come last
        if there were any.
    share
        Of two levels, how often the second occurred in training: where a new level lies between them.

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
    share: float = field(default=0.5, repr=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        shown = self.levels[1:] if len(self.levels) == 2 else self.levels
        return tuple(f"{self.name}={level}" for level in shown)

    def read(self, column: Any, *, markers: bool, decimal: str = ".", training: bool = False) -> Cells | Fault:
        """Read a column of a new table as texts, or say why it cannot be."""
        return parse.check_column(column, markers=markers, category=True, fill=_FILL)

    def encode(self, cells: Cells, block: Floats) -> list[Note]:
        """Fill ``block``, which holds zeros, and return what is worth a note."""
        texts = pa.nulls(len(block), pa.large_string()) if cells is None else cells
        missing = parse.is_missing(cells, len(block))
        if MISSING in self.levels:
            texts, missing = pc.fill_null(texts, MISSING), np.zeros(len(block), dtype=bool)
        found = pc.index_in(texts, value_set=pa.array(self.levels, pa.large_string()))
        codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
        if OTHER in self.levels:
            codes = np.where((codes < 0) & ~missing, self.levels.index(OTHER), codes)
        if len(self.levels) == 2:
            # What is neither of them is nearer to none of them than the levels themselves were in training.
            block[:, 0] = np.where(codes < 0, self.share, codes)
        else:
            rows = np.flatnonzero(codes >= 0)
            block[rows, codes[rows]] = 1.0
        return self._notes(texts, missing, (codes < 0) & ~missing)

    def _notes(self, texts: Any, missing: Booleans, unseen: Booleans) -> list[Note]:
        # Of two levels, others lie between them.
        between = f"another category, between {quoted(self.levels)}"
        fate = f"counted as {between if len(self.levels) == 2 else 'none of the known categories'}"
        notes = []
        if unseen.any():
            levels = sorted(pc.unique(texts.filter(pa.array(unseen))).to_pylist())
            values = f"{parse.count_flags(unseen, 'value')} not seen in training ({quoted(levels)})"
            notes.append(_column_note("unseen-levels", self.name, values, fate))
        return notes + _first_missing(self.name, missing, fate)


@dataclass(frozen=True)
class DateColumn:
    """A column of dates: the year, the month, the weekday (Monday is 0), the hour, and the days since a fixed day.

    Parameters
    ----------
    name
        The column.
    parts
        Which of these it becomes; those that never changed in training are left out.
    origin
        The day from which days are counted.
    median
        The day that stands in for missing dates, as days since the origin, or None where they are refused.
    indicator
        Whether one more column says which dates were missing.
    dates
        How dates are written, as for ``strptime``, where they were text in training. Otherwise text is read only where
        the year comes first or the month has its name.
    zone
        In which times that have a time zone are read: UTC, or in files of earlier versions that of training. None
        where times had none.

    Examples
    --------
    >>> column = DateColumn("sold", ("year", "weekday", "days"), "2021-01-01")
    >>> column.outputs
    ('sold (year)', 'sold (weekday)', 'sold (days since 2021-01-01)')
    >>> block = np.zeros((1, 3))
    >>> _ = column.encode(np.array(["2021-03-01"], dtype="datetime64[s]"), block)
    >>> block
    array([[2021.,    0.,   59.]])
    """

    kind: ClassVar = "dates"
    name: str
    parts: tuple[str, ...]
    origin: str
    median: float | None = None
    indicator: bool = False
    dates: str | None = None
    zone: str | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        words = (f"days since {self.origin}" if part == "days" else part for part in self.parts)
        names = tuple(f"{self.name} ({word})" for word in words)
        return (*names, f"{self.name} {MISSING}") if self.indicator else names

    def read(self, column: Any, *, markers: bool, decimal: str = ".", training: bool = False) -> Cells | Fault:
        """Read a column of a new table as dates, or say why it cannot be."""
        written = replace(parse.PLAIN_DATES, dates=self.dates or parse.PLAIN_DATES.dates, zone=self.zone or UTC)
        return _read_as("dates", column, written, markers=markers, refuse_dates=not training)

    def reading_notes(self, column: Any) -> list[Note]:
        """What is worth a note about how a column of a new table is written."""
        if kinds.is_timestamp(column.type):
            zones, without = ({column.type.tz}, 0) if column.type.tz else (set(), len(column) - column.null_count)
        elif (texts := parse.written_texts(column)) is not None:
            zones, without = parse.text_zones(texts)
        else:
            return []
        if self.zone is None and zones:
            template = (
                'times in column "{column}" have a time zone ({zone}), and had none in training; they are read in UTC'
            )
            return [Note("other-zone", template, column=self.name, zone=", ".join(sorted(zones)[:3]))]
        if self.zone is None or not without:
            return []
        template = 'times in column "{column}" have no time zone, and had one in training; they are read as of {zone}'
        return [Note("other-zone", template, column=self.name, zone=self.zone)]

    def encode(self, cells: Cells, block: Floats) -> list[Note]:
        """Fill ``block`` and return what is worth a note."""
        missing = parse.is_missing(cells, len(block))
        days = np.full(len(block), np.datetime64("NaT", "s")) if cells is None else cells
        if missing.any():
            seconds = round(86400 * (self.median or 0.0))
            days = np.where(missing, np.datetime64(self.origin, "s") + np.timedelta64(seconds, "s"), days)
        values = parse.date_parts(days, self.origin)
        for place, part in enumerate(self.parts):
            block[:, place] = values[part]
        if self.indicator:
            block[:, -1] = missing
            return []
        return _first_missing(self.name, missing, "filled with the median date")


def _read_as(wanted: str, column: Any, written: Written, *, markers: bool, refuse_dates: bool = False) -> Cells | Fault:
    """Read a column that held numbers or dates in training; text is read cell by cell, whatever the others are."""
    if fault := _odd_fault(wanted, column, written, markers=markers, refuse_dates=refuse_dates):
        return fault
    reading: dict[str, Any] = {"markers": markers, "category": False, "fill": _FILL}
    cells = parse.check_column(column, **reading, written=written, zone=written.zone)
    if cells is None or isinstance(cells, Fault) or (kind := parse.kind_of(cells)) == wanted:
        return cells
    return Fault(f"holds {kind}, and held {wanted} in training", f"write {wanted}")


def _odd_fault(wanted: str, column: Any, written: Written, *, markers: bool, refuse_dates: bool) -> Fault | None:
    """What is wrong with texts that are none of the ``wanted``, unless they may count as missing.

    With ``markers`` they may, except for words or dates in all rows and, to ``refuse_dates``, dates of another format.
    """
    if (texts := parse.written_texts(column)) is None:
        return None
    values = written.read(texts)
    odd = parse.is_missing(values, len(texts)) & np.asarray(texts.is_valid())
    held = {row: texts[row].as_py() for row in np.flatnonzero(odd).tolist()}
    held = {row: text for row, text in held.items() if not parse.is_marker_word(text)}
    dated = next((row for row, text in held.items() if refuse_dates and parse.looks_dated(text)), None)
    if dated is not None:
        shown = f'"{held[dated]}" in data row {dated + 1}'
        finding = f"holds dates that are not written as in training, {written.words} (the first is {shown})"
        return Fault(finding, "write them as there or, wherever they come from, as year-month-day")
    dates = wanted == "numbers" and bool(held) and not np.isnat(parse.PLAIN_DATES.read(pa.array(held.values()))).any()
    foreign = dates or not any(map(str.isdigit, "".join(held.values())))
    if not held or (markers and not (foreign and len(held) == len(texts) - texts.null_count)):
        return None
    row, text = next(iter(held.items()))
    shown, held_then = f'(the first is "{text}" in data row {row + 1})', f"and held {wanted} in training"
    finding = f"holds dates, {held_then} {shown}" if dates else f"holds text {shown}, {held_then}"
    return Fault(finding, f"write it as {wanted}")


def _first_missing(column: str, missing: Booleans, fate: str) -> list[Note]:
    """Say how missing values are treated in a column that had none in training."""
    if not missing.any():
        return []
    values = f"{parse.count_flags(missing, 'missing value')}, none in training"
    return [_column_note("first-missing-values", column, values, fate)]


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


InputColumn: TypeAlias = NumberColumn | LevelColumn | DateColumn | EmbeddedColumn


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
    form
        How the CSV file is written that they came from.
    """

    X: Floats
    names: tuple[str, ...]
    notes: tuple[Note, ...]
    table: Table
    form: CsvFormat | None = None


def _as_written(column: InputColumn, table: Table, decimal: str) -> InputColumn:
    """A column of plain numbers with the decimal mark that a training table of another place has."""
    if not isinstance(column, NumberColumn) or column.decimal or column.name not in table.column_names:
        return column
    written = parse.find_written(parse.written_texts(table.column(column.name)), decimal=decimal)
    return column if written is None or written.decimal in (None, ":") else replace(column, decimal=written.decimal)


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
        The column of domain labels, if there was one, and the focal label: the model predicts for that domain. Without
        a focal label it predicts for every domain.
    unused
        Columns of the training tables that are not used.
    decimal
        The decimal mark of the training files, which new files have where they do not show another.
    optional
        Input columns without any value in the focal domain: tables need not have them.

    Examples
    --------
    >>> encoder = TableEncoder((NumberColumn("age"), LevelColumn("sex", ("f", "m"))), TargetColumn("wage"))
    >>> encoder.names
    ('age', 'sex=m')
    >>> encoder.encode({"sex": ["m", "f", "x"], "age": [30, 40, 50]}, "the table").X
    array([[30. ,  1. ],
           [40. ,  0. ],
           [50. ,  0.5]])
    >>> TableEncoder.from_dict(encoder.to_dict()) == encoder
    True
    """

    columns: tuple[InputColumn, ...]
    target: TargetColumn
    impute: bool = False
    domain: str | None = None
    focal: str | None = None
    unused: tuple[str, ...] = ()
    decimal: str = "."
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.columns:
            raise DataError("there are no input columns that can be used; add at least one")
        filled = (column for column in self.columns if isinstance(column, NumberColumn | DateColumn))
        if self.impute and any(column.median is None for column in filled):
            raise DataError("missing values are to be imputed, but a column of numbers has no median; set one")
        if repeated := sorted(name for name, count in Counter(self.names).items() if count > 1):
            raise DataError(f"two columns would both be encoded as {quoted(repeated)}; rename one of them")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the matrix."""
        return tuple(name for column in self.columns for name in column.outputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns that a table has; those of :attr:`optional` may be absent."""
        return tuple(column.name for column in self.columns)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Columns to read as they are written: those with levels, texts or paths, and the domain labels."""
        written = LevelColumn | EmbeddedColumn
        levels = tuple(column.name for column in self.columns if isinstance(column, written))
        return levels if self.domain is None else (*levels, self.domain)

    def encode(
        self,
        table: Any,
        where: str = "the table",
        *,
        fill: str = "",
        decimal: str = ".",
        training: bool = False,
    ) -> Encoded:
        """Turn a table into numbers.

        Parameters
        ----------
        table
            A pandas or polars frame, a pyarrow table or a dict of columns, with at least the input columns.
        where
            How errors and notes name the table.
        fill
            What to do about missing values, where training cannot be changed; by default, to train otherwise.
        decimal
            The decimal mark of numbers that are text, where training had none; of two marks, the second is read where
            it cannot stand between thousands.
        training
            Whether these are the rows that the encoder was learned from: dates in other formats are missing there, and
            refused elsewhere, since the dates around them may have been misread.

        Raises
        ------
        DataError
            If a column is missing, or values are missing and not to be filled in, or of another kind than in training.
        """
        table = object_table(table, where)
        self._check_columns(table, where)
        names = self.names
        X = np.zeros((table.num_rows, len(names)))
        faults: dict[str, Fault] = {}
        notes = self._notes(table, where)
        ends = np.cumsum([len(column.outputs) for column in self.columns])
        absent = pa.chunked_array([pa.nulls(table.num_rows)])
        for column, block in zip(self.columns, np.split(X, ends[:-1], axis=1)):
            raw = table.column(column.name) if column.name in table.column_names else absent
            cells = column.read(raw, markers=self.impute, decimal=decimal, training=training)
            if isinstance(cells, Fault):
                faults[column.name] = cells._replace(remedy=fill) if fill and cells.fillable else cells
                continue
            notes += parse.odd_notes(column.name, parse.odd_texts(raw, cells))
            notes += parse.infinite_notes(column.name, raw)
            if not isinstance(column, LevelColumn | EmbeddedColumn):
                notes += column.reading_notes(raw)
            notes += column.encode(cells, block)
        if faults:
            raise unusable_columns(faults, where)
        return Encoded(X, names, tuple(notes), table)

    def table(self, source: Any, *, csv: CsvFormat | None = None) -> Table:
        """All columns of a path or of what :meth:`encode` takes; those with levels and labels as they are written.

        Examples
        --------
        >>> encoder = TableEncoder((NumberColumn("age"),), TargetColumn("wage"))
        >>> encoder.table({"age": [30, 40], "name": ["a", "b"]}).column_names
        ['age', 'name']
        """
        from mixtune.data._readers import read_file, read_table

        if not isinstance(source, str | Path):
            return as_table(source, "the table")
        text = self.text_columns
        return as_table(read_table(source, csv or read_file(source, text=text).form or UTF8, text=text), str(source))

    def read(
        self, table: Any, *, csv: CsvFormat | None = None, what: str = "the model", fill: str = ""
    ) -> tuple[Floats, Floats, tuple[Note, ...]]:
        """Inputs and the target of a table or file, both as numbers, and notes.

        Parameters
        ----------
        table
            A path, or what :meth:`encode` takes; with the target.
        csv
            How a CSV file is written; detected by default.
        what
            What needs the columns, as errors call it.
        fill
            What to do about missing values.
        """
        from mixtune.data._readers import read_file, read_table

        where = str(table) if isinstance(table, str | Path) else "the table"
        decimal = "."
        if isinstance(table, str | Path):
            text = self.text_columns
            form = csv or read_file(table, text=text).form or UTF8
            table, decimal = read_table(table, form, text=text), form.decimal
        table = as_table(table, where)
        names = (*self.inputs, self.target.name)
        if lost := [name for name in names if name not in table.column_names and name not in self.optional]:
            problem = f"{where} has no column {quoted(lost, 20)}, which {what} has"
            raise DataError(f"{problem}; add it, or rename one", code="no-column")
        # Numbers that are text are read as in training tables, decimal commas and all.
        columns = (*self.columns, NumberColumn(self.target.name))
        both = replace(self, columns=tuple(_as_written(column, table, decimal) for column in columns))
        encoded = both.encode(table, where, fill=fill, decimal=decimal)
        return encoded.X[:, :-1], encoded.X[:, -1], encoded.notes

    def _check_columns(self, table: Table, where: str) -> None:
        if table.num_rows == 0:
            raise DataError(f"{where} has no rows; pass at least one")
        inputs, found = set(self.inputs), set(table.column_names)
        if lost := [name for name in self.inputs if name not in found and name not in self.optional]:
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
            template = "{where} has columns that the model does not use, which are left out: {columns}"
            notes.append(Note("unknown-columns", template, where=where, columns=quoted(extra)))
        if self.domain not in table.column_names or self.focal is None:
            return notes
        codes, labels = column_labels(table.column(self.domain))
        other = np.array([label is not None and label_key(label) != label_key(self.focal) for label in labels])[codes]
        template = '{labels} other than "{focal}"; these rows are predicted as if they were "{focal}"'
        found = f'column "{self.domain}" of {where} has {parse.count_flags(other, "label")}' if other.any() else ""
        return notes + [Note("other-domains", template, labels=found, focal=self.focal)] * bool(found)

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
            if type(spec["version"]) is not int or spec["version"] not in _ADDED:
                wanted = f"this mixtune reads versions 1 to {_VERSION}; use the mixtune that wrote it"
                raise DataError(f"the table encoder is of version {spec['version']!r}, {wanted}")
            if not isinstance(spec["columns"], list):
                raise _damaged("'columns' is not a list")
            added = _ADDED[spec["version"]]
            columns = tuple(_rebuild(_COLUMNS[column["kind"]], {**added, **column}) for column in spec["columns"])
            spec = {**_ADDED_WHOLE[spec["version"]], **spec}
            return _rebuild(cls, spec, columns=columns, target=_rebuild(TargetColumn, spec["target"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(f"{type(error).__name__} {error}") from error


_COLUMNS: dict[str, Any] = {column.kind: column for column in (NumberColumn, LevelColumn, DateColumn, EmbeddedColumn)}
#: The types that the values of a description may have, by the annotations of the fields.
_TYPES: dict[str, set[type]] = {"str": {str}, "str | None": {str, NoneType}, "bool": {bool}, "int": {int}}
_TYPES |= {"float | None": {int, float, NoneType}, "float": {int, float}}
_TYPES |= {"tuple[str, ...]": {list}, "tuple[str, ...] | None": {list, NoneType}}
#: What else must hold of some of them.
_RANGES: dict[str, Any] = {
    "levels": lambda levels: len(levels) > 1,
    "content": lambda content: content in ("text", "images"),
    "width": lambda width: 0 < width <= _WIDEST,
    "parts": lambda parts: set(parts) <= set(parse.DATE_PARTS),
    "unit": lambda unit: unit is None or 0 < len(unit) <= _LONGEST_UNIT,
    "decimal": lambda mark: mark in (None, ".", ",", ":"),
    "share": lambda share: 0 <= share <= 1,
    "zone": lambda zone: zone is None or parse.is_zone(zone),
    "dates": lambda written: written is None or written in parse.DATE_FORMATS,
    "origin": lambda day: re.fullmatch(r"\d{4}-\d{2}-\d{2}", day),
}


def _with_lists(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in pairs}


def _rebuild(cls: Any, spec: Mapping[str, Any], **known: Any) -> Any:
    """Build a dataclass from its description; a list must hold distinct texts and becomes a tuple."""
    for name, kind in ((each.name, str(each.type)) for each in fields(cls) if each.name not in known):
        value = spec[name]
        # Not isinstance: a truth value is an int as well.
        fits = type(value) in _TYPES[kind] and (not isinstance(value, float) or math.isfinite(value))
        if fits and isinstance(value, list):
            fits = all(isinstance(text, str) for text in value) and len(set(value)) == len(value)
        if not fits or not _RANGES.get(name, lambda _: True)(value):
            raise _damaged(f"{name!r} is {value!r}")
        known[name] = tuple(value) if isinstance(value, list) else value
    return cls(**known)


def _damaged(what: str) -> DataError:
    return DataError(f"the description of the table encoder is damaged: {what}; save the model again")
