"""The quirks of array libraries in one place: small and large matrices take different routes to the same numbers."""

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - SciPy brings a library of linear algebra of its own
from threadpoolctl import ThreadpoolController

from mixtune import arrays
from mixtune.arrays import (
    NARROW,
    add_to_diagonal,
    cholesky,
    cholesky_solve,
    column_gram,
    match,
    namespace,
    on_device,
    one_norm,
    reciprocal_condition,
    row_gram,
    tf32_products,
)
from mixtune.errors import DataError


@pytest.mark.parametrize("columns", [8, 9, 10, 12])
def test_wide_gram_matrices_are_made_from_one_triangle(columns, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(arrays, "TRIANGLE_COLUMNS", 8)
    monkeypatch.setattr(arrays, "TRIANGLE_BLOCK", 3)
    X = np.random.default_rng(columns).standard_normal((20, columns))
    found = column_gram(torch.asarray(X)).numpy()
    np.testing.assert_allclose(found, X.T @ X, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(found[3:6, 6:], found[6:, 3:6].T)


@pytest.mark.parametrize("size", [3, NARROW - 1, NARROW, NARROW + 40])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_factor_and_solve(size, library):
    rng = np.random.default_rng(size)
    X, rhs = rng.standard_normal((size, size + 20)), rng.standard_normal((size, 2))
    full = X @ X.T
    if library == "torch":
        torch = pytest.importorskip("torch")
        X, rhs = torch.asarray(X), torch.asarray(rhs)
    gram = row_gram(X)
    np.testing.assert_allclose(np.asarray(column_gram(X.T)), full, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.tril(np.asarray(gram)), np.tril(full), rtol=1e-10, atol=1e-10)
    assert one_norm(gram) == pytest.approx(np.linalg.norm(full, 1))
    factor = cholesky(add_to_diagonal(gram, 2.0), overwrite=True)
    np.testing.assert_allclose(
        (full + 2 * np.eye(size)) @ np.asarray(cholesky_solve(factor, rhs)), np.asarray(rhs), atol=1e-9
    )
    estimate = reciprocal_condition(one_norm(gram) + 2, factor)
    assert 1 - 1e-6 < estimate * np.linalg.cond(full + 2 * np.eye(size), 1) < 3
    assert cholesky(add_to_diagonal(gram, -1e6)) is None


@pytest.mark.parametrize("sizes", [(4, 3, 5), (12,), (NARROW, 8)])
def test_inner_products_from_known_blocks(sizes):
    X = np.random.default_rng(0).standard_normal((sum(sizes), 20))
    parts = np.split(X, np.cumsum(sizes)[:-1])
    known = [(2.0, row_gram(part) / 2.0) for part in parts]
    np.testing.assert_allclose(np.tril(row_gram(X, known)), np.tril(X @ X.T), atol=1e-12)


def test_libraries_do_not_mix():
    torch = pytest.importorskip("torch")
    with pytest.raises(DataError, match="different libraries"):
        namespace(np.ones(2), torch.ones(2))
    assert match(np.arange(3), torch.ones(1)).dtype == torch.float64


def test_only_accelerators_are_devices():
    torch = pytest.importorskip("torch")
    assert not any(on_device(array) for array in (None, np.ones(2), torch.ones(2)))
    assert on_device(torch.empty(2, device="meta"))


@pytest.mark.parametrize(("allowed", "inside"), [(True, "high"), (False, "highest")])
def test_the_switch_for_tf32_is_put_back(allowed, inside, monkeypatch):
    torch = pytest.importorskip("torch")
    before = torch.get_float32_matmul_precision()
    with tf32_products(torch.ones(2), allowed):  # no CUDA tensor: nothing to switch
        assert torch.get_float32_matmul_precision() == before
    monkeypatch.setattr(arrays, "has_tf32", lambda _: True)

    def fail():
        assert torch.get_float32_matmul_precision() == inside
        raise KeyError

    with pytest.raises(KeyError), tf32_products(torch.ones(2), allowed):
        fail()
    assert torch.get_float32_matmul_precision() == before


def test_small_data_leave_linear_algebra_one_thread():
    linear_algebra = ThreadpoolController().select(user_api="blas")

    def threads():
        return {library["num_threads"] for library in linear_algebra.info()}

    with linear_algebra.limit(limits=2):
        before = threads()
        with arrays.one_thread_if_small([np.zeros((2, 3))]):
            assert threads() == {1}
        assert threads() == before
        large = np.broadcast_to(0.0, (int(arrays.WORK), 2))
        with arrays.one_thread_if_small([large]):
            assert threads() == before
        with arrays.one_thread_for(arrays.WORK):
            assert threads() == {1}
            with arrays.one_thread_if_small([large]):
                assert threads() == {1}
        assert threads() == before
        with arrays.one_thread_for(2 * arrays.WORK):
            assert threads() == before
