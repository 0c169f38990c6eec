"""Moments gathered on a Dask cluster: blocks to the workers, sums back through a tree.

Moments add, so all a cluster has to do is add: each worker folds the blocks it is given into one set of sums, and
sums meet pairwise until one set is left. Blocks are numbered and added in the order of their numbers, so the result
does not depend, to the last bit, on how many workers there were or which of them failed. With a folder, the sums of
every block are kept there as soon as they are known; a run that was cut off is continued by running it again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mixtune._checks import check_whole
from mixtune.data._sampling import check_limits, check_whole_domains, sampling_rows, without_draws
from mixtune.engines import _tasks as tasks
from mixtune.engines._cluster import connected, dask_module
from mixtune.engines._partials import digest, map_digest, unpack
from mixtune.engines._sources import open_source
from mixtune.engines._tree import check_numbers, leaves_of, reduce_parts, store_in, told, works_of
from mixtune.errors import DataError
from mixtune.features import FeatureMap
from mixtune.moments import Moments, Origin
from mixtune.moments._budget import DEFAULT_LIMIT
from mixtune.moments._stream_features import StreamFeatures
from mixtune.moments._streaming import Progress

__all__ = ["gather_moments", "gather_samples", "run_tasks"]


def gather_moments(
    source: Any,
    *,
    feature_map: FeatureMap | None = None,
    target: str | Sequence[str] | None = None,
    domain: Any = None,
    columns: str | Sequence[str] | None = None,
    scheduler: Any = None,
    workers: int | None = None,
    folder: str | Path | None = None,
    block_rows: int = 100_000,
    memory_limit: int | str = DEFAULT_LIMIT,
    dtype: str = "float64",
    origin: Origin | None = None,
    progress: Progress | None = None,
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str = ".",
) -> dict[str, Moments]:
    """Moments of every domain, computed on a Dask cluster.

    Parameters
    ----------
    source
        A Dask data frame; a pair ``(X, y)`` of Dask arrays, or ``{name: (X, y)}``; or files and folders as for
        :func:`mixtune.moments.stream_moments`, which the workers must find under the same names.
    feature_map, target, domain, columns, dtype, origin, encoding, separator, decimal
        As for ``stream_moments``. For a pair of Dask arrays, ``domain`` is a Dask array of labels.
    scheduler
        Address of a scheduler such as "tcp://10.0.0.1:8786", or a ``distributed.Client``; by default the client that is
        open, or else a local cluster that is started for the time of the call (in a script, call this under
        ``if __name__ == "__main__":``).
    workers
        Processes of that local cluster; by default one a core.
    folder
        Where the moments of finished blocks are kept, on a disk that all workers share. Running the same again uses
        them: blocks of files that have not changed are not even read. By default nothing is kept.
    block_rows
        Rows in a block of files, about: Parquet is cut between row groups, CSV not at all. Dask collections come in
        blocks already.
    memory_limit
        Memory for blocks and sums in each worker, as for ``stream_moments``.
    progress
        Called with the rows done and the rows in all (None where only reading tells).

    Returns
    -------
    dict of str to Moments
        In the order in which the domains appear, the same on any cluster.

    Raises
    ------
    MixtuneError
        If the cluster is lost; what was finished is kept in ``folder``.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> X = da.arange(6, chunks=2).reshape(6, 1)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     gather_moments({"a": (X, 2 * X[:, 0])}, scheduler=client)["a"].head(ridge=0.0)
    array([2.])
    """
    csv = {"encoding": encoding, "separator": separator, "decimal": decimal}
    dask_module("dask")
    opened = open_source(source, target=target, domain=domain, columns=columns, **csv)
    features = StreamFeatures.of(opened.stream, feature_map, dtype, origin)
    budget = features.budget(opened.stream.n_outputs, memory_limit)
    store = store_in(folder)
    about = [
        opened.stream.columns,
        target if isinstance(target, str | None) else list(target),
        domain if isinstance(domain, str) else 0,
    ]
    settings = "" if folder is None else digest([about, csv, dtype, map_digest(features)])
    works = works_of(opened, check_whole("block_rows", block_rows, least=1), settings)
    job = tasks.MomentJob(features, budget, store, settings, f"mixtune-{uuid.uuid4().hex}")
    with connected(scheduler, workers) as client, told(client, job.topic, opened.stream.rows, progress):
        leaves = leaves_of(opened, works, job, tasks.moments_of_works, tasks.moments_of_block)
        numbers, packed = reduce_parts(client, leaves, tasks.merge_moments)
    check_numbers(numbers, len(opened.blocks) if opened.blocks is not None else len(works))
    if not (found := unpack(*packed)):
        raise DataError("the source has no rows")
    if progress is not None:  # what the last workers told may still be on its way
        rows = sum(moments.count for moments in found.values())
        progress(rows, rows)
    return found


def gather_samples(
    source: Any,
    *,
    target: str | Sequence[str] | None = None,
    domain: Any = None,
    columns: str | Sequence[str] | None = None,
    rows: int = 1000,
    whole: Collection[str] = (),
    most_whole: int | None = None,
    seed: int = 0,
    scheduler: Any = None,
    workers: int | None = None,
    block_rows: int = 100_000,
    progress: Progress | None = None,
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str = ".",
) -> dict[str, tuple[Any, Any]]:
    """Draw at most ``rows`` rows of every domain on a cluster: what weights from distances are computed on.

    Parameters
    ----------
    source, target, domain, columns, scheduler, workers, block_rows, progress, encoding, separator, decimal
        As for :func:`gather_moments`.
    rows
        The most rows of a domain; smaller domains come whole.
    whole
        Names of domains that come whole however large they are, such as the focal one.
    most_whole
        How many rows these may have; more are an error.
    seed
        Fixes the draw, which is uniform and without replacement.

    Returns
    -------
    dict of str to (X, y)
        As :meth:`mixtune.Domains.from_dict` takes it.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> X = da.arange(60, chunks=20).reshape(60, 1)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     X, y = gather_samples({"a": (X, X[:, 0])}, rows=5, scheduler=client)["a"]
    >>> X.shape, bool((X[:, 0] == y).all())
    ((5, 1), True)
    """
    csv = {"encoding": encoding, "separator": separator, "decimal": decimal}
    dask_module("dask")
    opened = open_source(source, target=target, domain=domain, columns=columns, **csv)
    limits, seed = check_limits(rows, whole, most_whole), check_whole("seed", seed)
    works = works_of(opened, check_whole("block_rows", block_rows, least=1), "")
    job = tasks.SampleJob(limits, seed, sampling_rows(opened.stream), f"mixtune-{uuid.uuid4().hex}")
    with connected(scheduler, workers) as client, told(client, job.topic, opened.stream.rows, progress):
        leaves = leaves_of(opened, works, job, tasks.samples_of_works, tasks.samples_of_block)
        numbers, found = reduce_parts(client, leaves, lambda parts: tasks.merge_sample_parts(job, parts))
    check_numbers(numbers, len(opened.blocks) if opened.blocks is not None else len(works))
    check_whole_domains(found, limits.whole)
    return without_draws(found)


def run_tasks(
    function: Callable[..., Any],
    arguments: Mapping[Any, tuple[Any, ...]],
    *,
    scheduler: Any = None,
    workers: int | None = None,
) -> Generator[tuple[Any, Any, float], None, None]:
    """Call a function many times on a cluster: the runs of a study, the candidates of a grid.

    Parameters
    ----------
    function
        A function of a module that the workers can import. Each call computes on one thread.
    arguments
        The arguments of each call, by a key of your own.
    scheduler, workers
        As for :func:`gather_moments`.

    Yields
    ------
    key, result, seconds
        As they finish. Closing the iterator cancels the rest.

    Examples
    --------
    >>> from distributed import Client
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     sorted((key, result) for key, result, _ in run_tasks(pow, {"a": (2, 3), "b": (3, 2)}, scheduler=client))
    [('a', 8), ('b', 9)]
    """
    distributed = dask_module("distributed")
    with connected(scheduler, workers) as client:
        futures = {
            client.submit(_timed, function, given, pure=False, key=f"mixtune-{uuid.uuid4().hex}"): key
            for key, given in arguments.items()
        }
        try:
            for future in distributed.as_completed(futures):
                result, seconds = future.result()
                yield futures[future], result, seconds
        finally:
            client.cancel(list(futures))


def _timed(function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, float]:
    begin = time.perf_counter()
    with threadpool_limits(limits=1):
        result = function(*given)
    return result, time.perf_counter() - begin
