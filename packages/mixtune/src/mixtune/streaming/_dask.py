"""Folding the chunks of a stream on a Dask cluster: chunks to the workers, results back through a tree.

Moments add, so all a cluster has to do is add: each worker folds the chunks it is given into one set of sums, and sums
meet a few at a time until one set is left. Chunks are numbered and added in the order of their numbers, so the result
does not depend, to the last bit, on how many workers there were or which of them failed. With a folder, the sums of
every chunk are kept there as soon as they are known; a run that was cut off is continued by running it again.
"""

import hashlib
import json
import multiprocessing
import os
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mixtune._messages import Wording, counted
from mixtune._registry import Reader, Writer
from mixtune.checks import check_whole
from mixtune.errors import DataError, MixtuneError, ParameterError
from mixtune.files import read_model, write_model
from mixtune.moments import Moments
from mixtune.streaming._stream import Chunk, DelayedChunk, Progress, Stream, dask_module, with_progress

#: Seconds to wait for a scheduler to answer.
CONNECT_SECONDS = 10
#: Seconds to wait for workers where there are none, unless Dask's own setting says how long; Dask waits for ever.
WORKER_SECONDS, WORKER_SETTING = 120, "distributed.scheduler.no-workers-timeout"
WORKER_VARIABLE = "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"
#: Seconds between looks at what is finished.
POLL_SECONDS = 0.02
#: Results that meet at one node of the tree.
FAN = 4
#: The most chunks that one task folds, one after the other; fewer where there are not many tasks yet to share out.
MOST_BLOCKS, ENOUGH_TASKS = 8, 128

FORMAT = "mixtune-partial-moments-3"
#: Where the result of a task has its number of rows; no domain has such a name.
ROWS = ("rows",)


