"""``mixtune inspect``: what a model file holds, what it was trained on and what it learned about the domains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from mixtune._messages import quoted
from mixtune.cli import inputs as reading
from mixtune.cli import outputs
from mixtune.cli.outputs import safe
from mixtune.errors import ParameterError

if TYPE_CHECKING:
    from mixtune.data import TableEncoder
    from mixtune.estimators import SavedInfo
    from mixtune.report.facts import Facts


def inspect(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A saved model.")], as_json: reading.AsJson = False
) -> None:
    """Describe a saved model: what it predicts, what it was trained on, and what it learned.

    No code in the file is run, and a truncated or altered file is refused.

    Exit code 0: done; 2: the file is not a model.

    Examples:

    mixtune inspect model.mixtune

    mixtune inspect model.mixtune --json
    """
    from mixtune.estimators import ColumnEffects, load_estimator, read_info
    from mixtune.report import model_facts

    info = read_info(model)
    encoder, facts, needs, every = reading.encoder_of(info), None, None, None
    found: dict[str, Any] = {}
    try:
        loaded = load_estimator(model)
    except ParameterError as error:  # it takes something that only Python can provide, such as a network
        needs = str(error)
    else:
        if hasattr(loaded, "domains_"):
            every, found = loaded, outputs.domains_document(loaded)
        else:
            facts = model_facts(loaded, _said(info, "rows", dict, int))
            found = outputs.facts_document(facts)
    # The notes of the fit include those of the estimator.
    notes = _said(info, "notes", list, str) or ([] if facts is None else list(facts.notes))
    if as_json:
        about = {"file": model, "estimator": info.estimator, "feature_map": info.feature_map}
        metadata = {**about, "created_with": info.created_with, "metadata": info.metadata, "not_loaded": needs}
        outputs.print_json({**metadata, **found, "notes": notes})
        return
    console = outputs.output()
    _show_file(console, info, encoder, _features(info, facts))
    classes = encoder is not None and encoder.target.classes is not None
    if facts is not None:
        outputs.show_model(console, facts, classes=classes)
    if (effects := ColumnEffects.from_json(info.metadata)) is not None and effects.effects:
        outputs.show_effects(console, effects.effects, classes=classes)
    if every is not None:
        outputs.show_domains(console, every)
    if encoder is not None:
        _show_columns(console, encoder)
    outputs.show_lines(console, "Notes", [*notes, *([needs] if needs else [])])
    bound = None if facts is None else facts.bound
    outputs.show_lines(console, "Details: the paper's bound (Theorem 1)", () if bound is None else bound.lines)


def _said(info: SavedInfo, key: str, kind: type, part: type) -> Any:
    """What the metadata of the file say under ``key``, if it is of this kind, with parts of that kind; else nothing.

    Metadata that were saved in Python may hold anything.
    """
    value: Any = info.metadata.get(key)
    parts: Any = value.values() if isinstance(value, dict) else value
    return value if isinstance(value, kind) and all(isinstance(each, part) for each in parts) else kind()


def _features(info: SavedInfo, facts: Facts | None) -> str | None:
    """What the features of the model are."""
    if facts is not None and facts.kernel:
        return "a kernel over all domains, made from the rows"
    return f"{len(facts.maps)} maps made from the rows" if facts is not None and facts.maps else info.feature_map


def _show_file(console: Console, info: SavedInfo, encoder: TableEncoder | None, features: str | None) -> None:
    if sentence := _said(info, "verdict", str, str):
        console.print(f"[bold]{safe(sentence)}[/]\n")
    lines = {"model": info.estimator, "features": features}
    if encoder is not None:
        target, classes = encoder.target, encoder.target.classes
        kind = "a number" if classes is None else f"one of {len(classes)} classes: {quoted(classes)}"
        lines["predicts"] = f"{target.name} ({kind})"
        lines["for"] = "every domain" if encoder.focal is None else encoder.focal
        lines["missing"] = "imputed" if encoder.impute else "refused"
        if encoder.domain is not None:
            lines["domains"] = f'by column "{encoder.domain}"'
    if files := _said(info, "files", list, str):
        lines["trained on"] = quoted(files)
    if rows := _said(info, "rows", dict, int):
        lines["rows"] = f"{sum(rows.values()):,} in {len(rows):,} domain{'s' * (len(rows) > 1)}"
    lines["made with"] = ", ".join(f"{name} {version}" for name, version in info.created_with.items())
    for name, value in lines.items():
        console.print(f"{name:<11}{safe(value)}", soft_wrap=True)
    if encoder is None:
        console.print("\nSaved in Python: the file does not describe how tables become inputs.")
    console.print()


def _show_columns(console: Console, encoder: TableEncoder) -> None:
    from mixtune.data import DateColumn, EmbeddedColumn, LevelColumn

    made = outputs.table("Input columns", "column", "read as", left=2)
    for column in encoder.columns:
        if isinstance(column, LevelColumn):
            kind = f"{len(column.levels)} categories: {quoted(column.levels, 3)}"
        elif isinstance(column, EmbeddedColumn):
            kind = f"{column.content}: {column.width} numbers by {column.identity}"
        elif isinstance(column, DateColumn):
            kind = f"dates: {', '.join(column.parts)}"
        else:
            kind = "number" if not column.indicator else f"number, {column.median:g} where missing"
        made.add_row(safe(column.name), safe(kind))
    console.print(made, "", sep="\n")
    if encoder.unused:
        console.print(f"Not used: {safe(quoted(encoder.unused, 20))}\n")
