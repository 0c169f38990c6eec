"""The method line by line: which rows are regressed on, who stops, what bounds, Greeks and regions are made of."""

import dataclasses
import math

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune_options import (
    BlackScholes,
    Call,
    CustomPayoff,
    Estimate,
    FractionalBrownianMotion,
    Heston,
    MaxCall,
    PathPayoff,
    PriceSettings,
    Put,
    RoughHeston,
    TimeGrid,
    price,
    price_observed,
    simulate,
    upper_bound,
)
from mixtune_options.training import (
    ContinuationModel,
    Joint,
    Local,
    PathData,
    PolynomialState,
    RandomState,
    RecurrentState,
    TunedLocal,
    exercises,
    train,
)
from mixtune_paper.american import TABLE1, TABLE2

GRID = TimeGrid(maturity=1, dates=4, rate=0.06)
HESTON = {"spot": 100.0, "v0": 0.04, "v_mean": 0.09, "v_speed": 2.0, "v_vol": 0.3, "rho": -0.5}


class CountRows(ContinuationModel):
    """Notes how many rows it is given, and never stops."""

    name = "count"

    def __init__(self):
        self.rows = []

    def fit(self, stage, model):
        self.rows.append(len(stage.features[0]))
        return np.full(stage.features[0].shape[1], 0.0)


# --- induction -------------------------------------------------------------------------------------------------------


def test_rows_in_the_money_count_only_where_they_outnumber_the_features():
    rng = np.random.default_rng(0)
    prices = 2 + rng.random((10, 5, 1))
    payoffs = np.zeros((10, 5))
    for date, inside in ((1, 3), (2, 4), (3, 9)):
        payoffs[:inside, date] = 1.0
    data = PathData("paths", prices, payoffs)
    state = PolynomialState(degree=1).fitted([data])  # a constant, the payoff and the price: three features
    for in_the_money, expected in ((True, [9, 4, 10]), (False, [10, 10, 10])):
        model = CountRows()
        train([data], [model], state=state, in_the_money=in_the_money)
        assert model.rows == expected  # from the last date before maturity to the first


def test_who_stops():
    payoff, waiting = np.array([0.0, 0.0, 1.0, 1.0, 1.0]), np.array([-1.0, 1.0, 1.0, 0.5, 2.0])
    assert exercises(payoff, waiting, True).tolist() == [False, False, False, True, False]
    assert exercises(payoff, waiting, False).tolist() == [True, False, False, True, False]


def test_paths_that_wait_keep_their_later_cash_flow():
    """Values are cash flows of the policy (Longstaff and Schwartz), not the regressed value of waiting."""
    prices = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 2.0, 1.0], [1.0, 2.0, 3.0, 1.0], [1.0, 2.0, 4.0, 1.0]])[
        :, :, None
    ]
    payoffs = np.array([[0.0, 0.5, 1.0, 5.0], [0.0, 0.5, 1.0, 0.0], [0.0, 0.5, 1.0, 0.0], [0.0, 0.5, 1.0, 0.0]])
    data = PathData("four", prices, payoffs)
    state = PolynomialState(degree=1).fitted([data])
    policy = train([data], [Local(0, 1e-9, "LSM")], state=state, in_the_money=False)
    # At date 2 the line through (5, 0, 0, 0) is (3.5, 2, 0.5, -1): the first two wait, the others take 1.
    np.testing.assert_allclose(policy.continuation(data, 2)[:, 0], [3.5, 2.0, 0.5, -1.0], atol=1e-6)
    # Cash flows are (5, 0, 1, 1) then, with means 2.5 and 1 where date 1 tells paths apart; all wait.
    np.testing.assert_allclose(policy.continuation(data, 1)[:, 0], [2.5, 2.5, 1.0, 1.0], atol=1e-6)
    flows, dates = policy.cash_flows(data)
    assert flows[:, 0].tolist() == [5.0, 0.0, 1.0, 1.0]
    assert dates[:, 0].tolist() == [3, 3, 2, 2]


