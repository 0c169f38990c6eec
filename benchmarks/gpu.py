"""Claims on a CUDA device: moments + solve of 4,000,000 rows of 4096 random features in float64 take at most 3.2 s.

Features are computed on the fly, block by block. The same code on the CPU, on a few rows, must give the same solution.
A whole `RegretOptimalRegressor(device="cuda").fit` of 400,000 rows in five domains takes at most 1.5 s, and a tuned fit
of 162,000 rows with 1,024 columns in nine domains at most 2 s. Without a CUDA device nothing is measured.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.timing import Claim
from benchmarks.tuning_cost import drawn
from mixtune import EqualWeights, Moments, RandomFeatures, RegretProblem, solve


def _blocks(torch: Any, phi: RandomFeatures, device: str, rows: int, block: int, seed: int) -> Iterator[Any]:
    generator = torch.Generator(device="cpu").manual_seed(seed)
    width = phi.n_inputs
    base = torch.randn(block, width, dtype=torch.float64, generator=generator).to(device)
    head = torch.randn(width, dtype=torch.float64, generator=generator).to(device)
    for start in range(0, rows, block):
        # Rows that differ between blocks without waiting for a random generator.
        X = base[: min(block, rows - start)] * (1.0 + start / rows)
        yield phi.transform(X), torch.tanh(X @ head)


def fit(torch: Any, device: str, *, rows: int, width: int, block: int, domains: int = 2) -> Any:
    """Moments of every domain, heads, equal weights, the regret-optimal solution."""
    phi = RandomFeatures(n_inputs=32, width=width, activation="tanh", seed=0)
    moments = [
        Moments.from_blocks(_blocks(torch, phi, device, rows // domains, block, seed)) for seed in range(domains)
    ]
    weights = EqualWeights().weigh(moments=moments)
    problem = RegretProblem(moments=moments, weights=weights, ridge=1.0, transfer=1.0, stability=1.0, horizon=10)
    return solve(problem).coef


def estimate(device: str, *, rows: int, width: int, domains: int = 4) -> tuple[float, np.ndarray]:
    """Seconds of a whole fit of the estimator, a fiftieth of its rows focal, and predictions for other rows."""
    from mixtune import RegretOptimalRegressor

    rng = np.random.default_rng(0)
    head = rng.standard_normal(32) / 32**0.5

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.standard_normal((count, 32))
        return X, np.tanh(X @ head) + 0.1 * rng.standard_normal(count)

    X, y = draw(rows // 50)
    sources = {str(k): draw((rows - len(X)) // domains) for k in range(domains)}
    phi = RandomFeatures(n_inputs=32, width=width, activation="tanh", constant=False, seed=0)
    begin = time.perf_counter()
    model = RegretOptimalRegressor(phi, device=device).fit(X, y, sources=sources)
    return time.perf_counter() - begin, model.predict(draw(1000)[0])


def measure_estimator(name: str, rows: int = 400_000, width: int = 4096) -> Iterator[Claim]:
    small = {"rows": 20_000, "width": 512}
    (_, there), (_, here) = (estimate(device, **small) for device in ("cuda", "cpu"))
    apart = float(np.max(np.abs(there - here)) / np.max(np.abs(here)))
    yield Claim("estimator on the device against CPU, largest relative difference / 1e-8", apart, 1e-8, 1.0, unit="")
    # The first fit of a process also starts the libraries of the device.
    seconds = min(estimate("cuda", rows=rows, width=width)[0] for _ in range(3))
    yield Claim(f"RegretOptimalRegressor.fit, n = {rows}, p = {width}, float64, {name} / 1.5 s", seconds, 1.5, 1.0)


def tune(device: str, *, width: int, sources: int, rows: int, focal: int) -> tuple[float, np.ndarray]:
    """Seconds of a tuned fit, and its predictions for some focal rows."""
    from mixtune import RegretOptimalRegressorCV

    (X, y), others = drawn(width, sources, rows, focal)
    begin = time.perf_counter()
    model = RegretOptimalRegressorCV(feature_map=None, device=device).fit(X, y, sources=others)
    return time.perf_counter() - begin, model.predict(X[:1000])


def measure_tuned(name: str) -> Iterator[Claim]:
    size = {"width": 1024, "sources": 8, "rows": 20_000, "focal": 2_000}
    here = tune("cpu", **size)[1]
    found = [tune("cuda", **size) for _ in range(3)]
    apart = max(float(np.max(np.abs(there - here)) / np.max(np.abs(here))) for _, there in found)
    yield Claim("tuned fit on the device against CPU, largest relative difference / 1e-8", apart, 1e-8, 1.0, unit="")
    about = "RegretOptimalRegressorCV.fit, p = 1024, 8 sources x 20,000 rows, 2,000 focal rows"
    yield Claim(f"{about}, {name} / 1.5 s", min(seconds for seconds, _ in found), 1.5, 1.0)


def measure(rows: int = 4_000_000, width: int = 4096, block: int = 100_000) -> Iterator[Claim]:
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    small = {"rows": 20_000, "width": 512, "block": 5_000}
    there, here = fit(torch, "cuda", **small).cpu().numpy(), fit(torch, "cpu", **small).numpy()
    apart = float(np.max(np.abs(there - here)) / np.max(np.abs(here)))
    yield Claim("device against CPU, largest relative difference / 1e-9", apart, 1e-9, 1.0, unit="")
    fit(torch, "cuda", rows=2 * block, width=width, block=block)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    fit(torch, "cuda", rows=rows, width=width, block=block)
    torch.cuda.synchronize()
    name = torch.cuda.get_device_name(0)
    seconds = time.perf_counter() - begin
    yield Claim(f"moments + solve, n = {rows}, p = {width}, float64, {name} / 3.2 s", seconds, 3.2, 1.0)
    if importlib.util.find_spec("sklearn") is not None:
        yield from measure_estimator(name)
        yield from measure_tuned(name)
