"""From rows to design matrices: features of every domain on one scale, the focal domain first.

Pooled over all rows (with their sample weights), every feature gets mean 0 and standard deviation 1 and every target
mean 0, so that one ridge means the same for every column. What is fitted afterwards lives in these prepared units;
:meth:`Scaling.to_units` brings it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mixtune.errors import DataError
from mixtune.estimators._rows import Floats, Rows, features_of

__all__ = ["Prepared", "Scaling", "prepare"]

#: Numbers worked on at a time: 1 MB, which stays in the cache of a core.
RUN_ENTRIES = 2**17
#: Columns beyond this size, or below its inverse, are measured relative to their size: squares must not overflow.
LARGEST, TINY = 1e100, 1e-300


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
        ready = np.empty(features.shape)
        for rows in row_runs(*features.shape):
            np.subtract(features[rows], self.shift, out=ready[rows])
            ready[rows] /= self.scale
        return ready

    def to_units(self, coef: Floats, intercept: Any) -> tuple[Floats, Any]:
        """Coefficients (..., p[, D]) and intercepts (...[, D]) of prepared features, for the features as they are."""
        single = self.target_shift.ndim == 0
        coef = coef / (self.scale if single else self.scale[:, None])
        moved = coef @ self.shift if single else np.einsum("...pd,p->...d", coef, self.shift)
        return coef, intercept + self.target_shift - moved


class ScaledRows(Rows):
    """Rows in prepared units, made when asked for: a run at a time, which takes no memory, or all of them."""

    _rows: Rows
    _scaling: Scaling

    def __init__(self, rows: Rows, scaling: Scaling) -> None:
        for name, value in (("_rows", rows), ("_scaling", scaling), ("y", rows.y - scaling.target_shift)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "sample_weight", rows.sample_weight)

    @cached_property
    def X(self) -> Floats:
        """All features in prepared units."""
        return self._scaling.features(self._rows.X)

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows.shape

    def slice(self, begin: int, end: int) -> Rows:
        if "X" in vars(self):
            return super().slice(begin, end)
        return self._scaling.apply(self._rows.slice(begin, end))


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
    device : str
        Where features are computed.
    """

    names: tuple[str, ...]
    rows: tuple[Rows, ...]
    inputs: tuple[Rows, ...]
    scaling: Scaling
    feature_map: Any
    columns: tuple[str, ...] | None
    fit_intercept: bool
    device: str = "cpu"

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
    device: str = "cpu",
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
    mapped = [Rows(features_of(feature_map, rows.X, columns, device), rows.y, rows.sample_weight) for rows in inputs]
    widths = sorted({rows.X.shape[1] for rows in mapped})
    if len(widths) > 1:
        raise DataError(f"feature_map made {widths} features for different domains; it must make the same for all")
    scaling = pooled_scaling(mapped, standardise=standardise, center=fit_intercept)
    ready = tuple(ScaledRows(rows, scaling) for rows in mapped)
    return Prepared(tuple(names), ready, tuple(inputs), scaling, feature_map, columns, fit_intercept, device)


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
    """Mean and standard deviation of each column, in two passes.

    Columns of extreme size are measured relative to that, so that no square overflows. Rows are taken a run at a time
    that stays in the cache, so that no domain is copied as a whole.
    """
    total = sum(float(weight.sum()) for weight in weights)
    size = np.max([np.maximum(run.max(axis=0), -run.min(axis=0)) for run, _ in _runs(parts, weights)], axis=0)
    size = np.where((size > LARGEST) | ((size < 1 / LARGEST) & (size > 0)), size, 1.0)
    unit = bool(np.all(size == 1.0))
    mean = sum(weight @ (run if unit else run / size) for run, weight in _runs(parts, weights)) / total
    square = np.zeros_like(mean)
    for run, weight in _runs(parts, weights):
        off = (run if unit else run / size) - mean
        off *= off
        square += weight @ off
    spread = np.sqrt(square / total)
    # Rounding of the mean alone leaves a spread of this order in a constant column.
    constant = spread <= 10 * np.finfo(np.float64).eps * np.sqrt(sum(map(len, parts))) * np.maximum(np.abs(mean), TINY)
    return mean * size, np.where(constant, 1.0, spread * size)


def _runs(parts: Sequence[Floats], weights: Sequence[Floats]) -> Iterator[tuple[Floats, Floats]]:
    """Rows with their weights: small domains joined, large ones cut."""
    for block in _blocks([len(part) for part in parts], parts[0].shape[1]):
        single = block.stop - block.start == 1
        rows = parts[block.start] if single else np.concatenate(parts[block])
        weight = weights[block.start] if single else np.concatenate(weights[block])
        for run in row_runs(*rows.shape):
            yield rows[run], weight[run]


def row_runs(count: int, width: int) -> Iterator[slice]:
    """Runs of rows with about RUN_ENTRIES numbers each."""
    step = max(1, RUN_ENTRIES // max(1, width))
    for begin in range(0, count, step):
        yield slice(begin, min(begin + step, count))


def _blocks(sizes: Sequence[int], width: int) -> Iterator[slice]:
    """Runs of domains with about RUN_ENTRIES numbers each."""
    begin = held = 0
    for end, size in enumerate(sizes, start=1):
        held += size * width
        if held >= RUN_ENTRIES or end == len(sizes):
            yield slice(begin, end)
            begin, held = end, 0
