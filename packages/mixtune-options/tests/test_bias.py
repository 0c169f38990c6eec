"""The error of the time steps: found where it is, and absent where the library chooses the steps."""

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune_options import Bias, BlackScholes, Call, Heston, MaxCall, Put, RoughHeston, TimeGrid, european, price

#: Mild, strongly skewed, Andersen's (2008) hard case, fast, and short with hardly any variance; maturity and strike.
MARKETS = {
    "mild": ({"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}, 5.0, 100.0),
    "skewed": ({"v0": 0.09, "v_mean": 0.04, "v_speed": 1.5, "v_vol": 0.6, "rho": -0.8}, 1.0, 110.0),
    "andersen": ({"v0": 0.04, "v_mean": 0.04, "v_speed": 0.5, "v_vol": 1.0, "rho": -0.9}, 10.0, 100.0),
    "fast": ({"v0": 0.16, "v_mean": 0.04, "v_speed": 8.0, "v_vol": 0.9, "rho": 0.4}, 1.0, 90.0),
    "short": ({"v0": 0.01, "v_mean": 0.04, "v_speed": 3.0, "v_vol": 1.5, "rho": -0.7}, 10 / 365, 99.0),
}
ROUGH = [(0.05, 0.4, 1.0), (0.1, 0.3, 10 / 365), (0.2, 0.3, 10.0), (0.4, 0.5, 1.0)]


def heston(market, **more):
    return Heston(spot=100.0, dividend=0.01, **MARKETS[market][0], **more)


def rough(hurst, v_vol, **more):
    return RoughHeston(spot=100, v0=0.04, v_mean=0.04, v_speed=0.3, v_vol=v_vol, rho=-0.7, hurst=hurst, **more)


PROCESSES = {
    "qe": heston("mild", substeps=2),
    "inverse-gaussian": heston("andersen", scheme="inverse-gaussian", substeps=8),
    "rough": rough(0.4, 0.8, substeps=1),
}


def grid(maturity, dates=1, rate=0.03):
    return TimeGrid(maturity=maturity, dates=dates, rate=rate)


def found(process, payoff, dates):
    """The bias that a price carries, judged by a tolerance of 0.1% however few the paths."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the time steps")
        bias = price(process, payoff, dates, paths=100, seed=0, method="lsm").bias
    return bias and dataclasses.replace(bias, tolerance=0.001)


class HastyHeston(Heston):
    """A market that takes too few steps where they are left to it."""

    def for_grid(self, grid, *, tolerance=0.001):
        return super().for_grid(grid, tolerance=64 * tolerance)


def forward(process, dates):
    return float(process.spot[0]) * math.exp((0.03 - float(np.squeeze(process.dividend))) * dates.maturity)


@pytest.mark.parametrize("market", MARKETS)
def test_chosen_steps_leave_no_bias_of_heston(market):
    _, maturity, strike = MARKETS[market]
    bias = found(heston(market), Put(strike), grid(maturity, 2))
    assert not bias.missed
    assert abs(bias.relative) < 0.002 + 4 * bias.relative_error
    assert bias.relative_error < 0.002


@pytest.mark.parametrize(("hurst", "v_vol", "maturity"), ROUGH)
def test_chosen_steps_leave_no_bias_of_rough_heston(hurst, v_vol, maturity):
    bias = found(rough(hurst, v_vol), Put(100), grid(maturity, rate=0.0))
    assert not bias.missed
    assert abs(bias.relative) < 0.003
    assert bias.relative_error < 0.0015


@pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)
def test_variances_alone_and_whole_paths_show_the_same_bias(process):
    """The quick estimate against its slow twin: European prices on plain paths."""
    dates, option = grid(5.0), Put(100)
    quick = found(process, option, dates)
    prices = process.sample(100_000, dates, np.random.default_rng(1))[:, -1]
    exact, discount = european(process, option, dates), math.exp(-0.03 * 5)
    flows, control = discount * option(prices), prices[:, 0] - forward(process, dates)
    flows -= (flows - flows.mean()) @ control / (control @ control) * control
    relative, error = flows.mean() / exact - 1, flows.std() / math.sqrt(len(flows)) / exact
    assert quick.option == "put, strike 100"
    assert quick.exact == exact
    assert abs(relative - quick.relative) < 4 * math.hypot(error, quick.relative_error)
    assert quick.missed
    assert error > 1.5 * quick.relative_error


def test_steps_are_shortened_until_the_bias_is_within_the_tolerance():
    dates, option = grid(5.0), Put(100)
    hasty = HastyHeston(spot=100.0, dividend=0.01, **MARKETS["mild"][0], scheme="qe")
    coarse = hasty.for_grid(dates).substeps
    assert found(heston("mild", scheme="qe", substeps=coarse), option, dates).missed
    result = price(hasty, option, dates, paths=100, seed=0, method="lsm")
    assert int(re.search(r"substeps=(\d+)", result.settings["process"])[1]) > 1.9 * coarse
    assert abs(result.bias.relative) < 0.002
    # Steps that the user sets stay as they are.
    kept = price(heston("mild", substeps=2), option, dates, paths=100, seed=0, method="lsm", control=False)
    assert "scheme='qe', substeps=2" in kept.settings["process"]


def test_the_scheme_with_fewer_steps_is_taken():
    def scheme(market, **more):
        return heston(market, **more).for_grid(grid(MARKETS[market][1])).scheme

    assert [scheme(market) for market in MARKETS] == ["inverse-gaussian", "qe", "qe", "inverse-gaussian", "qe"]
    assert scheme("mild", n_assets=2, correlation=0.5) == "qe"
    assert scheme("mild", scheme="qe") == "qe"
    assert scheme("andersen", scheme="inverse-gaussian") == "inverse-gaussian"


def test_a_smaller_tolerance_takes_more_steps():
    dates = grid(5.0)
    for process in (heston("mild"), rough(0.1, 0.3)):
        steps = [process.for_grid(dates, tolerance=tolerance).substeps for tolerance in (4e-3, 1e-3, 2.5e-4)]
        assert steps[1] == pytest.approx(2 * steps[0], abs=1)
        assert steps[2] == pytest.approx(2 * steps[1], abs=1)
        with pytest.raises(ParameterError, match="tolerance must be a finite number > 0"):
            process.for_grid(dates, tolerance=0)


def test_the_number_of_steps_must_be_known_to_draw_normals():
    for process in (heston("mild"), rough(0.1, 0.3)):
        with pytest.raises(ParameterError, match="call for_grid"):
            _ = process.normals_per_interval


def test_several_assets_are_judged_by_a_put_on_the_worst():
    law = {"v0": 0.04, "v_mean": 0.04, "v_speed": [2.0, 0.1, 0.1], "v_vol": [0.3, 0.05, 0.05], "rho": -0.7}
    process = Heston(spot=100, **law, n_assets=3, substeps=1, cash_dividends=[(1.0, 2.0)])
    bias = found(process, MaxCall(100), grid(5.0))
    assert bias.option == "put, strike 100, asset 0"
    assert bias.missed


def test_a_put_that_says_nothing_of_the_steps_is_not_reported():
    """Deep in the money a put is worth its intrinsic value, whatever the steps."""
    law = {"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": [0.3, 0.6], "rho": -0.7}
    for spot, asset in (([100, 50], 0), ([50, 100], 1)):
        process = Heston(spot=spot, **law, n_assets=2)
        assert found(process, MaxCall(100), grid(1.0)).option == f"put, strike 100, asset {asset}"


def test_no_bias_where_there_is_no_error_or_no_reference():
    dates = grid(1.0)
    assert found(BlackScholes(spot=100, volatility=0.2), Put(100), dates) is None
    assert found(heston("mild"), Put(1e-3), dates) is None
    assert found(heston("mild", scheme="log-euler"), Put(1e-3), dates) is None
    assert found(heston("mild", scheme="log-euler", cash_dividends=[(0.5, 1.0)]), Put(100), dates) is None
    assert found(heston("mild", scheme="log-euler"), Put(100), dates) is not None


def test_a_difference_within_its_noise_is_not_missed():
    assert not Bias("put", 10.0, 10.05, 0.02, 0.001).missed
    assert Bias("put", 10.0, 10.10, 0.02, 0.001).missed
    assert not Bias("put", 10.0, 10.10, 0.02, 0.003).missed


# --- in a pricing run -------------------------------------------------------------------------------------------------


def run(process, **options):
    return price(process, Put(100), grid(5.0), **{"paths": 2000, "seed": 0, "method": "lsm", **options})


def test_a_price_carries_its_bias():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result, plain = run(heston("mild")), run(heston("mild"), control=False)
    assert abs(result.bias.relative) < 0.002
    assert not result.bias.missed
    # Half a standard error of 2,000 paths is more than 0.1%, where nothing is taken off the cash flows.
    assert plain.bias.tolerance == pytest.approx(0.5 * plain.standard_error / plain.price)
    assert result.bias.tolerance == 0.001
    assert result.as_dict()["bias"]["exact"] == result.bias.exact
    assert "scheme='inverse-gaussian', substeps=21" in result.settings["process"]
    assert run(BlackScholes(spot=100, volatility=0.2)).bias is None


def test_a_missed_tolerance_is_a_warning():
    with pytest.warns(UserWarning, match=r"bias prices by \+6\..*leave scheme and substeps to the library"):
        assert run(heston("mild", substeps=2), paths=20_000).bias.missed
    with pytest.warns(UserWarning, match="bias prices by"):
        assert run(rough(0.05, 0.6, scheme="markovian", substeps=3), paths=20_000).bias.missed


def test_the_papers_scheme_is_biased_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(heston("skewed", scheme="paper"), paths=50_000)
    assert result.bias.missed


def test_a_call_is_its_own_probe():
    result = price(heston("fast"), Call(90), grid(1.0), paths=2000, seed=0, method="lsm")
    assert result.bias.option == "call, strike 90"
