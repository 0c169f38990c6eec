"""Market models against closed forms, Fourier prices, QuantLib, plain loops, and each other."""

import dataclasses
import math
import tracemalloc

import numpy as np
import pytest
from scipy.special import gamma
from scipy.stats import norm, qmc

from mixtune.errors import ParameterError
from mixtune_options import (
    BlackScholes,
    Call,
    FractionalBrownianMotion,
    Heston,
    Put,
    RoughHeston,
    State,
    TimeGrid,
    european,
)

# The paper's market; spot and strike are 100.
VARIANCE = {"v0": 0.01, "v_mean": 0.01, "v_speed": 2.0, "v_vol": 0.2, "rho": -0.3}
MARKET = {"spot": 100.0, "dividend": 0.1, **VARIANCE}
GRID = TimeGrid(maturity=3, dates=9, rate=0.05)
UNEVEN = TimeGrid.from_times([0, 0.3, 0.5, 1.2, 2.0], rate=[0.01, 0.08, -0.02, 0.05])

PROCESSES = {
    "black-scholes": BlackScholes(spot=[90, 110], volatility=[0.2, 0.4], dividend=0.1, n_assets=2, correlation=0.5),
    "heston-paper": Heston(**MARKET, n_assets=2, scheme="paper"),
    "heston-log-euler": Heston(**MARKET, n_assets=2, scheme="log-euler", substeps=4),
    "heston-qe": Heston(**MARKET, n_assets=2, scheme="qe", substeps=2),
    "heston-correlated": Heston(
        **{**MARKET, "spot": [90.0, 110.0], "v0": [0.01, 0.09], "v_vol": [0.2, 0.6], "rho": [-0.3, -0.8]},
        n_assets=2,
        correlation=0.6,
        substeps=3,
    ),
    "heston-inverse-gaussian": Heston(**MARKET, n_assets=2, scheme="inverse-gaussian", substeps=2),
    "rough-inverse-gaussian": RoughHeston(**MARKET, n_assets=2, hurst=0.1, substeps=2, kernel_range=(1e-3, 3)),
    "rough-volterra": RoughHeston(**MARKET, n_assets=2, hurst=0.1, substeps=5, scheme="volterra"),
    "rough-markovian": RoughHeston(**MARKET, n_assets=2, hurst=0.1, substeps=5, scheme="markovian"),
    "fractional": FractionalBrownianMotion(hurst=0.3, spot=100, volatility=0.2, exponential=True, n_assets=2),
}
ALL = pytest.mark.parametrize("process", PROCESSES.values(), ids=PROCESSES)


def rng(seed=0):
    return np.random.default_rng(seed)


def draw_normals(n_paths, n_intervals, per_interval, rng, **options):
    """The normals of all paths at once, (paths, intervals, per interval): those that drive independent assets."""
    market = BlackScholes(spot=1.0, volatility=0.2, n_assets=per_interval)
    return market.sample_with_noise(n_paths, TimeGrid(maturity=1, dates=n_intervals), rng, **options)[2][:, :, 0]


def mittag_leffler(t, alpha, beta, speed):
    """The kernel of a rough variance integrated so often, by its series."""
    terms = np.arange(150)
    return np.array([(x ** (beta - 1) * (-speed * x**alpha) ** terms / gamma(alpha * terms + beta)).sum() for x in t])


def walk(process, state, grid, normals, *, first=0):
    """States at the dates after ``first``, one interval after the other; normals as draw_normals orders them."""
    for offset in range(normals.shape[1]):
        state = process.advance(state, **grid.interval(first + offset), normals=normals[:, offset])
        yield state


def assert_mean(values, exact, *, errors=4.5):
    """The mean agrees with the exact one up to so many standard errors."""
    error = values.std(axis=0) / math.sqrt(len(values))
    assert np.all(np.abs(values.mean(axis=0) - exact) <= errors * error + 1e-12), (values.mean(axis=0), exact, error)


def call(prices, *, grid=GRID, strike=100.0):
    return grid.discount[-1] * np.maximum(prices[:, -1, 0] - strike, 0.0)


# --- the mean, for every model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [GRID, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("name", [name for name in PROCESSES if name != "fractional"])
def test_discounted_prices_with_dividends_are_martingales(name, grid):
    process = PROCESSES[name]
    growth = (grid.rates - 0.1) * grid.steps
    growth = np.cumprod(1 + growth) if name == "heston-paper" else np.exp(np.cumsum(growth))
    paths = process.sample(20_000, grid, rng())
    np.testing.assert_array_equal(paths[:, 0], np.broadcast_to(process.spot, (20_000, 2)))
    for asset in range(2):
        assert_mean(paths[:, 1:, asset], process.spot[asset] * growth)


