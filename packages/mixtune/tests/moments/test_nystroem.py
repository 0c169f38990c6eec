"""The sketch that preconditions conjugate gradients: few steps where few directions are strong."""

import numpy as np
import pytest

from mixtune.moments import GramSystem, RowSystem, SolverOptions

WALK = SolverOptions("iterative")


def system_of(values, *, n=None, outputs=1, seed=0):
    """Rows whose inner products have these eigenvalues."""
    rng = np.random.default_rng(seed)
    p = len(values)
    left = np.linalg.qr(rng.standard_normal((n or 2 * p, p)))[0]
    right = np.linalg.qr(rng.standard_normal((p, p)))[0]
    U = (left * np.sqrt(values)) @ right.T
    return RowSystem(U, U @ rng.standard_normal((p, outputs)) + rng.standard_normal((len(U), outputs)))


def steps(system, shift):
    return system.ridge_step(np.zeros_like(system.zero), shift, WALK)


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    return (basis * np.geomspace(1e4, 1e-4, 60)) @ basis.T


def sketch_of(matrix):
    return GramSystem(matrix, np.zeros((len(matrix), 1)), np.zeros(1)).sketch


def test_it_finds_the_strong_directions_and_grows(matrix):
    sketch = sketch_of(matrix)
    assert (sketch.rank, sketch.drawn, sketch.largest, sketch.tail) == (0, 0, 0.0, 0.0)
    sketch.grow(10)
    assert sketch.drawn == 10
    sketch.grow(25)
    assert (sketch.drawn, sketch.rank, sketch.complete) == (25, 25, False)
    exact, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(sketch.values[:8], exact[::-1][:8], rtol=0.05)
    assert (sketch.largest, sketch.tail) == (sketch.values[0], sketch.values[-1])
    np.testing.assert_allclose(np.abs(np.sum(sketch.vectors[:, :5] * vectors[:, :-6:-1], axis=0)), 1.0, rtol=0.1)
    np.testing.assert_allclose(sketch.vectors.T @ sketch.vectors, np.eye(25), atol=1e-12)
    # Never more than A in any direction.
    approximation = (sketch.vectors * sketch.values) @ sketch.vectors.T
    assert np.linalg.eigvalsh(matrix - approximation)[0] > -1e-8 * exact[-1]


def test_the_preconditioned_matrix_is_well_conditioned(matrix):
    sketch, shift = sketch_of(matrix), 0.1
    plain = np.linalg.cond(matrix + shift * np.eye(60))
    np.testing.assert_array_equal(sketch.preconditioner(1.0)(np.eye(60)), np.eye(60))
    sketch.grow(40)
    inverse = sketch.preconditioner(shift)(np.eye(60))
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-12)
    values = np.linalg.eigvals(inverse @ (matrix + shift * np.eye(60))).real
    assert values.min() > 0
    assert values.max() / values.min() < 50 < plain / 1000


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_a_matrix_of_low_rank_is_found_whole(rank):
    half = np.random.default_rng(1).standard_normal((40, rank))
    sketch = sketch_of(half @ half.T)
    sketch.grow(12)
    assert sketch.complete
    assert sketch.rank == rank
    np.testing.assert_allclose((sketch.vectors * sketch.values) @ sketch.vectors.T, half @ half.T, atol=1e-8)


@pytest.mark.parametrize("outputs", [1, 3])
def test_what_the_steps_took(outputs):
    """Products for the sketch, then two products with the rows and two with the sketch a step and output."""
    system = system_of(np.geomspace(1e4, 1e-4, 240), n=300, outputs=outputs)
    stats = steps(system, 0.1).stats
    rank, entries = stats.rank, 300 * 240
    assert 0 < rank == system.sketch.drawn <= 60
    assert stats.iterations > 0
    assert stats.flops == 4 * rank * (entries + 2 * 240 * rank) + stats.iterations * outputs * 4 * (
        entries + 240 * rank
    )
    assert stats.bytes == 8 * 240 * (4 * rank + 8 * outputs)


def test_the_sketch_doubles_while_that_pays():
    """It begins with 32 columns, which are enough for a strong ridge, and grows to a quarter of the features."""
    values = 1e4 * np.arange(1.0, 1001.0) ** -2
    found = [steps(system_of(values, n=1000), shift).stats.rank for shift in (1e4, 1.0, 1e-2, 1e-4)]
    assert found == sorted(found)
    assert set(found) <= {32, 64, 128, 250}
    assert found[0] == 32
    assert found[-1] == 250
    flat = system_of(np.linspace(0.5, 1.0, 1000), n=1000)
    assert steps(flat, 1e-6).stats.rank == 64  # hardly any step was saved


@pytest.mark.parametrize("shift", [1e-3, 0.1, 10.0])
def test_strong_directions_cost_no_steps(shift):
    """Forty eigenvalues far above the others, which alone would cost hundreds of steps."""
    system = system_of(np.concatenate([np.geomspace(1e6, 1e2, 40), np.linspace(0.5, 1.0, 360)]))
    found = steps(system, shift)
    assert found.stats.iterations < 40
    exact = system.ridge_step(np.zeros_like(system.zero), shift, SolverOptions("direct")).delta
    assert np.linalg.norm(found.delta - exact) <= (found.stats.error_bound + 1e-10) * np.linalg.norm(exact)


@pytest.mark.parametrize("rank", [1, 5])
def test_few_directions_take_few_steps(rank):
    """All directions are in the sketch, and what is left is a multiple of the identity."""
    found = steps(system_of(np.append(np.full(rank, 1e6), np.zeros(80 - rank))), 1.0)
    assert found.stats.iterations <= 3
    assert rank <= found.stats.rank <= 20


def test_one_sketch_serves_many_ridges():
    """The second ridge finds the directions of the first and need not draw as many again."""
    system = system_of(np.geomspace(1e4, 1e-4, 240))
    first, again = steps(system, 1e-3).stats, steps(system, 1e-3).stats
    assert again.rank == first.rank
    assert again.iterations == first.iterations
    assert again.flops <= first.flops
