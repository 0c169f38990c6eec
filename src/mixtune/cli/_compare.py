"""``mixtune compare``: does transfer help me? Ours against the plain alternatives, on rows that no fit has seen."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mixtune.cli import _reading as reading
from mixtune.cli._model import new_model, random_features
from mixtune.cli._outputs import check_outputs, print_json
from mixtune.cli._show import comparison_table, output, progress_bar, show_lines
from mixtune.cli._words import safe
from mixtune.data import TrainingTables
from mixtune.errors import DataError
from mixtune.estimators import FOCAL_ONLY, MINE, Compared, compare_nested, rivals
from mixtune.report.files import write_csv

__all__ = ["compare"]


def compare(
    files: reading.Files,
    target: reading.Target,
    domain: reading.DomainColumn = None,
    focal: reading.Focal = None,
    folds: Annotated[int, typer.Option(help="Folds of the focal rows.", min=2)] = 5,
    repeats: Annotated[int, typer.Option(help="How often to cut the rows anew.", min=1)] = 1,
    seed: reading.Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this CSV file.", show_default=False)] = None,
    ignore: reading.Ignore = None,
    categories: reading.Categories = None,
    random_width: reading.RandomWidth = None,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
    missing: reading.Missing = "refuse",
    max_levels: reading.MaxLevels = 30,
    target_kind: reading.TargetKind = "auto",
    drop_missing_target: reading.DropMissingTarget = False,
    encoding: reading.Encoding = "utf-8",
    separator: reading.Separator = None,
    decimal: reading.Decimal = ".",
) -> None:
    """Compare ours with simpler ways, on focal rows that no fit has seen.

    focal only: a ridge on the focal rows; joint: a ridge on all rows pooled;
    mean of locals: the mean of one ridge a domain. All choose their settings
    inside the training folds (nested cross-validation); sources take part in
    every fit and are not tested on.

    Exit code 0: done; 1: a method failed; 2: the command or the data cannot
    be used.

    Examples:

    mixtune compare data.csv --target y --domain site --focal berlin

    mixtune compare focal.csv others/*.csv --target y --repeats 5 --out results.csv
    """
    options = reading.options_given(locals())
    check_outputs({"--out": out}, force=force, inputs=files, endings={"--out": (".csv",)})
    with progress_bar(1) as step:
        step("Reading")
        read = reading.read(files, options)
    results = _run(read, random_width, folds=folds, repeats=repeats, seed=seed)
    if out is not None:
        _write(out, results)
    classes = read.encoder.target.classes is not None
    if as_json:
        about = {"target": read.encoder.target.name, "focal": read.domains.focal, "folds": folds, "repeats": repeats}
        error = {"seed": seed, "error": "share of wrong classes" if classes else "rmse"}
        methods = [asdict(each) for each in results]
        print_json({**about, **error, "methods": methods, "notes": read.notes, "written": out})
    else:
        _show(output(), read, results, folds=folds, repeats=repeats, out=out)
    if any(each.failures for each in results):
        raise typer.Exit(1)


def _run(
    read: TrainingTables, random_width: int | None, *, folds: int, repeats: int, seed: int
) -> tuple[Compared, ...]:
    domains, classes = read.domains, read.encoder.target.classes is not None
    feature_map = random_features(domains, random_width, seed)
    ours = new_model(classes=classes, focal=domains.focal, feature_map=feature_map, seed=seed)
    methods = rivals(ours, classes=classes, feature_map=feature_map, focal=domains.focal)
    total = len(methods) * min(folds, domains.focal_domain.n_rows) * repeats
    with progress_bar(total) as step:
        step("Comparing")
        return compare_nested(
            domains,
            methods,
            classes=classes,
            folds=folds,
            repeats=repeats,
            seed=seed,
            progress=lambda _: step("Comparing"),
        )


def _show(
    console: Console,
    read: TrainingTables,
    results: tuple[Compared, ...],
    *,
    folds: int,
    repeats: int,
    out: Path | None,
) -> None:
    classes, focal = read.encoder.target.classes is not None, read.domains.focal_domain
    console.print(f"[bold]{safe(_verdict(results))}[/]\n")
    title = f'Error on {focal.n_rows:,} unseen rows of "{focal.name}"'
    error = "wrong" if classes else "RMSE"
    console.print(comparison_table(title, error, "/ focal only", [asdict(each) for each in results]))
    console.print()
    cuts = f"{min(folds, focal.n_rows)} folds" + (f", cut anew {repeats} times" if repeats > 1 else "")
    console.print(
        f"Nested cross-validation over the focal rows, {cuts}. "
        + ("Wrong: share of wrong classes. " if classes else "")
        + "/ focal only: error relative to the focal-only fit; below 1 is better. Intervals take the rows as "
        "independent.\n"
    )
    show_lines(console, "Notes", read.notes)
    failed = [f"{each.method} failed in {each.failures} fits: {each.failure}" for each in results if each.failures]
    show_lines(console, "Failures", failed)
    if out is not None:
        console.print(f"Wrote {safe(str(out))}", soft_wrap=True)


def _verdict(results: tuple[Compared, ...]) -> str:
    mine = next(each for each in results if each.method == MINE)
    if mine.ratio is None or mine.ratio_low is None or mine.ratio_high is None:
        return f"Ours cannot be set against {FOCAL_ONLY}: one of them failed, or makes no error at all."
    if mine.ratio_low == mine.ratio_high:
        return f"No difference: ours and {FOCAL_ONLY} make the same errors on every unseen row."
    change = f"{100 * abs(1 - mine.ratio):.0f}%"
    interval = f"(95% interval of the ratio {mine.ratio_low:.3g} to {mine.ratio_high:.3g})"
    if mine.ratio_high < 1:
        return f"Transfer helps: it cuts the error on unseen rows by {change} {interval}."
    if mine.ratio_low > 1:
        return f"Transfer harms: it raises the error on unseen rows by {change} {interval}."
    side = "lower" if mine.ratio <= 1 else "higher"
    return f"No clear difference: with transfer the error on unseen rows is {change} {side} {interval}."


def _write(out: Path, results: tuple[Compared, ...]) -> None:
    rows: list[dict[str, Any]] = [asdict(each) for each in results]
    try:
        write_csv(out, rows)
    except OSError as error:
        raise DataError(f"{out} cannot be written: {error.strerror or error}; choose another folder") from error
