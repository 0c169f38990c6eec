"""Where the work is done: the options, and the runs of a study on a cluster."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from cli.command_line import SITES, refused, sites
from mixtune.cli.inputs import LIMIT, check_engine
from mixtune.errors import MissingExtraError, ParameterError
from mixtune.streaming import DEFAULT_LIMIT
from mixtune_paper._command import execute_on_cluster
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
    code = "import sys, mixtune.cli._fit, mixtune.cli._predict; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "mixtune.cli.inputs" in loaded
    assert "'mixtune.estimators" not in loaded
    assert "'sklearn'" not in loaded


def test_runs_of_a_study_on_a_cluster():
    distributed = pytest.importorskip("distributed")
    check_engine("dask", None)
    with distributed.Client(processes=False, dashboard_address=":0", n_workers=1) as client:
        found = {index: outcome for index, outcome, _ in execute_on_cluster(pow, 2, {0: 3, 1: 5}, scheduler=client)}
    assert found == {0: 8, 1: 32}


def test_a_fit_on_a_cluster_without_workers_ends(tmp_path):
    dask = pytest.importorskip("dask")
    data = sites(tmp_path / "data.csv")
    with dask_processes(workers=0) as cluster, dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"}):
        message = refused("fit", data, *SITES, "--ignore", "colour", "--engine", "dask", "--scheduler", cluster.address)
    assert message.startswith("the Dask cluster has had no workers for 1 s; start some")
    assert message.endswith("; run it again")


def test_a_study_whose_scheduler_is_killed_says_how_to_continue(tmp_path):
    pytest.importorskip("distributed")
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-c", "from mixtune.cli import main; main()", "reproduce", "figure1", "--runs", "500"]
    kept = tmp_path / "results.sqlite"
    with dask_processes() as cluster:
        command += ["--engine", "dask", "--scheduler", cluster.address, "--out", str(tmp_path)]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, **pipes) as study:
            for _ in range(600):
                if _finished(kept):
                    break
                time.sleep(0.1)
            cluster.scheduler.kill()
            err = study.communicate(timeout=60)[1]
    assert study.returncode == 2, err
    assert err.startswith("Error: the Dask scheduler was lost")
    assert err.count("\n") == 1, err
    assert f"Finished runs are kept in {tmp_path}; to continue: mixtune reproduce figure1 --runs 500" in err
    assert 0 < _finished(kept) < 500


def _finished(results):
    if not results.exists():
        return 0
    with closing(sqlite3.connect(f"file:{results}?mode=ro", uri=True)) as store:
        try:
            return store.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
        except sqlite3.OperationalError:  # not made yet, or written to just now
            return 0
