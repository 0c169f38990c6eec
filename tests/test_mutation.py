"""The tool that measures what the tests notice, and the scores that it stored."""

from __future__ import annotations

import ast
import json

import pytest

import mutation


@pytest.mark.parametrize("room", json.loads(mutation.STORED.read_text()))
def test_stored_scores_are_high_enough(room):
    assert json.loads(mutation.STORED.read_text())[room]["score"] >= mutation.LIMIT


def test_mutants_differ_in_one_place(tmp_path, monkeypatch):
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    path = tmp_path / "one.py"
    path.write_text(
        "def f(x: Literal[1] = 2):\n"
        '    """Add 1."""\n'
        "    if not x and x <= 3 < 4:  # ä\n"
        '        raise ValueError("ü" * 2)\n'
        '    y = f"{x + 1}"; x += 1  # no mutant: for this test\n'
        "    return -x**2, True, 1e100\n"
    )
    found = [f"{mutant.before} -> {mutant.after}" for mutant in mutation.mutants_of("regret", path)]
    assert sorted(found) == sorted(
        [
            "2 -> 3",
            "not x and x <= 3 < 4 -> not x or x <= 3 < 4",
            "not x -> x",
            "x <= 3 < 4 -> x < 3 < 4",
            "x <= 3 < 4 -> x <= 3 <= 4",
            "3 -> 4",
            "4 -> 5",
            "return (-x ** 2, True, 1e+100) -> return None",
            "-x ** 2 -> x ** 2",
            "x ** 2 -> x * 2",
            "2 -> 3",
            "True -> False",
        ]
    )
    for mutant in mutation.mutants_of("regret", path):
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(path.read_text()))
