"""Identity and concatenation."""

import numpy as np
import pytest

from extras import extra
from mixtune.data import Domains
from mixtune.errors import DataError, ParameterError
from mixtune.features import Concatenate, FeatureMap, Identity, RandomFeatures

torch = extra("torch")

X = np.random.default_rng(5).standard_normal((6, 3))


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_identity_copies(make):
    rows = make(X)
    U = Identity(3).transform(rows)
    U[0, 0] = 99.0
    assert float(rows[0, 0]) == X[0, 0]
    assert type(U) is type(rows)
    np.testing.assert_array_equal(np.asarray(Identity(3, constant=True).transform(rows)), np.c_[X, np.ones(6)])


def test_identity_types_and_equality():
    assert Identity(3).transform(X.astype(np.float32)).dtype == np.float32
    assert Identity(1).transform([[1], [2]]).dtype == np.float64
    assert Identity(3) == Identity(3) != Identity(3, constant=True)
    assert Identity(3, constant=True).n_features_out == 4
    assert isinstance(Identity(3), FeatureMap)


def test_identity_refuses():
    with pytest.raises(ParameterError, match="n_inputs must be a whole number >= 1; got 0"):
        Identity(0)
    with pytest.raises(DataError, match="the map takes 2 columns, X has 3"):
        Identity(2).transform(X)
    with pytest.raises(DataError, match="NaN or infinite values in X"):
        Identity(1).transform([[np.nan]])


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_concatenation_is_stacking(make):
    maps = [RandomFeatures(n_inputs=3, width=width, seed=width) for width in (4, 5)] + [Identity(3)]
    joint = Concatenate(maps)
    assert joint.n_features_out == 5 + 6 + 3
    assert joint.n_inputs == 3
    U = joint.transform(make(X))
    np.testing.assert_array_equal(np.asarray(U), np.hstack([np.asarray(part.transform(make(X))) for part in maps]))
    nested = Concatenate([joint, Identity(3)])
    assert nested.transform(make(X)).shape == (6, nested.n_features_out)


def test_concatenation_takes_the_wider_type():
    maps = [RandomFeatures(n_inputs=3, width=2, seed=0, dtype=dtype) for dtype in ("float32", "float64")]
    assert Concatenate(maps).transform(X).dtype == np.float64
    assert Concatenate(maps[:1]).transform(X).dtype == np.float32


def test_concatenation_refuses():
    with pytest.raises(ParameterError, match="at least one"):
        Concatenate([])
    with pytest.raises(ParameterError, match=r"take \[2, 3\] columns"):
        Concatenate([Identity(2), Identity(3)])
    with pytest.raises(ParameterError, match="not a feature map"):
        Concatenate([Identity(2), np.tanh])


def test_domains_can_be_mapped():
    domains = Domains.from_dict({"a": (X, X[:, 0]), "b": (X[:2], X[:2, 1])}, focal="a")
    mapped = domains.map(Identity(3, constant=True))
    assert mapped["b"].n_columns == 4
    np.testing.assert_array_equal(mapped["a"].X[:, :3], X)
