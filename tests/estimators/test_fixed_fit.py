"""Many domains take a shorter way through the same fit."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from mixtune.estimators import RegretOptimalRegressor, _fits
from mixtune.moments import _datasets, _moments


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("intercept", [True, False])
def test_many_sources_are_fitted_like_few(outputs, intercept, monkeypatch):
    rng = np.random.default_rng(0)
    shape = (6,) if outputs is None else (6, outputs)
    truth = rng.standard_normal(shape)

    def draw(n):
        X = rng.standard_normal((n, 6))
        y = X @ (truth + 0.3 * rng.standard_normal(shape)) + 1.0
        return X, y + 0.1 * rng.standard_normal(y.shape), rng.uniform(0.5, 2.0, n)

    sources = {str(k): draw(int(n)) for k, n in enumerate(rng.integers(1, 12, 100))}
    X, y, weight = draw(8)

    def fit():
        return RegretOptimalRegressor(ridge=0.3, fit_intercept=intercept).fit(X, y, weight, sources=sources)

    fast = fit()
    for module, name in ((_fits, "MANY"), (_datasets, "MANY"), (_moments, "MANY_HEADS")):
        monkeypatch.setattr(module, name, 10**9)
    slow = fit()
    for name in ("coef_", "intercept_", "heads_", "head_intercepts_", "loo_error_"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-7, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(fast.weights_.values, slow.weights_.values, rtol=1e-7, atol=1e-12)
    assert fast.solution_.energy == pytest.approx(slow.solution_.energy, rel=1e-8)
    fast.forget("7")
    slow.forget("7")
    np.testing.assert_allclose(fast.coef_, slow.coef_, rtol=1e-7, atol=1e-9)
    again = copy.deepcopy(fast)
    np.testing.assert_array_equal(again.predict(X), fast.predict(X))
