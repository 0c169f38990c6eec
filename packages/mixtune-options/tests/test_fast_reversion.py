"""Heston with fast mean reversion and many dates: the exercise rule loses no more than 0.1% of the price."""

import pytest

from mixtune_options import Heston, Put, TimeGrid, price

ql = pytest.importorskip("QuantLib")
DATES = 73


def by_finite_differences(speed, v_vol, rho):
    """Bermudan put, strike and spot 100, 5%, one year, by QuantLib's Heston engine."""
    today, count = ql.Date(1, 1, 2020), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    flat = [ql.YieldTermStructureHandle(ql.FlatForward(today, rate, count)) for rate in (0.05, 0.0)]
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    model = ql.HestonModel(ql.HestonProcess(*flat, spot, 0.04, speed, 0.04, v_vol, rho))
    dates = ql.BermudanExercise([today + 365 // DATES * (k + 1) for k in range(DATES)])
    option = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, 100.0), dates)
    option.setPricingEngine(ql.FdHestonVanillaEngine(model, DATES * 4, 300, 100, 0))
    return option.NPV()


@pytest.mark.parametrize(("speed", "v_vol", "rho"), [(10.0, 0.5, -0.7), (20.0, 0.5, 0.3)])
def test_price_by_defaults(speed, v_vol, rho):
    market = Heston(spot=100.0, v0=0.04, v_mean=0.04, v_speed=speed, v_vol=v_vol, rho=rho)
    found = price(market, Put(100.0), TimeGrid(maturity=1.0, dates=DATES, rate=0.05), paths=20_000, seed=3)
    truth = by_finite_differences(speed, v_vol, rho)
    assert found.price / truth - 1 == pytest.approx(0.0, abs=0.001 + 2 * found.standard_error / truth)
