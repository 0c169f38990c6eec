"""Checks of settings that several folders share; each names the setting, its range and what came instead."""

import math
import operator
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from mixtune._messages import quoted as quoted
from mixtune.arrays import check_unmasked, to_numpy
from mixtune.errors import MissingExtraError, ParameterError

#: Weights computed in float32 and divided by their sum are off by about this much.
SIMPLEX_TOLERANCE = 1e-5

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", start=1)}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", start=1)}


def set_fields(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def import_extra(name: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional dependency, or say which extra of mixtune installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(name.split(".")[0], extra, purpose) from error


def require_extra(name: str, extra: str, purpose: str) -> None:
    """Say which extra of mixtune installs a module, where it is missing; it is not imported yet."""
    if find_spec(name) is None:
        raise MissingExtraError(name, extra, purpose)


def check_nonnegative(name: str, value: Any, *, allow_infinite: bool = False) -> float:
    """``value`` as a float >= 0, finite unless ``allow_infinite``."""
    number = _number(value)
    if not (0 <= number < math.inf or (allow_infinite and number == math.inf)):
        kind = "a number" if allow_infinite else "a finite number"
        raise ParameterError(f"{name} must be {kind} >= 0; got {value!r}")
    return number


def check_positive(name: str, value: Any) -> float:
    """``value`` as a finite float > 0."""
    number = _number(value)
    if not 0 < number < math.inf:
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
    """``weights`` as a read-only float64 array on the simplex with ``count`` entries.

    Rounding is tolerated: what sums to 1 up to float32 precision is divided by its sum.
    """
    check_unmasked(weights, "weights")
    try:
        w = np.array(to_numpy(weights), dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"weights must be {count} numbers, one per dataset; got {weights!r}") from None
    if w.shape != (count,):
        raise ParameterError(f"weights must have shape ({count},), one per dataset; got {w.shape}")
    if not np.all(np.isfinite(w)):
        raise ParameterError(f"weights must be finite; {int(np.sum(~np.isfinite(w)))} of {count} are NaN or infinite")
    if np.any(w < 0):
        raise ParameterError(f"weights must be >= 0; the smallest is {w.min():.6g}")
    if abs(w.sum() - 1.0) > SIMPLEX_TOLERANCE:
        raise ParameterError(f"weights must sum to 1; they sum to {w.sum():.8g}; divide them by their sum")
    # A sum that is already 1 up to float64 rounding is left alone, so that given weights come back bit by bit.
    w = w if abs(w.sum() - 1.0) < 1e-14 else w / w.sum()
    w.flags.writeable = False
    return w


def as_bytes(value: int | str, option: str = "memory_limit") -> int:
    """A size in bytes, from a number or a text.

    Examples
    --------
    >>> as_bytes("512 MB"), as_bytes("4GiB"), as_bytes(1000)
    (512000000, 4294967296, 1000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value) if isinstance(value, str) else None
    if found and found[2].upper() in _UNITS:
        return int(float(found[1]) * _UNITS[found[2].upper()])
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ParameterError(f'{option}={value!r} must be a size, such as "512 MB", "4 GiB" or a number of bytes')


def in_words(size: float) -> str:
    """A number of bytes as people write it.

    Examples
    --------
    >>> in_words(3.2e9), in_words(20_500), in_words(10)
    ('3,200 MB', '20 kB', '10 bytes')
    """
    if size < 1e3:
        return f"{size:.0f} bytes"
    return f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:,.0f} MB"


def _number(value: Any) -> float:
    """``value`` as a float, and NaN for what is not a number; True and "1" are not numbers here."""
    try:
        return math.nan if isinstance(value, bool | np.bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
