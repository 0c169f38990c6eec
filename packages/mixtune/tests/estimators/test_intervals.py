"""Intervals and quantiles follow the local spread."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune import RegretOptimalClassifierCV, RegretOptimalRegressor, RegretOptimalRegressorCV, load
from mixtune.errors import ParameterError


def draw(rng, count, slope, spread=0.7, noise=0.5):
    X = rng.standard_normal((count, 3))
    return X, np.sin(X[:, 0]) + X @ slope + noise * np.exp(spread * X[:, 1]) * rng.standard_normal(count)


def problem(seed=0, count=60, sources=5, **options):
    rng = np.random.default_rng(seed)
    slopes = np.array([0.0, 1.0, 0.5]) + 0.2 * rng.standard_normal((sources + 1, 3))
    others = {f"s{k}": draw(rng, 120, slope, **options) for k, slope in enumerate(slopes[1:])}
    return *draw(rng, count, slopes[0], **options), others, draw(rng, 1500, slopes[0], **options)


def thirds(low, high, X, y):
    """The parts covered of the rows with the smallest and the largest noise."""
    inside, order = (low <= y) & (y <= high), np.argsort(X[:, 1])
    return np.mean(inside[order[:500]]), np.mean(inside[order[-500:]])


@pytest.mark.parametrize("feature_map", ["auto", None])
@pytest.mark.parametrize("sources", [0, 5])
def test_rows_with_little_and_with_much_noise_are_covered_alike(feature_map, sources):
    found = []
    for seed in range(3):
        X, y, others, (new, truth) = problem(seed, 200, sources)
        model = RegretOptimalRegressorCV(feature_map).fit(X, y, sources=others)
        found.append(thirds(*model.predict_interval(new), new, truth))
        std = model.predict(new, return_std=True)[1]
        assert np.mean(std[new[:, 1] > 1]) > 1.7 * np.mean(std[new[:, 1] < -1])
    quiet, loud = np.mean(found, axis=0)
    assert loud > 0.84
    assert quiet < 0.97


def test_equal_noise_is_told_from_noise_that_varies():
    X, y, others, (new, _) = problem(0, 200, spread=0.0)
    low, high = RegretOptimalRegressorCV().fit(X, y, sources=others).predict_interval(new)
    assert np.quantile(high - low, 0.9) < 1.25 * np.quantile(high - low, 0.1)


def test_twenty_rows_learn_the_pattern_from_the_sources():
    narrow, wide = [], []
    for seed in range(6):
        X, y, others, (new, _) = problem(seed, 20)
        for sources, found in ((others, wide), (problem(seed, 20, spread=0.0)[2], narrow)):
            low, high = RegretOptimalRegressorCV().fit(X, y, sources=sources).predict_interval(new)
            width = np.log(high - low)
            found.append(np.mean(width[new[:, 1] > 1]) - np.mean(width[new[:, 1] < -1]))
    assert np.mean(wide) > np.mean(narrow) + 0.2


@pytest.mark.parametrize("rows", [20, 60])
def test_few_rows_without_sources_are_covered(rows):
    """Left-out rows do not tell that the same rows taught the kernel, nor how far new rows lie from them."""
    covered = []
    for seed in range(8):
        X, y, _, (new, truth) = problem(seed, rows, 0, spread=0.0)
        low, high = RegretOptimalRegressorCV().fit(X, y).predict_interval(new)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert 0.84 < np.mean(covered) < 0.97


def test_rows_without_noise_are_covered():
    covered = []
    for seed in range(4):
        X, y, others, (new, truth) = problem(seed, 200, 3, noise=0.0)
        low, high = RegretOptimalRegressorCV().fit(X, y, sources=others).predict_interval(new)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert 0.8 < np.mean(covered) <= 1.0


@pytest.mark.parametrize("rows", [2, 5])
def test_equal_rows_do_not_give_narrow_intervals(rows):
    covered = []
    for seed in range(4):
        X, y, others, (new, truth) = problem(seed, rows, spread=0.0)
        model = RegretOptimalRegressorCV().fit(np.tile(X[:1], (rows, 1)), np.full(rows, y[0]), sources=others)
        low, high = model.predict_interval(new, coverage=0.6)
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert np.mean(covered) > 0.35


def test_quantiles_are_ends_of_intervals():
    X, y, others, (new, _) = problem()
    model = RegretOptimalRegressorCV().fit(X, y, sources=others)
    found = model.predict_quantiles(new, levels=[0.95, 0.5, 0.05, 0.3])
    low, high = model.predict_interval(new, coverage=0.9)
    np.testing.assert_allclose(found[:, [2, 1, 0]], np.column_stack([low, model.predict(new), high]))
    assert np.all((low < found[:, 3]) & (found[:, 3] < found[:, 1]))
    assert model.predict_quantiles(new).shape == (1500, 5)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, np.nan])
def test_levels_are_between_0_and_1(level):
    X, y, others, (new, _) = problem()
    with pytest.raises(ParameterError, match="levels"):
        RegretOptimalRegressor().fit(X, y, sources=others).predict_quantiles(new, levels=[level])


def test_quantiles_of_prices_are_positive_and_around_the_median():
    X, y, others, (new, truth) = problem()
    prices = {name: (U, np.exp(v)) for name, (U, v) in others.items()}
    model = RegretOptimalRegressorCV(target_scale="log").fit(X, np.exp(y), sources=prices)
    found = model.predict_quantiles(new, levels=[0.1, 0.5, 0.9])
    assert found.min() > 0
    assert np.mean(np.exp(truth) < found[:, 1]) == pytest.approx(0.5, abs=0.1)
    low, high = model.predict_interval(new, coverage=0.8)
    np.testing.assert_allclose(found[:, [0, 2]], np.column_stack([low, high]))
    quiet, loud = thirds(low, high, new, np.exp(truth))
    assert loud > 0.68
    assert quiet < 0.92


def test_each_output_has_a_spread_of_its_own():
    X, y, others, (new, _) = problem(count=150)
    both = {name: (U, np.column_stack([v, v[::-1]])) for name, (U, v) in others.items()}
    rng = np.random.default_rng(0)
    targets = np.column_stack([y, X[:, 0] + 0.5 * np.exp(-0.7 * X[:, 1]) * rng.standard_normal(len(y))])
    model = RegretOptimalRegressorCV().fit(X, targets, sources=both)
    low, high = model.predict_interval(new)
    up = new[:, 1] > 1
    width = np.median((high - low)[up], axis=0) / np.median((high - low)[new[:, 1] < -1], axis=0)
    assert width[0] > 1.5
    assert width[1] < 0.7
    assert model.predict_quantiles(new, levels=(0.1, 0.9)).shape == (1500, 2, 2)


@pytest.mark.parametrize("change", ["plain", "log", "linear", "outputs", "repeated", "weighted"])
def test_a_saved_model_has_the_same_intervals(tmp_path, change):
    X, y, others, (new, _) = problem()
    weight, settings = None, {}
    if change == "log":
        y, others, settings = np.exp(y), {k: (U, np.exp(v)) for k, (U, v) in others.items()}, {"target_scale": "log"}
    elif change == "linear":
        settings = {"feature_map": None}
    elif change == "outputs":
        y, others = np.column_stack([y, -y]), {k: (U, np.column_stack([v, -v])) for k, (U, v) in others.items()}
    elif change == "repeated":
        X, y = np.vstack([X, X[:30]]), np.append(y, y[:30])
    elif change == "weighted":
        weight = np.linspace(0.5, 2.0, len(y))
    model = RegretOptimalRegressorCV(**settings).fit(X, y, weight, sources=others)
    again = load(model.save(tmp_path / "a.mixtune"))
    np.testing.assert_array_equal(again.predict_interval(new), model.predict_interval(new))
    np.testing.assert_array_equal(again.predict(new, return_std=True)[1], model.predict(new, return_std=True)[1])
    np.testing.assert_array_equal(again.predict_quantiles(new), model.predict_quantiles(new))


def test_classes_do_not_change():
    X, y, others, (new, _) = problem()
    labels = {name: (U, v > 0) for name, (U, v) in others.items()}
    model = RegretOptimalClassifierCV().fit(X, y > 0, sources=labels)
    assert not hasattr(model, "predict_quantiles")
    assert np.all(np.isfinite(model.predict_proba(new)))
