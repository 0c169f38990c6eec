"""One page about models for every domain: the overview first, then each domain on demand. The file holds all it needs.

``every.html`` is the frame of the page; its style and the parts of tables are those of :mod:`mixtune.report.page`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any

import numpy as np

from mixtune._array import Floats, Integers
from mixtune._files import check_place, write_atomically
from mixtune._messages import counted
from mixtune.report import _charts as charts
from mixtune.report.facts import LeftOut
from mixtune.report.page import (
    bar,
    folder_text,
    made_fields,
    pair,
    row_name,
    script_hash,
    section,
    settings_section,
    table,
)
from mixtune.report.wording import Html, column, element, join, number, percent, percent_column, plain_value, shorten
from mixtune.selection import MIXTUNE

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
    date : str, optional
        Shown as it is; without it the page has no date.
    inputs, command
        Names of the files that the rows came from, and what was typed.

    Returns
    -------
    str
        A whole HTML document.
    """
    facts = _Facts(model, target or "the target")
    title = title or f"{facts.target} in {counted((facts.count, 'domain'))}"
    tone, verdict, evidence = facts.verdict()
    remarks = [element("li", note) for note in dict.fromkeys((*model.notes_, *notes))]
    aside = element("aside", element("h2", "Worth knowing"), element("ul", *remarks), id="notes")
    parts = [_domains(facts), _borrowing(facts), _shrinkage(facts), _apart(facts), _details(facts)]
    parameters = {name: plain_value(value) for name, value in model.get_params(deep=False).items()}
    about: Any = SimpleNamespace(estimator=type(model).__name__, parameters=parameters)
    parts.append(settings_section(about, settings))
    script = folder_text("page.js")
    fields = made_fields(date, inputs, command) | {
        "short_title": shorten(title, 120),
        "title": title,
        "data": f"{counted((int(sum(facts.rows)), 'row'))} in {counted((facts.count, 'domain'))}",
        "style": Html(folder_text("page.css")),
        "script": Html(script),
        "hash": script_hash(script),
        "tone": tone,
        "verdict": verdict,
        "evidence": element("p", evidence, class_="meaning"),
        "cards": _cards(facts),
        "notes": aside if remarks else "",
        "sections": join(parts),
    }
    template = Template(folder_text("every.html"))
    return template.substitute({name: join([value]) for name, value in fields.items()})  # escapes what is not markup


def write_every(path: str | Path, model: Any, **options: Any) -> Path:
    """Write the page of :func:`every_html`, which says what the options are, to ``path``: whole or not at all."""
    path = Path(path)
    check_place(path, "report.html")
    return write_atomically(path, every_html(model, **options).encode("utf-8"))


def every_verdict(model: Any) -> tuple[str, str]:
    """Where transfer helps, in one sentence, and the evidence for it."""
    return _Facts(model, "the target").verdict()[1:]


class _Facts:
    """What the sections read of a model: its summary, weights, and the models of its scores."""

    def __init__(self, model: Any, target: str) -> None:
        self.model, self.target = model, target
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

    def largest(self, most: int) -> Integers:
        """The places of the domains with the most rows, in the order of their names."""
        return np.sort(np.argsort(-np.asarray(self.rows), kind="stable")[:most])

    def verdict(self) -> tuple[str, str, str]:
        """Tone, sentence and evidence: where transfer helps, by what the intervals of the gains say."""
        gain, low, high = (np.asarray(self.summary[name]) for name in ("gain", "gain_low", "gain_high"))
        helped, harmed = int(np.sum(low > 0)), int(np.sum(high < 0))
        error, own = (
            float(np.sqrt(np.average(np.square(self.summary[name]), weights=self.rows)))
            for name in ("error", "error_own_rows")
        )
        tone = "good" if helped > harmed else "bad" if harmed > helped else "even"
        which = f"all {self.count:,}" if helped == self.count else f"{helped:,} of {self.count:,}"
        told = f"Learning together clearly helps {which} domains"
        told += f" and harms {harmed}." if harmed else "." if helped == self.count else ", and harms none."
        ratio = f"Over all rows, the left-out error is {number(error)}"
        if own > 0 and np.isfinite(own):
            ratio += f", {percent(abs(1 - error / own))} {'below' if error <= own else 'above'} that of one model "
            ratio += f"for each domain ({number(own)})"
        evidence = f"{ratio}. The median gain is {percent(float(np.median(gain)))}."
        return tone, told if self.count > 1 else "There is one domain only.", evidence


