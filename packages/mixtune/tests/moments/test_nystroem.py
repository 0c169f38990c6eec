"""The sketch: strong directions found, products used again, a preconditioner that is what it says."""

from types import SimpleNamespace

import numpy as np
import pytest

from mixtune.moments._iterative import Sketch, _expected_steps, _prepare


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    return (basis * np.geomspace(1e4, 1e-4, 60)) @ basis.T


def test_it_finds_the_strong_directions_and_grows(matrix):
    asked = []

    def apply(theta):
        asked.append(theta.shape[1])
        return matrix @ theta

    sketch = Sketch(apply, np.zeros(60))
    assert (sketch.rank, sketch.largest, sketch.tail) == (0, 0.0, 0.0)
    sketch.grow(10)
    sketch.grow(25)
    assert asked == [10, 15]
    exact, vectors = np.linalg.eigh(matrix)
    np.testing.assert_allclose(sketch.values[:8], exact[::-1][:8], rtol=0.05)
    np.testing.assert_allclose(np.abs(np.sum(sketch.vectors[:, :5] * vectors[:, :-6:-1], axis=0)), 1.0, rtol=0.1)
    np.testing.assert_allclose(sketch.vectors.T @ sketch.vectors, np.eye(25), atol=1e-12)
    # Never more than A in any direction.
    approximation = (sketch.vectors * sketch.values) @ sketch.vectors.T
    assert np.linalg.eigvalsh(matrix - approximation)[0] > -1e-8 * exact[-1]


def test_the_preconditioned_matrix_is_well_conditioned(matrix):
    sketch, shift = Sketch(lambda theta: matrix @ theta, np.zeros(60)), 0.1
    plain = np.linalg.cond(matrix + shift * np.eye(60))
    sketch.grow(40)
    inverse = sketch.preconditioner(shift)(np.eye(60))
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-12)
    values = np.linalg.eigvals(inverse @ (matrix + shift * np.eye(60))).real
    assert values.min() > 0
    assert values.max() / values.min() < 50 < plain / 1000


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_matrices_of_low_rank_are_found_whole(rank):
    half = np.random.default_rng(1).standard_normal((40, rank))
    sketch = Sketch(lambda theta: half @ (half.T @ theta), np.zeros(40))
    sketch.grow(12)
    assert sketch.complete
    assert sketch.rank == rank
    np.testing.assert_allclose((sketch.vectors * sketch.values) @ sketch.vectors.T, half @ half.T, atol=1e-8)
    np.testing.assert_array_equal(Sketch(lambda theta: theta, np.zeros(3)).preconditioner(1.0)(np.eye(3)), np.eye(3))


def test_expected_steps_follow_the_condition_number():
    sketch = SimpleNamespace(largest=100.0, tail=3.0)
    assert _expected_steps(sketch, 1.0, 1e-10) == pytest.approx(np.log(2e10))
    assert _expected_steps(sketch, 0.0, 1e-10) == pytest.approx(0.5 * np.sqrt(1 + 3e10) * np.log(2e10))
    assert _expected_steps(SimpleNamespace(largest=0.0, tail=0.0), 0.0, 1e-10) == 1.0


class Counted:
    """A sketch whose tail falls by a factor each time that it grows."""

    def __init__(self, factor, complete_at=np.inf):
        self.drawn, self.largest, self.tail, self.grown = 0, 1e6, 1e6, []
        self._factor, self._complete_at = factor, complete_at

    @property
    def complete(self):
        return self.drawn >= self._complete_at

    def grow(self, columns):
        self.grown.append(columns)
        self.drawn, self.tail = columns, self.tail / self._factor


@pytest.mark.parametrize(
    ("factor", "complete_at", "most", "shift", "grown"),
    [
        (4.0, np.inf, 300, 1e-3, [32, 64, 128, 256, 300]),  # each doubling halves the steps
        (1.1, np.inf, 300, 1e-3, [32, 64]),  # hardly any step was saved
        (4.0, 100, 300, 1e-3, [32, 64, 128]),  # nothing else to find
        (4.0, np.inf, 300, 1e6, [32]),  # too few steps to save any
        (4.0, np.inf, 20, 1e-3, [20]),
        (4.0, np.inf, 0, 1e-3, []),
    ],
)
def test_the_sketch_grows_while_it_pays(factor, complete_at, most, shift, grown):
    sketch = Counted(factor, complete_at)
    _prepare(sketch, shift, 1e-10, 1, most)
    assert sketch.grown == grown
    _prepare(sketch, shift, 1e-10, 1, most)
    assert sketch.grown[: len(grown)] == grown
