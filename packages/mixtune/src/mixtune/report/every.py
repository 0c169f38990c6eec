"""One page about models for every domain: the overview first, then each domain on demand. The file holds all it needs.

``every.html`` holds the words of the page; its frame and the parts of tables are those of :mod:`mixtune.report.page`.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from mixtune._messages import counted
from mixtune.arrays import Floats, Integers
from mixtune.choice import MIXTUNE
from mixtune.data import findings_of
from mixtune.files import check_place, write_atomically
from mixtune.report import _charts as charts
from mixtune.report.facts import LeftOut
from mixtune.report.page import SHOWN_ROWS, Bar, Name, Table, render
from mixtune.report.verdict import Verdict
from mixtune.report.wording import column, element, number, percent, percent_column, plain_value, shorten

#: Domains in the heat map, and in a chart of shrinkage: more cannot be read. Those with the most rows are shown.
MOST_CELLS, MOST_LINES = 60, 40
#: Domains with a part of their own, and rows in all up to which these show every row: beyond, the file is too large.
MOST_DETAILS, MOST_ROWS = 200, 20_000
#: Coefficients with a chart: those that differ most between domains.
MOST_SHRINKAGE = 4
#: Smaller shares have no cell in the heat map.
LEAST_SHARE = 0.005
#: How far coefficients lie from the population's, in typical distances, from where on a domain stands out.
STANDS_OUT = 2.0


def every_html(
    model: Any,
    *,
    title: str | None = None,
    target: str | None = None,
    settings: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    findings: Sequence[str] = (),
    date: str | None = None,
    inputs: Sequence[str] = (),
    command: str | None = None,
) -> str:
    """Write the page about models for every domain as text; the same model gives the same text.

    Parameters
    ----------
    model : MultiDomainRegressor or MultiDomainClassifier
        Fitted. A model from a file holds no rows, and its page shows none.
    title : str, optional
    target : str, optional
        What is predicted.
    settings : mapping, optional
        Further settings to list, such as the options of a command.
    notes : sequence of str
        What the reader should know beside the model's own notes.
    findings : sequence of str
        Those of the notes that come first, on problems of the rows.
    date : str, optional
        Shown as it is; without it the page has no date.
    inputs, command
        Names of the files that the rows came from, and the command that was run.

    Returns
    -------
    str
        A whole HTML document.
    """
    facts = EveryFacts(model, target or "the target", notes, findings)
    title = title or f"{facts.target} in {counted((facts.count, 'domain'))}"
    about: dict[str, Any] = {"title": title, "date": date, "inputs": inputs, "command": command}
    about["verdict"] = facts.verdict()
    about["brief"] = facts.brief()
    limits = {"MOST_CELLS": MOST_CELLS, "MOST_DETAILS": MOST_DETAILS, "STANDS_OUT": STANDS_OUT}
    drawn = {"heat_map": heat_map, "shrinkage_charts": shrinkage_charts}
    return render("every.html", facts, settings, **about, **limits, **drawn)


def write_every(path: str | Path, model: Any, **options: Any) -> Path:
    """Write the page of :func:`every_html`, which says what the options are, to ``path``: whole or not at all."""
    path = Path(path)
    check_place(path, "report.html")
    return write_atomically(path, every_html(model, **options).encode("utf-8"))


def every_verdict(model: Any) -> tuple[str, str]:
    """Where transfer helps, in one sentence, and the evidence for it."""
    found = EveryFacts(model, "the target").verdict()
    return found.sentence, found.evidence[0]


class EveryFacts:
    """What the page shows of a model: its summary, weights, the models of its scores, and tables of them."""

    def __init__(self, model: Any, target: str, notes: Sequence[str] = (), findings: Sequence[str] = ()) -> None:
        self.findings = tuple(findings) or findings_of(model.notes_)
        self.target, self.notes, self.estimator = target, (*model.notes_, *notes), type(model).__name__
        self.parameters = {name: plain_value(value) for name, value in model.get_params(deep=False).items()}
        self.summary: dict[str, Any] = model.summary_columns()
        self.names: list[str] = self.summary["domain"]
        self.rows: list[int] = np.asarray(self.summary["rows"]).tolist()
        self.weights: Floats = model.weights_
        #: One model, or one of each class, with its label.
        self.outputs: list[tuple[str, Any]] = [(target, model)]
        if hasattr(model, "regressors_"):
            labels = model.classes_[-len(model.regressors_) :]
            self.outputs = [(f"score of {label}", each) for label, each in zip(labels.tolist(), model.regressors_)]

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def median_gain(self) -> float:
        return float(np.median(self.summary["gain"]))

    @property
    def mean_own_share(self) -> float:
        return float(np.mean(self.summary["own_share"]))

    @property
    def right(self) -> float:
        """The share of rows that are classified correctly."""
        return float(np.average(self.summary["right"], weights=self.rows))

    @cached_property
    def outliers(self) -> list[int]:
        """The domains whose coefficients lie far from those of the population, the farthest first."""
        apart = np.asarray(self.summary["apart"])
        return [k for k in np.argsort(-apart, kind="stable").tolist() if apart[k] > STANDS_OUT]

    def largest(self, most: int) -> list[int]:
        """The places of the domains with the most rows, in the order of their names."""
        return np.sort(np.argsort(-np.asarray(self.rows), kind="stable")[:most]).tolist()

    def verdict(self) -> Verdict:
        """Where transfer helps, judged by the intervals of the gains."""
        helped = int(np.sum(np.asarray(self.summary["gain_low"]) > 0))
        harmed = int(np.sum(np.asarray(self.summary["gain_high"]) < 0))
        error, own = (
            float(np.sqrt(np.average(np.square(self.summary[name]), weights=self.rows)))
            for name in ("error", "error_own_rows")
        )
        tone = "good" if helped > harmed else "bad" if harmed > helped else "even"
        which = f"all {self.count:,}" if helped == self.count else f"{helped or 'none'} of {self.count:,}"
        told = f"Learning together clearly helps {which} domains"
        told += f" and harms {harmed}." if harmed else "." if helped == self.count else ", and harms none."
        ratio = f"Over all rows, the left-out error is {number(error)}"
        if own > 0 and np.isfinite(own):
            ratio += f", {percent(abs(1 - error / own))} {'below' if error <= own else 'above'} that of one model "
            ratio += f"for each domain ({number(own)})"
        evidence = f"{ratio}. The median gain is {percent(self.median_gain)}."
        return Verdict(told if self.count > 1 else "There is only one domain.", tone, (evidence,), advice="")

    def brief(self) -> dict[str, str]:
        """Three lines for those who read no further."""
        found = self.verdict()
        helped = found.tone == "good"
        rows = counted((sum(self.rows), "row"))
        predicted = f"{self.target} for each of {counted((self.count, 'domain'))}, from {rows}."
        advice = "Use these models; those of domains that are marked as hurt less than their own rows alone."
        if helped or not any(np.asarray(self.summary["gain_high"]) < 0):
            advice = "Use these models for new rows of these domains, and of domains like them."
        return {"predicted": predicted, "quality": " ".join(found.evidence), "advice": advice}

    def domains_table(self) -> Table:
        """One line for each domain, those that gain most first."""
        summary = self.summary
        order = np.argsort(-np.asarray(summary["gain"]), kind="stable").tolist()
        most = max(map(abs, summary["gain"])) or 1.0
        errors = [column([summary[name][k] for k in order]) for name in ("error", "error_own_rows", "error_pooled")]
        gains = percent_column([summary["gain"][k] for k in order], signed=True)
        rows = []
        for k, text, *shown in zip(order, gains, *errors):
            gain, low, high = (summary[name][k] for name in ("gain", "gain_low", "gain_high"))
            below = f"borrows from {summary['borrows_from'][k] or 'none above 2%'}"
            name = Name(self.names[k], below, "helped" if low > 0 else "hurt" if high < 0 else "")
            interval = f"{text} ({percent(low)} to {percent(high)})"
            # A gain that may as well be none must not look like one.
            style = "far" if low <= 0 <= high else "up" if gain >= 0 else "down"
            bar = Bar(interval, abs(gain) / most, style=style)
            rows.append([name, bar, f"{self.rows[k]:,}", *shown, percent(summary["own_share"][k])])
        heads = ["domain", "gain (95% interval)", "rows", "error", "own rows alone", "pooled", "own share"]
        return Table("Domains", heads, rows, _more(rows, "domain"))

    def outliers_table(self) -> Table:
        """How far domains lie from the population."""
        apart = self.summary["apart"]
        most = float(max(apart))
        rows = [
            [Name(self.names[k]), Bar(number(apart[k], 2), apart[k] / most), f"{self.rows[k]:,}"] for k in self.outliers
        ]
        return Table("Far", ["domain", "distance", "rows"], rows, _more(rows, "domain"))

    def errors_table(self, k: int) -> Table | None:
        """Errors of the model of a domain, of its own rows alone and of all rows pooled."""
        if len(self.outputs) > 1 or self.count < 2:
            return None
        found = {each.method: each for each in reversed(self.outputs[0][1].compared_[k])}
        if not all(np.isfinite(each.loo_error) for each in found.values()):
            return None
        errors = np.sqrt([each.loo_error for each in found.values()]).tolist()
        rows = []
        for text, error, (name, each) in zip(column(errors), errors, found.items()):
            half = 1.96 * each.standard_error / (2 * error) if error > 0 else 0.0
            ratio = f"{each.ratio:.2f} ({each.ratio_low:.2f} to {each.ratio_high:.2f})" if name != MIXTUNE else ""
            rows.append([Name(name), text, f"{number(max(error - half, 0.0))} to {number(error + half)}", ratio])
        heads = ["fit", "left-out error", "95% interval", "mixtune ÷ this (95% interval)"]
        return Table("Errors", heads, rows)

    def rows_chart(self, k: int) -> Markup | None:
        """The rows of a domain with their left-out predictions, where the model has them."""
        if len(self.outputs) > 1 or "classes" in self.summary or sum(self.rows) > MOST_ROWS:
            return None
        rows = self.outputs[0][1].left_out_columns(self.names[k])
        if rows is None or len(rows["actual"]) < 2:
            return None
        left_out = LeftOut(self.target, rows["actual"], rows["predicted"], rows["half"])
        return charts.left_out_chart(left_out, f"domain-{k}-rows")

    def coefficients_table(self, k: int) -> Table | None:
        """Coefficients with intervals, where there are any."""
        model = self.outputs[0][1]
        if len(self.outputs) > 1 or "low" not in (columns := model.coefficient_columns()):
            return None
        width = model.coef_.shape[1]
        part = {name: values[k * width : (k + 1) * width] for name, values in columns.items()}
        rows = []
        for name, *values in zip(*(part[each] for each in ("feature", "estimate", "low", "high", "own", "population"))):
            estimate, low, high, own, population = map(number, values)
            rows.append([Name(str(name)), estimate, f"{low} to {high}", own, population])
        heads = ["coefficient of", "estimate", "95% interval", "own rows alone", "population"]
        return Table("Coefficients", heads, rows, _more(rows, "coefficient"))

    def partners(self, shares: Floats, k: int) -> str:
        """The domains other than ``k`` with the largest shares."""
        order = [place for place in np.argsort(-shares, kind="stable")[:5].tolist() if place != k]
        found = [f"{self.names[place]} {percent(shares[place])}" for place in order if shares[place] >= LEAST_SHARE]
        return ", ".join(found) or "none"


def _more(rows: Sequence[Any], what: str) -> str:
    return counted((max(len(rows) - SHOWN_ROWS, 0), f"more {what}"))


def clustered_order(weights: Floats) -> Integers:
    """An order of the domains in which those that borrow from one another are neighbours.

    Examples
    --------
    >>> links = np.array([[0, 0, 0.5, 0], [0, 0, 0, 0.5], [0.5, 0, 0, 0], [0, 0.5, 0, 0]])
    >>> order = clustered_order(links).tolist()
    >>> abs(order.index(0) - order.index(2)), abs(order.index(1) - order.index(3))
    (1, 1)
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    if len(weights) < 3:
        return np.arange(len(weights))
    links = weights + weights.T
    np.fill_diagonal(links, 0.0)
    far = links.max() - links
    np.fill_diagonal(far, 0.0)
    apart = squareform(far, checks=False)
    return np.asarray(leaves_list(optimal_leaf_ordering(linkage(apart, "average"), apart)))


