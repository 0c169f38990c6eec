"""One door to the solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from mixtune.errors import ParameterError
from mixtune.regret._closed_form import closed_form
from mixtune.regret._problem import RegretProblem
from mixtune.regret._solution import RegretSolution
from mixtune.regret.reference import accelerated, riccati

__all__ = ["solve"]

METHODS: dict[str, Callable[[RegretProblem], RegretSolution]] = {
    "closed-form": closed_form,
    "riccati": riccati,
    "accelerated": accelerated,
}


def solve(
    problem: RegretProblem, *, method: Literal["closed-form", "riccati", "accelerated"] = "closed-form"
) -> RegretSolution:
    """The unique regret-optimal algorithm for ``problem``.

    Parameters
    ----------
    problem : RegretProblem
    method : {"closed-form", "riccati", "accelerated"}
        "closed-form": one p x p (or n x n) solve. "riccati": the paper's Algorithm 2, dense, for small problems.
        "accelerated": its Algorithm 3, exact at equal weights and a heuristic elsewhere.

    Returns
    -------
    RegretSolution

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, RegretProblem, solve
    >>> rng = np.random.default_rng(1)
    >>> moments = [Moments.from_rows(rng.standard_normal((8, 2)), rng.standard_normal(8)) for _ in range(3)]
    >>> problem = RegretProblem(
    ...     moments=moments, weights=[0.5, 0.3, 0.2], ridge=1.0, transfer=0.5, stability=1.0, horizon=4
    ... )
    >>> bool(np.allclose(solve(problem).coef, solve(problem, method="riccati").coef))
    True
    """
    if not isinstance(problem, RegretProblem):
        raise ParameterError(f"solve takes a RegretProblem; got a {type(problem).__name__}")
    if method not in METHODS:
        raise ParameterError(f"unknown method {method!r}; choose from {', '.join(METHODS)}")
    return METHODS[method](problem)
