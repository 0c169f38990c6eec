"""Prices against what nobody here computed: Longstaff and Schwartz, published Bermudan values, QuantLib."""

import math

import numpy as np
import pytest

from mixtune.errors import DataError, ParameterError
from mixtune_options import (
    BlackScholes,
    Call,
    CustomPayoff,
    FractionalBrownianMotion,
    Heston,
    MaxCall,
    Put,
    RoughHeston,
    TimeGrid,
    price,
    price_observed,
    simulate,
    training,
)
from mixtune_options.training import (
    Local,
    MeanOfLocals,
    PathData,
    PolynomialState,
    RandomState,
    TunedJoint,
    TunedLocal,
    train,
)

# Longstaff and Schwartz (2001), section 1: eight paths, put with strike 1.10, rate 6%, three dates; price 0.1144.
EIGHT_PATHS = np.array(
    [
        [1.00, 1.09, 1.08, 1.34],
        [1.00, 1.16, 1.26, 1.54],
        [1.00, 1.22, 1.07, 1.03],
        [1.00, 0.93, 0.97, 0.92],
        [1.00, 1.11, 1.56, 1.52],
        [1.00, 0.76, 0.77, 0.90],
        [1.00, 0.92, 0.84, 1.01],
        [1.00, 0.88, 1.22, 1.34],
    ]
)


def test_longstaff_schwartz_eight_paths():
    grid = TimeGrid(maturity=3, dates=3, rate=0.06)
    data = PathData.build("eight", EIGHT_PATHS, grid=grid, payoff=Put(1.10))
    state = PolynomialState(degree=2).fitted([data])
    policy = train([data], [Local(0, 0.0, "LSM")], state=state)
    flows, dates = policy.cash_flows(data)
    assert round(float(flows.mean()), 4) == 0.1144
    assert dates[:, 0].tolist() == [3, 3, 3, 1, 3, 1, 1, 1]  # their stopping rule; 3 is maturity


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("ranked", [False, True])
def test_values_of_waiting_are_the_same_with_and_without_the_features(columns, ranked):
    grid, market = TimeGrid(maturity=1, dates=3), BlackScholes(spot=100, volatility=0.2, n_assets=2)
    data = simulate(market, MaxCall(100), grid, paths=300, rng=np.random.default_rng(0))
    state = RandomState(width=20, columns=columns, ranked=ranked, seed=0).fitted([data])
    coefs = np.random.default_rng(1).standard_normal((3, state.features(data, 1).shape[1], 2))
    for positive in (False, True):
        found = list(state.predicted(data, coefs, features=False, positive=positive))
        assert [date for date, _, _ in found] == [2, 1]
        for date, _, values in found:
            here = data.payoffs[:, date] > 0 if positive else slice(None)
            slow = state.features(data, date) @ coefs[date]
            np.testing.assert_allclose(values[here], slow[here], rtol=1e-12, atol=1e-12)
            if positive and not columns:
                assert np.all(values[~here] == np.inf)


def test_many_paths_of_a_raw_layer_give_the_same_policy_from_factors(monkeypatch):
    grid, market = TimeGrid(maturity=1, dates=4), BlackScholes(spot=100, volatility=0.1, n_assets=2)
    data = simulate(market, MaxCall(100), grid, paths=500, rng=np.random.default_rng(0))
    state = RandomState(width=50, standardise=False, seed=0).fitted([data])
    models = [Local(0, 2.0, "LO"), MeanOfLocals(2.0), TunedLocal(0, "tuned"), TunedJoint((0,), "joint")]
    assert any(isinstance(U, training.FactoredFeatures) for _, U in state.backward(data))
    few = train([data], models, state=state, in_the_money=False)
    monkeypatch.setattr(training, "MANY_ROWS", 100)
    assert not any(isinstance(U, training.FactoredFeatures) for _, U in state.backward(data))
    slow = train([data], models, state=state, in_the_money=False)
    for date in (1, 2, 3):
        np.testing.assert_allclose(few.continuation(data, date), slow.continuation(data, date), rtol=1e-5, atol=1e-5)


