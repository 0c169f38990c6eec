"""Splines against SciPy's."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

from mixtune.features import Splines

DEGREE = 2


@pytest.mark.parametrize("count", [3, 4, 7])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_splines_are_those_of_scipy(count, sign):
    rng = np.random.default_rng(count)
    knots = np.sort(rng.standard_normal(count))
    column = np.concatenate([2.0 * rng.standard_normal(50), knots])
    ends = np.concatenate([[knots[0]] * DEGREE, knots, [knots[-1]] * DEGREE])
    expected = BSpline.design_matrix(np.clip(column, knots[0], knots[-1]), ends, DEGREE).toarray()[:, 1:]
    found = Splines([sign * knots]).transform((sign * column)[:, None])
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_equal_weights_make_the_same_knots():
    X = np.random.default_rng(0).standard_normal((31, 2))
    for weight in (np.ones(31), np.full(31, 0.3)):
        found = Splines.at_quantiles(X, knots=4, weight=weight)
        for mine, theirs in zip(found.knots, Splines.at_quantiles(X, knots=4).knots):
            np.testing.assert_array_equal(mine, theirs)
