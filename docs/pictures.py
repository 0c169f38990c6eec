"""Draw the pictures of the pages: python -m docs.pictures [NAME ...]

Writes docs/images/NAME.svg, all of them by default (a few minutes; the gain by rows takes most). Colours are such that
the pictures can be read on light and on dark pages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from benchmarks.transfer import methods_named, problem_from_domains, run, summarise
from matplotlib.figure import Figure

from mixtune.cli._demo import METHODS
from mixtune.data import Domains, load_ames, load_exam
from mixtune.estimators import RegretOptimalRegressor, RegretOptimalRegressorCV
from mixtune.weights import WassersteinWeights

IMAGES = Path(__file__).with_name("images")
TEAL, ORANGE, VIOLET, GREY = "#1a9988", "#dd7722", "#8866cc", "#808080"
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mixtune",
    "font.family": "sans-serif",
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def diamonds() -> Figure:
    """Errors of `mixtune demo`, with sound sources and with half of them misleading."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mixtune", "demo", "--json"]
        printed = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stdout
    figure, axes = _axes(5.6, 2.8)
    kinds = {"clean": ("all grades as they are", TEAL), "misleading": ("half of the other grades misleading", ORANGE)}
    for offset, (kind, (label, colour)) in enumerate(kinds.items()):
        found = json.loads(printed)["errors"][kind]
        places = np.arange(len(found)) + 0.38 * offset
        bars = axes.barh(places, list(found.values()), height=0.36, color=colour, label=label)
        axes.bar_label(bars, [f"{error:.1%}" for error in found.values()], padding=3, fontsize=8)
    axes.set(yticks=np.arange(len(METHODS)) + 0.19, yticklabels=METHODS.values(), xlabel="typical error of the price")
    axes.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    axes.margins(x=0.1)
    axes.invert_yaxis()
    figure.legend(loc="outside upper right", ncols=2)
    return figure


def gain_by_rows() -> Figure:
    """Error relative to the focal rows alone, against how many there are."""
    figure, axes = _axes(5.6, 3.0)
    for name, domains, least, colour in (("schools", load_exam(), 88, TEAL), ("house sales", load_ames(), 125, ORANGE)):
        focal = [domain.name for domain in domains if domain.n_rows >= least]
        counts = (10, 20, 40, 60)
        middle, low, high = [], [], []
        for count in counts:
            problem = problem_from_domains(name, domains, n_train=count, focal=focal)
            results = run(problem, seeds=range(3), methods=methods_named(["mixtune"]))
            ratios = [result.ratio for result in results]
            middle.append(1 - summarise(results)[0].relative_rmse)
            low.append(1 - np.quantile(ratios, 0.75))
            high.append(1 - np.quantile(ratios, 0.25))
        axes.fill_between(counts, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(counts, middle, "o-", color=colour, label=name)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="focal rows", ylabel="part of the error that transfer removes", xticks=counts)
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    axes.legend()
    return figure


def temperature() -> Figure:
    """Wasserstein weights of a few neighbourhoods against the temperature."""
    domains = load_ames(focal="Somerst")
    kept = ("Somerst", "CollgCr", "NridgHt", "Gilbert", "OldTown", "NAmes")
    found = WassersteinWeights(1.0).weigh(domains=_standardised(domains, kept))
    temperatures = np.logspace(-1, 2.5, 60)
    logs = -temperatures[:, None] * found.relevance
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    figure, axes = _axes(5.6, 3.0)
    for index in np.argsort(found.relevance, kind="stable"):
        distance = found.distances[index].value
        label = f"{found.names[index]} (focal)" if index == found.focal else f"{found.names[index]}, W1 {distance:.2f}"
        shade = TEAL if index == found.focal else None
        axes.semilogx(temperatures, weights[:, index], color=shade, label=label, linewidth=1.6)
    axes.set(xlabel="temperature", ylabel="weight", ylim=(0, 1.02))
    axes.legend(fontsize=8)
    return figure


