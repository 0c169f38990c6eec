"""One page that explains a fit: the verdict first, then the evidence for it. The file holds all it needs.

The facts come from :mod:`mixtune.report.facts`, the sentences on them from :mod:`mixtune.report.verdict`; ``page.html``
is the frame of the page and ``page.css`` its style. Text becomes markup only through
:func:`~mixtune.report.wording.element`, which escapes it.
"""

import base64
import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from mixtune._files import check_place, write_atomically
from mixtune._messages import counted
from mixtune._version import __version__
from mixtune.report import _charts as charts
from mixtune.report.facts import (
    COVERAGE,
    FOCAL_FAMILY,
    MOST_OUTPUTS,
    CandidateFact,
    ClassFact,
    DomainFact,
    Facts,
    MapFact,
    MethodFact,
    read_facts,
)
from mixtune.report.verdict import HELP_MARGIN, can_tell, effect_of, give_verdict, with_known_effect
from mixtune.report.wording import (
    MAP_MEANINGS,
    MAP_NAMES,
    MEASURE_NAMES,
    METHOD_NAMES,
    Html,
    column,
    element,
    join,
    number,
    percent,
    percent_column,
    plain_value,
    shorten,
)
from mixtune.selection import MIXTUNE, OWN_ROWS

#: Of longer tables, so many rows are shown and the others are folded away.
LONGEST_TABLE, SHOWN_ROWS = 30, 15
#: Of longer names the middle is left out; the whole name is in the tooltip.
LONGEST_NAME = 80
TOP_CANDIDATES = 10
#: Larger tables of classes cannot be read.
MOST_CLASSES = 12
FAMILIES = {
    FOCAL_FAMILY: "a ridge fit to the focal rows, without the others",
    "alike": "one learned prior for all sources",
    "nearest": "a prior from the sources that predict the focal rows best",
    "similar": "a prior from the sources whose features are like the focal ones",
    "similar, one level": "a prior with one intercept from the sources whose features are like the focal ones",
    "groups": "sources in two groups, each with its own prior",
    "context": "a prior that depends on what the focal features are like on average",
    "stacked": "shrunk towards a sum of the sources' models, with weights that fit the focal rows",
    "pooled": "shrunk towards one model fitted to the likeliest sources together",
    "pooled, one level": "shrunk towards one model and one intercept of the likeliest sources together",
}
_LOG_ERRORS = "Errors here are those of the logarithm of the target, on which the model was fitted. "


def report_html(
    model: Any,
    *,
    X: Any,
    y: Any,
    sources: Any,
    title: str | None = None,
    target: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    date: str | None = None,
    columns: Any = None,
) -> str:
    """Write the page as text; the same model and rows give the same text.

    Parameters
    ----------
    model : RegretOptimalRegressorCV or RegretOptimalClassifierCV
        Fitted.
    X, y, sources
        What it was fitted to.
    title : str, optional
        By default it names the target and the focal dataset.
    target : str or sequence of str, optional
        What is predicted; a name for each output.
    settings : mapping, optional
        Further settings to list, such as the options of a command.
    notes : sequence of str
        What the reader should know beside the model's own notes.
    date : str, optional
        Shown as it is; without it the page has no date.
    columns : TableEncoder or sequence of str, optional
        How tables became the inputs, or the names of the inputs.

    Returns
    -------
    str
        A whole HTML document.

    Raises
    ------
    DataError
        If the rows are not those that the model was fitted to.
    """
    facts = read_facts(model, X=X, y=y, sources=sources, target=target, columns=columns)
    facts = replace(facts, notes=(*facts.notes, *notes))
    return page_html(facts, title=title, settings=settings, date=date)


def write_report(path: str | Path, model: Any, *, X: Any, y: Any, sources: Any, **options: Any) -> Path:
    """Write the page of :func:`report_html`, which says what the options are, to ``path``: whole or not at all."""
    path = Path(path)
    check_place(path, "report.html")
    return write_atomically(path, report_html(model, X=X, y=y, sources=sources, **options).encode("utf-8"))


