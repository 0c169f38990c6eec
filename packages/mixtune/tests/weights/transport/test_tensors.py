"""Samples of another array library: all pairs are looked at over there, and the bounds are as good and as true."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune import Domains, WassersteinWeights
from mixtune.weights.transport import distances_to, sampling_floor, wasserstein_distance

torch = pytest.importorskip("torch")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]


def samples(n, m, d, *, seed=0, shift=0.5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + shift / np.sqrt(d)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", [2, 10, 50])
def test_brackets_contain_the_exact_distance_tightly(d, device):
    A, B = samples(400, 251, d)
    exact = wasserstein_distance(A, B, method="exact").value
    there = [torch.tensor(Z, device=device) for Z in (A, B)]
    found = wasserstein_distance(*there, method="bracket", subsample=100)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.gap <= 1e-3 * found.upper
    assert (found.method, found.certified) == ("bracket", True)


@pytest.mark.parametrize("make", [np.asarray, torch.asarray], ids=["numpy", "torch"])
def test_a_limit_is_decided_by_potentials_where_means_and_axes_agree(make):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((900, 8))
    B = rng.standard_normal((800, 8)) * np.where(rng.random(800) < 0.5, 0.2, 1.4)[:, None]
    full = wasserstein_distance(A, B, method="exact").value
    (found,) = distances_to(make(A), [make(B)], method="bracket", limit=0.95 * full)
    assert found.method == "screened"
    assert 0.95 * full < found.lower <= full


def test_the_first_tensor_says_where_the_work_is_done():
    A, B = samples(300, 200, 30)
    here, there, mixed, lists = (
        wasserstein_distance(*pair, method="bracket", subsample=50)
        for pair in ((A, B), (torch.asarray(A), torch.asarray(B)), (A, torch.asarray(B)), (A.tolist(), B.tolist()))
    )
    assert mixed == there
    assert lists == here
    assert sampling_floor(torch.ones(5, 2), method="bracket").value == 0.0


@pytest.mark.parametrize("rtol", [10.0, 0.05, 1e-3, 0.0])
def test_bounds_hold_at_every_width(rtol):
    A, B = samples(250, 180, 6)
    exact = wasserstein_distance(A, B, method="exact").value
    found = wasserstein_distance(torch.asarray(A), torch.asarray(B), method="bracket", subsample=40, rtol=rtol)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.gap <= max(rtol, 1e-4) * exact


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", [3, 60])
def test_bounds_hold_where_products_lose_most(d, device):
    """Half the rows are shared, so that true distances are zero, and one row is far away."""
    A, B = samples(300, 300, d, shift=0.0)
    B[:150] = A[:150]
    A[200] += 1e6
    exact = wasserstein_distance(A, B, method="exact")
    there = [torch.tensor(Z, device=device) for Z in (A, B)]
    found = wasserstein_distance(*there, method="bracket", subsample=100)
    assert found.lower <= exact.upper * (1 + 1e-12)
    assert found.upper >= exact.lower * (1 - 1e-12)
    assert found.gap <= 2e-3 * found.upper


def test_screening_decides_as_it_does_for_arrays():
    rng = np.random.default_rng(0)
    focal = rng.standard_normal((220, 6))
    others = [rng.standard_normal((230, 6)) * scale + shift for shift in (0.0, 0.5, 1.5) for scale in (1.0, 2.5)]
    here = distances_to(focal, others, method="bracket", limit=2.0)
    there = distances_to(torch.asarray(focal), [torch.asarray(Y) for Y in others], method="bracket", limit=2.0)
    assert [found.method for found in there] == [found.method for found in here]
    assert {"screened", "bracket"} == {found.method for found in there}
    for left, right in zip(here, there):
        assert left.lower == pytest.approx(right.lower, rel=2e-3)


def test_degenerate_samples():
    X = np.random.default_rng(0).standard_normal((250, 30))
    for A, B in [(X, X[::-1]), (np.ones((300, 3)), np.ones((200, 3))), (X[:1], X[1:])]:
        exact = wasserstein_distance(A, B, method="exact")
        found = wasserstein_distance(torch.tensor(A.copy()), torch.tensor(B.copy()), method="bracket", subsample=100)
        assert found.lower <= exact.upper * (1 + 1e-12)
        assert found.upper >= exact.lower * (1 - 1e-12)
        assert found.gap <= 2e-3 * found.upper


def test_weights_of_domains_held_by_torch():
    rng = np.random.default_rng(0)
    rows = {
        name: (rng.standard_normal((300, 3)) + shift, rng.standard_normal(300)) for name, shift in zip("abc", range(3))
    }
    rule = WassersteinWeights(1.0, 3.0, distance="bracket", rescale=False, floor=False)
    here = rule.weigh(domains=Domains.from_dict(rows, focal="a"))
    tensors = {name: (torch.asarray(X), torch.asarray(y)) for name, (X, y) in rows.items()}
    there = rule.weigh(domains=Domains.from_dict(tensors, focal="a"))
    np.testing.assert_allclose(there.values, here.values, rtol=5e-3)
    assert there.distances != here.distances  # other arithmetic: it did run over there


def test_functions_still_see_arrays():
    seen = []

    def distance(left, right):
        seen.append(isinstance(left, np.ndarray) and isinstance(right, np.ndarray))
        return 1.0

    WassersteinWeights(1.0, distance=distance).weigh_clouds([torch.ones(4, 2), 1.0 + torch.ones(3, 2)])
    assert seen == [True, True]  # the distance and the floor
