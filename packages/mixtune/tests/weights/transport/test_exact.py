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
    Plan,
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
    plan = solve_samples(A, B)
    a, b = masses(8, 30)
    np.testing.assert_array_equal(plan.flow.sum(axis=1), a)
    np.testing.assert_array_equal(plan.flow.sum(axis=0), b)
    assert semi_dual(cdist(A, B), a, b, plan.column_potential) == pytest.approx(plan.cost, rel=1e-12)


def test_semi_dual_is_a_bound_for_any_potential():
    A, B = samples(30, 20, 3)
    cost, (a, b) = cdist(A, B), masses(30, 20)
    best = solve_samples(A, B).cost
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
        at_once = solve_samples(A, B)
        monkeypatch.setattr(_transport_exact, "PIVOTS", (self.LIMIT, _transport_exact.PIVOTS[-1]))
        patient = solve_samples(A, B)
        assert patient.cost == pytest.approx(at_once.cost, rel=1e-12)
        assert patient.cost - patient.lower <= 1e-9 * patient.cost

    def test_ours_raises_rather_than_return_an_early_number(self, monkeypatch):
        A, B = samples(100, 3000, 3)
        monkeypatch.setattr(_transport_exact, "PIVOTS", (self.LIMIT // 2, self.LIMIT))
        with pytest.raises(ConvergenceError, match=r"not certified after 4000 pivots.*use method='bracket'"):
            solve_samples(A, B)

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

    @pytest.mark.parametrize("axis", [0, 1])
    def test_a_plan_that_does_not_move_all_mass_is_not_believed(self, axis, monkeypatch):
        """Each row to its cheapest column, or the reverse: one side is right, and the cost is below the optimum."""
        wrapper = _transport_exact.network_simplex()
        honest = wrapper.emd_c

        def one_sided(a, b, cost, *rest):
            flow, value, u, v, _ = honest(a, b, cost, *rest)
            cheapest = np.expand_dims(cost.argmin(axis=axis), axis)
            flow = np.zeros(cost.shape)
            np.put_along_axis(flow, cheapest, a[:, None] if axis else b[None], axis=axis)
            return flow, value, u, v, 1

        monkeypatch.setattr(wrapper, "emd_c", one_sided)
        with pytest.raises(ConvergenceError, match="between 60 and 40 points"):
            transport(unit_costs(*samples(60, 40, 3))[0], *masses(60, 40))


def test_what_counts_as_a_proof():
    assert proven(1.0, 1.0 - 5e-10, 1.0)
    assert not proven(1.0, 1.0 - 1e-8, 1.0)
    assert not proven(1e-9, 0.0, 1.0)
    assert proven(1e-9, 1e-9 - 5e-12, 1.0)  # rounding of the solver, relative to the largest cost
    assert proven(0.0, 0.0, 0.0)
    assert not proven(100.0, 100.0 - 5e-7, 100.0)


@pytest.mark.parametrize(("n", "m"), [(11_000, 100), (900, 900)])
def test_warm_start_changes_nothing(n, m):
    A, B = samples(n, m, 3)
    cost, exponent = unit_costs(A, B)
    cold = transport(cost, *masses(n, m))
    start = _subsample_potentials(A, B, cost, exponent)
    assert semi_dual(cost, *masses(n, m), start[1]) > 0.9 * cold.cost  # close to begin with
    assert transport(cost, *masses(n, m), start=start).cost == pytest.approx(cold.cost, rel=1e-11)


def test_long_thin_problems_start_warm(monkeypatch):
    sizes = []

    def spy(X, Y, *args):
        sizes.append((len(X), len(Y)))
        return _subsample_potentials(X, Y, *args)

    monkeypatch.setitem(solve_samples.__globals__, "_subsample_potentials", spy)
    A, B = samples(100, 11_000, 3)
    swapped, straight = solve_samples(A, B), solve_samples(B, A)
    assert swapped.cost == straight.cost
    assert sizes == [(11_000, 100)] * 2


@pytest.mark.parametrize(
    ("n", "m", "d", "warm", "few_pairs"),
    [
        (200, 200, 4, False, True),
        (199, 200, 4, False, False),
        (200, 200, 3, False, False),
        (8000, 125, 4, True, False),
        (7992, 125, 4, False, True),
        (8000, 200, 3, True, False),
        (7999, 200, 3, False, False),
        (200, 8000, 3, True, False),
    ],
)
def test_which_way_a_problem_takes(n, m, d, warm, few_pairs, monkeypatch):
    """Long and thin problems start warm, and large ones in several columns are solved on few pairs."""
    taken = []
    monkeypatch.setattr(_transport_exact, "_subsample_potentials", lambda *_: taken.append("warm") or (None, None))
    monkeypatch.setattr(_transport_exact, "thinned_transport", lambda *_, **__: taken.append("few pairs"))
    monkeypatch.setattr(_transport_exact, "transport", lambda cost, a, b, start: Plan(0.0, 0.0, a, b, cost))
    solve_samples(np.zeros((n, d)), np.ones((m, d)))
    assert taken == ["warm"] * warm + ["few pairs"] * few_pairs


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
        assert found.method == "exact"

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
assert not {"ot", "networkx", "torch", "jax", "tensorflow", "cupy"} & (set(sys.modules) - loaded)
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
