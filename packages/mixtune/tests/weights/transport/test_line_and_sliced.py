"""One dimension in closed form, and many directions of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mixtune.errors import ParameterError
from mixtune.weights._transport_bounds import sliced_interval
from mixtune.weights._transport_exact import line_distances, staircase
from mixtune.weights.transport import wasserstein_distance


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


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 7), (6, 4), (5, 5), (1, 9)])
def test_staircase_moves_all_mass(n, m):
    rows, columns, mass = staircase(n, m)
    np.testing.assert_allclose(np.bincount(rows, mass), np.full(n, 1 / n), rtol=1e-12)
    np.testing.assert_allclose(np.bincount(columns, mass), np.full(m, 1 / m), rtol=1e-12)
    assert len(rows) == n + m - np.gcd(n, m)


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
    found = line_distances(*(Z @ (directions / np.linalg.norm(directions, axis=0)) for Z in (A, B)))
    interval = stats.t.interval(0.95, 29, loc=found.mean(), scale=stats.sem(found))
    np.testing.assert_allclose(sliced_interval(A, B, directions=30, seed=7), (found.mean(), *interval), rtol=1e-12)


def test_sliced_interval_shrinks_and_ignores_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((60, 4)), rng.standard_normal((45, 4)) + 1
    few, many = (wasserstein_distance(A, B, method="sliced", directions=k) for k in (50, 5000))
    assert many.gap < few.gap / 5
    monkeypatch.setitem(sliced_interval.__globals__, "PROJECTED_ENTRIES", 1)
    chunked = wasserstein_distance(A, B, method="sliced", directions=5000)
    assert chunked.lower < many.upper
    assert many.lower < chunked.upper


def test_sliced_on_one_column_is_the_distance():
    a, b = np.arange(5.0), np.arange(3.0) * 7
    found = wasserstein_distance(a, b, method="sliced")
    assert found.value == pytest.approx(line_distances(a[:, None], b[:, None])[0], rel=1e-12)
    assert found.gap <= 1e-12
