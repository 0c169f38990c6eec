"""A Gram matrix in place of features, against explicit features and the dense recursion."""

import numpy as np
import pytest

from mixtune import Moments, RegretProblem, solve
from mixtune.errors import DataError, ParameterError
from mixtune.regret import features_of, solve_kernel

COSTS = [(0.5, 1.0, 4), (0.0, 2.0, 3), ([0.1, 0.0, 2.0], [1.0, 3.0, 0.5], 3), (1.0, 0.0, 1)]


def drawn(outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    sizes = (5, 8, 4)
    X = rng.standard_normal((sum(sizes), 2))
    gram = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, axis=2))
    shape = (len(X),) if outputs is None else (len(X), outputs)
    ends = np.cumsum(sizes)[:-1]
    return X, gram, np.split(rng.standard_normal(shape), ends), ends


@pytest.mark.parametrize(("transfer", "stability", "horizon"), COSTS)
@pytest.mark.parametrize("weights", [[0.5, 0.3, 0.2], [0.6, 0.0, 0.4]])
@pytest.mark.parametrize("outputs", [None, 2])
def test_against_explicit_features(transfer, stability, horizon, weights, outputs):
    _, gram, targets, ends = drawn(outputs)
    costs = {"transfer": transfer, "stability": stability, "horizon": horizon}
    fast = solve_kernel(gram, targets, weights=weights, ridge=0.3, **costs)
    U = features_of(gram)
    moments = [Moments.from_rows(u, y) for u, y in zip(np.split(U, ends), targets)]
    problem = RegretProblem(moments=moments, weights=weights, ridge=0.3, **costs)
    slow = solve(problem, method="riccati")
    np.testing.assert_allclose(fast.predict(gram), U @ slow.coef, atol=1e-8)
    assert fast.loss == pytest.approx(slow.loss)
    assert fast.energy == pytest.approx(slow.energy)
    assert fast.effective_ridge == pytest.approx(slow.effective_ridge)


def test_new_rows():
    X, gram, targets, ends = drawn()
    fast = solve_kernel(gram, targets, weights=[0.5, 0.3, 0.2], ridge=0.3, transfer=0.2, stability=1.0, horizon=2)
    new = np.random.default_rng(1).standard_normal((6, 2))
    between = np.exp(-0.5 * np.sum((new[:, None] - X) ** 2, axis=2))
    U = features_of(gram)
    own = between @ np.linalg.pinv(U).T  # the new rows' features, as far as the old ones span them
    moments = [Moments.from_rows(u, y) for u, y in zip(np.split(U, ends), targets)]
    costs = {"transfer": 0.2, "stability": 1.0, "horizon": 2}
    slow = solve(RegretProblem(moments=moments, weights=[0.5, 0.3, 0.2], ridge=0.3, **costs))
    np.testing.assert_allclose(fast.predict(between), own @ slow.coef, atol=1e-6)
    start = solve_kernel(gram, targets, weights=[0.5, 0.3, 0.2], ridge=0.3, transfer=0.2, stability=1.0, horizon=0)
    np.testing.assert_allclose(start.coef, fast.start)
    assert start.energy == start.loss


def test_what_is_refused():
    _, gram, targets, _ = drawn()
    options = {"weights": [0.5, 0.3, 0.2], "ridge": 0.3, "transfer": 0.2, "stability": 1.0, "horizon": 2}
    for wrong, message in (
        (gram[:, :-1], "square"),
        (gram + np.triu(gram), "symmetric"),
        (-gram, "negative eigenvalues"),
        (gram[:-1, :-1], "gram has 16 rows"),
    ):
        with pytest.raises(DataError, match=message):
            solve_kernel(wrong, targets, **options)
    with pytest.raises(ParameterError, match="transfer or stability"):
        solve_kernel(gram, targets, **options | {"transfer": 0.0, "stability": 0.0})
    with pytest.raises(DataError, match="shape"):
        solve_kernel(gram, targets, **options).predict(gram[:, :3])
