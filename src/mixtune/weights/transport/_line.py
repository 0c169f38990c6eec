"""Transport on the line: pair the quantiles.

In one dimension the best plan keeps the order, so the distance is the area between the two quantile functions. Both
are step functions, and with n and m equally heavy rows all their steps lie at whole multiples of 1 / (n m). Counting
in those units makes the merge of the two staircases exact integer arithmetic.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mixtune.weights.transport._samples import Rows

__all__ = ["line_distances", "staircase"]

Index = NDArray[np.int64]


def staircase(n: int, m: int) -> tuple[Index, Index, NDArray[np.float64]]:
    """Pair n with m equally heavy rows in their given order.

    Returns
    -------
    rows, columns, mass
        The pairs that share mass, and how much; the masses sum to one.

    Examples
    --------
    >>> rows, columns, mass = staircase(2, 3)
    >>> rows.tolist(), columns.tolist(), (6 * mass).tolist()
    ([0, 0, 1, 1], [0, 1, 1, 2], [2.0, 1.0, 1.0, 2.0])
    """
    starts = np.union1d(np.arange(n, dtype=np.int64) * m, np.arange(m, dtype=np.int64) * n)
    lengths = np.diff(starts, append=np.int64(n) * m)
    return starts // m, starts // n, lengths / (n * m)


def line_distances(X: Rows, Y: Rows) -> NDArray[np.float64]:
    """Wasserstein-1 distance between X and Y in every column, each column on its own.

    Examples
    --------
    >>> import numpy as np
    >>> line_distances(np.array([[0.0], [1.0]]), np.array([[5.0], [6.0]])).tolist()
    [5.0]
    """
    rows, columns, mass = staircase(len(X), len(Y))
    apart: NDArray[np.float64] = np.abs(np.sort(X, axis=0)[rows] - np.sort(Y, axis=0)[columns])
    return mass @ apart
