"""Moments: sums that add up, heads against scikit-learn and SciPy, and clear refusals."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from mixtune import Moments
from mixtune.errors import DataError, ParameterError
from mixtune.moments import GramSystem, Rows, RowSystem, local_heads, weighted_system
from problems import make_rows

shapes = st.tuples(st.integers(1, 25), st.integers(1, 15), st.sampled_from([None, 1, 3]), st.integers(0, 10**6))


def same(left: Moments, right: Moments, tolerance=1e-12):
    assert left.count == right.count
    for name in ("gram", "cross", "square"):
        a, b = getattr(left, name), getattr(right, name)
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, np.max(np.abs(b))))


@given(shapes)
def test_sums_are_what_they_say(shape):
    n, p, outputs, seed = shape
    U, Y = make_rows(np.random.default_rng(seed), n, p, outputs)
    moments = Moments.from_rows(U, Y)
    same(moments, Moments(n, U.T @ U, U.T @ Y, np.sum(Y**2, axis=0)))
    assert (moments.rows is None) == (n >= p)
    assert moments.without_rows().rows is None
    same(moments.without_rows(), moments)


@given(shapes, st.lists(st.integers(1, 24), max_size=4))
def test_blocks_merge_and_subtract(shape, cuts):
    n, p, outputs, seed = shape
    U, Y = make_rows(np.random.default_rng(seed), n, p, outputs)
    whole = Moments.from_rows(U, Y)
    edges = [0, *sorted({c for c in cuts if c < n}), n]
    blocks = [(U[a:b], Y[a:b]) for a, b in pairwise(edges)]
    parts = [Moments.from_rows(u, y) for u, y in blocks]
    same(sum(parts), whole)
    same(Moments.from_blocks(blocks), whole)
    same(sum(parts[::-1]), whole)
    if len(parts) > 1:
        same(whole - parts[0], sum(parts[1:]), 1e-10)


@given(shapes, st.sampled_from([1e-3, 1.0, 100.0]))
def test_heads_match_scikit_learn(shape, ridge):
    n, p, outputs, seed = shape
    U, Y = make_rows(np.random.default_rng(seed), n, p, outputs)
    expected = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(U, Y).coef_.T
    for moments in (Moments.from_rows(U, Y), Moments.from_rows(U, Y).without_rows()):
        head = moments.head(ridge)
        np.testing.assert_allclose(head, expected.reshape(head.shape), rtol=1e-7, atol=1e-8)
        assert moments.loss(head) == pytest.approx(np.sum((Y - U @ head) ** 2), rel=1e-9, abs=1e-9)


@given(shapes)
def test_zero_ridge_is_minimum_norm(shape):
    n, p, outputs, seed = shape
    U, Y = make_rows(np.random.default_rng(seed), n, p, outputs)
    moments = Moments.from_rows(U, Y)
    expected = scipy.linalg.lstsq(U, Y)[0]
    tolerance = 1e-13 * np.linalg.cond(U) ** 2 + 1e-12
    np.testing.assert_allclose(moments.head(0.0), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("n", "p"), [(40, 6), (5, 12)])
def test_zero_ridge_with_duplicated_and_empty_columns(n, p):
    rng = np.random.default_rng(0)
    U, y = make_rows(rng, n, p, None)
    U = np.hstack([U, U[:, :2], np.zeros((n, 1))])
    moments = Moments.from_rows(U, y)
    np.testing.assert_allclose(moments.head(0.0), scipy.linalg.lstsq(U, y)[0], atol=1e-9)
    np.testing.assert_allclose(moments.without_rows().head(0.0), scipy.linalg.lstsq(U, y)[0], atol=1e-6)


@pytest.mark.parametrize("duplicate", [False, True])
def test_dual_with_repeated_rows(duplicate):
    rng = np.random.default_rng(0)
    U, y = make_rows(rng, 5, 9, None)
    if duplicate:
        U, y = np.vstack([U, U[:2]]), np.concatenate([y, y[:2] + 1.0])
    head = Moments.from_rows(U, y).head(0.0)
    np.testing.assert_allclose(head, scipy.linalg.lstsq(U, y)[0], atol=1e-10)


def test_all_zero_features_give_a_zero_head():
    moments = Moments.from_rows(np.zeros((5, 3)), np.arange(5.0))
    assert np.array_equal(moments.head(0.0), np.zeros(3))
    assert np.array_equal(moments.head(1.0), np.zeros(3))
    assert np.array_equal(Moments.from_rows(np.zeros((2, 3)), np.ones(2)).head(0.0), np.zeros(3))


@given(st.integers(0, 1000), st.booleans())
def test_primal_equals_dual(seed, zero_weight):
    rng = np.random.default_rng(seed)
    rows = [make_rows(rng, n, 20, 2) for n in (4, 6, 3)]
    weights = np.array([0.5, 0.5, 0.0]) if zero_weight else np.array([0.5, 0.3, 0.2])
    few = [Moments.from_rows(U, Y) for U, Y in rows]
    dual, primal = weighted_system(few, weights), weighted_system([m.without_rows() for m in few], weights)
    assert isinstance(dual, RowSystem)
    assert isinstance(primal, GramSystem)
    theta = rng.standard_normal((20, 2))
    for shift in (0.0, 1e-3, 2.0):
        np.testing.assert_allclose(dual.step(theta, shift), primal.step(theta, shift), atol=1e-8)
    np.testing.assert_allclose(dual.gradient(theta), primal.gradient(theta), atol=1e-10)
    np.testing.assert_allclose(dual.apply(theta), primal.apply(theta), atol=1e-10)
    assert dual.loss(theta) == pytest.approx(primal.loss(theta))
    assert dual.least_loss == pytest.approx(primal.least_loss, abs=1e-9)
    rhs = dual.gradient(theta)
    np.testing.assert_allclose(dual.eigenbasis().solve(0.5, rhs), primal.eigenbasis().solve(0.5, rhs), atol=1e-9)


def test_mixed_forms_add_up():
    rng = np.random.default_rng(0)
    rows = [make_rows(rng, n, 8, None) for n in (30, 5, 6)]
    moments = [Moments.from_rows(U, y) for U, y in rows]
    weights = np.array([0.2, 0.3, 0.5])
    system = weighted_system(moments, weights)
    expected = sum(w * U.T @ U for w, (U, _) in zip(weights, rows))
    np.testing.assert_allclose(system.gram, expected)


def test_float32_rows_are_summed_in_float64():
    rng = np.random.default_rng(0)
    U = (1000 + rng.standard_normal((50_000, 3))).astype(np.float32)
    y = rng.standard_normal(50_000).astype(np.float32)
    moments = Moments.from_rows(U, y)
    exact = U.astype(np.longdouble).T @ U.astype(np.longdouble)
    assert moments.gram.dtype == np.float64
    np.testing.assert_allclose(moments.gram, exact.astype(np.float64), rtol=1e-12)
    assert Moments.from_rows(U[:2], y[:2]).gram.dtype == np.float64


def test_integers_and_lists():
    moments = Moments.from_rows([[1, 2], [3, 4], [5, 6]], [1, 2, 3])
    assert np.array_equal(moments.gram, [[35, 44], [44, 56]])
    assert np.array_equal(Moments.from_rows(np.array([[200], [100]], dtype=np.uint8), [1, 1]).gram, [[50000]])


def test_data_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 0.0], "y": [1.0, 2.0, 3.0]})
    moments = Moments.from_rows(frame[["a", "b"]], frame["y"])
    assert moments.single_output
    assert np.array_equal(moments.gram, [[14, 2], [2, 1]])


def test_memory_mapped_rows_stream(tmp_path):
    import tracemalloc

    rng = np.random.default_rng(0)
    U = np.lib.format.open_memmap(tmp_path / "U.npy", mode="w+", dtype=np.float64, shape=(400_000, 40))
    for i in range(0, len(U), 50_000):
        U[i : i + 50_000] = rng.standard_normal((50_000, 40))
    y = rng.standard_normal(len(U))
    tracemalloc.start()
    streamed = Moments.from_blocks((U[i : i + 4096], y[i : i + 4096]) for i in range(0, len(U), 4096))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20
    same(streamed, Moments.from_rows(np.asarray(U), y), 1e-10)


@pytest.mark.parametrize("p", [10, 3])
def test_forgetting_a_large_site_restores_the_small_one(p):
    """What is left after subtraction carries the rounding of what was summed; the minimum norm must not follow it."""
    rng = np.random.default_rng(0)
    small, large = (Moments.from_rows(*make_rows(rng, n, p, None)) for n in (5, 100_000))
    left = (small + large) - large
    for ridge in (0.0, 1.0):
        np.testing.assert_allclose(left.head(ridge), small.head(ridge), atol=1e-6)


def test_given_sums_are_copies_and_checked():
    gram = np.eye(2)
    moments = Moments(3, gram, np.ones(2), 1.0)
    gram[0, 0] = 7.0
    assert moments.gram[0, 0] == 1.0
    with pytest.raises(AttributeError):
        moments.count = 99
    with pytest.raises(DataError, match="symmetric"):
        Moments(3, [[1.0, 2.0], [0.0, 1.0]], np.ones(2), 1.0)
    with pytest.raises(DataError, match="negative"):
        Moments(3, -np.eye(2), np.ones(2), 1.0)


def test_kept_rows_are_copies():
    U, y = np.ones((2, 5)), np.ones(2)
    moments = Moments.from_rows(U, y)
    U[:] = 9.0
    assert np.array_equal(moments.gram, np.full((5, 5), 2.0))


def bad_rows():
    U, y = np.ones((6, 2)), np.ones(6)
    nan = U.copy()
    nan[3:5, 1] = np.nan
    infinite = y.copy()
    infinite[0] = -np.inf
    yield nan, y, "2 in U"
    yield U, infinite, "1 in Y"
    yield nan[:, [0, 1, 1, 1, 1, 1, 1]], infinite, "12 in U, 1 in Y"
    yield U * 1e200, y, "overflow"
    yield U[:5], y, "5 rows but Y has 6 targets"
    yield U[:0], y[:0], "no data"
    yield U[0], y, "must be"
    yield U[:, :, None], y, "must be"
    yield U.astype(str), y, "pass numbers"
    yield [[1.0, 2.0], [1.0]], [1.0, 2.0], "same length"


@pytest.mark.parametrize(("U", "Y", "message"), list(bad_rows()))
def test_refused_rows(U, Y, message):
    with pytest.raises(DataError, match=message):
        Moments.from_rows(U, Y)


@pytest.mark.parametrize("ridge", [-1.0, np.nan, np.inf, "1", None, True])
def test_refused_ridge(ridge):
    with pytest.raises(ParameterError, match="ridge must be"):
        Moments.from_rows(np.ones((3, 2)), np.ones(3)).head(ridge)


def test_refused_arithmetic():
    moments = Moments.from_rows(np.ones((3, 2)), np.ones(3))
    with pytest.raises(DataError, match="same feature map"):
        moments + Moments.from_rows(np.ones((3, 4)), np.ones(3))
    with pytest.raises(DataError, match="same outputs"):
        moments + Moments.from_rows(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(DataError, match="never part"):
        moments - (moments + moments)
    with pytest.raises(DataError, match="never part"):
        moments - Moments.from_rows(2 * np.ones((3, 2)), np.ones(3))
    with pytest.raises(DataError, match="no blocks"):
        Moments.from_blocks([])
    with pytest.raises(DataError, match="shape"):
        moments.loss(np.ones(3))
    with pytest.raises(TypeError):
        moments + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, np.eye(2), np.ones(2), 1.0), "count"),
        ((1.5, np.eye(2), np.ones(2), 1.0), "count"),
        ((1, np.ones((2, 3)), np.ones(2), 1.0), "gram"),
        ((1, np.eye(2), np.ones(3), 1.0), "gram"),
        ((1, np.eye(2), np.ones((2, 2)), 1.0), "one per output"),
        ((1, np.eye(2) * np.nan, np.ones(2), 1.0), "finite"),
    ],
)
def test_refused_sums(arguments, message):
    with pytest.raises(DataError, match=message):
        Moments(*arguments)


def test_what_was_ever_summed_is_remembered_through_further_sums_and_subtractions():
    """Rounding of rows long gone remains in what is left, so directions of its size are not to be believed."""
    rng = np.random.default_rng(0)
    small, more, large = (
        Moments.from_rows(size * rng.standard_normal((9, 3)), rng.standard_normal(9)) for size in (1, 1, 1e6)
    )
    largest = np.max(np.diagonal((small + more + large).gram))
    left = small + more + large - large
    assert left.system.summed == largest
    assert (left - more).system.summed == largest
    assert (left + small).system.summed == largest
    assert ((small + small) - small).system.summed == np.max(np.diagonal((small + small).gram))
    weighted = weighted_system([left, small], np.array([0.5, 0.5]))
    assert weighted.summed == 0.5 * largest


@pytest.mark.parametrize("p", [3, 8])
def test_stacked_solves_do_not_believe_what_subtraction_left_behind(p):
    """At ridges within the rounding of what was subtracted, stacked heads are those of each dataset's own solve."""
    rng = np.random.default_rng(p)
    column = rng.standard_normal((20, 1))
    flat = np.hstack([column] * p)
    left = []
    for _ in range(70):
        large = Moments.from_rows(1e5 * rng.standard_normal((20, p)), rng.standard_normal(20))
        left.append(Moments.from_rows(flat, column[:, 0] + rng.standard_normal(20)) + large - large)
    ridges = [1e-4] * 70
    heads = local_heads(left, ridges)
    np.testing.assert_array_equal(heads, np.stack([m.head(1e-4) for m in left]))


