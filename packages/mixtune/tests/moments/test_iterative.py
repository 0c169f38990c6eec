"""Conjugate gradients against the factorisation, SciPy's cg and lsqr, and scikit-learn; what they refuse and report."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, cg, lsqr
from sklearn.linear_model import Ridge

from mixtune import Moments
from mixtune.errors import ConvergenceError
from mixtune.moments import GramSystem, RowSystem, SolverOptions
from problems import make_rows

WALK = SolverOptions("iterative")


def decaying(rng, n, p, decay, outputs=None):
    U, Y = make_rows(rng, n, p, outputs)
    return U * np.arange(1.0, p + 1) ** -decay, Y


def relative(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


@given(
    st.tuples(st.integers(1, 30), st.integers(1, 30), st.sampled_from([None, 1, 3])),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from([1e-4, 1.0, 100.0]),
    st.integers(0, 10**6),
)
def test_the_walk_ends_where_the_factor_does(shape, decay, ridge, seed):
    n, p, outputs = shape
    rng = np.random.default_rng(seed)
    U, Y = decaying(rng, n, p, decay, outputs)
    theta = rng.standard_normal((p, outputs or 1))
    targets = Y.reshape(n, -1)
    rows = RowSystem(U, targets)
    for system in (rows, GramSystem(U.T @ U, U.T @ targets, np.sum(targets**2, axis=0))):
        exact = system.ridge_step(theta, ridge, SolverOptions("direct")).delta
        walked = system.ridge_step(theta, ridge, WALK)
        stats = walked.stats
        assert stats.method == "conjugate gradients"
        # The bound is proven: the residual over the smallest eigenvalue, which is at least the ridge.
        slack = 1e-13 * (1 + np.linalg.norm(U, 2) ** 2 / ridge)
        assert relative(walked.delta, exact) <= stats.error_bound + slack
        residual = rows.gradient(theta + walked.delta) - ridge * walked.delta
        left = np.linalg.norm(residual, axis=0) / np.linalg.norm(rows.gradient(theta), axis=0)
        assert np.max(left) <= max(1e-10, 10 * slack)


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_scipy_and_scikit_learn_agree(decay):
    rng = np.random.default_rng(1)
    n, p, ridge = 500, 300, 0.5
    U, y = decaying(rng, n, p, decay)
    ours = Moments.from_rows(U, y, keep_rows=True).head(ridge, solver="iterative", tolerance=1e-12)
    operator = LinearOperator((p, p), matvec=lambda v: U.T @ (U @ v) + ridge * v)
    theirs, failed = cg(operator, U.T @ y, rtol=1e-13, maxiter=5000)
    assert failed == 0
    assert relative(ours, theirs) < 1e-8
    assert relative(ours, lsqr(U, y, damp=ridge**0.5, atol=1e-14, btol=1e-14, iter_lim=5000)[0]) < 1e-8
    assert relative(ours, Ridge(alpha=ridge, fit_intercept=False, solver="cholesky").fit(U, y).coef_) < 1e-9


def test_the_sketch_saves_steps():
    rng = np.random.default_rng(2)
    U, y = decaying(rng, 800, 600, 1.0)
    ridge, steps = 1e-3, []
    operator = LinearOperator((600, 600), matvec=lambda v: U.T @ (U @ v) + ridge * v)
    cg(operator, U.T @ y, rtol=1e-10, maxiter=5000, callback=lambda _: steps.append(1))
    stats = Moments.from_rows(U, y).system.ridge_step(np.zeros((600, 1)), ridge, WALK).stats
    assert stats.iterations < len(steps) / 5
    assert 32 <= stats.rank <= 600 // 4


@pytest.mark.parametrize("condition", [1e8, 1e12])
def test_ill_conditioned_features(condition):
    """A's condition number: a sketch finds the strong directions, the weak ones lie below the ridge."""
    rng = np.random.default_rng(3)
    n, p = 400, 200
    left, right = (np.linalg.qr(rng.standard_normal((n, p)))[0], np.linalg.qr(rng.standard_normal((p, p)))[0])
    values = np.append(np.geomspace(1, 1 / condition, 30), np.full(p - 30, 1 / condition))
    U = left * np.sqrt(values) @ right.T
    truth = right @ rng.standard_normal(p)
    y, ridge = U @ truth, 10.0 / condition
    step = RowSystem(U, y[:, None]).ridge_step(np.zeros((p, 1)), ridge, WALK)
    exact = right @ (values / (values + ridge) * (right.T @ truth))
    assert step.stats.residual <= 1e-10
    assert relative(step.delta[:, 0], exact) <= step.stats.error_bound + 1e-16 * condition
    assert np.linalg.norm(U @ (step.delta[:, 0] - exact)) <= 1e-6 * np.linalg.norm(y)


