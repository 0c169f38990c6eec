"""The comparison page: its tables are what the script writes, and its sentences are what the tables say."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest
from benchmarks.transfer import OURS, YARDSTICK, summarise

from docs import comparison


@pytest.fixture(scope="module")
def results():
    return comparison.read()


def by_method(results, problem, variant):
    found = summarise(results)
    return {s.method: s for s in found if (s.problem, s.variant) == (problem, variant)}


def test_page_is_what_the_script_writes(results):
    page = comparison.PAGE.read_text(encoding="utf-8")
    assert comparison.fill(page, results) == page


def test_script_fills_what_is_between_markers(results):
    page = comparison.PAGE.read_text(encoding="utf-8")
    figure = f"{by_method(results, 'exam', 'flip')['pooled'].relative_rmse:.3f}"
    assert figure in page
    assert comparison.fill(page.replace(figure, "9.999"), results) == page
    with pytest.raises(SystemExit, match="markers of vader"):
        comparison.fill(page.replace("<!-- vader -->", ""), results)


def test_figures_follow_from_the_single_cases(results):
    """The same by hand, from the file."""
    errors = defaultdict(list)
    with comparison.RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            errors[row["problem"], row["variant"], row["method"]].append(float(row["rmse"]))
    for summary in summarise(results):
        key = (summary.problem, summary.variant)
        assert summary.relative_rmse == pytest.approx(sum(errors[*key, summary.method]) / sum(errors[*key, YARDSTICK]))
    assert {len(found) for key, found in errors.items() if key[0] == "exam"} == {27}


def test_cases_are_kept_without_what_the_page_does_not_need(results, tmp_path, monkeypatch):
    given, kept = tmp_path / "cases.csv", tmp_path / "kept.csv"
    given.write_text(
        "problem,variant,focal,seed,method,title,rmse,yardstick,seconds,n_test,covered,failure,ratio\n"
        "exam,clean,7,0,focal,Focal,0.92273895,0.92273895,0.0014466,68,,,1.0\n"
        "exam,clean,7,0,pooled,Pooled,,0.92273895,0.5,68,,ValueError: no,\n"
    )
    monkeypatch.setattr(comparison, "RESULTS", kept)
    comparison.keep(given)
    focal, pooled = comparison.read()
    assert (focal.rmse, focal.yardstick, focal.seconds) == (0.922739, 0.922739, 0.00145)
    assert (pooled.rmse, pooled.failure) == (None, "failed")
    assert comparison.behind([focal, pooled], "exam", "clean", OURS) == ""


def test_a_method_that_was_run_again_replaces_only_its_own_cases(tmp_path, monkeypatch):
    kept, given = tmp_path / "kept.csv", tmp_path / "again.csv"
    lines = ["problem,variant,focal,seed,method,rmse,seconds,n_test,covered"]
    for seed in (0, 1):
        lines += [f"exam,clean,7,{seed},{method},0.9,0.1,68," for method in ("mixtune", "focal", "pooled")]
    kept.write_text("\n".join(lines) + "\n")
    given.write_text(
        "\n".join([lines[0], "exam,clean,7,0,adapt-regular,0.8,1,68,", "exam,clean,7,0,mixtune,0.7,1,68,60"])
    )
    monkeypatch.setattr(comparison, "RESULTS", kept)
    comparison.keep(given)
    found = [(result.seed, result.method, result.rmse) for result in comparison.read()]
    assert found[:4] == [(0, "mixtune", 0.7), (0, "focal", 0.9), (0, "pooled", 0.9), (0, "adapt-regular", 0.8)]
    # The case of ours that was not run again would be compared with what it no longer is.
    assert found[4:] == [(1, "focal", 0.9), (1, "pooled", 0.9)]


def test_what_the_page_says_in_words(results):
    """If a new run of the benchmark breaks one of these, change the sentences of the page."""
    ours = {(s.problem, s.variant): s for s in summarise(results) if s.method == OURS}
    assert 1.075 < max(s.worst_ratio for s in ours.values()) < 1.085
    exam, flipped = by_method(results, "exam", "clean"), by_method(results, "ames", "flip")
    assert abs(exam["statsmodels"].relative_rmse - exam[OURS].relative_rmse) < 0.0005
    assert abs(exam["gpboost"].relative_rmse - exam[OURS].relative_rmse) < 0.003
    worse = {name for name, summary in flipped.items() if summary.relative_rmse > 1 and name != YARDSTICK}
    assert worse == {"pooled", "skada", "sklego", "statsmodels", "adapt-balanced", "adapt-augmented"}
    honest, texts = by_method(results, "vader", "clean"), by_method(results, "vader", "flip")
    for found in (honest, texts):
        assert 0 < found["stacked"].relative_rmse - found[OURS].relative_rmse < 0.0145
    best = {column: min(s.relative_rmse for s in by_method(results, *column).values()) for column in ours}
    behind = [column for column, figure in best.items() if figure < ours[column].relative_rmse]
    assert behind == []
    assert not any(name.startswith("adapt") for name in honest)
    for peer in {s.method for s in summarise(results)} - {OURS, YARDSTICK}:
        own = [s for s in summarise(results) if s.method == peer]
        # A column where it is clearly worse than ours, and a case that is worse than ours ever is.
        assert max(s.relative_rmse - ours[s.problem, s.variant].relative_rmse for s in own) > 0.05
        assert max(s.worst_ratio for s in own) > max(s.worst_ratio for s in ours.values())