# --- Black-Scholes ---------------------------------------------------------------------------------------------------


def test_black_scholes_has_the_exact_law_of_the_logarithm():
    process = PROCESSES["black-scholes"]
    logs = np.log(process.sample(40_000, UNEVEN, rng())[:, -1] / process.spot)
    integral = (UNEVEN.rates - 0.1) @ UNEVEN.steps
    assert_mean(logs, integral - 0.5 * process.volatility**2 * 2.0)
    centred = logs - logs.mean(axis=0)
    products = np.stack([centred[:, 0] ** 2, centred[:, 0] * centred[:, 1], centred[:, 1] ** 2], axis=1)
    assert_mean(products, 2.0 * np.array([0.04, 0.5 * 0.08, 0.16]))


@pytest.mark.parametrize("strike", [80, 100, 120])
def test_black_scholes_european_prices(strike):
    process = BlackScholes(spot=100, volatility=0.3, dividend=0.02)
    d1 = (math.log(100 / strike) + (0.05 - 0.02 + 0.045) * 3) / (0.3 * math.sqrt(3))
    exact = 100 * math.exp(-0.06) * norm.cdf(d1) - strike * math.exp(-0.15) * norm.cdf(d1 - 0.3 * math.sqrt(3))
    assert_mean(call(process.sample(20_000, GRID, rng(1)), strike=strike), exact)
    sobol = call(process.sample(2**14, GRID, rng(1), sobol=True), strike=strike).mean()
    assert abs(sobol / exact - 1) < 2e-3


def test_maximum_of_five_assets():
    # Exact: at r = q = 0 the American max-call is European; sigma = 0.2, T = 1, S = K = 100.
    paths = BlackScholes(spot=100, volatility=0.2, n_assets=5).sample(2**15, TimeGrid(maturity=1, dates=1), rng())
    assert_mean(np.maximum(paths[:, -1].max(axis=1) - 100, 0), 25.0185)


@pytest.mark.parametrize("correlation", [1.0, -1.0])
def test_perfectly_correlated_assets(correlation):
    process = BlackScholes(spot=1, volatility=0.2, n_assets=2, correlation=correlation)
    logs = np.log(process.sample(100, GRID, rng())) + 0.02 * GRID.times[:, None] - 0.05 * GRID.times[:, None]
    np.testing.assert_allclose(logs[:, :, 0], correlation * logs[:, :, 1], atol=1e-7)


def test_a_correlation_matrix_of_many_assets():
    A = rng(1).standard_normal((30, 4))
    matrix = A @ A.T  # singular
    matrix /= np.sqrt(np.outer(np.diag(matrix), np.diag(matrix)))
    process = BlackScholes(spot=100, volatility=0.2, n_assets=30, correlation=matrix)
    logs = np.log(process.sample(20_000, TimeGrid(maturity=1, dates=1), rng())[:, 1])
    np.testing.assert_allclose(np.corrcoef(logs.T), matrix, atol=0.03)


# --- Heston ----------------------------------------------------------------------------------------------------------


MARKETS = {
    "paper": (MARKET, {"strike": 100.0, "maturity": 3.0, "rate": 0.05}),
    "skewed": (
        {"spot": 100.0, "dividend": 0.0, "v0": 0.09, "v_mean": 0.04, "v_speed": 1.5, "v_vol": 0.6, "rho": -0.8},
        {"strike": 110.0, "maturity": 1.0, "rate": 0.02},
    ),
    "upward": (
        {"spot": 10.0, "dividend": 0.0, "v0": 0.0625, "v_mean": 0.16, "v_speed": 5.0, "v_vol": 0.9, "rho": 0.4},
        {"strike": 9.0, "maturity": 1.0, "rate": 0.1},
    ),
}


@pytest.mark.parametrize("market", MARKETS)
def test_quadratic_exponential_prices(market):
    variance, option = MARKETS[market]
    grid = TimeGrid(maturity=option["maturity"], dates=9, rate=option["rate"])
    process = Heston(**variance, scheme="qe", substeps=2)
    prices = call(process.sample(2**16, grid, rng(), sobol=True), grid=grid, strike=option["strike"])
    assert abs(prices.mean() / european(process, Call(option["strike"]), grid) - 1) < 0.006


