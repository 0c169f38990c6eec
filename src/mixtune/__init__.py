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

__all__ = ["Concatenate", "Domain", "Domains", "EqualWeights", "Identity", "Moments", "PredictiveWeights"]
__all__ += ["RandomFeatures", "RegretProblem", "RegretSolution", "WassersteinWeights", "__version__", "descend"]
__all__ += ["solve", "wasserstein_distance"]
__all__ += ["RegretOptimalClassifier", "RegretOptimalClassifierCV"]
__all__ += ["RegretOptimalRegressor", "RegretOptimalRegressorCV", "Sources", "StreamedSources", "load"]


def __getattr__(name: str) -> Any:
    # What is not here yet is an estimator: scikit-learn takes a second to import, and the core does without.
    if name in __all__:
        from mixtune import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'mixtune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
