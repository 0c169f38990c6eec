"""Settings that change with time, cash dividends, and several assets with parameters of their own."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from mixtune.errors import ParameterError
from mixtune_options import BlackScholes, Call, Heston, Put, RoughHeston, TermStructure, TimeGrid, european, price

LAW = {"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}
GRID = TimeGrid(maturity=1.0, dates=4, rate=0.05)


def rng(seed=0):
    return np.random.default_rng(seed)


def black_scholes_put(spot, strike, maturity, rate, volatility):
    d1 = (math.log(spot / strike) + (rate + volatility**2 / 2) * maturity) / (volatility * math.sqrt(maturity))
    d2 = d1 - volatility * math.sqrt(maturity)
    return strike * math.exp(-rate * maturity) * norm.cdf(-d2) - spot * norm.cdf(-d1)


# --- term structures --------------------------------------------------------------------------------------------------


def test_a_term_structure_is_integrated_over_any_interval():
    curve = TermStructure([0.5, 1.0, 3.0], [0.1, 0.2, 0.4])
    assert curve.integral(0.0, 0.5) == pytest.approx(0.05)
    assert curve.integral(0.25, 2.0) == pytest.approx(0.025 + 0.1 + 0.4)
    assert curve.integral(5.0, 7.0) == pytest.approx(0.8)  # the last value holds ever after
    assert (2 * curve).integral(0.0, 0.5) == pytest.approx(0.1)
    rows = TermStructure([1.0, 2.0], [[0.1, 0.3], [0.2, 0.4]])
    np.testing.assert_allclose(rows.integral(0.5, 1.5), [0.15, 0.35])


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        ([1.0, 0.5], [0.1, 0.2], "a list that increases"),
        ([0.0, 0.5], [0.1, 0.2], "times must be finite > 0"),
        ([1.0], [0.1, 0.2], "one value per time, 1; got shape"),
        ([], [], "a list that increases"),
    ],
)
def test_bad_term_structures(times, values, message):
    with pytest.raises(ParameterError, match=message):
        TermStructure(times, values)


def test_bad_values_are_named():
    with pytest.raises(ParameterError, match="volatility must be finite >= 0"):
        BlackScholes(spot=100, volatility=TermStructure([1.0], [-0.1]))
    with pytest.raises(ParameterError, match="volatility must be one number or 3, one per asset"):
        BlackScholes(spot=100, volatility=TermStructure([1.0], [[0.1, 0.2]]), n_assets=3)


def test_volatilities_that_change_have_the_right_covariance():
    volatility = TermStructure([0.5, 1.0], [[0.1, 0.4], [0.3, 0.2]])
    process = BlackScholes(spot=100, volatility=volatility, n_assets=2, correlation=0.8)
    for grid in (TimeGrid(maturity=1.0, dates=1), TimeGrid.from_times([0, 0.2, 0.7, 1.0])):
        logs = np.log(process.sample(100_000, grid, rng())[:, -1])
        exact = np.array([[0.05, 0.8 * 0.05], [0.8 * 0.05, 0.1]])
        np.testing.assert_allclose(np.cov(logs.T), exact, rtol=0.02)


@pytest.mark.parametrize("kind", [BlackScholes, Heston, RoughHeston])
def test_a_flat_curve_is_a_number(kind):
    law = {BlackScholes: {"volatility": 0.2}, Heston: LAW, RoughHeston: {**LAW, "hurst": 0.1}}[kind]
    flat = TermStructure([0.3, 0.9], [0.04, 0.04])
    paths = [kind(spot=100, dividend=dividend, **law).sample(50, GRID, rng()) for dividend in (0.04, flat)]
    np.testing.assert_allclose(*paths, rtol=1e-12)
    if kind is BlackScholes:
        curve = TermStructure([0.3, 0.9], [0.2, 0.2])
        np.testing.assert_allclose(paths[0], kind(spot=100, dividend=0.04, volatility=curve).sample(50, GRID, rng()))


def test_dividend_yields_that_change_move_the_forward():
    curve = TermStructure([0.25, 1.0], [0.10, 0.02])
    for process in (
        BlackScholes(spot=100, volatility=0.2, dividend=curve),
        Heston(spot=100, dividend=curve, **LAW),
        RoughHeston(spot=100, dividend=curve, hurst=0.1, **LAW),
    ):
        prices = process.sample(2**14, GRID, rng(), sobol=True)
        exact = 100 * np.exp(0.05 * GRID.times - np.array([0, 0.025, 0.03, 0.035, 0.04]))
        np.testing.assert_allclose(prices.mean(axis=0)[:, 0], exact, rtol=2e-3)


# --- cash dividends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BlackScholes, Heston, RoughHeston])
def test_the_price_falls_by_the_dividend(kind):
    law = {BlackScholes: {"volatility": 0.2}, Heston: LAW, RoughHeston: {**LAW, "hurst": 0.1}}[kind]
    paid = kind(spot=100, **law, cash_dividends=[(0.6, 3.0), (0.1, 2.0), (1.0, 4.0)])
    prices = paid.sample(2**15, GRID, rng())[:, :, 0].mean(axis=0)
    growth = np.exp(0.05 * GRID.times)
    exact = 100 * growth
    for time, cash in ((0.1, 2.0), (0.6, 3.0), (1.0, 4.0)):
        exact = exact - np.where(GRID.times >= time, cash * np.exp(0.05 * (GRID.times - time)), 0.0)
    np.testing.assert_allclose(prices, exact, rtol=4e-3)
    assert paid.for_grid(GRID).pieces == 2
    # Dividends of nothing, and after maturity, change nothing.
    plain = kind(spot=100, **law).sample(20, TimeGrid(maturity=1, dates=1), rng())
    later = kind(spot=100, **law, cash_dividends=[(1.5, 3.0)]).sample(20, TimeGrid(maturity=1, dates=1), rng())
    np.testing.assert_array_equal(plain, later)


def test_a_dividend_at_maturity_shifts_the_strike():
    process = BlackScholes(spot=100, volatility=0.2, cash_dividends=[(1.0, 5.0)])
    flows = GRID.discount[-1] * Put(100)(process.sample(2**15, GRID, rng(), sobol=True)[:, -1])
    exact = black_scholes_put(100, 105, 1.0, 0.05, 0.2)
    assert abs(flows.mean() / exact - 1) < 2e-3


def test_prices_do_not_fall_below_zero():
    process = BlackScholes(spot=[1.0, 100.0], volatility=0.2, n_assets=2, cash_dividends=[(0.5, [5.0, 1.0])])
    prices = process.sample(100, GRID, rng())
    assert np.all(prices[:, 2:, 0] == 0)
    assert np.all(prices[:, :, 1] > 0)


def test_paths_with_dividends_can_be_continued():
    process = Heston(spot=100, **LAW, cash_dividends=[(0.1, 2.0), (0.2, 1.0), (0.8, 3.0)]).for_grid(GRID)
    assert process.pieces == 3
    whole = process.sample(6, GRID, rng())
    Z = rng().standard_normal((6, 4, process.normals_per_interval))
    state = process.start(6)
    for date in range(4):
        state = process.advance(state, **GRID.interval(date), normals=Z[:, date])
        np.testing.assert_allclose(state.prices, whole[:, date + 1], rtol=1e-12)


def quantlib_american(*, put, model):
    """An American option on a stock with cash dividends that lower its price, by finite differences."""
    ql = pytest.importorskip("QuantLib")
    today, days = ql.Date(1, 1, 2024), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    rate, none = (ql.YieldTermStructureHandle(ql.FlatForward(today, level, days)) for level in (0.05, 0.0))
    volatility = ql.BlackVolTermStructureHandle(ql.BlackConstantVol(today, ql.NullCalendar(), 0.2, days))
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    process = ql.BlackScholesMertonProcess(spot, none, rate, volatility)
    schedule = ql.DividendSchedule([ql.FixedDividend(3.0, today + when) for when in (91, 273)])
    kind = ql.Option.Put if put else ql.Option.Call
    option = ql.VanillaOption(ql.PlainVanillaPayoff(kind, 100.0), ql.BermudanExercise([today + d for d in model]))
    spot_model = ql.FdBlackScholesVanillaEngine.Spot
    option.setPricingEngine(
        ql.FdBlackScholesVanillaEngine(
            process, schedule, 800, 800, 0, ql.FdmSchemeDesc.Douglas(), False, -math.inf, spot_model
        )
    )
    return option.NPV()


def test_quantlib_bermudan_put_with_dividends():
    dates = [73, 146, 219, 292, 365]
    exact = quantlib_american(put=True, model=dates)
    grid = TimeGrid.from_times([0, *(day / 365 for day in dates)], rate=0.05)
    market = BlackScholes(spot=100, volatility=0.2, cash_dividends=[(91 / 365, 3.0), (273 / 365, 3.0)])
    result = price(market, Put(100), grid, paths=50_000, seed=0, method="lsm")
    assert abs(result.price - exact) < 3.5 * result.standard_error + 0.003 * exact


# --- several assets with stochastic variances -------------------------------------------------------------------------


def test_every_asset_has_the_prices_of_its_own_parameters():
    laws = [LAW, {"v0": 0.09, "v_mean": 0.02, "v_speed": 1.0, "v_vol": 0.8, "rho": 0.2}]
    both = {name: [law[name] for law in laws] for name in LAW}
    process = Heston(spot=[100.0, 50.0], dividend=[0.0, 0.03], **both, n_assets=2, correlation=-0.5)
    prices = process.sample(2**16, GRID, rng())[:, -1]
    for asset, (law, spot, dividend) in enumerate(zip(laws, (100.0, 50.0), (0.0, 0.03))):
        alone = Heston(spot=spot, dividend=dividend, **law)
        flows = GRID.discount[-1] * np.maximum(prices[:, asset] - spot, 0)
        error = flows.std() / 256
        assert abs(flows.mean() - european(alone, Call(spot), GRID)) < 4 * error
        one = process.only(asset)
        assert european(one, Call(spot), GRID) == pytest.approx(european(alone, Call(spot), GRID))


@pytest.mark.parametrize("scheme", ["qe", "log-euler"])
def test_prices_have_the_correlation_and_variances_follow(scheme):
    """Over a short time, where correlations of moves are those of the Brownian motions."""
    matrix = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
    rho = np.array([-0.7, 0.4, -0.9])
    process = Heston(
        spot=100, **{**LAW, "v_vol": 0.1, "rho": rho}, n_assets=3, correlation=matrix, scheme=scheme, substeps=4
    )
    prices, variances = process.sample_with_hidden(40_000, TimeGrid(maturity=0.02, dates=1), rng())
    moves = np.column_stack([np.log(prices[:, 1]), variances[:, 1]])
    # dB_i = rho_i dW_i + own noise.
    exact = np.block([[matrix, matrix * rho], [(matrix * rho).T, matrix * np.outer(rho, rho)]])
    exact[3:, 3:][np.diag_indices(3)] = 1.0
    np.testing.assert_allclose(np.corrcoef(moves.T), exact, atol=0.02)


def test_equal_parameters_per_asset_are_one_number():
    paths = [
        Heston(spot=100, **law, n_assets=2, correlation=0.3, substeps=2).sample(40, GRID, rng())
        for law in (LAW, {name: [value, value] for name, value in LAW.items()})
    ]
    np.testing.assert_allclose(*paths, rtol=1e-12)
