"""Deprecated: this is now the package ``mixtune_paper``, installed by ``pip install 'mixtune[paper]'``."""

from typing import Any

from mixtune._companions import forward

#: Makes ``import mixtune.paper.module`` look among the modules that were loaded under this name.
__path__: list[str] = []
_companion = forward(__name__, "paper")


def __getattr__(name: str) -> Any:
    return getattr(_companion, name)
