"""Greeks against closed forms, QuantLib's finite differences, and differences of prices."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from mixtune_options import AsianPut, BlackScholes, Call, CustomPayoff, Heston, MaxCall, Put, TimeGrid, price


def within(greek, reference, errors=4.0, slack=0.0):
    assert abs(greek.value[0] - reference) < errors * greek.standard_error[0] + slack


@pytest.fixture(scope="module")
def ql():
    ql = pytest.importorskip("QuantLib")
    ql.Settings.instance().evaluationDate = ql.Date(15, 6, 2026)
    return ql


def reference(ql, S, r, q, sigma, days, dates):
    """Greeks of a Bermudan put with strike 100 by finite differences."""

    def option(sigma, r=r):
        curve = lambda x: ql.YieldTermStructureHandle(ql.FlatForward(0, ql.NullCalendar(), x, ql.Actual365Fixed()))  # noqa: E731
        flat = ql.BlackConstantVol(0, ql.NullCalendar(), sigma, ql.Actual365Fixed())
        spot = ql.QuoteHandle(ql.SimpleQuote(S))
        market = ql.BlackScholesMertonProcess(spot, curve(q), curve(r), ql.BlackVolTermStructureHandle(flat))
        today = ql.Settings.instance().evaluationDate
        exercise = ql.BermudanExercise([today + ql.Period(days * k // dates, ql.Days) for k in range(1, dates + 1)])
        found = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, 100.0), exercise)
        found.setPricingEngine(ql.FdBlackScholesVanillaEngine(market, 400, 401))
        return found

    vega = (option(1.01 * sigma).NPV() - option(0.99 * sigma).NPV()) / (0.02 * sigma)
    rho = (option(sigma, r + 1e-3).NPV() - option(sigma, r - 1e-3).NPV()) / 2e-3
    found = option(sigma)
    return {"delta": found.delta(), "gamma": found.gamma(), "vega": vega, "theta": found.theta(), "rho": rho}


@pytest.mark.parametrize("case", [(102.0, 0.05, 0.0, 0.1, 10, 10), (90.0, 0.06, 0.0, 0.3, 365, 5)])
@pytest.mark.parametrize("control", [True, False])
def test_bermudan_put(ql, case, control):
    S, r, q, sigma, days, dates = case
    market = BlackScholes(spot=S, volatility=sigma, dividend=q)
    grid = TimeGrid(maturity=days / 365, dates=dates, rate=r)
    found = price(market, Put(100.0), grid, paths=8000, greeks=True, control=control, seed=0).greeks
    for name, expected in reference(ql, *case).items():
        within(found[name], expected, slack=0.0005 * abs(expected))
        assert found[name].standard_error[0] < (0.02 if control else 0.6) * abs(expected)


def test_standard_errors_contain_what_the_policy_is_off_by(ql):
    """Few paths to learn from and many to evaluate on: the error of the policy is the larger one."""
    market, grid = BlackScholes(spot=100.0, volatility=0.2), TimeGrid(maturity=1.0, dates=10, rate=0.06)
    few = {"paths": 8000, "training_paths": 500, "greeks": True}
    found = [price(market, Put(100.0), grid, **few, seed=seed).greeks for seed in range(4)]
    for name, expected in reference(ql, 100.0, 0.06, 0.0, 0.2, 365, 10).items():
        off = [(greeks[name].value[0] - expected) / greeks[name].standard_error[0] for greeks in found]
        assert np.abs(off).max() < 3.0
        assert np.sqrt(np.mean(np.square(off))) < 1.5


@pytest.mark.parametrize("method", ["lsm", "recurrent"])
def test_greeks_of_other_methods(ql, method):
    """Gamma needs what the policy does on paths that start elsewhere; a recurrent network sees their start."""
    case = (100.0, 0.06, 0.0, 0.2, 365, 5)
    market, grid = BlackScholes(spot=100.0, volatility=0.2), TimeGrid(maturity=1.0, dates=5, rate=0.06)
    found = price(market, Put(100.0), grid, paths=8000, greeks=True, method=method, seed=0).greeks
    for name, expected in reference(ql, *case).items():
        within(found[name], expected, slack=0.003 * abs(expected))


@pytest.mark.parametrize("payoff", [Call(105.0), CustomPayoff(lambda P: np.maximum(P[..., 0] - 105.0, 0.0))])
def test_one_date_is_the_closed_form(payoff):
    """In closed form for the named payoff, by simulation for one's own."""
    S, K, r, q, sigma = 100.0, 105.0, 0.05, 0.02, 0.25
    d1 = math.log(S / K) / sigma + (r - q) / sigma + sigma / 2
    d2, pdf = d1 - sigma, norm.pdf(d1) * math.exp(-q)
    market, grid = BlackScholes(spot=S, volatility=sigma, dividend=q), TimeGrid(maturity=1, dates=1, rate=r)
    found = price(market, payoff, grid, paths=20_000, greeks=True, seed=0).greeks
    theta = -S * pdf * sigma / 2 - r * K * math.exp(-r) * norm.cdf(d2) + q * S * math.exp(-q) * norm.cdf(d1)
    expected = {"delta": math.exp(-q) * norm.cdf(d1), "gamma": pdf / (S * sigma), "vega": S * pdf}
    expected |= {"theta": theta, "rho": K * math.exp(-r) * norm.cdf(d2)}
    assert set(found) == set(expected)
    for name, value in expected.items():
        within(found[name], value, slack=2e-4 * abs(value))


