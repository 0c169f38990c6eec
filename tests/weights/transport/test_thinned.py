"""Transport on few pairs: the same answer as on all of them, or none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from mixtune.weights import _transport_exact as _exact
from mixtune.weights._transport_exact import (
    Plan,
    SparsePlan,
    _bound,
    _checked,
    masses,
    solve_samples,
    solve_within,
    thinned_transport,
    transport,
    unit_costs,
)
from mixtune.weights.transport import wasserstein_distance


def samples(n, m, d, *, seed=0, shift=0.3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + shift


@pytest.mark.parametrize(("n", "m"), [(300, 300), (260, 251), (400, 100)])
@pytest.mark.parametrize(("d", "shift"), [(4, 0.0), (10, 0.3), (10, 3.0), (60, 0.1)])
def test_same_as_on_all_pairs(n, m, d, shift):
    X, Y = samples(n, m, d, seed=n + d, shift=shift)
    cost, _ = unit_costs(X, Y)
    a, b = masses(n, m)
    slow = transport(cost, a, b)
    thin = thinned_transport(cost, a, b)
    assert isinstance(thin, SparsePlan)
    assert thin.flow @ cost[thin.rows, thin.columns] / a.sum() == pytest.approx(slow.cost, rel=1e-12)
    np.testing.assert_array_equal(np.bincount(thin.rows, thin.flow, n), a)
    np.testing.assert_array_equal(np.bincount(thin.columns, thin.flow, m), b)
    assert (cost - thin.row_potential[:, None] - thin.column_potential).min() > -1e-12
    checked = _checked(thin, cost, a, b)
    assert checked is not None
    assert np.count_nonzero(checked.flow) < n + m


def test_the_exact_distance_takes_it_and_is_the_same_without(monkeypatch, ot):
    A, B = samples(330, 300, 6)
    with_it = wasserstein_distance(A, B, method="exact")
    calls = []
    monkeypatch.setattr(_exact, "thinned_transport", lambda *_, **__: calls.append(1))
    without = wasserstein_distance(A, B, method="exact")
    assert calls == [1]
    assert with_it.value == pytest.approx(without.value, rel=1e-12)
    assert with_it.value == pytest.approx(ot.emd2(np.full(330, 1 / 330), np.full(300, 1 / 300), cdist(A, B)), rel=1e-12)
    assert with_it.gap <= 1e-9 * with_it.value


def test_repeated_rows_and_grids_still_come_out_exact(ot):
    rng = np.random.default_rng(0)
    grid = [rng.integers(0, 3, (300, 5)).astype(float) for _ in range(2)]
    repeated = [np.repeat(rng.standard_normal((k, 5)), 300 // k, axis=0) for k in (30, 50)]
    same = rng.standard_normal((300, 5))
    far_row = np.vstack([same[1:], np.full((1, 5), 1e6)])
    equal = np.full(300, 1 / 300)
    for A, B in (grid, repeated, (same, same + 0.2), (same, far_row)):
        expected = ot.emd2(equal, equal, cdist(A, B))
        assert wasserstein_distance(A, B, method="exact").value == pytest.approx(expected, rel=1e-9)
    assert wasserstein_distance(same, same[::-1], method="exact").value == 0.0


def test_gives_up_rather_than_run_on(monkeypatch):
    monkeypatch.setattr(_exact, "THIN_ROUNDS", 0)
    X, Y = samples(300, 300, 10)
    cost, _ = unit_costs(X, Y)
    assert thinned_transport(cost, *masses(300, 300)) is None


def test_a_wrong_plan_is_not_believed():
    X, Y = samples(250, 250, 5)
    cost, _ = unit_costs(X, Y)
    a, b = masses(250, 250)
    thin = thinned_transport(cost, a, b)
    assert isinstance(thin, SparsePlan)
    lost = SparsePlan(thin.rows, thin.columns, thin.flow * 0.5, thin.row_potential, thin.column_potential)
    costly = SparsePlan(np.arange(250), np.arange(250), np.ones(250), thin.row_potential, thin.column_potential)
    assert _checked(lost, cost, a, b) is None
    assert _checked(costly, cost, a, b) is None
    assert _checked(None, cost, a, b) is None


def known_distance(n, d, *, seed=0):
    """Samples whose distance is exactly 1/4: the same rows, moved along an axis by more than they are spread."""
    X = np.random.default_rng(seed).integers(-64, 64, (n, d)) / 1024.0
    return X, X + np.eye(d)[0] / 4.0


@pytest.mark.parametrize("seed", range(5))
def test_bounds_on_the_way_never_exceed_the_distance(seed):
    """Not even by rounding: potentials are moved by constants, which changes no bound in exact arithmetic."""
    X, Y = known_distance(230, 5, seed=seed)
    cost, (a, b) = cdist(X, Y), masses(230, 230)
    found = []
    for constant in np.random.default_rng(seed).uniform(-1, 1, 100):
        u, v = constant - X[:, 0], Y[:, 0] - constant
        found.append(_bound(cost - u[:, None] - v, a, b, u, v))
    assert max(found) <= 0.25
    assert min(found) >= 0.25 - 1e-11  # and hardly below


@pytest.mark.parametrize("seed", range(5))
def test_a_distance_equal_to_the_limit_is_not_beyond_it(seed):
    X, Y = known_distance(230, 5, seed=seed)
    for left, right in ((X, Y), (Y, X), (X[:, ::-1], Y[:, ::-1])):
        found = solve_within(left, right, 0.25, seed=0, subsample=1000)
        assert isinstance(found, Plan)
        assert found.cost == pytest.approx(0.25, rel=1e-12)
        below = solve_within(left, right, 0.25 - 1e-9, seed=0, subsample=1000)
        assert isinstance(below, float)  # proven from the potentials
        assert 0.25 - 1e-9 < below <= 0.25


@pytest.mark.parametrize("d", [3, 10])  # three columns go through the solver on all pairs
def test_a_limit_ends_the_search_only_beyond_it(d):
    X, Y = samples(300, 280, d)
    exact = solve_samples(X, Y, seed=0, subsample=1000).cost
    for share in (0.3, 0.9, 1.1, np.inf):
        found = solve_within(X, Y, share * exact, seed=0, subsample=1000)
        if isinstance(found, Plan):
            assert found.cost == pytest.approx(exact, rel=1e-12)
        else:
            assert share * exact < found <= exact
    assert isinstance(solve_within(X, Y, 0.9 * exact, seed=0, subsample=1000), float) == (d >= 4)
    turned = solve_within(Y, X, 0.5 * exact, seed=0, subsample=1000)
    assert isinstance(turned, Plan) == (d < 4)
