"""Ridge regressions of runs side by side: every run gets what it gets alone. Here the device is PyTorch's CPU."""

import numpy as np
import pytest

from mixtune.estimators import JointRegressor
from mixtune.moments import loo_ridge
from mixtune_options._ridge_runs import best_ridges, joint_runs, ridge_runs

torch = pytest.importorskip("torch")
#: Those of the estimator.
RIDGES = np.logspace(-3, 5, 17)


def make_runs(runs, domains, rows, columns, seed=0):
    """Features (runs, domains, rows, columns) of a few directions with kinks, some of which do not vary; targets."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((runs, domains, rows, 3)) + 0.5 * rng.standard_normal((runs, domains, 1, 3))
    layer = inputs @ rng.standard_normal((runs, 1, 3, columns)) + rng.standard_normal((runs, 1, 1, columns))
    U = np.maximum(layer, 0.01 * layer)
    U[..., 3] = 0.1  # whose mean is rounded
    heads = rng.standard_normal((runs, 1, columns)) + 0.3 * rng.standard_normal((runs, domains, columns))
    y = np.einsum("rdnp,rdp->rdn", U, heads) / columns**0.5 + rng.standard_normal((runs, domains, 1))
    return U, y + 0.3 * rng.standard_t(2, y.shape)


def alone(model, U, y):
    """Coefficients, that of the constant last, and left-out predictions of one run."""
    sources = {f"source {k}": (U[k], y[k]) for k in range(1, len(U))}
    model.fit(U[0], y[0], sources=sources or None)
    return np.append(model.coef_, model.intercept_), model.loo_predictions_


def assert_close(found, expected, rtol=1e-9):
    for ours, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=rtol * np.max(np.abs(other)))


@pytest.mark.parametrize("pooled", [1, 2, 5])
def test_pooled_ridges_of_every_run(pooled):
    U, y = make_runs(3, pooled, 20, 50)
    U[..., :10] *= 1e-3
    rows, targets = torch.from_numpy(U).reshape(3, -1, 50), torch.from_numpy(y).reshape(3, -1)
    found = joint_runs(rows, targets, RIDGES, focal=20)
    for run in range(3):
        assert_close([part[run].numpy() for part in found], alone(JointRegressor(ridge="loo"), U[run], y[run]))


def test_pooled_ridges_need_a_row_that_can_be_left_out():
    """A focal row that alone has a feature decides its own prediction, unless the ridge is large enough."""
    rng = np.random.default_rng(0)
    U, y = rng.standard_normal((1, 30, 3)), rng.standard_normal((1, 30))
    U[0, :, 2] = np.arange(30) == 0
    runs = [torch.from_numpy(part) for part in (U, y)]
    assert joint_runs(*runs, np.array([1e-12]), focal=1) is None
    assert joint_runs(*runs, np.array([1e-12, 1.0]), focal=1) is not None


@pytest.mark.parametrize("rows", [20, 50, 80])
def test_ridges_by_rows_and_by_features(rows):
    U, y = make_runs(3, 1, rows, 50)
    shifts = np.array([0.1, 1.0, 30.0])
    heads, left_out = ridge_runs(*map(torch.from_numpy, (U[:, 0], y[:, 0], np.tile(shifts, (3, 1)))), focal=rows)
    for run in range(3):
        errors = loo_ridge(U[run, 0], y[run, 0], shifts, relative=False).errors
        np.testing.assert_allclose(np.mean(left_out[run].numpy() ** 2, axis=1), errors, rtol=1e-9)
        for head, shift in zip(heads[run].numpy(), shifts):
            one = loo_ridge(U[run, 0], y[run, 0], [shift], relative=False)
            np.testing.assert_allclose(head, one.coef, rtol=0, atol=1e-9 * np.max(np.abs(one.coef)))


def test_of_equal_errors_the_largest_ridge_is_taken():
    errors = np.array([[1.0, 0.5, 0.5 + 1e-12, 0.7], [0.1, 0.2, 0.3, 0.4]])
    assert best_ridges(np.array([1.0, 2.0, 3.0, 4.0]), errors).tolist() == [2, 0]
