"""Claim: looking at all pairs of two samples on a CUDA device takes at most 0.1 of the time it takes with NumPy.

That look (the c-transforms of both potentials, and the pairs worth considering) is what a certified bracket of a large
pair spends its time on. Both sides must find the same minima. Where POT is installed, the whole bracket as well.
Without a CUDA device nothing is measured.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import Claim, best_of
from mixtune import wasserstein_distance
from mixtune.weights._transport_bounds import Priced, price


def draw(n: int, d: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((n, d)) + 0.5 / np.sqrt(d)


def look(X: np.ndarray, Y: np.ndarray, home: Any) -> Priced:
    """All pairs under the potentials that would be right if only the first coordinate mattered."""
    return price(X, Y, X[:, 0], -Y[:, 0], rng=np.random.default_rng(0), home=home)


def measure(n: int = 20_000, large: int = 100_000) -> Iterator[Claim]:
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    home = torch.ones(1, device="cuda")
    for d in (10, 50):
        calls = partial(look, *draw(n, d), home), partial(look, *draw(n, d), None)
        there, here = (call() for call in calls)
        apart = float(np.abs(there.row_minimum - here.row_minimum).max())
        yield Claim(f"minima of {n} x {n} pairs, d = {d}, device against NumPy / 1e-5", apart, 1e-5, 1.0, unit="")
        ours, numpy = best_of(*calls, rounds=2)
        yield Claim(f"all {n} x {n} pairs, d = {d}: CUDA / NumPy", ours, numpy, 0.1)
    X, Y = draw(large, 10)
    begin = time.perf_counter()
    look(X, Y, home)
    yield Claim(f"all {large} x {large} pairs, d = 10, CUDA / 2 s", time.perf_counter() - begin, 2.0, 1.0)
    if importlib.util.find_spec("ot") is None:
        return
    A, B = (torch.asarray(Z, device="cuda") for Z in draw(n, 10))
    begin = time.perf_counter()
    found = wasserstein_distance(A, B, method="bracket")
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    same = wasserstein_distance(*draw(n, 10), method="bracket")
    note = f"; gaps {found.gap / found.upper:.1e} and {same.gap / same.upper:.1e}"
    yield Claim(f"bracket of {n} x {n} rows, d = 10: CUDA / NumPy", seconds, time.perf_counter() - begin, 1.0, note)
