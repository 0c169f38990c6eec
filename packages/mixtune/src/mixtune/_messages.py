"""What errors and notes are made of: a code, named fields, and wording that depends on where it is shown.

A message keeps its parts, so that a program can read the code and the fields, and so that each place that shows it
(Python, the terminal, a page) can name a setting as its own users type it. Nobody has to parse finished English.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Literal

Place = Literal["python", "terminal"]


@dataclass(frozen=True)
class Wording:
    """The same advice as it is written in Python and as it is typed on the command line."""

    python: str
    terminal: str

    def __str__(self) -> str:
        return self.python


def setting(name: str, value: Any = True) -> Wording:
    """Name a setting together with the value to give it.

    Examples
    --------
    >>> advice = setting("ignore", "row id")
    >>> advice.python, advice.terminal
    ('ignore="row id"', "--ignore 'row id'")
    >>> setting("drop_missing_target").terminal
    '--drop-missing-target'
    """
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return Wording(f"{name}={value}", flag if value else f"--no-{flag[2:]}")
    python = f'"{value}"' if isinstance(value, str) else repr(value)
    return Wording(f"{name}={python}", f"{flag} {shlex.quote(str(value))}")


@dataclass(frozen=True)
class Message:
    """A code, a template and the fields that fill it.

    A template without fields is shown as it is, braces included.

    Examples
    --------
    >>> message = Message("text-column", 'column "{column}" holds text; pass {fix}',
    ...                   {"column": "id", "fix": setting("ignore", "id")})
    >>> message.render("python")
    'column "id" holds text; pass ignore="id"'
    >>> message.render("terminal")
    'column "id" holds text; pass --ignore id'
    """

    code: str
    template: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def render(self, place: Place = "python") -> str:
        if not self.fields:
            return self.template
        worded = {name: getattr(value, place) for name, value in self.fields.items() if isinstance(value, Wording)}
        return self.template.format(**{**self.fields, **worded})


class HasMessage:
    """An error or a note: its message, and the parts of it that programs read."""

    message: Message

    @property
    def code(self) -> str:
        return self.message.code

    @property
    def fields(self) -> Mapping[str, Any]:
        return self.message.fields

    def render(self, place: Place = "python") -> str:
        """The message in the words of the place that shows it."""
        return self.message.render(place)


class Note(HasMessage, str):
    """A remark about a fit or a table: text as Python shows it, with the message behind it.

    Examples
    --------
    >>> note = Note("one-row", "domain {name} has one row", name="b")
    >>> note, note.code, note.fields["name"]
    ('domain b has one row', 'one-row', 'b')
    """

    def __new__(cls, code: str, template: str, **fields: Any) -> Note:
        message = Message(code, template, fields)
        note = super().__new__(cls, message.render())
        note.message = message
        return note

    def __getnewargs_ex__(self) -> tuple[tuple[str, str], dict[str, Any]]:
        return (self.message.code, self.message.template), dict(self.message.fields)


def deprecated(former: str, now: str) -> str:
    """The warning about a former name, for one release.

    Examples
    --------
    >>> deprecated("stream_moments", "mixtune.streaming.stream_moments")
    '`stream_moments` is deprecated and will be removed in 0.3; use `mixtune.streaming.stream_moments`'
    """
    return f"`{former}` is deprecated and will be removed in 0.3; use `{now}`"


def moved_names(module: str, *names: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose names have moved to :mod:`mixtune.streaming`: it warns, for one release."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(deprecated(f"{module}.{name}", f"mixtune.streaming.{name}"), DeprecationWarning, stacklevel=2)
        return getattr(import_module("mixtune.streaming"), name)

    return find


class Renamed:
    """An attribute under its former name, for one release: it warns, and is what the attribute ``now`` is.

    Examples
    --------
    >>> class Example:
    ...     size, former_size = 3, Renamed("size")
    >>> with warnings.catch_warnings(action="ignore"):
    ...     Example().former_size
    3
    """

    def __init__(self, now: str) -> None:
        self.now, self.name = now, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        warnings.warn(deprecated(self.name, self.now), DeprecationWarning, stacklevel=2)
        return getattr(instance, self.now)


def counted(*numbers: tuple[int, str]) -> str:
    """Write counts with their nouns in the right number.

    Examples
    --------
    >>> counted((4059, "row"), (1, "column"))
    '4,059 rows, 1 column'
    """
    return ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in numbers)


def counted_note(code: str, count: int, noun: str, words: str, **fields: Any) -> Note:
    """A note that begins with a count; the words follow it and may contain the verb ``{are}``.

    Examples
    --------
    >>> counted_note("dropped-rows", 1, "row", 'of "{file}" {are} left out', file="a.csv")
    '1 row of "a.csv" is left out'
    """
    are = "is" if count == 1 else "are"
    return Note(code, f"{{count}} {words}", count=counted((count, noun)), are=are, **fields)


#: Names of more characters are cut off in lists.
_LONGEST_NAME = 80


def quoted(names: Sequence[str], limit: int = 5) -> str:
    """List names in quotes, the first few of them, each cut off where it is very long.

    Examples
    --------
    >>> quoted(["a", "b", "c"], limit=2)
    '"a", "b" and 1 more'
    """
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    shown = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..." for name in names[:limit]]
    return ", ".join(f'"{name}"' for name in shown) + more


def closest(name: str, known: Sequence[str]) -> str | None:
    """The known name that was probably meant, if one is like it.

    Examples
    --------
    >>> closest("Prise", ["size", "price"]), closest("q", ["size", "price"])
    ('price', None)
    """
    low = {each.casefold(): each for each in reversed(known[:10_000])}
    found = get_close_matches(name.strip().casefold(), low, n=1)
    return low[found[0]] if found else None


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
    close = get_close_matches(name, known[:10_000], n=3) or [each for each in [closest(name, known)] if each]
    return f"did you mean {quoted(close)}?" if close else f"known: {quoted(known)}"
