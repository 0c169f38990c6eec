"""The numerics page says what the benchmark measures."""

from __future__ import annotations

import re

import pytest
from benchmarks.precision import FACTOR, cases

from docs import numerics

PAGE = numerics.PAGE.read_text(encoding="utf-8")


def test_page_states_the_bound_that_is_tested():
    assert f"at most {FACTOR:g} eps times the condition number" in re.sub(r"\s+", " ", PAGE)


def test_every_case_is_on_the_page_within_its_bound():
    for name, found in cases():
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
        written = [float(cell) for cell in line.split("|")[2:-1]]
        assert written[0] == pytest.approx(found.condition, rel=0.5)  # one digit
        assert max(written[1:5]) <= written[5]


def test_script_fills_what_is_between_markers():
    filled = numerics.fill(PAGE, {"products": numerics.table(["a", "b"], [["1", "2"]])})
    assert "<!-- products -->\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n<!-- end products -->" in filled
    with pytest.raises(SystemExit, match="markers of products"):
        numerics.fill(PAGE.replace("<!-- products -->", ""), {"products": ""})
