"""Numbers that rounding or overflow would spoil: the same predictions, or an error that names the column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from extras import extra
from mixtune import (
    Moments,
    MultiDomainClassifier,
    MultiDomainRegressor,
    RegretOptimalClassifierCV,
    RegretOptimalRegressor,
    RegretOptimalRegressorCV,
    fit_table,
)
from mixtune.errors import DataError
from mixtune.streaming import StreamedSources

pd = extra("pandas")


def rows(shift=0.0, scale=1.0, level=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 3))
    y = np.sin(2 * X[:, 0]) + X @ [1.0, 2.0, -1.0] + 0.3 * rng.standard_normal(80) + level
    X[:, 0] += shift
    return X * scale, y


def fitted(make, X, y, wrap=lambda X: X):
    return make().fit(wrap(X[:20]), y[:20], sources={"b": (wrap(X[20:50]), y[20:50]), "c": (wrap(X[50:]), y[50:])})


SITES = np.repeat(["a", "b", "c", "d"], 20)


def as_stream(X, y, new):
    sources = StreamedSources((X[20:], y[20:]), domain=SITES[20:].tolist())
    return RegretOptimalRegressorCV().fit(X[:20], y[:20], sources=sources).predict(new)


def as_table(X, y, new):
    columns = dict(zip(["size", "b", "c"], X.T.tolist()))
    model = fit_table({**columns, "y": y.tolist(), "site": SITES.tolist()}, target="y", domain="site", focal="a")
    return model.predict(dict(zip(["size", "b", "c"], new.T.tolist())))


WAYS = {
    "default": lambda X, y, new: fitted(RegretOptimalRegressorCV, X, y).predict(new),
    "intervals": lambda X, y, new: np.concatenate(fitted(RegretOptimalRegressorCV, X, y).predict_interval(new)),
    "linear": lambda X, y, new: fitted(lambda: RegretOptimalRegressorCV(None), X, y).predict(new),
    "own rows alone": lambda X, y, new: RegretOptimalRegressorCV().fit(X, y).predict(new),
    "every domain": lambda X, y, new: MultiDomainRegressor().fit(X, y, domain=SITES).predict(new, domain=SITES),
    "stream": as_stream,
    "table": as_table,
}


def classes(X, y, new):
    return fitted(RegretOptimalClassifierCV, X, np.where(y > 1, "u", np.where(y > -1, "v", "w"))).predict_proba(new)


def classes_everywhere(X, y, new):
    model = MultiDomainClassifier().fit(X, y > 0, domain=SITES)
    return model.predict_proba(new, domain=SITES)


def rounding(shift):
    """What float64 makes unavoidable: beside the shift, values of spread 1 are rounded by up to a 128th of this.

    Predictions change by a few times as much, and the sum that takes the shift out again is rounded, too.
    """
    return 64 * np.finfo(float).eps * abs(shift) + 1e-9


@pytest.mark.parametrize("shift", [1e3, 1e6, -1e9, 1e9, 1e12])
@pytest.mark.parametrize("way", [*WAYS, "classes", "classes everywhere"])
def test_an_offset_moves_predictions_by_rounding_only(way, shift):
    run = {**WAYS, "classes": classes, "classes everywhere": classes_everywhere}[way]
    X, y = rows()
    new = rows(seed=1)[0]
    expected = run(X, y, new)
    for column in (0, 1):
        move = shift * (np.arange(3) == column)
        np.testing.assert_allclose(run(X + move, y, new + move), expected, atol=rounding(shift))
    if way in WAYS:
        np.testing.assert_allclose(run(X, y + shift, new) - shift, expected, atol=rounding(shift))


def test_an_offset_moves_trees_of_many_focal_rows_by_rounding_only():
    rng = np.random.default_rng(4)
    X, new = np.round(rng.standard_normal((2, 1700, 3)), 2)
    y = np.sign(X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(1700)
    expected = RegretOptimalRegressorCV().fit(X, y).predict(new)
    for shift in ([2.0**30, 0, 0], [0, 0, 2.0**30]):
        moved = RegretOptimalRegressorCV().fit(X + shift, y).predict(new + shift)
        np.testing.assert_allclose(moved, expected, atol=rounding(2.0**30))


def test_sources_with_equal_targets_do_not_depend_on_rounding():
    X, y = rows()
    y = np.round(y)
    sites = np.r_[np.repeat("a", 20), np.repeat([f"s{k}" for k in range(20)], 3)]
    # Of three equal numbers the computed standard deviation need not be zero.
    y[20:] = np.repeat(0.1 + np.arange(20) % 3, 3)
    y[50:] += 0.3 * X[50:, 0]

    def run(y):
        sources = {name: (X[sites == name], y[sites == name]) for name in np.unique(sites[20:])}
        return RegretOptimalRegressorCV().fit(X[:20], y[:20], sources=sources).predict(X)

    for shift in (2.0**20, 2.0**30):
        np.testing.assert_allclose(run(y + shift) - shift, run(y), atol=10 * rounding(shift))


@pytest.mark.parametrize("shift", [1e14, -1e14])
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


def test_constant_columns_are_no_matter():
    X, y = rows()
    X[:, 1] = 1e9
    X[:, 2] = 1e9 * (1 + 1e-16 * np.arange(80))
    assert np.all(np.isfinite(fitted(RegretOptimalRegressorCV, X, y).predict(X[:5])))
    # The computed standard deviation of many equal numbers need not be zero.
    for value in (0.1, 1e9 + 0.1):
        X[:, 1] = X[:, 2] = value
        model = RegretOptimalRegressorCV().fit(X[:49], y[:49])
        np.testing.assert_allclose(model.predict(X[:5] + np.array([0.0, 0.1, -0.1])), model.predict(X[:5]), atol=0.5)


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
        lambda masked, plain: RegretOptimalRegressorCV(None).fit(plain, plain[:, 0]).score(plain, masked[:, 0]),
        lambda masked, plain: (
            RegretOptimalClassifierCV(None)
            .fit(plain, plain[:, 0] > 0)
            .score(plain, plain[:, 0] > 0, sample_weight=np.ma.abs(masked[:, 1]))
        ),
        lambda masked, plain: (
            MultiDomainRegressor(None)
            .fit(plain, plain[:, 0], domain=["a", "b"] * 10)
            .score(plain, masked[:, 0], domain=["a", "b"] * 10)
        ),
        lambda masked, plain: (
            MultiDomainClassifier(None)
            .fit(plain, plain[:, 0] > 0, domain=["a", "b"] * 10)
            .score(plain, masked[:, 0] > 0, domain=["a", "b"] * 10)
        ),
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


@pytest.mark.parametrize("seed", range(5))
def test_sources_with_one_value_each_have_no_sign_that_rounding_could_decide(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(40)
    sites = np.repeat(list("abcdefghi"), [10, 6, 6, 3, 3, 3, 3, 3, 3])
    y[sites == "c"] *= -1
    for place, name in enumerate("defghi", 3):
        y[sites == name] = 0.1 * place

    def run(order, level=0.0):
        rows, targets, names = X[order], y[order] + level, sites[order]
        sources = {name: (rows[names == name], targets[names == name]) for name in "bcdefghi"}
        model = RegretOptimalRegressorCV().fit(rows[names == "a"], targets[names == "a"], sources=sources)
        return model.predict(X) - level

    expected = run(np.arange(40))
    np.testing.assert_allclose(run(rng.permutation(40)), expected, atol=1e-8)
    np.testing.assert_allclose(run(np.arange(40), 2.0**20), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["landmarks", "own_landmarks"])
def test_landmarks_beyond_float64_are_refused(name):
    kernel = RegretOptimalRegressorCV().fit(*rows()).feature_map_
    forged = getattr(kernel, name).copy()
    forged[0, 0] = 1e308
    with pytest.raises(DataError, match="too far from its units; save the model again"):
        replace(kernel, **{name: forged})
