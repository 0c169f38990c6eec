"""Many datasets at once: the same as one by one."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from mixtune import Moments, PredictiveWeights, RegretProblem, solve
from mixtune.errors import DataError, ParameterError
from mixtune.moments import Center, chunks, local_heads, recentred, weighted_system
from problems import make_rows


def many(rng, *, count=90, p=7, outputs=None):
    """Datasets below, at and above p rows."""
    return [make_rows(rng, int(n), p, outputs) for n in rng.integers(1, 12, count)]


@pytest.mark.parametrize("outputs", [None, 1, 3])
@pytest.mark.parametrize(("count", "p"), [(63, 7), (64, 7), (90, 7), (70, 100), (3000, 40)])
def test_heads_are_those_of_the_loop(outputs, count, p):
    """Few datasets, many, wide ones, and more than are stacked at a time."""
    rng = np.random.default_rng(0)
    moments = [Moments.from_rows(U, y) for U, y in many(rng, count=count, p=p, outputs=outputs)]
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
def test_losses_of_many_heads_are_those_of_each(outputs, rows):
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


@pytest.mark.parametrize("outputs", [None, 2])
def test_recentred_rows_are_rows(outputs):
    """Few rows about another centre: the moments of the rows from which the centre is subtracted."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(5):
        U, Y = make_rows(rng, 4, 6, outputs)
        center = Center(rng.standard_normal(6), rng.standard_normal(Y.shape[1:]), 1.0)
        made = recentred(Moments.from_rows(np.column_stack([U, np.ones(4)]), Y), center)
        pairs.append((made, Moments.from_rows(U - center.features, Y - center.targets)))
    (made, held), (other, twin) = pairs[:2]
    assert made.keeps_rows
    for left, right in ((made, held), (made + other, held + twin), (copy.deepcopy(made), held)):
        for name in ("gram", "cross", "square"):
            np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-12)
        np.testing.assert_allclose(left.head(0.0), right.head(0.0), rtol=1e-9, atol=1e-12)
    if outputs:
        np.testing.assert_allclose(made.output(1).head(0.5), held.output(1).head(0.5), rtol=1e-9)
    systems = [weighted_system(moments, np.full(5, 0.2)) for moments in zip(*pairs)]
    np.testing.assert_allclose(systems[0].gram, systems[1].gram, rtol=1e-12)


def test_groups_that_do_not_fit_are_refused():
    U, y = np.ones((4, 9)), np.ones(4)
    with pytest.raises(DataError, match="sizes add up to 3 rows, U has 4"):
        Moments.from_groups(U, y, [1, 2])
    with pytest.raises(ParameterError, match="sizes"):
        Moments.from_groups(U, y, [4, 0])
    U[2, 3] = np.nan
    with pytest.raises(DataError, match="1 in U"):
        Moments.from_groups(U, y, [2, 2])


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


def test_chunks_stay_within_memory():
    half = 2**24  # of what is worked on at a time
    assert list(chunks([5, 6, 7, 8, 9], half)) == [[5, 6], [7, 8], [9]]
    assert list(chunks([5, 6], 20 * half)) == [[5], [6]]
    assert list(chunks([5, 6], 0)) == [[5, 6]]
    assert list(chunks([], 10)) == []


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


@pytest.mark.parametrize("count", [20, 70, 2600])
def test_groups_of_any_size_give_the_same_sum(count):
    """Few datasets, many, and more rows than are stacked at a time."""
    rng = np.random.default_rng(0)
    moments = [Moments.from_rows(*make_rows(rng, int(n), 30, None)) for n in rng.integers(1, 30, count)]
    summed = Moments.from_rows(*make_rows(rng, 50, 30, None))
    weights = np.append(rng.dirichlet(np.ones(count)), 0.3)
    expected = sum(w * m.gram for m, w in zip([*moments, summed], weights))
    gram = weighted_system([*moments, summed], weights).gram
    np.testing.assert_allclose(gram, expected, rtol=1e-9, atol=1e-12)
