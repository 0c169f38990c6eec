"""Figures 1 and 2: the curves against independent routes, and against what the paper says about them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mixtune import Moments, PredictiveWeights, RegretProblem, solve
from mixtune_paper import ResultsStore, run_study
from mixtune_paper.convergence import FIGURE_1, FIGURE_2, ConvergenceSettings, NetworkData

SMALL = NetworkData(n_domains=3, n_rows=9, width=12)


def problems(settings, seed):
    """RO's and ARO's problem of one run as the paper puts them, for the first of the transfer penalties."""
    moments = [Moments.from_rows(U, y) for U, y in settings.data.draw(seed)]
    heads = np.stack([m.head(settings.ridge) for m in moments])
    given = {"moments": moments, "transfer": settings.transfers[0], "stability": settings.stability}
    weights = PredictiveWeights(sharing=settings.sharing).weigh(moments=moments, heads=heads)
    equal, mean = np.full(len(moments), 1 / len(moments)), np.broadcast_to(heads.mean(axis=0), heads.shape)
    optimal = RegretProblem(weights=weights, heads=heads, horizon=settings.horizon, **given)
    return optimal, RegretProblem(weights=equal, heads=mean, horizon=settings.horizon, **given)


@pytest.fixture(scope="module")
def figure_1():
    """One run at the paper's size."""
    return FIGURE_1.run(FIGURE_1.settings, 1)


@pytest.fixture(scope="module")
def figure_2():
    return FIGURE_2.run(FIGURE_2.settings, 1)


def test_settings_are_the_papers():
    s, data = FIGURE_1.settings, FIGURE_1.settings.data
    assert (s.transfers, s.stability, s.horizon, s.ridge, s.sharing) == ((0.0,), 1.0, 1000, 0.0, 10.0)
    assert (s.learning_rate, s.descent_steps) == (7e-5, 100_000)
    assert (data.n_domains, data.n_rows, data.n_inputs, data.target_units, data.width) == (5, 100, 5, 10, 500)
    assert FIGURE_2.settings == replace(s, transfers=(1e-4, 2.0), descent_steps=0)
    assert FIGURE_1.runs == FIGURE_2.runs == 10


def test_data_follow_their_laws():
    rows = NetworkData(n_rows=4000, n_domains=2).draw(seed=0)
    (U, y), (V, z) = rows
    assert U.shape == (4000, 501)
    assert np.all(U[:, -1] == 1)
    assert np.all(U >= 0)
    assert not np.array_equal(U, V)
    assert 0.05 < y.std() < 5
    assert abs(np.corrcoef(y, z)[0, 1]) < 0.1  # other inputs, another network
    again = NetworkData(n_rows=4000, n_domains=2).draw(seed=0)
    assert np.array_equal(again[1][0], V)


def test_iterations_are_dense_first_and_thinned_after():
    t = FIGURE_1.settings.iterations("GD")
    assert np.array_equal(t[:1001], np.arange(1001))
    assert np.array_equal(t[1001:], np.arange(1100, 100_001, 100))
    assert np.array_equal(FIGURE_1.settings.iterations("RO"), np.arange(1001))
    assert ConvergenceSettings(descent_steps=5).iterations("GD").tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("transfer", [0.0, 1e-2, 2.0])
def test_closed_forms_agree_with_the_papers_recursions(transfer):
    settings = ConvergenceSettings(data=SMALL, transfers=(transfer,), horizon=15, descent_steps=0)
    curves = FIGURE_1.run(settings, 3).curves
    regret_optimal, accelerated = problems(settings, 3)
    t = np.arange(16)
    for name, problem, method in (("RO", regret_optimal, "riccati"), ("ARO", accelerated, "accelerated")):
        slow = solve(problem, method=method)
        np.testing.assert_allclose(curves[name]["loss"], slow.loss_at(t), rtol=1e-8)
        np.testing.assert_allclose(curves[name]["energy"], slow.energy_at(t), rtol=1e-8)