def ridge_path() -> Figure:
    """Leave-one-out error against the effective ridge, for changes of three different settings."""
    domains = load_ames(focal="Somerst")
    train, _ = domains.split_focal(domains.focal_domain.n_rows - 25, seed=0)
    own = train.focal_domain
    sources = {name: (train[name].X, train[name].y) for name in ("CollgCr", "NridgHt", "Gilbert", "OldTown", "NAmes")}
    figure, axes = _axes(5.6, 3.0)
    settings = {
        "transfer": (np.logspace(-2, 4, 25), TEAL, "o"),
        "stability": (np.logspace(-1, 4, 21), ORANGE, "s"),
        "horizon": (np.unique(np.logspace(0, 3, 16).astype(int)), VIOLET, "^"),
    }
    for name, (values, colour, mark) in settings.items():
        found = []
        for value in values:
            given = {"transfer": 0.1, "stability": 100.0, "horizon": 10} | {name: value.item()}
            model = RegretOptimalRegressor(weights="equal", **given).fit(own.X, own.y, sources=sources)
            found.append((model.effective_ridge_, model.loo_error_**0.5))
        axes.semilogx(*zip(*found), mark, color=colour, markersize=4, alpha=0.8, label=f"{name} varied")
    axes.set(xlabel="effective ridge", ylabel="leave-one-out RMSE")
    axes.legend()
    return figure


def shares() -> Figure:
    """Shares of the families of candidates in a linear model, with sound sources and with half of them misleading."""
    train, _ = _school()
    own = train.focal_domain
    sound = {source.name: (source.X, source.y) for source in train.sources}
    misleading = {name: (X, 2 * y.mean() - y if place % 2 else y) for place, (name, (X, y)) in enumerate(sound.items())}
    families = ("focal only", "alike", "nearest", "similar", "groups")
    figure, axes = _axes(5.6, 2.7)
    for offset, (name, sources, colour) in enumerate(
        (("all sources sound", sound, TEAL), ("half of them misleading", misleading, ORANGE))
    ):
        model = RegretOptimalRegressorCV(feature_map=None).fit(own.X, own.y, sources=sources)
        found = [sum(c.share for c in model.candidates_ if c.family == family) for family in families]
        axes.barh(np.arange(len(families)) + 0.38 * offset, found, height=0.36, color=colour, label=name)
    axes.set(yticks=np.arange(len(families)) + 0.19, yticklabels=families, xlabel="share in the average")
    axes.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    axes.invert_yaxis()
    axes.legend()
    return figure


def display(kind: str, rows: int) -> Figure:
    """One of the displays of the page on notebooks, for the linear model of one school."""
    train, _ = _school()
    model = RegretOptimalRegressorCV(feature_map=None, focal_name="14").fit(*_frame(train.focal_domain), sources=train)
    figure, axes = _axes(5.6, 0.8 + 0.28 * rows)
    getattr(model, f"plot_{kind}")(ax=axes, **({"most": rows} if kind != "path" else {}))
    return figure


def _frame(domain: Any) -> tuple[Any, Any]:
    return pd.DataFrame(domain.X, columns=list(domain.columns)), domain.y


PICTURES: dict[str, Callable[[], Figure]] = {
    "diamonds": diamonds,
    "gain-by-rows": gain_by_rows,
    "temperature": temperature,
    "ridge-path": ridge_path,
    "shares": shares,
    "plot-weights": partial(display, "weights", 8),
    "plot-effects": partial(display, "effects", 5),
    "plot-path": partial(display, "path", 7),
}


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _school() -> tuple[Domains, Any]:
    schools = load_exam(focal=14)
    return schools.split_focal(schools.focal_domain.n_rows - 20, seed=0)


def _standardised(domains: Domains, names: tuple[str, ...]) -> Domains:
    """Some of the domains, with inputs and targets on one scale."""
    shift, scale = domains.input_scaling()
    targets = np.concatenate([domain.y for domain in domains])
    rows = {
        name: ((domains[name].X - shift) / scale, (domains[name].y - targets.mean()) / targets.std()) for name in names
    }
    return Domains.from_dict(rows, focal=domains.focal)


def main(names: list[str]) -> None:
    """Draw pictures by name, or all."""
    IMAGES.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name in names or PICTURES:
            figure = PICTURES[name]()
            figure.savefig(IMAGES / f"{name}.svg", transparent=True, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main(sys.argv[1:])
