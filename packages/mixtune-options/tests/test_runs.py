"""Several runs at once: every run gets what it gets alone."""

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune.weights import EqualWeights, PredictiveWeights
from mixtune_options import Heston, MaxCall, RoughHeston, TimeGrid, simulate
from mixtune_options.training import (
    Joint,
    Local,
    MeanOfLocals,
    RandomState,
    RunStage,
    RunStates,
    Stage,
    Transfer,
    TunedJoint,
    TunedLocal,
    TunedTransfer,
    simulate_runs,
    train,
)

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
    TunedJoint((0, 1, 2), "JO (tuned)"),  # fewer rows than features
    TunedJoint((3, 0), "JSO (tuned)"),  # more
    TunedTransfer(),  # one run after the other: datasets have different numbers of rows
]
#: Those that stop focal paths by fits without them.
TUNED = [TunedJoint((0,), "LO (tuned)"), TunedJoint((0, 2), "JSO (tuned)"), TunedTransfer()]


@pytest.fixture(params=[None, "cpu"], ids=["numpy", "torch"])
def device(request):
    if request.param is not None:
        pytest.importorskip("torch")
    return request.param


def rng(seed, dataset):
    return np.random.default_rng([seed, dataset])


def market(dataset):
    return Heston(**MARKET, v_vol=0.1 + 0.1 * dataset, scheme="paper")


def layer(seed, *, standardise=False):
    return RandomState(width=40, standardise=standardise, seed=seed)


SIZES = (10, 12, 14, 60)


def draw_together(device, sizes=SIZES, *, standardise=False):
    data = [
        simulate_runs(market(i), MaxCall(100), GRID, paths=n, rngs=[rng(s, i) for s in SEEDS], device=device)
        for i, n in enumerate(sizes)
    ]
    return data, RunStates(tuple(layer(seed, standardise=standardise) for seed in SEEDS)).fitted(data)


@pytest.fixture
def together(device):
    return draw_together(device)


def alone(seed, sizes=SIZES, *, standardise=False):
    data = [
        simulate(market(i), MaxCall(100), GRID, paths=n, rng=rng(seed, i), hidden=False) for i, n in enumerate(sizes)
    ]
    return data, layer(seed, standardise=standardise).fitted(data)


@pytest.mark.parametrize("standardise", [False, True])
def test_paths_and_features(device, standardise):
    data, state = draw_together(device, standardise=standardise)
    for run, seed in enumerate(SEEDS):
        mine, own = alone(seed, standardise=standardise)
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


@pytest.mark.parametrize("run_by_run", [False, True])
def test_focal_paths_are_stopped_by_fits_without_them(device, run_by_run, monkeypatch):
    sizes = (16,) * 6
    if run_by_run:
        monkeypatch.setattr(RunStage, "fit_side_by_side", lambda *args: None)
    elif device is not None:  # all is done on the device
        monkeypatch.setattr(RunStage, "single_runs", property(lambda stage: pytest.fail("runs were fitted one by one")))
    data, state = draw_together(device, sizes, standardise=True)
    policy = train(data, TUNED, state=state, in_the_money=False)
    for run, seed in enumerate(SEEDS):
        mine, own = alone(seed, sizes, standardise=True)
        single = train(mine, TUNED, state=own, in_the_money=False)
        for date in range(1, GRID.n_dates):
            found = np.asarray(policy.coefs[date][run])
            scale = np.max(np.abs(single.coefs[date]), axis=0)
            np.testing.assert_allclose(found / scale, single.coefs[date] / scale, rtol=0, atol=1e-8)


def stage_of(*columns, constant=3.0, width=50):
    """A stage of two runs and four datasets, with a constant at these places of its features, one in each run."""
    rng = np.random.default_rng(0)
    U, y = rng.standard_normal((4, 2, 8, width)), rng.standard_normal((4, 2, 8, 1))
    for run, place in enumerate(columns):
        U[:, run, :, place] = constant
    torch = pytest.importorskip("torch")
    return RunStage(list(map(torch.from_numpy, U)), list(map(torch.from_numpy, y)), focal=1)


@pytest.mark.parametrize("model", [TunedTransfer(), TunedJoint((3, 1), "JSO")])
@pytest.mark.parametrize("places", [(7, 7), (0, 3), ()])
def test_any_feature_may_be_the_constant(model, places):
    """Where it is another one in each run, or there is none, runs are fitted one by one."""
    stage = stage_of(*places)
    assert stage.constant == (7 if places == (7, 7) else None)
    found = model.fit_runs(stage, 0).numpy()
    for run, single in enumerate(stage.single_runs):
        expected = model.fit(single, 0)
        np.testing.assert_allclose(found[run], expected, rtol=0, atol=1e-9 * np.max(np.abs(expected)))
        np.testing.assert_allclose(stage.left_out[0][run], single.left_out[0], rtol=1e-8)


def test_very_many_features_are_left_to_the_estimator():
    """It works in their principal directions."""
    stage = stage_of(7, 7, width=514)
    found = TunedTransfer().fit_runs(stage, 0).numpy()
    for run, single in enumerate(stage.single_runs):
        np.testing.assert_allclose(found[run], TunedTransfer().fit(single, 0), rtol=1e-9)


def test_a_row_that_alone_has_a_feature_is_left_out_as_alone():
    """Its own prediction is decided by itself, unless the ridge is large enough."""
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(0)
    U, y = rng.standard_normal((2, 2, 30, 3)), rng.standard_normal((2, 2, 30, 1))
    U[..., 2] = 0.0
    U[0, :, 0, 2] = 1.0
    stage = RunStage(list(map(torch.from_numpy, U)), list(map(torch.from_numpy, y)), focal=0)
    model = TunedJoint((0, 1), "JO")
    found = model.fit_runs(stage, 0).numpy()
    for run, single in enumerate(stage.single_runs):
        np.testing.assert_allclose(found[run], model.fit(single, 0), rtol=1e-9)
        np.testing.assert_allclose(stage.left_out[0][run], single.left_out[0], rtol=1e-8)


def test_a_feature_of_zeros_is_no_constant():
    assert stage_of(2, 2, constant=0.0).constant is None


def test_runs_without_a_factor_are_fitted_one_by_one():
    torch = pytest.importorskip("torch")

    def learn(U, y):
        raise torch.linalg.LinAlgError("not positive definite")

    assert stage_of(7, 7).fit_side_by_side(0, range(4), learn) is None


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
    with pytest.raises(ParameterError, match="subset must list the focal dataset 0 and others below 4"):
        train(data, [TunedJoint((1,), "JSO")], state=state, in_the_money=False)


def test_processes_that_know_only_numpy_are_simulated_there(device):
    rough = RoughHeston(**MARKET, v_vol=0.2, hurst=0.1, substeps=2)
    found = simulate_runs(rough, MaxCall(100), GRID, paths=6, rngs=[rng(s, 0) for s in SEEDS], device=device)
    single = simulate(rough, MaxCall(100), GRID, paths=6, rng=rng(SEEDS[1], 0), hidden=False)
    np.testing.assert_allclose(found.fetched().prices[1], single.prices, rtol=1e-12)
    assert isinstance(found.prices, np.ndarray) == (device is None)
