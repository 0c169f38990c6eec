"""Frozen feature maps: inputs in, features out; only the linear head on top of them is ever fitted."""

from mixtune.features._combine import Concatenate, Identity
from mixtune.features._protocol import FeatureMap
from mixtune.features._random import RandomFeatures
from mixtune.features._sklearn import SklearnFeatures
from mixtune.features._torch import TorchFeatures

__all__ = ["Concatenate", "FeatureMap", "Identity", "RandomFeatures", "SklearnFeatures", "TorchFeatures"]
