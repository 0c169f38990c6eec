"""Laws of a metric, for all methods that measure the Wasserstein distance, and for the sliced distance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mixtune.weights.transport import wasserstein_distance

FEW = settings(max_examples=25)
coordinates = st.floats(-100.0, 100.0, allow_nan=False, width=32)
seeds = st.integers(0, 2**32 - 1)


def sample(columns):
    return st.integers(1, 8).flatmap(lambda rows: arrays(np.float64, (rows, columns), elements=coordinates))


@st.composite
def several(draw, count):
    columns = draw(st.integers(1, 3))
    return [draw(sample(columns)) for _ in range(count)]


def distance(A, B, **options):
    return wasserstein_distance(A, B, **options).value


@FEW
@given(several(2))
def test_symmetry(pair):
    A, B = pair
    assert distance(A, B) == pytest.approx(distance(B, A), rel=1e-9, abs=1e-9)


@FEW
@given(several(1), seeds)
def test_identity_and_order_of_rows(one, seed):
    (A,) = one
    assert distance(A, np.random.default_rng(seed).permutation(A)) == 0.0


@FEW
@given(several(2), seeds)
def test_order_of_rows_does_not_matter(pair, seed):
    A, B = pair
    shuffled = np.random.default_rng(seed).permutation(B)
    assert distance(A, shuffled) == pytest.approx(distance(A, B), rel=1e-9, abs=1e-9)


@FEW
@given(several(1), st.floats(-50.0, 50.0))
def test_translation_costs_its_length(one, shift):
    (A,) = one
    assert distance(A, A + shift) == pytest.approx(np.sqrt(A.shape[1]) * abs(shift), rel=1e-9, abs=1e-9)


@FEW
@given(several(2), st.floats(1e-3, 1e3))
def test_scale(pair, factor):
    A, B = pair
    assert distance(factor * A, factor * B) == pytest.approx(factor * distance(A, B), rel=1e-9, abs=1e-9 * factor)


@FEW
@given(several(3))
def test_triangle_inequality(three):
    A, B, C = three
    assert distance(A, C) <= distance(A, B) + distance(B, C) + 1e-9


@FEW
@given(several(2), st.integers(2, 4))
def test_repeating_all_rows_changes_nothing(pair, times):
    A, B = pair
    assert distance(np.tile(A, (times, 1)), B) == pytest.approx(distance(A, B), rel=1e-9, abs=1e-9)


@FEW
@given(several(2))
def test_bracket_contains_the_exact_distance(pair):
    A, B = pair
    exact, found = distance(A, B, method="exact"), wasserstein_distance(A, B, method="bracket", subsample=2)
    assert found.lower - 1e-9 <= exact <= found.upper + 1e-9


@FEW
@given(several(2))
def test_sliced_is_never_above_and_symmetric(pair):
    A, B = pair
    sliced = distance(A, B, method="sliced", directions=20)
    assert sliced <= distance(A, B) + 1e-9
    assert sliced == pytest.approx(distance(B, A, method="sliced", directions=20), rel=1e-9, abs=1e-9)


@FEW
@given(several(2))
def test_distance_between_means_is_never_above(pair):
    A, B = pair
    assert np.linalg.norm(A.mean(axis=0) - B.mean(axis=0)) <= distance(A, B) + 1e-9
