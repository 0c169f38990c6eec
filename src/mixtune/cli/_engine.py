"""The options that say where the work is done, and the runs of a study on a cluster."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Annotated, Any, TypeAlias

import typer

from mixtune.errors import ParameterError
from mixtune.streaming import dask_module, run_tasks

ENGINES = ("local", "dask")

Engine: TypeAlias = Annotated[
    str, typer.Option(metavar="|".join(ENGINES), help="Where to compute: on this machine, or on a Dask cluster.")
]
Scheduler: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Of the Dask scheduler, such as tcp://10.0.0.1:8786; by default a local cluster is started.",
        show_default=False,
    ),
]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="cpu|cuda", help="Compute with NumPy, or with PyTorch on a CUDA device (cuda:1 is the second)."
    ),
]


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
        dask_module("distributed")


def execute_on_cluster(
    run: Any, settings: Any, seeds: Mapping[int, int], *, scheduler: str | None, jobs: int | None = None
) -> Generator[tuple[int, Any, float], None, None]:
    """Do the runs of a study on a cluster; yields (index, outcome, seconds) like the processes of this machine do.

    ``jobs`` is the number of processes of a local cluster, and stays out of one that is there already.
    """
    given = {index: (settings, seed) for index, seed in seeds.items()}
    yield from run_tasks(run, given, scheduler=scheduler, workers=None if scheduler else jobs)
