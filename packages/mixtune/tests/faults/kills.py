"""Kill a command at random moments, start it again, and compare what it leaves with an undisturbed run.

``python tests/faults/kills.py --kills 150`` does so for all scenarios, as ``make faults``; the tests do a few.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from streaming.dask_processes import dask_processes

TESTS = str(Path(__file__).parents[1])

SAVE = """
import sys
from pathlib import Path
from mixtune import load
model = load(sys.argv[1])
while True:
    model.save(sys.argv[2])
    Path(sys.argv[2] + ".count").open("a").write(".")
"""

GATHER = f"""
import sys
from pathlib import Path
sys.path.insert(0, {TESTS!r})
from faults.kills import gather
from mixtune.errors import MixtuneError
data, kept, out, _, scheduler = sys.argv[1:]
try:
    gather(Path(data), Path(kept), Path(out), scheduler)
except MixtuneError:
    sys.exit(2)
"""


@dataclass(frozen=True)
class Scenario:
    """A command to be killed, and what must hold of its folder after each kill and at the end.

    With ``workers``, the command computes on a Dask cluster: a scheduler and so many workers, each a process that may
    be killed in its place.
    """

    name: str
    command: list[str]
    check: Callable[[], None]
    finish: Callable[[], None]
    longest: float = 3.0
    workers: int = 0


def mixtune(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from mixtune.cli import main; main()", *map(str, arguments)]


def table(path: Path, rows: int, seed: int = 0) -> Path:
    """A CSV of three domains with a linear target."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.standard_normal(rows)
    lines = ["site,a,b,c,y"]
    lines += [f"{'xyz'[i % 3]},{X[i, 0]!r},{X[i, 1]!r},{X[i, 2]!r},{y[i]!r}" for i in range(rows)]
    path.write_text("\n".join(lines).replace("np.float64(", "").replace(")", "") + "\n", encoding="utf-8")
    return path


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def contents(folder: Path) -> list[object]:
    """All figures that a study stores."""
    with closing(sqlite3.connect(folder / "results.sqlite")) as db:
        return [db.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3, 4").fetchall() for name in ("results", "curves")]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def saving(folder: Path) -> Scenario:
    """A model saved over and over: at any moment the file is whole."""
    from mixtune import load

    data, model = table(folder / "dätä.csv", 60), folder / "mödel.mixtune"
    run(mixtune("fit", data, "--target", "y", "--domain", "site", "--focal", "x", "--out", model))
    target = folder / "tärget.mixtune"
    target.write_bytes(model.read_bytes())
    new = np.ones((1, 3))
    expected = load(model).predict(new)

    def check() -> None:
        np.testing.assert_array_equal(load(target).predict(new), expected)

    def finish() -> None:
        # What killed saves left behind is cleared away by a later save, once it is ten minutes old.
        for part in folder.glob(".*.part"):
            os.utime(part, (0, 0))
        load(model).save(target)
        check()
        left = [path.name for path in folder.iterdir() if "tmp" in path.name or path.name.startswith(".")]
        assert not left, f"temporary files stayed: {left}"

    return Scenario("save", [sys.executable, "-c", SAVE, str(model), str(target)], check, finish, 2.0)


def fitting(folder: Path) -> Scenario:
    """``fit --stream --out``: the model is there and whole, or it is not there."""
    from mixtune import load

    data, model = table(folder / "data.csv", 3000), folder / "model.mixtune"
    options = ("--target", "y", "--domain", "site", "--focal", "x", "--stream", "--force")
    run(mixtune("fit", data, *options, "--out", folder / "expected.mixtune"))
    new = np.ones((1, 3))
    expected = load(folder / "expected.mixtune").predict(new)

    def check() -> None:
        if model.exists():
            np.testing.assert_array_equal(load(model).predict(new), expected)

    def finish() -> None:
        run(mixtune("fit", data, *options, "--out", model))
        check()

    return Scenario("fit --stream", mixtune("fit", data, *options, "--out", model), check, finish, 4.0)


def reproducing(folder: Path, *engine: str, workers: int = 0) -> Scenario:
    """``reproduce``: finished runs are kept, and the resumed study is the undisturbed one to the bit."""
    runs, out = 6, folder / "results"
    command = mixtune("reproduce", "figure1", "--runs", runs)
    run([*command, "--jobs", "2", "--out", str(folder / "whole")])
    expected = contents(folder / "whole")
    held = [0]

    def check() -> None:
        if not (out / "results.sqlite").exists():
            return
        try:
            with closing(sqlite3.connect(out / "results.sqlite")) as db:
                count = db.execute("SELECT count(*) FROM runs").fetchone()[0]
        except sqlite3.OperationalError:  # killed before the tables were made
            return
        assert count >= held[0], "a finished run was lost"
        held[0] = count

    def finish() -> None:
        # On a cluster of its own, where others computed on one that was there.
        run([*command, *engine, "--jobs", "2", "--out", str(out)])
        assert contents(out) == expected
        for path in out.iterdir():
            path.unlink()
        held[0] = 0

    command += [*engine, "--out", str(out)]
    return Scenario("reproduce" + " --engine dask" * bool(workers), command, check, finish, 6.0, workers)


def reproducing_on_dask(folder: Path) -> Scenario:
    """The same on a cluster, with the figures of a run without one."""
    return reproducing(folder, "--engine", "dask", workers=2)


def gather(data: Path, kept: Path, out: Path, scheduler: object) -> None:
    """Sums over the files of a folder on a cluster; those of finished files are kept, and all go into one file."""
    from mixtune import RandomFeatures
    from mixtune.files import write_model
    from mixtune.streaming import gather_moments

    sources = {path.stem: (path, path.with_suffix(".y.npy")) for path in sorted(data.glob("?.npy"))}
    phi = RandomFeatures(n_inputs=4, width=300, seed=0)
    found = gather_moments(sources, scheduler=scheduler, folder=kept, feature_map=phi)
    parts = {f"{name}.{part}": getattr(found[name], part) for name in found for part in ("gram", "cross", "square")}
    write_model(out, {}, parts)


def gathering(folder: Path) -> Scenario:
    """``gather_moments`` with a folder: what is kept stays whole, and the resumed sums are the undisturbed ones."""
    from mixtune.files import array_digest, read_model

    rng, data, kept, out = np.random.default_rng(0), folder / "data", folder / "kept", folder / "sums"
    data.mkdir()
    for name in "abcdefghijkl":
        np.save(data / f"{name}.npy", rng.standard_normal((8000, 4)))
        np.save(data / f"{name}.y.npy", rng.standard_normal(8000))

    def undisturbed(kept: Path, out: Path) -> str:
        # By the same command on the same kind of cluster: sums in other blocks differ by rounding.
        with dask_processes(2) as cluster:
            given = [sys.executable, "-c", GATHER, str(data), str(kept), str(out), "--scheduler", cluster.address]
            subprocess.run(given, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return array_digest(read_model(out)[1])

    expected = undisturbed(folder / "whole", folder / "expected")
    held: set[str] = set()

    def check() -> None:
        found = {path.name for path in kept.glob("*.moments")}
        assert found >= held, "kept sums were lost"
        assert all(read_model(kept / name)[1] for name in found), "kept sums are not whole"
        held.update(found)
        assert not out.exists() or array_digest(read_model(out)[1]) == expected

    def finish() -> None:
        assert undisturbed(kept, out) == expected
        check()
        assert held == {path.name for path in (folder / "whole").glob("*.moments")}
        for path in [*kept.iterdir(), out]:
            path.unlink()
        held.clear()

    command = [sys.executable, "-c", GATHER, str(data), str(kept), str(out)]
    return Scenario("gather_moments", command, check, finish, 4.0, workers=2)


SCENARIOS = {
    "save": saving,
    "fit": fitting,
    "reproduce": reproducing,
    "reproduce on dask": reproducing_on_dask,
    "moments on dask": gathering,
}


@contextmanager
def started(scenario: Scenario) -> Iterator[list[subprocess.Popen]]:
    """The processes of a scenario: the command, then the scheduler and the workers of its cluster, if it has one."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    if not scenario.workers:
        yield [subprocess.Popen(scenario.command, **quiet)]
        return
    with dask_processes(scenario.workers) as cluster:
        process = subprocess.Popen([*scenario.command, "--scheduler", cluster.address], **quiet)
        yield [process, cluster.scheduler, *cluster.workers]


def attack(scenario: Scenario, kills: int, seed: int, *, every: int = 8, say: Callable[[str], None] = print) -> int:
    """Kill the command ``kills`` times at random moments; after every few kills let it finish. Returns the kills.

    A command that ended before it was killed does not count. On a cluster any of its processes may be killed instead:
    without its scheduler the command must end by itself with an error, without one of its workers it must succeed.
    """
    chance = random.Random(seed)
    done = number = 0
    while done < kills:
        with started(scenario) as processes:
            command, victim = processes[0], chance.choice(processes)
            time.sleep(chance.uniform(0.3, scenario.longest))
            if command.poll() is None:
                os.killpg(victim.pid, signal.SIGKILL)
                done += 1
                ended = {0: -signal.SIGKILL, 1: 2}.get(processes.index(victim), 0)
            else:
                ended = 0
            assert command.wait(timeout=60) in (ended, 0), f"ended with code {command.returncode}"
        time.sleep(0.05)
        scenario.check()
        number += 1
        if number % every == 0 or done == kills:
            scenario.finish()
        say(f"{scenario.name}: {done} of {kills}")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=150, help="in all, divided among the scenarios")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scenarios", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    given = parser.parse_args()
    each, total = -(-given.kills // len(given.scenarios)), 0
    for name in given.scenarios:
        with tempfile.TemporaryDirectory() as folder:
            total += attack(
                SCENARIOS[name](Path(folder)), each, given.seed, say=lambda text: print(f"\r{text}   ", end="")
            )
        print(f"\r{name}: nothing lost")
    print(f"{total} kills, 0 losses")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
