"""Features on a device are those of NumPy, whichever map makes them; PyTorch on the processor stands for CUDA."""

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures

from mixtune.features import (
    Concatenate,
    Identity,
    RandomFeatures,
    SklearnFeatures,
    TorchFeatures,
    device_slices,
    host_features,
    map_rows,
    placed,
)

torch = pytest.importorskip("torch")

X = np.random.default_rng(0).standard_normal((50, 3))
RANDOM = RandomFeatures(n_inputs=3, width=7, activation="tanh", seed=0)


class Own:
    """A map that knows NumPy only."""

    n_features_out = 3

    def transform(self, X):
        assert isinstance(X, np.ndarray)
        return np.sin(X)


def network():
    torch.manual_seed(0)
    return TorchFeatures(torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)))


MAPS = {
    "random": lambda: RANDOM,
    "identity": lambda: Identity(3, constant=True),
    "network": network,
    "scikit-learn": lambda: SklearnFeatures(PolynomialFeatures(2).fit(X)),
    "own": Own,
    "joined": lambda: Concatenate([RANDOM, SklearnFeatures(PolynomialFeatures(2).fit(X)), Own(), network()]),
}


@pytest.mark.parametrize("make", MAPS.values(), ids=MAPS)
def test_features_are_those_of_numpy(make):
    feature_map = make()
    right = np.asarray(feature_map.transform(X))
    tensors = map_rows(placed(feature_map, "cpu"), X, None, "cpu")
    assert torch.is_tensor(tensors)
    np.testing.assert_allclose(tensors.numpy(), right, rtol=1e-12, atol=1e-13)
    found = host_features(feature_map, X, None, "cpu")
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, right, rtol=1e-6 if make is network else 1e-12, atol=1e-7)


def test_features_of_many_rows_are_made_in_blocks():
    many = np.arange(50_000.0)[:, None] + np.arange(700.0)
    assert len(device_slices(*many.shape)) > 1
    np.testing.assert_array_equal(host_features(Identity(700), many, None, "cpu"), many)


def test_columns_are_picked_by_name():
    pandas = pytest.importorskip("pandas")
    fitted = SklearnFeatures(PolynomialFeatures(2).fit(pandas.DataFrame(X, columns=["a", "b", "c"])))
    for feature_map in (fitted, Concatenate([Identity(3), fitted])):
        right = feature_map.transform_named(X[:, ::-1], ["c", "b", "a"])
        found = map_rows(feature_map, X[:, ::-1], ("c", "b", "a"), "cpu")
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-12)


def test_modules_are_copied_unless_they_have_a_device_of_their_own():
    feature_map = network()
    moved = placed(Concatenate([feature_map, RANDOM]), "meta").maps[0]
    assert moved.device == "meta"
    assert next(moved.module.parameters()).device.type == "meta"
    assert next(feature_map.module.parameters()).device.type == feature_map.device == "cpu"
    assert placed(moved, "cpu") is moved
    assert placed(feature_map, None) is feature_map


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (9, 8_000_000), (2, 10**9), (10**6, 100)])
def test_blocks_cover_all_rows(rows, width):
    blocks = list(device_slices(rows, width))
    assert [index for part in blocks for index in (part.start, part.stop)][1:-1] == [
        edge for part in blocks[1:] for edge in (part.start, part.start)
    ]
    assert (blocks[0].start, blocks[-1].stop) == (0, rows)
    assert max(part.stop - part.start for part in blocks) <= max(1, 2**25 // width)
