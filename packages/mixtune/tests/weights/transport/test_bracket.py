"""Bounds for large samples: they hold at every stage, they close, and they fit in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mixtune.weights import wasserstein_distance


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
@pytest.mark.parametrize("subsample", [1, 50])
def test_holds_at_every_width_and_closes(d, subsample):
    """The work ends where the bracket is narrow enough, and with a wider one where that is allowed."""
    A, B = samples(500, 350, d)
    exact = wasserstein_distance(A, B, method="exact").value
    gaps = []
    for rtol in (10.0, 0.5, 0.05, 1e-3, 1e-6, 0.0):
        found = wasserstein_distance(A, B, method="bracket", subsample=subsample, rtol=rtol)
        assert found.lower <= exact * (1 + 1e-9)
        assert found.upper >= exact * (1 - 1e-9)
        assert found.gap <= max(rtol, 1e-6) * found.upper
        gaps.append(found.gap)
    assert np.all(np.diff(gaps) <= 1e-12)
    assert gaps[0] > 1e-3 * exact


@pytest.mark.parametrize("n", [1, 7, 900])
def test_rows_that_only_moved_are_as_far_apart_as_they_moved(n):
    """The distance is known, and distances from matrix products lose most where rows coincide."""
    X = np.random.default_rng(0).standard_normal((n, 60))
    for length in (0.0, 1e-6, 1.0, 1e3):
        found = wasserstein_distance(X, X[::-1] + length / np.sqrt(60), method="bracket", subsample=60)
        assert found.lower <= length * (1 + 1e-9) <= found.upper * (1 + 2e-9) + 1e-300
        assert found.gap <= 1e-3 * length + 1e-6


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


def test_memory_is_bounded():
    wasserstein_distance(*samples(9, 9, 3), method="bracket")  # an import allocates more than the computation does
    A, B = samples(10_000, 10_000, 3)
    tracemalloc.start()
    try:
        found = wasserstein_distance(A, B, method="bracket", subsample=300, rtol=0.05)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < found.lower < found.upper
    assert peak < 150e6  # all costs alone would be 800 MB
