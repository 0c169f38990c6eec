"""Experiment -> run_study -> Results: independent runs, each from its own seed, kept as they finish.

An experiment is a function of (settings, seed) and a number of runs. A study does the runs that are not in the results
folder yet and hands all of them to the experiment's summary. Because a run depends on nothing but its settings and its
seed, a study that was killed and resumed, or done with another number of jobs, ends with the same numbers to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import scipy

from mixtune._checks import check_whole
from mixtune._version import __version__
from mixtune.errors import DataError
from mixtune.paper._pool import execute
from mixtune.paper._store import Outcome, ResultsStore

__all__ = ["Experiment", "Results", "Summary", "Table", "run_seed", "run_study"]

Floats = np.ndarray[Any, Any]
S = TypeVar("S")

MADE_WITH = f"mixtune {__version__}, numpy {np.__version__}, scipy {scipy.__version__}"

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
    """

    name: str
    settings: S
    run: Callable[[S, int], Outcome]
    summarise: Callable[[S, Results], Summary]
    runs: int
    revision: int = 1

    def configuration(self, seed: int) -> dict[str, Any]:
        """What the results depend on, as a JSON document."""
        return {"revision": self.revision, "seed": seed, "settings": asdict(self.settings)}  # type: ignore[call-overload]


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


def run_study(
    experiment: Experiment[Any],
    *,
    out: str | Path,
    seed: int = 0,
    runs: int | None = None,
    jobs: int = 1,
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
    progress : function (finished, runs), optional
        Called at the beginning and after each run.

    Raises
    ------
    ParameterError
        If ``out`` holds this experiment with another seed or other settings.
    """
    seed, jobs = check_whole("seed", seed), check_whole("jobs", jobs, least=1)
    runs = check_whole("runs", experiment.runs if runs is None else runs, least=1)
    with ResultsStore(out) as store:
        store.claim(experiment.name, experiment.configuration(seed))
        held = store.finished(experiment.name)
        seeds = {run: run_seed(seed, run) for run in range(runs) if run not in held}
        finished = runs - len(seeds)
        if progress:
            progress(finished, runs)
        # Closing ends the workers, whatever goes wrong here.
        with closing(execute(experiment.run, experiment.settings, seeds, jobs=jobs)) as outcomes:
            for run, outcome, seconds in outcomes:
                store.add(experiment.name, run, outcome, seed=seeds[run], seconds=seconds, made_with=MADE_WITH)
                finished += 1
                if progress:
                    progress(finished, runs)
        rows = store.rows(experiment.name, runs)

        def curves(method: str, quantity: str) -> list[Floats]:
            return store.curves(experiment.name, method, quantity, runs)

        results = Results(experiment.name, seed, runs, tuple(rows), rows, curves)
        return experiment.summarise(experiment.settings, results)
