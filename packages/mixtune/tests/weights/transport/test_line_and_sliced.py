"""One dimension in closed form, and many directions of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mixtune.errors import ParameterError
from mixtune.weights import wasserstein_distance


@pytest.mark.parametrize(("n", "m"), [(1, 1), (10, 10), (7, 12), (100, 33), (1, 50), (1000, 1001)])
def test_line_agrees_with_scipy(n, m):
    rng = np.random.default_rng(n + m)
    a, b = rng.standard_normal(n), rng.exponential(size=m)
    found = wasserstein_distance(a, b)
    assert found.value == pytest.approx(stats.wasserstein_distance(a, b), rel=1e-12)
    assert (found.method, found.certified, found.gap) == ("line", True, 0.0)


def test_line_agrees_with_exact():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(80), rng.standard_normal(50) + 1
    line, exact = (wasserstein_distance(a, b, method=method).value for method in ("line", "exact"))
    assert line == pytest.approx(exact, rel=1e-12)


def test_line_refuses_more_columns():
    with pytest.raises(ParameterError, match="needs one column, the samples have 2"):
        wasserstein_distance(np.ones((3, 2)), np.ones((3, 2)), method="line")


def test_sliced_is_the_mean_over_directions(ot):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((60, 4)), rng.standard_normal((45, 4)) + 1
    found = wasserstein_distance(A, B, method="sliced", directions=500)
    reference = ot.sliced_wasserstein_distance(A, B, n_projections=20_000, p=1, seed=1)
    assert found.lower <= reference <= found.upper
    assert found.lower < found.value < found.upper
    assert found.method == "sliced"
    assert not found.certified


def test_sliced_interval_is_students():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((60, 4)), rng.standard_normal((45, 4)) + 1
    directions = np.random.default_rng(7).standard_normal((4, 30))
    along = [Z @ (directions / np.linalg.norm(directions, axis=0)) for Z in (A, B)]
    values = np.array([stats.wasserstein_distance(a, b) for a, b in zip(along[0].T, along[1].T)])
    interval = stats.t.interval(0.95, 29, loc=values.mean(), scale=stats.sem(values))
    found = wasserstein_distance(A, B, method="sliced", directions=30, seed=7)
    np.testing.assert_allclose((found.value, found.lower, found.upper), (values.mean(), *interval), rtol=1e-12)


def test_sliced_interval_shrinks_with_more_directions():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((60, 4)), rng.standard_normal((45, 4)) + 1
    few, many = (wasserstein_distance(A, B, method="sliced", directions=k) for k in (50, 5000))
    assert many.gap < few.gap / 5
    assert many.lower < few.upper
    assert few.lower < many.upper


def test_sliced_over_many_rows_agrees_with_few_directions_at_a_time():
    """50,000 rows along 100 directions are more than are held at once."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((50_000, 3)), 2.0 * rng.standard_normal((40_000, 3))
    found = wasserstein_distance(A, B, method="sliced", directions=100)
    expected = np.sqrt(2 / np.pi)  # of a normal and one twice as wide, in every direction
    assert found.value == pytest.approx(expected, rel=0.02)
    assert found.gap < 0.02


def test_sliced_on_one_column_is_the_distance():
    a, b = np.arange(5.0), np.arange(3.0) * 7
    found = wasserstein_distance(a, b, method="sliced")
    assert found.value == pytest.approx(stats.wasserstein_distance(a, b), rel=1e-12)
    assert found.gap <= 1e-12