def test_no_sum_of_squares_is_below_zero_after_subtraction():
    rng = np.random.default_rng(0)
    U = rng.standard_normal((6, 2))
    for _ in range(50):
        small, one, other = (Moments.from_rows(U, size * rng.standard_normal(6)) for size in (1e-9, 1e3, 1e3))
        assert (small + one + other - one - other).square >= 0


@pytest.mark.parametrize("n", [3, 20])  # kept, and summed
@pytest.mark.parametrize("keep", [True, False])
def test_one_output_of_several(n, keep):
    U, Y = make_rows(np.random.default_rng(0), n, 5, 3)
    moments = Moments.from_rows(U, Y, keep_rows=keep)
    for index in range(3):
        one, expected = moments.output(index), Moments.from_rows(U, Y[:, index])
        assert one.single_output
        assert one.keeps_rows == moments.keeps_rows
        np.testing.assert_allclose(one.cross, expected.cross, rtol=1e-12)
        np.testing.assert_allclose(one.square, expected.square, rtol=1e-12)
        np.testing.assert_allclose(one.head(0.5), expected.head(0.5), rtol=1e-9)


def test_moments_that_do_not_go_together_are_named():
    vector, single, double = (Moments.from_rows(*make_rows(np.random.default_rng(0), 9, 3, k)) for k in (None, 1, 2))
    with pytest.raises(
        DataError, match=r"moments 1 have targets of shape \(n, 1\), moments 0 of \(n,\); pass the same"
    ):
        vector + single
    with pytest.raises(DataError, match=r"moments 2 have targets of shape \(n, 2\), moments 0 of \(n, 1\)"):
        local_heads([single, single, double], [1.0] * 3)
    with pytest.raises(DataError, match="moments 1 have 2 features, moments 0 have 3; use the same feature map"):
        vector + Moments.from_rows(np.ones((4, 2)), np.ones(4))