def page_html(
    facts: Facts,
    *,
    title: str | None = None,
    settings: Mapping[str, Any] | None = None,
    date: str | None = None,
    inputs: Sequence[str] = (),
    command: str | None = None,
) -> str:
    """Write the page from facts that were read before; the options are those of :func:`report_html`.

    ``inputs`` are names of files that the rows came from, and ``command`` is what was typed.
    """
    if title is None:
        names = ", ".join(facts.target[:3]) + (", …" if len(facts.target) > 3 else "")
        title = f"{f'Predicting {names}' if names else 'Predictions'} for {facts.focal.name}"
    verdict = give_verdict(facts)
    evidence = (*verdict.evidence[:1], f"What to do next: {verdict.advice}", *verdict.evidence[1:], facts.carried)
    remarks = [element("li", note) for note in dict.fromkeys(facts.notes)]
    sections = [_effects(facts), _what_if(facts), _datasets(facts), _comparison(facts), _rows(facts), _misses(facts)]
    sections += [_removals(facts), _spreads(facts), _details(facts)]
    script = folder_text("page.js")
    data = counted((facts.focal.rows, "focal row"))
    if facts.sources:
        rows, others = sum(source.rows for source in facts.sources), counted((len(facts.sources), "other dataset"))
        # Members of a federated study may not say how many rows they have.
        data += f", {counted((rows, 'row'))} in {others}" if rows else f", {others}"
    aside = element("aside", element("h2", "Worth knowing"), element("ul", *remarks), id="notes")
    words = {"short_title": shorten(title, 120), "title": title, "data": data}
    fields = (
        words
        | made_fields(date, inputs, command)
        | {
            "style": Html(folder_text("page.css")),
            "script": Html(script),
            "hash": script_hash(script),
            "tone": verdict.tone,
            "verdict": verdict.sentence,
            "evidence": join(element("p", text, class_="meaning") for text in evidence if text),
            "cards": _cards(facts),
            "notes": aside if remarks else "",
            "sections": join([*sections, _settings(facts, settings)]),
        }
    )
    template = Template(folder_text("page.html"))
    return template.substitute({name: join([value]) for name, value in fields.items()})  # escapes what is not markup


def made_fields(date: str | None, inputs: Sequence[str], command: str | None) -> dict[str, Any]:
    """When, from what and how a page was made."""
    made = [*([date] if date else []), *(["from " + ", ".join(inputs)] if inputs else [])]
    return {
        "made": "; ".join(made),
        "command": element("p", element("code", command), class_="data") if command else "",
    }


