"""Deprecated: this is now ``mixtune_paper.american``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_paper.american")
