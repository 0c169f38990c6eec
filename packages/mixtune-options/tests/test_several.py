"""Payoffs of time and path, strikes by maturities, and the limit of many dates, against what is known elsewhere."""

import numpy as np
import pytest

from mixtune.errors import DataError, ParameterError
from mixtune_options import (
    AsianCall,
    AsianPut,
    BlackScholes,
    Call,
    GeometricBasketPut,
    Heston,
    PathPayoff,
    PriceSettings,
    Put,
    TimeGrid,
    american_limit,
    european,
    price,
    price_grid,
    price_observed,
)

GRID = TimeGrid(maturity=1, dates=4, rate=0.06)
MARKET = BlackScholes(spot=100.0, volatility=0.2)


def put_along(prices, times):
    return np.maximum(100.0 - prices[..., 0], 0.0)


def mean_so_far(prices, times):
    return np.cumsum(prices[..., 0], axis=1) / np.arange(1, len(times) + 1)


# --- time and path ---------------------------------------------------------------------------------------------------


def test_a_path_payoff_of_prices_alone_is_the_plain_one():
    options = {"paths": 2000, "control": False, "greeks": True, "seed": 0}
    along, plain = price(MARKET, PathPayoff(put_along), GRID, **options), price(MARKET, Put(100.0), GRID, **options)
    assert along.price == pytest.approx(plain.price, rel=1e-12)
    assert along.greeks["delta"].value == pytest.approx(plain.greeks["delta"].value)
    assert along.region is None


def test_strikes_that_grow_with_the_rate_are_never_exercised_early():
    """max(K exp(rt) - S, 0): discounted it is a submartingale, so that waiting is best and the price European."""
    growing = PathPayoff(lambda P, t: np.maximum(100.0 * np.exp(0.06 * t) - P[..., 0], 0.0), name="growing strike")
    result = price(MARKET, growing, GRID, paths=8000, upper=True, seed=0)
    exact = price(MARKET, Put(100.0 * np.exp(0.06)), TimeGrid(maturity=1, dates=1, rate=0.06), paths=2, seed=0).price
    assert exact * 0.985 < result.price < exact + 3 * result.standard_error
    assert result.upper.price > exact - 3 * result.upper.standard_error
    assert result.upper.method == "dual martingale, fitted moves"


def test_state_of_the_path_helps():
    """A put on the average so far: knowing the average is worth something."""

    def amounts(prices, times):
        return np.maximum(100.0 - mean_so_far(prices, times), 0.0) * (np.arange(len(times)) >= 2)

    known = PathPayoff(amounts, state=lambda P, t: mean_so_far(P, t)[..., None], name="asian")
    options = {"paths": 8000, "seed": 0}
    with_state, without = price(MARKET, known, GRID, **options), price(MARKET, PathPayoff(amounts), GRID, **options)
    assert with_state.price > without.price - 3 * without.standard_error
    assert with_state.price > with_state.european.value
    data = BlackScholes(spot=100.0, volatility=0.2).sample(60, GRID, np.random.default_rng(0))
    assert price_observed({"here": data}, known, GRID, focal="here", seed=0).price > 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda P, t: np.maximum(100.0 - P[:, -1:, 0], 0.0) + 0 * P[..., 0], "at date 0 depend on later prices"),
        (lambda P, t: np.maximum(100.0 - P[:, 0, 0], 0.0), r"must turn prices of shape .* into amounts of shape"),
        (lambda P, t: P[..., 0] * np.nan, "NaN or infinite amounts"),
        (lambda P: P, "failed on prices of shape"),
    ],
)
def test_path_payoffs_that_cannot_be(function, message):
    with pytest.raises(DataError, match=message):
        price(MARKET, PathPayoff(function), GRID, paths=50, seed=0)


def test_path_payoffs_are_checked():
    with pytest.raises(ParameterError, match="needs a function"):
        PathPayoff(3)
    with pytest.raises(ParameterError, match="depends on the path so far"):
        PathPayoff(put_along)([[100.0]])
    with pytest.raises(ParameterError, match="path payoffs needs control"):
        price(MARKET, PathPayoff(put_along), GRID, paths=50, upper=True, control=False, seed=0)


# --- strikes by maturities -------------------------------------------------------------------------------------------


