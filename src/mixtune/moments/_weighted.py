"""Several datasets as one weighted least-squares problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mixtune._array import Array, column_gram, namespace
from mixtune.errors import ParameterError
from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._system import GramSystem, RowSystem, System

__all__ = ["weighted_system"]


def weighted_system(moments: Sequence[Moments], weights: np.ndarray[Any, Any]) -> System:
    """``sum_i w_i`` of the datasets' normal equations; datasets of weight zero are not touched.

    The dual form is chosen while all rows with positive weight are at hand and fewer than the features.
    """
    check_alike(moments)
    active = [(m, float(w)) for m, w in zip(moments, weights, strict=True) if w > 0]
    if not active:
        raise ParameterError("all weights are zero; at least one dataset must count")
    first = active[0][0]
    xp = namespace(first._cross)
    stacked = [(m._rows[0], m._rows[1], w) for m, w in active if m._rows is not None]
    if len(stacked) == len(active) and sum(m.count for m, _ in active) < first.n_features:
        return RowSystem(*_stack(xp, stacked))
    if len(active) == 1 and active[0][1] == 1.0:  # nothing to add up, nothing to copy
        return GramSystem(first.gram, first._cross, first._square, first._summed)
    cross = sum(w * m._cross for m, w in active)
    square = sum(w * m._square for m, w in active)
    gram = xp.zeros((first.n_features,) * 2, dtype=xp.float64, device=first._cross.device)
    for m, w in active:
        if m._rows is None or "gram" in m.__dict__:
            gram += m.gram if w == 1.0 else w * m.gram
    unsummed = [(m._rows[0], m._rows[1], w) for m, w in active if m._rows is not None and "gram" not in m.__dict__]
    for group in _groups(unsummed, 4 * first.n_features):
        U, _ = _stack(xp, group)
        gram += column_gram(U)
    return GramSystem(gram, cross, square, max(w * m._summed for m, w in active))


def _stack(xp: Any, rows: Sequence[tuple[Array, Array, float]]) -> tuple[Array, Array]:
    """All rows and targets on top of each other, each dataset scaled by the root of its weight."""
    if len(rows) == 1 and rows[0][2] == 1.0:
        return rows[0][0], rows[0][1]
    return xp.concat([w**0.5 * U for U, _, w in rows]), xp.concat([w**0.5 * Y for _, Y, w in rows])


def _groups(rows: list[tuple[Array, Array, float]], size: int) -> Iterator[list[tuple[Array, Array, float]]]:
    group: list[tuple[Array, Array, float]] = []
    for entry in rows:
        group.append(entry)
        if sum(U.shape[0] for U, _, _ in group) >= size:
            yield group
            group = []
    if group:
        yield group
