"""Where paths are at one time: everything their future depends on, ready to be continued any number of times."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from mixtune._array import Array, is_numpy, match
from mixtune._checks import check_whole
from mixtune.errors import ParameterError

__all__ = ["State"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class State:
    """Prices of some paths at one time, and whatever else their future depends on.

    Attributes
    ----------
    prices : ndarray of shape (paths, assets)
    """

    prices: Floats

    #: Fields that all paths have in common.
    shared: ClassVar[frozenset[str]] = frozenset()

    @property
    def n_paths(self) -> int:
        """Number of paths."""
        return int(self.prices.shape[0])

    @property
    def hidden(self) -> Floats:
        """What a model knows besides prices, such as variances, of shape (paths, any number)."""
        return self.prices[:, :0]

    def take(self, indices: ArrayLike) -> Self:
        """Keep the paths with these indices (or where a mask is true), in this order.

        Examples
        --------
        >>> State(np.array([[1.0], [2.0], [3.0]])).take([2, 0]).prices.ravel().tolist()
        [3.0, 1.0]
        """
        chosen = np.asarray(indices)
        if chosen.dtype == bool:
            if chosen.shape != (self.n_paths,):
                raise ParameterError(f"a mask needs one entry per path, {self.n_paths}; got shape {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise ParameterError("take needs the indices of paths, as whole numbers in one dimension, or a mask")
        if chosen.size and not -self.n_paths <= chosen.min() <= chosen.max() < self.n_paths:
            raise ParameterError(f"take got indices from {chosen.min()} to {chosen.max()} for {self.n_paths} paths")
        chosen = chosen.astype(np.intp)
        return self._changed(lambda array: np.take(array.T, chosen, axis=-1).T)

    def repeat(self, times: int) -> Self:
        """Repeat every path ``times`` times, copies side by side.

        Examples
        --------
        >>> State(np.array([[1.0], [2.0]])).repeat(2).prices.ravel().tolist()
        [1.0, 1.0, 2.0, 2.0]
        """
        times = check_whole("times", times, least=1)
        return self._changed(lambda array: np.repeat(array.T, times, axis=-1).T)

    def like(self, array: Array) -> Self:
        """The same state in the array library and on the device of ``array``."""
        return self if is_numpy(array) else self._changed(lambda own: match(own.T, array).T)

    def _changed(self, change: Any) -> Self:
        own = [item.name for item in fields(self) if item.name not in self.shared]
        return replace(self, **{name: change(getattr(self, name)) for name in own})
