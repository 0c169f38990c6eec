"""Results in; tables, figures and one HTML page out."""

from mixtune._files import write_atomically
from mixtune.report.figures import FIGURES, draw, require_matplotlib, save_figure
from mixtune.report.files import write_csv
from mixtune.report.page import report_html, write_report

__all__ = [
    "FIGURES",
    "draw",
    "report_html",
    "require_matplotlib",
    "save_figure",
    "write_atomically",
    "write_csv",
    "write_report",
]
