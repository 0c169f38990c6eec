"""``mixtune compare``: mixtune against the plain alternatives, on the user's own data."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from cli.command_line import SITES, as_json, refused, run, sites, write_rows
from mixtune.report.wording import METHOD_NAMES, percent

METHODS = ["mixtune", "own rows alone", "pooled", "mean of local models", "boosting", "mean"]


@pytest.fixture
def data(tmp_path):
    return sites(tmp_path / "data.csv", rows=(15, 60, 60))


def test_table_and_file(tmp_path, data):
    out = tmp_path / "results.csv"
    done = run("compare", data, *SITES, "--folds", "3", "--out", out)
    assert done.code == 0, done.err
    assert done.err == ""
    for words in (*METHOD_NAMES.values(), "RMSE", "MAE", "R²", "Nested cross-validation", 'unseen rows of "berlin"'):
        assert words in done.out
    assert max(len(line) for line in done.out.splitlines() if str(tmp_path) not in line) <= 80
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["method"] for row in rows] == METHODS
    assert "exists" in refused("compare", data, *SITES, "--out", out)


def test_json(data):
    facts = as_json("compare", data, *SITES, "--folds", "3", "--repeats", "2", "--seed", "4")
    ours, alone, joint, *_ = facts["methods"]
    assert [row["method"] for row in facts["methods"]] == METHODS
    assert (alone["ratio"], alone["ratio_low"], alone["ratio_high"]) == (1, 1, 1)
    assert ours["ratio"] == pytest.approx(ours["error"] / alone["error"])
    assert ours["ratio_low"] < ours["ratio"] < ours["ratio_high"]
    # Half of the other rows say the opposite, so pooling them all must do harm that mixtune avoids.
    assert ours["error"] < joint["error"]
    assert "better than own rows alone" in facts["verdict"] or "worse than own rows alone" in facts["verdict"]
    # The folds follow from the content of the rows, not from their order.
    header, *lines = data.read_text().splitlines()
    data.write_text("\n".join([header, *reversed(lines)]))
    again = as_json("compare", data, *SITES, "--folds", "3", "--repeats", "2", "--seed", "4")
    for row in (*facts["methods"], *again["methods"]):
        row.pop("seconds")
    for row, other in zip(facts.pop("methods"), again.pop("methods"), strict=True):
        assert row.keys() == other.keys()
        assert [row[key] for key in ("error", "ratio_low", "mae")] == pytest.approx(
            [other[key] for key in ("error", "ratio_low", "mae")], rel=1e-6
        )
    assert facts == again


def test_the_others_take_the_columns_as_they_are(data):
    made, linear = (as_json("compare", data, *SITES, *more)["methods"] for more in ((), ("--linear",)))
    for one, other in zip(made[1:], linear[1:], strict=True):
        assert (one["method"], one["error"], one["failures"]) == (other["method"], other["error"], 0)
    assert made[0]["error"] != linear[0]["error"]
    assert "exclude each other" in refused("compare", data, *SITES, "--linear", "--random-features", "5")


def test_what_the_others_can_bend_is_said(data):
    made, *same = (
        " ".join(run("compare", data, *SITES, "--folds", "2", *more).out.split())
        for more in ((), ("--linear",), ("--random-features", "5"))
    )
    assert "ridge fits are linear in the columns" in made
    assert not any("linear in the columns" in out for out in same)


def test_a_method_with_a_lower_error_is_named(data, tmp_path):
    assert as_json("compare", data, *SITES, "--folds", "3")["lower_error"] is None
    # All sites follow one law that is linear, so that one fit to all rows cannot be beaten by much.
    rng = np.random.default_rng(3)
    rows = [[site, x := rng.normal(), 2 * x + rng.normal()] for site in "abc" for _ in range(12)]
    file = write_rows(tmp_path / "same.csv", ["site", "x", "y"], rows)
    command = ("compare", file, "--target", "y", "--domain", "site", "--focal", "a", "--folds", "3")
    facts = as_json(*command)
    best = min(facts["methods"], key=lambda row: row["error"])
    ours = facts["methods"][0]
    assert best["method"] not in ("mixtune", "own rows alone")
    told = facts["lower_error"]
    name = METHOD_NAMES.get(best["method"], best["method"])
    assert told.startswith(f"The lowest error is that of {name}, {percent(1 - best['error'] / ours['error'])} below")
    assert f"95% interval {best['ratio_low']:.2f} to {best['ratio_high']:.2f}" in told
    assert told in " ".join(run(*command).out.split())


def test_more_folds_than_rows(data):
    done = run("compare", data, *SITES, "--folds", "100", "--linear")
    assert "15 folds" in done.out


def test_classes(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        [site, x := rng.normal(), "yes" if x + 0.9 * rng.normal() > 0 else "no"] for site in "ab" for _ in range(25)
    ]
    file = write_rows(tmp_path / "data.csv", ["site", "x", "sold"], rows)
    facts = as_json("compare", file, "--target", "sold", "--domain", "site", "--focal", "a")
    assert facts["error"] == "share of wrong classes"
    for row in facts["methods"]:
        assert 25 * row["error"] == pytest.approx(round(25 * row["error"]))
        assert row["accuracy"] == pytest.approx(1 - row["error"])
        if row["method"] != "mean":
            assert 0 < row["error"] < 0.5
            assert row["log_loss"] < facts["methods"][-1]["log_loss"]
            assert row["auc"] > 0.6
    done = run("compare", file, "--target", "sold", "--domain", "site", "--focal", "a")
    assert max(map(len, done.out.splitlines())) <= 80
    assert "accuracy" in done.out


def test_too_few_focal_rows(tmp_path):
    data = sites(tmp_path / "data.csv", rows=(4, 20, 20))
    assert "has 4 rows, too few to hold some out" in refused("compare", data, *SITES)


def test_a_method_that_fails_ends_with_1(data, monkeypatch):
    from mixtune.estimators import JointRegressor

    def fail(self, *_, **__):
        raise ValueError("no [luck] today")

    monkeypatch.setattr(JointRegressor, "fit", fail)
    done = run("compare", data, *SITES)
    assert done.code == 1
    assert "pooled failed in 5 fits: ValueError: no [luck] today" in " ".join(done.out.split())
    assert "mixtune" in done.out
