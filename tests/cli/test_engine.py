"""Where the work is done: the options, and the runs of a study on a cluster."""

from __future__ import annotations

import pytest

from mixtune.cli._engine import check_engine, execute_on_cluster
from mixtune.errors import MissingExtraError, ParameterError


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


def test_runs_of_a_study_on_a_cluster():
    distributed = pytest.importorskip("distributed")
    check_engine("dask", None)
    with distributed.Client(processes=False, dashboard_address=":0", n_workers=1) as client:
        found = {index: outcome for index, outcome, _ in execute_on_cluster(pow, 2, {0: 3, 1: 5}, scheduler=client)}
    assert found == {0: 8, 1: 32}
