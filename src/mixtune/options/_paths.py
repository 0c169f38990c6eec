"""A dataset of paths as the pricer sees it: prices, discounted payoffs, and what else may be observed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._array import Array, as_float64, count_nonfinite, match, namespace, to_numpy
from mixtune.errors import DataError
from mixtune.options._grid import TimeGrid

__all__ = ["PathData"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class PathData:
    """Paths of one market regime; with one more axis in front, those of several runs side by side.

    Attributes
    ----------
    name : str
    prices : array (paths, dates + 1, assets)
    payoffs : array (paths, dates + 1)
        Discounted to time 0 with the regime's own rates.
    hidden : array (paths, dates + 1, k) or None
        Further observed state, such as variances.
    """

    name: str
    prices: Floats
    payoffs: Floats
    hidden: Floats | None = None

    @classmethod
    def build(
        cls,
        name: str,
        prices: Floats,
        *,
        grid: TimeGrid,
        payoff: Callable[[Floats], Floats],
        hidden: Floats | None = None,
    ) -> PathData:
        """Check paths against the grid and discount their payoffs."""
        prices = as_float64(prices, what=f'paths "{name}"')
        xp = namespace(prices)
        if prices.ndim == 2:
            prices = prices[:, :, None]
        if prices.ndim != 3 or prices.shape[0] == 0:
            raise DataError(f'paths "{name}" must have shape (paths, dates + 1, assets); got {prices.shape}')
        if prices.shape[1] != grid.n_dates + 1:
            raise DataError(
                f'paths "{name}" have {prices.shape[1]} points in time, the grid has {grid.n_dates + 1} '
                f"(the start and {grid.n_dates} dates); use a grid with {prices.shape[1] - 1} dates"
            )
        bad = count_nonfinite(prices)
        if bad:
            raise DataError(f'paths "{name}" must be finite; {bad} values are NaN or infinite')
        payoffs = match(payoff(prices), prices) * match(grid.discount, prices)
        if payoffs.shape != prices.shape[:2] or count_nonfinite(payoffs):
            raise DataError(f'the payoff of paths "{name}" must be one finite number per path and date')
        if float(xp.min(payoffs)) < 0:
            raise DataError(
                f'the payoff of paths "{name}" is negative at {int(xp.sum(payoffs < 0))} points; '
                "nobody has to exercise, so return max(payoff, 0)"
            )
        return cls(name, prices, payoffs, hidden)

    @classmethod
    def joined(cls, parts: Sequence[PathData]) -> PathData:
        """Several sets of paths of one market as one."""
        return parts[0]._changed(lambda name: namespace(parts[0].prices).concat([getattr(p, name) for p in parts]))

    def in_runs(self, runs: int) -> PathData:
        """The paths cut into equal runs, one after the other, that lie side by side on a first axis."""
        return self._changed(lambda name: getattr(self, name).reshape(runs, -1, *getattr(self, name).shape[1:]))

    def __len__(self) -> int:
        """Number of paths (of each run)."""
        return int(self.payoffs.shape[-2])

    @property
    def runs(self) -> int | None:
        """How many runs lie side by side; None for the paths of a single one."""
        return int(self.payoffs.shape[0]) if self.payoffs.ndim == 3 else None

    @property
    def n_dates(self) -> int:
        return int(self.payoffs.shape[-1]) - 1

    @property
    def n_assets(self) -> int:
        return int(self.prices.shape[-1])

    def take(self, rows: Any) -> PathData:
        """Some of the paths (of each run), by slice or indices."""
        where = rows if self.runs is None else (slice(None), rows)
        return self._changed(lambda name: getattr(self, name)[where])

    def fetched(self) -> PathData:
        """The same paths in NumPy."""
        return self._changed(lambda name: to_numpy(getattr(self, name)))

    def _changed(self, change: Callable[[str], Array]) -> PathData:
        hidden = None if self.hidden is None else change("hidden")
        return PathData(self.name, change("prices"), change("payoffs"), hidden)
