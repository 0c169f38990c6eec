"""Numbers near the ends of float64: right results, or an error that names what to rescale."""

import numpy as np
import pytest

from mixtune import Moments
from mixtune.errors import DataError
from mixtune.moments import Rows, Scaling, loo_ridge, pooled_scale, pooled_scaling


def draw(n=30, p=3, outputs=None):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    shape = (p,) if outputs is None else (p, outputs)
    return X, X @ rng.standard_normal(shape) + rng.standard_normal((n, *shape[1:]))


@pytest.mark.parametrize(("weight", "fine"), [(1e-308, False), (1e-101, False), (1e-99, True), (0.0, True)])
def test_tiny_sample_weights_are_refused(weight, fine):
    X, y = draw()
    rows = Rows(X, y, np.append(np.ones(29), weight))
    if fine:
        pooled_scaling([rows], standardise=True, center=True)
    else:
        with pytest.raises(DataError, match=r"a sample weight is 1e-\d+, .*; set it to 0 to leave its row out"):
            pooled_scaling([Rows(X, y), rows], standardise=True, center=True)


def test_heavy_sample_weights_are_refused():
    X, y = draw()
    X[:, 2] *= 1e-310
    options = {"standardise": True, "center": True}
    with pytest.raises(DataError, match=r"sample weights add up to 3e\+301.*divide them by a constant"):
        pooled_scaling([Rows(X, y, np.full(30, 1e300))], **options)
    heavy, plain = (pooled_scaling([Rows(X, y, w)], **options) for w in (np.full(30, 1e138), None))
    np.testing.assert_allclose(heavy.shift[:2], plain.shift[:2], rtol=1e-9)
    np.testing.assert_allclose(heavy.scale[:2], plain.scale[:2], rtol=1e-9)


@pytest.mark.parametrize("outputs", [None, 2])
def test_coefficients_beyond_float64_name_their_column(outputs):
    X, y = draw(outputs=outputs)
    scaling = pooled_scaling([Rows(X * [1.0, 1.0, 1e-310], y)], standardise=True, center=True)
    coef = np.ones((3, *y.shape[1:]))
    with pytest.raises(DataError, match=r"column 2 \(counted from 0\) varies by 8.*e-311.*rescale it"):
        scaling.to_units(coef, np.zeros(y.shape[1:]))
    scaled, _ = scaling.to_units(coef * [[1.0], [1.0], [1e-20]] if outputs else coef * [1.0, 1.0, 1e-20], 0.0)
    assert np.all(np.isfinite(scaled))


def test_many_candidates_name_the_column_too():
    scaling = Scaling(np.zeros(2), np.array([1e-320, 1.0]), np.array(0.0))
    with pytest.raises(DataError, match="column 0"):
        scaling.to_units(np.ones((4, 2)), np.zeros(4))


@pytest.mark.parametrize("size", [1e-200, 1e-310])
def test_targets_whose_squares_vanish(size):
    X, y = draw()
    # Heads are linear in the targets and need no square.
    expected = Moments.from_rows(X, y).head(1.0)
    np.testing.assert_allclose(Moments.from_rows(X, y * size).head(1.0) / size, expected, rtol=1e-9)
    augmented = np.column_stack([X, np.ones(30)])
    with pytest.raises(DataError, match=f"targets of size .*e-{str(size)[3:]}.*multiply them"):
        loo_ridge(X, y * size, [0.1, 1.0])
    for center in (True, False):
        with pytest.raises(DataError, match="multiply them by a constant"):
            pooled_scaling([Rows(X, y * size)], standardise=True, center=center)
    for targets in (y * size, np.column_stack([y, y * size])):
        with pytest.raises(DataError, match="multiply them by a constant"):
            pooled_scale([Moments.from_rows(augmented, targets)])


@pytest.mark.parametrize("size", [1e153, 1e307])
def test_targets_whose_squares_are_beyond_float64(size):
    X, y = draw()
    for center in (True, False):
        with pytest.raises(DataError, match=r"targets of size .* divide them by a constant"):
            pooled_scaling([Rows(X, y / np.abs(y).max() * size)], standardise=True, center=center)


def test_small_targets_that_can_be_squared_are_right():
    X, y = draw()
    plain, small = (loo_ridge(X, y * size, [0.1, 1.0, 10.0]) for size in (1.0, 1e-135))
    assert small.ridge == plain.ridge
    np.testing.assert_allclose(small.coef / 1e-135, plain.coef, rtol=1e-9)
    scalings = [pooled_scaling([Rows(X, y * size)], standardise=True, center=True) for size in (1.0, 1e-135)]
    np.testing.assert_allclose(scalings[1].target_shift / 1e-135, scalings[0].target_shift, rtol=1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, 1e-200])
def test_targets_that_do_not_vary_pass(level):
    X, _ = draw()
    scaling = pooled_scaling([Rows(X, np.full(30, level))], standardise=True, center=True)
    assert scaling.target_shift == pytest.approx(level, rel=1e-12, abs=0.0)
