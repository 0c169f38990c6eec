"""Redraw the architecture page from the code: python -m docs.architecture

Reads the imports of every module with `ast`, without running any, writes the picture docs/images/folders.svg, and puts
the tables of folders and packages (the first lines of their docstrings) on the page, between `<!-- folders -->` and
`<!-- end folders -->`. The page also lists the names of the core that companions may import.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "folders.svg"
#: Every package and its folder of sources; each may import only those before it.
PACKAGES = {
    package: ROOT / "packages" / package.replace("_", "-") / "src" / package
    for package in ("mixtune", "mixtune_options", "mixtune_federated", "mixtune_paper")
}
CORE = PACKAGES["mixtune"]

#: The folders and top-level modules of the core, in the order in which data travels. Each may import only those before
#: it.
FOLDERS = (
    *("_version", "_messages", "errors", "_companions", "arrays", "checks", "files", "_registry"),
    *("data", "features", "moments", "weights", "regret", "choice", "streaming", "engines"),
    *("estimators", "report", "cli", "__main__"),
    *("options", "federated", "paper"),
)
TEAL, GREY = "#1a9988", "#808080"


@dataclass(frozen=True)
class Import:
    """One module imports another; ``lazy`` if only inside a function or for type checkers."""

    importer: str
    imported: str
    lazy: bool


def folder_of(module: str) -> str:
    """The folder or top-level module that a module belongs to; empty for the package itself.

    Examples
    --------
    >>> folder_of("mixtune.regret._problem"), folder_of("mixtune.errors"), folder_of("mixtune")
    ('regret', 'errors', '')
    """
    return module.partition(".")[2].partition(".")[0]


@cache
def modules(package: Path = CORE) -> dict[str, Path]:
    """Every module of a package by its name."""
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        paths[".".join(parts).removesuffix(".__init__")] = path
    return paths


def names_imported(path: Path) -> list[tuple[str, bool]]:
    """Every name that a file imports, with its module, and whether it does so lazily."""
    names = []

    def visit(node: ast.AST, lazy: bool) -> None:
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        lazy = lazy or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        if isinstance(node, ast.Import):
            names.extend((alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.extend((f"{'.' * node.level}{node.module or ''}.{alias.name}", lazy) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy)

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return names


@cache
def imports(package: Path = CORE) -> tuple[Import, ...]:
    """Every import of one module of a package by another."""
    known = modules(package)
    pairs = set()
    for importer, path in known.items():
        for name, lazy in names_imported(path):
            while name not in known and "." in name:
                name = name.rpartition(".")[0]
            if name in known and name != importer:
                pairs.add(Import(importer, name, lazy))
    return tuple(sorted(pairs, key=lambda one: (one.importer, one.imported, one.lazy)))


def import_cycle(package: Path = CORE) -> list[str]:
    """Modules of a package that import one another in a circle when they are imported; empty if there are none."""
    direct: dict[str, list[str]] = {}
    for one in imports(package):
        if not one.lazy and one.imported != package.name:
            direct.setdefault(one.importer, []).append(one.imported)
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for other in direct.get(module, ()):
            if cycle := walk(other, [*path, module]):
                return cycle
        done.add(module)
        return []

    return next((cycle for module in modules(package) if (cycle := walk(module, []))), [])


def private_imports(package: Path = CORE) -> list[Import]:
    """Imports of another folder's private modules."""
    return [
        one
        for one in imports(package)
        if folder_of(one.importer) != folder_of(one.imported)
        and any(part.startswith("_") for part in one.imported.split(".")[2:])
    ]


def folders() -> list[str]:
    """The folders of the core that exist, in order."""
    existing = {folder_of(module) for module in modules()}
    return [folder for folder in FOLDERS if folder in existing]


def first_paragraph(path: Path) -> str:
    """The first paragraph of the docstring of a module, in one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n\n")[0].replace("\n", " ").replace("``", "`").removesuffix(".")


def table() -> str:
    """One line for each folder of the core, then one for each companion: what it is for, and how many modules."""
    sizes = Counter(folder_of(module) for module in modules())
    lines = ["| folder of the core | what it holds | modules |", "|---|---|---|"]
    for folder in folders():
        path = modules()[f"mixtune.{folder}"]
        if about := first_paragraph(path):
            name = f"{folder}/" if path.name == "__init__.py" else f"{folder}.py"
            lines.append(f"| `{name}` | {about} | {sizes[folder]} |")
    lines += ["", "| companion | what it holds | modules |", "|---|---|---|"]
    for package, path in PACKAGES.items():
        if path != CORE:
            lines.append(f"| `{package}` | {first_paragraph(path / '__init__.py')} | {len(modules(path))} |")
    return "\n".join(lines)


def shared_names(page: str) -> dict[str, set[str]]:
    """The names of the core that companions may import, by the lines of the list between the page's markers.

    A line is a name, or a module of plain functions with those that companions use.

    Examples
    --------
    >>> page = "<!-- shared names -->\\n| `mixtune.files`: `pack` | files |\\n<!-- end shared names -->"
    >>> shared_names(page)
    {'mixtune.files': {'mixtune.files.pack'}}
    """
    section = re.search(r"<!-- shared names -->(.*?)<!-- end shared names -->", page, flags=re.DOTALL)
    if section is None:
        raise SystemExit("architecture.md has no markers of shared names")
    shared = {}
    for line in re.findall(r"^\| (`mixtune[^|]*) \|", section[1], flags=re.MULTILINE):
        name, *functions = re.findall(r"`([\w.]+)`", line)
        shared[name] = {f"{name}.{function}" for function in functions} or {name}
    return shared


def names_of_core(package: Path) -> set[str]:
    """The names of the core that a companion uses: what it imports, and of an imported module what it takes from it."""
    return set().union(*map(core_names_in, modules(package).values()))


def core_names_in(path: Path) -> set[str]:
    """The names of the core that one file uses.

    A module of the core is no name. Whoever imports one uses its attributes, each of which counts; the module counts
    itself where it is handed on, since then nobody can see what is taken from it.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = _imported_as(tree)
    core = {own: name for own, name in imported if name in modules(CORE)}
    names = {name for _, name in imported if name.startswith("mixtune.") and name not in modules(CORE)}
    parts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    # Of `a.b.c` the outermost attribute, with the attributes inside it.
    whole = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name) and id(node) not in parts)
    for node in whole:
        first, *attributes = _dotted(node)
        if first in core:
            name = core[first]
            while attributes and name in modules(CORE):
                name = f"{name}.{attributes.pop(0)}"
            names.add(name)
    return names


