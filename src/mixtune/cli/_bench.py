"""``mixtune bench``: ours against what people would use instead, on real data, with one command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from mixtune.bench import (
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
from mixtune.cli import _reading as reading
from mixtune.cli._outputs import check_outputs
from mixtune.errors import ParameterError
from mixtune.report.files import write_csv

__all__ = ["bench_app"]

bench_app = typer.Typer(help="Compare with what people would use instead, on real data.", no_args_is_help=True)


@bench_app.callback()
def _bench() -> None:
    """Compare with what people would use instead, on real data."""


@bench_app.command()
def transfer(
    problem: Annotated[list[str], typer.Option(help=f"{', '.join(PROBLEMS)} or all; may be repeated.")] = ["exam"],  # noqa: B006
    variant: Annotated[list[str], typer.Option(help=f"{', '.join(VARIANTS)} or all; may be repeated.")] = ["clean"],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="Cases of each focal domain.", min=1)] = 3,
    methods: Annotated[
        str | None,
        typer.Option(help="Names with commas between; by default all that are installed.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write every single case to this CSV file.", show_default=False)
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of texts and their features, for vader; the user's by default.", show_default=False),
    ] = None,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
) -> None:
    """Learn a small dataset with the help of others, by every method there is here.

    exam: 20 pupils of a school, 64 other schools. ames: 20 house sales of a
    neighbourhood, 23 others. vader: 50 rated texts of one kind, three other
    kinds, behind a frozen sentence encoder. In the variant flip half of the
    sources lie: their targets are reflected about their means.

    Methods: mixtune (with its defaults), focal (a ridge on the focal rows
    alone, the yardstick), pooled, detected, stacked; and where their packages
    are installed statsmodels, gpboost, sklego, skada, adapt-regular,
    adapt-balanced, adapt-augmented.

    Exit code 0: all went well; 1: a method failed on a case; 2: the command
    or the data cannot be used.

    Examples:

    mixtune bench transfer --problem exam --variant clean --seeds 3

    mixtune bench transfer --problem exam --problem ames --variant all --methods mixtune,pooled --out cases.csv
    """
    chosen = _choose("problem", problem, PROBLEMS)
    variants = _choose("variant", variant, VARIANTS)
    wanted = (
        available_methods() if methods is None else methods_named([n.strip() for n in methods.split(",") if n.strip()])
    )
    if not wanted:
        raise ParameterError("--methods names none; leave it out to run all that are installed")
    check_outputs({"--out": out}, force=force, endings={"--out": (".csv",)})
    console = Console(stderr=as_json, highlight=False)
    loaded = [named_problem(name, cache=None if cache is None else str(cache), progress=True) for name in chosen]
    results = _run(console, loaded, variants, seeds, wanted)
    summaries = summarise(results)
    if out is not None:
        write_csv(out, [{**asdict(result), "ratio": result.ratio} for result in results])
    absent = [method.name for method in known_methods() if method not in available_methods()]
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


def _choose(option: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in given:
        if name not in (*known, "all"):
            raise ParameterError(f"--{option} {name} is unknown; choose from {', '.join(known)} or all")
    return list(known) if "all" in given else list(dict.fromkeys(given))


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
        for summary in rows:
            for line in _remarks(summary):
                console.print(escape(line))
        narrow = set(methods) - set(suitable_methods(problem, methods))
        if narrow:
            names = ", ".join(method.name for method in methods if method in narrow)
            console.print(f"Not for {problem.domains.focal_domain.n_columns} columns, so not run: {names}.")
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
        table.add_row(
            row.title, _number(row.relative_rmse), _number(row.worst_ratio), f"{row.seconds:.3f}", style=style
        )
    return table


def _number(value: float | None) -> str:
    return "failed" if value is None else f"{value:.3f}"


def _remarks(summary: Summary) -> list[str]:
    lines: list[Any] = []
    if summary.coverage is not None:
        lines.append(f"{summary.method}: {COVERAGE:.0%} intervals cover {summary.coverage:.1%} of the test rows.")
    if summary.failures:
        lines.append(f"{summary.method} failed on {summary.failures} of {summary.cases} cases: {summary.failure}")
    return lines
