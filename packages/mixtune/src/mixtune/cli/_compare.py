"""``mixtune compare``: does transfer help? mixtune against the plain alternatives, on rows that no fit has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mixtune.cli import inputs as reading
from mixtune.cli import outputs
from mixtune.report.wording import METHOD_NAMES

_REPEATS_HELP = "How often to draw new folds; by default, until other draws would hardly change the intervals."


@reading.with_groups
def compare(
    files: reading.Files,
    table: reading.TableOptions,
    folds: Annotated[int, typer.Option(help="Folds of the focal rows.", min=2)] = 5,
    repeats: Annotated[int | None, typer.Option(help=_REPEATS_HELP, min=1)] = None,
    seed: reading.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this CSV file.")] = None,
    linear: reading.Linear = False,
    random_width: reading.RandomWidth = None,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
) -> None:
    """Compare mixtune with other methods, on focal rows that no fit has seen.

    Own rows alone: the same model without the sources. Pooled: the same model, all
    rows as if they were of one domain. Boosted trees: gradient boosting on all
    rows, with the domain as a category. Predict the mean: of the focal targets.
    All choose their settings inside the training folds (nested cross-validation);
    sources take part in every fit and are not tested on. The folds are drawn three
    to ten times, until other draws would hardly change the intervals, or as often
    as --repeats says; they do not depend on the order of the rows.

    With --all every domain is tested, in folds of all rows, against one ridge
    for each domain and one ridge on all rows, with and without the domain as a
    column.

    Exit code 0: done; 1: a method failed; 2: the command or the data cannot
    be used.

    Examples:

    mixtune compare data.csv --target y --domain site --focal berlin

    mixtune compare data.csv --target y --domain site --all

    mixtune compare focal.csv others/*.csv --target y --repeats 5 --out results.csv
    """
    import mixtune.estimators as estimators
    from mixtune.arrays import one_thread_if_small
    from mixtune.data import findings_of, read_training
    from mixtune.report import write_csv
    from mixtune.report.facts import LOG_LOSS, RMSE, MethodFact
    from mixtune.report.verdict import judged

    every = table.every
    reading.check_features(linear=linear, random_width=random_width)
    outputs.check_outputs({"--out": out}, force=force, inputs=files, endings=(".csv",))
    if every:
        reading.check_every(table.domain, {"--focal": table.focal, "--random-features": random_width})
    with outputs.progress_bar(1) as step:
        step("Reading")
        read = read_training(files, **table.reader_options(), every=every)
    classes = read.encoder.target.classes is not None
    metric = LOG_LOSS if classes else RMSE
    total = sum(each.n_rows for each in read.domains) if every else read.domains.focal_domain.n_rows
    cuts = min(folds, total)
    model = estimators.new_model(read.domains, classes=classes, linear=linear, random_width=random_width, seed=seed)
    methods = estimators.rivals(model, classes=classes)
    small = one_thread_if_small(each.X for each in read.domains)
    draws = repeats or estimators.MOST_REPEATS
    with small, outputs.progress_bar((4 if every else len(methods)) * cuts * draws + 1) as step:
        step("Comparing")
        how: dict[str, Any] = {"classes": classes, "folds": folds, "repeats": repeats, "seed": seed}
        how["progress"] = lambda _: step("Comparing")
        if every:
            kind = estimators.MultiDomainClassifier if classes else estimators.MultiDomainRegressor
            results = estimators.compare_every(read.domains, kind(None if linear else "auto", seed=seed), **how)
        else:
            results = estimators.compare_nested(read.domains, methods, **how)
    facts = [MethodFact.of(each) for each in results]
    verdict = judged(facts, total, metric=metric, every=every)
    command = "" if every else outputs.fit_command(verdict.settings)
    rows = [outputs.flat_method(each) for each in results]
    if out is not None:
        with outputs.writing(out):
            write_csv(out, [{name: cell for name, cell in row.items() if name != "reduction"} for row in rows])
    drawn = max(each.repeats for each in results)
    if as_json:
        about: dict[str, Any] = {"target": read.encoder.target.name, "metric": metric}
        about |= {"focal": None if every else read.domains.focal}
        about |= {"folds": folds, "repeats": drawn, "seed": seed, "verdict": verdict.sentence, "next": verdict.advice}
        about |= {"recommended": verdict.method or None, "command": command or None}
        outputs.print_json({**about, "methods": rows, "notes": read.notes, "written": out})
    else:
        console, findings = outputs.output(), findings_of(read.notes)
        outputs.show_lines(console, "Look at this first", findings)
        outputs.show_verdict(console, verdict, command)
        of = f"{len(list(read.domains)):,} domains" if every else f'"{read.domains.focal}"'
        outputs.show_comparison(console, f"Errors on {total:,} unseen rows of {of}", facts, metric, every=every)
        cut = f"{cuts} folds" + (f", drawn {drawn} times" if drawn > 1 else "")
        console.print(
            f"Nested cross-validation over {'all' if every else 'the focal'} rows, {cut}. Intervals assume that rows "
            "are independent.\n"
        )
        outputs.show_lines(console, "Notes", read.notes[len(findings) :])
        failed = [(METHOD_NAMES.get(each.method, each.method), each) for each in results if each.failures]
        told_failures = [f"{name} failed in {each.failures} fits: {each.failure}" for name, each in failed]
        outputs.show_lines(console, "Failures", told_failures)
        if out is not None:
            console.print(f"Wrote {outputs.safe(out)}", soft_wrap=True)
    if any(each.failures for each in results):
        raise typer.Exit(1)
