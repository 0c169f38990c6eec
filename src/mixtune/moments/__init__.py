"""Moments(count, gram, cross, square) of a domain's features, and all linear algebra that is done with them.

They add, subtract and stream; local heads, standardisation and centring on sums, ridge paths and leave-one-out.
"""

from mixtune.moments._cost import AUTO, SolverOptions, SolveStats
from mixtune.moments._datasets import MANY, chunks, local_heads, stacked_heads, weighted_system
from mixtune.moments._leave_one_out import Fit, LeaveOneOut, Posterior, leave_one_out, posterior
from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._ridge_paths import (
    Paths,
    Regression,
    RidgeChoice,
    Sample,
    Spectrum,
    best_ridge,
    loo_ridge,
    roots_of,
    spectrum_of,
)
from mixtune.moments._rows import Rows, ShiftedRows
from mixtune.moments._standardise import (
    Center,
    Origin,
    Scaling,
    about,
    augmented,
    common_center,
    moved,
    no_center,
    own_center,
    pooled_scale,
    pooled_scaling,
    recentred,
)
from mixtune.moments._streaming import stream_moments
from mixtune.moments._system import Eigenbasis, GramSystem, RowSystem, System, rounding_of

__all__ = [
    "AUTO",
    "MANY",
    "Center",
    "Eigenbasis",
    "Fit",
    "GramSystem",
    "LeaveOneOut",
    "Moments",
    "Origin",
    "Paths",
    "Posterior",
    "Regression",
    "RidgeChoice",
    "RowSystem",
    "Rows",
    "Sample",
    "Scaling",
    "ShiftedRows",
    "SolveStats",
    "SolverOptions",
    "Spectrum",
    "System",
    "about",
    "augmented",
    "best_ridge",
    "check_alike",
    "chunks",
    "common_center",
    "leave_one_out",
    "local_heads",
    "loo_ridge",
    "moved",
    "no_center",
    "own_center",
    "pooled_scale",
    "pooled_scaling",
    "posterior",
    "recentred",
    "roots_of",
    "rounding_of",
    "spectrum_of",
    "stacked_heads",
    "stream_moments",
    "weighted_system",
]