def test_recurrent_features_remember_and_do_not_look_ahead():
    rng = np.random.default_rng(0)
    data = PathData("paths", rng.random((6, 5, 1)), rng.random((6, 5)))
    state = RecurrentState(width=4, seed=0).fitted([data])
    features = state.features(data, 2)
    for date, changes in ((1, True), (2, True), (3, False)):
        prices = data.prices.copy()
        prices[:, date] += 1.0
        other = state.features(dataclasses.replace(data, prices=prices), 2)
        assert np.allclose(other[:, :4], features[:, :4]) != changes
    for date, found in state.backward(data):
        np.testing.assert_array_equal(found, state.features(data, date))
    assert [date for date, _ in state.backward(data)] == [3, 2, 1]


def test_datasets_that_are_not_there_are_refused():
    data = simulate(BlackScholes(spot=36.0, volatility=0.2), Put(40.0), GRID, paths=20, rng=np.random.default_rng(0))
    state = RandomState(width=3, seed=0).fitted([data])
    for model in (Local(1, 1.0, "LO"), Joint(1.0, (0, -1))):
        with pytest.raises(ParameterError, match="there is no dataset"):
            train([data], [model], state=state)


# --- settings --------------------------------------------------------------------------------------------------------


def test_the_paper_preset_is_ridge_2_on_300_raw_units_and_all_paths():
    market = Heston(**HESTON, n_assets=2, scheme="paper")
    found = price(market, MaxCall(100.0), GRID, preset="paper", paths=50, training_paths=100, seed=3).policy
    rng = np.random.default_rng(np.random.SeedSequence(3).spawn(3)[0])
    data = simulate(market, MaxCall(100.0), GRID, paths=100, rng=rng, hidden=False)
    state = RandomState(width=300, slope=0.01, standardise=False, seed=3).fitted([data])
    rule = {"state": state, "in_the_money": False, "only_positive": False}
    # A price is computed on one thread: with several, the last digits of this badly conditioned fit differ.
    np.testing.assert_allclose(found.coefs, train([data], [Local(0, 2.0, "LO-1")], **rule).coefs, rtol=1e-4, atol=1e-6)
    assert not np.allclose(found.coefs, train([data], [Local(0, 20.0, "LO-1")], **rule).coefs)
    assert (found.only_positive, found.names) == (False, ("LO-1",))


def test_the_tables_have_the_settings_of_the_preset():
    for settings in (TABLE1.settings, TABLE2.settings):
        assert (settings.ridge, settings.width) == (2.0, 300)


