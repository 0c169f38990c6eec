"""The command line: parse, call, print."""

from mixtune.cli._app import main

__all__ = ["main"]