def _imported_as(tree: ast.AST) -> list[tuple[str, str]]:
    """What a file calls each name that it imports, and the name itself with its module."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [(each.asname or each.name, f"{node.module}.{each.name}") for each in node.names]
        elif isinstance(node, ast.Import):
            for each in node.names:
                # `import a.b` makes the name `a`.
                package = each.name.split(".")[0]
                found.append((each.asname, each.name) if each.asname else (package, package))
    return found


def _dotted(node: ast.expr) -> list[str]:
    """The parts of `a.b.c`; the first is empty where it is no name but a call or the like."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "", *reversed(attributes)]


def private_names(names: set[str]) -> list[str]:
    """Those that have a part with an underscore in front.

    Examples
    --------
    >>> private_names({"mixtune.choice.choose_runs", "mixtune.choice._runs.choose_runs", "mixtune.files._pack"})
    ['mixtune.choice._runs.choose_runs', 'mixtune.files._pack']
    """
    return sorted(name for name in names if any(part.startswith("_") for part in name.split(".")))


def between_folders() -> dict[tuple[str, str], bool]:
    """Which folder imports which, and whether no folder between them already leads there."""
    pairs = {(folder_of(one.importer), folder_of(one.imported)) for one in imports()}
    pairs = {(a, b) for a, b in pairs if a != b and a and b}

    @cache
    def reach(folder: str) -> frozenset[str]:
        return frozenset().union(*({b} | reach(b) for a, b in pairs if a == folder))

    return {(a, b): not any(b in reach(c) for d, c in pairs if d == a and c != b) for a, b in sorted(pairs)}


def picture() -> str:
    """The folders of the core from top to bottom, with an arc on the right from each to those that it imports."""
    left_out = ("_version", "__main__", "engines", "options", "federated", "paper")
    shown = [folder for folder in folders() if folder not in left_out]
    step, top, left, width = 30, 12, 8, 110
    height = {folder: top + step * place + 11 for place, folder in enumerate(shown)}
    edge = left + width
    lines = []
    # Arcs that follow from others first, so that the others are drawn over them.
    for (folder, other), direct in sorted(between_folders().items(), key=lambda pair: pair[1]):
        if folder in height and other in height:
            reach = 14 + 15 * (shown.index(folder) - shown.index(other))
            style = f'stroke="{TEAL}" stroke-width="1.6"' if direct else f'stroke="{GREY}" stroke-opacity="0.3"'
            curve = f"M{edge} {height[folder]} C{edge + reach} {height[folder]} {edge + reach} {height[other]}"
            lines.append(f'<path d="{curve} {edge} {height[other]}" {style}/>')
    boxes = [f'<rect x="{left}" y="{height[folder] - 11}" width="{width}" height="22" rx="4"/>' for folder in shown]
    labels = [f'<text x="{left + 10}" y="{height[folder] + 4}">{escape(folder)}</text>' for folder in shown]
    farthest = max(shown.index(a) - shown.index(b) for a, b in between_folders() if a in height and b in height)
    size = f"{edge + 20 + 15 * farthest * 3 // 4} {top + step * len(shown)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="12">',
            '<g fill="none">',
            *lines,
            "</g>",
            f'<g fill="{GREY}" fill-opacity="0.12" stroke="{GREY}">',
            *boxes,
            "</g>",
            f'<g fill="{GREY}">',
            *labels,
            "</g>",
            "</svg>",
            "",
        ]
    )


def fill(page: str) -> str:
    """The page with fresh tables of folders and companions."""
    filled, count = re.subn(
        r"(?<=<!-- folders -->\n).*?(?=\n<!-- end folders -->)", lambda _: "\n" + table() + "\n", page, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit("architecture.md has no markers of folders, or several")
    return filled


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
