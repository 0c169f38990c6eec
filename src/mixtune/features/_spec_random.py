"""Random features as settings and weights: drawn again from their seed where that still gives the stored weights."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from mixtune.errors import DataError
from mixtune.features._random import RandomFeatures
from mixtune.features._spec_torch import Networks

__all__ = ["Arrays", "Settings", "StoredFeatures", "read_random", "write_random"]

Settings = dict[str, Any]
Arrays = dict[str, Any]


class StoredFeatures(RandomFeatures):
    """Random features whose weights come from a file, because the seed gives others here."""

    def __reduce__(self) -> tuple[Any, ...]:
        options = {option.name: getattr(self, option.name) for option in fields(self) if option.init}
        return _stored, (options, self.weights, self.bias)


def _stored(options: Settings, weights: Any, bias: Any) -> RandomFeatures:
    features = StoredFeatures(**options)
    for name, values in (("weights", weights), ("bias", bias)):
        values = np.array(values)
        values.flags.writeable = False
        object.__setattr__(features, name, values)
    return features


def write_random(features: RandomFeatures, networks: Networks) -> tuple[Settings, Arrays]:
    values = {option.name: getattr(features, option.name) for option in fields(features) if option.init}
    # A NumPy scalar may lift float32 to float64 where a Python float does not, so its type is kept.
    arrays = {name: np.asarray(value) for name, value in values.items() if isinstance(value, np.ndarray | np.floating)}
    settings = {name: value for name, value in values.items() if name not in arrays}
    settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    return settings, {**arrays, "weights": features.weights, "bias": features.bias}


def read_random(settings: Settings, arrays: Arrays, networks: Networks) -> RandomFeatures:
    weights, bias = arrays.pop("weights"), arrays.pop("bias")
    n_inputs, width, dtype = settings["n_inputs"], settings["width"], settings["dtype"]
    if weights.shape != (n_inputs, width) or bias.shape != (width,) or {weights.dtype, bias.dtype} != {np.dtype(dtype)}:
        raise DataError(f"the random features have {n_inputs} inputs and width {width}, their weights do not fit that")
    options = {**settings, **{name: value[()] for name, value in arrays.items()}}
    drawn = RandomFeatures(**options)
    # NumPy may change what a seed gives from one release to another; the stored weights are what was fitted on.
    if drawn.weights.tobytes() == weights.tobytes() and drawn.bias.tobytes() == bias.tobytes():
        return drawn
    return _stored(options, weights, bias)
