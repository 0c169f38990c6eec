"""Leave-one-out and posteriors in closed form, against fits that are made again without each row."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune.moments import (
    Fit,
    LeaveOneOut,
    Moments,
    Rows,
    Sample,
    augmented,
    leave_one_out,
    left_out_residuals,
    own_center,
    posterior,
    recentred,
    roots_of,
)


def draw(n=9, p=3, outputs=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.5
    return X, X @ rng.standard_normal((p, outputs)) + rng.standard_normal((n, outputs))


def ridge_fit(X, Y, weight, ridge, *, prior=None):
    """Weighted ridge regression towards ``prior`` with a free intercept, by the normal equations."""
    total = weight.sum()
    xbar, ybar = weight @ X / total, weight @ Y / total
    U, V = X - xbar, Y - ybar
    prior = np.zeros((X.shape[1], Y.shape[1])) if prior is None else prior
    gram = (U * weight[:, None]).T @ U
    coef = prior + np.linalg.solve(gram + ridge * np.eye(len(gram)), (U * weight[:, None]).T @ (V - U @ prior))
    return coef, ybar - xbar @ coef


def fit_of(X, Y, weight, ridge, *, prior=None, share=1.0):
    moments = augmented(Rows(X, Y, weight))
    center = own_center(moments)
    coef, intercept = ridge_fit(X, Y, np.ones(len(X)) if weight is None else weight, ridge, prior=prior)
    return Fit(coef, intercept, recentred(moments, center).system, center, ridge, share)


@pytest.mark.parametrize("weights", [None, [1.0], [2.0, 1.0, 3.0], [0.5, 1.0]])
@pytest.mark.parametrize(("n", "p"), [(9, 3), (5, 8)])
def test_every_row_left_out_of_a_ridge_fit(n, p, weights):
    """A row of weight 3 loses one of its copies, a row of weight 0.5 goes altogether."""
    X, Y = draw(n, p)
    weight = None if weights is None else np.resize(weights, n)
    found = leave_one_out(Rows(X, Y, weight), fit_of(X, Y, weight, 0.7))
    s = np.ones(n) if weight is None else weight
    for i in range(n):
        left = s.copy()
        left[i] -= min(1.0, s[i])
        coef, intercept = ridge_fit(X, Y, left, 0.7)
        np.testing.assert_allclose(found.residuals[i], Y[i] - X[i] @ coef - intercept, rtol=1e-9)
        np.testing.assert_allclose(found.predictions[i], X[i] @ coef + intercept, rtol=1e-9)


@pytest.mark.parametrize(("n", "p"), [(9, 3), (5, 8)])
def test_the_prior_mean_loses_the_row_as_well(n, p):
    """The fit is drawn towards a head of the same rows, which is fitted again too."""
    X, Y = draw(n, p)
    head = fit_of(X, Y, None, 0.3)
    fit = fit_of(X, Y, None, 2.0, prior=head.coef)
    found = leave_one_out(Rows(X, Y), fit, head)
    for i in range(n):
        kept = np.arange(n) != i
        prior, _ = ridge_fit(X[kept], Y[kept], np.ones(n - 1), 0.3)
        coef, intercept = ridge_fit(X[kept], Y[kept], np.ones(n - 1), 2.0, prior=prior)
        np.testing.assert_allclose(found.residuals[i], Y[i] - X[i] @ coef - intercept, rtol=1e-8)


def test_without_a_ridge_columns_that_repeat_do_no_harm():
    X, Y = draw(12, 2)
    X = np.column_stack([X, X[:, 0]])
    moments = augmented(Rows(X, Y))
    center = own_center(moments)
    coef = np.linalg.lstsq(X - X.mean(axis=0), Y - Y.mean(axis=0), rcond=None)[0]
    fit = Fit(coef, Y.mean(axis=0) - X.mean(axis=0) @ coef, recentred(moments, center).system, center, 0.0, 1.0)
    found = leave_one_out(Rows(X, Y), fit)
    for i in range(12):
        kept = np.arange(12) != i
        A = np.column_stack([X[kept], np.ones(11)])
        head = np.linalg.lstsq(A, Y[kept], rcond=None)[0]
        np.testing.assert_allclose(found.residuals[i], Y[i] - np.append(X[i], 1.0) @ head, rtol=1e-6, atol=1e-9)


def test_rows_that_take_no_part_are_predicted_as_they_are():
    X, Y = draw()
    fit = fit_of(X, Y, None, 1.0, share=0.0)
    found = leave_one_out(Rows(X, Y), fit)
    np.testing.assert_allclose(found.predictions, fit.predict(X))
    np.testing.assert_array_equal(found.spreads, 1.0)


def test_a_row_that_decides_alone_is_infinite():
    X = np.array([[0.0], [0.0], [1.0]])
    found = leave_one_out(
        Rows(X, np.array([[1.0], [2.0], [3.0]])), fit_of(X, np.array([[1.0], [2.0], [3.0]]), None, 1e-14)
    )
    assert np.isinf(found.residuals[2, 0])
    assert np.all(np.isfinite(found.residuals[:2]))


@pytest.mark.parametrize(("n", "p"), [(9, 3), (5, 8)])
def test_the_posterior_is_the_leverage_of_a_new_row(n, p):
    X, Y = draw(n, p)
    fit = fit_of(X, Y, None, 0.7)
    new = np.random.default_rng(1).standard_normal((4, p))
    U = X - X.mean(axis=0)
    G = np.linalg.inv(U.T @ U + 0.7 * np.eye(p))
    V = new - X.mean(axis=0)
    np.testing.assert_allclose(posterior(fit).spread(new), 1 + 1 / n + np.sum(V @ G * V, axis=1), rtol=1e-8)
    left_out = leave_one_out(Rows(X, Y), fit)
    leverage = 1 / n + np.sum(U @ G * U, axis=1)
    np.testing.assert_allclose(left_out.spreads, 1 + leverage / (1 - leverage), rtol=1e-8)
    np.testing.assert_allclose(left_out.noise, np.mean(left_out.residuals**2 / left_out.spreads[:, None], axis=0))
    assert left_out.error == pytest.approx(np.mean(left_out.residuals**2))


def test_roots_of_covariances():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2, 4, 3))
    S = A @ A.transpose(0, 2, 1)  # singular
    roots = roots_of(S)
    np.testing.assert_allclose(roots @ roots.transpose(0, 2, 1), S, atol=1e-12)


def test_samples_with_targets_in_other_units():
    X, Y = draw(outputs=1)
    sample = Sample.of(Rows(X, Y[:, 0]))
    found = sample.divided(4.0)
    np.testing.assert_allclose(found.rows.y, Y[:, 0] / 4)
    np.testing.assert_allclose(found.moments.cross, sample.moments.cross / 4)
    assert float(found.moments.square) == pytest.approx(np.sum((Y / 4) ** 2))


@pytest.mark.parametrize("first", [None, [1.0, 2.0]])
@pytest.mark.parametrize("second", [None, [3.0]])
def test_joined_rows(first, second):
    one = Rows(np.ones((2, 1)), np.array([1.0, 2.0]), None if first is None else np.array(first))
    other = Rows(np.zeros((1, 1)), np.array([3.0]), None if second is None else np.array(second))
    found = one.joined(other)
    np.testing.assert_array_equal(found.y, [1, 2, 3])
    np.testing.assert_array_equal(found.weight, [*(first or [1, 1]), *(second or [1])])
    assert (found.sample_weight is None) == (first is None and second is None)


def test_some_features_of_moments():
    X, Y = draw(9, 4)
    for moments in (Moments.from_rows(X, Y), Moments.from_rows(X[:3], Y[:3])):
        n = moments.count
        found = moments.selected(np.array([2, 0]))
        np.testing.assert_allclose(found.gram, X[:n, [2, 0]].T @ X[:n, [2, 0]])
        np.testing.assert_allclose(found.cross, X[:n, [2, 0]].T @ Y[:n])


def test_an_infinite_ridge_is_the_limit_of_large_ones():
    """The coefficients stay at those of the focal head, which loses the row; only the intercept is fitted."""
    X, Y = draw(9, 3)
    head = fit_of(X, Y, None, 0.3)
    large, infinite = (
        Fit(head.coef, fit.intercept, fit.system, fit.center, ridge, 1.0)
        for fit in [fit_of(X, Y, None, 1e9, prior=head.coef)]
        for ridge in (1e9, np.inf)
    )
    found, limit = leave_one_out(Rows(X, Y), infinite, head), leave_one_out(Rows(X, Y), large, head)
    np.testing.assert_allclose(found.residuals, limit.residuals, rtol=1e-6)
    np.testing.assert_allclose(found.spreads, limit.spreads, rtol=1e-6)
    plain = leave_one_out(Rows(X, Y), infinite)
    np.testing.assert_allclose(plain.residuals, (Y - infinite.predict(X)) / (1 - 1 / 9), rtol=1e-9)
    np.testing.assert_allclose(posterior(infinite).spread(X[:2]), 1 + 1 / 9)


def test_the_posterior_without_a_share_or_a_ridge():
    X, Y = draw(5, 8)
    nothing = posterior(fit_of(X, Y, None, 0.7, share=0.0))
    np.testing.assert_array_equal(nothing.spread(X), 1.0)
    U = X - X.mean(axis=0)
    without = posterior(Fit(np.zeros((8, 2)), np.zeros(2), *_system_of(X, Y), 0.0, 0.5))
    leverage = 1 / 5 + np.sum(U @ np.linalg.pinv(U.T @ U) * U, axis=1)
    np.testing.assert_allclose(without.spread(X), 1 + 0.5 * leverage, rtol=1e-8)
    off = np.linalg.svd(U)[2][-1]  # a direction that no row has
    np.testing.assert_allclose(without.spread(X[:1] + 5 * off), 1 + 0.5 * leverage[:1], rtol=1e-8)


def _system_of(X, Y):
    moments = augmented(Rows(X, Y))
    center = own_center(moments)
    return recentred(moments, center).system, center


def test_averages_count_rows_by_their_weight():
    found = LeaveOneOut(np.zeros((2, 1)), np.array([[1.0], [3.0]]), np.array([1.0, 2.0]), np.array([3.0, 0.5]))
    assert found.error == pytest.approx((3 * 1 + 0.5 * 9) / 3.5)
    np.testing.assert_allclose(found.noise, [(3 * 1 + 0.5 * 9 / 2) / 3.5])
    assert found.copies.tolist() == [3.0, 1.0]


def test_rows_of_leverage_one_say_nothing():
    found = left_out_residuals(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 1.0 - 5e-10]))
    assert found.tolist() == [2.0, np.inf, np.inf]
    assert np.isfinite(left_out_residuals(np.ones(1), np.array([1.0 - 2e-9]))[0])
