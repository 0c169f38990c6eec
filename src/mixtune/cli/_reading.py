"""How tables are read: the options that several commands share, and what a saved model says about it.

The rooms that do the work are imported by the functions that need them, so that ``--help`` and mistakes are quick.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mixtune._messages import setting

if TYPE_CHECKING:
    from mixtune.data import TableEncoder
    from mixtune.estimators import SavedInfo

_option = partial(typer.Option, rich_help_panel="How the files are read")

_FILES_HELP = "CSV or Parquet. One file with a --domain column, or one file per domain, the focal one first."
Files: TypeAlias = Annotated[list[Path], typer.Argument(metavar="FILE", help=_FILES_HELP)]
Target: TypeAlias = Annotated[str, typer.Option(help="The column to predict.")]
DomainColumn: TypeAlias = Annotated[
    str | None, typer.Option("--domain", help="The column that says where each row comes from.")
]
Focal: TypeAlias = Annotated[str | None, typer.Option(help="The domain to predict for; by default the first file.")]
Ignore: TypeAlias = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
Categories: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="A column of numbers that are categories; may be repeated.")
]
Missing: TypeAlias = Annotated[
    str, _option(metavar="refuse|impute", help="Refuse missing values, or fill in the median and mark where.")
]
MaxLevels: TypeAlias = Annotated[int, _option(help="The most levels that a column of text may have.", min=2)]
TargetKind: TypeAlias = Annotated[
    str, _option(metavar="auto|number|classes", help="By default text is classes, the rest numbers.")
]
DropMissingTarget: TypeAlias = Annotated[bool, _option("--drop-missing-target", help="Drop rows without a target.")]
Encoding: TypeAlias = Annotated[str, _option(help="Of CSV files, such as latin-1.")]
Separator: TypeAlias = Annotated[str | None, _option(help="Between columns; by default a comma, and a tab for .tsv.")]
Decimal: TypeAlias = Annotated[str, _option(metavar=".|,", help="What stands before the decimals.")]
_WIDTH_HELP = "Add so many random features of the inputs, for relations that are not linear."
RandomWidth: TypeAlias = Annotated[
    int | None, typer.Option("--random-features", metavar="WIDTH", help=_WIDTH_HELP, min=1)
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


def encoder_of(info: SavedInfo) -> TableEncoder | None:
    """How a saved model reads tables; None for one that was saved in Python."""
    from mixtune.data import TableEncoder

    stored = info.metadata.get("encoder")
    return TableEncoder.from_dict(stored) if isinstance(stored, dict) else None
