"""The charts of the page, as SVG. Each takes facts and returns one figure: a drawing and a caption on how to read it.

Every chart is drawn 380 units wide. On a telephone that is about the width of the screen, so text stays readable there,
and two charts stand side by side on a desk. Colours come from the page's style: dark mode and print need nothing here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from mixtune._messages import counted
from mixtune.choice import MIXTUNE
from mixtune.report.columns import ColumnSpread
from mixtune.report.facts import COVERAGE, OWN_FAMILIES, ClassFact, LeftOut, MethodFact, RidgeFact, Trajectory
from mixtune.report.wording import METHOD_NAMES, column, element, number, percent, shorten

if TYPE_CHECKING:
    from mixtune.estimators import ColumnEffect

WIDTH = 380
LEFT, RIGHT, TOP = 50.0, WIDTH - 12.0, 24.0
#: Characters that fit into the left margin in any font.
LONGEST_TICK = 6
#: More dots than this only make the page larger.
MOST_DOTS = 400
#: Of more rows, intervals are drawn as a band and dots have no tips: nobody can aim at one of hundreds.
MOST_INTERVALS = 80
#: Of longer ridge paths, only the curve is drawn.
MOST_POINTS = 20
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

Span = tuple[float, float]
Points = Iterable[tuple[float, float]]
#: A method, a number as text, and the number with the ends of its interval.
MethodRow = tuple[str, str, tuple[float, float | None, float | None]]


@dataclass(frozen=True)
class Scale:
    """From values to places on the drawing.

    Examples
    --------
    >>> Scale(0.0, 10.0, 100.0, 200.0)(5.0)
    150.0
    >>> Scale(1.0, 100.0, 0.0, 200.0, log=True)(10.0)
    100.0
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else float(v) for v in (self.low, self.high, value))
        part = (at - low) / (high - low) if high > low else 0.5
        return self.start + part * (self.end - self.start)


