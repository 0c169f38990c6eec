import numpy as np
import pyarrow as pa
import pytest

from mixtune import MultiDomainRegressor, RegretOptimalRegressor, RegretOptimalRegressorCV
from mixtune.data import check_weight
from mixtune.errors import DataError, ParameterError
from mixtune.estimators import LocalRegressor
from mixtune.moments import Rows, pooled_scaling


def draw(seed=0):
    rng = np.random.default_rng(seed)
    parts = [(rng.standard_normal((n, 2)) + 3, rng.standard_normal(n), rng.uniform(0.2, 1.0, n)) for n in (6, 9)]
    return parts[0], {"b": parts[1]}


def test_pooled_standardisation_with_weights():
    """A fit to inputs that were standardised by hand is the same, and one to other units predicts the same."""
    (X, y, weight), sources = draw()
    rows, share = np.concatenate([X, sources["b"][0]]), np.concatenate([weight, sources["b"][2]])
    mean = np.average(rows, axis=0, weights=share)
    scale = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=share))
    expected = RegretOptimalRegressor(standardise=False)
    expected.fit((X - mean) / scale, y, weight, sources={"b": ((sources["b"][0] - mean) / scale, *sources["b"][1:])})
    units = np.array([1.0, 1e6])
    for size in (np.ones(2), units):
        moved = {"b": (sources["b"][0] * size, *sources["b"][1:])}
        model = RegretOptimalRegressor().fit(X * size, y, weight, sources=moved)
        np.testing.assert_allclose(model.predict(X * size), expected.predict((X - mean) / scale), rtol=1e-9)
        np.testing.assert_allclose(X * size @ model.coef_ + model.intercept_, model.predict(X * size))


def test_constant_columns_and_huge_values():
    X = np.column_stack([np.full(50, 1e9 + 0.1), np.linspace(-1e300, 1e300, 50)])
    scaling = pooled_scaling([Rows(X, np.ones(50))], standardise=True, center=True)
    assert scaling.scale[0] == 1.0
    assert np.all(np.isfinite(scaling.features(X)))


def test_without_intercept_the_origin_stays():
    X, y = np.array([[1.0], [3.0]]), np.array([1.0, 2.0])
    model = LocalRegressor(ridge=0.5, fit_intercept=False).fit(X, y)
    assert model.coef_[0] == pytest.approx(7.0 / 10.5)
    assert model.predict([[0.0]]).tolist() == [0.0]


def test_rows_of_weight_zero_are_absent():
    (X, y, weight), sources = draw()
    weight[2] = 0.0
    kept = weight > 0
    one = RegretOptimalRegressor().fit(X, y, weight, sources=sources)
    two = RegretOptimalRegressor().fit(X[kept], y[kept], weight[kept], sources=sources)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.loo_predictions_.shape == (5,)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ([1.0], "one number per row"),
        ([1.0, -1.0], ">= 0"),
        ([1.0, np.nan], "finite"),
        ([0.0, 0.0], "zero for every row"),
        (["a", "b"], "one number per row"),
        ([1j, 2j], "complex numbers"),
        (np.array([1, 2], dtype="M8[D]"), "dates"),
    ],
)
def test_sample_weights_refused(weight, words):
    with pytest.raises(DataError, match=words):
        check_weight(weight, 2, ' of domain "b"')


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (([[1.0]], [1.0]), 'domain "b" has 1 columns, the focal rows have 2'),
        (([[1.0, 2.0]], [[1.0, 2.0]]), 'domain "b" has 2 outputs'),
        (([[1.0, 2.0]], [1.0, 2.0]), 'of domain "b"'),
        (([["x", "y"]], [1.0]), 'X of domain "b" holds text'),
        (([[1.0, np.nan]], [1.0]), 'domain "b" has 1 value that is NaN'),
        ((np.ones((0, 2)), []), "at least one row"),
        (([[1.0, 2.0]], [1.0], [1.0, 2.0]), 'sample_weight of domain "b"'),
        ((pa.table({"p": [1.0], "z": [2.0]}), [1.0]), 'domain "b".*missing "q" and extra "z"'),
    ],
)
def test_sources_refused(source, words):
    X = pa.table({"p": [1.0, 2.0], "q": [1.0, 2.0]}) if "missing" in words else np.ones((2, 2))
    with pytest.raises(DataError, match=words):
        RegretOptimalRegressor().fit(X, np.ones(2), sources={"b": source})


def test_feature_maps():
    class Wrong:
        def transform(self, X):
            return X[:1]

    class Bad:
        def transform(self, X):
            return X * np.inf

    X = np.ones((2, 1))
    with pytest.raises(DataError, match="keep the rows"):
        LocalRegressor(Wrong()).fit(X, [0.0, 1.0])
    with pytest.raises(DataError, match="NaN or infinite"):
        LocalRegressor(Bad()).fit(X, [0.0, 1.0])
    with pytest.raises(ParameterError, match="needs transform"):
        LocalRegressor(3).fit(X, [0.0, 1.0])


def test_weights_and_columns_of_very_different_sizes():
    """Weights of 1e127 and columns of 1e62 beside ones."""
    rng = np.random.default_rng(0)
    X, y, domain = rng.standard_normal((27, 3)), rng.standard_normal(27), np.repeat(list("abcd"), [5, 2, 10, 10])
    X[domain == "b"] *= 1e62
    weight = np.where(domain == "a", 1e127, 1.0)
    sources = {name: (X[domain == name], y[domain == name], weight[domain == name]) for name in "abcd"}
    # Weights count relative to the mean of their source.
    model = RegretOptimalRegressorCV(feature_map=None).fit(X[-2:], y[-2:], sources=sources)
    assert np.all(np.isfinite(model.predict(X[-2:])))
    with pytest.raises(DataError, match="too small to compute with"):
        MultiDomainRegressor(feature_map=None).fit(X, y, weight, domain=domain)


@pytest.mark.parametrize("complex_y", [np.array([1j, 2j]), np.array([np.complex128(1j), 2.0], dtype=object)])
def test_complex_targets_are_refused(complex_y):
    with pytest.raises((ValueError, TypeError), match=r"[Cc]omplex|objects"):
        RegretOptimalRegressor().fit(np.ones((2, 1)), complex_y)


def test_no_rows_of_columns_without_a_type():
    model = RegretOptimalRegressor().fit(pa.table({"x": [1.0, 2.0, 3.0]}), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(pa.table({"x": pa.nulls(0)}))


@pytest.mark.parametrize("size", [1e-320, 1e300])
def test_columns_whose_curves_are_beyond_float64_are_refused(size):
    X, y = size * np.arange(1.0, 7.0)[:, None], np.arange(6.0)
    with pytest.raises(DataError, match=r"column 0 .* rescale it"):
        RegretOptimalRegressorCV().fit(X, y, sources={"b": (X[::-1], y)})


def test_targets_whose_squares_are_beyond_float64_are_refused_on_the_log_scale():
    X, y = np.arange(1.0, 7.0)[:, None], np.logspace(0, 200, 6)
    with pytest.raises(DataError, match="squares beyond float64"):
        RegretOptimalRegressorCV().fit(X, y, sources={"b": (X, y)})


def test_numbers_whose_sum_is_beyond_float64_are_finite():
    """The map gets them as they are; only its features must be usable."""

    class Small:
        def transform(self, X):
            return X / 1e308

    model = LocalRegressor(Small()).fit([[1e308], [1.1e308], [1.5e308]], [0.0, 1.0, 2.0])
    assert np.all(np.isfinite(model.predict([[1.2e308]])))