def test_sums_given_directly_are_checked_and_copied():
    gram, cross = np.array([[2.0, 0.5], [0.5, 0.0]]), np.array([1.0, 0.0])
    moments = Moments(3, gram, cross, 0.0)
    gram[0, 0] = cross[0] = 9.0
    assert (moments.gram[0, 0], moments.cross[0], moments.square) == (2.0, 1.0, 0.0)
    assert (moments.single_output, moments.system.summed, moments.keeps_rows) == (True, 0.0, False)
    assert Moments(0, np.zeros((2, 2)), np.zeros((2, 1)), [0.0]).n_outputs == 1
    assert Moments(np.int64(4), gram, np.ones((2, 3)), np.ones(3)).n_outputs == 3
    skewed = np.array([[1.0, 0.5 + 5e-10], [0.5, 1.0]])
    assert Moments(1, skewed, cross, 1.0).count == 1  # rounding
    for wrong, match in [
        ((3, gram[0], cross, 1.0), r"gram \(p, p\)"),
        ((3, gram[:, :1], cross, 1.0), r"gram \(p, p\)"),
        ((3, gram, np.ones(3), 1.0), r"gram \(p, p\)"),
        ((3, gram, np.ones((2, 1, 1)), 1.0), r"gram \(p, p\)"),
        ((3, gram, np.ones((2, 2)), 1.0), "1 entries for 2 outputs"),
        ((True, gram, cross, 1.0), "count must be"),
        ((2.0, gram, cross, 1.0), "count must be"),
        ((-1, gram, cross, 1.0), "count must be"),
        ((3, gram * np.nan, cross, 1.0), "finite"),
        ((3, gram, np.array([np.inf, 0.0]), 1.0), "finite"),
        ((3, gram, cross, np.inf), "finite"),
        ((3, -np.eye(2), cross, 1.0), "negative"),
        ((3, gram, cross, -1.0), "negative"),
        ((3, skewed + np.array([[0.0, 5e-9], [0.0, 0.0]]), cross, 1.0), "symmetric"),
    ]:
        with pytest.raises(DataError, match=match):
            Moments(*wrong)


