"""From tables that were read to the self-tuning estimator: which one, with which features, and on which rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from mixtune.data import Domains, TrainingTables
from mixtune.estimators import RegretOptimalClassifierCV, RegretOptimalRegressorCV
from mixtune.features import Concatenate, Identity, RandomFeatures

__all__ = ["focal_rows", "new_model", "random_features", "source_rows"]


def new_model(*, classes: bool, focal: str, feature_map: Any = None, seed: int = 0, device: str = "cpu") -> Any:
    """Make the estimator that needs no settings, for numbers or for classes."""
    kind = RegretOptimalClassifierCV if classes else RegretOptimalRegressorCV
    return kind(feature_map, focal_name=focal, seed=seed, device=device)


def random_features(domains: Domains, width: int | None, seed: int) -> Any:
    """The inputs and so many random features of them, or None for the inputs alone.

    Examples
    --------
    >>> from mixtune.data import make_domains
    >>> random_features(make_domains(n_columns=3, seed=0).domains, 10, seed=0).n_features_out
    13
    """
    if width is None:
        return None
    mean, spread = domains.input_scaling()
    inputs = domains.focal_domain.n_columns
    hidden = RandomFeatures(
        n_inputs=inputs,
        width=width,
        activation="leaky_relu",
        # Units then see a sum of variance one, however many columns there are.
        weight_scale=inputs**-0.5,
        constant=False,
        input_shift=mean,
        input_scale=spread,
        seed=seed,
    )
    return Concatenate([Identity(inputs), hidden])


def focal_rows(read: TrainingTables) -> tuple[Any, Any]:
    """Inputs and targets of the focal domain; classes by name."""
    focal = read.domains.focal_domain
    return focal.X, _targets(read, focal.y)


def source_rows(read: TrainingTables) -> dict[str, tuple[Any, Any]]:
    """Inputs and targets of the sources by name; classes by name."""
    return {source.name: (source.X, _targets(read, source.y)) for source in read.domains.sources}


def _targets(read: TrainingTables, y: Any) -> Any:
    classes = read.encoder.target.classes
    return y if classes is None else np.array(classes)[np.asarray(y, dtype=np.int64)]
