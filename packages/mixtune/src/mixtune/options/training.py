"""Deprecated: this is now ``mixtune_options.training``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_options.training")
