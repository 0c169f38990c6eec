"""``--stream`` and ``--engine dask``: tables that do not fit into memory, read block by block, and work on a cluster.

The focal rows are held whole; of every other domain so many rows are drawn at random in the same pass. What was drawn
looks like tables that were read whole. The fit takes the sums of all rows in passes of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixtune.errors import ParameterError

if TYPE_CHECKING:
    from mixtune.data import TrainingTables
    from mixtune.streaming import StreamedSources


def execute_on_cluster(
    run: Any, settings: Any, seeds: Mapping[int, int], *, scheduler: str | None, jobs: int | None = None
) -> Generator[tuple[int, Any, float], None, None]:
    """Do the runs of a study on a cluster; yields (index, outcome, seconds) like the processes of this machine do.

    ``jobs`` is the number of processes of a local cluster, and stays out of one that is there already.
    """
    from mixtune.streaming import run_tasks

    given = {index: (settings, seed) for index, seed in seeds.items()}
    yield from run_tasks(run, given, scheduler=scheduler, workers=None if scheduler else jobs)


def read_streamed(
    files: Sequence[Path], options: Mapping[str, Any], *, seed: int, sample_rows: int, every: bool = False, **how: Any
) -> tuple[TrainingTables, StreamedSources]:
    """Read training tables in one pass: all focal rows, and some of every other domain; or some of ``every`` domain.

    With them comes the stream, without the focal rows.

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
        "--text": options.get("text"),
        "--images": options.get("images"),
        "--target-kind classes": options["target_kind"] == "classes",
    }
    if wanted := next(filter(asked.get, asked), None):
        raise ParameterError(
            f"{wanted} does not go with --stream, which takes columns of numbers without missing values; prepare "
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
    tables = TrainingTables(domains, encoder, (note, *chain.from_iterable(constant)))
    return tables, sources if every else sources.without(focal)
