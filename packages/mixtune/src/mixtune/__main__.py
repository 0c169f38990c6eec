"""``python -m mixtune`` is the command line."""

from mixtune.cli import run

run()
