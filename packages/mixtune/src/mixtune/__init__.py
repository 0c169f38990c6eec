"""mixtune: regret-optimal transfer learning from many small datasets behind one frozen feature map, in closed form."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixtune._version import __version__

if TYPE_CHECKING:
    from mixtune.data import Domain, Domains
    from mixtune.estimators import (
        MultiDomainClassifier,
        MultiDomainRegressor,
        RegretOptimalClassifier,
        RegretOptimalClassifierCV,
        RegretOptimalRegressor,
        RegretOptimalRegressorCV,
        Sources,
        SourcesPipeline,
        StreamedSources,
        TableModel,
        column_effects,
        fit_table,
        load,
        row_contributions,
    )
    from mixtune.features import Concatenate, Identity, RandomFeatures
    from mixtune.moments import Moments
    from mixtune.regret import RegretProblem, RegretSolution, descend, solve
    from mixtune.weights import EqualWeights, PredictiveWeights, WassersteinWeights, wasserstein_distance

__all__ = ["Concatenate", "Domain", "Domains", "EqualWeights", "Identity", "Moments", "MultiDomainClassifier"]
__all__ += ["MultiDomainRegressor"]
__all__ += [
    "PredictiveWeights",
    "RandomFeatures",
    "RegretOptimalClassifier",
    "RegretOptimalClassifierCV",
    "RegretOptimalRegressor",
]
__all__ += ["RegretOptimalRegressorCV", "RegretProblem", "RegretSolution", "Sources", "SourcesPipeline"]
__all__ += [
    "StreamedSources",
    "TableModel",
    "WassersteinWeights",
    "__version__",
    "column_effects",
    "descend",
    "fit_table",
    "load",
    "row_contributions",
    "solve",
    "wasserstein_distance",
]

#: Packages of the public names, except those of the estimators; packages without any are imported by name only.
_PACKAGES = {
    "data": ("Domain", "Domains"),
    "errors": (),
    "features": ("Concatenate", "Identity", "RandomFeatures"),
    "moments": ("Moments",),
    "regret": ("RegretProblem", "RegretSolution", "descend", "solve"),
    "weights": ("EqualWeights", "PredictiveWeights", "WassersteinWeights", "wasserstein_distance"),
}


def __getattr__(name: str) -> Any:
    # NumPy, SciPy and scikit-learn take a second to import: a package is imported when one of its names is first used.
    if name in _PACKAGES:
        return import_module(f"mixtune.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'mixtune' has no attribute {name!r}")
    package = next((package for package, names in _PACKAGES.items() if name in names), "estimators")
    return getattr(import_module(f"mixtune.{package}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
