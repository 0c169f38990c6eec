"""The exact distance: against other solvers, and never without its proof."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance_nd

from mixtune.weights import wasserstein_distance


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


@pytest.mark.parametrize(
    ("n", "m", "d"),
    [(200, 200, 3), (199, 200, 4), (200, 200, 4), (900, 900, 3), (8000, 125, 4), (7992, 125, 4), (100, 11_000, 3)],
)
def test_large_and_long_problems_agree_with_plain_network_simplex(n, m, d, ot):
    """These take different ways to the solution: all pairs, few pairs, and a start from a part of the rows."""
    A, B = samples(n, m, d)
    expected = ot.emd2(np.full(n, 1 / n), np.full(m, 1 / m), cdist(A, B), numItermax=10**8)
    found, turned = (wasserstein_distance(*pair, method="exact") for pair in ((A, B), (B, A)))
    assert found.value == pytest.approx(expected, rel=1e-10)
    assert found.value == pytest.approx(turned.value, rel=1e-12)
    assert found.gap <= 1e-9 * found.value


LYING = """
import numpy as np
import ot
from ot.lp import emd_wrap

import mixtune
from mixtune.errors import ConvergenceError

rng = np.random.default_rng(0)
honest, honest_sparse, calls = emd_wrap.emd_c, emd_wrap.emd_c_sparse, []


def samples(n, m, d):
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + 0.5


def boastful(a, b, cost, limit, *rest):
    flow, value, u, v, _ = honest(a, b, cost, 50, *rest)
    return flow, value, u, v, 1


def one_sided(axis):
    def solve(a, b, cost, *rest):
        _, value, u, v, _ = honest(a, b, cost, *rest)
        flow = np.zeros(cost.shape)
        cheapest = np.expand_dims(cost.argmin(axis=axis), axis)
        np.put_along_axis(flow, cheapest, a[:, None] if axis else b[None], axis=axis)
        return flow, value, u, v, 1

    return solve


def early(a, b, cost, limit, *rest):
    return honest(a, b, cost, 4000, *rest)


def early_once(a, b, cost, limit, *rest):
    calls.append(limit)
    return honest(a, b, cost, 4000 if len(calls) == 1 else limit, *rest)


def half_of_the_mass(*args):
    rows, columns, flow, *rest = honest_sparse(*args)
    calls.append(len(flow))
    return rows, columns, 0.5 * flow, *rest


for lie, pair in (
    (boastful, samples(60, 40, 3)),
    (one_sided(0), samples(60, 40, 3)),
    (one_sided(1), samples(60, 40, 3)),
    (early, samples(100, 3000, 3)),
):
    emd_wrap.emd_c = lie
    try:
        print("returned", mixtune.wasserstein_distance(*pair, method="exact"))
    except ConvergenceError as error:
        assert "not certified" in str(error) and "use method='bracket'" in str(error), error

emd_wrap.emd_c = honest
for name, lie, pair in (
    ("emd_c", early_once, samples(100, 3000, 3)),
    ("emd_c_sparse", half_of_the_mass, samples(250, 250, 5)),
):
    expected = mixtune.wasserstein_distance(*pair, method="exact").value
    calls.clear()
    setattr(emd_wrap, name, lie)
    found = mixtune.wasserstein_distance(*pair, method="exact")
    assert calls, name
    assert abs(found.value - expected) <= 1e-12 * expected
    assert found.gap <= 1e-9 * expected
"""


def test_a_solver_that_stops_early_or_errs_is_not_believed():
    """POT is replaced by solvers that report success: the number is refused, or found on another way."""
    done = subprocess.run([sys.executable, "-c", LYING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_plain_solver_would_return_an_early_number(ot):
    """100 x 3,000 with a small limit on pivots: what the certificate protects from."""
    A, B = samples(100, 3000, 3)
    exact = wasserstein_distance(A, B, method="exact").value
    with pytest.warns(UserWarning, match="numItermax"):
        early = ot.emd2(np.full(100, 1 / 100), np.full(3000, 1 / 3000), cdist(A, B), numItermax=4000)
    assert abs(early - exact) > 1e-3 * exact


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
