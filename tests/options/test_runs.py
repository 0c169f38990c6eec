"""Several runs at once: every run gets what it gets alone."""

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune.options import Heston, MaxCall, RoughHeston, TimeGrid, simulate
from mixtune.options.training import (
    Joint,
    Local,
    MeanOfLocals,
    RandomState,
    RunStage,
    RunStates,
    Stage,
    Transfer,
    TunedLocal,
    simulate_runs,
    train,
)
from mixtune.weights import EqualWeights, PredictiveWeights

GRID = TimeGrid(maturity=3, dates=4, rate=0.05)
MARKET = {"spot": 100, "v0": 0.01, "v_mean": 0.01, "v_speed": 2, "rho": -0.3, "dividend": 0.1, "n_assets": 2}
SEEDS = (0, 7, 8)
MODELS = [
    Local(1, 2.0, "LO-2"),
    MeanOfLocals(2.0),
    Joint(2.0, (0, 1, 2)),  # fewer rows than features
    Joint(2.0, (0, 3), "JSO"),  # more
    Transfer(PredictiveWeights(10.0), 2.0, 2.0, 1.0, 1, "RO"),
    Transfer(PredictiveWeights(0.0), 2.0, 2.0, 1.0, 3, "RO (focal alone)"),
    Transfer(EqualWeights(), 2.0, 2.0, 1.0, 1, "RO (equal)"),  # one run after the other
    TunedLocal(0, "tuned"),
]


@pytest.fixture(params=[None, "cpu"], ids=["numpy", "torch"])
def device(request):
    if request.param is not None:
        pytest.importorskip("torch")
    return request.param


def rng(seed, dataset):
    return np.random.default_rng([seed, dataset])


def market(dataset):
    return Heston(**MARKET, v_vol=0.1 + 0.1 * dataset, scheme="paper")


def layer(seed):
    return RandomState(width=40, standardise=False, seed=seed)


SIZES = (10, 12, 14, 60)


@pytest.fixture
def together(device):
    data = [
        simulate_runs(market(i), MaxCall(100), GRID, paths=n, rngs=[rng(s, i) for s in SEEDS], device=device)
        for i, n in enumerate(SIZES)
    ]
    return data, RunStates(tuple(layer(seed) for seed in SEEDS)).fitted(data)


def alone(seed):
    data = [
        simulate(market(i), MaxCall(100), GRID, paths=n, rng=rng(seed, i), hidden=False) for i, n in enumerate(SIZES)
    ]
    return data, layer(seed).fitted(data)


def test_paths_and_features(together):
    data, state = together
    for run, seed in enumerate(SEEDS):
        mine, own = alone(seed)
        for stacked, single in zip(data, mine):
            assert (stacked.runs, single.runs, len(stacked)) == (len(SEEDS), None, len(single))
            np.testing.assert_allclose(stacked.fetched().prices[run], single.prices, rtol=1e-12)
            features = state.features(stacked, 2)[run]
            np.testing.assert_allclose(np.asarray(features), own.features(single, 2), rtol=1e-11, atol=1e-9)


def test_policies_and_cash_flows(together):
    data, state = together
    rule = {"in_the_money": False, "only_positive": False}
    policy = train(data, MODELS, state=state, **rule)
    flows, dates = policy.cash_flows(data[3])
    assert policy.names == tuple(model.name for model in MODELS)
    for run, seed in enumerate(SEEDS):
        mine, own = alone(seed)
        single = train(mine, MODELS, state=own, **rule)
        expected = single.cash_flows(mine[3])
        for date in range(1, GRID.n_dates):
            values = own.features(mine[0], date) @ np.stack([np.asarray(policy.coefs[date][run]), single.coefs[date]])
            np.testing.assert_allclose(values[0], values[1], rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(np.asarray(flows[run]), expected[0], rtol=1e-12)
        np.testing.assert_array_equal(np.asarray(dates[run]), expected[1])


def test_unsafe_transfer_is_left_to_the_general_solver(device):
    """Without any penalty the system may be singular: run by run then, with the same answer as one alone."""
    rng = np.random.default_rng(0)
    U, Y = rng.standard_normal((2, 5, 8)), rng.standard_normal((2, 5, 1))
    if device:
        torch = pytest.importorskip("torch")
        U, Y = torch.from_numpy(U), torch.from_numpy(Y)
    model = Transfer(PredictiveWeights(1.0), 1.0, 0.0, 0.0, 1, "RO")
    found = np.asarray(model.fit_runs(RunStage([U], [Y], 0), 0))
    for run in range(2):
        one = model.fit(Stage([np.asarray(U[run])], [np.asarray(Y[run])], 0), 0)
        np.testing.assert_allclose(found[run], one, rtol=1e-9)


def test_what_runs_at_once_cannot_do(together):
    data, state = together
    with pytest.raises(ParameterError, match="regress on all paths"):
        train(data, MODELS, state=state)
    with pytest.raises(ParameterError, match="there is no dataset 9; there are 4"):
        train(data, [Local(9, 1.0, "LO")], state=state, in_the_money=False)
    with pytest.raises(ParameterError, match=r"ridge 1e-18 is below the rounding error .* larger one"):
        train(data, [Local(0, 1e-18, "LO")], state=state, in_the_money=False)
    with pytest.raises(ParameterError, match="raw inputs"):
        RunStates((RandomState(width=3, seed=0),))


def test_processes_that_know_only_numpy_are_simulated_there(device):
    rough = RoughHeston(**MARKET, v_vol=0.2, hurst=0.1, substeps=2)
    found = simulate_runs(rough, MaxCall(100), GRID, paths=6, rngs=[rng(s, 0) for s in SEEDS], device=device)
    single = simulate(rough, MaxCall(100), GRID, paths=6, rng=rng(SEEDS[1], 0), hidden=False)
    np.testing.assert_allclose(found.fetched().prices[1], single.prices, rtol=1e-12)
    assert isinstance(found.prices, np.ndarray) == (device is None)
