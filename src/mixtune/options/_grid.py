"""When an option may be exercised, and what money is worth then: the clock every path and payoff shares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mixtune._checks import check_positive, check_whole
from mixtune.errors import ParameterError

__all__ = ["TimeGrid"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeGrid:
    """Equidistant exercise dates between today and maturity, with the interest rate of every interval.

    Parameters
    ----------
    maturity
        Time of the last date, > 0.
    dates
        Number of exercise dates after time 0, at least one.
    rate
        Continuously compounded interest rate: one number, or one for each interval (a curve). May be negative.

    Attributes
    ----------
    times : ndarray of shape (dates + 1,)
        Time 0 and the dates.
    steps : ndarray of shape (dates,)
        Lengths of the intervals.
    rates : ndarray of shape (dates,)
        The rate of each interval.
    discount : ndarray of shape (dates + 1,)
        What one unit paid at each time is worth at time 0.

    Examples
    --------
    >>> grid = TimeGrid(maturity=3, dates=9, rate=0.05)
    >>> grid.n_dates, round(float(grid.discount[-1]), 6)
    (9, 0.860708)
    >>> TimeGrid(maturity=1, dates=2, rate=[0.02, 0.04]).discount.round(6).tolist()
    [1.0, 0.99005, 0.970446]
    """

    maturity: float
    dates: int
    rate: ArrayLike = 0.0
    times: Floats = field(init=False, repr=False)
    rates: Floats = field(init=False, repr=False)
    steps: Floats = field(init=False, repr=False)
    discount: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        maturity, dates = check_positive("maturity", self.maturity), check_whole("dates", self.dates, least=1)
        self._store(np.linspace(0.0, maturity, dates + 1), self.rate)

    @classmethod
    def from_times(cls, times: ArrayLike, *, rate: ArrayLike = 0.0) -> TimeGrid:
        """Make a grid of any increasing times, the first of them 0.

        Parameters
        ----------
        times
            Time 0 and the exercise dates.
        rate
            As for the class.

        Examples
        --------
        >>> TimeGrid.from_times([0, 0.5, 2]).steps.tolist()
        [0.5, 1.5]
        """
        grid = object.__new__(cls)
        grid._store(_numbers("times", times), rate)
        return grid

    def _store(self, times: Floats, rate: ArrayLike) -> None:
        """Check times and rates, and keep what follows from them."""
        if times.ndim != 1 or times.size < 2:
            raise ParameterError(f"times must hold time 0 and at least one date; got shape {times.shape}")
        if times[0] != 0:
            raise ParameterError(f"times must begin with 0, which is today; got {times[0]:g}")
        steps = np.diff(times)
        if not np.all(steps > 0):
            late = int(np.argmin(steps > 0)) + 1
            raise ParameterError(
                f"times must increase; entry {late} is {times[late]:g}, after {times[late - 1]:g}; sort them"
            )
        rates = _numbers("rate", rate)
        if rates.shape not in ((), steps.shape):
            raise ParameterError(
                f"rate must be one number, or {steps.size} of them, one per interval; got shape {rates.shape}"
            )
        rates = np.broadcast_to(rates, steps.shape).copy()
        with np.errstate(over="ignore"):
            discount = np.exp(-np.concatenate([[0.0], np.cumsum(rates * steps)]))
        if not math.isfinite(discount.sum()):
            raise ParameterError(f"rate={rate!r} discounts beyond what floating-point numbers hold; pass 0.05 for 5%")
        kept = {"times": times, "rates": rates, "steps": steps, "discount": discount}
        for array in kept.values():
            array.flags.writeable = False
        settings = {"maturity": float(times[-1]), "dates": steps.size, "rate": rate}
        for name, value in (settings | kept).items():
            object.__setattr__(self, name, value)

    @property
    def n_dates(self) -> int:
        """Number of exercise dates after time 0."""
        return int(self.steps.size)


def _numbers(name: str, value: ArrayLike) -> Floats:
    """``value`` as a new array of finite numbers."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be numbers; got {value!r}") from None
    if not np.all(np.isfinite(array)):
        raise ParameterError(f"{name} must be finite; got {value!r}")
    return array
