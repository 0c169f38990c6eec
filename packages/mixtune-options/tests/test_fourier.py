"""European prices without simulation, against closed forms, QuantLib and textbook integrals."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma

from mixtune.errors import ParameterError
from mixtune_options import (
    BlackScholes,
    Call,
    FractionalBrownianMotion,
    Heston,
    MaxCall,
    Put,
    RoughHeston,
    TermStructure,
    TimeGrid,
    european,
)

#: Mild, strongly skewed, Andersen's (2008) hard case, fast, and short with hardly any variance; maturity and strike.
MARKETS = {
    "mild": ({"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}, 5.0, 100.0),
    "skewed": ({"v0": 0.09, "v_mean": 0.04, "v_speed": 1.5, "v_vol": 0.6, "rho": -0.8}, 1.0, 110.0),
    "andersen": ({"v0": 0.04, "v_mean": 0.04, "v_speed": 0.5, "v_vol": 1.0, "rho": -0.9}, 10.0, 100.0),
    "fast": ({"v0": 0.16, "v_mean": 0.04, "v_speed": 8.0, "v_vol": 0.9, "rho": 0.4}, 1.0, 90.0),
    "short": ({"v0": 0.01, "v_mean": 0.04, "v_speed": 3.0, "v_vol": 1.5, "rho": -0.7}, 10 / 365, 99.0),
}
ALL = pytest.mark.parametrize("market", MARKETS)


def grid(maturity, rate=0.03):
    return TimeGrid(maturity=maturity, dates=1, rate=rate)


def heston(market, kind=Heston, **more):
    return kind(spot=100.0, dividend=0.01, **MARKETS[market][0], **more)


def heston_call(*, v0, v_mean, v_speed, v_vol, rho, strike, maturity, rate=0.03, dividend=0.01, spot=100.0):
    """The textbook characteristic function, integrated adaptively."""

    def log_phi(z):
        xi = v_speed - 1j * rho * v_vol * z
        root = np.sqrt(xi**2 + v_vol**2 * (z**2 + 1j * z))
        g, decay = (xi - root) / (xi + root), np.exp(-root * maturity)
        C = v_speed * v_mean / v_vol**2 * ((xi - root) * maturity - 2 * np.log((1 - g * decay) / (1 - g)))
        return C + v0 / v_vol**2 * (xi - root) * (1 - decay) / (1 - g * decay)

    k = math.log(spot / strike) + (rate - dividend) * maturity
    integral = quad(lambda u: np.exp(1j * u * k + log_phi(u - 0.5j)).real / (u * u + 0.25), 0, np.inf, limit=500)[0]
    growth = math.exp(-(rate + dividend) * maturity / 2)
    return spot * math.exp(-dividend * maturity) - math.sqrt(spot * strike) * growth / math.pi * integral


@ALL
def test_heston_agrees_with_the_textbook_integral_and_parity_holds(market):
    law, maturity, strike = MARKETS[market]
    call = european(heston(market), Call(strike), grid(maturity))
    assert abs(call - heston_call(**law, strike=strike, maturity=maturity)) < 2e-6
    forward = 100 * math.exp(-0.01 * maturity) - strike * math.exp(-0.03 * maturity)
    assert abs(call - european(heston(market), Put(strike), grid(maturity)) - forward) < 1e-10


@ALL
def test_heston_agrees_with_quantlib(market):
    ql = pytest.importorskip("QuantLib")
    law, maturity, strike = MARKETS[market]
    today, days = ql.Date(1, 1, 2024), ql.Actual365Fixed()
    ql.Settings.instance().evaluationDate = today
    curves = [ql.YieldTermStructureHandle(ql.FlatForward(today, level, days)) for level in (0.03, 0.01)]
    spot = ql.QuoteHandle(ql.SimpleQuote(100.0))
    order = (law[name] for name in ("v0", "v_speed", "v_mean", "v_vol", "rho"))
    option = ql.VanillaOption(
        ql.PlainVanillaPayoff(ql.Option.Call, strike), ql.EuropeanExercise(today + round(365 * maturity))
    )
    option.setPricingEngine(ql.AnalyticHestonEngine(ql.HestonModel(ql.HestonProcess(*curves, spot, *order))))
    assert abs(european(heston(market), Call(strike), grid(maturity)) - option.NPV()) < 1e-4


def test_published_prices_of_heston():
    # Broadie and Kaya (2006), the two calls of their tables; Andersen (2008), case I.
    for law, maturity, rate, exact in (
        ({"v0": 0.010201, "v_mean": 0.019, "v_speed": 6.21, "v_vol": 0.61, "rho": -0.7}, 1.0, 0.0319, 6.8061),
        ({"v0": 0.09, "v_mean": 0.09, "v_speed": 2.0, "v_vol": 1.0, "rho": -0.3}, 5.0, 0.05, 34.9998),
        ({"v0": 0.04, "v_mean": 0.04, "v_speed": 0.5, "v_vol": 1.0, "rho": -0.9}, 10.0, 0.0, 13.0847),
    ):
        assert abs(european(Heston(spot=100, **law), Call(100), grid(maturity, rate)) - exact) < 6e-5


@ALL
def test_roughness_a_half_is_the_classical_model(market):
    _, maturity, strike = MARKETS[market]
    rough, classical = heston(market, RoughHeston, hurst=0.5), heston(market)
    prices = [european(process, Put(strike), grid(maturity)) for process in (rough, classical)]
    assert abs(prices[0] - prices[1]) < 2e-5


@pytest.mark.parametrize("hurst", [0.05, 0.3])
def test_the_rough_equation_agrees_with_the_adams_method(hurst):
    """The predictor-corrector of Diethelm on equal steps, as El Euch and Rosenbaum use it; Lewis's integral of it."""
    v0, v_mean, v_speed, v_vol, rho = 0.04, 0.05, 0.3, 0.3, -0.7
    # Nodes where the integrand is smooth: u from 0 to 60 by Gauss and Legendre, beyond which it is negligible.
    nodes, weights = np.polynomial.legendre.leggauss(80)
    u, weights = 30.0 * (nodes + 1.0), 30.0 * weights
    z, steps, alpha = u - 0.5j, 1000, hurst + 0.5
    dt = 1.0 / steps

    def F(h):
        return -0.5 * (z * z + 1j * z) + (1j * z * rho * v_vol - v_speed) * h + 0.5 * v_vol**2 * h * h

    h = np.zeros((steps + 1, len(z)), dtype=complex)
    Fh = np.zeros_like(h)
    Fh[0] = F(h[0])
    for k in range(steps):
        j = np.arange(k + 1)
        b = (k + 1 - j) ** alpha - (k - j) ** alpha
        predicted = b @ Fh[: k + 1] * dt**alpha / gamma(alpha + 1)
        a = (k - j + 2.0) ** (alpha + 1) + (k - j) ** (alpha + 1) - 2 * (k - j + 1.0) ** (alpha + 1)
        a[0] = k ** (alpha + 1) - (k - alpha) * (k + 1) ** alpha
        h[k + 1] = (a @ Fh[: k + 1] + F(predicted)) * dt**alpha / gamma(alpha + 2)
        Fh[k + 1] = F(h[k + 1])
    plain = v_speed * v_mean * np.trapezoid(h, dx=dt, axis=0) + v0 * np.trapezoid(Fh, dx=dt, axis=0)
    process = RoughHeston(spot=100, v0=v0, v_mean=v_mean, v_speed=v_speed, v_vol=v_vol, rho=rho, hurst=hurst)
    for strike in (80.0, 100.0, 125.0):
        values = np.exp(1j * u * math.log(100 / strike) + plain).real / (u * u + 0.25)
        call = 100 - math.sqrt(100 * strike) / math.pi * (weights @ values)
        assert european(process, Call(strike), grid(1.0, 0.0)) == pytest.approx(call, rel=3e-4)


