"""The command line as a user runs it: in a process of its own."""

import json
import subprocess
import sys

import pytest


def run(*arguments, columns="80"):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "from mixtune.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={"COLUMNS": columns, "PATH": "", "HOME": "/nonexistent", "TERM": "dumb"},
    )


def test_demo_prints_a_readable_result():
    done = run("demo", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "Which datasets count" in done.stdout
    assert "mixtune" in done.stdout
    assert "13/13" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_demo_as_json_is_json_alone_and_repeats():
    first, second = (run("demo", "--json") for _ in range(2))
    result, again = json.loads(first.stdout), json.loads(second.stdout)
    for facts in (result, again):
        facts.pop("seconds")
    assert result == again
    weights = [d["weight"] for d in result["domains"]]
    assert sum(weights) == pytest.approx(1.0)
    assert all(d["weight"] == 0 for d in result["domains"] if d["name"].startswith("unrelated"))
    assert result["energy"] == pytest.approx(result["optimal_cost"])
    assert result["test_rmse"]["mixtune"] < min(v for k, v in result["test_rmse"].items() if k != "mixtune")


def test_version_help_and_mistakes():
    assert run("--version").stdout.startswith("mixtune 0.")
    assert "demo" in run("--help").stdout
    assert run("demo", "--rows", "1").returncode == 2
    assert run("nonsense").returncode == 2


def test_rmses_of_the_library_end_in_one_line(monkeypatch, capsys):
    from mixtune.cli import _app
    from mixtune.errors import DataError

    def fail():
        raise DataError("domain [b] has 3 columns")

    monkeypatch.setattr(_app, "app", fail)
    with pytest.raises(SystemExit) as left:
        _app.main()
    assert left.value.code == 2
    assert capsys.readouterr().err == "Error: domain [b] has 3 columns\n"
