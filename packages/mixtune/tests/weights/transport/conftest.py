"""POT itself, to compare with."""

import importlib
import warnings

import pytest


@pytest.fixture
def ot():
    """The package, whose sources raise warnings when Python compiles them for the first time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("ot")
