"""Tables with numbers and texts in, a float matrix out: what was learned of the columns, and its use on new rows.

The encoder is learned from the training tables (:mod:`mixtune.data._training`), travels with the model as JSON,
and treats every later table in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from mixtune._messages import nearest, quoted
from mixtune.data._cells import missing_in, option, read_cells
from mixtune.data._encoded_columns import LevelColumn, NumberColumn, TargetColumn
from mixtune.data._tables import Fault, Table, as_table, count_flags, describe_faults
from mixtune.errors import DataError

__all__ = ["Encoded", "InputColumn", "TableEncoder"]

InputColumn: TypeAlias = NumberColumn | LevelColumn

_VERSION = 1


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

    X: NDArray[np.float64]
    names: tuple[str, ...]
    notes: tuple[str, ...]
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
        names = self.names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
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
        X = np.zeros((table.num_rows, len(self.names)))
        faults: dict[str, Fault] = {}
        notes = self._notes(table, where)
        start = 0
        for column in self.columns:
            cells = column.read(table.column(column.name), markers=self.impute)
            fault = cells if isinstance(cells, Fault) else self._refused(cells, table.num_rows)
            stop = start + len(column.outputs)
            if fault:
                faults[column.name] = fault
            else:
                notes += column.encode(cells, X[:, start:stop])
            start = stop
        if faults:
            raise DataError(describe_faults(faults, where))
        return Encoded(X, self.names, tuple(notes), table)

    def _refused(self, cells: Any, n_rows: int) -> Fault | None:
        if self.impute:
            return None
        missing = missing_in(cells, n_rows)
        remedy = f"fill or drop these rows, or train with {option('missing', 'impute')}"
        return Fault(f"has {count_flags(missing, 'missing value')}", remedy) if missing.any() else None

    def _check_columns(self, table: Table, where: str) -> None:
        if table.num_rows == 0:
            raise DataError(f"{where} has no rows; pass at least one")
        lost = [name for name in self.inputs if name not in table.column_names]
        if lost:
            free = [name for name in table.column_names if name not in self.inputs]
            hint = nearest(lost[0], free) if len(lost) == 1 and free else ""
            # Columns that are left over say little, unless one of them is nearly the one.
            hint = hint if hint.startswith("did you mean") else f"add {'it' if len(lost) == 1 else 'these columns'}"
            raise DataError(f"{where} has no column {quoted(lost, 20)}, which the model was trained on; {hint}")

    def _notes(self, table: Table, where: str) -> list[str]:
        known = {*self.inputs, *self.unused, self.target.name, self.domain}
        extra = [name for name in table.column_names if name not in known]
        notes = [f"{where} has columns that the model does not know, left out: {quoted(extra)}"] if extra else []
        return notes + self._notes_on_labels(table, where)

    def _notes_on_labels(self, table: Table, where: str) -> list[str]:
        """Say which rows come from another domain than the one that the model predicts for."""
        if self.domain is None or self.domain not in table.column_names:
            return []
        column = table.column(self.domain)
        # Fractions and truth values have more than one spelling; better no note than a wrong one.
        labels = None if _has_spellings(column.type) else read_cells(column, markers=False, category=True)
        if labels is None or isinstance(labels, Fault):
            return []
        other = pc.fill_null(pc.not_equal(labels, self.focal), False).to_numpy(zero_copy_only=False)
        if not other.any():
            return []
        return [
            f'column "{self.domain}" of {where} has {count_flags(other, "label")} other than '
            f'"{self.focal}"; these rows are predicted as if they were "{self.focal}"'
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as a dict of plain values that JSON can hold."""
        return {
            "version": _VERSION,
            "columns": [_describe(column) for column in self.columns],
            "target": {"name": self.target.name, "classes": _listed(self.target.classes)},
            "impute": self.impute,
            "domain": self.domain,
            "focal": self.focal,
            "unused": list(self.unused),
        }

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
            target = spec["target"] if isinstance(spec["columns"], list) else _damaged("'columns' is not a list")
            classes = target["classes"]
            return cls(
                columns=tuple(_rebuild(column) for column in spec["columns"]),
                target=TargetColumn(_text(target["name"]), None if classes is None else _texts(classes)),
                impute=_flag(spec["impute"]),
                domain=None if spec["domain"] is None else _text(spec["domain"]),
                focal=None if spec["focal"] is None else _text(spec["focal"]),
                unused=_texts(spec["unused"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            return _damaged(f"{type(error).__name__} {error}")


def _has_spellings(kind: Any) -> bool:
    return kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)


def _describe(column: InputColumn) -> dict[str, Any]:
    if isinstance(column, LevelColumn):
        return {"kind": "levels", "name": column.name, "levels": list(column.levels)}
    return {"kind": "numbers", "name": column.name, "median": column.median, "indicator": column.indicator}


def _rebuild(spec: Mapping[str, Any]) -> InputColumn:
    if spec["kind"] == "levels":
        levels = _texts(spec["levels"])
        return LevelColumn(_text(spec["name"]), levels) if len(levels) > 1 else _damaged("a column has one level")
    if spec["kind"] != "numbers":
        _damaged(f"a column is of kind {spec['kind']!r}")
    median = spec["median"]
    if median is not None and not (isinstance(median, int | float) and math.isfinite(median)):
        _damaged(f"a median is {median!r}")
    return NumberColumn(_text(spec["name"]), None if median is None else float(median), _flag(spec["indicator"]))


def _listed(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _damaged(f"{value!r} is not a text")


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        _damaged(f"{values!r} is not a list of texts")
    if len(set(values)) < len(values):
        _damaged(f"{values!r} holds a text twice")
    return tuple(values)


def _flag(value: Any) -> bool:
    return value if isinstance(value, bool) else _damaged(f"{value!r} is neither true nor false")


def _damaged(what: str) -> Any:
    raise DataError(f"the description of the table encoder is damaged: {what}; save the model again")
