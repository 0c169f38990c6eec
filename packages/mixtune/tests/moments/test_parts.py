"""Rows kept on request: nothing copied, any precision, any library; and the systems over them against stacked rows."""

import copy
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtune import Moments
from mixtune.errors import DataError
from mixtune.moments import GramSystem, RowSystem, SolverOptions, _system, weighted_system
from mixtune.moments._system import Part, row_system
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
    parted = RowSystem.of_parts([Part(U, Y, w) for (U, Y), w in zip(rows, weights)])
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


def test_many_blocks_give_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    (U, Y), (V, Z) = make_rows(rng, 70, 90, 2), make_rows(rng, 15, 90, 2)
    system = RowSystem.of_parts([Part(U, Y, 0.3), Part(V, Z, 0.7)])
    theta = rng.standard_normal((90, 2))
    whole = system.ridge_step(theta, 0.5, SolverOptions("direct"))
    assert whole.stats.method == "dual cholesky"
    monkeypatch.setattr(_system, "_block_rows", lambda *_: 16)
    cut = system.ridge_step(theta, 0.5, SolverOptions("direct"))
    np.testing.assert_allclose(cut.delta, whole.delta, atol=1e-12)


@pytest.mark.parametrize("n", [5, 30])
@pytest.mark.parametrize("outputs", [None, 2])
def test_kept_rows_are_the_same_moments(n, outputs):
    U, Y = make_rows(np.random.default_rng(0), n, 8, outputs)
    kept, usual = Moments.from_rows(U, Y, keep_rows=True), Moments.from_rows(U, Y)
    assert kept.keeps_rows
    assert kept.parts[0][0] is U
    assert kept.rows[0] is U  # one part is not copied
    assert kept.rows[1].shape == (n, outputs or 1)
    assert kept._gram is None
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


def test_weighted_systems_take_rows_as_they_are(monkeypatch):
    rng = np.random.default_rng(2)
    rows = [make_rows(rng, n, 6, None) for n in (10, 20, 30)]
    kept = [Moments.from_rows(U, y, keep_rows=True) for U, y in rows]
    weights = np.array([0.5, 0.5, 0.0])
    monkeypatch.setattr(_system, "STACKED", 0)
    system = weighted_system(kept, weights)
    assert system.blocked
    assert repr(system) == "RowSystem(shape=(30, 6), parts=2)"
    assert "rows" not in system.__dict__
    assert [part.rows is U for part, (U, _) in zip(system.parts, rows)] == [True, True]
    twin = weighted_system([m.without_rows() for m in kept], weights)
    theta = rng.standard_normal((6, 1))
    np.testing.assert_allclose(system.step(theta, 0.3), twin.step(theta, 0.3), rtol=1e-9)
    assert system.least_loss == pytest.approx(twin.least_loss)
    mixed = weighted_system([kept[0], kept[1].without_rows(), kept[2]], weights)
    assert isinstance(mixed, GramSystem)
    np.testing.assert_allclose(mixed.gram, twin.gram)


def test_wide_rows_of_many_domains_stay_rows(monkeypatch):
    """Domains of fewer rows than features that together are many: a Gram matrix, unless it would cost too much."""
    rng = np.random.default_rng(3)
    moments = [Moments.from_rows(*make_rows(rng, 6, 8, None)) for _ in range(3)]
    assert isinstance(weighted_system(moments, np.full(3, 1 / 3)), GramSystem)
    monkeypatch.setattr("mixtune.moments._cost.SMALL", 0.0)
    monkeypatch.setattr("mixtune.moments._cost.MARGIN", 0.0)
    assert isinstance(weighted_system(moments, np.full(3, 1 / 3)), RowSystem)


def test_mapped_float32_rows_stay_on_disk(tmp_path):
    rng = np.random.default_rng(4)
    n, p = 20_000, 400
    U = np.lib.format.open_memmap(tmp_path / "U.npy", mode="w+", dtype=np.float32, shape=(n, p))
    U[:] = rng.standard_normal((n, p)) * np.arange(1.0, p + 1) ** -0.5
    y = rng.standard_normal(n)
    exact = Moments.from_rows(np.asarray(U), y).head(1.0)
    tracemalloc.start()
    moments = Moments.from_rows(U, y, keep_rows=True)
    assert moments.parts[0][0] is U
    system = RowSystem.of_parts([Part(*moments.parts[0])])
    head = system.ridge_step(np.zeros((p, 1)), 1.0, SolverOptions("iterative")).delta[:, 0]
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


def test_blocks_suit_the_products_they_are_for():
    U = np.empty((1, 64))
    assert [_system._block_rows(U, columns) for columns in (1, 8, 9, 511, 512)] == [2048, 2048, 32768, 32768, 262144]
    wide = np.empty((1, 10**6))
    assert [_system._block_rows(wide, columns) for columns in (1, 600)] == [16, 256]


def test_large_rows_stay_where_they_are(monkeypatch):
    parts = [Part(np.ones((4, 3)), np.ones((4, 1))), Part(np.ones((2, 3)), np.ones((2, 1)), 0.25)]
    monkeypatch.setattr(_system, "STACKED", 18)
    stacked = _system.row_system(parts)
    assert not stacked.blocked
    np.testing.assert_array_equal(stacked.rows[:, 0], [1, 1, 1, 1, 0.5, 0.5])
    np.testing.assert_array_equal(stacked.targets[:, 0], [1, 1, 1, 1, 0.5, 0.5])
    monkeypatch.setattr(_system, "STACKED", 17)
    assert _system.row_system(parts).blocked
    assert (stacked.entries, stacked.shape) == (18, (6, 3))
    assert _system.row_system(parts[:1]).entries == 12


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("blocked", [False, True])
def test_the_loss_along_directions_from_rows_is_that_from_sums(outputs, blocked):
    rng = np.random.default_rng(outputs)
    parts = [
        Part(rng.standard_normal((n, 7)), rng.standard_normal((n, outputs)), weight)
        for n, weight in ((3, 0.5), (6, 2.0))
    ]
    rows = RowSystem.of_parts(parts) if blocked else row_system(parts)
    theta, *directions = rng.standard_normal((3, 7, outputs))
    found = rows.quadratic(theta, directions)
    for mine, other in zip(found, rows._primal.quadratic(theta, directions)):
        np.testing.assert_allclose(mine, other, rtol=1e-10)
    steps = np.array([0.3, -1.2])
    moved = theta + np.tensordot(steps, directions, axes=1)
    base, gradient, curvature = found
    assert base - 2 * gradient @ steps + steps @ curvature @ steps == pytest.approx(rows.loss(moved), rel=1e-10)
