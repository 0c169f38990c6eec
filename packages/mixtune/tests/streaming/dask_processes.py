"""A Dask scheduler and its workers as processes of their own, which tests can end as a machine that fails would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import NamedTuple


class Processes(NamedTuple):
    address: str
    scheduler: subprocess.Popen
    workers: list[subprocess.Popen]
    add_worker: Callable[[], subprocess.Popen]


@contextmanager
def dask_processes(workers=1, *options, **settings):
    """A scheduler that was told nothing of time-outs, with ``settings`` of Dask, and workers with ``options``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")} | settings
    started = []

    def start(what, *arguments):
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *arguments]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=env, start_new_session=True, **pipes))
        return started[-1]

    def told(process, pattern):
        return next(found for line in process.stderr if (found := re.search(pattern, line)))

    scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0")
    # A test that would wait without end loses its scheduler, and fails.
    end = threading.Timer(90, scheduler.kill)
    end.start()
    try:
        address = told(scheduler, r"tcp://[\d.]+:\d+")[0]

        def add_worker():
            worker = start("worker", address, "--nthreads", "1", *(options or ["--no-nanny"]))
            told(worker, "Registered to")
            return worker

        yield Processes(address, scheduler, [add_worker() for _ in range(workers)], add_worker)
    finally:
        end.cancel()
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a nanny with its worker
            process.communicate()
