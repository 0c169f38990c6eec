"""The studies of the theory in miniature, and their parts against slow twins."""

import html
import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from mixtune import Moments, RegretProblem, solve
from mixtune.cli import make_app
from mixtune.regret import Schedule
from mixtune_paper import EXPERIMENTS, Results, ResultsStore, experiment, run_study
from mixtune_paper import near_optimality as near
from mixtune_paper.american import TABLE1_SETTINGS
from mixtune_paper.convergence import LayeredData, NetworkData
from mixtune_paper.game import nash_moves

DATA = NetworkData(width=20, n_rows=30)
TABLE = replace(
    TABLE1_SETTINGS, more_paths=(), training_paths=25, evaluation_paths=300, width=20, dates=3, wasserstein_rows=30
)
GRID = {"n": ((2, 6, 2), (4, 6, 2), (8, 6, 2)), "p": ((3, 6, 2), (3, 12, 2), (3, 24, 2))}
GRIDS = {
    name: {**GRID, "t": ((3, 6, 2), (3, 6, 4), (3, 6, 8))} for name in ("Algorithm 2", "Algorithm 3", "closed form")
}
SMALL = {
    "near-optimality": {"data": DATA, "sizes": GRIDS, "repeats": 1},
    "bound": {"atoms": 150, "functions": 30, "sizes": (5, 20, 60), "trials": 8, "rows": (20, 80, 40, 40)},
    "early-stopping": {
        "data": ("markets", "networks"),
        "width": 25,
        "training_rows": 30,
        "test_rows": 300,
        "horizon": 10,
        "ridges": (1e-4, 1.0, 100.0),
    },
    "game": {"data": DATA, "horizon": 6},
    "layers": {"data": LayeredData(n_domains=3, n_rows=15, width=20), "horizon": 40},
    "open-settings": {"table": TABLE},
    "oracle": {"table": replace(TABLE, more_paths=(50, 400)), "alike": (1, 2), "same": 50, "wide": 30},
}