def test_too_many_weak_directions_are_said_to_be():
    rng = np.random.default_rng(3)
    U = np.linalg.qr(rng.standard_normal((300, 200)))[0] * np.geomspace(1, 1e-5, 200)
    y = rng.standard_normal(300)
    with pytest.raises(ConvergenceError, match=r"larger ridge \(it is 1e-12 beside features whose strongest direction"):
        Moments.from_rows(U, y).head(1e-12, solver="iterative")


@pytest.mark.parametrize(("n", "p"), [(60, 40), (40, 60)])
def test_zero_ridge_is_the_minimum_norm(n, p):
    rng = np.random.default_rng(4)
    U, y = make_rows(rng, n, p, None)
    U = np.hstack([U, U[:, :3], np.zeros((n, 1))])
    walked = Moments.from_rows(U, y, keep_rows=True).head(0.0, solver="iterative")
    np.testing.assert_allclose(walked, np.linalg.lstsq(U, y)[0], atol=1e-6)


def test_outputs_leave_as_they_arrive():
    """One output is nothing, one an eigenvector that takes a step, one takes many."""
    rng = np.random.default_rng(5)
    U, _ = decaying(rng, 120, 80, 0.5)
    left, _, _ = np.linalg.svd(U, full_matrices=False)
    targets = np.column_stack([np.zeros(120), 1e6 * left[:, 0], rng.standard_normal(120), 1e-6 * left[:, 40]])
    together = RowSystem(U, targets).ridge_step(np.zeros((80, 4)), 0.3, WALK)
    assert not together.delta[:, 0].any()
    for column in range(1, 4):
        exact = np.linalg.solve(U.T @ U + 0.3 * np.eye(80), U.T @ targets[:, column])
        assert relative(together.delta[:, column], exact) < 1e-7
    nothing = RowSystem(U, 0 * targets).ridge_step(np.zeros((80, 4)), 0.3, WALK)
    assert not nothing.delta.any()
    assert (nothing.stats.iterations, nothing.stats.residual) == (0, 0.0)


def test_an_impossible_tolerance_ends_at_rounding():
    rng = np.random.default_rng(7)
    U, y = make_rows(rng, 100, 50, None)
    stats = Moments.from_rows(U, y).system.ridge_step(np.zeros((50, 1)), 1.0, SolverOptions("iterative", 1e-30)).stats
    assert stats.residual < 1e-12


def test_values_beyond_float64_are_refused():
    U = np.full((3, 2), 1e160)
    with pytest.raises(ConvergenceError, match="rescale"):
        RowSystem(U, np.ones((3, 1))).ridge_step(np.zeros((2, 1)), 1.0, WALK)


def test_tensors():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(8)
    U, Y = decaying(rng, 150, 100, 0.5, 3)
    here, there = (
        Moments.from_rows(u, y, keep_rows=True).head(0.1, solver="iterative")
        for u, y in ((U, Y), (torch.asarray(U), torch.asarray(Y)))
    )
    assert isinstance(there, torch.Tensor)
    assert relative(there.numpy(), here) < 1e-9
    single = Moments.from_rows(torch.asarray(U, dtype=torch.float32), torch.asarray(Y), keep_rows=True)
    exact = Moments.from_rows(U.astype(np.float32), Y).head(0.1)
    assert relative(single.head(0.1, solver="iterative").numpy(), exact) < 1e-9
