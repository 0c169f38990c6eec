"""Redraw the architecture page from the code: python -m docs.architecture

Reads the imports of every module with `ast`, without running any, writes the picture docs/images/folders.svg, and puts
the table of folders (the first lines of their docstrings) on the page, between `<!-- folders -->` and
`<!-- end folders -->`.
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
PACKAGE = ROOT / "src" / "mixtune"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "folders.svg"

#: The folders and top-level modules, in the order in which data travels. Each may import only those before it.
ROOMS = (
    *("_version", "_messages", "errors", "_array", "_checks", "_files", "_registry"),
    *("data", "features", "moments", "weights", "regret", "selection", "streaming", "engines", "federated"),
    *("estimators", "options", "paper", "report", "cli", "__main__"),
)
TEAL, GREY = "#1a9988", "#808080"


@dataclass(frozen=True)
class Import:
    """One module of the package imports another; ``lazy`` if only inside a function or for type checkers."""

    importer: str
    imported: str
    lazy: bool


def room_of(module: str) -> str:
    """The folder or top-level module that a module belongs to; empty for the package itself.

    Examples
    --------
    >>> room_of("mixtune.regret._problem"), room_of("mixtune.errors"), room_of("mixtune")
    ('regret', 'errors', '')
    """
    return module.partition(".")[2].partition(".")[0]


@cache
def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def names_imported(path: Path) -> list[tuple[str, bool]]:
    """Every name that a file imports, with its module, and whether it does so lazily."""
    found = []

    def visit(node: ast.AST, lazy: bool) -> None:
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        lazy = lazy or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        if isinstance(node, ast.Import):
            found.extend((alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.extend((f"{'.' * node.level}{node.module or ''}.{alias.name}", lazy) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy)

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return found


@cache
def imports(package: Path = PACKAGE) -> tuple[Import, ...]:
    """Every import of one module of the package by another."""
    known = modules(package)
    found = set()
    for importer, path in known.items():
        for name, lazy in names_imported(path):
            while name not in known and "." in name:
                name = name.rpartition(".")[0]
            if name in known and name != importer:
                found.add(Import(importer, name, lazy))
    return tuple(sorted(found, key=lambda one: (one.importer, one.imported, one.lazy)))


def longest_chain() -> list[str]:
    """Modules each of which imports the next when it is itself imported, as many as there are."""
    direct: dict[str, list[str]] = {}
    for one in imports():
        if not one.lazy:
            direct.setdefault(one.importer, []).append(one.imported)

    @cache
    def below(module: str) -> tuple[str, ...]:
        return (module, *max((below(other) for other in direct.get(module, ())), key=len, default=()))

    return list(max((below(module) for module in modules()), key=len))


def private_imports() -> list[Import]:
    """Imports of another room's private modules."""
    return [
        one
        for one in imports()
        if room_of(one.importer) != room_of(one.imported)
        and any(part.startswith("_") for part in one.imported.split(".")[2:])
    ]


def rooms() -> list[str]:
    """The rooms that exist, in order."""
    there = {room_of(module) for module in modules()}
    return [room for room in ROOMS if room in there]


def table() -> str:
    """One line for each room: what it is for, in its own words, and how many modules it has."""
    sizes = Counter(room_of(module) for module in modules())
    lines = ["| folder | what it holds | modules |", "|---|---|---|"]
    for room in rooms():
        docstring = ast.get_docstring(ast.parse(modules()[f"mixtune.{room}"].read_text(encoding="utf-8")))
        if docstring:
            name = f"{room}/" if modules()[f"mixtune.{room}"].name == "__init__.py" else f"{room}.py"
            about = docstring.split("\n\n")[0].replace("\n", " ").replace("``", "`").removesuffix(".")
            lines.append(f"| `{name}` | {about} | {sizes[room]} |")
    return "\n".join(lines)


def between_rooms() -> dict[tuple[str, str], bool]:
    """Which room imports which, and whether no room between them already leads there."""
    pairs = {(room_of(one.importer), room_of(one.imported)) for one in imports()}
    pairs = {(a, b) for a, b in pairs if a != b and a and b}

    @cache
    def reach(room: str) -> frozenset[str]:
        return frozenset().union(*({b} | reach(b) for a, b in pairs if a == room))

    return {(a, b): not any(b in reach(c) for d, c in pairs if d == a and c != b) for a, b in sorted(pairs)}


def picture() -> str:
    """The rooms from top to bottom, with an arc on the right from each to those that it imports."""
    shown = [room for room in rooms() if room not in ("_version", "__main__")]
    step, top, left, width = 30, 12, 8, 110
    height = {room: top + step * place + 11 for place, room in enumerate(shown)}
    edge = left + width
    lines = []
    # Arcs that follow from others first, so that the others are drawn over them.
    for (room, other), direct in sorted(between_rooms().items(), key=lambda pair: pair[1]):
        if room in height and other in height:
            reach = 14 + 15 * (shown.index(room) - shown.index(other))
            style = f'stroke="{TEAL}" stroke-width="1.6"' if direct else f'stroke="{GREY}" stroke-opacity="0.3"'
            curve = f"M{edge} {height[room]} C{edge + reach} {height[room]} {edge + reach} {height[other]}"
            lines.append(f'<path d="{curve} {edge} {height[other]}" {style}/>')
    boxes = [
        f'<rect x="{left}" y="{height[room] - 11}" width="{width}" height="22" rx="4"/>'
        f'<text x="{left + 10}" y="{height[room] + 4}">{escape(room)}</text>'
        for room in shown
    ]
    farthest = max(shown.index(a) - shown.index(b) for a, b in between_rooms() if a in height and b in height)
    size = f"{edge + 20 + 15 * farthest * 3 // 4} {top + step * len(shown)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="12">',
            '<g fill="none">',
            *lines,
            "</g>",
            f'<g fill="{GREY}" fill-opacity="0.12" stroke="{GREY}">',
            *(box.partition("<text")[0] for box in boxes),
            "</g>",
            f'<g fill="{GREY}">',
            *("<text" + box.partition("<text")[2] for box in boxes),
            "</g>",
            "</svg>",
            "",
        ]
    )


def fill(page: str) -> str:
    """The page with a fresh table of folders."""
    filled, count = re.subn(
        r"(?<=<!-- folders -->\n).*?(?=\n<!-- end folders -->)", lambda _: "\n" + table() + "\n", page, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit("architecture.md has no markers of folders, or several")
    return filled


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
