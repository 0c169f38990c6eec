"""Self-tuning continuation models against the estimators they ask, and against plain ridge regression."""

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune.estimators import JointRegressor, RegretOptimalRegressorCV
from mixtune_options.training import (
    ContinuationModel,
    Local,
    PathData,
    RandomState,
    Stage,
    TunedJoint,
    TunedTransfer,
    train,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def make_stage(rng, *, constant=1.0, rows=(15, 40, 40, 40), focal=0):
    """Features with a constant last (unless it is None), values of two models."""
    head = rng.standard_normal((4, 2))
    features = [rng.standard_normal((n, 4)) * [1.0, 5.0, 0.1, 1.0] for n in rows]
    values = [3.0 + U @ head + 0.3 * rng.standard_normal((len(U), 2)) for U in features]
    if constant is not None:
        features = [np.column_stack([U, np.full(len(U), constant)]) for U in features]
    return Stage(features, values, focal)


@pytest.mark.parametrize("constant", [1.0, 0.1])
def test_transfer_is_the_estimator(rng, constant):
    stage = make_stage(rng, constant=constant)
    coef = TunedTransfer().fit(stage, 1)
    rows = [(U[:, :-1], Y[:, 1]) for U, Y in zip(stage.features, stage.values)]
    model = RegretOptimalRegressorCV(feature_map=None, clamp=False).fit(
        *rows[0], sources={str(i): rows[i] for i in (1, 2, 3)}
    )
    np.testing.assert_allclose(stage.features[2] @ coef, model.predict(rows[2][0]), rtol=1e-9)
    np.testing.assert_allclose(stage.left_out[1], model.loo_predictions_, rtol=1e-9)


def test_without_a_constant_there_is_no_intercept(rng):
    stage = make_stage(rng, constant=None)
    coef = TunedTransfer().fit(stage, 0)
    rows = [(U, Y[:, 0]) for U, Y in zip(stage.features, stage.values)]
    model = RegretOptimalRegressorCV(feature_map=None, clamp=False, fit_intercept=False)
    model.fit(*rows[0], sources={str(i): rows[i] for i in (1, 2, 3)})
    np.testing.assert_allclose(coef, model.coef_)


def test_joint_pools_what_it_is_told_to(rng):
    stage = make_stage(rng, focal=1)
    coef = TunedJoint((1, 3), "JSO").fit(stage, 0)
    rows = [(U[:, :-1], Y[:, 0]) for U, Y in zip(stage.features, stage.values)]
    model = JointRegressor(ridge="loo").fit(*rows[1], sources={"d": rows[3]})
    np.testing.assert_allclose(stage.features[0] @ coef, model.predict(rows[0][0]), rtol=1e-9)
    stage.values[2] += 100.0
    np.testing.assert_array_equal(TunedJoint((1, 3), "JSO").fit(stage, 0), coef)


@pytest.mark.parametrize("subset", [(1, 2), (0, 9), (0, -1)])
def test_a_subset_without_the_focal_dataset_or_with_an_unknown_one_is_refused(rng, subset):
    with pytest.raises(ParameterError, match="subset must list the focal dataset 0 and others below 4"):
        TunedJoint(subset, "JSO").fit(make_stage(rng), 0)


def test_policies_ignore_a_misleading_market(rng):
    """A put on a martingale: sources alike help, one with values ten times as high does no harm."""

    def paths(name, count, factor=1.0):
        steps = 0.1 * rng.standard_normal((count, 4)) - 0.005
        prices = np.exp(np.concatenate([np.zeros((count, 1)), np.cumsum(steps, axis=1)], axis=1))[:, :, None]
        return PathData(name, prices, factor * np.maximum(1.05 - prices[:, :, 0], 0.0))

    data = [paths("focal", 25), paths("a", 60), paths("b", 60), paths("wild", 60, 10.0)]
    state = RandomState(width=30, seed=0).fitted(data)
    models = [TunedTransfer(), Local(0, 1e-6, "overfitted")]
    policy = train(data, models, state=state, in_the_money=False)
    flows, _ = policy.cash_flows(paths("fresh", 4000))
    ours, overfitted = flows.mean(axis=0)
    assert policy.names == ("RO (tuned)", "overfitted")
    assert ours > overfitted


class Given(ContinuationModel):
    """Predicts the mean; the focal rows, left out, get this value."""

    def __init__(self, name, left_out=None):
        self.name, self.left_out, self.seen = name, left_out, []

    def fit(self, stage, model):
        if self.left_out is not None:
            stage.left_out[model] = np.full(len(stage.values[stage.focal]), self.left_out)
        mean = stage.values[0][:, model].mean()
        self.seen.append(mean)
        return np.linalg.lstsq(stage.features[0], np.full(len(stage.features[0]), mean), rcond=None)[0]


def test_focal_paths_stop_by_fits_without_them(rng):
    prices = np.exp(0.2 * rng.standard_normal((50, 4, 1)).cumsum(axis=1))
    data = [PathData("focal", prices, np.maximum(prices[:, :, 0] - 1.0, 0.0))]
    state = RandomState(width=5, seed=0).fitted(data)
    models = [Given("plain"), Given("never", 1e9), Given("unknown", np.inf)]
    train(data, models, state=state, in_the_money=False)
    last = data[0].payoffs[:, -1].mean()
    plain, never, unknown = (model.seen for model in models)
    assert never == pytest.approx([last] * len(never))
    assert plain[0] == pytest.approx(last)
    assert plain[1] != pytest.approx(last)
    assert unknown == plain
