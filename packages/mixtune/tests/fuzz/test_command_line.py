"""The command line with any options: exit code 0 or 2, one clear line, no traceback."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cli.command_line import run

NAMES = ("site", "x", "z", "y", "id", "decimal=a", "focal=x")
WORDS = st.one_of(
    st.sampled_from([*NAMES, "a", "b", "focal=x", "-1", "0", "1e9", "nan", "", "utf-8", ";", "refuse"]),
    st.text(max_size=6),
)
FLAGS = st.sampled_from(
    ["--domain", "--focal", "--ignore", "--categories", "--missing", "--max-levels", "--seed", "--encoding"]
) | st.sampled_from(
    ["--separator", "--decimal", "--random-width", "--target-kind", "--drop-missing-target", "--json", "--nonsense"]
)


def write_table(folder: Path, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    path = folder / "tab le.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(NAMES)
        for i in range(30):
            x, z = rng.standard_normal(2)
            writer.writerow(["ab"[i % 2] if i % 5 else "focal=x", x, "red" if z > 0 else "=2+3", x + z, i, z, i % 3])
    return path


@given(seed=st.integers(0, 99), flags=st.lists(st.tuples(FLAGS, WORDS), max_size=3), out=st.booleans())
def test_fit_and_predict(seed, flags, out):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = write_table(folder, seed)
        options = [
            word
            for flag, word in flags
            for word in ([flag] if flag in ("--json", "--drop-missing-target") else [flag, word])
        ]
        chosen = [] if "--domain" in options else ["--domain", "site"]
        chosen += [] if "--focal" in options else ["--focal", "a"]
        kept = ["--out", folder / "m.mixtune", "--report", folder / "r.html"] if out else []
        done = run("fit", table, "--target", "y", *chosen, *options, *kept)
        assert done.code in (0, 2), done.err
        assert "Traceback" not in done.err
        assert done.code == 0 or done.err.strip()
        if done.code == 0 and out:
            done = run("predict", folder / "m.mixtune", table, "--out", folder / "p.csv")
            assert done.code in (0, 2), done.err
