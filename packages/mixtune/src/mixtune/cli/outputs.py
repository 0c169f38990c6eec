"""What commands give back: text and tables within 80 columns, one JSON object, and files.

Files are checked before the work and written whole or not at all. Nothing that comes from data can act on the terminal.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mixtune._messages import Note
from mixtune.errors import DataError, ParameterError
from mixtune.files import write_atomically
from mixtune.report.wording import METHOD_NAMES, MINUS, clean, column, measure_columns, percent_column, shorten

if TYPE_CHECKING:
    from mixtune.estimators import ColumnEffect
    from mixtune.report.facts import DomainFact, Facts, MethodFact
    from mixtune.report.verdict import Verdict

#: So many domains are shown; --json gives all.
MOST_DOMAINS = 12
#: So many effects of columns are shown; --json gives all.
MOST_EFFECTS = 15
#: Options of ``mixtune compare`` that ``mixtune fit`` does not have, or has for something else.
_ONLY_COMPARE = ("--folds", "--repeats", "--out")
#: So many candidates are in the JSON.
MOST_CANDIDATES = 5


def safe(text: Any) -> str:
    """Text in one line, with nothing in it that a terminal would act on.

    Examples
    --------
    >>> safe("[red]") == r"\\[red]", safe("a\\x1b[2Jb") == "a\ufffd[2Jb", safe("a name\\nwith a line break")
    (True, True, 'a name with a line break')
    """
    return escape(clean(" ".join(str(text).splitlines())))


def as_typed(note: str) -> str:
    """A note that names settings as they are typed on the command line."""
    return note.render("terminal") if isinstance(note, Note) else note


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


def _typed(texts: Sequence[str]) -> list[str]:
    """Numbers with the minus sign of the keyboard, so that they can be copied into other programs."""
    return [text.replace(MINUS, "-").replace("–", "-") for text in texts]


def table(title: str, *columns: str, left: int = 1) -> Table:
    """Make an empty table: the first ``left`` columns hold words, the others numbers."""
    made = Table(title=safe(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    made.show_edge = made.pad_edge = False
    made.add_column(columns[0], overflow="ellipsis", no_wrap=True, max_width=30)
    for index, name in enumerate(columns[1:], start=1):
        made.add_column(name, justify="left" if index < left else "right")
    return made


def show_lines(console: Console, title: str, lines: Sequence[str]) -> None:
    """A list of remarks under a title; nothing where there are none."""
    grid = Table.grid(padding=(0, 1))
    for line in lines:
        grid.add_row(" -", safe(as_typed(line)))
    if lines:
        console.print(f"[bold]{safe(title)}[/]", grid, "", sep="\n")


def show_verdict(console: Console, verdict: Verdict, command: str = "") -> None:
    """The verdict, the evidence, what to do next, and the command for it."""
    console.print(f"[bold]{safe(verdict.sentence)}[/]\n")
    advice = f"What to do next: {verdict.advice}" if verdict.advice else ""
    for text in filter(None, (*verdict.evidence[:1], advice)):
        console.print(f"{safe(text)}\n")
    if command:
        console.print(f"  {safe(command)}\n", soft_wrap=True)


def fit_command(settings: Mapping[str, Any], arguments: Sequence[str] | None = None) -> str:
    """The command ``mixtune fit`` with other settings, made of what was typed; "" where nothing is to be changed.

    Parameters
    ----------
    settings
        By their names in Python.
    arguments
        What was typed after the name of the program: a fit or a comparison.

    Examples
    --------
    >>> typed = ["compare", "a b.csv", "--target", "y", "--repeats", "5", "--out=c.csv", "--json"]
    >>> fit_command({"method": "pooled"}, typed)
    "mixtune fit 'a b.csv' --target y --method pooled"
    >>> fit_command({"exclude": ["x y"]}, ["fit", "a.csv", "--target", "y", "--exclude", "b", "--out", "m.mixtune"])
    "mixtune fit a.csv --target y --exclude b --out m.mixtune --force --exclude 'x y'"
    """
    from mixtune.cli._app import corrected_command

    if not settings:
        return ""
    typed, left = ["fit"], list(sys.argv[1:] if arguments is None else arguments)[1:]
    compared = (sys.argv[1:] if arguments is None else arguments)[:1] == ["compare"]
    while left:
        word = left.pop(0)
        name = word.split("=")[0]
        if word == "--json" or (compared and name in _ONLY_COMPARE):
            if name in _ONLY_COMPARE and "=" not in word:
                left.pop(0)
            continue
        typed.append(word)
    if any(word.split("=")[0] in ("--out", "--report") for word in typed) and "--force" not in typed:
        typed.append("--force")
    # Datasets that are left out already stay so.
    added = [f"--exclude {shlex.quote(name)}" for name in settings.get("exclude", ())]
    chosen = {name: value for name, value in settings.items() if name != "exclude"}
    return " ".join([corrected_command(typed, chosen) or shlex.join(["mixtune", *typed]), *added])


def show_model(console: Console, facts: Facts, *, classes: bool, left_out: bool = True) -> None:
    """What carries the prediction and, with ``left_out``, how the model compares with simpler ones on left-out rows."""
    if facts.carried:
        console.print(f"{safe(facts.carried)}\n")
    scores = " of the class scores" if classes else ""
    meanings = {
        "own error": f"Own error: RMSE{scores} on the focal rows of a fit to that domain alone (of the focal one "
        "itself, on rows that the fit has not seen).",
        "without it": "Without it: what leaving that source out would do to the error of mixtune.",
    }
    cells = _domain_cells((facts.focal, *facts.sources[: MOST_DOMAINS - 1]))
    made = table("Which domains count", *cells)
    for index, row in enumerate(zip(*cells.values())):
        made.add_row(*row, style="" if index else "bold")
    if hidden := facts.sources[MOST_DOMAINS - 1 :]:
        sums = {
            "domain": f"{len(hidden)} more",
            "weight": f"{sum(source.weight or 0.0 for source in hidden):.1%}",
            "rows": f"{sum(source.rows for source in hidden):,}",
        }
        made.add_row(*(sums.get(name, "") for name in cells), style="dim")
    console.print(made)
    if lines := [text for name, text in meanings.items() if name in cells]:
        console.print("\n" + " ".join(lines))
    console.print()
    if facts.compared and left_out and facts.sources:
        title = f'Errors on {facts.focal.rows:,} unseen rows of "{facts.focal.name}"'
        show_comparison(console, title, facts.compared, facts.metric)


def _domain_cells(domains: Sequence[DomainFact]) -> dict[str, list[str]]:
    """The columns of the table of domains, those that are known."""
    names = [safe(each.name) for each in domains]
    columns = {
        "domain": [f"{names[0]} (focal)", *names[1:]],
        "weight": _typed(percent_column([each.weight for each in domains])),
        "rows": [f"{each.rows:,}" if each.rows else "-" for each in domains],
        "own error": _typed(column([each.own_error for each in domains], 4)),
        "without it": _typed(percent_column([each.change for each in domains], signed=True)),
    }
    return {name: cells for name, cells in columns.items() if set(cells) != {"-"}}


def show_comparison(
    console: Console, title: str, rows: Sequence[MethodFact], metric: str, *, every: bool = False
) -> None:
    """The table of methods, and what they are: of a focal domain, or of ``every`` one."""
    same = "Own rows alone: the same model without the sources. Pooled: the same model, all rows as if of one domain."
    ridges = "The others are ridge regressions: one for each domain, and one for all rows."
    console.print(_comparison_table(title, rows))
    console.print(
        f"\nmixtune / it: {metric} of mixtune relative to that method, with a 95% interval; below 1 mixtune is better. "
        f"{ridges if every else same}\n"
    )


def _comparison_table(title: str, rows: Sequence[MethodFact]) -> Table:
    """One row per method: what is known of its predictions, and a ratio of errors with its interval."""
    cells = {name: _typed(values) for name, values in measure_columns(rows, digits=4).items()}
    made = table(title, "method", *cells, "mixtune / it", "95% interval")
    best = min((row.error for row in rows if row.error is not None), default=None)
    for place, row in enumerate(rows):
        ends: list[Any] = [row.ratio, row.ratio_low, row.ratio_high]
        ratio = interval = ""
        # Against itself there is nothing to tell.
        if all(end is not None and math.isfinite(end) for end in ends) and ends[1] != ends[2]:
            ratio, low, high = (f"{end:.2f}" if end < 100 else f"{end:.3g}" for end in ends)
            interval = f"{low} to {high}"
        shown = [column[place] for column in cells.values()]
        if row.error is None:
            shown[:1] = ["failed"]
        style = "bold green" if best is not None and row.error == best else ""
        made.add_row(safe(METHOD_NAMES.get(row.method, row.method)), *shown, ratio, interval, style=style)
    return made


def error_table(title: str, names: Mapping[str, str], errors: Mapping[str, float]) -> Table:
    """One row for each method, with its error in percent; the best is marked."""
    made = table(title, "method", "error")
    for name, shown in names.items():
        style = "bold green" if errors[name] == min(errors.values()) else ""
        made.add_row(safe(shown), f"{100 * errors[name]:.1f}%", style=style)
    return made


def facts_document(facts: Facts) -> dict[str, Any]:
    """The facts about a model, as commands print them in JSON; what is not known of a domain is left out."""

    from mixtune.report.facts import rmse

    def picked(fact: Any, *names: str) -> dict[str, Any]:
        return {name: getattr(fact, name) for name in names}

    return {
        "domains": [_domain_document(each, facts) for each in (facts.focal, *facts.sources)],
        "metric": facts.metric,
        "comparison": [flat_method(each) for each in facts.compared],
        "transfer_gain": None if facts.gain is None else dict(zip(("reduction", "low", "high"), facts.gain)),
        "loo_rmse": facts.error,
        "effective_ridge": facts.effective_ridge,
        "bound": None if facts.bound is None else {**asdict(facts.bound), "total": facts.bound.total},
        "carried_by": facts.carried or None,
        "maps": [
            {
                **picked(each, "name", "share"),
                "features": each.n_features,
                "validation_error": rmse(each.validation_error),
                "loo_rmse": rmse(each.loo_error),
            }
            for each in facts.maps
        ],
        "candidates": [picked(each, "family", "share", "settings") for each in facts.candidates[:MOST_CANDIDATES]],
        "notes": facts.notes,
    }


def show_effects(console: Console, effects: Sequence[ColumnEffect], *, classes: bool) -> None:
    """Which columns drive the prediction."""
    shown = [each for each in effects if each.output == effects[0].output]
    made = table(
        "Which columns drive the prediction", "column", "from", "to", "change", "95% interval", "others", left=3
    )
    first, many = shown[:MOST_EFFECTS], len(shown) - MOST_EFFECTS
    write = percent_column if classes else column
    texts = [_typed(write([getattr(each, name) for each in first])) for name in ("effect", "low", "high", "sources")]
    for each, effect, low, high, others in zip(first, *texts):
        ends = [end if isinstance(end, str) else f"{end:.4g}" for end in (each.start, each.end)]
        interval = "" if each.low is None else f"{low} to {high}"
        made.add_row(*(safe(shorten(text, 22)) for text in (each.column, *ends)), effect, interval, others)
    console.print(made)
    what = f"the probability of {safe(shown[0].output)}" if classes else "the prediction"
    more = f" {many} smaller ones are in --json." if many > 0 else ""
    console.print(
        f"\nChange: of {what}, on average over the focal rows, when the column alone goes from one value to the other. "
        f"Others: the same in the sources' own models.{more}\n"
    )


def domains_document(model: Any) -> dict[str, Any]:
    """The summary of a model of every domain, for JSON."""
    columns = {name: np.asarray(values).tolist() for name, values in model.summary_columns().items()}
    return {"domains": [dict(zip(columns, row)) for row in zip(*columns.values())]}


def show_domains(console: Any, model: Any) -> None:
    """Where learning together helps, and one line for each domain."""
    from mixtune.report import every_verdict

    for sentence in every_verdict(model):
        console.print(f"{_typed([sentence])[0]}\n")
    rows = domains_document(model)["domains"]
    right = ["right"] * ("right" in rows[0])
    heads = ("domain", "rows", *right, "error", "own rows alone", "pooled", "gain", "borrows from")
    made = table("Domains", *heads)
    named = ("error", "error_own_rows", "error_pooled")
    errors = zip(*(_typed(column([row[name] for row in rows], 4)) for name in named))
    for row, shown in zip(rows, errors, strict=True):
        numbers = [f"{row['rows']:,}", *(f"{row[name]:.0%}" for name in right), *shown]
        made.add_row(safe(row["domain"]), *numbers, f"{row['gain']:.0%}", safe(row["borrows_from"]))
    console.print(made, "", sep="\n")
    if right:
        console.print("Errors are those of class scores, +1 for the class and -1 for any other.\n")


def write_model(
    model: Any,
    rows: Mapping[str, int],
    paths: Mapping[str, Path | None],
    *,
    title: str,
    settings: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the files of a fitted model, and give the verdict and the facts about it for JSON.

    Parameters
    ----------
    model
        A fitted estimator.
    rows
        The number of rows of each domain.
    paths
        Where the "model" and its "report" go; None for neither.
    title, settings
        Of the report.
    metadata
        What the file of the model says beside the verdict.
    """
    from mixtune.report import give_verdict, model_facts, page_html

    facts = model_facts(model, rows)
    verdict = give_verdict(facts).sentence
    if (path := paths["model"]) is not None:
        model.save(path, metadata=plain({**metadata, "verdict": verdict, "rows": rows}))
    if (path := paths["report"]) is not None:
        # What the advice asks for is no setting of these models.
        write_file(path, page_html(facts, title=title, settings=settings, advice="").encode())
    return {"verdict": verdict, **facts_document(facts), "written": dict(paths)}


