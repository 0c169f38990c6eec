"""Claims on a CUDA device: 100 runs of the paper's Table 1 take at most 3 s, 10 s with the tuned methods.

The runs are those of `mixtune reproduce table1 --device cuda`. NumPy draws the normals, the device does the rest, and
the prices are stored. Prices are those of the CPU: they may differ by more than rounding only where payoff and
continuation value are equal to the last digits, so that a path stops on one side and not on the other. Without a CUDA
device nothing is measured.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial

from benchmarks.timing import Claim
from mixtune_paper import ResultsStore, run_study
from mixtune_paper._study import execute, run_seed
from mixtune_paper.american import TABLE1, run_together

Prices = dict[str, list[float]]


def on_device(device: str, runs: int, *, tuned: bool) -> tuple[float, Prices]:
    """Seconds of a study, and its prices."""
    study = dataclasses.replace(TABLE1, together=partial(run_together, tuned=tuned))
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run_study(study, out=folder, runs=runs, device=device)
        seconds = time.perf_counter() - begin
        with ResultsStore(folder) as store:
            rows = store.rows(TABLE1.name, runs)
    return seconds, {method: [row["price"] for row in found] for method, found in rows.items()}


def on_cpu(runs: int) -> Prices:
    """The same prices in NumPy, one process a core; methods with Wasserstein weights are left out there, too."""
    settings = dataclasses.replace(TABLE1.settings, temperatures=())
    seeds = {run: run_seed(0, run) for run in range(runs)}
    found = {run: outcome for run, outcome, _ in execute(TABLE1.run, settings, seeds, jobs=os.cpu_count() or 1)}
    return {method: [found[run].rows[method]["price"] for run in range(runs)] for method in found[0].rows}


def measure(runs: int = 100, compared: int = 16, device: str = "cuda") -> Iterator[Claim]:
    try:
        import torch
    except ImportError:
        return
    if device == "cuda" and not torch.cuda.is_available():
        return
    first, there = on_device(device, compared, tuned=True)  # also loads the device's libraries
    here = on_cpu(compared)
    apart = max(abs(a / b - 1) for method in here for a, b in zip(there[method], here[method], strict=True))
    note = f"; {len(here)} methods x {compared} runs"
    yield Claim("Table 1 on the device against the CPU, largest relative difference / 1e-9", apart, 1e-9, 1.0, note, "")
    name = torch.cuda.get_device_name(0) if device == "cuda" else device
    for tuned, limit, rows in ((False, 3.0, ""), (True, 10.0, " with the tuned methods")):
        seconds = min(on_device(device, runs, tuned=tuned)[0] for _ in range(3))
        note = f"; best of three studies of {runs} runs"
        note += "" if tuned else f", after one of {compared} that took {first:.1f} s with loading"
        yield Claim(f"Table 1{rows}, 100 runs, {name} / {limit:.0f} s", seconds * 100 / runs, limit, 1.0, note)


if __name__ == "__main__":
    for claim in measure():
        print(claim)