def test_a_settings_object_and_keywords_price_the_same():
    market, settings = BlackScholes(spot=36.0, volatility=0.2), PriceSettings(paths=200, width=10, seed=5)
    by_object = price(market, Put(40.0), GRID, settings)
    assert by_object.price == price(market, Put(40.0), GRID, paths=200, width=10, seed=5).price
    other = price(market, Put(40.0), GRID, settings, seed=6)
    assert other.settings["seed"] == 6
    assert other.price != by_object.price
    with pytest.raises(TypeError, match="pths"):
        price(market, Put(40.0), GRID, pths=200, seed=5)
    with pytest.raises(TypeError, match="seed"):
        price(market, Put(40.0), GRID)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.paths = 3
    again = {f.name: by_object.settings[f.name] for f in dataclasses.fields(PriceSettings)} | {"device": None}
    assert price(market, Put(40.0), GRID, **again).price == by_object.price  # the record repeats the run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sobol": True, "paths": 63}, "sobol needs at least 64 paths"),
        ({"sobol": True, "antithetic": True}, "exclude each other"),
        ({"training_paths": 1}, "training_paths must be a whole number >= 2"),
        ({"antithetic": True, "paths": 501}, "pass an even number, such as paths=502"),
        ({"method": "lsm", "preset": "paper"}, 'preset "paper" is random features, method "rlsm"; got method \'lsm\''),
        ({"control": True, "preset": "paper"}, 'preset "paper" takes no control'),
        ({"width": 0}, "width must be a whole number >= 1"),
        ({"upper_paths": 1}, "upper_paths must be a whole number >= 2; got 1"),
        ({"inner_paths": 2.5}, "inner_paths must be a whole number >= 2; got 2.5"),
        ({"degree": 0}, "degree must be a whole number >= 1"),
        ({"greeks": "yes"}, "greeks must be True or False; got 'yes'"),
        ({"control": "no"}, "control must be True or False; got 'no'"),
    ],
)
def test_settings_that_cannot_be(change, message):
    with pytest.raises(ParameterError, match=message):
        PriceSettings(**{"seed": 0, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"process": "black-scholes"}, "process must be a market such as"),
        ({"process": BlackScholes}, "process must be a market such as"),
        ({"payoff": "put"}, "payoff must be a function of prices such as"),
        ({"payoff": Put}, "payoff must be a function of prices such as"),
        ({"payoff": GRID, "grid": Put(40.0)}, "payoff must be a function of prices such as"),
        ({"grid": 1.0}, "grid must be a TimeGrid"),
        ({"settings": {"paths": 200}}, "settings must be a PriceSettings; got dict"),
        ({"upper": True, "control": False, "method": "recurrent"}, "needs control=True"),
        ({"upper": True, "preset": "paper", "payoff": PathPayoff(lambda P, t: P[..., 0])}, "needs control=True"),
    ],
)
def test_what_cannot_be_priced_is_refused_before_any_work(change, message):
    parts = {"process": BlackScholes(spot=36.0, volatility=0.2), "payoff": Put(40.0), "grid": GRID, "seed": 0} | change
    with pytest.raises(ParameterError, match=message):
        price(**parts, progress=lambda stage: pytest.fail(f"{stage} has begun"))


# --- estimates and bounds --------------------------------------------------------------------------------------------


def test_standard_errors_of_every_way_to_draw():
    samples = np.array([1.0, 5.0, 2.0, 4.0])
    assert Estimate.of(samples) == Estimate(3.0, pytest.approx(math.sqrt(10 / 3) / 2))
    # Pairs (1, 2) and (5, 4) have the means 1.5 and 4.5.
    assert Estimate.of(samples, drawn="antithetic") == Estimate(3.0, pytest.approx(1.5))
    blocks = np.repeat(np.arange(32.0), 2)  # one value for each scrambling
    assert Estimate.of(blocks, drawn="sobol").standard_error == pytest.approx(np.arange(32).std(ddof=1) / math.sqrt(32))
    estimate = Estimate(3.0, 0.5)
    assert (estimate.ci_low, estimate.ci_high, estimate.price) == (3 - 0.98, 3 + 0.98, 3.0)


@pytest.mark.parametrize("rate", [0.1, -0.1])
def test_the_upper_bound_is_exact_where_antithetic_pairs_are(rate):
    """A payoff linear in a normal price: each mirrored pair has the mean of all, so no inner noise is left."""
    process, grid = (
        FractionalBrownianMotion(hurst=0.5, spot=10.0, volatility=0.5),
        TimeGrid(maturity=1, dates=1, rate=rate),
    )
    payoff = CustomPayoff(lambda prices: prices[..., 0])
    data = simulate(process, payoff, grid, paths=50, rng=np.random.default_rng(0))
    policy = train([data], [TunedLocal(0, "value")], state=RandomState(width=5, seed=0).fitted([data]))
    sizes = {"outer_paths": 40, "inner_paths": 6, "rng": np.random.default_rng(1)}
    bound = upper_bound(policy, process, grid=grid, payoff=payoff, **sizes)
    # Exercise today is worth 10, at maturity 10 exp(-rate): the holder takes the larger.
    assert bound.price == pytest.approx(10 * max(1.0, math.exp(-rate)), rel=1e-12)
    assert bound.standard_error < 1e-12
    assert (bound.outer_paths, bound.inner_paths) == (40, 6)


