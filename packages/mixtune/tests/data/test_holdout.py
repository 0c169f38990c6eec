"""Rows held out of the focal domain, and the scaling of pooled inputs."""

import numpy as np
import pytest

from extras import extra
from mixtune.data import Domain, Domains
from mixtune.errors import DataError, ParameterError
from mixtune.features import RandomFeatures

torch = extra("torch")


@pytest.mark.parametrize(("test_size", "n_test"), [(0.25, 5), (0.001, 1), (0.999, 19), (3, 3), (np.int64(19), 19)])
@pytest.mark.parametrize("tensors", [False, True])
def test_split_focal_parts_the_focal_rows(test_size, n_test, tensors):
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20.0)
    pair = (torch.tensor(X), torch.tensor(y)) if tensors else (X, y)
    domains = Domains((Domain("s", pair[0][:2], pair[1][:2]), Domain("f", *pair, ("u", "v"))), focal="f")
    train, test = domains.split_focal(test_size, seed=3)
    assert train.names == ("s", "f")
    assert train["s"] is domains["s"]
    assert test.name == train.focal == "f"
    assert test.columns == train["f"].columns == ("u", "v")
    assert test.n_rows == n_test
    kept, left = np.asarray(train["f"].y), np.asarray(test.y)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, left])), y)
    np.testing.assert_array_equal(kept, np.sort(kept))
    np.testing.assert_array_equal(np.asarray(test.X), X[left.astype(int)])
    again = domains.split_focal(test_size, seed=3)[1]
    np.testing.assert_array_equal(np.asarray(again.y), left)


def test_split_focal_depends_on_the_seed_and_checks_it():
    domains = Domains((Domain("a", np.ones((20, 2)), np.ones(20)), Domain("b", [[1, 1]], [1])), focal="a")
    rows = Domains.from_dict({"a": (np.arange(50.0), np.arange(50.0))}, focal="a")
    assert rows.split_focal(10, seed=0)[1].y.tolist() != rows.split_focal(10, seed=1)[1].y.tolist()
    for wrong in (0, 20, -1, 0.0, 1.0, 1.5, np.nan, True, "half", None):
        with pytest.raises(ParameterError, match="must be a share between 0 and 1"):
            domains.split_focal(wrong, seed=0)
    for wrong in (-1, 0.5, None, True):
        with pytest.raises(ParameterError, match="seed must be a whole number"):
            domains.split_focal(0.5, seed=wrong)
    with pytest.raises(DataError, match='domain "b" has one row'):
        domains.with_focal("b").split_focal(0.5, seed=0)


@pytest.mark.parametrize("tensors", [False, True])
def test_input_scaling_pools_all_domains(tensors):
    rng = np.random.default_rng(4)
    X = np.column_stack([1e6 + rng.standard_normal(30), 5 * rng.standard_normal(30), np.full(30, 0.1)])
    rows = torch.tensor(X) if tensors else X
    domains = Domains.from_dict({"a": (rows[:7], rows[:7, 0]), "b": (rows[7:], rows[7:, 0])}, focal="b")
    mean, spread = domains.input_scaling()
    np.testing.assert_allclose(mean, X.mean(axis=0))
    np.testing.assert_allclose(spread, [*X[:, :2].std(axis=0), 1.0])
    RandomFeatures(n_inputs=3, width=4, input_shift=mean, input_scale=spread, seed=0).transform(X)