def heat_map(weights: Floats, names: Sequence[str], rows: Sequence[int]) -> Markup:
    """The shares (N, N) of other domains as a chart, in clustered order; the page lets the reader choose others."""
    kept = np.sort(np.argsort(-np.asarray(rows), kind="stable")[:MOST_CELLS])
    kept = kept[clustered_order(weights[np.ix_(kept, kept)])]
    shares = weights[np.ix_(kept, kept)] * (1 - np.eye(len(kept)))
    most = float(shares.max()) or 1.0
    size = (charts.WIDTH - 96.0) / len(kept)
    about = f"{len(kept)} domains; the largest share is {percent(most)}"
    drawing = charts.Drawing("borrowing-map", "Who borrows from whom", about, 20.0 + size * len(kept))
    # Where lines are narrow, some have no name.
    named = int(np.ceil(7 / size))
    for line, place in enumerate(kept.tolist()):
        y = 8.0 + line * size
        where = {"x": 88.0, "y": y + size / 2 + 3, "text_anchor": "end", "data_line": line}
        hidden = "hidden" if line % named else None
        drawing.parts.append(element("text", shorten(names[place], 13), class_="tick", visibility=hidden, **where))
        drawing.line(92.0, y + size, charts.WIDTH - 4.0, y + size, "grid")
        for at, other in enumerate(kept.tolist()):
            if shares[line, at] >= LEAST_SHARE:
                tip = f"{names[place]} borrows {percent(shares[line, at])} from {names[other]}"
                where = {"x": 92.0 + at * size, "y": y, "width": size, "height": size}
                opacity = f"{0.12 + 0.88 * shares[line, at] / most:.2f}"
                drawing.add("rect", "cell", tip=tip, fill_opacity=opacity, data_line=line, data_at=at, **where)
    caption = f"The strongest colour is {percent(most)}. Columns are in the order of the lines."
    orders: dict[str, Sequence[int]] = {
        "similar domains together": range(len(kept)),
        "by name": sorted(range(len(kept)), key=lambda line: names[int(kept[line])]),
        "most rows first": np.argsort([-rows[place] for place in kept], kind="stable").tolist(),
        "largest borrowers first": np.argsort(-shares.sum(axis=1), kind="stable").tolist(),
        "largest lenders first": np.argsort(-shares.sum(axis=0), kind="stable").tolist(),
    }
    listed = json.dumps({name: list(order) for name, order in orders.items()})
    figure = drawing.figure("Shares of the prediction", caption)
    return element("div", figure, data_orders=listed, data_size=f"{size:.4f}", data_named=named)


