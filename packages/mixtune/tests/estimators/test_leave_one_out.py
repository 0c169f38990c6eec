"""Closed-form leave-one-out of fits at fixed parameters against its slow twin: refitting without each row."""

import numpy as np
import pytest

from mixtune.estimators import LocalRegressor, RegretOptimalRegressor

SETTINGS = {"transfer": 0.3, "stability": 1.0, "horizon": 4, "ridge": 0.5, "standardise": False}


def make(seed=0, sizes=(7, 12, 9), p=3, outputs=None, weighted=False):
    """Rows of domains, the focal one first: inputs, targets, weights."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        shape = (n,) if outputs is None else (n, outputs)
        weight = rng.choice([0.4, 1.0, 2.5], n) if weighted else np.ones(n)
        parts.append((rng.standard_normal((n, p)) + rng.standard_normal(p), rng.standard_normal(shape) + 3, weight))
    return parts


def fitted(parts, weights, **changes):
    names = ["focal", *map(str, range(1, len(parts)))]
    model = RegretOptimalRegressor(weights=dict(zip(names, weights)), **{**SETTINGS, **changes})
    return model.fit(*parts[0], sources=dict(zip(names[1:], parts[1:])))


def left_out_by_refitting(parts, fit):
    """Predictions of focal rows by fits without one unit of their weight."""
    (X, y, weight), *others = parts
    found = []
    for index in range(len(y)):
        less = weight.copy()
        less[index] -= min(less[index], 1.0)
        found.append(fit([(X, y, less), *others]).predict(X[index : index + 1])[0])
    return np.array(found)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize(("sizes", "p"), [((7, 12, 9), 3), ((5, 4, 6), 40), ((6, 30, 30), 20)])
def test_regret_optimal(sizes, p, outputs, weighted, fit_intercept):
    parts = make(1, sizes, p, outputs, weighted)

    def fit(domains):
        return fitted(domains, [0.5, 0.3, 0.2], fit_intercept=fit_intercept)

    model = fit(parts)
    np.testing.assert_allclose(model.loo_predictions_, left_out_by_refitting(parts, fit), rtol=1e-8, atol=1e-9)
    squares = np.reshape((parts[0][1] - model.loo_predictions_) ** 2, (sizes[0], -1)).mean(axis=1)
    assert model.loo_error_ == pytest.approx(np.average(squares, weights=parts[0][2]))


@pytest.mark.parametrize("changes", [{"horizon": 0}, {"transfer": 0.0, "stability": 0.0}, {"stability": 0.0}])
def test_limits_of_the_schedule(changes):
    parts, weights = make(2), [0.6, 0.2, 0.2]
    expected = left_out_by_refitting(parts, lambda domains: fitted(domains, weights, **changes))
    np.testing.assert_allclose(fitted(parts, weights, **changes).loo_predictions_, expected, rtol=1e-8)


def test_without_weight_on_the_focal_domain_nothing_changes():
    parts = make(3)
    model = fitted(parts, [0.0, 0.5, 0.5])
    np.testing.assert_allclose(model.loo_predictions_, model.predict(parts[0][0]), rtol=1e-12)


@pytest.mark.parametrize("p", [2, 30])
def test_plain_ridge(p):
    parts = make(4, (8,), p, weighted=True)

    def fit(domains):
        return LocalRegressor(ridge=0.5, standardise=False).fit(*domains[0])

    np.testing.assert_allclose(fit(parts).loo_predictions_, left_out_by_refitting(parts, fit), rtol=1e-8)


def test_what_cannot_be_told_is_infinite_not_nan():
    assert fitted(make(5, (1, 9), 2), [0.5, 0.5]).loo_error_ == np.inf
    X, y, _ = make(5, (4,), 9)[0]
    assert LocalRegressor(ridge=0.0).fit(X, y).loo_error_ == np.inf


@pytest.mark.parametrize("p", [3, 400])
def test_many_rows_by_the_hat_matrix(p):
    X, y, weight = make(6, (700,), p)[0]
    U = X - X.mean(axis=0)
    hat = U @ np.linalg.solve(U.T @ U + 0.5 * np.eye(p), U.T) + 1 / 700
    model = LocalRegressor(ridge=0.5, standardise=False).fit(X, y, weight)
    np.testing.assert_allclose(y - model.loo_predictions_, (y - hat @ y) / (1 - np.diagonal(hat)), rtol=1e-7, atol=1e-9)
