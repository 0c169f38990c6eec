"""The errors users meet: each says what is wrong and what to do about it.

Every error derives from :class:`MixtuneError` and from the built-in exception a caller would expect, so both
``except MixtuneError`` and ``except ValueError`` work.
"""

from __future__ import annotations

__all__ = ["ConvergenceError", "DataError", "MissingExtraError", "MixtuneError", "ParameterError", "SingularError"]


class MixtuneError(Exception):
    """Base of all errors raised by mixtune on purpose."""


class DataError(MixtuneError, ValueError):
    """The data cannot be used: wrong shape, not finite, empty, mislabelled."""


class ParameterError(MixtuneError, ValueError):
    """A setting is outside its range or contradicts another one."""


class SingularError(MixtuneError, ValueError):
    """A linear system has no unique solution and the chosen method needs one."""


class ConvergenceError(MixtuneError, RuntimeError):
    """An iteration did not reach a result that can be certified."""


class MissingExtraError(MixtuneError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed; run: pip install 'mixtune[{extra}]'")
