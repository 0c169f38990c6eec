"""How tables are read and where the work is done: the options that several commands share, and their checks.

The rooms that do the work are imported by the functions that need them, so that ``--help`` and mistakes are quick.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mixtune._messages import setting
from mixtune.errors import ParameterError

if TYPE_CHECKING:
    from mixtune.data import TableEncoder
    from mixtune.estimators import SavedInfo

_option = partial(typer.Option, rich_help_panel="How the files are read")

_FILES_HELP = (
    "CSV, Parquet, Feather, Excel or JSON lines, also compressed, or - for standard input. One file with a --domain "
    "column, or one file per domain, the focal one first."
)
Files: TypeAlias = Annotated[list[Path], typer.Argument(metavar="FILE", help=_FILES_HELP)]
Target: TypeAlias = Annotated[str, typer.Option(help="The column to predict.")]
DomainColumn: TypeAlias = Annotated[
    str | None, typer.Option("--domain", help="The column that names the domain of each row.")
]
Focal: TypeAlias = Annotated[str | None, typer.Option(help="The domain to predict for; by default the first file.")]
Every: TypeAlias = Annotated[bool, typer.Option("--all", help="Fit a model for every domain of --domain.")]
Ignore: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="A,B", help="Columns to leave out; may be repeated.")
]
_KEEP_HELP = "Columns to use although they look like identifiers; may be repeated."
Keep: TypeAlias = Annotated[list[str] | None, typer.Option(metavar="A,B", help=_KEEP_HELP)]
Categories: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="A,B", help="Columns whose numbers are categories; may be repeated.")
]
_TEXT_HELP = "Columns of free text, for a frozen sentence encoder (extra text); may be repeated."
Text: TypeAlias = Annotated[list[str] | None, typer.Option(metavar="A,B", help=_TEXT_HELP)]
_TEXT_MODEL_HELP = "Folder of another sentence encoder, as sentence-transformers saves it."
TextModel: TypeAlias = Annotated[Path | None, _option(help=_TEXT_MODEL_HELP)]
_IMAGES_HELP = "Columns of paths of images, for a frozen network; may be repeated."
Images: TypeAlias = Annotated[list[str] | None, typer.Option(metavar="A,B", help=_IMAGES_HELP)]
_IMAGE_MODEL_HELP = "File of the network for images, as torch.export.save writes it."
ImageModel: TypeAlias = Annotated[Path | None, _option(help=_IMAGE_MODEL_HELP)]
Missing: TypeAlias = Annotated[
    str, _option(metavar="impute|refuse", help="Replace missing values by the median and mark them, or refuse them.")
]
_LEVELS_HELP = "Maximum number of categories of a text column; if there are more, the rarest are merged."
MaxLevels: TypeAlias = Annotated[int, _option(help=_LEVELS_HELP, min=2)]
TargetKind: TypeAlias = Annotated[
    str, _option(metavar="auto|number|classes", help="By default, text and 0/1 targets are classes, others numbers.")
]
_DROP_HELP = "Leave out rows without a target, or refuse them."
DropMissingTarget: TypeAlias = Annotated[
    bool, _option("--drop-missing-target/--no-drop-missing-target", help=_DROP_HELP)
]
Encoding: TypeAlias = Annotated[str | None, _option(help="Encoding of CSV files; detected by default.")]
Separator: TypeAlias = Annotated[str | None, _option(help="Separator of columns; detected by default.")]
Decimal: TypeAlias = Annotated[str | None, _option(metavar=".|,", help="Decimal mark; detected by default.")]
_LINEAR_HELP = "Use the columns without feature maps: the model is linear in them."
Linear: TypeAlias = Annotated[bool, typer.Option("--linear", help=_LINEAR_HELP)]
_WIDTH_HELP = "Use the columns and WIDTH random features of them instead of maps made from the rows."
RandomWidth: TypeAlias = Annotated[
    int | None, typer.Option("--random-features", metavar="WIDTH", help=_WIDTH_HELP, min=1)
]
Seed: TypeAlias = Annotated[int, typer.Option(help="Seed of all random draws.", min=0)]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

ENGINES = ("local", "dask")

Engine: TypeAlias = Annotated[
    str, typer.Option(metavar="|".join(ENGINES), help="Where to compute: on this machine, or on a Dask cluster.")
]
_SCHEDULER_HELP = (
    "Address of the Dask scheduler, such as tcp://10.0.0.1:8786; by default a local cluster is started. The command "
    "gives up after 2 minutes without workers, or after DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT."
)
Scheduler: TypeAlias = Annotated[str | None, typer.Option(metavar="ADDRESS", help=_SCHEDULER_HELP)]
_DEVICE_HELP = "Compute with NumPy, or with PyTorch on a CUDA device (cuda:1 is the second)."
Device: TypeAlias = Annotated[str, typer.Option(metavar="cpu|cuda", help=_DEVICE_HELP)]

_large = partial(typer.Option, rich_help_panel="Tables that do not fit into memory")
_STREAM_HELP = (
    "Read block by block; keep the focal rows and a random sample of every other domain. Folders, Arrow files and "
    "several files with a --domain column are accepted. All columns must be numeric."
)

StreamFlag: TypeAlias = Annotated[bool, _large("--stream", help=_STREAM_HELP)]
MemoryLimit: TypeAlias = Annotated[str, _large(metavar="SIZE", help="Memory for blocks and sampled rows, such as 1GB.")]
SampleRows: TypeAlias = Annotated[int, _large(help="Number of rows to sample from every other domain.", min=1)]

#: The defaults of the library, written out so that its package is imported only where it is needed.
LIMIT = "512 MB"
ROWS = 2000

_NAMES = (
    *("target", "domain", "focal", "ignore", "keep", "categories", "missing", "max_levels", "target_kind"),
    *("drop_missing_target", "encoding", "separator", "decimal"),
)
#: Options of fit alone, passed on where they are given.
_EMBEDDED = ("text", "text_model", "images", "image_model")


def options_given(given: dict[str, Any]) -> dict[str, Any]:
    """Pick the reading options out of a command's arguments, as :func:`mixtune.data.read_training` takes them."""
    options = {name: given[name] for name in _NAMES} | {name: given[name] for name in _EMBEDDED if given.get(name)}
    # A shell does not turn \t into a tab.
    options["separator"] = "\t" if options["separator"] in ("\\t", "tab") else options["separator"]
    return options | {name: tuple(options[name] or ()) for name in ("ignore", "keep", "categories")}


