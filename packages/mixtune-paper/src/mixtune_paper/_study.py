"""Experiment -> run_study -> Results: independent runs, each from its own seed, kept as they finish.

An experiment is a function of (settings, seed) and a number of runs. A study does the runs that are not in the results
folder yet and passes all of them to the experiment's summary. Because a run depends on nothing but its settings and its
seed, a study that was killed and resumed, or done with another number of jobs, ends with the same numbers to the bit.

Matrix products round differently with different numbers of threads, so every run computes on one thread and joblib's
processes are the only parallelism. Only the parent touches files.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from mixtune import checks
from mixtune.arrays import torch_device
from mixtune.errors import DataError, MixtuneError, ParameterError
from mixtune_paper._arrays import Floats
from mixtune_paper._store import Outcome, ResultsStore

S = TypeVar("S")

MADE_WITH = f"mixtune {version('mixtune')}, numpy {np.__version__}, scipy {scipy.__version__}"

#: A run as a function of (settings, seed).
Run = Callable[[Any, int], Outcome]
#: (index, outcome, seconds) of runs as they finish.
Outcomes = Generator[tuple[int, Outcome, float], None, None]
#: Does the runs of (run index -> seed), called with (run, settings, seeds).
Executor = Callable[[Run, Any, Mapping[int, int]], Outcomes]
#: (settings, seeds, device) to the outcome of every seed.
Together = Callable[[Any, Sequence[int], str], list[Outcome]]
#: Rows of a table for people or for a CSV file; all with the same keys. None is an empty cell.
Table = Sequence[Mapping[str, str | int | float | None]]

#: Runs that share a device's time and memory: enough to keep it busy, few enough to see progress.
RUNS_AT_ONCE = 25


#: Environment of worker processes, for libraries loaded there.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Check:
    """Whether a statement of the paper held in a study, and what was measured.

    Attributes
    ----------
    holds : bool or None
        None: not judged, because there were too few runs to confirm a true statement.
    result : str
        What was measured.
    as_printed : bool
        False where it holds with a correction, and the text as it is printed was seen to fail.
    power : float, optional
        The probability that these runs would confirm the statement if it is true; None where no sampling error is in
        it: identities up to rounding, inequalities on every run.
    """

    holds: bool | None
    result: str
    as_printed: bool = True
    power: float | None = None


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

    def checks(self) -> Mapping[str, Check]:
        """By the name of a statement in :mod:`mixtune_paper.statements`, what this study says about it."""


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: its texts, and which axes are logarithmic."""

    title: str
    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, eq=False)
class Findings:
    """A summary that is put together by its study: rows for people, lines for a CSV file and a figure, checks.

    ``lines`` come from :func:`lines_of`, one or more for each of ``panels``. ``full_rows`` are for studies with more
    columns than a terminal can show: tables by file name, which are written and printed as JSON instead of ``rows``.
    """

    experiment: str
    seed: int
    runs: int
    rows: Table
    sentences: Sequence[str]
    found: Mapping[str, Check] = field(default_factory=dict)
    panels: Mapping[str, Panel] = field(default_factory=dict)
    lines: Table = ()
    full_rows: dict[str, Table] = field(default_factory=dict)

    def as_json(self) -> Any:
        if self.full_rows:
            return [row for table in self.full_rows.values() for row in table]
        names = ("experiment", "seed", "runs", "rows", "lines")
        verdicts = {name: asdict(check) for name, check in self.found.items()}
        return {name: getattr(self, name) for name in names} | {"checks": verdicts}

    def headline(self) -> Table:
        return self.rows

    def notes(self) -> list[str]:
        return list(self.sentences)

    def tables(self) -> dict[str, Table]:
        lines = {f"{self.experiment}_lines": self.lines} if self.lines else {}
        return self.full_rows or {self.experiment: self.rows} | lines

    def checks(self) -> Mapping[str, Check]:
        return self.found


def lines_of(panel: str, method: str, x: Sequence[float] | Floats, values: Floats) -> list[dict[str, str | float]]:
    """Median and quartiles of ``values`` (runs, len(x)) over the runs.

    Examples
    --------
    >>> lines_of("loss", "RO", [1.0], np.array([[2.0], [4.0]]))
    [{'panel': 'loss', 'method': 'RO', 'x': 1.0, 'median': 3.0, 'lower': 2.5, 'upper': 3.5}]
    """
    middle, lower, upper = np.quantile(values, (0.5, 0.25, 0.75), axis=0)
    numbers = np.stack([np.asarray(x, dtype=float), middle, lower, upper])
    names = ("x", "median", "lower", "upper")
    return [{"panel": panel, "method": method, **dict(zip(names, column.tolist()))} for column in numbers.T]


