"""Deprecated: this is now the package ``mixtune_options``, installed by ``pip install 'mixtune[options]'``."""

from mixtune._companions import forward

__getattr__ = forward(__name__, "options")
