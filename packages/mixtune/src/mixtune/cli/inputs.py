"""How tables are read and where the work is done: the options that several commands share, and their checks.

The rooms that do the work are imported by the functions that need them, so that ``--help`` and mistakes are quick.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mixtune._messages import nearest, setting
from mixtune.errors import ParameterError

if TYPE_CHECKING:
    from mixtune.data import TableEncoder, TrainingTables
    from mixtune.estimators import SavedInfo
    from mixtune.streaming import StreamedSources

_FILES_HELP = (
    "CSV, Parquet, Feather, Excel or JSON lines, also compressed, or - for standard input. One file with a --domain "
    "column, or one file per domain, the focal one first."
)
Files: TypeAlias = Annotated[list[Path], typer.Argument(metavar="FILE", help=_FILES_HELP)]
Target: TypeAlias = Annotated[str, typer.Option(help="The column to predict.")]
_LINEAR_HELP = "Use the columns without feature maps: the model is linear in them."
Linear: TypeAlias = Annotated[bool, typer.Option("--linear", help=_LINEAR_HELP)]
_WIDTH_HELP = "Use the columns and WIDTH random features of them instead of maps made from the rows."
_width = typer.Option("--random-features", metavar="WIDTH", help=_WIDTH_HELP, min=1)
RandomWidth: TypeAlias = Annotated[int | None, _width]
Seed: TypeAlias = Annotated[int, typer.Option(help="Seed of all random draws.", min=0)]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

ENGINES = ("local", "dask")
_ENGINE_HELP = "Where to compute: on this machine, or on a Dask cluster."
Engine: TypeAlias = Annotated[str, typer.Option(metavar="|".join(ENGINES), help=_ENGINE_HELP)]
_SCHEDULER_HELP = (
    "Address of the Dask scheduler, such as tcp://10.0.0.1:8786; by default a local cluster is started. The command "
    "gives up after 2 minutes without workers, or after DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT."
)
Scheduler: TypeAlias = Annotated[str | None, typer.Option(metavar="ADDRESS", help=_SCHEDULER_HELP)]
_DEVICE_HELP = "Compute with NumPy, or with PyTorch on a CUDA device (cuda:1 is the second)."
Device: TypeAlias = Annotated[str, typer.Option(metavar="cpu|cuda", help=_DEVICE_HELP)]

#: The defaults of the library, written out so that its package is imported only where it is needed.
LIMIT = "512 MB"
ROWS = 2000

_METHOD_HELP = (
    "mixtune, or what it is compared with: own-rows-alone fits the same model to the focal rows only, pooled to all "
    "rows as if they were of one domain."
)
Method: TypeAlias = Annotated[str, typer.Option(metavar="mixtune|own-rows-alone|pooled", help=_METHOD_HELP)]

#: Options of a panel of their own in the help.
reading_option = partial(typer.Option, rich_help_panel="How the files are read")
#: Columns that are given as A,B.
Columns: TypeAlias = list[str] | None
_MISSING_HELP = "Replace missing values by the median and mark them, or refuse them."
_LEVELS_HELP = "Maximum number of categories of a text column; if there are more, the rarest are merged."
_KIND_HELP = "By default, text and 0/1 targets are classes, others numbers."
_DROP = "--drop-missing-target/--no-drop-missing-target"
_DROP_HELP = "Leave out rows without a target, or refuse them."


def columns_option(which: str) -> Any:
    """An option that names columns."""
    return typer.Option(metavar="A,B", help=f"{which}; may be repeated.")


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """How CSV files are written."""

    encoding: Annotated[str | None, reading_option(help="Encoding of CSV files; detected by default.")] = None
    separator: Annotated[str | None, reading_option(help="Separator of columns; detected by default.")] = None
    decimal: Annotated[str | None, reading_option(metavar=".|,", help="Decimal mark; detected by default.")] = None

    def csv_format(self) -> dict[str, str | None]:
        """The options, as the readers of :mod:`mixtune.data` take them."""
        # A shell does not turn \\t into a tab.
        separator = "\t" if self.separator in ("\\t", "tab") else self.separator
        return {"encoding": self.encoding, "separator": separator, "decimal": self.decimal}

    def csv_typed(self) -> str:
        """The options that were given, as they are typed, with a space before each.

        Examples
        --------
        >>> CsvOptions(separator=";", decimal=",").csv_typed(), CsvOptions(separator="\\t").csv_typed()
        (" --separator ';' --decimal ,", ' --separator tab')
        """
        given = {name: value for name, value in self.csv_format().items() if value is not None}
        shown = {name: "tab" if value == "\t" else value for name, value in given.items()}
        return "".join(f" {setting(name, value).terminal}" for name, value in shown.items())


@dataclass(frozen=True, kw_only=True)
class TableOptions(CsvOptions):
    """How training tables become domains of rows and columns."""

    target: Target
    domain: Annotated[str | None, typer.Option(help="The column that names the domain of each row.")] = None
    focal: Annotated[str | None, typer.Option(help="The domain to predict for; by default the first file.")] = None
    every: Annotated[bool, typer.Option("--all", help="Fit a model for every domain of --domain.")] = False
    exclude: Annotated[Columns, columns_option("Domains to leave out, such as misleading sources")] = None
    ignore: Annotated[Columns, columns_option("Columns to leave out")] = None
    keep: Annotated[Columns, columns_option("Columns to use although they look like identifiers")] = None
    categories: Annotated[Columns, columns_option("Columns whose numbers are categories")] = None
    missing: Annotated[str, reading_option(metavar="impute|refuse", help=_MISSING_HELP)] = "impute"
    max_levels: Annotated[int, reading_option(help=_LEVELS_HELP, min=2)] = 30
    target_kind: Annotated[str, reading_option(metavar="auto|number|classes", help=_KIND_HELP)] = "auto"
    drop_missing_target: Annotated[bool, reading_option(_DROP, help=_DROP_HELP)] = True

    def reader_options(self) -> dict[str, Any]:
        """The options, as :func:`mixtune.data.read_training` takes them."""
        options = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "every"}
        columns = {name: tuple(options[name] or ()) for name in ("exclude", "ignore", "keep", "categories")}
        return {**options, **columns, **self.csv_format()}


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: an argument whose type is a dataclass becomes an option for each field.

    Examples
    --------
    >>> def show(file: str, form: CsvOptions) -> None:
    ...     print(file, form)
    >>> with_groups(show)(file="a.csv", encoding=None, separator=";", decimal=None)
    a.csv CsvOptions(encoding=None, separator=';', decimal=None)
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}
    parameters: list[inspect.Parameter] = []
    for each in own:
        group = groups.get(each.name)
        parameters += [each] if group is None else inspect.signature(group, eval_str=True).parameters.values()
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


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


def encoder_of(info: SavedInfo) -> TableEncoder | None:
    """How a saved model reads tables; None for one that was saved in Python."""
    from mixtune.data import TableEncoder

    stored = info.metadata.get("encoder")
    return TableEncoder.from_dict(stored) if isinstance(stored, dict) else None


def read_streamed(
    files: Sequence[Path], options: Mapping[str, Any], *, seed: int, sample_rows: int, every: bool = False, **how: Any
) -> tuple[TrainingTables, StreamedSources]:
    """Read training tables block by block: all focal rows, and some of every other domain; or some of ``every`` domain.

    The second result is the stream without the focal rows, for passes over all rows. The rows drawn have the form of
    tables that were read whole.

    Parameters
    ----------
    files
        Files and folders.
    options
        Options as :meth:`TableOptions.reader_options` returns them.
    seed, sample_rows, **how
        Which rows are drawn, how many of each domain, and how: the memory limit, the engine and its scheduler.
    """
    from mixtune.data import (
        Domain,
        Domains,
        NumberColumn,
        TableEncoder,
        TargetColumn,
        TrainingTables,
        constant_notes,
        finding_notes,
    )
    from mixtune.streaming import StreamedSources, open_stream

    # These options need all rows before the first is used.
    asked = {
        "--categories": options["categories"],
        "--text": options.get("text"),
        "--images": options.get("images"),
        "--target-kind classes": options["target_kind"] == "classes",
    }
    if wanted := next(filter(asked.get, asked), None):
        raise ParameterError(
            f"{wanted} cannot be used with --stream, which takes columns of numbers without missing values; prepare "
            "the table first, or leave --stream out"
        )
    reading = {name: options[name] for name in ("target", "domain")}
    reading |= {name: options[name] for name in ("encoding", "separator", "decimal") if options[name] is not None}
    paths = list(dict.fromkeys(files))
    stream = open_stream(paths, ignore=options["ignore"], **reading)
    columns, focal = stream.columns, options["focal"]
    assert columns is not None
    if focal is None and not every:
        if options["domain"] is not None or paths[0].is_dir():
            raise ParameterError("name the domain to predict for with --focal NAME")
        focal = str(stream.chunks[0].name)
    drawing: dict[str, Any] = {"columns": columns, "seed": seed, "sample_rows": sample_rows}
    sources = StreamedSources(paths, **drawing, **reading, **how)
    if options["exclude"]:
        names = [each.strip() for given in options["exclude"] for each in given.split(",")]
        known = sorted({str(chunk.name) for chunk in stream.chunks} if options["domain"] is None else sources.samples())
        if unknown := [name for name in names if name not in known or name == focal]:
            raise ParameterError(
                f'--exclude names "{unknown[0]}", which is no other domain; {nearest(unknown[0], known)}'
            )
        sources = sources.without(*names)
    drawn = sources.samples(whole=() if every else (focal,))
    read_as, target = tuple(NumberColumn(name) for name in columns), TargetColumn(options["target"])
    encoder = TableEncoder(read_as, target, domain=options["domain"], focal=focal, unused=options["ignore"])
    inputs = [X for X, _ in drawn.values()]
    constant = [constant_notes(name, [X[:, place] for X in inputs]) for place, name in enumerate(columns)]
    which = "every domain" if every else "every domain but the focal one"
    note = (
        f"read as a stream: at most {sample_rows:,} rows of {which} were drawn at "
        f"random, {sum(map(len, inputs)):,} rows in all; --sample-rows changes that"
    )
    members = tuple(Domain(name, X, y, columns) for name, (X, y) in drawn.items())
    domains = Domains(members, focal=members[0].name if every else focal)
    told = (*finding_notes(domains, encoder, every=every), note, *chain.from_iterable(constant))
    tables = TrainingTables(domains, encoder, told)
    return tables, sources if every else sources.without(focal)