def script_hash(script: str) -> str:
    """What the page's own policy knows its script by, so that the browser runs nothing else."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def folder_text(name: str) -> str:
    """A file of this folder."""
    return files("mixtune.report").joinpath(name).read_text(encoding="utf-8")


def _cards(facts: Facts) -> Html:
    """The most important numbers."""
    # Side by side, so with the same decimals.
    error, alone = column([facts.error, facts.error_alone])
    own = facts.compared[0].measures if facts.compared else None
    cards = [("typical error (RMSE)", error, "root mean square, each row predicted without it")]
    if facts.sources and facts.error_alone is not None:
        cards.append(("own rows alone", alone, "the same error without the other datasets"))
    if facts.classes is not None:
        cards = [("classified right", percent(facts.classes.right / facts.classes.rows), "of the focal rows")]
    if own is not None and own.log_loss is not None:
        cards.append(("log loss", number(own.log_loss, 2), "of the probabilities; 0 is certain and right"))
    if own is not None and own.auc is not None:
        cards.append(("AUC", number(own.auc, 2), "0.5 is chance, 1 is perfect"))
    if own is not None and own.mae is not None:
        cards.append(("mean error (MAE)", number(own.mae), "mean of the absolute errors"))
    if own is not None and own.r2 is not None:
        cards.append(("explained (R²)", number(own.r2, 2), "0 is the mean of the rows, 1 is exact"))
    if facts.sources:
        cards.append(("from other datasets", percent(facts.transferred), "of the prediction"))
    if inside := [rows for rows in facts.left_out if rows.half is not None]:
        part = sum(rows.covered for rows in inside) / sum(len(rows.actual) for rows in inside)
        cards.append((f"inside {percent(COVERAGE)} intervals", percent(part), "of the focal rows"))
    return join(
        element("div", element("dt", name), element("dd", element("b", value), element("span", text)))
        for name, value, text in cards
    )


def _section(name: str, heading: str, text: str, *parts: Html) -> Html:
    return element("section", element("h2", heading), element("p", text), *parts, id=name)


def _pair(*figures: Html) -> Html:
    return element("div", *figures, class_="charts")


def _datasets(facts: Facts) -> Html:
    """Weights with what explains them: rows, distances, and how well each dataset's own model fits the focal rows."""
    if not facts.sources:
        return Html()
    domains = (facts.focal, *facts.sources)
    most = max(d.weight or 0.0 for d in domains) or 1.0  # the longest bar
    reach = max([d.distance or 0.0 for d in facts.sources] + [facts.floor or 0.0]) or 1.0
    floor = None if facts.floor is None else facts.floor / reach
    weights, errors = percent_column([d.weight or 0.0 for d in domains]), column([d.own_error for d in domains])
    distances = column([None, *(d.distance for d in facts.sources)])
    rows: list[list[str]] = []
    for domain, weight, error, distance in zip(domains, weights, errors, distances):
        if domain is facts.focal:
            name, style, far = _name(domain.name, mark="focal"), "own", distance
        else:
            effect = effect_of(domain) if can_tell(facts) else ""
            mark = effect if effect in ("helped", "hurt") else ""
            name, style = _name(domain.name, below=_why(domain, facts), mark=mark), ""
            far = _bar(distance, (domain.distance or 0.0) / reach, style="far", mark=floor)
        count = f"{domain.rows:,}" if domain.rows else "not known"
        rows.append([name, _bar(weight, (domain.weight or 0.0) / most, style=style), count, error, far])
    known = any(d.distance is not None for d in facts.sources)
    heads = ["dataset", "weight", "rows", "error of its own model", *(["distance"] if known else [])]
    rest = facts.sources[SHOWN_ROWS:]
    share = percent(math.fsum(d.weight or 0.0 for d in rest))
    summary = f"{counted((len(rest), 'more dataset'))} with {share} of the weight together"
    text = (
        f"The weight is the share of the prediction that a dataset provides: {percent(facts.focal.weight or 0.0)} "
        f"comes from the {counted((facts.focal.rows, 'focal row'))}, {percent(facts.transferred)} from other datasets. "
        "The error of its own model is that of a model fitted to that dataset alone and tested on the focal rows; the "
        "focal dataset's own is tested on rows that it was fitted without."
    )
    table = _table(heads, rows, "Datasets and their weights", summary=summary, always=1)
    told = element("p", _distances(facts, known))
    return _section("datasets", "Which datasets count, and why", text, table, told, _bound(facts))


def _bound(facts: Facts) -> Html:
    """The paper's bound and its assumptions, folded away."""
    if facts.bound is None:
        return Html()
    items = [element("li", line) for line in facts.bound.lines]
    return element("details", element("summary", "What the paper's bound (Theorem 1) says"), element("ul", *items))


def _why(domain: DomainFact, facts: Facts) -> str:
    """What speaks for the dataset or against it, in a few words."""
    reasons = []
    # With a single focal row there is no fit to it alone to compare with.
    if domain.own_error is not None and facts.error_alone:
        ratio = domain.own_error / facts.error_alone
        how = "misses the focal rows" if ratio > 1.5 else f"fits the focal rows {'fairly' if ratio > 1.1 else 'well'}"
        reasons.append(f"its model {how}")
    if domain.distance is not None and facts.threshold is not None and domain.distance > facts.threshold:
        reasons.append("beyond the threshold")
    elif domain.distance is not None and facts.floor is not None:
        reasons.append("rows differ" if domain.distance > facts.floor else "rows no farther than chance")
    return ", ".join(reasons)


def _distances(facts: Facts, known: bool) -> str:
    if not known:
        return "Distances between datasets were not computed for this fit."
    floor = "The sampling floor is not known: it takes two focal rows."
    if facts.floor is not None:
        floor = f"The mark on each bar is the sampling floor, {number(facts.floor)}: two random halves of the focal "
        floor += "rows are that far apart, so smaller distances say nothing."
    threshold = "No dataset is left out for its distance alone; some of the averaged fits use only the near ones."
    if facts.threshold is not None and not math.isinf(facts.threshold):
        threshold = f"Datasets farther than the threshold, {number(facts.threshold)}, are left out."
    return (
        "Distance is the Wasserstein distance of a dataset's rows to the focal rows, as a part of the largest distance "
        f"between any two rows. {floor} {threshold}"
    )


