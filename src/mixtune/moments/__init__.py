"""Moments(count, gram, cross, square) of a domain's features; they add, subtract, stream; local heads."""

from mixtune.moments._batch import local_heads, stacked_heads
from mixtune.moments._cost import AUTO, SolverOptions, SolveStats
from mixtune.moments._factored import rounding_of
from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._rows import ShiftedRows
from mixtune.moments._streaming import stream_moments
from mixtune.moments._system import Eigenbasis, GramSystem, RowSystem, System
from mixtune.moments._weighted import weighted_system

__all__ = [
    "AUTO",
    "Eigenbasis",
    "GramSystem",
    "Moments",
    "RowSystem",
    "ShiftedRows",
    "SolveStats",
    "SolverOptions",
    "System",
    "check_alike",
    "local_heads",
    "rounding_of",
    "stacked_heads",
    "stream_moments",
    "weighted_system",
]
