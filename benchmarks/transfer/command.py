"""``python -m benchmarks transfer``: mixtune against the alternatives, on real data, with one command."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.transfer import (
    COVERAGE,
    OURS,
    PROBLEMS,
    VARIANTS,
    YARDSTICK,
    Method,
    Problem,
    Result,
    Summary,
    available_methods,
    known_methods,
    methods_named,
    named_problem,
    run,
    suitable_methods,
    summarise,
)
from mixtune.errors import MixtuneError, ParameterError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def transfer(
    problem: Annotated[list[str], typer.Option(help=f"{', '.join(PROBLEMS)} or all; may be repeated.")] = ["exam"],  # noqa: B006
    variant: Annotated[list[str], typer.Option(help=f"{', '.join(VARIANTS)} or all; may be repeated.")] = ["clean"],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="Cases of each focal domain.", min=1)] = 3,
    methods: Annotated[
        str | None,
        typer.Option(help="Names separated by commas; by default all that are installed.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write every single case to this CSV file.", show_default=False)
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of texts and their features, for vader; the user's by default.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Learn a small dataset with the help of others, by every method that is installed.

    exam: 20 pupils of a school, 64 other schools. ames: 20 house sales of a
    neighbourhood, 23 others. vader: 50 rated texts of one kind, three other
    kinds, behind a frozen sentence encoder. In the variant flip half of the
    sources mislead: their targets are reflected about their means.

    Methods: mixtune (with its defaults), focal (a ridge on the focal rows
    alone, the yardstick), pooled, detected, stacked; and where their packages
    are installed statsmodels, gpboost, sklego, skada, adapt-regular,
    adapt-balanced, adapt-augmented.

    Exit code 0: all went well; 1: a method failed on a case; 2: the command
    or the data cannot be used.

    Examples:

    python -m benchmarks transfer --problem exam --variant clean --seeds 3

    python -m benchmarks transfer --problem exam --problem ames --variant all --methods mixtune,pooled --out cases.csv
    """
    chosen = _choose("problem", problem, PROBLEMS)
    variants = _choose("variant", variant, VARIANTS)
    wanted = (
        available_methods() if methods is None else methods_named([n.strip() for n in methods.split(",") if n.strip()])
    )
    if not wanted:
        raise ParameterError("--methods names none; leave it out to run all that are installed")
    _check_out(out, force=force)
    console = Console(stderr=as_json, highlight=False)
    loaded = [named_problem(name, cache=None if cache is None else str(cache), progress=True) for name in chosen]
    results = _run(console, loaded, variants, seeds, wanted)
    summaries = summarise(results)
    if out is not None:
        _write(out, results)
    absent = [method.name for method in known_methods() if not method.is_installed]
    if as_json:
        document = {"seeds": seeds, "coverage_level": COVERAGE, "summaries": [asdict(each) for each in summaries]}
        typer.echo(json.dumps({**document, "not_installed": absent}, indent=2, allow_nan=False))
    else:
        _show(console, loaded, summaries, wanted)
        if methods is None and absent:
            console.print(f"Not installed, so not run: {', '.join(absent)}.")
        if out is not None:
            console.print(f"Wrote {escape(str(out))}", soft_wrap=True)
    if any(summary.failures for summary in summaries):
        raise typer.Exit(1)


def main(arguments: Sequence[str]) -> None:
    """Run the command; a mistake of the user ends with one clear line and exit code 2."""
    try:
        app(list(arguments), prog_name="python -m benchmarks transfer")
    except MixtuneError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[bold red]Error:[/] {escape(str(error))}")
        sys.exit(2)


def _choose(option: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in given:
        if name not in (*known, "all"):
            raise ParameterError(f"--{option} {name} is unknown; choose from {', '.join(known)} or all")
    return list(known) if "all" in given else list(dict.fromkeys(given))


def _check_out(out: Path | None, *, force: bool) -> None:
    """Refuse, before any work, a file that could not be written in the end."""
    if out is None:
        return
    if out.is_dir():
        raise ParameterError(f"--out: {out} is a folder; give the name of a file in it")
    if out.suffix.lower() != ".csv":
        raise ParameterError(f"--out: {out} must end in .csv")
    if not out.parent.is_dir():
        raise ParameterError(f"--out: there is no folder {out.parent}; make it first")
    if out.exists() and not force:
        raise ParameterError(f"--out: {out} exists; give another name, or --force to replace it")


def _write(out: Path, results: Sequence[Result]) -> None:
    rows = [{**asdict(result), "ratio": result.ratio} for result in results]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _run(
    console: Console, problems: Sequence[Problem], variants: Sequence[str], seeds: int, methods: Sequence[Method]
) -> list[Result]:
    fits = {problem.name: len(suitable_methods(problem, methods)) * len(problem.focal) * seeds for problem in problems}
    for problem in problems:
        if not fits[problem.name]:
            raise ParameterError(
                f"none of the methods takes the {problem.domains.focal_domain.n_columns} columns of {problem.name}; "
                "name others, or other problems"
            )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    results: list[Result] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(variants) * sum(fits.values()))
        for problem in problems:
            for variant in variants:
                progress.update(task, description=f"{problem.name}, {variant}")
                results += run(
                    problem,
                    variant=variant,
                    seeds=range(seeds),
                    methods=methods,
                    progress=lambda _: progress.advance(task),
                )
    return results


def _show(
    console: Console, problems: Sequence[Problem], summaries: Sequence[Summary], methods: Sequence[Method]
) -> None:
    by_name = {problem.name: problem for problem in problems}
    for name, variant in dict.fromkeys((summary.problem, summary.variant) for summary in summaries):
        rows = [summary for summary in summaries if (summary.problem, summary.variant) == (name, variant)]
        problem = by_name[name]
        console.print(_table(f"{name}, {variant}: {problem.n_train} focal rows, {rows[0].cases} cases", rows))
        for row in rows:
            if row.coverage is not None:
                console.print(f"{row.method}: {COVERAGE:.0%} intervals cover {row.coverage:.1%} of the test rows.")
            if row.failures:
                failed = f"{row.method} failed on {row.failures} of {row.cases} cases: {row.failure}"
                console.print(escape(failed))
        suitable = suitable_methods(problem, methods)
        if narrow := [method.name for method in methods if method not in suitable]:
            columns = problem.domains.focal_domain.n_columns
            console.print(f"Not for {columns} columns, so not run: {', '.join(narrow)}.")
        console.print()
    console.print(
        "Relative RMSE: mean error over the cases, divided by that of a ridge on the focal rows alone. "
        "Worst case: the largest ratio of a single case."
    )


def _table(title: str, rows: Sequence[Summary]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("method")
    for column in ("relative RMSE", "worst case", "s per fit"):
        table.add_column(column, justify="right")
    known = [row.relative_rmse for row in rows if row.relative_rmse is not None]
    for row in rows:
        best = row.relative_rmse is not None and row.relative_rmse == min(known)
        style = "bold green" if best else "dim" if row.method == YARDSTICK else "bold" if row.method == OURS else ""
        figures = ("failed" if value is None else f"{value:.3f}" for value in (row.relative_rmse, row.worst_ratio))
        table.add_row(row.title, *figures, f"{row.seconds:.3f}", style=style)
    return table
