"""What an option pays when exercised: a function of the prices at that moment.

Payoffs are frozen objects that take prices with assets on the last axis, (..., assets), and return one amount for each
of the rest, (...), not discounted, in the array library of the prices. A function of one's own becomes one by
:class:`CustomPayoff`, which checks what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from mixtune import checks
from mixtune.arrays import to_numpy
from mixtune.errors import DataError, ParameterError
from mixtune_options._arrays import Array, Floats, as_float64, match, namespace

#: Anything that turns prices (..., assets) into amounts (...).
PayoffFunction = Callable[[Array], Array]
#: Up to here assets are combined one by one, which is quicker than a reduction over a short last axis.
FEW_ASSETS = 16
#: Paths on which it is tried whether a payoff looks ahead.
TRIED_PATHS = 8


@dataclass(frozen=True)
class Payoff:
    """A call (sign 1) or put (sign -1) on one number made of the prices, such as their maximum."""

    strike: float

    name: ClassVar[str]
    sign: ClassVar[int]
    #: How the prices of several assets become one number: "maximum", "minimum" or "mean".
    over: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "strike", checks.check_nonnegative("strike", self.strike))

    def underlying(self, prices: Array) -> Array:
        """The number that is compared with the strike."""
        return _over_assets(self.over, prices)

    def observed(self, prices: Array) -> Array | None:
        """Further columns (..., k) that the value of the option depends on, where prices do not show them."""
        return None

    def __call__(self, prices: ArrayLike) -> Array:
        """The amount paid for each vector of prices."""
        amounts = self.underlying(_as_prices(prices)) - self.strike
        amounts *= self.sign
        return amounts.clip(0.0)


class _OnOneAsset(Payoff):
    def underlying(self, prices: Array) -> Array:
        if prices.shape[-1] != 1:
            raise DataError(
                f"a {self.name} looks at one asset; the prices have {prices.shape[-1]} on their last axis; use "
                f"{'max' if self.sign > 0 else 'min'}-{self.name} or basket-{self.name}"
            )
        return prices[..., 0]


class Call(_OnOneAsset):
    """Call on one asset, ``max(S - strike, 0)``.

    Examples
    --------
    >>> Call(100)([[90.0], [110.0]])
    array([ 0., 10.])
    """

    name, sign = "call", 1


class Put(_OnOneAsset):
    """Put on one asset, ``max(strike - S, 0)``.

    Examples
    --------
    >>> Put(100)([[90.0], [110.0]])
    array([10.,  0.])
    """

    name, sign = "put", -1


class MaxCall(Payoff):
    """Call on the most expensive asset, ``max(max_i S_i - strike, 0)``.

    Examples
    --------
    >>> MaxCall(100)([[90.0, 120.0], [80.0, 95.0]])
    array([20.,  0.])
    """

    name, sign, over = "max-call", 1, "maximum"


class MinPut(Payoff):
    """Put on the cheapest asset, ``max(strike - min_i S_i, 0)``.

    Examples
    --------
    >>> MinPut(100)([[90.0, 120.0], [80.0, 95.0]])
    array([10., 20.])
    """

    name, sign, over = "min-put", -1, "minimum"


class BasketCall(Payoff):
    """Call on the arithmetic mean of the assets.

    Examples
    --------
    >>> BasketCall(100)([[90.0, 120.0], [80.0, 95.0]])
    array([5., 0.])
    """

    name, sign, over = "basket-call", 1, "mean"


class BasketPut(Payoff):
    """Put on the arithmetic mean of the assets.

    Examples
    --------
    >>> BasketPut(100)([[90.0, 120.0], [80.0, 95.0]])
    array([ 0. , 12.5])
    """

    name, sign, over = "basket-put", -1, "mean"


class GeometricBasketPut(Payoff):
    """Put on the geometric mean of the assets, whose prices must not be negative.

    Examples
    --------
    >>> GeometricBasketPut(100)([[90.0, 40.0]]).round(6)
    array([40.])
    """

    name, sign = "geometric-basket-put", -1

    def observed(self, prices: Array) -> Array:
        return self.underlying(prices)[..., None]

    def underlying(self, prices: Array) -> Array:
        xp = namespace(prices)
        if bool(xp.any(prices < 0)):
            raise DataError(
                f"{int(xp.sum(prices < 0))} prices are negative and have no geometric mean; "
                "use basket-put, or a scheme with positive prices"
            )
        with np.errstate(divide="ignore"):  # a price of zero makes the mean zero
            return xp.exp(_over_assets("mean", xp.log(prices)))


#: The payoffs known by name.
PAYOFFS: dict[str, type[Payoff]] = {
    payoff.name: payoff for payoff in (Call, Put, MaxCall, MinPut, BasketCall, BasketPut, GeometricBasketPut)
}


@dataclass(frozen=True)
class CustomPayoff:
    """A payoff of one's own, whose results are checked at every call.

    Parameters
    ----------
    function
        Takes prices (..., assets) and returns amounts (...).
    name
        What reports call it.

    Examples
    --------
    >>> spread = CustomPayoff(lambda prices: np.maximum(prices[..., 0] - prices[..., 1], 0), "spread")
    >>> spread([[90.0, 120.0], [95.0, 80.0]])
    array([ 0., 15.])
    """

    function: Callable[[Floats], ArrayLike]
    name: str = "custom"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ParameterError(f"a custom payoff needs a function of prices; got {self.function!r}")
        if not isinstance(self.name, str) or not self.name:
            raise ParameterError(f"the name of a payoff must be text that is not empty; got {self.name!r}")

    def __call__(self, prices: ArrayLike) -> Array:
        array = _as_prices(prices)
        given = to_numpy(array)  # what one's own functions know
        amounts = _call_own(self.name, self.function, given)
        return match(_check_own(self.name, amounts, given, given.shape[:-1], "amounts"), array)


def _call_own(name: str, function: Callable[..., ArrayLike], *given: Floats) -> Floats:
    """The result of a user's function for prices, and possibly times."""
    try:
        return np.array(function(*given), dtype=np.float64)
    except (TypeError, ValueError, IndexError) as error:
        raise DataError(f'payoff "{name}" failed on prices of shape {given[0].shape}: {error}') from error


