"""Tables 1 and 2 as people read them: relative performances next to the published ones, and what is ours apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.paper._published import Published
from mixtune.paper._study import Results, Table

__all__ = ["BEYOND", "PAPER", "TableSummary", "summarise_table"]

#: Blocks of a summary: the paper's settings, and what is ours.
PAPER, BEYOND = "the paper's settings", "beyond the paper"


@dataclass(frozen=True, eq=False)
class TableSummary:
    """Relative performances next to the published ones, and beyond the paper: methods without hand-set numbers."""

    title: str
    runs: int
    lines: list[dict[str, Any]]
    lead: str | None = None

    def as_json(self) -> list[dict[str, Any]]:
        return self.lines

    def headline(self) -> Table:
        rows: list[dict[str, str]] = []
        for line in self.lines:
            if line["block"] == BEYOND and not any(row["method"] == f"{BEYOND}:" for row in rows):
                rows.append(dict.fromkeys(rows[0], "") | {"method": f"{BEYOND}:"})
            rows.append(_shown(line))
        return rows

    def notes(self) -> list[str]:
        judged = [line for line in self.lines if line["agrees"] is not None]
        agreeing = sum(line["agrees"] for line in judged)
        found = [
            f"{agreeing} of {len(judged)} published rows agree over {self.runs} runs: the intervals overlap, or the "
            "means differ by at most 0.015.",
            "Rows without published figures are ours: the authors' Wasserstein weights, and LO-1 with its ridge tuned.",
        ]
        return found if self.lead is None else [*found, self.lead]

    def tables(self) -> dict[str, Table]:
        blocks = {self.title: PAPER, f"{self.title}_beyond": BEYOND}
        found = {name: [line for line in self.lines if line["block"] == block] for name, block in blocks.items()}
        return {name: lines for name, lines in found.items() if lines}


def _shown(line: Mapping[str, Any]) -> dict[str, str]:
    """A line as people read it."""

    def interval(low: float | None, high: float | None) -> str:
        return "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"

    return {
        "method": line["method"],
        "RP": f"{line['rp']:.3f}",
        "95% interval": interval(line["ci_low"], line["ci_high"]),
        "paper": "" if line["paper_rp"] is None else f"{line['paper_rp']:.3f}",
        "its interval": interval(line["paper_ci_low"], line["paper_ci_high"]),
        "agrees": {True: "yes", False: "NO", None: ""}[line["agrees"]],
    }


def summarise_table(results: Results, published: Mapping[str, Published], beyond: list[str]) -> TableSummary:
    """RP = mean price / mean price of LO-1; the interval is RP +- 1.96 sd(prices)/(mean LO-1 price)/sqrt(runs)."""
    base = float(results.values("LO-1", "price").mean())
    lines = []
    for method in results.methods:
        prices = results.values(method, "price")
        rp = float(prices.mean()) / base
        theirs = published.get(method)
        low = high = None
        if results.runs > 1:  # one run has no interval
            half = 1.96 * float(prices.std(ddof=1)) / base / float(np.sqrt(results.runs))
            low, high = rp - half, rp + half
        agrees = None if theirs is None or low is None or high is None else theirs.agrees(rp, low, high)
        lines.append(
            {
                "method": method,
                "block": BEYOND if method in beyond else PAPER,
                "rp": rp,
                "ci_low": low,
                "ci_high": high,
                "paper_rp": None if theirs is None else theirs.rp,
                "paper_ci_low": None if theirs is None else theirs.ci_low,
                "paper_ci_high": None if theirs is None else theirs.ci_high,
                "agrees": agrees,
            }
        )
    shown = beyond and set(beyond) <= set(results.methods) and results.runs > 1
    lead = _lead(results, beyond, base) if shown else None
    return TableSummary(results.experiment, results.runs, lines, lead)


def _lead(results: Results, beyond: list[str], base: float) -> str:
    """How the self-tuning method compares with the best of its rivals, run by run."""
    *rivals, ours = beyond
    best = max(rivals, key=lambda name: float(results.values(name, "price").mean()))
    ahead = (results.values(ours, "price") - results.values(best, "price")) / base
    half = 1.96 * float(ahead.std(ddof=1)) / float(np.sqrt(results.runs))
    return (
        "Beyond the paper: no numbers set by hand, inputs standardised, zero payoffs never exercised. "
        f"{ours} minus the best of its rivals, {best}: {float(ahead.mean()):+.3f} +- {half:.3f} (95%, run by run)."
    )