def test_fine_log_euler_agrees_with_fourier_and_with_quadratic_exponential():
    variance, _ = MARKETS["skewed"]
    grid = TimeGrid(maturity=1, dates=4, rate=0.02)
    fine = call(Heston(**variance, scheme="log-euler", substeps=25).sample(40_000, grid, rng()), grid=grid, strike=110)
    assert abs(fine.mean() - european(Heston(**variance), Call(110), grid)) < 4 * fine.std() / 200 + 0.03
    quick = call(Heston(**variance, scheme="qe").sample(40_000, grid, rng(1)), grid=grid, strike=110)
    assert abs(fine.mean() - quick.mean()) < 4 * math.hypot(fine.std(), quick.std()) / 200 + 0.03


def test_one_euler_step_per_date_is_biased():
    # Fourier: 1.2094. One step per date gives 1.260 for the logarithm and 1.248 for the price itself.
    for scheme, biased in (("log-euler", 1.260), ("paper", 1.2475)):
        process = Heston(**MARKET, scheme=scheme, substeps=1)
        prices = [call(process.sample(2**15, GRID, rng(seed), sobol=True)).mean() for seed in range(4)]
        assert abs(np.mean(prices) - biased) < 0.008
        assert np.mean(prices) > 1.2094 + 0.02


def test_the_papers_scheme_is_the_papers_loop():
    Z = draw_normals(50, 9, 2, rng())
    S, v, dt = np.full(50, 100.0), np.full(50, 0.01), 1 / 3
    for date in range(9):
        dB = math.sqrt(dt) * Z[:, date, 0]
        dW = -0.3 * dB + math.sqrt(1 - 0.09) * math.sqrt(dt) * Z[:, date, 1]
        positive = np.maximum(v, 0)
        S = S * (1 + (0.05 - 0.1) * dt + np.sqrt(positive) * dW)
        v = v + 2.0 * (0.01 - positive) * dt + 0.2 * np.sqrt(positive) * dB
    prices, hidden = Heston(**MARKET, scheme="paper").sample_with_hidden(50, GRID, rng())
    np.testing.assert_allclose(prices[:, -1, 0], S, rtol=1e-12)
    np.testing.assert_allclose(hidden[:, -1, 0], np.maximum(v, 0), rtol=1e-12)
    assert (v < 0).any()  # the truncation had something to do


def test_moments_of_the_variance():
    variance = VARIANCE | {"v0": 0.03}
    process = Heston(spot=100, **variance, scheme="qe", substeps=1)
    hidden = process.sample_with_hidden(40_000, UNEVEN, rng())[1][:, 1:, 0]
    k, s2, decay = 2.0, 0.04, np.exp(-2.0 * UNEVEN.times[1:])
    mean = 0.01 + 0.02 * decay
    spread = 0.03 * s2 / k * decay * (1 - decay) + 0.01 * s2 / (2 * k) * (1 - decay) ** 2
    assert_mean(hidden, mean)
    assert_mean((hidden - mean) ** 2, spread)
    assert hidden.min() >= 0


def test_assets_and_their_variances_are_correlated_and_assets_independent():
    paths, hidden = Heston(**MARKET, n_assets=2, scheme="qe").sample_with_hidden(10_000, UNEVEN, rng())
    moves = np.column_stack([np.log(paths[:, 1] / 100), hidden[:, 1]])
    correlation = np.corrcoef(moves.T)
    for i, j in ((0, 1), (2, 3), (0, 3), (1, 2)):
        assert abs(correlation[i, j]) < 0.04
    assert -0.35 < correlation[0, 2] < -0.2
    assert -0.35 < correlation[1, 3] < -0.2


def test_a_variance_without_noise_is_black_scholes():
    process = Heston(spot=100, v0=0.04, v_mean=0.04, v_speed=1, v_vol=0, rho=0, scheme="log-euler", substeps=1)
    Z = draw_normals(20, 9, 2, rng())
    *_, last = walk(process, process.start(20), GRID, Z)
    exact = BlackScholes(spot=100, volatility=0.2)
    *_, same = walk(exact, exact.start(20), GRID, Z[:, :, 1:])
    np.testing.assert_allclose(last.prices, same.prices)


@pytest.mark.parametrize(("scheme", "tolerance"), [("qe", 1.0), ("inverse-gaussian", 4.0)])
@pytest.mark.parametrize("v_vol", [0.0, 1e-12, 1e-8, 1e-4])
def test_a_variance_with_hardly_any_noise_is_black_scholes(v_vol, scheme, tolerance):
    # Sobol points do less for the second scheme, which uses squares of normals.
    process = Heston(spot=100, v0=0.04, v_mean=0.04, v_speed=2, v_vol=v_vol, rho=-0.7, scheme=scheme)
    prices = process.sample(2**14, GRID, rng(), sobol=True)[:, -1, 0]
    logs = np.log(prices / 100)
    assert abs(logs.mean() - (0.15 - 0.06)) < 5e-4 * tolerance
    assert abs(logs.var() / 0.12 - 1) < 5e-3 * tolerance
    exact = european(BlackScholes(spot=100, volatility=0.2), Call(100), GRID)
    assert abs(european(process, Call(100), GRID) - exact) < 1e-3
    assert abs(call(prices[:, None, None]).mean() / exact - 1) < 2e-3 * tolerance


