"""One way to refuse content that others wrote, or that was damaged on its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mixtune.errors import DataError, MixtuneError


@contextmanager
def reading(problem: str, remedy: str, *, code: str | None = None) -> Iterator[None]:
    """Whatever goes wrong while content is read is one error, which says what is wrong with it and what to do.

    Examples
    --------
    >>> with reading("the card is damaged", "copy it again"):
    ...     bytes.fromhex("xy")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the card is damaged (non-hexadecimal number found in fromhex() arg at position 0); copy it again
    """  # noqa: E501
    try:
        yield
    except MixtuneError:
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise DataError(f"{problem} ({error}); {remedy}", code=code) from error
