"""One column of a table, parsed as numbers or as texts, or the reason why it is neither.

There are two ways to parse. :func:`parse_numbers` takes numbers only; arrays and tables of numbers go this way.
:func:`parse_column` also takes texts; what the encoder learns from and encodes goes this way. In both, a
:class:`Fault` says what is wrong with a column and what to do about it, so that one error can name all such columns.
"""

import re
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._array import Booleans, Floats
from mixtune._messages import Message, Wording, setting
from mixtune.errors import DataError

#: A ``pyarrow.LargeStringArray`` of stripped texts, null where a value is missing.
Texts: TypeAlias = Any
#: A float64 array with NaN for missing values, or :data:`Texts`, or None where every value is missing.
Cells: TypeAlias = Any

#: What stands for a missing value, where the user says that they are to be filled in.
MARKERS = (
    *("?", "-", "--", ".", "NA", "N/A", "n/a", "na", "#N/A", "#NA", "<NA>"),
    *("NaN", "nan", "NULL", "null", "Null"),
)
#: These are levels among other texts, and mark a missing value only in a column of numbers.
_MARKER_WORDS = ("*", "none", "nil", "missing", "unknown", "not available", "not known")

#: A number such as 1,5.
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")
_LARGEST_EXACT = 2**53
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
#: The number of distinct texts that are read to decide whether a column holds numbers or dates.
_SAMPLE = 1000

_USE_DAYS = "turn dates into numbers, such as the year or the days since a fixed day"
_FILL_ROWS = "fill or drop the rows with missing or infinite values"
_ENCODE_TEXT = "encode text as numbers"


class Fault(NamedTuple):
    """What is wrong with a column or a file, and what to do about it."""

    finding: str
    remedy: str | Wording
    alternative: str = ""

    def error(self, code: str) -> DataError:
        """The error that says so."""
        return DataError("{finding}; {remedy}", code=code, finding=self.finding, remedy=self.remedy)


def phrase(template: str, **fields: Any) -> Wording:
    """A part of a sentence that names settings, as each place types them.

    Examples
    --------
    >>> phrase("leave it out with {fix}", fix=setting("ignore", "id")).terminal
    'leave it out with --ignore id'
    """
    message = Message("phrase", template, fields)
    return Wording(message.render("python"), message.render("terminal"))


