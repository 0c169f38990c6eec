"""Read the code blocks of a page and run them as a reader would: in order, in one folder, with one Python session.

* ``python`` blocks share one namespace;
* ``sh`` blocks hold commands that start with ``mixtune``; other lines (``pip``, ``make``) are for the reader;
* a ``text`` block right after one of these is what it prints. Words must agree, numbers nearly (they depend on the
  linear algebra library), and ``...`` stands for whatever comes there;
* ``<!-- needs: module, module -->`` in a page names what must be installed to run it.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from mixtune.cli import make_app

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>.*)$")
NEEDS = re.compile(r"<!-- needs: (.+?) -->")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
#: How far printed numbers may be from those on the page: relative to them, or in units of their last digit.
RELATIVE, UNITS = 0.05, 2


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the page's line of its first line of code, and the code."""

    language: str
    line: int
    code: str


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found, opening = [], None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        match = FENCE.match(line)
        if opening is None and match:
            opening, lines = match, []
            start = number + 1
        elif opening is not None and match and match["fence"] == opening["fence"] and not match["info"].strip():
            language = (opening["info"].split() or [""])[0]
            found.append(Block(language, start, "\n".join(lines) + "\n"))
            opening = None
        elif opening is not None:
            lines.append(line.removeprefix(opening["indent"]))
    assert opening is None, f"{page.name} has a code block that is not closed"
    return found


def needs_of(page: Path) -> list[str]:
    """Modules without which the page cannot run."""
    found = NEEDS.search(page.read_text(encoding="utf-8"))
    return [name.strip() for name in found[1].split(",")] if found else []


def run_page(page: Path) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in the current folder; give each output block with what was really printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks_of(page):
        if block.language == "python":
            printed = _run_python(page, block, namespace)
        elif block.language == "sh":
            printed = _run_commands(page, block)
        elif block.language == "text" and printed is not None:
            yield block, printed
            printed = None
        else:
            printed = None


def _run_python(page: Path, block: Block, namespace: dict[str, Any]) -> str:
    caught = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(caught):
        warnings.simplefilter("error")
        # Blank lines in front make line numbers of tracebacks those of the page.
        exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
    return caught.getvalue()


def _run_commands(page: Path, block: Block) -> str:
    printed = ""
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["mixtune"]:
            continue
        given = [path for word in words[1:] for path in _expanded(word)]
        result = CliRunner().invoke(make_app(), given, env={"COLUMNS": "80", "TERM": "dumb"})
        assert result.exit_code == 0, f"{page.name}, line {block.line}: {line}\n{result.output}\n{result.exception!r}"
        printed += result.stdout
    return printed


def _expanded(word: str) -> list[str]:
    """What a shell makes of a word with a star in it."""
    return sorted(str(path) for path in Path().glob(word)) if "*" in word else [word]


def differences(expected: str, printed: str) -> str | None:
    """Say how what was printed differs from what the page says, or None.

    Examples
    --------
    >>> differences("ours 0.72 ...", "ours 0.73 in 2 s")
    >>> differences("ours 0.72", "ours 0.92")
    'the page says 0.72, printed was 0.92'
    """
    expected, printed = " ".join(expected.split()), " ".join(printed.split())
    parts = [re.escape(NUMBER.sub("\0", part)).replace("\0", f"({NUMBER.pattern})") for part in expected.split("...")]
    found = re.fullmatch("(?s:.*?)".join(parts), printed)
    if found is None:
        return f"the page says\n{expected}\nprinted was\n{printed}"
    for said, was in zip(NUMBER.findall(expected.replace("...", " ")), found.groups()):
        numbers = [float(text.replace(",", "")) for text in (said, was)]
        decimals = len(said.partition("e")[0].partition(".")[2])
        if not math.isclose(*numbers, rel_tol=RELATIVE, abs_tol=UNITS * 10.0**-decimals):
            return f"the page says {said}, printed was {was}"
    return None
