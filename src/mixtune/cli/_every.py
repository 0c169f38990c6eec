"""``mixtune fit --all`` and what goes with it: a model for every domain, from one column of domain labels."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mixtune._messages import Note
from mixtune.cli import _outputs as outputs
from mixtune.errors import DataError

if TYPE_CHECKING:
    from mixtune.data import Encoded, TableEncoder, TrainingTables
    from mixtune.streaming import StreamedSources


def fit_every(
    files: list[Path],
    read: TrainingTables,
    options: dict[str, Any],
    out: Path | None,
    report: Path | None,
    settings: dict[str, Any],
    *,
    as_json: bool,
    stream: StreamedSources | None = None,
) -> None:
    """Fit, keep the model, write the page and show one line for each domain.

    With a ``stream``, ``read`` are samples of it.
    """
    from mixtune.estimators import MultiDomainClassifier, MultiDomainRegressor
    from mixtune.report import every_html

    target = read.encoder.target
    with outputs.progress_bar(1 + (out is not None) + (report is not None)) as step:
        step("Fitting")
        members = list(read.domains)
        X, y = (np.concatenate([np.asarray(getattr(each, part)) for each in members]) for part in ("X", "y"))
        labels = np.repeat([each.name for each in members], [each.n_rows for each in members])
        if target.classes is not None:
            y = np.array(target.classes)[y.astype(np.int64)]
        kind = MultiDomainRegressor if target.classes is None else MultiDomainClassifier
        model: Any = kind(None if "linear" in settings else "auto", seed=settings["seed"])
        model = model.fit(X, y, domain=labels) if stream is None else model.fit(stream)
        notes = tuple(map(outputs.as_typed, (*read.notes, *model.notes_)))
        if out is not None:
            step("Writing the model")
            about = {
                "made_by": "mixtune fit",
                "encoder": read.encoder.to_dict(),
                "files": [path.name for path in files],
            }
            rows = dict(zip(model.domains_, model.n_rows_.tolist()))
            model.save(out, metadata=outputs.plain({**about, "rows": rows, "settings": settings, "notes": notes}))
        if report is not None:
            step("Writing the report")
            shown = {name: value for name, value in options.items() if value not in (None, (), False)}
            title = f"{target.name} by {read.encoder.domain}"
            page = every_html(model, title=title, target=target.name, settings={**shown, **settings}, notes=notes)
            outputs.write_file(report, page.encode())
    written = {"models": out, "report": report}
    if as_json:
        about = {"target": target.name, "columns": read.encoder.names, "notes": notes}
        outputs.print_json({**about, **domains_document(model), "written": written})
        return
    console = outputs.output()
    show_domains(console, model)
    outputs.show_lines(console, "Notes", notes)
    for name, path in written.items():
        if path is not None:
            console.print(f"Wrote the {name} to {outputs.safe(path)}", soft_wrap=True)
    if out is None:
        console.print("The models were not saved; pass --out models.mixtune to save them.")
    else:
        console.print(f"Next: {outputs.safe(f'mixtune predict {shlex.quote(str(out))} new.csv')}", soft_wrap=True)


def domains_document(model: Any) -> dict[str, Any]:
    """The summary of a model of every domain, for JSON."""
    columns = {name: np.asarray(values).tolist() for name, values in model.summary_columns().items()}
    return {"domains": [dict(zip(columns, row)) for row in zip(*columns.values())]}


def show_domains(console: Any, model: Any) -> None:
    """One line for each domain."""
    rows = domains_document(model)["domains"]
    right = ["right"] * ("right" in rows[0])
    heads = ("domain", "rows", *right, "error", "own rows alone", "pooled", "gain", "borrows from")
    made = outputs.table("Domains", *heads)
    for row in rows:
        numbers = [f"{row['rows']:,}", *(f"{row[name]:.0%}" for name in right)]
        numbers += [f"{row[name]:.4g}" for name in ("error", "error_own_rows", "error_pooled")]
        made.add_row(outputs.safe(row["domain"]), *numbers, f"{row['gain']:.0%}", outputs.safe(row["borrows_from"]))
    console.print(made, "", sep="\n")
    if right:
        console.print("Errors are those of class scores, +1 for the class and -1 for any other.\n")


def predict_every(
    model: Any, read: Encoded, encoder: TableEncoder, *, interval: float | None, proba: bool, where: str
) -> tuple[dict[str, list[Any]], tuple[Note, ...]]:
    """The new columns by name, and a note where domains were not seen."""
    if encoder.domain not in read.table.column_names:
        raise DataError(f'{where} has no column "{encoder.domain}", the domain of each row; add it')
    labels = read.table.column(encoder.domain)
    columns_known = getattr(model, "feature_names_in_", None)  # those of a stream
    X: Any = read.X if columns_known is None else dict(zip(columns_known, read.X.T))
    columns = {"prediction": model.predict(X, domain=labels)}
    if interval is not None:
        columns["lower"], columns["upper"] = model.predict_interval(X, domain=labels, coverage=interval)
    if proba:
        names = (f"probability of {each}" for each in model.classes_)
        columns |= dict(zip(names, model.predict_proba(X, domain=labels).T))
    known = set(model.domains_)
    new = sum(str(label).strip() not in known for label in labels.to_pylist())
    template = "rows of domains that were not part of the fit are predicted for the population of domains: {count}"
    told = Note("unseen-domains", template, count=new)
    return {name: values.tolist() for name, values in columns.items()}, (told,) * (new > 0)
