"""Ridge paths around priors against scikit-learn, the normal equations, and refits without each row."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from mixtune.selection import Task
from mixtune.selection._task import Paths, dual_paths, primal_paths
from selection.tasks import left_out_by_refitting, make_task, posterior_mean

SCALES = np.array([0.02, 0.5, 3.0])


def random_prior(rng, width):
    root = rng.standard_normal((width, width))
    return rng.standard_normal(width), root @ root.T + 0.3 * np.eye(width)


@pytest.mark.parametrize("shape", [(12, 3), (5, 9)])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_of_scikit_learn(shape, intercept):
    rng = np.random.default_rng(0)
    task = make_task(rng, *shape, weights=[0.5, 1.0, 3.0], intercept=intercept)
    rows, width = task.centred, shape[1]
    ridges = np.array([0.1, 2.0, 50.0])
    duals, dual_leverages = dual_paths(rows, np.zeros(len(rows.y)), rows.kernel, 1.0, 1 / ridges)
    for heads, leverages in (
        primal_paths(rows, np.zeros((1, width)), np.eye(width)[None], 1.0, 1 / ridges),
        (duals.T @ rows.design, dual_leverages),
    ):
        paths = Paths.of(task, heads, leverages, free_intercept=True)
        for head, ridge in zip(paths.heads, ridges):
            model = Ridge(alpha=ridge, fit_intercept=intercept)
            model.fit(task.design[:, 1:] if intercept else task.design, task.y, sample_weight=task.weight)
            expected = np.concatenate([[model.intercept_], model.coef_]) if intercept else model.coef_
            np.testing.assert_allclose(head, expected, atol=1e-10)


@pytest.mark.parametrize("shape", [(12, 3), (6, 9)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("free", [True, False])
def test_left_out_rows_by_refitting(shape, intercept, free):
    """Weight 3 means three copies, of which one goes; a row of weight 0.5 goes as a whole."""
    rng = np.random.default_rng(1)
    task = make_task(rng, *shape, weights=[0.5, 1.0, 3.0], intercept=intercept)
    rows = task.centred if free else task
    mean, covariance = random_prior(rng, rows.design.shape[1])
    noise = 0.7
    primal = primal_paths(rows, mean[None], np.linalg.cholesky(covariance)[None], noise, SCALES)
    spread = covariance @ rows.design.T
    duals, leverages = dual_paths(rows, rows.design @ mean, rows.design @ spread, noise, SCALES)
    for mine, other in zip(primal, (mean + (spread @ duals).T, leverages)):
        np.testing.assert_allclose(mine, other, atol=1e-9)
    paths = Paths.of(task, *primal, free_intercept=free)
    for q, head, left_out in zip(SCALES, paths.heads, paths.left_out):

        def fit(part, q=q):
            return posterior_mean(part, mean, q * covariance, noise, free_intercept=free)

        np.testing.assert_allclose(head, fit(task), atol=1e-8)
        np.testing.assert_allclose(left_out, left_out_by_refitting(task, fit), atol=1e-7)


def test_several_priors_at_once():
    rng = np.random.default_rng(2)
    task = make_task(rng, 8, 2)
    priors = [random_prior(rng, 3) for _ in range(4)]
    means, factors = np.stack([m for m, _ in priors]), np.stack([np.linalg.cholesky(S) for _, S in priors])
    heads, leverages = primal_paths(task, means, factors, 0.5, SCALES)
    for k in range(4):
        one = primal_paths(task, means[k : k + 1], factors[k : k + 1], 0.5, SCALES)
        np.testing.assert_allclose(heads[3 * k : 3 * k + 3], one[0])
        np.testing.assert_allclose(leverages[3 * k : 3 * k + 3], one[1])


def test_a_row_that_alone_decides_cannot_be_left_out():
    task = Task(np.ones((1, 1)), np.array([2.0]), np.ones(1), True)
    paths = Paths.of(task, np.zeros((1, 0)), np.zeros((1, 1)), free_intercept=True)
    assert paths.heads.tolist() == [[2.0]]
    assert paths.left_out.tolist() == [[np.inf]]
    twice = Task(np.ones((1, 1)), np.array([2.0]), np.full(1, 2.0), True)
    assert Paths.of(twice, np.zeros((1, 0)), np.zeros((1, 1)), free_intercept=True).left_out.tolist() == [[0.0]]


@pytest.mark.parametrize("intercept", [True, False])
def test_judging_some_rows_with_the_sums_of_all(intercept):
    rng = np.random.default_rng(3)
    task = make_task(rng, 30, 4, weights=[0.5, 1.0, 2.0], intercept=intercept)
    index = np.array([3, 7, 20])
    some = task.judged(index)
    assert (some.rows, len(some.y), some.count) == (30, 3, task.count)
    heads = rng.standard_normal((2, task.design.shape[1]))
    expected = [np.average((task.y - task.design @ head) ** 2, weights=task.weight) for head in heads]
    np.testing.assert_allclose(task.mean_squares(heads), expected)
    np.testing.assert_allclose(some.mean_squares(heads), expected)
    for free in (True, False):
        whole_rows, some_rows = (t.centred if free else t for t in (task, some))
        assert some_rows.rows == 30
        width = whole_rows.design.shape[1]
        factor = np.eye(width)[None]
        whole, part = (
            Paths.of(t, *primal_paths(rows, np.ones((1, width)), factor, 1.0, SCALES), free_intercept=free)
            for t, rows in ((task, whole_rows), (some, some_rows))
        )
        np.testing.assert_allclose(part.heads, whole.heads, atol=1e-12)
        np.testing.assert_allclose(part.left_out, whole.left_out[:, index], atol=1e-12)
        np.testing.assert_allclose(part.leverages, whole.leverages[:, index], atol=1e-12)


def test_sums_of_weighted_rows_are_those_of_repeated_rows():
    rng = np.random.default_rng(4)
    once = make_task(rng, 10, 2, weights=[1.0, 2.0, 3.0])
    again = np.repeat(np.arange(10), once.weight.astype(int))
    copies = Task(once.design[again], once.y[again], np.ones(len(again)), True)
    for name in ("gram", "cross", "square", "count"):
        np.testing.assert_allclose(getattr(once, name), getattr(copies, name))
    np.testing.assert_allclose(once.center[0], copies.center[0])
    np.testing.assert_allclose(once.error(once.y), copies.error(copies.y))
