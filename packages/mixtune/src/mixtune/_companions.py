"""Packages beside the core: what they bring is found through entry points, or the error says what to install.

A companion offers commands in the entry-point group ``mixtune.commands`` and estimators that can be loaded from files
in ``mixtune.estimators``. The core imports a companion only when one of these is asked for.
"""

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from mixtune._messages import deprecated
from mixtune.errors import MissingExtraError

#: Commands and estimators of the companions of this repository, and the extra that installs each.
EXTRAS = {
    "price": "options",
    "federate": "federated",
    "reproduce": "paper",
    "FederatedRegressor": "federated",
}


def offered(group: str) -> dict[str, EntryPoint]:
    """Everything that installed packages offer in a group of entry points, by name.

    Examples
    --------
    >>> offered("mixtune.nothing")
    {}
    """
    return {entry.name: entry for entry in entry_points(group=group)}


def load_offered(group: str, name: str, purpose: str) -> Any:
    """What an installed package offers under this name.

    Raises
    ------
    MissingExtraError
        If no installed package offers it; the message says what to install.
    """
    entry = offered(group).get(name)
    if entry is None:
        extra = EXTRAS[name]
        raise MissingExtraError(f"mixtune-{extra}", extra, purpose)
    return entry.load()


def forward(former: str, extra: str) -> Callable[[str], Any]:
    """The names of the companion that a package of the core has become; it warns, and stays for one release.

    Parameters
    ----------
    former
        The former package, such as ``mixtune.options``.
    extra
        The extra of the core that installs the companion.
    """
    now = f"mixtune_{extra}"
    warnings.warn(deprecated(former, now), DeprecationWarning, stacklevel=3)
    try:
        return forward_module(now)
    except ModuleNotFoundError as error:
        if error.name != now:
            raise
        raise MissingExtraError(f"mixtune-{extra}", extra, f"{former!r}") from error


def forward_module(now: str) -> Callable[[str], Any]:
    """The names of a module of a companion, for the ``__getattr__`` of the module that it was in the core.

    Examples
    --------
    >>> forward_module("mixtune.errors")("DataError").__name__
    'DataError'
    """
    return partial(getattr, import_module(now))
