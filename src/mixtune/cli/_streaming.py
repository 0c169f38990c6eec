"""Where the work is done, and ``--stream``: tables that do not fit into memory, read block by block.

The focal rows are held whole; of every other domain so many rows are drawn at random in the same pass, and the choice
is learned on these. The result looks like tables that were read whole.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mixtune.errors import ParameterError

if TYPE_CHECKING:
    from mixtune.data import TrainingTables

ENGINES = ("local", "dask")

Engine: TypeAlias = Annotated[
    str, typer.Option(metavar="|".join(ENGINES), help="Where to compute: on this machine, or on a Dask cluster.")
]
_SCHEDULER_HELP = (
    "Of the Dask scheduler, such as tcp://10.0.0.1:8786; by default a local cluster is started. After 2 minutes without "
    "workers, or DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT, the command gives up."
)
Scheduler: TypeAlias = Annotated[str | None, typer.Option(metavar="ADDRESS", help=_SCHEDULER_HELP)]
_DEVICE_HELP = "Compute with NumPy, or with PyTorch on a CUDA device (cuda:1 is the second)."
Device: TypeAlias = Annotated[str, typer.Option(metavar="cpu|cuda", help=_DEVICE_HELP)]

_option = partial(typer.Option, rich_help_panel="Tables that do not fit into memory")
_STREAM_HELP = (
    "Read block by block, hold the focal rows and draw some of every other domain; folders, Arrow files and several "
    "files with a --domain column are taken as well. Columns of numbers only."
)

StreamFlag: TypeAlias = Annotated[bool, _option("--stream", help=_STREAM_HELP)]
MemoryLimit: TypeAlias = Annotated[
    str, _option(metavar="SIZE", help="For blocks and rows that are drawn, such as 1GB.")
]
SampleRows: TypeAlias = Annotated[int, _option(help="How many rows of every other domain are drawn.", min=1)]

#: The default of the library, written out so that its room is imported only where it is needed.
LIMIT = "512 MB"
ROWS = 2000


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
        # Dask logs tracebacks of what it has lost, which an error of ours then says in one line.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def execute_on_cluster(
    run: Any, settings: Any, seeds: Mapping[int, int], *, scheduler: str | None, jobs: int | None = None
) -> Generator[tuple[int, Any, float], None, None]:
    """Do the runs of a study on a cluster; yields (index, outcome, seconds) like the processes of this machine do.

    ``jobs`` is the number of processes of a local cluster, and stays out of one that is there already.
    """
    from mixtune.streaming import run_tasks

    given = {index: (settings, seed) for index, seed in seeds.items()}
    yield from run_tasks(run, given, scheduler=scheduler, workers=None if scheduler else jobs)


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


def read_streamed(
    files: Sequence[Path], options: Mapping[str, Any], *, seed: int, sample_rows: int, **how: Any
) -> TrainingTables:
    """Read training tables in one pass: all focal rows, and some of every other domain.

    Parameters
    ----------
    files
        Files and folders.
    options
        Those of :func:`mixtune.cli._reading.options_given`.
    seed, sample_rows, **how
        Which rows are drawn, how many of each domain, and how: the memory limit, the engine and its scheduler.
    """
    from mixtune.data import Domain, Domains, NumberColumn, TableEncoder, TargetColumn, TrainingTables, constant_notes
    from mixtune.streaming import StreamedSources, open_stream

    # These take a look at all rows before the first is used.
    asked = {
        "--categories": options["categories"],
        "--missing impute": options["missing"] != "refuse",
        "--target-kind classes": options["target_kind"] == "classes",
        "--drop-missing-target": options["drop_missing_target"],
    }
    if wanted := next(filter(asked.get, asked), None):
        raise ParameterError(
            f"{wanted} does not go with --stream, which takes columns of numbers without missing values; prepare "
            "the table first, or leave --stream out"
        )
    reading = {name: options[name] for name in ("target", "domain", "encoding", "separator", "decimal")}
    paths = list(dict.fromkeys(files))
    stream = open_stream(paths, ignore=options["ignore"], **reading)
    columns, focal = stream.columns, options["focal"]
    assert columns is not None
    if focal is None:
        if options["domain"] is not None or paths[0].is_dir():
            raise ParameterError("say which domain to predict for, with --focal NAME")
        focal = str(stream.chunks[0].name)
    drawing: dict[str, Any] = {"columns": columns, "seed": seed, "sample_rows": sample_rows}
    drawn = StreamedSources(paths, **drawing, **reading, **how).samples(whole=(focal,))
    read_as, target = tuple(NumberColumn(name) for name in columns), TargetColumn(options["target"])
    encoder = TableEncoder(read_as, target, domain=options["domain"], focal=focal, unused=options["ignore"])
    inputs = [X for X, _ in drawn.values()]
    constant = [constant_notes(name, [X[:, place] for X in inputs]) for place, name in enumerate(columns)]
    note = (
        f"read as a stream: at most {sample_rows:,} rows of every domain but the focal one were drawn at "
        f"random, {sum(map(len, inputs)):,} rows in all; --sample-rows changes that"
    )
    members = tuple(Domain(name, X, y, columns) for name, (X, y) in drawn.items())
    return TrainingTables(Domains(members, focal=focal), encoder, (note, *chain.from_iterable(constant)))
