"""Split parameters that docstrings explain together, so that each has its own type in the API reference.

mkdocstrings takes the type and the default of "seed, device" from ``seed`` alone.
"""

import re
from typing import Any

from griffe import Extension

#: Names in one line, and the indented lines below them.
TOGETHER = re.compile(r"^(\w+(?:, \w+)+)((?: :.*)?\n(?:(?: {4}.*)?\n?)+)", re.MULTILINE)


class ParametersApart(Extension):
    """Repeats the explanation for every parameter."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Griffe calls this with every module, class, function and attribute that it has read."""
        if obj.docstring is not None and (obj.is_function or obj.is_class):
            before, heading, after = obj.docstring.value.partition("Parameters\n----------\n")
            obj.docstring.value = before + heading + TOGETHER.sub(_repeat, after)


def _repeat(match: re.Match[str]) -> str:
    return "".join(f"{name}{match[2]}" for name in match[1].split(", "))
