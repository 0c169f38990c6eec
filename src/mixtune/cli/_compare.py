"""``mixtune compare``: does transfer help? mixtune against the plain alternatives, on rows that no fit has seen."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixtune.cli import _outputs as outputs
from mixtune.cli import _reading as reading
from mixtune.report.facts import FOCAL_ONLY

if TYPE_CHECKING:
    from mixtune.data import TrainingTables
    from mixtune.estimators import Compared


def compare(
    files: reading.Files,
    target: reading.Target,
    domain: reading.DomainColumn = None,
    focal: reading.Focal = None,
    every: reading.Every = False,
    folds: Annotated[int, typer.Option(help="Folds of the focal rows.", min=2)] = 5,
    repeats: Annotated[int, typer.Option(help="Number of repetitions, each with new folds.", min=1)] = 1,
    seed: reading.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this CSV file.")] = None,
    ignore: reading.Ignore = None,
    keep: reading.Keep = None,
    categories: reading.Categories = None,
    linear: reading.Linear = False,
    random_width: reading.RandomWidth = None,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
    missing: reading.Missing = "impute",
    max_levels: reading.MaxLevels = 30,
    target_kind: reading.TargetKind = "auto",
    drop_missing_target: reading.DropMissingTarget = True,
    encoding: reading.Encoding = None,
    separator: reading.Separator = None,
    decimal: reading.Decimal = None,
) -> None:
    """Compare mixtune with simpler methods, on focal rows that no fit has seen.

    focal only: a ridge on the focal rows; joint: a ridge on all rows pooled;
    mean of locals: the mean of one ridge per domain. These are linear in the
    columns, or use the random features of --random-features; mixtune also uses
    splines and other maps made from the rows, unless --linear is given. All
    choose their settings inside the training folds (nested cross-validation);
    sources take part in every fit and are not tested on.

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
    from mixtune.data import read_training
    from mixtune.estimators import (
        MultiDomainClassifier,
        MultiDomainRegressor,
        compare_every,
        compare_nested,
        new_model,
        rivals,
    )
    from mixtune.report import write_csv

    options = reading.options_given(locals())
    reading.check_features(linear=linear, random_width=random_width)
    outputs.check_outputs({"--out": out}, force=force, inputs=files, endings=(".csv",))
    if every:
        reading.check_every(domain, {"--focal": focal, "--random-features": random_width})
    with outputs.progress_bar(1) as step:
        step("Reading")
        read = read_training(files, **options, every=every)
    classes = read.encoder.target.classes is not None
    same_features = linear or random_width is not None
    settings = {"folds": folds, "repeats": repeats, "seed": seed}
    total = sum(each.n_rows for each in read.domains) if every else read.domains.focal_domain.n_rows
    cuts = min(folds, total)
    with outputs.progress_bar(4 * cuts * repeats) as step:
        step("Comparing")
        how: dict[str, Any] = {"classes": classes, **settings, "progress": lambda _: step("Comparing")}
        if every:
            kind = MultiDomainClassifier if classes else MultiDomainRegressor
            results = compare_every(read.domains, kind(None if linear else "auto", seed=seed), **how)
        else:
            model = new_model(read.domains, classes=classes, linear=linear, random_width=random_width, seed=seed)
            methods = rivals(model, classes=classes, feature_map=model.feature_map, focal=read.domains.focal)
            results = compare_nested(read.domains, methods, **how)
    if out is not None:
        with outputs.writing(out):
            write_csv(out, [asdict(each) for each in results])
    if as_json:
        about = {"target": read.encoder.target.name, "focal": None if every else read.domains.focal, **settings}
        error = "share of wrong classes" if classes else "rmse"
        found = {"error": error, "methods": [asdict(each) for each in results], "notes": read.notes}
        outputs.print_json({**about, **found, "written": out})
    else:
        told = f"{cuts} folds" + (f", cut anew {repeats} times" if repeats > 1 else "")
        _show(read, results, told, out, same_features=same_features, every=every)
    if any(each.failures for each in results):
        raise typer.Exit(1)


def _show(
    read: TrainingTables,
    results: tuple[Compared, ...],
    cuts: str,
    out: Path | None,
    *,
    same_features: bool,
    every: bool,
) -> None:
    from mixtune.estimators import OWN_ROWS

    console, classes = outputs.output(), read.encoder.target.classes is not None
    against, which = (OWN_ROWS, "all") if every else (FOCAL_ONLY, "the focal")
    console.print(f"[bold]{outputs.safe(_verdict(results, against, same_features=same_features))}[/]\n")
    if every:
        rows = sum(each.n_rows for each in read.domains)
        title = f"Error on {rows:,} unseen rows of {len(list(read.domains)):,} domains"
    else:
        focal = read.domains.focal_domain
        title = f'Error on {focal.n_rows:,} unseen rows of "{focal.name}"'
    table = outputs.comparison_table(title, "wrong" if classes else "RMSE", f"/ {against}", results)
    console.print(table, "", sep="\n")
    wrong = "Wrong: share of wrong classes. " if classes else ""
    others = "" if same_features else "The other methods are linear in the columns (--linear: mixtune as well). "
    console.print(
        f"Nested cross-validation over {which} rows, {cuts}. {others}{wrong}/ {against}: error relative to the "
        f"{against if every else 'focal-only'} fit; below 1 is better. Intervals take the rows as independent.\n"
    )
    outputs.show_lines(console, "Notes", read.notes)
    failed = [f"{each.method} failed in {each.failures} fits: {each.failure}" for each in results if each.failures]
    outputs.show_lines(console, "Failures", failed)
    if out is not None:
        console.print(f"Wrote {outputs.safe(out)}", soft_wrap=True)


def _verdict(results: tuple[Compared, ...], against: str, *, same_features: bool) -> str:
    """What mixtune does to the error; transfer gets the credit only where all methods have the same features."""
    from mixtune.estimators import MINE

    name, subject = ("transfer", "Transfer") if same_features else ("mixtune", "mixtune")
    mine = next(each for each in results if each.method == MINE)
    if mine.ratio is None or mine.ratio_low is None or mine.ratio_high is None:
        return f"mixtune cannot be compared with {against}: one of them failed, or makes no error at all."
    if mine.ratio_low == mine.ratio_high:
        return f"No difference: mixtune and {against} make the same errors on every unseen row."
    change = f"{100 * abs(1 - mine.ratio):.0f}%"
    interval = f"(95% interval of the ratio {mine.ratio_low:.3g} to {mine.ratio_high:.3g})"
    if mine.ratio_high < 1:
        return f"{subject} helps: it cuts the error on unseen rows by {change} {interval}."
    if mine.ratio_low > 1:
        return f"{subject} harms: it raises the error on unseen rows by {change} {interval}."
    side = "lower" if mine.ratio <= 1 else "higher"
    return f"No clear difference: with {name} the error on unseen rows is {change} {side} {interval}."
