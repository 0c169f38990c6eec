"""Tables of the page, with bars inside the cells; on a narrow screen every row becomes a small card."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mixtune.report.page._words import escape, shorten

__all__ = ["bar", "cell", "diverging_bar", "folded", "name_cell", "table"]

#: Of longer tables, so many rows are shown and the others are folded away.
LONGEST = 30
SHOWN = 15
#: Of longer names the middle is left out; the whole stands in the tooltip.
LONGEST_NAME = 80


def cell(text: str, label: str, *, style: str = "num") -> str:
    """A cell of escaped text; ``label`` names it where there are no column heads.

    Examples
    --------
    >>> cell("0.5", "weight")
    '<td class="num" data-label="weight">0.5</td>'
    """
    return f'<td class="{style}" data-label="{escape(label)}">{text}</td>'


def name_cell(name: str, *, below: str = "", mark: str = "") -> str:
    """The row's name, isolated so that its writing direction stays inside, with a remark and a mark."""
    badge = f' <span class="badge {escape(mark.split()[0])}">{escape(mark)}</span>' if mark else ""
    remark = f'<span class="why">{escape(below)}</span>' if below else ""
    whole = f' title="{escape(name)}"' if len(name) > LONGEST_NAME else ""
    return f'<th scope="row"><bdi{whole}>{escape(shorten(name, LONGEST_NAME))}</bdi>{badge}{remark}</th>'


def bar(part: float, text: str, *, style: str = "", tick: float | None = None) -> str:
    """A number over a bar that fills ``part`` of the cell; ``tick`` marks a place on it."""
    fill = f'<i style="width:{_width(part)}"></i>' if part > 0 else ""
    mark = "" if tick is None else f'<i class="at" style="left:{_width(tick)}"></i>'
    return (
        f'<span class="barred"><span class="figure">{escape(text)}</span>'
        f'<span class="track {style}">{fill}{mark}</span></span>'
    )


def diverging_bar(part: float, text: str, *, faint: bool = False) -> str:
    """A bar from the middle: to the right where ``part`` > 0; ``faint`` for what counts as nothing."""
    half = min(abs(part), 1.0) / 2
    left = 0.5 if part >= 0 else 0.5 - half
    style = "far" if faint else "up" if part > 0 else "down"
    return (
        f'<span class="barred"><span class="figure">{escape(text)}</span><span class="track both {style}">'
        f'<i style="left:{_width(left)};width:{_width(half)}"></i><i class="at" style="left:50%"></i></span></span>'
    )


def table(heads: Sequence[tuple[str, str]], rows: Sequence[str], *, caption: str) -> str:
    """A table; ``heads`` are (text, class), rows are made of cells."""
    top = "".join(f'<th scope="col" class="{style}">{escape(text)}</th>' for text, style in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<table><caption class="unseen">{escape(caption)}</caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def folded(
    heads: Sequence[tuple[str, str]], rows: Sequence[str], *, caption: str, summary: str, always: int = 0
) -> str:
    """A table that shows all rows, or of many the first ones, with the rest folded under ``summary``.

    ``always`` counts rows at the top, such as the focal one, that do not count against the limit.
    """
    if len(rows) - always <= LONGEST:
        return table(heads, rows, caption=caption)
    shown = SHOWN + always
    rest = table(heads, rows[shown:], caption=f"{caption}: the rest")
    shown_table = table(heads, rows[:shown], caption=caption)
    return f"{shown_table}<details><summary>{escape(summary)}</summary>{rest}</details>"


def _width(part: float) -> str:
    part = min(max(part, 0.0), 1.0) if math.isfinite(part) else 1.0
    return f"{100 * part:.1f}%"
