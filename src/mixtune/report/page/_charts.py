"""The charts of the page. Each takes facts and returns one figure: a drawing and a caption that says how to read it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mixtune.report.page._facts import Compared, RidgeFact, Trajectory
from mixtune.report.page._left_out import COVERAGE, LeftOut
from mixtune.report.page._svg import WIDTH, Drawing, Scale, log_ticks, nice_range, plain_ticks
from mixtune.report.page._words import column, count, escape, number, percent, shorten

__all__ = ["error_chart", "left_out_chart", "ratio_chart", "residual_chart", "ridge_chart", "trajectory_chart"]

LEFT, RIGHT, TOP = 50.0, WIDTH - 12.0, 24.0
#: More dots than this only make the page larger.
MOST_DOTS = 400
MOST_WHISKERS = 80
MOST_POINTS = 20
METHOD_NAMES = {
    "ours": "with transfer",
    "focal only": "focal only",
    "joint": "all pooled",
    "mean of locals": "mean of heads",
}


def error_chart(compared: Sequence[Compared]) -> str:
    """Errors with 95% intervals, one line a method."""
    found = [f"{METHOD_NAMES.get(c.method, c.method)} {number(c.error)}" for c in compared]
    low, high = nice_range([v for c in compared for v in (c.low, c.high)])
    drawing = Drawing("error", "Left-out error of each fit", "; ".join(found), 52.0 + 36 * len(compared))
    scale = Scale(max(low, 0.0), high, 106.0, WIDTH - 58.0)
    _rows(
        drawing,
        scale,
        "root mean squared error",
        [(c, c.error, c.low, c.high, text) for c, text in zip(compared, column([c.error for c in compared]))],
    )
    return _figure(
        drawing,
        "Left-out error with 95% intervals",
        "The same rows are behind every line, so intervals may overlap although the difference is clear; "
        "for differences see the ratios.",
    )


def ratio_chart(compared: Sequence[Compared]) -> str:
    """Our error over each other method's, with 95% intervals and a line at 1."""
    others = [c for c in compared if c.method != "ours" and math.isfinite(c.ratio)]
    found = [f"{c.ratio:.2f} of {METHOD_NAMES.get(c.method, c.method)}" for c in others]
    low, high = nice_range([v for c in others for v in (c.ratio, c.ratio_low, c.ratio_high)], include=(1.0,))
    drawing = Drawing("ratio", "Our error relative to other fits", "; ".join(found), 52.0 + 36 * len(others))
    scale = Scale(max(low, 0.0), high, 106.0, WIDTH - 58.0)
    _rows(
        drawing,
        scale,
        "our error ÷ theirs",
        [(c, c.ratio, c.ratio_low, c.ratio_high, f"{c.ratio:.2f}") for c in others],
    )
    drawing.line(scale(1.0), 8, scale(1.0), drawing.height - 44, "even")
    return _figure(
        drawing,
        "Our error relative to each",
        "Left of the line at 1 we are better. Intervals (95%) are for the difference on the same rows.",
    )


def _rows(
    drawing: Drawing, scale: Scale, label: str, rows: Sequence[tuple[Compared, float, float, float, str]]
) -> None:
    bottom = drawing.height - 44
    drawing.x_axis(scale, bottom, plain_ticks(scale.low, scale.high, 5), label, 8)
    for place, (compared, middle, low, high, text) in enumerate(rows):
        y = 24.0 + 36 * place
        style = "ours" if compared.method == "ours" else "theirs"
        drawing.text(
            4, y + 4, METHOD_NAMES.get(compared.method, shorten(compared.method, 16)), f"name {style}", "start"
        )
        if math.isfinite(low) and math.isfinite(high):
            drawing.line(scale(max(low, scale.low)), y, scale(min(high, scale.high)), y, f"whisker {style}")
        drawing.dot(scale(middle), y, 5, f"dot {style}", f"{text} ({number(low)} to {number(high)})")
        drawing.text(WIDTH - 4, y + 4, text, f"value {style}", "end")