def inside(result, reference, slack=0.0):
    """Lower bound below and upper bound above the reference, each within its Monte Carlo error."""
    assert result.price <= reference + 3 * result.standard_error + slack
    assert result.upper.price >= reference - 3 * result.upper.standard_error - slack
    assert result.price <= result.upper.price + 3 * (result.standard_error + result.upper.standard_error)
    assert result.price >= result.european.value - 3 * result.european.standard_error


@pytest.mark.parametrize(("spot", "published"), [(90.0, 8.08), (100.0, 13.90), (110.0, 21.34)])
def test_published_bermudan_max_call(spot, published):
    """Glasserman (2004), p. 462: two assets, strike 100, r = 5%, dividend 10%, volatility 20%, 9 dates over 3 years."""
    market = BlackScholes(spot=spot, volatility=0.2, dividend=0.1, n_assets=2)
    grid = TimeGrid(maturity=3, dates=9, rate=0.05)
    result = price(market, MaxCall(100.0), grid, paths=8000, width=60, upper=True, upper_paths=200, seed=1)
    inside(result, published)
    assert result.gap < 0.03 * published
    assert result.price > 0.98 * published - 3 * result.standard_error


@pytest.mark.parametrize(
    ("spot", "volatility", "years", "published"), [(36, 0.2, 1, 4.478), (40, 0.4, 1, 5.312), (38, 0.2, 2, 3.745)]
)
@pytest.mark.parametrize("method", ["rlsm", "lsm"])
def test_longstaff_schwartz_table(spot, volatility, years, published, method):
    market = BlackScholes(spot=float(spot), volatility=volatility)
    grid = TimeGrid(maturity=years, dates=50 * years, rate=0.06)
    result = price(market, Put(40.0), grid, method=method, paths=4000, width=30, seed=2)
    assert abs(result.price - published) < 3 * result.standard_error + 0.01 * published


def quantlib_bermudan_put(ql, process, grid, strike, engine):
    today = ql.Settings.instance().evaluationDate
    dates = [today + ql.Period(round(365 * t), ql.Days) for t in grid.times[1:]]
    option = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, strike), ql.BermudanExercise(dates))
    option.setPricingEngine(engine(process))
    return option.NPV()


@pytest.fixture(scope="module")
def ql():
    ql = pytest.importorskip("QuantLib")
    ql.Settings.instance().evaluationDate = ql.Date(15, 6, 2026)
    return ql


def curves(ql, rate, dividend):
    flat = lambda r: ql.YieldTermStructureHandle(ql.FlatForward(0, ql.NullCalendar(), r, ql.Actual365Fixed()))  # noqa: E731
    return flat(rate), flat(dividend)


def test_quantlib_black_scholes_put(ql):
    rates, dividends = curves(ql, 0.06, 0.0)
    volatility = ql.BlackConstantVol(0, ql.NullCalendar(), 0.3, ql.Actual365Fixed())
    spot = ql.QuoteHandle(ql.SimpleQuote(38.0))
    process = ql.BlackScholesMertonProcess(spot, dividends, rates, ql.BlackVolTermStructureHandle(volatility))
    grid = TimeGrid.from_times([0, *(np.arange(1, 6) * 73 / 365)], rate=0.06)
    reference = quantlib_bermudan_put(ql, process, grid, 40.0, lambda p: ql.FdBlackScholesVanillaEngine(p, 400, 400))
    market = BlackScholes(spot=38.0, volatility=0.3)
    result = price(market, Put(40.0), grid, paths=16_000, width=40, upper=True, upper_paths=400, seed=0)
    inside(result, reference)
    assert result.gap < 0.03 * reference


def test_quantlib_heston_put(ql):
    """Fang and Oosterlee's parameters; the exercise decision sees the variance, as the reference assumes."""
    rates, dividends = curves(ql, 0.1, 0.0)
    spot = ql.QuoteHandle(ql.SimpleQuote(10.0))
    process = ql.HestonProcess(rates, dividends, spot, 0.0625, 5.0, 0.16, 0.9, 0.1)
    grid = TimeGrid.from_times([0, *(np.arange(1, 6) * 18 / 365)], rate=0.1)
    reference = quantlib_bermudan_put(
        ql, process, grid, 10.0, lambda p: ql.FdHestonVanillaEngine(ql.HestonModel(p), 100, 200, 100)
    )
    market = Heston(spot=10.0, v0=0.0625, v_mean=0.16, v_speed=5.0, v_vol=0.9, rho=0.1, scheme="qe", substeps=4)
    result = price(market, Put(10.0), grid, paths=16_000, width=60, upper=True, upper_paths=300, seed=3)
    inside(result, reference, slack=0.002)
    assert result.gap < 0.05 * reference


