"""Random problems for tests: Hypothesis draws the sizes and settings, a seeded generator the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from mixtune import Moments, RegretProblem


def make_rows(rng, n, p, outputs):
    shape = (n,) if outputs is None else (n, outputs)
    return rng.standard_normal((n, p)), rng.standard_normal(shape)


def make_arguments(
    seed=0,
    *,
    sizes=(8, 5, 12),
    p=4,
    outputs=None,
    transfer=0.5,
    stability=1.0,
    horizon=6,
    ridge=0.5,
    zero_weight=False,
    start=None,
    reference=None,
) -> tuple[list[Any], dict[str, Any]]:
    """Rows and RegretProblem arguments; start and reference: None, "own" (a head each) or "one" (for all)."""
    rng = np.random.default_rng(seed)
    rows = [make_rows(rng, n, p, outputs) for n in sizes]
    weights = rng.dirichlet(np.ones(len(sizes)))
    if zero_weight and len(sizes) > 1:
        weights[-1] = 0.0
        weights /= weights.sum()
    head = (p,) if outputs is None else (p, outputs)
    shapes = {"own": (len(sizes), *head), "one": head}
    extra = {
        name: rng.standard_normal(shapes[kind])
        for name, kind in (("start", start), ("reference", reference))
        if kind is not None
    }
    arguments = {
        "moments": [Moments.from_rows(U, Y) for U, Y in rows],
        "weights": weights,
        "ridge": ridge,
        "transfer": transfer,
        "stability": stability,
        "horizon": horizon,
        **extra,
    }
    return rows, arguments


def make_problem(seed=0, **options) -> RegretProblem:
    return RegretProblem(**make_arguments(seed, **options)[1])


@st.composite
def problem_options(draw, *, max_horizon=50):
    """N 1..6, p 1..12, unequal n, zero weights, lambda = 0, beta = 0 (not both), T 0..50, any start and reference."""
    transfer = draw(st.sampled_from([0.0, 1e-3, 0.3, 2.0, 50.0]))
    stability = draw(st.sampled_from([0.0, 0.05, 1.0, 20.0]))
    if transfer + stability == 0:
        transfer = 1.0
    kinds = st.sampled_from([None, "own", "one"])
    return {
        "seed": draw(st.integers(0, 10**6)),
        "sizes": tuple(draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))),
        "p": draw(st.integers(1, 12)),
        "outputs": draw(st.sampled_from([None, 1, 3])),
        "transfer": transfer,
        "stability": stability,
        "horizon": draw(st.integers(0, max_horizon)),
        "ridge": draw(st.sampled_from([0.0, 0.1, 1.0, 10.0])),
        "zero_weight": draw(st.booleans()),
        "start": draw(kinds),
        "reference": draw(kinds),
    }


def condition(problem: RegretProblem) -> float:
    """How much rounding the problem itself may amplify: cond of A + r I."""
    gram = sum(w * m.gram for w, m in zip(problem.weights, problem.moments))
    ridge = (problem.transfer + problem.stability / max(problem.horizon, 1)) / problem.weight_square
    values = np.linalg.eigvalsh(gram)
    return (values[-1] + ridge) / (max(values[0], 0.0) + ridge)
