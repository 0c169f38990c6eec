"""The page of prices says what the benchmark found."""

from __future__ import annotations

from benchmarks.prices import cases, read_results

from docs import prices

PAGE = prices.PAGE.read_text(encoding="utf-8")


def test_the_page_is_filled_from_the_results():
    assert prices.fill(PAGE, prices.parts(prices.results())) == PAGE


def test_results_are_those_of_the_cases():
    known = {(case.group, case.name): case.source for case in cases()}
    for key, result in read_results(prices.RESULTS).items():
        assert known[key] == result.source
