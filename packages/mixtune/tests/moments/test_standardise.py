"""Standardised rows and centred sums, against scikit-learn and against the rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from mixtune import Moments
from mixtune.errors import DataError
from mixtune.moments import (
    Center,
    Origin,
    Rows,
    Scaling,
    about,
    augmented,
    check_target_size,
    common_center,
    moved,
    no_center,
    own_center,
    pooled_scaling,
    recentred,
)


def domains(rng, sizes=(40, 3, 25), p=4, outputs=None, weighted=True):
    """Rows of several domains whose columns differ in size and level."""
    found = []
    for n in sizes:
        X = rng.standard_normal((n, p)) * np.logspace(-1, 2, p) + np.arange(p)
        y = rng.standard_normal((n,) if outputs is None else (n, outputs)) + 7.0
        found.append(Rows(X, y, rng.uniform(0.5, 3.0, n) if weighted else None))
    return found


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("sizes", [(3, 40, 25), (40_000, 2, 3, 30_000)])  # at once, and run after run
def test_scaling_is_that_of_scikit_learn(weighted, outputs, sizes):
    rows = domains(np.random.default_rng(0), sizes=sizes, outputs=outputs, weighted=weighted)
    X, y, w = (np.concatenate([getattr(r, name) for r in rows]) for name in ("X", "y", "weight"))
    scaler = StandardScaler().fit(X, sample_weight=w)
    found = pooled_scaling(rows, standardise=True, center=True)
    np.testing.assert_allclose(found.shift, scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(found.scale, scaler.scale_, rtol=1e-12)
    np.testing.assert_allclose(found.target_shift, np.average(y, axis=0, weights=w), rtol=1e-12)
    ready = found.apply(rows[0])
    np.testing.assert_allclose(ready.X, scaler.transform(rows[0].X), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ready.y, rows[0].y - found.target_shift)
    assert ready.sample_weight is rows[0].sample_weight


def test_without_an_intercept_or_standardisation_nothing_moves():
    rows = domains(np.random.default_rng(0))
    origin = pooled_scaling(rows, standardise=True, center=False)
    assert not origin.shift.any()
    assert origin.target_shift == 0.0
    plain = pooled_scaling(rows, standardise=False, center=True)
    np.testing.assert_array_equal(plain.scale, 1.0)
    np.testing.assert_array_equal(plain.shift, pooled_scaling(rows, standardise=True, center=True).shift)


@pytest.mark.parametrize("size", [1e-200, 1e-99, 1.0, 1e99, 1e200])
def test_columns_of_any_size(size):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 2)) + 0.3, rng.standard_normal(50)
    plain, found = (pooled_scaling([Rows(X * [1.0, s], y)], standardise=True, center=True) for s in (1.0, size))
    np.testing.assert_allclose(found.scale / [1.0, size], plain.scale, rtol=1e-12)
    np.testing.assert_allclose(found.shift / [1.0, size], plain.shift, rtol=1e-12)


@pytest.mark.parametrize("level", [0.0, 0.1, -1e9])
def test_constant_columns_keep_their_scale(level):
    X = np.column_stack([np.full(1000, level), level + 1e-3 * np.arange(1000)])
    found = pooled_scaling([Rows(X[:7], np.ones(7)), Rows(X[7:], np.ones(993))], standardise=True, center=True)
    assert found.scale[0] == 1.0
    assert found.scale[1] == pytest.approx(X[:, 1].std(), rel=1e-6)
    assert found.shift[0] == pytest.approx(level, rel=1e-12)


@pytest.mark.parametrize("outputs", [None, 2])
def test_coefficients_in_the_units_of_the_features(outputs):
    rng = np.random.default_rng(0)
    rows = domains(rng, outputs=outputs)[0]
    scaling = pooled_scaling([rows], standardise=True, center=True)
    coef = rng.standard_normal((5, 4) if outputs is None else (5, 4, outputs))
    intercept = rng.standard_normal((5,) if outputs is None else (5, outputs))
    scaled, moved_intercept = scaling.to_units(coef, intercept)
    ready = scaling.features(rows.X)
    for k in range(5):
        expected = ready @ coef[k] + intercept[k] + scaling.target_shift
        np.testing.assert_allclose(rows.X @ scaled[k] + moved_intercept[k], expected, rtol=1e-9)


def test_limits_of_sizes():
    for fine in (0.0, 1.1e-140, 5.0):
        check_target_size(np.array([fine]))
    with pytest.raises(DataError, match="targets of size 9e-141"):
        check_target_size(np.array([1.0, 9e-141]))
    heavy = Rows(np.eye(2), np.arange(2.0), np.array([5e139, 4e139]))
    pooled_scaling([heavy], standardise=True, center=True)
    with pytest.raises(DataError, match="add up to"):
        pooled_scaling([heavy, heavy], standardise=True, center=True)


def weighted_design(rows, scaling=None):
    ready = rows if scaling is None else scaling.apply(rows)
    root = np.sqrt(ready.weight)
    return np.column_stack([ready.X, np.ones(len(root))]) * root[:, None], (ready.y.T * root).T


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("n", [3, 4, 5, 70, 500_000])
def test_augmented_moments_are_those_of_rows_with_a_constant(n, outputs, weighted):
    (rows,) = domains(np.random.default_rng(0), sizes=(n,), outputs=outputs, weighted=weighted)
    for scaling in (None, Scaling(np.arange(4.0), np.array([1.0, 2.0, 3.0, 4.0]), np.asarray(rows.y[0] * 0 + 1.5))):
        U, Y = weighted_design(rows, scaling)
        found = augmented(rows, scaling)
        assert (found.count, found.keeps_rows, found.single_output) == (n, n < 5, outputs is None)
        np.testing.assert_allclose(found.gram, U.T @ U, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(found.cross, U.T @ Y, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(found.square, np.sum(Y**2, axis=0), rtol=1e-12)


@pytest.mark.parametrize("outputs", [None, 2])
def test_centres_and_recentred_sums(outputs):
    rows = domains(np.random.default_rng(1), outputs=outputs)
    moments = [augmented(part) for part in rows]
    weights = np.array([0.5, 0.2, 0.0])
    center = common_center(moments, weights)
    w = np.concatenate([factor * part.weight for part, factor in zip(rows, weights)])
    X, y = (np.concatenate([getattr(part, name) for part in rows]) for name in ("X", "y"))
    np.testing.assert_allclose(center.features, np.average(X, axis=0, weights=w), rtol=1e-12)
    np.testing.assert_allclose(center.targets, np.average(y, axis=0, weights=w), rtol=1e-12)
    assert center.total == pytest.approx(w.sum())
    coef = np.ones((4,) if outputs is None else (4, 2))
    np.testing.assert_allclose(center.intercept(coef), center.targets - center.features @ coef)
    for part, sums in zip(rows, moments):
        own = own_center(sums)
        np.testing.assert_allclose(own.features, np.average(part.X, axis=0, weights=part.weight), rtol=1e-12)
        assert own.total == pytest.approx(part.total)
        root = np.sqrt(part.weight)
        U = (part.X - center.features) * root[:, None]
        Y = ((part.y - center.targets).T * root).T
        for keep in (True, False):
            found = recentred(sums, center, keep=keep)
            assert found.keeps_rows == (part.shape[0] < 4)
            np.testing.assert_allclose(found.gram, U.T @ U, rtol=1e-9, atol=1e-7)
            np.testing.assert_array_equal(found.gram, found.gram.T)
            np.testing.assert_allclose(found.cross, U.T @ Y, rtol=1e-9, atol=1e-7)
            np.testing.assert_allclose(found.square, np.sum(Y**2, axis=0), rtol=1e-9)


def test_no_centre_is_the_origin():
    moments = augmented(domains(np.random.default_rng(0), outputs=2)[0])
    center = no_center(moments)
    assert (center.features.tolist(), center.targets.tolist(), center.total) == ([0.0] * 4, [0.0] * 2, np.inf)
    found = recentred(moments, center)
    np.testing.assert_array_equal(found.gram, moments.gram[:-1, :-1])
    np.testing.assert_array_equal(found.cross, moments.cross[:-1])


def test_about_another_origin():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), rng.standard_normal(30)
    design = lambda shift: np.column_stack([X - shift, np.ones(30)])  # noqa: E731
    old, new = Origin(np.ones(3), np.array(2.0)), Origin(np.array([1.0, 0.0, 3.0]), np.array(-1.0))
    moments = Moments.from_rows(design(old.features), y - old.targets)
    found = about(moments, old, new)
    np.testing.assert_allclose(found.gram, design(new.features).T @ design(new.features), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.cross, design(new.features).T @ (y - new.targets), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.square, np.sum((y - new.targets) ** 2))
    assert about(moments, old, old) is moments
    assert about(moments, old, Origin(old.features, new.targets)) is not moments
    assert about(moments, old, Origin(new.features, old.targets)) is not moments


def test_rounding_of_what_was_subtracted_is_remembered():
    """A column far from zero leaves rounding of its square behind, in the units that columns are divided by."""
    rng = np.random.default_rng(0)
    U = np.column_stack([rng.standard_normal(50) + 1e4, 1e-3 * rng.standard_normal(50), np.ones(50)])
    moments = Moments.from_rows(U, rng.standard_normal(50))
    center = own_center(moments)
    largest = moments.gram[0, 0]
    assert recentred(moments, center).system.summed == pytest.approx(largest)
    scaled = moved(moments, center.features, np.array([10.0, 1e-3]), center.targets)
    assert scaled.system.summed == pytest.approx(largest / 100)
    again = recentred(scaled, Center(np.zeros(2), np.array(0.0), 1.0))
    assert again.system.summed == pytest.approx(scaled.system.summed, rel=0.1)
    small = moved(moments, center.features, np.array([1e8, 1e3]), center.targets)
    assert small.system.summed < 1e-5
