"""The command line: a study by files, and a simulation with real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from federate_command import run
from mixtune.cli import make_app
from mixtune.errors import MixtuneError
from mixtune.files import pack, unpack

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("members"), np.random.default_rng(0)
    truth = rng.standard_normal(3)
    for place in range(7):
        X, kind = rng.standard_normal((60, 3)) * [1, 10, 3] + [0, 50, 2], rng.choice(["red", "green"], 60)
        y = (X / [1, 10, 3]) @ (truth + 0.1 * rng.standard_normal(3)) + (kind == "red") + rng.standard_normal(60)
        lines = [",".join([*map(repr, map(float, x)), k, repr(float(t))]) for x, k, t in zip(X, kind, y)]
        (folder / f"m{place}.csv").write_text("\n".join(["a,b,c,colour,y", *lines]))
    return folder


def test_a_study_by_files(tables, tmp_path):
    study = tmp_path / "study.toml"
    run("study", "new", study, "--like", tables / "m0.csv", "--target", "y", "--focal", "m0", "--level", 2)
    for place in range(4):
        run("study", "join", study, "--name", f"m{place}", "--data", tables / f"m{place}.csv")
    checked = json.loads(run("study", "check", study, "--data", tables / "m1.csv", "--json"))
    assert checked["members"] == [f"m{place}" for place in range(4)]
    assert "fingerprint" in run("study", "check", study)
    key = ["--key", tmp_path / "m0.key"]
    first, second = tmp_path / "q1.mxf", tmp_path / "q2.mxf"
    run("ask", study, "--out", first, "--focal", tables / "m0.csv", *key)
    files = [first]
    for request in (first, second):
        if request == second:
            with pytest.raises(MixtuneError, match=r'2 members answered, .* wait for "m3"'):
                run("ask", study, *files[:-1], "--out", second, "--focal", tables / "m0.csv", *key)
            run("ask", study, *files, "--out", second, "--focal", tables / "m0.csv", *key)
            files.append(second)
        for place in range(1, 4):
            out = tmp_path / f"a{place}-{request.stem}.mxf"
            own = ["--study", study, "--key", tmp_path / f"m{place}.key"]
            run("answer", request, "--data", tables / f"m{place}.csv", "--out", out, *own)
            files.append(out)
    assert "only m0 can read that" in run("inspect", files[-1])
    assert "was not checked" in run("inspect", files[-1])
    assert 'signature is that of "m3"' in run("inspect", files[-1], "--study", study)
    content, arrays = unpack(files[-1].read_bytes(), form="mixtune-message", where="the answer")
    altered = tmp_path / "altered" / files[-1].name
    altered.parent.mkdir()
    altered.write_bytes(pack({**content, "signature": "00" * 64}, arrays, form="mixtune-message"))
    with pytest.raises(MixtuneError, match="not signed with the key"):
        run("inspect", altered, "--study", study)
    assert json.loads(run("inspect", files[-1], "--json"))["bytes"] == files[-1].stat().st_size
    model, report = tmp_path / "model.mixtune", tmp_path / "report.html"
    made = ["--focal", tables / "m0.csv", "--study", study, *key, "--out", model, "--report", report]
    found = json.loads(run("combine", *files, *made, "--json"))
    assert found["exchanges"] == 2
    with pytest.raises(MixtuneError, match="answers of step 1 belong to is not among the files"):
        run("combine", *files[1:], *made, "--force")
    assert found["members"] == ["m1", "m2", "m3"]
    page = report.read_text()
    assert "rows never left the members" in page
    assert "60 focal rows, 3 other datasets" in page
    assert "not known" in page
    assert "cannot judge these rows" not in page
    predicted = CliRunner().invoke(make_app(), ["predict", str(model), str(tables / "m0.csv"), "--json"])
    assert predicted.exit_code == 0, predicted.output
    inspected = CliRunner().invoke(make_app(), ["inspect", str(model)]).output
    assert "federated study" in inspected.replace("\n", " ")
    assert "every domain" not in inspected
    # A second run of the same rows is refused: the ledger is beside the key.
    run("ask", study, "--out", tmp_path / "again.mxf", "--focal", tables / "m0.csv", *key)
    own = ["--study", study, "--key", tmp_path / "m1.key", "--out", tmp_path / "b.mxf"]
    with pytest.raises(MixtuneError, match="second release"):
        run("answer", tmp_path / "again.mxf", "--data", tables / "m1.csv", *own)
    assert not (tmp_path / "b.mxf").exists()
    # Who asks is the focal member; who answers may be anybody.
    run("ask", study, "--out", tmp_path / "c.mxf", "--focal", tables / "m0.csv")
    with pytest.raises(MixtuneError, match="4 keys"):
        run("answer", first, "--data", tables / "m1.csv", "--study", study, "--out", tmp_path / "d.mxf")
    with pytest.raises(MixtuneError, match='key of "m1", not of "m5"'):
        run("study", "join", study, "--name", "m5", "--key", tmp_path / "m1.key")
    (tmp_path / "empty").mkdir()
    study.rename(tmp_path / "empty" / "study.toml")
    with pytest.raises(MixtuneError, match="no key in the folder"):
        run("ask", tmp_path / "empty" / "study.toml", "--out", tmp_path / "d.mxf")


def simulate(tables, *options, level=2):
    given = [tables, "--focal", "m0", "--target", "y", "--level", level, *options, "--json"]
    return json.loads(run("simulate", *given))


@pytest.fixture(scope="module")
def few_rows(tables, tmp_path_factory):
    """The same members, the fourth with few rows."""
    folder = tmp_path_factory.mktemp("few")
    for path in tables.glob("*.csv"):
        lines = path.read_text().splitlines()
        (folder / path.name).write_text("\n".join(lines[:9] if path.stem == "m4" else lines))
    return folder


def test_simulation_with_a_policy(few_rows, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text("features_per_row = 1.0\nleast_cell = 0\n")
    found = simulate(few_rows, "--policy", policy, level=1)
    assert found["difference"] < 1e-10
    assert found["exchanges"] == 1
    assert found["missing"] == {}
    assert found["bytes_per_member"] < 20_000
    assert found["seconds"] > 0
    policy.write_text("feature_per_row = 1.0\n")
    with pytest.raises(MixtuneError, match="it may set features_per_row"):
        simulate(few_rows, "--policy", policy)


def test_members_that_refuse_are_named(few_rows):
    """The others go on, unless all are required."""
    found = simulate(few_rows, "--drop-outs", 2)
    assert set(found["missing"]) == {"m4"}
    assert "refused: sums over 4 features, but there are 8 rows" in found["missing"]["m4"]
    assert found["members"] == ["m1", "m2", "m3", "m5", "m6"]
    assert found["exchanges"] == 2
    assert found["difference"] < 1e-7
    with pytest.raises(MixtuneError, match="is missing"):
        simulate(few_rows, "--require-all")


def test_members_that_are_killed_or_slow(tables, tmp_path):
    """Four processes: one is killed before it answers, one during its answer, one is slow. The others go on."""
    study = tmp_path / "study.toml"
    run("study", "new", study, "--like", tables / "m0.csv", "--target", "y", "--focal", "m0", "--level", 1)
    for place in range(5):
        run("study", "join", study, "--name", f"m{place}")
    run("ask", study, "--out", tmp_path / "q1.mxf", "--focal", tables / "m0.csv")

    def start(name):
        own = ["--study", study, "--key", tmp_path / f"{name}.key", "--data", tables / f"{name}.csv"]
        given = ["answer", tmp_path / "q1.mxf", *own, "--out", tmp_path / f"{name}-1.mxf"]
        return subprocess.Popen([sys.executable, "-m", "mixtune", "federate", *map(str, given)])

    with FileLock(tmp_path / "m2.ledger.lock"), FileLock(tmp_path / "m3.ledger.lock"):
        running = {f"m{place}": start(f"m{place}") for place in range(1, 5)}
        running["m1"].kill()
        assert running["m4"].wait(60) == 0
        # These wait for their ledgers.
        assert running["m2"].poll() is None
        running["m2"].kill()
    assert running["m3"].wait(60) == 0
    assert [running[name].wait(60) for name in ("m1", "m2")] == [-signal.SIGKILL] * 2
    answers = sorted(tmp_path.glob("m*-1*"))
    assert [path.name for path in answers] == ["m3-1.mxf", "m4-1.mxf"]
    given = ["--focal", tables / "m0.csv", "--study", study, "--key", tmp_path / "m0.key", "--json"]
    answers.append(tmp_path / "q1.mxf")
    assert set(json.loads(run("combine", *answers, *given))["missing"]) == {"m1", "m2"}
    with pytest.raises(MixtuneError, match='"m1" is missing'):
        run("combine", *answers, *given, "--require-all")
    # Who was killed can answer later.
    assert start("m2").wait(60) == 0
