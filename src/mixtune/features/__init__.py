"""Frozen feature maps: inputs in, features out; only the linear model on top of them is ever fitted."""

from mixtune.features._base import Concatenate, FeatureMap, Identity
from mixtune.features._random import RandomFeatures
from mixtune.features._saving import from_spec, given_spec, register_feature_map, to_spec
from mixtune.features._sklearn import SklearnFeatures
from mixtune.features._torch import TorchFeatures, device_slices, host_features, map_rows, placed

__all__ = [
    "Concatenate",
    "FeatureMap",
    "Identity",
    "RandomFeatures",
    "SklearnFeatures",
    "TorchFeatures",
    "device_slices",
    "from_spec",
    "given_spec",
    "host_features",
    "map_rows",
    "placed",
    "register_feature_map",
    "to_spec",
]
