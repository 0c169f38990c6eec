"""Moments(count, gram, cross, square) of a domain's features; they add, subtract, stream; local heads."""

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import warn

from mixtune.moments._affine import Origin, about, moved, pooled_scale
from mixtune.moments._batch import local_heads, stacked_heads
from mixtune.moments._cost import AUTO, SolverOptions, SolveStats
from mixtune.moments._factored import rounding_of
from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._rows import ShiftedRows
from mixtune.moments._system import Eigenbasis, GramSystem, RowSystem, System
from mixtune.moments._weighted import weighted_system

__all__ = [
    "AUTO",
    "Eigenbasis",
    "GramSystem",
    "Moments",
    "Origin",
    "RowSystem",
    "ShiftedRows",
    "SolveStats",
    "SolverOptions",
    "System",
    "about",
    "check_alike",
    "local_heads",
    "moved",
    "pooled_scale",
    "rounding_of",
    "stacked_heads",
    "weighted_system",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "stream_moments":  # until the next release
            warn("mixtune.moments.stream_moments has moved to mixtune.streaming", DeprecationWarning, stacklevel=2)
            return getattr(import_module("mixtune.streaming"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
