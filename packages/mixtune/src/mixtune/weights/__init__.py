"""How much each domain counts: Wasserstein, predictive, equal, given; the transport distances."""

from mixtune.weights._rule import (
    DomainWeights,
    EqualWeights,
    GivenWeights,
    PredictiveWeights,
    WeightRule,
    normalise,
    predictive_shares,
)
from mixtune.weights._wasserstein import TransportWeights, WassersteinWeights
from mixtune.weights.transport import Diameter, TransportDistance, pooled_diameter, sampling_floor, wasserstein_distance

__all__ = ["Diameter", "DomainWeights", "EqualWeights", "GivenWeights", "PredictiveWeights", "TransportDistance"]
__all__ += ["TransportWeights", "WassersteinWeights", "WeightRule", "normalise", "pooled_diameter", "predictive_shares"]
__all__ += ["sampling_floor", "wasserstein_distance"]
