"""Curves, cash dividends and chosen steps under the control, the Greeks and grids of strikes."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from mixtune_options import (
    BasketPut,
    BlackScholes,
    Call,
    GeometricBasketPut,
    Heston,
    MaxCall,
    Put,
    RoughHeston,
    TermStructure,
    TimeGrid,
    european,
    price,
    price_grid,
)

GRID = TimeGrid(maturity=1, dates=4, rate=0.05)
LAW = {"spot": 100.0, "v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}
#: One inside the second interval, one at a date.
PAID = [(0.4, 2.0), (0.75, 1.0)]
RISING = TermStructure([0.5, 1.0], [0.15, 0.3])
YIELD = TermStructure([0.5, 1.0], [0.0, 0.04])

#: Market, payoff, and by how much the variance must fall at the least.
CASES = {
    "curve": (
        BlackScholes(spot=100.0, volatility=RISING, dividend=YIELD),
        Put(100.0),
        300,
    ),
    "dividends": (BlackScholes(spot=100.0, volatility=0.2, cash_dividends=PAID), Put(100.0), 5),
    "heston, dividends": (Heston(**LAW, scheme="inverse-gaussian", cash_dividends=PAID), Put(100.0), 4),
    "two heston": (Heston(**LAW, n_assets=2, correlation=0.5), BasketPut(100.0), 4),
    "rough": (RoughHeston(**LAW, hurst=0.2, cash_dividends=PAID), Put(100.0), 1.3),
}


@pytest.mark.parametrize("case", CASES)
def test_the_control_has_mean_zero_and_takes_variance_off(case):
    market, payoff, factor = CASES[case]
    result = price(market, payoff, GRID, paths=4000, seed=1)
    raw = result.flows.std(ddof=1) / math.sqrt(4000)
    assert raw**2 > factor * result.standard_error**2
    assert abs(result.price - result.flows.mean()) < 4 * raw


@pytest.mark.parametrize("scheme", ["inverse-gaussian", "qe"])
def test_noise_is_standard_and_drives_the_variance(scheme):
    market = Heston(**LAW, n_assets=2, scheme=scheme, cash_dividends=PAID).for_grid(GRID)
    _, hidden, noise = market.sample_with_noise(20_000, GRID, np.random.default_rng(0))
    assert noise.shape == (20_000, 4, 4, 2)  # of variances and prices, before and after a dividend
    flat = noise.reshape(20_000, -1)
    np.testing.assert_allclose(flat.T @ flat / 20_000, np.eye(flat.shape[1]), atol=0.05)
    assert np.corrcoef(noise[:, 0, 0, 1], hidden[:, 1, 1])[0, 1] > 0.8
    assert abs(np.corrcoef(noise[:, 0, 0, 0], hidden[:, 1, 1])[0, 1]) < 0.05


@pytest.mark.parametrize("payoff", [Put(95.0), Call(110.0)])
def test_european_values_know_curves(payoff):
    market = BlackScholes(spot=100.0, volatility=RISING, dividend=TermStructure([0.3, 1.0], [0.01, 0.05]))
    spread, paid = math.sqrt(0.5 * 0.15**2 + 0.5 * 0.3**2), 0.3 * 0.01 + 0.7 * 0.05
    level, sign = 100.0 * math.exp(0.05 - paid), payoff.sign
    d1 = math.log(level / payoff.strike) / spread + spread / 2
    exact = sign * (level * norm.cdf(sign * d1) - payoff.strike * norm.cdf(sign * (d1 - spread))) * math.exp(-0.05)
    assert european(market, payoff, GRID) == pytest.approx(exact, rel=1e-12)
    # At the dates between they are the same martingale: with it, hardly any variance is left.
    result, plain = (price(market, payoff, GRID, paths=20_000, control=on, seed=0) for on in (True, False))
    assert result.european.value == pytest.approx(exact, rel=1e-12)
    assert abs(result.price - plain.price) < 4 * plain.standard_error
    assert 10 * result.standard_error < plain.standard_error


def test_the_geometric_mean_of_curves():
    both = TermStructure([0.5, 1.0], [[0.1, 0.4], [0.3, 0.2]])
    market, payoff = (
        BlackScholes(spot=[90, 110], volatility=both, n_assets=2, correlation=0.5),
        GeometricBasketPut(100.0),
    )
    exact = price(market, payoff, GRID, paths=100, seed=0).european.value
    flows = payoff(market.sample(2**15, GRID, np.random.default_rng(0), sobol=True)[:, -1]) * GRID.discount[-1]
    assert flows.mean() == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"cash_dividends": [(0.5, 1.0), (0.7, 2.0)]}, True),
        ({"cash_dividends": [(0.5, [1.0, 2.0])]}, False),
        ({"volatility": TermStructure([0.5, 1.0], [0.2, 0.3])}, True),
        ({"volatility": TermStructure([0.5, 1.0], [[0.2, 0.3], [0.2, 0.3]])}, False),
    ],
)
def test_assets_are_exchangeable_with_equal_curves_and_dividends(changes, same):
    market = BlackScholes(**{"spot": [90, 100], "volatility": 0.2, "n_assets": 2} | changes)
    assert price(market, MaxCall(95.0), GRID, paths=100, seed=0).policy.state.ranked is same


def test_rough_assets_are_exchangeable_once_their_steps_are_chosen():
    market = RoughHeston(**LAW, hurst=0.1, n_assets=2).for_grid(GRID)
    assert price(market, MaxCall(95.0), GRID, paths=100, seed=0).policy.state.ranked


def test_vega_of_a_flat_curve_is_that_of_the_number():
    how = {"paths": 500, "greeks": True, "seed": 0}
    flat = BlackScholes(spot=100.0, volatility=TermStructure([0.5, 1.0], [0.2, 0.2]))
    found, expected = (price(m, Put(100.0), GRID, **how) for m in (flat, BlackScholes(spot=100.0, volatility=0.2)))
    assert found.greeks["vega"].value == pytest.approx(expected.greeks["vega"].value, rel=1e-6)


def test_dividends_and_curves_come_closer_as_time_passes():
    # A dividend at maturity shifts the strike, so that theta is that of a put without.
    one = TimeGrid(maturity=1, dates=1, rate=0.05)
    paid = BlackScholes(spot=100.0, volatility=0.2, cash_dividends=[(1.0, 5.0)])
    how = {"paths": 20_000, "greeks": True, "seed": 0}
    found = price(paid, Put(100.0), one, **how).greeks["theta"]
    expected = price(BlackScholes(spot=100.0, volatility=0.2), Put(105.0), one, **how).greeks["theta"]
    assert abs(found.value[0] - expected.value[0]) < 4 * found.standard_error[0]
    # Of a curve, the first part becomes shorter.
    market, short = BlackScholes(spot=100.0, volatility=RISING), TermStructure([0.499, 1.0], [0.15, 0.3])
    later = european(
        BlackScholes(spot=100.0, volatility=short), Put(100.0), TimeGrid(maturity=0.999, dates=1, rate=0.05)
    )
    theta = price(market, Put(100.0), one, **how).greeks["theta"].value[0]
    assert theta == pytest.approx((later - european(market, Put(100.0), one)) / 0.001, abs=0.02)


def test_a_grid_takes_steps_that_suit_its_shortest_maturity():
    market, grid = Heston(**LAW), TimeGrid(maturity=1.0, dates=8, rate=0.05)
    short = TimeGrid(maturity=0.125, dates=1, rate=0.05)
    needed = market.for_grid(short).substeps
    assert needed > market.for_grid(grid).substeps
    found = price_grid(market, Call, grid, strikes=[100.0], maturities=[0.125, 1.0], paths=4000, seed=0)
    assert all(f"substeps={needed}," in result.settings["process"] for result in found.results[0])
    for result, dates in zip(found.results[0], (short, grid)):  # without dividends a call is held to maturity
        assert not result.bias.missed
        assert abs(result.bias.relative) < 0.002
        assert result.price == pytest.approx(european(market, Call(100.0), dates), rel=1e-9)
