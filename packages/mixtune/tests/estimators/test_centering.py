"""Recentring by linear algebra against its slow twin: rows that are moved themselves."""

import numpy as np
import pytest

from mixtune import Moments
from mixtune.moments import Rows, augmented, common_center, no_center, own_center, recentred


def make(seed, n, p, outputs, weighted):
    rng = np.random.default_rng(seed)
    shape = (n,) if outputs is None else (n, outputs)
    weight = rng.uniform(0.1, 3.0, n) if weighted else None
    return Rows(rng.standard_normal((n, p)) + 2.0, rng.standard_normal(shape) - 5.0, weight)


def moved(rows, center):
    """Moments of rows moved to the center, each scaled by the root of its weight."""
    root = np.sqrt(rows.weight)
    return Moments.from_rows(root[:, None] * (rows.X - center.features), ((rows.y - center.targets).T * root).T)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [None, 1, 3])
@pytest.mark.parametrize("n", [1, 4, 5, 30])
def test_recentred_is_what_moving_rows_gives(n, outputs, weighted):
    rows = make(0, n, 4, outputs, weighted)
    moments = augmented(rows)
    own = own_center(moments)
    np.testing.assert_allclose(own.features, np.average(rows.X, axis=0, weights=rows.weight))
    np.testing.assert_allclose(own.targets, np.average(rows.y, axis=0, weights=rows.weight))
    assert own.total == pytest.approx(rows.weight.sum())
    elsewhere = own_center(augmented(make(1, 7, 4, outputs, weighted)))
    for center in (own, elsewhere, no_center(moments)):
        fast, slow = recentred(moments, center), moved(rows, center)
        np.testing.assert_allclose(fast.gram, slow.gram, atol=1e-11)
        np.testing.assert_allclose(fast.cross, slow.cross, atol=1e-11)
        np.testing.assert_allclose(fast.square, slow.square, atol=1e-11)
        assert fast.count == n
        assert fast.single_output == (outputs is None)


def test_the_common_center_is_the_weighted_mean_of_all_rows():
    parts = [make(seed, n, 3, None, True) for seed, n in enumerate((2, 9, 5))]
    weights = np.array([0.5, 0.3, 0.0])
    center = common_center([augmented(rows) for rows in parts], weights)
    each = np.concatenate([w * rows.weight for rows, w in zip(parts, weights)])
    np.testing.assert_allclose(center.features, np.average(np.concatenate([r.X for r in parts]), axis=0, weights=each))
    np.testing.assert_allclose(center.targets, np.average(np.concatenate([r.y for r in parts]), axis=0, weights=each))
    assert center.total == pytest.approx(each.sum())


def test_the_centred_problem_is_the_augmented_one_without_a_penalty_on_the_constant():
    parts, weights, ridge = [make(seed, 12, 3, 2, True) for seed in range(3)], np.array([0.2, 0.5, 0.3]), 0.7
    moments = [augmented(rows) for rows in parts]
    penalty = ridge * np.diag([1.0, 1.0, 1.0, 0.0])
    gram = sum(w * m.gram for w, m in zip(weights, moments))
    full = np.linalg.solve(gram + penalty, sum(w * m.cross for w, m in zip(weights, moments)))
    center = common_center(moments, weights)
    inner = [recentred(m, center) for m in moments]
    gram = sum(w * m.gram for w, m in zip(weights, inner))
    coef = np.linalg.solve(gram + ridge * np.eye(3), sum(w * m.cross for w, m in zip(weights, inner)))
    np.testing.assert_allclose(coef, full[:-1])
    np.testing.assert_allclose(center.intercept(coef), full[-1])


def test_few_rows_stay_rows():
    moments = recentred(augmented(make(0, 3, 50, None, False)), no_center(augmented(make(0, 3, 50, None, False))))
    assert moments.rows is not None
