"""One page that explains a fit: the verdict first, then what it rests on. The file holds all it needs.

`_facts` and `_left_out` read the model; `_verdict` judges; `_sections` and `_closing` write the page's parts with the
charts of `_charts` (drawn with `_svg`) and `_tables`; `_words` rounds and escapes; `page.css` is the style.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from mixtune._files import write_atomically
from mixtune.errors import DataError
from mixtune.report.page._closing import average_section, glossary_section, row_section, settings_section
from mixtune.report.page._facts import Facts, read_facts
from mixtune.report.page._left_out import COVERAGE
from mixtune.report.page._sections import comparison_section, domain_section, path_section, removal_section
from mixtune.report.page._verdict import Verdict, give_verdict, rows_sentence
from mixtune.report.page._words import column, escape, percent, shorten

__all__ = ["report_html", "write_report"]

#: The browser itself is told to fetch nothing and to run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


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

    Returns
    -------
    str
        A whole HTML document.

    Raises
    ------
    DataError
        If the rows are not those that the model was fitted to.
    """
    facts = read_facts(model, X=X, y=y, sources=sources, target=target)
    verdict = give_verdict(facts)
    title = title or _default_title(facts, target)
    body = [
        _header(facts, verdict, title, tuple(dict.fromkeys((*facts.notes, *notes)))),
        domain_section(facts),
        comparison_section(facts),
        path_section(facts),
        row_section(facts),
        removal_section(facts),
        average_section(facts),
        settings_section(facts, settings, date),
        glossary_section(),
    ]
    style = files("mixtune.report.page").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(shorten(title, 120))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def write_report(
    path: str | Path,
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
) -> Path:
    """Write the page of :func:`report_html` to ``path``, whole or not at all."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a folder; give the name of a file, such as {path / 'report.html'}")
    if not path.parent.is_dir():
        raise DataError(f"the folder {path.parent} does not exist; make it first")
    text = report_html(
        model, X=X, y=y, sources=sources, title=title, target=target, settings=settings, notes=notes, date=date
    )
    return write_atomically(path, text.encode("utf-8"))


def _default_title(facts: Facts, target: str | Sequence[str] | None) -> str:
    names = [target] if isinstance(target, str) else list(target or ())
    what = f"Predicting {', '.join(map(str, names[:3]))}{', …' if len(names) > 3 else ''}" if names else "Predictions"
    return f"{what} for {facts.focal.name}"


def _header(facts: Facts, verdict: Verdict, title: str, notes: Sequence[str]) -> str:
    alone = next((c for c in facts.compared if c.method == "focal only" and math.isfinite(c.error)), None)
    # Side by side, so with the same decimals.
    ours, theirs = column([facts.error, None if alone is None else alone.error])
    figures = [("left-out error", ours, "root mean square, each row predicted without it")]
    if alone is not None:
        figures.append(("focal rows alone", theirs, "the same error without the other datasets"))
    if facts.sources:
        others = sum(d.weight for d in facts.sources)
        figures.append(("from other datasets", percent(others), "of the prediction"))
    inside = [rows for rows in facts.left_out if rows.half is not None]
    if inside:
        part = sum(rows.covered for rows in inside) / sum(len(rows.actual) for rows in inside)
        figures.append((f"inside {percent(COVERAGE)} intervals", percent(part), "of the focal rows"))
    elif facts.classes is not None:
        figures.append(("classified right", percent(facts.classes.right / facts.classes.rows), "of the focal rows"))
    cards = "".join(
        f"<div><dt>{escape(name)}</dt><dd><b>{escape(value)}</b><span>{escape(text)}</span></dd></div>"
        for name, value, text in figures
    )
    meaning = "".join(f'<p class="meaning">{escape(text)}</p>' for text in verdict.meaning)
    said = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<header><p class="kicker">mixtune report</p><h1><bdi>{escape(title)}</bdi></h1>'
        f'<p class="data">{escape(rows_sentence(facts))}</p>'
        f'<p id="verdict" class="verdict {verdict.tone}">{escape(verdict.sentence)}.</p>'
        f'{meaning}<dl class="cards">{cards}</dl>'
        + (f'<aside id="notes"><h2>Worth knowing</h2><ul>{said}</ul></aside>' if said else "")
        + "</header>"
    )
