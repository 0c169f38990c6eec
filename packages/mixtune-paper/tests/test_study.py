"""Studies: resumed, extended, cut short, spread over processes, the numbers stay the same to the bit."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from mixtune.errors import DataError, MixtuneError, ParameterError
from mixtune_paper import EXPERIMENTS, Experiment, Outcome, ResultsStore, experiment, run_study
from mixtune_paper.convergence import FIGURE_1, ConvergenceSettings, NetworkData

SMALL = replace(
    FIGURE_1, settings=ConvergenceSettings(data=NetworkData(width=40, n_rows=15), horizon=20, descent_steps=50)
)
CLI = "from mixtune.cli import main; main()"


def contents(folder, runs):
    """All that a study stores about its first runs, except how long they took."""
    db = sqlite3.connect(Path(folder) / "results.sqlite")
    queries = ("* FROM results WHERE", "* FROM curves WHERE", "experiment, run, seed, made_with FROM runs WHERE")
    found = [db.execute(f"SELECT {query} run<? ORDER BY 1, 2, 3, 4", (runs,)).fetchall() for query in queries]
    db.close()
    assert all(found)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder for an uninterrupted study of the paper's size with one job; tests ask for as many runs as they need."""
    return tmp_path_factory.mktemp("whole")


def counted(study):
    """The study with a list that records the seeds of the runs really done."""
    seeds = []

    def run(settings, seed):
        seeds.append(seed)
        return study.run(settings, seed)

    return replace(study, run=run), seeds


def seeds_of(folder, *, runs, seed=0, held=0):
    """The seeds of the runs of a study by their numbers, without those that the folder holds."""
    study = Experiment("seeds", SMALL.settings, lambda *_: Outcome({"m": {"v": 1.0}}), lambda *_: None, runs=runs)
    asked = {}

    def executor(run, settings, seeds):
        asked.update(seeds)
        for index, seed in seeds.items():
            yield index, run(settings, seed), 0.0

    if held:
        run_study(study, out=folder, seed=seed, runs=held)
    run_study(study, out=folder, seed=seed, runs=runs, executor=executor)
    return asked


def test_seeds_of_runs_are_distinct_and_depend_on_nothing_else(tmp_path):
    by_base = [seeds_of(tmp_path / str(base), runs=20, seed=base) for base in range(20)]
    seeds = {seed for found in by_base for seed in found.values()}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**53 for seed in seeds)
    later = seeds_of(tmp_path / "later", runs=12, seed=3, held=5)
    assert later == {run: by_base[3][run] for run in range(5, 12)}


def test_more_runs_add_fewer_are_cut_none_is_done_twice(tmp_path):
    study, seeds = counted(SMALL)
    seen = []
    run_study(study, out=tmp_path / "a", runs=2, progress=lambda *pair: seen.append(pair))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    seen.clear()
    five = run_study(study, out=tmp_path / "a", runs=5, progress=lambda *pair: seen.append(pair))
    assert seen == [(2, 5), (3, 5), (4, 5), (5, 5)]
    assert seeds == list(seeds_of(tmp_path / "seeds", runs=5).values())
    assert five.as_json() == run_study(SMALL, out=tmp_path / "b", runs=5).as_json()
    assert contents(tmp_path / "a", 5) == contents(tmp_path / "b", 5)
    three = run_study(study, out=tmp_path / "a", runs=3)
    assert len(seeds) == 5
    assert three.as_json() == run_study(SMALL, out=tmp_path / "c", runs=3).as_json()


def test_an_error_or_an_interrupt_keeps_what_is_finished(tmp_path):
    for stop in (KeyboardInterrupt, ValueError):
        folder, left = tmp_path / stop.__name__, [2]

        def run(settings, seed, left=left, stop=stop):
            left[0] -= 1
            if left[0] < 0:
                raise stop
            return SMALL.run(settings, seed)

        with pytest.raises(stop):
            run_study(replace(SMALL, run=run), out=folder, runs=4)
        study, seeds = counted(SMALL)
        run_study(study, out=folder, runs=4)
        assert seeds == list(seeds_of(folder / "seeds", runs=4, held=2).values())


def test_numbers_do_not_depend_on_the_number_of_jobs(tmp_path, whole):
    """At the paper's size, where threads of the linear algebra would round differently."""
    one = run_study(FIGURE_1, out=whole, runs=3, jobs=1)
    two = run_study(FIGURE_1, out=tmp_path, runs=3, jobs=2)
    assert one.as_json() == two.as_json()
    assert contents(whole, 3) == contents(tmp_path, 3)


def test_other_settings_or_seeds_are_refused_before_any_work(tmp_path):
    run_study(SMALL, out=tmp_path, runs=1)
    study, seeds = counted(replace(SMALL, settings=replace(SMALL.settings, horizon=21)))
    with pytest.raises(ParameterError, match=r"settings\.horizon is 20 there, 21 asked for"):
        run_study(study, out=tmp_path, runs=1)
    with pytest.raises(ParameterError, match="seed is 0 there, 1 asked for"):
        run_study(SMALL, out=tmp_path, runs=1, seed=1)
    with pytest.raises(ParameterError, match="revision is 1 there, 2 asked for"):
        run_study(replace(SMALL, revision=2), out=tmp_path, runs=1)
    assert seeds == []
    run_study(replace(SMALL, name="another"), out=tmp_path, runs=1, seed=1)