@pytest.mark.parametrize("process", [heston("skewed"), heston("skewed", RoughHeston, hurst=0.1)])
def test_the_mean_of_prices_is_the_forward(process):
    """A call that is hardly ever worthless is worth the asset less the strike."""
    exact = 100 * math.exp(-0.02) - 0.01 * math.exp(-0.06)
    assert european(process, Call(0.01), grid(2.0)) == pytest.approx(exact, rel=1e-5)


def test_black_scholes_with_term_structures():
    volatility = TermStructure([0.5, 1.0], [0.1, 0.3])
    process = BlackScholes(spot=100, volatility=volatility, dividend=TermStructure([1.0], [0.04]))
    flat = BlackScholes(spot=100, volatility=math.sqrt(0.5 * 0.01 + 1.5 * 0.09) / math.sqrt(2), dividend=0.04)
    exact = european(flat, Call(95), grid(2.0))
    assert abs(european(process, Call(95), grid(2.0)) - exact) < 1e-12
    assert abs(exact - 14.957013) < 1e-6  # Black's formula at 26.4575%


@pytest.mark.parametrize("kind", [Call, Put])
def test_limits(kind):
    still = Heston(spot=100, v0=0, v_mean=0, v_speed=1, v_vol=0.1, rho=0)
    assert european(still, kind(90), grid(1.0, 0.05)) == pytest.approx(max(kind.sign * (100 - 90 * math.exp(-0.05)), 0))
    assert european(heston("mild"), kind(0), grid(1.0)) == pytest.approx(99.00498 if kind is Call else 0, abs=1e-5)
    for v_vol in (1e-9, 1e-6):
        quiet = Heston(spot=100, v0=0.04, v_mean=0.04, v_speed=1, v_vol=v_vol, rho=-0.7)
        exact = european(BlackScholes(spot=100, volatility=0.2), kind(100), grid(1.0))
        assert abs(european(quiet, kind(100), grid(1.0)) - exact) < 1e-6


def test_what_has_no_exact_price():
    with pytest.raises(ParameterError, match="calls and puts on one asset"):
        european(heston("mild"), MaxCall(100), grid(1.0))
    with pytest.raises(ParameterError, match="calls and puts on one asset"):
        european(heston("mild", n_assets=2), Put(100), grid(1.0))
    with pytest.raises(ParameterError, match="FractionalBrownianMotion has no European prices"):
        european(FractionalBrownianMotion(hurst=0.3, spot=1.0), Put(1), grid(1.0))
    with pytest.raises(ParameterError, match="cash dividends"):
        european(heston("mild", cash_dividends=[(0.5, 1.0)]), Put(100), grid(1.0))
