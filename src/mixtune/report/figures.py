"""The paper's figures from the summaries of their studies, and exercise regions of options; tables as CSV files.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; methods also differ in width and quantities in
dashes, so that the figures can be read in grey. Matplotlib draws them; nothing here touches its global state.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mixtune._array import Floats, Integers
from mixtune._files import write_atomically
from mixtune.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mixtune.options import ExerciseRegion, PriceGrid
    from mixtune.paper import Findings, Table
    from mixtune.paper.convergence import ConvergenceSummary, Series

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#555555"
# RO and ARO nearly coincide, and so do loss and energy of GD: later lines are thinner, drawn on top of broad ones.
LINES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("RO", "loss"): {"color": BLUE, "linewidth": 4.0, "alpha": 0.5},
    ("RO", "energy"): {"color": BLUE, "linewidth": 4.0, "alpha": 0.5, "linestyle": (0, (1.6, 0.8))},
    ("ARO", "loss"): {"color": "black", "linewidth": 1.0},
    ("ARO", "energy"): {"color": "black", "linewidth": 1.0, "linestyle": (0, (5, 3))},
    ("GD", "loss"): {"color": ORANGE, "linewidth": 3.0},
    ("GD", "energy"): {"color": "#7A3E00", "linewidth": 1.0, "linestyle": (0, (5, 3))},
}
BAND_ALPHA = {"RO": 0.14, "ARO": 0.05, "GD": 0.14}
MEAN_AND_STD = "mean and standard deviation over runs"
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


def draw(name: str, summary: Any) -> Figure:
    """The figure of the study called ``name``, one of :data:`FIGURES`."""
    return _styled(FIGURES[name], summary)


def draw_exercise_region(region: ExerciseRegion) -> Figure:
    """The exercise region of a pricing result: the boundary of one asset, the regions of two."""
    return _styled(_regions if region.boundary is None else _boundary, region)


def draw_price_grid(grid: PriceGrid) -> Figure:
    """Prices by strike with their 95% intervals, a line for each maturity; dashed without early exercise."""
    return _styled(_strikes, grid)


def _styled(drawing: Callable[[Any], Figure], subject: Any) -> Figure:
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(STYLE):
        return drawing(subject)


def save_figure(figure: Figure, folder: Path, stem: str, endings: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write ``stem.png`` and ``stem.svg``, or those asked for; the same figure gives the same bytes."""
    import matplotlib

    paths = []
    for ending in endings:
        options: dict[str, Any] = {"metadata": {"Date": None}} if ending.lower() == "svg" else {"dpi": 160}
        buffer = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(buffer, format=ending.lower(), **options)
        paths.append(write_atomically(folder / f"{stem}.{ending}", buffer.getvalue()))
    return paths


def write_csv(path: Path, table: Table) -> Path:
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


