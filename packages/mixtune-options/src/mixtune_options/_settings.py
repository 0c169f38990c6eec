"""When an option may be exercised, how it is priced, and the constants of the method with their sources."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mixtune import checks
from mixtune.arrays import torch_device
from mixtune.errors import ParameterError
from mixtune_options._arrays import Floats, read_only

#: Discretisation error that is accepted unless told otherwise, as a share of the price.
TOLERANCE = 0.001


@dataclass(frozen=True, kw_only=True)
class MethodConstants:
    """Numbers that the method fixes; users do not set them.

    Attributes
    ----------
    ridges : tuple of float
        Candidates of the leave-one-out choice, as multiples of the mean eigenvalue of U'U. Twelve decades: paths are
        simulated with as little noise as one likes, and a grid that ends too early costs accuracy.
    choice_rows : int
        Rows on which a ridge is chosen; the fit uses all. With more, the choice costs time and hardly changes.
    scramblings : int
        Independent randomisations of the Sobol points, from which their standard error is read (Owen 1997): the
        points of one scrambling are dependent.
    bias_errors : float
        Standard errors of a price below which its discretisation error does not matter.
    spot_bump, first_spread_bump : float
        Moves of the price for delta and gamma, in spreads of the price at maturity; at most so many spreads of the
        first date. Paths whose stop changes with the move make differences noisier the smaller it is, those of second
        order most (Glasserman 2004, section 7.1).
    volatility_bump, least_volatility, rate_bump, time_bump, first_date_bump : float
        Moves of volatilities (relative), of rates, and of time relative to maturity. Volatilities of zero move to
        ``least_volatility``; time moves by at most ``first_date_bump`` of the time to the first date.
    wide : float
        Factor of the moves of prices and rates where the European price is not known, and differences are noisier.
    exact_bump : float
        Share of a move over which exact prices, which have no noise, are compared instead.
    width, ranked_width : int
        The most random units by default; fewer do where assets are sorted by price.
    region_tail : float
        Share of prices left out at either end where an exercise region is drawn: beyond, the policy extrapolates.
    memory, input_scale, bias_scale : float
        Of the random recurrent network: spectral scale of the recurrent weights, below 1 so that the past fades
        (Jaeger 2001), and scales of inputs and biases that keep tanh between linear and saturated.
    paper_width, paper_slope, paper_ridge
        The paper's tables: hidden units, slope of the leaky ReLU, ridge.
    """

    ridges: tuple[float, ...] = tuple(10.0**k for k in range(-9, 3))
    choice_rows: int = 2000
    scramblings: int = 32
    bias_errors: float = 0.5
    spot_bump: float = 0.1
    first_spread_bump: float = 0.7
    volatility_bump: float = 0.02
    least_volatility: float = 1e-4
    rate_bump: float = 0.004
    time_bump: float = 0.02
    first_date_bump: float = 0.25
    wide: float = 2.5
    exact_bump: float = 0.1
    width: int = 100
    ranked_width: int = 50
    region_tail: float = 0.001
    memory: float = 0.9
    input_scale: float = 1.0
    bias_scale: float = 0.5
    paper_width: int = 300
    paper_slope: float = 0.01
    paper_ridge: float = 2.0


METHOD = MethodConstants()


@dataclass(frozen=True, kw_only=True)
class PriceSettings:
    """How :func:`mixtune_options.price` prices; checked when made.

    Parameters
    ----------
    seed : int
        Of everything random.
    method : {"rlsm", "lsm", "recurrent"}
        Random features, polynomials, or randomised recurrent features for models with memory.
    preset : {None, "paper"}
        "paper": 300 leaky ReLU units on raw prices, ridge 2, regression on all paths, payoff against continuation only.
    paths, training_paths : int
        Independent evaluation paths, and paths to learn from (as many by default).
    width : int, optional
        Random units; by default as many as the number of assets and of other observed variables asks for.
    degree : int
        Of the polynomials.
    control : bool, optional
        Whether to take a martingale with mean zero off the cash flows, which leaves the price as it is and makes its
        standard error much smaller; yes by default, except for the paper's settings.
    in_the_money : bool
        Regress on paths in the money only.
    observe_hidden : bool
        Let the exercise decision see the model's variance, as the American price under that model assumes.
    antithetic, sobol : bool
        How evaluation paths are drawn. Standard errors take note of it: from antithetic pairs, or from 32 independent
        scramblings of the Sobol points.
    upper, upper_paths, inner_paths
        Whether to compute the dual upper bound, and with how many outer and inner paths.
    greeks : bool
        Delta, gamma, vega, theta and rho, by common random numbers; policies are learned again where they change.
    bias_tolerance : float
        Discretisation error that is accepted, as a share of the price; the steps of Heston models are chosen for it.
        Half a standard error of the price is accepted in any case.
    device : str, optional
        A PyTorch device, "cuda" or "cpu", for paths, features, regressions and evaluation; by default NumPy. The
        normals are the same, so the price is the same up to rounding. Bounds and Greeks are computed in NumPy.

    Examples
    --------
    >>> PriceSettings(seed=0, paths=1000).drawn
    'independent'
    >>> PriceSettings(seed=0, method="magic")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: method must be one of 'rlsm', 'lsm', 'recurrent'; got 'magic'
    """

    seed: int
    method: str = "rlsm"
    preset: str | None = None
    paths: int = 50_000
    training_paths: int | None = None
    width: int | None = None
    degree: int = 3
    control: bool | None = None
    in_the_money: bool = True
    observe_hidden: bool = True
    antithetic: bool = False
    sobol: bool = False
    upper: bool = False
    upper_paths: int = 1000
    inner_paths: int = 200
    greeks: bool = False
    bias_tolerance: float = TOLERANCE
    device: str | None = None

    def __post_init__(self) -> None:
        checks.check_choice("method", self.method, ("rlsm", "lsm", "recurrent"))
        checks.check_choice("preset", "paper" if self.preset is None else self.preset, ("paper",))
        for name, least in {"paths": 2, "upper_paths": 2, "inner_paths": 2, "degree": 1, "seed": 0}.items():
            checks.check_whole(name, getattr(self, name), least=least)
        for name, least in {"training_paths": 2, "width": 1}.items():
            if getattr(self, name) is not None:
                checks.check_whole(name, getattr(self, name), least=least)
        for name in ("in_the_money", "observe_hidden", "antithetic", "sobol", "upper", "greeks"):
            _check_flag(name, getattr(self, name))
        _check_flag("control", self.control is None or self.control)
        if self.antithetic and self.paths % 2:
            raise ParameterError(f"antithetic paths come in pairs; pass an even number, such as paths={self.paths + 1}")
        if self.paper and self.method != "rlsm":
            raise ParameterError(
                f'preset "paper" is random features, method "rlsm"; got method {self.method!r}; leave one of them out'
            )
        if self.paper and self.control:
            raise ParameterError('preset "paper" takes no control off the cash flows; leave out one of them')
        if self.sobol and self.paths < (least := 2 * METHOD.scramblings):
            raise ParameterError(f"sobol needs at least {least} paths for its standard error; got {self.paths}")
        if self.sobol and self.antithetic:
            raise ParameterError("antithetic and sobol exclude each other; Sobol points are balanced already")
        checks.check_positive("bias_tolerance", self.bias_tolerance)
        if self.device is not None:
            # An error where it is missing; "cpu" is PyTorch's here.
            set_fields(self, device=torch_device("torch:cpu" if self.device == "cpu" else self.device))

    @property
    def paper(self) -> bool:
        """Whether the paper's settings are asked for."""
        return self.preset == "paper"

    @property
    def drawn(self) -> str:
        """How evaluation paths are drawn: "independent", "antithetic" or "sobol"."""
        return "antithetic" if self.antithetic else "sobol" if self.sobol else "independent"