def ridge_chart(path: RidgeFact, family: str) -> str:
    """Left-out errors along effective ridges, and the point that was taken."""
    # At least a tenth from bottom to top, so that a path that is nearly flat looks it.
    middle = (min(path.errors) + max(path.errors)) / 2
    low, high = nice_range(path.errors, include=(0.95 * middle, 1.05 * middle), room=0.08)
    low -= 0.17 * (high - low)  # room for the words below the point
    chosen = min(max(path.chosen, path.ridges[0]), path.ridges[-1])
    drawing = Drawing(
        "ridge",
        "Error along the effective ridge",
        f"from {number(path.errors[0])} to {number(path.errors[-1])}; chosen {number(path.chosen)}",
        250.0,
    )
    x = Scale(path.ridges[0], path.ridges[-1], LEFT, RIGHT - 8, log=True)
    y = Scale(low, high, 250.0 - 44, TOP + 4)
    drawing.x_axis(x, 206, log_ticks(x.low, x.high), "effective ridge: free ← → held firmly", TOP)
    drawing.y_axis(y, LEFT, "left-out error", RIGHT, 6)
    drawing.curve([(x(r), y(e)) for r, e in zip(path.ridges, path.errors)], "curve main")
    if len(path.ridges) <= MOST_POINTS:
        for ridge, error in zip(path.ridges, path.errors):
            drawing.dot(x(ridge), y(error), 2.5, "dot ours", f"effective ridge {number(ridge)}: error {number(error)}")
    start = "zero" if family == "focal only" else "what the other datasets suggest"
    at = float(np.interp(math.log(chosen), np.log(path.ridges), path.errors))
    drawing.line(x(chosen), y(at), x(chosen), 206, "drop")
    drawing.dot(x(chosen), y(at), 5.5, "dot ours", f"effective ridge {number(path.chosen)}: error {number(at)}")
    curve = [(x(r), y(e)) for r, e in zip(path.ridges, path.errors)]
    drawing.text(*_free_place(curve, x(chosen), y(at)), f"chosen: {number(path.chosen)}", "value ours halo")
    return _figure(
        drawing,
        "How tightly to hold on",
        f"One number says how firmly the fit is held to {start} while the focal rows pull. "
        "Rehearsals on other datasets have a say as well, so the chosen point need not be the lowest.",
    )


def _free_place(curve: Sequence[tuple[float, float]], x: float, y: float) -> tuple[float, float]:
    """Where words of about 100 by 14 units fit beside a point of a curve without lying on it."""
    xs, ys = [place for place, _ in curve], [place for _, place in curve]

    def gap(place: tuple[float, float]) -> float:
        under = np.interp(np.linspace(place[0] - 50, place[0] + 50, 21), xs, ys)
        return float(np.min(np.abs(under - (place[1] - 5))))

    shifts = [(0.0, 21.0), (0.0, -13.0), (-46.0, 21.0), (46.0, 21.0), (-46.0, -13.0), (46.0, -13.0)]
    places = [(min(max(x + right, LEFT + 52), RIGHT - 52), y + down) for right, down in shifts]
    return next((place for place in places if gap(place) > 12), max(places, key=gap))


def trajectory_chart(path: Trajectory) -> str:
    """Loss and energy after each step."""
    low, high = nice_range([*path.loss, *path.energy], room=0.08)
    steps = float(path.times[-1])
    drawing = Drawing(
        "path",
        "Loss and energy along the trajectory",
        f"loss from {number(path.loss[0])} to {number(path.loss[-1])}, energy to {number(path.energy[-1])}",
        250.0,
    )
    x, y = Scale(0.0, steps, LEFT, RIGHT - 52), Scale(low, high, 206.0, TOP + 4)
    ticks = [tick for tick in plain_ticks(0.0, steps, 5) if tick[0] == round(tick[0])]
    drawing.x_axis(x, 206, ticks, "step", TOP)
    drawing.y_axis(y, LEFT, "weighted loss", RIGHT - 52)
    ends = [y(path.loss[-1]), y(path.energy[-1])]
    if abs(ends[0] - ends[1]) < 14:  # the names must not lie on each other
        middle = sum(ends) / 2
        ends = [middle + 7, middle - 7] if path.loss[-1] <= path.energy[-1] else [middle - 7, middle + 7]
    for values, name, style, end in ((path.energy, "energy", "second", ends[1]), (path.loss, "loss", "main", ends[0])):
        drawing.curve([(x(float(t)), y(v)) for t, v in zip(path.times, values)], f"curve {style}")
        drawing.text(RIGHT - 46, end + 4, name, f"name {style}", "start")
    return _figure(
        drawing,
        "How the fit got there",
        "Energy is the loss reached so far plus the price of the steps taken; of all paths, this one makes it least.",
    )


