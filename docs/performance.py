"""Put the results of `python -m benchmarks --out docs/results/performance.json` on the page: python -m docs.performance

Replaces the text between `<!-- NAME -->` and `<!-- end NAME -->` of docs/performance.md and draws the growth curves.
Results of other machines, and of environments with other packages, lie beside as docs/results/performance-NAME.json.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.results import Part, Results, read
from benchmarks.timing import Claim

PAGE = Path(__file__).with_name("performance.md")
RESULTS = Path(__file__).parent / "results"
MAIN = RESULTS / "performance.json"
CURVES = RESULTS / "growth.svg"
#: What the curves follow, with their colours and marks.
LINES = {
    "core": ("Moments and RegretProblem", "#1a9988", "o"),
    "estimator": ("RegretOptimalRegressor", "#dd7722", "s"),
    "tuned": ("RegretOptimalRegressorCV", "#8866cc", "^"),
}
ONE_THREAD = RESULTS / "performance-one-thread.json"
TUNED_CURVES = RESULTS / "growth-tuned.svg"
#: What the curves of tuned fits follow.
TUNED = {
    "regressor": ("RegretOptimalRegressorCV", "#8866cc", "^"),
    "classifier": ("RegretOptimalClassifierCV", "#cc4466", "v"),
}
AXES = {"n": "rows n", "p": "features p", "N": "domains N", "T": "steps T"}


def amount(value: float, unit: str) -> str:
    """A number with three digits and its unit."""
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def claim_row(name: str, claim: Claim) -> str:
    """One line of the table."""
    ratio = f"{claim.ratio:.3g}"
    cells = (
        f"`{name}`",
        claim.name.replace("|", "\\|"),
        amount(claim.ours, claim.unit),
        amount(claim.other, claim.unit),
        ratio if claim.holds else f"**{ratio}, missed**",
        f"{claim.limit:.3g}",
    )
    return "| " + " | ".join(cells) + " |"


def claims_table(parts: dict[str, Part]) -> str:
    """All claims, each with the benchmark that measures it."""
    lines = ["| benchmark | mixtune / other | mixtune | other | ratio | limit |", "|---|---|---|---|---|---|"]
    return "\n".join(lines + [claim_row(name, claim) for name, part in parts.items() for claim in part.claims])


def machine_words(results: Results) -> str:
    """The machine and its packages in a sentence or two."""
    machine: dict[str, Any] = results.machine
    device = f", {machine['accelerator']}" if machine["accelerator"] else ""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    dates = sorted({part.date for part in results.parts.values()})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    taken = sum(part.seconds for part in results.parts.values()) / 60
    minutes = "1 minute" if round(taken) == 1 else f"{taken:.0f} minutes"
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB{device}; {machine['system']}, "
        f"Python {machine['python']}, {packages}; BLAS: {machine['blas']}. Measured {when}, in {minutes}"
        + (f", {machine['clock']}." if "clock" in machine else ".")
    )


def counts(parts: dict[str, Part]) -> str:
    """How many claims hold."""
    claims = [claim for part in parts.values() for claim in part.claims]
    held = sum(claim.holds for claim in claims)
    return f"{held} of {len(claims)} claims hold" + ("." if held == len(claims) else "; the others are marked.")


def others() -> str:
    """The claims of every further file, each under its machine."""
    found = []
    for path in sorted(RESULTS.glob("performance-*.json")):
        results = read(path)
        name = path.stem.removeprefix("performance-")
        parts = " ".join(results.parts)
        options = " --cpu" * ("clock" in results.machine)
        command = f"python -m benchmarks {parts}{options} --out docs/results/{path.name}"
        words = f"### {name}\n\n`{command}`\n\n{machine_words(results)}"
        found.append(f"{words} {counts(results.parts)}\n\n{claims_table(results.parts)}")
        found += [figures] if (figures := figures_list(results)) else []
    return "\n\n".join(found) or "None yet."


def figures_list(results: Results) -> str:
    """Numbers that no limit belongs to."""
    lines = []
    for name, part in results.parts.items():
        for figure in part.figures:
            numbers = ", ".join(f"{key} {value:.3g}" for key, value in figure.values.items() if not _worded(value))
            lines += [f"- `{name}`, {figure.about}: {numbers}"] if numbers else []
    return "\n".join(lines)


def _worded(value: object) -> bool:
    return isinstance(value, str | list) or value is None


def constants(results: Results) -> str:
    """What the scaling model uses."""
    lines = ["| figure | value |", "|---|---|"]
    for figure in results.figures("rate"):
        lines += [f"| {figure.about}: {name} | {value:.3g} |" for name, value in figure.values.items()]
    return "\n".join(lines)


def fill(text: str, parts: dict[str, str]) -> str:
    """Write what belongs between the markers of a page."""
    for name, part in parts.items():
        block = f"<!-- {name} -->\n\n{part}\n\n<!-- end {name} -->"
        text, count = re.subn(f"<!-- {name} -->.*?<!-- end {name} -->", lambda _, b=block: b, text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"the page must have the markers of {name} once; it has them {count} times")
    return text


def blocks(results: Results) -> dict[str, str]:
    """All that the page takes from results, by marker."""
    return {
        "machine": f"{machine_words(results)} {counts(results.parts)}",
        "claims": claims_table(results.parts),
        "others": others(),
        "constants": constants(results),
    }


def draw(results: Results, path: Path) -> None:
    """Time against n, p, N and T, on logarithmic axes."""
    import matplotlib as mpl
    from docs.pictures import STYLE
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.2), layout="constrained")
        for place, (curve, axes) in enumerate(zip(results.figures("curve"), figure.subplots(2, 2).flat)):
            axis, _, kept = curve.about.partition(": ")
            for line, (label, colour, mark) in LINES.items():
                points = [(x, y) for x, y in zip(curve.values[axis], curve.values[line]) if y is not None]
                if points:
                    axes.loglog(*zip(*points), f"{mark}-", color=colour, markersize=4, label=label)
            axes.set(xlabel=AXES[axis], ylabel="seconds", title=kept)
            axes.title.set_fontsize(9)
            if axis == "T":  # decades around the times, so that a flat line is seen to be flat
                axes.set_ylim(curve.values["core"][0] / 30, curve.values["estimator"][0] * 30)
            axes.minorticks_off()  # hundreds of them, each a few lines of the file
            if place == 0:
                axes.legend(fontsize=8)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def draw_tuned(results: Results, path: Path) -> None:
    """Time and memory of tuned fits against rows, columns, sources, outputs and classes, on logarithmic axes."""
    import matplotlib as mpl
    from docs.pictures import STYLE
    from matplotlib.figure import Figure

    curves = results.figures("tuned")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10.0, 4.4), layout="constrained")
        for row, (unit, ending) in zip(figure.subplots(2, len(curves), sharey="row"), (("seconds", ""), ("MB", " MB"))):
            for curve, axes in zip(curves, row):
                axis, _, kept = curve.about.partition(": ")
                for line, (label, colour, mark) in TUNED.items():
                    if line in curve.values:
                        points = curve.values[axis], curve.values[line + ending]
                        axes.loglog(*points, f"{mark}-", color=colour, markersize=4, label=label)
                names = {"n": "rows of each domain n", "p": "columns p", "N": "sources N"}
                axes.set(xlabel=names.get(axis, axis), ylabel=unit if curve is curves[0] else "")
                axes.set_xticks(curve.values[axis], [f"{value:g}" for value in curve.values[axis]])
                axes.set_title(kept, fontsize=8)
                axes.minorticks_off()
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def main() -> None:
    """Write the page and draw the curves."""
    results = read(MAIN)
    tuned = read(ONE_THREAD)
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), blocks(results)), encoding="utf-8")
    draw(results, CURVES)
    draw_tuned(tuned, TUNED_CURVES)


if __name__ == "__main__":
    main()
