"""Deprecated: this is now the package ``mixtune_federated``, installed by ``pip install 'mixtune[federated]'``."""

from typing import Any

from mixtune._companions import forward

#: Makes ``import mixtune.federated.module`` look among the modules that were loaded under this name.
__path__: list[str] = []
_companion = forward(__name__, "federated")


def __getattr__(name: str) -> Any:
    return getattr(_companion, name)
