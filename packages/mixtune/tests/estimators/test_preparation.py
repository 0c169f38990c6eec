import numpy as np
import pyarrow as pa
import pytest

from mixtune import MultiDomainRegressor, RegretOptimalRegressor, RegretOptimalRegressorCV
from mixtune.data import check_weight
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._fits import Features, check_map, prepare
from mixtune.estimators._inputs import Source, read_source, trim
from mixtune.features._base import check_finite
from mixtune.moments import Rows, pooled_scaling

OPTIONS = {"features": Features(), "standardise": True, "fit_intercept": True}


def test_pooled_standardisation_with_weights():
    rng = np.random.default_rng(0)
    parts = [
        Rows(rng.standard_normal((n, 2)) * [1.0, 1e6] + 3, rng.standard_normal(n), w)
        for n, w in ((4, None), (9, rng.uniform(size=9)))
    ]
    ready = prepare({"focal": parts[0], "b": parts[1]}, **OPTIONS)
    weight = np.concatenate([rows.weight for rows in parts])
    scaled = [ready.scaling.apply(rows) for rows in parts]
    X = np.concatenate([rows.X for rows in scaled])
    np.testing.assert_allclose(np.average(X, axis=0, weights=weight), 0, atol=1e-12)
    np.testing.assert_allclose(np.average(X**2, axis=0, weights=weight), 1)
    assert np.average(np.concatenate([rows.y for rows in scaled]), weights=weight) == pytest.approx(0)


def test_constant_columns_and_huge_values():
    X = np.column_stack([np.full(50, 1e9 + 0.1), np.linspace(-1e300, 1e300, 50)])
    scaling = pooled_scaling([Rows(X, np.ones(50))], standardise=True, center=True)
    assert scaling.scale[0] == 1.0
    assert np.all(np.isfinite(scaling.features(X)))


def test_without_intercept_the_origin_stays():
    rows = [Rows(np.array([[1.0], [3.0]]), np.array([1.0, 2.0]))]
    scaling = prepare({"focal": rows[0]}, **{**OPTIONS, "fit_intercept": False}).scaling
    assert scaling.shift.tolist() == [0.0]
    assert scaling.scale.tolist() == [1.0]
    assert scaling.target_shift == 0.0


def test_back_to_units():
    rng = np.random.default_rng(0)
    rows = [Rows(rng.standard_normal((8, 3)) * 5 + 2, rng.standard_normal((8, 2)))]
    ready = prepare({"focal": rows[0]}, **OPTIONS)
    coef, intercept = rng.standard_normal((3, 2)), rng.standard_normal(2)
    expected = ready.focal.X @ coef + intercept + ready.scaling.target_shift
    coef, intercept = ready.scaling.to_units(coef, intercept)
    np.testing.assert_allclose(rows[0].X @ coef + intercept, expected)


def test_rows_of_weight_zero_are_absent():
    rows = trim(Rows(np.ones((3, 1)), np.arange(3.0), np.array([1.0, 0.0, 2.0])))
    assert rows.y.tolist() == [0.0, 2.0]


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


FOCAL = Rows(np.ones((2, 2)), np.ones(2))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Source([[1.0]], [1.0]), 'domain "b" has 1 columns, the focal rows have 2'),
        (Source([[1.0, 2.0]], [[1.0, 2.0]]), 'domain "b" has 2 outputs'),
        (Source([[1.0, 2.0]], [1.0, 2.0]), 'of domain "b"'),
        (Source([["x", "y"]], [1.0]), 'X of domain "b" holds text'),
        (Source([[1.0, np.nan]], [1.0]), 'domain "b" has 1 value that is NaN'),
        (Source(np.ones((0, 2)), []), "at least one row"),
        (Source([[1.0, 2.0]], [1.0], [1.0, 2.0]), 'sample_weight of domain "b"'),
        (Source([[1.0, 2.0]], [1.0], None, ("p", "z")), 'domain "b".*missing "q" and extra "z"'),
    ],
)
def test_sources_refused(source, words):
    with pytest.raises(DataError, match=words):
        read_source("b", source, FOCAL, ("p", "q"))


def test_feature_maps():
    class Wrong:
        def transform(self, X):
            return X[:1]

    class Bad:
        def transform(self, X):
            return X * np.inf

    X = np.ones((2, 1))
    assert Features()(X) is X
    with pytest.raises(DataError, match="keep the rows"):
        Features(Wrong())(X)
    with pytest.raises(DataError, match="NaN or infinite"):
        Features(Bad())(X)
    with pytest.raises(ParameterError, match="needs transform"):
        check_map(3)


def test_equations_that_cannot_be_solved_are_a_clear_error():
    """Sums that differ by 1e190 between domains; nothing that double precision can tell apart."""
    rng = np.random.default_rng(0)
    X, y, domain = rng.standard_normal((27, 3)), rng.standard_normal(27), np.repeat(list("abcd"), [5, 2, 10, 10])
    X[domain == "b"] *= 1e62
    weight = np.where(domain == "a", 1e127, 1.0)
    sources = {name: (X[domain == name], y[domain == name], weight[domain == name]) for name in "abcd"}
    with pytest.raises(DataError, match="orders of magnitude"):
        RegretOptimalRegressorCV(feature_map=None).fit(X[-2:], y[-2:], sources=sources)
    with pytest.raises(DataError, match="orders of magnitude"):
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
    check_finite(np.array([[1e308], [1e308]]), "X")
