"""What a feature map is, and the checks that all of them share.

A feature map turns inputs into features, row by row, and never changes: on the data's way it stands between
the domains and their moments, and what is fitted later is a linear head on its features.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from array_api_compat import array_namespace, device, is_cupy_array, is_torch_array

from mixtune.errors import DataError, ParameterError

__all__ = ["DTYPES", "Array", "FeatureMap", "as_rows", "back_to", "check_finite", "count"]

DTYPES = ("float32", "float64")

Array: TypeAlias = Any
"""A NumPy or CuPy array or a PyTorch tensor; the type checker cannot know which, the code never has to."""


@runtime_checkable
class FeatureMap(Protocol):
    """A frozen map from rows of inputs to rows of features.

    Anything with these two members will do; it is ready to use when constructed.

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


def count(value: int, option: str) -> int:
    """Check that an option is a positive whole number.

    Examples
    --------
    >>> count(3, "width")
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ParameterError(f"{option}={value!r} must be a whole number of at least 1")
    return int(value)


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
    mixtune.errors.DataError: the map takes 3 columns, X has 2; pass the columns the map was made for
    """
    rows = X.detach() if is_torch_array(X) else X if is_cupy_array(X) else np.asarray(X)
    if not array_namespace(rows).isdtype(rows.dtype, ("bool", "integral", "real floating")):
        raise DataError(f"X holds {rows.dtype}, not real numbers; encode it as numbers first")
    if rows.ndim != 2:
        raise DataError(f"X has shape {tuple(rows.shape)}; pass rows by columns, such as X.reshape(1, -1) for one row")
    if n_inputs is not None and rows.shape[1] != n_inputs:
        raise DataError(
            f"the map takes {n_inputs} columns, X has {rows.shape[1]}; pass the columns the map was made for"
        )
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
    # One bad value spoils the sum, which is a single pass; only a spoilt sum is looked into.
    if bool(xp.isfinite(xp.sum(values))):
        return
    finite = xp.isfinite(values)
    if not bool(xp.all(finite)):
        bad = [row for row, fine in enumerate(xp.all(finite, axis=1).tolist()) if not fine]
        raise DataError(
            f"NaN or infinite values in {what}: at least {len(bad)} row{'s' if len(bad) > 1 else ''}, "
            f"the first is row {start + bad[0]} (from 0); fill or scale X"
        )


def back_to(like: Array, features: Array) -> Array:
    """Hand NumPy features back in the library and on the device of ``like``.

    Examples
    --------
    >>> back_to(np.zeros(1), np.ones(2))
    array([1., 1.])
    """
    if not is_torch_array(like) and not is_cupy_array(like):
        return features
    return array_namespace(like).asarray(features, device=device(like))
