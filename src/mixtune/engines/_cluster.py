"""The way to a Dask cluster: the one at an address, or a local one that lives as long as the work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from mixtune.errors import MissingExtraError, MixtuneError, ParameterError

__all__ = ["connected", "dask_module"]

#: Seconds to wait for a scheduler to answer.
PATIENCE = 10


def dask_module(name: str) -> Any:
    """Import a module of Dask, or say how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(name.split(".")[0], "dask", "work on a Dask cluster") from error


@contextmanager
def connected(scheduler: Any, workers: int | None) -> Iterator[Any]:
    """A client of the scheduler at an address, or a client that is there already.

    Without either it is the client that this process has open, as everywhere in Dask, or else a new local cluster.
    A task that comes here, such as one candidate of a search, makes room for the tasks it will wait for.
    """
    distributed = dask_module("distributed")
    with _aside(distributed), _client(distributed, scheduler, workers) as client, _explained(distributed):
        yield client


@contextmanager
def _client(distributed: Any, scheduler: Any, workers: int | None) -> Iterator[Any]:
    if scheduler is None and workers is None:
        scheduler = _open_client(distributed)
    if isinstance(scheduler, distributed.Client):
        if workers is not None:
            raise ParameterError("workers is for a new local cluster; leave it out, the client has its workers")
        yield scheduler
        return
    if scheduler is None:
        with (
            distributed.LocalCluster(
                n_workers=workers or os.cpu_count() or 1, threads_per_worker=1, dashboard_address=":0"
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client
        return
    if workers is not None:
        raise ParameterError("workers is for a new local cluster; leave it out, or leave scheduler out")
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE)
    except (OSError, ValueError, TypeError) as error:
        raise ParameterError(
            f"no Dask scheduler answers at {scheduler!r}: {error}; start one with `dask scheduler`, and workers with "
            "`dask worker ADDRESS`, or leave scheduler out for a local cluster"
        ) from error
    with client:
        yield client


def _open_client(distributed: Any) -> Any:
    try:
        return distributed.get_client(timeout=PATIENCE)  # in a task, that of its worker
    except ValueError:  # there is none
        return None


@contextmanager
def _aside(distributed: Any) -> Iterator[None]:
    """Give the place of this task to others while it waits for them: all workers might be waiting."""
    try:
        distributed.get_worker()
    except ValueError:  # not in a task
        yield
        return
    distributed.secede()
    try:
        yield
    finally:
        distributed.rejoin()


@contextmanager
def _explained(distributed: Any) -> Iterator[None]:
    """Say what to do when workers or the scheduler are lost for good."""
    again = "blocks that were finished are kept if folder was given: run it again to continue"
    try:
        yield
    except distributed.KilledWorker as error:
        raise MixtuneError(
            f"a task ended its worker several times over, perhaps for want of memory; lower memory_limit; {again}"
        ) from error
    except (distributed.client.FutureCancelledError, distributed.comm.CommClosedError) as error:
        raise MixtuneError(f"the Dask scheduler was lost: {error}; {again}") from error
