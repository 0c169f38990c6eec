"""One column of a mixed table, read as numbers or as texts: what the encoder learns from and encodes.

Space around texts does not count and a blank cell is a missing value. Where missing values are to be filled in,
markers such as ? or NA count as missing too, and a column that holds only numbers besides them is numeric.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from mixtune.data._tables import DECIMAL_COMMA, Fault, count_flags, is_text

__all__ = ["MARKERS", "Cells", "Texts", "check_texts", "missing_in", "option", "read_cells", "whole_beyond"]

Texts: TypeAlias = Any
"""A ``pyarrow.LargeStringArray`` of stripped texts, null where a value is missing."""

Cells: TypeAlias = Any
"""A float64 array with NaN for missing values, or :data:`Texts`, or None where every value is missing."""

MARKERS = (
    *("?", "-", "--", ".", "NA", "N/A", "n/a", "na", "#N/A", "#NA", "<NA>"),
    *("NaN", "nan", "NULL", "null", "Null"),
)
"""What stands for a missing value, where the user says that they are to be filled in."""

# Levels of their own among texts, but not numbers: they mark a missing value only in a column of numbers.
_WORDS = ("*", "none", "nil", "missing", "unknown", "not available", "not known")

_LARGEST = 2**53
_CURRENCY = r"(?:[€$£¥]|EUR|USD|GBP|CHF)"
_GROUPED = r"\d{1,3}(?:[.,' \u00a0\u202f]\d{3})+(?:[.,]\d+)?"
_NUMBER = re.compile(
    rf"{_CURRENCY}?\s*[+-]?\s*{_CURRENCY}?\s*(?:{_GROUPED}|\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?\s*(?:%|{_CURRENCY})?"
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATE = re.compile(
    r"(?:\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/.])\d{1,2}\2(?:\d{4}|\d{2})"
    rf"|(?:\d{{1,2}}[-. ]*)?{_MONTH}[-, ]*(?:\d{{1,2}},? +)?\d{{4}})(?:[T ].*)?",
    re.IGNORECASE,
)
_DATES = "turn dates into numbers, such as the year or the days since a fixed day"
_SAMPLE = 1000


def option(name: str, value: str | int | bool) -> str:
    """Write a setting as it is given on the command line and in Python.

    Examples
    --------
    >>> option("ignore", "id")
    '--ignore id (in Python: ignore="id")'
    >>> option("drop_missing_target", True)
    '--drop-missing-target (in Python: drop_missing_target=True)'
    """
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return f"{flag} (in Python: {name}={value})"
    shown = value if isinstance(value, int) else f'"{value}"'
    return f"{flag} {value} (in Python: {name}={shown})"


def read_cells(column: Any, *, markers: bool, category: bool = False) -> Cells | Fault:
    """Read one column as numbers or as texts, or say why it is neither.

    Parameters
    ----------
    column
        A column of a pyarrow table. A dictionary column holds categories, whatever their type.
    markers
        Whether :data:`MARKERS` count as missing values.
    category
        Whether the values are categories, even if they are whole numbers.

    Examples
    --------
    >>> read_cells(pa.chunked_array([[1, None]]), markers=False)
    array([ 1., nan])
    >>> read_cells(pa.chunked_array([["1.5", " ?"]]), markers=True)
    array([1.5, nan])
    >>> read_cells(pa.chunked_array([[" red", ""]]), markers=False).to_pylist()
    ['red', None]
    """
    if kinds.is_dictionary(column.type):
        column, category = column.cast(column.type.value_type), True
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if kinds.is_temporal(kind):
        return Fault(f"holds dates or times ({kind})", _DATES)
    if kinds.is_null(kind):
        return None
    if is_text(kind):
        return _read_text(column, markers=markers, category=category)
    if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)):
        return Fault(f"holds {kind}, neither numbers nor text", "spread such values over columns of their own")
    if pc.all(column.is_null(nan_is_null=True)).as_py():
        return None
    return _category(column) if category else _numbers(column)


def missing_in(cells: Cells, n_rows: int) -> NDArray[np.bool_]:
    """Flag the rows whose value is missing.

    Examples
    --------
    >>> missing_in(np.array([1.0, np.nan]), 2)
    array([False,  True])
    """
    if cells is None:
        return np.ones(n_rows, dtype=bool)
    if isinstance(cells, np.ndarray):
        return np.isnan(cells)
    return np.asarray(cells.is_null().to_numpy(zero_copy_only=False))


def whole_beyond(texts: Texts) -> str | None:
    """Find a whole number that a float cannot hold exactly among texts.

    Examples
    --------
    >>> whole_beyond(pa.array(["1.5", "9007199254740993", None], pa.large_string()))
    '9007199254740993'
    """
    long = texts.filter(pc.match_substring_regex(texts, r"^[+-]?\d{16,}$"))
    return next((text for text in long.to_pylist() if abs(int(text)) > _LARGEST), None)


def check_texts(texts: Texts, name: str, fill: str) -> Fault | None:
    """Refuse texts that are mostly numbers or dates: as levels they would lose their order and their distances.

    Parameters
    ----------
    texts
        The column.
    name
        Its name, for the hint.
    fill
        What to do if some texts mark missing values.

    Examples
    --------
    >>> check_texts(pa.array(["1,5", "2,5"], pa.large_string()), "x", "fill them in").remedy
    'read decimal commas with decimal=","'
    """
    counts = pc.value_counts(texts.drop_null())[:_SAMPLE].to_pylist()
    total = sum(entry["counts"] for entry in counts)
    dates = sum(entry["counts"] for entry in counts if _DATE.fullmatch(entry["values"]))
    if 2 * dates > total:
        return Fault(f'holds dates written as text (such as "{counts[0]["values"]}")', _DATES)
    alike = [entry for entry in counts if _NUMBER.fullmatch(entry["values"])]
    if 2 * sum(entry["counts"] for entry in alike) <= total:
        return None
    odd = [entry["values"] for entry in counts if not _is_plain(entry["values"])]
    if not odd:
        keep = f"or keep it as categories with {option('categories', name)}"
        return Fault("holds numbers written as text", f"convert such text to a number type first, {keep}")
    row = texts.index(odd[0]).as_py() + 1
    finding = f'holds numbers written as text (such as "{odd[0]}" in data row {row})'
    if all(DECIMAL_COMMA.fullmatch(text) for text in odd):
        return Fault(finding, 'read decimal commas with decimal=","')
    if all(text in MARKERS or text.lower() in _WORDS for text in odd):
        return Fault(f'holds numbers and "{odd[0]}" (data row {row}), which may mark missing values', fill)
    if not any(character.isdigit() for text in odd for character in text):
        told = f'holds text among numbers (such as "{odd[0]}" in data row {row})'
        return Fault(told, "write a number there, or leave the cell empty and have it filled in")
    return Fault(finding, "write plain numbers such as 1234.5, without currency, percent or thousands signs")


def _read_text(column: Any, *, markers: bool, category: bool) -> Cells | Fault:
    try:
        texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    except pa.ArrowInvalid:
        return Fault("holds bytes that are not text in UTF-8", "write it as text")
    texts = _without(texts, [""])
    if markers:
        known = _without(texts, MARKERS)
        if not category and (values := _marked_numbers(texts, known)) is not None:
            return values
        texts = known
    return None if texts.null_count == len(texts) else texts


def _marked_numbers(texts: Texts, known: Texts) -> NDArray[np.float64] | Fault | None:
    """Read numbers among which markers stand for missing values, or nothing if they are not that."""
    known = pc.if_else(pc.is_in(pc.utf8_lower(known), value_set=pa.array(_WORDS, pa.large_string())), None, known)
    # Without a marker these are numbers that somebody chose to write as text: a matter for check_texts.
    if known.null_count == len(known) or known.null_count == texts.null_count:
        return None
    for kind in (pa.bool_(), pa.float64()):
        try:
            values = known.cast(kind)
        except pa.ArrowInvalid:
            continue
        if kind == pa.bool_() and not pc.all(pc.match_substring_regex(known, "^[A-Za-z]+$")).as_py():
            continue
        found = whole_beyond(known)
        return _too_long(found) if found else _numbers(values)
    return None


def _without(texts: Texts, gone: Any) -> Texts:
    return pc.if_else(pc.is_in(texts, value_set=pa.array(gone, pa.large_string())), None, texts)


def _category(column: Any) -> Texts | Fault:
    """Write whole numbers and truth values as texts."""
    try:
        if kinds.is_floating(column.type) or kinds.is_decimal(column.type):
            column = pc.if_else(column.is_null(nan_is_null=True), None, column).cast(pa.int64())
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return Fault("holds fractions where categories are expected", "write categories as text or whole numbers")


def _numbers(column: Any) -> NDArray[np.float64] | Fault:
    kind = column.type
    if kinds.is_integer(kind) or (kinds.is_decimal(kind) and kind.scale <= 0):
        ends = [int(value) for value in pc.min_max(column).as_py().values()]
        if max(map(abs, ends)) > _LARGEST:
            return _too_long(str(max(ends, key=abs)))
    values: NDArray[np.float64] = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    if infinite.any():
        return Fault(f"has {count_flags(infinite, 'infinite value')}", "fill or drop the rows with infinite values")
    return values


def _too_long(text: str) -> Fault:
    return Fault(
        f"holds whole numbers beyond 2^53 (such as {text}), which floats cannot tell apart",
        "leave out identifiers, or divide by a power of ten",
    )


def _is_plain(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
