"""The columns themselves as features, with random features beside them."""

from typing import Any

from mixtune.arrays import Floats
from mixtune.features._base import Concatenate, FeatureMap, Identity, Scaled
from mixtune.features._random import RandomFeatures


def columns_and_random(
    n_inputs: int, *, width: int, seed: int = 0, units: tuple[Floats, Floats] | None = None, **settings: Any
) -> FeatureMap:
    """The columns, and random features of a sum of variance one beside them, however many columns there are.

    Parameters
    ----------
    n_inputs
        Number of columns.
    width
        Number of random features; 0 for none.
    seed
        Of their weights.
    units
        A shift and a scale of each column, which all features are taken in.
    **settings
        ``input_shift`` and ``input_scale`` of :class:`RandomFeatures`, which the random features are taken in.

    Examples
    --------
    >>> columns_and_random(3, width=10).n_features_out
    13
    """
    features: FeatureMap = Identity(n_inputs)
    if width:
        settings |= {"activation": "leaky_relu", "weight_scale": n_inputs**-0.5, "constant": False}
        random = RandomFeatures(n_inputs=n_inputs, width=width, seed=seed, **settings)
        features = Concatenate([features, random])
    return features if units is None else Scaled(features, *units)
