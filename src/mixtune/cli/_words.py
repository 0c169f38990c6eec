"""Text for the terminal: safe to print, and with options as they are typed there."""

from __future__ import annotations

import re
from typing import Any

from rich.markup import escape

from mixtune.report.page._words import clean

__all__ = ["for_terminal", "safe"]

_VALUE = r'(?:"[^"]*"|\w+)'
_IN_PYTHON = re.compile(rf" \(in Python: \w+={_VALUE}\)")
#: What is said of Python, and what is typed instead.
_TYPED = (
    (
        re.compile(r"lower coverage or use predict\(X, return_std=True\)"),
        "give --interval a lower value or use --std",
    ),
    (re.compile(r'sorted\(pathlib\.Path\("([^"]*)"\)\.glob\("(\*[.\w]+)"\)\)'), r"\1/\2"),
)
_SETTING = re.compile(rf"\b(domain|focal|ignore|categories|encoding|separator|decimal)=({_VALUE})")


def for_terminal(message: str) -> str:
    """Write settings in a message as options.

    Examples
    --------
    >>> for_terminal('leave it out with --ignore id (in Python: ignore="id")')
    'leave it out with --ignore id'
    >>> for_terminal('pass separator=";" and decimal=","')
    'pass --separator ";" and --decimal ","'
    >>> for_terminal("lower coverage or use predict(X, return_std=True)")
    'give --interval a lower value or use --std'
    >>> for_terminal("a name\\nwith a line break")
    'a name with a line break'
    """
    message = re.sub(r"\s*[\r\n]+\s*", " ", message)
    for said, typed in _TYPED:
        message = said.sub(typed, message)
    return _SETTING.sub(r"--\1 \2", _IN_PYTHON.sub("", message))


def safe(text: Any) -> str:
    """Text from data or files, with nothing in it that a terminal would act on.

    Examples
    --------
    >>> safe("[red]") == r"\\[red]", safe("a\\x1b[2Jb") == "a\ufffd[2Jb"
    (True, True)
    """
    return escape(clean(text))
