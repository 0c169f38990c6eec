"""Runs side by side on a device: every run gets what the estimator gives it alone. Here the device is PyTorch's CPU."""

import numpy as np
import pytest

from mixtune.choice import choose_runs
from mixtune.estimators import RegretOptimalRegressorCV

torch = pytest.importorskip("torch")


def make_runs(runs, domains, rows, columns, seed=0):
    """Features (runs, domains, rows, columns) of a few directions with kinks, some of which do not vary; targets."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((runs, domains, rows, 3)) + 0.5 * rng.standard_normal((runs, domains, 1, 3))
    layer = inputs @ rng.standard_normal((runs, 1, 3, columns)) + rng.standard_normal((runs, 1, 1, columns))
    U = np.maximum(layer, 0.01 * layer)
    U[..., 3] = 0.1  # whose mean is rounded
    heads = rng.standard_normal((runs, 1, columns)) + 0.3 * rng.standard_normal((runs, domains, columns))
    y = np.einsum("rdnp,rdp->rdn", U, heads) / columns**0.5 + rng.standard_normal((runs, domains, 1))
    # A run without what domains have in common, where its own rows do best, and targets with outliers.
    y[-1] = np.einsum(
        "dnp,dp->dn", U[-1], rng.standard_normal((domains, columns)) * (3.0 + np.arange(domains)[:, None])
    )
    return U, y + 0.3 * rng.standard_t(2, y.shape)


def alone(model, U, y):
    """Coefficients, that of the constant last, and left-out predictions of one run."""
    sources = {f"source {k}": (U[k], y[k]) for k in range(1, len(U))}
    model.fit(U[0], y[0], sources=sources or None)
    return np.append(model.coef_, model.intercept_), model.loo_predictions_


def assert_close(found, expected, rtol=1e-9):
    for ours, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=rtol * np.max(np.abs(other)))


def assert_alike(U, y, *, seed=0):
    found = choose_runs(torch.from_numpy(U), torch.from_numpy(y), seed=seed)
    assert found is not None
    for run in range(len(U)):
        tuned = RegretOptimalRegressorCV(None, clamp=False, target_scale="identity", seed=seed)
        assert_close([part[run].numpy() for part in found], alone(tuned, U[run], y[run]))


#: Around the numbers of columns and rows where other candidates, or other tasks, begin.
SHAPES = [(3, 5, 25, 60), (3, 13, 20, 40), (2, 4, 8, 45), (2, 13, 30, 199), (2, 13, 30, 210)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_choice_of_every_run(shape):
    assert_alike(*make_runs(*shape))


def test_the_choice_follows_the_seed():
    U, y = make_runs(2, 13, 15, 205)
    assert_alike(U, y, seed=3)
    both = [choose_runs(torch.from_numpy(U), torch.from_numpy(y), seed=seed)[0].numpy() for seed in (0, 3)]
    assert np.max(np.abs(both[0] - both[1])) > 1e-4  # other sources are drawn


def test_targets_that_do_not_vary():
    U, y = make_runs(3, 5, 20, 50)
    y[0, 2] = 1.5
    y[1, 0] = -0.5
    y[2] = 4.0
    assert_alike(U, y)


def test_features_that_do_not_vary_in_a_domain():
    U, y = make_runs(2, 5, 20, 50)
    U[0, 2] = U[0, 2, :1]
    U[1, 0] = U[1, 0, :1]
    assert_alike(U, y)


def test_targets_that_are_fitted_exactly():
    """Errors that are negligible do not decide."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((3, 5, 20, 3))
    assert_alike(inputs @ rng.standard_normal((3, 1, 3, 50)), inputs @ np.array([1.0, -2.0, 0.5]))


def as_many(domains=5, rows=20, columns=50):
    U, y = make_runs(1, domains, rows, columns)
    return choose_runs(torch.from_numpy(U), torch.from_numpy(y))


def test_other_runs_are_left_to_the_estimators():
    assert as_many() is not None
    assert as_many(columns=39) is None  # a covariance between coefficients is learned
    assert as_many(rows=50) is None  # rows are as many as columns
    assert as_many(rows=49) is not None
    assert as_many(domains=14) is None  # the sources' heads are compared, not their evidence
    assert as_many(domains=3) is None  # no validation
    assert as_many(rows=7) is None
    assert as_many(columns=512) is not None
    assert as_many(columns=513) is None  # principal directions are chosen among
