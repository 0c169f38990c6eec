"""The two theorems: growth with epsilon and q, and the gap of Algorithm 3."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mixtune import Moments, RegretProblem, solve
from mixtune.regret import certify
from mixtune_paper import Results, run_study
from mixtune_paper.convergence import NetworkData
from mixtune_paper.robustness import (
    FIXED,
    HARD,
    LOCAL_HEADS,
    MEAN_HEADS,
    RECOMPUTED,
    REFITTED,
    ROBUSTNESS,
    SMOOTH,
    RobustnessSettings,
    accelerated_gap,
    threshold_energies,
)

COSTS = {"transfer": 0.7, "stability": 1.3, "horizon": 6}


@pytest.fixture(scope="module")
def problem():
    moments = [Moments.from_rows(U, y) for U, y in NetworkData(n_domains=4, n_rows=15, width=10).draw(seed=5)]
    return moments, np.stack([m.head(1.0) for m in moments]), np.array([0.55, 0.2, 0.15, 0.1])


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    settings = RobustnessSettings(
        data=NetworkData(width=25, n_rows=50),
        epsilons=(1e-4, 1e-3, 1e-2),
        shares=(0.008, 0.04, 0.2, 1.0),
        trials=6,
        sizes=(20, 60, 180),
    )
    return run_study(replace(ROBUSTNESS, settings=settings), out=tmp_path_factory.mktemp("robustness"), runs=2)


def test_gap_is_that_of_the_accelerated_recursion(problem):
    moments, heads, weights = problem
    mean = np.broadcast_to(heads.mean(axis=0), heads.shape)
    at_mean = RegretProblem(moments=moments, weights=weights, heads=mean, **COSTS)
    recursion = certify(solve(at_mean, method="accelerated")).suboptimality
    assert accelerated_gap(moments, mean, weights=weights, **COSTS) == pytest.approx(recursion, rel=1e-7)


def test_gap_with_local_heads_is_that_of_algorithm_3_as_printed(problem):
    """The mean head in its control, the local heads as start and in the energy; the energy summed by hand."""
    moments, heads, weights = problem
    mean = heads.mean(axis=0)
    control = RegretProblem(moments=moments, weights=weights, heads=heads, reference=mean, **COSTS)
    theta = solve(control, method="accelerated").heads_at(np.arange(7))
    energy = solve(control).problem.system.loss((weights @ theta[-1])[:, None])
    energy += COSTS["transfer"] * np.sum((theta[1:] - heads) ** 2) + COSTS["stability"] * np.sum(
        np.diff(theta, axis=0) ** 2
    )
    least = solve(RegretProblem(moments=moments, weights=weights, heads=heads, **COSTS)).energy
    assert accelerated_gap(moments, heads, weights=weights, **COSTS) == pytest.approx(energy - least, rel=1e-7)


def test_exponents(summary):
    slopes = {(row["method"], row["against"]): row["slope"] for row in summary.headline()}
    assert slopes["worst case", "epsilon"] == pytest.approx(1, abs=0.05)
    assert slopes["random", "epsilon"] == pytest.approx(1, abs=0.15)
    assert 0.5 < slopes["worst case", "q"] <= 1
    assert 0.2 < slopes["random", "q"] < 0.8
    assert slopes[MEAN_HEADS, "max|1/N - w|"] == pytest.approx(2, abs=0.1)


def test_lines_and_bound(summary):
    s = RobustnessSettings(epsilons=(1e-4, 1e-3, 1e-2), shares=(0.008, 0.04, 0.2, 1.0))
    assert s.distances[-1] == pytest.approx(0.8)
    lines = {}
    for line in summary.lines:
        assert 0 < line["lower"] <= line["median"] <= line["upper"]
        lines.setdefault((line["panel"], line["method"]), []).append(line["median"])
    for panel in ("epsilon", "share"):
        worst, random, bound = (np.array(found) for (place, _), found in lines.items() if place == panel)
        assert np.all(random < worst)
        assert np.all(worst <= bound)
    by_rows = {method: np.array(found) for (panel, method), found in lines.items() if panel == "rows"}
    for attack, bound in ((FIXED, "explicit bound, heads fixed"), (REFITTED, "explicit bound, heads refitted")):
        assert np.all(by_rows[attack] <= by_rows[bound])
    assert np.all(by_rows[FIXED][1:] > 1.2 * by_rows["printed: slope 1/2"][1:])
    floor, mean = lines["distance", LOCAL_HEADS], lines["distance", MEAN_HEADS]
    assert floor[0] > 100 * mean[0]
    assert floor[1] == pytest.approx(floor[0], rel=0.1)


def test_documents(summary):
    document = json.loads(json.dumps(summary.as_json(), allow_nan=False))
    assert document["runs"] == 2
    assert len(document["rows"]) == 10
    assert len(document["lines"]) == 3 * 3 + 3 * 4 + 6 * 3 + 2 * 4 + 3 * 10
    assert len(summary.notes()) == 4


def test_theorem_4_is_false_as_printed(summary):
    """The change grows like Nbar, with a constant that may depend on nothing that grows."""
    check = summary.checks()["Theorem 4"]
    assert check.holds
    assert not check.as_printed
    slopes = {(row["method"], row["against"]): row["slope"] for row in summary.headline()}
    for attack in (FIXED, REFITTED, RECOMPUTED):
        assert slopes[attack, "Nbar"] == pytest.approx(1, abs=0.1)


def test_the_hard_threshold_is_not_continuous(summary):
    settings = RobustnessSettings(moves=(1e-9, 1e-6))
    before, after, later = threshold_energies(settings, 0, width=0.0)
    assert abs(after - before) > 1
    assert after == pytest.approx(later, rel=1e-4)
    before, after, later = threshold_energies(settings, 0, width=0.1)
    assert abs(later - before) < 1e-3
    assert (later - before) / (after - before) == pytest.approx(1000, rel=0.01)
    slopes = {row["method"]: row["slope"] for row in summary.headline() if row["theorem_slope"] == 1.0}
    assert abs(slopes[HARD]) < 0.01
    assert slopes[SMOOTH] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("method", "quantity", "value", "statement", "printed"),
    [
        (FIXED, "share_of_bound", 1.01, "Theorem 4", False),
        (SMOOTH, "move_slope", 0.4, "Theorem 4", False),
        (MEAN_HEADS, "gap_slope", 0.4, "Theorem 6 (i)", True),
    ],
)
def test_checks_can_fail(summary, method, quantity, value, statement, printed):
    """The bound passed, a threshold that is not continuous, a gap of a lower order; and what would be as printed."""
    assert all(check.holds for check in summary.checks().values())
    settings = RobustnessSettings(
        data=NetworkData(width=10, n_rows=20), epsilons=(1e-4, 1e-3), trials=2, sizes=(10, 20)
    )
    outcome = ROBUSTNESS.run(settings, 0)

    def checks(changes):
        curves = lambda name, quantity: [outcome.curves[name][quantity]]  # noqa: E731
        by_method = {name: [{**row, **changes.get(name, {})}] for name, row in outcome.rows.items()}
        return ROBUSTNESS.summarise(settings, Results("robustness", 0, 1, by_method, curves)).checks()

    assert all(check.holds for check in checks({}).values())
    found = checks({method: {quantity: value}})
    assert [name for name, check in found.items() if not check.holds] == [statement]
    assert found[statement].as_printed == printed
    rooted = {name: {"rows_slope": 0.5} for name in (FIXED, REFITTED)}
    assert not checks(rooted)["Theorem 4"].as_printed  # the threshold is still hard
    still = {HARD: {"energy_before": 1.0, "energy_after": 1.0}}
    assert checks(rooted | still)["Theorem 4"].as_printed
