"""``--stream``: tables that do not fit into memory, read block by block, here or on a cluster.

The focal rows are held whole; of every other domain so many rows are drawn at random in the same pass, and the choice
is learned on these. The result looks like tables that were read whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from mixtune.cli._engine import check_engine
from mixtune.data import Domain, Domains, NumberColumn, TableEncoder, TargetColumn, TrainingTables, constant_notes
from mixtune.errors import ParameterError
from mixtune.streaming import DEFAULT_LIMIT, StreamedSources, open_stream

_PANEL = "Tables that do not fit into memory"

StreamFlag: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Read block by block, hold the focal rows and draw some of every other domain; folders, Arrow files and "
        "several files with a --domain column are taken as well. Columns of numbers only.",
        rich_help_panel=_PANEL,
    ),
]
MemoryLimit: TypeAlias = Annotated[
    str, typer.Option(metavar="SIZE", help="For blocks and rows that are drawn, such as 1GB.", rich_help_panel=_PANEL)
]
SampleRows: TypeAlias = Annotated[
    int, typer.Option(help="How many rows of every other domain are drawn.", min=1, rich_help_panel=_PANEL)
]

LIMIT = DEFAULT_LIMIT
ROWS = 2000


class Streaming(NamedTuple):
    """How to stream, as the options say."""

    engine: str
    scheduler: str | None
    memory_limit: str
    sample_rows: int

    @classmethod
    def given(
        cls, *, stream: bool, engine: str, scheduler: str | None, memory_limit: str, sample_rows: int
    ) -> Streaming | None:
        """The options where a stream is asked for, which Dask implies, else None.

        Examples
        --------
        >>> options = {"engine": "local", "scheduler": None, "memory_limit": "1GB", "sample_rows": 2000}
        >>> Streaming.given(stream=True, **options)
        Streaming(engine='local', scheduler=None, memory_limit='1GB', sample_rows=2000)
        """
        check_engine(engine, scheduler)
        if stream or engine == "dask":
            return cls(engine, scheduler, memory_limit, sample_rows)
        set_anyway = {"--memory-limit": memory_limit != LIMIT, "--sample-rows": sample_rows != ROWS}
        for option, is_set in set_anyway.items():
            if is_set:
                raise ParameterError(f"{option} is for --stream; add that, or leave {option} out")
        return None


def check_whole(files: Sequence[Path], domain: str | None) -> None:
    """Refuse tables that only a stream reads: folders, or several files, with a column of domains."""
    if domain is None:
        return
    folder = next((path for path in files if path.is_dir()), None)
    if folder is not None or len(set(files)) > 1:
        given = f"{len(set(files))} are given" if folder is None else f'"{folder}" is a folder'
        raise ParameterError(
            f"--domain {domain} goes with one file, {given}; add --stream, which takes folders and "
            "several files, or join them"
        )


def read_streamed(files: Sequence[Path], options: dict[str, Any], streaming: Streaming, *, seed: int) -> TrainingTables:
    """Read training tables in one pass: all focal rows, and some of every other domain.

    Parameters
    ----------
    files
        Files and folders.
    options
        Those of :func:`mixtune.cli._reading.options_given`.
    streaming, seed
        How to stream, and which rows are drawn.
    """
    _check_options(options)
    reading = {name: options[name] for name in ("target", "domain", "encoding", "separator", "decimal")}
    paths = list(dict.fromkeys(files))
    stream = open_stream(paths, ignore=options["ignore"], **reading)
    columns, focal = stream.columns, options["focal"]
    assert columns is not None
    if focal is None:
        if options["domain"] is not None or paths[0].is_dir():
            raise ParameterError("say which domain to predict for, with --focal NAME")
        focal = str(stream.chunks[0].name)
    drawn = StreamedSources(paths, columns=columns, seed=seed, **reading, **streaming._asdict()).samples(whole=(focal,))
    encoder = TableEncoder(
        tuple(NumberColumn(name) for name in columns),
        TargetColumn(options["target"]),
        domain=options["domain"],
        focal=focal,
        unused=options["ignore"],
    )
    held = sum(len(X) for X, _ in drawn.values())
    note = (
        f"read as a stream: at most {streaming.sample_rows:,} rows of every domain but the focal one were drawn at "
        f"random, {held:,} rows in all; --sample-rows changes that"
    )
    constant = (
        said
        for index, name in enumerate(columns)
        for said in constant_notes(name, [X[:, index] for X, _ in drawn.values()])
    )
    members = tuple(Domain(name, X, y, columns) for name, (X, y) in drawn.items())
    return TrainingTables(Domains(members, focal=focal), encoder, (note, *constant))


def _check_options(options: dict[str, Any]) -> None:
    """Refuse what takes a look at all rows before the first is used."""
    asked = {
        "--categories": bool(options["categories"]),
        "--missing impute": options["missing"] != "refuse",
        "--target-kind classes": options["target_kind"] == "classes",
        "--drop-missing-target": options["drop_missing_target"],
    }
    if wanted := [name for name, value in asked.items() if value]:
        raise ParameterError(
            f"{wanted[0]} does not go with --stream, which takes columns of numbers without missing values; prepare "
            "the table first, or leave --stream out"
        )