def test_descent_agrees_with_a_loop():
    settings = ConvergenceSettings(data=SMALL, horizon=10, descent_steps=40, descent_every=7, learning_rate=1e-4)
    curves = FIGURE_1.run(settings, 3).curves["GD"]
    problem, _ = problems(settings, 3)
    rows = settings.data.draw(3)
    w, theta, energy = problem.weights, problem.start.copy(), 0.0
    found = {}
    for t in range(41):
        mixed = w @ theta
        loss = sum(wi * np.sum((y - U @ mixed) ** 2) for wi, (U, y) in zip(w, rows))
        found[t] = (loss, loss + energy)
        gradient = sum(wi * 2 * U.T @ (U @ mixed - y) for wi, (U, y) in zip(w, rows))
        step = -1e-4 * w[:, None] * gradient
        theta, energy = theta + step, energy + np.sum(step**2)
    expected = np.array([found[t] for t in settings.iterations("GD")])
    np.testing.assert_allclose(curves["loss"], expected[:, 0], rtol=1e-9)
    np.testing.assert_allclose(curves["energy"], expected[:, 1], rtol=1e-9)


def test_regret_optimal_walks_a_straight_line(figure_1):
    """lambda = 0: equal steps, so that the loss is a parabola in t, here from the rows themselves."""
    problem, _ = problems(FIGURE_1.settings, 1)
    start, end = problem.weights @ problem.start, solve(problem).coef
    rows = FIGURE_1.settings.data.draw(1)
    for t in (0, 250, 999, 1000):
        theta = start + t / 1000 * (end - start)
        loss = sum(w * np.sum((y - U @ theta) ** 2) for w, (U, y) in zip(problem.weights, rows))
        assert figure_1.curves["RO"]["loss"][t] == pytest.approx(loss, rel=1e-8)
    bends = np.diff(figure_1.curves["RO"]["loss"], 3)
    assert np.max(np.abs(bends)) < 1e-9


def test_figure_1_says_what_the_paper_says(figure_1):
    for name in ("RO", "ARO"):
        loss, energy = figure_1.curves[name]["loss"], figure_1.curves[name]["energy"]
        assert loss[-1] < 0.1 * loss[0]
        assert np.all(energy >= loss)
        assert np.all(np.diff(loss) < 0)
    descent = figure_1.curves["GD"]
    assert np.all(np.diff(descent["loss"]) < 0)
    # A hundred times the iterations, and still far from the loss of RO; small steps cost next to nothing.
    assert descent["loss"][-1] > 3 * figure_1.rows["RO"]["final_loss"]
    assert descent["loss"][1000] > 10 * figure_1.rows["RO"]["final_loss"]
    np.testing.assert_allclose(descent["energy"], descent["loss"], rtol=1e-2)
    assert 6e-5 < figure_1.rows["GD"]["stability_limit"] < 9e-5


def test_figure_2_says_what_the_paper_says(figure_2):
    """Held back, the heads stay at the start and move only near T; the more so the larger lambda is."""
    early, late = (figure_2.curves[f"RO lambda={transfer}"]["loss"] for transfer in ("0.0001", "2"))
    assert early[-1] < 0.5 * late[-1]
    assert late[-1] < late[0]
    for loss, first in ((early, 300), (late, 990)):
        np.testing.assert_allclose(loss[:first], loss[0], rtol=1e-2)
    assert early[800] < 0.95 * early[0]
    assert late[998] > 0.9 * late[0]


def test_only_the_mixed_head_of_start_and_reference_matters(figure_1):
    """So the paper's 'replace Theta* by the mean heads' and its algorithm's local heads draw the same curve."""
    problem, _ = problems(FIGURE_1.settings, 1)
    mixed = np.broadcast_to(problem.weights @ problem.heads, problem.heads.shape)
    moved = RegretProblem(
        moments=problem.moments, weights=problem.weights, heads=mixed, transfer=0.0, stability=1.0, horizon=1000
    )
    np.testing.assert_allclose(solve(moved).energy_at(np.arange(1001)), figure_1.curves["RO"]["energy"], rtol=1e-9)


def test_exploding_runs_are_counted_and_left_out(tmp_path):
    settings = ConvergenceSettings(data=SMALL, horizon=10, descent_steps=100_000)
    limits = run_study(replace(FIGURE_1, settings=settings), out=tmp_path / "a", runs=4).stability_limits
    between = float(np.sort(limits)[1:3].mean())
    for rate, stable in ((between, 2), (2 * float(limits.max()), 0)):
        study = replace(FIGURE_1, settings=replace(settings, learning_rate=rate))
        summary = run_study(study, out=tmp_path / f"{stable}", runs=4)
        assert summary.diverged == 4 - stable
        assert [s.runs for s in summary.series] == [4, 4, stable]
        assert f"in {4 - stable} of 4 runs (left out" in summary.notes()[0]
        document = json.loads(json.dumps(summary.as_json(), allow_nan=False))
        assert document["descent"]["diverged_runs"] == 4 - stable
        assert (document["methods"][2]["loss"] is None) == (stable == 0)
        assert {row["method"] for row in summary.tables()["figure1"]} == {"RO", "ARO"} | ({"GD"} if stable else set())