def test_a_variance_that_dies_out_stays_finite():
    process = Heston(spot=100, v0=0.0001, v_mean=0.0, v_speed=0.0, v_vol=1.0, rho=-0.5, scheme="qe")
    prices, hidden = process.sample_with_hidden(1000, GRID, rng())
    assert (hidden[:, -1] < 1e-20).any()
    assert np.isfinite(prices).all()
    still = Heston(spot=100, v0=0, v_mean=0, v_speed=1, v_vol=0.1, rho=0).sample(3, GRID, rng())
    np.testing.assert_allclose(still[:, -1], 100 * math.exp(0.15))


def test_a_step_too_long_for_the_quadratic_exponential_scheme():
    process = Heston(spot=1, v0=0.5, v_mean=0.5, v_speed=10, v_vol=8.0, rho=0.95, substeps=1)
    with pytest.raises(ParameterError, match="use more substeps"):
        process.sample(1000, TimeGrid(maturity=4, dates=1), rng())


# --- rough Heston ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["volterra", "markovian"])
@pytest.mark.parametrize("substeps", [10, 37])
def test_half_is_the_classical_model_path_by_path(scheme, substeps):
    rough = RoughHeston(**MARKET, n_assets=2, hurst=0.5, scheme=scheme, substeps=substeps)
    plain = Heston(**MARKET, n_assets=2, scheme="log-euler", substeps=substeps)
    for ours, theirs in zip(rough.sample_with_hidden(200, UNEVEN, rng()), plain.sample_with_hidden(200, UNEVEN, rng())):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("substeps", [10, 20])
def test_volterra_is_the_sum_over_the_past(substeps):
    grid = TimeGrid(maturity=1, dates=3, rate=0.05)
    Z = draw_normals(20, 3, 2 * substeps, rng()).reshape(20, 3 * substeps, 2)
    dt = 1 / (3 * substeps)
    v, logs, increments = np.full(20, 0.01), np.zeros(20), []
    for step in range(3 * substeps):
        dB = math.sqrt(dt) * Z[:, step, 0]
        dW = -0.3 * dB + math.sqrt(0.91 * dt) * Z[:, step, 1]
        logs += (0.05 - 0.1 - v / 2) * dt + np.sqrt(v) * dW
        increments.append(2.0 * (0.01 - v) * dt + 0.2 * np.sqrt(v) * dB)
        lags = dt * np.arange(step + 1, 0, -1)
        v = np.maximum(0.01 + lags**-0.4 / gamma(0.6) @ np.array(increments), 0)
    prices, hidden = RoughHeston(**MARKET, hurst=0.1, scheme="volterra", substeps=substeps).sample_with_hidden(
        20, grid, rng()
    )
    np.testing.assert_allclose(prices[:, -1, 0], 100 * np.exp(logs), rtol=1e-10)
    np.testing.assert_allclose(hidden[:, -1, 0], v, atol=1e-12)


@pytest.mark.parametrize("hurst", [0.02, 0.1, 0.3, 0.49])
def test_factors_follow_the_whole_past_path_by_path(hurst):
    market = {**MARKET, "n_assets": 2, "hurst": hurst}
    whole = RoughHeston(**market, scheme="volterra")
    few = RoughHeston(**market, scheme="markovian")
    assert whole.kernel_error == 0
    assert few.kernel_error < 3e-5
    exact, v = whole.sample_with_hidden(500, GRID, rng())
    quick, w = few.sample_with_hidden(500, GRID, rng())
    assert np.abs(quick / exact - 1).max() < 2e-3
    assert np.abs(w - v).max() < 1e-4
    # In law they agree far better than Monte Carlo could tell apart.
    assert abs(w.mean() / v.mean() - 1) < 1e-4
    assert abs(w.std() / v.std() - 1) < 1e-4
    assert abs(call(quick).mean() / call(exact).mean() - 1) < 1e-3


def test_fewer_factors_fit_a_shorter_range():
    wide = RoughHeston(**MARKET, hurst=0.1, scheme="markovian", factors=8)
    narrow = RoughHeston(**MARKET, hurst=0.1, scheme="markovian", factors=8, kernel_range=(0.01, 3))
    assert narrow.kernel_error < 0.01 < wide.kernel_error
    with pytest.raises(ParameterError, match=r"the factors fit lags from 0\.01 to 3; steps of 0\.008"):
        narrow.sample(10, TimeGrid(maturity=1, dates=12), rng())
    with pytest.raises(ParameterError, match="up to time 4 leave that range"):
        narrow.sample(10, TimeGrid(maturity=4, dates=1), rng())


