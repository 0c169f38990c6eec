"""``mixtune fit``: learn a model for one domain with the help of the others, and say what helped."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixtune._array import one_thread_if_small, torch_device
from mixtune._messages import Note, counted
from mixtune.cli import _outputs as outputs
from mixtune.cli import _reading as reading
from mixtune.cli._every import fit_every
from mixtune.cli._streaming import read_streamed

if TYPE_CHECKING:
    from mixtune.data import TrainingTables
    from mixtune.report import Facts, Verdict


def fit(
    files: reading.Files,
    target: reading.Target,
    domain: reading.DomainColumn = None,
    focal: reading.Focal = None,
    every: reading.Every = False,
    out: Annotated[Path | None, typer.Option(help="Save the model to this file, such as model.mixtune.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page about the fit, such as report.html.")] = None,
    ignore: reading.Ignore = None,
    keep: reading.Keep = None,
    categories: reading.Categories = None,
    text: reading.Text = None,
    text_model: reading.TextModel = None,
    images: reading.Images = None,
    image_model: reading.ImageModel = None,
    linear: reading.Linear = False,
    random_width: reading.RandomWidth = None,
    seed: reading.Seed = 0,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
    missing: reading.Missing = "impute",
    max_levels: reading.MaxLevels = 30,
    target_kind: reading.TargetKind = "auto",
    drop_missing_target: reading.DropMissingTarget = True,
    encoding: reading.Encoding = None,
    separator: reading.Separator = None,
    decimal: reading.Decimal = None,
    stream: reading.StreamFlag = False,
    sample_rows: reading.SampleRows = reading.ROWS,
    memory_limit: reading.MemoryLimit = reading.LIMIT,
    engine: reading.Engine = "local",
    scheduler: reading.Scheduler = None,
    device: reading.Device = "cpu",
) -> None:
    """Learn to predict a column of one domain, with the help of the others.

    No settings are needed: cross-domain validation and leave-one-out on the
    focal rows determine how much each domain counts. Tables need no preparation:
    missing values are imputed, text becomes one column per category, dates
    become year, month, weekday and days, and rows without a target and columns
    that look like identifiers are left out. Notes report what was done.

    Relations may be non-linear: the prediction averages over the columns
    themselves, splines, random Fourier features, and columns learned from the
    other domains, and the output shows how much each of them contributes. With
    --linear the model is linear in the columns.

    Tables that do not fit into memory are read with --stream, or on a Dask
    cluster with --engine dask: the focal rows are kept, and the others enter by
    sums over all rows. Feature maps and cross-domain validation use a random
    sample of every other domain.

    With --text the column goes through a frozen sentence encoder, with --images
    a column of paths through a frozen network (--image-model). What they compute
    is kept in the user's cache folder.

    With --device cuda the random features are computed on a CUDA device.

    With --all a model is fitted for every domain, and predict reads the domain
    of each row from the same column.

    Exit code 0: done; 2: the command or the data cannot be used.

    Examples:

    mixtune fit data.csv --target y --domain site --focal berlin --out model.mixtune --report report.html

    mixtune fit focal.csv others/*.csv --target y --out model.mixtune

    mixtune fit data.csv --target y --domain site --all --out models.mixtune --report report.html

    mixtune fit data.xlsx --target y --domain site --focal berlin --ignore id,name --json

    mixtune fit big/ --target y --domain site --focal berlin --engine dask --scheduler tcp://10.0.0.1:8786
    """
    from mixtune.data import read_training
    from mixtune.report import give_verdict

    options = reading.options_given(locals())
    torch_device(device)
    reading.check_engine(engine, scheduler)
    reading.check_features(linear=linear, random_width=random_width)
    large: dict[str, Any] = {"memory_limit": memory_limit, "sample_rows": sample_rows}
    whole = not stream and engine != "dask"
    if every:
        refused = {"--focal": focal, "--random-features": random_width}
        reading.check_every(domain, {**refused, "--device": device != "cpu"})
    if whole:
        reading.check_whole(files, domain, **large)
    settings = {"random_features": random_width, "seed": seed, **({"linear": True} if linear else {})}
    outputs.check_outputs({"--out": out, "--report": report}, force=force, inputs=files)
    begin = time.perf_counter()
    where: dict[str, Any] = {"seed": seed, "engine": engine, "scheduler": scheduler}
    # A stream has a bar of its own, which counts rows.
    streamed, sources = (None, None) if whole else read_streamed(files, options, every=every, **where, **large)
    if every:
        read = read_training(files, **options, every=True) if streamed is None else streamed
        fit_every(files, read, options, out, report, settings, as_json=as_json, stream=sources)
        return
    with outputs.progress_bar(2 + (out is not None) + (report is not None)) as step:
        step("Reading")
        read = read_training(files, **options) if streamed is None else streamed
        step("Fitting")
        how = {"linear": linear, "random_width": random_width, "seed": seed, "device": device}
        shown = {"explain": report is not None, "distances": as_json or report is not None}
        model, facts = _fit(read, shown, sources, **how)
        verdict = give_verdict(facts)
        told = _told(read, model, facts, wanted=out is not None)
        if out is not None:
            step("Writing the model")
            model.save(out, metadata=outputs.plain({**told, **_metadata(read, files, settings, facts, verdict)}))
        if report is not None:
            from mixtune.report import page_html

            step("Writing the report")
            given = {name: value for name, value in options.items() if value not in (None, (), False)}
            title = f"{read.encoder.target.name} of {read.domains.focal}"
            about: dict[str, Any] = {"title": title, "settings": {**given, **settings}, **outputs.made_now(files)}
            outputs.write_file(report, page_html(facts, **about).encode())
    written = {"model": out, "report": report}
    if as_json:
        effects = {name: value for name, value in told.items() if name.startswith("effects")}
        seconds = time.perf_counter() - begin
        outputs.print_json({**_document(read, facts, verdict), **effects, "written": written, "seconds": seconds})
    else:
        _show(read, facts, verdict, written, reading.csv_options(options))


def _fit(read: TrainingTables, shown: dict[str, bool], streamed: Any = None, **how: Any) -> tuple[Any, Facts]:
    """The fitted model and what it says about itself, with the notes of the tables before its own.

    ``shown`` are options of :func:`mixtune.report.read_facts`: what need not be computed because nothing shows it.
    ``how`` are the options of :func:`mixtune.estimators.new_model`. Sources that are ``streamed`` are read again, for
    the sums of all their rows.
    """
    from mixtune.estimators import new_model, training_rows
    from mixtune.report import read_facts

    target = read.encoder.target
    X, y, sources = training_rows(read)
    sources = sources if streamed is None else streamed
    model = new_model(read.domains, classes=target.classes is not None, **how)
    about: dict[str, Any] = {"target": target.name, "columns": read.encoder, **shown}
    with one_thread_if_small(each.X for each in read.domains):
        model.fit(X, y, sources=sources)
        facts = read_facts(model, X=X, y=y, sources=sources, **about)
    # What the notes on the tables say already, such as which domains have one row, is not said twice.
    said = {note.code for note in read.notes if isinstance(note, Note)}
    own = [note for note in facts.notes if not (isinstance(note, Note) and note.code in said)]
    return model, replace(facts, notes=tuple(map(outputs.as_typed, (*read.notes, *own))))


def _told(read: TrainingTables, model: Any, facts: Facts, *, wanted: bool) -> dict[str, Any]:
    """What the file of the model says about the rows of the fit; without a file, the effects of columns if known."""
    from mixtune.estimators import describe_rows

    effects = None if facts.columns is None else facts.columns.effects
    if wanted:
        return describe_rows(model, read.encoder, effects)
    return {} if effects is None else effects.to_json()


def _show(read: TrainingTables, facts: Facts, verdict: Verdict, written: dict[str, Path | None], csv: str) -> None:
    console, target, domains = outputs.output(), read.encoder.target, read.domains
    total = sum(each.rows for each in (facts.focal, *facts.sources))
    # A column of text becomes several inputs.
    columns, inputs = len(read.encoder.columns), len(read.encoder.names)
    made = f" ({counted((inputs, 'input'))})" if inputs != columns else ""
    console.print(f"[bold]{outputs.safe(verdict.sentence)}[/]\n")
    for text in (*verdict.evidence[:1], f"What to do next: {verdict.advice}"):
        console.print(f"{outputs.safe(text)}\n")
    rows = f"{counted((facts.focal.rows, 'focal row'))}, {counted((total, 'row'))} in all"
    what = f'"{outputs.safe(target.name)}" for "{outputs.safe(domains.focal)}"'
    console.print(f"Predicts {what} from {counted((columns, 'column'))}{made}; {rows}.\n")
    outputs.show_model(console, facts, classes=target.classes is not None)
    if facts.classes is not None:
        right = f"{facts.classes.right:,} of {facts.classes.rows:,}"
        console.print(f"Classes: {right} focal rows are classified right when left out.\n")
    outputs.show_lines(console, "Notes", facts.notes)
    for name, path in written.items():
        if path is not None:
            console.print(f"Wrote the {name} to {outputs.safe(path)}", soft_wrap=True)
    if (model := written["model"]) is None:
        console.print("The model was not saved; pass --out model.mixtune to save it.")
    else:
        command = f"mixtune predict {shlex.quote(str(model))} new.csv{csv}"
        console.print(f"Next: {outputs.safe(command)}", soft_wrap=True)


def _document(read: TrainingTables, facts: Facts, verdict: Verdict) -> dict[str, Any]:
    target, classes = read.encoder.target, facts.classes
    about = {"target": target.name, "classes": target.classes, "focal": read.domains.focal}
    said = {"verdict": verdict.sentence, "evidence": "".join(verdict.evidence[:1]), "next": verdict.advice}
    right = {} if classes is None else {"loo_right": classes.right, "loo_rows": classes.rows}
    return {**about, "columns": read.encoder.names, **said, **right, **outputs.facts_document(facts)}


def _metadata(
    read: TrainingTables, files: list[Path], settings: dict[str, Any], facts: Facts, verdict: Verdict
) -> dict[str, Any]:
    """What the model's file says beside the model, so that ``predict`` and ``inspect`` need nothing else."""
    return {
        "made_by": "mixtune fit",
        "encoder": read.encoder.to_dict(),
        # Models are passed on; the folders of their training data stay private.
        "files": [path.name for path in files],
        "settings": settings,
        "verdict": verdict.sentence,
        "notes": facts.notes,
    }
