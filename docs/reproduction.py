"""Put the results of `mixtune reproduce` on the reproduction page: python docs/reproduction.py results/

Replaces the text between `<!-- NAME -->` and `<!-- end NAME -->` by the table of NAME.csv, and copies the figures;
what is not in the folder stays as it was.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("reproduction.md")
TABLES = ("table1", "table1_beyond", "table2", "open-settings", "near-optimality", "bound", "early-stopping", "game")
TABLES += ("paper",)
FIGURES = ("figure1", "figure2", "layers", "robustness", "near-optimality", "bound", "early-stopping", "game")


def number(text: str) -> str:
    return f"{float(text):.3f}" if text else ""


def interval(row: dict[str, str], prefix: str) -> str:
    low, high = row[f"{prefix}ci_low"], row[f"{prefix}ci_high"]
    return f"[{number(low)}, {number(high)}]" if low else ""


def table(path: Path) -> str:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if "paper_rp" not in rows[0]:
        return plain_table(rows)
    if not any(row["paper_rp"] for row in rows):  # nothing published to compare with
        lines = ["| method | RP | 95% interval |", "|---|---|---|"]
        return "\n".join([*lines, *(f"| {r['method']} | {number(r['rp'])} | {interval(r, '')} |" for r in rows)])
    lines = ["| method | RP | 95% interval | paper | its interval | agrees |", "|---|---|---|---|---|---|"]
    agrees = {"True": "yes", "False": "**no**", "true": "yes", "false": "**no**", "yes": "yes", "no": "**no**"}
    for row in rows:
        cells = (
            row["method"],
            number(row["rp"]),
            interval(row, ""),
            number(row["paper_rp"]),
            interval(row, "paper_"),
            agrees.get(row["agrees"], ""),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plain_table(rows: list[dict[str, str]]) -> str:
    """All columns as they are, numbers with four digits; names of the package and commands in code."""

    def cell(column: str, text: str) -> str:
        if column in ("where", "command"):
            return f"`{text}`" if text else ""
        try:
            return f"{float(text):.4g}"
        except ValueError:
            return text.replace("|", "\\|")

    heads = [column.replace("_", " ") for column in rows[0]]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join(lines + [f"| {' | '.join(cell(*pair) for pair in row.items())} |" for row in rows])


def main(results: Path) -> None:
    text = PAGE.read_text()
    tables = [name for name in TABLES if (results / f"{name}.csv").exists()]
    figures = [name for name in FIGURES if (results / f"{name}.png").exists()]
    if not tables + figures:
        raise SystemExit(f"{results} holds no results; run mixtune reproduce all --out {results}")
    for name in tables:
        block = f"<!-- {name} -->\n\n{table(results / f'{name}.csv')}\n\n<!-- end {name} -->"
        text = re.sub(f"<!-- {name} -->.*?<!-- end {name} -->", lambda _, b=block: b, text, flags=re.DOTALL)
    PAGE.write_text(text)
    target = PAGE.parent / "results"
    target.mkdir(exist_ok=True)
    for name in figures:
        shutil.copyfile(results / f"{name}.png", target / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
