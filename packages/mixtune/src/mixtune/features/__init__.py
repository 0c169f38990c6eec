"""Frozen feature maps: inputs in, features out; only the linear model on top of them is ever fitted."""

from mixtune.features._base import Clipped, Concatenate, FeatureMap, Identity, Projected, Scaled
from mixtune.features._columns import columns_and_random
from mixtune.features._curves import Oriented, Splines, fit_fourier, fit_splines
from mixtune.features._kernel import (
    Coordinates,
    DomainKernel,
    InputUnits,
    KernelFeatures,
    matern,
    matern_and_slope,
    squared_exponential,
)
from mixtune.features._learned import LearnedColumns, TreeColumn, Trees
from mixtune.features._random import RandomFeatures
from mixtune.features._saving import from_spec, given_spec, register_feature_map, to_spec
from mixtune.features._sklearn import SklearnFeatures
from mixtune.features._torch import TorchFeatures, device_slices, host_features, map_rows, placed

# For everyone, and for the other packages of mixtune.
__all__ = ["Clipped", "Concatenate", "FeatureMap", "Identity", "LearnedColumns", "RandomFeatures", "SklearnFeatures"]
__all__ += ["Projected", "Scaled", "Splines", "TorchFeatures", "TreeColumn", "Trees"]
__all__ += [
    "Coordinates",
    "DomainKernel",
    "InputUnits",
    "KernelFeatures",
    "matern",
    "matern_and_slope",
    "squared_exponential",
]
__all__ += ["from_spec", "given_spec", "register_feature_map", "to_spec"]
__all__ += ["Oriented", "columns_and_random", "fit_fourier", "fit_splines"]
__all__ += ["device_slices", "host_features", "map_rows", "placed"]