def _check_flag(name: str, value: object) -> None:
    """Refuse what is not True or False: "no" would count as yes."""
    if not isinstance(value, bool | np.bool):
        raise ParameterError(f"{name} must be True or False; got {value!r}")


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
        maturity, dates = (
            checks.check_positive("maturity", self.maturity),
            checks.check_whole("dates", self.dates, least=1),
        )
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
        grid._store(numbers("times", times), rate)
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
        rates = numbers("rate", rate)
        if rates.shape not in ((), steps.shape):
            raise ParameterError(
                f"rate must be one number, or {steps.size} of them, one per interval; got shape {rates.shape}"
            )
        rates = np.broadcast_to(rates, steps.shape).copy()
        with np.errstate(over="ignore"):
            discount = np.exp(-np.concatenate([[0.0], np.cumsum(rates * steps)]))
        if not math.isfinite(discount.sum()):
            raise ParameterError(f"rate={rate!r} discounts beyond what floating-point numbers hold; pass 0.05 for 5%")
        arrays = {"times": times, "rates": rates, "steps": steps, "discount": discount}
        set_fields(self, **{name: read_only(array) for name, array in arrays.items()})
        set_fields(self, maturity=float(times[-1]), dates=steps.size, rate=rate)

    @property
    def n_dates(self) -> int:
        """Number of exercise dates after time 0."""
        return int(self.steps.size)

    def interval(self, index: int) -> dict[str, float]:
        """Begin, end and rate of one interval, as :meth:`Process.advance` takes them."""
        begin, end = self.times[index : index + 2].tolist()
        return {"begin": begin, "end": end, "rate": float(self.rates[index])}


def set_fields(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is being made."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def numbers(name: str, value: ArrayLike, *, least: float = -math.inf, strict: bool = False) -> Floats:
    """``value`` as a new array of finite numbers, each at least ``least`` (above it if ``strict``).

    Examples
    --------
    >>> numbers("volatility", -0.2, least=0)
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: volatility must be finite >= 0; got -0.2
    """
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be numbers; got {value!r}") from None
    inside = array > least if strict else array >= least
    if not np.all(np.isfinite(array) & inside):
        bound = "" if least == -math.inf else f" {'>' if strict else '>='} {least:g}"
        raise ParameterError(f"{name} must be finite{bound}; got {value!r}")
    return array
