"""Benchmarks at tiny sizes: they run, compare what they say, and their results are kept and read back."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from benchmarks.timing import Claim, Figure

from benchmarks import __main__ as runner
from benchmarks import growth, moments_and_solve, pooled_ridge, results, transfer_peers


def test_a_claim_says_its_ratio_both_sides_and_whether_it_holds():
    claim = Claim("ours / theirs", 1.2, 1.0, 1.5, "; a note")
    assert str(claim) == "holds   ours / theirs: ratio 1.2 (limit 1.5); 1.2 s against 1 s; a note"
    assert str(replace(claim, limit=1.1)).startswith("MISSED")


@pytest.mark.parametrize(
    ("claims", "count"),
    [
        (lambda: moments_and_solve.measure(200, 8, rounds=1), 2),
        (lambda: pooled_ridge.measure(300, 8, 3, rounds=1), 2),
    ],
    ids=["moments_and_solve", "pooled_ridge"],
)
def test_claims_at_tiny_sizes(claims, count):
    found = list(claims())
    assert len(found) == count
    assert all(claim.ours > 0 and claim.other > 0 for claim in found)


@pytest.mark.parametrize(
    ("measure", "size"),
    [(moments_and_solve.measure, (100_000, 1024)), (pooled_ridge.measure, (100_000, 1000, 10))],
)
def test_default_sizes_are_those_of_the_claims(measure, size):
    assert measure.__defaults__ == size


def test_curves_go_as_far_as_allowed():
    found = list(growth.curves(most=2e6, rounds=1))
    assert [figure.about[0] for figure in found] == ["n", "p", "N", "T"]
    for figure in found:
        assert len({len(values) for values in figure.values.values()}) == 1
    assert found[1].values["p"] == []  # 20,000 rows are too many at any width
    assert all(seconds > 0 for seconds in found[2].values["core"])


def test_peers_see_the_rows_that_ridge_sees():
    X, y, parts = pooled_ridge.draw(60, 4, 3)
    case = transfer_peers.case_of(60, 4, 3)
    assert (X[parts[0]] == case.train.X).all()
    assert (case.sources[1].y == y[parts[2]]).all()


def test_results_are_kept_and_a_part_is_replaced(tmp_path):
    path = tmp_path / "results.json"
    claim, figure = Claim("a", 1.0, 3.0, 1.0), Figure("curve", "n: p = 3", {"n": [1, 2], "core": [0.123456789, None]})
    results.keep(path, "one", [claim, figure], 1.26)
    results.keep(path, "two", [claim], 1.0)
    results.keep(path, "one", [figure, replace(claim, ours=2.0)], 2.0)
    found = results.read(path)
    assert list(found.parts) == ["one", "two"]
    assert found.parts["one"].claims == (replace(claim, ours=2.0),)
    assert found.figures("curve")[0].values["core"] == [0.123457, None]
    assert found.machine == results.machine()
    assert found.machine["cores"] >= 1


def test_results_of_two_machines_are_not_mixed(tmp_path):
    path = tmp_path / "results.json"
    results.keep(path, "one", [Claim("a", 1.0, 1.0, 1.0)], 1.0)
    path.write_text(path.read_text().replace('"cores": ', '"cores": 1'))
    with pytest.raises(SystemExit, match="another cores"):
        results.keep(path, "two", [Claim("a", 1.0, 1.0, 1.0)], 1.0)


def test_command_runs_what_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(growth, "measure", lambda: iter([Claim("b", 2.0, 1.0, 1.0)]))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "growth", "--out", str(tmp_path / "r.json")])
    assert runner.main() == 1
    assert "MISSED  b" in capsys.readouterr().out
    assert results.read(tmp_path / "r.json").parts["growth"].claims[0].name == "b"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "nothing"])
    with pytest.raises(SystemExit):
        runner.main()
    assert "unknown benchmark nothing" in capsys.readouterr().err
