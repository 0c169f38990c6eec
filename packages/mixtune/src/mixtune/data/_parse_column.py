"""One column of a table, parsed as numbers, dates or texts, or the reason why it is none of them.

There are two ways to parse. :func:`parse_numbers` takes numbers only; arrays and tables of numbers go this way.
:func:`parse_column` also takes texts and dates; what the encoder learns from and encodes goes this way. In both, a
:class:`Fault` says what is wrong with a column and what to do about it, so that one error can name all such columns.

"1.234,50 €", "12%" and "3/14/2021" are numbers and dates to people, and text to a file reader. How a column is written
is found from all of its texts at once: one rule reads the whole column, travels with the model as data, and reads new
rows in the same way. What does not fit the rule counts as missing, and is reported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from mixtune._messages import Message, Note, Wording, counted, quoted, setting
from mixtune.arrays import Booleans, Floats
from mixtune.errors import DataError

#: A ``pyarrow.LargeStringArray`` of stripped texts, null where a value is missing.
Texts: TypeAlias = Any
#: A float64 array with NaN for missing values, an array of dates with NaT, :data:`Texts`, or None where every value is
#: missing.
Cells: TypeAlias = Any

#: What stands for a missing value, where the user says that they are to be filled in.
MARKERS = ("?", "-", "--", ".", "NA", "N/A", "n/a", "na", "#N/A", "#NA", "<NA>", "NaN", "nan", "NULL", "null", "Null")
#: These are levels among other texts, and mark a missing value only in a column of numbers or dates.
_MARKER_WORDS = ("*", "none", "nil", "missing", "unknown", "not available", "not known")

#: A number such as 1,5.
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+\s*")
_LARGEST_EXACT = 2**53
#: Characters without width, which editors and other programs leave at the ends of texts; and what counts as space.
_INVISIBLE = "\ufeff\u200b\u2060"
_AROUND = (
    "".join(map(chr, (*range(9, 14), *range(28, 33), 133, 160, 8239, 8287, 12288, *range(8192, 8203)))) + _INVISIBLE
)

_USE_DAYS = "turn dates into numbers, such as the year or the days since a fixed day"
_FILL_ROWS = "fill or drop the rows with missing or infinite values"
_ENCODE_TEXT = "encode text as numbers"


class Fault(NamedTuple):
    """What is wrong with a column or a file, and what to do about it."""

    finding: str
    remedy: str | Wording
    alternative: str = ""
    #: Whether an input column with it may be left out with a note: nothing in it was meant as a number or a level.
    skip: bool = False
    #: Whether values are missing, which can be filled in.
    fillable: bool = False

    def error(self, code: str, **fields: Any) -> DataError:
        """The error that says so, with further fields."""
        return DataError("{finding}; {remedy}", code=code, finding=self.finding, remedy=self.remedy, **fields)


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


def is_dates(cells: Cells) -> bool:
    """Whether a column was parsed as dates."""
    return isinstance(cells, np.ndarray) and cells.dtype.kind == "M"


def kind_of(cells: Cells) -> str:
    """What a column was parsed as: "numbers", "dates" or "text"."""
    return "text" if is_texts(cells) else "dates" if is_dates(cells) else "numbers"


def is_missing(cells: Cells, n_rows: int) -> Booleans:
    """Flag the rows whose value is missing.

    Examples
    --------
    >>> is_missing(np.array([1.0, np.nan]), 2)
    array([False,  True])
    """
    if cells is None:
        return np.ones(n_rows, dtype=bool)
    if isinstance(cells, np.ndarray):
        return np.isnat(cells) if is_dates(cells) else np.isnan(cells)
    return np.asarray(cells.is_null())


def first_text(texts: Any) -> tuple[str, int]:
    """The first text that is not a number, or else the first text, and its row."""
    valid = pc.is_valid(texts)
    odd = pc.and_(valid, pc.invert(pc.fill_null(pc.match_substring_regex(texts, r"^[+-]?[\d.]+$"), True)))
    row = pc.index(odd if pc.any(odd).as_py() else valid, True).as_py()
    return texts[row].as_py(), row + 1


def count_flags(flags: Booleans, noun: str, mark: str = "") -> str:
    """Say how many rows are flagged, out of how many, and which is the first, with what stands there."""
    count = int(flags.sum())
    first = int(flags.argmax()) + 1
    return f"{count:,} {noun}{'s' if count > 1 else ''} in {len(flags):,} rows (the first in data row {first}{mark})"


def parse_numbers(column: Any) -> np.ndarray[Any, Any] | Fault:
    """Parse one column of a pyarrow table as finite numbers.

    Examples
    --------
    >>> parse_numbers(pa.chunked_array([[1, 2]]))
    array([1, 2])
    >>> parse_numbers(pa.chunked_array([["a", "2"]])).finding
    'holds text: 1 of 2 rows is not a number (the first is "a" in data row 1), which may mark missing values'
    """
    column = decoded(column) if kinds.is_dictionary(column.type) else column
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
    # A column of no rows may have no type.
    plain = column.cast(pa.float64()) if kinds.is_decimal(kind) or kinds.is_null(kind) else column
    values: np.ndarray[Any, Any] = plain.to_numpy()
    infinite = ~np.isfinite(values)
    return Fault(f"has {count_flags(infinite, 'infinite value')}", _FILL_ROWS) if infinite.any() else values


def parse_column(
    column: Any, *, markers: bool, category: bool = False, written: Written | None = None, zone: str | None = None
) -> Cells | Fault:
    """Parse one column as numbers, dates or texts, or say why it is none of them.

    Space around texts does not count and a blank cell is a missing value. Times of day become hours, and durations
    days.

    Parameters
    ----------
    column
        A column of a pyarrow table. A dictionary column holds categories, whatever their type.
    markers
        Whether :data:`MARKERS` count as missing values, and infinite numbers as well.
    category
        Whether the values are categories, even if they are whole numbers.
    written
        How numbers or dates are written, where they are text; what is written otherwise counts as missing.
    zone
        The time zone in which times that have one are read; by default their own.

    Examples
    --------
    >>> parse_column(pa.chunked_array([[1, None]]), markers=False)
    array([ 1., nan])
    >>> parse_column(pa.chunked_array([["1,5", " ?"]]), markers=True, written=Written(decimal=","))
    array([1.5, nan])
    >>> parse_column(pa.chunked_array([[" red", ""]]), markers=False).to_pylist()
    ['red', None]
    """
    if kinds.is_dictionary(column.type):
        column, category = decoded(column), True
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if is_text(kind):
        texts = read_texts(column, markers=markers)
        if isinstance(texts, Fault) or texts is None or category:
            return texts
        return _truth_values(texts) if written is None else _exact(texts, written)
    if kinds.is_temporal(kind) and not category:
        return _parse_times(column, zone)
    if not (_is_numeric(kind) or kinds.is_null(kind) or kinds.is_temporal(kind)):
        return Fault(
            f"holds {kind}, neither numbers nor text", "spread such values over columns of their own", skip=True
        )
    if pc.all(column.is_null(nan_is_null=True)).as_py():
        return None
    if not category:
        cells = _as_floats(column, markers=markers)
        # Infinite numbers may count as missing, and then none may be left.
        return None if isinstance(cells, np.ndarray) and bool(np.all(np.isnan(cells))) else cells
    try:
        # Whole numbers and truth values as texts.
        if kinds.is_floating(kind) or kinds.is_decimal(kind):
            column = pc.if_else(column.is_null(nan_is_null=True), None, column).cast(pa.int64())
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return Fault("holds fractions where categories are expected", "write categories as text or whole numbers")


def plain_text(text: str) -> str:
    """A name or label without space around it, composed as Unicode's NFC has it: "e" with an accent is one letter.

    Examples
    --------
    >>> plain_text(" cafe\u0301 ") == "caf\u00e9"
    True
    """
    return unicodedata.normalize("NFC", text).strip(_AROUND)


def plain_texts(texts: Any) -> Any:
    """The same for a column of text.

    Examples
    --------
    >>> plain_texts(pa.array([" cafe\u0301 "])).to_pylist() == ["caf\u00e9"]
    True
    """
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        texts = pc.utf8_trim(pc.utf8_normalize(texts, form="NFC"), characters=_INVISIBLE)
    return pc.utf8_trim_whitespace(texts)


def read_texts(column: Any, *, markers: bool) -> Texts | Fault | None:
    """Strip the texts of a column and put null for blank ones and, if asked to, for markers; None if nothing is left.

    Examples
    --------
    >>> read_texts(pa.array(["red ", " ", "NA"]), markers=True).to_pylist()
    ['red', None, None]
    """
    try:
        texts = plain_texts(column.cast(pa.large_string()))
    except pa.ArrowInvalid:
        return Fault("holds bytes that are not text in UTF-8", "write it as text", skip=True)
    words = pa.array(["", *(MARKERS if markers else ())], pa.large_string())
    texts = pc.if_else(pc.is_in(texts, value_set=words), None, texts)
    return None if texts.null_count == len(texts) else texts


def written_texts(column: Any) -> Texts | None:
    """The texts of a column of text without markers of missing values; None where it holds none."""
    texts = read_texts(column.combine_chunks(), markers=True) if is_text(column.type) else None
    return texts if is_texts(texts) else None


def check_column(
    column: Any,
    *,
    markers: bool,
    category: bool,
    fill: str | Wording,
    noun: str = "missing value",
    written: Written | None = None,
    zone: str | None = None,
) -> Cells | Fault:
    """Parse one column, and refuse missing values where they are not to be filled in.

    Parameters
    ----------
    column, markers, category, written, zone
        As for :func:`parse_column`; with ``markers``, missing values are allowed.
    fill, noun
        What to do about missing values, and what the error calls them.
    """
    reading: dict[str, Any] = {"category": category, "written": written, "zone": zone}
    cells = parse_column(column, markers=markers, **reading)
    if markers or isinstance(cells, Fault) or not (missing := is_missing(cells, len(column))).any():
        return cells
    # As many as would be filled in, so that markers count beside blank cells.
    marked = parse_column(column, markers=True, **reading)
    missing = missing if isinstance(marked, Fault) else is_missing(marked, len(column))
    shown = column[int(missing.argmax())].as_py()
    mark = f', "{shown}"' if isinstance(shown, str) and shown.strip() else ""
    return Fault(f"has {count_flags(missing, noun, mark)}", fill, fillable=True)


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


def decoded(column: Any) -> Any:
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


def _truth_values(texts: Texts) -> Cells:
    """Numbers for texts that are all true or false, as a table of objects may have them; other texts as they are."""
    truths = _truths(texts)
    if truths.null_count > texts.null_count:
        return texts
    return pc.fill_null(truths, np.nan).to_numpy(zero_copy_only=False)


def _truths(texts: Texts) -> Any:
    """1 for "true" and 0 for "false", null for other texts."""
    low = pc.utf8_lower(texts)
    known = pc.is_in(low, value_set=pa.array(["true", "false"], pa.large_string()))
    return pc.if_else(known, low, None).cast(pa.bool_()).cast(pa.float64())


def odd_texts(column: Any, cells: Cells) -> list[str]:
    """The texts, one per row, that count as missing since they are no numbers or dates and mark nothing.

    Examples
    --------
    >>> column = pa.chunked_array([["1", "2", "NA", "many"]])
    >>> odd_texts(column, parse_column(column, markers=True, written=Written(decimal=".")))
    ['many']
    """
    if not isinstance(cells, np.ndarray) or (texts := written_texts(column)) is None:
        return []
    odd = texts.filter(pa.array(is_missing(cells, len(texts)))).drop_null().to_pylist()
    return [text for text in odd if not is_marker_word(text)]


def is_marker_word(text: str) -> bool:
    """Whether a text marks a missing value in a column of numbers or dates.

    Examples
    --------
    >>> is_marker_word("Unknown"), is_marker_word("many")
    (True, False)
    """
    return text.lower() in _MARKER_WORDS


def odd_notes(name: str, odd: Sequence[str]) -> list[Note]:
    """Say which texts of a column of numbers or dates count as missing.

    Examples
    --------
    >>> odd_notes("rooms", ["many", "few", "many"])
    ['column "rooms" has 3 texts among its values ("many", "few"), which count as missing']
    """
    shown, count = quoted(list(dict.fromkeys(odd))), counted((len(odd), "text"))
    template = 'column "{column}" has {count} among its values ({texts}), which {counts} as missing'
    counts = "counts" if len(odd) == 1 else "count"
    return [Note("odd-texts", template, column=name, count=count, texts=shown, counts=counts)] if odd else []


def infinite_notes(name: str, column: Any) -> list[Note]:
    """Say that infinite numbers of a column count as missing.

    Examples
    --------
    >>> infinite_notes("size", pa.chunked_array([[1.0, float("inf")]]))
    ['column "size" has 1 infinite value in 2 rows (the first in data row 2), which count as missing']
    """
    if not kinds.is_floating(column.type):
        return []
    infinite = pc.fill_null(pc.is_inf(column), False).to_numpy()
    template = 'column "{column}" has {values}, which count as missing'
    values = count_flags(infinite, "infinite value") if infinite.any() else ""
    return [Note("infinite-values", template, column=name, values=values)] if values else []


def is_zone(zone: str) -> bool:
    """Whether there is a time zone of this name.

    Examples
    --------
    >>> is_zone("Europe/Berlin"), is_zone("+02:00"), is_zone("Atlantis")
    (True, True, False)
    """
    try:
        pc.local_timestamp(pa.array([0], pa.timestamp("s", zone)))
    except pa.ArrowInvalid:
        return False
    return True


def _exact(texts: Texts, written: Written) -> Cells | Fault:
    """Read numbers or dates that are written as text; long whole numbers are refused, since they would be rounded."""
    found = inexact_integer(texts) if written.dates is None else None
    return inexact(found) if found else written.read(texts)


def _parse_times(column: Any, zone: str | None) -> Cells:
    """Dates in seconds, times of day in hours, durations in days; times with a time zone as clocks in a zone show."""
    kind = column.type
    if column.null_count == len(column):
        return None
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        own = getattr(kind, "tz", None)
        moved = column.cast(pa.timestamp(kind.unit, zone)) if own and zone else column
        seconds = pc.local_timestamp(moved) if own else column
        return seconds.cast(pa.timestamp("s"), safe=False).to_numpy(zero_copy_only=False)
    if kinds.is_time(kind):
        ticks, unit = column.cast(pa.time64("us")).cast(pa.int64()), 3600e6
    elif kinds.is_duration(kind):
        ticks, unit = column.cast(pa.duration("us"), safe=False).cast(pa.int64()), 86400e6
    else:
        return Fault(
            f"holds {kind}, neither numbers nor text", "spread such values over columns of their own", skip=True
        )
    return pc.fill_null(pc.divide(ticks.cast(pa.float64()), unit), np.nan).to_numpy(zero_copy_only=False)


def _as_floats(column: Any, *, markers: bool) -> Floats | Fault:
    kind = column.type
    if kinds.is_integer(kind) or (kinds.is_decimal(kind) and kind.scale <= 0):
        largest = max((int(value) for value in pc.min_max(column).as_py().values()), key=abs)
        if abs(largest) > _LARGEST_EXACT:
            return inexact(str(largest))
    values: Floats = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    infinite = np.isinf(values)
    if infinite.any() and not markers:
        remedy = "fill or drop the rows with infinite values"
        return Fault(f"has {count_flags(infinite, 'infinite value')}", remedy, fillable=True)
    return np.where(infinite, np.nan, values) if infinite.any() else values


def inexact(text: str) -> Fault:
    """The fault of whole numbers that floats cannot hold."""
    shown = text if len(text) <= 40 else f"{text[:20]}... of {len(text):,} digits"
    finding = f"holds whole numbers beyond 2^53 (such as {shown}), which floats cannot tell apart"
    return Fault(finding, "correct this number, or write fewer digits", skip=True)


#: Moments in seconds, NaT where missing.
Dates: TypeAlias = np.ndarray[Any, np.dtype[np.datetime64]]

_CURRENCY = r"[€$£¥₹₽₩₺]|R\$|EUR|USD|GBP|CHF|CAD|AUD|JPY"
_BOUND = r"[<>≤≥~≈]"
_SIGNS = rf"(?:%|{_CURRENCY})"
_SPACES = r"'\s\x{00a0}\x{202f}"
_EXPONENT = r"(?:[eE][+-]?\d+)?"


def _number(group: str, mark: str) -> str:
    # "0,143" is not in thousands.
    grouped = rf"[1-9]\d{{0,2}}(?:[{group}{_SPACES}]\d{{3}})+"
    digits = rf"(?:(?:{grouped}|\d+)(?:[{mark}]\d*)?|[{mark}]\d+)"
    return rf"^{_BOUND}?\s*{_SIGNS}?\s*[+-]?\s*{_SIGNS}?\s*{digits}{_EXPONENT}\s*{_SIGNS}?\+?$"


#: What a number looks like, by its decimal mark.
_NUMBERS = {".": _number(",", "."), ",": _number(".", ",")}
#: Hours, minutes and optional seconds: times of day and durations.
_CLOCK = r"^(?P<hours>\d+):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d(?:\.\d+)?))?$"
#: Minus signs: the mathematical one, brackets as accountants write them, and one at the end.
_MINUS = (("−", "-"), (rf"^({_SIGNS}?)\s*\((.*\d.*)\)$", r"-\1\2"), (r"^(\d[\d.,]*)-$", r"-\1"))
#: A number and its unit, such as "3,750 g", "90 km/h" or, of marks, "7.5/10".
_WITH_UNIT = rf"^[+-]?\d[\d.,{_SPACES}]*(?P<unit>[a-zA-Zµ°Ω][a-zA-Zµ°Ω²³/]{{0,9}}|/\s?\d{{1,4}})$"
#: The part of the rows that must have the same unit.
_SAME_UNIT = 0.9
_SKIPPED = {"%": r"%", "currency": _CURRENCY, "<, > or +": rf"^{_BOUND}|\+$"}
#: What else numbers may be read without, by their decimal mark: minus signs of accountants, and marks of thousands.
_BRACKETS = r"^\D{0,4}\(.*\d.*\)$|\d-$"
_THOUSANDS = {".": rf"\d[,{_SPACES}]\d{{3}}", ",": rf"\d[.{_SPACES}]\d{{3}}"}

_DAY = r"\d{1,2}"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_WEEKDAY = r"(?i)^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*[.,]*\s+"
_LOOKS = {"%d": rf"(?P<day>{_DAY})", "%m": _DAY, "%Y": r"\d{4}", "%y": r"\d{2}", "%b": _MONTH}
_LOOKS |= {"%H": _DAY, "%I": _DAY, "%M": r"\d{2}", "%S": r"\d{2}", "%p": "[AP]M"}
#: The first that reads the most rows is taken: with slashes the month comes first, else the day.
_DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m.%d.%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y"),
    *("%d %b %Y", "%d-%b-%Y", "%d %b %y", "%d-%b-%y", "%b %d, %Y", "%b %d %Y", "%b %Y", "%b-%Y", "%b-%y"),
    *("%Y-%m", "%Y/%m", "%m/%Y"),
)
#: What becomes of dates, in this order; the days are those since the first day in training.
DATE_PARTS = ("year", "month", "weekday", "hour", "days")
_CLOCKS = ("", " %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p")
#: The formats of dates that are known.
DATE_FORMATS = tuple(day + clock for day in _DAYS for clock in _CLOCKS)
#: Formats in which no day can be taken for a month: dates in a column of another format may have them, too.
_CLEAR = tuple(each for each in DATE_FORMATS if each.startswith("%Y") or "%b" in each)
#: Fractions of a second and time zones, which are cut off, and the T of ISO 8601.
_REST = r"(:\d{2})[.,]\d+|(:\d{2}) ?(?:Z|UTC|[+-]\d{2}:?\d{2})$"
_ZONE = r":\d{2}(?:[.,]\d+)? ?(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})$"


@dataclass(frozen=True)
class Written:
    """How the values of a column are written.

    Parameters
    ----------
    decimal
        The decimal mark of numbers, or ":" for times such as "1:30", which are read as hours, or None.
    dates
        The format of most dates as for ``strptime``, or None. Others may have a time of day or not, begin with the
        year, or name the month.
    unit
        What follows each number, or None.
    signs
        Which of :func:`signs` numbers may have, or None for any; with others, they are missing.
    zone
        The time zone in which dates that name one are read, such as "+02:00", or None for their own.
    either
        Whether numbers may have the other decimal mark, where it cannot stand between thousands.

    Examples
    --------
    >>> texts = pa.array(["1.234,50 €", "99,00 €", "free"], pa.large_string())
    >>> Written(decimal=",").read(texts)
    array([1234.5,   99. ,    nan])
    >>> Written(decimal=",", signs=("€",)).read(texts)
    array([nan, 99., nan])
    >>> PLAIN.read(pa.array(["99.5", "50%", "0:30", "<0.5", "1,234"], pa.large_string()))
    array([99.5,  nan,  nan,  nan,  nan])
    >>> Written(decimal=".").read(pa.array(["($5.50)", "−3", "7-", "<0.5"], pa.large_string()))
    array([-5.5, -3. , -7. ,  0.5])
    >>> Written(decimal=":").read(pa.array(["1:30", "0:00:36"], pa.large_string()))
    array([1.5 , 0.01])
    >>> Written(dates="%d.%m.%Y").read(pa.array(["24.12.2021", "?"], pa.large_string()))
    array(['2021-12-24T00:00:00',                 'NaT'],
          dtype='datetime64[s]')
    """

    decimal: str | None = None
    dates: str | None = None
    unit: str | None = None
    signs: tuple[str, ...] | None = field(default=None, repr=False)
    zone: str | None = field(default=None, repr=False)
    either: bool = field(default=False, repr=False)

    @property
    def kind(self) -> str:
        """What is written: "numbers" or "dates"."""
        return "numbers" if self.dates is None else "dates"

    def read(self, texts: Any) -> Floats | Dates:
        """Read texts; what is written otherwise is missing (NaN or NaT)."""
        if self.dates is not None:
            values = _mixed_dates(texts, self.dates, self.zone)
        else:
            values = self._numbers(texts)
        missing = np.datetime64("NaT") if self.dates is not None else np.nan
        found = values.to_numpy(zero_copy_only=False)
        return np.where(np.asarray(values.is_null()), missing, found)

    def _numbers(self, texts: Any) -> Any:
        mark, plain = self.decimal or ".", _without_unit(_signed(texts), self.unit)
        values = self._signed_as_told(texts, _numbers(plain, mark), mark)
        if self.either:
            clear = pc.invert(pc.match_substring_regex(plain, AMBIGUOUS))
            others = _numbers(pc.if_else(clear, plain, None), _OTHER_MARK[mark])
            values = pc.coalesce(values, self._signed_as_told(texts, others, _OTHER_MARK[mark]))
        return pc.coalesce(values, _truths(texts)) if self.signs == () else values

    def _signed_as_told(self, texts: Any, values: Any, mark: str) -> Any:
        """The same numbers without those that have other signs."""
        if self.signs is None or mark == ":":
            return values
        return pc.if_else(_has_others(texts, self.signs, mark), None, values)

    @property
    def words(self) -> str:
        """The format of dates in words.

        Examples
        --------
        >>> Written(dates="%d.%m.%Y %H:%M").words
        'day.month.year hour:minute'
        """
        names = {"%d": "day", "%m": "month", "%b": "month", "%Y": "year", "%y": "year", "%H": "hour", "%I": "hour"}
        words = self.dates or ""
        for code, name in {**names, "%M": "minute", "%S": "second", "%p": "AM/PM"}.items():
            words = words.replace(code, name)
        return words


#: A number that is 1.234 to some and 1234 to others.
AMBIGUOUS = r"^[+-]?[1-9]\d{0,2}[.,]\d{3}$"
_OTHER_MARK = {".": ",", ",": "."}
#: Numbers as programs write them.
PLAIN = Written(decimal=".", signs=())
#: How dates are read that were no text in training: with the year first, or with the month by its name.
PLAIN_DATES = Written(dates="%Y-%m-%d")


def date_parts(days: Any, origin: str) -> dict[str, Floats]:
    """What dates without missing ones become, by the names of :data:`DATE_PARTS`.

    Examples
    --------
    >>> parts = date_parts(np.array(["2024-02-29T18:30"], dtype="datetime64[s]"), "2024-01-01")
    >>> {name: values.tolist() for name, values in parts.items()}
    {'year': [2024.0], 'month': [2.0], 'weekday': [3.0], 'hour': [18.5], 'days': [59.770833333333336]}
    """
    since = (days - np.datetime64(origin, "s")) / np.timedelta64(1, "D")
    whole = days.astype("datetime64[D]")
    months = days.astype("datetime64[M]").astype(np.int64)
    return {
        "year": 1970.0 + months // 12,
        "month": 1.0 + months % 12,
        # The first of January 1970 was a Thursday.
        "weekday": (whole.astype(np.int64) + 3.0) % 7,
        "hour": (days - whole) / np.timedelta64(1, "h"),
        "days": since,
    }


def find_written(texts: Any, *, decimal: str = ".") -> Written | None:
    """Find how numbers or dates are written that make up most of a column; None for other texts.

    Parameters
    ----------
    texts
        The column, stripped, null where a value is missing; None for a column without texts.
    decimal
        The decimal mark where the column leaves it open, as "1.234" does.

    Examples
    --------
    >>> find_written(pa.array(["1,5", "2", "1,234"], pa.large_string()))
    Written(decimal=',', dates=None, unit=None)
    >>> find_written(pa.array(["0,143", "1,234"], pa.large_string())).decimal
    ','
    >>> find_written(pa.array(["3,750 g", "990 g"], pa.large_string())).unit
    'g'
    >>> find_written(pa.array(["12/31/2020", "1/2/2021"], pa.large_string())).dates
    '%m/%d/%Y'
    >>> find_written(pa.array(["red", "blue", "7"], pa.large_string()))
    """
    if texts is None:
        return None
    counts = pc.value_counts(texts.drop_null())
    distinct, rows = counts.field("values"), counts.field("counts").to_numpy(zero_copy_only=False)
    if not len(distinct):
        return None
    digits = pc.match_substring_regex(distinct, r"\d").to_numpy(zero_copy_only=False)
    if 2 * rows[digits].sum() <= rows.sum():
        return None

    def share(read: Any) -> int:
        return int(rows[np.asarray(read.is_valid())].sum())

    dates = {found: share(_dates(distinct, found)) for found in _formats(distinct)}
    best = max(dates, key=dates.__getitem__, default=None)
    if best is not None and 2 * share(_mixed_dates(distinct, best)) > rows.sum():
        return Written(dates=best)
    marks = (decimal, _OTHER_MARK[decimal], ":")
    distinct = _signed(distinct)
    for unit in (None, _common_unit(distinct, rows)):
        plain = _without_unit(distinct, unit)
        numbers = {mark: share(_numbers(plain, mark)) for mark in marks}
        best = max(numbers, key=numbers.__getitem__)
        if 2 * numbers[best] > rows.sum():
            return Written(decimal=best, unit=unit)
    return None


def is_ambiguous(texts: Any, written: Written) -> bool:
    """Whether days and months could change places: no day is beyond the 12th.

    Examples
    --------
    >>> is_ambiguous(pa.array(["1/2/2021", "3/4/2021"], pa.large_string()), Written(dates="%m/%d/%Y"))
    True
    """
    swapped = (written.dates or "").translate(str.maketrans("dm", "md"))
    if swapped == written.dates or swapped not in DATE_FORMATS:
        return False
    return bool(_dates(texts, swapped).null_count == _dates(texts, written.dates).null_count)


def signs(texts: Any) -> list[str]:
    """The signs that numbers are read without: percent, currency.

    Examples
    --------
    >>> signs(pa.array(["5%", "6%"], pa.large_string()))
    ['%']
    """
    return [name for name, look in _SKIPPED.items() if pc.any(pc.match_substring_regex(texts, look)).as_py()]


def mixed_marks(texts: Any, mark: str) -> tuple[str, str] | None:
    """A number that only the other decimal mark reads, and one that both read, differently; None unless both occur.

    Examples
    --------
    >>> mixed_marks(pa.array(["2,5", "1.234", "3"], pa.large_string()), ".")
    ('2,5', '1.234')
    """
    other = Written(decimal=_OTHER_MARK[mark], signs=())
    unclear = pc.match_substring_regex(texts, AMBIGUOUS)
    clear = pc.and_(np.isnan(Written(decimal=mark, signs=()).read(texts)), ~np.isnan(other.read(texts)))
    clear = pc.and_(clear, pc.fill_null(pc.invert(unclear), False))
    found = [texts.filter(pc.fill_null(flags, False)) for flags in (clear, unclear)]
    return (found[0][0].as_py(), found[1][0].as_py()) if all(map(len, found)) else None


def all_signs(texts: Any, mark: str) -> tuple[str, ...]:
    """The signs that numbers are read without, each currency by itself, and whether thousands are marked.

    Examples
    --------
    >>> all_signs(pa.array(["$5", "1,234 €", "(3)"], pa.large_string()), ".")
    ('( )', 'thousands', '$', '€')
    """
    if mark == ":":
        return ()
    held = [name for name, look in _looks(mark).items() if pc.any(pc.match_substring_regex(texts, look)).as_py()]
    currencies = pc.struct_field(pc.extract_regex(texts, f"(?P<sign>{_CURRENCY})"), "sign")
    return (*held, *sorted(pc.unique(currencies.drop_null()).to_pylist()))


def _looks(mark: str) -> dict[str, str]:
    return {"%": "%", "<, > or +": _SKIPPED["<, > or +"], "( )": _BRACKETS, "thousands": _THOUSANDS[mark]}


def _has_others(texts: Any, signs: Sequence[str], mark: str) -> Any:
    """Flag the texts with other signs than these."""
    others = [look for name, look in _looks(mark).items() if name not in signs]
    currencies = pc.struct_field(pc.extract_regex(texts, f"(?P<sign>{_CURRENCY})"), "sign")
    known = pc.is_in(currencies, value_set=pa.array(signs, pa.large_string()))
    found = pc.and_(currencies.is_valid(), pc.invert(known))
    for look in others:
        found = pc.or_(found, pc.fill_null(pc.match_substring_regex(texts, look), False))
    return found


def _common_unit(distinct: Any, rows: Any) -> str | None:
    """The unit that nearly all rows have, or None: "7a" and "7b" are names."""
    units = pc.struct_field(pc.extract_regex(distinct, _WITH_UNIT), "unit").to_pylist()
    counts: dict[str, int] = {}
    for unit, count in zip(units, rows.tolist()):
        if unit:
            counts[unit] = counts.get(unit, 0) + count
    best = max(counts, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] >= _SAME_UNIT * rows.sum() else None


def _signed(texts: Any) -> Any:
    """The same texts with a plain minus sign before negative numbers."""
    for written, plain in _MINUS:
        texts = pc.replace_substring_regex(texts, written, plain)
    return texts


def _without_unit(texts: Any, unit: str | None) -> Any:
    """The same texts without this unit at their ends."""
    return texts if unit is None else pc.replace_substring_regex(texts, rf"(\d)[{_SPACES}]*{re.escape(unit)}$", r"\1")


def _formats(distinct: Any) -> list[str]:
    """The formats that the first dates could have: trying all of them on every row would take long."""
    sample = distinct[:200]
    if not pc.any(pc.match_substring_regex(sample, rf"(?i)\d[-/.]\d|{_MONTH}")).as_py():
        return []
    return [each for each in DATE_FORMATS if _dates(sample, each).null_count < len(sample)]


def _look(written: str) -> str:
    look = written.replace(".", r"\.")
    for code, pattern in _LOOKS.items():
        look = look.replace(code, pattern)
    return f"(?i)^{look}$"


def text_zones(texts: Any) -> tuple[set[str], int]:
    """The time zones that texts name, and how many times of day name none.

    Examples
    --------
    >>> zones, without = text_zones(pa.array(["2020-01-02 10:00:05+0200", "2020-01-03T11:00:00Z", "2020-01-03 12:30"]))
    >>> sorted(zones), without
    (['+00:00', '+02:00'], 1)
    """
    ends = pc.struct_field(pc.extract_regex(texts, _ZONE), "zone")
    timed = pc.match_substring_regex(texts, r"\d:\d{2}")
    without = pc.sum(pc.and_(pc.fill_null(timed, False), ends.is_null())).as_py() or 0
    known = pc.unique(ends).drop_null().to_pylist()
    return {"+00:00" if end in ("Z", "UTC") else f"{end[:3]}:{end[-2:]}" for end in known}, without


def _in_zone(texts: Any, local: Any, zone: str) -> Any:
    """Local times in a zone, for texts that name the zone of theirs."""
    ends = pc.struct_field(pc.extract_regex(texts, _ZONE), "zone")
    if ends.null_count == len(ends):
        return local
    signed = pc.replace_substring_regex(ends, r"^(?:Z|UTC)$", "+00:00")
    minutes = [
        None if end is None else (60 * int(end[1:3]) + int(end[-2:])) * (-1 if end[0] == "-" else 1)
        for end in signed.to_pylist()
    ]
    since = pc.multiply(pa.array(minutes, pa.int64()), 60).cast(pa.duration("s"))
    moved = pc.assume_timezone(pc.subtract(local, since), "UTC").cast(pa.timestamp("s", zone))
    return pc.if_else(ends.is_valid(), pc.local_timestamp(moved), local)


def _dates(texts: Any, written: str | None, zone: str | None = None) -> Any:
    """Dates as timestamps, null for what is written otherwise; the calendar must know the day."""
    plain = texts
    if "%H" in (form := written or "") or "%I" in form:
        plain = pc.replace_substring_regex(plain, r"(\d)T(\d)", r"\1 \2")
        for _ in range(2):  # a fraction and a zone
            plain = pc.replace_substring_regex(plain, _REST, r"\1\2")
    elif "%b" in form:
        plain = pc.replace_substring_regex(plain, _WEEKDAY, "")
        plain = pc.replace_substring_regex(plain, r"(?i)\bsept\b", "sep")
        plain = pc.replace_substring_regex(plain, r"([a-zA-Z])\.", r"\1")
    fits = pc.match_substring_regex(plain, _look(form))
    found = pc.strptime(pc.if_else(fits, plain, None), format=form, unit="s", error_is_null=True)
    if zone is not None and ("%H" in form or "%I" in form):
        # The day below is that of the text.
        moved = _in_zone(texts, found, zone)
    else:
        moved = found
    if "%d" not in form:
        return moved
    # The 30th of February would become a day in March.
    days = pc.struct_field(pc.extract_regex(plain, _look(form)), "day").cast(pa.int64())
    return pc.if_else(pc.equal(days, pc.day(found)), moved, None)


def looks_dated(text: str) -> bool:
    """Whether a text is a date in any format that is known.

    Examples
    --------
    >>> looks_dated("03/04/2021"), looks_dated("soon")
    (True, False)
    """
    one = pa.array([text], pa.large_string())
    return any(_dates(one, form).null_count == 0 for form in _formats(one))


def _mixed_dates(texts: Any, written: str, zone: str | None = None) -> Any:
    """Dates in this format, and others where no day can be taken for a month."""
    found = _dates(texts, written, zone)
    day = written.partition(" %H")[0].partition(" %I")[0]
    others = *(day + clock for clock in _CLOCKS), *_CLEAR
    for other in others if found.null_count > texts.null_count else ():
        unread = pc.if_else(found.is_null(), texts, None)
        if unread.null_count == len(unread):
            break
        found = pc.coalesce(found, _dates(unread, other, zone))
    return found


def _numbers(texts: Any, mark: str) -> Any:
    """Numbers with this decimal mark, null for what is written otherwise."""
    if mark == ":":
        return _hours(texts)
    plain = pc.if_else(pc.match_substring_regex(texts, _NUMBERS[mark]), texts, None)
    plain = pc.replace_substring_regex(plain, rf"{_BOUND}|{_SIGNS}|[{_SPACES}]|\+$", "")
    if mark == ",":
        plain = pc.replace_substring(pc.replace_substring(plain, ".", ""), ",", ".")
    else:
        plain = pc.replace_substring(plain, ",", "")
    return plain.cast(pa.float64())


def _hours(texts: Any) -> Any:
    """Times such as "1:30" in hours."""
    found = pc.extract_regex(texts, _CLOCK)

    def part(name: str) -> Any:
        digits = pc.struct_field(found, name)
        return pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.float64())

    minutes = pc.add(part("minutes"), pc.divide(part("seconds"), 60.0))
    return pc.add(part("hours"), pc.divide(minutes, 60.0))