def _panels(columns: int, rows: int = 1, *, size: tuple[float, float], shared: bool = False) -> tuple[Figure, Any]:
    """A figure, and its axes row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).ravel()


# --- convergence ------------------------------------------------------------------------------------------------


def _figure_1(summary: ConvergenceSummary) -> Figure:
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, panels = _panels(3, size=(13, 4.6))
    horizon, half = summary.settings.horizon, summary.settings.horizon // 2
    for axes, (first, last) in zip(panels, ((0, summary.settings.descent_steps), (0, horizon), (half, horizon))):
        for series in summary.series:
            if axes is not panels[2] or series.method != "GD":
                _curves(axes, series, first, last)
        axes.set(xlabel="iteration", xlim=(first, last))
    panels[0].set(title="All iterations (log axes)", ylabel=MEAN_AND_STD, yscale="log")
    panels[0].set_xscale("symlog", linthresh=1)
    panels[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[0].yaxis.set_major_formatter("{x:g}")
    panels[0].yaxis.set_minor_formatter(NullFormatter())
    panels[1].set(title=f"First {horizon} iterations", ylim=(0, None))
    panels[2].set(title=f"Iterations {half} to {horizon}, RO and ARO", ylim=(0, None))
    _legend_below(figure, panels[1])
    runs = f"{summary.runs} runs" + (f", GD {summary.runs - summary.diverged} of them" if summary.diverged else "")
    figure.suptitle(rf"Loss and energy for $\lambda = 0$ ({runs})", fontsize=11)
    return figure


def _figure_2(summary: ConvergenceSummary) -> Figure:
    transfers, horizon = summary.settings.transfers, summary.settings.horizon
    figure, panels = _panels(len(transfers), size=(4.8 * len(transfers), 4.6))
    for axes, transfer in zip(panels, transfers):
        axes.set(title=rf"$\lambda = {_power_of_ten(transfer)}$", xlabel="iteration", xlim=(0, horizon))
        for series in summary.series:
            if series.transfer == transfer:
                _curves(axes, series, 0, horizon)
        axes.set_ylim(bottom=0)
    last = max(0, horizon - 10)
    inset = panels[-1].inset_axes((0.12, 0.11, 0.7, 0.36))
    for series in summary.series:
        if series.transfer == transfers[-1]:
            _curves(inset, series, last, horizon)
    inset.set_title(f"iterations {last} to {horizon}", fontsize=8)
    inset.tick_params(labelsize=7)
    panels[0].set_ylabel(MEAN_AND_STD)
    _legend_below(figure, panels[0])
    figure.suptitle(f"Loss and energy of RO and ARO ({summary.runs} runs)", fontsize=11)
    return figure


def _curves(axes: Axes, series: Series, first: int, last: int) -> None:
    """Loss and energy of one method, with bands of one standard deviation."""
    if not series.runs:
        return
    within = np.flatnonzero((series.iterations >= first) & (series.iterations <= last))
    within = within[_thinned(len(within))]
    t = series.iterations[within]
    for quantity in ("loss", "energy"):
        mean, std = (getattr(series, f"{quantity}_{part}")[within] for part in ("mean", "std"))
        line = LINES[series.method, quantity]
        axes.plot(t, mean, label=f"{series.method} {quantity}", **line)
        # The band must not reach zero, which a log axis cannot show.
        low, alpha = np.maximum(mean - std, 1e-3 * mean), BAND_ALPHA[series.method]
        axes.fill_between(t, low, mean + std, color=line["color"], alpha=alpha, linewidth=0)


def _thinned(points: int) -> Integers:
    """Which of many points to draw: dense at both ends, for log axes and for curves that fall at the last steps."""
    ends = np.geomspace(1, points, 100) - 1
    chosen = np.concatenate([np.linspace(0, points - 1, 200), ends, points - 1 - ends])
    return np.unique(np.rint(chosen).astype(int))


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), handlelength=3.5)


def _power_of_ten(value: float) -> str:
    exponent = np.log10(value) if value > 0 else 0.5
    return f"10^{{{exponent:.0f}}}" if exponent == round(exponent) and exponent else f"{value:g}"


# --- other studies ----------------------------------------------------------------------------------------------


#: So many places on an axis are labelled one by one.
FEW_PLACES = 6


def _findings(summary: Findings) -> Figure:
    """The panels of a study, each with its lines: the median over runs, with a band between the quartiles."""
    from matplotlib.ticker import NullLocator

    figure, panels = _panels(len(summary.panels), size=(4.5 * len(summary.panels), 4.2))
    colours = (BLUE, ORANGE, GREEN, PURPLE, GREY, "black")
    for axes, (name, panel) in zip(panels, summary.panels.items()):
        methods: dict[str, list[list[Any]]] = {}
        for line in summary.lines:
            if line["panel"] == name:
                methods.setdefault(str(line["method"]), []).append([line[k] for k in ("x", "median", "lower", "upper")])
        places = sorted({point[0] for points in methods.values() for point in points})
        for colour, marker, (method, points) in zip(colours, "os^vDX", methods.items()):
            x, median, low, high = np.array(points).T
            axes.plot(x, median, marker=marker, markersize=3, color=colour, label=method)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
        axes.set(xscale="log" if panel.log_x else "linear", yscale="log" if panel.log_y else "linear")
        if len(places) <= FEW_PLACES:
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.legend(loc="best")
    figure.suptitle(f"{summary.experiment} (median and quartiles over {summary.runs} runs)", fontsize=11)
    return figure


# --- exercise regions -------------------------------------------------------------------------------------------

#: Panels of a two-asset figure: dates spread over the life of the option.
REGION_PANELS = 6
REGION_TITLE = "Where it pays to stop (blue); grey: prices not seen at that date"


def _boundary(region: ExerciseRegion) -> Figure:
    assert region.boundary is not None
    figure, (axes,) = _panels(1, size=(6, 3.6))
    half = float(np.min(np.diff(region.times, prepend=0.0))) / 2
    edges = np.append(region.times - half, region.times[-1] + half)
    _shade(axes, edges, region, _decisions(region)[:, :-1])
    axes.plot(region.times, region.boundary, color=ORANGE, marker="o", markersize=3, label="critical price")
    axes.set(xlabel="time (years)", ylabel="price", title=REGION_TITLE)
    axes.legend()
    return figure


def _strikes(grid: PriceGrid) -> Figure:
    figure, (axes,) = _panels(1, size=(5.6, 3.6))
    for column, maturity in enumerate(grid.maturities.tolist()):
        prices, errors = grid.prices[:, column], grid.standard_errors[:, column]
        european = [row[column].european.value for row in grid.results]
        line = axes.errorbar(grid.strikes, prices, 1.96 * errors, marker="o", ms=3, label=f"maturity {maturity:g}")
        axes.plot(grid.strikes, european, ls="--", lw=0.8, color=line.lines[0].get_color())
    axes.set(xlabel="strike", ylabel="price (dashed: European)")
    axes.legend()
    return figure


def _regions(region: ExerciseRegion) -> Figure:
    chosen = np.unique(np.linspace(0, len(region.times) - 1, REGION_PANELS).round().astype(int))
    columns = min(3, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure, panels = _panels(columns, rows, size=(2.8 * columns, 2.7 * rows), shared=True)
    for axes, date in zip(panels, chosen):
        _shade(axes, region.axis, region, _decisions(region)[date])
        axes.set(title=f"t = {region.times[date]:.3g}", aspect="equal")
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    figure.supxlabel("price of asset 1")
    figure.supylabel("price of asset 2")
    figure.suptitle(REGION_TITLE)
    return figure


def _decisions(region: ExerciseRegion) -> Integers:
    """0 to wait, 1 to stop, 2 at prices that no training path reached."""
    return np.where(region.seen, region.stop.astype(int), 2)


def _shade(axes: Axes, x: Floats, region: ExerciseRegion, decisions: Integers) -> None:
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(["#FFFFFF", f"{BLUE}55", "#DDDDDD"])
    axes.pcolormesh(x, region.axis, decisions.T, cmap=colours, vmin=0, vmax=2, rasterized=True)


#: Which studies have a figure, and what draws it.
FIGURES: Mapping[str, Callable[[Any], Figure]] = {
    "figure1": _figure_1,
    "figure2": _figure_2,
    "layers": _figure_2,
    **dict.fromkeys(("oracle", "robustness", "near-optimality", "bound", "early-stopping", "game"), _findings),
}
