"""Where the work is done: the options, and the runs of a study on a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mixtune.cli._streaming import LIMIT, check_engine, execute_on_cluster
from mixtune.errors import MissingExtraError, ParameterError
from mixtune.streaming import DEFAULT_LIMIT


def test_options_are_checked(monkeypatch):
    check_engine("local", None)
    with pytest.raises(ParameterError, match="choose from local, dask"):
        check_engine("spark", None)
    with pytest.raises(ParameterError, match="--scheduler is for --engine dask"):
        check_engine("local", "tcp://127.0.0.1:1")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("mixtune.streaming._stream.import_module", missing)
    with pytest.raises(MissingExtraError, match=r"mixtune\[dask\]"):
        check_engine("dask", None)


def test_the_memory_limit_is_that_of_the_library():
    assert LIMIT == DEFAULT_LIMIT


def test_the_rooms_that_work_are_not_imported_for_the_help():
    code = "import sys, mixtune.cli._fit, mixtune.cli._predict; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "mixtune.cli._streaming" in loaded
    assert "'mixtune.estimators" not in loaded
    assert "'sklearn'" not in loaded


def test_runs_of_a_study_on_a_cluster():
    distributed = pytest.importorskip("distributed")
    check_engine("dask", None)
    with distributed.Client(processes=False, dashboard_address=":0", n_workers=1) as client:
        found = {index: outcome for index, outcome, _ in execute_on_cluster(pow, 2, {0: 3, 1: 5}, scheduler=client)}
    assert found == {0: 8, 1: 32}
