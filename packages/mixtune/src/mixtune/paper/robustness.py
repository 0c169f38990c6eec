"""Deprecated: this is now ``mixtune_paper.robustness``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_paper.robustness")
