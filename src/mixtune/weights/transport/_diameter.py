"""The diameter of all samples together: the yardstick that distances between them never exceed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mixtune._checks import check_whole
from mixtune.errors import DataError
from mixtune.weights.transport._result import Diameter
from mixtune.weights.transport._samples import Rows, as_same_columns, common_frame, restore

__all__ = ["pooled_diameter"]

_CHUNK_ENTRIES = 2_000_000


def pooled_diameter(samples: Sequence[Any], *, max_rows: int = 20_000) -> Diameter:
    """Euclidean diameter of the union of several samples.

    Parameters
    ----------
    samples
        A list of samples, each of shape (rows, columns) or (rows,), with the same columns.
    max_rows
        Up to this many rows in all, the diameter is exact; its time grows with the square of the rows. Beyond, the
        answer is an upper bound that takes one look at each row.

    Returns
    -------
    Diameter
        `value`, and whether it is `exact`. The bound for larger pools is the smaller of the diagonal of the bounding
        box and twice the radius around the mean: at most twice the diameter.

    Raises
    ------
    DataError
        If a sample is empty, not finite, not a table, or has other columns than the first.

    Examples
    --------
    >>> pooled_diameter([[[0.0, 0.0], [1.0, 0.0]], [[3.0, 4.0]]])
    Diameter(value=5.0, exact=True)
    >>> pooled_diameter([[0.0, 1.0], [7.0]], max_rows=2)
    Diameter(value=7.0, exact=False)
    """
    if hasattr(samples, "shape") or not len(samples):
        raise DataError("samples must be a list with one array for each sample; put a single array in a list")
    check_whole("max_rows", max_rows, least=1)
    checked = as_same_columns(samples, [f"samples[{index}]" for index in range(len(samples))])
    scaled, exponent = common_frame(checked)
    count = sum(len(rows) for rows in scaled)
    if count <= max_rows:
        return Diameter(restore(_diameter(np.concatenate(scaled)), exponent), exact=True)
    mean = sum(rows.sum(axis=0) for rows in scaled) / count
    low = np.min([rows.min(axis=0) for rows in scaled], axis=0)
    high = np.max([rows.max(axis=0) for rows in scaled], axis=0)
    radius = max(float(np.linalg.norm(rows - mean, axis=1).max()) for rows in scaled)
    return Diameter(restore(min(float(np.linalg.norm(high - low)), 2.0 * radius), exponent), exact=False)


def _diameter(X: Rows) -> float:
    """Largest distance between two rows.

    Rows are walked from the outside in. By the triangle inequality through the mean, two rows at radii r and s are at
    most r + s apart, so pairs that cannot beat the best pair so far are never looked at.
    """
    radius = np.linalg.norm(X - X.mean(axis=0), axis=1)
    order = np.argsort(-radius)
    X, radius = X[order], radius[order]
    best = _far_pair(X)
    square = np.einsum("ij,ij->i", X, X)
    step = max(1, _CHUNK_ENTRIES // len(X))
    for start in range(0, len(X), step):
        if radius[start] + radius[0] <= best:
            break
        reach = max(start + 1, int(np.searchsorted(-radius, radius[start] - best, side="right")))
        part = X[start : start + step]
        # A row's own norm does not change which row is farthest from it, so it is left out of the squared distance.
        farthest = (square[:reach] - 2.0 * (part @ X[:reach].T)).argmax(axis=1)
        best = max(best, float(np.linalg.norm(part - X[farthest], axis=1).max()))
    return best


def _far_pair(X: Rows) -> float:
    """A distance that is often the largest: walk to the farthest row, a few times."""
    best, here = 0.0, X[0]
    for _ in range(3):
        apart = np.linalg.norm(X - here, axis=1)
        here = X[int(apart.argmax())]
        best = max(best, float(apart.max()))
    return best
