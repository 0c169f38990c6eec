"""Numbers and dates that are written as text: how they are written, and what they say.

"1.234,50 €", "12%" and "3/14/2021" are numbers and dates to people, and text to a file reader. How a column is written
is found from all of its texts at once: one rule reads the whole column, travels with the model as data, and reads new
rows in the same way. What does not fit the rule counts as missing, and is reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mixtune._array import Floats

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
_CLOCKS = ("", " %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p")
#: The formats of dates that are known.
DATE_FORMATS = tuple(day + clock for day in _DAYS for clock in _CLOCKS)
#: Formats in which no day can be taken for a month: dates in a column of another format may have them, too.
_CLEAR = tuple(each for each in DATE_FORMATS if each.startswith("%Y") or "%b" in each)
#: Fractions of a second and time zones, which are cut off, and the T of ISO 8601.
_REST = r"(:\d{2})[.,]\d+|(:\d{2}) ?(?:Z|UTC|[+-]\d{2}:?\d{2})$"


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

    Examples
    --------
    >>> texts = pa.array(["1.234,50 €", "99,00 €", "free"], pa.large_string())
    >>> Written(decimal=",").read(texts)
    array([1234.5,   99. ,    nan])
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

    def read(self, texts: Any) -> Floats | Dates:
        """Read texts; what is written otherwise is missing (NaN or NaT)."""
        if self.dates is not None:
            values = _mixed_dates(texts, self.dates)
        else:
            values = _numbers(_without_unit(_signed(texts), self.unit), self.decimal or ".")
        missing = np.datetime64("NaT") if self.dates is not None else np.nan
        found = values.to_numpy(zero_copy_only=False)
        return np.where(np.asarray(values.is_null()), missing, found)

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


def find_written(texts: Any, *, decimal: str = ".") -> Written | None:
    """Find how numbers or dates are written that make up most of a column; None for other texts.

    Parameters
    ----------
    texts
        The column, stripped, null where a value is missing.
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
    marks = (decimal, {".": ",", ",": "."}[decimal], ":")
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
    return [
        name
        for name, look in _SKIPPED.items()
        if pc.any(pc.fill_null(pc.match_substring_regex(texts, look), False)).as_py()
    ]


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


def _dates(texts: Any, written: str | None) -> Any:
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
    if "%d" not in form:
        return found
    # The 30th of February would become a day in March.
    days = pc.struct_field(pc.extract_regex(plain, _look(form)), "day").cast(pa.int64())
    return pc.if_else(pc.equal(days, pc.day(found)), found, None)


def _mixed_dates(texts: Any, written: str) -> Any:
    """Dates in this format, and others where no day can be taken for a month."""
    found = _dates(texts, written)
    day = written.partition(" %H")[0].partition(" %I")[0]
    others = *(day + clock for clock in _CLOCKS), *_CLEAR
    for other in others if found.null_count > texts.null_count else ():
        unread = pc.if_else(found.is_null(), texts, None)
        if unread.null_count == len(unread):
            break
        found = pc.coalesce(found, _dates(unread, other))
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
