"""An intercept that is not penalised, by linear algebra on moments.

Moments of features with a constant column appended, ``[U, 1]``, hold the sums that any centring needs. Eliminating the
constant from the normal equations (the Schur complement) is the same as moving features and targets to their means:
each domain's own mean for its local head, the common weighted mean

    xbar_w = sum_i w_i W_i xbar_i / sum_i w_i W_i        (W_i the sum of sample weights)

for the weighted problem, after which the intercept is ``ybar_w - xbar_w' coef``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import to_device
from mixtune.estimators._rows import Floats, Rows
from mixtune.features import Identity, device_slices, placed
from mixtune.moments import Moments, Origin, ShiftedRows
from mixtune.streaming import StreamFeatures

__all__ = ["Center", "augmented", "common_center", "device_moments", "no_center", "own_center", "recentred"]

#: Numbers of features in prepared units at a time: 16 MB, which the allocator hands out again and again.
BLOCK_ENTRIES = 2**21


@dataclass(frozen=True, eq=False)
class Center:
    """A point (features (p,), targets () or (D,)) and the total weight behind it; infinite where nothing was fitted."""

    features: Floats
    targets: Floats
    total: float

    def intercept(self, coef: Floats) -> Any:
        """``ybar - xbar' coef``."""
        return self.targets - self.features @ coef


def augmented(rows: Rows) -> Moments:
    """Moments of ``[U, 1]`` with every row scaled by the root of its sample weight.

    Many rows are taken a block at a time, so that neither the constant nor prepared units need a second copy of them.
    """
    n, p = rows.shape
    step = max(4 * p, BLOCK_ENTRIES // p)
    if n <= p:
        U, Y, root = _rooted(rows)
        return Moments.from_rows(np.column_stack([U, root]), Y)
    total: Moments | None = None
    edge: Any = 0.0
    for begin in range(0, n, step):
        U, Y, root = _rooted(rows.slice(begin, begin + step))
        part = Moments.from_rows(U, Y)
        total = part if total is None else total + part
        edge = edge + np.concatenate([root @ U, [root @ root], np.reshape(root @ Y, -1)])
    assert total is not None
    gram = np.empty((p + 1, p + 1))
    gram[:-1, :-1] = total.gram
    gram[-1] = gram[:, -1] = edge[: p + 1]
    cross = np.concatenate([total._cross, edge[None, p + 1 :]])
    return Moments._make(n, total.single_output, gram=gram, cross=cross, square=total._square, rows=None)


def _rooted(rows: Rows) -> tuple[Floats, Floats, Floats]:
    """Features, targets and a column of ones, all scaled by the roots of the sample weights."""
    if rows.sample_weight is None:
        return rows.X, rows.y, np.ones(len(rows.X))
    root = np.sqrt(rows.sample_weight)
    return rows.X * root[:, None], (rows.y.T * root).T, root


def device_moments(
    feature_map: Any, rows: Rows, origin: Origin, columns: tuple[str, ...] | None, device: str
) -> Moments:
    """Moments of ``[U - origin, 1]`` and ``Y - origin`` of rows of inputs, computed on a device of PyTorch in blocks.

    Every row is scaled by the root of its sample weight; the sums come back as NumPy arrays.
    """
    inputs = rows.X.shape[1]
    ready = Identity(inputs) if feature_map is None else placed(feature_map, device)
    make = StreamFeatures(ready, inputs, columns, "float64", origin, device)

    def blocks() -> Iterator[tuple[Any, Any]]:
        for part in device_slices(len(rows.X), make.n_features):
            U, y = make(rows.X[part]), make.targets(rows.y[part])
            if rows.sample_weight is not None:
                root = to_device(np.sqrt(rows.sample_weight[part]), device)
                U, y = U * root[:, None], y * (root if y.ndim == 1 else root[:, None])
            yield U, y

    return Moments.from_blocks(blocks()).on_device(None)


def own_center(moments: Moments) -> Center:
    """The weighted mean of a domain, from its augmented moments."""
    rows = moments.rows
    if rows is not None:
        design = rows[0]
        sums = design[:, -1] @ design
    else:
        sums = moments.gram[-1]
    total = float(sums[-1])
    return Center(sums[:-1] / total, np.asarray(moments.cross[-1] / total), total)


def no_center(moments: Moments) -> Center:
    """The origin, for fits without an intercept."""
    return Center(np.zeros(moments.n_features - 1), np.zeros_like(np.asarray(moments.cross[-1])), math.inf)


def common_center(moments: Sequence[Moments], weights: Floats) -> Center:
    """The mean of all rows, each domain counted with its weight.

    Examples
    --------
    >>> rows = [Rows(np.array([[0.0]]), np.array([0.0])), Rows(np.array([[2.0], [4.0]]), np.array([1.0, 1.0]))]
    >>> center = common_center([augmented(r) for r in rows], np.array([0.5, 0.5]))
    >>> center.features, center.total
    (array([2.]), 1.5)
    """
    active = [(own_center(m), float(w)) for m, w in zip(moments, weights, strict=True) if w > 0]
    total = sum(w * center.total for center, w in active)
    features = sum(w * center.total * center.features for center, w in active) / total
    targets = sum(w * center.total * center.targets for center, w in active) / total
    return Center(np.asarray(features), np.asarray(targets), float(total))


def recentred(moments: Moments, center: Center, *, keep: bool = True) -> Moments:
    """Moments of ``U - 1 c'`` and ``Y - 1 d'`` without the constant column, from augmented moments.

    Kept rows are moved themselves, or with ``keep=False`` each time they are needed, which takes no memory; sums change
    by rank-one terms: ``U'WU - W xx' + W (x-c)(x-c)'`` with x the mean.
    """
    rows = moments.rows
    if rows is not None:
        design, targets = rows
        if not keep and len(design) < design.shape[1] - 1:
            shifted = ShiftedRows(design, targets, center.features, np.reshape(center.targets, -1))
            return Moments.from_shifted(shifted, single=moments.single_output)
        root = design[:, -1:]
        moved = targets - root * center.targets
        moved = moved[:, 0] if moments.single_output else moved
        return Moments.from_rows(design[:, :-1] - root * center.features, moved)
    return _recentred_sums(moments, center)


def _recentred_sums(moments: Moments, center: Center) -> Moments:
    """Without the checks that adding and subtracting moments would make three times over: domains may be very many."""
    gram, cross, square = moments.gram[:-1, :-1], moments._cross[:-1], moments._square
    largest = 0.0
    if np.any(center.features) or np.any(center.targets):
        own = own_center(moments)
        level = np.reshape(own.targets, -1)
        away, off = own.features - center.features, np.reshape(own.targets - center.targets, -1)
        largest = float(np.max(np.diagonal(gram), initial=0.0))
        gram = _moved_gram(gram, own, away)
        cross = cross - own.total * np.outer(own.features, level) + own.total * np.outer(away, off)
        square = np.maximum(square - own.total * level**2, 0.0) + own.total * off**2
    else:
        gram = np.array(gram)  # not a view of moments that may then be dropped
    parts = {"gram": gram, "cross": np.array(cross), "square": np.array(square), "rows": None}
    return Moments._make(moments.count, moments.single_output, **parts, summed=largest)


def _moved_gram(gram: Floats, own: Center, away: Floats) -> Floats:
    """``G - W xx' + W aa'`` with one matrix beside the result: with thousands of features, more take longer to get."""
    outer = np.outer(own.features, own.features)
    outer *= own.total
    moved: Floats = gram - outer
    np.outer(away, away, out=outer)
    outer *= own.total
    moved += outer
    return moved
