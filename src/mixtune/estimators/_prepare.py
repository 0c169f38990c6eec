"""From rows to design matrices: features of every domain on one scale, the focal domain first.

Pooled over all rows (with their sample weights), every feature gets mean 0 and standard deviation 1 and every target
mean 0, so that one ridge means the same for every column. What is fitted afterwards lives in these prepared units;
:meth:`Scaling.to_units` brings it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.errors import DataError
from mixtune.estimators._rows import Floats, Rows, features_of

__all__ = ["Prepared", "Scaling", "prepare"]

#: Numbers joined at a time when means and spreads are taken: 32 MB.
BLOCK_ENTRIES = 4_000_000


@dataclass(frozen=True, eq=False)
class Scaling:
    """What was subtracted from features and targets, and what features were divided by."""

    shift: Floats
    scale: Floats
    target_shift: Floats

    def apply(self, rows: Rows) -> Rows:
        """Features and targets in prepared units."""
        return Rows(self.features(rows.X), rows.y - self.target_shift, rows.sample_weight)

    def features(self, features: Floats) -> Floats:
        """Features in prepared units."""
        return (features - self.shift) / self.scale

    def to_units(self, coef: Floats, intercept: Any) -> tuple[Floats, Any]:
        """Coefficients (..., p[, D]) and intercepts (...[, D]) of prepared features, for the features as they are."""
        single = self.target_shift.ndim == 0
        coef = coef / (self.scale if single else self.scale[:, None])
        moved = coef @ self.shift if single else np.einsum("...pd,p->...d", coef, self.shift)
        return coef, intercept + self.target_shift - moved


@dataclass(frozen=True, eq=False)
class Prepared:
    """All a solver needs: domains by name, the focal one first.

    Attributes
    ----------
    names : tuple of str
        Index 0 is the focal domain.
    rows : tuple of Rows
        Features (n_i, p) and targets (n_i,) or (n_i, D) in prepared units, and sample weights or None.
    inputs : tuple of Rows
        The same rows before the feature map, in the units given.
    scaling : Scaling
    feature_map, columns
        As given; the names of the input columns where known.
    fit_intercept : bool
    """

    names: tuple[str, ...]
    rows: tuple[Rows, ...]
    inputs: tuple[Rows, ...]
    scaling: Scaling
    feature_map: Any
    columns: tuple[str, ...] | None
    fit_intercept: bool

    @property
    def single_output(self) -> bool:
        """Whether targets are vectors (n,)."""
        return self.rows[0].y.ndim == 1


def prepare(
    names: Sequence[str],
    inputs: Sequence[Rows],
    *,
    feature_map: Any,
    columns: tuple[str, ...] | None,
    standardise: bool,
    fit_intercept: bool,
) -> Prepared:
    """Features of all domains, standardised over all of them.

    Examples
    --------
    >>> rows = [Rows(np.array([[0.0], [2.0]]), np.array([1.0, 3.0])), Rows(np.array([[4.0]]), np.array([2.0]))]
    >>> options = {"feature_map": None, "columns": None, "standardise": True, "fit_intercept": True}
    >>> prepare(["focal", "b"], rows, **options).rows[0].X.round(3)
    array([[-1.225],
           [ 0.   ]])
    """
    mapped = [Rows(features_of(feature_map, rows.X, columns), rows.y, rows.sample_weight) for rows in inputs]
    widths = sorted({rows.X.shape[1] for rows in mapped})
    if len(widths) > 1:
        raise DataError(f"feature_map made {widths} features for different domains; it must make the same for all")
    scaling = pooled_scaling(mapped, standardise=standardise, center=fit_intercept)
    ready = tuple(scaling.apply(rows) for rows in mapped)
    return Prepared(tuple(names), ready, tuple(inputs), scaling, feature_map, columns, fit_intercept)


def pooled_scaling(rows: Sequence[Rows], *, standardise: bool, center: bool) -> Scaling:
    """Weighted mean and standard deviation over all rows; columns that do not vary keep their scale.

    Without an intercept nothing is subtracted, so that the origin stays where it is.
    """
    mean, spread = _moments([part.X for part in rows], [part.weight for part in rows])
    y = np.concatenate([part.targets for part in rows])
    level = _moments([y], [np.concatenate([part.weight for part in rows])])[0].reshape(rows[0].y.shape[1:])
    if not center:
        mean_shift, level = np.zeros_like(mean), np.zeros_like(level)
    else:
        mean_shift = mean
    return Scaling(mean_shift, spread if standardise else np.ones_like(spread), level)


def _moments(parts: Sequence[Floats], weights: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column, in two passes and relative to its largest value (no overflow).

    Rows are joined a block at a time, so that thousands of domains are not copied.
    """
    blocks = list(_blocks([len(part) for part in parts], parts[0].shape[1]))
    total = sum(float(weight.sum()) for weight in weights)
    size = np.max([np.max(np.abs(part), axis=0) for part in parts], axis=0)
    size = np.where(size > 0, size, 1.0)
    joined = lambda block: (np.concatenate(parts[block]) / size, np.concatenate(weights[block]) / total)  # noqa: E731
    mean = sum(weight @ relative for relative, weight in map(joined, blocks))
    spread = np.sqrt(sum(weight @ (relative - mean) ** 2 for relative, weight in map(joined, blocks)))
    # Rounding of the mean alone leaves a spread of this order in a constant column.
    constant = spread <= 10 * np.finfo(np.float64).eps * np.sqrt(sum(map(len, parts)))
    return mean * size, np.where(constant, 1.0, spread * size)


def _blocks(sizes: Sequence[int], width: int) -> Iterator[slice]:
    """Runs of domains with about BLOCK_ENTRIES numbers each."""
    begin = held = 0
    for end, size in enumerate(sizes, start=1):
        held += size * width
        if held >= BLOCK_ENTRIES or end == len(sizes):
            yield slice(begin, end)
            begin, held = end, 0
