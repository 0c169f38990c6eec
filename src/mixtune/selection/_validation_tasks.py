"""Cross-domain validation: each source takes the focal role in turn.

A source is given as many rows as the focal domain has, the other sources inform its priors, and its remaining rows test
all candidates; where it has none to spare, its rows are left out in turn instead. What is drawn follows the content of
rows and sources, not the order they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mixtune._array import Floats, Integers
from mixtune.moments import Sample
from mixtune.selection._families import Fits, Label
from mixtune.selection._model_averaging import ValidationTask, focal_only_best, negligible_error, robust_errors
from mixtune.selection._settings import SETTINGS


def validation_tasks(
    fit: Callable[[Sample, Floats], list[Fits]],
    labels: Sequence[Label],
    focal: Sample,
    sources: Sequence[Sample],
    rng: np.random.Generator,
) -> list[Callable[[], ValidationTask]]:
    """Validation tasks to be done: of sources with rows to spare, or at least half as many as the focal domain.

    ``fit`` makes all candidates, named by ``labels``, for a sample with the sources that are allowed (N,). Sources
    whose rows are unknown inform priors only.
    """
    n = max(round(focal.total), 1)
    if n > SETTINGS.validated_rows or len(sources) < SETTINGS.validated_sources:
        return []
    sizes = np.array([0 if source.rows is None else len(source.rows.y) for source in sources])
    able = np.flatnonzero(sizes >= n + max(8, n // 4)).tolist()
    # Where rows cannot be spared for a test, they are left out in turn.
    spare = len(able) >= 2
    if not spare:
        able = np.flatnonzero(sizes >= max(n / 2, 8)).tolist()
    if len(able) < 2:
        return []
    narrow = focal.columns <= SETTINGS.narrow_columns
    most = SETTINGS.most_tasks[0 if narrow else 1 + (focal.columns > SETTINGS.wide_columns)]
    able = sorted(able, key=lambda k: _rank(sources[k]))
    if len(able) > most:
        able = [int(k) for k in rng.choice(able, most, replace=False)]
    turns = min(most // len(able), SETTINGS.tasks_per_source) if spare and narrow else 1

    def validate(k: int, order: Integers) -> ValidationTask:
        allowed = np.ones(len(sources))
        allowed[k] = 0.0
        task = sources[k].part(order[:n])
        fits = fit(task, allowed)
        left_out = np.concatenate([f.paths.left_out for f in fits])
        negligible = negligible_error(task)
        alone = focal_only_best(labels, robust_errors(left_out, task.known.weight, negligible))
        if not spare:
            limit = SETTINGS.largest_residual
            return ValidationTask(k, np.clip(left_out, -limit, limit), task.known.weight, left_out, alone, negligible)
        heads = np.concatenate([f.paths.heads for f in fits])
        test = sources[k].known.part(order[n : n + SETTINGS.test_rows])
        fitted = heads[:, : test.X.shape[1]] @ test.X.T + (heads[:, -1:] if task.intercept else 0.0)
        return ValidationTask(k, test.y - fitted, test.weight, left_out, alone, negligible)

    orders = {k: by_content(sources[k]) for k in able}
    return [partial(validate, k, rng.permutation(orders[k])) for _ in range(turns) for k in able]


def by_content(sample: Sample) -> Integers:
    """The rows in an order that depends neither on the order they came in nor on the order or sign of their columns.

    Features come first, which several outputs share. They are rounded, since the same row at another place may differ
    by rounding.
    """
    rows = sample.known
    norms, cubes = _symmetric(rows.X)
    # Rows with equal norms and targets are told apart by a direction along which any two rows differ.
    along = rows.X @ np.sin(2.0 + np.arange(rows.X.shape[1]))
    return np.lexsort((rows.weight, along, rows.y, np.round(cubes, 9), np.round(norms, 9)))


def _rank(source: Sample) -> tuple[float, ...]:
    """What sources are ordered by; sums over rows in another order differ by rounding."""
    rows = source.known
    norms, cubes = _symmetric(rows.X)
    sums = (rows.total, *(float(rows.weight @ part) for part in (norms, cubes, rows.y**2, rows.y, norms * rows.y)))
    return len(rows.y), *(round(value, 6) for value in sums)


def _symmetric(X: Floats) -> tuple[Floats, Floats]:
    """Sums of squares and of absolute cubes of each row: any order and sign of the columns gives the same."""
    size = np.abs(X)
    return np.sum(size**2, axis=1), np.sum(size**3, axis=1)