_READ_COMMAS = phrase("read decimal commas with {fix}", fix=setting("decimal", ","))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type holds text, or bytes that may be text."""
    return str(kind).removeprefix("large_").removesuffix("_view") in ("string", "binary")


def is_texts(cells: Cells) -> bool:
    """Whether a column was parsed as texts."""
    return isinstance(cells, pa.Array | pa.ChunkedArray)


def is_missing(cells: Cells, n_rows: int) -> Booleans:
    """Flag the rows whose value is missing.

    Examples
    --------
    >>> is_missing(np.array([1.0, np.nan]), 2)
    array([False,  True])
    """
    if cells is None:
        return np.ones(n_rows, dtype=bool)
    return np.isnan(cells) if isinstance(cells, np.ndarray) else np.asarray(cells.is_null())


def count_flags(flags: Booleans, noun: str) -> str:
    """Say how many rows are flagged, out of how many, and which is the first."""
    count = int(flags.sum())
    first = int(flags.argmax()) + 1
    return f"{count:,} {noun}{'s' if count > 1 else ''} in {len(flags):,} rows (the first in data row {first})"


def parse_numbers(column: Any) -> np.ndarray[Any, Any] | Fault:
    """Parse one column of a pyarrow table as finite numbers.

    Examples
    --------
    >>> parse_numbers(pa.chunked_array([[1, 2]]))
    array([1, 2])
    >>> parse_numbers(pa.chunked_array([["a", "2"]])).finding
    'holds text: 1 of 2 rows is not a number (the first is "a" in data row 1), which may mark missing values'
    """
    column = _decoded(column) if kinds.is_dictionary(column.type) else column
    kind = column.type
    if is_text(kind):
        return _describe_text(column)
    if kinds.is_temporal(kind):
        return Fault(f"holds dates or times ({kind})", _USE_DAYS)
    if not (_is_numeric(kind) or kinds.is_null(kind)):
        return Fault(f"holds {kind}, not numbers", "spread such values over columns of numbers")
    missing = column.is_null(nan_is_null=True).to_numpy()
    if missing.any():
        return Fault(f"has {count_flags(missing, 'missing value')}", _FILL_ROWS)
    values: np.ndarray[Any, Any] = (column.cast(pa.float64()) if kinds.is_decimal(kind) else column).to_numpy()
    infinite = ~np.isfinite(values)
    return Fault(f"has {count_flags(infinite, 'infinite value')}", _FILL_ROWS) if infinite.any() else values


def parse_column(column: Any, *, markers: bool, category: bool = False) -> Cells | Fault:
    """Parse one column as numbers or as texts, or say why it is neither.

    Space around texts does not count and a blank cell is a missing value.

    Parameters
    ----------
    column
        A column of a pyarrow table. A dictionary column holds categories, whatever their type.
    markers
        Whether :data:`MARKERS` count as missing values; a column with only numbers besides them is then numeric.
    category
        Whether the values are categories, even if they are whole numbers.

    Examples
    --------
    >>> parse_column(pa.chunked_array([[1, None]]), markers=False)
    array([ 1., nan])
    >>> parse_column(pa.chunked_array([["1.5", " ?"]]), markers=True)
    array([1.5, nan])
    >>> parse_column(pa.chunked_array([[" red", ""]]), markers=False).to_pylist()
    ['red', None]
    """
    if kinds.is_dictionary(column.type):
        column, category = _decoded(column), True
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if kinds.is_temporal(kind):
        return Fault(f"holds dates or times ({kind})", _USE_DAYS)
    if is_text(kind):
        return _parse_text(column, markers=markers, category=category)
    if not (_is_numeric(kind) or kinds.is_null(kind)):
        return Fault(f"holds {kind}, neither numbers nor text", "spread such values over columns of their own")
    if pc.all(column.is_null(nan_is_null=True)).as_py():
        return None
    if not category:
        return _as_floats(column)
    try:
        # Whole numbers and truth values as texts.
        if kinds.is_floating(kind) or kinds.is_decimal(kind):
            column = pc.if_else(column.is_null(nan_is_null=True), None, column).cast(pa.int64())
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return Fault("holds fractions where categories are expected", "write categories as text or whole numbers")


def check_column(
    column: Any, name: str, *, markers: bool, category: bool, fill: str | Wording, noun: str = "missing value"
) -> Cells | Fault:
    """Parse one column, and refuse missing values and texts that should be numbers.

    Parameters
    ----------
    column, markers, category
        As for :func:`parse_column`; with ``markers``, missing values are allowed.
    name
        The column, for advice.
    fill, noun
        What to do about missing values, and what the error calls them.
    """
    cells = parse_column(column, markers=markers, category=category)
    if isinstance(cells, Fault):
        return cells
    if not markers and (missing := is_missing(cells, len(column))).any():
        return Fault(f"has {count_flags(missing, noun)}", fill)
    if is_texts(cells) and not category:
        return check_texts(cells, name, fill) or cells
    return cells


def inexact_integer(texts: Texts) -> str | None:
    """Find a whole number that a float cannot hold exactly among texts.

    Examples
    --------
    >>> inexact_integer(pa.array(["1.5", "9007199254740993", None], pa.large_string()))
    '9007199254740993'
    """
    long = texts.filter(pc.match_substring_regex(texts, r"^[+-]?\d{16,}$"))
    # As texts: Python refuses to read a whole number of more than 4,300 digits.
    digits = {text: text.lstrip("+-").lstrip("0") for text in long.to_pylist()}
    largest = str(_LARGEST_EXACT)
    return next((text for text, its in digits.items() if (len(its), its) > (len(largest), largest)), None)


def check_texts(texts: Texts, name: str, fill: str | Wording) -> Fault | None:
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
    >>> print(check_texts(pa.array(["1,5", "2,5"], pa.large_string()), "x", "fill them in").remedy)
    read decimal commas with decimal=","
    """
    counts = {each["values"]: each["counts"] for each in pc.value_counts(texts.drop_null())[:_SAMPLE].to_pylist()}
    total = sum(counts.values())
    if 2 * sum(count for text, count in counts.items() if _DATE.fullmatch(text)) > total:
        return Fault(f'holds dates written as text (such as "{next(iter(counts))}")', _USE_DAYS)
    if 2 * sum(count for text, count in counts.items() if _NUMBER.fullmatch(text)) <= total:
        return None
    odd = [text for text in counts if not _is_number(text)]
    if not odd:
        keep = "convert such text to a number type first, or keep it as categories with {fix}"
        return Fault("holds numbers written as text", phrase(keep, fix=setting("categories", name)))
    row = texts.index(odd[0]).as_py() + 1
    finding = f'holds numbers written as text (such as "{odd[0]}" in data row {row})'
    if all(DECIMAL_COMMA.fullmatch(text) for text in odd):
        return Fault(finding, _READ_COMMAS)
    if all(text in MARKERS or text.lower() in _MARKER_WORDS for text in odd):
        return Fault(f'holds numbers and "{odd[0]}" (data row {row}), which may mark missing values', fill)
    if not any(character.isdigit() for text in odd for character in text):
        finding = f'holds text among numbers (such as "{odd[0]}" in data row {row})'
        return Fault(finding, "write a number there, or leave the cell empty and have it filled in")
    return Fault(finding, "write plain numbers such as 1234.5, without currency, percent or thousands signs")


