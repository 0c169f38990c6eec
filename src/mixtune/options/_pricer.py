"""Price an option: simulate, learn when to stop, evaluate on fresh paths, bound from above.

Defaults are the library's: inputs standardised, ridge chosen by leave-one-out at every date, regression on paths in the
money, a payoff of zero never exercised, and the variance of a simulated model observed. ``preset="paper"`` gives the
settings of the paper's tables instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mixtune._array import to_numpy
from mixtune._checks import check_choice, check_whole
from mixtune._device import check_device
from mixtune.errors import ParameterError
from mixtune.options._assemble import Clock, assemble
from mixtune.options._boundary import exercise_region
from mixtune.options._estimate import SCRAMBLINGS
from mixtune.options._greeks import delta, vega
from mixtune.options._grid import TimeGrid
from mixtune.options._induction import train
from mixtune.options._models import ContinuationModel, Local, TunedLocal
from mixtune.options._paths import PathData
from mixtune.options._result import PriceResult
from mixtune.options._state import PolynomialState, RandomState, RecurrentState, StateMap
from mixtune.options._threads import one_thread
from mixtune.options._upper import upper_bound
from mixtune.options.processes import Process

__all__ = ["METHODS", "price", "simulate"]

Floats = np.ndarray[Any, Any]
METHODS = ("rlsm", "lsm", "recurrent")


@one_thread
def price(
    process: Process,
    payoff: Callable[[Floats], Floats],
    grid: TimeGrid,
    *,
    method: str = "rlsm",
    preset: str | None = None,
    paths: int = 50_000,
    training_paths: int | None = None,
    width: int = 100,
    degree: int = 3,
    in_the_money: bool = True,
    observe_hidden: bool = True,
    antithetic: bool = False,
    sobol: bool = False,
    upper: bool = False,
    upper_paths: int = 1000,
    inner_paths: int = 200,
    greeks: bool = False,
    device: str | None = None,
    seed: int,
    progress: Callable[[str], None] | None = None,
) -> PriceResult:
    """Price a Bermudan option on the dates of ``grid`` by (randomised) least-squares Monte Carlo.

    Linear algebra runs on one thread while pricing: the matrices are small, and threads waiting for each other cost
    more than they bring (measured on busy cores: ten times as much).

    Parameters
    ----------
    process : Process
        The market, see :mod:`mixtune.options.processes`.
    payoff : callable
        Prices (..., assets) to payoffs (...).
    grid : TimeGrid
        Exercise dates and rates.
    method : {"rlsm", "lsm", "recurrent"}
        Random features, polynomials, or randomised recurrent features for models with memory.
    preset : {None, "paper"}
        "paper": 300 leaky ReLU units on raw prices, ridge 2, regression on all paths, payoff against continuation only.
    paths, training_paths : int
        Independent evaluation paths, and paths to learn from (as many by default).
    width, degree : int
        Random units; polynomial degree.
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
        Delta and vega by common random numbers.
    device : str, optional
        A PyTorch device, "cuda" or "cpu", for paths, features, regressions and evaluation; by default NumPy. The
        normals are the same, so the price is the same up to rounding. Bounds and Greeks are computed in NumPy.
    seed : int
    progress : callable, optional
        Called with the name of each stage as it starts.

    Returns
    -------
    PriceResult

    Examples
    --------
    >>> from mixtune.options import BlackScholes, Put, TimeGrid, price
    >>> market = BlackScholes(spot=36.0, volatility=0.2)
    >>> result = price(market, Put(40.0), TimeGrid(maturity=1.0, dates=10, rate=0.06), paths=4000, seed=0)
    >>> bool(4.2 < result.price < 4.6)
    True
    """
    check_choice("method", method, METHODS)
    if preset is not None:
        check_choice("preset", preset, ("paper",))
    paths = check_whole("paths", paths, least=2)
    training_paths = paths if training_paths is None else check_whole("training_paths", training_paths, least=2)
    if sobol and paths < 2 * SCRAMBLINGS:
        raise ParameterError(f"sobol needs at least {2 * SCRAMBLINGS} paths for its standard error; got {paths}")
    if sobol and antithetic:
        raise ParameterError("antithetic and sobol exclude each other; Sobol points are balanced already")
    check_device(device)
    paper = preset == "paper"
    observe_hidden = observe_hidden and not paper
    drawn = "antithetic" if antithetic else "sobol" if sobol else "independent"
    clock = Clock(progress)
    train_seed, price_seed, upper_seed = np.random.SeedSequence(check_whole("seed", seed)).spawn(3)

    def draw(
        market: Process,
        count: int,
        stream: np.random.SeedSequence,
        antithetic: bool = False,
        sobol: bool = False,
        device: str | None = None,
    ) -> PathData:
        return simulate(
            market,
            payoff,
            grid,
            paths=count,
            rng=np.random.default_rng(stream),
            hidden=observe_hidden,
            antithetic=antithetic,
            sobol=sobol,
            device=device,
        )

    def fresh(market: Process, device: str | None = None) -> PathData:
        """Evaluation paths; the same normals whatever the market, for Greeks."""
        if not sobol:
            return draw(market, paths, price_seed, antithetic, device=device)
        counts = [len(part) for part in np.array_split(np.empty(paths), SCRAMBLINGS)]
        streams = np.random.SeedSequence(entropy=price_seed.entropy, spawn_key=price_seed.spawn_key).spawn(SCRAMBLINGS)
        return PathData.joined([draw(market, n, s, sobol=True, device=device) for n, s in zip(counts, streams)])

    with clock("simulate"):
        training = draw(process, training_paths, train_seed, device=device)
        evaluation = fresh(process, device)
    with clock("train"):
        model: ContinuationModel = Local(0, 2.0, "LO-1") if paper else TunedLocal(0, method)
        state = _state_map(method, paper, width, degree, seed).fitted([training])
        policy = train(
            [training], [model], state=state, in_the_money=in_the_money and not paper, only_positive=not paper
        )
    with clock("evaluate"):
        flows, dates = (to_numpy(found) for found in policy.cash_flows(evaluation))
        training, evaluation, policy = training.fetched(), evaluation.fetched(), policy.fetched()
        immediate = float(evaluation.payoffs[0, 0]) > float(flows.mean())
    bound = None
    if upper:
        with clock("upper bound"):
            # Values are needed everywhere, so this policy learns from all paths.
            value_state = RandomState(width=width, seed=seed).fitted([training])
            value_policy = train([training], [TunedLocal(0, "value")], state=value_state, in_the_money=False)
            bound = upper_bound(
                value_policy,
                process,
                grid=grid,
                payoff=payoff,
                rng=np.random.default_rng(upper_seed),
                outer_paths=upper_paths,
                inner_paths=inner_paths,
                with_hidden=observe_hidden,
            )
    sensitivities = {}
    if greeks:
        with clock("greeks"):
            sensitivities = {
                "delta": delta(policy, process, fresh, drawn=drawn, immediate=immediate),
                "vega": vega(policy, process, fresh, drawn=drawn, immediate=immediate),
            }
    settings = {
        "method": method,
        "preset": preset,
        "paths": paths,
        "training_paths": training_paths,
        "seed": seed,
        "process": repr(process),
        "payoff": repr(payoff),
        "maturity": float(grid.times[-1]),
        "dates": grid.n_dates,
        "rates": sorted({float(rate) for rate in grid.rates}),
        "width": width,
        "degree": degree,
        "in_the_money": in_the_money,
        "observe_hidden": observe_hidden,
        "antithetic": antithetic,
        "sobol": sobol,
        "device": device or "cpu",
        "upper_paths": upper_paths if upper else None,
        "inner_paths": inner_paths if upper else None,
    }
    region = exercise_region(policy, training, grid=grid, payoff=payoff)
    return assemble(
        evaluation, flows[:, 0], dates[:, 0], policy, drawn, bound, region, sensitivities, clock.seconds, settings
    )


def simulate(
    process: Process,
    payoff: Callable[[Floats], Floats],
    grid: TimeGrid,
    *,
    paths: int,
    rng: np.random.Generator,
    name: str = "simulated",
    hidden: bool = True,
    antithetic: bool = False,
    sobol: bool = False,
    device: str | None = None,
) -> PathData:
    """Paths of a process as the pricer wants them, in NumPy or on a device."""
    prices, observed = process.sample_with_hidden(paths, grid, rng, antithetic=antithetic, sobol=sobol, device=device)
    return PathData.build(name, prices, grid=grid, payoff=payoff, hidden=observed if hidden else None)


def _state_map(method: str, paper: bool, width: int, degree: int, seed: int) -> StateMap:
    if paper:
        return RandomState(width=300, activation="leaky_relu", slope=0.01, standardise=False, seed=seed)
    if method == "lsm":
        return PolynomialState(degree=degree)
    if method == "recurrent":
        return RecurrentState(width=width, seed=seed)
    return RandomState(width=width, seed=seed)
