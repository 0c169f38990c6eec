"""The exact distance: against other solvers, and never without its proof."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance_nd

from mixtune.errors import ConvergenceError
from mixtune.weights import _transport_exact
from mixtune.weights._transport_exact import (
    _subsample_potentials,
    masses,
    proven,
    semi_dual,
    solve_samples,
    transport,
    unit_costs,
)
from mixtune.weights.transport import wasserstein_distance


def samples(n, m, d, *, seed=0, shift=0.5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + shift


@pytest.mark.parametrize(("n", "m", "d"), [(7, 7, 2), (12, 5, 3), (4, 15, 2), (1, 9, 4), (6, 1, 1)])
def test_agrees_with_linear_programming(n, m, d):
    A, B = samples(n, m, d, seed=n)
    found = wasserstein_distance(A, B, method="exact")
    assert found.value == pytest.approx(wasserstein_distance_nd(A, B), rel=1e-9)
    assert found.certified
    assert found.method == "exact"
    assert found.rows == (n, m)


@pytest.mark.parametrize(("n", "m", "d"), [(40, 40, 5), (60, 23, 2), (31, 97, 8)])
def test_agrees_with_plain_network_simplex(n, m, d, ot):
    A, B = samples(n, m, d, seed=m)
    expected = ot.emd2(np.full(n, 1 / n), np.full(m, 1 / m), cdist(A, B))
    found = wasserstein_distance(A, B, method="exact")
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.lower <= found.value == found.upper
    assert found.gap <= 1e-9 * found.value


def test_flow_and_potentials_come_back_in_the_order_of_the_arguments():
    A, B = samples(8, 30, 3)
    plan = solve_samples(A, B, seed=0, subsample=1000)
    a, b = masses(8, 30)
    np.testing.assert_array_equal(plan.flow.sum(axis=1), a)
    np.testing.assert_array_equal(plan.flow.sum(axis=0), b)
    assert semi_dual(cdist(A, B), a, b, plan.column_potential) == pytest.approx(plan.cost, rel=1e-12)


def test_semi_dual_is_a_bound_for_any_potential():
    A, B = samples(30, 20, 3)
    cost, (a, b) = cdist(A, B), masses(30, 20)
    best = solve_samples(A, B, seed=0, subsample=1000).cost
    rng = np.random.default_rng(1)
    assert all(semi_dual(cost, a, b, rng.standard_normal(20)) <= best for _ in range(50))


class TestConvergence:
    """100 x 3,000: with a small limit on pivots the plain solver returns a wrong number."""

    LIMIT = 4000

    def test_plain_solver_stops_early(self, ot):
        A, B = samples(100, 3000, 3)
        exact = wasserstein_distance(A, B, method="exact").value
        weights = np.full(100, 1 / 100), np.full(3000, 1 / 3000)
        with pytest.warns(UserWarning, match="numItermax"):
            early = ot.emd2(*weights, cdist(A, B), numItermax=self.LIMIT)
        assert abs(early - exact) > 1e-3 * exact

    def test_ours_runs_on_until_certified(self, monkeypatch):
        A, B = samples(100, 3000, 3)
        at_once = solve_samples(A, B, seed=0, subsample=1000)
        monkeypatch.setattr(_transport_exact, "FIRST_LIMIT", self.LIMIT)
        patient = solve_samples(A, B, seed=0, subsample=1000)
        assert patient.cost == pytest.approx(at_once.cost, rel=1e-12)
        assert patient.cost - patient.lower <= 1e-9 * patient.cost

    def test_ours_raises_rather_than_return_an_early_number(self, monkeypatch):
        A, B = samples(100, 3000, 3)
        monkeypatch.setattr(_transport_exact, "FIRST_LIMIT", self.LIMIT)
        monkeypatch.setattr(_transport_exact, "LAST_LIMIT", 2 * self.LIMIT)
        with pytest.raises(ConvergenceError, match=r"not certified after 4000 pivots.*use method='bracket'"):
            solve_samples(A, B, seed=0, subsample=1000)

    def test_a_solver_that_claims_success_is_not_believed(self, monkeypatch):
        wrapper = _transport_exact.network_simplex()
        honest = wrapper.emd_c

        def boastful(a, b, cost, limit, *rest):
            flow, value, u, v, _ = honest(a, b, cost, 50, *rest)
            return flow, value, u, v, 1

        monkeypatch.setattr(wrapper, "emd_c", boastful)
        A, B = samples(60, 40, 3)
        with pytest.raises(ConvergenceError):
            transport(unit_costs(A, B)[0], *masses(60, 40))


def test_what_counts_as_a_proof():
    assert proven(1.0, 1.0 - 5e-10, 1.0)
    assert not proven(1.0, 1.0 - 1e-8, 1.0)
    assert not proven(1e-9, 0.0, 1.0)
    assert proven(1e-9, 1e-9 - 5e-12, 1.0)  # rounding of the solver, relative to the largest cost


@pytest.mark.parametrize(("n", "m"), [(11_000, 100), (900, 900)])
def test_warm_start_changes_nothing(n, m):
    A, B = samples(n, m, 3)
    cost, exponent = unit_costs(A, B)
    cold = transport(cost, *masses(n, m))
    start = _subsample_potentials(A, B, cost, exponent, size=n // 5, seed=3, subsample=100)
    assert transport(cost, *masses(n, m), start=start).cost == pytest.approx(cold.cost, rel=1e-11)


def test_long_thin_problems_start_warm(monkeypatch):
    sizes = []

    def spy(X, Y, *args, size, **options):
        sizes.append((len(X), len(Y), size))
        return _subsample_potentials(X, Y, *args, size=size, **options)

    monkeypatch.setitem(solve_samples.__globals__, "_subsample_potentials", spy)
    A, B = samples(100, 11_000, 3)
    swapped, straight = solve_samples(A, B, seed=0, subsample=1000), solve_samples(B, A, seed=0, subsample=1000)
    assert swapped.cost == straight.cost
    assert sizes == [(11_000, 100, 2200)] * 2


class TestHardData:
    def test_duplicates(self):
        A = np.repeat([[0.0, 0.0], [1.0, 0.0]], [30, 10], axis=0)
        B = np.repeat([[0.0, 0.0], [1.0, 0.0]], [10, 30], axis=0)
        assert wasserstein_distance(A, B).value == pytest.approx(0.5, rel=1e-14)

    def test_identical_samples_in_another_order(self):
        A, _ = samples(200, 1, 4)
        assert wasserstein_distance(A, A[::-1]).value == 0.0

    def test_all_points_coincide(self):
        found = wasserstein_distance(np.full((5, 3), 1e9), np.full((2, 3), 1e9))
        assert found.value == found.lower == found.upper == 0.0

    def test_constant_columns(self):
        A, B = samples(30, 20, 2)
        wide_A, wide_B = (np.column_stack([Z, np.full((len(Z), 2), 7.0)]) for Z in (A, B))
        assert wasserstein_distance(wide_A, wide_B).value == pytest.approx(wasserstein_distance(A, B).value, rel=1e-12)

    @pytest.mark.parametrize("method", ["exact", "bracket", "sliced"])
    @pytest.mark.parametrize("scale", [2.0**500, 2.0**-500, 2.0**1020, 2.0**-1000])
    def test_extreme_scales(self, scale, method):
        A, B = samples(40, 30, 2)
        plain = wasserstein_distance(A, B, method=method)
        found = wasserstein_distance(scale * A, scale * B, method=method)
        assert found.value == scale * plain.value
        assert found.upper == scale * plain.upper

    def test_large_offset(self):
        A, B = (np.round(Z * 64) / 64 for Z in samples(40, 30, 2))  # exactly representable next to 1e9
        assert wasserstein_distance(A + 1e9, B + 1e9).value == pytest.approx(
            wasserstein_distance(A, B).value, rel=1e-12
        )

    def test_outlier_that_dwarfs_the_rest(self):
        A, B = samples(300, 300, 30)
        A[0] += 1e7
        B[7] += 1e7
        found = wasserstein_distance(A, B)
        assert found.gap <= 1e-5 * found.value

    def test_unrepresentable_distance(self):
        far = np.full((1, 4), 1.7e308)
        with pytest.raises(ValueError, match="exceeds the largest float64"):
            wasserstein_distance(far, -far)


IMPORT = """
import os, sys
import scipy.stats, sklearn.cluster
from mixtune import wasserstein_distance
assert "ot" not in sys.modules
sys.pycache_prefix = sys.argv[1]  # as in an environment without bytecode: POT is compiled now, with warnings
os.environ["POT_BACKEND_DISABLE_JAX"] = "mine"
loaded = set(sys.modules)
wasserstein_distance([[0.0, 0.0], [1.0, 0.0]], [[3.0, 4.0]], method="bracket")
assert {name: value for name, value in os.environ.items() if name.startswith("POT_")} == {
    "POT_BACKEND_DISABLE_JAX": "mine"
}
assert not {"ot", "torch", "jax", "tensorflow", "cupy"} & (set(sys.modules) - loaded)
"""


def test_the_solver_is_imported_alone(tmp_path):
    """Warnings of POT's sources are no errors, no array library is loaded, and the environment is as it was."""
    subprocess.run([sys.executable, "-W", "error", "-c", IMPORT, str(tmp_path)], check=True)


def test_importing_pot_later_finds_its_array_libraries():
    pytest.importorskip("torch")
    code = """
import mixtune
mixtune.wasserstein_distance([[0.0, 0.0], [1.0, 0.0]], [[3.0, 4.0]], method="exact")
import torch, ot
cost = torch.tensor([[0.0, 1.0], [1.0, 0.5]])
assert torch.is_tensor(ot.emd(torch.full((2,), 0.5), torch.full((2,), 0.5), cost))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
