"""The page on speed: its tables are what the script writes from the stored run, and its commands exist."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import replace

import pytest
from benchmarks.__main__ import names
from benchmarks.results import read

from docs import performance

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def results():
    return read(performance.MAIN)


def test_page_is_what_the_script_writes(results):
    page = performance.PAGE.read_text(encoding="utf-8")
    assert performance.fill(page, performance.blocks(results)) == page


def test_figures_are_those_of_the_file(results):
    """Every claim of the file, by hand: its line, its ratio, and whether it holds."""
    page = performance.PAGE.read_text(encoding="utf-8").partition("<!-- end claims -->")[0]
    document = json.loads(performance.MAIN.read_text(encoding="utf-8"))
    claims = [(name, claim) for name, part in document["parts"].items() for claim in part["claims"]]
    assert claims
    for name, claim in claims:
        what = claim["name"].replace("|", "\\|")
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` | {what} |")]
        ratio = claim["ours"] / claim["other"]
        assert f"{ratio:.3g}" in line
        assert ("missed" in line) == (ratio > claim["limit"])


def test_script_fills_what_is_between_markers(results):
    page = performance.PAGE.read_text(encoding="utf-8")
    claim = next(claim for part in results.parts.values() for claim in part.claims)
    figure = f"| {performance.amount(claim.ours, claim.unit)} |"
    assert figure in page
    assert performance.fill(page.replace(figure, "| 99 |"), performance.blocks(results)) == page
    with pytest.raises(SystemExit, match="markers of claims"):
        performance.fill(page.replace("<!-- claims -->", ""), performance.blocks(results))


def test_a_missed_claim_is_marked(results):
    name, part = next((name, part) for name, part in results.parts.items() if part.claims)
    missed = replace(part.claims[0], limit=part.claims[0].ratio / 2)
    assert "missed" in performance.claim_row(name, missed)
    assert "the others are marked" in performance.counts({name: replace(part, claims=(missed,))})


def test_nothing_tells_whose_machine_it_was():
    text = "".join(path.read_text(encoding="utf-8") for path in performance.RESULTS.glob("performance*.json"))
    assert platform.node() not in text
    assert not re.search(r"(?<![\w])/(?:home|root|tmp|usr|work|Users)\b", text)


@pytest.mark.parametrize("page", ["performance.md", "scaling.md"])
def test_commands_name_benchmarks_that_exist(page):
    text = performance.PAGE.with_name(page).read_text(encoding="utf-8")
    named = re.findall(r"python -m benchmarks ((?:[a-z_0-9]+ ?)*)", text)
    assert {word for found in named for word in found.split()} <= set(names())


def test_curves_are_drawn_small(results, tmp_path):
    performance.draw(results, tmp_path / "growth.svg")
    assert (tmp_path / "growth.svg").stat().st_size < 60_000
    assert {figure.about.partition(":")[0] for figure in results.figures("curve")} == {"n", "p", "N", "T"}
    tuned = read(performance.ONE_THREAD)
    performance.draw_tuned(tuned, tmp_path / "tuned.svg")
    assert (tmp_path / "tuned.svg").stat().st_size < 90_000
    axes = [figure.about.partition(":")[0] for figure in tuned.figures("tuned")]
    assert axes == ["n", "p", "N", "outputs", "classes"]
