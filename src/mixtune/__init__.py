"""mixtune: regret-optimal transfer learning from many small datasets behind one frozen feature map, in closed form."""

from mixtune._version import __version__
from mixtune.data import Domain, Domains
from mixtune.features import Concatenate, Identity, RandomFeatures
from mixtune.moments import Moments
from mixtune.regret import RegretProblem, RegretSolution, descend, solve
from mixtune.weights import EqualWeights, PredictiveWeights, WassersteinWeights, wasserstein_distance

__all__ = [
    "Concatenate",
    "Domain",
    "Domains",
    "EqualWeights",
    "Identity",
    "Moments",
    "PredictiveWeights",
    "RandomFeatures",
    "RegretProblem",
    "RegretSolution",
    "WassersteinWeights",
    "__version__",
    "descend",
    "solve",
    "wasserstein_distance",
]
