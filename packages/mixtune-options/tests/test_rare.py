"""Options that are rarely exercised: both bounds see what ordinary paths do not reach."""

import math
import warnings

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.stats import norm

from mixtune_options import BlackScholes, Call, CustomPayoff, Heston, MaxCall, Put, TimeGrid, european, price

GRID = TimeGrid(maturity=0.5, dates=10, rate=0.05)
MARKET = BlackScholes(spot=100.0, volatility=0.2)


def bermudan(strike, *, volatility=0.2, rate=0.05, maturity=0.5, dates=10, points=1501):
    """A put on spot 100 by dynamic programming on the premium over the European value, which is smooth."""
    dt = maturity / dates
    drift, spread = (rate - volatility**2 / 2) * dt, volatility * math.sqrt(dt)
    width = 10 * volatility * math.sqrt(maturity)
    x = np.linspace(math.log(100) - width, math.log(100) + width, points)
    z = np.linspace(-8, 8, 1201)
    mass = norm.pdf(z) / norm.pdf(z).sum()

    def held(x, time):
        left = maturity - time
        deviation = volatility * math.sqrt(left)
        forward = np.exp(x + rate * left)
        d = np.log(forward / strike) / deviation + deviation / 2
        return math.exp(-rate * left) * (strike * norm.cdf(deviation - d) - forward * norm.cdf(-d))

    premium = np.zeros(points)
    for date in range(dates - 1, 0, -1):
        later, time = CubicSpline(x, premium), date * dt
        premium = np.zeros(points)
        for step, weight in zip(z, mass):
            after = x + drift + spread * step
            now = np.maximum(strike - np.exp(after), 0) - held(after, time)
            premium += weight * np.maximum(now, later(np.clip(after, x[0], x[-1])))
        premium *= math.exp(-rate * dt)
    return float(held(np.array([math.log(100)]), 0.0)[0] + CubicSpline(x, premium)(math.log(100)))


def test_the_reference():
    assert bermudan(55.0) == pytest.approx(1.144778e-5, rel=1e-5)


@pytest.mark.parametrize(("strike", "paths"), [(55.0, 5000), (60.0, 2000), (65.0, 2000), (75.0, 2000)])
def test_intervals_cover_puts_far_out_of_the_money(strike, paths):
    truth = bermudan(strike)
    missed = 0
    for seed in range(8):
        found = price(MARKET, Put(strike), GRID, paths=paths, seed=seed, upper=True)
        assert found.settings["importance_sampling"]
        low, high = found.price - 2.576 * found.standard_error, found.upper.price + 2.576 * found.upper.standard_error
        missed += not low <= truth <= high
        assert found.standard_error > 1e-6 * truth  # what was 1e-24
        assert abs(found.price / truth - 1) < 0.005
        assert found.premium.value > 0
    assert missed <= 1


def test_a_call_and_a_stochastic_variance():
    call = price(BlackScholes(spot=100.0, volatility=0.2, dividend=0.1), Call(170.0), GRID, paths=5000, seed=1)
    assert call.price > call.european.price * 1.001
    law = {"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}
    market = Heston(spot=100.0, **law)
    put = price(market, Put(50.0), GRID, paths=5000, seed=1, upper=True)
    exact = european(market, Put(50.0), GRID)
    assert put.settings["importance_sampling"]
    assert put.price + 4 * put.standard_error > exact
    assert put.upper.price + 4 * put.upper.standard_error > exact
    assert put.upper.price < 2 * exact


def test_every_asset_is_a_way_into_the_money():
    """Five independent calls far out of the money: what the highest pays is nearly their sum."""
    alone = european(MARKET, Call(170.0), GRID)
    for seed in range(3):
        found = price(
            BlackScholes(spot=100.0, volatility=0.2, n_assets=5), MaxCall(170.0), GRID, paths=10_000, seed=seed
        )
        assert found.settings["importance_sampling"]
        assert found.price == pytest.approx(5 * alone, rel=0.01, abs=4 * found.standard_error)
        assert found.standard_error < 0.1 * found.price


def test_ordinary_options_are_priced_as_before():
    for payoff in (Put(100.0), Put(90.0), Call(110.0)):
        assert not price(MARKET, payoff, GRID, paths=4000, seed=0).settings["importance_sampling"]
    still = price(BlackScholes(spot=100.0, volatility=0.0), Put(55.0), GRID, paths=100, seed=0)
    assert (still.price, still.settings["importance_sampling"]) == (0.0, False)


def test_where_no_way_is_known_there_is_a_warning():
    payoff = CustomPayoff(lambda prices: np.maximum(55.0 - prices[..., 0], 0.0))
    with pytest.warns(UserWarning, match="hardly any path ends in the money"):
        price(MARKET, payoff, GRID, paths=1000, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        price(MARKET, payoff, GRID, paths=1000, seed=0, preset="paper")
