"""One page that explains a fit: the verdict first, then the evidence for it. The file holds all it needs.

The facts come from :mod:`mixtune.report.facts`, the sentences on them from :mod:`mixtune.report.verdict`. The templates
hold words and markup: ``page.html`` those of this page, ``frame.html`` what every page has, ``parts.html`` tables, bars
and cards. This module prepares the numbers of the tables. Templates escape whatever is not markup.
"""

import base64
import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from markupsafe import Markup

from mixtune._messages import counted, quoted
from mixtune._version import __version__
from mixtune.choice import MIXTUNE
from mixtune.files import check_place, write_atomically
from mixtune.report import _charts as charts
from mixtune.report.facts import (
    COVERAGE,
    MOST_OUTPUTS,
    RMSE,
    ClassFact,
    DomainFact,
    Facts,
    family_shares,
    read_facts,
    rmse,
)
from mixtune.report.verdict import HELP_MARGIN, can_tell, effect_of, give_verdict, with_known_effect
from mixtune.report.wording import (
    FAMILY_NAMES,
    MAP_NAMES,
    METHOD_NAMES,
    column,
    escape,
    measure_columns,
    number,
    percent,
    percent_column,
    plain_value,
    shorten,
)

if TYPE_CHECKING:
    from jinja2 import Environment

#: Of longer tables, so many rows are shown and the others are folded away.
LONGEST_TABLE, SHOWN_ROWS = 30, 15
TOP_CANDIDATES = 10


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
    advice: str | None = None,
) -> str:
    """Write the page from facts that were read before; the options are those of :func:`report_html`.

    ``inputs`` are names of files that the rows came from, ``command`` is what was typed, and ``advice`` is the command
    that does what the verdict advises; by default it is told for Python.
    """
    if title is None:
        names = ", ".join(facts.target[:3]) + (", …" if len(facts.target) > 3 else "")
        title = f"{f'Predicting {names}' if names else 'Predictions'} for {facts.focal.name}"
    verdict = give_verdict(facts)
    about: dict[str, Any] = {"title": title, "date": date, "inputs": inputs, "command": command, "verdict": verdict}
    about |= {"brief": _brief(facts), "advice": python_call(verdict.settings) if advice is None else advice}
    return render("page.html", facts, settings, **about, effects=_effects(facts), comparison=_comparison(facts))


def python_call(settings: Mapping[str, Any]) -> str:
    """The call that fits with these settings; "" where there are none.

    Examples
    --------
    >>> python_call({"exclude": ["b"]}), python_call({})
    ("fit_table(..., exclude=['b'])", '')
    """
    return f"fit_table(..., {', '.join(f'{name}={value!r}' for name, value in settings.items())})" if settings else ""


def _brief(facts: Facts) -> dict[str, str]:
    """What was predicted and how well, each in one line."""
    what = ", ".join(facts.target[:3]) or "the target"
    rows = counted((facts.focal.rows, "row"))
    predicted = f"{what} for {facts.focal.name}, from {rows} of its own"
    if facts.sources:
        others = sum(each.rows for each in facts.sources)
        predicted += f" and {f'{others:,} of ' if others else ''}{counted((len(facts.sources), 'other dataset'))}"
    errors = {METHOD_NAMES.get(each.method, each.method): each.error for each in facts.compared}
    known = {name: error for name, error in errors.items() if error is not None}
    if MIXTUNE not in known:
        quality = "Not known: there are too few rows to test on." if facts.error is None else ""
        return {"predicted": f"{predicted}.", "quality": quality or f"The left-out error is {number(facts.error)}."}
    ours = number(known.pop(MIXTUNE))
    kind = f"typical error ({facts.metric})" if facts.metric == RMSE else facts.metric
    against = ", ".join(f"{number(error)} {_with(name)}" for name, error in known.items())
    quality = f"The {kind} on rows that the fits have not seen is {ours}, against {against}; lower is better."
    return {"predicted": f"{predicted}.", "quality": quality}


def _with(method: str) -> str:
    """A method at the end of a list of errors."""
    return {"pooled": "with all rows pooled", "predict the mean": "for the mean"}.get(method, f"with {method}")


def r2_text(value: float) -> str:
    """A part of the variance; never 1 where something is left.

    Examples
    --------
    >>> r2_text(0.384), r2_text(0.9982), r2_text(1.0), r2_text(-0.5)
    ('0.38', '0.998', '1', '−0.5')
    """
    digits = 2
    while value < 1 and digits < 6 and round(value, digits) == 1:
        digits += 1
    return number(round(value, digits), digits)


