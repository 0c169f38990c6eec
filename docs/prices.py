"""Put the results of `python -m benchmarks prices --out docs/results/prices.csv` on the page: python -m docs.prices

Replaces the text between `<!-- NAME -->` and `<!-- end NAME -->` of docs/prices.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.prices import GREEK_ERRORS, NORMAL_99, Result, cases, greek_numbers, read_results, summary, verdict
from docs.numerics import fill, table

PAGE = Path(__file__).with_name("prices.md")
RESULTS = Path(__file__).parent / "results" / "prices.csv"
HEAD = ("option", "reference", "exact", "price, 99% ±", "upper bound", "bias of the steps")
HEAD += ("delta ±", "exact", "vega ±", "exact", "")


def row(result: Result) -> list[str]:
    """One case as cells."""
    greeks = {
        name: [f"{value:.4f} ± {GREEK_ERRORS * error:.4f}", f"{exact:.4f}"]
        for name, value, error, exact in greek_numbers(result)
    }
    return [
        result.name,
        result.source,
        f"{result.exact:.4f}" + (f" ± {result.reference_error:.3f}" if result.reference_error else ""),
        f"{result.price:.4f} ± {NORMAL_99 * result.standard_error:.4f}",
        f"{result.upper:.4f}",
        "" if result.bias is None else f"{result.bias:+.2%}",
        *greeks.get("delta", ["", ""]),
        *greeks.get("vega", ["", ""]),
        verdict(result) if result.holds else f"**{verdict(result)}**",
    ]


def tables(results: Sequence[Result]) -> str:
    """A heading and a table for every group of cases."""
    groups = dict.fromkeys(result.group for result in results)
    parts = [f"### {name}\n\n" + table(HEAD, (row(r) for r in results if r.group == name)) for name in groups]
    return "\n\n".join(parts)


def parts(results: Sequence[Result]) -> dict[str, str]:
    """What belongs between the markers of the page."""
    said = summary(results) + "."
    if missing := len(cases()) - len(results):
        said += f" The other {missing} cases of the command are not in the file of results yet."
    return {"summary": said, "prices": tables(results)}


def results() -> list[Result]:
    """The results in the file, in the order of the cases."""
    found = read_results(RESULTS)
    return [found[case.group, case.name] for case in cases() if (case.group, case.name) in found]


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), parts(results())), encoding="utf-8")
