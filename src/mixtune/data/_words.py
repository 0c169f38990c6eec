"""Small pieces of wording shared by messages: counts with their nouns, lists of names, suggestions."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["counted", "nearest", "quoted"]


def counted(*numbers: tuple[int, str]) -> str:
    """Write counts with their nouns in the right number.

    Examples
    --------
    >>> counted((3, "row"), (1, "column"))
    '3 rows, 1 column'
    """
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in numbers)


def quoted(names: Sequence[str], limit: int = 5) -> str:
    """List names in quotes, the first few of them.

    Examples
    --------
    >>> quoted(["a", "b", "c"], limit=2)
    '"a", "b" and 1 more'
    """
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(f'"{name}"' for name in names[:limit]) + more


def nearest(name: str, known: Sequence[str]) -> str:
    """Suggest the known names that look most like ``name``, or else list the first few.

    Examples
    --------
    >>> nearest("prise", ["size", "price"])
    'did you mean "price"?'
    >>> nearest("q", ["size", "price"])
    'known: "size", "price"'
    """
    # Comparing with every one of very many names would take longer than the reader waits for an error.
    close = get_close_matches(name, known[:10_000], n=3)
    return f"did you mean {quoted(close)}?" if close else f"known: {quoted(known)}"
