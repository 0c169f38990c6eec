"""Many datasets at once: the same as one by one."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from mixtune import Moments, PredictiveWeights, RegretProblem, solve
from mixtune.errors import DataError, ParameterError
from mixtune.moments import _datasets, _moments, local_heads, weighted_system
from mixtune.moments._rows import ShiftedRows
from problems import make_rows


def many(rng, *, count=90, p=7, outputs=None):
    """Datasets below, at and above p rows."""
    return [make_rows(rng, int(n), p, outputs) for n in rng.integers(1, 12, count)]


@pytest.mark.parametrize("outputs", [None, 1, 3])
@pytest.mark.parametrize("chunk", [1, 1000, 2**25])
def test_heads_are_those_of_the_loop(outputs, chunk, monkeypatch):
    monkeypatch.setattr(_datasets, "CHUNK_BYTES", chunk)
    rng = np.random.default_rng(0)
    moments = [Moments.from_rows(U, y) for U, y in many(rng, outputs=outputs)]
    # A ridge of 0, or lost in rounding, needs the careful way: the minimum-norm solution.
    ridges = rng.choice([0.0, 1e-14, 1e-3, 1.0, 50.0], len(moments))
    expected = np.stack([m.head(k) for m, k in zip(moments, ridges)])
    found = local_heads(moments, ridges)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_equal_rows_and_zero_rows():
    flat = [Moments.from_rows(np.ones((3, 5)), np.arange(3.0)), Moments.from_rows(np.zeros((3, 5)), np.ones(3))] * 40
    for ridge in (0.0, 1e-13, 1.0):
        np.testing.assert_allclose(
            local_heads(flat, [ridge] * 80), np.stack([m.head(ridge) for m in flat]), rtol=1e-8, atol=1e-12
        )


def test_few_datasets_keep_their_bits():
    moments = [Moments.from_rows(U, y) for U, y in many(np.random.default_rng(0), count=5)]
    np.testing.assert_array_equal(local_heads(moments, [1.0] * 5), np.stack([m.head(1.0) for m in moments]))


def test_bad_ridges_and_unlike_moments_are_refused():
    moments = [Moments.from_rows(np.ones((2, 3)), np.ones(2))] * 80
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="ridge"):
            local_heads(moments, [wrong] * 80)
    with pytest.raises(DataError, match="features"):
        local_heads([*moments, Moments.from_rows(np.ones((2, 4)), np.ones(2))], [1.0] * 81)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("rows", [3, 20])  # kept, and summed
def test_losses_of_many_heads_are_those_of_each(outputs, rows, monkeypatch):
    monkeypatch.setattr(_moments, "LOSSES_AT_ONCE", 500)
    rng = np.random.default_rng(0)
    moments = Moments.from_rows(*make_rows(rng, rows, 7, outputs))
    heads = rng.standard_normal((100, 7) if outputs is None else (100, 7, outputs))
    expected = [moments.loss(head) for head in heads]
    np.testing.assert_allclose(moments.losses(heads), expected, rtol=1e-12)
    np.testing.assert_allclose(moments.losses(list(heads)), expected, rtol=1e-12)
    with pytest.raises(DataError, match="head of these moments"):
        moments.losses(heads[:, :-1])


def test_wild_heads_among_many_are_cut_off():
    moments = [Moments.from_rows(np.eye(2), np.ones(2))] * 100
    heads = np.ones((100, 2))
    heads[3], heads[4] = 1e200, [1e200, -1e200]
    weights = PredictiveWeights(1.0).weigh(moments=moments, heads=heads)
    assert weights.values[3] == weights.values[4] == 0
    heads[5] = np.nan
    with pytest.raises(DataError, match=r"heads\[5\]"):
        PredictiveWeights(1.0).weigh(moments=moments, heads=heads)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("largest", [4, 12])
def test_groups_are_the_parts(outputs, dtype, largest):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, largest, 30)
    U, Y = (part.astype(dtype) for part in make_rows(rng, int(sizes.sum()), 6, outputs))
    edges = np.concatenate([[0], np.cumsum(sizes)])
    found = Moments.from_groups(U, Y, sizes)
    assert len(found) == 30
    for m, begin, end in zip(found, edges[:-1], edges[1:]):
        part = Moments.from_rows(U[begin:end], Y[begin:end])
        assert (m.count, m.single_output, m.keeps_rows) == (part.count, part.single_output, part.keeps_rows)
        for name in ("gram", "cross", "square"):
            np.testing.assert_allclose(getattr(m, name), getattr(part, name), rtol=1e-12, atol=1e-12)
    before = U.copy()
    U[:] = 0  # the moments hold their own copy
    np.testing.assert_allclose(found[0].gram, before[: sizes[0]].T.astype(float) @ before[: sizes[0]], rtol=1e-6)


def test_groups_that_do_not_fit_are_refused():
    U, y = np.ones((4, 9)), np.ones(4)
    with pytest.raises(DataError, match="sizes add up to 3 rows, U has 4"):
        Moments.from_groups(U, y, [1, 2])
    with pytest.raises(ParameterError, match="sizes"):
        Moments.from_groups(U, y, [4, 0])
    U[2, 3] = np.nan
    with pytest.raises(DataError, match="1 in U"):
        Moments.from_groups(U, y, [2, 2])


def shifted(rng, n=4, p=6, outputs=2):
    design, targets = rng.standard_normal((n, p + 1)), rng.standard_normal((n, outputs))
    rows = ShiftedRows(design, targets, rng.standard_normal(p), rng.standard_normal(outputs))
    return Moments.from_shifted(rows, single=False), Moments.from_rows(*rows.load())


def test_shifted_rows_are_rows():
    rng = np.random.default_rng(0)
    made, held = shifted(rng)
    other, twin = shifted(rng)
    for left, right in ((made, held), (made + other, held + twin), (made.output(1), held.output(1))):
        for name in ("gram", "cross", "square"):
            np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-12)
        np.testing.assert_allclose(left.head(0.0), right.head(0.0), rtol=1e-9)
    pairs = [shifted(rng) for _ in range(5)]
    systems = [weighted_system(moments, np.full(5, 0.2)) for moments in zip(*pairs)]
    np.testing.assert_allclose(systems[0].gram, systems[1].gram, rtol=1e-12)
    np.testing.assert_allclose(copy.deepcopy(made).gram, held.gram)
    with pytest.raises(DataError, match="finite"):
        Moments.from_shifted(
            ShiftedRows(np.full((1, 3), np.inf), np.ones((1, 1)), np.zeros(2), np.zeros(1)), single=True
        )


@pytest.mark.parametrize("p", [3, 40, 200])  # 200 is too wide for slabs
def test_the_system_of_many_is_the_sum(p):
    rng = np.random.default_rng(0)
    moments = [Moments.from_rows(*make_rows(rng, int(n), p, None)) for n in rng.integers(1, p, 300)]
    weights = rng.dirichlet(np.ones(300))
    gram = weighted_system(moments, weights).gram
    np.testing.assert_allclose(gram, sum(w * m.gram for m, w in zip(moments, weights)), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(gram, gram.T)


def test_a_problem_of_many_domains_is_the_problem():
    rng = np.random.default_rng(0)
    rows = many(rng, count=120)
    moments = [Moments.from_rows(U, y) for U, y in rows]
    weights = PredictiveWeights(2.0).weigh(moments=moments, ridge=0.5)
    options = {"weights": weights, "transfer": 0.5, "stability": 1.0, "horizon": 4}
    fast = solve(RegretProblem(moments=moments, ridge=0.5, **options))
    slow = solve(RegretProblem(moments=moments, heads=[m.head(0.5) for m in moments], **options), method="riccati")
    np.testing.assert_allclose(fast.coef, slow.coef, rtol=1e-6, atol=1e-8)


def test_sums_are_solved_together(monkeypatch):
    rng = np.random.default_rng(1)
    moments = [Moments.from_rows(U, y) for U, y in (make_rows(rng, 9, 4, 2) for _ in range(80))]
    assert not any(m.keeps_rows for m in moments)
    expected = np.stack([m.head(0.5) for m in moments])
    monkeypatch.setattr(Moments, "head", None)  # none of them one by one
    np.testing.assert_allclose(local_heads(moments, [0.5] * 80), expected, rtol=1e-9)


def test_domains_that_keep_many_rows_have_the_same_heads() -> None:
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((12, 3)), rng.standard_normal(12)) for _ in range(70)]
    kept = [Moments.from_rows(U, y, keep_rows=True) for U, y in rows]
    summed = [Moments.from_rows(U, y) for U, y in rows]
    np.testing.assert_allclose(local_heads(kept, [0.5] * 70), local_heads(summed, [0.5] * 70), rtol=1e-10, atol=1e-12)


def test_features_or_targets_that_overflow_in_groups_are_named():
    for U, y in ((np.full((4, 9), 1e200), np.zeros(4)), (np.zeros((4, 9)), np.full(4, 1e200))):
        with pytest.raises(DataError, match="overflow float64"):
            Moments.from_groups(U, y, [2, 2])


@pytest.mark.parametrize(("p", "stacked"), [(96, True), (97, False)])
def test_which_heads_are_solved_together(p, stacked):
    rng = np.random.default_rng(0)
    few, sums = Moments.from_rows(*make_rows(rng, 5, p, None)), Moments.from_rows(*make_rows(rng, p, p, None))
    kept = Moments.from_rows(*make_rows(rng, p, p, None), keep_rows=True)
    runs, summed, others = _datasets._by_size([few, sums, kept, few])
    assert list(runs) == [[0, 3]]
    assert (summed, others) == (([1], [2]) if stacked else ([], [1, 2]))


@pytest.mark.parametrize(("count", "together"), [(63, False), (64, True)])
def test_many_datasets_are_stacked(count, together, monkeypatch):
    moments = [Moments.from_rows(np.eye(2), np.ones(2))] * count
    if together:
        monkeypatch.setattr(Moments, "head", None)
    else:
        monkeypatch.setattr(_datasets, "_ridge_solve", None)
    np.testing.assert_allclose(local_heads(moments, [1.0] * count), np.full((count, 2), 0.5))


def test_chunks_stay_within_memory(monkeypatch):
    monkeypatch.setattr(_datasets, "CHUNK_BYTES", 100)
    assert list(_datasets.chunks([5, 6, 7, 8, 9], 50)) == [[5, 6], [7, 8], [9]]
    assert list(_datasets.chunks([5, 6], 1000)) == [[5], [6]]
    assert list(_datasets.chunks([5, 6], 0)) == [[5, 6]]
    assert list(_datasets.chunks([], 10)) == []


def test_ridges_lost_in_rounding_are_not_trusted():
    grams = np.stack([np.eye(2), 1e6 * np.ones((2, 2)), np.zeros((2, 2))])
    rhs = np.ones((3, 2, 1))
    for ridge, trusted in ((1.0, [True, True, True]), (1e-7, [True, False, True]), (0.0, [False] * 3)):
        solved, safe = _datasets._ridge_solve(grams.copy(), rhs, np.full(3, ridge))
        assert safe.tolist() == trusted
        expected = np.linalg.solve(grams[safe] + ridge * np.eye(2), rhs[safe])
        np.testing.assert_allclose(solved[safe], expected, rtol=1e-9)
    # Rounding of sums that were subtracted counts too.
    assert _datasets._ridge_solve(grams.copy(), rhs, np.full(3, 1e-3), np.array([1e12, 0.0, 0.0]))[1].tolist() == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("n", [3, 8, 29])
def test_slabs_add_up(n):
    U = np.random.default_rng(0).standard_normal((n, 4))
    np.testing.assert_allclose(_datasets._slab_gram(U, 8), U.T @ U, rtol=1e-12)


def test_one_dataset_of_weight_one_is_not_copied():
    rng = np.random.default_rng(0)
    one, other = (Moments.from_rows(*make_rows(rng, 20, 3, 2)) for _ in range(2))
    alone = weighted_system([one, other], np.array([1.0, 0.0]))
    assert alone.gram is one.gram
    half = weighted_system([one, other], np.array([0.5, 0.0]))
    np.testing.assert_allclose(half.gram, one.gram / 2)
    np.testing.assert_allclose(half.cross, one.cross / 2)
    np.testing.assert_allclose(half.square, one.square / 2)
    with pytest.raises(ParameterError, match="all weights are zero"):
        weighted_system([one, other], np.zeros(2))


def test_groups_of_any_size_give_the_same_sum(monkeypatch):
    rng = np.random.default_rng(0)
    moments = [Moments.from_rows(*make_rows(rng, int(n), 30, None)) for n in rng.integers(1, 30, 70)]
    summed = Moments.from_rows(*make_rows(rng, 50, 30, None))
    weights = np.append(rng.dirichlet(np.ones(70)), 0.3)
    expected = sum(w * m.gram for m, w in zip([*moments, summed], weights))
    for entries, product in ((1, 1), (1, 10**6), (10**6, 10**6), (10**6, 1)):
        monkeypatch.setattr(_datasets, "GROUP_ENTRIES", entries)
        monkeypatch.setattr(_datasets, "SLAB_PRODUCT", product)
        gram = weighted_system([*moments, summed], weights).gram
        np.testing.assert_allclose(gram, expected, rtol=1e-9, atol=1e-12)


def test_chunks_are_as_large_as_what_is_stacked(monkeypatch):
    """Gram matrices and what solves them; rows and their inner products."""
    asked = []

    def spy(places, bytes_each):
        asked.append(bytes_each)
        return honest(places, bytes_each)

    honest = _datasets.chunks
    monkeypatch.setattr(_datasets, "chunks", spy)
    rng = np.random.default_rng(0)
    moments = [Moments.from_rows(*make_rows(rng, n, 7, None)) for n in [3] * 40 + [9] * 40]
    local_heads(moments, [1.0] * 80)
    assert sorted(asked) == [8 * 3 * (7 + 3), 2 * 8 * 7 * 7]
