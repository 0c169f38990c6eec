"""Self-tuning continuation models against the estimators they ask, and against plain ridge regression."""

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune.estimators import JointRegressor, RegretOptimalRegressorCV
from mixtune.options.training import Local, PathData, RandomState, Stage, TunedJoint, TunedTransfer, train


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
