"""mixtune: regret-optimal transfer learning from many small datasets behind one frozen feature map, in closed form."""

from typing import TYPE_CHECKING, Any

from mixtune._version import __version__
from mixtune.data import Domain, Domains
from mixtune.features import Concatenate, Identity, RandomFeatures
from mixtune.moments import Moments
from mixtune.regret import RegretProblem, RegretSolution, descend, solve
from mixtune.weights import EqualWeights, PredictiveWeights, WassersteinWeights, wasserstein_distance

if TYPE_CHECKING:
    from mixtune.estimators import (
        RegretOptimalClassifier,
        RegretOptimalClassifierCV,
        RegretOptimalRegressor,
        RegretOptimalRegressorCV,
        Sources,
        StreamedSources,
        load,
    )

__all__ = [
    "Concatenate",
    "Domain",
    "Domains",
    "EqualWeights",
    "Identity",
    "Moments",
    "PredictiveWeights",
    "RandomFeatures",
    "RegretOptimalClassifier",
    "RegretOptimalClassifierCV",
    "RegretOptimalRegressor",
    "RegretOptimalRegressorCV",
    "RegretProblem",
    "RegretSolution",
    "Sources",
    "StreamedSources",
    "WassersteinWeights",
    "__version__",
    "descend",
    "load",
    "solve",
    "wasserstein_distance",
]

_ESTIMATORS = {
    "RegretOptimalClassifier",
    "RegretOptimalClassifierCV",
    "RegretOptimalRegressor",
    "RegretOptimalRegressorCV",
    "Sources",
    "StreamedSources",
    "load",
}


def __getattr__(name: str) -> Any:
    # scikit-learn takes a second to import; the core does without.
    if name in _ESTIMATORS:
        from mixtune import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'mixtune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
