"""Put the results of `python -m benchmarks prices --out docs/results/prices.csv` on the page: python -m docs.prices

Replaces the text between `<!-- NAME -->` and `<!-- end NAME -->` of docs/prices.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.prices import GREEK_ERRORS, GREEKS, NORMAL_99, Result, cases, read_results, summary, verdict
from docs.numerics import fill, table

PAGE = Path(__file__).with_name("prices.md")
RESULTS = Path(__file__).parent / "results" / "prices.csv"
HEAD = ("option", "reference", "exact", "price, 99% ±", "upper bound", "bias of the steps", "")
GREEK_HEAD = ("option", *(cell for name in GREEKS for cell in (f"{name} ±", "exact")))


def row(result: Result) -> list[str]:
    """One case as cells."""
    return [
        result.name,
        result.source,
        f"{result.exact:.4f}" + (f" ± {result.reference_error:.3f}" if result.reference_error else ""),
        f"{result.price:.4f} ± {NORMAL_99 * result.standard_error:.4f}",
        f"{result.upper:.4f}",
        "" if result.bias is None else f"{result.bias:+.2%}",
        verdict(result) if result.holds else f"**{verdict(result)}**",
    ]


def greek_row(result: Result) -> list[str]:
    """The Greeks of one case as cells; small ones with more digits."""
    cells = [result.name]
    for name in GREEKS:
        own, digits = result.greeks.get(name), 5 if name == "gamma" else 4
        if own is None:
            cells += ["", ""]
        else:
            cells += [f"{own.value:.{digits}f} ± {GREEK_ERRORS * own.error:.{digits}f}", f"{own.exact:.{digits}f}"]
    return cells


def tables(results: Sequence[Result]) -> str:
    """A heading and two tables, prices and Greeks, for every group of cases."""
    parts = []
    for name in dict.fromkeys(result.group for result in results):
        own = [result for result in results if result.group == name]
        parts.append(f"### {name}\n\n" + table(HEAD, map(row, own)))
        if compared := [result for result in own if result.greeks]:
            parts.append(
                f"Greeks, with {GREEK_ERRORS:g} standard errors:\n\n" + table(GREEK_HEAD, map(greek_row, compared))
            )
    return "\n\n".join(parts)


def parts(results: Sequence[Result]) -> dict[str, str]:
    """What belongs between the markers of the page."""
    said = summary(results) + "."
    if missing := len(cases()) - len(results):
        said += f" The other {missing} cases of the command are not in the file of results yet."
    wanted = {(case.group, case.name): set(case.greeks) for case in cases()}
    if partial := sum(set(result.greeks) < wanted[result.group, result.name] for result in results):
        said += f" The Greeks of {partial} of these cases are not in the file of results yet."
    return {"summary": said, "prices": tables(results)}


def results() -> list[Result]:
    """The results in the file, in the order of the cases."""
    found = read_results(RESULTS)
    return [found[case.group, case.name] for case in cases() if (case.group, case.name) in found]


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts(results())), encoding="utf-8")
