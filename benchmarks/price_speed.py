"""Claims: a put needs at most 1/20 of the CPU time of QuantLib's least-squares engine, a max-call 1/3 of plain NumPy's.

The put has 50 dates; both run until the standard error is 0.1% of the price. QuantLib's engine has antithetic paths and
its control variate. The max-call has 5 assets and 9 dates (Becker, Cheridito and Jentzen 2019: 26.15). Both run with
more and more paths until the lower bound is within 0.5% of that in the mean of a few seeds, and its standard error is
0.25%. The other side is least-squares Monte Carlo on random features as it is usually written down, in a few lines of
NumPy. A side that does not get there counts with its largest size, which the line says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import Claim
from mixtune_options import BlackScholes, MaxCall, Put, TimeGrid, price

PUT = {"spot": 36.0, "strike": 40.0, "rate": 0.06, "volatility": 0.2}
PUBLISHED, ASSETS = 26.15, 5
SIZES = (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000)

#: From paths and a seed to a price and its standard error.
Pricer = Callable[[int, int], tuple[float, float]]


def our_put(paths: int, seed: int) -> tuple[float, float]:
    grid = TimeGrid(maturity=1.0, dates=50, rate=PUT["rate"])
    result = price(
        BlackScholes(spot=PUT["spot"], volatility=PUT["volatility"]), Put(PUT["strike"]), grid, paths=paths, seed=seed
    )
    return result.price, result.standard_error


def quantlib_put(paths: int, seed: int) -> tuple[float, float]:
    import QuantLib as ql

    today = ql.Date(15, 6, 2026)
    ql.Settings.instance().evaluationDate = today
    curve = lambda x: ql.YieldTermStructureHandle(ql.FlatForward(today, x, ql.Actual365Fixed()))  # noqa: E731
    flat = ql.BlackConstantVol(today, ql.NullCalendar(), PUT["volatility"], ql.Actual365Fixed())
    spot = ql.QuoteHandle(ql.SimpleQuote(PUT["spot"]))
    market = ql.BlackScholesMertonProcess(spot, curve(0.0), curve(PUT["rate"]), ql.BlackVolTermStructureHandle(flat))
    exercise = ql.AmericanExercise(today, today + ql.Period(365, ql.Days))
    option = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, PUT["strike"]), exercise)
    how = {"timeSteps": 50, "antitheticVariate": True, "controlVariate": True, "nCalibrationSamples": 4096}
    option.setPricingEngine(ql.MCAmericanEngine(market, "pseudorandom", requiredSamples=paths, seed=seed + 1, **how))
    return option.NPV(), option.errorEstimate()


def our_max_call(paths: int, seed: int) -> tuple[float, float]:
    market = BlackScholes(spot=100.0, volatility=0.2, dividend=0.1, n_assets=ASSETS)
    result = price(market, MaxCall(100.0), TimeGrid(maturity=3.0, dates=9, rate=0.05), paths=paths, seed=seed)
    return result.price, result.standard_error


def plain_max_call(paths: int, seed: int, width: int = 100) -> tuple[float, float]:
    """Random ReLU features of the scaled prices, least squares on paths in the money, fresh paths to evaluate."""
    rng, dates, dt = np.random.default_rng(seed), 9, 3.0 / 9
    weights, bias = rng.standard_normal((ASSETS, width)) / ASSETS**0.5, rng.standard_normal(width)

    def draw() -> tuple[np.ndarray, np.ndarray]:
        Z = rng.standard_normal((dates, paths, ASSETS))
        prices = 100.0 * np.exp(np.cumsum((0.05 - 0.1 - 0.02) * dt + 0.2 * dt**0.5 * Z, axis=0))
        discount = np.exp(-0.05 * dt * np.arange(1, dates + 1))[:, None]
        return prices, discount * np.maximum(prices.max(axis=2) - 100.0, 0.0)

    def features(prices: np.ndarray) -> np.ndarray:
        hidden = np.maximum((prices / 100.0 - 1.0) / 0.3 @ weights + bias, 0.0)
        return np.concatenate([hidden, np.ones((len(prices), 1))], axis=1)

    prices, payoffs = draw()
    flows, coefs = payoffs[-1].copy(), {}
    for date in range(dates - 2, -1, -1):
        inside = payoffs[date] > 0
        U = features(prices[date, inside])
        gram = U.T @ U
        coefs[date] = np.linalg.solve(gram + 1e-8 * np.trace(gram) * np.eye(len(gram)), U.T @ flows[inside])
        stop = payoffs[date, inside] > U @ coefs[date]
        flows[np.flatnonzero(inside)[stop]] = payoffs[date, inside][stop]
    prices, payoffs = draw()
    flows = payoffs[-1].copy()
    for date in range(dates - 2, -1, -1):
        stop = (payoffs[date] > features(prices[date]) @ coefs[date]) & (payoffs[date] > 0)
        flows = np.where(stop, payoffs[date], flows)
    return float(flows.mean()), float(flows.std() / paths**0.5)


def cost(pricer: Pricer, good: Callable[[float, float], bool], seeds: int) -> tuple[float, str]:
    """CPU seconds of one run at the first size that is good, or at the last size, and what it found."""
    for paths in SIZES:
        begin = time.process_time()
        found = np.array([pricer(paths, seed) for seed in range(seeds)])
        spent = (time.process_time() - begin) / seeds
        mean, error = found[:, 0].mean(), found[:, 1].mean()
        if good(mean, error):
            break
    short = "" if good(mean, error) else ", not there yet"
    return spent, f"{paths} paths {mean:.4f} +- {error:.4f}{short}"


def measure(seeds: int = 5) -> Iterator[Claim]:
    with threadpool_limits(limits=1):
        our_put(500, 0)  # imports
        try:
            quantlib_put(500, 0)
        except ImportError:
            pass
        else:
            accurate = lambda mean, error: error <= 0.001 * mean  # noqa: E731
            ours, theirs = (cost(pricer, accurate, seeds) for pricer in (our_put, quantlib_put))
            note = f"; {ours[1]} against {theirs[1]}"
            yield Claim("CPU of a put to a standard error of 0.1% / QuantLib's", ours[0], theirs[0], 1 / 20, note)
        close = lambda mean, error: mean >= 0.995 * PUBLISHED and error <= 0.0025 * PUBLISHED  # noqa: E731
        ours, theirs = (cost(pricer, close, seeds) for pricer in (our_max_call, plain_max_call))
        note = f"; {ours[1]} against {theirs[1]}"
        yield Claim("CPU of a max-call within 0.5% / plain NumPy's", ours[0], theirs[0], 1 / 3, note)
