"""How far apart two datasets are: Wasserstein distances that say how well they are known.

The way of the data through this folder: `_samples` checks rows and brings them into a common frame; `_line`, `_exact`,
`_bracket` (with `_pricing`) and `_sliced` are the algorithms; `_pair` chooses between them and `_distance` is the door;
`_result` is what comes out. `_diameter` measures all samples together.
"""

from __future__ import annotations

from mixtune.weights.transport._diameter import pooled_diameter
from mixtune.weights.transport._distance import METHODS, distances_to, sampling_floor, wasserstein_distance
from mixtune.weights.transport._result import Diameter, TransportDistance

__all__ = [
    "METHODS",
    "Diameter",
    "TransportDistance",
    "distances_to",
    "pooled_diameter",
    "sampling_floor",
    "wasserstein_distance",
]
