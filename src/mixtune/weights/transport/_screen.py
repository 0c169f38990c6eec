"""A look that often suffices: lower bounds on the distance from one sort of each column.

Along any direction the distance of the projections, which is a sort, bounds the distance from below. Directions that
are orthogonal to each other do more together: whatever the plan, the mean of |x - y| is at least the length of the
vector of the means of |x_k - y_k|, and each of these is at least the distance along axis k, so

    W1(X, Y) >= sqrt(sum_k W1(X_k, Y_k)^2)        in every orthonormal basis.

This is never below the distance of the means, and it also sees samples that differ in spread or shape alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mixtune.weights.transport._line import line_distances
from mixtune.weights.transport._samples import Rows

__all__ = ["axes_bound", "principal_axes"]

_CHUNK_ENTRIES = 2_000_000


def principal_axes(samples: Sequence[Rows]) -> NDArray[np.float64]:
    """Orthonormal axes along which all samples together vary most, as columns.

    Examples
    --------
    >>> import numpy as np
    >>> np.abs(principal_axes([np.array([[1.0, 1.0], [-1.0, -1.0]])])).round(3)
    array([[0.707, 0.707],
           [0.707, 0.707]])
    """
    count = sum(len(rows) for rows in samples)
    mean = sum(rows.sum(axis=0) for rows in samples) / count
    spread = sum((rows - mean).T @ (rows - mean) for rows in samples) / count
    axes: NDArray[np.float64] = np.linalg.eigh(spread)[1][:, ::-1]
    return axes


def axes_bound(X: Rows, Y: Rows) -> float:
    """Lower bound on the Wasserstein-1 distance from the distances along given and along principal axes.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> round(axes_bound(X, 3.0 * X), 9)
    2.0
    """
    best = _along(X, Y)
    if X.shape[1] > 1:
        axes = principal_axes([X, Y])
        best = max(best, _along(X @ axes, Y @ axes))
    # Rotation and sums lose a few digits; a bound must not.
    return max(0.0, best * (1.0 - 1e-12) - 1e-14 * float(max(np.abs(X).max(), np.abs(Y).max())))


def _along(X: Rows, Y: Rows) -> float:
    step = max(1, _CHUNK_ENTRIES // (len(X) + len(Y)))
    parts = [slice(start, start + step) for start in range(0, X.shape[1], step)]
    squares = [float(np.sum(line_distances(X[:, part], Y[:, part]) ** 2)) for part in parts]
    return float(np.sqrt(sum(squares)))