def _comparison(facts: Facts) -> Html:
    """The model against simpler fits."""
    compared = [each for each in facts.compared if each.error is not None]
    if not facts.sources or len(compared) < 2 or compared[0].method != MIXTUNE:
        return Html()
    text = (
        "Every fit predicts each focal row without having seen it. Own rows alone: ridge regression on the focal rows. "
        "Pooled: one fit to all rows, as if they were one dataset. Mean of local models: the average of one fit per "
        "dataset. Predict the mean: that of the focal rows, whatever the columns say."
    )
    if facts.maps:
        text += " Own rows alone and pooled use the feature map without learned columns that suits the focal rows best."
    if facts.classes is not None:
        text += " The charts show errors of the class scores, the table measures of the predicted classes."
    shown = [each for each in compared if each.ratio is not None]
    drawn = _pair(*charts.comparison_charts(shown))
    table = _measures([each for each in facts.compared if each.measures is not None])
    return _section("comparison", "Against simpler fits", text, table, drawn)


def _measures(compared: Sequence[MethodFact]) -> Html:
    """The measures that people know, of every method."""
    values = {name: [getattr(each.measures, name, None) for each in compared] for name in MEASURE_NAMES}
    known = {name: found for name, found in values.items() if any(value is not None for value in found)}
    cells = {}
    for name, found in known.items():
        fixed = name in ("r2", "auc", "log_loss")
        cells[MEASURE_NAMES[name][0]] = (
            percent_column(found)
            if MEASURE_NAMES[name][1]
            else [number(None) if v is None else f"{v:.2f}".replace("-", "\u2212") for v in found]
            if fixed
            else column(found)
        )
    names = [_name(METHOD_NAMES.get(each.method, each.method)) for each in compared]
    rows = [list(row) for row in zip(names, *cells.values())]
    return _table(["method", *cells], rows, "Errors of the methods") if cells else Html()


def _effects(facts: Facts) -> Html:
    """Which columns drive the prediction."""
    if facts.columns is None or not facts.columns.effects.effects:
        return Html()
    found = facts.columns.effects
    several = len({each.output for each in found.effects}) > 1
    effects = [each for each in found.effects if not several or each.output == found.effects[0].output]
    target, unit = _predicted(facts, effects[0].output)
    # All with the same decimals, in percent for probabilities.
    values = [value for each in effects for value in (each.effect, each.low, each.high, each.sources)]
    texts = iter(column(values) if facts.classes is None else ["–" if x is None else percent(x) for x in values])
    reach = max(max(abs(e.effect), abs(e.low or 0.0), abs(e.high or 0.0)) for e in effects) or 1.0
    known = any(each.sources is not None for each in effects)
    rows: list[list[str]] = []
    for each, (text, low, high, others) in zip(effects, zip(texts, texts, texts, texts)):
        ends = [end if isinstance(end, str) else number(end) for end in (each.start, each.end)]
        mark = "differs" if each.differs else ""
        start, end = sorted([0.5, 0.5 + each.effect / reach / 2])
        interval = "–" if each.low is None else f"{low} to {high}"
        cells: list[str] = [_name(each.column, below=f"{ends[0]} → {ends[1]}", mark=mark)]
        cells += [_bar(text, end, start, style=f"both {'up' if each.effect > 0 else 'down'}", mark=0.5), interval]
        cells += ["–" if each.slope is None else number(each.slope) if facts.classes is None else percent(each.slope)]
        rows.append([*cells, others])
    heads = ["column", f"change of {shorten(target, 30)}", "95% interval", "for one unit"]
    heads += ["in other datasets"] if known else []
    text = (
        f"How {target} changes on average over {counted((found.rows, 'focal row'))} when one column goes from a low "
        "to a high value (10% and 90% of the focal rows; of categories, from the most frequent level to another) and "
        f"the other columns stay as they are{unit}. {found.how}"
    )
    if known:
        text += " In other datasets: the same in their own models, averaged with their weights; marked where it lies "
        text += (
            "outside the interval. A change says what the model does, not what would happen if the column were changed."
        )
    if found.constant:
        text += f" The same in all focal rows: {', '.join(found.constant[:10])}."
    summary = f"{counted((len(rows) - SHOWN_ROWS, 'more effect'))}, all smaller"
    table = _table(heads, rows, "Effects of columns", summary=summary)
    curves = [
        charts.curve_chart(curve, f"curve{k}", column=name, target=target)
        for k, (name, curve) in enumerate(facts.columns.curves.items())
    ]
    return _section("effects", "Which columns drive the prediction", text, table, _pair(*curves) if curves else Html())


