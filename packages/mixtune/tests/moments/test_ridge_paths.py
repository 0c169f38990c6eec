"""Ridge paths around priors against scikit-learn, the normal equations, and refits without each row."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from choice.tasks import left_out_by_refitting, make_task, posterior_mean, sample_of
from mixtune.moments import (
    GramSystem,
    Regression,
    Rows,
    RowSystem,
    Sample,
    best_ridge,
    lower_root,
    ridge_heads,
    roots_of,
)

SCALES = np.array([0.02, 0.5, 3.0])


def random_prior(rng, width):
    root = rng.standard_normal((width, width))
    return rng.standard_normal(width), root @ root.T + 0.3 * np.eye(width)


def both_forms(regression):
    """The same problem through p x p and through n x n matrices."""
    rows, root = regression.rows, np.sqrt(regression.rows.weight)
    U, y = rows.X * root[:, None], (rows.y * root)[:, None]
    forms = GramSystem(U.T @ U, U.T @ y, np.sum(y**2, axis=0)), RowSystem(U, y)
    return [Regression(system, rows, regression.total, regression.center) for system in forms]


@pytest.mark.parametrize("shape", [(12, 3), (5, 9)])
@pytest.mark.parametrize("intercept", [True, False])
def test_ridge_of_scikit_learn(shape, intercept):
    rng = np.random.default_rng(0)
    sample = make_task(rng, *shape, weights=[0.5, 1.0, 3.0], intercept=intercept)
    ridges = np.array([0.1, 2.0, 50.0])
    assert sample.free.wide == (shape == (5, 9))
    for regression in (sample.free, *both_forms(sample.free)):
        paths = regression.ridge_path(ridges)
        for head, ridge in zip(paths.heads, ridges):
            model = Ridge(alpha=ridge, fit_intercept=intercept)
            model.fit(sample.rows.X, sample.rows.y, sample_weight=sample.rows.weight)
            expected = np.append(model.coef_, model.intercept_) if intercept else model.coef_
            np.testing.assert_allclose(head, expected, atol=1e-10)


@pytest.mark.parametrize("shape", [(30, 6), (9, 12), (12, 1), (1, 3)])
@pytest.mark.parametrize("intercept", [True, False])
def test_generalised_cross_validation_without_a_spectrum(shape, intercept):
    regression = make_task(np.random.default_rng(5), *shape, intercept=intercept).free
    ridges = np.logspace(-3, 2, 9) * regression.mean_eigenvalue
    errors, _, _ = regression.generalised_errors(ridges)
    error, head = regression.generalised_fit(ridges, 1e-12)
    assert error == pytest.approx(np.maximum(errors, 1e-12).min(), rel=1e-9)
    values, vectors = regression.spectrum
    best = ridges[best_ridge(ridges, np.maximum(errors, 1e-12))]
    np.testing.assert_allclose(head, vectors @ (vectors.T @ regression.cross / (values + best)), atol=1e-10)


@pytest.mark.parametrize("size", [1, 6])
def test_ridge_heads_from_sums(size):
    rng = np.random.default_rng(0)
    U, y, ridges = rng.standard_normal((20, size)), rng.standard_normal(20), np.array([0.1, 1.0, 30.0])
    expected = [np.linalg.solve(U.T @ U + ridge * np.eye(size), U.T @ y) for ridge in ridges]
    np.testing.assert_allclose(ridge_heads(U.T @ U, U.T @ y, ridges), expected)


def test_few_rows_of_a_large_problem_are_left_out_as_all_rows_are():
    rng = np.random.default_rng(3)
    task = make_task(rng, 40, 12, weights=[0.5, 1.0, 3.0])
    few = task.judged(slice(4)).free
    mean, covariance = random_prior(rng, 12)
    kernel = few.design @ covariance @ few.design.T
    found = few.dual_path(few.design @ mean, np.array(kernel), 0.7, SCALES)
    whole = task.free.dual_path(few.design @ mean, np.array(kernel), 0.7, SCALES)
    np.testing.assert_allclose(found[0], whole[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found[1], whole[1][:, :4], rtol=1e-8)


@pytest.mark.parametrize("noise", [0.7, 1e-9])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_few_inverses_are_what_a_spectrum_says(noise, order):
    rng = np.random.default_rng(4)
    task = make_task(rng, 8, 12, weights=[0.5, 1.0, 3.0]).free
    assert task.wide
    mean, covariance = random_prior(rng, 12)
    spread = task.design @ covariance @ task.design.T
    kernel = np.array((spread + spread.T) / 2, order=order)
    found = task.dual_path(task.design @ mean, np.array(kernel), noise, SCALES)
    # So many scales are worth a spectrum.
    many = np.append(SCALES, np.geomspace(0.01, 10.0, 30))
    expected = task.dual_path(task.design @ mean, np.array(kernel), noise, many)
    for mine, other in zip(found, expected):
        np.testing.assert_allclose(mine, other[:3], rtol=1e-9, atol=1e-12)


def test_few_columns_are_added_to_a_kernel_through_its_spectrum():
    rng = np.random.default_rng(6)
    task = make_task(rng, 20, 30, weights=[0.5, 1.0, 3.0]).free
    fitted, added = rng.standard_normal(20), rng.standard_normal((20, 3))
    kernel = 0.3 * task.kernel + added @ added.T
    found = task.updated_path(0.3, added, fitted, kernel, 0.7, SCALES)
    for mine, other in zip(found, task.dual_path(fitted, np.array(kernel), 0.7, SCALES)):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)
    # Not where noise is close to rounding, where columns are many, and where rows are more than features.
    assert task.updated_path(0.3, added, fitted, kernel, 1e-9, SCALES) is None
    many = rng.standard_normal((20, 10))
    assert task.updated_path(0.3, many, fitted, kernel, 0.7, SCALES) is None
    tall = make_task(rng, 20, 5).free
    assert tall.updated_path(0.3, added[:5, :1], fitted[:5], kernel[:5, :5], 0.7, SCALES) is None


def test_a_root_of_what_rounding_leaves_indefinite():
    root = lower_root(np.ones((3, 3)))
    np.testing.assert_allclose(np.tril(root) @ np.tril(root).T, np.ones((3, 3)), atol=1e-9)
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        lower_root(np.diag([1.0, -1.0]))


@pytest.mark.parametrize("shape", [(12, 3), (6, 9)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("free", [True, False])
def test_left_out_rows_by_refitting(shape, intercept, free):
    """Weight 3 means three copies, of which one goes; a row of weight 0.5 goes as a whole."""
    rng = np.random.default_rng(1)
    sample = make_task(rng, *shape, weights=[0.5, 1.0, 3.0], intercept=intercept)
    primal, dual = both_forms(sample.free if free else sample.full)
    mean, covariance = random_prior(rng, primal.width)
    noise = 0.7
    found = primal.prior_paths(mean[None], np.linalg.cholesky(covariance)[None], noise, SCALES)
    spread = covariance @ dual.design.T
    duals, leverages = dual.dual_path(dual.design @ mean, dual.design @ spread, noise, SCALES)
    for mine, other in zip(found, (mean + duals @ spread.T, leverages)):
        np.testing.assert_allclose(mine, other, atol=1e-9)
    # At most p rows with the same sums serve as well as all rows.
    spread = covariance @ primal.design.T
    duals, leverages = primal.dual_path(primal.design @ mean, primal.design @ spread, noise, SCALES)
    for mine, other in zip(found, (mean + duals @ spread.T, leverages)):
        np.testing.assert_allclose(mine, other, atol=1e-9)
    paths = primal.finish(*found)
    for q, head, left_out in zip(SCALES, paths.heads, paths.left_out):

        def fit(part, q=q):
            return posterior_mean(part, mean, q * covariance, noise, free_intercept=free)

        np.testing.assert_allclose(head, fit(sample), atol=1e-8)
        np.testing.assert_allclose(left_out, left_out_by_refitting(sample, fit), atol=1e-7)


def test_several_priors_at_once():
    rng = np.random.default_rng(2)
    regression = make_task(rng, 8, 2).full
    priors = [random_prior(rng, 3) for _ in range(4)]
    means, factors = np.stack([m for m, _ in priors]), np.stack([np.linalg.cholesky(S) for _, S in priors])
    heads, leverages = regression.prior_paths(means, factors, 0.5, SCALES)
    for k in range(4):
        one = regression.prior_paths(means[k : k + 1], factors[k : k + 1], 0.5, SCALES)
        np.testing.assert_allclose(heads[3 * k : 3 * k + 3], one[0])
        np.testing.assert_allclose(leverages[3 * k : 3 * k + 3], one[1])


def test_a_row_that_alone_decides_cannot_be_left_out():
    alone = sample_of(np.ones((1, 1)), [2.0]).free.ridge_path(np.ones(1))
    assert alone.heads.tolist() == [[0.0, 2.0]]
    assert alone.left_out.tolist() == [[np.inf]]
    twice = sample_of(np.ones((1, 1)), [2.0], np.full(1, 2.0)).free.ridge_path(np.ones(1))
    assert twice.left_out.tolist() == [[0.0]]


def test_the_mean_of_few_rows_is_no_direction_of_theirs():
    """Rounding gives it a small eigenvalue, which counts for as much as any other where there is hardly any noise."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        free = make_task(rng, 3, 12).free
        kernel = 1e3 * free.kernel
        noise = 1e-13 * float(np.trace(kernel))
        _, leverages = free.dual_path(np.zeros(3), kernel, noise, np.ones(1))
        np.testing.assert_allclose(leverages, 2 / 3, atol=1e-10)


