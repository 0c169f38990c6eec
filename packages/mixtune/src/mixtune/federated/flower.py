"""Deprecated: this is now ``mixtune_federated.flower``."""

from mixtune._companions import forward_module

__getattr__ = forward_module("mixtune_federated.flower")
