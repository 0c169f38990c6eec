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
    _candidates,
    _checked,
    _linear_potentials,
    _reduce,
    _rough_potentials,
    _steepest,
    masses,
    solve_on_pairs,
    solve_samples,
    solve_within,
    staircase,
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
        found = solve_within(left, right, 0.25)
        assert isinstance(found, Plan)
        assert found.cost == pytest.approx(0.25, rel=1e-12)
        below = solve_within(left, right, 0.25 - 1e-9)
        assert isinstance(below, float)  # proven from the potentials
        assert 0.25 - 1e-9 < below <= 0.25


@pytest.mark.parametrize("d", [3, 10])  # three columns go through the solver on all pairs
def test_a_limit_ends_the_search_only_beyond_it(d):
    X, Y = samples(300, 280, d)
    exact = solve_samples(X, Y).cost
    for share in (0.3, 0.9, 1.1, np.inf):
        found = solve_within(X, Y, share * exact)
        if isinstance(found, Plan):
            assert found.cost == pytest.approx(exact, rel=1e-12)
        else:
            assert share * exact < found <= exact
    assert isinstance(solve_within(X, Y, 0.9 * exact), float) == (d >= 4)
    turned = solve_within(Y, X, 0.5 * exact)
    assert isinstance(turned, Plan) == (d < 4)


def test_charging_rows_and_columns_leaves_a_zero_in_each():
    X, Y = samples(30, 20, 3)
    cost, (a, b), rng = cdist(X, Y), masses(30, 20), np.random.default_rng(0)
    before = rng.standard_normal(30), rng.standard_normal(20)
    u, v, rest, charge = _reduce(cost, a, b, *before)
    np.testing.assert_allclose(rest, cost - u[:, None] - v, atol=1e-14)
    assert rest.min() > -1e-14
    np.testing.assert_allclose(rest.min(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(rest.min(axis=1), 0.0, atol=1e-14)
    assert charge == pytest.approx((a @ (u - before[0]) + b @ (v - before[1])) / a.sum(), rel=1e-12)


@pytest.mark.parametrize(("d", "shift"), [(4, 0.0), (10, 0.3), (10, 3.0), (60, 0.1)])
def test_rough_potentials_are_close_to_optimal(d, shift):
    """Close enough that few pairs are left to be found by pricing."""
    X, Y = samples(300, 240, d, shift=shift)
    cost, exponent = unit_costs(X, Y)
    a, b = masses(300, 240)
    exact = transport(cost, a, b).cost
    for guess in (None, _linear_potentials(X, Y, exponent)):
        u, v = _rough_potentials(cost, a, b, guess)
        assert 0.98 * exact < _bound(cost - u[:, None] - v, a, b, u, v) <= exact


def test_far_samples_are_solved_by_the_line_through_their_means():
    X, Y = samples(50, 40, 5, shift=1e4)
    cost, exponent = unit_costs(X, Y)
    a, b = masses(50, 40)
    u, v = _linear_potentials(X, Y, exponent)
    assert (a @ u + b @ v) / a.sum() == pytest.approx(np.ldexp(np.linalg.norm(X.mean(0) - Y.mean(0)), -exponent))
    assert (a @ u + b @ v) / a.sum() == pytest.approx(transport(cost, a, b).cost, rel=1e-6)
    assert not np.any(_linear_potentials(X, X, 0))  # no direction where the means coincide


def test_the_better_start_is_taken():
    """A good guess is used, a bad one is not."""
    X, Y = samples(60, 50, 5, shift=30.0)
    cost, exponent = unit_costs(X, Y)
    a, b = masses(60, 50)

    def bound(guess):
        u, v = _rough_potentials(cost, a, b, guess)
        return _bound(cost - u[:, None] - v, a, b, u, v)

    good, rng = _linear_potentials(X, Y, exponent), np.random.default_rng(0)
    bad = rng.standard_normal(60), rng.standard_normal(50)
    assert bound(good) > bound(None)
    assert bound(bad) == bound(None)


@pytest.mark.parametrize(("n", "m"), [(60, 45), (300, 250)])  # all reduced costs are looked at, and every second one
def test_candidates_are_the_cheapest_pairs_and_one_whole_plan(n, m):
    reduced = np.random.default_rng(0).standard_normal((n, m))
    found, wanted = set(_candidates(reduced).tolist()), 8 * (n + m)
    order = np.argsort(reduced, axis=None).tolist()
    assert set(order[: int(0.97 * wanted)]) <= found
    best = {i * m + int(j) for i, j in enumerate(reduced.argmin(axis=1))}
    best |= {int(i) * m + j for j, i in enumerate(reduced.argmin(axis=0))}
    plan = {int(i) * m + int(j) for i, j, _ in zip(*staircase(n, m))}
    assert best | plan <= found <= best | plan | set(order[: int(1.03 * wanted)])


def test_repeated_costs_do_not_make_every_pair_a_candidate():
    reduced = np.random.default_rng(0).integers(0, 2, (300, 300)).astype(float)
    assert len(_candidates(reduced)) < 1500


def test_the_steepest_pairs_come_first():
    reduced = np.random.default_rng(0).standard_normal((30, 20))
    better = np.flatnonzero(reduced.reshape(-1) < 0.5)
    assert set(_steepest(reduced, better)) == set(np.argsort(reduced, axis=None)[: 8 * 50].tolist())
    few = np.flatnonzero(reduced.reshape(-1) < -1.5)
    assert set(_steepest(reduced, few)) == set(few.tolist())


def test_few_rounds_are_enough(monkeypatch):
    calls = []

    def counted(i, *args, **options):
        calls.append(len(i))
        return solve_on_pairs(i, *args, **options)

    monkeypatch.setattr(_exact, "solve_on_pairs", counted)
    X, Y = samples(300, 280, 10)
    solve_samples(X, Y)
    assert len(calls) <= 4
    assert max(calls) < 0.15 * 300 * 280


def test_a_bound_equal_to_the_limit_does_not_end_the_search():
    X, Y = samples(240, 220, 6)
    cost, _ = unit_costs(X, Y)
    a, b = masses(240, 220)
    rough = thinned_transport(cost, a, b, limit=0.0)
    better = thinned_transport(cost, a, b, limit=rough)
    assert isinstance(rough, float)
    assert isinstance(better, float)
    assert rough < better
    last = thinned_transport(cost, a, b, limit=better)
    assert isinstance(last, SparsePlan) or last > better


def test_too_many_promising_pairs_or_too_few_pivots_are_left_to_all_pairs(monkeypatch):
    X, Y = samples(240, 220, 6)
    cost, _ = unit_costs(X, Y)
    a, b = masses(240, 220)
    monkeypatch.setattr(_exact, "PAIRS_PER_POINT", 1)  # so that promising pairs are left
    assert isinstance(thinned_transport(cost, a, b), SparsePlan)
    monkeypatch.setattr(_exact, "TOO_MANY", 0.0)
    assert thinned_transport(cost, a, b) is None
    monkeypatch.undo()
    monkeypatch.setattr(_exact, "PIVOTS", (10, 10))
    assert thinned_transport(cost, a, b) is None
