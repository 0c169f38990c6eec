"""Optional packages for tests: ``torch = extra("torch")`` in place of ``import torch``.

Where the package is missing, the module is still collected, and only the tests that touch the package are skipped.
"""

import os
from importlib import import_module
from importlib.util import find_spec

import pytest


class Missing:
    """Stands for a missing package and whatever is made of it before tests run; skips the test that touches it."""

    def __init__(self, package):
        self._package = package

    def __repr__(self):
        # Names of tests must be the same in every process.
        return f"Missing({self._package!r})"

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return self()

    def __call__(self, *args, **options):
        if "PYTEST_CURRENT_TEST" in os.environ:
            self.skip()
        return self

    def skip(self):
        pytest.skip(f"{self._package} is not installed", allow_module_level=True)


def extra(name):
    """The module, or what stands for it where its package is not installed.

    Examples
    --------
    >>> extra("math").sqrt(4.0)
    2.0
    """
    package = name.partition(".")[0]
    return import_module(name) if find_spec(package) else Missing(package)


def skip_if_missing(value):
    """Skip the running test if a missing package is among its parameters."""
    if isinstance(value, Missing):
        value.skip()
    elif isinstance(value, (list, tuple)):
        for part in value:
            skip_if_missing(part)
    elif isinstance(value, dict):
        skip_if_missing(list(value.values()))
