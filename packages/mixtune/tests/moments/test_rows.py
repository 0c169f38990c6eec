"""Rows on their way into moments: what is refused, and the blocks in which they are read."""

from __future__ import annotations

import numpy as np
import pytest

from mixtune import Moments
from mixtune.errors import DataError
from mixtune.moments import LazyRows, Rows


@pytest.mark.parametrize(
    ("U", "Y", "match"),
    [
        (np.ones(3), np.ones(3), r"U must be \(n, p\)"),
        (np.ones((3, 2, 1)), np.ones(3), r"U must be \(n, p\)"),
        (np.ones((3, 2)), np.ones((3, 1, 1)), r"Y \(n,\) or \(n, D\)"),
        (np.ones((3, 2)), np.float64(1.0), r"Y \(n,\) or \(n, D\)"),
        (np.ones((3, 2)), np.ones(4), "U has 3 rows but Y has 4 targets"),
        (np.ones((0, 2)), np.ones(0), "hold no data"),
        (np.ones((3, 0)), np.ones(3), "hold no data"),
        (np.ones((3, 2)), np.ones((3, 0)), "hold no data"),
        (np.full((3, 2), "a"), np.ones(3), "U holds values of type <U1"),
        (np.ones((3, 2)), np.full(3, None), "Y holds values of type object"),
    ],
)
def test_rows_that_are_none(U, Y, match):
    with pytest.raises(DataError, match=match):
        Moments.from_rows(U, Y)


def test_the_smallest_rows_are_taken():
    single = Moments.from_rows([[1]], [True])
    assert (single.count, single.n_features, single.single_output, float(single.square)) == (1, 1, True, 1.0)
    column = Moments.from_rows(np.ones((1, 1), dtype=np.uint8), np.ones((1, 1)))
    assert (column.single_output, column.n_outputs) == (False, 1)


@pytest.mark.parametrize("dtype", [np.int16, np.float32])
@pytest.mark.parametrize("mapped", [False, True])
def test_other_types_and_mapped_rows_are_summed_as_float64(dtype, mapped, tmp_path):
    """More rows than are converted or read at a time."""
    U = np.random.default_rng(0).integers(-100, 100, (300_000, 20)).astype(dtype)
    y = np.arange(300_000.0) % 7
    wide = U.astype(np.float64)
    if mapped:
        np.save(tmp_path / "U.npy", U)
        U = np.load(tmp_path / "U.npy", mmap_mode="r")
    found = Moments.from_rows(U, y)
    np.testing.assert_array_equal(found.gram, wide.T @ wide)  # whole numbers: nothing is rounded
    np.testing.assert_array_equal(found.cross, wide.T @ y)


def test_errors_count_what_is_not_finite():
    U, Y = np.zeros((70_000, 1), dtype=np.float32), np.zeros(70_000)
    U[[0, 65_535, 65_536], 0] = np.nan
    Y[69_999] = np.inf
    with pytest.raises(DataError, match="3 in U, 1 in Y"):
        Moments.from_rows(U, Y)
    with pytest.raises(DataError, match="overflow float64"):
        Moments.from_rows(np.full((2, 1), 1e200), np.ones(2))


def test_parts_are_joined_in_order():
    first = Moments.from_rows(np.ones((2, 3), dtype=np.float32), np.ones((2, 1)), keep_rows=True)
    second = Moments.from_rows(np.zeros((1, 3)), np.zeros((1, 1)), keep_rows=True)
    U, Y = (first + second).rows
    assert U.dtype == np.float64
    assert (U[:, 0].tolist(), Y[:, 0].tolist()) == ([1.0, 1.0, 0.0], [1.0, 1.0, 0.0])


@pytest.mark.parametrize(("n", "p"), [(12, 3), (3, 7)])
def test_the_least_loss_is_that_of_least_squares(n, p):
    rng = np.random.default_rng(0)
    U, Y = rng.standard_normal((n, p)), rng.standard_normal((n, 2))
    residual = Y - U @ np.linalg.lstsq(U, Y, rcond=None)[0]
    system = Moments.from_rows(U, Y).system
    assert system.least_loss == pytest.approx(np.sum(residual**2), abs=1e-9)
    assert system.target_square == pytest.approx(np.sum(Y**2))
    assert system.entries == (p * p // 2 if n > p else n * p)
    assert system.zero.shape == (p, 2)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_made_when_asked_for_are_those_made_at_once(weighted):
    rng = np.random.default_rng(0)
    weight = rng.uniform(1, 2, 700) if weighted else None
    given, y = Rows(rng.standard_normal((700, 300)), rng.standard_normal(700), weight), rng.standard_normal(700)
    made = []

    def features(X):
        made.append(len(X))
        return 2 * X[:, :200] - 1

    lazy, whole = LazyRows(given, features, y), Rows(features(given.X), y, weight)
    made.clear()
    assert lazy.shape == whole.shape
    assert lazy.total == whole.total
    for one, other in ((lazy.part([3, 5]), whole.part([3, 5])), (lazy.part(slice(9)), whole.part(slice(9)))):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.y, other.y)
        np.testing.assert_array_equal(one.weight, other.weight)
    np.testing.assert_array_equal(lazy.sizes, whole.sizes)
    np.testing.assert_allclose(whole.sizes, [np.sum(np.abs(whole.X) ** power, axis=1) for power in (2, 3)])
    direction = rng.standard_normal(200)
    np.testing.assert_allclose(lazy.along(direction), given.X[:, :200] @ (2 * direction) - direction.sum())
    assert max(made) < 700  # never all rows at once, unless they are asked for
    np.testing.assert_array_equal(lazy.X, whole.X)
