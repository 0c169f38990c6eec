"""``mixtune price`` as a user runs it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from mixtune.cli import make_app
from mixtune.errors import MixtuneError
from mixtune_options import BlackScholes, Put, TimeGrid, price_observed

FAST = ["--paths", "600", "--dates", "4", "--seed", "1"]


def run(*arguments):
    return CliRunner().invoke(make_app(), ["price", *arguments], catch_exceptions=True)


def as_json(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_json_has_what_machines_need():
    facts = as_json("--payoff", "max-call", "--assets", "2", "--dividend", "0.1", "--upper", "--greeks", *FAST)
    promised = {"price", "ci_low", "ci_high", "european", "upper_price", "upper_ci_low", "upper_ci_high", "delta"}
    assert promised <= set(facts)
    assert facts["ci_low"] < facts["price"] < facts["ci_high"]
    assert facts["upper_ci_low"] < facts["upper_price"] < facts["upper_ci_high"]
    assert len(facts["delta"]) == 2
    assert facts["profit_and_loss"]["5%"] <= facts["profit_and_loss"]["50%"] <= facts["profit_and_loss"]["95%"]


@pytest.mark.parametrize(
    "model",
    [
        ["--model", "heston", "--v0", "0.04", "--v-mean", "0.04", "--v-speed", "1", "--v-vol", "0.3", "--rho", "-0.5"],
        ["--model", "rough-heston", "--v0", "0.04", "--v-mean", "0.04", "--hurst", "0.2"],
        ["--model", "heston", "--preset", "paper"],
        ["--model", "black-scholes", "--method", "lsm"],
        ["--model", "black-scholes", "--method", "recurrent"],
        ["--model", "black-scholes", "--antithetic", "--all-paths"],
        ["--model", "black-scholes", "--sobol"],
        ["--model", "heston", "--scheme", "log-euler", "--substeps", "3"],
    ],
)
def test_every_model(model):
    assert as_json(*model, *FAST)["price"] > 0


def test_settings_of_the_pricer():
    facts = as_json(
        "--upper", "--width", "7", "--upper-paths", "30", "--inner-paths", "8", "--training-paths", "90", *FAST
    )
    expected = {"width": 7, "upper_paths": 30, "inner_paths": 8, "training_paths": 90, "control": True}
    assert expected.items() <= facts["settings"].items()
    assert as_json("--plain", *FAST)["settings"]["control"] is False


def test_one_number_for_each_asset(tmp_path):
    market = ["--payoff", "max-call", "--assets", "2", "--spot", "90,110", "--volatility", "0.1,0.3", *FAST]
    facts = as_json(*market, "--dividend", "0.1")
    assert (
        "spot=array([ 90., 110.]), volatility=array([0.1, 0.3]), dividend=array([0.1, 0.1])"
        in facts["settings"]["process"]
    )
    file = tmp_path / "option.toml"
    file.write_text('payoff = "max-call"\nassets = 2\nspot = [90, 110]\nvolatility = [0.1, 0.3]\ndividend = 0.1\n')
    assert as_json("--config", str(file), *FAST)["price"] == facts["price"]
    (tmp_path / "matrix.toml").write_text("correlation = [[1.0, 0.5], [0.5, 1.0]]\n")
    correlated = as_json(*market, "--dividend", "0.1", "--config", str(tmp_path / "matrix.toml"))
    assert correlated["price"] == pytest.approx(as_json(*market, "--dividend", "0.1", "--correlation", "0.5")["price"])
    assert correlated["price"] != facts["price"]
    (tmp_path / "matrix.toml").write_text("correlation = [[1.0, 0.5]]\n")
    assert "correlation must" in str(run(*market, "--config", str(tmp_path / "matrix.toml")).exception)
    for bad in (["--spot", "ninety"], ["--spot", "90,,100"], ["--spot", "90,100,110", "--assets", "2"]):
        done = run(*bad, *FAST)
        assert isinstance(done.exception, MixtuneError)
        assert "spot must be" in str(done.exception)


def test_strikes_by_maturities(tmp_path):
    market = ["--strikes", "90,110", "--maturities", "0.5,1", *FAST]
    rows = as_json(*market)["rows"]
    assert [(row["strike"], row["maturity"]) for row in rows] == [(90.0, 0.5), (90.0, 1.0), (110.0, 0.5), (110.0, 1.0)]
    assert rows[3]["price"] == pytest.approx(as_json("--strike", "110", *FAST)["price"])
    picture = tmp_path / "grid.svg"
    done = run(*market, "--plot", str(picture))
    assert done.exit_code == 0, done.output
    assert f"{rows[0]['price']:.4f}" in done.output
    assert picture.stat().st_size > 1000
    assert len(as_json("--strikes", "100", *FAST)["rows"]) == 1
    (tmp_path / "grid.toml").write_text("strikes = [90, 110]\nmaturities = [0.5, 1.0]\n")
    assert as_json("--config", str(tmp_path / "grid.toml"), *FAST)["rows"] == rows
    more = [*market, "--upper", "--upper-paths", "20", "--inner-paths", "4", "--greeks"]
    facts, done = as_json(*more)["rows"][0], run(*more)
    for name in ("upper_price", "delta", "gamma", "vega", "theta", "rho"):
        assert f"{facts[name]:.4f} ± {1.96 * facts[f'{name}_standard_error']:.4f}" in done.output
    two = as_json("--strikes", "100", "--assets", "2", "--payoff", "max-call", "--greeks", *FAST)["rows"][0]
    assert {"delta_0", "delta_1", "gamma_1_standard_error", "vega"} <= two.keys()
    bad = ["--strikes", "90,x"]
    assert "strikes must be numbers such as 90,100" in str(run(*bad, *FAST).exception)
    for bad in (["--maturities", "0.5"], ["--strikes", "90", "--american"], ["--strikes", "90", "--focal", "x"]):
        assert isinstance(run(*bad, *FAST).exception, MixtuneError)


def test_options_on_the_average():
    facts = as_json("--payoff", "asian-put", "--upper", *FAST)
    assert facts["settings"]["payoff"] == "AsianPut(strike=100.0)"
    assert facts["price"] < as_json(*FAST)["price"]
    assert facts["upper_ci_high"] > facts["ci_low"]
    assert len(as_json("--payoff", "asian-call", "--strikes", "90,100", *FAST)["rows"]) == 2


def test_exercise_at_any_time():
    facts = as_json("--american", "--paths", "600", "--dates", "8", "--seed", "1")
    assert list(facts["bermudan"]) == ["2", "4", "8"]
    assert facts["bermudan"]["8"] < facts["price"]
    done = run("--american", "--paths", "600", "--dates", "8", "--seed", "1")
    assert f"any time: {facts['price']:.4f}" in done.output
    for bad in ("--greeks", "--upper"):
        assert "extrapolates prices only" in str(run("--american", bad).exception)
    assert list(as_json("--american", "--paths", "100", "--seed", "1")["bermudan"]) == ["10", "20", "40"]
    assert isinstance(run("--american", *FAST).exception, MixtuneError)


def test_table_for_people():
    done = run("--payoff", "put", "--upper", *FAST)
    assert done.exit_code == 0, done.output
    for words in (
        "profit of a path",
        "mean time of exercise",
        "lower bound",
        "upper bound",
        "European",
        "gap between the bounds",
        "exercised before maturity",
    ):
        assert words in done.output


def test_settings_file(tmp_path):
    toml, other = tmp_path / "option.toml", tmp_path / "option.json"
    toml.write_text('payoff = "max-call"\nassets = 2\ndividend = 0.1\nspot = 100\npaths = 600\ndates = 4\nseed = 1\n')
    settings = {"payoff": "max-call", "assets": 2, "dividend": 0.1, "paths": 600, "dates": 4, "seed": 1}
    other.write_text(json.dumps(settings))
    direct = as_json("--payoff", "max-call", "--assets", "2", "--dividend", "0.1", *FAST)
    assert as_json("--config", str(toml))["price"] == direct["price"]
    assert as_json("--config", str(other))["price"] == direct["price"]
    assert as_json("--config", str(other), "--seed", "2")["price"] != direct["price"]


def test_folder_of_observed_paths(tmp_path):
    grid = TimeGrid(maturity=1, dates=3, rate=0.06)
    for k, (name, volatility, count) in enumerate((("today", 0.2, 20), ("spring", 0.25, 30), ("crash", 0.7, 30))):
        paths = BlackScholes(spot=40.0, volatility=volatility).sample(count, grid, np.random.default_rng(k))
        np.save(tmp_path / f"{name}.npy", paths * (1 + (name == "crash")))  # one of them from another price
    arguments = ["--data", str(tmp_path), "--payoff", "put", "--strike", "40", "--rate", "0.06"]
    assert "do not all start" in str(run(*arguments, "--focal", "today").exception)
    arguments += ["--spot", "40"]
    facts = as_json(*arguments, "--focal", "today")
    assert 1.0 < facts["price"] < 4.0
    assert facts["settings"]["datasets"] == {"today": 20, "spring": 30, "crash": 30}
    assert as_json(*arguments, "--focal", "today", "--width", "10")["price"] != facts["price"]
    assert isinstance(run(*arguments).exception, MixtuneError)
    assert isinstance(run(*arguments, "--focal", "nowhere").exception, MixtuneError)
    assert isinstance(run(*arguments, "--focal", "today", "--upper").exception, MixtuneError)
    assert isinstance(run(*arguments, "--focal", "today", "--dates", "9").exception, MixtuneError)
    assert isinstance(run(*arguments, "--focal", "today", "--model", "heston").exception, MixtuneError)


def test_observed_markets_with_rates_and_dates_of_their_own(tmp_path):
    today, other = TimeGrid(maturity=1, dates=2, rate=0.06), TimeGrid(maturity=0.5, dates=4, rate=0.01)
    paths = {
        name: BlackScholes(spot=40.0, volatility=0.3).sample(count, grid, np.random.default_rng(count))
        for name, grid, count in (("today", today, 10), ("other", other, 12))
    }
    for name, each in paths.items():
        np.save(tmp_path / f"{name}.npy", each)
    arguments = ["--data", str(tmp_path), "--focal", "today", "--strike", "40", "--rate", "0.06"]
    own = ["--market-rates", "other:0.01", "--market-maturities", "other:0.5"]
    expected = price_observed(paths, Put(40.0), today, focal="today", grids={"other": other}, seed=0).price
    assert as_json(*arguments, *own)["price"] == pytest.approx(expected, rel=1e-12)
    file = tmp_path / "option.toml"
    file.write_text("[market-rates]\nother = 0.01\n[market-maturities]\nother = 0.5\n")
    assert as_json(*arguments, "--config", str(file))["price"] == pytest.approx(expected, rel=1e-12)
    assert "market_rates names 'nobody'" in str(run(*arguments, "--market-rates", "nobody:0.1").exception)
    assert "must be pairs such as" in str(run(*arguments, "--market-rates", "other").exception)
    assert "--data" in str(run("--market-rates", "other:0.01").exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--volatility", "-0.2"], "volatility"),
        (["--model", "rough-heston", "--hurst", "0.7"], "hurst"),
        (["--model", "heston", "--rho", "-1.5"], "rho"),
        (["--assets", "2", "--payoff", "max-call", "--correlation", "1.5"], "correlation"),
        (["--payoff", "lookback"], "lookback"),
        (["--model", "bachelier"], "unknown model"),
        (["--dates", "0"], "dates"),
        (["--maturity", "-1"], "maturity"),
        (["--hurst", "0.1"], "hurst"),
        (["--model", "rough-heston", "--correlation", "0.5"], "has no correlation"),
        (["--scheme", "qe"], "has no scheme"),
        (["--plot", "/nonexistent/x.png"], "no folder"),
        (["--plot", "x.png", "--assets", "3", "--payoff", "max-call"], "one or two assets"),
        (["--model", "heston", "--hurst", "0.1"], "rough-heston"),
        (["--plot", "x.png", "--payoff", "asian-put"], "depends on past prices"),
        (["--focal", "x"], "--data"),
        (["--method", "magic"], "method"),
        (["--config", "missing.toml"], "cannot read"),
    ],
)
def test_refused(arguments, message):
    done = run(*arguments)
    assert isinstance(done.exception, MixtuneError), done.output
    assert message in str(done.exception)


def test_a_worthless_option_and_a_picture(tmp_path):
    done = run("--payoff", "call", "--strike", "100000", "--upper", "--plot", str(tmp_path / "r.PNG"), *FAST)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "r.PNG").stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "spot = ", "not valid TOML"),
        ("a.json", "[1]", "one table"),
        ("a.json", '{"spto": 1}', "unknown settings spto"),
        ("a.toml", 'spot = "high"', "spot must be a number, or one for each asset"),
        ("a.toml", "data = 7", "data must be text"),
        ("a.toml", 'model = "heston"\nv0 = true', "v0 must be a number, or one for each asset"),
        ("a.toml", "rate = true", "rate must be a number"),
        ("a.toml", "cash_dividends = [[0.5]]", "cash_dividends must be pairs such as 0.25:1.5"),
    ],
)
def test_refused_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    done = run("--config", str(tmp_path / name))
    assert isinstance(done.exception, MixtuneError)
    assert message in str(done.exception)


def test_lists_curves_and_cash_dividends(tmp_path):
    law = [
        "--v0",
        "0.04,0.09",
        "--v-vol",
        "0.3,0.6",
        "--rho",
        "-0.7,-0.2",
        "--correlation",
        "0.5",
        "--dividend",
        "0.01,0",
    ]
    many = ["--model", "heston", "--payoff", "max-call", "--assets", "2", "--spot", "90,100", *law]
    settings = as_json(*many, *FAST)["settings"]["process"]
    assert "v0=array([0.04, 0.09])" in settings
    assert "correlation=0.5" in settings
    curve = ["--volatility", "0.5:0.3,1:0.1", "--dividend", "1:0.02", "--cash-dividends", "0.25:1.5,0.75:2"]
    given = as_json(*curve, *FAST)
    (tmp_path / "a.toml").write_text(
        "volatility = [[0.5, 0.3], [1, 0.1]]\ndividend = [[1, 0.02]]\ncash_dividends = [[0.25, 1.5], [0.75, 2]]"
    )
    filed = as_json("--config", str(tmp_path / "a.toml"), *FAST)
    assert given["price"] == filed["price"]
    assert given["price"] != as_json(*curve[:4], *FAST)["price"]
    assert "TermStructure" in given["settings"]["process"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--spot", "90,,100"], "spot must be a number, or one for each asset"),
        (["--spot", "1:90"], "spot must be a number, or one for each asset"),
        (["--volatility", "0.5:x"], "volatility must be pairs such as"),
        (["--cash-dividends", "0.5"], "cash_dividends must be pairs such as"),
        (["--model", "rough-heston", "--correlation", "0.5"], "rough-heston has no correlation"),
        (["--bias-tolerance", "0"], "bias_tolerance must be a finite number > 0"),
    ],
)
def test_bad_lists(options, message):
    done = run(*options, *FAST)
    assert isinstance(done.exception, MixtuneError), done.output
    assert message in str(done.exception)


def test_the_bias_of_the_steps_is_printed():
    done = run("--model", "heston", *FAST)
    assert "bias of the time steps:" in done.output
    assert "corrects the bounds for it" in " ".join(done.output.split())
    assert "bias" in as_json("--model", "rough-heston", *FAST)


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run("--device", "cuda", *FAST)
    assert isinstance(done.exception, MixtuneError)
    assert "finds no CUDA devices here; use cpu" in str(done.exception)


def test_a_device_prices_the_same():
    """PyTorch on the CPU stands in for the device."""
    pytest.importorskip("torch")
    here, there = as_json(*FAST), as_json("--device", "torch:cpu", *FAST)
    assert there["price"] == pytest.approx(here["price"], rel=1e-9)


def test_assumptions_are_printed_and_in_the_document():
    shown = " ".join(run("--volatility", "0.3", *FAST).stdout.split())
    for part in ("assumptions:", "volatility=0.3", "at 4 equally spaced dates", "0.05 per year", "lower bound"):
        assert part in shown
    assert "drawn towards it" not in shown
    rare = as_json("--strike", "55", "--maturity", "0.5", *FAST)["assumptions"]
    assert any("drawn towards it" in sentence for sentence in rare)
    heston = as_json("--model", "heston", "--rate", "0.02", *FAST)["assumptions"]
    assert any("sees the variance" in sentence for sentence in heston)
    assert any("0.02 per year" in sentence for sentence in heston)
    assert "at maturity only" in " ".join(as_json("--paths", "600", "--dates", "1")["assumptions"])


def test_settings_fit_on_one_screen():
    """The others are listed on request, and every setting is in one of the two lists."""
    shown, more = run("--help"), run("--more-settings")
    assert len(shown.stdout.splitlines()) <= 45
    assert more.exit_code == 0
    for name in ("--payoff", "--strike", "--upper", "--more-settings"):
        assert name in shown.stdout
        assert f"\n{name} " not in more.stdout
    for name in ("--v0", "--hurst", "--inner-paths", "--antithetic", "--market-rates"):
        assert name not in shown.stdout
        assert f"\n{name} " in more.stdout


def test_tiny_prices_are_shown_with_digits():
    assert "1.14" in run("--strike", "55", "--maturity", "0.5", "--paths", "5000").stdout
