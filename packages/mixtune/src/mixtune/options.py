"""Deprecated: this is now the package ``mixtune_options``, installed by ``pip install 'mixtune[options]'``."""

from typing import Any

from mixtune._companions import forward

#: Makes ``import mixtune.options.module`` look among the modules that were loaded under this name.
__path__: list[str] = []
_companion = forward(__name__, "options")


def __getattr__(name: str) -> Any:
    return getattr(_companion, name)
