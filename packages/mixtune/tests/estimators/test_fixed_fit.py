"""Fits at fixed parameters: many domains take a shorter way through the same fit, and stopping early."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from mixtune.errors import ParameterError
from mixtune.estimators import RegretOptimalRegressor, load


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("intercept", [True, False])
def test_many_sources_are_fitted_like_few(outputs, intercept):
    """Weighted normal equations written out, with the coefficients of each domain from scikit-learn."""
    rng = np.random.default_rng(0)
    shape = (6,) if outputs is None else (6, outputs)
    truth = rng.standard_normal(shape)

    def draw(n):
        X = rng.standard_normal((n, 6))
        y = X @ (truth + 0.3 * rng.standard_normal(shape)) + 1.0
        return X, y + 0.1 * rng.standard_normal(y.shape), rng.uniform(0.5, 2.0, n)

    sources = {str(k): draw(int(n)) for k, n in enumerate(rng.integers(1, 12, 100))}
    X, y, weight = draw(8)
    settings = {"ridge": 0.3, "transfer": 0.4, "stability": 0.0, "standardise": False, "fit_intercept": intercept}
    model = RegretOptimalRegressor(**settings).fit(X, y, weight, sources=sources)
    parts = [(X, y, weight), *sources.values()]
    ridges = [Ridge(alpha=0.3, fit_intercept=intercept, solver="cholesky").fit(*part) for part in parts]
    np.testing.assert_allclose(model.heads_, [each.coef_.T for each in ridges], rtol=1e-7, atol=1e-9)
    for found, each in zip(model.head_intercepts_, ridges, strict=True):
        np.testing.assert_allclose(found, each.intercept_, rtol=1e-7, atol=1e-9)
    squares = [np.reshape((y - each.predict(X)) ** 2, (8, -1)).mean(axis=1) for each in ridges]
    errors = np.average(squares, axis=1, weights=weight)
    np.testing.assert_allclose(model.weights_.scores, errors, rtol=1e-7)
    shares = model.weights_.values
    gram, cross = 0.0, 0.0
    for share, (U, v, w) in zip(shares, parts):
        design = np.column_stack([U, np.ones(len(U))]) if intercept else U
        gram, cross = gram + share * (design.T * w) @ design, cross + share * (design.T * w) @ v
    penalty = 0.4 / np.sum(shares**2) * np.diag([1.0] * 6 + [0.0] * intercept)
    prior = np.tensordot(shares, [each.coef_.T for each in ridges], 1)
    start = np.concatenate([prior, np.zeros((1, *prior.shape[1:]))]) if intercept else prior
    head = np.linalg.solve(gram + penalty, cross + penalty @ start)
    np.testing.assert_allclose(model.coef_, head[:6], rtol=1e-7, atol=1e-9)
    if intercept:
        np.testing.assert_allclose(model.intercept_, head[6], rtol=1e-7, atol=1e-9)
    again = copy.deepcopy(model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    less = {name: part for name, part in sources.items() if name != "7"}
    expected = RegretOptimalRegressor(**settings).fit(X, y, weight, sources=less)
    np.testing.assert_allclose(model.forget("7").coef_, expected.coef_, rtol=1e-7, atol=1e-9)


# --- stopping early ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopping():
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((4, 2))

    def draw(rows, away):
        X = rng.standard_normal((rows, 4)) + 0.5
        return X, X @ (truth + away * rng.standard_normal(truth.shape)) + rng.standard_normal((rows, 2)) + 1

    settings = {"weights": {"focal": 0.5, "a": 0.3, "b": 0.2}, "ridge": 0.5, "transfer": 0.02, "stability": 0.3}
    return *draw(9, 0.0), {"a": draw(20, 0.5), "b": draw(15, 0.3)}, {**settings, "horizon": 6}


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_left_out_errors_of_a_step_are_those_of_refits(stopping, fit_intercept, outputs):
    X, Y, sources, settings = stopping
    y = Y[:, 0] if outputs == 1 else Y
    sources = {name: (U, V[:, 0] if outputs == 1 else V) for name, (U, V) in sources.items()}
    settings = {**settings, "fit_intercept": fit_intercept, "standardise": False}
    model = RegretOptimalRegressor(stop=2, **settings).fit(X, y, sources=sources)
    assert model.stopped_at_ == 2
    refits = []
    for row in range(len(X)):
        kept = np.arange(len(X)) != row
        refit = RegretOptimalRegressor(stop=2, **settings).fit(X[kept], y[kept], sources=sources)
        refits.append(refit.predict(X[row : row + 1])[0])
    np.testing.assert_allclose(np.asarray(model.loo_predictions_).reshape(np.shape(refits)), refits, rtol=1e-8)


def test_the_best_step_has_the_least_left_out_error(stopping):
    X, Y, sources, settings = stopping
    models = [RegretOptimalRegressor(stop=t, **settings).fit(X, Y, sources=sources) for t in range(7)]
    errors = [model.loo_error_ for model in models]
    best = RegretOptimalRegressor(stop="best", **settings).fit(X, Y, sources=sources)
    assert best.stopped_at_ == int(np.argmin(errors))
    assert best.loo_error_ == pytest.approx(min(errors))
    whole = RegretOptimalRegressor(**settings).fit(X, Y, sources=sources)
    assert whole.stopped_at_ == 6
    np.testing.assert_allclose(models[6].coef_, whole.coef_, rtol=1e-12)
    assert errors[6] == pytest.approx(whole.loo_error_)
    # The model of a step is that of the trajectory, in standardised units.
    ratio = (models[3].coef_ - models[0].coef_) / (whole.coef_ - models[0].coef_)
    path = best.solution_
    share = (path.coef_at(3) - path.coef_at(0)) / (path.coef - path.coef_at(0))
    np.testing.assert_allclose(ratio, share, rtol=1e-6)


def test_stops_are_checked_and_kept(stopping, tmp_path):
    X, Y, sources, settings = stopping
    for stop, message in ((7, "a step from 0 to horizon, 6"), (-1, "stop"), ("first", "stop"), (1.5, "stop")):
        with pytest.raises(ParameterError, match=message):
            RegretOptimalRegressor(stop=stop, **settings).fit(X, Y, sources=sources)
    with pytest.raises(ParameterError, match="horizon of at most 1,000,000"):
        RegretOptimalRegressor(stop="best", **{**settings, "horizon": 10**7}).fit(X, Y, sources=sources)
    alone = RegretOptimalRegressor(stop="best").fit(X, Y)
    assert alone.stopped_at_ is None
    model = RegretOptimalRegressor(stop="best", **settings).fit(X, Y, sources=sources)
    again = load(model.save(tmp_path / "model.mixtune"))
    assert again.stopped_at_ == model.stopped_at_
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.loo_error_ == model.loo_error_