def test_euler_steps_of_the_rough_model_are_biased_and_integrated_ones_are_not():
    law = {"spot": 100.0, "v0": 0.04, "v_mean": 0.04, "v_speed": 0.3, "v_vol": 0.3, "rho": -0.7, "hurst": 0.1}
    grid, exact = TimeGrid(maturity=1, dates=10), 6.92385
    for scheme, least, most in (("markovian", 0.015, 0.03), ("inverse-gaussian", -0.008, 0.008)):
        process = RoughHeston(**law, scheme=scheme)
        assert abs(european(process, Put(100), grid) - exact) < 1e-5
        prices = process.sample(30_000, grid, rng(3))[:, -1]
        flows, control = Put(100)(prices), prices[:, 0] - 100
        flows -= (flows - flows.mean()) @ control / (control @ control) * control
        assert least < flows.mean() / exact - 1 < most


@pytest.mark.parametrize("v_speed", [0.0, 0.3, 2.0])
def test_integrated_steps_are_the_sum_over_the_past(v_speed):
    """A plain loop without factors: every past noise enters with its own mean of the kernel integrated twice."""
    market = {**MARKET, "v0": 0.03, "v_speed": v_speed, "hurst": 0.1}
    grid = TimeGrid(maturity=1, dates=3, rate=0.05)
    process = RoughHeston(**market, substeps=4).for_grid(grid)
    assert process.kernel_error < 1e-4
    Z = draw_normals(20, 3, 12, rng()).reshape(20, 12, 3)
    dt, alpha = 1 / 12, 0.6
    t = dt * np.arange(14)
    twice = np.append(0.0, mittag_leffler(t[1:], alpha, alpha + 2, v_speed))
    weights = 0.2 * np.append(twice[1], np.diff(twice, 2)) / dt
    survival = np.append(0.0, mittag_leffler(t[1:], alpha, 2.0, v_speed))
    curve = 0.01 * dt + 0.02 * np.diff(survival)
    logs, noises, deficit = np.zeros(20), np.empty((0, 20)), np.zeros(20)
    for step in range(12):
        level = curve[step] + weights[1 : step + 1][::-1] @ noises + deficit
        deficit, level = np.minimum(level, 0.0), np.maximum(level, 1e-14 * dt)
        # The inverse Gaussian law with mean level and shape (level / own)^2, textbook form.
        shape, y = (level / weights[0]) ** 2, Z[:, step, 0] ** 2
        low = (
            level + level**2 * y / (2 * shape) - level / (2 * shape) * np.sqrt(4 * level * shape * y + level**2 * y**2)
        )
        U = np.where(norm.cdf(Z[:, step, 1]) <= level / (level + low), low, level**2 / low)
        noise = (U - level) / weights[0]
        logs += -0.05 * dt - U / 2 - 0.3 * noise + np.sqrt(0.91 * U) * Z[:, step, 2]
        noises = np.vstack([noises, noise])
    prices, hidden = process.sample_with_hidden(20, grid, rng())
    np.testing.assert_allclose(prices[:, -1, 0], 100 * np.exp(logs), rtol=1e-4)
    ahead = (curve[12] + weights[1:13][::-1] @ noises) / dt
    np.testing.assert_allclose(hidden[:, -1, 0], np.maximum(ahead, 0), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", [Heston, RoughHeston])
def test_a_deficit_keeps_the_mean_of_the_integrated_variance(kind):
    # So much noise that half of the steps expect less than nothing.
    law = {"v0": 0.01, "v_mean": 0.02, "v_speed": 0.3, "v_vol": 0.8, "rho": 0.0, "scheme": "inverse-gaussian"}
    grid = TimeGrid(maturity=0.7, dates=1)
    process = kind(spot=100, **law, **({"hurst": 0.45} if kind is RoughHeston else {}), substeps=8).for_grid(grid)
    Z = rng().standard_normal((1, 16, 60_000))
    _, total, control = process.conditional_law(grid, Z)
    assert_mean(control, 0.0)
    exact = 0.7 * process.mean_variance(0.7)[0]
    # What is still missing at maturity is little.
    assert 1 < total.mean() / exact < 1.2


@pytest.mark.parametrize("hurst", [0.05, 0.3, 0.5])
def test_a_rough_variance_without_noise_is_black_scholes(hurst):
    process = RoughHeston(spot=100, v0=0.04, v_mean=0.04, v_speed=1, v_vol=0, rho=-0.5, hurst=hurst)
    logs = np.log(process.sample(40_000, GRID, rng())[:, -1, 0] / 100)
    assert_mean(logs, 0.15 - 0.06)
    assert_mean((logs - 0.09) ** 2, 0.12)


# --- fractional Brownian motion --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hurst", [0.05, 0.3, 0.5, 0.8])
def test_fractional_brownian_motion_has_the_exact_covariance(hurst):
    process = FractionalBrownianMotion(hurst=hurst, spot=1.0, volatility=[1.0, 2.0], n_assets=2)
    paths = process.sample(20_000, UNEVEN, rng())
    t = UNEVEN.times
    exact = 0.5 * (t[:, None] ** (2 * hurst) + t ** (2 * hurst) - np.abs(t[:, None] - t) ** (2 * hurst))
    for asset, factor in ((0, 1.0), (1, 2.0)):
        motion = (paths[:, :, asset] - 1.0) / factor
        assert_mean(motion[:, :, None] * motion[:, None, :], exact)
    assert abs(np.corrcoef(paths[:, -1].T)[0, 1]) < 0.04


def test_exponential_fractional_brownian_motion():
    options = {"hurst": 0.3, "volatility": 0.2}
    raw = FractionalBrownianMotion(**options).sample(10, GRID, rng())
    exponential = FractionalBrownianMotion(**options, spot=50, exponential=True).sample(10, GRID, rng())
    np.testing.assert_allclose(exponential, 50 * np.exp(raw))


def test_fractional_brownian_motion_needs_its_whole_past():
    process = FractionalBrownianMotion(hurst=0.3)
    state = process.advance(process.start(2), begin=0, end=1, rate=0, normals=np.zeros((2, 1)))
    with pytest.raises(ParameterError, match="known up to time 1; continue them from there"):
        process.advance(state, begin=1.5, end=2, rate=0, normals=np.zeros((2, 1)))
    with pytest.raises(ParameterError, match="known up to time 0; continue them from there"):
        process.advance(process.start(2), begin=0.5, end=2, rate=0, normals=np.zeros((2, 1)))
    with pytest.raises(ParameterError, match="too close together"):
        FractionalBrownianMotion(hurst=0.99).sample(2, TimeGrid.from_times([0, *(1 + 1e-10 * np.arange(50))]), rng())


# --- randomness, blocks and continuation, for every model -------------------------------------------------------------


@ALL
@pytest.mark.parametrize("options", [{}, {"antithetic": True}, {"sobol": True}], ids=["plain", "antithetic", "sobol"])
def test_blocks_change_nothing(process, options):
    whole = process.sample(30, UNEVEN, rng(5), **options)
    for size in (1, 7, 30, 1000):
        pieces = process.sample(30, UNEVEN, rng(5), **options, chunk_paths=size)
        np.testing.assert_allclose(pieces, whole, rtol=1e-10)
    assert not np.array_equal(process.sample(30, UNEVEN, rng(6), **options), whole)
    if not options.get("antithetic"):
        np.testing.assert_allclose(process.sample(11, UNEVEN, rng(5), **options), whole[:11], rtol=1e-10)


@ALL
def test_paths_can_be_continued_from_any_date(process):
    whole, hidden = process.sample_with_hidden(12, UNEVEN, rng(2))
    np.testing.assert_array_equal(whole, process.sample(12, UNEVEN, rng(2)))
    Z = draw_normals(12, 4, process.normals_per_interval, rng(2))
    *_, state = walk(process, process.start(12), UNEVEN, Z[:, :2])
    kept = {item.name: getattr(state, item.name).copy() for item in dataclasses.fields(state)}
    np.testing.assert_allclose(state.prices, whole[:, 2], rtol=1e-10)
    np.testing.assert_allclose(state.hidden, hidden[:, 2], atol=1e-12)
    # Some paths, twice each; copies with the same normals stay together, and with others part.
    chosen = [7, 3, 3]
    double = state.take(chosen).repeat(2)
    assert isinstance(double, type(state))
    after = list(walk(process, double, UNEVEN, Z[:, 2:][chosen].repeat(2, axis=0), first=2))
    assert len(after) == 2
    for date, later in zip((3, 4), after):
        np.testing.assert_allclose(later.prices, whole[chosen, date].repeat(2, axis=0), rtol=1e-10)
    (other,) = walk(process, double, UNEVEN, rng(9).standard_normal((6, 1, Z.shape[2])), first=2)
    assert len(np.unique(other.prices[:, 0])) > 2
    # The state that was continued is as it was.
    for name, array in kept.items():
        np.testing.assert_array_equal(getattr(state, name), array)
    np.testing.assert_array_equal(state.take(np.arange(12) % 3 == 0).prices, state.prices[::3])


@ALL
def test_antithetic_paths_mirror_their_normals(process):
    Z = draw_normals(6, 4, process.normals_per_interval, rng(), antithetic=True)
    np.testing.assert_array_equal(Z[3:], -Z[:3])
    np.testing.assert_array_equal(Z[:3], draw_normals(3, 4, process.normals_per_interval, rng()))
    paths = process.sample(6, UNEVEN, rng(), antithetic=True)
    *_, last = walk(process, process.start(6), UNEVEN, Z)
    np.testing.assert_allclose(paths[:, -1], last.prices, rtol=1e-10)


def test_antithetic_and_sobol_reduce_the_error():
    process, exact = BlackScholes(spot=100, volatility=0.2), 100 * math.exp(0.15)

    def error(**options):
        means = [process.sample(1024, GRID, rng(seed), **options)[:, -1].mean() for seed in range(20)]
        return np.sqrt(np.mean((np.array(means) - exact) ** 2))

    plain = error()
    assert error(antithetic=True) < plain / 2
    assert error(sobol=True) < plain / 20


def test_sobol_normals_are_standard_normal_whatever_their_number():
    Z = draw_normals(5001, 6, 3, rng(), sobol=True)
    assert np.isfinite(Z).all()
    flat = Z.reshape(5001, -1)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=0.01)
    np.testing.assert_allclose(flat.T @ flat / 5001, np.eye(18), atol=0.05)
    np.testing.assert_array_equal(Z, draw_normals(5001, 6, 3, rng(), sobol=True))
    generator = rng()
    first = draw_normals(8, 6, 3, generator, sobol=True)
    assert not np.array_equal(first, draw_normals(8, 6, 3, generator, sobol=True))


