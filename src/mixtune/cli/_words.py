"""Text for the terminal, safe to print."""

from __future__ import annotations

import re
from typing import Any

from rich.markup import escape

from mixtune.report.page._words import clean

__all__ = ["safe"]


def safe(text: Any) -> str:
    """Text in one line, with nothing in it that a terminal would act on.

    Examples
    --------
    >>> safe("[red]") == r"\\[red]", safe("a\\x1b[2Jb") == "a\ufffd[2Jb", safe("a name\\n with a line break")
    (True, True, 'a name with a line break')
    """
    return escape(clean(re.sub(r"\s*[\r\n]+\s*", " ", str(text))))
