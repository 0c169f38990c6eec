"""The plainest feature map, and the one that joins others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from array_api_compat import array_namespace, device

from mixtune.errors import ParameterError
from mixtune.features._protocol import Array, FeatureMap, as_rows, check_finite, count

__all__ = ["Concatenate", "Identity"]


@dataclass(frozen=True)
class Identity:
    """The inputs themselves as features, so that the head is a linear model of the inputs.

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
        count(self.n_inputs, "n_inputs")

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
        return self._join([part.transform(X) for part in self.maps])

    def transform_named(self, X: Array, columns: Sequence[str], /) -> Array:
        """Compute the features of rows whose columns have names; maps that know names pick theirs by name.

        Examples
        --------
        >>> import numpy as np
        >>> Concatenate([Identity(2)]).transform_named(np.array([[3.0, 4.0]]), ["u", "v"])
        array([[3., 4.]])
        """
        return self._join([self._named(part, X, columns) for part in self.maps])

    @staticmethod
    def _named(part: Any, X: Array, columns: Sequence[str]) -> Array:
        return part.transform_named(X, columns) if hasattr(part, "transform_named") else part.transform(X)

    @staticmethod
    def _join(parts: list[Array]) -> Array:
        return array_namespace(*parts).concat(parts, axis=1)
