"""Payoffs: amounts by hand, any number of leading axes, names, and functions of one's own."""

import dataclasses

import numpy as np
import pytest

from mixtune.errors import DataError, ParameterError
from mixtune_options import (
    BasketCall,
    BasketPut,
    Call,
    CustomPayoff,
    GeometricBasketPut,
    MaxCall,
    MinPut,
    Put,
    payoff_from_name,
)

BY_HAND = {
    "max-call": lambda S, K: np.maximum(S.max(-1) - K, 0),
    "min-put": lambda S, K: np.maximum(K - S.min(-1), 0),
    "basket-call": lambda S, K: np.maximum(S.mean(-1) - K, 0),
    "basket-put": lambda S, K: np.maximum(K - S.mean(-1), 0),
    "geometric-basket-put": lambda S, K: np.maximum(K - np.prod(S, -1) ** (1 / S.shape[-1]), 0),
}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("shape", [(3,), (50, 2), (20, 7, 5), (10, 3, 30)])
def test_several_assets(name, shape):
    prices = np.random.default_rng(0).uniform(80, 120, shape)
    before = prices.copy()
    amounts = payoff_from_name(name, 100)(prices)
    np.testing.assert_allclose(amounts, BY_HAND[name](prices, 100), atol=1e-10)
    assert amounts.shape == shape[:-1]
    np.testing.assert_array_equal(prices, before)


def test_one_asset():
    prices = np.array([[[90.0], [100.0], [130.0]]])
    np.testing.assert_array_equal(Call(100)(prices), [[0, 0, 30]])
    np.testing.assert_array_equal(Put(100)(prices), [[10, 0, 0]])
    for payoff in (MaxCall(100), BasketCall(100)):
        np.testing.assert_array_equal(payoff(prices), Call(100)(prices))
    for payoff in (MinPut(100), BasketPut(100)):
        np.testing.assert_array_equal(payoff(prices), Put(100)(prices))
    np.testing.assert_allclose(GeometricBasketPut(100)(prices), Put(100)(prices), atol=1e-12)
    assert Call(0)([5]) == 5  # integers, a single vector, and no strike


def test_zero_and_negative_prices():
    assert GeometricBasketPut(100)([0.0, 50.0]) == 100
    with pytest.raises(DataError, match="1 prices are negative and have no geometric mean"):
        GeometricBasketPut(100)([-1.0, 50.0])
    assert BasketPut(100)([-10.0, 10.0]) == 100


def test_names_and_identity():
    for kind in (Call, Put, MaxCall, MinPut, BasketCall, BasketPut, GeometricBasketPut):
        payoff, name = payoff_from_name(kind.name, 100), kind.name
        assert payoff == kind(100)
        assert payoff.name == name
        assert hash(payoff) == hash(kind(100.0))
    assert Put(100) != Call(100)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Put(100).strike = 90


@pytest.mark.parametrize("name", ["maxcall", "", None, 3])
def test_unknown_names(name):
    with pytest.raises(ParameterError, match="payoff must be one of 'call', 'put', 'max-call'"):
        payoff_from_name(name, 100)


@pytest.mark.parametrize("strike", [-1, np.nan, np.inf, "100", None])
def test_bad_strikes(strike):
    with pytest.raises(ParameterError, match="strike must be a finite number >= 0"):
        Put(strike)


def test_prices_of_the_wrong_shape():
    with pytest.raises(DataError, match="a call looks at one asset; the prices have 2"):
        Call(100)(np.ones((3, 2)))
    with pytest.raises(DataError, match="assets on the last axis"):
        MaxCall(100)(100.0)


def test_functions_of_ones_own():
    digital = CustomPayoff(lambda prices: prices[..., 0] > 100, "digital")
    assert digital.name == "digital"
    np.testing.assert_array_equal(digital([[99.0], [101.0]]), [0.0, 1.0])
    # A function that hands back its argument must not hand out the caller's array.
    prices = np.ones((2, 1))
    CustomPayoff(lambda given: given[..., 0])(prices)[:] = 7
    assert prices[0, 0] == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda prices: prices, r'payoff "mine" must turn prices of shape \(4, 3, 2\) into amounts of shape \(4, 3\)'),
        (lambda prices: prices.sum(), r"it returned shape \(\)"),
        (lambda prices: prices[..., 0] * np.nan, "returned 12 NaN or infinite amounts out of 12"),
        (lambda prices: ["a"], 'payoff "mine" failed on prices of shape'),
    ],
)
def test_bad_functions(function, message):
    with pytest.raises(DataError, match=message):
        CustomPayoff(function, "mine")(np.ones((4, 3, 2)))


def test_bad_custom_settings():
    with pytest.raises(ParameterError, match="needs a function of prices"):
        CustomPayoff("max", "mine")
    with pytest.raises(ParameterError, match="must be text that is not empty"):
        CustomPayoff(abs, "")