def _predicted(facts: Facts, output: str) -> tuple[str, str]:
    """What effects are changes of, and in which units."""
    if facts.classes is not None:
        return f"the probability of {output}", ", in percent points"
    name = facts.target[0] if facts.target else "the prediction"
    return (f"{name}" if not output or len(facts.target) == 1 else output), ", in its own units"


def _what_if(facts: Facts) -> Html:
    """Controls for all columns, and the prediction of the model, which runs in the browser."""
    if facts.columns is None:
        return Html()
    if facts.columns.panel is None:
        text = (
            "This model is too large, or has a feature map of its own, and cannot be computed on a page; use predict."
        )
        return _section("what-if", "What if?", text)
    target = _predicted(facts, "the class")[0] if facts.classes is None else "the class"
    text = (
        f"The model itself, computed by this page: set the columns and read the prediction of {target}. It starts at "
        "the medians of the focal rows. "
    )
    if facts.error is not None and facts.classes is None:
        text += f"Its left-out error is {number(facts.error)}."
    result = element("p", "Prediction: ", element("output", id="prediction"), class_="prediction", aria_live="polite")
    outside = element("p", id="outside", class_="outside", aria_live="polite")
    data = Html(f'<script type="application/json" id="model">{facts.columns.panel}</script>')
    no_script = element("noscript", element("p", "The panel needs JavaScript."))
    return _section("what-if", "What if?", text, result, outside, element("div", id="panel"), no_script, data)


def _misses(facts: Facts) -> Html:
    """The rows that are predicted worst, and what each column adds to their predictions."""
    if facts.columns is None or not facts.columns.misses:
        return Html()
    misses, classes = facts.columns.misses, facts.classes is not None
    show = percent if classes else number
    parts = []
    for miss in misses:
        rows: list[list[str]] = []
        reach = max(abs(part) for *_, part in miss.parts) or 1.0
        for name, value, part in miss.parts[:SHOWN_ROWS]:
            start, end = sorted([0.5, 0.5 + part / reach / 2])
            text = f"{'+' if part > 0 else ''}{show(part)}"
            bar = _bar(text, end, start, style=f"both {'up' if part > 0 else 'down'}", mark=0.5)
            rows.append([_name(name), value if isinstance(value, str) else number(value), bar])
        table = _table(["column", "value", "adds"], rows, f"Contributions to row {miss.row + 1}")
        actual = miss.actual if isinstance(miss.actual, str) else number(miss.actual)
        told = f"predicted with probability {show(miss.left_out)}" if classes else f"predicted {show(miss.left_out)}"
        summary = element("summary", f"Row {miss.row + 1:,}: actual {actual}, {told}")
        words = f"From the average prediction, {show(miss.average)}, to that of the row, {show(miss.predicted)}:"
        parts.append(element("details", summary, element("p", words), table))
    text = (
        "The focal rows with the largest errors, each predicted by a fit without it, and what each column adds to the "
    )
    text += "prediction of the model (Shapley values against the focal rows). Rows are counted from 1."
    return _section("misses", "The worst misses", text, *parts)


def _spreads(facts: Facts) -> Html:
    """Focal against source columns."""
    if facts.columns is None or not facts.columns.spreads:
        return Html()
    figures = [charts.spread_chart(each, f"spread{k}") for k, each in enumerate(facts.columns.spreads)]
    text = (
        "Where the bars and the dashed line lie apart, the focal rows are unlike those of the other datasets, and less "
    )
    text += "can be learned from them. Columns with the largest effects first."
    return _section("spreads", "Are the rows alike?", text, _pair(*figures))


