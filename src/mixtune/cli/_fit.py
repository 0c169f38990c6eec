"""``mixtune fit``: learn a model for one domain with the help of the others, and say what helped."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mixtune._array import torch_device
from mixtune.cli import _reading as reading
from mixtune.cli import _streaming as streaming
from mixtune.cli._engine import Device, Engine, Scheduler
from mixtune.cli._facts import judged, model_facts
from mixtune.cli._model import focal_rows, new_model, random_features, source_rows
from mixtune.cli._outputs import check_outputs, plain, print_json
from mixtune.cli._show import output, progress_bar, show_lines, show_model
from mixtune.cli._words import safe
from mixtune.data import TrainingTables
from mixtune.report.page._words import count

__all__ = ["fit"]


def fit(
    files: reading.Files,
    target: reading.Target,
    domain: reading.DomainColumn = None,
    focal: reading.Focal = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep the model in this file, such as model.mixtune.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about the fit, such as report.html.", show_default=False)
    ] = None,
    ignore: reading.Ignore = None,
    categories: reading.Categories = None,
    random_width: reading.RandomWidth = None,
    seed: reading.Seed = 0,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
    missing: reading.Missing = "refuse",
    max_levels: reading.MaxLevels = 30,
    target_kind: reading.TargetKind = "auto",
    drop_missing_target: reading.DropMissingTarget = False,
    encoding: reading.Encoding = "utf-8",
    separator: reading.Separator = None,
    decimal: reading.Decimal = ".",
    stream: streaming.StreamFlag = False,
    sample_rows: streaming.SampleRows = streaming.ROWS,
    memory_limit: streaming.MemoryLimit = streaming.LIMIT,
    engine: Engine = "local",
    scheduler: Scheduler = None,
    device: Device = "cpu",
) -> None:
    """Learn to predict a column of one domain, with the help of the others.

    Nothing has to be set: how much each domain counts is chosen by
    leave-one-out on the focal rows. Text columns become one column a level;
    dates are refused. What was done without asking stands in the notes.

    Tables that do not fit into memory are read with --stream, or on a Dask
    cluster with --engine dask: the focal rows are held, of every other
    domain some rows are drawn, and the choice is learnt on these.

    With --device cuda the random features are computed on a CUDA device.

    Exit code 0: done; 2: the command or the data cannot be used.

    Examples:

    mixtune fit data.csv --target y --domain site --focal berlin --out model.mixtune --report report.html

    mixtune fit focal.csv others/*.csv --target y --out model.mixtune

    mixtune fit data.csv --target y --domain site --focal berlin --ignore id --missing impute --json

    mixtune fit big/ --target y --domain site --focal berlin --engine dask --scheduler tcp://10.0.0.1:8786
    """
    options = reading.options_given(locals())
    torch_device(device)
    large = streaming.Streaming.given(
        stream=stream, engine=engine, scheduler=scheduler, memory_limit=memory_limit, sample_rows=sample_rows
    )
    settings = {"random_features": random_width, "seed": seed}
    check_outputs({"--out": out, "--report": report}, force=force, inputs=files, endings={"--report": (".html",)})
    begin = time.perf_counter()
    if large is None:
        streaming.check_whole(files, domain)
    # A stream has a bar of its own, which counts rows.
    streamed = None if large is None else streaming.read_streamed(files, options, large, seed=seed)
    with progress_bar(2 + (out is not None) + (report is not None)) as step:
        step("Reading")
        read = reading.read(files, options) if streamed is None else streamed
        step("Fitting")
        model = _fit(read, random_width, seed, device)
        facts = _facts(model, read, files)
        if out is not None:
            step("Writing the model")
            model.save(out, metadata=_metadata(read, files, settings, facts))
        if report is not None:
            step("Writing the report")
            _write_page(report, model, read, {**_shown(options), **settings}, facts["notes"])
    written = {"model": out, "report": report}
    if as_json:
        print_json({**_document(read, facts), "written": written, "seconds": time.perf_counter() - begin})
    else:
        _show(output(), read, facts, written, reading.csv_options(options))


def _fit(read: TrainingTables, random_width: int | None, seed: int, device: str) -> Any:
    domains = read.domains
    classes = read.encoder.target.classes is not None
    feature_map = random_features(domains, random_width, seed)
    X, y = focal_rows(read)
    model = new_model(classes=classes, focal=domains.focal, feature_map=feature_map, seed=seed, device=device)
    return model.fit(X, y, sources=source_rows(read))


def _facts(model: Any, read: TrainingTables, files: list[Path]) -> dict[str, Any]:
    facts = model_facts(model, {each.name: each.n_rows for each in read.domains})
    notes = [_without_folders(note, files) for note in (*read.notes, *facts["notes"])]
    return {**judged(model, *focal_rows(read), source_rows(read)), **facts, "notes": notes}


def _without_folders(note: str, files: list[Path]) -> str:
    """Models and pages are handed on; where the files lay is nobody's business."""
    for path in files:
        note = note.replace(f'"{path}"', f'"{path.name}"')
    return note


def _write_page(path: Path, model: Any, read: TrainingTables, settings: dict[str, Any], notes: list[str]) -> None:
    """Write the page about a fit."""
    from mixtune.report.page import write_report

    X, y = focal_rows(read)
    target = read.encoder.target.name
    title = f"{target} of {read.domains.focal}"
    sources = source_rows(read)
    write_report(path, model, X=X, y=y, sources=sources, title=title, target=target, settings=settings, notes=notes)


def _show(
    console: Console, read: TrainingTables, facts: dict[str, Any], written: dict[str, Path | None], csv: str
) -> None:
    target, domains = read.encoder.target, read.domains
    total = sum(each.n_rows for each in domains)
    console.print(f"[bold]{safe(facts['verdict'])}[/]\n")
    console.print(f"{safe(facts['evidence'])}\n")
    console.print(
        f'Predicts "{safe(target.name)}" for "{safe(domains.focal)}" from '
        f"{_columns(read)}; {count(domains.focal_domain.n_rows, 'focal row')}, "
        f"{count(total, 'row')} in all.\n"
    )
    show_model(console, facts, classes=target.classes is not None)
    if "loo_right" in facts:
        right, rows = facts["loo_right"], facts["loo_rows"]
        console.print(f"Classes: {right:,} of {rows:,} focal rows come out right when left out.\n")
    show_lines(console, "Notes", facts["notes"])
    for name, path in written.items():
        if path is not None:
            console.print(f"Wrote the {name} to {safe(str(path))}", soft_wrap=True)
    if (model := written["model"]) is None:
        console.print("The model was not kept; pass --out model.mixtune to keep it.")
    else:
        console.print(f"Next: mixtune predict {safe(shlex.quote(str(model)))} new.csv{safe(csv)}", soft_wrap=True)


def _columns(read: TrainingTables) -> str:
    """How many columns are learnt from; one of text becomes several inputs."""
    columns, inputs = len(read.encoder.columns), len(read.encoder.names)
    return count(columns, "column") + (f" ({count(inputs, 'input')})" if inputs != columns else "")


def _document(read: TrainingTables, facts: dict[str, Any]) -> dict[str, Any]:
    target = read.encoder.target
    about = {"target": target.name, "classes": target.classes, "focal": read.domains.focal}
    return {**about, "columns": read.encoder.names, **facts}


def _metadata(
    read: TrainingTables, files: list[Path], settings: dict[str, Any], facts: dict[str, Any]
) -> dict[str, Any]:
    """What the model's file says beside the model, so that ``predict`` and ``inspect`` need nothing else."""
    kept: dict[str, Any] = plain(
        {
            "made_by": "mixtune fit",
            "encoder": read.encoder.to_dict(),
            "files": [path.name for path in files],
            "rows": {each.name: each.n_rows for each in read.domains},
            "settings": settings,
            "verdict": facts["verdict"],
            "notes": facts["notes"],
        }
    )
    return kept


def _shown(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, (), False)}
