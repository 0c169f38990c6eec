"""The sketch that preconditions conjugate gradients: few steps where few directions are strong."""

import numpy as np
import pytest

from mixtune.moments import RowSystem, SolverOptions

WALK = SolverOptions("iterative")


def system_of(values, *, n=None, seed=0):
    """Rows whose inner products have these eigenvalues."""
    rng = np.random.default_rng(seed)
    p = len(values)
    left = np.linalg.qr(rng.standard_normal((n or 2 * p, p)))[0]
    right = np.linalg.qr(rng.standard_normal((p, p)))[0]
    U = (left * np.sqrt(values)) @ right.T
    return RowSystem(U, U @ rng.standard_normal((p, 1)) + rng.standard_normal((len(U), 1)))


def steps(system, shift):
    return system.ridge_step(np.zeros_like(system.zero), shift, WALK)


@pytest.mark.parametrize("shift", [1e-3, 0.1, 10.0])
def test_strong_directions_cost_no_steps(shift):
    """Forty eigenvalues far above the others, which alone would cost hundreds of steps."""
    system = system_of(np.concatenate([np.geomspace(1e6, 1e2, 40), np.linspace(0.5, 1.0, 360)]))
    found = steps(system, shift)
    assert found.stats.iterations < 40
    exact = system.ridge_step(np.zeros_like(system.zero), shift, SolverOptions("direct")).delta
    assert np.linalg.norm(found.delta - exact) <= (found.stats.error_bound + 1e-10) * np.linalg.norm(exact)


@pytest.mark.parametrize("rank", [1, 5])
def test_matrices_of_low_rank_are_found_whole(rank):
    """All directions are in the sketch, and what is left is a multiple of the identity."""
    system = system_of(np.append(np.full(rank, 1e6), np.zeros(80 - rank)))
    found = steps(system, 1.0)
    assert found.stats.iterations <= 3
    assert rank <= found.stats.rank <= 20


def test_no_sketch_is_drawn_where_hardly_a_step_would_be_saved():
    """A ridge far above all eigenvalues leaves next to nothing to do; a small one has the sketch grow."""
    ranks = []
    for shift in (1e6, 1e-3):
        ranks.append(steps(system_of(np.geomspace(1e2, 1e-4, 400)), shift).stats.rank)
    assert ranks[0] < ranks[1]


def test_one_sketch_serves_many_ridges():
    """The second ridge finds the directions of the first and need not draw as many again."""
    system = system_of(np.geomspace(1e4, 1e-4, 240))
    first, again = steps(system, 1e-3).stats, steps(system, 1e-3).stats
    assert again.rank == first.rank
    assert again.iterations == first.iterations
    assert again.flops <= first.flops