@pytest.mark.parametrize(("n", "p"), [(2, 5), (9, 5)])
def test_rows_are_copied_where_they_are_kept(n, p):
    U, y = make_rows(np.random.default_rng(0), n, p, None)
    moments, before = Moments.from_rows(U, y), U.T @ U
    U[:] = y[:] = 0.0
    np.testing.assert_allclose(moments.gram, before, rtol=1e-12)
    assert moments.head(0.5).any()


def test_all_rows_can_be_taken_away_again():
    moments = Moments.from_rows(*make_rows(np.random.default_rng(0), 9, 3, None))
    nothing = moments - moments
    assert (nothing.count, float(nothing.square)) == (0, 0.0)
    with pytest.raises(TypeError, match="unsupported"):
        1 + moments
    assert sum([moments, moments]).count == 18


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("n", [3, 9])
def test_features_mapped_by_a_matrix(n, outputs):
    rng = np.random.default_rng(0)
    (U, Y), matrix = make_rows(rng, n, 5, outputs), rng.standard_normal((5, 4))
    found, expected = Moments.from_rows(U, Y).mapped(matrix), Moments.from_rows(U @ matrix, Y)
    same(found, expected)
    assert found.single_output == (outputs is None)
    assert found.keeps_rows == expected.keeps_rows
    np.testing.assert_array_equal(found.gram, found.gram.T)


