"""Deprecated: use :mod:`mixtune.streaming`, which has the same functions. This alias goes with the next release."""

from mixtune._messages import moved_names

__getattr__ = moved_names(__name__, "gather_moments", "gather_samples", "run_tasks")