def show_written(console: Console, written: Mapping[str, Path | None]) -> None:
    """Name the files that were written."""
    for name, path in written.items():
        if path is not None:
            console.print(f"Wrote the {name} to {safe(path)}", soft_wrap=True)


def made_now(files: Sequence[Path]) -> dict[str, Any]:
    """When a page is made, from which files and by which command, as the page shows it; folders stay private."""
    command = shlex.join(["mixtune", *private_words()])
    inputs = [path.name for path in files]
    shown = [*inputs[:5], *([f"{len(inputs) - 5} more"] if len(inputs) > 5 else [])]
    date = datetime.datetime.now().astimezone().strftime("%d %B %Y, %H:%M")
    return {"date": date, "inputs": shown, "command": command}


def private_words() -> list[str]:
    """What was typed after the name of the program, without folders."""
    words = []
    for word in sys.argv[1:]:
        option, mark, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
        words.append(f"{option}{mark}{Path(value).name if os.sep in value else value}")
    return words


def flat_method(method: Any) -> dict[str, Any]:
    """A method of a comparison in one row: the measures that apply stand beside the other numbers."""
    row = asdict(method)
    measures = row.pop("measures") or {}
    return row | measures


def _domain_document(domain: DomainFact, facts: Facts) -> dict[str, Any]:
    # An error that is not finite is null where other domains have one.
    keep = {"rmse"} if any(source.own_error is not None for source in facts.sources) else set()
    known = {"weight": domain.weight, "rows": domain.rows or None, "rmse": domain.own_error, "change": domain.change}
    known = {key: value for key, value in known.items() if value is not None or key in keep}
    return {"name": domain.name, "focal": domain is facts.focal, **known}


