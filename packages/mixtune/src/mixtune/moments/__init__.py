"""Moments(count, gram, cross, square) of a domain's features, and all linear algebra that is done with them.

They add, subtract and stream; local heads, standardisation and centring on sums, ridge paths and leave-one-out.
"""

from typing import TYPE_CHECKING

from mixtune._messages import moved_names
from mixtune.moments._cost import AUTO, SolverOptions, SolveStats
from mixtune.moments._datasets import MANY, chunks, local_heads, weighted_system
from mixtune.moments._distinct import distinct_rows, relative_weight
from mixtune.moments._leave_one_out import (
    Fit,
    LeaveOneOut,
    Missing,
    Posterior,
    leave_one_out,
    left_out_residuals,
    posterior,
)
from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._ridge_paths import (
    RANK_TOLERANCE,
    Batch,
    Directions,
    Paths,
    Regression,
    Sample,
    best_ridge,
    best_ridges,
    generalised_error,
    half_solve,
    loo_ridge,
    lower_root,
    ridge_heads,
    roots_of,
    spectrum_of,
    times,
    turned,
)
from mixtune.moments._rows import RUN_ENTRIES, LazyRows, Rows
from mixtune.moments._standardise import (
    Center,
    LocalModel,
    Origin,
    Scaling,
    about,
    augmented,
    check_target_size,
    common_center,
    is_constant,
    moved,
    no_center,
    own_center,
    pooled_scale,
    pooled_scaling,
    recentred,
)
from mixtune.moments._system import GramSystem, RowSystem, System, rounding_of

__all__ = ["AUTO", "MANY", "RANK_TOLERANCE", "RUN_ENTRIES", "Batch", "Center", "Directions", "Fit", "GramSystem"]
__all__ += [
    "LazyRows",
    "LeaveOneOut",
    "LocalModel",
    "Missing",
    "Moments",
    "Origin",
    "Paths",
    "Posterior",
    "Regression",
    "RowSystem",
    "Rows",
]
__all__ += ["Sample", "Scaling", "SolveStats", "SolverOptions", "System", "about", "augmented", "best_ridge"]
__all__ += ["best_ridges", "check_alike", "check_target_size", "chunks", "common_center", "generalised_error"]
__all__ += ["half_solve", "is_constant", "leave_one_out", "left_out_residuals", "local_heads", "loo_ridge"]
__all__ += ["lower_root", "moved", "no_center", "own_center", "pooled_scale", "pooled_scaling", "posterior"]
__all__ += ["recentred", "ridge_heads", "roots_of", "rounding_of", "spectrum_of", "times", "turned", "weighted_system"]

__all__ += ["distinct_rows", "relative_weight"]

if not TYPE_CHECKING:
    __getattr__ = moved_names(__name__, "stream_moments")
