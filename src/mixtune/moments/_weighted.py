"""Several datasets as one weighted least-squares problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mixtune._array import Array, column_gram, is_numpy, namespace
from mixtune.errors import ParameterError
from mixtune.moments._cost import AUTO, CONJUGATE_GRADIENTS, plan, row_costs
from mixtune.moments._moments import Moments, check_alike
from mixtune.moments._parts import Part, row_system, stack
from mixtune.moments._rows import RowParts
from mixtune.moments._system import GramSystem, System

__all__ = ["weighted_system"]

#: Numbers stacked for one product: 8 MB, enough that the threads of a product do not spend their time meeting.
GROUP_ENTRIES = 2**20
#: With this many small datasets, products are cut into slabs of at most so many multiplications. Measured on two cores
#: shared with other work, 10,000 rows at p = 100: one product 340 ms, nearly all of it threads that wait for each
#: other, in slabs 25 ms.
MANY_GROUPS, SLAB_PRODUCT = 64, 250_000


def weighted_system(moments: Sequence[Moments], weights: np.ndarray[Any, Any]) -> System:
    """``sum_i w_i`` of the datasets' normal equations; datasets of weight zero are not touched.

    While all rows with positive weight are at hand, they are used as they are where they are fewer than the features,
    were kept on request, or are so many and so wide that a matrix of features by features would cost too much.
    """
    check_alike(moments)
    active = [(m, float(w)) for m, w in zip(moments, weights, strict=True) if w > 0]
    if not active:
        raise ParameterError("all weights are zero; at least one dataset must count")
    first = active[0][0]
    xp = namespace(first._cross)
    if all(m.keeps_rows for m, _ in active) and _prefers_rows([m for m, _ in active]):
        return row_system([Part(U, Y, w) for m, w in active for U, Y in m.parts])
    if len(active) == 1 and active[0][1] == 1.0:  # nothing to add up, nothing to copy
        return GramSystem(first.gram, first._cross, first._square, first._summed)
    cross = sum(w * m._cross for m, w in active)
    square = sum(w * m._square for m, w in active)
    gram = xp.zeros((first.n_features,) * 2, dtype=xp.float64, device=first._cross.device)
    unsummed = []
    for m, w in active:
        if not m.keeps_rows or "gram" in m.__dict__ or isinstance(m._kept, RowParts):
            gram += m.gram if w == 1.0 else w * m.gram
        else:
            unsummed.append((m, w))
    for group in _groups(unsummed, max(4 * first.n_features, GROUP_ENTRIES // first.n_features)):
        U, _ = stack([Part(*pair, w) for m, w in group for pair in m.parts])
        gram += _slab_gram(U) if len(unsummed) >= MANY_GROUPS and _slab(U) >= 8 else column_gram(U)
    return GramSystem(gram, cross, square, max(w * m._summed for m, w in active))


def _prefers_rows(moments: Sequence[Moments]) -> bool:
    """Whether rows describe the sum of these better than a Gram matrix: few of them, kept on request, or very wide."""
    first, count = moments[0], sum(m.count for m in moments)
    if count < first.n_features or any(isinstance(m._kept, RowParts) for m in moments):
        return True
    ways = plan(row_costs(count, first.n_features, first.n_outputs), AUTO, shift=1.0, like=first._cross)
    return ways[0].method == CONJUGATE_GRADIENTS


def _slab(U: Array) -> int:
    """Rows of a product so small that the linear algebra library computes it in one thread; 0 beside NumPy."""
    return SLAB_PRODUCT // int(U.shape[1]) ** 2 if is_numpy(U) else 0


def _slab_gram(U: Array) -> Array:
    """``U'U`` as a sum over slabs of rows, each a product of its own."""
    slab = _slab(U)
    whole = len(U) // slab * slab
    slabs = U[:whole].reshape(-1, slab, U.shape[1])
    gram = np.matmul(slabs.transpose(0, 2, 1), slabs).sum(axis=0) + U[whole:].T @ U[whole:]
    return (gram + gram.T) / 2


def _groups(entries: list[tuple[Moments, float]], size: int) -> Iterator[list[tuple[Moments, float]]]:
    """Runs of datasets with about ``size`` rows each, so that one product serves many."""
    group: list[tuple[Moments, float]] = []
    rows = 0
    for m, w in entries:
        group.append((m, w))
        rows += m.count
        if rows >= size:
            yield group
            group, rows = [], 0
    if group:
        yield group
