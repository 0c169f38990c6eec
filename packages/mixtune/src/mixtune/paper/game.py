"""Deprecated: this is now ``mixtune_paper.game``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_paper.game")
