"""Ways to run the command line in tests: through its own door in this process, or in a process of its own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple
from unittest import mock

import numpy as np

from mixtune.cli import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


def run(*arguments, columns="80") -> Done:
    """Call ``main`` in this process: starting one for each test takes longer than all of them."""
    out, err = StringIO(), StringIO()
    argv = ["mixtune", *map(str, arguments)]
    seen = mock.patch.object(sys, "argv", argv), mock.patch.dict("os.environ", {"COLUMNS": columns, "TERM": "dumb"})
    with seen[0], seen[1], redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as left:
            code = left.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def in_process(*arguments, columns="80") -> Done:
    """Run it as a user does, with warnings as errors."""
    # The same code and linear algebra as in this process.
    ours = ("PYTHONPATH", "OMP_NUM_THREADS", "OPENBLAS_")
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "from mixtune.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        # Boosted trees of scikit-learn count the cores of the machine with its own programs.
        env={"COLUMNS": columns, "PATH": os.defpath, "HOME": "/nonexistent", "TERM": "dumb", **passed_on},
    )
    return Done(done.returncode, done.stdout, done.stderr)


def as_json(*arguments) -> dict:
    """The one JSON object that a command prints; NaN and Infinity are not JSON."""

    def refuse(constant):
        raise AssertionError(f"{constant} in JSON")

    done = run(*arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out, parse_constant=refuse)


def refused(*arguments) -> str:
    """What a mistake ends with, after exit code 2 and nothing on standard output: one line for each, and a command."""
    done = run(*arguments)
    assert done.code == 2, done.out + done.err
    assert done.out == ""
    *mistakes, last = done.err.splitlines()
    assert last.startswith(("Try: mixtune " if mistakes else "Error: ", "Error: ")), done.err
    assert all(line.startswith("Error: ") for line in mistakes), done.err
    assert "Traceback" not in done.err
    return done.err.removeprefix("Error: ").strip()


def write_rows(path, header, rows, separator=","):
    """Write a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def sites(path, *, rows=(12, 40, 40), seed=0, separator=","):
    """Three sites: berlin (focal) and paris alike, moscow the other way round; one input is a colour."""
    rng = np.random.default_rng(seed)
    table = []
    for site, count, slope in zip(("berlin", "paris", "moscow"), rows, (2.0, 2.0, -2.0)):
        for _ in range(count):
            size, red = round(rng.normal(), 4), rng.random() < 0.5
            y = round(slope * size + 3 * red + 0.5 * rng.normal(), 4)
            table.append([site, size, "red" if red else "blue", y])
    return write_rows(path, ["site", "size", "colour", "y"], table, separator)


SITES = ("--target", "y", "--domain", "site", "--focal", "berlin")
