"""Runs of a study on a Dask cluster."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from streaming.dask_processes import dask_processes


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