def _details(facts: Facts) -> Html:
    """What only those need who want to know how the fit was chosen."""
    parts = [part for part in (_path(facts), _average(facts)) if part]
    return (
        element("details", element("summary", "Details: how the fit was chosen"), *parts, id="details")
        if parts
        else Html()
    )


def _path(facts: Facts) -> Html:
    """The effective ridge, and the way from the start to the fit."""
    family = facts.candidates[0].family if facts.candidates else ""
    figures = [charts.ridge_chart(facts.ridge, family)] if facts.ridge else []
    figures += [charts.trajectory_chart(facts.trajectory)] if facts.trajectory else []
    if not figures:
        return Html()
    text = f"The effective ridge is {number(facts.effective_ridge)}."
    if len(facts.candidates) > 1:
        text = "Several fits are averaged (below); these charts show the one with the largest share, "
        text += f'"{_family(family)}". '
        text += f"The average has an effective ridge of {number(facts.effective_ridge)}."
    text += f" {_LOG_ERRORS.rstrip()}" if facts.log_scale else ""
    return _section("path", "How the fit was chosen", text, _pair(*figures))


def _rows(facts: Facts) -> Html:
    """Left-out predictions and residuals, or the table of classes."""
    if facts.classes is not None:
        text, parts = _classified(facts.classes)
    elif facts.left_out:
        text = "Every row is predicted by a fit without it, so this is what to expect of new rows from the same place."
        if (outputs := facts.left_out[0].outputs) > 1:
            which = "each has its own charts" if outputs <= MOST_OUTPUTS else "the charts show the first"
            text += f" There are {outputs} outputs; {which}."
        parts = [
            _pair(charts.left_out_chart(rows, f"rows{k}"), charts.residual_chart(rows, f"residuals{k}"))
            for k, rows in enumerate(facts.left_out)
        ]
    elif facts.focal.rows > 1 and facts.error is not None:
        return Html()  # errors are known, and the rows behind them were not given
    else:
        text = "Leave-one-out cannot judge these rows: without one of them there is nothing left to predict it from."
        parts = []
    return _section("rows", "On the focal rows", text, *parts)


def _classified(classes: ClassFact) -> tuple[str, list[Html]]:
    """How many rows are classified right, and the table of classes where it can be read."""
    from scipy.stats import binomtest

    low, high = binomtest(classes.right, classes.rows).proportion_ci(method="wilson")
    share = percent(classes.right / classes.rows)
    text = (
        f"Each row is classified by a fit without it: {classes.right:,} of {classes.rows:,} are right, {share} "
        f"(95% interval {percent(low)} to {percent(high)}). "
        "Errors elsewhere on this page are those of the class scores, which should be +1 for the class and \u22121 for "
        "any other."
    )
    drawn = [_pair(charts.calibration_chart(classes))] if classes.shares else []
    if len(classes.names) > MOST_CLASSES:
        return text, drawn
    rows = [
        [_name(name), *(_bar(f"{n:,}", n / max(sum(row), 1), style="" if k == i else "far") for k, n in enumerate(row))]
        for i, (name, row) in enumerate(zip(classes.names, classes.counts.tolist()))
    ]
    heads = ["actual class", *(f"predicted {name}" for name in classes.names)]
    return text, [_table(heads, rows, "Actual and left-out classes"), *drawn]


