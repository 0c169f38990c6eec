"""Rows as numbers: every domain read, named in errors, its columns in the order of the focal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import to_numpy, torch_device
from mixtune.data import check_finite, check_pair, column_difference
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._sources import Source
from mixtune.features import host_features

__all__ = ["Rows", "check_map", "check_weight", "features_of", "read_source", "trim"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs or features (n, p), targets (n,) or (n, D), and sample weights (n,) or None for ones."""

    X: Floats
    y: Floats
    sample_weight: Floats | None = None

    @property
    def weight(self) -> Floats:
        """Sample weights, ones where none were given."""
        return np.ones(len(self.y)) if self.sample_weight is None else self.sample_weight

    @property
    def targets(self) -> Floats:
        """Targets as (n, D)."""
        return self.y.reshape(len(self.y), -1)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.X.shape

    def slice(self, begin: int, end: int) -> Rows:
        """Some of the rows, not copied."""
        weight = None if self.sample_weight is None else self.sample_weight[begin:end]
        return Rows(self.X[begin:end], self.y[begin:end], weight)

    def joined(self, other: Rows) -> Rows:
        """These rows and then the others."""
        given = self.sample_weight is not None or other.sample_weight is not None
        weight = np.concatenate([self.weight, other.weight]) if given else None
        return Rows(np.concatenate([self.X, other.X]), np.concatenate([self.y, other.y]), weight)


def check_weight(sample_weight: Any, count: int, where: str) -> Floats | None:
    """Sample weights as float64 (n,): finite, >= 0, not all zero; a single number counts for every row."""
    if sample_weight is None:
        return None
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"sample_weight{where} must be one number per row: {error}") from error
    weight = np.full(count, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (count,):
        raise DataError(f"sample_weight{where} has shape {weight.shape} for {count} rows; pass one number per row")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise DataError(f"sample_weight{where} must be finite and >= 0")
    if not np.any(weight > 0):
        raise DataError(f"sample_weight{where} is zero for every row; give at least one row a positive weight")
    return weight


def trim(rows: Rows) -> Rows:
    """Without the rows of weight zero: they are as if absent."""
    if rows.sample_weight is None or np.all(rows.sample_weight > 0):
        return rows
    kept = rows.sample_weight > 0
    return Rows(rows.X[kept], rows.y[kept], rows.sample_weight[kept])


def read_source(name: str, source: Source, focal: Rows, columns: Sequence[str] | None) -> Rows:
    """A source as numbers, its columns arranged like the focal ones where both have names.

    Examples
    --------
    >>> focal = Rows(np.array([[1.0, 2.0]]), np.array([1.0]))
    >>> source = Source(np.array([[3.0, 4.0]]), [1.0], columns=("b", "a"))
    >>> read_source("north", source, focal, ["a", "b"]).X
    array([[4., 3.]])
    """
    # What Domain checks, without its copy: rows are only read here, and thousands of domains must not be held twice.
    of = f' of domain "{name}"'
    inputs, targets, known = check_pair(source.X, source.y, of, columns=source.columns, copy=False)
    check_finite(inputs, f"X{of}", known)
    check_finite(targets.reshape(targets.shape[0], -1), f"y{of}")
    X, y = np.asarray(to_numpy(inputs), np.float64), np.asarray(to_numpy(targets), np.float64)
    if columns is not None and known is not None and tuple(known) != tuple(columns):
        if set(known) != set(columns):
            difference = column_difference(known, columns)
            raise DataError(f'domain "{name}" and the focal rows differ in columns: {difference}')
        places = {column: place for place, column in enumerate(known)}
        X = X[:, [places[column] for column in columns]]
    if X.shape[1] != focal.X.shape[1]:
        raise DataError(
            f'domain "{name}" has {X.shape[1]} columns, the focal rows have {focal.X.shape[1]}; pass the same columns'
        )
    outputs = Rows(X, y).targets.shape[1]
    if outputs != focal.targets.shape[1]:
        raise DataError(
            f'domain "{name}" has {outputs} outputs, the focal rows have {focal.targets.shape[1]}; '
            "pass the same outputs"
        )
    weight = check_weight(source.sample_weight, len(X), f' of domain "{name}"')
    return trim(Rows(X, y.reshape(len(X), *focal.y.shape[1:]), weight))


def check_map(feature_map: Any) -> None:
    """Refuse what is not a frozen feature map."""
    if feature_map is None:
        return
    if hasattr(feature_map, "get_params"):
        raise ParameterError(
            f"feature_map={feature_map!r} is a scikit-learn estimator, which cloning (in cross-validation) would make "
            "unfitted; pass mixtune.features.SklearnFeatures(transformer.fit(X))"
        )
    if isinstance(feature_map, type) or not callable(getattr(feature_map, "transform", None)):
        raise ParameterError(f"feature_map={feature_map!r} needs transform(X), which gives a row of features per row")


def features_of(feature_map: Any, X: Floats, columns: Sequence[str] | None, device: str = "cpu") -> Floats:
    """``phi(X)`` as a float64 matrix of NumPy, computed on the device; the inputs themselves where there is no map."""
    if feature_map is None:
        return X
    features = np.asarray(host_features(feature_map, X, columns, torch_device(device)), dtype=np.float64)
    if features.ndim != 2 or len(features) != len(X):
        raise DataError(
            f"feature_map made features of shape {features.shape} from {len(X)} rows; it must keep the rows"
        )
    if not np.all(np.isfinite(features)):
        raise DataError("feature_map made NaN or infinite features; scale the inputs or change the map")
    return features
