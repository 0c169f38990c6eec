"""A dataset of paths as the pricer sees it: prices, discounted payoffs, and what else may be observed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune.errors import DataError
from mixtune.options._grid import TimeGrid

__all__ = ["PathData"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class PathData:
    """Paths of one market regime.

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
        prices = np.asarray(prices, dtype=np.float64)
        if prices.ndim == 2:
            prices = prices[:, :, None]
        if prices.ndim != 3 or prices.shape[0] == 0:
            raise DataError(f'paths "{name}" must have shape (paths, dates + 1, assets); got {prices.shape}')
        if prices.shape[1] != grid.n_dates + 1:
            raise DataError(
                f'paths "{name}" have {prices.shape[1]} points in time, the grid has {grid.n_dates + 1} '
                f"(the start and {grid.n_dates} dates); use a grid with {prices.shape[1] - 1} dates"
            )
        bad = int(np.sum(~np.isfinite(prices)))
        if bad:
            raise DataError(f'paths "{name}" must be finite; {bad} values are NaN or infinite')
        payoffs = np.asarray(payoff(prices), dtype=np.float64) * grid.discount
        if payoffs.shape != prices.shape[:2] or not np.all(np.isfinite(payoffs)):
            raise DataError(f'the payoff of paths "{name}" must be one finite number per path and date')
        if payoffs.min() < 0:
            raise DataError(
                f'the payoff of paths "{name}" is negative at {int(np.sum(payoffs < 0))} points; '
                "nobody has to exercise, so return max(payoff, 0)"
            )
        return cls(name, prices, payoffs, hidden)

    @classmethod
    def joined(cls, parts: Sequence[PathData]) -> PathData:
        """Several sets of paths of one market as one."""
        hidden = None if parts[0].hidden is None else np.concatenate([p.hidden for p in parts if p.hidden is not None])
        prices, payoffs = (np.concatenate([getattr(p, name) for p in parts]) for name in ("prices", "payoffs"))
        return cls(parts[0].name, prices, payoffs, hidden)

    def __len__(self) -> int:
        return len(self.prices)

    @property
    def n_dates(self) -> int:
        return int(self.prices.shape[1]) - 1

    @property
    def n_assets(self) -> int:
        return int(self.prices.shape[2])

    def take(self, rows: Any) -> PathData:
        """Some of the paths, by slice or indices."""
        hidden = None if self.hidden is None else self.hidden[rows]
        return PathData(self.name, self.prices[rows], self.payoffs[rows], hidden)
