"""Claim: one whole run of Table 1 (all methods) costs a small part of ONE regret-optimal method done densely.

The dense twin follows the paper's text: at every exercise date it stacks the 13 heads of 301 features into one vector,
builds the 3913 x 3913 matrix of Algorithm 2 and inverts it. Both sides price the same paths and must agree. Ours has
one thread of linear algebra, as a run of a study has; the dense one has all of them.

A second claim: 100 runs with the tuned methods, in two processes, take at most 180 s. By default this is estimated from
one run; with --full all runs are made, as `mixtune reproduce table1` does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import Claim, seconds
from mixtune_paper import run_study
from mixtune_paper.american import TABLE1, TableSettings, draw_run, run_beyond, run_table


def dense_price(seed: int, *, sharing: float = 100.0, settings: TableSettings = TABLE1.settings) -> float:
    """RO (eta = sharing) by loops and dense matrices."""
    run = draw_run(settings, seed)
    datasets = [*run.training, run.evaluation]
    values = [d.payoffs[:, -1].copy() for d in datasets]
    for date in range(settings.dates - 1, 0, -1):
        features = [run.state.features(d, date) for d in datasets]
        U, Y = features[:-1], values[:-1]
        p = U[0].shape[1]
        heads = [np.linalg.solve(u.T @ u + settings.ridge * np.eye(p), u.T @ y) for u, y in zip(U, Y)]
        scores = np.array([np.mean((Y[0] - U[0] @ head) ** 2) for head in heads])
        raw = np.exp((scores - scores[0]) / sharing) * np.maximum(0, scores[0] + sharing - scores)
        w = raw / raw.sum()
        mixing = np.kron(w, np.eye(p))  # [w_1 I, ..., w_N I]
        P = mixing.T @ sum(wi * u.T @ u for wi, u in zip(w, U)) @ mixing
        S = -mixing.T @ sum(wi * u.T @ y for wi, u, y in zip(w, U, Y))
        theta = np.concatenate(heads)
        inverse = np.linalg.inv((settings.transfer + settings.stability) * np.eye(len(theta)) + P)
        coef = mixing @ (theta - inverse @ (P @ theta + S))
        for d, u, value in zip(datasets, features, values):
            stop = d.payoffs[:, date] > u @ coef
            value[stop] = d.payoffs[stop, date]
    return max(float(values[-1].mean()), float(run.evaluation.payoffs[0, 0]))


def measure(seed: int = 0, *, full: bool = False) -> Iterator[Claim]:
    with threadpool_limits(limits=1):
        run_table(TABLE1.settings, seed)  # warm up
        begin = time.perf_counter()
        ours = run_table(TABLE1.settings, seed)
        middle = time.perf_counter()
    dense = dense_price(seed)
    end = time.perf_counter()
    mine = ours.rows["RO (eta=100)"]["price"]
    if abs(mine - dense) > 1e-6 * dense:
        raise RuntimeError(f"the twins disagree: {mine} against {dense}")
    note = f"; both price RO (eta=100) at {mine:.6f}"
    yield Claim(f"Table 1, {len(ours.rows)} methods / one dense method", middle - begin, end - middle, 0.2, note)
    with threadpool_limits(limits=1):
        whole = 50 * seconds(lambda: run_beyond(TABLE1.settings, seed), rounds=2)
    yield Claim("Table 1, all rows, 100 runs in two processes, each as this one / 180 s", whole, 180.0, 1.0)
    if full:
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            run_study(TABLE1, out=folder, jobs=2)
            whole = time.perf_counter() - begin
        yield Claim("Table 1, all rows, 100 runs in two processes / 180 s", whole, 180.0, 1.0)
