"""Kills, full disks, read-only folders, two processes at once, odd clocks and paths: nothing is lost, all is said."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from cli.command_line import run as here
from faults.kills import SCENARIOS, attack, contents, digest, mixtune, run, table
from faults.soak import soak
from mixtune import load
from mixtune.errors import MixtuneError
from mixtune.estimators import LocalRegressor

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")


@pytest.mark.parametrize("name", [name for name in SCENARIOS if "dask" not in name])  # clusters take too long here
def test_kills(name, tmp_path):
    if name == "reproduce":
        pytest.importorskip("mixtune_paper")
    attack(SCENARIOS[name](tmp_path), kills=1, seed=1, say=lambda text: None)


def model():
    return LocalRegressor().fit(np.arange(300.0).reshape(30, 10) % 7, np.arange(30.0))


def test_a_full_disk_keeps_the_old_model_and_says_so(tmp_path):
    """The size of files is limited, which fails a write half-way as a full disk does."""
    path = tmp_path / "model.mixtune"
    model().save(path)
    before = digest(path)
    script = (
        "import resource, signal, sys, numpy as np\n"
        "from mixtune.estimators import LocalRegressor\n"
        "from mixtune.errors import MixtuneError\n"
        "m = LocalRegressor().fit(np.arange(300.0).reshape(30, 10) % 7, np.arange(30.0))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
        "try:\n    m.save(sys.argv[1])\n"
        "except (MixtuneError, OSError) as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60)
    assert "Error" in done.stdout, done.stderr
    assert digest(path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.mixtune"]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounting needs root")
def test_a_small_file_system_that_is_full(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("no right to mount")
    try:
        path = place / "model.mixtune"
        model().save(path)
        before = digest(path)
        (place / "rest").write_bytes(bytes(4096 * 12))
        large = LocalRegressor().fit(np.random.default_rng(0).random((300, 30)), np.arange(300.0))
        with pytest.raises((MixtuneError, OSError), match="space"):
            large.save(path)
        assert digest(path) == before
        assert sorted(p.name for p in place.iterdir()) == ["model.mixtune", "rest"]
    finally:
        subprocess.run(["umount", place], check=True)


def test_two_processes_in_one_folder(tmp_path):
    """Two studies in one folder: together they do every run once, or one of them says why it cannot."""
    pytest.importorskip("mixtune_paper")
    out = tmp_path / "results"
    command = mixtune("reproduce", "figure1", "--runs", 2, "--jobs", 1, "--out", out)
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert process.returncode in (0, 2)
        assert "Traceback" not in err
    run([*command[:-1], str(tmp_path / "alone")])
    run(command)
    assert contents(out) == contents(tmp_path / "alone")


def test_two_processes_save_to_one_file(tmp_path):
    path = tmp_path / "model.mixtune"
    script = (
        "import sys, numpy as np\nfrom mixtune.estimators import LocalRegressor\n"
        "m = LocalRegressor().fit(np.arange(300.0).reshape(30, 10) % 7, np.arange(30.0))\n"
        "for _ in range(40):\n    m.save(sys.argv[1])\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", script, path], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    deadline = time.monotonic() + 120
    while any(process.poll() is None for process in both) and time.monotonic() < deadline:
        if path.exists():
            load(path)
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert [p.name for p in tmp_path.iterdir()] == ["model.mixtune"]


def test_a_clock_that_jumps(tmp_path, monkeypatch):
    """Files and studies do not depend on the time of day."""
    moments = iter([2e9, 1.0, 3e9] * 50)
    monkeypatch.setattr(time, "time", lambda: next(moments))
    path = tmp_path / "model.mixtune"
    model().save(path)
    load(path)


def test_a_study_whose_clock_jumps(tmp_path, monkeypatch):
    """A study that is resumed years before it began gives the figures of an undisturbed one."""
    pytest.importorskip("matplotlib")
    command = ("reproduce", "figure1", "--jobs", 1, "--out")
    assert here(*command, tmp_path / "alone", "--runs", 2).code == 0
    moments = itertools.cycle([2e9, 1.0, 3e9])
    monkeypatch.setattr(time, "time", lambda: next(moments))
    for runs in (1, 2):
        done = here(*command, tmp_path / "jumps", "--runs", runs)
        assert done.code == 0, done.err
    assert contents(tmp_path / "jumps") == contents(tmp_path / "alone")


@pytest.mark.parametrize("name", ["ünïcode", "with space", "[red]bold", "日本", "a'b", "-dash", "x" * 200])
def test_odd_paths(name, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    data = table(folder / f"{name[:50]}.csv", 40)
    out, page = folder / "m.mixtune", folder / "r.html"
    done = here("fit", data, "--target", "y", "--domain", "site", "--focal", "x", "--out", out, "--report", page)
    assert done.code == 0, done.err
    done = here("predict", out, data, "--out", folder / "p.csv")
    assert done.code == 0, done.err
    assert (folder / "p.csv").exists()
    assert page.exists()


def refused(where, data):
    """``fit --out`` ends with an error that names the place."""
    done = here("fit", data, "--target", "y", "--domain", "site", "--focal", "x", "--out", where)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert str(where.parent) in done.err.replace("\n", "")


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """A folder without permission, and a file system that turns out to be read-only when the file is opened."""
    data = table(tmp_path / "data.csv", 40)
    if os.geteuid() != 0:  # root may write anywhere
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o555)
        refused(closed / "model.mixtune", data)
    opened = os.open

    def read_only(path, flags, *args, **options):
        if str(path).endswith(".part"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", read_only)
    refused(tmp_path / "model.mixtune", data)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["data.csv"]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_a_short_soak():
    assert soak(0.0, threads=2, say=lambda text: None) > 0