def small(name, **changes):
    study = experiment(name)
    return replace(study, settings=replace(study.settings, **SMALL[name], **changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def summaries(folder):
    return {name: run_study(small(name), out=folder, runs=2) for name in SMALL}


@pytest.mark.parametrize("name", SMALL)
def test_the_command_draws_what_was_found(summaries, name, folder, monkeypatch):
    """The same runs again, which are not repeated, and a figure of them; open settings have a table only."""
    pytest.importorskip("matplotlib")
    module, attribute = EXPERIMENTS[name]
    monkeypatch.setattr(f"mixtune_paper.{module}.{attribute}", small(name))
    app, arguments = make_app(["reproduce"]), [name, "--runs", "2", "--jobs", "1", "--out", str(folder)]
    done = CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    picture = folder / f"{name}.svg"
    assert picture.exists() == (name != "open-settings")
    if name not in ("open-settings", "layers"):
        drawn = picture.read_text(encoding="utf-8")
        assert f"<!-- {name} (median and quartiles over 2 runs) -->" in drawn
        for line in summaries[name].lines:
            assert f"<!-- {html.escape(line['method'], quote=False)} -->" in drawn


@pytest.mark.parametrize("name", SMALL)
def test_summary_is_complete(summaries, name):
    summary = summaries[name]
    document = json.loads(json.dumps(summary.as_json(), allow_nan=False))
    assert document["runs"] == 2
    assert summary.headline()
    assert all(len({tuple(row) for row in table}) == 1 for table in summary.tables().values())
    for check in summary.checks().values():
        assert check.holds in (True, False, None)
        assert check.result


def test_increments_are_those_of_the_recursions():
    """The closed forms against Algorithms 2 and 3 step by step."""
    moments = [Moments.from_rows(U, y) for U, y in DATA.draw(seed=1)]
    heads, weights = np.stack([m.head(1.0) for m in moments]), np.array([0.4, 0.2, 0.2, 0.1, 0.1])
    costs = {"transfer": 0.5, "stability": 1.5, "horizon": 4}
    optimal = RegretProblem(moments=moments, weights=weights, heads=heads, **costs)
    fast = optimal.replaced(start=heads, reference=heads.mean(axis=0))
    steps = solve(optimal, method="riccati").controls_at(np.arange(4)) - solve(fast, method="accelerated").controls_at(
        np.arange(4)
    )
    by_hand = sum(np.linalg.norm(step) for step in steps)
    assert near.increment_gap(moments, heads, weights=weights, **costs) == pytest.approx(by_hand, rel=1e-8)


def test_bracket_of_the_theorem():
    weights, heads = np.array([0.75, 0.25]), np.array([[1.0], [-1.0]])
    triples, pairs = 0.75**3 - 1 / 8, 0.75**2 - 1 / 4
    by_hand = 10 * 2**1.5 * triples + 10 * 2**0.5 * pairs + np.sqrt(2)
    assert near.increment_bound(10, weights, heads) == pytest.approx(by_hand)
    assert near.increment_bound(10, np.array([0.5, 0.5]), np.zeros((2, 3))) == 0


def test_near_optimality(summaries):
    summary = summaries["near-optimality"]
    assert summary.checks()["Theorem 6 (ii)"].holds
    exponents = {row["what"]: row["exponent"] for row in summary.headline()}
    assert exponents[f"increments, {near.BY_WEIGHTS}"] == pytest.approx(1, abs=0.05)
    assert exponents[f"increments, {near.BY_HEADS}"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({}, (True, True, True, True)),
        ({near.BY_WEIGHTS: {"exponent": 0.5}}, (False, True, True, True)),  # increments of a lower order
        ({"Algorithm 2": {"exponent_n": 4.0}}, (True, False, True, True)),  # slower than stated
        ({"Algorithm 3": {"exponent_p": 1.3}}, (True, True, None, True)),  # at sizes where overhead dominates
        ({"speed-up": {"exponent_n": 0.1}}, (True, True, True, False)),
    ],
)
def test_near_optimality_can_fail(summaries, folder, changes, verdicts):
    del summaries  # whose runs are in the folder
    study = small("near-optimality")
    stated = {
        name: dict(zip(("exponent_n", "exponent_p", "exponent_t"), exponents))
        for name, exponents in near.STATED.items()
    }
    stated["speed-up"] = {"exponent_n": 2.0}
    with ResultsStore(folder) as store:
        rows = {
            name: [{**row, **stated.get(name, {}), **changes.get(name, {})} for row in found]
            for name, found in store.rows("near-optimality", 2).items()
        }

        def curves(method, quantity):
            found = store.curves("near-optimality", method, quantity, 2)
            return [np.full_like(curve, 3.0) for curve in found] if method == "speed-up" else found

        checks = study.summarise(study.settings, Results("near-optimality", 0, 2, rows, curves)).checks()
    assert tuple(check.holds for check in checks.values()) == verdicts


def test_bound(summaries, folder):
    checks = summaries["bound"].checks()
    assert checks.pop("Theorem 1").holds is None  # two runs cannot show a coverage of 90%
    assert all(check.holds for check in checks.values())
    checks = run_study(small("bound"), out=folder, runs=30).checks()
    assert all(check.holds for check in checks.values())
    assert not checks["Theorem 1"].as_printed
    assert not checks["Theorem 1, T-Gain"].as_printed
    medians = [row["median"] for row in summaries["bound"].headline()]
    assert medians == sorted(medians)  # each quantity of the proof bounds the one before
    assert all(row["covers"] == 1.0 for row in summaries["bound"].headline())


def test_game():
    """The equilibrium against best answers in turn, and the costs against the energy."""
    moments = [Moments.from_rows(U, y) for U, y in DATA.draw(seed=2)]
    heads, w = np.stack([m.head(1.0) for m in moments]), np.array([0.3, 0.3, 0.2, 0.1, 0.1])
    rho = Schedule(1.0, 1.0, 5).rho * 20
    moves = np.zeros_like(heads)
    for _ in range(300):
        for i, m in enumerate(moments):
            rest = w @ (heads + moves) - w[i] * moves[i]
            matrix = rho * np.eye(len(rest)) + w[i] ** 3 * m.gram
            moves[i] = np.linalg.solve(matrix, w[i] ** 2 * (m.cross - m.gram @ rest))
    np.testing.assert_allclose(nash_moves(moments, heads, weights=w, rho=rho), moves, atol=1e-9)


def test_the_planner_is_best_for_all_together(summaries):
    summary = summaries["game"]
    assert summary.checks()["Appendix A"].holds
    costs = {row["play"]: row["system_cost"] for row in summary.headline()}
    assert costs["planner"] < min(costs["selfish"], costs["no play"])


def test_early_stopping(summaries):
    summary = summaries["early-stopping"]
    rows = {row["data"]: row for row in summary.headline()}
    assert rows["networks"]["with_stopping_there"] < rows["networks"]["rmse_at_the_least_ridge"]
    lines = {(line["method"], line["x"]): line for line in summary.lines if line["panel"] == "networks"}
    for ridge in SMALL["early-stopping"]["ridges"]:
        best = lines["best step in hindsight", ridge]
        assert best["median"] <= min(lines[name, ridge]["median"] for name in ("last step", 'stop="best"')) + 1e-12


def test_open_settings(summaries):
    rows = {row["change"]: row for row in summaries["open-settings"].headline()}
    assert rows["lambda, beta = 2, 1 instead of 3, 0"]["difference"] == 0  # with one step only the sum matters
    assert rows["ReLU instead of leaky ReLU: LO-1"]["difference"] != 0


def test_layers_and_outputs(summaries):
    check = summaries["layers"].checks()["Equation (3), layers"]
    assert check.holds
    assert not replace(summaries["layers"], outputs_error=0.1).checks()["Equation (3), layers"].holds


def test_steps_to_the_oracle_add_up(summaries):
    *steps, whole, _ = summaries["oracle"].as_json()["rows"]
    assert sum(row["difference"] for row in steps) == pytest.approx(whole["difference"])
    for row in (*steps, whole):
        assert row["rp_after"] - row["rp_before"] == pytest.approx(row["difference"])


def test_losses_by_date_add_up_to_the_whole(tmp_path):
    """What the decisions of all dates lose is what the method lies behind, on the same evaluation paths."""
    study = small("oracle")
    outcome = study.run(study.settings, 5)
    best = outcome.rows["400 paths of the main market"]["price"]
    for name in ("RO (tuned)", "2 alike"):
        curves = outcome.curves[name]
        assert curves["lost"].shape == curves["rmse"].shape == (2,)
        assert np.sum(curves["lost"]) == pytest.approx(best - outcome.rows[name]["price"])
        assert np.all(curves["rmse"] >= np.abs(curves["bias"]))
    assert not any("from date" in name for name in outcome.rows)
