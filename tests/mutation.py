"""Do the tests notice small mistakes? Make them one at a time, and count those that a room's tests find.

    python tests/mutation.py [ROOM ...] [--sample N] [--seed S] [--jobs J]

A mutant is one file with one small change: another operator, comparison or number, ``and`` for ``or``, a condition
without its ``not``, a function that returns None. Each is run in a copy of the project, with the tests and examples of
its room, until the first failure. A run that is stopped continues where it was, as long as file and tests are the same
(.mutants/). The scores are kept in tests/mutants.json with the mutants that no test noticed, and the exit status is 1
where one is below the limit. Annotations, messages of errors and decorators are left alone, and so are lines with the
comment "no mutant: REASON", for changes that make no difference. Files of settings hold constants only, whose effect is
a matter of measurement, and are left out.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "packages" / "mixtune" / "tests"
STORED = ROOT / "tests" / "mutants.json"
CACHE = ROOT / ".mutants" / "outcomes.json"
ROOMS = ("regret", "moments", "weights", "choice")
LIMIT = 0.85
COPIED = ("packages", "tests", "benchmarks", "docs", "conftest.py", "pyproject.toml")

OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
#: Never changed: what only readers, type checkers or error messages see. Positions inside f-strings are not reliable.
LEFT_ALONE = (ast.JoinedStr, ast.Raise, ast.Import, ast.ImportFrom)
LEFT_ALONE_FIELDS = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Mutant:
    """One change: the file, its line, what was there and what is there instead, and the whole text with it."""

    room: str
    path: str
    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}: {self.before} -> {self.after}"


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """Small changes of one node.

    Examples
    --------
    >>> [ast.unparse(each) for each in variants(ast.parse("a < 2", mode="eval").body)]
    ['a <= 2']
    """
    changed = copy.deepcopy(node)
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OPERATORS:
        changed.op = OPERATORS[type(node.op)]()
        yield changed
    elif isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = OPERATORS[type(operator)]()
            yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield changed.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        changed.value = not node.value if isinstance(node.value, bool) else node.value + 1
        if changed.value != node.value:  # 1e100 + 1 is 1e100
            yield changed
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        changed.value = ast.Constant(None)
        yield changed


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it that may be changed."""
    if isinstance(node, LEFT_ALONE) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in LEFT_ALONE_FIELDS:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from nodes(child)


def mutants_of(room: str, path: Path) -> Iterator[Mutant]:
    """All mutants of one file."""
    source = path.read_bytes()
    lines = source.splitlines(keepends=True)
    starts = [0, *(sum(map(len, lines[: number + 1])) for number in range(len(lines)))]
    for node in nodes(ast.parse(source)):
        for changed in variants(node):
            if b"no mutant:" in lines[node.lineno - 1]:
                continue
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            after = ast.unparse(changed)
            inserted = after if isinstance(node, ast.stmt) else f"({after})"
            text = (source[:begin] + inserted.encode() + source[end:]).decode()
            yield Mutant(room, str(path.relative_to(ROOT)), node.lineno, ast.unparse(node), after, text)


def files_to_run(room: str, path: str) -> list[str]:
    """What to run: the tests named like the file first, because they probably notice; then the rest of the room."""
    words = set(Path(path).stem.split("_"))
    tests = sorted((TESTS / room).rglob("test_*.py"))
    likely = sorted(tests, key=lambda test: -len(words & set(test.stem.split("_"))))
    return [*(str(test.relative_to(ROOT)) for test in likely), f"packages/mixtune/src/mixtune/{room}"]


#: Runs pytest in a fork of a process that has already imported what most tests need, which takes longer than the tests.
SERVER = """
import os, sys
import numpy, pytest, scipy.stats, sklearn.linear_model
try:
    import torch
except ImportError:
    pass
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(1, 2)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.setsid()
        os._exit(pytest.main(line.split()))
    print(child, file=answers, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
"""


