"""Pricing in PyTorch: the same paths and decisions as in NumPy, so the same prices up to rounding."""

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune_options import (
    BasketCall,
    BasketPut,
    BlackScholes,
    Call,
    CustomPayoff,
    GeometricBasketPut,
    Heston,
    MaxCall,
    MinPut,
    Put,
    RoughHeston,
    TimeGrid,
    price,
    simulate,
)

torch = pytest.importorskip("torch")

GRID = TimeGrid(maturity=1, dates=4, rate=0.06)
HESTON = {"spot": 100, "v0": 0.04, "v_mean": 0.04, "v_speed": 2, "v_vol": 0.3, "rho": -0.5, "n_assets": 2}
MARKETS = {
    "black-scholes": BlackScholes(spot=100, volatility=0.2, n_assets=2, correlation=0.3),
    "independent": BlackScholes(spot=100, volatility=0.2, n_assets=2),
    "paper": Heston(**HESTON, scheme="paper"),
    "log-euler": Heston(**HESTON, scheme="log-euler", substeps=3),
    "qe": Heston(**HESTON),
    "rough": RoughHeston(**HESTON, hurst=0.1, scheme="markovian", substeps=2),
}


@pytest.mark.parametrize("market", MARKETS.values(), ids=MARKETS)
def test_paths_are_those_of_numpy(market):
    here, there = (
        simulate(market, MaxCall(100), GRID, paths=50, rng=np.random.default_rng(0), antithetic=True, device=device)
        for device in (None, "cpu")
    )
    assert torch.is_tensor(there.prices)
    assert there.prices.dtype == torch.float64
    for name in ("prices", "payoffs", "hidden"):
        np.testing.assert_allclose(getattr(there.fetched(), name), getattr(here, name), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(
    "payoff", [MaxCall(95), MinPut(105), BasketCall(95), BasketPut(105), GeometricBasketPut(105)], ids=lambda p: p.name
)
@pytest.mark.parametrize("assets", [2, 20])
def test_payoffs_follow_the_array_library(payoff, assets):
    prices = np.random.default_rng(0).uniform(80, 120, (6, 3, assets))
    found = payoff(torch.from_numpy(prices))
    assert torch.is_tensor(found)
    np.testing.assert_allclose(found.numpy(), payoff(prices), rtol=1e-12, atol=1e-11)


def test_payoffs_on_one_asset_and_ones_own():
    prices = np.random.default_rng(0).uniform(80, 120, (6, 3, 1))
    own = CustomPayoff(lambda p: np.maximum(p[..., 0] - 100, 0.0))
    for payoff in (Call(100), Put(100), own):
        np.testing.assert_array_equal(payoff(torch.from_numpy(prices)).numpy(), payoff(prices))


@pytest.mark.parametrize(
    ("market", "options"),
    [
        ("black-scholes", {"method": "rlsm", "sobol": True}),
        ("black-scholes", {"method": "lsm", "antithetic": True, "upper": True, "greeks": True}),
        ("log-euler", {"method": "recurrent"}),
        ("paper", {"preset": "paper"}),
        ("qe", {"method": "rlsm"}),
    ],
)
def test_prices_are_those_of_numpy(market, options):
    fast = {"paths": 400, "width": 30, "seed": 1, "upper_paths": 20, "inner_paths": 10} | options
    here, there = (price(MARKETS[market], MinPut(100), GRID, device=device, **fast) for device in (None, "cpu"))
    assert there.price == pytest.approx(here.price, rel=1e-10)
    assert there.standard_error == pytest.approx(here.standard_error, rel=1e-10)
    np.testing.assert_allclose(there.exercise_probability, here.exercise_probability)
    assert isinstance(there.policy.coefs, np.ndarray)
    if here.upper is not None:
        assert there.upper.price == pytest.approx(here.upper.price, rel=1e-10)
        np.testing.assert_allclose(there.greeks["delta"].value, here.greeks["delta"].value, rtol=1e-8)


def test_many_training_paths_keep_their_tuned_ridge():
    """Beyond 2,000 paths the ridge is chosen on some and the fit made on all, on the device."""
    fast = {"paths": 2500, "width": 20, "in_the_money": False, "seed": 0}
    here, there = (price(MARKETS["independent"], MinPut(100), GRID, device=d, **fast).price for d in (None, "cpu"))
    assert there == pytest.approx(here, rel=1e-8)


def test_devices_that_are_not_there_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ParameterError, match=r"'cuda' is not there: PyTorch .* finds no CUDA devices"):
        price(MARKETS["paper"], MinPut(100), GRID, device="cuda", seed=0)
