"""What the encoder remembers of one column, and how it turns the column into numbers.

Each of these is pure data: it goes into a model file as JSON and comes back the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mixtune._messages import quoted
from mixtune.data._cells import Cells, check_texts, missing_in, option, read_cells
from mixtune.data._tables import Fault, count_flags

__all__ = ["MISSING", "LevelColumn", "NumberColumn", "TargetColumn"]

MISSING = "(missing)"
"""The level that stands for missing texts."""


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

    name: str
    median: float | None = None
    indicator: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        return (self.name, f"{self.name} {MISSING}") if self.indicator else (self.name,)

    def read(self, column: Any, *, markers: bool) -> Cells | Fault:
        """Read a column of a new table as numbers, or say why it cannot be."""
        cells = read_cells(column, markers=markers)
        if cells is None or isinstance(cells, Fault | np.ndarray):
            return cells
        if fault := check_texts(cells, self.name, _fill(self.name)):
            return fault
        first = pc.index(pc.is_valid(cells), True).as_py()
        return Fault(
            f'holds text (the first is "{cells[first].as_py()}" in data row {first + 1}), and held numbers in training',
            "write it as numbers",
        )

    def encode(self, cells: Cells, block: NDArray[np.float64]) -> list[str]:
        """Fill ``block`` and return what is worth a note."""
        missing = missing_in(cells, len(block))
        block[:, 0] = np.nan if cells is None else cells
        if not missing.any():
            return []
        block[missing, 0] = self.median
        if self.indicator:
            block[:, 1] = missing
            return []
        filled = f"filled with the median of the training rows, {self.median:g}"
        return [f'column "{self.name}" has {count_flags(missing, "missing value")}, none in training; {filled}']


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

    name: str
    levels: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the columns it becomes."""
        shown = self.levels[1:] if len(self.levels) == 2 else self.levels
        return tuple(f"{self.name}={level}" for level in shown)

    def read(self, column: Any, *, markers: bool) -> Cells | Fault:
        """Read a column of a new table as texts, or say why it cannot be."""
        return read_cells(column, markers=markers, category=True)

    def encode(self, cells: Cells, block: NDArray[np.float64]) -> list[str]:
        """Fill ``block``, which holds zeros, and return what is worth a note."""
        texts = pa.nulls(len(block), pa.large_string()) if cells is None else cells
        missing = missing_in(cells, len(block))
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

    def _notes(self, texts: Any, missing: NDArray[np.bool_], unseen: NDArray[np.bool_]) -> list[str]:
        fate = f'count as "{self.levels[0]}"' if len(self.levels) == 2 else "count as none of the known levels"
        notes = []
        if unseen.any():
            names = sorted(pc.unique(texts.filter(pa.array(unseen))).to_pylist())
            values = count_flags(unseen, "value")
            notes.append(f'column "{self.name}" has {values} not seen in training ({quoted(names)}); they {fate}')
        if missing.any():
            notes.append(
                f'column "{self.name}" has {count_flags(missing, "missing value")}, none in training; they {fate}'
            )
        return notes


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

    def encode(self, cells: Cells) -> NDArray[np.float64]:
        """Return the targets as numbers: as they are, or the codes of the classes."""
        if self.classes is None:
            return np.asarray(cells, dtype=np.float64)
        codes = pc.index_in(cells, value_set=pa.array(self.classes, pa.large_string()))
        return codes.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _fill(name: str) -> str:
    return f"fill them in, or train with {option('missing', 'impute')}"