class Workshop:
    """A copy of the project in which one mutant at a time is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
            elif source.exists():
                shutil.copy(source, folder / name)
        given = {**os.environ, "PYTHONPATH": str(folder / "packages/mixtune/src"), "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.server = subprocess.Popen([sys.executable, "-c", SERVER], cwd=folder, env=given, **pipes)

    def passes(self, tests: list[str], timeout: float = math.inf) -> bool:
        """Whether the tests pass; those that run too long do not."""
        print("-x -q -p no:cacheprovider", *tests, file=self.server.stdin, flush=True)
        # The tests are a group of their own, so that processes started by them end with them.
        group = int(self.server.stdout.readline())
        end = threading.Timer(min(timeout, threading.TIMEOUT_MAX), os.killpg, (group, signal.SIGKILL))
        end.start()
        status = int(self.server.stdout.readline())
        end.cancel()
        return status == 0

    def survives(self, mutant: Mutant, timeout: float) -> bool:
        """Whether no test notices the mutant; the file is as it was afterwards."""
        target = self.folder / mutant.path
        original = target.read_bytes()
        # Bytecode is judged by size and time in seconds, which two versions of a file may share.
        cached = target.parent / "__pycache__"
        try:
            for stale in cached.glob(f"{target.stem}.*"):
                stale.unlink()
            target.write_text(mutant.text, encoding="utf-8")
            return self.passes(files_to_run(mutant.room, mutant.path), timeout)
        finally:
            target.write_bytes(original)
            for stale in cached.glob(f"{target.stem}.*"):
                stale.unlink()


def key_of(mutant: Mutant) -> str:
    """Changes with the file or with the room's tests."""
    parts = [mutant.text, *(path.read_text("utf-8") for path in sorted((TESTS / mutant.room).rglob("*.py")))]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def run(chosen: list[Mutant], jobs: int, baseline: dict[str, float], shops: list[Workshop]) -> dict[str, bool]:
    """Whether each mutant was noticed, by its key; what is known from an earlier run is not run again."""
    known: dict[str, bool] = json.loads(CACHE.read_text()) if CACHE.exists() else {}
    lock = threading.Lock()

    def judge(mutant: Mutant) -> None:
        with lock:
            shop = shops.pop()
        noticed = not shop.survives(mutant, 10 + 5 * baseline[mutant.room])
        with lock:
            shops.append(shop)
            known[key_of(mutant)] = noticed
            CACHE.write_text(json.dumps(known))
            print("noticed " if noticed else "SURVIVED", mutant.name, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(judge, [mutant for mutant in chosen if key_of(mutant) not in known]))
    return known


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("room", nargs="*", default=list(ROOMS), help=f"by default {', '.join(ROOMS)}")
    parser.add_argument("--sample", type=int, metavar="N", help="N random mutants of each room; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the sample; 0 by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at once")
    given = parser.parse_args()
    every = {
        room: [
            mutant
            for path in sorted((ROOT / "packages/mixtune/src/mixtune" / room).rglob("*.py"))
            if path.name != "_settings.py"
            for mutant in mutants_of(room, path)
        ]
        for room in given.room
    }
    chosen = {
        # A larger sample of the same seed begins with the smaller one, so that it continues a run.
        room: random.Random(given.seed).sample(found, len(found))[: given.sample]
        for room, found in every.items()
    }
    CACHE.parent.mkdir(exist_ok=True)
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        shops = [Workshop(Path(folder) / str(number)) for number in range(given.jobs)]
        baseline = {}
        for room in given.room:
            begin = time.perf_counter()
            if not shops[0].passes(files_to_run(room, "")):
                print(f"the tests of {room} fail without any change; mend them first", file=sys.stderr)
                return 2
            baseline[room] = time.perf_counter() - begin
        for room, mutants in chosen.items():
            outcomes = run(mutants, given.jobs, baseline, shops)
            survivors = sorted(mutant.name for mutant in mutants if not outcomes[key_of(mutant)])
            score = 1 - len(survivors) / len(mutants)
            stored[room] = {"possible": len(every[room]), "tried": len(mutants), "seed": given.seed}
            stored[room] |= {"score": round(score, 4), "survivors": survivors}
            print(f"{room}: {len(mutants) - len(survivors)} of {len(mutants)} mutants noticed, {score:.1%}")
            STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=1, ensure_ascii=False) + "\n")
    return int(any(stored[room]["score"] < LIMIT for room in given.room))


if __name__ == "__main__":
    raise SystemExit(main())
