"""Moments from narrow products: how far from float64 they are, on every library, and what they refuse."""

import numpy as np
import pytest
from benchmarks.precision import narrow_errors

from mixtune import Moments
from mixtune.errors import DataError, ParameterError

PRECISIONS = ("float64", "float32", "tf32", "split")
BOUNDS = {"float64": 1e-14, "float32": 5e-7, "split": 5e-14}


def features(kind, n=2500, p=12):
    rng = np.random.default_rng(0)
    if kind == "positive":
        return np.maximum(rng.standard_normal((n, p)), 0) + 1.0
    if kind == "scales":
        return rng.standard_normal((n, p)) * 10.0 ** np.arange(-p, p, 2)
    return rng.standard_normal((n, p))


def narrow_gram(rows, *, precision):
    """The sum of products of more rows than features, in that precision."""
    targets = 0.0 * rows[:, 0]
    return Moments.from_rows(rows, targets, precision=precision).gram


def share(found, U):
    """Largest error of an entry as a share of |u_i| |u_j|."""
    wide = U.astype(np.longdouble)
    right = wide.T @ wide
    lengths = np.sqrt(np.diagonal(right))
    return float(np.abs((np.asarray(found) - right) / np.multiply.outer(lengths, lengths)).max())


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("kind", ["normal", "positive", "scales"])
@pytest.mark.parametrize("precision", BOUNDS)
def test_errors_are_as_stated(precision, kind, library):
    U = features(kind)
    rows = pytest.importorskip("torch").asarray(U) if library == "torch" else U
    found = narrow_gram(rows, precision=precision)
    assert str(found.dtype).endswith("float64")
    assert share(found, U) <= BOUNDS[precision]
    if precision == "split":
        np.testing.assert_array_equal(np.asarray(found), np.asarray(found).T)


def test_float32_is_not_mistaken_for_more():
    assert share(narrow_gram(features("normal"), precision="float32"), features("normal")) > 1e-9


def test_splitting_is_exact_where_the_slices_hold_everything():
    """Whole numbers below 2^15 in two slices: every product and every sum is exact."""
    U = np.random.default_rng(0).integers(-(2**15), 2**15, (3 * 1024 + 5, 4)).astype(float)
    U[::1024] = 2.0**15  # the largest of each 1024 rows, so that dividing by it loses nothing
    np.testing.assert_array_equal(narrow_gram(U, precision="split"), U.T @ U)


def test_heavy_tails_cost_digits():
    U = np.random.default_rng(0).standard_t(2, (20_000, 10))
    assert share(narrow_gram(U, precision="split"), U) <= 5e-12


@pytest.mark.parametrize("precision", ["float32", "split"])
@pytest.mark.parametrize("targets", [(3000,), (3000, 2)])
def test_moments_of_blocks(precision, targets):
    U = features("positive", n=3000)
    Y = np.random.default_rng(1).standard_normal(targets)
    blocks = [(U[i : i + 700], Y[i : i + 700]) for i in range(0, 3000, 700)]
    found, right = Moments.from_blocks(blocks, precision=precision), Moments.from_rows(U, Y)
    np.testing.assert_allclose(found.gram, right.gram, rtol=5 * BOUNDS[precision])
    np.testing.assert_allclose(found.cross, right.cross, rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(found.square, right.square, rtol=1e-12)
    assert (found.count, found.single_output) == (3000, len(targets) == 1)
    np.testing.assert_allclose(found.head(1.0), right.head(1.0), rtol=1e4 * BOUNDS[precision], atol=1e-6)


def test_coefficients_feel_the_error_times_the_condition():
    condition = narrow_errors("float64").condition
    assert 5e3 < condition < 5e4
    assert narrow_errors("split").worst <= 5e-14 * condition
    assert 1e-9 < narrow_errors("float32").worst <= 5e-7 * condition


def test_what_only_rounding_made_is_cut_off():
    """A column that is the sum of two others: without a ridge the minimum-norm solution, not noise over noise."""
    U = features("positive", n=3000, p=5)
    U = np.hstack([U, U[:, :1] + U[:, 1:2]])
    y = U @ np.arange(6.0)
    right = Moments.from_rows(U, y).head(0.0)
    assert np.abs(Moments.from_blocks([(U, y)], precision="float32").head(0.0) - right).max() < 1e-2
    assert np.abs(Moments.from_blocks([(U, y)], precision="split").head(0.0) - right).max() < 1e-6


def test_few_rows_are_kept_as_they_are():
    U, y = features("normal", n=4), np.ones(4)
    for precision in ("float32", "split"):
        found = Moments.from_blocks([(U[:2], y[:2]), (U[2:], y[2:])], precision=precision)
        assert found.keeps_rows
        np.testing.assert_array_equal(found.rows[0], U)


def test_refusals():
    U, y = features("normal"), np.ones(2500)
    with pytest.raises(ParameterError, match="precision"):
        Moments.from_blocks([(U, y)], precision="float16")
    with pytest.raises(ParameterError, match="needs PyTorch tensors on a CUDA device"):
        Moments.from_rows(U, y, precision="tf32")
    with pytest.raises(DataError, match="no blocks"):
        Moments.from_blocks([], precision="split")
    with pytest.raises(DataError, match="overflow float32"):
        Moments.from_rows(U * 1e25, y, precision="float32")
    U[3, 2] = np.nan
    for precision in ("float32", "split"):
        with pytest.raises(DataError, match="1 in U"):
            Moments.from_rows(U, y, precision=precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_cuda(precision):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    U, before = features("positive"), torch.get_float32_matmul_precision()
    found = narrow_gram(torch.asarray(U, device="cuda"), precision=precision)
    assert torch.get_float32_matmul_precision() == before
    assert share(found.cpu(), U) <= {**BOUNDS, "tf32": 1e-3}[precision]


@pytest.mark.parametrize("n", [13, 1025])
def test_columns_of_zeros_and_single_rows_are_split_too(n):
    U = features("normal", n=n)
    U[:, 4] = 0.0
    np.testing.assert_allclose(narrow_gram(U, precision="split"), U.T @ U, rtol=1e-13, atol=1e-11)
