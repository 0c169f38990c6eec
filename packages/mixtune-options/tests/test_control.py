"""Martingales taken off cash flows, sorted assets, the decision today: means stay, variances fall, bounds hold."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

from mixtune.errors import ParameterError
from mixtune_options import (
    BlackScholes,
    Call,
    CustomPayoff,
    FractionalBrownianMotion,
    GeometricBasketPut,
    Heston,
    MaxCall,
    Put,
    RoughHeston,
    TimeGrid,
    european,
    price,
    simulate,
)
from mixtune_options.training import Local, RandomState, TunedLocal, default_width, rank_assets, train

GRID = TimeGrid(maturity=1, dates=4, rate=0.06)
VARIANCE = {"spot": 100.0, "v0": 0.04, "v_mean": 0.09, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}
FIVE = BlackScholes(spot=100.0, volatility=0.2, dividend=0.1, n_assets=5)

PAIR = np.eye(5)  # two of the five assets are correlated
PAIR[2, 3] = PAIR[3, 2] = 0.1

#: Market, payoff, and by how much the variance must fall at the least.
CASES = {
    "put": (BlackScholes(spot=95.0, volatility=0.2), Put(100.0), 500),
    "correlated": (BlackScholes(spot=[90, 100], volatility=[0.2, 0.3], n_assets=2, correlation=0.4), MaxCall(95.0), 5),
    "max-call": (FIVE, MaxCall(100.0), 5),
    "geometric": (BlackScholes(spot=100.0, volatility=0.3, n_assets=3), GeometricBasketPut(100.0), 100),
    "heston": (Heston(**VARIANCE), Put(100.0), 5),
    "two heston": (Heston(**VARIANCE, n_assets=2), MaxCall(100.0), 4),
    "paper scheme": (Heston(**VARIANCE, scheme="paper"), Put(100.0), 4),
    "rough": (RoughHeston(**VARIANCE, hurst=0.2, scheme="markovian", substeps=4), Put(100.0), 4),
    "fractional": (
        FractionalBrownianMotion(hurst=0.3, spot=1.0),
        CustomPayoff(lambda P: np.maximum(P[..., 0], 0)),
        2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_control_has_mean_zero_and_takes_variance_off(case):
    market, payoff, factor = CASES[case]
    result = price(market, payoff, GRID, paths=4000, seed=1)
    raw = result.flows.std(ddof=1) / math.sqrt(4000)
    assert raw**2 > factor * result.standard_error**2
    assert abs(result.price - result.flows.mean()) < 4 * raw
    plain = price(market, payoff, GRID, paths=4000, control=False, seed=1)
    assert plain.standard_error == pytest.approx(plain.flows.std(ddof=1) / math.sqrt(4000))
    assert abs(plain.price - result.price) < 4 * raw
    assert (result.settings["control"], plain.settings["control"]) == (True, False)


def test_controlled_intervals_cover():
    """Prices of one policy on many sets of paths scatter as their standard errors say, around the price of many."""
    payoff = MaxCall(100.0)
    training = simulate(FIVE, payoff, GRID, paths=2000, rng=np.random.default_rng(0), noise=True)
    state = RandomState(width=20, columns=True, ranked=True, seed=0).fitted([training])
    policy = train([training], [TunedLocal(0, "rlsm")], state=state, martingale=True)

    def controlled(seed, paths):
        found = policy.evaluate(simulate(FIVE, payoff, GRID, paths=paths, rng=np.random.default_rng(seed), noise=True))
        samples = found.flows[:, 0] - found.control
        return samples.mean(), samples.std(ddof=1) / math.sqrt(paths), found

    means, errors = np.array([controlled(seed, 300)[:2] for seed in range(1, 101)]).T
    assert 0.8 < means.std() / errors.mean() < 1.25
    truth, error, many = controlled((0.5).as_integer_ratio(), 40_000)
    assert abs(means.mean() - truth) < 4 * math.hypot(means.std() / 10, error)
    assert many.best.mean() > truth  # the dual of the same martingale is an upper bound
    assert many.best.mean() < 1.1 * truth


def test_few_paths_make_no_harmful_martingale():
    """Coefficients are shrunk by what noise explains: with almost no training paths the variance does not grow."""
    result = price(FIVE, MaxCall(100.0), GRID, paths=4000, training_paths=40, seed=0)
    assert result.standard_error < 1.05 * result.flows.std() / math.sqrt(4000)


# --- European values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("market", "payoff"),
    [
        (BlackScholes(spot=95.0, volatility=0.3, dividend=0.03), Put(100.0)),
        (BlackScholes(spot=95.0, volatility=0.3, dividend=0.03), Call(100.0)),
        (
            BlackScholes(
                spot=[90, 100, 120], volatility=[0.1, 0.2, 0.4], dividend=[0, 0.1, 0], n_assets=3, correlation=0.3
            ),
            GeometricBasketPut(105.0),
        ),
    ],
)
def test_european_values_are_those_of_blacks_formula(market, payoff):
    """The geometric mean of lognormal prices is lognormal; cash flows held to maturity agree with it."""
    grid = TimeGrid.from_times([0, 0.3, 1.5], rate=[0.02, 0.06])
    assets, rates, years = market.n_assets, 0.3 * 0.02 + 1.2 * 0.06, 1.5
    spot, sigma, dividend = (np.broadcast_to(x, assets) for x in (market.spot, market.volatility, market.dividend))
    correlation = np.where(np.eye(assets) == 1, 1.0, market.correlation)
    spread = math.sqrt(years * sigma @ correlation @ sigma) / assets
    level = np.mean(np.log(spot) + rates - dividend * years - 0.5 * sigma**2 * years)
    d1 = (level - math.log(payoff.strike)) / spread + spread
    forward, sign = math.exp(level + 0.5 * spread**2), payoff.sign
    exact = sign * (forward * norm.cdf(sign * d1) - payoff.strike * norm.cdf(sign * (d1 - spread)))
    exact *= math.exp(-rates)
    held = price(market, payoff, grid, paths=100, seed=0).european
    assert held.value == pytest.approx(exact, rel=1e-12)
    assert held.standard_error == 0
    flows = math.exp(-rates) * payoff(market.sample(40_000, grid, np.random.default_rng(0))[:, -1])
    assert abs(flows.mean() - exact) < 4 * flows.std() / 200


@pytest.mark.parametrize("payoff", [Put(100.0), Call(90.0)])
def test_the_control_is_a_martingale_between_uneven_dates(payoff):
    """Prices with and without European values at the dates agree, and hardly any variance is left with them."""
    grid = TimeGrid.from_times([0, 0.3, 1.1, 1.5], rate=[0.02, 0.06, 0.04])
    market = BlackScholes(spot=95.0, volatility=0.3, dividend=0.03)
    result, plain = (price(market, payoff, grid, paths=20_000, control=on, seed=1) for on in (True, False))
    assert abs(result.price - plain.price) < 4 * plain.standard_error
    assert 20 * result.standard_error < plain.standard_error


@pytest.mark.parametrize(
    ("market", "payoff"),
    [
        (FIVE, MaxCall(100.0)),
        (Heston(**VARIANCE, n_assets=2), MaxCall(100.0)),
        (BlackScholes(spot=1.0, volatility=0.2), CustomPayoff(lambda P: P[..., 0])),
        (BlackScholes(spot=100.0, volatility=0.2, cash_dividends=[(0.4, 2.0)]), Put(100.0)),
    ],
)
def test_european_values_are_simulated_where_they_are_not_known(market, payoff):
    assert price(market, payoff, GRID, paths=100, seed=0).european.standard_error > 0


def test_european_values_without_volatility():
    certain = european(BlackScholes(spot=90.0, volatility=0.0), Put(100.0), GRID)
    assert certain == pytest.approx(100 * math.exp(-0.06) - 90)


# --- held to maturity ------------------------------------------------------------------------------------------------

ROUGH = RoughHeston(**VARIANCE, hurst=0.1)


@pytest.mark.parametrize(
    ("market", "payoff", "rate"),
    [
        (Heston(**VARIANCE), Put(100.0), -0.01),
        (ROUGH, Call(105.0), 0.03),
        (BlackScholes(spot=100.0, volatility=0.2), Call(90.0), 0.05),
    ],
)
def test_an_option_that_is_never_exercised_has_its_exact_price(market, payoff, rate):
    grid = TimeGrid(maturity=1, dates=3, rate=rate)
    few = {"paths": 1000, "upper": True, "upper_paths": 50, "inner_paths": 10, "greeks": True, "seed": 0}
    result, exact = price(market, payoff, grid, **few), european(market, payoff, grid)
    assert result.price == pytest.approx(exact, rel=1e-9)
    assert result.upper.price == pytest.approx(exact, rel=1e-9)
    assert max(result.standard_error, result.upper.standard_error) < 1e-9
    assert not result.exercise_probability[:-1].any()
    assert not result.region.stop.any()
    ends = [european(dataclasses.replace(market, spot=spot), payoff, grid) for spot in (99.9, 100.1)]
    assert result.greeks["delta"].value[0] == pytest.approx((ends[1] - ends[0]) / 0.2, rel=1e-4)


STOCK = BlackScholes(spot=100.0, volatility=0.2)
THREE = BlackScholes(spot=100.0, volatility=0.2, n_assets=3)
#: Out of the money, where a policy that is learned from few paths stops on some of them.
FEW = {"paths": 2000, "training_paths": 60, "seed": 0}


@pytest.mark.parametrize(
    ("market", "payoff", "rate"),
    [
        (STOCK, Put(100.0), 0.0),
        (dataclasses.replace(STOCK, cash_dividends=[(0.5, 1.0)]), Put(100.0), 0.0),
        (dataclasses.replace(STOCK, dividend=0.02), Put(100.0), -0.01),
        (STOCK, Call(100.0), 0.03),
        (dataclasses.replace(STOCK, dividend=-0.02), Call(100.0), 0.0),
        (THREE, MaxCall(100.0), 0.03),
        (Heston(**VARIANCE), Put(100.0), 0.0),
    ],
)
def test_options_are_held_where_early_exercise_is_worth_nothing(market, payoff, rate):
    """Merton (1973), whatever the few training paths say."""
    found = price(market, payoff, TimeGrid(maturity=1, dates=3, rate=rate), **FEW)
    assert found.exercise_probability[:-1].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("market", "payoff", "rates"),
    [
        (STOCK, Put(100.0), 0.1),
        (STOCK, Call(100.0), [0.0, -0.15]),
        (dataclasses.replace(STOCK, dividend=0.1), Call(100.0), 0.03),
        (dataclasses.replace(STOCK, dividend=-0.1), Put(100.0), 0.0),
        (dataclasses.replace(STOCK, cash_dividends=[(0.75, 15.0)]), Call(100.0), 0.03),
        (STOCK, CustomPayoff(lambda P: np.maximum(100.0 - P[..., 0], 0.0)), 0.1),
    ],
)
def test_options_are_exercised_where_waiting_costs(market, payoff, rates):
    found = price(market, payoff, TimeGrid(maturity=1, dates=2, rate=rates), paths=2000, seed=0)
    assert found.exercise_probability[1] > 0.05


@pytest.mark.parametrize("market", [Heston(**VARIANCE), ROUGH])
def test_one_date_leaves_today_or_the_european_price(market):
    grid, few = TimeGrid(maturity=1, dates=1, rate=0.1), {"paths": 200, "upper": True, "seed": 0}
    result = price(market, Put(100.0), grid, **few)
    assert result.price == pytest.approx(european(market, Put(100.0), grid), rel=1e-9)
    assert result.upper.price == pytest.approx(result.price, rel=1e-9)
    today = price(market, Put(140.0), grid, **few)
    assert european(market, Put(140.0), grid) < today.price == today.upper.price == 40.0


@pytest.mark.parametrize("market", [Heston(**VARIANCE), ROUGH])
def test_gains_of_prices_have_mean_zero(market):
    market = dataclasses.replace(market, dividend=0.02)
    data = simulate(market, Put(100.0), GRID, paths=20_000, rng=np.random.default_rng(0))
    gains = data.prices[:, 1:] / data.prices[:, :-1] / math.exp((0.06 - 0.02) / 4) - 1
    assert np.all(np.abs(gains.mean(axis=0)) < 4 * gains.std(axis=0) / math.sqrt(20_000))


def test_prices_of_coarse_steps_are_mended():
    """The known European price takes off what the steps do, as far as the American price shares it."""
    law = {"v0": 0.04, "v_mean": 0.04, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.7}
    grid = TimeGrid(maturity=5, dates=2, rate=0.02)
    fine = price(Heston(spot=100.0, **law), Put(100.0), grid, paths=4000, seed=0)
    with pytest.warns(UserWarning, match="time steps"):
        coarse = price(Heston(spot=100.0, **law, substeps=1), Put(100.0), grid, paths=4000, seed=0)
    assert coarse.bias.relative > 0.02
    assert coarse.price == pytest.approx(fine.price, rel=0.01)
    assert coarse.european.value == fine.european.value == european(Heston(spot=100.0, **law), Put(100.0), grid)


# --- sorted assets ---------------------------------------------------------------------------------------------------


def test_ranked_features_do_not_see_the_order_of_assets():
    market = Heston(**VARIANCE, n_assets=3)
    data = simulate(market, MaxCall(100.0), GRID, paths=200, rng=np.random.default_rng(0))
    state = RandomState(width=12, columns=True, ranked=True, seed=0).fitted([data])
    turned = dataclasses.replace(data, prices=data.prices[..., [2, 0, 1]], hidden=data.hidden[..., [2, 0, 1]])
    np.testing.assert_allclose(state.features(turned, 2), state.features(data, 2), rtol=1e-12)
    wrong = dataclasses.replace(turned, hidden=data.hidden)
    assert not np.allclose(state.features(wrong, 2), state.features(data, 2))
    X = np.array([[1.0, 3.0, 2.0, 9.0, 10.0, 30.0, 20.0, 7.0]])
    assert rank_assets(X, assets=3).tolist() == [[3.0, 2.0, 1.0, 9.0, 30.0, 20.0, 10.0, 7.0]]


@pytest.mark.parametrize(
    ("market", "payoff", "ranked"),
    [
        (FIVE, MaxCall(100.0), True),
        (dataclasses.replace(FIVE, correlation=0.3, spot=[90, 100, 100, 100, 120]), MaxCall(100.0), True),
        (FIVE, CustomPayoff(lambda P: np.maximum(P.max(axis=-1) - P.min(axis=-1), 0)), True),
        (FIVE, CustomPayoff(lambda P: np.maximum(P[..., 0] - P[..., 1], 0)), False),
        (dataclasses.replace(FIVE, volatility=[0.1, 0.2, 0.2, 0.2, 0.2]), MaxCall(100.0), False),
        (dataclasses.replace(FIVE, correlation=PAIR), MaxCall(100.0), False),
        (BlackScholes(spot=100.0, volatility=0.2), Put(100.0), False),
        (Heston(**VARIANCE, n_assets=2), MaxCall(100.0), True),
        (FIVE, CustomPayoff(lambda P: np.maximum(P[..., :-1].sum(axis=-1) - 390, 0)), False),
    ],
)
def test_assets_are_sorted_where_their_order_does_not_matter(market, payoff, ranked):
    assert price(market, payoff, GRID, paths=100, seed=0).policy.state.ranked == ranked


def test_sorting_narrows_the_gap_of_a_max_call():
    """Published by Becker, Cheridito and Jentzen (2019): five assets 26.14 to 26.17 (95% interval 26.115 to 26.164)."""
    grid = TimeGrid(maturity=3, dates=9, rate=0.05)
    result = price(FIVE, MaxCall(100.0), grid, paths=8000, upper=True, upper_paths=200, inner_paths=60, seed=0)
    assert 26.14 * 0.99 < result.price < 26.164 + 3 * result.standard_error
    assert 26.115 - 3 * result.upper.standard_error < result.upper.price < 26.164 * 1.01


def test_width_follows_the_number_of_variables():
    assert [default_width(n, ranked=True) for n in (2, 5, 50)] == [30, 50, 50]
    assert price(FIVE, MaxCall(100.0), GRID, paths=100, seed=0).settings["width"] == 50
    assert price(BlackScholes(spot=90.0, volatility=0.2), Put(100.0), GRID, paths=100, seed=0).settings["width"] == 20
    assert price(FIVE, MaxCall(100.0), GRID, paths=100, width=7, seed=0).settings["width"] == 7


# --- today -----------------------------------------------------------------------------------------------------------


def test_exercise_today_is_decided_on_the_training_paths():
    """Next to the boundary either can happen; the estimate on fresh paths has no say."""
    market, kinds = BlackScholes(spot=86.5, volatility=0.2), set()
    for seed in range(30):
        result = price(market, Put(100.0), GRID, paths=100, training_paths=400, control=False, seed=seed)
        stops = result.policy.value[0] < 13.5
        assert (result.exercise_probability[0] == 1) == stops
        assert not stops or result.price == 13.5
        kinds.add((stops, result.price < 13.5))
    assert (False, True) in kinds  # waiting, though these paths earn less: the price is not biased upwards


def test_the_european_price_helps_to_decide_today():
    """Waiting with this call costs 0.07; a thousand training paths alone do not always see it."""
    market, grid = (
        Heston(**(VARIANCE | {"v_mean": 0.04, "v_speed": 10.0})),
        TimeGrid(maturity=0.03, dates=10, rate=-0.03),
    )
    for seed in range(5):
        assert price(market, Call(90.0), grid, paths=1000, seed=seed).price == 10.0


def test_a_martingale_needs_noise():
    data = simulate(FIVE, MaxCall(100.0), GRID, paths=50, rng=np.random.default_rng(0))
    state = RandomState(width=5, seed=0).fitted([data])
    with pytest.raises(ParameterError, match="one dataset with its noise"):
        train([data], [Local(0, 1.0, "LO")], state=state, martingale=True)


def test_recurrent_features_have_an_upper_bound():
    result = price(Heston(**VARIANCE), Put(100.0), GRID, method="recurrent", paths=4000, upper=True, seed=0)
    assert result.price < result.upper.price < 1.2 * result.price
    assert result.upper.method == "dual martingale, fitted moves"
    with pytest.raises(ParameterError, match="needs control"):
        price(Heston(**VARIANCE), Put(100.0), GRID, method="recurrent", paths=50, upper=True, control=False, seed=0)
