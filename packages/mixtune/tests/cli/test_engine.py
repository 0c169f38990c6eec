"""Where the work is done: the options, and the runs of a study on a cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.command_line import SITES, refused, sites
from mixtune.cli.inputs import LIMIT, check_engine
from mixtune.errors import MissingExtraError, ParameterError
from mixtune.streaming import DEFAULT_LIMIT
from streaming.dask_processes import dask_processes


def test_options_are_checked(monkeypatch):
    check_engine("local", None)
    with pytest.raises(ParameterError, match="choose from local, dask"):
        check_engine("spark", None)
    with pytest.raises(ParameterError, match="--scheduler is for --engine dask"):
        check_engine("local", "tcp://127.0.0.1:1")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("mixtune.checks.import_module", missing)
    with pytest.raises(MissingExtraError, match=r"mixtune\[dask\]"):
        check_engine("dask", None)


def test_the_memory_limit_is_that_of_the_library():
    assert LIMIT == DEFAULT_LIMIT


def test_the_rooms_that_work_are_not_imported_for_the_help():
    code = (
        "import atexit, sys; from mixtune.cli import main; atexit.register(lambda: print(sorted(sys.modules))); main()"
    )
    for command in ("fit", "predict"):
        told = subprocess.run(
            [sys.executable, "-c", code, command, "--help"], capture_output=True, text=True, check=True
        )
        *_, loaded = told.stdout.splitlines()
        assert "mixtune.cli.inputs" in loaded
        assert "'mixtune.estimators" not in loaded
        assert "'sklearn'" not in loaded


def test_a_fit_on_a_cluster_without_workers_ends(tmp_path):
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")  # before its settings are changed, or its defaults are lost
    data = sites(tmp_path / "data.csv")
    with dask_processes(workers=0) as cluster, dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"}):
        message = refused("fit", data, *SITES, "--ignore", "colour", "--engine", "dask", "--scheduler", cluster.address)
    assert message.startswith("the Dask cluster has had no workers for 1 s; start some")
    assert message.endswith("; run it again")