def test_inner_normals_are_mirrored(monkeypatch):
    seen, advance = [], BlackScholes.advance

    def spy(self, state, **interval):
        seen.append(interval["normals"])
        return advance(self, state, **interval)

    monkeypatch.setattr(BlackScholes, "advance", spy)
    market = BlackScholes(spot=[36.0, 40.0], volatility=0.2, n_assets=2)
    price(market, MaxCall(40.0), GRID, paths=100, width=5, seed=0, upper=True, upper_paths=7, inner_paths=5)
    inner = [normals for normals in seen if len(normals) != 7]
    assert len(inner) == 4
    for normals in inner:  # five inner paths make three pairs
        pairs = normals.reshape(7, 2, 3, 2)
        np.testing.assert_array_equal(pairs[:, 0], -pairs[:, 1])
        assert len(np.unique(np.abs(pairs))) == 7 * 3 * 2


def test_the_upper_bound_takes_the_payoff_where_it_is_more_than_waiting():
    """Deep in the money the put is exercised at once: both bounds are the payoff of today."""
    market, grid = BlackScholes(spot=20.0, volatility=0.1), TimeGrid(maturity=1, dates=4, rate=0.1)
    result = price(market, Put(40.0), grid, paths=2000, width=20, seed=0, upper=True, upper_paths=100, inner_paths=50)
    assert result.price == 20.0
    assert result.upper.price == pytest.approx(20.0, abs=0.05)
    assert result.gap == result.upper.price - result.price


def test_values_of_the_upper_bound_are_at_least_the_payoff():
    """With a continuation of zero the value is the payoff, a martingale here, and the bound is exact."""
    process, grid = FractionalBrownianMotion(hurst=0.5, spot=10.0, volatility=0.5), TimeGrid(maturity=1, dates=2)
    payoff = CustomPayoff(lambda prices: prices[..., 0])
    data = simulate(process, payoff, grid, paths=50, rng=np.random.default_rng(0))
    policy = train([data], [TunedLocal(0, "value")], state=RandomState(width=5, seed=0).fitted([data]))
    worthless = dataclasses.replace(policy, coefs=0 * policy.coefs)
    sizes = {"outer_paths": 20, "inner_paths": 4, "rng": np.random.default_rng(1)}
    bound = upper_bound(worthless, process, grid=grid, payoff=payoff, **sizes)
    assert bound.price == pytest.approx(10.0, rel=1e-12)
    assert bound.standard_error < 1e-12


# --- Greeks ----------------------------------------------------------------------------------------------------------


def bumped(market, change, payoff, grid, **options):
    """Central difference of prices by hand; one date, so that the policy has nothing to decide."""
    up, down = (price(dataclasses.replace(market, **change(sign)), payoff, grid, **options).price for sign in (1, -1))
    return up - down


@pytest.mark.parametrize("drawn", [{}, {"antithetic": True}, {"sobol": True}])
def test_deltas_belong_to_their_assets(drawn):
    market, grid = (
        BlackScholes(spot=[90.0, 110.0], volatility=0.3, n_assets=2),
        TimeGrid(maturity=1, dates=1, rate=0.05),
    )
    options = {"paths": 2000, "seed": 0, "control": False, **drawn}
    found = price(market, MaxCall(100.0), grid, greeks=True, **options).greeks["delta"]
    for asset, width in ((0, 0.3), (1, 0.3)):
        moved = lambda sign, asset=asset, width=width: {"spot": market.spot + sign * width * (np.arange(2) == asset)}  # noqa: E731
        expected = bumped(market, moved, MaxCall(100.0), grid, **options) / (2 * width)
        assert found.value[asset] == pytest.approx(expected, rel=0.02)
    assert found.value[1] > found.value[0] > 0
    assert np.all(found.standard_error > 0)


