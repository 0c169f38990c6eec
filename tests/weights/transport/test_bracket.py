"""Bounds for large samples: they hold at every stage, they close, and they fit in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from mixtune.weights import _transport_bounds
from mixtune.weights._transport_bounds import Distances, _block_plan, _lipschitz_bound, _restricted_plan, bracket, price
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
    exact = solve_samples(X, Y, seed=0, subsample=1000).cost
    gaps = []
    for rounds in (0, 1, 2, 4, 30):
        monkeypatch.setattr(_transport_bounds, "ROUNDS", rounds)
        lower, upper = bracket(X, Y, seed=0, subsample=50, rtol=0.0)
        assert lower <= exact * (1 + 1e-9)
        assert upper >= exact * (1 - 1e-9)
        gaps.append(upper - lower)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] <= 1e-6 * exact


def test_rough_bounds_beyond_the_pricing_limit(monkeypatch):
    monkeypatch.setattr(_transport_bounds, "PRICED_ENTRIES", 1000)
    (X, Y), _ = common_frame(samples(600, 500, 3, shift=3.0))
    exact = solve_samples(X, Y, seed=0, subsample=1000).cost
    lower, upper = bracket(X, Y, seed=0, subsample=200, rtol=1e-3)
    assert 0.9 * exact <= lower <= exact <= upper <= 1.1 * exact


@pytest.mark.parametrize("d", [3, 40])
def test_parts_are_bounds(d):
    (X, Y), _ = common_frame(samples(700, 450, d))
    exact = solve_samples(X, Y, seed=0, subsample=1000).cost
    rng = np.random.default_rng(0)
    lower, u, v = _lipschitz_bound(X, Y, rng=rng, subsample=60)
    assert lower <= exact
    upper, pairs = _block_plan(X, Y, rng=rng)
    assert upper >= exact
    cost, *_ = _restricted_plan(X, Y, pairs, start=(u, v))
    assert exact <= cost <= upper * (1 + 1e-12)


def test_rough_bound_allows_for_the_digits_that_products_lose():
    """With all rows in the exact solution the bound would be the distance itself."""
    (X, Y), _ = common_frame([3.0 * Z for Z in samples(120, 120, 15, shift=0.0)])
    exact = solve_samples(X, Y, seed=0, subsample=1000)
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
