"""Checks of settings that several rooms share; each names the setting, its range and what came instead."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from mixtune.errors import ParameterError

__all__ = ["check_choice", "check_nonnegative", "check_positive", "check_simplex", "check_whole"]

SIMPLEX_TOLERANCE = 1e-8


def check_nonnegative(name: str, value: Any, *, allow_infinite: bool = False) -> float:
    """``value`` as a float >= 0, finite unless told otherwise."""
    number = _number(value)
    if number is None or number < 0 or not (math.isfinite(number) or (allow_infinite and number == math.inf)):
        kind = "a number" if allow_infinite else "a finite number"
        raise ParameterError(f"{name} must be {kind} >= 0; got {value!r}")
    return number


def check_positive(name: str, value: Any) -> float:
    """``value`` as a finite float > 0."""
    number = _number(value)
    if number is None or not math.isfinite(number) or number <= 0:
        raise ParameterError(f"{name} must be a finite number > 0; got {value!r}")
    return number


def check_whole(name: str, value: Any, *, least: int = 0) -> int:
    """``value`` as an integer >= ``least``; 3.0 and True are not integers here."""
    try:
        whole = operator.index(value)
    except TypeError:
        whole = least - 1
    if isinstance(value, bool | np.bool) or whole < least:
        raise ParameterError(f"{name} must be a whole number >= {least}; got {value!r}")
    return whole


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ParameterError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")
    return str(value)


def check_simplex(weights: Any, count: int) -> np.ndarray[Any, Any]:
    """``weights`` as a read-only array on the simplex with ``count`` entries."""
    try:
        w = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"weights must be {count} numbers, one per dataset; got {weights!r}") from None
    if w.shape != (count,):
        raise ParameterError(f"weights must have shape ({count},), one per dataset; got {w.shape}")
    if not np.all(np.isfinite(w)):
        raise ParameterError(f"weights must be finite; {int(np.sum(~np.isfinite(w)))} of {count} are NaN or infinite")
    if np.any(w < 0) or abs(w.sum() - 1.0) > SIMPLEX_TOLERANCE:
        raise ParameterError(
            f"weights must be >= 0 and sum to 1; they sum to {w.sum():.6g}, the smallest is {w.min():.6g}; "
            "divide them by their sum"
        )
    w.flags.writeable = False
    return w


def _number(value: Any) -> float | None:
    if isinstance(value, bool | np.bool | str | bytes) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