def test_no_dividend_no_rate_american_is_european():
    """At r = q = 0 a max-call is never exercised early: 25.0185 for 5 assets (exact)."""
    market = BlackScholes(spot=100.0, volatility=0.2, n_assets=5)
    result = price(market, MaxCall(100.0), TimeGrid(maturity=1, dates=5), paths=16_000, width=50, seed=4)
    assert abs(result.european.value - 25.0185) < 3 * result.european.standard_error
    assert result.price <= 25.0185 + 3 * result.standard_error
    assert result.price > 0.97 * 25.0185


def test_paper_preset_is_the_papers_setting():
    market = Heston(
        spot=100.0, v0=0.01, v_mean=0.01, v_speed=2.0, v_vol=0.2, rho=-0.3, dividend=0.1, n_assets=2, scheme="paper"
    )
    grid = TimeGrid(maturity=3, dates=9, rate=0.05)
    few = price(market, MaxCall(100.0), grid, preset="paper", paths=4000, training_paths=100, seed=0)
    ours = price(market, MaxCall(100.0), grid, paths=4000, training_paths=100, seed=0)
    assert few.policy.state.width == 300
    assert not few.policy.only_positive
    assert few.policy.state.scaling is None
    assert ours.price > few.price


def test_recurrent_features_price_rough_heston():
    market = RoughHeston(
        spot=100.0, v0=0.04, v_mean=0.04, v_speed=1.0, v_vol=0.3, rho=-0.5, hurst=0.2, scheme="markovian", substeps=4
    )
    grid = TimeGrid(maturity=1, dates=4, rate=0.05)
    with_memory = price(market, Put(100.0), grid, method="recurrent", paths=4000, width=40, seed=0)
    without = price(market, Put(100.0), grid, paths=4000, width=40, seed=0)
    assert abs(with_memory.price - without.price) < 5 * without.standard_error
    assert with_memory.price >= with_memory.european.value - 3 * with_memory.standard_error


