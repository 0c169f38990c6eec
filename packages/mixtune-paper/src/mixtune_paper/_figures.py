"""The paper's figures from the summaries of their studies.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; methods also differ in width and quantities in
dashes, so that the figures can be read in grey.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mixtune_paper import Findings
    from mixtune_paper.convergence import ConvergenceSummary, Series

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


def draw(name: str, summary: Any) -> Figure:
    """The figure of the study called ``name``, one of :data:`FIGURES`."""
    return FIGURES[name](summary)


def _panels(count: int, *, size: tuple[float, float]) -> tuple[Figure, Any]:
    """A figure with so many axes side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False).ravel()


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


def _thinned(points: int) -> np.ndarray[Any, np.dtype[np.intp]]:
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


#: Which studies have a figure, and what draws it.
FIGURES: Mapping[str, Callable[[Any], Figure]] = {
    "figure1": _figure_1,
    "figure2": _figure_2,
    "layers": _figure_2,
    **dict.fromkeys(("oracle", "robustness", "near-optimality", "bound", "early-stopping", "game"), _findings),
}