def test_a_sobol_point_on_the_edge_gives_a_finite_normal(monkeypatch):
    monkeypatch.setattr(qmc.Sobol, "random", lambda engine, count: np.zeros((count, engine.d)))
    assert np.isfinite(draw_normals(5, 3, 2, rng(), sobol=True)).all()


def test_blocks_bound_memory():
    """Beside the paths themselves, which are as many numbers as their normals, only a block of normals is there."""
    market = BlackScholes(spot=1.0, volatility=0.2, n_assets=10)
    tracemalloc.start()
    paths = market.sample(20_000, TimeGrid(maturity=1, dates=50), rng())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.3 * paths.nbytes


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (BlackScholes, {"volatility": -0.1}, "volatility must be finite >= 0; got -0.1"),
        (BlackScholes, {"volatility": "high"}, "volatility must be numbers"),
        (BlackScholes, {"spot": 0}, "spot must be finite > 0"),
        (BlackScholes, {"spot": [1, 2, 3]}, "spot must be one number or 2, one per asset"),
        (BlackScholes, {"dividend": np.nan}, "dividend must be finite"),
        (BlackScholes, {"n_assets": 0}, "n_assets must be a whole number >= 1"),
        (BlackScholes, {"correlation": 1.5}, "correlation must lie between -1 and 1"),
        (BlackScholes, {"correlation": np.nan}, "correlation must be finite"),
        (BlackScholes, {"correlation": "some"}, "correlation must be numbers"),
        (BlackScholes, {"correlation": np.eye(3)}, r"a matrix of shape \(2, 2\); got shape \(3, 3\)"),
        (BlackScholes, {"correlation": [[1, 0.5], [0.4, 1]]}, "correlation must be symmetric"),
        (BlackScholes, {"correlation": [[1, 0], [0, 0.9]]}, "ones on its diagonal"),
        (BlackScholes, {"n_assets": 4, "correlation": -0.5}, "for all pairs must be >= -0.333333"),
        (Heston, {"v0": -0.1}, "v0 must be a finite number >= 0"),
        (Heston, {"v_mean": -0.1}, "v_mean must be a finite number >= 0"),
        (Heston, {"v_speed": -1}, "v_speed must be a finite number >= 0"),
        (Heston, {"v_vol": -0.2}, "v_vol must be a finite number >= 0"),
        (Heston, {"v0": [0.1, 0.2, 0.3], "n_assets": 2}, "v0 must be one number or 2, one per asset"),
        (Heston, {"rho": [0.1, -1.2], "n_assets": 2}, "rho must be a correlation, between -1 and 1"),
        (Heston, {"n_assets": 2, "correlation": 2}, "correlation must lie between -1 and 1"),
        (Heston, {"cash_dividends": 3.0}, "cash_dividends must be pairs of time and amount"),
        (Heston, {"cash_dividends": [(0.0, 1.0)]}, "the time of a dividend must be finite > 0"),
        (BlackScholes, {"cash_dividends": [(1.0, -1.0)]}, "dividend must be finite >= 0"),
        (Heston, {"rho": 1.1}, "rho must be a correlation, between -1 and 1"),
        (Heston, {"rho": None}, "rho must be finite"),
        (
            Heston,
            {"scheme": "milstein"},
            "scheme must be one of 'auto', 'inverse-gaussian', 'qe', 'log-euler', 'paper'",
        ),
        (Heston, {"substeps": 0}, "substeps must be a whole number >= 1"),
        (RoughHeston, {"hurst": 0}, "hurst must be a finite number > 0"),
        (RoughHeston, {"hurst": 0.6}, "hurst must be above 0 and at most 1/2"),
        (RoughHeston, {"v_vol": -0.2}, "v_vol must be a finite number >= 0"),
        (RoughHeston, {"rho": -2}, "rho must be a correlation"),
        (RoughHeston, {"scheme": "paper"}, "scheme must be one of 'inverse-gaussian', 'volterra', 'markovian'"),
        (RoughHeston, {"v_vol": [0.1, 0.2], "n_assets": 2}, "v_vol of rough Heston must be one number"),
        (RoughHeston, {"substeps": 1.5}, "substeps must be a whole number"),
        (RoughHeston, {"factors": 1}, "factors must be a whole number >= 2"),
        (RoughHeston, {"kernel_range": (1, 1)}, "0 < shortest < longest"),
        (RoughHeston, {"kernel_range": 3}, "0 < shortest < longest"),
        (FractionalBrownianMotion, {"hurst": 1.0}, "hurst must be between 0 and 1"),
        (FractionalBrownianMotion, {"hurst": -0.5}, "hurst must be a finite number > 0"),
        (FractionalBrownianMotion, {"volatility": -1}, "volatility must be finite >= 0"),
        (FractionalBrownianMotion, {"exponential": True}, "exponential paths need spot > 0"),
    ],
)
def test_bad_settings(kind, change, message):
    good = {
        BlackScholes: {"spot": 100, "volatility": 0.2, "n_assets": 2},
        Heston: MARKET,
        RoughHeston: {**MARKET, "hurst": 0.1},
        FractionalBrownianMotion: {"hurst": 0.3},
    }
    kind(**good[kind])
    with pytest.raises(ParameterError, match=message):
        kind(**{**good[kind], **change})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_paths": 0}, "n_paths must be a whole number >= 1"),
        ({"n_paths": 5, "antithetic": True}, "pass an even n_paths, such as 6"),
        ({"antithetic": True, "sobol": True}, "antithetic and sobol exclude each other"),
        ({"chunk_paths": 0}, "chunk_paths must be a whole number >= 1"),
        ({"rng": 0}, "rng must be a generator"),
        ({"grid": TimeGrid(maturity=1, dates=30_000), "sobol": True}, "Sobol points have at most"),
    ],
)
def test_bad_sampling(options, message):
    with pytest.raises(ParameterError, match=message):
        BlackScholes(spot=1, volatility=0.2).sample(**{"n_paths": 4, "grid": GRID, "rng": rng(), **options})