@dataclass(frozen=True, eq=False)
class Cluster:
    """A Dask cluster to compute on.

    A run that finds no workers for 2 minutes, or for as long as Dask's setting
    ``distributed.scheduler.no-workers-timeout`` says, is given up with an error.

    Parameters
    ----------
    scheduler
        Address of a scheduler such as "tcp://10.0.0.1:8786", or a ``distributed.Client``; by default the client that is
        open, or else a local cluster that is started for the time of the call (in a script, call this under
        ``if __name__ == "__main__":``).
    workers
        Processes of that local cluster; by default one per core.
    folder
        Where the moments of finished chunks are kept, on a disk that all workers share. Running the same again uses
        them: chunks of files that have not changed are not even read. By default nothing is kept.
    block_rows
        Rows in a chunk of files, about: Parquet is cut between row groups, CSV not at all. Dask collections come in
        chunks already.
    """

    scheduler: Any = None
    workers: int | None = None
    folder: str | Path | None = None
    block_rows: int = 100_000

    def __post_init__(self) -> None:
        dask_module("dask")
        check_whole("block_rows", self.block_rows, least=1)

    def run(self, job: Any, stream: Stream, progress: Progress | None, reading: Any = None) -> Any:
        """Fold all chunks of a stream, and merge the results.

        Parameters
        ----------
        job
            A :class:`MomentJob` or a :class:`SampleJob`: ``reading_rows`` and ``fold``, whose results add.
        stream, progress
            What to read, and what to report the rows to.
        reading
            How the source is read, for moments that may be kept; without it nothing is kept.
        """
        parts = [part for chunk in stream.chunks for part in _task_chunks(chunk, self.block_rows)]
        folder = None if reading is None or self.folder is None else Path(self.folder).resolve()
        again: str | Wording = f"finished blocks are kept in {folder}: run it again to continue"
        if folder is None:
            again = Wording("run it again; with folder, the sums of finished blocks are kept", "run it again")
        else:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DataError(f"the folder {folder} cannot be made: {error.strerror}; pass another one") from error
        settings = "" if folder is None else digest(job.settings(reading))
        task = _Task(job, f"mixtune-{uuid.uuid4().hex}", folder, settings)
        # One node of the graph, so that the feature map is sent to a worker once and not with every chunk.
        delayed = dask_module("dask").delayed
        shared, merge = delayed(task, traverse=False, pure=False), delayed(merge_domains, pure=False)
        # From the number of chunks and not of workers, so that rounding does not depend on the cluster. Partitions of
        # a Dask collection, which have no identity yet, are folded by a task each.
        size = 1 if parts[0][1] is None else min(max(len(parts) // ENOUGH_TASKS, 1), MOST_BLOCKS)
        numbered = [(number, *part) for number, part in enumerate(parts)]
        leaves = [shared.fold(numbered[begin : begin + size], pure=False) for begin in range(0, len(parts), size)]
        report = progress or (lambda done, total: None)
        done: dict[int, int] = {}

        def handle(event: tuple[Any, dict[str, int]]) -> None:
            done[event[1]["number"]] = event[1]["rows"]  # a chunk that is done twice counts once
            report(sum(done.values()), stream.rows)

        with _connect(self.scheduler, self.workers, again) as client:
            report(0, stream.rows)
            client.subscribe_topic(task.topic, handle)
            try:
                ((_, found),) = _results(client, [client.compute(merge_tree(leaves, merge))])
            finally:
                client.unsubscribe_topic(task.topic)
        rows = found.pop(ROWS)
        report(rows, rows)  # the last events may still be on their way
        return found


def run_job(
    job: Any, stream: Stream, progress: Progress | None, cluster: Cluster | None, reading: dict[str, Any] | None = None
) -> Any:
    """The result of a job over all blocks of a stream, here or on a cluster; ``reading`` as for :meth:`Cluster.run`."""
    if cluster is not None:
        return job.finish(cluster.run(job, stream, progress, reading))
    return job.finish(job.fold(with_progress(stream.blocks(job.reading_rows), progress, stream.rows)))


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

    Raises
    ------
    MixtuneError
        If the cluster is lost: the code is "cluster-lost", "cluster-without-workers" or "cluster-worker-killed".

    Examples
    --------
    >>> from distributed import Client
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     sorted((key, result) for key, result, _ in run_tasks(pow, {"a": (2, 3), "b": (3, 2)}, scheduler=client))
    [('a', 8), ('b', 9)]
    """
    with _connect(scheduler, workers, "the results before the error are complete: call the others again") as client:
        futures = client.map(partial(_timed, function), list(arguments.values()), pure=False)
        keys = dict(zip(futures, arguments, strict=True))
        with closing(_results(client, futures)) as results:
            for future, (result, seconds) in results:
                yield keys[future], result, seconds


def _timed(function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, float]:
    begin = time.perf_counter()
    with threadpool_limits(limits=1):
        result = function(*given)
    return result, time.perf_counter() - begin


# --- tasks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Task:
    """All that the tasks of one run share: what to do with blocks, where progress is reported, where sums are kept.

    Kept sums are in ``folder``, under names that depend on ``settings`` and on the chunk; without a folder none are.
    """

    job: Any
    topic: str
    folder: Path | None
    settings: str

    def fold(self, parts: Sequence[tuple[int, Any, Any]]) -> dict[Any, Any]:
        """The result over several chunks, one after the other, so that one set of sums is in memory; and their ROWS."""
        return merge_domains(self._fold_chunk(*part) for part in parts)

    def _fold_chunk(self, number: int, chunk: Any, identity: Any) -> dict[Any, Any]:
        """The result over one chunk, computed or as it was kept, and its ROWS."""
        path = found = None
        if self.folder is not None:
            # Equal partitions of a collection are still two partitions, hence the number.
            key = digest([self.settings, identity or [number, chunk.identity()]])
            path = self.folder / f"{key}.moments"
            found = read_partial(path)
        seen = [0 if found is None else sum(moments.count for moments in found.values())]
        if found is None:
            blocks = with_progress(chunk.blocks(self.job.reading_rows), lambda done, _: seen.append(done))
            _check_unchanged(chunk, identity)
            found = self.job.fold(blocks, (number,))
            _check_unchanged(chunk, identity)
            if path is not None:
                write_partial(path, found)
        dask_module("distributed").get_worker().log_event(self.topic, {"number": number, "rows": seen[-1]})
        return {**found, ROWS: seen[-1]}


def _check_unchanged(chunk: Any, identity: Any) -> None:
    """Refuse a file that changed since the work was given out: what is kept would have the wrong name."""
    if identity is not None and chunk.identity() != identity:
        raise DataError(f"a file changed while it was read ({identity}); run it again")


def _task_chunks(chunk: Chunk, rows: int) -> list[tuple[Any, Any]]:
    """A chunk as smaller ones for tasks, each with the identity of its file; blocks of collections have none yet."""
    if isinstance(chunk, DelayedChunk):
        return [(chunk.block, None)]
    if chunk.identity() is None:
        problem = "arrays and labels in this process cannot be read by the workers of a cluster"
        remedy = "pass {name: (X, y)} with names of .npy files, or Dask arrays, or use stream_moments here"
        raise ParameterError(f"{problem}; {remedy}")
    return [(part, part.identity()) for part in chunk.split(rows)]


def merge_domains(parts: Iterable[Mapping[Any, Any]]) -> dict[Any, Any]:
    """What parts of a source have of each domain, added in their order: rounding is the same whoever computed them.

    Examples
    --------
    >>> merge_domains([{"a": 1}, {"b": 2, "a": 3}])
    {'a': 4, 'b': 2}
    """
    total: dict[Any, Any] = {}
    for part in parts:
        for name, found in part.items():
            total[name] = total[name] + found if name in total else found
    return total


def merge_tree(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """Merge a few neighbours at a time until one is left; Dask walks the tree depth first, so few results wait.

    Examples
    --------
    >>> merge_tree(list("abcdef"), "".join)
    'abcdef'
    """
    while len(parts) > 1:
        parts = [merge(parts[begin : begin + FAN]) for begin in range(0, len(parts), FAN)]
    return parts[0]


# --- sums of finished chunks ----------------------------------------------------------------------------------------


def write_partial(path: Path, moments: Mapping[str, Moments]) -> None:
    """Keep the moments of a chunk."""
    writer = Writer()
    spec = {"format": FORMAT, "moments": writer.write(moments, "moments")}
    write_model(path, spec, writer.arrays)


def read_partial(path: Path) -> dict[str, Moments] | None:
    """The moments of a chunk, or None where the file is not there, not whole, or of another format.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_partial(Path(folder) / "a.moments", {"a": Moments.from_rows(np.eye(2), np.ones(2))})
    ...     read_partial(Path(folder) / "a.moments")
    {'a': Moments(count=2, n_features=2, n_outputs=1)}
    """
    try:
        spec, arrays = read_model(path)
        return Reader(arrays).read(spec["moments"]) if spec.get("format") == FORMAT else None
    except (DataError, KeyError):
        # Perhaps a disk that was full or failing: the chunk is computed again, and its file replaced.
        return None


def digest(document: Any) -> str:
    """The SHA-256 of a JSON document.

    Examples
    --------
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()


# --- the cluster --------------------------------------------------------------------------------------------------


def _results(client: Any, futures: Sequence[Any]) -> Generator[tuple[Any, Any], None, None]:
    """Each future and its result, as they come; an error where there have been no workers for too long."""
    distributed, dask = dask_module("distributed"), dask_module("dask")
    limit = dask.utils.parse_timedelta(dask.config.get(WORKER_SETTING, None) or WORKER_SECONDS)
    completed = distributed.as_completed(futures, loop=client.loop, with_results=True)
    seen = looked = time.monotonic()
    try:
        while not completed.is_empty():
            if completed.has_ready():
                future, result = next(completed)  # raises the error of a task
                if future.cancelled():
                    raise result
                yield future, result
                seen = time.monotonic()
            elif (now := time.monotonic()) - looked < min(limit / 4, 1):
                time.sleep(POLL_SECONDS)
            else:
                looked, seen = now, now if client.scheduler_info()["workers"] else seen
                if now - seen > limit:
                    raise distributed.scheduler.NoWorkerError(futures[0].key, limit)
    finally:
        client.cancel(futures)


@contextmanager
def _connect(scheduler: Any, workers: int | None, again: str | Wording) -> Iterator[Any]:
    """A client of the scheduler at an address, or a client that is there already.

    Without either it is the client that this process has open, as everywhere in Dask, or else a new local cluster.
    ``again`` says, in errors, what is kept and how to continue.
    """
    distributed = dask_module("distributed")
    with ExitStack() as stack:
        with suppress(ValueError):  # not in a task
            distributed.get_worker()
            # A task, such as one candidate of a search, makes room for those it waits for: all workers might be busy.
            distributed.secede()
            stack.callback(distributed.rejoin)
        client = _client(distributed, scheduler, workers, stack)

        def lost(code: str, problem: str) -> MixtuneError:
            return MixtuneError("{problem}; {again}", code=f"cluster-{code}", problem=problem, again=again)

        try:
            yield client
        except distributed.KilledWorker as error:
            problem = f"a task ended {counted((error.allowed_failures + 1, 'worker'))}, most likely for want of memory"
            advice = "give each worker more (fewer on a machine, or `dask worker --memory-limit`)"
            raise lost("worker-killed", f"{problem}; {advice}") from error
        except (distributed.scheduler.NoWorkerError, distributed.scheduler.NoValidWorkerError) as error:
            problem = f"the Dask cluster has had no workers for {error.timeout:g} s; start some (`dask worker ADDRESS`)"
            raise lost("without-workers", f"{problem}, or wait longer with {WORKER_VARIABLE}=1h") from error
        except (distributed.client.FutureCancelledError, distributed.comm.CommClosedError) as error:
            why = getattr(error, "reason", "connection closed")
            raise lost("lost", f"the Dask scheduler was lost ({why}); check that it and its workers run") from error


#: Worker processes import the script that started them.
_GUARD = (
    "each worker of a local cluster imports the script that starts it: put what the script does under if __name__ == "
    '"__main__":, or pass scheduler, a cluster that is there already'
)


def _client(distributed: Any, scheduler: Any, workers: int | None, stack: ExitStack) -> Any:
    if scheduler is None and workers is None:
        with suppress(ValueError):  # there is none
            return distributed.get_client(timeout=CONNECT_SECONDS)  # in a task, that of its worker
    if scheduler is None:
        each = {"n_workers": workers or os.cpu_count() or 1, "threads_per_worker": 1, "dashboard_address": ":0"}
        # Set while a new process imports the script of its parent, which must not start processes then.
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise ParameterError(_GUARD)
        try:
            scheduler = stack.enter_context(distributed.LocalCluster(**each))
        except RuntimeError as error:
            raise ParameterError(f"the workers of a local Dask cluster did not start: {error}; {_GUARD}") from error
    elif workers is not None:
        raise ParameterError("workers is for a new local cluster; leave it out, a cluster has its workers")
    if isinstance(scheduler, distributed.Client):
        return scheduler
    try:
        return stack.enter_context(distributed.Client(scheduler, timeout=CONNECT_SECONDS))
    except (OSError, ValueError, TypeError) as error:
        remedy = "start one with `dask scheduler`, and workers with `dask worker ADDRESS`"
        problem = f"no Dask scheduler answers at {scheduler!r}: {error}"
        raise ParameterError(f"{problem}; {remedy}, or leave scheduler out for a local cluster") from error
