"""``mixtune compare``: mixtune against the plain alternatives, on the user's own data."""

from __future__ import annotations

import csv
import shlex

import numpy as np
import pytest

from cli.command_line import SITES, as_json, refused, run, sites, write_rows
from mixtune.report.wording import METHOD_NAMES

METHODS = ["mixtune", "own rows alone", "pooled", "boosting", "mean"]
ONCE = ("--repeats", "1")


@pytest.fixture
def data(tmp_path):
    return sites(tmp_path / "data.csv", rows=(15, 60, 60))


def test_table_and_file(tmp_path, data):
    out = tmp_path / "results.csv"
    done = run("compare", data, *SITES, "--folds", "3", *ONCE, "--out", out)
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
    assert "than with own rows alone" in facts["verdict"]
    reduction, low, high = alone["reduction"]
    assert low < reduction < high
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


def test_a_fit_shows_the_first_draw(data):
    """One engine: the same methods, errors, intervals and words."""
    fit = as_json("fit", data, *SITES)
    compared = as_json("compare", data, *SITES, *ONCE)
    for one, other in zip(fit["comparison"], compared["methods"], strict=True):
        assert one["method"] == other["method"]
        assert (one["error"], one["rmse"], one["mae"]) == pytest.approx((other["error"], other["rmse"], other["mae"]))
        if other["reduction"] is not None:
            assert 1 - one["ratio"] == pytest.approx(other["reduction"][0])
    assert fit["recommended"] == compared["recommended"]
    assert compared["verdict"].split(" (95%")[0] in fit["verdict"]
    assert "exclude each other" in refused("compare", data, *SITES, "--linear", "--random-features", "5")


def test_folds_are_drawn_until_the_draw_hardly_matters(data):
    drawn = as_json("compare", data, *SITES, "--linear")["repeats"]
    assert 3 <= drawn <= 10
    assert as_json("compare", data, *SITES, "--linear", "--repeats", "2")["repeats"] == 2
    once, often = (as_json("compare", data, *SITES, "--linear", "--repeats", n)["methods"][1] for n in ("1", "4"))
    # One draw does not know what another would say.
    assert once["reduction"] != often["reduction"]


def test_the_method_to_use_is_named_with_a_command_that_works(tmp_path):
    # The sources say the opposite of each other, so that nothing can be learned from them.
    rng = np.random.default_rng(3)
    rows = []
    for site, slope, count in (("a", 3.0, 40), ("b", -3.0, 40)):
        rows += [[site, x := rng.normal(), slope * x + 0.3 * rng.normal()] for _ in range(count)]
    file = write_rows(tmp_path / "two.csv", ["site", "x", "y"], rows)
    asked = ("--target", "y", "--domain", "site", "--focal", "a")
    facts = as_json("compare", file, *asked, *ONCE)
    pooled = next(row for row in facts["methods"] if row["method"] == "pooled")
    assert pooled["reduction"][1] > 0
    # All sites follow one law, so that one fit to all rows cannot be beaten by much.
    for method, name in (("pooled", "--method pooled"), ("own rows alone", "--method own-rows-alone")):
        from mixtune.cli.outputs import fit_command

        command = fit_command({"method": method.replace(" ", "-")}, ["compare", str(file), *asked, *ONCE, "--json"])
        assert command.endswith(name)
        done = run(*shlex.split(command)[1:])
        assert done.code == 0, done.err
        assert {"pooled": "All rows were pooled", "own rows alone": "fit to the focal rows alone"}[method] in done.out
    refused_with = refused("fit", file, *asked, "--method", "pool")
    assert 'method="pool" is unknown; did you mean "pooled"?' in refused_with


def test_sources_are_left_out_by_name(data, tmp_path):
    names = [row["name"] for row in as_json("fit", data, *SITES)["domains"]]
    out = tmp_path / "without.mixtune"
    less = as_json("fit", data, *SITES, "--exclude", names[1], "--out", out)
    assert [row["name"] for row in less["domains"]] == [names[0], names[2]]
    assert f'left out as asked for: "{names[1]}"' in less["notes"]
    assert as_json("compare", data, *SITES, *ONCE, "--linear", "--exclude", names[1])["methods"][0]["failures"] == 0
    told = refused("fit", data, *SITES, "--exclude", names[1].upper() + "x")
    assert f'did you mean "{names[1]}"?' in told
    assert f"--exclude {names[1]}" in told
    assert "the focal domain" in refused("fit", data, *SITES, "--exclude", names[0])


def test_more_folds_than_rows(data):
    done = run("compare", data, *SITES, "--folds", "100", "--linear")
    # Folds of one row each cannot be drawn in another way.
    assert "15 folds." in done.out


def test_classes(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        [site, x := rng.normal(), "yes" if x + 0.9 * rng.normal() > 0 else "no"] for site in "ab" for _ in range(25)
    ]
    file = write_rows(tmp_path / "data.csv", ["site", "x", "sold"], rows)
    facts = as_json("compare", file, "--target", "sold", "--domain", "site", "--focal", "a", *ONCE)
    assert facts["metric"] == "log loss"
    for row in facts["methods"]:
        assert row["error"] == pytest.approx(row["log_loss"])
        if row["method"] not in ("mean", "boosting"):
            assert row["log_loss"] < facts["methods"][-1]["log_loss"]
            assert row["auc"] > 0.6
    done = run("compare", file, "--target", "sold", "--domain", "site", "--focal", "a", *ONCE)
    # A command to paste stays in one line.
    assert max(len(line) for line in done.out.splitlines() if not line.startswith("  mixtune fit")) <= 80
    assert "accuracy" in done.out


def test_too_few_focal_rows(tmp_path):
    data = sites(tmp_path / "data.csv", rows=(4, 20, 20))
    assert "has 4 rows, too few to hold some out" in refused("compare", data, *SITES)


def test_a_method_that_fails_ends_with_1(data, monkeypatch):
    from mixtune.estimators import DomainColumnRegressor

    def fail(self, *_, **__):
        raise ValueError("no [luck] today")

    monkeypatch.setattr(DomainColumnRegressor, "fit", fail)
    done = run("compare", data, *SITES, *ONCE)
    assert done.code == 1
    assert "boosted trees + domain failed in 5 fits: ValueError: no [luck] today" in " ".join(done.out.split())
    assert "mixtune" in done.out
