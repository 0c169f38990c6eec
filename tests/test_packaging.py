"""Wheel and source distribution: built, complete, and working in an environment that holds nothing else of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import mixtune

ROOT = Path(__file__).parents[1]
FIT = """
import numpy as np, mixtune
from mixtune import RegretOptimalRegressorCV
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=30)
model = RegretOptimalRegressorCV().fit(X[:10], y[:10], sources={"b": (X[10:], y[10:])})
assert abs(model.predict(X) - y).max() < 1
print(mixtune.__file__)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("built")
    # From a copy, so that nothing is left behind in the checkout.
    left_out = shutil.ignore_patterns("__pycache__", ".*", "site", "build", "dist")
    shutil.copytree(ROOT, folder / "project", ignore=left_out)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=folder / "project", check=True, capture_output=True, text=True)
    return folder


def test_wheel_holds_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"mixtune-{mixtune.__version__}-py3-none-any.whl"
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = (path.relative_to(ROOT / "src") for path in (ROOT / "src/mixtune").rglob("*") if path.is_file())
    assert held == {path.as_posix() for path in package if "__pycache__" not in path.parts}


def test_source_distribution_can_be_tested_and_cited(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    files = ("README.md", "CITATION.cff", "SECURITY.md", "conftest.py", "Makefile", "tests/test_packaging.py")
    assert {*files, "docs/index.md", "benchmarks/__main__.py", "src/mixtune/__init__.py"} <= held


def test_wheel_works_in_a_clean_environment(built, tmp_path):
    pytest.importorskip("pip")
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin") / "python"

    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, env=alone, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    # Dependencies come from this environment; .pth files in it, such as that of an editable mixtune, have no effect.
    where = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    (where / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n{sysconfig.get_paths()['platlib']}\n")
    assert run(str(python), "-m", "mixtune", "--version") == f"mixtune {mixtune.__version__}"
    assert run(str(python.with_name("mixtune")), "--version") == f"mixtune {mixtune.__version__}"
    assert Path(run(str(python), "-c", FIT)).is_relative_to(where)
