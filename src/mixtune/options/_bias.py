r"""What the time steps of a simulation do to prices, and steps that keep it small.

A European option has an exact price under Heston and rough Heston. Its price in the simulation, with the steps between
the exercise dates as they are, differs from that by noise and by the error of the steps. To see the second through the
first, paths of the variance alone are drawn from Sobol points. Given the variance, the price is lognormal, and the
option worth Black's formula, which removes most of the noise; the expected price and the integrated variance, whose
means are known, are control variates. What is left of the noise is read off independent scramblings.

Where the process chooses its own steps and the bias exceeds the tolerance, the steps are made shorter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mixtune._array import Floats
from mixtune.options._european import black_call, forward_price, of_kind, vanilla
from mixtune.options._heston import LAW, VarianceProcess
from mixtune.options._payoffs import Call, Put
from mixtune.options._process import normal_blocks, per_asset
from mixtune.options._settings import TimeGrid
from mixtune.options.processes import Heston, Process, RoughHeston

#: Standard errors that a difference must have beyond its tolerance before it is taken for a bias.
SURE = 4.0
#: Scramblings and points of each, for paths of the variance alone.
SCRAMBLINGS, POINTS = 8, 4096
#: Sobol coordinates up to which their points are worth their cost.
MOST_COORDINATES = 2000
#: Assets that are looked at where they differ.
MOST_ASSETS = 5
#: How often steps are shortened, each time to a half, before a bias is reported instead.
MOST_HALVINGS = 2


@dataclass(frozen=True)
class Bias:
    """What the time steps of the simulation do to a European price on the same paths.

    Attributes
    ----------
    option : str
        The European option that was compared: the priced one held to maturity, or a put on an asset with its strike.
    exact : float
        Its price without simulation.
    simulated, standard_error : float
        Its price in the simulation, with the same steps.
    tolerance : float
        What is accepted, as a share of the price: 0.1%, or half a standard error of the American price if that is more.
    """

    option: str
    exact: float
    simulated: float
    standard_error: float
    tolerance: float

    @property
    def relative(self) -> float:
        """The difference as a share of the exact price."""
        return (self.simulated - self.exact) / self.exact

    @property
    def relative_error(self) -> float:
        """The standard error of ``relative``."""
        return self.standard_error / self.exact

    @property
    def missed(self) -> bool:
        """Whether the difference exceeds the tolerance by more than four standard errors."""
        return abs(self.relative) > self.tolerance + SURE * self.relative_error

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "relative": self.relative, "missed": self.missed}

    def __str__(self) -> str:
        found = f"{self.relative:+.3%} ± {1.96 * self.relative_error:.3%}"
        return f"{found} of the European {self.option} (exact {self.exact:.4f}, accepted {self.tolerance:.2%})"


def with_chosen_steps(
    process: Process, payoff: Any, grid: TimeGrid, *, tolerance: float, seed: int
) -> tuple[Process, Bias | None]:
    """A process with the steps it takes between the dates, and what these do to European prices.

    The bias is None for models that are sampled exactly, and for schemes whose bias :func:`observed_bias` shows.
    """
    chosen = process.for_grid(grid, tolerance=tolerance)
    bias = steps_bias(chosen, payoff, grid, tolerance=tolerance, seed=seed)
    free = isinstance(process, Heston | RoughHeston) and process.substeps is None
    for halvings in range(1, MOST_HALVINGS + 1):
        if not free or bias is None or not bias.missed:
            break
        # Errors are of second order: a quarter of the tolerance gives half the step.
        chosen = process.for_grid(grid, tolerance=tolerance / 4**halvings)
        bias = steps_bias(chosen, payoff, grid, tolerance=tolerance, seed=seed)
    return chosen, bias


def steps_for_all(process: Process, options: Sequence[tuple[Any, TimeGrid]], *, tolerance: float, seed: int) -> Process:
    """A process with the most steps that one of several options needs, each with its own dates.

    All dates must be among those of the longest maturity, whose scheme is used for all.
    """
    longest = max((grid for _, grid in options), key=lambda grid: grid.maturity)
    if not isinstance(process, Heston | RoughHeston) or process.substeps is not None:
        return process.for_grid(longest, tolerance=tolerance)
    free = replace(process, scheme=process.for_grid(longest, tolerance=tolerance).scheme)
    needed = []
    for payoff, grid in options:
        enough, _ = with_chosen_steps(free, payoff, grid, tolerance=tolerance, seed=seed)
        assert isinstance(enough, VarianceProcess)
        needed.append(enough.substeps or 1)
    return replace(free, substeps=max(needed)).for_grid(longest)


def steps_bias(process: Process, payoff: Any, grid: TimeGrid, *, tolerance: float, seed: int) -> Bias | None:
    """The bias of the steps of "qe" and "inverse-gaussian", for the asset where it is largest; None for others.

    Cash dividends are left out: they do not depend on the steps.
    """
    if not isinstance(process, Heston | RoughHeston) or process.scheme not in ("qe", "inverse-gaussian"):
        return None
    # Where assets differ, those whose variance is the most random are looked at.
    noise = per_asset("v_vol", process.v_vol, process.n_assets) ** 2
    level = np.maximum(process.mean_variance(grid.maturity), 1e-12)
    found = []
    for asset in sorted(_different_assets(process), key=lambda one: -noise[one] / level[one])[:MOST_ASSETS]:
        option, strike, sign, exact = _probe(process, payoff, grid, asset)
        if exact:
            estimate = _conditional_price(process.only(asset), strike, sign, grid, seed)
            found.append(Bias(option, exact, *estimate, tolerance=tolerance))
    return _worst(found)


def _worst(found: list[Bias]) -> Bias | None:
    """The one that most surely exceeds its tolerance; the largest where none does."""

    def rank(bias: Bias) -> tuple[float, float]:
        size = abs(bias.relative)
        return max(size - SURE * bias.relative_error, bias.tolerance), size

    return max(found, key=rank, default=None)


def _different_assets(process: VarianceProcess) -> list[int]:
    """One asset of each kind."""
    columns = [per_asset(name, getattr(process, name), process.n_assets) for name in ("spot", *LAW)]
    dividends = np.atleast_2d(np.asarray(process.dividend))
    rows = np.concatenate([np.stack(columns), np.broadcast_to(dividends, (len(dividends), process.n_assets))])
    return sorted(np.unique(rows, axis=1, return_index=True)[1].tolist())


def _probe(process: VarianceProcess, payoff: Any, grid: TimeGrid, asset: int) -> tuple[str, float, int, float]:
    """The European option that shows the bias: its name, its strike, whether it is a call, and its exact price.

    It is the payoff itself, or a put with its strike (the spot if none); a price of next to nothing is 0.
    """
    spot = float(np.asarray(process.spot)[asset])
    strike, sign = float(getattr(payoff, "strike", spot)), payoff.sign if isinstance(payoff, Call | Put) else -1
    where = "" if process.n_assets == 1 else f", asset {asset}"
    name = f"{'call' if sign > 0 else 'put'}, strike {strike:g}{where}"
    exact = float(vanilla(process.only(asset), np.array([strike]), sign, grid)[0])
    return name, strike, sign, exact if exact > 1e-6 * spot else 0.0


def _conditional_price(
    process: Heston | RoughHeston, strike: float, sign: int, grid: TimeGrid, seed: int
) -> tuple[float, float]:
    """The simulated price of a European option on one asset, and its standard error."""
    assert process.substeps is not None
    steps, width = grid.n_dates * process.substeps, 1 if process.scheme == "qe" else 2
    forward, samples = forward_price(process, grid), []
    for scrambling in range(SCRAMBLINGS):
        rng = np.random.default_rng([seed, scrambling, POINTS])
        # Every step counts as an interval of the Sobol points: the first coordinates drive whole paths.
        blocks = normal_blocks(POINTS, steps, width, rng, sobol=steps * width <= MOST_COORDINATES)
        laws = [
            process.conditional_law(grid, normals.reshape(grid.n_dates, -1, normals.shape[2])) for _, normals in blocks
        ]
        mean, spread, control = (np.concatenate(parts) for parts in zip(*laws))
        expected = forward * np.exp(mean)
        flows = of_kind(sign, black_call(expected, strike, np.sqrt(spread)), expected, strike)
        samples.append(np.stack([grid.discount[-1] * flows, expected - forward, control]))
    values = np.stack(samples)  # (scramblings, what, points)
    flat = values.transpose(1, 0, 2).reshape(3, -1)
    centred = flat - flat.mean(axis=1, keepdims=True)
    slopes = np.linalg.lstsq(centred[1:].T, centred[0], rcond=None)[0]
    means = values.mean(axis=2)
    estimates = means[:, 0] - means[:, 1:] @ slopes
    return float(estimates.mean()), float(estimates.std(ddof=1)) / math.sqrt(SCRAMBLINGS)


def observed_bias(
    process: Process,
    payoff: Any,
    grid: TimeGrid,
    terminal: Floats,
    *,
    estimate: Callable[[Floats], tuple[float, float]],
    tolerance: float,
) -> Bias | None:
    """The bias seen on simulated paths; None for models that are sampled exactly or have no exact price.

    The terminal price, whose mean is known, is the control variate. Its noise is that of the paths: this is for schemes
    whose variance cannot be followed on its own.

    Parameters
    ----------
    terminal : ndarray of shape (paths, assets)
        Simulated prices at maturity.
    estimate
        From samples, one per path, to their mean and standard error.
    tolerance
        As a share of the price.
    """
    if not isinstance(process, Heston | RoughHeston) or process.cash_dividends:
        return None
    found = []
    for asset, prices in enumerate(terminal.T):
        option, strike, sign, exact = _probe(process, payoff, grid, asset)
        flows = grid.discount[-1] * np.maximum(sign * (prices - strike), 0.0)
        if not exact or not np.any(flows != flows[0]):
            continue  # a price of nothing, or known for sure, has no relative error
        if process.scheme != "paper":  # whose prices do not have the exact mean
            control = grid.discount[-1] * (prices - forward_price(process.only(asset), grid))
            flows = flows - (flows - flows.mean()) @ control / (control @ control) * control
        found.append(Bias(option, exact, *estimate(flows), tolerance=tolerance))
    return _worst(found)
