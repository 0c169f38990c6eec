"""What is measured on the rows before any model: which ones to hold out, and where and how widely they spread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array
from numpy.typing import NDArray

from mixtune.data._domain import Domain
from mixtune.errors import DataError, ParameterError

__all__ = ["pooled_scaling", "split_rows"]


def split_rows(domain: Domain, test_size: float | int, seed: int) -> tuple[Domain, Domain]:
    """Cut a domain at random into the rows to keep and the rows to test on, each in their order.

    Examples
    --------
    >>> kept, test = split_rows(Domain("a", [[0.0], [1.0], [2.0], [3.0]], [0, 1, 2, 3]), 0.25, seed=0)
    >>> kept.n_rows, test.n_rows
    (3, 1)
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError(f"seed={seed!r} must be a whole number that is not negative")
    n_test = _test_rows(domain, test_size)
    order = np.random.default_rng(int(seed)).permutation(domain.n_rows)
    return _take(domain, np.sort(order[n_test:])), _take(domain, np.sort(order[:n_test]))


def _test_rows(domain: Domain, test_size: float | int) -> int:
    """Turn a share or a number of rows into a number that leaves rows on both sides."""
    if domain.n_rows < 2:
        raise DataError(f'domain "{domain.name}" has one row; at least two are needed to hold one out')
    whole = isinstance(test_size, int | np.integer) and not isinstance(test_size, bool)
    if whole and 1 <= test_size < domain.n_rows:
        return int(test_size)
    if isinstance(test_size, float | np.floating) and 0 < test_size < 1:
        return min(max(round(float(test_size) * domain.n_rows), 1), domain.n_rows - 1)
    raise ParameterError(
        f"test_size={test_size!r} must be a share between 0 and 1, such as 0.25, or a number of rows from 1 to "
        f'{domain.n_rows - 1}, one less than domain "{domain.name}" has'
    )


def _take(domain: Domain, rows: NDArray[np.int64]) -> Domain:
    xp = array_namespace(domain.X, domain.y)
    index = xp.asarray(rows, device=device(domain.X))
    X, y = xp.take(domain.X, index, axis=0), xp.take(domain.y, index, axis=0)
    return Domain._from_checked(domain.name, X, y, domain.columns)


def pooled_scaling(members: Sequence[Domain]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column over the rows of all domains; 1 in place of no spread.

    Examples
    --------
    >>> pooled_scaling([Domain("a", [[0.0, 7.0]], [0]), Domain("b", [[4.0, 7.0]], [0])])
    (array([2., 7.]), array([2., 1.]))
    """
    parts = [np.asarray(domain.X.cpu() if is_torch_array(domain.X) else domain.X) for domain in members]
    n_rows = sum(len(part) for part in parts)
    # Two passes: the sum of squares less the squared mean would lose a small spread about a large mean.
    mean = sum(part.sum(axis=0, dtype=np.float64) for part in parts) / n_rows
    spread = np.sqrt(sum(np.square(part - mean).sum(axis=0) for part in parts) / n_rows)
    lowest = np.min([part.min(axis=0) for part in parts], axis=0)
    highest = np.max([part.max(axis=0) for part in parts], axis=0)
    # The mean of equal numbers may be off by rounding, so that equality decides what is constant.
    return np.asarray(mean), np.where((lowest == highest) | (spread == 0), 1.0, spread)