def test_a_grid_is_what_single_prices_are():
    calls, settings = [], PriceSettings(paths=500, seed=3)
    found = price_grid(
        MARKET, Put, GRID, settings, strikes=[90.0, 110.0], maturities=[0.5, 1.0], progress=lambda *n: calls.append(n)
    )
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for row, strike in enumerate((90.0, 110.0)):  # the longest maturity is the run of its own
        alone = price(MARKET, Put(strike), GRID, settings)
        assert found.prices[row, 1] == pytest.approx(alone.price, rel=1e-12)
        assert found.standard_errors[row, 1] == pytest.approx(alone.standard_error, rel=1e-9)
        short = price(MARKET, Put(strike), TimeGrid(maturity=0.5, dates=2, rate=0.06), settings)
        errors = 4 * np.hypot(short.standard_error, found.standard_errors[row, 0])
        assert abs(found.prices[row, 0] - short.price) < errors + 0.01 * short.price
    rows = found.as_rows()
    assert [(row["strike"], row["maturity"]) for row in rows] == [(90.0, 0.5), (90.0, 1.0), (110.0, 0.5), (110.0, 1.0)]
    assert rows[2]["price"] == found.prices[1, 0]


def test_a_grid_of_several_assets_with_a_variance():
    market = Heston(spot=100.0, v0=0.04, v_mean=0.04, v_speed=1.0, v_vol=0.3, rho=-0.5, n_assets=2)
    found = price_grid(market, GeometricBasketPut, GRID, strikes=[90, 100, 110], paths=500, seed=0)
    assert found.prices.shape == (3, 1)
    assert np.all(np.diff(found.prices[:, 0]) > 0)
    alone = price(market, GeometricBasketPut(110), GRID, paths=500, seed=0)
    assert found.prices[2, 0] == pytest.approx(alone.price, rel=1e-12)


def test_grids_that_cannot_be():
    with pytest.raises(ParameterError, match=r"maturity 0\.3 is not one of the dates of the grid; near it is 0\.25"):
        price_grid(MARKET, Put, GRID, strikes=[100], maturities=[0.3], paths=50, seed=0)
    with pytest.raises(ParameterError, match="strikes must be a list"):
        price_grid(MARKET, Put, GRID, strikes=100, paths=50, seed=0)
    for maturities, message in (([], "a list of dates"), (1.0, "a list of dates"), (["a"], "must be numbers")):
        with pytest.raises(ParameterError, match=f"maturities .*{message}"):
            price_grid(MARKET, Put, GRID, strikes=[100], maturities=maturities, paths=50, seed=0)
    with pytest.raises(ParameterError, match=r"payoff must turn a strike into a payoff.*got Put"):
        price_grid(MARKET, Put(100.0), GRID, strikes=[100], paths=50, seed=0)
    with pytest.raises(ParameterError, match="process must be a market"):
        price_grid("heston", Put, GRID, strikes=[100], paths=50, seed=0)


@pytest.mark.parametrize(("asian", "plain"), [(AsianPut, Put), (AsianCall, Call)])
def test_the_average_of_two_prices_is_half_an_option(asian, plain):
    """With one date, K - (S_0 + S_1) / 2 is half of 2 K - S_0 - S_1."""
    date = TimeGrid(maturity=1, dates=1, rate=0.05)
    market, strike = BlackScholes(spot=100.0, volatility=0.2), 100.0
    found = price(market, asian(strike), date, paths=4000, seed=0)
    exact = european(market, plain(2 * strike - 100.0), date) / 2
    assert abs(found.price - exact) < 4 * found.standard_error
    assert found.standard_error < 0.01 * exact
    assert asian(strike) == asian(strike) != asian(90.0)
    assert hash(asian(strike)) == hash(asian(strike))
    two = np.array([[[90.0, 110.0], [110.0, 130.0]]])
    expected = np.array([[100.0, 110.0]])
    np.testing.assert_allclose(asian(strike).along(two, date.times), np.maximum(asian.sign * (expected - strike), 0))


# --- many dates ------------------------------------------------------------------------------------------------------


def test_american_put_by_extrapolation():
    """QuantLib, finite differences with 2000 by 2000 points: 4.4865 (spot 36), 2.3194 (spot 40)."""
    for spot, reference in ((36.0, 4.4865), (40.0, 2.3194)):
        market = BlackScholes(spot=spot, volatility=0.2)
        limit = american_limit(market, Put(40.0), maturity=1.0, rate=0.06, dates=(5, 10, 20), paths=4000, seed=0)
        assert abs(limit.price - reference) < 3 * limit.standard_error + 0.002 * reference
        assert limit.bermudan[-1].price < reference
        assert limit.dates == (5, 10, 20)
        assert abs(limit.change) < 0.01 * reference


@pytest.mark.parametrize("dates", [(10,), (10, 10), (20, 10), 10])
def test_extrapolation_needs_increasing_numbers(dates):
    with pytest.raises(ParameterError, match="two or more increasing numbers"):
        american_limit(MARKET, Put(100.0), maturity=1.0, dates=dates, paths=50, seed=0)
