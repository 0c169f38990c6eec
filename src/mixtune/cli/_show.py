"""Tables, notes and progress as the terminal shows them, within 80 columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mixtune._messages import Note
from mixtune.cli._words import safe

__all__ = [
    "aligned",
    "comparison_table",
    "domains_table",
    "output",
    "progress_bar",
    "show_lines",
    "show_model",
    "table",
]

#: So many domains are shown; --json gives all.
MOST_DOMAINS = 12


def output(*, stderr: bool = False) -> Console:
    """Make a console that colours only what it is told to."""
    return Console(stderr=stderr, highlight=False)


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error that is gone in the end; call what it gives with what is done next."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = output(stderr=True)
    # A file or a pipe has no use for a bar.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total, completed=-1, visible=False)

        def step(description: str) -> None:
            progress.update(task, description=safe(description), advance=1, visible=True)

        yield step


def aligned(values: Sequence[float | None], digits: int = 4) -> list[str]:
    """Write numbers with the same decimals, so many digits for the largest; a dash where there is none.

    Examples
    --------
    >>> aligned([0.5, 12.3456, None])
    ['0.50', '12.35', '-']
    >>> aligned([1234567.0, 3.2]), aligned([1.5e-9])
    (['1,234,567', '3'], ['1.500e-09'])
    """
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    largest = max(known, default=0.0)
    places = math.floor(math.log10(largest)) if largest > 0 else 0
    form = f",.{max(digits - 1 - places, 0)}f" if -4 <= places <= 12 else f".{digits - 1}e"
    return ["-" if value is None or not math.isfinite(value) else f"{value:{form}}" for value in values]


def table(title: str, *columns: str, left: int = 1) -> Table:
    """Make an empty table: the first ``left`` columns hold words, the others numbers."""
    made = Table(
        title=safe(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for index, column in enumerate(columns):
        if index == 0:
            made.add_column(column, overflow="ellipsis", no_wrap=True, max_width=30)
        else:
            made.add_column(column, justify="left" if index < left else "right")
    return made


def domains_table(domains: Sequence[Mapping[str, Any]]) -> Table:
    """The focal domain and the sources that count most, with the columns that are known."""
    shown, hidden = domains[:MOST_DOMAINS], domains[MOST_DOMAINS:]
    titles = {"weight": "weight", "rows": "rows", "rmse": "own error", "change": "without it"}
    known = [key for key in titles if any(domain.get(key) is not None for domain in domains)]
    cells = {key: _domain_cells(key, [domain.get(key) for domain in shown]) for key in known}
    made = table("Which domains count", "domain", *(titles[key] for key in known))
    for index, domain in enumerate(shown):
        focal = bool(domain.get("focal"))
        name = safe(domain["name"]) + (" (focal)" if focal else "")
        made.add_row(name, *(cells[key][index] for key in known), style="bold" if focal else "")
    if hidden:
        sums = {key: sum(domain.get(key) or 0 for domain in hidden) for key in known if key in ("weight", "rows")}
        rest = (_domain_cells(key, [sums[key]])[0] if key in sums else "" for key in known)
        made.add_row(f"{len(hidden)} more", *rest, style="dim")
    return made


def _domain_cells(key: str, values: Sequence[Any]) -> list[str]:
    # Among many sources each changes little, and more digits would only be noise.
    small = key == "change" and max((abs(value) for value in values if value is not None), default=0.0) < 0.01
    if key == "change":
        return [_signed(value, 2 if small else 1) for value in values]
    forms = {"weight": "{:.1%}", "rows": "{:,}"}
    if key not in forms:
        return aligned(values)
    return ["-" if value is None else forms[key].format(value) for value in values]


def _signed(part: float | None, digits: int) -> str:
    """A change in percent; one that rounds to nothing has no direction.

    Examples
    --------
    >>> _signed(0.012, 1), _signed(-0.00001, 2), _signed(None, 1)
    ('+1.2%', '0.00%', '-')
    """
    if part is None:
        return "-"
    text = f"{part:+.{digits}%}"
    return text if float(text.rstrip("%")) else text[1:]


def comparison_table(title: str, error: str, against: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row a method: its error with its standard error, and a ratio with its interval."""
    made = table(title, "method", error, "std. error", against, "95% interval")
    known = [row["error"] for row in rows if row["error"] is not None]
    errors, spreads = aligned([row["error"] for row in rows]), aligned([row["standard_error"] for row in rows], 2)
    for row, shown, spread in zip(rows, errors, spreads):
        best = row["error"] is not None and row["error"] == min(known)
        name = "failed" if row.get("failures") else shown
        made.add_row(safe(row["method"]), name, spread, *_ratio_cells(row), style="bold green" if best else "")
    return made


def _ratio_cells(row: Mapping[str, Any]) -> tuple[str, str]:
    values = [row["ratio"], row["ratio_low"], row["ratio_high"]]
    # Against itself there is nothing to tell.
    if any(value is None or not math.isfinite(value) for value in values) or values[1] == values[2]:
        return "", ""
    ratio, low, high = (f"{value:.3f}" if value < 100 else f"{value:.3g}" for value in values)
    return ratio, f"{low} to {high}"


def show_lines(console: Console, title: str, lines: Sequence[str]) -> None:
    """A list of remarks under a title; nothing where there are none."""
    if not lines:
        return
    console.print(f"[bold]{safe(title)}[/]")
    grid = Table.grid(padding=(0, 1))
    for line in lines:
        grid.add_row(" -", safe(line.render("terminal") if isinstance(line, Note) else line))
    console.print(grid)
    console.print()


def show_model(console: Console, facts: Mapping[str, Any], *, classes: bool, left_out: bool = True) -> None:
    """Which domains count and, with ``left_out``, ours against the alternatives on left-out focal rows."""
    console.print(domains_table(facts["domains"]))
    known = {key for domain in facts["domains"] for key in domain}
    scores = " of the class scores" if classes else ""
    meanings = {
        "rmse": f"Own error: RMSE{scores} on the focal rows of a fit to that domain alone (of the focal one itself, "
        "with each row left out).",
        "change": "Without it: what leaving that source out would do to our error.",
    }
    if lines := [text for key, text in meanings.items() if key in known]:
        console.print("\n" + " ".join(lines))
    console.print()
    if facts["comparison"] and left_out and len(facts["domains"]) > 1:
        rows = [{**row, "error": row["rmse"]} for row in facts["comparison"]]
        title = f"Error{scores}, each focal row left out in turn"
        console.print(comparison_table(title, "RMSE", "ours / it", rows))
        console.print()
