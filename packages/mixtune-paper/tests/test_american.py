"""Tables 1 and 2 in miniature: the methods, the arithmetic of the table, and a dense twin."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import t as student

from mixtune.errors import ParameterError
from mixtune_options.training import RunStates, train
from mixtune_paper import Results, ResultsStore, run_study
from mixtune_paper.american import (
    BEYOND,
    CLAIMS,
    PAPER,
    PAPER_RUNS,
    RANGES,
    TABLE1,
    TABLE2,
    TABLE_1,
    TABLE_2,
    draw_run,
    draw_runs,
    layer,
    run_beyond,
    run_table,
    run_together,
)

SMALL = {
    "training_paths": 30,
    "large_paths": 200,
    "evaluation_paths": 500,
    "width": 45,
    "wasserstein_rows": 50,
    "dates": 4,
}


def small(experiment, **changes):
    return dataclasses.replace(experiment, settings=dataclasses.replace(experiment.settings, **SMALL, **changes))


@pytest.fixture(scope="module")
def table1(tmp_path_factory):
    return run_study(small(TABLE1, more_paths=(60,)), out=tmp_path_factory.mktemp("table1"), runs=3)


def test_every_published_method_is_priced():
    assert set(TABLE_1) <= {m.name for m in TABLE1.settings.models()} | {
        f"LO-1 ({n} paths)" for n in TABLE1.settings.more_paths
    }
    assert set(TABLE_2) <= {m.name for m in TABLE2.settings.models()}


@pytest.mark.parametrize(("experiment", "sharing"), [(TABLE1, (10.0, 100.0, 500.0)), (TABLE2, (10.0, 50.0, 100.0))])
def test_settings_are_the_papers(experiment, sharing):
    settings = experiment.settings
    assert (settings.ridge, settings.transfer, settings.stability, settings.sharing) == (2.0, 2.0, 1.0, sharing)
    assert (settings.width, settings.maturity, settings.dates, settings.strike) == (300, 3.0, 9, 100.0)
    assert (settings.training_paths, settings.evaluation_paths, experiment.runs) == (100, 50_000, 100)
    models = {model.name: model for model in settings.models()}
    assert {model.ridge for model in models.values() if hasattr(model, "ridge")} == {2.0}
    transfer = models["RO (eta=10)"]
    assert (transfer.transfer, transfer.stability, transfer.horizon, transfer.weights.sharing) == (2.0, 1.0, 1, 10.0)


def test_markets_are_the_papers():
    markets = TABLE1.settings.markets()
    facts = [(rate, p.v_vol, p.v_mean, p.v0) for p, rate, _ in markets]
    assert facts[0] == (0.05, 0.2, 0.01, 0.01)
    assert facts[1] == (0.05, 0.15, 0.005, 0.005)
    assert facts[4] == (0.05, 0.2, 0.015, 0.015)
    assert facts[12] == (0.5, 0.25, 0.015, 0.015)
    assert [n for _, _, n in TABLE2.settings.markets()] == [100, 50_000, 100]
    assert all(p.scheme == "paper" for p, _, _ in markets)


def test_the_arithmetic_of_the_table(table1):
    lines = {line["method"]: line for line in table1.as_json()}
    assert lines["LO-1"]["rp"] == 1.0
    assert lines["LO-1"]["paper_rp"] == 1.0
    assert lines["LO-1 (ridge tuned)"]["paper_rp"] is None
    assert lines["LO-1 (ridge tuned)"]["agrees"] is None
    keys = {"method", "block", "rp", "ci_low", "ci_high", "paper_rp", "paper_ci_low", "paper_ci_high"}
    keys |= {"agrees", "power"}
    assert all(set(line) == keys and line["ci_low"] <= line["rp"] <= line["ci_high"] for line in lines.values())
    claims = [line for line in lines.values() if line["block"] == CLAIMS]
    # Without the claims, which are sentences, and with titles of two more blocks.
    assert len(table1.headline()) == len(lines) - len(claims) + 2
    for claim in claims:
        assert any(claim["method"] in note for note in table1.notes())
    assert "published rows agree over 3 runs" in table1.notes()[0]


def test_methods_beyond_the_paper_are_a_block_of_their_own(table1):
    lines = table1.as_json()
    blocks = [line["block"] for line in lines]
    assert blocks == sorted(blocks, key=[PAPER, RANGES, CLAIMS, BEYOND].index)
    tuned = [line["method"] for line in lines if line["block"] == BEYOND]
    assert tuned == ["LO-1 (tuned)", "JO (tuned)", "JSO-{1..7} (tuned)", "RO (tuned)"]
    shown = [row["method"] for row in table1.headline()]
    assert shown[shown.index("beyond the paper:") + 1 :] == tuned
    tables = table1.tables()
    assert list(tables) == ["table1", "table1_ranges", "table1_claims", "table1_beyond"]
    assert [line["method"] for line in tables["table1_beyond"]] == tuned
    assert not set(tuned) & {line["method"] for line in tables["table1"]}
    assert "RO (tuned) minus the best of its rivals" in table1.notes()[-1]


def test_the_papers_rows_do_not_depend_on_those_beyond():
    settings = small(TABLE1, more_paths=(), temperatures=()).settings
    alone, all_rows = run_table(settings, 4).rows, run_beyond(settings, 4).rows
    assert list(all_rows)[: len(alone)] == list(alone)
    assert {name: all_rows[name] for name in alone} == alone


def test_intervals_follow_the_papers_formula(tmp_path):
    experiment = small(TABLE2)
    summary = run_study(experiment, out=tmp_path, runs=4)
    with ResultsStore(tmp_path) as store:
        rows = store.rows("table2", 4)
    base = np.mean([row["price"] for row in rows["LO-1"]])
    prices = np.array([row["price"] for row in rows["MLO"]])
    line = next(line for line in summary.as_json() if line["method"] == "MLO")
    assert line["rp"] == pytest.approx(prices.mean() / base)
    assert line["ci_high"] - line["rp"] == pytest.approx(1.96 * prices.std(ddof=1) / base / 2)
    ours, local = (np.array([row["price"] for row in rows[name]]) for name in ("RO (eta=50)", "LO-1"))
    ratio = ours.mean() / local.mean()
    errors = (ours - ratio * local) / local.mean()
    half = student(3).ppf(0.975) * errors.std(ddof=1) * np.sqrt(1 / 4 + 1 / PAPER_RUNS)
    claim = next(line for line in summary.as_json() if line["method"] == "RO (eta=50) outperforms LO-1 by 4%")
    assert claim["rp"] == pytest.approx(ratio - 1)
    assert claim["ci_high"] - claim["rp"] == pytest.approx(half)
    assert (claim["paper_rp"], claim["paper_ci_low"]) == (0.04, pytest.approx(0.015))


def checks_of(factors=None, noise=1e-3, runs=8):
    """What Table 1 says of runs whose prices are the published ones, times factors (by method), with noise."""
    rng, rows = np.random.default_rng(0), {}
    for method, published in TABLE_1.items():
        mean = 4.0 * published.rp * (factors or {}).get(method, 1.0)
        rows[method] = [{"price": float(price)} for price in mean * (1 + noise * rng.standard_normal(runs))]
    return TABLE1.summarise(TABLE1.settings, Results("table1", 0, runs, rows, lambda *_: [])).checks()


def test_checks_of_tables(table1):
    good = checks_of()
    assert set(good) == {"Table 1 (a)", "Table 2", "Experiment 1"} == set(table1.checks())
    assert all(check.holds and check.power > 0.8 for check in good.values())
    assert good["Table 1 (a)"].result.startswith("8 of 8 published rows agree")  # LO-1 is 1 by definition
    odd = checks_of({"LO-9": 2.0})
    assert odd["Table 2"].holds is odd["Table 1 (a)"].holds is False
    assert "not LO-9" in odd["Table 2"].result
    assert "not LO-8..13 (largest)" in odd["Table 1 (a)"].result


def test_range_rows_are_read_literally_as_well():
    """A row 0.01 below the printed end agrees up to sampling error, and still passes what is printed."""
    check = checks_of({"LO-3": 0.98 / 0.966, "LO-5": 0.956 / 0.966}, noise=1e-4)["Table 1 (a)"]
    assert check.holds
    assert not check.as_printed
    assert check.result.endswith("outside the ends of the range rows: LO-5")
    assert checks_of(dict.fromkeys(("LO-3", "LO-5"), 0.98 / 0.966), noise=1e-4)["Table 1 (a)"].as_printed


@pytest.mark.parametrize(
    ("factors", "sentence"),
    [
        ({"RO (eta=100)": 1.017 / 1.09}, "RO (eta=100) outperforms LO-1 by 9%"),
        ({"JSO-{1..7}": 1.01}, "RO (eta=100) outperforms JSO-{1..7} by about 3%"),
        ({"JSO-{1..7}": 1.02 / 1.062}, "JSO-{1..7} outperforms LO-1 by 6.2%"),
        ({"LO-1 (700 paths)": 1.13 / 1.1}, "LO-1 with 700 paths has about 1% more than RO (eta=100)"),
        ({"RO (eta=500)": 1.2 / 1.05}, "RO (eta=500) gains less than RO (eta=100)"),
        ({"LO-4": 0.9}, "LO-4 is similar to LO-1"),
        ({"LO-8": 1.5}, "LO-8 to LO-13 are significantly worse than LO-1"),
    ],
)
def test_claims_can_fail(factors, sentence):
    """A sign is not enough where the text gives a number."""
    assert f"NO: {sentence}" in checks_of(factors)["Experiment 1"].result


def test_few_runs_are_not_judged():
    """Wide intervals neither confirm nor contradict."""
    checks = checks_of(noise=0.02, runs=3)
    assert all(check.holds is None and check.power < 0.8 for check in checks.values())
    assert "not judged: RO (eta=100) outperforms LO-1 by 9%" in checks["Experiment 1"].result


def test_one_run_has_no_interval(tmp_path):
    lines = run_study(small(TABLE2, temperatures=()), out=tmp_path, runs=1).as_json()
    assert all(line["ci_low"] is None and line["agrees"] is None for line in lines)
    assert {line["block"] for line in lines} == {PAPER, CLAIMS}  # nothing beyond Table 2


def test_paths_do_not_depend_on_the_methods():
    with_more, without = (draw_run(small(TABLE1, more_paths=m).settings, 5) for m in ((40,), ()))
    np.testing.assert_array_equal(with_more.training[3].prices, without.training[3].prices)
    np.testing.assert_array_equal(with_more.evaluation.prices, without.evaluation.prices)
    np.testing.assert_array_equal(with_more.state.layer.weights, without.state.layer.weights)
    assert not np.array_equal(without.training[0].prices, without.evaluation.prices[:30])


@pytest.mark.parametrize(("device", "tuned"), [(None, True), ("cpu", True), ("cpu", False)])
def test_several_runs_at_once_give_the_prices_of_each(device, tuned):
    """The way of ``--device cuda``, in NumPy and in PyTorch on the CPU."""
    if device is not None:
        pytest.importorskip("torch")
    settings = small(TABLE1, more_paths=(40, 60)).settings
    seeds, run = [3, 4, 9], run_beyond if tuned else run_table
    for seed, found in zip(seeds, run_together(settings, seeds, device, tuned=tuned), strict=True):
        alone = run(dataclasses.replace(settings, temperatures=()), seed).rows
        assert list(found.rows) == list(alone)
        assert set(TABLE_1) - {"LO-1 (700 paths)", "LO-1 (50000 paths)"} <= set(found.rows)
        for method, row in alone.items():
            assert found.rows[method]["price"] == pytest.approx(row["price"], rel=1e-9), method


def test_tuned_coefficients_of_several_runs_at_full_size():
    """One date of Table 1, with its nearly collinear features: 100 paths and 300 units."""
    pytest.importorskip("torch")
    settings, seeds = dataclasses.replace(TABLE1.settings, more_paths=(), dates=2, evaluation_paths=10), [5, 6]

    def learned(state, training):
        models = settings.tuned_models()
        return train(training, models, state=state.fitted(training), in_the_money=False).coefs[1]

    layers = [layer(settings, seed, standardise=True) for seed in seeds]
    found = learned(RunStates(tuple(layers)), draw_runs(settings, seeds, "cpu").training)
    for run, (seed, own) in enumerate(zip(seeds, layers, strict=True)):
        alone = learned(own, draw_run(settings, seed).training)
        scale = np.max(np.abs(alone), axis=0)
        np.testing.assert_allclose(found[run].numpy() / scale, alone / scale, rtol=0, atol=1e-8)


def test_a_study_on_a_device_is_kept_apart(tmp_path):
    pytest.importorskip("torch")
    experiment = small(TABLE1, more_paths=(), temperatures=())
    seen = []
    summary = run_study(
        experiment, out=tmp_path / "device", runs=3, device="cpu", progress=lambda *pair: seen.append(pair)
    )
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    alone = run_study(experiment, out=tmp_path / "numpy", runs=3)
    for found, line in zip(summary.as_json(), alone.as_json(), strict=True):
        assert found["method"] == line["method"]
        assert found["rp"] == pytest.approx(line["rp"], rel=1e-9)
    assert "minus the best of its rivals" in summary.notes()[-1]  # it compares methods beyond the paper
    with pytest.raises(ParameterError, match='device is "cpu" there, null asked for'):
        run_study(experiment, out=tmp_path / "device", runs=2)
    with pytest.raises(ParameterError, match="leave the executor out"):
        run_study(experiment, out=tmp_path / "c", runs=2, device="cpu", executor=lambda *_: iter(()))
    with pytest.raises(ParameterError, match="table2 has no work for a device"):
        run_study(TABLE2, out=tmp_path / "c", runs=2, device="cpu")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("sharing", [10.0, 100.0])
def test_regret_optimal_prices_equal_the_dense_twin(sharing):
    """The benchmark's straightforward dense implementation prices the same paths to the same number."""
    from benchmarks.table1_run import dense_price

    settings = small(TABLE1, more_paths=(), temperatures=()).settings
    ours = run_table(settings, 3).rows[f"RO (eta={sharing:g})"]["price"]
    assert ours == pytest.approx(dense_price(3, sharing=sharing, settings=settings), rel=1e-9)
