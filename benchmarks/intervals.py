"""Claims: 90% intervals follow the local spread, and score no worse than quantile regression by LightGBM.

Made-up domains of four inputs share a curved function. The spread of their noise is the same everywhere, or grows with
an input, with the mean, or with the distance from the middle of an input, or is larger beyond a step or in a corner.
Six or twelve sources have the same pattern, or none; or there are no sources. Test rows are divided into thirds by the
width of their interval; the share of covered rows in the first and the last third is averaged over cases. The interval
score (Gneiting and Raftery, Strictly proper scoring rules, J. Am. Stat. Assoc. 102, 2007) is the width plus 20 times
what targets lie outside; scores of methods are compared by the geometric mean of their ratio over cases. LightGBM
learns from all rows, with the domain as a category.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.timing import Claim, Figure
from mixtune import RegretOptimalRegressorCV

COVERAGE = 0.9
#: How far the covered part of the outer thirds may be from 90%, by the number of focal rows.
FAR = {60: 0.07, 200: 0.05}
TESTS = 1500


def spread(kind: str, X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Standard deviations of the noise of rows with these means."""
    return {
        "constant": np.full(len(X), 0.5),
        "input": 0.5 * np.exp(0.7 * X[:, 1]),
        "mean": 0.1 + 0.5 * np.log1p(np.exp(1.5 * mean)),
        "distance": 0.2 + 0.6 * np.abs(X[:, 2]),
        "step": np.where(X[:, 0] > 0.3, 1.2, 0.3),
        "corner": np.where((X[:, 0] > 0) & (X[:, 1] > 0), 1.5, 0.35),
    }[kind]


KINDS = ("constant", "input", "mean", "distance", "step", "corner")
SOURCES = ("alike", "constant", "none")


def problem(seed: int, kind: str, rows: int, sources: str) -> tuple[Any, ...]:
    """Focal rows X, y, sources {name: (X, y)}, and test rows X, y, with the standard deviations of their noise."""
    rng = np.random.default_rng([seed, rows, KINDS.index(kind), SOURCES.index(sources)])

    def draw(n: int, kind: str, own: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X = rng.standard_normal((n, 4))
        mean = np.sin(1.5 * X[:, 0]) + 0.8 * X[:, 1] + 0.5 * X[:, 0] * X[:, 2] + X @ own[:4] + own[4]
        noise = spread(kind, X, mean)
        return X, mean + noise * rng.standard_normal(n), noise

    def deviation() -> np.ndarray:
        return 0.25 * rng.standard_normal(5)

    count = 0 if sources == "none" else 12 if seed % 2 else 6
    noise = kind if sources == "alike" else "constant"
    others = {f"s{k}": draw(int(rng.integers(80, 260)), noise, deviation())[:2] for k in range(count)}
    own = deviation()
    return *draw(rows, kind, own)[:2], others, *draw(TESTS, kind, own)


def score(low: np.ndarray, high: np.ndarray, y: np.ndarray) -> float:
    """The mean interval score."""
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return float(np.mean(high - low + 2.0 / (1.0 - COVERAGE) * outside))


def by_quantiles(X: np.ndarray, y: np.ndarray, sources: dict[str, Any], new: np.ndarray) -> list[np.ndarray]:
    """Both ends of intervals by LightGBM's quantile regression on all rows."""
    from lightgbm import LGBMRegressor

    parts = [(X, y), *sources.values()]
    rows = np.vstack([np.column_stack([inputs, np.full(len(inputs), k)]) for k, (inputs, _) in enumerate(parts)])
    targets = np.concatenate([part for _, part in parts])
    tests = np.column_stack([new, np.zeros(len(new))])
    ends = []
    for level in ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2):
        model = LGBMRegressor(objective="quantile", alpha=level, n_jobs=1, verbose=-1)
        ends.append(model.fit(rows, targets, categorical_feature=[rows.shape[1] - 1]).predict(tests))
    return [np.minimum(*ends), np.maximum(*ends)]


def measure(*, full: bool = False) -> Iterator[Claim | Figure]:
    """Claims on the covered parts and on scores; with ``full`` over twice as many draws."""
    for rows, draws in ((20, 4), (60, 4), (200, 2)):
        covered: dict[str, list[list[float]]] = {"constant": [], "varying": []}
        ratios = []
        for kind in KINDS:
            for sources in SOURCES:
                if kind == sources:  # these are alike
                    continue
                for seed in range(draws * (2 if full else 1)):
                    X, y, others, new, truth, deviations = problem(seed, kind, rows, sources)
                    low, high = RegretOptimalRegressorCV().fit(X, y, sources=others).predict_interval(new)
                    inside = (low <= truth) & (truth <= high)
                    order, third = np.argsort(high - low, kind="stable"), TESTS // 3
                    parts = [inside, inside[order[:third]], inside[order[-third:]]]
                    by_noise = np.argsort(deviations, kind="stable")
                    parts += [inside[by_noise[:third]], inside[by_noise[-third:]]]
                    noise = "constant" if kind == "constant" else "varying"
                    covered[noise].append([float(np.mean(part)) for part in parts])
                    if find_spec("lightgbm"):
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            ends = by_quantiles(X, y, others, new)
                        ratios.append(score(low, high, truth) / score(*ends, truth))
        for noise, cases in covered.items():
            whole, narrow, wide, quiet, loud = np.mean(cases, axis=0)
            about = f"{rows} focal rows, {noise} noise: parts covered"
            values = {"all": whole, "narrow third": narrow, "wide third": wide}
            if noise == "varying":
                values |= {"third of least noise": quiet, "third of most noise": loud}
            yield Figure("size", about, values)
            for name, part in (("narrow", narrow), ("wide", wide)):
                if noise == "varying" and rows in FAR:
                    told = f"{rows} focal rows: distance of {part:.1%} in the {name} third from 90%"
                    yield Claim(told, abs(part - COVERAGE), FAR[rows], 1.0, unit="")
        if ratios:
            ratio = float(np.exp(np.mean(np.log(ratios))))
            yield Claim(f"{rows} focal rows: interval score / LightGBM's", ratio, 1.0, 1.0, unit="")
