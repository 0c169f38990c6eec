"""Cheap lower bounds: never above the distance, and enough to decide about thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune.weights.transport import distances_to, wasserstein_distance


def test_a_lower_bound_is_never_above_the_distance():
    """Asked whether the distance exceeds nine tenths of itself, and a fifth, and all of it."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, m, d = rng.integers(1, 40, 2).tolist() + rng.integers(2, 6, 1).tolist()
        A = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
        B = rng.standard_normal((m, d)) + rng.uniform(0, 10)
        exact = wasserstein_distance(A, B, method="exact").value
        means = np.linalg.norm(A.mean(axis=0) - B.mean(axis=0))
        for share in (0.2, 0.9, 1.0):
            (found,) = distances_to(A, [B], method="exact", limit=share * exact)
            if found.method == "screened":
                assert share * exact < found.lower <= exact * (1 + 1e-12)
            else:
                assert found.value == pytest.approx(exact, rel=1e-12)
                assert means * (1 - 1e-9) <= share * exact


@pytest.mark.parametrize("d", [3, 5])
@pytest.mark.parametrize("rows", [37, 230])
def test_a_distance_equal_to_the_limit_is_not_beyond_it(d, rows):
    """Not even by rounding: the distance is exactly 1/4. Rows are moved by more than they are spread."""
    for seed in range(5):
        X = np.random.default_rng(seed).integers(-64, 64, (rows, d)) / 1024.0
        Y = X + np.eye(d)[0] / 4.0
        for pair in ((X, Y), (Y, X), (X[:, ::-1], Y[:, ::-1])):
            (found,) = distances_to(pair[0], [pair[1]], method="exact", limit=0.25)
            assert found.method == "exact"
            assert found.value == pytest.approx(0.25, rel=1e-12)
            (below,) = distances_to(pair[0], [pair[1]], method="exact", limit=0.25 - 1e-9)
            assert below.method == "screened"
            assert 0.25 - 1e-9 < below.lower <= 0.25


def test_axes_see_what_means_do_not():
    """Samples with equal means, one three times as wide, in any direction: decided by bounds along axes."""
    X = np.random.default_rng(0).standard_normal((200, 3))
    X -= X.mean(axis=0)
    tilt = np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) / np.sqrt([2, 2, 1])[:, None]
    for A in (X, X * [5.0, 1.0, 1.0], (X * [5.0, 1.0, 1.0]) @ tilt):
        exact = wasserstein_distance(A, 3 * A).value
        (found,) = distances_to(A, [3 * A], limit=0.8 * exact)
        assert found.method == "screened"
        assert 0.8 * exact < found.lower <= exact


@pytest.mark.parametrize("d", [3, 10])
def test_a_limit_ends_the_search_only_beyond_it(d):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, d)), rng.standard_normal((280, d)) + 0.3
    exact = wasserstein_distance(X, Y, method="exact").value
    for left, right in ((X, Y), (Y, X)):
        for share in (0.3, 0.9, 1.1, np.inf):
            (found,) = distances_to(left, [right], method="exact", limit=share * exact)
            if found.method == "exact":
                assert found.value == pytest.approx(exact, rel=1e-12)
            else:
                assert share * exact < found.lower <= exact


def test_one_job_gives_the_same_distances_as_several():
    focal, others = pairs(np.random.default_rng(0))
    assert distances_to(focal, others, jobs=1) == distances_to(focal, others, jobs=3)


def pairs(rng, d=6):
    focal = rng.standard_normal((220, d))
    others = [rng.standard_normal((230, d)) * scale + shift for shift in (0.0, 0.5, 1.0, 3.0) for scale in (1.0, 2.5)]
    return focal, others


@pytest.mark.parametrize("method", ["auto", "exact", "bracket"])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e100])
def test_screening_decides_as_the_distance_does(method, scale):
    rng = np.random.default_rng(0)
    focal, others = pairs(rng)
    focal, others = focal * scale, [Y * scale for Y in others]
    full = distances_to(focal, others, method=method)
    for limit in (0.5 * scale, 2.0 * scale, 4.0 * scale, 1e3 * scale):
        for known, found in zip(full, distances_to(focal, others, method=method, limit=limit)):
            if found.method == "screened":
                assert limit < found.value == found.lower <= known.upper * (1 + 1e-9)
                assert found.upper == np.inf
                assert found.certified
            else:
                assert found == known
    methods = {found.method for found in distances_to(focal, others, method=method, limit=2.0 * scale)}
    assert "screened" in methods
    assert len(methods) == 2


def test_every_bound_has_its_turn():
    """Means, then axes, then potentials on the way to the solution."""
    rng = np.random.default_rng(0)
    focal = rng.standard_normal((300, 8))
    shifted, wide, fresh = focal + 2.0, 3.0 * rng.standard_normal((300, 8)), rng.standard_normal((300, 8))
    exact = wasserstein_distance(focal, fresh).value
    found = distances_to(focal, [shifted, wide, fresh], limit=0.9 * exact)
    assert [d.method for d in found] == ["screened"] * 3
    assert found[0].value == pytest.approx(np.linalg.norm(focal.mean(axis=0) - shifted.mean(axis=0)))
    assert found[1].value > np.linalg.norm(focal.mean(axis=0) - wide.mean(axis=0))
    assert 0.9 * exact < found[2].value <= exact


def test_other_quantities_are_not_screened():
    rng = np.random.default_rng(0)
    focal, others = pairs(rng)
    assert {d.method for d in distances_to(focal, others, method="sliced", limit=0.0)} == {"sliced"}
    assert {d.method for d in distances_to(focal[:, 0], [Y[:, 0] for Y in others], limit=0.0)} == {"line"}