def test_same_seed_same_price_other_seed_other_price():
    market, grid = BlackScholes(spot=36.0, volatility=0.2), TimeGrid(maturity=1, dates=5, rate=0.06)
    first, again, other = (price(market, Put(40.0), grid, paths=500, width=10, seed=s).price for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_immediate_exercise():
    market, grid = BlackScholes(spot=10.0, volatility=0.01), TimeGrid(maturity=1, dates=3, rate=0.5)
    result = price(market, Put(40.0), grid, paths=500, width=5, seed=0, greeks=True)
    assert result.price == 30.0
    assert result.standard_error == 0.0
    assert result.exercise_probability.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert result.greeks["delta"].value == pytest.approx([-1.0])
    assert result.greeks["vega"].value.tolist() == [0.0]


def test_greeks_of_a_process_that_starts_at_zero():
    market = FractionalBrownianMotion(hurst=0.3)
    result = price(
        market,
        CustomPayoff(lambda P: np.maximum(P[..., 0], 0)),
        TimeGrid(maturity=1, dates=2),
        paths=500,
        width=10,
        greeks=True,
        seed=0,
    )
    assert np.all(np.isfinite(result.greeks["delta"].value))


def test_a_single_date_is_european():
    market, grid = BlackScholes(spot=36.0, volatility=0.2), TimeGrid(maturity=1, dates=1, rate=0.06)
    result = price(market, Put(36.0), grid, paths=2000, seed=0)
    assert result.price == pytest.approx(result.european.value, rel=1e-12)
    assert result.region is None


@pytest.mark.parametrize("option", [{"antithetic": True}, {"sobol": True}])
def test_variance_reduction_keeps_the_price(option):
    market, grid = BlackScholes(spot=36.0, volatility=0.2), TimeGrid(maturity=1, dates=10, rate=0.06)
    plain = price(market, Put(40.0), grid, paths=4096, control=False, seed=0)
    better = price(market, Put(40.0), grid, paths=4096, control=False, seed=0, **option)
    assert abs(plain.price - better.price) < 4 * plain.standard_error
    assert better.standard_error < plain.standard_error


def test_standard_errors_are_honest():
    """Over many seeds, prices scatter as much as their standard errors say, however paths are drawn."""
    market, grid = BlackScholes(spot=40.0, volatility=0.2), TimeGrid(maturity=1, dates=1, rate=0.06)
    for option in ({}, {"antithetic": True}, {"sobol": True}):
        options = {"paths": 256, "control": False, **option}
        # One date leaves nothing to learn: what is paid there is the cash flow.
        runs = [price(market, Put(40.0), grid, seed=seed, **options) for seed in range(80)]
        prices, errors = np.array([(run.price, run.standard_error) for run in runs]).T
        assert 0.75 < np.sqrt(np.mean(errors**2)) / np.std(prices) < 1.35, option


def test_greeks_of_a_european_limit():
    """One date: delta and vega against the closed form."""
    from scipy.stats import norm

    S, K, r, sigma = 100.0, 105.0, 0.05, 0.25
    d1 = (math.log(S / K) + r + sigma**2 / 2) / sigma
    market, grid = BlackScholes(spot=S, volatility=sigma), TimeGrid(maturity=1, dates=1, rate=r)
    result = price(market, Call(K), grid, paths=40_000, greeks=True, seed=0)
    delta, vega = result.greeks["delta"], result.greeks["vega"]
    assert abs(delta.value[0] - norm.cdf(d1)) < 4 * delta.standard_error[0] + 1e-3
    assert abs(vega.value[0] - S * norm.pdf(d1)) < 4 * vega.standard_error[0] + 0.05


def test_exercise_region_and_probabilities():
    market, grid = BlackScholes(spot=36.0, volatility=0.2), TimeGrid(maturity=1, dates=10, rate=0.06)
    result = price(market, Put(40.0), grid, paths=8000, width=30, seed=0)
    boundary = result.region.boundary
    assert np.all((boundary > 30) & (boundary < 40))
    assert boundary[-1] > boundary[0]  # a put's critical price rises towards the strike
    assert 0 < result.exercise_probability.sum() <= 1
    two = BlackScholes(spot=100.0, volatility=0.2, dividend=0.1, n_assets=2)
    found = price(two, MaxCall(100.0), TimeGrid(maturity=3, dates=3, rate=0.05), paths=2000, width=20, seed=0)
    assert found.region.stop.shape == (2, 101, 101)
    assert found.region.boundary is None


def test_several_models_in_one_pass_equal_one_by_one():
    market, grid = BlackScholes(spot=36.0, volatility=0.2), TimeGrid(maturity=1, dates=5, rate=0.06)
    data = [
        simulate(market, Put(40.0), grid, paths=300, rng=np.random.default_rng(k), hidden=False, name=str(k))
        for k in range(2)
    ]
    state = RandomState(width=20, seed=0).fitted(data)
    models = [Local(0, 1.0, "a"), Local(1, 1.0, "b"), TunedLocal(0, "c")]
    together = train(data, models, state=state).cash_flows(data[0])[0]
    for k, model in enumerate(models):
        alone = train(data, [model], state=state).cash_flows(data[0])[0]
        np.testing.assert_allclose(together[:, k], alone[:, 0])


def observed(seed=0, markets=(("here", 0.2, 60), ("near", 0.22, 300), ("far", 0.6, 300))):
    grid = TimeGrid(maturity=1, dates=6, rate=0.06)
    paths = {
        name: BlackScholes(spot=40.0, volatility=volatility).sample(n, grid, np.random.default_rng((seed, k)))
        for k, (name, volatility, n) in enumerate(markets)
    }
    return grid, paths


def test_observed_paths_with_and_without_transfer():
    grid, paths = observed()
    by_hand = price_observed(paths, Put(40.0), grid, focal="here", seed=0, transfer=3.0)
    few = {name: each[:30, [0, 3, 6]] for name, each in paths.items()}
    tuned = price_observed(few, Put(40.0), TimeGrid(maturity=1, dates=2, rate=0.06), focal="here", seed=0, folds=2)
    alone = price_observed({"here": paths["here"]}, Put(40.0), grid, focal="here", seed=0)
    assert by_hand.settings["method"] == "transfer"
    assert {"transfer": 3.0, "stability": 1.0, "ridge": 1.0}.items() <= by_hand.settings.items()
    assert tuned.settings["method"] == "self-tuning transfer"
    assert "ridge" not in tuned.settings
    assert alone.settings["method"] == "local"
    for found in (by_hand, tuned, alone):
        assert 1.2 < found.price < 3.5
        assert found.ci_low < found.price < found.ci_high


def test_sources_from_another_price_are_refused_and_their_returns_taken():
    (grid, paths), few = observed(), {"ridge": 1.0, "width": 10, "folds": 2, "seed": 0}
    expected = price_observed(paths, Put(40.0), grid, focal="here", **few).price
    elsewhere = paths | {"near": paths["near"] * 2.5}
    with pytest.raises(DataError, match=r'"near" do not all start at today\'s price of "here" \(\[40.0\]') as caught:
        price_observed(elsewhere, Put(40.0), grid, focal="here", seed=0)
    assert "divide each path by its first price and multiply by today's" in str(caught.value)
    mended = elsewhere | {"near": elsewhere["near"] / elsewhere["near"][:, :1] * 40.0}
    assert price_observed(mended, Put(40.0), grid, focal="here", **few).price == pytest.approx(expected)
    from_spot = price_observed(elsewhere, Put(40.0), grid, focal="here", spot=40.0, **few)
    assert from_spot.price == pytest.approx(expected)
    mixed = paths | {"far": paths["far"] * np.linspace(1.0, 1.2, 300)[:, None, None]}
    with pytest.raises(DataError, match='"far" do not all start'):
        price_observed(mixed, Put(40.0), grid, focal="here", seed=0)


def test_observed_options_are_held_where_exercising_does_not_pay():
    """A call whose price rises, and too few paths for a policy: holding earns more on paths that it did not see."""
    grid = TimeGrid(maturity=1, dates=6, rate=0.12)
    paths = {"here": BlackScholes(spot=40.0, volatility=0.05).sample(40, grid, np.random.default_rng(1))}
    put = price_observed(paths, Put(80.0), grid, focal="here", seed=0)  # exercised today: interest of 12% on 80
    assert put.price == 40.0
    assert put.exercise_probability[0] == 1
    assert put.settings["exercise_today"]
    rising, no_rate = TimeGrid(maturity=1, dates=6, rate=0.5), TimeGrid(maturity=1, dates=6)
    few = {"here": BlackScholes(spot=40.0, volatility=0.4).sample(20, rising, np.random.default_rng(0))}
    result = price_observed(few, Call(30.0), no_rate, focal="here", seed=0)
    assert (result.settings["folds_held"], result.settings["hold"]) == (5, True)
    assert result.price == pytest.approx(result.european.value)
    falling = {"here": 40.0 * np.exp(-np.linspace(0, 0.3, 7)) * np.ones((40, 1))}
    early = price_observed(falling, Call(30.0), grid, focal="here", seed=0)
    assert (early.settings["folds_held"], early.price) == (0, 10.0)


def test_observed_markets_have_their_own_rates():
    grid, paths = observed()
    dear, few = {"far": TimeGrid(maturity=1, dates=6, rate=0.5)}, {"ridge": 1.0, "width": 10, "folds": 2, "seed": 0}
    same = price_observed(paths, Put(40.0), grid, focal="here", grids={"far": grid}, **few)
    other = price_observed(paths, Put(40.0), grid, focal="here", grids=dear, **few)
    plain = price_observed(paths, Put(40.0), grid, focal="here", **few)
    assert same.price == plain.price
    assert other.price != plain.price
    with pytest.raises(ParameterError, match="grids has 'away'"):
        price_observed(paths, Put(40.0), grid, focal="here", grids={"away": grid}, seed=0)
    less = paths | {"far": paths["far"][:, :4]}
    with pytest.raises(DataError, match='paths "far" have 3 dates, "here" has 6; pass those of this market: grids='):
        price_observed(less, Put(40.0), grid, focal="here", seed=0)


def test_observed_markets_have_their_own_dates():
    """Of more dates, those nearest to the focal ones are used; of fewer, some serve twice."""
    (grid, paths), few = observed(), {"ridge": 1.0, "folds": 2, "seed": 0}
    own = {"far": TimeGrid(maturity=2, dates=6, rate=0.1)}
    expected = price_observed(paths, Put(40.0), grid, focal="here", grids=own, **few)
    assert expected.settings["width"] == 20  # of one asset
    between = np.full((300, 13, 1), 1e3)
    between[:, ::2] = paths["far"]
    finer = {"far": TimeGrid(maturity=2, dates=12, rate=0.1)}
    found = price_observed(paths | {"far": between}, Put(40.0), grid, focal="here", grids=finer, **few)
    assert found.price == pytest.approx(expected.price, rel=1e-12)
    coarser = {"far": TimeGrid(maturity=2, dates=3, rate=0.1)}
    found = price_observed(paths | {"far": paths["far"][:, ::2]}, Put(40.0), grid, focal="here", grids=coarser, **few)
    assert found.price == pytest.approx(expected.price, rel=0.2)
    two = {name: np.concatenate([each, each], axis=2) for name, each in paths.items()}
    assert price_observed(two, MaxCall(40.0), grid, focal="here", **few).settings["width"] == 30


def test_refused():
    grid, paths = observed()
    with pytest.raises(ParameterError, match=r"data must map names of markets to their paths; got ndarray"):
        price_observed(paths["here"], Put(40.0), grid, focal="here", seed=0)
    with pytest.raises(ParameterError, match=r"spot must be one number or 1, one per asset; got shape \(2,\)"):
        price_observed(paths, Put(40.0), grid, focal="here", spot=[40.0, 40.0], seed=0)
    for change, message in (
        ({"spot": -40.0}, "spot must be finite > 0"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"focal": ["here"]}, r"no paths named \['here'\]"),
        ({"data": {}}, "there are none"),
        ({"grids": [grid]}, "grids must map names"),
        ({"grids": {"far": 0.05}}, r"grids\['far'\] must be a TimeGrid"),
        ({"grid": 1.0}, "grid must be a TimeGrid"),
    ):
        given = {"data": paths, "payoff": Put(40.0), "grid": grid, "focal": "here", "seed": 0} | change
        with pytest.raises(ParameterError, match=message):
            price_observed(**given)
    zero = {"here": np.zeros((20, 7))}
    with pytest.raises(DataError, match='a path of "here" begins at 0'):
        price_observed(zero, Put(40.0), grid, focal="here", spot=40.0, seed=0)
    with pytest.raises(ParameterError, match="no paths named"):
        price_observed(paths, Put(40.0), grid, focal="nowhere", seed=0)
    with pytest.raises(DataError, match="use a grid with 6 dates"):
        price_observed(paths, Put(40.0), TimeGrid(maturity=1, dates=5), focal="here", seed=0)
    broken = {"here": paths["here"].copy()}
    broken["here"][0, 2] = np.nan
    with pytest.raises(
        DataError, match='1 of 420 values of paths "here" is NaN or infinite, the first in path 0 at point 2'
    ):
        price_observed(broken, Put(40.0), grid, focal="here", seed=0)
    apart = paths["here"] * np.linspace(0.8, 1.2, 60)[:, None, None]
    with pytest.raises(DataError, match="divide each path by"):
        price_observed({"here": apart}, Put(40.0), grid, focal="here", seed=0)
    with pytest.raises(DataError, match="nobody has to exercise"):
        price_observed(paths, CustomPayoff(lambda P: 40 - P[..., 0]), grid, focal="here", seed=0)
    two = np.concatenate([paths["near"], paths["near"]], axis=2)
    with pytest.raises(DataError, match='paths "two" have 2 assets, "here" has 1'):
        price_observed(paths | {"two": two}, MaxCall(40.0), grid, focal="here", seed=0)
    with pytest.raises(DataError, match="folds"):
        price_observed({"here": paths["here"][:6]}, Put(40.0), grid, focal="here", seed=0)
    market = BlackScholes(spot=36.0, volatility=0.2)
    for change in ({"method": "magic"}, {"preset": "mine"}, {"paths": 1}, {"seed": -1}):
        with pytest.raises(ParameterError, match=next(iter(change))):
            price(market, Put(40.0), grid, **{"seed": 0, **change})