def nice_ticks(low: float, high: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers from ``low`` to ``high``, at most about ``most``; with ``whole``, none with decimals.

    Examples
    --------
    >>> nice_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> nice_ticks(-3.0, 12.0, 4)
    [0.0, 5.0, 10.0]
    """
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)) + 1)
    ticks = [round(k * step, min(digits, 300)) + 0.0 for k in range(first, last + 1)]
    return [tick for tick in ticks if not whole or tick.is_integer()]


def nice_range(values: Iterable[float | None], *, room: float = 0.06) -> Span:
    """A range that holds all finite values with a little room on both sides.

    Examples
    --------
    >>> nice_range([1.0, None, 1.0], room=0.0)
    (0.5, 1.5)
    """
    known = [float(v) for v in values if v is not None and math.isfinite(v)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    flat = high - low <= 1e-12 * max(abs(low), abs(high))
    beyond = (0.5 * abs(low) or 0.5) if flat else room * (high - low)
    return low - beyond, high + beyond


def log_ticks(low: float, high: float, most: int = 6) -> dict[float, str]:
    """Powers of ten with labels; within one or two powers, round numbers between them as well.

    Examples
    --------
    >>> log_ticks(0.01, 100.0, 3)
    {0.01: '10⁻²', 1.0: '1', 100.0: '10²'}
    >>> list(log_ticks(1.5, 48.0).values())
    ['2', '5', '10', '20']
    """
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 2:
        between = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5)]
        inside = [value for value in between if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        return {value: number(value) for value in (inside if len(inside) > 1 else (low, high))}
    powers = range(first, last + 1, math.ceil((last - first + 1) / most))
    return {10.0**p: {0: "1", 1: "10"}.get(p, f"10{str(p).translate(_SUPERSCRIPT)}") for p in powers}


def tick_text(value: float) -> str:
    """The label of a tick, short enough for the margin.

    Examples
    --------
    >>> [tick_text(x) for x in (0.25, -1500.0, -50000.0, 2500000.0, 1e-5)]
    ['0.25', '−1500', '−50k', '2.5M', '1e−5']
    """
    if 1e4 <= (size := abs(value)) < 1e9:
        return f"{number(value / 1e6, 4)}M" if size >= 1e6 else f"{number(value / 1e3, 4)}k"
    # Four digits, such as those of a year, need no separator.
    return number(value, 10).replace(",", "") if size < 1e4 else number(value, 10)


@dataclass
class Drawing:
    """An SVG in the making; ``name`` makes the ids of its title unique on the page."""

    name: str
    title: str
    description: str
    height: float
    parts: list[Markup] = field(default_factory=list)

    def add(self, tag: str, style: str, *, tip: str = "", **places: Any) -> None:
        """Add a mark; ``tip`` shows where the pointer rests on it."""
        self.parts.append(element(tag, *([element("title", tip)] if tip else []), class_=style, **places))

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.add("line", style, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2))

    def dot(self, x: float, y: float, radius: float, style: str, tip: str = "") -> None:
        self.add("circle", style, tip=tip, cx=x, cy=y, r=radius)

    def shape(self, tag: str, points: Points, style: str) -> None:
        self.add(tag, style, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points))

    def text(self, x: float, y: float, text: str, style: str = "tick", anchor: str = "middle") -> None:
        self.parts.append(element("text", text, class_=style, x=float(x), y=float(y), text_anchor=anchor))

    def tick(self, y: float, text: str) -> None:
        """A number left of the axis; a long one is narrowed to the margin, whatever the width of its font."""
        long = {"textLength": LEFT - 10, "lengthAdjust": "spacingAndGlyphs"} if len(text) > LONGEST_TICK else {}
        self.parts.append(element("text", text, class_="tick", x=LEFT - 6, y=float(y), text_anchor="end", **long))

    def x_axis(self, scale: Scale, y: float, label: str, top: float, ticks: dict[float, str] | None = None) -> None:
        """Ticks with faint lines up to ``top``, and the label below."""
        for value, text in (ticks or {v: tick_text(v) for v in nice_ticks(scale.low, scale.high)}).items():
            self.line(scale(value), top, scale(value), y, "grid")
            self.text(scale(value), y + 17, text)  # clear of the lowest number of the other axis
        self.line(scale.start, y, scale.end, y, "axis")
        self.text((scale.start + scale.end) / 2, y + 34, label, "label")

    def y_axis(self, scale: Scale, label: str, right: float = RIGHT, most: int = 4, *, whole: bool = False) -> None:
        """Ticks with faint lines to ``right``; the label stands above the axis, where it reads without turning."""
        for value in nice_ticks(scale.low, scale.high, most, whole=whole):
            self.line(LEFT, scale(value), right, scale(value), "grid")
            self.tick(scale(value) + 4, tick_text(value))
        self.text(4, 12, label, "label", "start")

    def axes(
        self, x: Span, y: Span, labels: tuple[str, str], *, end: float = RIGHT, log: bool = False, **y_axis: Any
    ) -> tuple[Scale, Scale]:
        """Both axes over these ranges, the horizontal one up to ``end``; ``y_axis`` are options of :meth:`y_axis`."""
        across, up = Scale(*x, LEFT, end, log), Scale(*y, self.height - 44, TOP + 4)
        self.x_axis(across, self.height - 44, labels[0], TOP, log_ticks(*x) if log else None)
        self.y_axis(up, labels[1], **y_axis)
        return across, up

    def bar(self, start: float, end: float, scale: Scale, value: float, tip: str) -> None:
        """A bar between two places on the horizontal axis, up to a value."""
        places = {"x": start + 0.7, "y": scale(value), "width": end - start - 1.4, "height": scale.start - scale(value)}
        self.add("rect", "bar", tip=tip, **places)

    def curve(self, x: Scale, y: Scale, points: Points, style: str) -> None:
        """A line through points, given by their values."""
        self.shape("polyline", [(x(at), y(value)) for at, value in points], f"curve {style}")

    def figure(self, heading: str, caption: str) -> Markup:
        """The drawing below a heading, with a title and a description for those who cannot see it."""
        title, description = f"{self.name}-t", f"{self.name}-d"
        words = element("title", self.title, id=title), element("desc", self.description, id=description)
        frame = {"viewBox": f"0 0 {WIDTH} {self.height:g}", "role": "img"}
        svg = element("svg", *words, *self.parts, **frame, aria_labelledby=f"{title} {description}")
        heading, caption = element("h3", shorten(heading, 90)), element("figcaption", caption)
        return element("figure", heading, svg, caption, class_="chart")


def comparison_charts(compared: Sequence[MethodFact]) -> tuple[Markup, Markup]:
    """Errors of the methods with 95% intervals, and the error of the model over that of each other method."""
    rows: list[MethodRow] = []
    for each, text in zip(compared, column([each.error for each in compared])):
        error, half = each.error or 0.0, 1.96 * (each.standard_error or 0.0)
        rows.append((each.method, text, (error, max(error - half, 0.0), error + half)))
    errors = _methods("error", "Left-out error of each fit", rows, "root mean squared error").figure(
        "Left-out error with 95% intervals",
        "The same rows are behind every line, so intervals may overlap although the difference is clear; "
        "for differences see the ratios.",
    )
    others = [each for each in compared if each.method != MIXTUNE]
    rows = [(c.method, f"{c.ratio:.2f}", (c.ratio, c.ratio_low, c.ratio_high)) for c in others if c.ratio is not None]
    ratios = _methods("ratio", "Error relative to other fits", rows, "error ÷ other", even=1.0).figure(
        "Error relative to each",
        "Left of the line at 1, mixtune is better. Intervals (95%) are for the difference on the same rows.",
    )
    return errors, ratios


def _methods(name: str, title: str, rows: Sequence[MethodRow], label: str, even: float | None = None) -> Drawing:
    """One line per method: its name, a dot with an interval, and the number; with a line through all at ``even``."""
    shown = "; ".join(f"{METHOD_NAMES.get(method, method)} {text}" for method, text, _ in rows)
    drawing = Drawing(name, title, shown, height=52.0 + 36 * len(rows))
    bottom = drawing.height - 44
    low, high = nice_range([even, *(value for *_, values in rows for value in values)])
    scale = Scale(max(low, 0.0), high, 152.0, WIDTH - 58.0)
    drawing.x_axis(scale, bottom, label, 8)
    for place, (method, text, (middle, low_end, high_end)) in enumerate(rows):
        y = 24.0 + 36 * place
        style = "main" if method == MIXTUNE else "other"
        drawing.text(4, y + 4, shorten(METHOD_NAMES.get(method, method), 22), f"name {style}", "start")
        if low_end is not None and high_end is not None:
            drawing.line(scale(max(low_end, scale.low)), y, scale(min(high_end, scale.high)), y, f"whisker {style}")
        drawing.dot(scale(middle), y, 5.0, f"dot {style}", f"{text} ({number(low_end)} to {number(high_end)})")
        drawing.text(WIDTH - 4, y + 4, text, f"value {style}", "end")
    if even is not None:
        drawing.line(scale(even), 8, scale(even), bottom, "even")
    return drawing


def ridge_chart(path: RidgeFact, family: str) -> Markup:
    """Left-out errors along effective ridges, and the point that was taken."""
    # At least a tenth from bottom to top, so that a path that is nearly flat looks flat.
    middle = (min(path.errors) + max(path.errors)) / 2
    low, high = nice_range([*path.errors, 0.95 * middle, 1.05 * middle], room=0.08)
    low -= 0.17 * (high - low)  # room for words below the curve
    about = f"from {number(path.errors[0])} to {number(path.errors[-1])}; chosen {number(path.chosen)}"
    drawing = Drawing("ridge", "Error along the effective ridge", about, 250.0)
    ends, labels = (path.ridges[0], path.ridges[-1]), ("effective ridge (larger: more shrinkage)", "left-out error")
    x, y = drawing.axes(ends, (low, high), labels, end=RIGHT - 8, log=True, most=6)
    drawing.curve(x, y, zip(path.ridges, path.errors), "main")
    if len(path.ridges) <= MOST_POINTS:
        for ridge, error in zip(path.ridges, path.errors):
            drawing.dot(x(ridge), y(error), 2.5, "dot main", f"effective ridge {number(ridge)}: error {number(error)}")
    chosen = min(max(path.chosen, x.low), x.high)
    error = float(np.interp(math.log(chosen), np.log(path.ridges), path.errors))
    at = x(chosen), y(error)
    drawing.line(*at, at[0], 206, "drop")
    drawing.dot(*at, 5.5, "dot main", f"effective ridge {number(path.chosen)}: error {number(error)}")
    # The curve stays above the room left for these words.
    drawing.text(min(max(at[0], LEFT + 52), RIGHT - 52), 198, f"chosen: {number(path.chosen)}", "value main halo")
    start = "zero" if family in OWN_FAMILIES else "what the other datasets suggest"
    return drawing.figure(
        "Left-out error and effective ridge",
        f"The effective ridge sets how strongly the fit is shrunk towards {start}. "
        "Cross-domain validation counts as well, so the chosen point need not be the lowest.",
    )


def trajectory_chart(path: Trajectory) -> Markup:
    """Loss and energy after each step."""
    ends = f"loss from {number(path.loss[0])} to {number(path.loss[-1])}, energy to {number(path.energy[-1])}"
    drawing = Drawing("path", "Loss and energy along the trajectory", ends, 250.0)
    x = Scale(0.0, float(path.times[-1]), LEFT, RIGHT - 52)
    y = Scale(*nice_range([*path.loss, *path.energy], room=0.08), 206.0, TOP + 4)
    drawing.x_axis(x, 206, "step", TOP, {v: tick_text(v) for v in nice_ticks(0.0, x.high, whole=True)})
    drawing.y_axis(y, "weighted loss", RIGHT - 52)
    loss, energy = y(path.loss[-1]), y(path.energy[-1])
    if abs(loss - energy) < 14:  # the names must not lie on each other
        apart = 7 if path.loss[-1] <= path.energy[-1] else -7
        loss, energy = (loss + energy) / 2 + apart, (loss + energy) / 2 - apart
    for values, name, style, end in ((path.energy, "energy", "second", energy), (path.loss, "loss", "main", loss)):
        drawing.curve(x, y, zip(path.times, values), style)
        drawing.text(RIGHT - 46, end + 4, name, f"name {style}", "start")
    return drawing.figure(
        "How the fit got there",
        "Energy is the loss so far plus the cost of the steps. This path has the least energy of all.",
    )


def left_out_chart(rows: LeftOut, name: str) -> Markup:
    """Actual values against left-out predictions, with intervals around the line where both agree."""
    count = len(rows.actual)
    half = np.zeros(count) if rows.half is None else rows.half
    low, high = nice_range([*rows.actual, *rows.predicted], room=0.05)
    # Intervals fit in where they are not so wide that the dots would shrink to a heap.
    room = 0.25 * (high - low)
    lower, upper = np.clip([rows.predicted - half, rows.predicted + half], low - room, high + room)
    low, high = nice_range([*lower, *upper, low, high], room=0)
    title = f"{shorten(rows.name, 60)}: actual against predicted without the row"
    drawing = Drawing(name, title, counted((count, "row")), 330.0)
    x, y = drawing.axes((low, high), (low, high), ("predicted without the row", "actual"), most=5)
    # All rows, or so many of them at even steps.
    shown = np.unique(np.linspace(0, count - 1, min(count, MOST_DOTS)).astype(int))
    many = len(shown) > MOST_INTERVALS
    if rows.half is not None and many:
        order = shown[np.argsort(rows.predicted[shown], kind="stable")]
        edges = [(i, upper) for i in order] + [(i, lower) for i in order[::-1]]
        drawing.shape("polygon", [(x(rows.predicted[i]), y(edge[i])) for i, edge in edges], "band")
    elif rows.half is not None:
        for i in shown:
            drawing.line(x(rows.predicted[i]), y(lower[i]), x(rows.predicted[i]), y(upper[i]), "interval")
    drawing.line(x(low), y(low), x(high), y(high), "even")
    for i in shown:
        missed = rows.half is not None and abs(rows.residuals[i]) > half[i]
        tip = f"row {i + 1}: actual {number(rows.actual[i])}, predicted {number(rows.predicted[i])}"
        place = x(rows.predicted[i]), y(rows.actual[i])
        drawing.dot(*place, 2.6 if many else 4.0, "dot missed" if missed else "dot main", "" if many else tip)
    caption = f"No {percent(COVERAGE)} intervals: {rows.why_no_interval}."
    if rows.half is not None:
        inside = f"{rows.covered:,} of {count:,} rows lie inside their intervals"
        caption = f"{percent(COVERAGE)} intervals around the line where both agree; {inside}."
    some = f"{len(shown):,} of {counted((count, 'row'))} shown. " if len(shown) < count else ""
    return drawing.figure(f"Predicted and actual, {rows.name}", some + caption)


def residual_chart(rows: LeftOut, name: str) -> Markup:
    """How the left-out residuals are spread."""
    residuals = rows.residuals
    reach, middle = float(np.max(np.abs(residuals))) or 1.0, number(np.median(residuals))
    bins = int(np.clip(math.ceil(1.6 * len(residuals) ** 0.4), 4, 30))
    # An even number of bins meets at zero, so that a lean to one side shows.
    counts, edges = np.histogram(residuals, bins=bins + bins % 2, range=(-reach, reach))
    span = f"from {number(residuals.min())} to {number(residuals.max())}, median {middle}"
    drawing = Drawing(name, f"{shorten(rows.name, 60)}: left-out residuals", span, 330.0)
    labels = "actual − predicted without the row", "rows"
    x, y = drawing.axes((-reach, reach), (0.0, float(counts.max()) * 1.08), labels, whole=True)
    for value, start, end in zip(counts.tolist(), edges[:-1], edges[1:]):
        if value:
            tip = f"{counted((value, 'row'))} from {number(start)} to {number(end)}"
            drawing.bar(x(start), x(end), y, value, tip)
    drawing.line(x(0.0), TOP, x(0.0), 286, "even")
    worst = int(np.argmax(np.abs(residuals)))
    return drawing.figure(
        "Residuals",
        f"Median {middle}; half of the rows are off by less than {number(np.median(np.abs(residuals)))}; "
        f"the largest miss is {number(residuals[worst])}, in row {worst + 1:,}.",
    )


def curve_chart(curve: "Sequence[ColumnEffect]", name: str, *, column: str, target: str) -> Markup:
    """How the prediction changes along one column, with the interval, and in the sources' own models."""
    ends = [float(each.end) for each in curve]
    values = [each.effect for each in curve]
    others = [each.sources for each in curve if each.sources is not None]
    bands = [(each.low, each.high) for each in curve if each.low is not None and each.high is not None]
    # Wide intervals at the ends must not flatten the curve.
    inside = [*values, *others]
    room = 0.75 * (max(inside) - min(inside))
    edges = [min(max(edge, min(inside) - room), max(inside) + room) for pair in bands for edge in pair]
    described = f"from {number(values[0])} at {number(ends[0])} to {number(values[-1])} at {number(ends[-1])}"
    drawing = Drawing(name, f"Effect of {shorten(column, 60)}", described, 250.0)
    labels = shorten(column, 40), "change of the prediction"
    x, y = drawing.axes((ends[0], ends[-1]), nice_range([*inside, *edges]), labels, end=RIGHT - 8, most=5)
    if len(bands) == len(curve):
        lower, upper = edges[::2], edges[1::2]
        around = [(x(e), y(v)) for e, v in zip(ends, upper)] + [(x(e), y(v)) for e, v in zip(ends[::-1], lower[::-1])]
        drawing.shape("polygon", around, "band")
    drawing.line(LEFT, y(0.0), RIGHT - 8, y(0.0), "even")
    if len(others) == len(curve):
        drawing.curve(x, y, zip(ends, others), "second")
    drawing.curve(x, y, zip(ends, values), "main")
    middle = number(float(curve[0].start))
    caption = (
        f"Average change of {target} over the focal rows when {shorten(column, 60)} goes from its median, {middle}."
    )
    caption += " The band is the 95% interval." if bands else ""
    caption += " Dashed: the mean of the other datasets' own models." if others else ""
    return drawing.figure(column, caption)


def spread_chart(spread: ColumnSpread, name: str) -> Markup:
    """How a column is distributed in the focal rows (bars) and in the sources (line)."""
    most = max(float(spread.focal.max()), float(spread.sources.max()))
    drawing = Drawing(name, f"Distribution of {shorten(spread.name, 60)}", "focal rows and other datasets", 210.0)
    y = Scale(0.0, 100 * most * 1.08, 166.0, TOP + 4)
    drawing.y_axis(y, "% of rows", most=3)
    count = len(spread.focal)
    if spread.edges is not None:
        x = Scale(float(spread.edges[0]), float(spread.edges[-1]), LEFT, RIGHT)
        drawing.x_axis(x, 166, shorten(spread.name, 40), TOP)
        places = [x(float(edge)) for edge in spread.edges]
        tips = [f"{number(a)} to {number(b)}" for a, b in zip(spread.edges[:-1], spread.edges[1:])]
    else:
        places = np.linspace(LEFT, RIGHT, count + 1).tolist()
        tips = list(spread.levels)
        drawing.line(LEFT, 166, RIGHT, 166, "axis")
        drawing.text((LEFT + RIGHT) / 2, 200, shorten(spread.name, 40), "label")
        if count <= 6 or (count <= 12 and max(map(len, spread.levels)) <= 2):
            for k, level in enumerate(spread.levels):
                drawing.text((places[k] + places[k + 1]) / 2, 183, shorten(level, max(3, 36 // count)))
    line = []
    for k, (own, other) in enumerate(zip(spread.focal.tolist(), spread.sources.tolist())):
        tip = f"{tips[k]}: {percent(own)} of the focal rows, {percent(other)} of the others"
        drawing.bar(places[k], places[k + 1], y, 100 * own, tip)
        line += [(places[k], y(100 * other)), (places[k + 1], y(100 * other))]
    drawing.shape("polyline", line, "curve second")
    return drawing.figure(spread.name, "Bars: the focal rows. Dashed: the rows of all other datasets.")


def calibration_chart(classes: ClassFact) -> Markup:
    """Probabilities and observed frequencies, for the model and for the simpler methods."""
    drawing = Drawing("calibration", "Calibration of the probabilities", "predicted and observed shares", 330.0)
    x, y = drawing.axes((0.0, 100.0), (0.0, 100.0), ("predicted probability, %", "observed frequency, %"), most=5)
    drawing.line(x(0.0), y(0.0), x(100.0), y(100.0), "even")
    for method, shares in classes.shares.items():
        points = calibration_points(classes.labels, shares)
        if method == MIXTUNE:
            for middle, share, low, high, count in points:
                drawing.line(x(100 * middle), y(100 * low), x(100 * middle), y(100 * high), "interval")
                tip = f"{counted((count, 'row'))}: {percent(middle)} predicted on average, {percent(share)} observed"
                drawing.dot(x(100 * middle), y(100 * share), 4.5, "dot main", tip)
        elif method != "mean" and len(points) > 1:
            drawing.curve(x, y, [(100 * middle, 100 * share) for middle, share, *_ in points], "thin")
    which = classes.names[1] if len(classes.names) == 2 else "each class"
    return drawing.figure(
        "Calibration of the probabilities",
        f"Left-out probabilities of {shorten(which, 60)} in groups of equal size, and the observed frequencies. Dots "
        "with 95% intervals are mixtune, thin lines the simpler methods. On the diagonal, probabilities match "
        "frequencies.",
    )


def calibration_points(labels: Any, shares: Any) -> list[tuple[float, float, float, float, int]]:
    """Groups of rows of similar probability: its mean, the observed frequency with a 95% interval, and rows.

    Examples
    --------
    >>> points = calibration_points(np.array([0, 0, 1, 1] * 5), np.array([[0.8, 0.2], [0.8, 0.2], [0.3, 0.7], [0.3, 0.7]] * 5))
    >>> [(round(middle, 2), share, count) for middle, share, _, _, count in points]
    [(0.2, 0.0, 10), (0.7, 1.0, 10)]
    """  # noqa: E501
    from scipy.stats import binomtest

    if shares.shape[1] == 2:
        given, true = shares[:, 1], labels == 1
    else:
        given, true = shares.ravel(), (labels[:, None] == np.arange(shares.shape[1])).ravel()
    order = np.argsort(given, kind="stable")
    points = []
    for part in np.array_split(order, int(np.clip(len(order) // 10, 1, 8))):
        hits = int(true[part].sum())
        low, high = binomtest(hits, len(part)).proportion_ci(method="wilson")
        points.append((float(given[part].mean()), hits / len(part), float(low), float(high), len(part)))
    return points