def test_overflowing_prices_are_reported():
    for name, process in PROCESSES.items():
        if name != "fractional":
            with pytest.raises(ParameterError, match="paths overflow; check"):
                process.sample(10, TimeGrid(maturity=1, dates=2, rate=1e200), rng())
    with pytest.raises(ParameterError, match="paths overflow; check"):
        FractionalBrownianMotion(hurst=0.3, spot=1, volatility=1e4, exponential=True).sample(10, GRID, rng())


def test_bad_continuation():
    process = PROCESSES["heston-qe"]
    state, Z = process.start(3), np.zeros((3, process.normals_per_interval))
    with pytest.raises(ParameterError, match=r"normals must have shape \(3, 8\)"):
        process.advance(state, begin=0, end=1, rate=0, normals=Z[:, 1:])
    with pytest.raises(ParameterError, match="0 <= begin < end"):
        process.advance(state, begin=1, end=1, rate=0, normals=Z)
    with pytest.raises(ParameterError, match="Heston continues a VarianceState; got State"):
        process.advance(State(state.prices), begin=0, end=1, rate=0, normals=Z)
    for wrong in ([True, False], [0.5], [0, 3]):  # a mask of another length, a fraction, a path that is not there
        with pytest.raises(IndexError):
            state.take(wrong)
    with pytest.raises(ParameterError, match="times must be a whole number >= 1"):
        state.repeat(0)
