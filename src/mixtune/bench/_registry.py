"""Which methods there are, and which of them can run here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from mixtune.bench._methods import BUILT_IN, Method
from mixtune.bench._peers import PEERS
from mixtune.errors import ParameterError

__all__ = ["available_methods", "known_methods", "methods_named"]


def known_methods() -> tuple[Method, ...]:
    """Return all methods, whether what they need is installed or not.

    Examples
    --------
    >>> [method.name for method in known_methods()][:3]
    ['mixtune', 'focal', 'pooled']
    """
    return (*BUILT_IN, *PEERS)


def available_methods() -> tuple[Method, ...]:
    """Return the methods that can run here.

    Examples
    --------
    >>> "pooled" in [method.name for method in available_methods()]
    True
    """
    return tuple(method for method in known_methods() if _is_there(method.needs))


def methods_named(names: Sequence[str]) -> tuple[Method, ...]:
    """Return methods by name, in the given order.

    Raises
    ------
    ParameterError
        If a name is unknown, or what the method needs is not installed.

    Examples
    --------
    >>> [method.title for method in methods_named(["pooled"])]
    ['pooled ridge']
    """
    known = {method.name: method for method in known_methods()}
    for name in names:
        if name not in known:
            raise ParameterError(f"there is no method {name!r}; known: {', '.join(known)}")
        if not _is_there(needs := known[name].needs):
            raise ParameterError(f"method {name!r} needs {needs}, which is not installed; install it or leave it out")
    return tuple(known[name] for name in dict.fromkeys(names))


def _is_there(needs: str | None) -> bool:
    module, _, name = (needs or "").partition(":")
    if not module:
        return True
    return find_spec(module) is not None and (not name or hasattr(import_module(module), name))
