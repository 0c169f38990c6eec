"""Results in; tables, figures and one HTML page out."""

from mixtune._files import write_atomically
from mixtune.report.every import every_html, write_every
from mixtune.report.facts import Facts, model_facts, read_facts
from mixtune.report.figures import FIGURES, draw, require_matplotlib, save_figure, write_csv
from mixtune.report.page import page_html, report_html, write_report
from mixtune.report.verdict import Verdict, give_verdict

# The page and what it says, the paper's figures and tables, files.
__all__ = ["Facts", "Verdict", "give_verdict", "model_facts", "page_html", "read_facts", "report_html", "write_report"]
__all__ += ["FIGURES", "draw", "require_matplotlib", "save_figure", "write_csv"]
__all__ += ["write_atomically"]
__all__ += ["every_html", "write_every"]
