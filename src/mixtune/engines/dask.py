"""Deprecated: use :mod:`mixtune.streaming`, which has the same functions. This alias goes with the next release."""

from typing import Any
from warnings import warn

import mixtune.streaming
from mixtune._messages import deprecated


def __getattr__(name: str) -> Any:
    if name in ("gather_moments", "gather_samples", "run_tasks"):
        warn(deprecated(f"{__name__}.{name}", f"mixtune.streaming.{name}"), DeprecationWarning, stacklevel=2)
        return getattr(mixtune.streaming, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
