"""One door: which way a problem is solved, said in the solution, and forced where asked for."""

from copy import copy

import numpy as np
import pytest
from hypothesis import given, settings

from mixtune import Moments, RegretProblem, solve
from mixtune.errors import ParameterError
from problems import make_arguments, make_problem, problem_options


@settings(max_examples=50)
@given(problem_options())
def test_iterative_solutions_are_the_direct_ones(options):
    problem = make_problem(**options)
    direct, walked = (solve(problem, solver=solver, tolerance=1e-12) for solver in ("direct", "iterative"))
    if problem.horizon == 0:
        assert direct.stats is walked.stats is None
    else:
        assert walked.stats.method == "conjugate gradients"
        assert direct.stats.method in ("primal cholesky", "dual cholesky")
        assert direct.stats.residual is None
    scale = 1e-7 * (1 + np.abs(direct.heads).max())
    np.testing.assert_allclose(walked.heads, direct.heads, rtol=1e-6, atol=scale)
    assert walked.energy == pytest.approx(direct.energy, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(("p", "method"), [(4, "primal cholesky"), (60, "dual cholesky")])
def test_stats_say_what_was_done(p, method):
    stats = solve(make_problem(p=p)).stats
    assert (stats.method, stats.iterations, stats.rank) == (method, 0, 0)
    assert stats.flops > 0
    assert stats.bytes == 8 * min(p, 25) ** 2 * (2 if p == 4 else 3)
    walked = solve(make_problem(p=p), solver="iterative").stats
    assert walked.iterations > 0
    assert 0 <= walked.residual <= 1e-10
    assert walked.error_bound < 1e-6


def test_the_effective_ridge_is_that_of_the_method():
    """For equal weights all methods solve the same problem; otherwise Algorithm 3 solves that of equal weights."""
    problem = make_problem(stability=2.0)
    equal = problem.replaced(weights=[1 / 3] * 3)
    ridge = {method: solve(problem, method=method).effective_ridge for method in ("closed-form", "riccati")}
    assert ridge["riccati"] == ridge["closed-form"]
    for method in ("closed-form", "riccati", "accelerated"):
        assert solve(equal, method=method).effective_ridge == pytest.approx(
            3 * ridge["riccati"] * problem.weight_square
        )
    assert solve(problem, method="accelerated").effective_ridge == pytest.approx(solve(equal).effective_ridge)


def test_singular_matrices_are_named():
    rows, arguments = make_arguments(p=3)
    moments = [Moments.from_rows(np.hstack([U, U]), y) for U, y in rows]
    problem = RegretProblem(**{**arguments, "moments": moments, "transfer": 0.0, "stability": 0.0})
    assert solve(problem).stats.method == "eigenbasis"


def test_kept_rows_of_several_domains():
    rows, arguments = make_arguments(sizes=(30, 40), p=10, outputs=2)
    kept = [Moments.from_rows(U.astype(np.float32), Y, keep_rows=True) for U, Y in rows]
    usual = [Moments.from_rows(U.astype(np.float32), Y) for U, Y in rows]
    ours, theirs = (RegretProblem(**{**arguments, "moments": moments}) for moments in (kept, usual))
    for solver in ("auto", "direct", "iterative"):
        np.testing.assert_allclose(solve(ours, solver=solver).coef, solve(theirs).coef, rtol=1e-8)
    assert all("gram" not in m.__dict__ for m in kept)
    assert solve(ours).regret == pytest.approx(solve(theirs).regret)


def test_other_methods_have_no_solver():
    problem = make_problem()
    assert solve(problem, method="riccati").stats is None
    for option in ({"solver": "iterative"}, {"tolerance": 1e-3}, {"memory_limit": "1 GB"}):
        with pytest.raises(ParameterError, match='belong to method="closed-form"'):
            solve(problem, method="riccati", **option)
    with pytest.raises(ParameterError, match="solver must be one of"):
        solve(problem, solver="qr")
    with pytest.raises(ParameterError, match="too little"):
        solve(problem, memory_limit=10)


@pytest.mark.parametrize("keep_rows", [False, True])
def test_inner_products_of_the_heads_serve_the_sum(keep_rows):
    rng = np.random.default_rng(4)
    rows = [(rng.standard_normal((n, 40)), rng.standard_normal(n)) for n in (9, 12, 6)]
    fresh, used = ([Moments.from_rows(U, y, keep_rows=keep_rows) for U, y in rows] for _ in range(2))
    heads = [m.head(ridge=0.1) for m in used]
    assert [m.kernel is None for m in (*used, *fresh)] == [keep_rows] * 3 + [True] * 3
    np.testing.assert_allclose([m.head(ridge=2.0) for m in used], [m.head(ridge=2.0) for m in map(copy, fresh)])
    options = {"weights": [0.5, 0.3, 0.2], "heads": heads, "transfer": 0.1, "stability": 1.0, "horizon": 3}
    solutions = [solve(RegretProblem(moments=each, **options)) for each in (fresh, used)]
    np.testing.assert_allclose(solutions[0].coef, solutions[1].coef, rtol=1e-10)
