"""The command line: parse, call, print."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixtune.cli._app import main, make_app, run

if TYPE_CHECKING:
    from mixtune.cli.inputs import check_engine
    from mixtune.cli.outputs import print_json

# The program, then what commands of companions use.
__all__ = ["main", "make_app", "run"]
__all__ += ["check_engine", "print_json"]

_MODULES = {"check_engine": "inputs", "print_json": "outputs"}


def __getattr__(name: str) -> Any:
    # Without a command, neither NumPy nor Rich is needed.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mixtune.cli.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
