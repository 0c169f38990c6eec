"""Closed-form leave-one-out against its slow twin: refitting without each row."""

import dataclasses

import numpy as np
import pytest

from mixtune.estimators._fits import (
    Features,
    State,
    focal_fit,
    local_heads,
    prepare,
    regret_optimal,
    ridge_alone,
    solved,
)
from mixtune.moments import Rows, leave_one_out, posterior
from mixtune.weights import DomainWeights

SETTINGS = {"transfer": 0.3, "stability": 1.0, "horizon": 4}


def make(seed=0, sizes=(7, 12, 9), p=3, outputs=None, weighted=False, fit_intercept=True):
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        shape = (n,) if outputs is None else (n, outputs)
        weight = rng.choice([0.4, 1.0, 2.5], n) if weighted else None
        parts.append(Rows(rng.standard_normal((n, p)) + rng.standard_normal(p), rng.standard_normal(shape) + 3, weight))
    names = ["focal", *map(str, range(1, len(sizes)))]
    return prepare(dict(zip(names, parts)), Features(), standardise=True, fit_intercept=fit_intercept)


def without(prepared, index):
    """The same prepared rows, with one unit of weight of focal row ``index`` taken away."""
    focal = prepared.mapped[0]
    weight = focal.weight.copy()
    weight[index] -= min(weight[index], 1.0)
    left = Rows(focal.X, focal.y, weight).part(weight > 0)
    return dataclasses.replace(prepared, mapped=(left, *prepared.mapped[1:]))


def fit_ours(prepared, weights, ridge=0.5, **changes):
    state = State.of(prepared)
    heads = local_heads(state, ridge)
    given = DomainWeights(np.array(weights), prepared.names, 0, "given")
    _, fit = regret_optimal(state, heads, given, **{**SETTINGS, **changes})
    return state, fit, focal_fit(state, heads, ridge)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize(("sizes", "p"), [((7, 12, 9), 3), ((5, 4, 6), 40), ((6, 30, 30), 20)])
def test_regret_optimal(sizes, p, outputs, weighted, fit_intercept):
    prepared = make(1, sizes, p, outputs, weighted, fit_intercept)
    weights = [0.5, 0.3, 0.2]
    left_out = leave_one_out(prepared.focal, *fit_ours(prepared, weights)[1:])
    for index in range(sizes[0]):
        _, fit, _ = fit_ours(without(prepared, index), weights)
        row = prepared.focal.X[index : index + 1]
        np.testing.assert_allclose(left_out.predictions[index], fit.predict(row)[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(left_out.spreads[index], posterior(fit).spread(row)[0], rtol=1e-8)
    expected = np.average(np.mean(left_out.residuals**2, axis=1), weights=prepared.focal.weight)
    assert left_out.error == pytest.approx(expected)


@pytest.mark.parametrize("changes", [{"horizon": 0}, {"transfer": 0.0, "stability": 0.0}, {"stability": 0.0}])
def test_limits_of_the_schedule(changes):
    prepared, weights = make(2), [0.6, 0.2, 0.2]
    left_out = leave_one_out(prepared.focal, *fit_ours(prepared, weights, **changes)[1:])
    for index in range(len(left_out.predictions)):
        _, fit, _ = fit_ours(without(prepared, index), weights, **changes)
        expected = fit.predict(prepared.focal.X[index : index + 1])[0]
        np.testing.assert_allclose(left_out.predictions[index], expected, rtol=1e-9)


def test_without_weight_on_the_focal_domain_nothing_changes():
    prepared = make(3)
    _, fit, head = fit_ours(prepared, [0.0, 0.5, 0.5])
    left_out = leave_one_out(prepared.focal, fit, head)
    np.testing.assert_array_equal(left_out.predictions, fit.predict(prepared.focal.X))


@pytest.mark.parametrize("p", [2, 30])
def test_plain_ridge(p):
    prepared = make(4, (8,), p, weighted=True)
    state = State.of(prepared)
    left_out = leave_one_out(state.focal, ridge_alone(state, 0.5)[1])
    for index in range(8):
        _, fit = ridge_alone(State.of(without(prepared, index)), 0.5)
        expected = fit.predict(state.focal.X[index : index + 1])[0]
        np.testing.assert_allclose(left_out.predictions[index], expected, rtol=1e-9)


def test_what_cannot_be_told_is_infinite_not_nan():
    one_row = make(5, (1, 9), 2)
    left_out = leave_one_out(one_row.focal, *fit_ours(one_row, [0.5, 0.5])[1:])
    assert left_out.error == np.inf
    saturated = make(5, (4,), 9)
    state = State.of(saturated)
    assert leave_one_out(state.focal, ridge_alone(state, 0.0)[1]).error == np.inf


def test_blocks_change_nothing(monkeypatch):
    import mixtune.moments._leave_one_out as module

    for p in (3, 400):
        prepared = make(6, (300, 50), p)
        _, fit, head = fit_ours(prepared, [0.5, 0.5])
        whole = leave_one_out(prepared.focal, fit, head).predictions
        monkeypatch.setattr(module, "BLOCK", 1)  # blocks of 256 rows
        np.testing.assert_allclose(leave_one_out(prepared.focal, fit, head).predictions, whole, rtol=1e-8)
        monkeypatch.undo()


def test_uncertainty_is_lazy_and_calibrated():
    prepared = make(7, (40, 50), 3)
    state, fit, head = fit_ours(prepared, [0.6, 0.4])
    uncertainty = solved(state, fit, head).uncertainty
    assert "left_out" not in vars(uncertainty)
    left_out = uncertainty.left_out
    scaled = left_out.residuals**2 / (left_out.spreads[:, None] * left_out.noise)
    np.testing.assert_allclose(scaled.mean(axis=0), 1.0)