def plain(value: Any) -> Any:
    """Turn into what JSON can hold; a number that is not finite becomes null, notes name settings as typed.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(3), None)})
    {'a': [1.0, None], 'b': [3, None]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Note):
        return as_typed(value)
    return str(value) if isinstance(value, Path) else value


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object to standard output."""
    typer.echo(json.dumps(plain(document), indent=2, allow_nan=False))


def check_outputs(
    outputs: Mapping[str, Path | None], *, force: bool, inputs: Sequence[Path] = (), endings: tuple[str, ...] = ("",)
) -> None:
    """Refuse, before any work, a path that could not be written in the end.

    Parameters
    ----------
    outputs
        Paths by the option that gives them; None where it was not given.
    force
        Whether files that exist may be replaced.
    inputs
        Files that are read, which are never replaced.
    endings
        How names must end, except that of a report, which ends in .html.

    Examples
    --------
    >>> check_outputs({"--out": Path("no/such/folder/model.mixtune")}, force=False)
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: --out: there is no folder no/such/folder; make it first
    """
    seen: dict[Path, str] = {path.resolve(): "an input" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        allowed, other = (".html",) if option == "--report" else endings, seen.get(path.resolve())
        checks = (
            (path.is_dir(), f"{path} is a folder; give the name of a file in it"),
            (not path.name.lower().endswith(allowed), f"{path} must end in {' or '.join(allowed)}{_printing(path)}"),
            (not path.parent.is_dir(), f"there is no folder {path.parent}; make it first"),
            (other is not None, f"{path} is also {other}; give another name"),
            (path.exists() and not force, f"{path} exists; give another name, or --force to replace it"),
            (not os.access(path.parent, os.W_OK), f"the folder {path.parent} cannot be written to; choose another"),
        )
        for failed, message in checks:
            if failed:
                raise ParameterError(f"{option}: {message}")
        seen[path.resolve()] = option


def _printing(path: Path) -> str:
    """How a page becomes a PDF."""
    return "; open the page in a browser and print it to get a PDF" if path.suffix.lower() == ".pdf" else ""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say plainly where the disk refuses."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}; choose another folder") from error


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with writing(path):
        write_atomically(path, content)
