"""One HTML page with the verdicts on all statements of the paper; it holds all it needs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid #ddd; }
th { position: sticky; top: 0; background: #fff; }
code { font-size: .85em; }
.good { color: #00633f; } .slip { color: #8a4b00; } .bad { color: #a3002a; font-weight: 600; } .open { color: #555; }
"""
#: Verdicts by their beginning, the class of their colour, and what they mean.
KINDS = (
    ("checked", "good", "holds as printed, up to rounding or within its bound"),
    ("reproduced", "good", "the published numbers, within their margins"),
    ("not as printed", "slip", "holds with the correction that is named; the printed text was seen to fail"),
    ("not judged", "open", "too few runs to confirm a true statement (power below 0.8)"),
    ("open", "open", "enough runs, but between confirmed and contradicted"),
    ("not (see result)", "bad", "contradicted"),
    ("not (not run)", "open", "its study was not run"),
    ("used in a proof only", "open", "covered by what it is used for"),
    ("not (nothing to check)", "open", "notation or a choice of design"),
)


def verdicts_page(rows: Sequence[Mapping[str, Any]], *, seed: int, runs: Mapping[str, int], made_with: str) -> str:
    """The page, from the rows of the table of all statements."""
    counts = Counter(_kind(row["verdict"])[0] for row in rows)
    summary = "".join(
        f'<tr><td class="{css}">{escape(kind)}</td><td>{counts[kind]}</td><td>{escape(meaning)}</td></tr>'
        for kind, css, meaning in KINDS
        if counts[kind]
    )
    body = "".join(_row(row) for row in rows)
    done = ", ".join(f"{escape(name)} {count}" for name, count in runs.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>Verdicts on the paper's statements</title><style>{STYLE}</style></head><body>\n"
        "<h1>Every statement of the paper</h1>\n"
        "<p><i>Meta-optimization for transfer learning from mixtures of pre-trained kernel regressors.</i> "
        f"Base seed {seed}; runs: {done}. {escape(made_with)}.</p>\n"
        f"<table><tbody>{summary}</tbody></table>\n<table><thead><tr>"
        + "".join(f"<th>{head}</th>" for head in ("statement", "what it says", "verdict", "power", "measured", "how"))
        + f"</tr></thead><tbody>\n{body}</tbody></table>\n</body></html>\n"
    )


def _row(row: Mapping[str, Any]) -> str:
    css = _kind(row["verdict"])[1]
    command = f"<br><code>{escape(row['command'])}</code>" if row["command"] else ""
    cells = [
        f"<td>{escape(row['statement'])}</td>",
        f"<td>{escape(row['says'])}</td>",
        f'<td class="{css}">{escape(row["verdict"])}</td>',
        f"<td>{escape(row['power'])}</td>",
        f"<td>{escape(row['result'])}</td>",
        f"<td>{escape(row['how'])}{command}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>\n"


def _kind(verdict: str) -> tuple[str, str, str]:
    return next(kind for kind in KINDS if verdict.startswith(kind[0]))