def check_every(domain: str | None, refused: dict[str, Any]) -> None:
    """Refuse ``--all`` without the column of domains, and with options that are about one domain.

    Examples
    --------
    >>> check_every("site", {"--focal": "berlin", "--device": False})
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: --all is about every domain; leave --focal out
    """
    if domain is None:
        raise ParameterError("--all needs --domain COLUMN, the column that names the domain of each row")
    if given := [name for name, value in refused.items() if value]:
        raise ParameterError(f"--all is about every domain; leave {' and '.join(given)} out")


def check_engine(engine: str, scheduler: str | None) -> None:
    """Refuse unknown engines, a scheduler without Dask, and Dask where it is not installed.

    Examples
    --------
    >>> check_engine("local", None)
    >>> check_engine("local", "tcp://10.0.0.1:8786")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: --scheduler is for --engine dask; add it, or leave the scheduler out
    """
    if engine not in ENGINES:
        raise ParameterError(f"--engine {engine} is unknown; choose from {', '.join(ENGINES)}")
    if engine == "local" and scheduler is not None:
        raise ParameterError("--scheduler is for --engine dask; add it, or leave the scheduler out")
    if engine == "dask":
        from mixtune.streaming import dask_module

        dask_module("distributed")
        # Dask logs tracebacks when it loses a connection; a mixtune error reports this in one line.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def check_whole(files: Sequence[Path], domain: str | None, *, memory_limit: str, sample_rows: int) -> None:
    """Refuse what only a stream takes: its settings, and folders or several files with a column of domains."""
    for option, is_set in (("--memory-limit", memory_limit != LIMIT), ("--sample-rows", sample_rows != ROWS)):
        if is_set:
            raise ParameterError(f"{option} is for --stream; add that, or leave {option} out")
    folder = next((path for path in files if path.is_dir()), None)
    if domain is not None and (folder is not None or len(set(files)) > 1):
        given = f"{len(set(files))} are given" if folder is None else f'"{folder}" is a folder'
        raise ParameterError(
            f"--domain {domain} goes with one file, {given}; add --stream, which takes folders and "
            "several files, or join them"
        )


def check_features(*, linear: bool, random_width: int | None) -> None:
    """Refuse two answers to what the features are.

    Examples
    --------
    >>> check_features(linear=True, random_width=20)
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: --linear and --random-features exclude each other; leave one of them out
    """
    if linear and random_width is not None:
        raise ParameterError("--linear and --random-features exclude each other; leave one of them out")


def csv_options(options: dict[str, Any]) -> str:
    """The options of CSV files that were given, as they are typed, with a space before each.

    Examples
    --------
    >>> csv_options({"encoding": None, "separator": ";", "decimal": ","})
    " --separator ';' --decimal ,"
    """
    given = {name: options[name] for name in ("encoding", "separator", "decimal") if options[name] is not None}
    return "".join(f" {setting(name, 'tab' if value == chr(9) else value).terminal}" for name, value in given.items())


def encoder_of(info: SavedInfo) -> TableEncoder | None:
    """How a saved model reads tables; None for one that was saved in Python."""
    from mixtune.data import TableEncoder

    stored = info.metadata.get("encoder")
    return TableEncoder.from_dict(stored) if isinstance(stored, dict) else None
