"""The exercise region as a figure: the boundary of one asset, the regions of two."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mixtune._array import Integers
from mixtune.options import ExerciseRegion
from mixtune.report.figures import BLUE, ORANGE, STYLE, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

__all__ = ["draw_exercise_region"]

#: Panels of a two-asset figure: dates spread over the life of the option.
PANELS = 6


def draw_exercise_region(region: ExerciseRegion) -> Figure:
    """The exercise region of a pricing result as a Matplotlib figure."""
    require_matplotlib()
    import matplotlib

    with matplotlib.rc_context(STYLE):
        return _boundary(region) if region.boundary is not None else _regions(region)


def _boundary(region: ExerciseRegion) -> Figure:
    from matplotlib.figure import Figure

    assert region.boundary is not None
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    step = float(np.min(np.diff(region.times, prepend=0.0)))
    shades = _shades(region)
    edges = np.append(region.times - step / 2, region.times[-1] + step / 2)
    axes.pcolormesh(edges, region.axis, shades.T[:-1], cmap=_colours(), vmin=0, vmax=2, rasterized=True)
    axes.plot(region.times, region.boundary, color=ORANGE, marker="o", markersize=3, label="critical price")
    axes.set(
        xlabel="time (years)", ylabel="price", title="Where it pays to stop (blue); grey: prices not seen at that date"
    )
    axes.legend()
    return figure


def _regions(region: ExerciseRegion) -> Figure:
    from matplotlib.figure import Figure

    shades = _shades(region)
    chosen = np.unique(np.linspace(0, len(region.times) - 1, PANELS).round().astype(int))
    columns = min(3, len(chosen))
    rows = math.ceil(len(chosen) / columns)
    figure = Figure(figsize=(2.8 * columns, 2.7 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True)).ravel()
    for axes, date in zip(panels, chosen):
        axes.pcolormesh(region.axis, region.axis, shades[date].T, cmap=_colours(), vmin=0, vmax=2, rasterized=True)
        axes.set(title=f"t = {region.times[date]:.3g}", aspect="equal")
    for axes in panels[len(chosen) :]:
        axes.set_visible(False)
    figure.supxlabel("price of asset 1")
    figure.supylabel("price of asset 2")
    figure.suptitle("Where it pays to stop (blue); grey: prices not seen at that date")
    return figure


def _shades(region: ExerciseRegion) -> Integers:
    """0 to wait, 1 to stop, 2 at prices that no training path reached."""
    return np.where(region.seen, region.stop.astype(int), 2)


def _colours() -> ListedColormap:
    from matplotlib.colors import ListedColormap

    return ListedColormap(["#FFFFFF", f"{BLUE}55", "#DDDDDD"])
