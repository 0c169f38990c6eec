"""``mixtune compare``: does transfer help? mixtune against the plain alternatives, on rows that no fit has seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixtune.cli import inputs as reading
from mixtune.cli import outputs
from mixtune.report.wording import METHOD_NAMES, percent

if TYPE_CHECKING:
    from mixtune.data import TrainingTables
    from mixtune.estimators import Compared

YARDSTICK = "own rows alone"


@reading.with_groups
def compare(
    files: reading.Files,
    table: reading.TableOptions,
    folds: Annotated[int, typer.Option(help="Folds of the focal rows.", min=2)] = 5,
    repeats: Annotated[int, typer.Option(help="Number of repetitions, each with new folds.", min=1)] = 1,
    seed: reading.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this CSV file.")] = None,
    linear: reading.Linear = False,
    random_width: reading.RandomWidth = None,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
) -> None:
    """Compare mixtune with other methods, on focal rows that no fit has seen.

    own rows alone: a ridge on the focal rows; pooled: a ridge on all rows; mean
    of local models: the mean of one ridge per domain. These are linear in the
    columns, or use the random features of --random-features; mixtune also has
    curves that are learned from the rows, unless --linear is given. Boosted
    trees: gradient boosting on all rows, with the domain as a category. Predict
    the mean: of the focal targets. All choose their settings inside the training
    folds (nested cross-validation); sources take part in every fit and are not
    tested on. The folds do not depend on the order of the rows.

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
    from mixtune.choice import MIXTUNE
    from mixtune.data import findings_of, read_training
    from mixtune.report import write_csv
    from mixtune.report.verdict import compared_sentence

    every = table.every
    reading.check_features(linear=linear, random_width=random_width)
    outputs.check_outputs({"--out": out}, force=force, inputs=files, endings=(".csv",))
    if every:
        reading.check_every(table.domain, {"--focal": table.focal, "--random-features": random_width})
    with outputs.progress_bar(1) as step:
        step("Reading")
        read = read_training(files, **table.reader_options(), every=every)
    classes = read.encoder.target.classes is not None
    same_features = linear or random_width is not None
    settings = {"folds": folds, "repeats": repeats, "seed": seed}
    total = sum(each.n_rows for each in read.domains) if every else read.domains.focal_domain.n_rows
    cuts = min(folds, total)
    model = estimators.new_model(read.domains, classes=classes, linear=linear, random_width=random_width, seed=seed)
    methods = estimators.rivals(model, classes=classes, feature_map=model.feature_map, focal=read.domains.focal)
    small = one_thread_if_small(each.X for each in read.domains)
    with small, outputs.progress_bar((4 if every else len(methods)) * cuts * repeats + 1) as step:
        step("Comparing")
        how: dict[str, Any] = {"classes": classes, **settings, "progress": lambda _: step("Comparing")}
        if every:
            kind = estimators.MultiDomainClassifier if classes else estimators.MultiDomainRegressor
            results = estimators.compare_every(read.domains, kind(None if linear else "auto", seed=seed), **how)
        else:
            results = estimators.compare_nested(read.domains, methods, **how)
        mine = next(each for each in results if each.method == MIXTUNE)
        known, why = _ratios(mine), ""
        if known is None:
            told = f"mixtune cannot be compared with {YARDSTICK}: one of them failed, or makes no error at all."
        elif known[1] == known[2]:
            told = f"No difference: mixtune and {YARDSTICK} make the same errors on every unseen row."
        else:
            change = 1 - known[0], 1 - known[2], 1 - known[1]
            told = compared_sentence(*change, total, every=every)
            why = "" if every else _why(read, model, change, curved=not same_features)
    lower = _lower(mine, results)
    rows = [outputs.flat_method(each) for each in results]
    if out is not None:
        with outputs.writing(out):
            write_csv(out, rows)
    if as_json:
        about = {"target": read.encoder.target.name, "focal": None if every else read.domains.focal, **settings}
        error = "share of wrong classes" if classes else "rmse"
        about |= {"verdict": told, "fit_differs": why or None, "lower_error": lower or None, "error": error}
        outputs.print_json({**about, "methods": rows, "notes": read.notes, "written": out})
    else:
        console, findings = outputs.output(), findings_of(read.notes)
        outputs.show_lines(console, "Look at this first", findings)
        for text in filter(None, (f"[bold]{outputs.safe(told)}[/]", outputs.safe(lower), outputs.safe(why))):
            console.print(f"{text}\n")
        of = f"{len(list(read.domains)):,} domains" if every else f'"{read.domains.focal}"'
        title = f"Errors on {total:,} unseen rows of {of}"
        console.print(outputs.comparison_table(title, "/ own rows", results), "", sep="\n")
        cut = f"{cuts} folds" + (f", cut anew {repeats} times" if repeats > 1 else "")
        others = "" if same_features else "The three ridge fits are linear in the columns (--linear: mixtune as well). "
        console.print(
            f"Nested cross-validation over {'all' if every else 'the focal'} rows, {cut}. {others}/ own rows: "
            f"{'share of wrong classes' if classes else 'RMSE'} relative to that of {YARDSTICK}, with a 95% interval; "
            "below 1 is better. Intervals assume that rows are independent.\n"
        )
        outputs.show_lines(console, "Notes", read.notes[len(findings) :])
        failed = [(METHOD_NAMES.get(each.method, each.method), each) for each in results if each.failures]
        told_failures = [f"{name} failed in {each.failures} fits: {each.failure}" for name, each in failed]
        outputs.show_lines(console, "Failures", told_failures)
        if out is not None:
            console.print(f"Wrote {outputs.safe(out)}", soft_wrap=True)
    if any(each.failures for each in results):
        raise typer.Exit(1)


def _lower(mine: Compared, results: Sequence[Compared]) -> str:
    """Which method has the lowest error where mixtune does not; of own rows alone the verdict tells."""
    known = {each: each.error for each in results if each.error is not None}
    best = min(known, key=known.__getitem__, default=mine)
    if mine.error is None or known.get(best, mine.error) >= mine.error or best.method == YARDSTICK:
        return ""
    name, part = METHOD_NAMES.get(best.method, best.method), percent(1 - known[best] / mine.error)
    ratios = [_ratios(each) for each in (best, mine)]
    shown = ["{:.2f}, 95% interval {:.2f} to {:.2f}".format(*each) for each in ratios if each is not None]
    told = f" (relative to {YARDSTICK}: {shown[0]}; mixtune {shown[1]})" if len(shown) == 2 else ""
    return f"The lowest error is that of {name}, {part} below that of mixtune{told}."


def _ratios(method: Compared) -> tuple[float, float, float] | None:
    """The error relative to that of own rows alone and the ends of its 95% interval, where all are known."""
    if method.ratio is None or method.ratio_low is None or method.ratio_high is None:
        return None
    return method.ratio, method.ratio_low, method.ratio_high


def _why(read: TrainingTables, model: Any, change: tuple[float, float, float], *, curved: bool) -> str:
    """What ``mixtune fit`` would say of the same rows, if it is something else, and why."""
    from mixtune.estimators import training_rows
    from mixtune.report import model_facts
    from mixtune.report.verdict import why_different

    X, y, sources = training_rows(read)
    rows = {each.name: each.n_rows for each in read.domains}
    facts = model_facts(model.fit(X, y, sources=sources), rows)
    return why_different(facts, *change, curved=curved, classes=read.encoder.target.classes is not None)
