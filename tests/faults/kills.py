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
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SAVE = """
import sys
from pathlib import Path
from mixtune import load
model = load(sys.argv[1])
while True:
    model.save(sys.argv[2])
    Path(sys.argv[2] + ".count").open("a").write(".")
"""


@dataclass(frozen=True)
class Scenario:
    """A command to be killed, and what must hold of its folder after each kill and at the end."""

    name: str
    command: list[str]
    check: Callable[[], None]
    finish: Callable[[], None]
    longest: float = 3.0


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


def reproducing(folder: Path) -> Scenario:
    """``reproduce``: finished runs are kept, and the resumed study is the undisturbed one to the bit."""
    runs, out = 6, folder / "results"
    command = mixtune("reproduce", "figure1", "--runs", runs, "--jobs", 2, "--out")

    run([*command, str(folder / "whole")])
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
        run([*command, str(out)])
        assert contents(out) == expected
        for path in out.iterdir():
            path.unlink()
        held[0] = 0

    return Scenario("reproduce", [*command, str(out)], check, finish, 6.0)


SCENARIOS = {"save": saving, "fit": fitting, "reproduce": reproducing}


def attack(scenario: Scenario, kills: int, seed: int, *, every: int = 8, say: Callable[[str], None] = print) -> int:
    """Kill the command ``kills`` times at random moments; after every few kills let it finish. Returns the kills.

    A command that ended before it was killed does not count.
    """
    chance = random.Random(seed)
    done = number = 0
    while done < kills:
        process = subprocess.Popen(
            scenario.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(chance.uniform(0.3, scenario.longest))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            done += 1
        process.wait(timeout=60)
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
    given = parser.parse_args()
    each, total = -(-given.kills // len(SCENARIOS)), 0
    for name, make in SCENARIOS.items():
        with tempfile.TemporaryDirectory() as folder:
            total += attack(make(Path(folder)), each, given.seed, say=lambda text: print(f"\r{text}   ", end=""))
        print(f"\r{name}: nothing lost")
    print(f"{total} kills, 0 losses")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
