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
from mixtune.selection._model_averaging import ValidationTask, focal_only_best, robust_errors
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
        alone = focal_only_best(labels, robust_errors(left_out, task.known.weight))
        if not spare:
            limit = SETTINGS.largest_residual
            return ValidationTask(k, np.clip(left_out, -limit, limit), task.known.weight, left_out, alone)
        heads = np.concatenate([f.paths.heads for f in fits])
        test = sources[k].known.part(order[n : n + SETTINGS.test_rows])
        fitted = heads[:, : test.X.shape[1]] @ test.X.T + (heads[:, -1:] if task.intercept else 0.0)
        return ValidationTask(k, test.y - fitted, test.weight, left_out, alone)

    orders = {k: by_content(sources[k]) for k in able}
    return [partial(validate, k, rng.permutation(orders[k])) for _ in range(turns) for k in able]


def by_content(sample: Sample) -> Integers:
    """Its rows in an order that does not depend on the one they came in.

    Features come first, which several outputs share; the same row at another place may differ by rounding.
    """
    rows = sample.known
    return np.lexsort((rows.weight, rows.y, np.round(_projected(rows.X), 9)))


def _rank(source: Sample) -> tuple[float, ...]:
    """What sources are ordered by; sums over rows in another order differ by rounding."""
    rows = source.known
    scores = _projected(rows.X)
    told = (rows.total, *(float(rows.weight @ part) for part in (scores, scores**2, rows.y, rows.y**2)))
    return len(rows.y), *(round(value, 6) for value in told)


def _projected(X: Floats) -> Floats:
    """The rows along a direction along which any two of them differ."""
    return X @ np.sin(2.0 + np.arange(X.shape[1])) + np.sin(1.0)