@pytest.mark.parametrize("intercept", [True, False])
def test_judging_some_rows_with_the_sums_of_all(intercept):
    rng = np.random.default_rng(3)
    sample = make_task(rng, 30, 4, weights=[0.5, 1.0, 2.0], intercept=intercept)
    index = np.array([3, 7, 20])
    some = sample.judged(index)
    assert (some.moments.count, len(some.rows.y), some.total) == (30, 3, sample.total)
    heads = rng.standard_normal((2, sample.columns))
    expected = [np.average((sample.rows.y - sample.predict(h)) ** 2, weights=sample.rows.weight) for h in heads]
    np.testing.assert_allclose(some.full.mean_squares(heads), expected)
    for free in (True, False):
        whole, part = (s.free if free else s.full for s in (sample, some))
        prior = np.ones((1, whole.width)), np.eye(whole.width)[None], 1.0, SCALES
        whole, part = (regression.finish(*regression.prior_paths(*prior)) for regression in (whole, part))
        np.testing.assert_allclose(part.heads, whole.heads, atol=1e-12)
        np.testing.assert_allclose(part.left_out, whole.left_out[:, index], atol=1e-12)
        np.testing.assert_allclose(part.leverages, whole.leverages[:, index], atol=1e-12)


def test_sums_of_weighted_rows_are_those_of_repeated_rows():
    rng = np.random.default_rng(4)
    once = make_task(rng, 10, 2, weights=[1.0, 2.0, 3.0])
    copies = once.part(again := np.repeat(np.arange(10), once.rows.weight.astype(int)))
    copies = sample_of(copies.rows.X, copies.rows.y)
    for name in ("gram", "cross", "square", "total"):
        np.testing.assert_allclose(getattr(once.full, name), getattr(copies.full, name))
    np.testing.assert_allclose(once.center.features, copies.center.features)
    np.testing.assert_allclose(once.free.error(once.rows.y), copies.free.error(once.rows.y[again]))


