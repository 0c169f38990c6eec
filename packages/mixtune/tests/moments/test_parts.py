"""Rows kept on request: nothing copied, any precision, any library; and the systems over them against stacked rows."""

import copy
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtune import Moments
from mixtune.errors import DataError
from mixtune.moments import GramSystem, RowSystem, SolverOptions, weighted_system
from problems import make_rows


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.integers(1, 15),
    st.sampled_from([1, 2]),
    st.sampled_from([np.float64, np.float32]),
    st.integers(0, 10**6),
)
def test_parts_answer_as_stacked_rows_do(sizes, p, outputs, dtype, seed):
    rng = np.random.default_rng(seed)
    rows = [make_rows(rng, n, p, outputs) for n in sizes]
    rows = [(U.astype(dtype), Y) for U, Y in rows]
    weights = rng.dirichlet(np.ones(len(sizes)))
    parted = weighted_system([Moments.from_rows(U, Y, keep_rows=True) for U, Y in rows], weights)
    stacked = RowSystem(
        np.vstack([w**0.5 * U.astype(float) for (U, _), w in zip(rows, weights)]),
        np.vstack([w**0.5 * Y for (_, Y), w in zip(rows, weights)]),
    )
    theta, columns = rng.standard_normal((p, outputs)), rng.standard_normal((p, 3 * outputs))
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert parted.shape == stacked.shape
    np.testing.assert_allclose(parted.apply(theta), stacked.apply(theta), **close)
    np.testing.assert_allclose(parted.gradient(theta), stacked.gradient(theta), **close)
    np.testing.assert_allclose(parted.column_losses(columns, outputs), stacked.column_losses(columns, outputs), **close)
    assert parted.loss(theta) == pytest.approx(stacked.loss(theta))
    for shift in (0.1, 2.0):
        for solver in ("direct", "iterative"):
            step = parted.ridge_step(theta, shift, SolverOptions(solver, 1e-13))
            np.testing.assert_allclose(step.delta, stacked.step(theta, shift), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(parted.step(theta, 0.0), stacked.step(theta, 0.0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(parted.rows, stacked.rows)
    np.testing.assert_allclose(parted.targets, stacked.targets)
    rhs = parted.gradient(theta)
    np.testing.assert_allclose(parted.eigenbasis().solve(1.0, rhs), stacked.eigenbasis().solve(1.0, rhs), **close)


@pytest.mark.parametrize("n", [5, 30])
@pytest.mark.parametrize("outputs", [None, 2])
def test_kept_rows_are_the_same_moments(n, outputs):
    U, Y = make_rows(np.random.default_rng(0), n, 8, outputs)
    kept, usual = Moments.from_rows(U, Y, keep_rows=True), Moments.from_rows(U, Y)
    assert kept.keeps_rows
    assert kept.parts[0][0] is U
    assert kept.rows[0] is U  # one part is not copied
    assert kept.rows[1].shape == (n, outputs or 1)
    theta = np.ones((8,) if outputs is None else (8, outputs))
    for name in ("gram", "cross", "square"):
        np.testing.assert_allclose(getattr(kept, name), getattr(usual, name), rtol=1e-12)
    np.testing.assert_allclose(kept.head(0.5), usual.head(0.5), rtol=1e-9)
    assert kept.loss(theta) == pytest.approx(usual.loss(theta))
    assert not kept.without_rows().keeps_rows
    np.testing.assert_allclose((kept - usual).gram, np.zeros((8, 8)), atol=1e-12)
    np.testing.assert_allclose(copy.deepcopy(kept).head(0.5), kept.head(0.5))
    if outputs:
        one = kept.output(1)
        assert one.parts[0][0] is U
        np.testing.assert_allclose(one.head(0.5), usual.head(0.5)[:, 1], rtol=1e-9)


def test_kept_rows_add_without_copies():
    rng = np.random.default_rng(1)
    rows = [make_rows(rng, n, 6, None) for n in (10, 3, 20)]
    kept = [Moments.from_rows(U, y, keep_rows=True) for U, y in rows]
    total = kept[0] + Moments.from_rows(*rows[1]) + kept[2]  # the second is kept because it is short
    assert [U.shape[0] for U, _ in total.parts] == [10, 3, 20]
    assert total.parts[0][0] is rows[0][0]
    expected = sum(Moments.from_rows(U, y) for U, y in rows)
    np.testing.assert_allclose(total.rows[0], np.vstack([U for U, _ in rows]))
    np.testing.assert_allclose(total.gram, expected.gram)
    np.testing.assert_allclose(Moments.from_blocks(rows, keep_rows=True).head(1.0), expected.head(1.0))
    mixed = kept[0] + Moments.from_rows(*rows[2])
    assert not mixed.keeps_rows
    np.testing.assert_allclose(mixed.gram, (expected - Moments.from_rows(*rows[1])).gram, atol=1e-10)


@pytest.fixture(scope="module")
def large():
    """More numbers than are stacked: 17 million in single precision, and the same rows stacked in double."""
    rng = np.random.default_rng(2)
    rows = [(rng.standard_normal((n, 400), dtype=np.float32), rng.standard_normal((n, 2))) for n in (30_000, 13_000, 9)]
    kept = [Moments.from_rows(U, Y, keep_rows=True) for U, Y in rows]
    weights = np.array([0.5, 0.25, 0.0])
    root = weights**0.5
    stacked = [np.vstack([w * side.astype(float) for side, w in zip(sides, root)]) for sides in zip(*rows)]
    return kept, weights, RowSystem(*stacked)


def test_large_rows_are_used_where_they_are(large):
    kept, weights, stacked = large
    system = weighted_system(kept, weights)
    assert isinstance(system, RowSystem)
    assert repr(system) == "RowSystem(shape=(43000, 400), parts=2)"
    assert [part.rows is m.parts[0][0] for part, m in zip(system.parts, kept)] == [True, True]
    rng = np.random.default_rng(0)
    theta, direction = rng.standard_normal((2, 400, 2))
    close = {"rtol": 1e-9, "atol": 1e-9}
    np.testing.assert_allclose(system.apply(theta), stacked.apply(theta), **close)
    np.testing.assert_allclose(system.gradient(theta), stacked.gradient(theta), **close)
    assert system.loss(theta) == pytest.approx(stacked.loss(theta))
    for mine, other in zip(system.quadratic(theta, [direction]), stacked.quadratic(theta, [direction])):
        np.testing.assert_allclose(mine, other, rtol=1e-9)
    for solver in ("direct", "iterative"):
        step = system.ridge_step(theta, 2.0, SolverOptions(solver, 1e-13))
        np.testing.assert_allclose(step.delta, stacked.step(theta, 2.0), rtol=1e-7, atol=1e-9)
    assert system.least_loss == pytest.approx(stacked.least_loss)


def test_large_rows_of_one_domain_and_of_sums(large):
    kept, weights, stacked = large
    mixed = weighted_system([kept[0], kept[1].without_rows(), kept[2]], weights)
    assert isinstance(mixed, GramSystem)
    theta = np.ones((400, 2))
    np.testing.assert_allclose(mixed.step(theta, 0.3), stacked.step(theta, 0.3), rtol=1e-7, atol=1e-9)
    total = kept[0] + kept[1]
    np.testing.assert_allclose(total.head(1.0), total.without_rows().head(1.0), rtol=1e-7, atol=1e-9)


def test_large_rows_fewer_than_features_are_solved_by_their_inner_products():
    rng = np.random.default_rng(3)
    U, Y = rng.standard_normal((420, 40_000), dtype=np.float32), rng.standard_normal((420, 1))
    system = Moments.from_rows(U, Y, keep_rows=True).system
    step = system.ridge_step(np.zeros((40_000, 1)), 5.0, SolverOptions("direct"))
    assert step.stats.method == "dual cholesky"
    wide = U.astype(float)
    expected = wide.T @ np.linalg.solve(wide @ wide.T + 5.0 * np.eye(420), Y)
    np.testing.assert_allclose(step.delta, expected, rtol=1e-7, atol=1e-10)


def test_short_domains_that_together_are_many_rows_are_summed():
    rng = np.random.default_rng(3)
    moments = [Moments.from_rows(*make_rows(rng, 6, 8, None)) for _ in range(3)]
    assert isinstance(weighted_system(moments, np.full(3, 1 / 3)), GramSystem)


def test_mapped_float32_rows_stay_on_disk(tmp_path):
    rng = np.random.default_rng(4)
    n, p = 43_000, 400  # more than is stacked
    U = np.lib.format.open_memmap(tmp_path / "U.npy", mode="w+", dtype=np.float32, shape=(n, p))
    U[:] = rng.standard_normal((n, p)) * np.arange(1.0, p + 1) ** -0.5
    y = rng.standard_normal(n)
    exact = Moments.from_rows(np.asarray(U), y).head(1.0)
    tracemalloc.start()
    moments = Moments.from_rows(U, y, keep_rows=True)
    assert moments.parts[0][0] is U
    head = moments.head(1.0, solver="iterative")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * 8 * n * p  # the rows in float64
    np.testing.assert_allclose(head, exact, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("place", ["U", "Y"])
def test_kept_rows_are_checked(place):
    U, y = np.ones((6, 2)), np.ones(6)
    (U if place == "U" else y)[3] = np.nan
    with pytest.raises(DataError, match=f"in {place}"):
        Moments.from_rows(U, y, keep_rows=True)
    with pytest.raises(DataError, match="overflow"):
        Moments.from_rows(np.full((3, 2), 1e200), np.ones(3), keep_rows=True)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_loss_along_directions_from_rows_is_that_from_sums(outputs):
    rng = np.random.default_rng(outputs)
    kept = [
        Moments.from_rows(rng.standard_normal((n, 7)), rng.standard_normal((n, outputs)), keep_rows=True)
        for n in (3, 6)
    ]
    weights = np.array([0.5, 2.0])
    rows, sums = weighted_system(kept, weights), weighted_system([m.without_rows() for m in kept], weights)
    theta, *directions = rng.standard_normal((3, 7, outputs))
    found = rows.quadratic(theta, directions)
    for mine, other in zip(found, sums.quadratic(theta, directions)):
        np.testing.assert_allclose(mine, other, rtol=1e-10)
    steps = np.array([0.3, -1.2])
    moved = theta + np.tensordot(steps, directions, axes=1)
    base, gradient, curvature = found
    assert base - 2 * gradient @ steps + steps @ curvature @ steps == pytest.approx(rows.loss(moved), rel=1e-10)
