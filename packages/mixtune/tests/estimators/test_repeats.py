"""Rows that repeat are left out together, and sample weights count relative to their mean."""

import numpy as np
import pytest

from mixtune import MultiDomainRegressor, RegretOptimalClassifierCV, RegretOptimalRegressorCV
from mixtune.moments import Rows, distinct_rows

TRUTH = np.array([1.0, -1.0, 0.5, 0.0])


def draw(seed, count=40, spread=0.2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, 4))
    return X, X @ (TRUTH + spread * rng.standard_normal(4)) + rng.standard_normal(count)


@pytest.fixture
def data():
    return *draw(0), {f"s{k}": draw(k + 1, 60) for k in range(3)}


def fit(X, y, sources, **settings):
    return RegretOptimalRegressorCV().fit(X, y, sources=sources, **settings)


def test_every_row_twice_changes_nothing(data):
    X, y, sources = data
    once = fit(X, y, sources)
    rng = np.random.default_rng(1)
    noise = 1e-7 * rng.standard_normal(X.shape)
    for again in (X, X + noise):
        twice = fit(np.vstack([X, again]), np.append(y, y), sources)
        np.testing.assert_allclose(twice.predict(X), once.predict(X), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(twice.loo_predictions_, np.tile(once.loo_predictions_, 2), rtol=1e-4, atol=1e-4)
        low, high = twice.predict_interval(X)
        np.testing.assert_allclose(high - low, np.subtract(*once.predict_interval(X)[::-1]), rtol=0.1)
        assert any("40 rows repeat others" in note for note in twice.notes_)
    assert not any("repeat" in note for note in once.notes_)


def test_a_repeated_row_counts_as_a_row_of_that_weight(data):
    X, y, sources = data
    places = np.concatenate([np.arange(40), np.arange(12), np.arange(5)])
    repeated = fit(X[places], y[places], sources)
    weighted = fit(X, y, sources, sample_weight=np.bincount(places).astype(float))
    np.testing.assert_allclose(repeated.predict(X), weighted.predict(X), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(repeated.loo_predictions_, weighted.loo_predictions_[places], rtol=1e-8, atol=1e-10)
    assert len(repeated.loo_predictions_) == 57


def test_repeats_in_sources_and_in_later_rows(data):
    X, y, sources = data
    once = fit(X, y, sources).predict(X)
    twice = {name: (np.vstack([A, A]), np.append(b, b)) for name, (A, b) in sources.items()}
    np.testing.assert_allclose(fit(X, y, twice).predict(X), once, rtol=1e-8, atol=1e-10)
    later = RegretOptimalRegressorCV().fit(X[:30], y[:30], sources=sources).partial_fit(X[20:], y[20:])
    whole = fit(np.vstack([X[:30], X[20:]]), np.append(y[:30], y[20:]), sources)
    np.testing.assert_allclose(later.predict(X), whole.predict(X), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("factor", [0.1, 10.0, 1e6])
def test_the_overall_size_of_weights_does_not_count(data, factor):
    X, y, sources = data
    weight = np.random.default_rng(2).uniform(0.5, 2.0, 40)
    for given in (np.ones(40), weight):
        plain = fit(X, y, sources, sample_weight=given).predict(X)
        scaled = {name: (*rows, np.full(60, factor)) for name, rows in sources.items()}
        moved = fit(X, y, scaled, sample_weight=factor * given).predict(X)
        np.testing.assert_allclose(moved, plain, atol=1e-8)
    names = np.repeat(["a", "b"], 20)
    plain = MultiDomainRegressor().fit(X, y, domain=names).predict(X, domain=names)
    every = MultiDomainRegressor().fit(X, y, domain=names, sample_weight=np.full(40, factor))
    np.testing.assert_allclose(every.predict(X, domain=names), plain, atol=1e-8)


def test_classes_of_repeated_rows(data):
    X, y, sources = data
    labels = {name: (A, b > 0) for name, (A, b) in sources.items()}
    once = RegretOptimalClassifierCV().fit(X, y > 0, sources=labels)
    twice = RegretOptimalClassifierCV().fit(np.vstack([X, X]), np.tile(y > 0, 2), sources=labels)
    np.testing.assert_allclose(twice.predict_proba(X), once.predict_proba(X), atol=1e-8)


def test_every_domain_with_repeated_rows():
    X, y = draw(0, 90)
    names = np.repeat(["a", "b", "c"], 30)
    once = MultiDomainRegressor().fit(X, y, domain=names)
    twice = MultiDomainRegressor().fit(np.vstack([X, X]), np.append(y, y), domain=np.tile(names, 2))
    np.testing.assert_allclose(twice.predict(X, domain=names), once.predict(X, domain=names), rtol=1e-8, atol=1e-9)
    assert twice.n_rows_.tolist() == [60, 60, 60]
    assert len(twice.left_out_columns("a")["actual"]) == 30


def test_rows_of_few_values_are_equal_by_chance():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, (60, 3)).astype(float), rng.integers(0, 2, 60).astype(float)
    once, places = distinct_rows(Rows(X, y))
    assert (len(once.y), once.sample_weight) == (60, None)
    assert places.tolist() == list(range(60))
    # Equal inputs with other targets are other rows.
    once, _ = distinct_rows(Rows(np.zeros((30, 2)), rng.standard_normal(30)))
    assert len(once.y) == 30
    # Nearly equal is not equal enough.
    X, y = draw(0)
    once, _ = distinct_rows(Rows(np.vstack([X, X + 1e-3]), np.append(y, y)))
    assert len(once.y) == 80


def test_values_beyond_squares():
    once, _ = distinct_rows(Rows(np.array([[1e300], [-1e300], [1e300]]), np.array([1.0, 2.0, 1.0])))
    assert once.X.ravel().tolist() == [1e300, -1e300]
