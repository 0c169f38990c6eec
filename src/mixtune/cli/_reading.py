"""The options that say how tables are read, shared by the commands that take training data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from mixtune._messages import setting
from mixtune.data import TrainingTables, read_training

_READING = "How the files are read"

Files: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="CSV or Parquet. One file with a --domain column, or one file per domain, the focal one first.",
        show_default=False,
    ),
]
Target: TypeAlias = Annotated[str, typer.Option(help="The column to predict.", show_default=False)]
DomainColumn: TypeAlias = Annotated[
    str | None, typer.Option("--domain", help="The column that says where each row comes from.", show_default=False)
]
Focal: TypeAlias = Annotated[
    str | None, typer.Option(help="The domain to predict for; by default the first file.", show_default=False)
]
Ignore: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="A column to leave out; may be repeated.", show_default=False)
]
Categories: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="A column of numbers that are categories; may be repeated.", show_default=False),
]
Missing: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="refuse|impute",
        help="Refuse missing values, or fill in the median and mark where.",
        rich_help_panel=_READING,
    ),
]
MaxLevels: TypeAlias = Annotated[
    int, typer.Option(help="The most levels that a column of text may have.", min=2, rich_help_panel=_READING)
]
TargetKind: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="auto|number|classes", help="By default text is classes, the rest numbers.", rich_help_panel=_READING
    ),
]
DropMissingTarget: TypeAlias = Annotated[
    bool, typer.Option("--drop-missing-target", help="Drop rows without a target.", rich_help_panel=_READING)
]
Encoding: TypeAlias = Annotated[str, typer.Option(help="Of CSV files, such as latin-1.", rich_help_panel=_READING)]
Separator: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Between columns; by default a comma, and a tab for .tsv.", show_default=False, rich_help_panel=_READING
    ),
]
Decimal: TypeAlias = Annotated[
    str, typer.Option(metavar=".|,", help="What stands before the decimals.", rich_help_panel=_READING)
]
RandomWidth: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--random-features",
        metavar="WIDTH",
        help="Add so many random features of the inputs, for relations that are not linear.",
        min=1,
        show_default=False,
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Fixes whatever is drawn at random.", min=0)]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

_NAMES = (
    *("target", "domain", "focal", "ignore", "categories", "missing", "max_levels", "target_kind"),
    *("drop_missing_target", "encoding", "separator", "decimal"),
)


def options_given(given: dict[str, Any]) -> dict[str, Any]:
    """Pick the reading options out of a command's arguments, as :func:`mixtune.data.read_training` takes them."""
    options = {name: given[name] for name in _NAMES}
    # A shell does not turn \t into a tab.
    options["separator"] = "\t" if options["separator"] in ("\\t", "tab") else options["separator"]
    return {**options, "ignore": tuple(options["ignore"] or ()), "categories": tuple(options["categories"] or ())}


def csv_options(options: dict[str, Any]) -> str:
    """The options of CSV files that differ from the defaults, as they are typed, with a space before each.

    Examples
    --------
    >>> csv_options({"encoding": "utf-8", "separator": ";", "decimal": ","})
    " --separator ';' --decimal ,"
    """
    defaults = {"encoding": "utf-8", "separator": None, "decimal": "."}
    given = {name: options[name] for name, default in defaults.items() if options[name] != default}
    return "".join(f" {setting(name, 'tab' if value == chr(9) else value).terminal}" for name, value in given.items())


def read(files: Sequence[Path], options: dict[str, Any]) -> TrainingTables:
    """Read the training tables."""
    return read_training(files, **options)
