"""Results in; tables, figures and one HTML page out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mixtune.files import write_atomically

if TYPE_CHECKING:
    from mixtune.report.every import every_html, every_verdict, write_every
    from mixtune.report.facts import Facts, model_facts, read_facts
    from mixtune.report.figures import require_matplotlib, save_figure, write_csv, write_figure
    from mixtune.report.page import page_html, report_html, write_report
    from mixtune.report.verdict import Verdict, give_verdict

# The page and what it says, the paper's figures and tables, files.
__all__ = ["Facts", "Verdict", "give_verdict", "model_facts", "page_html", "read_facts", "report_html", "write_report"]
__all__ += ["require_matplotlib", "save_figure", "write_csv", "write_figure"]
__all__ += ["write_atomically"]
__all__ += ["every_html", "every_verdict", "write_every"]

_MODULES = {
    "every": ("every_html", "every_verdict", "write_every"),
    "facts": ("Facts", "model_facts", "read_facts"),
    "figures": ("require_matplotlib", "save_figure", "write_csv", "write_figure"),
    "page": ("page_html", "report_html", "write_report"),
    "verdict": ("Verdict", "give_verdict"),
}


def __getattr__(name: str) -> Any:
    # A command that writes no page has no use for the modules that draw it.
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"mixtune.report.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
