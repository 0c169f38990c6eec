"""The same numbers on every machine: stored results, whatever the number of threads and the processor.

The suite runs on each Python, NumPy and scikit-learn of the continuous integration (``make lowest`` has the oldest
ones), so that versions are compared with the stored results too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mixtune.estimators
from properties import determinism
from properties.determinism import SIZES, TOLERANCE, beyond, collect, read

#: Environments of processes of their own, and the results that can differ there: only large products use threads.
#: OpenBLAS takes an older processor's instructions on request; where NumPy uses another library or processor, this is
#: one more run of the same kind.
THREADS = {f"{count} threads": ({"count": count}, ["large"]) for count in (1, 2, 4)}
ENVIRONMENTS = {**THREADS, "older processor": ({"count": 1, "OPENBLAS_CORETYPE": "NEHALEM"}, list(SIZES))}


def start(sizes, *, count, **more):
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(count))
    # Threads that wait sleep at once: there may be more of them than processors.
    limits |= {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "passive"}
    paths = os.pathsep.join([str(Path(mixtune.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, determinism.__file__, "--print", *sizes]
    env = {**os.environ, **limits, **more, "PYTHONPATH": paths}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


@pytest.fixture(scope="module")
def found():
    started = {name: start(sizes, **options) for name, (options, sizes) in ENVIRONMENTS.items()}
    results = {"here": collect()}
    for name, process in started.items():
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        results[name] = json.loads(out)
    return results


@pytest.mark.parametrize("name", ["here", *ENVIRONMENTS])
def test_stored_results(found, name):
    stored = read()
    kept = stored if name not in THREADS else {result: stored[result] for result in stored if ", large:" in result}
    assert len(kept) > 10
    assert not beyond(found[name], kept)


@pytest.mark.parametrize("name", ["2 threads", "4 threads"])
def test_threads(found, name):
    assert not beyond(found[name], found["1 threads"])


def test_every_estimator_is_among_them():
    public = {name for name in mixtune.estimators.__all__ if name.endswith(("Regressor", "Classifier", "CV"))}
    # What scikit-learn fits may change with its version; fits to sums and of all domains have tests of their own.
    public -= {"DomainColumnRegressor", "DomainColumnClassifier", "SummedRegressor"}
    public -= {"MultiDomainRegressor", "MultiDomainClassifier"}
    assert public == {result.split(",")[0].split()[0] for result in read()}


def test_a_difference_is_noticed():
    stored = read()
    name = next(iter(stored))
    assert not beyond(stored, stored)
    moved = [stored[name][0] + 2 * TOLERANCE, *stored[name][1:]]
    for wrong in ({name: moved}, {name: [float("nan")] * 6}, {name: [0.0]}, {name: []}):
        assert list(beyond({**stored, **wrong}, stored)) == [name]
    assert list(beyond({other: stored[other] for other in stored if other != name}, stored)) == [name]
    assert list(beyond({**stored, "new": [0.0]}, stored)) == ["new"]
