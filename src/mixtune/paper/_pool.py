"""Runs in several processes, with the same numbers whatever their number.

Matrix products round differently with different numbers of threads, so every run computes on one thread and the
processes are the only parallelism. Each worker hangs on a pipe of its own: it can be ended at any moment without
disturbing the others, it ends by itself when the parent is gone, and it never sees Ctrl-C (the parent decides). Only
the parent touches files.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from threadpoolctl import threadpool_limits

from mixtune.errors import MixtuneError
from mixtune.paper._store import Outcome

__all__ = ["Together", "execute", "execute_together"]

Run = Callable[[Any, int], Outcome]
#: (settings, seeds, device) to the outcome of every seed.
Together = Callable[[Any, Sequence[int], str], list[Outcome]]

#: Runs that share a device's time and memory: enough to keep it busy, few enough to see progress.
RUNS_AT_ONCE = 20

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def execute(
    run: Run, settings: Any, seeds: Mapping[int, int], *, jobs: int
) -> Generator[tuple[int, Outcome, float], None, None]:
    """Do the runs of ``seeds`` (run index to seed); yield (index, outcome, seconds) as they finish.

    One job runs in this process, several in as many new processes. Closing the iterator ends the workers at once.
    """
    jobs = min(jobs, len(seeds))
    if jobs > 1:
        yield from _in_workers(run, settings, seeds, jobs)
        return
    for index, seed in seeds.items():
        yield index, *_timed(run, settings, seed)


def execute_together(
    together: Together,
    device: str,
    run: Run,
    settings: Any,
    seeds: Mapping[int, int],
) -> Generator[tuple[int, Outcome, float], None, None]:
    """Do the runs of ``seeds`` on a device, several at once, in this process; yields what :func:`execute` does."""
    waiting = list(seeds)
    while waiting:
        now, waiting = waiting[:RUNS_AT_ONCE], waiting[RUNS_AT_ONCE:]
        begin = time.perf_counter()
        with threadpool_limits(limits=1):
            outcomes = together(settings, [seeds[index] for index in now], device)
        seconds = (time.perf_counter() - begin) / len(now)
        for index, outcome in zip(now, outcomes, strict=True):
            yield index, outcome, seconds


def _in_workers(
    run: Run, settings: Any, seeds: Mapping[int, int], jobs: int
) -> Generator[tuple[int, Outcome, float], None, None]:
    waiting = list(seeds.items())[::-1]
    workers: dict[Connection, BaseProcess] = {}
    finished = False
    try:
        with _interrupts_held():
            for _ in range(jobs):
                _start_worker(workers, run, settings)
        busy = list(workers)
        for pipe in busy:
            pipe.send(waiting.pop())
        while busy:
            ready = wait(busy)
            for pipe in [pipe for pipe in busy if pipe in ready]:
                index, outcome, seconds = _receive(pipe)
                if waiting:
                    pipe.send(waiting.pop())
                else:
                    busy.remove(pipe)
                yield index, outcome, seconds
        finished = True
    finally:
        for pipe, worker in workers.items():
            pipe.close()  # an idle worker ends here
            if not finished:
                worker.terminate()
        for worker in workers.values():
            worker.join()


def _start_worker(workers: dict[Connection, BaseProcess], run: Run, settings: Any) -> None:
    # A new interpreter rather than a fork: forking a process with threads (BLAS, progress bars) can hang.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(theirs, run, settings), daemon=True)
    worker.start()
    theirs.close()
    workers[ours] = worker


def _receive(pipe: Connection) -> tuple[int, Outcome, float]:
    try:
        index, outcome, rest = pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise MixtuneError(
            "a worker process ended before its run was finished, perhaps for want of memory; finished runs are kept: "
            "continue with fewer jobs"
        ) from error
    if outcome is None:
        raise RuntimeError(f"run {index} failed in a worker process:\n{rest}")
    return index, outcome, rest


def _work(pipe: Connection, run: Run, settings: Any) -> None:
    """A worker's life: seeds in, outcomes out, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # for libraries loaded from now on
    with suppress(EOFError, ConnectionError):
        while True:
            index, seed = pipe.recv()
            try:
                outcome, seconds = _timed(run, settings, seed)
            except Exception:  # noqa: BLE001 - whatever it is, the parent reports it
                pipe.send((index, None, traceback.format_exc()))
            else:
                pipe.send((index, outcome, seconds))


def _timed(run: Run, settings: Any, seed: int) -> tuple[Outcome, float]:
    """One run on one thread, and its seconds."""
    begin = time.perf_counter()
    # Here and not once per worker: libraries loaded since then are limited as well.
    with threadpool_limits(limits=1):
        outcome = run(settings, seed)
    return outcome, time.perf_counter() - begin


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while workers start: they inherit the mask, and cannot be hit before they are ready."""
    if not hasattr(signal, "pthread_sigmask"):  # pragma: no cover - Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its own start would lift the mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
