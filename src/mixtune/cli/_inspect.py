"""``mixtune inspect``: what a model file holds, what it was trained on and what it learned about the domains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mixtune._messages import quoted
from mixtune.cli import _reading as reading
from mixtune.cli._outputs import facts_document, output, print_json, safe, show_lines, show_model, table
from mixtune.cli._saved_model import encoder_of, load_if_possible, rows_of, texts_of
from mixtune.data import LevelColumn, TableEncoder
from mixtune.estimators import SavedInfo, read_info
from mixtune.report import model_facts


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A saved model.", show_default=False)],
    as_json: reading.AsJson = False,
) -> None:
    """Show what a saved model is, what it was trained on, and what it learned.

    Nothing in the file is run, and a file that was cut off or altered is refused.

    Exit code 0: done; 2: the file is no model.

    Examples:

    mixtune inspect model.mixtune

    mixtune inspect model.mixtune --json
    """
    info = read_info(model)
    encoder = encoder_of(info)
    loaded, needs = load_if_possible(model)
    facts = None if loaded is None else model_facts(loaded, rows_of(info))
    # The notes of the fit include those of the estimator.
    notes = texts_of(info, "notes") or ([] if facts is None else list(facts.notes))
    if as_json:
        about = {"file": model, "estimator": info.estimator, "feature_map": info.feature_map}
        metadata = {**about, "created_with": info.created_with, "metadata": info.metadata, "not_loaded": needs}
        print_json({**metadata, **({} if facts is None else facts_document(facts)), "notes": notes})
        return
    console = output()
    _show_file(console, info, encoder)
    if facts is not None:
        show_model(console, facts, classes=encoder is not None and encoder.target.classes is not None)
    if encoder is not None:
        _show_columns(console, encoder)
    show_lines(console, "Notes", [*notes, *([needs] if needs else [])])


def _show_file(console: Console, info: SavedInfo, encoder: TableEncoder | None) -> None:
    metadata = info.metadata
    if isinstance(sentence := metadata.get("verdict"), str):
        console.print(f"[bold]{safe(sentence)}[/]\n")
    lines = {"model": info.estimator, "features": info.feature_map}
    if encoder is not None:
        target = encoder.target
        kind = (
            "a number" if target.classes is None else f"one of {len(target.classes)} classes: {quoted(target.classes)}"
        )
        lines |= {"predicts": f"{target.name} ({kind})", "for": str(encoder.focal)}
        lines["missing"] = "filled in" if encoder.impute else "refused"
        if encoder.domain is not None:
            lines["domains"] = f'by column "{encoder.domain}"'
    if files := texts_of(info, "files"):
        lines["trained on"] = quoted(files)
    if rows := rows_of(info):
        lines["rows"] = f"{sum(rows.values()):,} in {len(rows):,} domains"
    lines["made with"] = ", ".join(f"{name} {version}" for name, version in info.created_with.items())
    for name, value in lines.items():
        console.print(f"{name:<11}{safe(value)}", soft_wrap=True)
    if encoder is None:
        console.print("\nSaved in Python: it does not say how tables become its inputs.")
    console.print()


def _show_columns(console: Console, encoder: TableEncoder) -> None:
    made = table("Input columns", "column", "read as", left=2)
    for column in encoder.columns:
        if isinstance(column, LevelColumn):
            kind = f"{len(column.levels)} levels: {quoted(column.levels, 3)}"
        else:
            kind = "number" if not column.indicator else f"number, {column.median:g} where missing"
        made.add_row(safe(column.name), safe(kind))
    console.print(made)
    console.print()
    if encoder.unused:
        console.print(f"Not used: {safe(quoted(encoder.unused, 20))}\n")
