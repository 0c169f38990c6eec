"""Standardised features from sums alone: moments of ``[U, 1]`` hold the means, so they can be moved and rescaled.

This is what lets an estimator that standardises its features be fitted on rows that it never sees: stream the moments
with a constant as the last feature, learn the common scale from them, and move each of them to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mixtune.moments._moments import Moments

__all__ = ["Origin", "about", "moved", "pooled_scale"]

Floats = np.ndarray[Any, Any]

#: Rows of a Gram matrix that are moved at a time.
ROWS_AT_ONCE = 256


class Origin(NamedTuple):
    """A point that rows are taken about: features (p,), and targets () or (D,)."""

    features: Floats
    targets: Floats


def pooled_scale(moments: Sequence[Moments], origin: Origin | None = None) -> tuple[Floats, Floats, Floats]:
    """Mean and standard deviation of the features, and mean of the targets, over all rows of several moments.

    The last feature must be the constant 1. A column whose spread is within rounding of its mean counts as constant and
    gets spread 1: sums of squares cannot tell below about 1e-7 of it. Where the sums are about an ``origin`` near the
    rows they can tell far more; the means are then relative to it.

    Examples
    --------
    >>> U, y = np.array([[1.0, 1.0], [3.0, 1.0], [5.0, 1.0]]), np.array([0.0, 1.0, 2.0])
    >>> mean, spread, target = pooled_scale([Moments.from_rows(U, y)])
    >>> mean, spread.round(3), target
    (array([3.]), array([1.633]), array(1.))
    """
    parts = [_first_sums(m) for m in moments]
    sums, squares = (np.sum([part[side] for part in parts], axis=0) for side in (0, 1))
    total = sums[-1]
    mean, square = sums[:-1] / total, squares[:-1] / total
    variance = square - mean**2
    constant = variance <= 64 * np.finfo(np.float64).eps * square
    if origin is not None:
        # Rounding of the features themselves, before the origin was taken out, leaves a spread of this order.
        rounding = 10 * np.finfo(np.float64).eps * np.sqrt(sum(m.count for m in moments))
        constant |= variance <= (rounding * (origin.features + mean)) ** 2
    spread = np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))
    return mean, spread, np.asarray(sum(m.cross[-1] for m in moments) / total)


def _first_sums(moments: Moments) -> tuple[Floats, Floats]:
    """Sums of every feature, and of its squares."""
    if moments.rows is None:
        return moments.gram[-1], np.diagonal(moments.gram)
    # A Gram matrix of few rows would be larger than they are.
    design = moments.rows[0]
    return design[:, -1] @ design, np.sum(design**2, axis=0)


def moved(moments: Moments, shift: Floats, scale: Floats, target_shift: Floats) -> Moments:
    """Moments of ``[(U - shift) / scale, 1]`` and ``Y - target_shift``, from those of ``[U, 1]`` and ``Y``.

    Parameters
    ----------
    moments
        Over p features and the constant 1 as the last one (or the root of a row's weight, if rows were scaled by it).
    shift, scale : array (p,)
    target_shift : scalar or array (D,)

    Examples
    --------
    >>> U, y = np.array([[1.0, 1.0], [3.0, 1.0], [5.0, 1.0]]), np.array([0.0, 1.0, 2.0])
    >>> moved(Moments.from_rows(U, y), np.array([3.0]), np.array([2.0]), np.array(1.0)).gram
    array([[2., 0.],
           [0., 3.]])
    """
    level = np.reshape(np.asarray(target_shift, dtype=np.float64), (-1,))
    if moments.rows is not None:
        U, Y = moments.rows
        root = U[:, -1:]
        U = np.concatenate([(U[:, :-1] - root * shift) / scale, root], axis=1)
        Y = Y - root * level
        return Moments.from_rows(U, Y[:, 0] if moments.single_output else Y)
    gram, cross = moments.gram, moments._cross
    total, sums, targets = gram[-1, -1], gram[-1, :-1], cross[-1]
    new = np.empty_like(gram)
    # A few rows at a time: a wide Gram matrix leaves no room for others of its size.
    for begin in range(0, len(sums), ROWS_AT_ONCE):
        here = slice(begin, min(begin + ROWS_AT_ONCE, len(sums)))
        # (U - 1 shift')'(U - 1 shift'), written so that it stays symmetric to the last bit.
        both = np.outer(sums[here], shift) + np.outer(shift[here], sums)
        inner = gram[here, :-1] - both + total * np.outer(shift[here], shift)
        new[here, :-1] = inner / np.outer(scale[here], scale)
    new[-1, :-1] = new[:-1, -1] = (sums - total * shift) / scale
    new[-1, -1] = total
    inner = cross[:-1] - np.outer(shift, targets) - np.outer(sums - total * shift, level)
    outer = targets - total * level
    square = np.maximum(moments._square - 2 * level * targets + total * level**2, 0.0)
    return Moments._make(
        moments.count,
        moments.single_output,
        gram=new,
        cross=np.concatenate([inner / scale[:, None], outer[None, :]]),
        square=square,
        rows=None,
        summed=_rounding_left(moments, scale),
    )


def about(moments: Moments, old: Origin, new: Origin) -> Moments:
    """Moments of ``[U - old, 1]`` as those of ``[U - new, 1]``; the same object where it is the same point."""
    shift, level = new.features - old.features, new.targets - old.targets
    if not np.any(shift) and not np.any(level):
        return moments
    return moved(moments, shift, np.ones_like(shift), level)


def _rounding_left(moments: Moments, scale: Floats) -> float:
    """Rounding of what was there before the means were taken out remains, scaled like the features it is in."""
    diagonal = np.diagonal(moments.gram)
    known = max(moments._summed / float(np.max(diagonal)), 1.0) if moments._summed else 1.0
    return known * float(np.max(diagonal[:-1] / scale**2, initial=0.0))