def input_text(value: str | float) -> str:
    """A value of a column: text as it is, numbers rounded, years and others of four digits without a separator.

    Examples
    --------
    >>> input_text(1999.0), input_text(12304.0), input_text("red")
    ('1999', '12,304', 'red')
    """
    text = text_or_number(value)
    return text.replace(",", "") if not isinstance(value, str) and abs(value) < 10_000 else text


def render(template: str, facts: Any, settings: Mapping[str, Any] | None, **fields: Any) -> str:
    """A page from a template of this folder.

    Parameters
    ----------
    template
        The name of its file.
    facts
        What the page shows, with the name and the parameters of the estimator and its notes.
    settings
        Further settings to list.
    **fields
        Title, date, inputs, command and verdict for ``frame.html``, and what else the template shows.
    """
    import sklearn

    versions = {"mixtune": __version__, "NumPy": np.__version__, "scikit-learn": sklearn.__version__}
    versions |= {"Python": platform.python_version()}
    given = {name: plain_value(value) for name, value in (settings or {}).items()}
    listed = {"Given": given, facts.estimator: facts.parameters, "Versions": versions}
    style, script = (files("mixtune.report").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    # The policy of the page identifies its script by this hash, so that the browser runs nothing else.
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shared = {"style": Markup(style), "script": Markup(script), "hash": known, "settings": listed}
    return templates().get_template(template).render(facts=facts, **shared, **fields)


@cache
def templates() -> "Environment":
    """The templates of this folder, which escape whatever is not markup, and what they call."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("mixtune.report", ""),
        autoescape=True,
        finalize=escape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    words = (can_tell, column, counted, number, percent, shorten, text_or_number)
    tables = (candidates_table, classes_table, datasets_table, maps_table, miss_table, removal_table)
    shared = (*words, *tables, family_name, families, predicted, r2_text, zip)
    found.globals |= {each.__name__: each for each in shared}
    found.globals |= {"draw": charts, "inf": math.inf, "once": dict.fromkeys}
    found.globals |= {"COVERAGE": COVERAGE, "HELP_MARGIN": HELP_MARGIN}
    found.globals |= {"MOST_OUTPUTS": MOST_OUTPUTS, "TOP_CANDIDATES": TOP_CANDIDATES}
    return found


@dataclass(frozen=True)
class Name:
    """The name of a table's row, with a remark below it and a mark beside it."""

    name: str
    below: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Bar:
    """A number over a bar between two parts of the cell; ``mark`` is a place on it.

    Examples
    --------
    >>> Bar("half", 0.5).left, Bar("half", 0.5).width, Bar.both("-1", -1.0, "down").left
    (0.0, 50.0, 0.0)
    """

    text: str
    end: float
    start: float = 0.0
    style: str = ""
    mark: float | None = None

    @classmethod
    def both(cls, text: str, part: float, style: str) -> Self:
        """A bar from the middle, to the right where the part is positive."""
        start, end = sorted([0.5, 0.5 + part / 2])
        return cls(text, end, start, f"both {style}", 0.5)

    @property
    def left(self) -> float:
        return self._percent(self.start)

    @property
    def width(self) -> float:
        return self._percent(self.end) - self.left

    def _percent(self, part: float) -> float:
        return 100 * (min(max(part, 0.0), 1.0) if math.isfinite(part) else 1.0)


@dataclass(frozen=True)
class Table:
    """Rows of a name and of numbers or bars; cells without a head are left out.

    With a ``summary``, a long table shows its first rows, and the rest is folded away under it; the first ``always``
    rows do not count.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    summary: str = ""
    always: int = 0

    @property
    def _cut(self) -> int:
        long = self.summary and len(self.rows) - self.always > LONGEST_TABLE
        return SHOWN_ROWS + self.always if long else len(self.rows)

    @property
    def shown(self) -> Sequence[Sequence[Any]]:
        return self.rows[: self._cut]

    @property
    def folded(self) -> Sequence[Sequence[Any]]:
        return self.rows[self._cut :]


def text_or_number(value: str | float) -> str:
    """Text as it is, numbers rounded."""
    return value if isinstance(value, str) else number(value)


def datasets_table(facts: Facts) -> Table:
    """Weights with what explains them: rows, distances, and how well each dataset's own model fits the focal rows."""
    domains = (facts.focal, *facts.sources)
    most = max(d.weight or 0.0 for d in domains) or 1.0  # the longest bar
    reach = max([d.distance or 0.0 for d in facts.sources] + [facts.floor or 0.0]) or 1.0
    floor = None if facts.floor is None else facts.floor / reach
    weights, errors = percent_column([d.weight or 0.0 for d in domains]), column([d.own_error for d in domains])
    distances = column([None, *(d.distance for d in facts.sources)])
    rows = []
    for domain, weight, error, distance in zip(domains, weights, errors, distances):
        far: str | Bar = distance
        name, style = Name(domain.name, mark="focal"), "own"
        if domain is not facts.focal:
            effect = effect_of(domain) if can_tell(facts) else ""
            name = Name(domain.name, _why(domain, facts), effect if effect in ("helped", "hurt") else "")
            style, far = "", Bar(distance, (domain.distance or 0.0) / reach, style="far", mark=floor)
        count = f"{domain.rows:,}" if domain.rows else "not known"
        rows.append([name, Bar(weight, (domain.weight or 0.0) / most, style=style), count, error, far])
    known = any(d.distance is not None for d in facts.sources)
    heads = ["dataset", "weight", "rows", "error of its own model", *(["distance"] if known else [])]
    rest = facts.sources[SHOWN_ROWS:]
    share = percent(math.fsum(d.weight or 0.0 for d in rest))
    summary = f"{counted((len(rest), 'more dataset'))} with {share} of the weight together"
    return Table("Datasets and their weights", heads, rows, summary, always=1)


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


def _comparison(facts: Facts) -> dict[str, Any] | None:
    """The model against simpler fits: measures of the predictions, and charts; None where there are no others."""
    compared = [each for each in facts.compared if each.error is not None]
    if not facts.sources or len(compared) < 2 or compared[0].method != MIXTUNE:
        return None
    measured = [each for each in facts.compared if each.measures is not None]
    cells = measure_columns(measured)
    names = [Name(METHOD_NAMES.get(each.method, each.method)) for each in measured]
    table = Table("Errors of the methods", ["method", *cells], list(zip(names, *cells.values())))
    drawn = charts.comparison_charts([each for each in compared if each.ratio is not None])
    return {"table": table if cells else None, "charts": drawn}


def _effects(facts: Facts) -> dict[str, Any] | None:
    """Which columns drive the prediction: effects on the first output, and curves; None where they are not known."""
    if facts.columns is None or not facts.columns.effects.effects:
        return None
    found = facts.columns.effects
    effects = [each for each in found.effects if each.output == found.effects[0].output]
    target = predicted(facts, effects[0].output)
    # All with the same decimals, in percent for probabilities.
    values = [value for each in effects for value in (each.effect, each.low, each.high, each.sources)]
    texts = iter(column(values) if facts.classes is None else ["–" if x is None else percent(x) for x in values])
    reach = max(max(abs(e.effect), abs(e.low or 0.0), abs(e.high or 0.0)) for e in effects) or 1.0
    rows = []
    for each, (text, low, high, others) in zip(effects, zip(texts, texts, texts, texts)):
        ends = f"{input_text(each.start)} → {input_text(each.end)}"
        name = Name(each.column, ends, "differs" if each.differs else "")
        # An effect that may as well be none must not look like one.
        style = "far" if not supported(each) else "up" if each.effect > 0 else "down"
        bar = Bar.both(text, each.effect / reach, style)
        interval = "–" if each.low is None else f"{low} to {high}"
        slope = number(each.slope) if facts.classes is None or each.slope is None else percent(each.slope)
        rows.append([name, bar, interval, slope, others])
    known = any(each.sources is not None for each in effects)
    heads = ["column", f"change of {shorten(target, 30)}", "95% interval", "for one unit"]
    heads += ["in other datasets"] if known else []
    summary = f"{counted((len(rows) - SHOWN_ROWS, 'more effect'))}, all smaller"
    sure = list(dict.fromkeys(each.column for each in effects if supported(each)))
    curves = [
        charts.curve_chart(curve, f"curve{k}", column=name, target=target)
        for k, (name, curve) in enumerate(facts.columns.curves.items())
        if name in sure
    ]
    told = "The data support an effect of no single column: the intervals of all include zero."
    if len(sure) == len({each.column for each in effects}):
        told = "The data support an effect of every column."
    elif sure:
        told = f"The data support an effect of {quoted(sure)}. Of the other columns it may as well be none: "
        told += "their bars are grey."
    table = Table("Effects of columns", heads, rows, summary)
    return {"found": found, "target": target, "in_sources": known, "table": table, "curves": curves, "told": told}


def supported(effect: Any) -> bool:
    """Whether the interval of an effect excludes zero; where there is no interval, nothing is known against it."""
    return effect.low is None or effect.high is None or effect.low > 0 or effect.high < 0


def predicted(facts: Facts, output: str) -> str:
    """The quantity that effects are changes of: the target, or the probability of a class."""
    if facts.classes is not None:
        return f"the probability of {output}"
    name = facts.target[0] if facts.target else "the prediction"
    return name if not output or len(facts.target) == 1 else output


def miss_table(miss: Any, show: Any) -> Table:
    """What each column adds to the prediction of one row."""
    reach = max(abs(part) for *_, part in miss.parts) or 1.0
    rows = []
    for name, value, part in miss.parts[:SHOWN_ROWS]:
        bar = Bar.both(f"{'+' if part > 0 else ''}{show(part)}", part / reach, "up" if part > 0 else "down")
        rows.append([Name(name), input_text(value), bar])
    return Table(f"Contributions to row {miss.row + 1}", ["column", "value", "adds"], rows)


def classes_table(classes: ClassFact) -> Table:
    """How often each class is predicted for the rows of each actual class."""
    rows = [
        [Name(name), *(Bar(f"{n:,}", n / max(sum(row), 1), style="" if k == i else "far") for k, n in enumerate(row))]
        for i, (name, row) in enumerate(zip(classes.names, classes.counts.tolist()))
    ]
    heads = ["actual class", *(f"predicted {name}" for name in classes.names)]
    return Table("Actual and left-out classes", heads, rows)


def removal_table(facts: Facts) -> Table:
    """What leaving one dataset out would do."""
    known = [(d, d.change) for d in with_known_effect(facts) if d.change is not None]
    known.sort(key=lambda pair: (-abs(pair[1]), pair[0].name))
    # Changes of no account must not look large only because there are no others.
    most = max([10 * HELP_MARGIN, *(abs(change) for _, change in known)])
    changes = percent_column([change for _, change in known], signed=True)
    errors, shifts = column([d.error_without for d, _ in known]), column([d.shift for d, _ in known])
    rows = []
    for (domain, change), shown, error, shift in zip(known, changes, errors, shifts):
        style = "far" if effect_of(domain) not in ("helped", "hurt") else "up" if change > 0 else "down"
        rows.append([Name(domain.name), Bar.both(shown, change / most, style), error, shift])
    rest = known[SHOWN_ROWS:]
    least = percent(abs(rest[0][1])) if rest else ""
    summary = f"{counted((len(rest), 'more dataset'))}, each changing the error by at most {least}"
    heads = ["without", "error changes by", "error then", "predictions move by"]
    return Table("What removing each dataset would change", heads, rows, summary)


def family_name(name: str) -> str:
    """A family of candidates as the page calls it: fits to the focal rows are called as in the comparison."""
    return FAMILY_NAMES.get(name, name).removeprefix("the ")


def families(facts: Facts) -> list[dict[str, Any]]:
    """The families of candidates, largest share first."""
    return [
        {"family": name, "share": math.fsum(shares), "count": len(shares)}
        for name, shares in family_shares(facts.candidates)
    ]


def maps_table(maps: Sequence[Any], meanings: Mapping[str, str]) -> Table:
    """Feature maps, with the share and the errors of each."""
    names = [Name(MAP_NAMES.get(each.name, each.name), meanings.get(each.name, "")) for each in maps]
    sizes = [f"{each.n_features:,}" for each in maps]
    return _shares_table("Feature maps and their shares", ("feature map", "features"), maps, names, sizes)


def candidates_table(candidates: Sequence[Any]) -> Table:
    """The candidates with the largest shares."""
    names = []
    for each in candidates:
        settings = ", ".join(f"{name} {plain_value(value)}" for name, value in each.settings.items())
        names.append(Name(family_name(each.family), settings))
    ridges = [number(each.effective_ridge) for each in candidates]
    heads = ("candidate", "effective ridge")
    return _shares_table("Candidates with the largest shares", heads, candidates, names, ridges)


def _shares_table(
    caption: str, heads: tuple[str, str], parts: Sequence[Any], names: Sequence[Name], about: Sequence[str]
) -> Table:
    """Parts of the average: their names, shares, what is said about each, and their errors."""
    most = max(each.share for each in parts) or 1.0
    texts = percent_column([each.share for each in parts])
    bars = [Bar(text, each.share / most) for text, each in zip(texts, parts)]
    errors, validation = (
        column([rmse(getattr(each, name)) for each in parts]) for name in ("loo_error", "validation_error")
    )
    shown = [heads[0], "share", heads[1], "left-out error"]
    shown += ["validation error ÷ best"] if any(each.validation_error is not None for each in parts) else []
    return Table(caption, shown, list(zip(names, bars, about, errors, validation)))