def _cards(facts: _Facts) -> Html:
    """The most important numbers."""
    summary = facts.summary
    cards = [
        ("domains", f"{facts.count:,}", f"with {min(facts.rows):,} to {max(facts.rows):,} rows"),
        ("gain", percent(float(np.median(summary["gain"]))), "median over the domains"),
        ("from other domains", percent(1 - float(np.mean(summary["own_share"]))), "of a prediction, on average"),
        ("stand out", f"{int(np.sum(np.asarray(summary['apart']) > STANDS_OUT)):,}", "domains unlike all others"),
    ]
    if "right" in summary:
        right = float(np.average(summary["right"], weights=facts.rows))
        cards[-1] = ("classified right", percent(right), "of the rows, left out")
    return join(
        element("div", element("dt", name), element("dd", element("b", value), element("span", text)))
        for name, value, text in cards
    )


def _domains(facts: _Facts) -> Html:
    """One line for each domain, those that gain most first."""
    summary = facts.summary
    order = np.argsort(-np.asarray(summary["gain"]), kind="stable").tolist()
    most = max(map(abs, summary["gain"])) or 1.0
    shown = {name: column([summary[name][k] for k in order]) for name in ("error", "error_own_rows", "error_pooled")}
    gains = percent_column([summary["gain"][k] for k in order], signed=True)
    lines = []
    for at, k in enumerate(order):
        low, high = summary["gain_low"][k], summary["gain_high"][k]
        mark = "helped" if low > 0 else "hurt" if high < 0 else ""
        name = row_name(
            facts.names[k], below=f"borrows from {summary['borrows_from'][k] or 'none above 2%'}", mark=mark
        )
        interval = f"{gains[at]} ({percent(low)} to {percent(high)})"
        part = bar(interval, abs(summary["gain"][k]) / most, style="up" if summary["gain"][k] >= 0 else "down")
        errors = [shown[each][at] for each in ("error", "error_own_rows", "error_pooled")]
        lines.append([name, part, f"{facts.rows[k]:,}", *errors, percent(summary["own_share"][k])])
    heads = ["domain", "gain (95% interval)", "rows", "error", "own rows alone", "pooled", "own share"]
    text = (
        "Left-out errors of the model of each domain, next to ridge regression on its own rows alone and on the rows "
        "of all domains pooled. The own share is the part of a prediction that the domain's own rows provide."
    )
    if "right" in summary:
        text += " Errors are those of the class scores, which should be +1 for the class and \u22121 for any other."
    rest = f"{counted((max(facts.count - 15, 0), 'more domain'))}"
    return section("domains", "Every domain", text, table(heads, lines, "Domains", summary=rest))


def _borrowing(facts: _Facts) -> Html:
    """Who borrows from whom."""
    if facts.count < 2:
        return Html()
    text = (
        "Each line is a domain, each column a domain that it borrows from; the stronger the colour, the larger its "
        "share of the prediction. Domains that borrow from one another stand together, unless another order is "
        "chosen. The share of a domain's own rows is left out."
    )
    if facts.count > MOST_CELLS:
        text += f" The {MOST_CELLS} domains with the most rows are shown."
    return section("borrowing", "Who borrows from whom", text, heat_map(facts.weights, facts.names, facts.rows))


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


def heat_map(weights: Floats, names: Sequence[str], rows: Sequence[int]) -> Html:
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


def _shrinkage(facts: _Facts) -> Html:
    """Levels and coefficients: own rows alone, population, and mixtune with intervals."""
    if facts.count < 2:
        return Html()
    drawn = []
    for place, (name, model) in enumerate(facts.outputs):
        levels = model.level_columns()
        drawn.append(shrinkage_chart(f"level{place}", f"{name} at average inputs", facts, levels))
        if len(facts.outputs) > 1:
            continue
        coefs = model.coefficient_columns()
        if "low" in coefs:
            width = len(coefs["domain"]) // facts.count
            # Domains differ the more clearly, the farther estimates scatter in widths of their intervals.
            widths = np.reshape(coefs["high"] - coefs["low"], (facts.count, width)).mean(axis=0)
            moves = np.std(np.reshape(coefs["estimate"], (facts.count, width)), axis=0) / np.maximum(widths, 1e-300)
            for k in np.argsort(-moves, kind="stable")[:MOST_SHRINKAGE].tolist():
                part = {key: np.asarray(values)[k::width] for key, values in coefs.items()}
                title = f"coefficient of {part['feature'][0]}"
                drawn.append(shrinkage_chart(f"coefficient{k}", title, facts, part))
    text = (
        "Few rows say little about a domain, so that fits to them alone scatter. The model moves them towards what "
        "other domains suggest, and the more so, the fewer the rows."
    )
    return section("shrinkage", "What is borrowed", text, pair(*drawn))


def shrinkage_chart(name: str, title: str, facts: _Facts, columns: Mapping[str, Any]) -> Html:
    """One line for each domain: its own rows alone, mixtune with a 95% interval, and the population as a line."""
    kept = facts.largest(MOST_LINES)
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