def _removals(facts: Facts) -> Html:
    """What leaving one dataset out would do."""
    if not facts.sources:
        return Html()
    name, heading = "removal", "If a dataset were removed"
    if facts.focal.rows == 1 or not facts.removable:
        saved = "Not known for a model of sums or from a file: these lack the state of the fit. Fit again to see it."
        single = "A single focal row cannot tell what this would change."
        return _section(name, heading, single if facts.focal.rows == 1 else saved)
    known = [(d, d.change) for d in with_known_effect(facts) if d.change is not None]
    known.sort(key=lambda pair: (-abs(pair[1]), pair[0].name))
    # Changes of no account must not look large only because there are no others.
    most = max([10 * HELP_MARGIN, *(abs(change) for _, change in known)])
    changes = percent_column([change for _, change in known], signed=True)
    errors, shifts = column([d.error_without for d, _ in known]), column([d.shift for d, _ in known])
    rows: list[list[str]] = []
    for (domain, change), shown, error, shift in zip(known, changes, errors, shifts):
        # From the middle, to the right where the error rises.
        start, end = sorted([0.5, 0.5 + change / most / 2])
        style = "far" if effect_of(domain) not in ("helped", "hurt") else "up" if change > 0 else "down"
        rows.append([_name(domain.name), _bar(shown, end, start, style=f"both {style}", mark=0.5), error, shift])
    meaning = f"On {counted((facts.focal.rows, 'focal row'))} such changes are mostly chance."
    if can_tell(facts):
        meaning = "A rise means that the dataset helped, a fall that it hurt, where the change is larger than chance "
        meaning += f"(95% interval); up to {percent(HELP_MARGIN)} either way counts as no difference."
    text = "Each dataset is left out alone, and the rest is solved again. "
    text += _LOG_ERRORS if facts.log_scale else f"With all of them the left-out error is {number(facts.error)}. "
    text += meaning
    if left := len(facts.sources) - len(known):
        text += f" For the {counted((left, 'dataset'))} of little weight this was not computed."
    rest = known[SHOWN_ROWS:]
    least = percent(abs(rest[0][1])) if rest else ""
    summary = f"{counted((len(rest), 'more dataset'))}, each changing the error by at most {least}"
    heads = ["without", "error changes by", "error then", "predictions move by"]
    table = _table(heads, rows, "What removing each dataset would change", summary=summary)
    return _section(name, heading, text, table)


def _average(facts: Facts) -> Html:
    """Which fits were averaged, and with which shares."""
    if not facts.candidates:
        return Html()
    shares: dict[str, list[float]] = {}
    for each in facts.candidates:
        shares.setdefault(each.family, []).append(each.share)
    families = sorted(shares.items(), key=lambda pair: (-math.fsum(pair[1]), pair[0]))
    tried = f" and in cross-domain validation on {counted((facts.validation_sources, 'source'))}"
    text = "There was one candidate."
    if len(facts.candidates) > 1:
        text = f"{counted((len(facts.candidates), 'candidate fit'))} were averaged. A candidate's share grows with how "
        text += f"well it does on focal rows it has not seen{tried if facts.validation_sources else ''}."
    bands, legend = [], []
    for k, (name, parts) in enumerate(families):
        share, colour = math.fsum(parts), f"c{k % 5}"
        bands.append(element("i", class_=colour, style=f"width:{100 * share:.2f}%"))
        meaning = "; ".join(filter(None, [FAMILIES.get(name), counted((len(parts), "candidate"))]))
        words = element(
            "span", element("b", _family(name)), f" {percent(share)}", element("span", meaning, class_="why")
        )
        legend.append(element("li", element("i", class_=colour), words))
    shown = element("div", *bands, class_="bands", role="img", aria_label="Shares of the families")
    listed = element("ul", *legend, class_="legend")
    table = _candidate_table(facts.candidates)
    return _section("average", "What was averaged", text, *_map_parts(facts), shown, listed, table)


def _family(name: str) -> str:
    """A family of candidates as the page calls it: fits to the focal rows are called as in the comparison."""
    return OWN_ROWS if name == FOCAL_FAMILY else name


def _map_parts(facts: Facts) -> list[Html]:
    """The feature maps and what each does by itself; nothing where there is one map only."""
    if not facts.maps:
        return []
    text = f"The fits use {len(facts.maps)} feature maps, made from the rows. {facts.carried}"
    return [element("p", text), _map_table(facts.maps), element("p", "The same fits by family:")]


def _map_table(maps: Sequence[MapFact]) -> Html:
    most = max(each.share for each in maps) or 1.0
    shares, errors = percent_column([each.share for each in maps]), column([each.error for each in maps])
    validation = column([each.validation_error for each in maps])
    rows: list[list[str]] = []
    for each, share, error, validated in zip(maps, shares, errors, validation):
        name = _name(MAP_NAMES.get(each.name, each.name), below=MAP_MEANINGS.get(each.name, ""))
        rows.append([name, _bar(share, each.share / most), f"{each.features:,}", error, validated])
    heads = ["feature map", "share", "features", "left-out error"]
    heads += ["validation error ÷ best"] if any(each.validation_error is not None for each in maps) else []
    return _table(heads, rows, "Feature maps and their shares")


