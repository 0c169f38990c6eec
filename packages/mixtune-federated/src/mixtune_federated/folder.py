"""A folder as transport: requests and answers are files in it. Members are processes that watch the folder.

Any other way to carry files does as well; this one serves a shared drive, and simulations on one machine.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_all_start_methods, get_context
from pathlib import Path
from typing import Any

from mixtune import files
from mixtune.errors import MixtuneError
from mixtune_federated._coordinator import Exchange
from mixtune_federated._keys import PLACES, Key
from mixtune_federated._messages import Message, read_message
from mixtune_federated._policy import Policy
from mixtune_federated._site import Site
from mixtune_federated._study import Study

#: Seconds between two looks into the folder.
LOOK = 0.05
_DONE = "done"


@dataclass(frozen=True)
class Folder:
    """A folder with requests ``q1.mxf``, ``q2.mxf``, ... and, for each, answers of members or their refusals."""

    path: Path

    def key_path(self, name: str) -> Path:
        return self.path / f"{name.encode().hex()}.key"

    def answer_path(self, name: str, step: int, ending: str = ".mxf") -> Path:
        # Names may hold anything; their UTF-8 in hexadecimal is the name of a file everywhere.
        return self.path / f"a{step}-{name.encode().hex()}{ending}"

    def refuse(self, name: str, error: MixtuneError, step: int = 0) -> None:
        """Write why a member does not answer a step; 0 stands for all steps."""
        text = json.dumps({"refused": str(error), "code": error.code})
        files.write_atomically(self.answer_path(name, step, ".refused"), text.encode())

    def collect(
        self, request: Message, names: Collection[str], *, timeout: float, gone: Callable[[], Collection[str]] = tuple
    ) -> tuple[list[Message], dict[str, str]]:
        """Wait for the answers to a request; returns them, and why others are missing.

        Parameters
        ----------
        request
            What was sent.
        names
            Of the members that are to answer.
        timeout
            Seconds after which those that did not are named and left behind.
        gone
            Called for the members that cannot answer any more.
        """
        until = time.monotonic() + timeout
        waiting, answers, missing = list(names), [], {}
        while waiting:
            lost = set(gone())
            for name in list(waiting):
                answer = self.answer_path(name, request.step)
                refusals = [self.answer_path(name, step, ".refused") for step in (0, request.step)]
                if answer.exists():
                    answers.append(read_message(answer))
                elif refusal := next((path for path in refusals if path.exists()), None):
                    missing[name] = str(json.loads(refusal.read_text(encoding="utf-8"))["refused"])
                elif name in lost:
                    missing[name] = "its process ended before it answered"
                elif time.monotonic() > until:
                    missing[name] = f"it did not answer within {timeout:g} seconds"
                else:
                    continue
                waiting.remove(name)
            time.sleep(LOOK if waiting else 0.0)
        return answers, missing


@dataclass
class Faults:
    """What goes wrong in a simulation: members that die at a step, and members that wait so many seconds."""

    deaths: Mapping[str, int] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)

    def strike(self, name: str, step: int, folder: Folder, content: bytes) -> None:
        """Do it, when a member is about to answer: a death leaves half of the answer in a temporary file."""
        time.sleep(self.delays.get(name, 0.0))
        if self.deaths.get(name) == step:
            folder.answer_path(name, step, ".part").write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)


def serve(folder: Folder, sites: Sequence[Site], *, timeout: float, faults: Faults | None = None) -> None:
    """Answer every request in the folder for these members, until there is a file ``done`` or nothing comes."""
    until, answered = time.monotonic() + timeout, set[tuple[str, int]]()
    while not (folder.path / _DONE).exists() and time.monotonic() < until:
        for request in sorted(folder.path.glob("q*.mxf")):
            step = int(request.stem[1:])
            for site in sites:
                if (site.key.name, step) in answered:
                    continue
                answered.add((site.key.name, step))
                until = time.monotonic() + timeout
                _serve(folder, site, request, step, faults or Faults())
        time.sleep(LOOK)


@contextmanager
def exchange_by_processes(
    folder: Folder,
    tables: Mapping[str, Path],
    *,
    processes: int,
    timeout: float,
    step: Callable[[str], None],
    policy: Policy | None = None,
    faults: Faults | None = None,
) -> Iterator[Exchange]:
    """Processes for the members of the study ``study.toml`` in the folder, whose keys are there as well.

    Parameters
    ----------
    tables
        The rows of each member; only its own process reads them.
    processes
        The most processes: with more members, each serves several.
    timeout
        Seconds without a request after which a process ends, and without an answer after which a member is left out.
    step
        Called with a description of the next step.

    Yields
    ------
    exchange
        A function that sends a request to the members and returns their answers.
    """
    # A server that has imported everything forks the members: each of them would take seconds to import it again.
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if hasattr(context, "set_forkserver_preload"):
        private = ["opendp.prelude"] if Study.load(folder.path / "study.toml").level == 3 else []
        used = [f"cryptography.{place}" for place in PLACES]
        context.set_forkserver_preload([__name__, "pandas", *used, *private])
    running: list[tuple[Any, list[str]]] = []
    for place in range(min(processes, len(tables))):
        own = dict(list(tables.items())[place::processes])
        options = {"timeout": timeout, "policy": policy or Policy(), "faults": faults or Faults()}
        process = context.Process(target=_run_members, args=(folder, own), kwargs=options, daemon=True)
        process.start()
        running.append((process, list(own)))

    def gone() -> list[str]:
        return [name for process, names in running if process.exitcode is not None for name in names]

    def exchange(request: Message, names: Sequence[str]) -> tuple[list[Message], dict[str, str]]:
        step(f"Exchange {request.step}")
        files.write_atomically(folder.path / f"q{request.step}.mxf", request.content)
        return folder.collect(request, names, timeout=timeout, gone=gone)

    try:
        yield exchange
        files.write_atomically(folder.path / _DONE, b"")
    finally:
        for process, _ in running:
            process.join(timeout=1.0)  # it may end by itself
            process.kill()
            process.join()


def _run_members(
    folder: Folder, tables: Mapping[str, Path], *, timeout: float, policy: Policy, faults: Faults
) -> None:  # pragma: no cover - in other processes
    study, sites = Study.load(folder.path / "study.toml"), []
    for name, path in tables.items():
        try:
            sites.append(Site(study, path, Key.load(folder.key_path(name)), policy))
        except MixtuneError as error:
            folder.refuse(name, error)
    serve(folder, sites, timeout=timeout, faults=faults)


def _serve(folder: Folder, site: Site, request: Path, step: int, faults: Faults) -> None:
    name = site.key.name
    try:
        message = read_message(request, most_bytes=site.study.limits.message_bytes)
        if name not in message.header["recipients"]:
            return
        answer = site.answer(message)
    except MixtuneError as error:
        folder.refuse(name, error, step)
        return
    faults.strike(name, step, folder, answer.content)
    files.write_atomically(folder.answer_path(name, step), answer.content)
