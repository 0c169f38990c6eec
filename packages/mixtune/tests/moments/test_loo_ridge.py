"""Closed-form leave-one-out against refitting without each row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtune.choice import loo_ridge
from mixtune.errors import DataError, ParameterError


def by_refitting(U, y, ridge):
    errors = []
    for i in range(len(U)):
        keep = np.arange(len(U)) != i
        head = np.linalg.solve(U[keep].T @ U[keep] + ridge * np.eye(U.shape[1]), U[keep].T @ y[keep])
        errors.append((y[i] - U[i] @ head) ** 2)
    return np.mean(errors)


@given(st.integers(2, 20), st.integers(1, 12), st.integers(0, 1000))
def test_against_refitting(n, p, seed):
    rng = np.random.default_rng(seed)
    U, y = rng.standard_normal((n, p)), rng.standard_normal(n)
    ridges = [0.01, 1.0, 30.0]
    choice = loo_ridge(U, y, ridges, relative=False)
    expected = [by_refitting(U, y, ridge) for ridge in ridges]
    np.testing.assert_allclose(choice.errors, expected, rtol=1e-6)
    best = ridges[int(np.argmin(expected))]
    assert choice.ridge == best
    head = np.linalg.solve(U.T @ U + best * np.eye(p), U.T @ y)
    np.testing.assert_allclose(choice.coef, head, rtol=1e-6, atol=1e-9)


def test_relative_ridges_do_not_depend_on_units():
    rng = np.random.default_rng(0)
    U, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    here, there = loo_ridge(U, y, [0.1, 1.0]), loo_ridge(1e6 * U, y, [0.1, 1.0])
    np.testing.assert_allclose(here.coef, 1e6 * there.coef)


def test_zero_features_and_refusals():
    assert np.array_equal(loo_ridge(np.zeros((5, 2)), np.ones(5), [1.0]).coef, np.zeros(2))
    with pytest.raises(DataError, match="n >= 2"):
        loo_ridge(np.ones((1, 2)), np.ones(1), [1.0])
    with pytest.raises(DataError, match="1 in U and y"):
        loo_ridge(np.ones((3, 2)), np.array([1.0, np.nan, 2.0]), [1.0])
    assert loo_ridge(np.ones((3, 2)), np.ones(3), 1.0).errors.shape == (1,)
    for ridges in ([], [0.0], [-1.0]):
        with pytest.raises(ParameterError, match="ridges"):
            loo_ridge(np.ones((3, 2)), np.ones(3), ridges)
