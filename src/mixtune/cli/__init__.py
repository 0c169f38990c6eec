"""The command line: parse, call, print."""

from mixtune.cli._app import main, run

__all__ = ["main", "run"]