def test_of_equal_errors_the_largest_ridge_is_taken():
    ridges = np.array([0.1, 10.0, 1.0])
    assert best_ridge(ridges, np.array([1.0, 1.0 + 1e-12, 1.0])) == 1
    assert best_ridge(ridges, np.array([1.0, 1.0 + 1e-6, 1.0])) == 2
    assert best_ridge(ridges, np.full(3, np.inf)) == 1
    assert best_ridge(ridges, np.array([0.5, np.inf, 1.0])) == 0


@pytest.mark.parametrize("shape", [(12, 3), (5, 9)])
@pytest.mark.parametrize("intercept", [True, False])
def test_generalised_cross_validation_by_the_hat_matrix(shape, intercept):
    """Residuals and degrees of freedom of the fitted values themselves."""
    sample = make_task(np.random.default_rng(5), *shape, intercept=intercept)
    n, ridges = shape[0], np.array([0.1, 2.0, 50.0])
    X, y = sample.rows.X, sample.rows.y
    X, y = (X - X.mean(axis=0), y - y.mean()) if intercept else (X, y)
    for regression in (sample.free, *both_forms(sample.free)):
        errors, squares, freedom = regression.generalised_errors(ridges)
        for k, ridge in enumerate(ridges):
            hat = X @ np.linalg.solve(X.T @ X + ridge * np.eye(shape[1]), X.T)
            left = n - np.trace(hat) - intercept
            assert squares[k] == pytest.approx(np.sum((y - hat @ y) ** 2), rel=1e-8)
            assert freedom[k] == pytest.approx(left, rel=1e-9)
            assert errors[k] == pytest.approx(n * np.sum((y - hat @ y) ** 2) / left**2, rel=1e-8)


def test_without_freedom_nothing_is_validated():
    two = sample_of(np.array([[0.0], [1.0]]), [1.0, 2.0]).free
    errors, _, freedom = two.generalised_errors(np.array([1e-13, 1.0]))
    assert errors[0] == np.inf
    assert np.isfinite(errors[1])
    assert freedom[0] < 1e-9


@pytest.mark.parametrize("shape", [(12, 3), (5, 9)])
def test_few_rows_with_the_same_sums(shape):
    sample = make_task(np.random.default_rng(6), *shape)
    for regression in (sample.free, sample.full):
        design, targets, rest = regression.compressed
        assert len(design) <= min(shape[0], regression.width)
        np.testing.assert_allclose(design.T @ design, regression.gram, atol=1e-9)
        np.testing.assert_allclose(design.T @ targets, regression.cross, atol=1e-9)
        assert targets @ targets + rest == pytest.approx(regression.square, rel=1e-9)
        least = np.linalg.lstsq(design, targets, rcond=None)[0]
        loss = float(regression.mean_squares(least[None])[0]) * regression.total
        assert rest == pytest.approx(loss - np.sum((targets - design @ least) ** 2), abs=1e-8)


