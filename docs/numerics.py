"""Put the measured errors on the numerics page: python -m docs.numerics

Replaces the text between `<!-- NAME -->` and `<!-- end NAME -->` by the table of NAME.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from benchmarks.precision import FACTOR, cases, gram_errors, narrow_errors

PAGE = Path(__file__).with_name("numerics.md")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def solutions() -> str:
    """Errors of whole solutions, against 80 digits."""
    head = ["situation", "condition", "coefficients", "heads", "predictions", "energy", f"{FACTOR:g} eps condition"]
    return table(
        head,
        (
            [name, *(f"{value:.0e}" for value in (e.condition, e.coef, e.heads, e.predictions, e.energy, e.bound))]
            for name, e in cases()
        ),
    )


def products() -> str:
    """Errors of U'U and what they do to coefficients."""
    rows = []
    for name in ("float64", "float32", "split"):
        found = narrow_errors(name)
        rows.append([f'`"{name}"`', f"{gram_errors(name):.0e}", f"{found.coef:.0e}"])
    return table(["precision", "error of U'U", "of coefficients at condition 1e4"], rows)


def fill(text: str, parts: dict[str, str]) -> str:
    """Write what belongs between the markers of the page."""
    for name, part in parts.items():
        block = f"<!-- {name} -->\n\n{part}\n\n<!-- end {name} -->"
        text, count = re.subn(f"<!-- {name} -->.*?<!-- end {name} -->", lambda _, b=block: b, text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE.name} must have the markers of {name} once; it has them {count} times")
    return text


if __name__ == "__main__":
    parts = {"solutions": solutions(), "products": products()}
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts), encoding="utf-8")
