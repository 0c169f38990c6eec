"""Experiment -> run_study -> Results: independent runs, each from its own seed, kept as they finish.

An experiment is a function of (settings, seed) and a number of runs. A study does the runs that are not in the results
folder yet and hands all of them to the experiment's summary. Because a run depends on nothing but its settings and its
seed, a study that was killed and resumed, or done with another number of jobs, ends with the same numbers to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import scipy

from mixtune._checks import check_whole
from mixtune._device import check_device, describe_device
from mixtune._version import __version__
from mixtune.errors import DataError, ParameterError
from mixtune.paper._pool import Together, execute, execute_together
from mixtune.paper._store import Outcome, ResultsStore

__all__ = ["Executor", "Experiment", "Results", "Summary", "Table", "check_together", "run_seed", "run_study"]

Floats = np.ndarray[Any, Any]
S = TypeVar("S")

MADE_WITH = f"mixtune {__version__}, numpy {np.__version__}, scipy {scipy.__version__}"

#: Does the runs of (run index -> seed) with (run, settings, seeds), and yields (index, outcome, seconds).
Executor = Callable[[Any, Any, Mapping[int, int]], Generator[tuple[int, Outcome, float], None, None]]
#: Rows of a table for people or for a CSV file; all with the same keys. None is an empty cell.
Table = Sequence[Mapping[str, str | int | float | bool | None]]


class Summary(Protocol):
    """What a study says at its end; the command line prints it and writes it down without knowing more."""

    def as_json(self) -> Any:
        """The document that ``--json`` prints: plain lists, dicts, text and finite numbers."""

    def headline(self) -> Table:
        """The table shown to people."""

    def notes(self) -> list[str]:
        """Sentences to show below it."""

    def tables(self) -> dict[str, Table]:
        """Tables to write as CSV files, by file name without its ending."""


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """A set of independent runs.

    Attributes
    ----------
    name : str
        As on the command line: "table1".
    settings : frozen dataclass
        All that matters to the numbers besides the seed; kept with the results and compared when a study is resumed.
    run : function (settings, seed) -> Outcome
        One run. A function of a module (it travels to other processes by name) that depends on nothing else.
    summarise : function (settings, results) -> Summary
    runs : int
        How many runs the paper made.
    revision : int
        Raised when a change of the code changes the numbers, so that old and new runs are not mixed.
    together : function (settings, seeds, device) -> list of Outcome, optional
        Several runs at once on a device, where an experiment can do that: the same numbers up to rounding.
    """

    name: str
    settings: S
    run: Callable[[S, int], Outcome]
    summarise: Callable[[S, Results], Summary]
    runs: int
    revision: int = 1
    together: Together | None = None

    def configuration(self, seed: int, device: str | None = None) -> dict[str, Any]:
        """What the results depend on, as a JSON document; runs of a device differ in rounding and are kept apart."""
        settings = asdict(self.settings)  # type: ignore[call-overload]
        found = {"revision": self.revision, "seed": seed, "settings": settings}
        return found if device is None else found | {"device": device.partition(":")[0]}


@dataclass(frozen=True, eq=False)
class Results:
    """The rows and curves of runs 0..runs-1 of a study.

    Attributes
    ----------
    experiment : str
    seed, runs : int
    methods : tuple of str
        In the order the runs gave them.
    """

    experiment: str
    seed: int
    runs: int
    methods: tuple[str, ...]
    _rows: dict[str, list[dict[str, float]]]
    _curves: Callable[[str, str], list[Floats]]

    def values(self, method: str, quantity: str) -> Floats:
        """One number per run, shape (runs,)."""
        found = [row[quantity] for row in self._rows.get(method, []) if quantity in row]
        self._check(len(found), method, quantity)
        return np.array(found)

    def curves(self, method: str, quantity: str) -> Floats:
        """One array per run, shape (runs, ...)."""
        found = self._curves(method, quantity)
        self._check(len(found), method, quantity)
        return np.stack(found)

    def _check(self, found: int, method: str, quantity: str) -> None:
        if found != self.runs:
            raise DataError(f"{self.experiment} has {quantity!r} of {method!r} in {found} of {self.runs} runs")


def run_seed(seed: int, run: int) -> int:
    """The seed of a run: independent streams for all (seed, run), in 53 bits so that JSON keeps it exactly.

    Examples
    --------
    >>> run_seed(0, 0) == run_seed(0, 0), run_seed(0, 0) == run_seed(0, 1)
    (True, False)
    """
    return int(np.random.SeedSequence(seed, spawn_key=(run,)).generate_state(1, np.uint64)[0] >> np.uint64(11))


def check_together(experiment: Experiment[Any], device: str) -> Together:
    """The function that does several runs on a device; refuses one that is not there, and work that has none for it."""
    if experiment.together is None:
        raise ParameterError(f"{experiment.name} has no work for a device; leave the device out")
    check_device(device)
    return experiment.together


def run_study(
    experiment: Experiment[Any],
    *,
    out: str | Path,
    seed: int = 0,
    runs: int | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    device: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Do the runs of an experiment that ``out`` does not hold yet, and summarise all of them.

    Parameters
    ----------
    experiment : Experiment
    out : path
        Results folder. It may hold other experiments, and other runs of this one.
    seed : int
        Base seed; run k depends on (seed, k) only.
    runs : int, optional
        How many; by default as many as the paper made. Results with more runs than that are cut to them.
    jobs : int
        Processes. The numbers do not depend on it. More than one needs a main module that can be imported
        (``if __name__ == "__main__":``).
    executor : function (run, settings, seeds) -> generator of (index, outcome, seconds), optional
        Who does the runs of ``seeds`` (run index to seed), in any order, such as a cluster; by default ``jobs``
        processes of this machine. The numbers do not depend on it.
    device : str, optional
        A PyTorch device, "cuda" or "cpu", that does several runs at once, for experiments that can
        (:attr:`Experiment.together`); the numbers are the same up to rounding.
    progress : function (finished, runs), optional
        Called at the beginning and after each run.

    Raises
    ------
    ParameterError
        If ``out`` holds this experiment with another seed or other settings, or there is no such device.
    """
    seed, jobs = check_whole("seed", seed), check_whole("jobs", jobs, least=1)
    made_with, doing = MADE_WITH, executor or partial(execute, jobs=jobs)
    if device is not None:
        doing = partial(execute_together, check_together(experiment, device), device)
        made_with = f"{MADE_WITH}, {describe_device(device)}"
        if executor is not None:
            raise ParameterError("a device does its runs by itself; leave the executor out")
    runs = check_whole("runs", experiment.runs if runs is None else runs, least=1)
    with ResultsStore(out) as store:
        store.claim(experiment.name, experiment.configuration(seed, device))
        held = store.finished(experiment.name)
        seeds = {run: run_seed(seed, run) for run in range(runs) if run not in held}
        finished = runs - len(seeds)
        if progress:
            progress(finished, runs)
        # Closing ends the workers, whatever goes wrong here.
        with closing(doing(experiment.run, experiment.settings, seeds)) as outcomes:
            for run, outcome, seconds in outcomes:
                store.add(experiment.name, run, outcome, seed=seeds[run], seconds=seconds, made_with=made_with)
                finished += 1
                if progress:
                    progress(finished, runs)
        rows = store.rows(experiment.name, runs)

        def curves(method: str, quantity: str) -> list[Floats]:
            return store.curves(experiment.name, method, quantity, runs)

        results = Results(experiment.name, seed, runs, tuple(rows), rows, curves)
        return experiment.summarise(experiment.settings, results)