def test_mean_eigenvalues():
    rng = np.random.default_rng(7)
    for n, p in ((12, 3), (5, 9)):
        sample = make_task(rng, n, p)
        U = sample.rows.X - sample.rows.X.mean(axis=0)
        for regression in (sample.free, *both_forms(sample.free)):
            assert regression.mean_eigenvalue == pytest.approx(np.sum(U**2) / min(n, p), rel=1e-9)
    flat = sample_of(np.full((6, 2), 1e3) + 1e-12 * rng.standard_normal((6, 2)), rng.standard_normal(6))
    assert flat.free.mean_eigenvalue == 1.0  # rounding, not features


def test_weights_above_one_count_as_rows():
    heavy = sample_of(np.eye(3), [1.0, 2.0, 3.0], np.full(3, 4.0))
    light = sample_of(np.eye(3), [1.0, 2.0, 3.0], np.full(3, 0.25))
    assert (heavy.free.count, light.free.count) == (12.0, 3.0)
    assert (heavy.total, light.total) == (12.0, 0.75)
    assert (heavy.columns, sample_of(np.eye(3), [1.0, 2.0, 3.0]).free.width) == (4, 3)


@pytest.mark.parametrize("shape", [(12, 3), (5, 9)])
def test_the_rank_does_not_depend_on_units(shape):
    sample = make_task(np.random.default_rng(8), *shape)
    small = sample_of(1e-9 * sample.rows.X, sample.rows.y)
    ridges = np.array([0.1, 2.0])
    for plain, tiny in ((sample.free, small.free), *zip(both_forms(sample.free), both_forms(small.free))):
        assert len(tiny.spectrum[0]) == len(plain.spectrum[0])
        np.testing.assert_allclose(tiny.compressed[2], plain.compressed[2], rtol=1e-6, atol=1e-9)
        found, expected = tiny.generalised_errors(1e-18 * ridges)[0], plain.generalised_errors(ridges)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_features_that_are_all_zero_have_no_directions():
    for shape in ((4, 2), (2, 4)):
        nothing = sample_of(np.zeros(shape), np.arange(1.0, shape[0] + 1), intercept=False).free
        assert nothing.compressed[2] + np.sum(nothing.compressed[1] ** 2) == pytest.approx(nothing.square)
        errors, squares, freedom = nothing.generalised_errors(np.ones(1))
        assert (squares[0], freedom[0]) == (nothing.square, shape[0])
        assert errors[0] == pytest.approx(nothing.square / shape[0])


def test_repeated_rows_and_columns_do_not_count_as_directions():
    rng = np.random.default_rng(9)
    X = rng.standard_normal((3, 9))
    wide = sample_of(np.vstack([X, X]), rng.standard_normal(6), intercept=False).free
    assert wide.wide
    assert len(wide.spectrum[0]) == 3
    X = rng.standard_normal((12, 3))
    tall = sample_of(np.column_stack([X, X[:, 0] + X[:, 1]]), rng.standard_normal(12), intercept=False).free
    assert len(tall.compressed[0]) == 3
    _, squares, freedom = tall.generalised_errors(np.array([1e-9]))
    least = np.linalg.lstsq(X, tall.rows.y, rcond=None)[0]
    assert squares[0] == pytest.approx(np.sum((tall.rows.y - X @ least) ** 2), rel=1e-6)
    assert freedom[0] == pytest.approx(12 - 3, rel=1e-6)


@pytest.mark.parametrize("rows", [6, 40])
def test_samples_of_the_same_rows_share_their_spectra(rows):
    rng = np.random.default_rng(0)
    X, targets = rng.standard_normal((rows, 9)), rng.standard_normal((2, rows))
    spectra = {}
    for y in targets:
        alone = Sample.of(Rows(X, y))
        both = Sample(alone.moments, alone.rows, spectra=spectra).divided(2.0)
        for ours, expected in ((both.free, alone.free), (both.full, alone.full)):
            for part, right in zip(ours.spectrum, expected.spectrum):
                np.testing.assert_allclose(part, right, atol=1e-12)
    assert spectra  # what the first sample found is there for the second


def test_roots_of_definite_and_of_singular_matrices():
    rng = np.random.default_rng(8)
    factors = rng.standard_normal((3, 4, 4))
    definite, singular = factors @ factors.transpose(0, 2, 1), factors[..., :2] @ factors[..., :2].transpose(0, 2, 1)
    for matrices in (definite, singular, 0.0 * definite):
        roots = roots_of(matrices)
        np.testing.assert_allclose(roots @ roots.transpose(0, 2, 1), matrices, atol=1e-12)
