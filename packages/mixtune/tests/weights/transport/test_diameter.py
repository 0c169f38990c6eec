"""The diameter: exact against all pairs, a bound beyond, at every scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import pdist

from mixtune.errors import DataError, ParameterError
from mixtune.weights.transport import Diameter, pooled_diameter


def shapes():
    rng = np.random.default_rng(0)
    yield rng.standard_normal((3000, 2))
    yield rng.standard_normal((1500, 40))
    yield rng.standard_cauchy((2000, 3))
    sphere = rng.standard_normal((1500, 5))
    yield sphere / np.linalg.norm(sphere, axis=1, keepdims=True)
    yield rng.integers(0, 3, (500, 3)).astype(float)
    yield np.outer(rng.standard_normal(500), [1.0, 2.0]) + 1e6


@pytest.mark.parametrize("X", list(shapes()))
def test_agrees_with_all_pairs(X):
    expected = pdist(X).max()
    found = pooled_diameter(np.array_split(X, 3))
    assert found.exact
    assert found.value == pytest.approx(expected, rel=1e-12)


def test_the_largest_pair_need_not_hold_the_outermost_row():
    """The row farthest from the mean has its partner at 1.85; two other rows are 2 apart."""
    X = np.vstack([np.zeros((50, 2)), [[-1.05, 0.0], [0.8, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    assert pooled_diameter([X]) == Diameter(2.0, exact=True)
    assert pooled_diameter([X[::-1]]).value == 2.0


@pytest.mark.parametrize("X", list(shapes()))
def test_bound_beyond_the_limit(X):
    found, expected = pooled_diameter([X[:10], X[10:]], max_rows=len(X) - 1), pdist(X).max()
    assert not found.exact
    assert expected * (1 - 1e-12) <= found.value <= 2 * expected


def test_bound_is_the_smaller_of_the_box_and_the_ball():
    rng = np.random.default_rng(0)
    flat = np.column_stack([rng.exponential(size=60), np.zeros(60)])
    round_ = rng.standard_normal((60, 8))
    round_ /= np.linalg.norm(round_, axis=1, keepdims=True)
    lopsided = np.vstack([round_, np.tile(round_[:1], (30, 1))])
    box = lambda X: np.linalg.norm(np.ptp(X, axis=0))  # noqa: E731
    ball = lambda X: 2 * np.linalg.norm(X - X.mean(axis=0), axis=1).max()  # noqa: E731
    assert box(flat) < ball(flat)
    assert ball(lopsided) < box(lopsided)
    assert pooled_diameter([flat], max_rows=1).value == pytest.approx(box(flat), rel=1e-12)
    assert pooled_diameter([lopsided + 5.0], max_rows=1).value == pytest.approx(ball(lopsided), rel=1e-12)


@settings(max_examples=50)
@given(arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.floats(-1e3, 1e3)))
def test_small_sets(X):
    expected = pdist(X).max() if len(X) > 1 else 0.0
    assert pooled_diameter([X]).value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert pooled_diameter([X, X], max_rows=1).value >= expected * (1 - 1e-12)


def test_exact_up_to_and_including_the_limit():
    X = np.random.default_rng(0).standard_normal((20, 3))
    assert [pooled_diameter([X[:8], X[8:]], max_rows=rows).exact for rows in (19, 20, 21)] == [False, True, True]


def test_coinciding_points():
    assert pooled_diameter([np.full((5, 3), 7.0), np.full((1, 3), 7.0)]).value == 0.0
    assert pooled_diameter([np.full((5, 3), 7.0)], max_rows=2).value == 0.0


@pytest.mark.parametrize("max_rows", [1, 20_000])
@pytest.mark.parametrize("scale", [2.0**1000, 2.0**-1000])
def test_extreme_scales(scale, max_rows):
    X = np.random.default_rng(0).standard_normal((50, 3))
    plain = pooled_diameter([X], max_rows=max_rows).value
    assert pooled_diameter([scale * X], max_rows=max_rows).value == scale * plain


def test_bad_input():
    with pytest.raises(DataError, match="put a single array in a list"):
        pooled_diameter(np.ones((3, 2)))
    with pytest.raises(DataError, match="put a single array in a list"):
        pooled_diameter([])
    with pytest.raises(DataError, match=r"samples\[1\] has 2 columns, samples\[0\] has 1"):
        pooled_diameter([[1.0], [[1.0, 2.0]]])
    with pytest.raises(DataError, match=r"samples\[0\] has 1 entries that are NaN"):
        pooled_diameter([[np.nan]])
    with pytest.raises(ParameterError, match="max_rows"):
        pooled_diameter([[1.0]], max_rows=0)
