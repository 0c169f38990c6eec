"""``mixtune fit``: learn a model for one domain, or for every domain, with the help of the others; say what helped."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from mixtune._messages import Note, counted
from mixtune.arrays import one_thread_if_small, torch_device
from mixtune.choice import MIXTUNE, POOLED
from mixtune.cli import inputs as reading
from mixtune.cli import outputs
from mixtune.errors import ParameterError

if TYPE_CHECKING:
    from mixtune.data import TrainingTables
    from mixtune.report import Facts, Verdict

large_option = partial(typer.Option, rich_help_panel="Tables that do not fit into memory")
_STREAM_HELP = (
    "Read block by block; keep the focal rows and a random sample of every other domain. Folders, Arrow files and "
    "several files with a --domain column are accepted. All columns must be numeric."
)
_TEXT_HELP = "Columns of free text, for a frozen sentence encoder (extra text)"
_SAMPLE_HELP = "Number of rows to sample from every other domain."
_LIMIT_HELP = "Memory for blocks and sampled rows, such as 1GB."
_TEXT_MODEL_HELP = "Folder of another sentence encoder, as sentence-transformers saves it."
_IMAGES_HELP = "Columns of paths of images, for a frozen network"
_IMAGE_MODEL_HELP = "File of the network for images, as torch.export.save writes it."


@reading.with_groups
def fit(
    files: reading.Files,
    table: reading.TableOptions,
    out: Annotated[Path | None, typer.Option(help="Save the model to this file, such as model.mixtune.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page about the fit, such as report.html.")] = None,
    text: Annotated[reading.Columns, reading.columns_option(_TEXT_HELP)] = None,
    text_model: Annotated[Path | None, reading.reading_option(help=_TEXT_MODEL_HELP)] = None,
    images: Annotated[reading.Columns, reading.columns_option(_IMAGES_HELP)] = None,
    image_model: Annotated[Path | None, reading.reading_option(help=_IMAGE_MODEL_HELP)] = None,
    method: reading.Method = MIXTUNE,
    linear: reading.Linear = False,
    random_width: reading.RandomWidth = None,
    seed: reading.Seed = 0,
    force: reading.Force = False,
    as_json: reading.AsJson = False,
    stream: Annotated[bool, large_option("--stream", help=_STREAM_HELP)] = False,
    sample_rows: Annotated[int, large_option(help=_SAMPLE_HELP, min=1)] = reading.ROWS,
    memory_limit: Annotated[str, large_option(metavar="SIZE", help=_LIMIT_HELP)] = reading.LIMIT,
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

    Relations may be non-linear: the prediction averages over candidates of one
    Gaussian process over all domains; of classes, streams and large tables over
    several feature maps. The output shows how much each family or map
    contributes. With --linear the model is linear in the columns.

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
    from mixtune.estimators import method_named

    method = method_named(method)
    torch_device(device)
    reading.check_engine(engine, scheduler)
    reading.check_features(linear=linear, random_width=random_width)
    if table.every:
        refused = {"--focal": table.focal, "--random-features": random_width, "--device": device != "cpu"}
        refused["--method"] = method != MIXTUNE
        reading.check_every(table.domain, refused)
    large: dict[str, Any] = {"memory_limit": memory_limit, "sample_rows": sample_rows}
    whole = not stream and engine != "dask"
    if whole:
        reading.check_whole(files, table.domain, **large)
    elif method == POOLED:
        raise ParameterError("--method pooled needs all rows in memory; leave --stream and --engine out")
    outputs.check_outputs({"--out": out, "--report": report}, force=force, inputs=files)
    begin = time.perf_counter()
    embedded = {"text": text, "text_model": text_model, "images": images, "image_model": image_model}
    options = table.reader_options() | {name: value for name, value in embedded.items() if value}
    settings: dict[str, Any] = {"random_features": random_width, "seed": seed, **({"linear": True} if linear else {})}
    settings |= {"method": method} if method != MIXTUNE else {}
    streamed = sources = None
    if not whole:  # a stream has its own progress bar, which counts rows
        where: dict[str, Any] = {"seed": seed, "engine": engine, "scheduler": scheduler, "every": table.every}
        streamed, sources = reading.read_streamed(files, options, **where, **large)
    with outputs.progress_bar(2 + (out is not None) + (report is not None)) as step:
        step("Reading")
        read = read_training(files, **options, every=table.every) if streamed is None else streamed
        step("Fitting")
        made: EveryFit | FocalFit
        if table.every:
            made = EveryFit(read, sources, linear=linear, seed=seed)
        else:
            how: dict[str, Any] = {
                "linear": linear,
                "random_width": random_width,
                "seed": seed,
                "device": device,
                "method": method,
            }
            shown = {"explain": report is not None, "distances": as_json or report is not None}
            made = FocalFit(read, shown, sources, **how)
        if out is not None:
            step("Writing the model")
            # Models are shared with others, so the folders of the training data are left out.
            about: dict[str, Any] = {"made_by": "mixtune fit", "encoder": read.encoder.to_dict()}
            about |= {"files": [path.name for path in files], "settings": settings, "notes": made.notes}
            about["codes"] = made.codes
            made.model.save(out, metadata=outputs.plain({**made.metadata(), **about}))
        if report is not None:
            step("Writing the report")
            given = {name: value for name, value in options.items() if value not in (None, (), False)}
            outputs.write_file(report, made.page({**given, **settings}, files).encode())
    written = {made.word: out, "report": report}
    if as_json:
        outputs.print_json({**made.document(), "written": written, "seconds": time.perf_counter() - begin})
        return
    console = outputs.output()
    made.show()
    outputs.show_lines(console, "Notes", made.notes[len(made.findings) :])
    outputs.show_written(console, written)
    if out is None:
        it, model = ("them", "models were") if table.every else ("it", "model was")
        console.print(f"The {model} not saved; pass --out {made.word}.mixtune to save {it}.")
    else:
        command = f"mixtune predict {shlex.quote(str(out))} new.csv{table.csv_typed()}"
        console.print(f"Next: {outputs.safe(command)}", soft_wrap=True)


class FocalFit:
    """A model for one domain, with what the command says about it.

    ``shown`` are options of :func:`mixtune.report.read_facts`: what need not be computed because nothing shows it.
    ``how`` are the options of :func:`mixtune.estimators.new_model`. Sources that are ``streamed`` are read again, for
    the sums of all their rows.
    """

    word = "model"

    def __init__(
        self, read: TrainingTables, shown: dict[str, bool], streamed: Any = None, *, method: str = MIXTUNE, **how: Any
    ) -> None:
        from mixtune.data import findings_first, findings_of
        from mixtune.estimators import new_model, rows_of_method, take_findings, training_rows
        from mixtune.report.facts import read_facts
        from mixtune.report.verdict import give_verdict

        self.read, self.target = read, read.encoder.target
        X, y, sources = training_rows(read)
        sources = sources if streamed is None else streamed
        X, y, _, sources = rows_of_method(method, X, y, None, sources)
        self.method = method
        self.model = new_model(read.domains, classes=self.target.classes is not None, **how)
        about: dict[str, Any] = {"target": self.target.name, "columns": read.encoder, **shown}
        with one_thread_if_small(each.X for each in read.domains):
            self.model.fit(X, y, sources=sources)
            take_findings(self.model, read.notes)
            facts = read_facts(self.model, X=X, y=y, sources=sources, **about)
        # Notes that the tables have already, such as which domains have one row, are not repeated.
        said = {note.code for note in read.notes if isinstance(note, Note)}
        own = [note for note in facts.notes if not (isinstance(note, Note) and note.code in said)]
        notes = findings_first((*read.notes, *own))
        self.findings = tuple(map(outputs.as_typed, findings_of(notes)))
        self.codes = [getattr(note, "code", "") for note in notes]
        self.notes = tuple(map(outputs.as_typed, notes))
        self.facts: Facts = replace(facts, notes=self.notes, findings=self.findings, method=method)
        self.verdict: Verdict = give_verdict(self.facts)
        #: What is known about the rows of the fit: here effects of columns, and more once the model is saved.
        self.described = {} if facts.columns is None else facts.columns.effects.to_json()

    def metadata(self) -> dict[str, Any]:
        """What the file of the model states about the rows of the fit, which it does not hold."""
        from mixtune.estimators import describe_rows

        effects = None if self.facts.columns is None else self.facts.columns.effects
        self.described = describe_rows(self.model, self.read.encoder, effects)
        return {**self.described, "verdict": self.verdict.sentence, "method": self.method}

    def page(self, settings: dict[str, Any], files: list[Path]) -> str:
        from mixtune.report import page_html

        title = f"{self.target.name} of {self.read.domains.focal}"
        words = outputs.private_words()
        advice = outputs.fit_command(self.verdict.settings, words)
        return page_html(self.facts, title=title, settings=settings, advice=advice, **outputs.made_now(files))

    def document(self) -> dict[str, Any]:
        classes, verdict = self.facts.classes, self.verdict
        about: dict[str, Any] = {"target": self.target.name, "classes": self.target.classes}
        about |= {"focal": self.read.domains.focal, "findings": self.findings}
        said: dict[str, Any] = {
            "verdict": verdict.sentence,
            "evidence": "".join(verdict.evidence[:1]),
            "next": verdict.advice,
        }
        said |= {"recommended": verdict.method or None, "command": outputs.fit_command(verdict.settings) or None}
        right = {} if classes is None else {"loo_right": classes.right, "loo_rows": classes.rows}
        effects = {name: value for name, value in self.described.items() if name.startswith("effects")}
        known = outputs.facts_document(self.facts)
        return {**about, "columns": self.read.encoder.names, **said, **right, **known, **effects}

    def show(self) -> None:
        console, encoder, facts = outputs.output(), self.read.encoder, self.facts
        total = sum(each.rows for each in (facts.focal, *facts.sources))
        # A column of text becomes several inputs.
        columns, inputs = len(encoder.columns), len(encoder.names)
        made = f" ({counted((inputs, 'input'))})" if inputs != columns else ""
        outputs.show_lines(console, "Look at this first", self.findings)
        outputs.show_verdict(console, self.verdict, outputs.fit_command(self.verdict.settings))
        rows = f"{counted((facts.focal.rows, 'focal row'))}, {counted((total, 'row'))} in all"
        if self.method == POOLED:
            rows = f"{counted((total, 'row'))}, all of them pooled"
        what = f'"{outputs.safe(self.target.name)}" for "{outputs.safe(self.read.domains.focal)}"'
        console.print(f"Predicts {what} from {counted((columns, 'column'))}{made}; {rows}.\n")
        outputs.show_model(console, facts, classes=self.target.classes is not None)


class EveryFit:
    """Models for every domain, with what the command says about them; tables that are ``streamed`` are read again."""

    word = "models"

    def __init__(self, read: TrainingTables, streamed: Any = None, *, linear: bool, seed: int) -> None:
        from mixtune.data import findings_first, findings_of
        from mixtune.estimators import MultiDomainClassifier, MultiDomainRegressor, take_findings

        self.read, self.target = read, read.encoder.target
        members = list(read.domains)
        X, y = (np.concatenate([np.asarray(getattr(each, part)) for each in members]) for part in ("X", "y"))
        labels = np.repeat([each.name for each in members], [each.n_rows for each in members])
        if self.target.classes is not None:
            y = np.array(self.target.classes)[y.astype(np.int64)]
        kind = MultiDomainRegressor if self.target.classes is None else MultiDomainClassifier
        model: Any = kind(None if linear else "auto", seed=seed)
        self.model = model.fit(X, y, domain=labels) if streamed is None else model.fit(streamed)
        take_findings(self.model, read.notes)
        notes = findings_first(tuple(dict.fromkeys((*read.notes, *self.model.notes_))))
        self.findings = tuple(map(outputs.as_typed, findings_of(notes)))
        self.codes = [getattr(note, "code", "") for note in notes]
        self.notes = tuple(map(outputs.as_typed, notes))

    def metadata(self) -> dict[str, Any]:
        return {"rows": dict(zip(self.model.domains_, self.model.n_rows_.tolist()))}

    def page(self, settings: dict[str, Any], files: list[Path]) -> str:
        from mixtune.report import every_html

        target = self.target.name
        title = f"{target} by {self.read.encoder.domain}"
        about: dict[str, Any] = {"title": title, "target": target, "settings": settings, "notes": self.notes}
        about["findings"] = self.findings
        return every_html(self.model, **about, **outputs.made_now(files))

    def document(self) -> dict[str, Any]:
        about = {"target": self.target.name, "findings": self.findings, "columns": self.read.encoder.names}
        about["notes"] = self.notes
        return {**about, **outputs.domains_document(self.model)}

    def show(self) -> None:
        outputs.show_lines(outputs.output(), "Look at this first", self.findings)
        outputs.show_domains(outputs.output(), self.model)
