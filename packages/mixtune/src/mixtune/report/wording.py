"""Numbers, names and markup as the page and the terminal show them: rounded for reading, and safe to show."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import markupsafe
from markupsafe import Markup

from mixtune.choice import OWN_ROWS

MINUS = "\u2212"
#: How methods are called where they are shown; others keep their names.
METHOD_NAMES = {"boosting": "boosted trees + domain", "mean": "predict the mean"}
#: Measures of predictions, by the fields that hold them: what they are called, and whether percent are shown.
MEASURE_NAMES = {
    "rmse": ("RMSE", False),
    "mae": ("MAE", False),
    "r2": ("R²", False),
    "accuracy": ("accuracy", True),
    "log_loss": ("log loss", False),
    "auc": ("AUC", False),
}
#: Names of the feature maps that an estimator makes by itself.
MAP_NAMES = {
    "inputs": "the columns themselves",
    "splines": "splines",
    "Fourier": "random Fourier features",
    "learned": "learned columns and splines",
    "boosted": "boosted trees",
}
#: Families of candidates of a Gaussian process over all domains, and fits to own rows alone, as sentences name them.
FAMILY_NAMES = {
    "shared": "the shared function of all domains",
    "own curves": "own rows alone with the kernel of all domains",
    "focal only curves": "own rows alone with a kernel of their own",
    "focal only": OWN_ROWS,
}
#: Shares of less round to nothing and are left to tables.
SMALLEST_SHARE = 0.005
#: What neither a page nor a terminal can show: control characters, halves of characters, marks that turn the direction
#: of the text around.
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
#: Elements of SVG that are drawn without any content.
_EMPTY = ("circle", "line", "polygon", "polyline", "rect")


def clean(text: Any) -> str:
    """Text without characters that cannot be shown.

    Examples
    --------
    >>> clean("a\\x00b\\u202ec")
    'a\ufffdb\ufffdc'
    """
    return _UNSHOWN.sub("\ufffd", str(text))


def escape(text: Any) -> Markup:
    """Text that is safe anywhere between tags and in quoted attributes; markup stays as it is.

    Examples
    --------
    >>> escape("a < b"), escape(Markup("<br>"))
    (Markup('a &lt; b'), Markup('<br>'))
    """
    return text if isinstance(text, Markup) else markupsafe.escape(clean(text))


def element(tag: str, *content: Any, **attributes: Any) -> Markup:
    """An element with escaped content and attributes; what is None or empty is left out.

    Underscores in names of attributes stand for dashes, one at the end for nothing. Numbers have one decimal: on a page
    finer cannot be seen, and more digits make the file larger.

    Examples
    --------
    >>> element("td", "a & b", class_="num", data_label="weight", title="")
    Markup('<td class="num" data-label="weight">a &amp; b</td>')
    >>> element("line", x1=0.0, x2=12.34)
    Markup('<line x1="0" x2="12.3"/>')
    """
    named = ""
    for name, value in attributes.items():
        if value is not None and value != "":
            # Adding zero turns -0.0 into 0.0.
            text = f"{round(value, 1) + 0.0:.1f}".removesuffix(".0") if isinstance(value, float) else escape(value)
            named += f' {name.rstrip("_").replace("_", "-")}="{text}"'
    inside = "".join(map(escape, content))
    return Markup(f"<{tag}{named}/>" if tag in _EMPTY and not inside else f"<{tag}{named}>{inside}</{tag}>")


def shorten(text: Any, length: int) -> str:
    """Text of at most ``length`` characters; what is cut shows as an ellipsis in the middle.

    Examples
    --------
    >>> shorten("the second school of the north", 12)
    'the se…north'
    """
    text, head = clean(text), length // 2
    return text if len(text) <= length else f"{text[:head]}…{text[len(text) - (length - head - 1) :]}"


def number(value: float | None, digits: int = 3) -> str:
    """A number with a few significant digits; a dash where there is none.

    Examples
    --------
    >>> [number(x) for x in (0.123456, 1234567.8, -0.5, 0.0, 3.2e-9, float("inf"), None)]
    ['0.123', '1,234,568', '−0.5', '0', '3.2e−9', '∞', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    size = abs(value)
    if math.isinf(size):
        text = "-∞" if value < 0 else "∞"
    elif size == 0:
        text = "0"
    elif size < 1e-4 or size >= 1e9:
        base, power = f"{value:.{digits - 1}e}".split("e")
        text = f"{base.rstrip('0').rstrip('.') if '.' in base else base}e{int(power)}"
    else:
        text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
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
    if 0 < size < 0.01:
        return f"{'>' if part < 0 else '<'}{sign}0.01%"
    decimals = 0 if size >= 9.95 else 1 if size >= 0.095 else 2
    return f"{sign}{size:,.{decimals}f}".removesuffix(".00").removesuffix(".0") + "%"


def carried_by(shares: Mapping[str, float], of: str = "the prediction") -> str:
    """One sentence on which feature maps carry the prediction, largest share first; none where there is one map only.

    Examples
    --------
    >>> carried_by({"splines": 0.604, "Fourier": 0.353, "learned": 0.041, "inputs": 0.002})
    'Splines carry 60% of the prediction, random Fourier features 35%, learned columns and splines 4%.'
    >>> carried_by({"inputs": 0.998, "splines": 0.002}), carried_by({"all": 1.0})
    ('The columns themselves carry nearly all of the prediction.', '')
    """
    if len(shares) < 2:
        return ""
    (first, largest), *others = ((MAP_NAMES.get(name, name), share) for name, share in shares.items())
    rest = "".join(f", {name} {100 * share:.0f}%" for name, share in others if share > SMALLEST_SHARE)
    return f"{first[:1].upper()}{first[1:]} carry {_amount(largest, alone=not rest)} of {of}{rest}."


def comes_from(shares: Mapping[str, float], of: str = "the prediction") -> str:
    """One sentence on the families of candidates that the prediction comes from, largest share first.

    Examples
    --------
    >>> comes_from({"shared": 0.62, "own curves": 0.3, "focal only": 0.078, "focal only curves": 0.002})
    '62% of the prediction comes from the shared function of all domains, 30% from own rows alone with the kernel of \
all domains, 8% from own rows alone.'
    >>> comes_from({"focal only": 0.998, "shared": 0.002})
    'Nearly all of the prediction comes from own rows alone.'
    """
    (first, largest), *others = ((FAMILY_NAMES.get(name, name), share) for name, share in shares.items())
    rest = "".join(f", {100 * share:.0f}% from {name}" for name, share in others if share > SMALLEST_SHARE)
    amount = _amount(largest, alone=not rest)
    return f"{amount[:1].upper()}{amount[1:]} of {of} comes from {first}{rest}."


def _amount(share: float, *, alone: bool) -> str:
    """A share in whole percents, as decimals would say more than such shares can; ``alone`` if it is the only one."""
    return f"{100 * share:.0f}%" if not alone else "all" if share == 1 else "nearly all"


def column(values: Sequence[float | None], digits: int = 3) -> list[str]:
    """Numbers to stand below each other: as many decimals for all as give the middle one so many digits.

    Examples
    --------
    >>> column([5.9, 0.123, None, -12.0])
    ['5.90', '0.12', '–', '−12.00']
    """
    known = sorted(abs(v) for v in values if v is not None and math.isfinite(v) and v != 0)
    middle = known[(len(known) - 1) // 2] if known else 0.0
    if middle < 1e-4 or known[-1] >= 1e9:
        return [number(v, digits) for v in values]
    decimals = max(0, digits - 1 - math.floor(math.log10(middle)))
    return [
        f"{v:,.{decimals}f}".replace("-", MINUS) if v is not None and math.isfinite(v) else number(v) for v in values
    ]


def measure_columns(rows: Sequence[Any], digits: int = 3) -> dict[str, list[str]]:
    """The measures of predictions that are known for some of the rows, by name."""
    cells = {}
    for field, (name, in_percent) in MEASURE_NAMES.items():
        values = [getattr(row.measures, field, None) for row in rows]
        if any(value is not None for value in values):
            if in_percent:
                cells[name] = percent_column(values)
            elif field in ("r2", "auc", "log_loss"):
                # What is nearly all is not all.
                nearly = field != "log_loss" and any(v is not None and 0.995 <= v < 1 for v in values)
                digits = 4 if nearly else 2
                cells[name] = [number(None) if v is None else f"{v:.{digits}f}".replace("-", MINUS) for v in values]
            else:
                cells[name] = column(values, digits)
    return cells


def percent_column(parts: Sequence[float | None], *, signed: bool = False) -> list[str]:
    """Percents to stand below each other, with one decimal, or two where all are below one percent.

    Examples
    --------
    >>> percent_column([0.02, -0.017, 0.0, None], signed=True)
    ['+2.0%', '−1.7%', '0.0%', '–']
    >>> percent_column([0.5, 0.0])
    ['50.0%', '0.0%']
    """
    decimals = 1 if max((abs(part) for part in parts if part is not None), default=0.0) >= 0.01 else 2
    zero = f"{0:.{decimals}f}"
    texts = [f"{100 * part:{'+' if signed else ''},.{decimals}f}" if part is not None else "" for part in parts]
    return [
        f"{zero if text.lstrip('+-') == zero else text}%".replace("-", MINUS) if text else number(None)
        for text in texts
    ]


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
    return shorten(type(value).__name__ if re.search(r" at 0x[0-9a-fA-F]+", text) else text, 200)
