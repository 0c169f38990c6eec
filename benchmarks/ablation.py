"""What the constants of the choice are worth: python -m benchmarks ablation [--out FILE] [--only WORD ...]

Every number of :class:`mixtune.choice.ChoiceSettings` is halved and doubled, and every family of candidates and
every feature map is left out, one change at a time. The tuned regressor is then fitted to the same cases of the known
problems as without the change, in both fits with several feature maps, as classifiers, streams and large tables have
them, in place of one Gaussian process. A line says by how much the error changes, as a geometric mean over cases, with
its standard error over cases. Results are kept case by case in a CSV file; a run that was cut off goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.progress import track

from benchmarks.transfer import VARIANTS, cases, known_problem
from mixtune import RegretOptimalRegressorCV
from mixtune.choice import SETTINGS, _choose
from mixtune.estimators import _cv, _maps

OUT = Path("ablation.csv")
COLUMNS = ("change", "problem", "variant", "focal", "n_train", "seed", "rmse")
PROBLEMS = ("diamonds", "star", "cps", "gapminder", "food", "rice")
ROWS = (20, 60)
#: Families of candidates, and feature maps, that are left out one at a time.
FAMILIES = ("alike", "nearest", "similar", "groups", "pooled", "stacked", "one level")
MAPS = ("Fourier", "learned", "splines")
#: Numbers whose effect is on time or memory alone, at these sizes.
OF_COST = ("message_bytes", "evidence_sources", "sampled_sources", "rows_per_column", "judged_rows")
#: Numbers that concern fits of all domains at once, and tables wider than those here.
OF_OTHER_FITS = (
    "most_curved_inputs",
    "learned_outputs",
    "components",
    "shared_folds",
    "shared_tasks",
    "shared_sources",
    "population_folds",
    "population_ridges",
    "scatter_steps",
    "level_rows",
)
#: What tells one case from another.
Key = tuple[str, ...]


def changes() -> dict[str, Callable[[], Any]]:
    """All changes by name, each as a context to fit in."""
    found: dict[str, Callable[[], Any]] = {"none": _nothing}
    for field in fields(SETTINGS):
        value = getattr(SETTINGS, field.name)
        if field.name in (*OF_COST, *OF_OTHER_FITS) or isinstance(value, dict):
            continue
        for word, factor in (("halved", 0.5), ("doubled", 2.0)):
            changed = _scaled(value, factor)
            if not np.array_equal(changed, value):
                found[f"{field.name} {word}"] = _setting(field.name, changed)
    found |= {f"without candidates: {name}": _without_family(name) for name in FAMILIES}
    found |= {f"without map: {name}": _without_map(name) for name in MAPS}
    return found


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_scaled(each, factor) for each in value)
    if isinstance(value, np.ndarray):
        return value * factor
    return max(round(value * factor), 1) if isinstance(value, int) else value * factor


def several_maps() -> Any:
    """A context in which the tuned regressor averages over several feature maps, as where a process costs too much."""
    return patch.object(_cv, "process_maps", lambda *_: None)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _setting(name: str, value: Any) -> Callable[[], Any]:
    @contextmanager
    def changed() -> Iterator[None]:
        before = getattr(SETTINGS, name)
        object.__setattr__(SETTINGS, name, value)
        try:
            yield
        finally:
            object.__setattr__(SETTINGS, name, before)

    return changed


def _without_family(name: str) -> Callable[[], Any]:
    """Candidates of the family have no weight before anything is known, and none afterwards."""

    def weights(names: Sequence[str]) -> Any:
        given = prior(names)
        kept = np.array([not (each == name or each.endswith(f", {name}")) for each in names])
        return given if not (given * kept).any() else given * kept / np.sum(given * kept)

    prior = _choose.prior_weights
    return lambda: patch.object(_choose, "prior_weights", weights)


def _without_map(name: str) -> Callable[[], Any]:
    given = _maps.maps_to_try

    def fewer(*sizes: int) -> tuple[set[str], tuple[str, ...]]:
        tried, notes = given(*sizes)
        # Learned columns come beside the splines.
        return tried - {name} - ({"learned", "boosted"} if name == "splines" else set()), notes

    return lambda: patch.object(_maps, "maps_to_try", fewer)


def run(out: Path, names: Sequence[str], problems: Sequence[str], rows: Sequence[int], seeds: Sequence[int]) -> None:
    """Fit all cases with all changes that the file does not hold yet, and add them to it."""
    known = {_key(row) for row in read(out)}
    todo = [
        (name, count, case)
        for problem in problems
        for count in rows
        for variant in VARIANTS
        for case in cases(known_problem(problem, n_train=count, most_focal=1), variant=variant, seeds=seeds)
        for name in names
    ]
    fresh = not out.exists()
    with out.open("a", newline="") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(COLUMNS)
        for name, count, case in track(todo, description="ablation"):
            told = (name, case.problem, case.variant, case.focal, str(count), str(case.seed))
            if told in known:
                continue
            with several_maps(), changes()[name]():
                model = RegretOptimalRegressorCV().fit(case.train.X, case.train.y, sources=case.mapping)
                residuals = model.predict(case.test.X) - case.test.y
            writer.writerow([*told, f"{float(np.sqrt(np.mean(residuals**2))):.8g}"])
            file.flush()


def read(out: Path) -> list[dict[str, str]]:
    """The cases of a file, none where there is no file."""
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def _key(row: dict[str, str]) -> Key:
    return tuple(row[column] for column in COLUMNS[:-1])


def summary(rows: Sequence[dict[str, str]]) -> list[tuple[str, float, float, int]]:
    """Of each change: percent by which the error changes, its standard error, and the number of cases."""
    by_change: dict[str, dict[Key, float]] = defaultdict(dict)
    for row in rows:
        by_change[row["change"]][_key(row)[1:]] = math.log(float(row["rmse"]))
    base, found = by_change.get("none", {}), []
    for name, errors in by_change.items():
        apart = [errors[case] - base[case] for case in errors if case in base]
        if name != "none" and len(apart) > 1:
            error = statistics.stdev(apart) / math.sqrt(len(apart))
            found.append((name, 100 * statistics.fmean(apart), 100 * error, len(apart)))
    return sorted(found, key=lambda line: -line[1])


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ablation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="where cases are kept (ablation.csv)")
    parser.add_argument("--only", nargs="*", metavar="WORD", help="changes whose names contain one of these words")
    parser.add_argument("--problem", nargs="*", default=PROBLEMS, help=f"known problems ({', '.join(PROBLEMS)})")
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS, help="focal rows (20 60)")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0], help="draws of cases (0)")
    given = parser.parse_args(list(arguments))
    names = [name for name in changes() if not given.only or name == "none" or any(w in name for w in given.only)]
    if len(names) == 1:
        parser.error(f"no change has a name with {' or '.join(given.only)}; there are: {', '.join(changes())}")
    run(given.out, names, given.problem, given.rows, given.seeds)
    for name, change, error, count in summary(read(given.out)):
        print(f"{name:44} {change:+7.2f}%  +- {error:.2f}  ({count} cases)")
    return 0
