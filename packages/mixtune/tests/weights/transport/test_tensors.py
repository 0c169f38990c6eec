"""Samples of another array library: all pairs are looked at over there, and the bounds are as good and as true."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from mixtune import Domains, WassersteinWeights
from mixtune.weights._transport_bounds import Distances, bracket, price
from mixtune.weights._transport_exact import solve_samples
from mixtune.weights.transport import common_frame, distances_to, home_of, sampling_floor, wasserstein_distance

torch = pytest.importorskip("torch")
HOME = torch.ones(1)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]


def samples(n, m, d, *, seed=0, shift=0.5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + shift / np.sqrt(d)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n", "m"), [(5, 3), (40, 90), (200, 200)])
@pytest.mark.parametrize("d", [2, 30])
def test_pricing_agrees_with_all_pairs(n, m, d, device):
    X, Y = samples(n, m, d)
    rng = np.random.default_rng(1)
    u, v = rng.standard_normal(n), rng.standard_normal(m)
    priced, cost = price(X, Y, u, v, rng=rng, home=HOME.to(device)), cdist(X, Y)
    assert isinstance(priced.row_minimum, np.ndarray)
    np.testing.assert_allclose(priced.row_minimum, (cost - v).min(axis=1), atol=1e-10)
    np.testing.assert_allclose(priced.column_minimum, (cost - u[:, None]).min(axis=0), atol=1e-10)
    assert np.all(priced.row_minimum <= (cost - v).min(axis=1) + 1e-15)  # bounds err to the safe side
    pairs = set(zip(priced.rows.tolist(), priced.columns.tolist()))
    assert {(i, int(j)) for i, j in enumerate((cost - v).argmin(axis=1))} <= pairs
    assert {(int(i), j) for j, i in enumerate((cost - u[:, None]).argmin(axis=0))} <= pairs


def test_the_walk_is_the_one_of_numpy():
    """With products on both sides and one seed, the same strips give the same candidates."""
    X, Y = samples(300, 170, 40)
    u, v = np.zeros(300), np.zeros(170)
    here = price(X, Y, u, v, rng=np.random.default_rng(3))
    there = price(X, Y, u, v, rng=np.random.default_rng(3), home=HOME)
    np.testing.assert_array_equal(here.rows, there.rows)
    np.testing.assert_array_equal(here.columns, there.columns)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("d", [3, 60])
def test_distances_are_never_too_long(d, device):
    X, Y = samples(300, 300, d, shift=0.0)
    Y[:150] = X[:150]  # true distance zero, where products lose most
    X[200] += 1e6
    there, distances = Distances(X, Y, HOME.to(device)), cdist(X, Y)
    found = there.between(slice(None), slice(None)).cpu().numpy()
    assert np.all(found <= distances)
    assert np.all(distances - found <= there.worst_loss)


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


def test_bounds_hold_after_every_round(monkeypatch):
    (X, Y), _ = common_frame(samples(250, 180, 6))
    exact = solve_samples(X, Y).cost
    gaps = []
    for rounds in (0, 1, 3, 12):
        monkeypatch.setitem(bracket.__globals__, "ROUNDS", rounds)
        lower, upper = bracket(X, Y, seed=0, subsample=50, rtol=0.0, home=HOME)
        assert lower <= exact * (1 + 1e-9)
        assert upper >= exact * (1 - 1e-9)
        gaps.append(upper - lower)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] <= 1e-4 * exact


def test_a_device_looks_once_at_pairs_too_many_to_plan_with(monkeypatch):
    (X, Y), _ = common_frame(samples(600, 500, 20))
    exact = solve_samples(X, Y).cost
    monkeypatch.setitem(bracket.__globals__, "PRICED_ENTRIES", 1000)
    rough = bracket(X, Y, seed=0, subsample=100, rtol=1e-3, home=HOME)
    monkeypatch.setitem(bracket.__globals__, "on_device", lambda _: True)
    monkeypatch.setitem(bracket.__globals__, "_restricted_plan", lambda *_, **__: pytest.fail("a plan was made"))
    looked = bracket(X, Y, seed=0, subsample=100, rtol=1e-3, home=HOME)
    assert rough[0] < 0.5 * exact < 0.9 * exact < looked[0] <= exact <= looked[1]
    monkeypatch.setitem(bracket.__globals__, "DEVICE_PRICED_ENTRIES", 1000)
    assert bracket(X, Y, seed=0, subsample=100, rtol=1e-3, home=HOME) == rough


@pytest.mark.parametrize("make", [np.asarray, torch.asarray], ids=["numpy", "torch"])
def test_a_limit_is_decided_before_any_plan(make, monkeypatch):
    """The means agree and so do the axes, nearly; the potentials see the difference, and no plan is made."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((900, 8))
    B = rng.standard_normal((800, 8)) * np.where(rng.random(800) < 0.5, 0.2, 1.4)[:, None]
    full = wasserstein_distance(A, B, method="exact").value
    monkeypatch.setitem(bracket.__globals__, "_block_plan", lambda *_, **__: pytest.fail("a plan was made"))
    (found,) = distances_to(make(A), [make(B)], method="bracket", limit=0.95 * full)
    assert found.method == "screened"
    assert 0.95 * full < found.lower <= full


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


def test_home_is_the_first_tensor():
    assert home_of([np.ones(2), [1.0]]) is None
    assert home_of([np.ones(2), HOME]) is HOME
    assert sampling_floor(torch.ones(5, 2), method="bracket").value == 0.0
