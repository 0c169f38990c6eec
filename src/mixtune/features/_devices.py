"""Features of rows on one of PyTorch's devices: which maps compute there, and how the features of others get there.

:class:`RandomFeatures`, :class:`Identity` and :class:`TorchFeatures` compute where their inputs are, and so do they
joined by :class:`Concatenate`. Whatever else there is (scikit-learn's transformers, maps of one's own) is given NumPy
arrays, and its features are moved. A device is None for NumPy, or a name that PyTorch knows (:mod:`mixtune._array`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mixtune._array import Array, namespace, to_device, to_numpy
from mixtune.features._base import Concatenate, Identity
from mixtune.features._random import RandomFeatures
from mixtune.features._torch import TorchFeatures

#: Numbers in a block on a device: 256 MB in float64, several times that with what is at work on it.
BLOCK_ENTRIES = 2**25


def placed(feature_map: Any, device: str | None) -> Any:
    """The map as it is to be used on the device: modules are copied there, once for all blocks.

    A module that was put on a device of its own stays there.
    """
    if device is None:
        return feature_map
    if isinstance(feature_map, Concatenate):
        return Concatenate([placed(part, device) for part in feature_map.maps])
    if isinstance(feature_map, TorchFeatures) and feature_map.device == "cpu":
        return feature_map.moved_to(device)
    return feature_map


def map_rows(feature_map: Any, X: Array, columns: Sequence[str] | None = None, device: str | None = None) -> Array:
    """Features of rows, whose columns may have names; a tensor if there is a device.

    Examples
    --------
    >>> map_rows(Identity(1, constant=True), np.array([[3.0]]))
    array([[3., 1.]])
    >>> map_rows(Identity(1, constant=True), np.array([[3.0]]), device="cpu")
    tensor([[3., 1.]], dtype=torch.float64)
    """
    if device is not None and isinstance(feature_map, Concatenate):
        parts = [map_rows(part, X, columns, device) for part in feature_map.maps]
        return namespace(*parts).concat(parts, axis=1)
    if device is not None and isinstance(feature_map, RandomFeatures | Identity | TorchFeatures):
        return feature_map.transform(to_device(X, device))
    if columns is not None and hasattr(feature_map, "transform_named"):
        features = feature_map.transform_named(X, columns)
    else:
        features = feature_map.transform(X)
    return features if device is None else to_device(to_numpy(features), device)


def host_features(feature_map: Any, X: Array, columns: Sequence[str] | None, device: str | None) -> Array:
    """Features of rows as a NumPy array, computed on the device block by block where there is one.

    Examples
    --------
    >>> host_features(Identity(1, constant=True), np.array([[3.0], [4.0]]), None, "cpu")
    array([[3., 1.],
           [4., 1.]])
    """
    if device is None or not len(X):
        return to_numpy(map_rows(feature_map, X, columns))
    feature_map = placed(feature_map, device)
    width = int(getattr(feature_map, "n_features_out", X.shape[1]))
    found: Array | None = None
    for rows in device_slices(len(X), width):
        block = to_numpy(map_rows(feature_map, X[rows], columns, device))
        if found is None and len(block) == len(X):
            return block
        found = np.empty((len(X), *block.shape[1:]), dtype=block.dtype) if found is None else found
        found[rows] = block
    assert found is not None
    return found


def device_slices(rows: int, width: int) -> Iterator[slice]:
    """Rows that go to a device at a time, for so many features of each."""
    step = max(1, BLOCK_ENTRIES // width)
    for begin in range(0, rows, step):
        yield slice(begin, min(begin + step, rows))