def test_gamma_of_a_random_variance_that_hardly_varies():
    market = Heston(spot=100.0, v0=0.04, v_mean=0.04, v_speed=1.0, v_vol=0.01, rho=0.0, scheme="log-euler", substeps=2)
    grid = TimeGrid(maturity=1, dates=4, rate=0.05)
    options = {"paths": 8000, "greeks": True, "seed": 0}
    random = price(market, Put(100.0), grid, **options).greeks
    fixed = price(BlackScholes(spot=100.0, volatility=0.2), Put(100.0), grid, **options).greeks
    for name in ("delta", "gamma", "vega", "theta", "rho"):
        within(random[name], fixed[name].value[0], slack=0.01 * abs(fixed[name].value[0]))


def test_assets_that_are_alike_share_their_greeks():
    grid = TimeGrid(maturity=1, dates=3, rate=0.05)
    same = BlackScholes(spot=100.0, volatility=0.2, dividend=0.1, n_assets=3)
    almost = BlackScholes(spot=[100.0, 100.0, 100.0 + 1e-9], volatility=0.2, dividend=0.1, n_assets=3)
    options = {"paths": 4000, "greeks": True, "seed": 0}
    shared, single = (price(market, MaxCall(100.0), grid, **options).greeks for market in (same, almost))
    for name in ("delta", "gamma"):
        assert shared[name].value.shape == (3,)
        assert len(set(shared[name].value)) == 1
        assert len(set(single[name].value)) == 3
        errors = np.hypot(shared[name].standard_error, single[name].standard_error)
        assert np.all(np.abs(shared[name].value - single[name].value) < 4 * errors)


def test_without_volatility_nothing_divides_by_zero():
    grid = TimeGrid(maturity=1, dates=2, rate=0.05)
    for payoff in (Put(100.0), AsianPut(100.0), CustomPayoff(lambda P: np.maximum(100.0 - P[..., 0], 0.0))):
        found = price(BlackScholes(spot=98.0, volatility=0.0), payoff, grid, paths=200, greeks=True, seed=0)
        assert found.price == 2.0  # exercised today: waiting costs interest
        assert found.greeks["delta"].value == pytest.approx([-1.0])
        assert all(np.all(np.isfinite(greek.value)) for greek in found.greeks.values())
    call = price(BlackScholes(spot=110.0, volatility=0.0), Call(100.0), grid, paths=200, greeks=True, seed=0)
    assert call.price == pytest.approx(110 - 100 * math.exp(-0.05))
    assert call.greeks["delta"].value == pytest.approx([1.0])
    assert call.greeks["rho"].value == pytest.approx([100 * math.exp(-0.05)], rel=1e-6)
    assert call.greeks["vega"].value == pytest.approx([0.0], abs=1e-6)
    safe = price(BlackScholes(spot=100.0, volatility=0.0), Put(100.0), grid, paths=200, greeks=True, seed=0)
    assert safe.greeks["vega"].value == pytest.approx([0.0], abs=1e-6)  # out of the money at all dates
    at_forward = BlackScholes(spot=100.0 * math.exp(-0.05), volatility=0.0)
    vega = price(at_forward, Call(100.0), grid, paths=200, greeks=True, seed=0).greeks["vega"]
    assert vega.value == pytest.approx([100.0 * math.exp(-0.05) / math.sqrt(2 * math.pi)], rel=1e-3)
    random = Heston(spot=100.0, v0=0.0, v_mean=0.04, v_speed=1.0, v_vol=0.2, rho=0.0)
    vega = price(random, Put(100.0), grid, paths=500, greeks=True, seed=0).greeks["vega"]
    assert np.isfinite(vega.value[0])


def test_paths_of_another_price_or_rate_are_multiples():
    """A dividend of nothing after maturity makes the Greeks simulate every market instead."""
    grid, few = TimeGrid(maturity=1, dates=3, rate=0.05), {"paths": 500, "greeks": True, "control": False, "seed": 0}
    markets = [
        BlackScholes(spot=[95.0, 100.0], volatility=0.2, dividend=0.05, n_assets=2, cash_dividends=cash)
        for cash in ((), [(2.0, 0.0)])
    ]
    multiplied, simulated = (price(market, MaxCall(98.0), grid, **few).greeks for market in markets)
    for name in ("delta", "gamma", "rho"):
        np.testing.assert_allclose(multiplied[name].value, simulated[name].value, rtol=1e-6)


def test_heston_greeks_have_the_exact_european_ones_as_control(ql):
    law = {"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}
    grid = TimeGrid.from_times([0, 73 / 365, 146 / 365, 219 / 365, 1.0], rate=0.05)
    found = price(Heston(spot=100.0, **law), Put(100.0), grid, paths=8000, greeks=True, seed=0).greeks

    def exact(spot):
        today, count = ql.Settings.instance().evaluationDate, ql.Actual365Fixed()
        rate, dividend = (ql.YieldTermStructureHandle(ql.FlatForward(today, x, count)) for x in (0.05, 0.0))
        quote = ql.QuoteHandle(ql.SimpleQuote(spot))
        model = ql.HestonModel(ql.HestonProcess(rate, dividend, quote, 0.04, 2.0, 0.04, 0.3, -0.7))
        option = ql.VanillaOption(
            ql.PlainVanillaPayoff(ql.Option.Put, 100.0),
            ql.BermudanExercise([today + day for day in (73, 146, 219, 365)]),
        )
        option.setPricingEngine(ql.FdHestonVanillaEngine(model, 100, 200, 50))
        return option.NPV()

    low, middle, high = (exact(spot) for spot in (99.0, 100.0, 101.0))
    within(found["delta"], (high - low) / 2, errors=3.0)
    within(found["gamma"], high - 2 * middle + low, errors=3.0)
    assert found["delta"].standard_error[0] < 0.003