def log_slope(x: Floats, y: Floats) -> float:
    """Exponent of the power of x that comes closest to y: the least-squares slope on log axes.

    Examples
    --------
    >>> round(log_slope(np.array([1.0, 2.0, 4.0]), np.array([3.0, 12.0, 48.0])), 6)
    2.0
    """
    if len(x) < 2 or np.any(y <= 0):
        raise ParameterError("a slope needs at least two grid points with positive changes")
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def paired(after: Floats, before: Floats | float = 0.0) -> tuple[float, float | None]:
    """Mean difference of two methods, run by run, and half of its 95% interval; one run has no interval.

    Examples
    --------
    >>> paired(np.array([1.0, 1.0]), np.array([0.5, 0.5]))
    (0.5, 0.0)
    """
    gain = after - before
    half = 1.96 * float(gain.std(ddof=1)) / float(np.sqrt(len(gain))) if len(gain) > 1 else None
    return float(gain.mean()), half


def change(after: Floats, before: Floats) -> dict[str, float | None]:
    """A row of a table: relative performances before and after a change, and their difference run by run."""
    difference, half = paired(after, before)
    ends = {"rp_before": float(before.mean()), "rp_after": float(after.mean())}
    return {**ends, "difference": difference, "half_of_95_interval": half}


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
        found = {"revision": self.revision, "seed": seed, "settings": asdict(self.settings)}  # type: ignore[call-overload]
        return found if device is None else found | {"device": device.partition(":")[0]}


