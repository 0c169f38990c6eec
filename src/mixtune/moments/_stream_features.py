"""Features of one block of a stream: the map, the precision, and the point that rows are taken about.

Sums of squares forget what is small beside the mean. Where means are to be taken out afterwards, rows are moved to a
point near them first, and a constant is kept as the last feature to say how far the point was off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mixtune._array import Array, namespace, to_numpy
from mixtune._checks import check_choice
from mixtune._device import to_device
from mixtune.data._streams import Stream
from mixtune.errors import DataError, ParameterError
from mixtune.features import FeatureMap, Identity, RandomFeatures
from mixtune.features._devices import map_rows, placed
from mixtune.moments._budget import Budget, as_bytes
from mixtune.moments._standardise import Origin

__all__ = ["StreamFeatures"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class StreamFeatures:
    """A feature map, the names of its inputs, the precision of its features and the point they are taken about.

    With a ``device`` (None for NumPy, or what PyTorch calls it) features and targets are tensors there.

    Examples
    --------
    >>> origin = Origin(np.array([1.0]), np.array(0.0))
    >>> StreamFeatures(Identity(1), 1, None, "float64", origin)(np.array([[3.0], [4.0]]))
    array([[2., 1.],
           [3., 1.]])
    """

    feature_map: FeatureMap
    n_inputs: int
    columns: tuple[str, ...] | None
    dtype: str
    origin: Origin | None = None
    device: str | None = None

    @classmethod
    def of(
        cls,
        stream: Stream,
        feature_map: FeatureMap | None,
        dtype: str,
        origin: Origin | None = None,
        device: str | None = None,
    ) -> StreamFeatures:
        """Check that the map takes the columns of a stream."""
        check_choice("dtype", dtype, ("float64", "float32"))
        ready = Identity(stream.n_inputs) if feature_map is None else feature_map
        if isinstance(ready, type) or not isinstance(ready, FeatureMap):
            raise ParameterError(
                f"feature_map={feature_map!r} is not a feature map: it needs transform and n_features_out; "
                "wrap fitted scikit-learn transformers in SklearnFeatures and modules in TorchFeatures"
            )
        known = getattr(ready, "n_inputs", None)
        if known is not None and known != stream.n_inputs:
            raise DataError(
                f"the feature map takes {known} columns, the data have {stream.n_inputs}; "
                "pass columns, the ones the map was made for"
            )
        if isinstance(ready, RandomFeatures) and ready.dtype != dtype:
            ready = replace(ready, dtype=dtype)  # the same weights, rounded: no pass to convert the features
        if origin is not None:
            origin = Origin(*(np.asarray(part, dtype=np.float64) for part in origin))
            _check_origin(origin, int(ready.n_features_out), stream.n_outputs)
        return cls(placed(ready, device), stream.n_inputs, stream.columns, dtype, origin, device)

    @property
    def n_features(self) -> int:
        """How many features the sums are over: those of the map, and the constant where there is an origin."""
        return int(self.feature_map.n_features_out) + (self.origin is not None)

    def budget(self, n_outputs: int, memory_limit: int | str, *, lanes: int = 1) -> Budget:
        """The sizes of blocks under a memory limit."""
        return Budget(as_bytes(memory_limit), self.n_inputs, n_outputs, self.n_features, lanes)

    def __call__(self, X: Floats) -> Array:
        """The features of a block of inputs."""
        U = map_rows(self.feature_map, X, self.columns, self.device)
        if self.device is None:
            U = np.asarray(to_numpy(U), dtype=self.dtype)
        if tuple(U.shape) != (len(X), self.feature_map.n_features_out):
            raise DataError(
                f"feature_map made features of shape {tuple(U.shape)} from {len(X)} rows; "
                f"it says that it makes {self.feature_map.n_features_out} of each row"
            )
        return self._sent_about(U, self.origin) if self.device is not None else self._about(U, self.origin)

    def targets(self, y: Floats) -> Array:
        """The targets of a block, in float64."""
        values = np.asarray(y, dtype=np.float64)
        return to_device(values if self.origin is None else values - self.origin.targets, self.device)

    def _about(self, U: Floats, origin: Origin | None) -> Floats:
        if origin is None:
            return U
        moved = np.empty((len(U), self.n_features), dtype=self.dtype)
        point = origin.features.astype(self.dtype)
        # In float32 only where that is the same point; the detour through float64 takes longer than the products.
        point = point if np.array_equal(point, origin.features) else origin.features
        np.subtract(U, point, out=moved[:, :-1], casting="same_kind")
        moved[:, -1] = 1.0
        return moved

    def _sent_about(self, U: Array, origin: Origin | None) -> Array:
        xp = namespace(U)
        dtype = getattr(xp, self.dtype)
        if origin is None:
            return xp.astype(U, dtype, copy=False)
        moved = xp.ones((U.shape[0], self.n_features), dtype=dtype, device=U.device)
        moved[:, :-1] = U - to_device(origin.features, self.device)
        return moved


def _check_origin(origin: Origin, n_features: int, n_outputs: int) -> None:
    if origin.features.shape != (n_features,) or origin.targets.shape not in ((), (n_outputs,)):
        own = origin.targets.size
        raise DataError(
            f"the data have {n_features} features and {n_outputs} outputs, the rows that they are to be like have "
            f"{origin.features.size} and {own}; pass the same columns and outputs"
        )