def shrinkage_charts(facts: EveryFacts) -> list[Markup]:
    """Levels and coefficients: own rows alone, population, and mixtune with intervals."""
    drawn = []
    for place, (name, model) in enumerate(facts.outputs):
        drawn.append(shrinkage_chart(f"level{place}", f"{name} at average inputs", facts, model.level_columns()))
    if len(facts.outputs) > 1 or "low" not in (coefs := facts.outputs[0][1].coefficient_columns()):
        return drawn
    # Domains differ more clearly if their estimates vary more, relative to the widths of their intervals.
    widths = np.reshape(coefs["high"] - coefs["low"], (facts.count, -1)).mean(axis=0)
    moves = np.std(np.reshape(coefs["estimate"], (facts.count, -1)), axis=0) / np.maximum(widths, 1e-300)
    for k in np.argsort(-moves, kind="stable")[:MOST_SHRINKAGE].tolist():
        part = {key: np.asarray(values)[k :: len(moves)] for key, values in coefs.items()}
        drawn.append(shrinkage_chart(f"coefficient{k}", f"coefficient of {part['feature'][0]}", facts, part))
    return drawn


def shrinkage_chart(name: str, title: str, facts: EveryFacts, columns: Mapping[str, Any]) -> Markup:
    """One line for each domain: its own rows alone, mixtune with a 95% interval, and the population as a line."""
    kept = np.array(facts.largest(MOST_LINES))
    kept = kept[np.argsort(np.asarray(columns["estimate"])[kept], kind="stable")]
    own, estimate = (np.asarray(columns[each])[kept] for each in ("own", "estimate"))
    low, high = (np.asarray(columns.get(each, columns["estimate"]))[kept] for each in ("low", "high"))
    population = float(np.asarray(columns["population"])[0])
    drawing = charts.Drawing(name, title, f"population {number(population)}", 56.0 + 15 * len(kept))
    bottom = drawing.height - 44
    # Own rows alone may be far off; they must not make the rest unreadable.
    reach = charts.nice_range([*low, *high, population])
    span = reach[1] - reach[0]
    x = charts.Scale(reach[0] - 0.15 * span, reach[1] + 0.15 * span, 96.0, charts.WIDTH - 10.0)
    drawing.x_axis(x, bottom, title, 8)
    drawing.line(x(population), 8, x(population), bottom, "even")
    for line, place in enumerate(kept.tolist()):
        y = 16.0 + 15 * line
        drawing.text(90.0, y + 4, shorten(facts.names[place], 14), "tick", "end")
        at = min(max(float(own[line]), x.low), x.high)
        drawing.line(x(at), y, x(estimate[line]), y, "pair")
        if high[line] > low[line]:
            drawing.line(x(low[line]), y, x(high[line]), y, "whisker main")
        beyond = "" if at == own[line] else ", beyond the chart"
        drawing.dot(x(at), y, 3.5, "dot own", f"{facts.names[place]}, own rows alone: {number(own[line])}{beyond}")
        known = f" ({number(low[line])} to {number(high[line])})" if high[line] > low[line] else ""
        tip = f"{facts.names[place]}: {number(estimate[line])}{known}"
        drawing.dot(x(estimate[line]), y, 4.0, "dot main", tip)
    some = f"The {len(kept)} domains with the most rows. " if len(kept) < facts.count else ""
    intervals = ", with 95% intervals" if np.any(np.asarray(high) > np.asarray(low)) else ""
    caption = f"{some}Violet: own rows alone. Green: mixtune{intervals}. Dashed: the population."
    return drawing.figure(title, caption)
