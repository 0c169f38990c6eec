"""From what users pass to design matrices: every domain checked and named in errors, its features on one scale.

Columns are arranged like the focal ones. What is fitted afterwards lives in prepared units (see
:class:`mixtune.moments.Scaling`), which :meth:`~mixtune.moments.Scaling.to_units` brings back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import Floats, to_device, to_numpy, torch_device
from mixtune.data import check_finite, check_pair, column_difference
from mixtune.errors import DataError, ParameterError
from mixtune.estimators._sources import Source
from mixtune.features import Identity, device_slices, host_features, placed
from mixtune.moments import Moments, Origin, Rows, Scaling, pooled_scaling
from mixtune.streaming import StreamFeatures


@dataclass(frozen=True, eq=False)
class Prepared:
    """All a solver needs: domains by name, the focal one first.

    Attributes
    ----------
    names : tuple of str
        Index 0 is the focal domain.
    mapped : tuple of Rows
        Features (n_i, p) as the map makes them, targets (n_i,) or (n_i, D), and sample weights or None.
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
    mapped: tuple[Rows, ...]
    inputs: tuple[Rows, ...]
    scaling: Scaling
    feature_map: Any
    columns: tuple[str, ...] | None
    fit_intercept: bool
    device: str = "cpu"

    @cached_property
    def focal(self) -> Rows:
        """The focal rows in prepared units."""
        return self.scaling.apply(self.mapped[0])

    @cached_property
    def rows(self) -> tuple[Rows, ...]:
        """The rows of all domains in prepared units: a second copy of them, made when first asked for."""
        return (self.focal, *(self.scaling.apply(rows) for rows in self.mapped[1:]))

    @property
    def single_output(self) -> bool:
        """Whether targets are vectors (n,)."""
        return self.mapped[0].y.ndim == 1


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
    return Prepared(tuple(names), tuple(mapped), tuple(inputs), scaling, feature_map, columns, fit_intercept, device)


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
    return rows.part(rows.sample_weight > 0)


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


def device_moments(
    feature_map: Any, rows: Rows, origin: Origin, columns: tuple[str, ...] | None, device: str
) -> Moments:
    """Moments of ``[U - origin, 1]`` and ``Y - origin`` of rows of inputs, computed on a device of PyTorch in blocks.

    Every row is scaled by the root of its sample weight; the sums come back as NumPy arrays.
    """
    inputs = rows.X.shape[1]
    ready = Identity(inputs) if feature_map is None else placed(feature_map, device)
    make = StreamFeatures(ready, inputs, columns, "float64", origin, device)

    def blocks() -> Iterator[tuple[Any, Any]]:
        for part in device_slices(len(rows.X), make.n_features):
            U, y = make(rows.X[part]), make.targets(rows.y[part])
            if rows.sample_weight is not None:
                root = to_device(np.sqrt(rows.sample_weight[part]), device)
                U, y = U * root[:, None], y * (root if y.ndim == 1 else root[:, None])
            yield U, y

    return Moments.from_blocks(blocks()).on_device(None)
