"""A prior mean that depends on the domains' mean features, against plain regressions and made-up families."""

from __future__ import annotations

import numpy as np

from mixtune.selection._hierarchy import Context, Descriptions, Shrinkage, StackedMoments, learn_hierarchy
from selection.tasks import changed, sample_of

SPARSE = Shrinkage(zero=8.0, diagonal=30.0)


def family(count, *, strength, rows=60, seed=0):
    """Domains whose slope and level go with the mean of their one feature."""
    rng = np.random.default_rng(seed)
    tasks, heads = [], []
    for _ in range(count):
        middle = rng.standard_normal()
        head = np.array([2.0, 1.0]) + strength * middle * np.array([-1.0, 1.0]) + 0.1 * rng.standard_normal(2)
        x = middle + 0.5 * rng.standard_normal(rows)
        tasks.append(sample_of(x[:, None], head[0] * x + head[1] + 0.3 * rng.standard_normal(rows)))
        heads.append(head)
    return tasks, np.array(heads)


def learn(tasks):
    return Context.learn(tasks, StackedMoments.of(tasks), SPARSE)


def test_descriptions_have_order_one_and_shrink_where_rows_are_few():
    tasks, _ = family(40, strength=1.0)
    describe = Descriptions.of(tasks)
    found = np.stack([describe(task) for task in tasks])
    assert np.all(found[:, 0] == 1.0)
    assert 0.8 < found[:, 1].std() < 1.1
    few = tasks[0].part(slice(0, 2))
    whole = (few.center.features - describe.center) / np.sqrt(describe.between)
    assert abs(describe(few)[1]) < 0.95 * abs(whole[0])


def test_the_mean_follows_the_context():
    tasks, heads = family(48, strength=1.0)
    context = learn(tasks[8:])
    plain = learn_hierarchy(StackedMoments.of(tasks[8:]), SPARSE)
    found = [context.prior(task, np.ones(40)) for task in tasks[:8]]
    off = np.array([mean for _, mean, _ in found]) - heads[:8]
    assert np.mean(off**2) < 0.1 * np.mean((plain.mean - heads[:8]) ** 2)
    weights, _, covariance = found[0]
    assert np.trace(covariance) < 0.2 * np.trace(plain.covariance)
    np.testing.assert_allclose(weights.sum(), 1.0)
    assert np.all(weights >= 0)
    np.testing.assert_allclose(covariance, covariance.T)


def test_without_a_context_effect_it_is_the_common_mean():
    tasks, _ = family(40, strength=0.0)
    plain = learn_hierarchy(StackedMoments.of(tasks), SPARSE)
    _, mean, _ = learn(tasks).prior(tasks[0], np.ones(40))
    np.testing.assert_allclose(mean, plain.mean, atol=0.06)


def test_the_prediction_is_a_ridge_regression_of_the_heads():
    tasks, _ = family(12, strength=0.5)
    context = learn(tasks)
    allowed = np.ones(12)
    allowed[3] = 0.0
    _, mean, covariance = context.prior(tasks[3], allowed)
    kept, grown = allowed > 0, []
    X, described = context.design[kept], context.descriptions(tasks[3])
    for column, ridge in enumerate(context.ridges):
        penalty = np.diag([0.0, ridge])
        gamma = np.linalg.solve(X.T @ X + penalty, X.T @ context.hierarchy.heads[kept, column])
        np.testing.assert_allclose(mean[column], described @ gamma, rtol=1e-9)
        # As the variance of a new observation in any regression: 1 + leverage.
        grown.append(np.sqrt(1 + described @ np.linalg.solve(X.T @ X + penalty, described)))
    np.testing.assert_allclose(covariance, context.hierarchy.covariance * np.outer(grown, grown), rtol=1e-9)


def test_a_column_that_never_varies_tells_nothing():
    tasks, _ = family(12, strength=0.5)
    flat = [changed(t, X=np.column_stack([t.rows.X, np.ones(len(t.rows.y))])) for t in tasks]
    _, mean, covariance = learn(flat).prior(flat[0], np.ones(12))
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(covariance))
