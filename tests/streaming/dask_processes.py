"""A Dask scheduler and its workers as processes of their own, which tests can end as a machine that fails would."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import NamedTuple


class Processes(NamedTuple):
    address: str
    scheduler: subprocess.Popen
    workers: list[subprocess.Popen]


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

    try:
        scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0")
        address = told(scheduler, r"tcp://[\d.]+:\d+")[0]
        there = [start("worker", address, "--nthreads", "1", *(options or ["--no-nanny"])) for _ in range(workers)]
        for worker in there:
            told(worker, "Registered to")
        yield Processes(address, scheduler, there)
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a nanny with its worker
            process.communicate()
