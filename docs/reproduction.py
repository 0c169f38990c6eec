"""Put the results of `mixtune reproduce` on the reproduction page: python docs/reproduction.py results/ [seed1/ ...]

Replaces the text between `<!-- NAME -->` and `<!-- end NAME -->` by the table of NAME.csv, and copies the figures;
what is not in the folder stays as it was. With folders of other seeds, the block `seeds` says how many rows of the
published tables agree from each.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from mixtune_paper import ResultsStore, word_for

PAGE = Path(__file__).with_name("reproduction.md")
TABLES = (
    "table1",
    "table1_ranges",
    "table1_claims",
    "table1_beyond",
    "table2",
    "table2_claims",
    "open-settings",
    "oracle",
    "near-optimality",
    "bound",
    "early-stopping",
    "game",
)
TABLES += ("paper",)
FIGURES = ("figure1", "figure2", "oracle", "layers", "robustness", "near-optimality", "bound", "early-stopping", "game")


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
    head = "claim | difference" if path.stem.endswith("_claims") else "method | RP"
    lines = [f"| {head} | 95% interval | paper | its interval | agrees | power |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = (
            row["method"],
            number(row["rp"]),
            interval(row, ""),
            number(row["paper_rp"]),
            interval(row, "paper_"),
            verdict(row),
            number(row["power"]),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict(row: dict[str, str]) -> str:
    """A verdict in a word; nothing where there is nothing to judge."""
    holds = {"True": True, "False": False}.get(row["agrees"])
    return word_for(holds, float(row["power"])) if row["power"] else ""


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


def agreement(folders: Sequence[Path]) -> str:
    """By table and base seed, how many published rows agree, and which do not."""
    rows = []
    for folder in folders:
        for name in ("table1", "table2"):
            if not (folder / f"{name}.csv").exists():
                continue
            with ResultsStore(folder) as store:
                held, runs = store.configuration(name), len(store.finished(name))
            with (folder / f"{name}.csv").open(newline="") as file:
                judged = [row for row in csv.DictReader(file) if row["power"]]
            odd = [row for row in judged if verdict(row) != "yes"]
            told = [f"{verdict(r)}: {r['method']} ({number(r['rp'])}, paper {number(r['paper_rp'])})" for r in odd]
            rows.append((name, held["seed"], runs, f"{len(judged) - len(odd)} of {len(judged)}", ", ".join(told)))
    lines = ["| table | base seed | runs | published rows that agree | others |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in sorted(rows))])


def main(results: Path, *others: Path) -> None:
    text = PAGE.read_text()
    tables = [name for name in TABLES if (results / f"{name}.csv").exists()]
    figures = [name for name in FIGURES if (results / f"{name}.png").exists()]
    if not tables + figures:
        raise SystemExit(f"{results} holds no results; run mixtune reproduce all --out {results}")
    blocks = {name: table(results / f"{name}.csv") for name in tables}
    if others:
        blocks["seeds"] = agreement([results, *others])
    for name, inner in blocks.items():
        block = f"<!-- {name} -->\n\n{inner}\n\n<!-- end {name} -->"
        text = re.sub(f"<!-- {name} -->.*?<!-- end {name} -->", lambda _, b=block: b, text, flags=re.DOTALL)
    PAGE.write_text(text)
    target = PAGE.parent / "results"
    target.mkdir(exist_ok=True)
    for name in figures:
        shutil.copyfile(results / f"{name}.png", target / f"{name}.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