def test_means_and_standard_deviations(tmp_path):
    settings = ConvergenceSettings(data=SMALL, horizon=10, descent_steps=0)
    summary = run_study(replace(FIGURE_1, settings=settings), out=tmp_path, runs=3)
    with ResultsStore(tmp_path) as store:
        losses = np.stack(store.curves("figure1", "RO", "loss", 3))
    np.testing.assert_allclose(summary.series[0].loss_mean, losses.mean(axis=0))
    np.testing.assert_allclose(summary.series[0].loss_std, losses.std(axis=0, ddof=1))
    alone = run_study(replace(FIGURE_1, settings=settings), out=tmp_path, runs=1)
    assert np.all(alone.series[0].loss_std == 0)
    assert summary.notes() == []
    assert "descent" not in summary.as_json()


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Figures 1 and 2 in miniature, in six runs."""
    folder = tmp_path_factory.mktemp("judged")
    settings = ConvergenceSettings(data=NetworkData(width=60, n_rows=20), horizon=200, descent_steps=2000)
    first = run_study(replace(FIGURE_1, settings=settings), out=folder, runs=6)
    settings = replace(settings, transfers=(1e-3, 2.0), descent_steps=0)
    return first, run_study(replace(FIGURE_2, settings=settings), out=folder, runs=6)


def check_of(summary, *, limits=None, **by_run):
    """The check of a figure with some of its numbers replaced."""
    changed = {name.replace("_", " "): values for name, values in by_run.items()}
    limits = summary.stability_limits if limits is None else np.array(limits)
    (check,) = replace(summary, by_run={**summary.by_run, **changed}, stability_limits=limits).checks().values()
    return check


def test_check_of_figure_1(judged):
    first, _ = judged
    ones = np.ones(6)
    slow = {"GD_loss": 5 * first.by_run["RO loss"], "GD_energy": 5.05 * first.by_run["RO loss"]}
    between = 7.5e-5 * (1 + 0.01 * np.linspace(-1, 1, 6))
    good = check_of(first, limits=between, **slow)
    assert good.holds
    assert good.as_printed
    assert good.power > 0.8
    mixed = check_of(first, limits=[*between[:-1], 8.1e-5], **slow)
    assert mixed.holds
    assert not mixed.as_printed  # 8e-5 is stable in one run
    assert check_of(first, limits=2e-4 * ones + 1e-6 * between, **slow).holds is False
    assert check_of(first, limits=6e-5 * ones, **slow).holds is False  # 7e-5 explodes
    assert check_of(first, limits=between, **{**slow, "GD_loss": 0.1 * first.by_run["RO loss"]}).holds is False
    assert check_of(first, limits=between, **{**slow, "GD_energy": 9 * first.by_run["RO loss"]}).holds is False
    wide = 7.5e-5 * (1 + 0.1 * np.linspace(-1, 1, 6))
    assert check_of(first, limits=np.maximum(wide, 7e-5), **slow).holds is None  # the runs differ too much


def test_check_of_figure_2(judged):
    _, second = judged
    good = check_of(second)
    assert good.holds
    assert good.power > 0.8
    start, loss = ({k: second.by_run[f"{what} lambda={k}"] for k in ("0.001", "2")} for what in ("start", "loss"))
    for change in (
        {"start lambda=2": start["2"] - 0.5},  # no late start
        {"start lambda=0.001": np.minimum(start["2"] + 0.01, 1.0)},  # the smaller lambda starts later
        {"loss lambda=2": 0.1 * loss["0.001"]},  # the larger lambda gains more
    ):
        assert check_of(second, **change).holds is False
    assert replace(second, by_run={k: v[:3] for k, v in second.by_run.items()}).checks()["Figure 2"].holds is None


def test_exploding_in_all_runs_contradicts(judged):
    first, _ = judged
    assert check_of(first, limits=np.full(6, 1e-9)).holds is False