def _check_own(name: str, found: Floats, prices: Floats, shape: tuple[int | None, ...], what: str) -> Floats:
    """Refuse the result of a user's function unless it is finite and has the right shape; None allows any size."""
    if found.ndim != len(shape) or any(size not in (None, own) for size, own in zip(shape, found.shape)):
        raise DataError(
            f'payoff "{name}" must turn prices of shape {prices.shape} into {what} of shape '
            f"{str(shape).replace('None', 'k')}; it returned shape {found.shape}"
        )
    if bad := int(found.size - np.count_nonzero(np.isfinite(found))):
        raise DataError(f'payoff "{name}" returned {bad} NaN or infinite {what} out of {found.size}')
    return found


@dataclass(frozen=True)
class PathPayoff:
    """A payoff that depends on time, or on the path so far.

    Parameters
    ----------
    function
        Takes prices (paths, dates + 1, assets) and times (dates + 1,), and returns the amounts (paths, dates + 1) paid
        on exercise at each of them. An amount must not depend on later prices; this is tried on a few paths.
    state
        Takes the same and returns (paths, dates + 1, k): what else of the past the value depends on, such as an
        average so far. Prices and amounts are seen in any case.
    name
        What reports call it.

    Examples
    --------
    A call on the average price so far:

    >>> def mean_so_far(prices, times):
    ...     return np.cumsum(prices[..., 0], axis=1) / np.arange(1, len(times) + 1)
    >>> def amounts(prices, times):
    ...     return np.maximum(mean_so_far(prices, times) - 100, 0)
    >>> asian = PathPayoff(amounts, state=lambda P, t: mean_so_far(P, t)[..., None], name="asian call")
    >>> asian.along(np.array([[[100.0], [110.0], [120.0]]]), np.array([0.0, 0.5, 1.0]))
    array([[ 0.,  5., 10.]])
    """

    function: Callable[[Floats, Floats], ArrayLike]
    state: Callable[[Floats, Floats], ArrayLike] | None = None
    name: str = "path"

    def __post_init__(self) -> None:
        if not callable(self.function) or not (self.state is None or callable(self.state)):
            raise ParameterError("a path payoff needs a function of prices and times, and so does its state")

    def __call__(self, prices: ArrayLike) -> Array:
        raise ParameterError(f'payoff "{self.name}" depends on the path so far, not on prices alone')

    def along(self, prices: Array, times: Floats) -> Array:
        """Amounts (paths, dates + 1) along paths (paths, dates + 1, assets)."""
        return self._checked(self.function, prices, times, (), "amounts")

    def observed_along(self, prices: Array, times: Floats) -> Array | None:
        """The further state (paths, dates + 1, k), where there is one."""
        return None if self.state is None else self._checked(self.state, prices, times, (None,), "state")

    def _checked(self, function: Callable[..., ArrayLike], paths: Array, times: Floats, more: Any, what: str) -> Array:
        """What a function returns, (paths, dates + 1, *more), finite, and without a look at later prices."""
        prices = to_numpy(_as_prices(paths))
        shape = (*prices.shape[:2], *more)
        found = _check_own(self.name, _call_own(self.name, function, prices, times), prices, shape, what)
        few = prices[:TRIED_PATHS]
        before, other = _call_own(self.name, function, few, times), few[::-1] * 1.1 + 1.0
        for date in range(few.shape[1] - 1):
            changed = np.concatenate([few[:, : date + 1], other[:, date + 1 :]], axis=1)
            after = _call_own(self.name, function, changed, times)
            if not np.array_equal(after[:, : date + 1], before[:, : date + 1]):
                raise DataError(f'the {what} of payoff "{self.name}" at date {date} depend on later prices')
        return match(found, paths)


