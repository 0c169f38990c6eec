"""Deprecated: this is now the package ``mixtune_paper``, installed by ``pip install 'mixtune[paper]'``."""

from mixtune._companions import forward

__getattr__ = forward(__name__, "paper")
