"""One door to the solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from mixtune.errors import ParameterError
from mixtune.moments import AUTO, SolverOptions
from mixtune.regret._closed_form import closed_form
from mixtune.regret._problem import RegretProblem
from mixtune.regret._solution import RegretSolution
from mixtune.regret.reference import accelerated, riccati

__all__ = ["solve"]

REFERENCES: dict[str, Callable[[RegretProblem], RegretSolution]] = {"riccati": riccati, "accelerated": accelerated}
METHODS = ("closed-form", *REFERENCES)


def solve(
    problem: RegretProblem,
    *,
    method: Literal["closed-form", "riccati", "accelerated"] = "closed-form",
    solver: Literal["auto", "direct", "iterative"] = "auto",
    tolerance: float = 1e-10,
    memory_limit: int | str | None = None,
) -> RegretSolution:
    """The unique regret-optimal algorithm for ``problem``.

    Parameters
    ----------
    problem : RegretProblem
    method : {"closed-form", "riccati", "accelerated"}
        "closed-form": one p x p (or n x n) solve. "riccati": the paper's Algorithm 2, dense, for small problems.
        "accelerated": its Algorithm 3, exact at equal weights and a heuristic elsewhere.
    solver : {"auto", "direct", "iterative"}
        How the closed form's one ridge problem is solved. "direct": a Cholesky factor of the p x p matrix or of its
        n x n dual, whichever is cheaper. "iterative": conjugate gradients with a random sketch as preconditioner, for
        features so wide that neither should be formed; keep the rows then (``Moments.from_rows(..., keep_rows=True)``).
        "auto": the cheapest that fits into memory, by operations counted beforehand; ``solution.stats`` says which.
    tolerance : float
        Relative residual at which conjugate gradients stop.
    memory_limit : int or str, optional
        What the solver may take beside the data, such as "4 GB"; half the memory of the machine by default.

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
    >>> solve(problem).stats.method, solve(problem, solver="iterative").stats.method
    ('primal cholesky', 'conjugate gradients')
    """
    if not isinstance(problem, RegretProblem):
        raise ParameterError(f"solve takes a RegretProblem; got a {type(problem).__name__}")
    if method not in METHODS:
        raise ParameterError(f"unknown method {method!r}; choose from {', '.join(METHODS)}")
    options = SolverOptions(solver, tolerance, memory_limit)
    if method == "closed-form":
        return closed_form(problem, options)
    if options != AUTO:
        raise ParameterError(f'solver, tolerance and memory_limit belong to method="closed-form"; got {method!r}')
    return REFERENCES[method](problem)