class _OnAverage(PathPayoff):
    """A call or put on the average price from today to the date of exercise, over all assets."""

    sign: ClassVar[int]
    strike: float

    def __init__(self, strike: float) -> None:
        object.__setattr__(self, "strike", checks.check_nonnegative("strike", strike))
        super().__init__(self._amounts, state=_average_so_far, name=type(self).name)

    def _amounts(self, prices: Floats, times: Floats) -> Floats:
        return np.maximum(self.sign * (_average_so_far(prices, times)[..., 0] - self.strike), 0.0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(strike={self.strike!r})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class AsianCall(_OnAverage):
    """Call on the average price from today to the date of exercise.

    Examples
    --------
    >>> AsianCall(100).along(np.array([[[100.0], [110.0], [120.0]]]), np.array([0.0, 0.5, 1.0]))
    array([[ 0.,  5., 10.]])
    """

    name, sign = "asian-call", 1


class AsianPut(_OnAverage):
    """Put on the average price from today to the date of exercise.

    Examples
    --------
    >>> AsianPut(120).along(np.array([[[100.0], [110.0], [120.0]]]), np.array([0.0, 0.5, 1.0]))
    array([[20., 15., 10.]])
    """

    name, sign = "asian-put", -1


def _average_so_far(prices: Floats, times: Floats) -> Floats:
    """Mean prices (paths, dates + 1, 1) over assets and over the points in time until each."""
    return np.cumsum(prices.mean(axis=-1), axis=1)[..., None] / np.arange(1, len(times) + 1)[:, None]


#: The payoffs known by name that depend on the path so far.
PATH_PAYOFFS: dict[str, type[_OnAverage]] = {payoff.name: payoff for payoff in (AsianCall, AsianPut)}


def payoff_from_name(name: str, strike: float) -> Payoff | PathPayoff:
    """Make a payoff from its name and strike.

    Examples
    --------
    >>> payoff_from_name("max-call", 100)
    MaxCall(strike=100.0)
    >>> payoff_from_name("maxcall", 100)
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: payoff must be one of 'call', 'put', 'max-call', 'min-put', 'basket-call', 'basket-put', 'geometric-basket-put', 'asian-call', 'asian-put'; got 'maxcall'
    """  # noqa: E501
    known: dict[str, Callable[[float], Payoff | PathPayoff]] = {**PAYOFFS, **PATH_PAYOFFS}
    return known[checks.check_choice("payoff", name, tuple(known))](strike)


def _as_prices(prices: ArrayLike) -> Array:
    array = as_float64(prices, "prices")
    if array.ndim == 0 or array.shape[-1] == 0:
        raise DataError(f"prices need their assets on the last axis, (..., assets); got shape {array.shape}")
    return array


def _over_assets(how: str, prices: Array) -> Array:
    """Combine the assets of every price vector by "maximum", "minimum" or "mean"."""
    xp, n_assets = namespace(prices), prices.shape[-1]
    if n_assets > FEW_ASSETS:
        found = {"maximum": xp.max, "minimum": xp.min, "mean": xp.sum}[how](prices, axis=-1)
    else:
        found = reduce(getattr(xp, "add" if how == "mean" else how), (prices[..., asset] for asset in range(n_assets)))
    return found / n_assets if how == "mean" else found
