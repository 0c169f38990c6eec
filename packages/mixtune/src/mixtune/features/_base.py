"""What a feature map is, the checks that all of them share, the identity, and the map that joins others.

A feature map turns inputs into features, row by row, and never changes. It is applied to the rows of every domain
before their moments are formed; what is fitted later is a linear model of its features.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import array_namespace, device, is_cupy_array, is_torch_array

from mixtune._messages import counted
from mixtune._registry import check_array
from mixtune.arrays import Array, Floats, check_unmasked, to_numpy
from mixtune.checks import check_whole, set_fields
from mixtune.errors import DataError, ParameterError

DTYPES = ("float32", "float64")


@runtime_checkable
class FeatureMap(Protocol):
    """A frozen map from rows of inputs to rows of features.

    Any object with these two members is a feature map; it is ready to use when constructed.

    Examples
    --------
    >>> class Doubled:
    ...     n_features_out = 2
    ...
    ...     def transform(self, X):
    ...         return 2 * X
    >>> isinstance(Doubled(), FeatureMap)
    True
    """

    @property
    def n_features_out(self) -> int:
        """Number of features."""

    def transform(self, X: Array, /) -> Array:
        """Turn rows of inputs (n, d) into rows of features (n, n_features_out), in the array library of X."""


def as_rows(X: Any, n_inputs: int | None) -> Array:
    """Read ``X`` as rows by columns of real numbers, without copying what fits already.

    Parameters
    ----------
    X
        NumPy or CuPy array, PyTorch tensor, or anything NumPy reads as numbers.
    n_inputs
        The number of columns to expect, if it is known.

    Examples
    --------
    >>> as_rows([[1, 2]], 3)
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the map takes 3 columns, X has 2; pass the columns it was made for
    """
    check_unmasked(X, "X")
    rows = X.detach() if is_torch_array(X) else X if is_cupy_array(X) else np.asarray(X)
    if not array_namespace(rows).isdtype(rows.dtype, ("bool", "integral", "real floating")):
        raise DataError(f"X holds {rows.dtype}, not real numbers; encode it as numbers first")
    if rows.ndim != 2:
        raise DataError(f"X has shape {tuple(rows.shape)}; pass rows by columns, such as X.reshape(1, -1) for one row")
    if n_inputs is not None and rows.shape[1] != n_inputs:
        raise DataError(f"the map takes {n_inputs} columns, X has {rows.shape[1]}; pass the columns it was made for")
    return rows


def check_finite(values: Array, what: str, start: int = 0) -> None:
    """Refuse rows with NaN or infinite values, saying how many and which is the first.

    Parameters
    ----------
    values
        Rows by columns.
    what
        "X" or "the features", for the error.
    start
        Number of the first row when ``values`` is one batch of several.

    Examples
    --------
    >>> check_finite(np.array([[1.0], [np.nan]]), "X")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: NaN or infinite values in X: at least 1 row, the first is row 1 (from 0); fill or scale X
    """
    xp = array_namespace(values)
    # One bad value makes the sum NaN or infinite, and a sum is a single pass; only then are the rows searched.
    with np.errstate(over="ignore", invalid="ignore"):
        if bool(xp.isfinite(xp.sum(values))):
            return
    finite = xp.isfinite(values)
    if not bool(xp.all(finite)):
        bad = [row for row, fine in enumerate(xp.all(finite, axis=1).tolist()) if not fine]
        raise DataError(
            f"NaN or infinite values in {what}: at least {counted((len(bad), 'row'))}, "
            f"the first is row {start + bad[0]} (from 0); fill or scale X"
        )


def match_library(features: Array, like: Array) -> Array:
    """NumPy features in the library and on the device of ``like``.

    Examples
    --------
    >>> match_library(np.ones(2), np.zeros(1))
    array([1., 1.])
    """
    if not is_torch_array(like) and not is_cupy_array(like):
        return features
    return array_namespace(like).asarray(features, device=device(like))


def through_numpy(X: Any, n_inputs: int, compute: Callable[[Floats], Floats]) -> Array:
    """What NumPy computes of the finite rows of ``X``, in the library and on the device of ``X``."""
    rows = as_rows(X, n_inputs)
    values = np.asarray(to_numpy(rows), dtype=np.float64)
    check_finite(values, "X")
    return match_library(compute(values), rows)


@dataclass(frozen=True)
class Identity:
    """The inputs themselves as features, so that the model is linear in the inputs.

    Parameters
    ----------
    n_inputs
        Number of columns of ``X``.
    constant
        Whether to append a feature that is always 1, as the last column.

    Examples
    --------
    >>> Identity(2, constant=True).transform([[3, 4]])
    array([[3., 4., 1.]])
    """

    n_inputs: int
    constant: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_whole("n_inputs", self.n_inputs, least=1)

    @property
    def n_features_out(self) -> int:
        """Number of features."""
        return self.n_inputs + int(self.constant)

    def transform(self, X: Array, /) -> Array:
        """Copy the rows of ``X``, as float32 if they are, else as float64."""
        rows = as_rows(X, self.n_inputs)
        xp = array_namespace(rows)
        dtype = rows.dtype if rows.dtype == xp.float32 else xp.float64
        U = xp.ones((rows.shape[0], self.n_features_out), dtype=dtype, device=device(rows))
        U[:, : self.n_inputs] = xp.astype(rows, dtype)
        check_finite(U, "X")
        return U


@dataclass(frozen=True, eq=False)
class Concatenate:
    """Several maps side by side: the paper's way to share heads between networks with different hidden layers.

    Parameters
    ----------
    maps
        The maps, all of the same inputs.

    Examples
    --------
    >>> joint = Concatenate([Identity(2), Identity(2, constant=True)])
    >>> joint.n_features_out
    5
    >>> joint.transform([[3, 4]])
    array([[3., 4., 3., 4., 1.]])
    """

    maps: Sequence[FeatureMap]

    def __post_init__(self) -> None:
        object.__setattr__(self, "maps", tuple(self.maps))
        if not self.maps:
            raise ParameterError("maps is empty; pass at least one feature map")
        for part in self.maps:
            if not isinstance(part, FeatureMap):
                raise ParameterError(
                    f"{type(part).__name__} is not a feature map: it needs transform and n_features_out; "
                    "wrap fitted scikit-learn transformers in SklearnFeatures and modules in TorchFeatures"
                )
        if len(known := self._known_inputs()) > 1:
            raise ParameterError(f"the maps take {sorted(known)} columns; pass maps of the same inputs")

    def _known_inputs(self) -> set[int]:
        inputs = (getattr(part, "n_inputs", None) for part in self.maps)
        return {n_inputs for n_inputs in inputs if n_inputs is not None}

    @property
    def n_inputs(self) -> int | None:
        """Number of columns of ``X``, if one of the maps knows it."""
        return next(iter(self._known_inputs()), None)

    @property
    def n_features_out(self) -> int:
        """Number of features: the sum over the maps."""
        return sum(part.n_features_out for part in self.maps)

    def transform(self, X: Array, /) -> Array:
        """Compute the features of every map, in their order."""
        return join([part.transform(X) for part in self.maps])

    def transform_named(self, X: Array, columns: Sequence[str], /) -> Array:
        """Compute the features of rows whose columns have names; maps that know names pick theirs by name.

        Examples
        --------
        >>> import numpy as np
        >>> Concatenate([Identity(2)]).transform_named(np.array([[3.0, 4.0]]), ["u", "v"])
        array([[3., 4.]])
        """
        return join([transform_by_name(part, X, columns) for part in self.maps])


class _Around:
    """What maps around another one have in common."""

    inner: FeatureMap

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """Number of columns of ``X``."""

    @property
    def n_features_out(self) -> int:
        """Number of features."""
        return self.inner.n_features_out

    def _rows(self, X: Array) -> Array:
        rows = as_rows(X, self.n_inputs)
        check_finite(rows, "X")
        return rows


@dataclass(frozen=True, eq=False)
class Clipped(_Around):
    """A map of inputs that are first moved into a range, so that an extreme input has a bounded effect.

    Parameters
    ----------
    inner
        The map.
    low, high
        Smallest and largest value of each column.

    Examples
    --------
    >>> Clipped(Identity(1), np.array([0.0]), np.array([2.0])).transform([[3.0]])
    array([[2.]])
    """

    inner: FeatureMap
    low: Array
    high: Array

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            check_array(name, getattr(self, name), (np.size(self.low),), limits=False)
        if np.any(self.low > self.high):
            raise DataError("the range of the inputs ends before it begins; save the model again")

    @property
    def n_inputs(self) -> int:
        """Number of columns of ``X``."""
        return len(self.low)

    def transform(self, X: Array, /) -> Array:
        """Compute the features of the rows of ``X``, moved into the range."""
        rows = self._rows(X)
        limits = [match_library(limit, rows) for limit in (self.low, self.high)]
        return self.inner.transform(array_namespace(rows).clip(rows, *limits))


@dataclass(frozen=True, eq=False)
class Scaled(_Around):
    """A map of inputs in agreed units: a shift is subtracted from every column, and it is divided by a scale.

    Parameters
    ----------
    inner
        The map.
    shift, scale
        Of each column; scales are positive.

    Examples
    --------
    >>> Scaled(Identity(1), np.array([1.0]), np.array([2.0])).transform([[4.0]])
    array([[1.5]])
    """

    inner: FeatureMap
    shift: Array
    scale: Array

    def __post_init__(self) -> None:
        shift, scale = np.asarray(self.shift, dtype=np.float64), np.asarray(self.scale, dtype=np.float64)
        if shift.ndim != 1 or shift.shape != scale.shape or not np.all(np.isfinite(shift) & np.isfinite(scale)):
            raise ParameterError("shift and scale must be finite numbers, one of each for every column")
        if not np.all(scale > 0):
            raise ParameterError("scales must be positive; give columns that do not vary the scale 1")
        set_fields(self, shift=shift, scale=scale)

    @property
    def n_inputs(self) -> int:
        """Number of columns of ``X``."""
        return len(self.shift)

    def transform(self, X: Array, /) -> Array:
        """Compute the features of the rows of ``X`` in agreed units."""
        rows = self._rows(X)
        return self.inner.transform((rows - match_library(self.shift, rows)) / match_library(self.scale, rows))


@dataclass(frozen=True, eq=False)
class Projected(_Around):
    """A map of a few linear combinations of the inputs, such as their leading principal components.

    Parameters
    ----------
    inner
        The map of the combinations.
    shift
        What is subtracted from every column first (d,).
    basis
        The combinations (d, k).

    Examples
    --------
    >>> Projected(Identity(1), np.array([1.0, 0.0]), np.array([[1.0], [2.0]])).transform([[3.0, 4.0]])
    array([[10.]])
    """

    inner: FeatureMap
    shift: Array
    basis: Array

    def __post_init__(self) -> None:
        check_array("shift", self.shift, (np.size(self.shift),))
        check_array("basis", self.basis, (np.size(self.shift), np.shape(self.basis)[-1]))

    @property
    def n_inputs(self) -> int:
        """Number of columns of ``X``."""
        return len(self.shift)

    def project(self, X: Array, /) -> Array:
        """The combinations (n, k) of the rows of ``X``."""
        rows = self._rows(X)
        return (rows - match_library(self.shift, rows)) @ match_library(self.basis, rows)

    def transform(self, X: Array, /) -> Array:
        """Compute the features of the combinations."""
        return self.inner.transform(self.project(X))


def transform_by_name(feature_map: Any, X: Array, columns: Sequence[str] | None) -> Array:
    """Features of rows, whose columns may have names, for a map that may know names."""
    named = columns is not None and hasattr(feature_map, "transform_named")
    return feature_map.transform_named(X, columns) if named else feature_map.transform(X)


def join(parts: list[Array]) -> Array:
    """Features of several maps side by side."""
    return array_namespace(*parts).concat(parts, axis=1)