def _candidate_table(candidates: Sequence[CandidateFact]) -> Html:
    top, rest = candidates[:TOP_CANDIDATES], candidates[TOP_CANDIDATES:]
    most = max(c.share for c in top) or 1.0
    shares, errors = percent_column([c.share for c in top]), column([c.error for c in top])
    rows: list[list[str]] = []
    for c, share, error, validation in zip(top, shares, errors, column([c.validation_error for c in top])):
        settings = ", ".join(f"{name} {plain_value(value)}" for name, value in c.settings.items())
        name, bar = _name(_family(c.family), below=settings), _bar(share, c.share / most)
        rows.append([name, bar, number(c.effective_ridge), error, validation])
    heads = ["candidate", "share", "effective ridge", "left-out error"]
    heads += ["validation error ÷ best"] if any(c.validation_error is not None for c in top) else []
    table = _table(heads, rows, "Candidates with the largest shares")
    more = f"The other {len(rest):,} share {percent(sum(c.share for c in rest))}."
    return join([table, element("p", more)]) if rest else table


def _settings(facts: Facts, settings: Mapping[str, Any] | None) -> Html:
    """What was set, and with which versions."""
    import sklearn

    versions = {"mixtune": __version__, "NumPy": np.__version__, "scikit-learn": sklearn.__version__}
    versions |= {"Python": platform.python_version()}
    given = {name: plain_value(value) for name, value in (settings or {}).items()}
    lists = []
    for heading, pairs in {"Given": given, facts.estimator: facts.parameters, "Versions": versions}.items():
        items = [element("div", element("dt", name), element("dd", element("bdi", pairs[name]))) for name in pairs]
        if items:
            lists.append(element("div", element("h3", heading), element("dl", *items, class_="pairs")))
    title = element("h2", "Settings and versions")
    return element("section", title, element("div", *lists, class_="lists"), id="settings")


def _name(name: str, *, below: str = "", mark: str = "") -> Html:
    """The name of a table's row, isolated so that its writing direction stays inside, with a remark and a mark."""
    shown = element("bdi", shorten(name, LONGEST_NAME), title=name if len(name) > LONGEST_NAME else "")
    badge = join([" ", element("span", mark, class_=f"badge {mark}")]) if mark else ""
    return element("th", shown, badge, element("span", below, class_="why") if below else "", scope="row")


def _bar(text: str, end: float, start: float = 0.0, *, style: str = "", mark: float | None = None) -> Html:
    """A number over a bar between two parts of the cell; ``mark`` is a place on it."""
    left, right = (min(max(part, 0.0), 1.0) if math.isfinite(part) else 1.0 for part in (start, end))
    fill = element("i", style=f"left:{100 * left:.1f}%;width:{100 * (right - left):.1f}%")
    at = [] if mark is None else [element("i", class_="at", style=f"left:{100 * min(mark, 1.0):.1f}%")]
    track = element("span", *([fill] if end > start else []), *at, class_=f"track {style}".strip())
    return element("span", element("span", text, class_="figure"), track, class_="barred")


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, summary: str = "", always: int = 0
) -> Html:
    """A table of names and numbers with bars; on a narrow screen every row becomes a small card.

    Cells without a head are left out. With a ``summary``, a long table shows its first rows, and the rest is folded
    away under it; the first ``always`` rows do not count.
    """
    if summary and len(rows) - always > LONGEST_TABLE:
        shown = SHOWN_ROWS + always
        rest = _table(heads, rows[shown:], f"{caption}: the rest")
        return join([_table(heads, rows[:shown], caption), element("details", element("summary", summary), rest)])
    top = [element("th", head, scope="col", class_="num" if place else "") for place, head in enumerate(heads)]
    body = []
    for name, *cells in rows:
        numbers = (element("td", cell, class_="num", data_label=head) for head, cell in zip(heads[1:], cells))
        body.append(element("tr", name, *numbers))
    parts = element("thead", element("tr", *top)), element("tbody", *body)
    return element("table", element("caption", caption, class_="unseen"), *parts)


# Parts of the page that the page about all domains shares.
bar, pair, row_name, section, settings_section, table = _bar, _pair, _name, _section, _settings, _table
