"""Cheap lower bounds: never above the distance, and enough to decide about thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtune.weights._transport_bounds import axes_bound, principal_axes
from mixtune.weights.transport import distances_to, wasserstein_distance


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.floats(0, 10))
def test_never_above_the_distance_nor_below_that_of_the_means(seed, n, m, d, shift):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    B = rng.standard_normal((m, d)) + shift
    bound = axes_bound(A, B)
    assert bound <= wasserstein_distance(A, B).value * (1 + 1e-12)
    assert bound >= np.linalg.norm(A.mean(axis=0) - B.mean(axis=0)) - 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_stays_below_by_more_than_rounding(seed):
    """On a line in any direction the bound would be the distance itself; it keeps a margin, and a narrow one."""
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(4)
    A, B = (np.outer(rng.standard_normal(n) + shift, direction) for n, shift in ((40, 0.0), (30, 5.0)))
    distance = wasserstein_distance(A[:, 0], B[:, 0]).value * np.linalg.norm(direction) / abs(direction[0])
    assert (1 - 1e-11) * distance < axes_bound(A, B) < (1 - 5e-13) * distance
    # Where the distance is small beside the coordinates, rounding is relative to those.
    far = np.full((3, 2), 1.0)
    assert axes_bound(far, far + np.array([1e-13, 0.0])) <= 1e-13 - 5e-15


def test_sees_what_means_do_not():
    X = np.random.default_rng(0).standard_normal((200, 3))
    X -= X.mean(axis=0)
    assert axes_bound(X, 3 * X) > 0.8 * wasserstein_distance(X, 3 * X).value
    tilt = np.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) / np.sqrt([2, 2, 1])[:, None]
    stretched = X * [5.0, 1.0, 1.0]
    assert axes_bound(X @ tilt, stretched @ tilt) == pytest.approx(axes_bound(X, stretched), rel=0.05)


def test_principal_axes_only_where_they_cost_less_than_the_solution():
    rng = np.random.default_rng(0)
    direction = np.full(30, 30**-0.5)
    A, B = (np.outer(rng.standard_normal(40) + shift, direction) for shift in (0.0, 5.0))
    few = axes_bound(A[:20], B[:20])  # more columns than rows: the given axes alone
    assert few <= wasserstein_distance(A[:20], B[:20]).value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mixtune.weights._transport_bounds.principal_axes", None)
        assert axes_bound(A[:20], B[:20]) == few
        with pytest.raises(TypeError):
            axes_bound(A, B)


def test_one_job_gives_the_same_distances_as_several():
    focal, others = pairs(np.random.default_rng(0))
    assert distances_to(focal, others, jobs=1) == distances_to(focal, others, jobs=3)


def test_axes_are_orthonormal():
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((40, 6)), rng.standard_normal((9, 6)) + 2
    axes = principal_axes(X, Y)
    np.testing.assert_allclose(axes.T @ axes, np.eye(6), atol=1e-12)
    along = np.cov(np.vstack([X, Y]) @ axes, rowvar=False)
    np.testing.assert_allclose(along, np.diag(np.diag(along)), atol=1e-12)


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
    assert found[1].value == pytest.approx(axes_bound(focal, wide), rel=1e-9)
    assert axes_bound(focal, fresh) < 0.9 * exact < found[2].value <= exact


def test_other_quantities_are_not_screened():
    rng = np.random.default_rng(0)
    focal, others = pairs(rng)
    assert {d.method for d in distances_to(focal, others, method="sliced", limit=0.0)} == {"sliced"}
    assert {d.method for d in distances_to(focal[:, 0], [Y[:, 0] for Y in others], limit=0.0)} == {"line"}