@pytest.mark.parametrize(
    "market", [Heston(**HESTON), RoughHeston(**HESTON, hurst=0.2, substeps=2)], ids=["qe", "rough"]
)
def test_vega_of_a_random_variance_scales_both_its_levels(market):
    by = 0.02  # the relative move of volatilities
    grid, options = TimeGrid(maturity=1, dates=1, rate=0.05), {"paths": 400, "seed": 0, "control": False}
    found = price(market, Call(100.0), grid, greeks=True, **options).greeks["vega"]
    moved = lambda sign: {"v0": 0.04 * (1 + sign * by) ** 2, "v_mean": 0.09 * (1 + sign * by) ** 2}  # noqa: E731
    expected = bumped(market, moved, Call(100.0), grid, **options) / (2 * by * 0.2)
    assert found.value[0] == pytest.approx(expected, rel=1e-9)


# --- results ---------------------------------------------------------------------------------------------------------


def test_the_boundary_is_next_to_the_waiting_region():
    grid = TimeGrid(maturity=1, dates=4, rate=0.05)
    for payoff, end in ((Put(40.0), np.max), (Call(40.0), np.min)):
        market = BlackScholes(spot=40.0, volatility=0.3, dividend=0.05)
        region = price(market, payoff, grid, paths=2000, width=20, seed=0).region
        stops = region.stop & region.seen
        assert stops.any()
        ends = np.array([end(region.axis[row]) for row in stops])
        # Between the last price of the grid where the policy stops and the next, where it waits.
        beyond = (region.boundary - ends) * (1 if end is np.max else -1)
        assert np.all((beyond > 0) & (beyond < np.diff(region.axis)[0]))
        assert np.all(region.seen.mean(axis=1) < 1)  # prices spread over time: early dates have seen fewer


def test_exercise_probabilities_count_positive_cash_flows_by_date():
    market, grid = BlackScholes(spot=40.0, volatility=0.2), TimeGrid(maturity=1, dates=3, rate=0.06)
    result = price(market, Put(40.0), grid, paths=500, width=10, control=False, seed=0)
    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(3)[1])
    flows, dates = result.policy.cash_flows(simulate(market, Put(40.0), grid, paths=500, rng=rng))
    expected = [np.mean((flows > 0) & (dates == date)) for date in range(4)]
    np.testing.assert_allclose(result.exercise_probability, expected, rtol=1e-12)
    assert result.price == pytest.approx(flows.mean())
    assert result.exercise_probability.sum() < 1
    np.testing.assert_array_equal(result.flows, flows[:, 0])
    np.testing.assert_allclose(result.profit_and_loss, flows[:, 0] - result.price)
    paid = flows[:, 0] > 0
    assert result.exercise_time == pytest.approx((dates[paid, 0] / 3).mean())


def test_observed_paths_are_priced_by_policies_that_did_not_see_them():
    rng = np.random.default_rng(0)
    grid = TimeGrid(maturity=1, dates=3, rate=0.06)
    paths = BlackScholes(spot=40.0, volatility=0.2).sample(30, grid, rng)
    result = price_observed({"here": paths}, Put(40.0), grid, focal="here", folds=3, width=8, seed=4)
    assert (result.settings["folds_held"], result.exercise_probability[0]) == (0, 0)  # no part is held or exercised now
    here = PathData.build("here", paths, grid=grid, payoff=Put(40.0))
    flows = np.empty(30)
    for held_out in np.array_split(np.random.default_rng(4).permutation(30), 3):
        kept = here.take(np.setdiff1d(np.arange(30), held_out))
        state = RandomState(width=8, seed=4).fitted([kept])
        policy = train([kept], [TunedLocal(0, "local")], state=state, in_the_money=False)
        flows[held_out] = policy.cash_flows(here.take(held_out))[0][:, 0]
    assert result.price == pytest.approx(flows.mean(), rel=1e-12)