def left_out_chart(rows: LeftOut, name: str) -> str:
    """Actual values against left-out predictions, with intervals around the line where both agree."""
    half = rows.half or tuple(0.0 for _ in rows.actual)
    low, high = nice_range([*rows.actual, *rows.predicted], room=0.05)
    # Intervals fit in where they are not so wide that the dots would shrink to a heap.
    reach = [v for p, h in zip(rows.predicted, half) for v in (p - h, p + h)]
    low, high = nice_range(
        np.clip(reach, low - 0.25 * (high - low), high + 0.25 * (high - low)), include=(low, high), room=0
    )
    drawing = Drawing(
        name,
        f"{shorten(rows.name, 60)}: actual against predicted without the row",
        f"{count(len(rows.actual), 'row')}",
        330.0,
    )
    x, y = Scale(low, high, LEFT, RIGHT), Scale(low, high, 286.0, TOP + 4)
    drawing.x_axis(x, 286, plain_ticks(low, high, 5), "predicted without the row", TOP)
    drawing.y_axis(y, LEFT, "actual", RIGHT, 5)
    shown = _spread_out(len(rows.actual), MOST_DOTS)
    if rows.half is not None and len(shown) > MOST_WHISKERS:
        order = sorted(shown, key=lambda i: rows.predicted[i])
        upper = [(x(rows.predicted[i]), y(min(rows.predicted[i] + half[i], high))) for i in order]
        lower = [(x(rows.predicted[i]), y(max(rows.predicted[i] - half[i], low))) for i in reversed(order)]
        drawing.area(upper + lower, "band")
    elif rows.half is not None:
        for i in shown:
            ends = max(rows.predicted[i] - half[i], low), min(rows.predicted[i] + half[i], high)
            drawing.line(x(rows.predicted[i]), y(ends[0]), x(rows.predicted[i]), y(ends[1]), "interval")
    drawing.line(x(low), y(low), x(high), y(high), "even")
    radius = 4.0 if len(shown) <= MOST_WHISKERS else 2.6
    for i in shown:
        out = rows.half is not None and abs(rows.actual[i] - rows.predicted[i]) > half[i]
        tip = f"row {i + 1}: actual {number(rows.actual[i])}, predicted {number(rows.predicted[i])}"
        # Nobody can aim at one dot of hundreds, and their words would be half of the page.
        tip = tip if len(shown) <= MOST_WHISKERS else ""
        drawing.dot(x(rows.predicted[i]), y(rows.actual[i]), radius, "dot missed" if out else "dot ours", tip)
    return _figure(drawing, f"Predicted and actual, {rows.name}", _left_out_caption(rows, len(shown)))


def _left_out_caption(rows: LeftOut, shown: int) -> str:
    part = f"{shown:,} of {count(len(rows.actual), 'row')} shown. " if shown < len(rows.actual) else ""
    if rows.half is None:
        return f"{part}No {percent(COVERAGE)} intervals: {rows.why_no_interval}."
    return (
        f"{part}{percent(COVERAGE)} intervals around the line where both agree; "
        f"{rows.covered:,} of {len(rows.actual):,} rows lie inside theirs."
    )


def residual_chart(rows: LeftOut, name: str) -> str:
    """How the left-out residuals are spread."""
    residuals = np.array(rows.residuals)
    bins = int(np.clip(math.ceil(1.6 * len(residuals) ** 0.4), 4, 30))
    reach = float(np.max(np.abs(residuals))) or 1.0
    # Bins that meet at zero show a lean to one side for what it is.
    counts, edges = np.histogram(residuals, bins=bins + bins % 2, range=(-reach, reach))
    drawing = Drawing(
        name,
        f"{shorten(rows.name, 60)}: left-out residuals",
        f"from {number(residuals.min())} to {number(residuals.max())}, median {number(float(np.median(residuals)))}",
        330.0,
    )
    x, y = Scale(-reach, reach, LEFT, RIGHT), Scale(0.0, float(counts.max()) * 1.08, 286.0, TOP + 4)
    drawing.x_axis(x, 286, plain_ticks(-reach, reach, 5), "actual − predicted without the row", TOP)
    drawing.y_axis(y, LEFT, "rows", RIGHT, whole=True)
    for value, start, end in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist()):
        if value:
            tip = f"{count(value, 'row')} from {number(start)} to {number(end)}"
            drawing.box(x(start) + 0.7, y(value), x(end) - x(start) - 1.4, y(0.0) - y(value), "bar", tip)
    drawing.line(x(0.0), TOP, x(0.0), 286, "even")
    worst = int(np.argmax(np.abs(residuals)))
    caption = (
        f"Median {number(float(np.median(residuals)))}; half of the rows are off by less than "
        f"{number(float(np.median(np.abs(residuals))))}; the largest miss is {number(residuals[worst])}, "
        f"in row {worst + 1:,}."
    )
    return _figure(drawing, "Residuals", caption)


def _spread_out(rows: int, most: int) -> list[int]:
    """All rows, or ``most`` of them at even steps."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(int)).tolist()


def _figure(drawing: Drawing, heading: str, caption: str) -> str:
    return (
        f'<figure class="chart"><h3>{escape(shorten(heading, 90))}</h3>{drawing.svg()}'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