def _apart(facts: _Facts) -> Html:
    """Domains whose coefficients lie far from those of the population."""
    apart = np.asarray(facts.summary["apart"])
    order = [k for k in np.argsort(-apart, kind="stable").tolist() if apart[k] > STANDS_OUT]
    if not order or facts.count < 4:
        return Html()
    most = float(apart.max())
    lines = [[row_name(facts.names[k]), bar(number(apart[k], 2), apart[k] / most), f"{facts.rows[k]:,}"] for k in order]
    text = (
        "How far the coefficients of a domain, with its level, lie from those of the population, relative to the "
        f"median domain. Those above {STANDS_OUT:g} are listed."
    )
    summary = counted((max(len(order) - 15, 0), "more domain"))
    return section(
        "apart", "Which stand out", text, table(["domain", "distance", "rows"], lines, "Far", summary=summary)
    )


def _details(facts: _Facts) -> Html:
    """A part for each domain, folded away."""
    parts = [_detail(facts, k) for k in facts.largest(MOST_DETAILS).tolist()]
    text = "Open a domain to see its errors, whom it borrows from, its coefficients and its rows."
    if facts.count > MOST_DETAILS:
        text += f" The {MOST_DETAILS} domains with the most rows are listed."
    return section("each", "Each domain", text, *parts)


def _detail(facts: _Facts, k: int) -> Html:
    name, summary = facts.names[k], facts.summary
    told = f": {counted((facts.rows[k], 'row'))}, gain {percent(summary['gain'][k])}"
    parts: list[Html] = []
    if len(facts.outputs) == 1:
        model = facts.outputs[0][1]
        parts += [_compared(model, k)] if facts.count > 1 else []
        if "classes" not in summary and sum(facts.rows) <= MOST_ROWS:
            parts.append(_rows(facts, model, k))
        parts.append(_coefficients(model, k))
    if facts.count > 1:
        parts.append(_partners(facts, k))
    return element(
        "details",
        element("summary", element("bdi", shorten(name, 80)), told),
        *parts,
        class_="domain",
        id=f"domain-{k}",
    )


def _compared(model: Any, k: int) -> Html:
    """Errors of the model of a domain, of its own rows alone and of all rows pooled."""
    found = {each.method: each for each in reversed(model.compared_[k])}
    if not all(np.isfinite(each.loo_error) for each in found.values()):
        return Html()
    errors = np.sqrt([each.loo_error for each in found.values()])
    lines = []
    for text, error, (name, each) in zip(column(errors.tolist()), errors.tolist(), found.items()):
        half = 1.96 * each.standard_error / (2 * error) if error > 0 else 0.0
        ratio = f"{each.ratio:.2f} ({each.ratio_low:.2f} to {each.ratio_high:.2f})" if each.method != MIXTUNE else ""
        lines.append([row_name(name), text, f"{number(max(error - half, 0.0))} to {number(error + half)}", ratio])
    heads = ["fit", "left-out error", "95% interval", "mixtune ÷ this (95% interval)"]
    return table(heads, lines, "Errors")


def _rows(facts: _Facts, model: Any, k: int) -> Html:
    """The rows of a domain with their left-out predictions, where the model has them."""
    rows = model.left_out_columns(facts.names[k])
    if rows is None or len(rows["actual"]) < 2:
        return Html()
    left_out = LeftOut(facts.target, rows["actual"], rows["predicted"], rows["half"])
    return pair(charts.left_out_chart(left_out, f"domain-{k}-rows"))


def _coefficients(model: Any, k: int) -> Html:
    """Coefficients with intervals, where there are any."""
    columns = model.coefficient_columns()
    if "low" not in columns:
        return Html()
    width = model.coef_.shape[1]
    part = {name: np.asarray(values)[k * width : (k + 1) * width] for name, values in columns.items()}
    lines = []
    for place in range(width):
        interval = f"{number(part['low'][place])} to {number(part['high'][place])}"
        values = [number(part[each][place]) for each in ("own", "population")]
        lines.append([row_name(str(part["feature"][place])), number(part["estimate"][place]), interval, *values])
    heads = ["coefficient of", "estimate", "95% interval", "own rows alone", "population"]
    return table(heads, lines, "Coefficients", summary=counted((max(width - 15, 0), "more coefficient")))


def _partners(facts: _Facts, k: int) -> Html:
    """Whom a domain borrows from, and who borrows from it."""

    def listed(shares: Floats) -> str:
        order = [place for place in np.argsort(-shares, kind="stable")[:5].tolist() if place != k]
        found = [f"{facts.names[place]} {percent(shares[place])}" for place in order if shares[place] >= LEAST_SHARE]
        return ", ".join(found) or "none"

    own = facts.weights[k]
    text = (
        f"Borrows from {listed(own)}; its own rows provide {percent(own[k])}. Lends to {listed(facts.weights[:, k])}."
    )
    return element("p", text)
