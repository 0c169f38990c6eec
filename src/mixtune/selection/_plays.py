"""Plays: a source in the focal domain's place, with as many rows as that has, the other sources helping.

Its remaining rows test; where it has none to spare, its rows are left out in turn instead. What is drawn follows the
content of rows and sources, not the order they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mixtune.selection._families import Fits, Label
from mixtune.selection._shares import Play, alone_of, scores_of
from mixtune.selection._task import Floats, Task, direction

__all__ = ["by_content", "plays_of"]

#: Most plays with few columns, and most of one source then; most plays with many, where each source plays once.
PLAYS, TURNS = 64, 2
WIDE_PLAYS = (12, 6)
#: Fewest sources, most focal rows for which plays are of use, most rows to test one on.
FEWEST, MOST_FOCAL, TEST_ROWS = 3, 1000, 500
#: Largest residual of a row left out in a play, in standard deviations of the targets: some are infinite.
ABSURD = 1e3


def plays_of(
    fit: Callable[[Task, Floats], list[Fits]],
    labels: Sequence[Label],
    focal: Task,
    sources: Sequence[Task],
    rng: np.random.Generator,
) -> list[Callable[[], Play]]:
    """Plays to be done: sources with rows to spare, or at least half as many as the focal domain, in its place.

    ``fit`` makes all candidates, named by ``labels``, of a task with the sources that are allowed (N,).
    """
    n = max(round(focal.count), 1)
    needed = n + max(8, n // 4)
    able = [k for k, source in enumerate(sources) if len(source.y) >= needed]
    most = PLAYS if focal.is_narrow else WIDE_PLAYS[focal.is_dear]
    if n > MOST_FOCAL or len(sources) < FEWEST:
        return []
    # Where rows cannot be spared for a test, they are left out in turn.
    spare = len(able) >= 2
    if not spare:
        able = [k for k, source in enumerate(sources) if len(source.y) >= max(n / 2, 8)]
    if len(able) < 2:
        return []
    able = sorted(able, key=lambda k: _rank(sources[k]))
    if len(able) > most:
        able = [int(k) for k in rng.choice(able, most, replace=False)]
    turns = min(most // len(able), TURNS) if spare and focal.is_narrow else 1

    def play(k: int, order: Floats) -> Play:
        allowed = np.ones(len(sources))
        allowed[k] = 0.0
        task = sources[k].part(order[:n])
        fits = fit(task, allowed)
        left_out = np.concatenate([f.paths.left_out for f in fits])
        alone = alone_of(labels, scores_of(task, left_out))
        if not spare:
            return Play(k, np.clip(left_out, -ABSURD, ABSURD), task.weight, left_out, alone)
        test = sources[k].part(order[n : n + TEST_ROWS])
        residuals = test.y - np.concatenate([f.paths.heads for f in fits]) @ test.design.T
        return Play(k, residuals, test.weight, left_out, alone)

    orders = {k: by_content(sources[k]) for k in able}
    return [partial(play, k, rng.permutation(orders[k])) for _ in range(turns) for k in able]


def by_content(task: Task) -> Floats:
    """Its rows in an order that does not depend on the one they came in.

    Features come first, which several outputs share; the same row at another place may differ by rounding.
    """
    return np.lexsort((task.weight, task.y, np.round(task.design @ direction(task.design.shape[1]), 9)))


def _rank(source: Task) -> tuple[float, ...]:
    """What sources are ordered by; sums over rows in another order differ by rounding."""
    scores = source.design @ direction(source.design.shape[1])
    told = (source.count, *(float(source.weight @ part) for part in (scores, scores**2, source.y, source.y**2)))
    return len(source.y), *(round(value, 6) for value in told)
