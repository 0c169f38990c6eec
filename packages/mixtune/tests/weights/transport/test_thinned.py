"""Large problems in several columns are solved on few pairs: the same answer as on all of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from mixtune.weights import wasserstein_distance


def samples(n, m, d, *, seed=0, shift=0.3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d)) + shift


@pytest.mark.parametrize(("n", "m"), [(300, 300), (260, 251), (400, 100), (330, 300)])
@pytest.mark.parametrize(("d", "shift"), [(4, 0.0), (10, 0.3), (10, 3.0), (60, 0.1), (5, 1e4)])
def test_same_as_on_all_pairs(n, m, d, shift, ot):
    A, B = samples(n, m, d, seed=n + d, shift=shift)
    expected = ot.emd2(np.full(n, 1 / n), np.full(m, 1 / m), cdist(A, B), numItermax=10**7)
    found = wasserstein_distance(A, B, method="exact")
    assert found.value == pytest.approx(expected, rel=1e-11)
    assert found.gap <= 1e-9 * found.value
    assert found.method == "exact"


def test_repeated_rows_and_grids_still_come_out_exact(ot):
    rng = np.random.default_rng(0)
    grid = [rng.integers(0, 3, (300, 5)).astype(float) for _ in range(2)]
    repeated = [np.repeat(rng.standard_normal((k, 5)), 300 // k, axis=0) for k in (30, 50)]
    same = rng.standard_normal((300, 5))
    far_row = np.vstack([same[1:], np.full((1, 5), 1e6)])
    equal = np.full(300, 1 / 300)
    for A, B in (grid, repeated, (same, same + 0.2), (same, far_row)):
        expected = ot.emd2(equal, equal, cdist(A, B))
        assert wasserstein_distance(A, B, method="exact").value == pytest.approx(expected, rel=1e-9)
    assert wasserstein_distance(same, same[::-1], method="exact").value == 0.0
