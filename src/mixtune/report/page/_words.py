"""Numbers and names as they stand on the page: rounded for reading, and never able to become markup."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import Any

__all__ = [
    "clean",
    "column",
    "count",
    "escape",
    "number",
    "percent",
    "percent_column",
    "plain_value",
    "shorten",
]

MINUS = "\u2212"
#: What no page can show: control characters, halves of characters, marks that turn the direction of the text around.
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


def clean(text: Any) -> str:
    """Text without characters that a page cannot show.

    Examples
    --------
    >>> clean("a\\x00b\\u202ec")
    'a\ufffdb\ufffdc'
    """
    return _UNSHOWN.sub("\ufffd", str(text))


def escape(text: Any) -> str:
    """Text that is safe anywhere between tags and in quoted attributes.

    Examples
    --------
    >>> escape('<b> & "c"')
    '&lt;b&gt; &amp; &quot;c&quot;'
    """
    return html.escape(clean(text), quote=True)


def shorten(text: Any, length: int) -> str:
    """Text of at most ``length`` characters; what is cut shows as an ellipsis in the middle.

    Examples
    --------
    >>> shorten("the second school of the north", 12)
    'the se…north'
    """
    text = clean(text)
    if len(text) <= length:
        return text
    head = length // 2
    return f"{text[:head]}…{text[len(text) - (length - head - 1) :]}"


def number(value: float, digits: int = 3) -> str:
    """A number with a few significant digits.

    Examples
    --------
    >>> [number(x) for x in (0.123456, 1234567.8, -0.5, 0.0, 3.2e-9, float("inf"))]
    ['0.123', '1,234,568', '−0.5', '0', '3.2e−9', '∞']
    """
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-4 or size >= 1e9:
        base, power = f"{value:.{digits - 1}e}".split("e")
        text = f"{base.rstrip('0').rstrip('.') if '.' in base else base}e{int(power)}"
    else:
        decimals = max(0, digits - 1 - math.floor(math.log10(size)))
        text = f"{value:,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", MINUS)


def percent(part: float) -> str:
    """A part of a whole: whole percents from ten on, one digit more below.

    Examples
    --------
    >>> [percent(x) for x in (0.1432, 0.0512, 0.0004, 0.00001, 0.0, 0.9999)]
    ['14%', '5.1%', '0.04%', '<0.01%', '0%', '100%']
    """
    if not math.isfinite(part):
        return number(part)
    size = abs(100 * part)
    sign = MINUS if part < 0 else ""
    if size == 0:
        return "0%"
    if size < 0.01:
        return f"{'>' if part < 0 else '<'}{sign}0.01%"
    if size >= 9.95:
        return f"{sign}{size:,.0f}%"
    text = f"{size:.1f}" if size >= 0.095 else f"{size:.2f}"
    return f"{sign}{text.removesuffix('.0')}%"


def column(values: Sequence[float | None]) -> list[str]:
    """Numbers to stand below each other: as many decimals for all as give the middle one three digits.

    Examples
    --------
    >>> column([5.9, 0.123, None, -12.0])
    ['5.90', '0.12', '–', '−12.00']
    """
    known = sorted(abs(v) for v in values if v is not None and math.isfinite(v) and v != 0)
    if not known or known[(len(known) - 1) // 2] < 1e-4 or known[-1] >= 1e9:
        return ["–" if v is None else number(v) for v in values]
    decimals = max(0, 2 - math.floor(math.log10(known[(len(known) - 1) // 2])))
    return [
        "–" if v is None else f"{v:,.{decimals}f}".replace("-", MINUS) if math.isfinite(v) else number(v)
        for v in values
    ]


def percent_column(parts: Sequence[float], *, signed: bool = False) -> list[str]:
    """Percents to stand below each other, with one decimal, or two where all are below one percent.

    Examples
    --------
    >>> percent_column([0.02, -0.017, 0.0], signed=True)
    ['+2.0%', '−1.7%', '0.0%']
    >>> percent_column([0.5, 0.0])
    ['50.0%', '0.0%']
    """
    decimals = 1 if max(map(abs, parts), default=0.0) >= 0.01 else 2
    texts = [f"{100 * part:{'+' if signed else ''},.{decimals}f}" for part in parts]
    zero = f"{0:.{decimals}f}"
    return [f"{zero if text.lstrip('+-') == zero else text}%".replace("-", MINUS) for text in texts]


def count(value: int, one: str, many: str | None = None) -> str:
    """A number of things.

    Examples
    --------
    >>> count(1, "row"), count(12345, "row")
    ('1 row', '12,345 rows')
    """
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def plain_value(value: Any) -> str:
    """A setting in one line, the same in every run: no addresses in memory, no long arrays.

    Examples
    --------
    >>> plain_value(0.25), plain_value("exam"), plain_value(None), plain_value(object())
    ('0.25', 'exam', 'none', 'object')
    """
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, 6)
    text = value if isinstance(value, str) else " ".join(repr(value).split())
    if re.search(r" at 0x[0-9a-fA-F]+", text):
        text = type(value).__name__
    return shorten(text, 200)
