"""The command line: parse, call, print."""

from mixtune.cli._app import main, make_app, run

__all__ = ["main", "make_app", "run"]
