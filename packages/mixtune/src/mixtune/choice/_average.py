"""The average over candidates: one rule, from validation tasks and left-out focal rows.

In a validation task another domain takes the focal role. All that the average needs of a task are the mean products of
the candidates' residuals on its test rows, and the errors of its left-out rows. Shares minimise the squared error of
the averaged prediction over tasks and left-out focal rows.

Tasks assume that the focal domain is like the others, and the left-out rows of the tasks tell how far the error of the
average, relative to own rows alone, strays from domain to domain by chance. Where that of the focal domain is higher
than the tasks explain, tasks say nothing about it, and its left-out rows decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from mixtune.arrays import Booleans, Floats

#: Focal rows whose left-out errors count as much as all validation tasks.
FOCAL_ROWS = 200.0
#: Added to the errors of single candidates, relative to the smallest: among equals, shares are equal.
PULL = 0.02
#: Residuals are clipped at so many robust standard deviations of their candidate: a few outliers must not decide.
LARGEST_RESIDUAL = 5.0
#: The median absolute value of a standard normal variable.
NORMAL_MEDIAN = 0.6745
#: Errors below this part of the targets' variance count as equal.
NEGLIGIBLE = 1e-12
#: Between domains, the logarithm of the error of the average over that of own rows strays by at least so much, and
#: tasks explain so many times their spread. With half of both, few rows move shares that tasks know better.
SMALLEST_STRAY, EXPLAINED = 0.3, 2.0


@dataclass(frozen=True, eq=False)
class TaskErrors:
    """What one validation task says: mean products (C, C) on its test rows, left-out mean squares (C,)."""

    products: Floats
    left_out: Floats


@dataclass(frozen=True, eq=False)
class Judgement:
    """All that shares depend on.

    Attributes
    ----------
    tasks : sequence of TaskErrors
    products : array (C, C), optional
        Mean products of the residuals of left-out focal rows; a single row cannot be left out.
    rows : float
        The number of focal rows.
    own : array (C,) of bool
        Which candidates learn from own rows alone.
    """

    tasks: Sequence[TaskErrors]
    products: Floats | None
    rows: float
    own: Booleans


def mean_products(residuals: Floats, weight: Floats) -> Floats:
    """Weighted mean products (C, C) of residuals (C, n), clipped for each candidate."""
    typical = np.median(np.abs(residuals), axis=1, keepdims=True) / NORMAL_MEDIAN
    clipped = np.clip(residuals, -LARGEST_RESIDUAL * typical, LARGEST_RESIDUAL * typical)
    # Where more than half of the residuals are zero, the others count as they are.
    clipped = np.where(typical > 0, clipped, residuals)
    return (clipped * (weight / weight.sum())) @ clipped.T + NEGLIGIBLE * np.eye(len(residuals))


def average(judgement: Judgement) -> Floats:
    """Shares (C,) of the candidates.

    Examples
    --------
    >>> products = np.diag([1.0, 1.0, 9.0])
    >>> task = TaskErrors(products, np.diagonal(products))
    >>> average(Judgement([task], products, rows=50.0, own=np.array([False, False, True]))).round(2)
    array([0.47, 0.47, 0.05])
    """
    tasks = np.mean([_relative(task.products) for task in judgement.tasks], axis=0) if judgement.tasks else None
    if judgement.products is None:
        return _equal(judgement.own) if tasks is None else least_error(tasks, PULL)
    focal = _relative(judgement.products)
    if tasks is None:
        return least_error(focal, 2 * PULL)
    known = judgement.rows / FOCAL_ROWS
    shares = least_error(tasks + known * focal, PULL)
    trust = _trust(judgement.tasks, judgement.products, judgement.own, shares)
    if trust == 1.0:
        return shares
    return least_error(trust * tasks + (known + 1.0 - trust) * focal, PULL)


def _equal(own: Booleans) -> Floats:
    """Equal shares of the candidates that learn from sources, or of all where none does."""
    counted = np.ones(len(own)) if own.all() else (~own).astype(np.float64)
    return counted / counted.sum()


def _trust(tasks: Sequence[TaskErrors], products: Floats, own: Booleans, shares: Floats) -> float:
    """From 1, where the focal profile is one that tasks showed, to 0."""
    profiles = [_profile(task.left_out, shares, own) for task in tasks]
    focal = _profile(np.diagonal(products), shares, own)
    stray = max(float(np.std(profiles)) * (1.0 + 1.0 / len(profiles)) ** 0.5, SMALLEST_STRAY)
    distance = (focal - float(np.mean(profiles))) / stray
    return 1.0 if distance <= EXPLAINED else float(np.exp(-0.5 * (distance**2 - EXPLAINED**2)))


def _profile(errors: Floats, shares: Floats, own: Booleans) -> float:
    """The logarithm of the left-out error of the average over that of the best candidate of own rows alone."""
    return float(np.log((shares @ errors) / errors[own].min()))


def _relative(products: Floats) -> Floats:
    """Products relative to the smallest error."""
    return products / np.diagonal(products).min()


def least_error(products: Floats, pull: float) -> Floats:
    """Shares on the simplex of the least ``s'Cs + pull min(C_ii) s's``, as a problem of non-negative least squares."""
    count = len(products)
    least = float(np.diagonal(products).min())
    root = np.linalg.cholesky(products + pull * least * np.eye(count))
    # Any common factor of the shares is free, so that they are fitted to add up to 1 and are then divided by their sum.
    design = np.vstack([root.T / least**0.5, np.ones(count)])
    shares = nnls(design, np.append(np.zeros(count), 1.0))[0]
    return np.asarray(shares / shares.sum())
