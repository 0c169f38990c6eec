"""Moving and rescaling sums is moving and rescaling rows."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune import Moments
from mixtune.moments import Origin, Rows, augmented, moved, pooled_scale, pooled_scaling


def with_constant(U):
    return np.column_stack([U, np.ones(len(U))])


@pytest.mark.parametrize("outputs", [None, 1, 3])
@pytest.mark.parametrize("n", [4, 500])
def test_moved_sums_are_sums_of_moved_rows(n, outputs):
    rng = np.random.default_rng(0)
    U = rng.standard_normal((n, 6)) * np.logspace(-2, 2, 6) + 5
    Y = rng.standard_normal((n,) if outputs is None else (n, outputs)) + 3
    shift, scale = U.mean(axis=0), U.std(axis=0)
    level = Y.mean(axis=0)
    ours = moved(Moments.from_rows(with_constant(U), Y), shift, scale, level)
    rows = Moments.from_rows(with_constant((U - shift) / scale), Y - level)
    assert (ours.rows is None) == (rows.rows is None)
    assert ours.cross.shape == rows.cross.shape
    np.testing.assert_allclose(ours.gram, rows.gram, atol=1e-9 * n)
    np.testing.assert_allclose(ours.cross, rows.cross, atol=1e-9 * n)
    np.testing.assert_allclose(ours.square, rows.square, rtol=1e-9)
    np.testing.assert_array_equal(ours.gram, ours.gram.T)


def test_the_scale_of_all_rows_comes_from_sums():
    rng = np.random.default_rng(1)
    parts = [rng.standard_normal((n, 4)) * [1, 2, 3, 0] + [0, 10, 1000, 7] for n in (50, 3, 200)]
    targets = [rng.standard_normal((len(part), 2)) for part in parts]
    mean, spread, level = pooled_scale([Moments.from_rows(with_constant(U), Y) for U, Y in zip(parts, targets)])
    U = np.concatenate(parts)
    np.testing.assert_allclose(mean, U.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(spread[:3], U.std(axis=0)[:3], rtol=1e-8)
    assert spread[3] == 1.0
    np.testing.assert_allclose(level, np.concatenate(targets).mean(axis=0), rtol=1e-12)


def test_rows_that_are_standardised_first_have_the_sums_that_are_moved_afterwards():
    rng = np.random.default_rng(2)
    rows = [Rows(rng.standard_normal((n, 3)) + n / 10, rng.standard_normal(n)) for n in (40, 60)]
    scaling = pooled_scaling(rows, standardise=True, center=True)
    expected = [augmented(part, scaling) for part in rows]
    sums = [Moments.from_rows(with_constant(part.X), part.y) for part in rows]
    scale = pooled_scale(sums)
    for ours, other in zip(sums, expected):
        np.testing.assert_allclose(moved(ours, *scale).gram, other.gram, atol=1e-9)
        np.testing.assert_allclose(moved(ours, *scale).cross, other.cross, atol=1e-9)


def test_about_a_point_near_the_rows_small_spreads_beside_large_means_are_seen():
    rng = np.random.default_rng(3)
    U = np.column_stack([1e9 + rng.standard_normal(400), np.full(400, 0.1), 0.3 + 5e-17 * np.arange(400)])
    Y = rng.standard_normal(400)
    origin = Origin(U[:50].mean(axis=0), np.array(0.0))
    parts = [Moments.from_rows(with_constant(U[here] - origin.features), Y[here]) for here in (slice(2), slice(2, 400))]
    mean, spread, level = pooled_scale(parts, origin)
    np.testing.assert_allclose(origin.features + mean, U.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(spread[0], U[:, 0].std(), rtol=1e-7)
    np.testing.assert_array_equal(spread[1:], 1.0)
    assert level == pytest.approx(Y.mean())
    blind = pooled_scale([Moments.from_rows(with_constant(U), Y)])[1]
    assert blind[0] == 1.0


def test_about_a_point_near_the_rows_tiny_spreads_are_spreads():
    """1e-8 of the mean is far above rounding, and a hundred times less than sums about zero could tell."""
    rng = np.random.default_rng(4)
    U = 0.5 + 1e-8 * rng.standard_normal((300, 1))
    origin = Origin(U[:50].mean(axis=0), np.array(0.0))
    _, spread, _ = pooled_scale([Moments.from_rows(with_constant(U - origin.features), np.arange(300.0))], origin)
    assert spread[0] == pytest.approx(U.std(), rel=1e-6)
