"""Wheels and source distributions of all packages: built, complete, and working where nothing else of ours is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from docs.architecture import PACKAGES

import mixtune

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {package: folder.parents[1] for package, folder in PACKAGES.items()}
#: Something small that each package does; the core is installed alone, the companions with what they need.
SMOKE = {
    "mixtune": """
import numpy as np
from mixtune import RegretOptimalRegressorCV
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=30)
model = RegretOptimalRegressorCV().fit(X[:10], y[:10], sources={"b": (X[10:], y[10:])})
assert abs(model.predict(X) - y).max() < 1
""",
    "mixtune_options": """
from mixtune_options import BlackScholes, Put, TimeGrid, price
market = BlackScholes(spot=36.0, volatility=0.2)
result = price(market, Put(40.0), TimeGrid(maturity=1.0, dates=5, rate=0.06), paths=500, seed=0)
assert 4 < result.price < 5, result.price
""",
    "mixtune_federated": """
from mixtune_federated import Study
assert Study
""",
    "mixtune_paper": """
from mixtune_paper import experiment
from mixtune_paper.convergence import ConvergenceSettings, NetworkData
small = ConvergenceSettings(data=NetworkData(n_domains=3, n_rows=9, width=12), horizon=5, descent_steps=5)
rows = experiment("figure1").run(small, 0).rows
assert rows["RO"]["final_loss"] < rows["RO"]["start_loss"]
""",
}


@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_every_distribution_has_its_parts(package):
    folder = DISTRIBUTIONS[package]
    for name in ("pyproject.toml", "README.md", "LICENSE", f"src/{package}/__init__.py", f"src/{package}/py.typed"):
        assert (folder / name).is_file(), f"{folder} lacks {name}"
    assert list((folder / "tests").rglob("test_*.py"))
    assert (folder / "README.md").read_text(encoding="utf-8").startswith(f"# {folder.name}\n")
    unreleased = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    assert f"\n### {folder.name}\n" in unreleased


def test_extras_of_the_core_name_the_companions():
    with (DISTRIBUTIONS["mixtune"] / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    for extra in ("options", "federated", "paper"):
        assert extras[extra] == [f"mixtune-{extra}"]
    for package, folder in DISTRIBUTIONS.items():
        with (folder / "pyproject.toml").open("rb") as file:
            project = tomllib.load(file)["project"]
        needed = {re.split(r"[\[<>=~! ]", each)[0] for each in project["dependencies"]}
        ours = needed & {folder.name for folder in DISTRIBUTIONS.values()}
        allowed = {"mixtune": set(), "mixtune_paper": {"mixtune", "mixtune-options"}}
        assert ours == allowed.get(package, {"mixtune"}), package


#: Public modules of companions that came after these left the core.
NEVER_IN_THE_CORE = {"latex", "nano_paper", "page"}


@pytest.mark.parametrize("package", [package for package in PACKAGES if package != "mixtune"])
def test_former_modules_forward_with_a_warning(package):
    """Every public module of a companion is found where it was in the core, with the same objects in it."""
    names = [path.stem for path in PACKAGES[package].glob("*.py") if not path.stem.startswith("_")]
    names = [name for name in names if name not in NEVER_IN_THE_CORE]
    code = f"""
import importlib, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    former = importlib.import_module("mixtune.{package[8:]}")
    modules = {{name: importlib.import_module(f"mixtune.{package[8:]}.{{name}}") for name in {names}}}
(warning,) = [each for each in told if "mixtune.{package[8:]}" in str(each.message)]
assert warning.category is DeprecationWarning, warning
assert "{package}" in str(warning.message), warning
now = importlib.import_module("{package}")
assert all(getattr(former, name) is getattr(now, name) for name in now.__all__)
for name, module in modules.items():
    present = importlib.import_module(f"{package}.{{name}}")
    public = [each for each in vars(present) if not each.startswith("_")]
    assert all(getattr(module, each) is getattr(present, each) for each in public), name
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution of each package."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("built")
    # From a copy, so that nothing is left behind in the checkout.
    left_out = shutil.ignore_patterns("__pycache__", ".*", "build", "dist")
    archives = {}
    for package, project in DISTRIBUTIONS.items():
        shutil.copytree(project, folder / package / "project", ignore=left_out)
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder / package)]
        subprocess.run(command, cwd=folder / package / "project", check=True, capture_output=True, text=True)
        (wheel,) = (folder / package).glob("*.whl")
        (archive,) = (folder / package).glob("*.tar.gz")
        archives[package] = wheel, archive
    return archives


@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_wheels_hold_the_package_and_nothing_else(built, package):
    wheel, _ = built[package]
    assert wheel.name == f"{package}-{mixtune.__version__}-py3-none-any.whl"
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = DISTRIBUTIONS[package] / "src"
    files = (path.relative_to(sources) for path in (sources / package).rglob("*") if path.is_file())
    assert held == {path.as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_source_distributions_can_be_tested(built, package):
    _, archive = built[package]
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", f"src/{package}/__init__.py"} <= held
    assert any(name.startswith("tests/test_") for name in held)


@pytest.mark.parametrize("kind", ["wheel", "source"])
@pytest.mark.parametrize("package", DISTRIBUTIONS)
def test_distributions_work_in_a_clean_environment(built, package, kind, tmp_path):
    pytest.importorskip("pip")
    if package == "mixtune_federated":
        pytest.importorskip("cryptography")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, env=alone, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    needed = {"mixtune", package} | ({"mixtune_options"} if package == "mixtune_paper" else set())
    wheels = [str(built[name][0]) for name in needed - {package}]
    if kind == "wheel":
        wheels.append(str(built[package][0]))
    else:
        # What pip does with a source distribution, with the build system of this environment.
        with tarfile.open(built[package][1]) as archive:
            archive.extractall(tmp_path / "source", filter="data")
        (project,) = (tmp_path / "source").iterdir()
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", str(project))
        wheels += map(str, tmp_path.glob("*.whl"))
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", *wheels)
    # Dependencies come from this environment, all but ours.
    where = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    for folder in {sysconfig.get_paths()[place] for place in ("purelib", "platlib")}:
        for path in Path(folder).iterdir():
            if "mixtune" not in path.name and not (where / path.name).exists():
                (where / path.name).symlink_to(path)
    assert run(str(python), "-m", "mixtune", "--version") == f"mixtune {mixtune.__version__}"
    assert run(str(python.with_name("mixtune")), "--version") == f"mixtune {mixtune.__version__}"
    code = f"{SMOKE[package]}\nimport {package}\nprint({package}.__file__)"
    assert Path(run(str(python), "-c", code)).is_relative_to(where)
    for command, owner in {"price": "options", "federate": "federated", "reproduce": "paper"}.items():
        done = subprocess.run([str(python.with_name("mixtune")), command, "--help"], env=alone, capture_output=True)
        if f"mixtune_{owner}" in needed:
            assert done.returncode == 0, done.stderr
            continue
        assert done.returncode == 2
        assert f"pip install 'mixtune[{owner}]'".encode() in done.stderr
        former = [str(python), "-W", "ignore", "-c", f"import mixtune.{owner}"]
        done = subprocess.run(former, env=alone, capture_output=True, text=True)
        assert done.returncode == 1
        assert f"pip install 'mixtune[{owner}]'" in done.stderr
