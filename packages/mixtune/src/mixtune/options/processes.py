"""Deprecated: this is now ``mixtune_options.processes``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_options.processes")