def _decoded(column: Any) -> Any:
    """The values of a dictionary column."""
    # Arrow cannot decode a dictionary of text views, which is what polars has for categories.
    view = str(column.type.value_type) == "string_view"
    return pa.chunked_array([column.to_pylist()]) if view else column.cast(column.type.value_type)


def _is_numeric(kind: Any) -> bool:
    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _describe_text(column: Any) -> Fault:
    """Say how many entries of a text column are not numbers, and which comes first."""
    bad = [(row, text) for row, text in enumerate(column.to_pylist(), start=1) if not _is_number(text)]
    if not bad:
        return Fault("holds numbers written as text", "convert such text to a number type first")
    row, text = bad[0]
    shown = "missing" if text is None else f'"{text}"'
    verdict = "is not a number" if len(bad) == 1 else "are not numbers"
    finding = f"holds text: {len(bad):,} of {len(column):,} rows {verdict} (the first is {shown} in data row {row})"
    words = {str(text).strip().lower() for _, text in bad if text is not None}
    if words and all(DECIMAL_COMMA.fullmatch(word) for word in words):
        return Fault(finding, _READ_COMMAS)
    if words <= {"", *map(str.lower, MARKERS), *_MARKER_WORDS} or 2 * len(bad) <= len(column):
        return Fault(f"{finding}, which may mark missing values", _FILL_ROWS, _ENCODE_TEXT)
    return Fault(finding, _ENCODE_TEXT)


def _parse_text(column: Any, *, markers: bool, category: bool) -> Cells | Fault:
    try:
        texts = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    except pa.ArrowInvalid:
        return Fault("holds bytes that are not text in UTF-8", "write it as text")
    texts = _blank_out(texts, texts, [""])
    if markers:
        unmarked = _blank_out(texts, texts, MARKERS)
        if not category and (values := _numbers_with_markers(texts, unmarked)) is not None:
            return values
        texts = unmarked
    return None if texts.null_count == len(texts) else texts


def _numbers_with_markers(texts: Texts, unmarked: Texts) -> Floats | Fault | None:
    """Parse numbers among which markers stand for missing values; None if the texts are not that."""
    known = _blank_out(unmarked, pc.utf8_lower(unmarked), _MARKER_WORDS)
    # Without a marker these are numbers written as text, which check_texts reports.
    if known.null_count in (len(known), texts.null_count):
        return None
    for kind in (pa.bool_(), pa.float64()):
        try:
            values = known.cast(kind)
        except pa.ArrowInvalid:
            continue
        # Arrow also takes "0" and "1" for truth values; here they are numbers.
        if kind == pa.bool_() and not pc.all(pc.match_substring_regex(known, "^[A-Za-z]+$")).as_py():
            continue
        found = inexact_integer(known)
        return inexact(found) if found else _as_floats(values)
    return None


def _blank_out(texts: Texts, compared: Texts, words: Any) -> Texts:
    """Put null where ``compared`` is one of the words."""
    return pc.if_else(pc.is_in(compared, value_set=pa.array(words, pa.large_string())), None, texts)


def _as_floats(column: Any) -> Floats | Fault:
    kind = column.type
    if kinds.is_integer(kind) or (kinds.is_decimal(kind) and kind.scale <= 0):
        largest = max((int(value) for value in pc.min_max(column).as_py().values()), key=abs)
        if abs(largest) > _LARGEST_EXACT:
            return inexact(str(largest))
    values: Floats = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    if infinite.any():
        return Fault(f"has {count_flags(infinite, 'infinite value')}", "fill or drop the rows with infinite values")
    return values


def inexact(text: str) -> Fault:
    shown = text if len(text) <= 40 else f"{text[:20]}... of {len(text):,} digits"
    finding = f"holds whole numbers beyond 2^53 (such as {shown}), which floats cannot tell apart"
    return Fault(finding, "leave out identifiers, or divide by a power of ten")
