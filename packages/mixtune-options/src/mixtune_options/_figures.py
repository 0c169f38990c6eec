"""Exercise regions of options and grids of prices, as figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mixtune_options._arrays import Floats, Integers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mixtune_options import ExerciseRegion, PriceGrid

#: Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE = "#0072B2", "#E69F00"
#: Panels of a two-asset figure: dates spread over the life of the option.
REGION_PANELS = 6
REGION_TITLE = "Where it pays to stop (blue); grey: prices not seen at that date"


def draw_exercise_region(region: ExerciseRegion) -> Figure:
    """The exercise region of a pricing result: the boundary of one asset, the regions of two."""
    return _regions(region) if region.boundary is None else _boundary(region)


def draw_price_grid(grid: PriceGrid) -> Figure:
    """Prices by strike with their 95% intervals, a line for each maturity; dashed without early exercise."""
    figure, (axes,) = _panels(1, size=(5.6, 3.6))
    for column, maturity in enumerate(grid.maturities.tolist()):
        prices, errors = grid.prices[:, column], grid.standard_errors[:, column]
        european = [row[column].european.value for row in grid.results]
        line = axes.errorbar(grid.strikes, prices, 1.96 * errors, marker="o", ms=3, label=f"maturity {maturity:g}")
        axes.plot(grid.strikes, european, ls="--", lw=0.8, color=line.lines[0].get_color())
    axes.set(xlabel="strike", ylabel="price (dashed: European)")
    axes.legend()
    return figure


def _panels(columns: int, rows: int = 1, *, size: tuple[float, float], shared: bool = False) -> tuple[Figure, Any]:
    """A figure, and its axes row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared).ravel()


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
