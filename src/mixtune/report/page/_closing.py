"""The page's sections on the fit itself: left-out rows, what was averaged, settings, and the words used."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import sklearn

from mixtune._version import __version__
from mixtune.report.page._charts import left_out_chart, residual_chart
from mixtune.report.page._facts import CandidateFact, Facts, shares_by_family
from mixtune.report.page._left_out import MOST_OUTPUTS, ClassFact, wilson_interval
from mixtune.report.page._sections import prose, section
from mixtune.report.page._tables import bar, cell, name_cell, table
from mixtune.report.page._words import column, count, escape, number, percent, percent_column, plain_value

__all__ = ["average_section", "glossary_section", "row_section", "settings_section"]

TOP_CANDIDATES = 10
#: Larger tables of classes cannot be read.
MOST_CLASSES = 12
FAMILIES = {
    "focal only": "a ridge fit to the focal rows, without the others",
    "alike": "one learned prior for all sources",
    "nearest": "a prior from the sources that predict the focal rows best",
    "similar": "a prior from the sources whose features are like the focal ones",
    "similar, one level": "a prior with one intercept from the sources whose features are like the focal ones",
    "groups": "sources in two groups, each with its own prior",
    "context": "a prior that goes with what the focal features are like on average",
    "stacked": "held to a sum of the sources' heads, with weights that fit the focal rows",
    "pooled": "held to one head fitted to the likeliest sources together",
    "pooled, one level": "held to one head and one intercept of the likeliest sources together",
}
GLOSSARY = {
    "Focal dataset": "The one you want predictions for. All errors on this page are measured on its rows.",
    "Source": "Any other dataset. It counts as far as it helps the focal one.",
    "Left-out error": "Each focal row is predicted by a fit that has not seen it; the error is the root of the mean "
    "squared miss, in the units of the target.",
    "Weight": "The share of the prediction that a dataset provides. All weights add up to 100%.",
    "Head": "The linear model on top of the features. Every dataset gets one of its own to start from.",
    "Distance": "The Wasserstein distance: how far rows must be moved on average to turn one dataset into the other.",
    "Sampling floor": "The distance that chance alone makes: between two halves of the focal rows.",
    "Effective ridge": "How firmly the fit is held to what the other datasets suggest. Near zero, it is free.",
    "Energy": "What the fit pays in all: the loss it ends with and the price of getting there. The smaller the better.",
    "Interval": "A 90% interval should hold nine of ten new values. A 95% interval of an error shows how far it may be "
    "off because there are only so many focal rows.",
    "Play": "A rehearsal: a source takes the focal part, so that the choice between fits is learned on more than one "
    "dataset.",
}


def row_section(facts: Facts) -> str:
    """Left-out predictions and residuals, or the table of classes."""
    if facts.classes is not None:
        return _class_section(facts.classes)
    heading = "On the focal rows"
    if not facts.left_out:
        text = "Leave-one-out cannot judge these rows: without one of them there is nothing left to predict it from."
        return section("rows", heading, prose(text))
    outputs = facts.left_out[0].outputs
    text = "Every row is predicted by a fit without it, so this is what to expect of new rows from the same place."
    if outputs > MOST_OUTPUTS:
        text += f" There are {outputs} outputs; the charts show the first."
    elif outputs > 1:
        text += f" There are {outputs} outputs; each has its own charts."
    charts = "".join(
        f'<div class="charts">{left_out_chart(rows, f"rows{k}")}{residual_chart(rows, f"residuals{k}")}</div>'
        for k, rows in enumerate(facts.left_out)
    )
    return section("rows", heading, prose(text), charts)


def _class_section(classes: ClassFact) -> str:
    low, high = wilson_interval(classes.right, classes.rows)
    text = (
        f"Each row is classified by a fit without it: {classes.right:,} of {classes.rows:,} are right, "
        f"{percent(classes.right / classes.rows)} (95% interval {percent(low)} to {percent(high)}). "
        "Errors elsewhere on this page are those of the class scores, which should be +1 for the class and \u22121 for "
        "any other."
    )
    if len(classes.names) > MOST_CLASSES:
        return section("rows", "On the focal rows", prose(text))
    rows = []
    for place, (name, counts) in enumerate(zip(classes.names, classes.counts)):
        most = sum(counts) or 1
        cells = [
            cell(bar(n / most, f"{n:,}", style="" if k == place else "far"), f"taken for {classes.names[k]}")
            for k, n in enumerate(counts)
        ]
        rows.append(name_cell(name) + "".join(cells))
    heads = [("actual class", ""), *((f"taken for {name}", "num") for name in classes.names)]
    return section("rows", "On the focal rows", prose(text), table(heads, rows, caption="Actual and left-out classes"))


def average_section(facts: Facts) -> str:
    """Which fits were averaged, and with which shares."""
    if not facts.candidates:
        return ""
    families = shares_by_family(facts.candidates)
    plays = f" {count(facts.plays, 'source')} played the focal dataset to rehearse the choice." if facts.plays else ""
    text = (
        f"{count(len(facts.candidates), 'candidate fit')} were averaged. A candidate's share grows with how well it "
        f"does on focal rows it has not seen{' and in rehearsals' if facts.plays else ''}.{plays}"
        if len(facts.candidates) > 1
        else "There was one candidate."
    )
    bands = "".join(
        f'<i class="c{k % 5}" style="width:{100 * share:.2f}%"></i>' for k, (_, share, _) in enumerate(families)
    )
    legend = "".join(
        f'<li><i class="c{k % 5}"></i><span><b>{escape(name)}</b> {percent(share)}'
        f'<span class="why">{escape(FAMILIES.get(name, ""))}{"; " if name in FAMILIES else ""}'
        f"{count(n, 'candidate')}</span></span></li>"
        for k, (name, share, n) in enumerate(families)
    )
    return section(
        "average",
        "What was averaged",
        prose(text),
        f'<div class="bands" role="img" aria-label="Shares of the families">{bands}</div>',
        f'<ul class="legend">{legend}</ul>',
        _candidate_table(facts.candidates),
    )


def _candidate_table(candidates: tuple[CandidateFact, ...]) -> str:
    top = candidates[:TOP_CANDIDATES]
    most = max((c.share for c in top), default=0.0) or 1.0
    played = any(c.play_error is not None for c in top)
    heads = [("candidate", ""), ("share", "num"), ("effective ridge", "num"), ("left-out error", "num")]
    heads += [("error in plays ÷ best", "num")] if played else []
    rows = []
    texts = zip(
        percent_column([c.share for c in top]),
        column([c.error for c in top]),
        column([c.play_error for c in top]),
    )
    for c, (share, error, play) in zip(top, texts):
        cells = [
            name_cell(c.family, below=c.settings),
            cell(bar(c.share / most, share), "share"),
            cell(number(c.effective_ridge), "effective ridge"),
            cell(error, "left-out error"),
        ]
        if played:
            cells.append(cell(play, "error in plays ÷ best"))
        rows.append("".join(cells))
    rest = candidates[TOP_CANDIDATES:]
    more = f"The other {len(rest):,} share {percent(sum(c.share for c in rest))}." if rest else ""
    return table(heads, rows, caption="Candidates with the largest shares") + (prose(more) if more else "")


def settings_section(facts: Facts, settings: Mapping[str, Any] | None, date: str | None) -> str:
    """What was set, and with which versions."""
    versions = {
        "mixtune": __version__,
        "NumPy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "Python": platform.python_version(),
    }
    if date is not None:
        versions["date"] = date
    given = {str(name): plain_value(value) for name, value in (settings or {}).items()}
    parts = [_definitions("Given", given)] if given else []
    parts += [_definitions(facts.estimator, facts.parameters), _definitions("Versions", versions)]
    return section("settings", "Settings and versions", f'<div class="lists">{"".join(parts)}</div>')


def _definitions(heading: str, pairs: Mapping[str, str]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd><bdi>{escape(v)}</bdi></dd></div>" for name, v in pairs.items())
    return f'<div><h3>{escape(heading)}</h3><dl class="pairs">{items}</dl></div>'


def glossary_section() -> str:
    """The page's words, in plain ones."""
    items = "".join(f"<div><dt>{escape(word)}</dt><dd>{escape(text)}</dd></div>" for word, text in GLOSSARY.items())
    return section("words", "Words used here", f'<dl class="glossary">{items}</dl>')
