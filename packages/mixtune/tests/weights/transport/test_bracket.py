"""Bounds for large samples: they hold at every stage, they close, and they fit in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from mixtune.weights import _transport_bounds
from mixtune.weights._transport_bounds import (
    Distances,
    _block_plan,
    _lipschitz_bound,
    _restricted_plan,
    _share,
    bracket,
    price,
)
from mixtune.weights._transport_exact import network_simplex, solve_samples
from mixtune.weights.transport import common_frame, wasserstein_distance


def samples(n, m, d, *, seed=0, shift=0.5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + shift / np.sqrt(d)


@pytest.mark.parametrize("d", [2, 10, 50])
@pytest.mark.parametrize(("n", "m"), [(900, 900), (1300, 401)])
def test_contains_the_exact_distance_tightly(n, m, d):
    A, B = samples(n, m, d)
    exact = wasserstein_distance(A, B, method="exact").value
    found = wasserstein_distance(A, B, method="bracket", subsample=200)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.gap <= 1e-3 * found.upper
    assert found.value == pytest.approx((found.lower + found.upper) / 2)
    assert (found.method, found.certified) == ("bracket", True)


@pytest.mark.parametrize("d", [2, 20])
def test_holds_after_every_round_and_closes(d, monkeypatch):
    (X, Y), _ = common_frame(samples(500, 350, d))
    exact = solve_samples(X, Y).cost
    gaps = []
    for rounds in (0, 1, 2, 4, 30):
        monkeypatch.setattr(_transport_bounds, "ROUNDS", rounds)
        lower, upper = bracket(X, Y, seed=0, subsample=50, rtol=0.0)
        assert lower <= exact * (1 + 1e-9)
        assert upper >= exact * (1 - 1e-9)
        gaps.append(upper - lower)
    # Sums of the same numbers in another order differ by rounding.
    assert np.all(np.diff(gaps) <= 1e-12)
    assert gaps[-1] <= 1e-6 * exact


def test_rough_bounds_beyond_the_pricing_limit(monkeypatch):
    monkeypatch.setattr(_transport_bounds, "PRICED_ENTRIES", 1000)
    (X, Y), _ = common_frame(samples(600, 500, 3, shift=3.0))
    exact = solve_samples(X, Y).cost
    lower, upper = bracket(X, Y, seed=0, subsample=200, rtol=1e-3)
    assert 0.9 * exact <= lower <= exact <= upper <= 1.1 * exact


@pytest.mark.parametrize("d", [3, 40])
def test_parts_are_bounds(d):
    (X, Y), _ = common_frame(samples(700, 450, d))
    exact = solve_samples(X, Y).cost
    rng = np.random.default_rng(0)
    lower, u, v = _lipschitz_bound(X, Y, rng=rng, subsample=60)
    assert lower <= exact
    upper, pairs = _block_plan(X, Y, rng=rng)
    assert upper >= exact
    cost, *_ = _restricted_plan(X, Y, pairs, start=(u, v))
    assert exact <= cost <= upper * (1 + 1e-12)


def test_rough_potentials_are_feasible_and_the_means_bound_too():
    X, Y = samples(200, 150, 4, shift=3.0)
    exact = solve_samples(X + 5.0, Y + 5.0).cost
    lower, u, v = _lipschitz_bound(X + 5.0, Y + 5.0, rng=np.random.default_rng(0), subsample=30)
    assert 0.9 * exact < lower <= exact
    assert (cdist(X, Y) - u[:, None] - v).min() > -1e-9
    assert u.mean() + v.mean() > 0.8 * exact
    one_row, *_ = _lipschitz_bound(X + 5.0, Y + 5.0, rng=np.random.default_rng(0), subsample=1)
    assert np.linalg.norm(X.mean(axis=0) - Y.mean(axis=0)) * (1 - 1e-12) <= one_row <= exact


def test_rough_bound_allows_for_the_digits_that_products_lose():
    """With all rows in the exact solution the bound would be the distance itself."""
    (X, Y), _ = common_frame([3.0 * Z for Z in samples(120, 120, 15, shift=0.0)])
    exact = solve_samples(X, Y)
    lower, _, _ = _lipschitz_bound(X, Y, rng=np.random.default_rng(0), subsample=120)
    lost = Distances(X, Y).worst_loss
    assert lost > 1e-9
    assert exact.cost - 3 * lost < lower < exact.cost - 0.5 * lost


@pytest.mark.parametrize(("n", "m"), [(5, 3), (40, 90), (200, 200)])
@pytest.mark.parametrize("d", [2, 30])
def test_pricing_agrees_with_all_pairs(n, m, d):
    X, Y = samples(n, m, d)
    rng = np.random.default_rng(1)
    u, v = rng.standard_normal(n), rng.standard_normal(m)
    priced, cost = price(X, Y, u, v, rng=rng), cdist(X, Y)
    np.testing.assert_allclose(priced.row_minimum, (cost - v).min(axis=1), atol=1e-10)
    np.testing.assert_allclose(priced.column_minimum, (cost - u[:, None]).min(axis=0), atol=1e-10)
    pairs = set(zip(priced.rows.tolist(), priced.columns.tolist()))
    assert {(i, int(j)) for i, j in enumerate((cost - v).argmin(axis=1))} <= pairs
    assert {(int(i), j) for j, i in enumerate((cost - u[:, None]).argmin(axis=0))} <= pairs


def test_distances_from_products_are_never_too_long():
    X, Y = samples(300, 300, 60, shift=0.0)
    Y[:150] = X[:150]  # true distance zero, where products lose most
    X[200] += 1e6
    fast, distances = Distances(X, Y), cdist(X, Y)
    found = fast.between(slice(None), slice(None))
    assert np.all(found <= distances)
    assert np.all(distances - found <= fast.worst_loss)


def test_what_products_may_lose_grows_with_the_norms():
    X, Y = (np.vstack([Z, -Z]) / np.linalg.norm(np.vstack([Z, Z]), axis=1)[:, None] for Z in samples(30, 20, 12))
    near, far = Distances(X, Y), Distances(2.0 * X, 2.0 * Y)
    assert near.worst_loss == pytest.approx(near.mean_loss, rel=1e-12)  # all norms are one
    assert far.worst_loss == pytest.approx(2 * near.worst_loss, rel=1e-12)
    assert 1e-8 < near.worst_loss < 1e-6
    few = Distances(X[:, :10], Y[:, :10])
    assert few.worst_loss == few.mean_loss == 0.0
    np.testing.assert_array_equal(few.between(slice(None), slice(None)), cdist(X[:, :10], Y[:, :10]))


def degenerate():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 30))
    yield "identical", X, X[::-1]
    yield "half shared", X, np.concatenate([X[:300], X[300:] + 1.0])
    yield "lattice", rng.integers(0, 4, (600, 2)), rng.integers(1, 5, (600, 2))
    yield "on a line", np.outer(X[:, 0], [1, 2, 3]), np.outer(X[:, 1], [1, 2, 3])
    yield "one point", np.ones((300, 3)), np.ones((200, 3))
    yield "one row", X[:1], X[1:]
    yield "outlier", np.concatenate([X, X[:1] + 1e7]), X[:400] + 0.1


@pytest.mark.parametrize(("A", "B"), [pytest.param(A, B, id=name) for name, A, B in degenerate()])
def test_degenerate_samples(A, B):
    exact = wasserstein_distance(A, B, method="exact")
    found = wasserstein_distance(A, B, method="bracket", subsample=100)
    assert found.lower <= exact.upper * (1 + 1e-12)
    assert found.upper >= exact.lower * (1 - 1e-12)
    assert found.gap <= 2e-3 * found.upper


def test_seed_decides_everything():
    A, B = samples(400, 300, 5)
    first, again, other = (wasserstein_distance(A, B, method="bracket", subsample=50, seed=s) for s in (4, 4, 5))
    assert first == again
    assert first != other


def test_auto_switches_to_the_bracket():
    A, B = samples(60, 50, 3)
    assert wasserstein_distance(A, B, max_exact_entries=3000).method == "exact"
    assert wasserstein_distance(A, B, max_exact_entries=2999).method == "bracket"


def test_memory_is_bounded(monkeypatch):
    network_simplex()  # its import allocates more than the computation does
    monkeypatch.setattr(_transport_bounds, "ROUNDS", 1)
    (X, Y), _ = common_frame(samples(10_000, 10_000, 3))
    tracemalloc.start()
    try:
        lower, upper = bracket(X, Y, seed=0, subsample=300, rtol=1e-3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < lower < upper
    assert peak < 150e6  # all costs alone would be 800 MB


def test_a_bound_equal_to_the_limit_does_not_end_the_search(monkeypatch):
    (X, Y), _ = common_frame(samples(300, 250, 4, shift=0.1))
    options = {"seed": 0, "subsample": 40, "rtol": 1e-3}
    monkeypatch.setattr(_transport_bounds, "ROUNDS", 0)
    rough, _ = bracket(X, Y, **options)
    assert np.isfinite(bracket(X, Y, limit=rough, **options)[1])
    assert bracket(X, Y, limit=np.nextafter(rough, 0), **options) == (rough, np.inf)
    monkeypatch.setattr(_transport_bounds, "ROUNDS", 1)
    once, _ = bracket(X, Y, **options)
    assert once > rough
    assert np.isfinite(bracket(X, Y, limit=once, **options)[1])
    assert bracket(X, Y, limit=rough, **options) == (once, np.inf)


def test_a_wide_bracket_is_enough_where_it_is_allowed():
    (X, Y), _ = common_frame(samples(300, 250, 4))
    wide, narrow = (bracket(X, Y, seed=0, subsample=40, rtol=rtol) for rtol in (0.5, 1e-6))
    assert 1e-3 * wide[1] < wide[1] - wide[0] <= 0.5 * wide[1]
    assert narrow[1] - narrow[0] <= 1e-6 * narrow[1]


def test_blocks_divide_rows_on_their_borders(monkeypatch):
    """Six rows and four rows in three blocks: a plan of the whole problem, whatever the blocks."""
    X, Y = samples(6, 4, 2)
    whole = solve_samples(X, Y).cost
    assert _block_plan(X, Y, rng=np.random.default_rng(0))[0] == pytest.approx(whole, rel=1e-12)
    monkeypatch.setattr(_transport_bounds, "BLOCK_ENTRIES", 3)
    cost, pairs = _block_plan(X, Y, rng=np.random.default_rng(0))
    assert cost >= whole
    assert len(set((pairs // 4).tolist())) == 6
    assert len(set((pairs % 4).tolist())) == 4
    assert cdist(X, Y).reshape(-1)[pairs].min() <= cost <= cdist(X, Y).reshape(-1)[pairs].max()
    amounts = [_share(low, high, unit=4) for low, high in ((0, 8), (8, 16), (16, 24))]
    assert [points.tolist() for points, _ in amounts] == [[0, 1], [2, 3], [4, 5]]
    points, amount = _share(6, 17, unit=4)
    assert (points.tolist(), amount.tolist()) == ([1, 2, 3, 4], [2.0, 4.0, 4.0, 1.0])


def test_pairs_kept_for_the_next_round_are_the_plan_and_the_cheapest():
    (X, Y), _ = common_frame(samples(60, 50, 3))
    u, v = np.zeros(60), np.zeros(50)
    cost, kept, u, v = _restricted_plan(X, Y, np.arange(60 * 50), start=(u, v))
    assert cost == pytest.approx(solve_samples(X, Y).cost, rel=1e-12)
    assert len(kept) == 8 * (60 + 50)
    reduced = (cdist(X, Y) - u[:, None] - v).reshape(-1)
    assert set(np.argsort(reduced)[: 8 * 110 - 109].tolist()) <= set(kept.tolist())
    again, few, *_ = _restricted_plan(X, Y, kept, start=(u, v))
    assert again == pytest.approx(cost, rel=1e-12)
    assert len(few) == len(kept)
