"""Deprecated: this is now ``mixtune_paper.bound``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_paper.bound")
