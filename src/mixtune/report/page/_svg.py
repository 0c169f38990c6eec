"""The few pieces that the page's charts are made of: scales, ticks, marks and a frame, as SVG text.

Every chart is drawn 380 units wide. On a telephone that is about the width of the screen, so text stays readable there,
and two charts stand side by side on a desk. Colours come from the page's style: dark mode and print need nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mixtune.report.page._words import MINUS, escape, number

__all__ = ["WIDTH", "Drawing", "Scale", "log_ticks", "nice_range", "nice_ticks", "plain_ticks"]

WIDTH = 380
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class Scale:
    """From values to places on the drawing.

    Examples
    --------
    >>> Scale(0.0, 10.0, 100.0, 200.0)(5.0)
    150.0
    >>> Scale(1.0, 100.0, 0.0, 200.0, log=True)(10.0)
    100.0
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        at = math.log(value) if self.log else value
        part = (at - low) / (high - low) if high > low else 0.5
        return self.start + part * (self.end - self.start)


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, at most about ``most``.

    Examples
    --------
    >>> nice_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> nice_ticks(-3.0, 12.0, 4)
    [0.0, 5.0, 10.0]
    """
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    rough = span / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)) + 1)
    return [round(k * step, min(digits, 300)) + 0.0 for k in range(first, last + 1)]


def nice_range(values: Iterable[float], *, include: Sequence[float] = (), room: float = 0.06) -> tuple[float, float]:
    """A range that holds all finite values with a little room on both sides.

    Examples
    --------
    >>> nice_range([1.0, 1.0], room=0.0)
    (0.5, 1.5)
    """
    known = [float(v) for v in (*values, *include) if math.isfinite(v)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        half = 0.5 * abs(low) or 0.5
        return low - half, high + half
    return low - room * (high - low), high + room * (high - low)


def log_ticks(low: float, high: float, most: int = 6) -> list[tuple[float, str]]:
    """Powers of ten with labels; within one or two powers, round numbers between them as well.

    Examples
    --------
    >>> log_ticks(0.01, 100.0, 3)
    [(0.01, '10⁻²'), (1.0, '1'), (100.0, '10²')]
    >>> [text for _, text in log_ticks(1.5, 48.0)]
    ['2', '5', '10', '20']
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    powers = range(first, last + 1, step)
    if last - first < 2:
        between = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5)]
        found = [(value, number(value)) for value in between if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        return found if len(found) > 1 else [(value, number(value)) for value in (low, high)]
    names = {0: "1", 1: "10"}
    return [(10.0**p, names.get(p, f"10{str(p).translate(_SUPERSCRIPT)}")) for p in powers]


def tick_text(value: float) -> str:
    """The label of a tick, short enough for the margin.

    Examples
    --------
    >>> [tick_text(x) for x in (0.25, -1500.0, 200000.0, 2500000.0, 1e-5)]
    ['0.25', '−1,500', '200k', '2.5M', '1e−5']
    """
    size = abs(value)
    if 1e5 <= size < 1e9:
        unit, mark = (1e6, "M") if size >= 1e6 else (1e3, "k")
        return f"{value / unit:.4g}{mark}".replace("-", MINUS)
    if size and (size < 1e-3 or size >= 1e9):
        return number(value, 3)
    return f"{value:,.10g}".replace("-", MINUS)


@dataclass
class Drawing:
    """An SVG in the making; ``name`` makes the ids of its title unique on the page."""

    name: str
    title: str
    description: str
    height: float
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.parts.append(f'<line class="{style}" x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}"/>')

    def dot(self, x: float, y: float, radius: float, style: str, tip: str = "") -> None:
        self.parts.append(_tipped("circle", f'class="{style}" cx="{_at(x)}" cy="{_at(y)}" r="{_at(radius)}"', tip))

    def box(self, x: float, y: float, width: float, height: float, style: str, tip: str = "") -> None:
        place = f'class="{style}" x="{_at(x)}" y="{_at(y)}" width="{_at(width)}" height="{_at(height)}"'
        self.parts.append(_tipped("rect", place, tip))

    def curve(self, points: Iterable[tuple[float, float]], style: str) -> None:
        path = " ".join(f"{_at(x)},{_at(y)}" for x, y in points)
        self.parts.append(f'<polyline class="{style}" points="{path}"/>')

    def area(self, points: Iterable[tuple[float, float]], style: str) -> None:
        path = " ".join(f"{_at(x)},{_at(y)}" for x, y in points)
        self.parts.append(f'<polygon class="{style}" points="{path}"/>')

    def text(self, x: float, y: float, text: str, style: str = "tick", anchor: str = "middle") -> None:
        self.parts.append(
            f'<text class="{style}" x="{_at(x)}" y="{_at(y)}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def x_axis(self, scale: Scale, y: float, ticks: Sequence[tuple[float, str]], label: str, top: float) -> None:
        """Ticks with faint lines up to ``top``, and the label below."""
        for value, text in ticks:
            self.line(scale(value), top, scale(value), y, "grid")
            self.text(scale(value), y + 15, text)
        self.line(scale.start, y, scale.end, y, "axis")
        self.text((scale.start + scale.end) / 2, y + 32, label, "label")

    def y_axis(self, scale: Scale, x: float, label: str, right: float, most: int = 4, *, whole: bool = False) -> None:
        """Ticks with faint lines to ``right``; the label stands above the axis, where it reads without turning."""
        ticks = nice_ticks(scale.low, scale.high, most)
        while whole and most > 1 and any(v != round(v) for v in ticks):
            most -= 1
            ticks = nice_ticks(scale.low, scale.high, most)
        for value in ticks:
            self.line(x, scale(value), right, scale(value), "grid")
            self.text(x - 6, scale(value) + 4, tick_text(value), "tick", "end")
        self.text(4, 12, label, "label", "start")

    def svg(self) -> str:
        """The drawing, with a title and a description for those who cannot see it."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {_at(self.height)}" role="img" aria-labelledby="{self.name}-t {self.name}-d">'
            f'<title id="{self.name}-t">{escape(self.title)}</title>'
            f'<desc id="{self.name}-d">{escape(self.description)}</desc>{"".join(self.parts)}</svg>'
        )


def plain_ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Round numbers with their labels."""
    return [(value, tick_text(value)) for value in nice_ticks(low, high, most)]


def _at(value: float) -> str:
    """A place with a tenth of a unit: finer cannot be seen, and more digits make the page larger."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _tipped(tag: str, attributes: str, tip: str) -> str:
    return f"<{tag} {attributes}><title>{escape(tip)}</title></{tag}>" if tip else f"<{tag} {attributes}/>"
