"""Tables with numbers and texts in, a float matrix out: what was learned of the columns, and its use on new rows.

The encoder is learned from the training tables (:mod:`mixtune.data._training`), travels with the model as JSON,
and treats every later table in the same way. What it remembers of each column is pure data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import NoneType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._array import Booleans, Floats
from mixtune._messages import Note, nearest, quoted, setting
from mixtune.data._parse_column import (
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
        if isinstance(cells, Fault) or not is_texts(cells):
            return cells
        first = pc.index(pc.is_valid(cells), True).as_py()
        return Fault(
            f'holds text (the first is "{cells[first].as_py()}" in data row {first + 1}), and held numbers in training',
            "write it as numbers",
        )

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
        The column to predict; it may be absent from new tables and is not looked at there.
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
        notes = [*self._notes_on_columns(table, where), *self._notes_on_labels(table, where)]
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

    def _notes_on_columns(self, table: Table, where: str) -> list[Note]:
        known = {*self.inputs, *self.unused, self.target.name, self.domain}
        extra = [name for name in table.column_names if name not in known]
        template = "{where} has columns that the model does not know, left out: {columns}"
        return [Note("unknown-columns", template, where=where, columns=quoted(extra))] if extra else []

    def _notes_on_labels(self, table: Table, where: str) -> list[Note]:
        """Say which rows come from another domain than the one that the model predicts for."""
        if self.domain is None or self.domain not in table.column_names:
            return []
        column = table.column(self.domain)
        kind = column.type
        # Fractions and truth values have more than one spelling; better no note than a wrong one.
        spellings = kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)
        labels = None if spellings else parse_column(column, markers=False, category=True)
        if labels is None or isinstance(labels, Fault):
            return []
        other = pc.fill_null(pc.not_equal(labels, self.focal), False).to_numpy(zero_copy_only=False)
        template = '{labels} other than "{focal}"; these rows are predicted as if they were "{focal}"'
        found = f'column "{self.domain}" of {where} has {count_flags(other, "label")}'
        return [Note("other-domains", template, labels=found, focal=self.focal)] if other.any() else []

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
                raise DataError(
                    f"the table encoder is of version {spec['version']!r}, this is made for {_VERSION}; "
                    "use the version of mixtune that wrote it"
                )
            if not isinstance(spec["columns"], list):
                raise _damaged("'columns' is not a list")
            target = spec["target"]
            return cls(
                columns=tuple(map(_rebuild, spec["columns"])),
                target=TargetColumn(_value(target, "name", str), _value(target, "classes", list, NoneType)),
                impute=_value(spec, "impute", bool),
                domain=_value(spec, "domain", str, NoneType),
                focal=_value(spec, "focal", str, NoneType),
                unused=_value(spec, "unused", list),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(f"{type(error).__name__} {error}") from error


def _with_lists(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields}


def _rebuild(spec: Mapping[str, Any]) -> InputColumn:
    name = _value(spec, "name", str)
    if spec["kind"] == "levels":
        levels = _value(spec, "levels", list)
        if len(levels) < 2:
            raise _damaged(f"column {name!r} has fewer than two levels")
        return LevelColumn(name, levels)
    if spec["kind"] != "numbers":
        raise _damaged(f"column {name!r} is of kind {spec['kind']!r}")
    median = _value(spec, "median", int, float, NoneType)
    if median is not None and not math.isfinite(median):
        raise _damaged(f"the median of column {name!r} is {median!r}")
    return NumberColumn(name, None if median is None else float(median), _value(spec, "indicator", bool))


def _value(spec: Mapping[str, Any], name: str, *allowed: type) -> Any:
    """One value of a description, of an allowed type; a list must hold distinct texts and becomes a tuple."""
    value = spec[name]
    # Not isinstance: a truth value is an int as well.
    if type(value) not in allowed:
        raise _damaged(f"{name!r} is {value!r}")
    if not isinstance(value, list):
        return value
    if not all(isinstance(text, str) for text in value) or len(set(value)) < len(value):
        raise _damaged(f"{name!r} must hold distinct texts, not {value!r}")
    return tuple(value)


def _damaged(what: str) -> DataError:
    return DataError(f"the description of the table encoder is damaged: {what}; save the model again")