@pytest.mark.parametrize("n", [3, 9])
def test_moments_on_another_device_are_tensors_there(n):
    torch = pytest.importorskip("torch")
    moments = Moments.from_rows(*make_rows(np.random.default_rng(0), n, 5, 2))
    there = moments.on_device("cpu")
    assert all(isinstance(part, torch.Tensor) for part in (there.gram, there.cross, there.square))
    assert there.keeps_rows == moments.keeps_rows
    np.testing.assert_allclose(there.head(0.5).numpy(), moments.head(0.5), rtol=1e-9)
    back = there.on_device(None)
    assert isinstance(back.cross, np.ndarray)
    np.testing.assert_allclose(back.gram, moments.gram, rtol=1e-12)


def test_how_moments_print():
    U, Y = make_rows(np.random.default_rng(0), 9, 5, 2)
    assert repr(Moments.from_rows(U, Y)) == "Moments(count=9, n_features=5, n_outputs=2)"
    assert repr(Moments.from_rows(U[:3], Y[:3])) == "Moments(count=3, n_features=5, n_outputs=2, rows kept)"
    with pytest.raises(TypeError, match="unsupported"):
        Moments.from_rows(U, Y) - 1


def test_rows_with_other_features():
    rows = Rows(np.ones((3, 2)), np.arange(3.0), np.array([1.0, 2.0, 3.0]))
    found = rows.scaled(lambda X: 5 * X)
    np.testing.assert_array_equal(found.X, 5.0)
    assert found.y is rows.y
    assert found.sample_weight is rows.sample_weight
    assert (rows.shape, rows.total, Rows(rows.X, rows.y).total) == ((3, 2), 6.0, 3.0)


@pytest.mark.parametrize("n", [3, 9])
def test_targets_in_other_units(n):
    U, Y = make_rows(np.random.default_rng(0), n, 5, 2)
    found = Moments.from_rows(U, Y).divided(4.0)
    same(found, Moments.from_rows(U, Y / 4))
    assert found.keeps_rows == (n < 5)
    np.testing.assert_allclose(found.head(0.5), Moments.from_rows(U, Y / 4).head(0.5), rtol=1e-9)
    np.testing.assert_allclose(found.loss(np.ones((5, 2))), Moments.from_rows(U, Y / 4).loss(np.ones((5, 2))))


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("options", [{}, {"keep_rows": False}, {"keep_rows": True}], ids=str)
def test_many_small_blocks_are_the_rows(size, options):
    U, y = make_rows(np.random.default_rng(0), 60, 5, None)
    blocks = ((U[i : i + size], y[i : i + size]) for i in range(0, 60, size))
    found = Moments.from_blocks(blocks, **options)
    same(found, Moments.from_rows(U, y))
    assert found.keeps_rows == options.get("keep_rows", False)
