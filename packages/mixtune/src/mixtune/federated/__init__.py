"""Deprecated: this is now the package ``mixtune_federated``, installed by ``pip install 'mixtune[federated]'``."""

from mixtune._companions import forward

__getattr__ = forward(__name__, "federated")
