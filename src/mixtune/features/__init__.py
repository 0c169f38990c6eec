"""Frozen feature maps: inputs in, features out; only the linear head on top of them is ever fitted."""

from mixtune.features._combine import Concatenate, Identity
from mixtune.features._devices import device_slices, host_features, map_rows, placed
from mixtune.features._protocol import FeatureMap
from mixtune.features._random import RandomFeatures
from mixtune.features._sklearn import SklearnFeatures
from mixtune.features._spec import to_spec
from mixtune.features._torch import TorchFeatures

__all__ = [
    "Concatenate",
    "FeatureMap",
    "Identity",
    "RandomFeatures",
    "SklearnFeatures",
    "TorchFeatures",
    "device_slices",
    "host_features",
    "map_rows",
    "placed",
    "to_spec",
]
