"""The style of figures, and figures and tables as files.

Matplotlib draws; nothing here touches its global state.
"""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixtune.errors import DataError, MissingExtraError
from mixtune.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.framealpha": 0.9,
    "svg.hashsalt": "mixtune",
}


def require_matplotlib() -> None:
    """Raise before long work, not after it, where figures could not be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "report", "drawing figures")


def save_figure(figure: Figure, folder: Path, stem: str, endings: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, or those asked for; the same figure gives the same bytes."""
    import matplotlib

    paths = []
    for ending in endings:
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        options: dict[str, Any] = {"metadata": dates[ending.lower()]} if ending.lower() in dates else {"dpi": 160}
        buffer = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(buffer, format=ending.lower(), **options)
        paths.append(write_atomically(folder / f"{stem}.{ending}", buffer.getvalue()))
    return paths


def write_figure(
    drawing: Callable[[], Figure], folder: Path, stem: str, endings: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Draw a figure in the style of all figures, and write it as :func:`save_figure` does."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(STYLE):
        return save_figure(drawing(), folder, stem, endings)


def write_csv(path: Path, table: Sequence[Mapping[str, Any]]) -> Path:
    """Write a table as CSV, numbers with all their digits; completely or not at all.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(Path(folder) / "a.csv", [{"method": "RO", "loss": 0.1}]).read_text()
    'method,loss\\nRO,0.1\\n'
    """
    if not table:
        raise DataError(f"there is nothing to write to {path}: the table has no rows")
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return write_atomically(path, text.getvalue().encode())
