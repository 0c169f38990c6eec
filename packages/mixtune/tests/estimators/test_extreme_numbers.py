"""Numbers that rounding or overflow would spoil: the same predictions, or an error that names the column."""

from __future__ import annotations

import numpy as np
import pytest

from extras import extra
from mixtune import (
    Moments,
    MultiDomainRegressor,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    fit_table,
)
from mixtune.errors import DataError

pd = extra("pandas")


def rows(shift=0.0, scale=1.0, level=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 3))
    y = np.sin(2 * X[:, 0]) + X @ [1.0, 2.0, -1.0] + 0.3 * rng.standard_normal(80) + level
    X[:, 0] += shift
    return X * scale, y


def fitted(make, X, y, wrap=lambda X: X):
    return make().fit(wrap(X[:20]), y[:20], sources={"b": (wrap(X[20:50]), y[20:50]), "c": (wrap(X[50:]), y[50:])})


@pytest.mark.parametrize("shift", [1e3, 1e6, -1e7])
def test_an_offset_does_not_move_default_predictions(shift):
    expected = fitted(RegretOptimalRegressorCV, *rows()).predict(rows(seed=1)[0])
    moved = fitted(RegretOptimalRegressorCV, *rows(shift)).predict(rows(shift, seed=1)[0])
    np.testing.assert_allclose(moved, expected, atol=1e-6)
    level = fitted(RegretOptimalRegressorCV, *rows(level=shift)).predict(rows(seed=1)[0]) - shift
    np.testing.assert_allclose(level, expected, atol=1e-6)


@pytest.mark.parametrize("shift", [1e9, -1e12])
def test_an_offset_that_leaves_no_digits_is_refused(shift):
    X, y = rows(shift)
    frame = lambda X: pd.DataFrame(X, columns=["time", "b", "c"])  # noqa: E731
    with pytest.raises(DataError, match=r"column 0 of X lies about .* of its spreads from 0.*subtract a constant"):
        fitted(RegretOptimalRegressorCV, X, y)
    with pytest.raises(DataError, match='column "time" of X lies'):
        fitted(RegretOptimalRegressorCV, X, y, frame)
    with pytest.raises(DataError, match="y lies about"):
        fitted(RegretOptimalRegressorCV, rows()[0], y + shift)
    with pytest.raises(DataError, match="column 0 of X lies"):
        RegretOptimalClassifierCV().fit(X, y > 0)
    with pytest.raises(DataError, match="column 0 of X lies"):
        MultiDomainRegressor().fit(X, y, domain=np.repeat(["a", "b"], 40))
    table = {**frame(X), "y": y, "site": np.repeat(["a", "b"], 40)}
    with pytest.raises(DataError, match='column "time" of X lies'):
        fit_table(table, target="y", domain="site", focal="a")
    # A model that is linear in the columns takes them.
    new = rows(shift, seed=1)[0]
    linear = lambda: RegretOptimalRegressorCV(None)  # noqa: E731
    expected = fitted(linear, *rows()).predict(rows(seed=1)[0])
    np.testing.assert_allclose(fitted(linear, X, y).predict(new), expected, atol=1e-15 * abs(shift) + 1e-3)


def test_constant_columns_are_no_matter():
    X, y = rows()
    X[:, 1] = 1e9
    X[:, 2] = 1e9 * (1 + 1e-16 * np.arange(80))
    assert np.all(np.isfinite(fitted(RegretOptimalRegressorCV, X, y).predict(X[:5])))


@pytest.mark.parametrize("scale", [1e100, 1e150, 1e-100])
@pytest.mark.parametrize("shift", [0.0, 1e12])
@pytest.mark.parametrize("make", [RegretOptimalRegressorCV, RegretOptimalRegressor])
def test_weights_are_finite_or_the_column_is_named(scale, shift, make):
    settings = {"fit_intercept": False, "standardise": False, "feature_map": None}
    X, y = rows(shift, scale)
    if (shift and scale > 1e140) or (scale > 1 and make is RegretOptimalRegressorCV):
        named = "column 0 of X holds values of .*rescale" if make is RegretOptimalRegressorCV else "rescale"
        with pytest.raises(DataError, match=named):
            fitted(lambda: make(**settings), X, y)
        return
    model = fitted(lambda: make(**settings), X, y)
    assert np.all(np.isfinite(model.weights_.values))
    assert np.all(np.isfinite(model.predict(X[:5])))


@pytest.mark.parametrize(
    "make",
    [
        lambda masked, plain: RegretOptimalRegressorCV(None).fit(masked, plain[:, 0]),
        lambda masked, plain: RegretOptimalRegressorCV(None).fit(plain, masked[:, 0]),
        lambda masked, plain: RegretOptimalRegressorCV(None).fit(plain, plain[:, 0]).predict(masked),
        lambda masked, plain: RegretOptimalRegressorCV(None).fit(
            plain, plain[:, 0], sources={"b": (masked, plain[:, 0])}
        ),
        lambda masked, plain: MultiDomainRegressor(None).fit(masked, plain[:, 0], domain=["a", "b"] * 10),
        lambda masked, plain: Moments.from_rows(masked, plain[:, 0]),
        lambda masked, plain: Moments.from_rows(plain, masked[:, 0]),
        lambda masked, plain: Moments.from_groups(masked, plain[:, 0], [5, 15]),
        lambda masked, plain: Moments.from_blocks([(masked, plain[:, 0])]),
        lambda masked, plain: Moments(3, np.eye(1), [1.0], np.ma.array([1.0], mask=[True])),
        lambda masked, plain: Moments(3, np.ma.array(np.eye(1), mask=[[True]]), [1.0], 1.0),
        lambda masked, plain: Moments(3, np.eye(1), np.ma.array([1.0], mask=[True]), 1.0),
    ],
)
def test_masked_values_are_refused_everywhere(make):
    plain = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(DataError, match="masked value"):
        make(np.ma.masked_greater(plain, 0.5), plain)


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e300, 1e-310])
def test_columns_of_absurd_size_are_named(size):
    X, y = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]) * [1.0, size, 1.0]
    for make, target in ((RegretOptimalRegressorCV, y), (RegretOptimalClassifierCV, y > 0)):
        with pytest.raises(DataError, match=r'column "b" of X varies by .*; rescale it'):
            fitted(make, frame, target, lambda rows: rows)
    table = frame.assign(y=y, site=np.repeat(["a", "b"], 40))
    with pytest.raises(DataError, match='column "b" of X varies by'):
        fit_table(table, target="y", domain="site", focal="a")
