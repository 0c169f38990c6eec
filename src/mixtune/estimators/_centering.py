"""An intercept that is not penalised, by linear algebra on moments.

Moments of features with a constant column appended, ``[U, 1]``, hold the sums that any centring needs. Eliminating the
constant from the normal equations (the Schur complement) is the same as moving features and targets to their means:
each domain's own mean for its local head, the common weighted mean

    xbar_w = sum_i w_i W_i xbar_i / sum_i w_i W_i        (W_i the sum of sample weights)

for the weighted problem, after which the intercept is ``ybar_w - xbar_w' coef``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.estimators._rows import Floats, Rows
from mixtune.moments import Moments, ShiftedRows

__all__ = ["Center", "augmented", "common_center", "no_center", "own_center", "recentred"]


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
    """Moments of ``[U, 1]`` with every row scaled by the root of its sample weight."""
    design = np.column_stack([rows.X, np.ones(len(rows.X))])
    if rows.sample_weight is None:
        return Moments.from_rows(design, rows.y)
    root = np.sqrt(rows.sample_weight)
    return Moments.from_rows(design * root[:, None], (rows.y.T * root).T)


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
    bare = Moments(moments.count, moments.gram[:-1, :-1], moments.cross[:-1], moments.square)
    if not np.any(center.features) and not np.any(center.targets):
        return bare
    own = own_center(moments)
    result = bare - _rank_one(own.features, own.targets, own.total)
    away, off = own.features - center.features, own.targets - center.targets
    if np.any(away) or np.any(off):
        result = result + _rank_one(away, off, own.total)
    return result


def _rank_one(features: Floats, targets: Floats, total: float) -> Moments:
    """The moments of ``total`` copies of one point, counting no rows."""
    cross = total * (features * targets if targets.ndim == 0 else np.outer(features, targets))
    return Moments(0, total * np.outer(features, features), cross, total * targets**2)
