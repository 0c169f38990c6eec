"""Put results of `python -m benchmarks ablation --out cases.csv` on the page: python -m docs.constants [cases.csv]

A given file is first kept in docs/results/ablation.csv. The text between `<!-- table -->` and `<!-- end table -->` is
replaced.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import fields
from pathlib import Path

from benchmarks.ablation import OF_COST, OF_OTHER_FITS, read, summary

from mixtune.choice import SETTINGS

PAGE = Path(__file__).with_name("constants.md")
RESULTS = Path(__file__).parent / "results" / "ablation.csv"


def table() -> str:
    """One line for every constant, and one for every family of candidates and feature map."""
    found = {name: (change, error) for name, change, error, _ in summary(read(RESULTS))}
    lines = ["| constant | value | halved | doubled |", "|---|---|---|---|"]
    for field in fields(SETTINGS):
        value = getattr(SETTINGS, field.name)
        if field.name in (*OF_COST, *OF_OTHER_FITS) or isinstance(value, dict):
            continue
        both = [_cell(found.get(f"{field.name} {word}")) for word in ("halved", "doubled")]
        lines.append(f"| `{field.name}` | {_shown(value)} | {both[0]} | {both[1]} |")
    lines += ["", "| left out | change |", "|---|---|"]
    lines += [f"| {name.removeprefix('without ')} | {_cell(found[name])} |" for name in found if "without" in name]
    return "\n".join(lines)


def _cell(found: tuple[float, float] | None) -> str:
    return "-" if found is None else f"{found[0]:+.2f}% (± {found[1]:.2f})"


def _shown(value: object) -> str:
    if hasattr(value, "tolist"):
        return f"{len(value)} from {value[0]:.3g} to {value[-1]:.3g}"  # type: ignore[arg-type, index]
    return ", ".join(f"{each:g}" for each in value) if isinstance(value, tuple) else f"{value:g}"


def rendered(text: str) -> str:
    """The page with the present table."""
    made = f"<!-- table -->\n\n{table()}\n\n<!-- end table -->"
    return re.sub(r"<!-- table -->.*<!-- end table -->", lambda _: made, text, flags=re.DOTALL)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shutil.copyfile(sys.argv[1], RESULTS)
    PAGE.write_text(rendered(PAGE.read_text()))
