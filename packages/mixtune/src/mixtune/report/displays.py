"""Views of a fitted model for notebooks: pictures in the style of scikit-learn's displays, a table, a short HTML text.

A display holds what it shows and draws it with ``plot``, into axes that are given or made; ``ax_`` and ``figure_`` are
then at hand for further changes. matplotlib is imported when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from markupsafe import Markup

from mixtune._messages import counted
from mixtune.arrays import Floats
from mixtune.data import findings_first, findings_of, frame_of
from mixtune.errors import DataError, MixtuneError, ParameterError
from mixtune.files import check_place, write_atomically
from mixtune.report.facts import DomainFact, Facts, model_facts, read_facts, stored_facts
from mixtune.report.figures import require_matplotlib
from mixtune.report.page import page_html, templates
from mixtune.report.verdict import can_tell, effect_of, give_verdict
from mixtune.report.wording import number, shorten

if TYPE_CHECKING:
    from mixtune.estimators import ColumnEffects

#: Colours that can be told apart by everyone: of the focal domain or model, of the sources, of marks.
OWN, OTHER, MARK = "#0f766e", "#94a3b8", "#b45309"
#: So many domains are listed in a notebook, and of a model of every domain these columns.
SHOWN = 10
EVERY_SHOWN = ("domain", "rows", "error", "error_own_rows", "error_pooled", "gain", "borrows_from")
LONGEST_NAME = 40


class Display:
    """What the displays share: axes that are given or made."""

    ax_: Any
    figure_: Any

    def _open(self, ax: Any, rows: int) -> Any:
        if ax is None:
            require_matplotlib()
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=(6.4, max(2.4, 1.2 + 0.3 * rows)), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


@dataclass(eq=False)
class WeightsDisplay(Display):
    """How much each domain counts.

    Parameters
    ----------
    names : sequence of str
        Domains, the focal one first.
    weights : array
        Their shares of the prediction.

    Examples
    --------
    >>> from mixtune import RegretOptimalRegressor
    >>> X, y = [[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]
    >>> model = RegretOptimalRegressor().fit(X, y, sources={"b": (X, y)})
    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> [bar.get_text() for bar in WeightsDisplay.from_estimator(model).ax_.get_yticklabels()]
    ['focal', 'b']
    """

    names: Sequence[str]
    weights: Floats

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None, most: int = 20) -> Self:
        """Draw the weights of a fitted model."""
        weights = getattr(estimator_of(model), "weights_", None)
        if weights is None:
            kind = type(model).__name__
            raise DataError(f"a {kind} has no weights of domains; draw those of a RegretOptimalRegressor")
        return cls(weights.names, weights.values).plot(ax=ax, most=most)

    def plot(self, *, ax: Any = None, most: int = 20) -> Self:
        """Draw bars, the heaviest source first below the focal domain."""
        order = 1 + np.argsort(-self.weights[1:], kind="stable")
        shown = [0, *order[: most - 1].tolist()]
        ax = self._open(ax, len(shown))
        colours = [OWN if place == 0 else OTHER for place in shown]
        ax.barh(range(len(shown)), self.weights[shown], color=colours)
        ax.set_yticks(range(len(shown)), [shorten(self.names[place], LONGEST_NAME) for place in shown])
        ax.invert_yaxis()
        left = len(self.names) - len(shown)
        ax.set_xlabel("weight" if not left else f"weight ({counted((left, 'source'))} of smaller weight not shown)")
        return self


@dataclass(eq=False)
class EffectsDisplay(Display):
    """How the prediction changes, on average over the focal rows, when one column changes.

    Parameters
    ----------
    effects : ColumnEffects
        As :func:`mixtune.column_effects` finds them.
    """

    effects: ColumnEffects

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None, most: int = 15) -> Self:
        """Draw the effects of the columns of a fitted model."""
        from mixtune.estimators import column_effects

        return cls(column_effects(model)).plot(ax=ax, most=most)

    def plot(self, *, ax: Any = None, most: int = 15) -> Self:
        """Draw points with 95% intervals, the largest first, and the sources' own effects as open circles."""
        shown = self.effects.effects[:most]
        ax = self._open(ax, len(shown))
        ax.axvline(0.0, color=OTHER, linewidth=0.8)
        for place, each in enumerate(shown):
            if each.low is not None and each.high is not None:
                ax.plot([each.low, each.high], [place, place], color=OWN, linewidth=2)
            ax.plot(each.effect, place, "o", color=OWN)
            if each.sources is not None:
                ax.plot(each.sources, place, "o", color=MARK, markerfacecolor="none")
        ax.set_yticks(range(len(shown)), [_effect_label(each) for each in shown])
        ax.invert_yaxis()
        ax.set_xlabel("average change of the prediction")
        if any(each.sources is not None for each in shown):
            ax.plot([], [], "o", color=OWN, label="focal domain")
            ax.plot([], [], "o", color=MARK, markerfacecolor="none", label="sources' own models")
            ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
        return self


@dataclass(eq=False)
class PathDisplay(Display):
    """The left-out error along effective ridges.

    Parameters
    ----------
    ridges, errors : arrays
        Effective ridges, and root mean squared errors of left-out focal rows.
    chosen : int
        The place of the candidate with the largest share.
    """

    ridges: Floats
    errors: Floats
    chosen: int

    @classmethod
    def from_estimator(cls, model: Any, *, ax: Any = None) -> Self:
        """Draw the path of a self-tuning model."""
        path = getattr(estimator_of(model), "ridge_path_", None)
        if path is None:
            raise DataError(f"a {type(model).__name__} has no path of ridges; draw that of a RegretOptimalRegressorCV")
        return cls(path.ridges, np.sqrt(path.loo_errors), path.chosen).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw the curve and mark the largest share."""
        ax = self._open(ax, 8)
        usable = np.isfinite(self.ridges) & np.isfinite(self.errors) & (self.ridges > 0)
        ax.plot(self.ridges[usable], self.errors[usable], color=OWN)
        ax.plot(self.ridges[self.chosen], self.errors[self.chosen], "o", color=MARK, label="largest share")
        ax.set_xscale("log")
        _label_log_axis(ax.xaxis)
        ax.set_xlabel("effective ridge")
        ax.set_ylabel("left-out error (RMSE)")
        ax.legend()
        return self


def _label_log_axis(axis: Any) -> None:
    """Numbers at 1, 2 and 5 times each power of ten, which do not run into each other."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def estimator_of(model: Any) -> Any:
    """The estimator itself, of a model of tables the one inside."""
    return getattr(model, "estimator", model)


def facts_of(model: Any) -> Facts:
    """What a model says about itself, with the rows of its fit where it holds them.

    Examples
    --------
    >>> from mixtune import RegretOptimalRegressorCV
    >>> facts_of(RegretOptimalRegressorCV(None).fit([[0.0], [1.0], [2.0]], [1.0, 2.0, 4.0])).focal.rows
    3
    """
    from mixtune.estimators import rows_of_fit

    estimator = estimator_of(model)
    try:
        X, y, sources = rows_of_fit(estimator)
        facts = read_facts(estimator, X=X, y=y, sources=sources, target=_target(model), explain=False)
    except MixtuneError:  # it holds no rows, or is no self-tuning estimator
        facts = stored_facts(model) if _from_file(model) else model_facts(estimator)
    return _with_notes(facts, model)


def _with_notes(facts: Facts, model: Any) -> Facts:
    """The same facts with notes and method of a model of tables; notes on problems of the rows come first."""
    notes = findings_first(tuple(dict.fromkeys((*getattr(model, "notes", ()), *facts.notes))))
    return replace(facts, notes=notes, findings=findings_of(notes), method=getattr(model, "method", facts.method))


def write_model_report(model: Any, path: Any, *, X: Any = None, y: Any = None, sources: Any = None) -> Path:
    """Write the page about a fitted model; the rows of the fit are needed where the model does not hold them."""
    from mixtune.estimators import rows_of_fit

    path = Path(path)
    if path.suffix.lower() == ".pdf":
        page = path.with_suffix(".html")
        message = f"{path} would be an HTML page under the name of a PDF; write {page}, open it in a browser"
        raise ParameterError(f"{message} and print it to a PDF file")
    check_place(path, "report.html")
    estimator = estimator_of(model)
    about: dict[str, Any] = {"target": _target(model), "columns": getattr(model, "encoder", None)}
    if for_every_domain(estimator):
        from mixtune.report.every import every_html

        notes = findings_first(getattr(model, "notes", ()))
        page = every_html(estimator, target=_target(model), notes=notes, findings=findings_of(notes))
        return write_atomically(path, page.encode("utf-8"))
    if not hasattr(getattr(estimator, "regressor_", estimator), "removal_effects"):
        facts = replace(model_facts(estimator), target=(about["target"],) if about["target"] else ())
    elif X is None and _from_file(model):
        facts = stored_facts(model)
    else:
        rows = rows_of_fit(estimator) if X is None else (X, y, sources)
        facts = read_facts(estimator, X=rows[0], y=rows[1], sources=rows[2], **about)
    facts = _with_notes(facts, model)
    return write_atomically(path, page_html(facts).encode("utf-8"))


def for_every_domain(estimator: Any) -> bool:
    """Whether it predicts for every domain, and not for a focal one."""
    return hasattr(estimator, "summary_columns")


def _from_file(model: Any) -> bool:
    """Whether this is a model of tables that holds no rows."""
    return "made_by" in (getattr(model, "about", None) or {})


def verdict_of(model: Any) -> str:
    """Whether transfer helped, in one sentence."""
    if for_every_domain(estimator_of(model)):
        from mixtune.report.every import every_verdict

        return every_verdict(estimator_of(model))[0]
    return give_verdict(facts_of(model)).sentence


def summary_frame(model: Any, of: str) -> Any:
    """One row for each domain, or for each column, as a pandas frame."""
    if for_every_domain(estimator_of(model)) and of == "domains":
        return estimator_of(model).summary()
    if of == "methods":
        facts = facts_of(model)
        rows = [(each.method, each.error, *(each.reduction or (None,) * 3)) for each in facts.compared]
        names = ("method", "error", "mixtune_lower_by", "low", "high")
        return frame_of({name: [row[place] for row in rows] for place, name in enumerate(names)})
    if of == "columns":
        from mixtune.estimators import column_effects

        return column_effects(model).to_frame()
    if of != "domains":
        raise ParameterError(f'of={of!r} is unknown; choose "domains", "methods" or "columns"')
    facts = facts_of(model)
    domains = (facts.focal, *facts.sources)
    heads = ("domain", "rows", "weight", "own_error", "change_without", "effect")
    cells = [(d.name, d.rows or None, d.weight, d.own_error, d.change, _effect(d, facts)) for d in domains]
    return frame_of(dict(zip(heads, map(list, zip(*cells)))))


def model_html(model: Any) -> Markup:
    """The verdict, the weights and the notes of a fitted model, as a notebook shows them."""
    if for_every_domain(estimator_of(model)):
        return _every_html(model)
    facts = facts_of(model)
    domains = (facts.focal, *facts.sources)
    top = max(each.weight or 0.0 for each in domains) or 1.0
    rows = [{"fact": each, "effect": _effect(each, facts), "part": (each.weight or 0.0) / top} for each in domains]
    about = {"name": type(model).__name__, "verdict": give_verdict(facts), "notes": facts.notes[len(facts.findings) :]}
    about["findings"] = facts.findings
    return Markup(templates().get_template("notebook.html").render(rows=rows, most=SHOWN, **about))


def _every_html(model: Any) -> Markup:
    """The verdict and the domains of a model of every domain."""
    from mixtune.report.every import every_verdict

    estimator = estimator_of(model)
    columns = estimator.summary_columns()
    heads = [name for name in EVERY_SHOWN if name in columns]
    rows = list(zip(*(columns[name] for name in heads)))
    made = templates().get_template("notebook-every.html")
    about = {"name": type(model).__name__, "verdict": every_verdict(estimator), "notes": tuple(estimator.notes_)}
    return Markup(made.render(heads=heads, rows=rows, most=SHOWN, **about))


def _effect(domain: DomainFact, facts: Facts) -> str:
    if domain is facts.focal:
        return "focal"
    return effect_of(domain) if can_tell(facts) else ""


def _effect_label(effect: Any) -> str:
    ends = [each if isinstance(each, str) else number(each) for each in (effect.start, effect.end)]
    output = f" ({effect.output})" if effect.output else ""
    return f"{shorten(effect.column, LONGEST_NAME)}: {ends[0]} to {ends[1]}{output}"


def _target(model: Any) -> str | None:
    encoder = getattr(model, "encoder", None)
    return None if encoder is None else str(encoder.target.name)