@dataclass(frozen=True, eq=False)
class Results:
    """The rows and curves of runs 0..runs-1 of a study.

    Attributes
    ----------
    experiment : str
    seed, runs : int
    """

    experiment: str
    seed: int
    runs: int
    _rows: dict[str, list[dict[str, float]]]
    _curves: Callable[[str, str], list[Floats]]

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order the runs gave them."""
        return tuple(self._rows)

    def quantities(self, method: str) -> tuple[str, ...]:
        """What the rows of a method hold."""
        return tuple(self._rows[method][0])

    def values(self, method: str, quantity: str) -> Floats:
        """One number per run, shape (runs,)."""
        return self._stacked([row[quantity] for row in self._rows.get(method, []) if quantity in row], method, quantity)

    def curves(self, method: str, quantity: str) -> Floats:
        """One array per run, shape (runs, ...)."""
        return self._stacked(self._curves(method, quantity), method, quantity)

    def median(self, method: str, quantity: str) -> float:
        """The median over the runs."""
        return float(np.median(self.values(method, quantity)))

    def largest(self, method: str, quantity: str) -> float:
        """The largest value of all runs."""
        return float(self.values(method, quantity).max())

    def findings(self, rows: Table, sentences: Sequence[str], *parts: Any, **more: Any) -> Findings:
        """A summary of this study; further parts are those of :class:`Findings`."""
        return Findings(self.experiment, self.seed, self.runs, rows, sentences, *parts, **more)

    def _stacked(self, found: Sequence[Any], method: str, quantity: str) -> Floats:
        if len(found) != self.runs:
            raise DataError(f"{self.experiment} has {quantity!r} of {method!r} in {len(found)} of {self.runs} runs")
        return np.stack(found)


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
    torch_device("torch:cpu" if device == "cpu" else device)  # an error where it is missing
    return experiment.together


def _describe_device(device: str) -> str:
    """Name the library and the device, for the record of a run."""
    import torch

    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return f"torch {torch.__version__} on {name}"


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
        Number of processes, of which a device uses none. Results do not depend on it. More than one process needs a
        main module that can be imported (``if __name__ == "__main__":``).
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
    seed, jobs = checks.check_whole("seed", seed), checks.check_whole("jobs", jobs, least=1)
    made_with, doing = MADE_WITH, executor or partial(execute, jobs=jobs)
    if device is not None:
        together = check_together(experiment, device)
        doing = partial(execute_together, together, device)
        made_with = f"{MADE_WITH}, {_describe_device(device)}"
        if executor is not None:
            raise ParameterError("a device does its runs by itself; leave the executor out")
    runs = checks.check_whole("runs", experiment.runs if runs is None else runs, least=1)
    with ResultsStore(out) as store:
        store.claim(experiment.name, experiment.configuration(seed, device))
        held = store.finished(experiment.name)
        seeds = {run: run_seed(seed, run) for run in range(runs) if run not in held}
        report = progress or (lambda finished, runs: None)
        report(runs - len(seeds), runs)
        # Closing ends the workers, whatever goes wrong here.
        with closing(doing(experiment.run, experiment.settings, seeds)) as outcomes:
            for finished, (run, outcome, seconds) in enumerate(outcomes, start=runs - len(seeds) + 1):
                store.add(experiment.name, run, outcome, seed=seeds[run], seconds=seconds, made_with=made_with)
                report(finished, runs)
        rows = store.rows(experiment.name, runs)
        curves = partial(store.curves, experiment.name, runs=runs)
        return experiment.summarise(experiment.settings, Results(experiment.name, seed, runs, rows, curves))


# --- processes --------------------------------------------------------------------------------------------------------


def execute(run: Run, settings: Any, seeds: Mapping[int, int], *, jobs: int) -> Outcomes:
    """Do the runs of ``seeds`` (run index to seed); yield (index, outcome, seconds) as they finish.

    One job runs in this process, several in as many of joblib's. Closing the iterator ends these at once.
    """
    jobs = min(jobs, len(seeds))
    if jobs <= 1:
        for index, seed in seeds.items():
            yield index, *_timed(run, settings, seed)
        return
    from joblib.externals.loky import ProcessPoolExecutor, as_completed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    # New interpreters rather than forks: forking a process with threads (BLAS, progress bars) can hang.
    with TemporaryDirectory() as folder:
        running = Path(folder) / "running"
        running.touch()
        finished = False
        pool = ProcessPoolExecutor(jobs, initializer=_begin_worker, initargs=(os.getpid(), running), env=ONE_THREAD)
        try:
            begun = [pool.submit(_work, run, settings, index, seed) for index, seed in seeds.items()]
            for future in as_completed(begun):
                index, outcome, rest = future.result()
                if outcome is None:
                    raise RuntimeError(f"run {index} failed in a worker process:\n{rest}")
                yield index, outcome, rest
            finished = True
        except BrokenProcessPool as error:
            raise MixtuneError(
                "a worker process ended before its run was finished, perhaps because memory ran out; finished runs "
                "are kept: continue with fewer jobs"
            ) from error
        finally:
            if not finished:
                running.unlink()  # workers end by themselves
            pool.shutdown(wait=True)


#: Seconds between two looks of a worker at whether it is still wanted.
LOOK = 0.2


def _begin_worker(parent: int, running: Path) -> None:
    """The parent decides on Ctrl-C; a process ends where the study is stopped or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while running.exists() and (not hasattr(os, "getppid") or os.getppid() == parent):
            time.sleep(LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(run: Run, settings: Any, index: int, seed: int) -> tuple[int, Any, Any]:
    """One run in a process of its own; the parent reports what goes wrong."""
    try:
        return index, *_timed(run, settings, seed)
    except Exception:  # noqa: BLE001 - whatever it is, the parent reports it
        return index, None, traceback.format_exc()


def execute_together(together: Together, device: str, run: Run, settings: Any, seeds: Mapping[int, int]) -> Outcomes:
    """Do the runs of ``seeds`` on a device, several at once; yields what :func:`execute` does."""
    groups = [list(seeds)[begin : begin + RUNS_AT_ONCE] for begin in range(0, len(seeds), RUNS_AT_ONCE)]
    # Two groups at a time: one draws random numbers on the host while the other computes on the device. All groups have
    # one limit of threads: separate limits would restore the value they found, which may be the limit of another group.
    with threadpool_limits(limits=1), ThreadPoolExecutor(2) as threads:
        begun = [threads.submit(_timed, together, settings, [seeds[run] for run in now], device) for now in groups]
        try:
            for now, future in zip(groups, begun):
                outcomes, seconds = future.result()
                for index, outcome in zip(now, outcomes):
                    yield index, outcome, seconds / len(outcomes)
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """The result of some work on one thread, and its seconds."""
    begin = time.perf_counter()
    # Here and not once per worker: libraries loaded since then are limited as well.
    with threadpool_limits(limits=1):
        result = work(*arguments)
    return result, time.perf_counter() - begin
