"""Results in; tables, figures and one HTML page out."""

from mixtune._files import write_atomically
from mixtune.report.facts import Facts, model_facts, read_facts
from mixtune.report.figures import FIGURES, draw, require_matplotlib, save_figure
from mixtune.report.files import write_csv
from mixtune.report.page import page_html, report_html, write_report
from mixtune.report.verdict import Verdict, give_verdict

__all__ = [
    "FIGURES",
    "Facts",
    "Verdict",
    "draw",
    "give_verdict",
    "model_facts",
    "page_html",
    "read_facts",
    "report_html",
    "require_matplotlib",
    "save_figure",
    "write_atomically",
    "write_csv",
    "write_report",
]
