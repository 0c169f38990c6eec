"""Moments(count, gram, cross, square) of a domain's features; they add, subtract, stream; local heads."""

from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._system import Eigenbasis, GramSystem, RowSystem, System
from mixtune.moments._weighted import weighted_system

__all__ = ["Eigenbasis", "GramSystem", "Moments", "RowSystem", "System", "check_alike", "weighted_system"]