@pytest.mark.parametrize("bad", [{"runs": 0}, {"jobs": 0}, {"seed": -1}, {"runs": 1.5}])
def test_arguments_refused(tmp_path, bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        run_study(SMALL, out=tmp_path / "results", **bad)
    assert not (tmp_path / "results").exists()


def test_a_missing_quantity_is_named(tmp_path):
    def summarise(settings, results):
        assert results.methods == ("m",)
        return results.values("m", "w")

    study = Experiment("e", SMALL.settings, lambda settings, seed: Outcome({"m": {"v": 1.0}}), summarise, runs=2)
    with pytest.raises(DataError, match="'w' of 'm' in 0 of 2 runs"):
        run_study(study, out=tmp_path)


def test_experiments_are_known_by_name():
    assert list(EXPERIMENTS)[:4] == ["table1", "table2", "figure1", "figure2"]
    assert all(experiment(name).name == name for name in EXPERIMENTS)
    with pytest.raises(ParameterError, match="no experiment 'figure3'; choose from table1"):
        experiment("figure3")


def test_failures_of_workers_are_reported_by_the_parent(tmp_path):
    """Runs that raise."""
    broken = replace(SMALL, settings=replace(SMALL.settings, transfers=(-1.0,)))
    with pytest.raises(RuntimeError, match=r"(?s)run \d failed in a worker process:.*transfer"):
        run_study(broken, out=tmp_path, runs=2, jobs=2)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_worker_that_vanishes_is_reported_by_the_parent(tmp_path):
    """As where memory runs out: the operating system ends one of the processes."""

    def workers():
        children = [(pid, Path(f"/proc/{pid}/cmdline").read_text()) for pid in children_of(os.getpid()) if alive(pid)]
        return [pid for pid, command in children if "LokyProcess" in command]

    def end_one():
        wait_until(lambda: len(workers()) == 2, "no workers")
        os.kill(workers()[0], signal.SIGKILL)

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(end_one)
        with pytest.raises(MixtuneError, match="fewer jobs"):
            run_study(FIGURE_1, out=tmp_path, runs=100, jobs=2)
        done.result()


def test_runs_of_a_device_are_done_a_few_at_a_time(tmp_path):
    pytest.importorskip("torch")
    groups, seen = [], []

    def together(settings, seeds, device):
        groups.append(list(seeds))
        return [Outcome({"m": {"v": float(seed)}}) for seed in seeds]

    def summarise(settings, results):
        return results.values("m", "v").tolist()

    study = Experiment("e", SMALL.settings, lambda *_: None, summarise, runs=60, together=together)
    values = run_study(study, out=tmp_path, device="cpu", progress=lambda *pair: seen.append(pair))
    assert len(groups) > 1
    assert sorted(seed for group in groups for seed in group) == sorted(values)
    assert values == list(seeds_of(tmp_path / "seeds", runs=60).values())
    assert seen == [(finished, 60) for finished in range(61)]


def children_of(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def runs_in(folder):
    if not (folder / "results.sqlite").exists():
        return 0
    db = sqlite3.connect(folder / "results.sqlite")
    try:
        return db.execute("SELECT count(*) FROM runs").fetchone()[0]
    except sqlite3.OperationalError:  # the tables are not there yet
        return 0
    finally:
        db.close()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("kind", ["SIGKILL", "SIGINT"])
def test_a_study_that_is_stopped_continues_where_it_was(tmp_path, whole, kind):
    folder = tmp_path / "results"
    command = [sys.executable, "-W", "error", "-c", CLI, *("reproduce", "figure1", "--runs", "500", "--jobs", "2")]
    process = subprocess.Popen(
        [*command, "--json", "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: runs_in(folder) >= 3 or process.poll() is not None, "no run was finished")
        assert process.poll() is None, process.communicate()[1]
        workers = children_of(process.pid)
        if kind == "SIGKILL":
            process.kill()  # the parent alone: workers must notice by themselves
        else:
            os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does: to all processes
        output, messages = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
    assert output == ""
    assert "Traceback" not in messages
    if kind == "SIGINT":
        assert process.returncode == 130
        assert "Finished runs are kept" in messages
        assert "to continue: mixtune reproduce figure1 --runs 500 --jobs 2" in messages
    wait_until(lambda: not any(alive(worker) for worker in workers), "workers outlived their parent")

    with ResultsStore(folder) as store:
        held = store.finished("figure1")
    assert len(held) >= 3
    runs = max(held) + 2
    study, seeds = counted(FIGURE_1)
    resumed = run_study(study, out=folder, runs=runs)
    assert len(seeds) == runs - len(held)
    expected = run_study(FIGURE_1, out=whole, runs=runs)
    assert resumed.as_json() == expected.as_json()
    assert resumed.tables() == expected.tables()
    assert contents(folder, runs) == contents(whole, runs)


def test_an_executor_does_the_runs_in_any_order(tmp_path):
    asked = []

    def backwards(run, settings, seeds):
        asked.append(dict(seeds))
        for index, seed in reversed(seeds.items()):
            yield index, run(settings, seed), 0.0

    here = run_study(SMALL, out=tmp_path / "here", runs=3)
    run_study(SMALL, out=tmp_path / "there", runs=1)
    there = run_study(SMALL, out=tmp_path / "there", runs=3, executor=backwards)
    assert asked == [seeds_of(tmp_path / "seeds", runs=3, held=1)]
    assert there.as_json() == here.as_json()
    assert contents(tmp_path / "here", 3) == contents(tmp_path / "there", 3)
