"""Deprecated: this is now ``mixtune_paper.statements``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_paper.statements")
