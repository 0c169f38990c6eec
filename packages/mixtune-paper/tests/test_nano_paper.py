"""The paper in one file against the package: weights, iterates, energy and regret."""

import ast
from pathlib import Path

import numpy as np
import pytest

from mixtune import Moments, RegretProblem, WassersteinWeights, solve
from mixtune_paper import nano_paper as nano

COSTS = [(0.5, 1.5, 4), (0.0, 1.0, 7), (2.0, 0.0, 3), (1e-4, 1.0, 25), (3.0, 2.0, 1)]


@pytest.fixture(params=range(3))
def data(request):
    """Inputs, targets, heads and weights of three to five datasets."""
    rng = np.random.default_rng(request.param)
    sizes = rng.integers(3, 12, 3 + request.param)
    U = [rng.standard_normal((n, 4)) for n in sizes]
    Y = [u @ rng.standard_normal(4) + 0.3 * rng.standard_normal(len(u)) for u in U]
    heads = np.stack([nano.theta_star(u, y, 0.7) for u, y in zip(U, Y)])
    return U, Y, heads, rng.dirichlet(np.ones(len(U)))


def problem_of(U, Y, heads, w, lam, beta, T, **more):
    moments = [Moments.from_rows(u, y) for u, y in zip(U, Y)]
    return RegretProblem(moments=moments, weights=w, heads=heads, transfer=lam, stability=beta, horizon=T, **more)


def test_algorithm_1(data):
    X, Y, _, _ = data
    clouds = [np.column_stack([x, y]) for x, y in zip(X, Y)]
    for eta, gamma in ((np.inf, 1.0), (np.inf, 0.0), (2.0, 3.0)):
        rule = WassersteinWeights(gamma, eta, rescale=False, floor=False)
        np.testing.assert_allclose(nano.algorithm_1(X, Y, eta, gamma), rule.weigh_clouds(clouds).values, atol=1e-9)


def test_local_heads(data):
    U, Y, heads, _ = data
    for u, y, head in zip(U, Y, heads):
        np.testing.assert_allclose(Moments.from_rows(u, y).head(0.7), head, rtol=1e-9)


@pytest.mark.parametrize(("lam", "beta", "T"), COSTS)
def test_algorithm_2_energy_and_regret(data, lam, beta, T):
    U, Y, heads, w = data
    Theta = nano.algorithm_2(U, Y, w, heads, lam, beta, T)
    solution = solve(problem_of(U, Y, heads, w, lam, beta, T))
    np.testing.assert_allclose(Theta, solution.heads_at(np.arange(T + 1)), atol=1e-9)
    assert nano.energy(U, Y, w, Theta, heads, lam, beta) == pytest.approx(solution.energy)
    assert nano.regret(U, Y, w, Theta, heads, lam, beta) == pytest.approx(solution.regret, rel=1e-6)
    assert nano.loss(U, Y, w, Theta[-1]) == pytest.approx(solution.loss)


@pytest.mark.parametrize(("lam", "beta", "T"), COSTS)
def test_algorithm_3(data, lam, beta, T):
    U, Y, heads, _ = data
    equal = np.full(len(U), 1 / len(U))
    theta = nano.algorithm_3(U, Y, heads, lam, beta, T)
    solution = solve(problem_of(U, Y, heads, equal, lam, beta, T, reference=heads.mean(axis=0)), method="accelerated")
    np.testing.assert_allclose(theta, solution.heads_at(np.arange(T + 1)), atol=1e-9)
    assert nano.energy(U, Y, equal, theta, heads.mean(axis=0), lam, beta) == pytest.approx(solution.energy)


def test_other_paths_have_more_energy(data):
    U, Y, heads, w = data
    best = nano.algorithm_2(U, Y, w, heads, 0.5, 1.5, 4)
    least = nano.energy(U, Y, w, best, heads, 0.5, 1.5)
    rng = np.random.default_rng(9)
    for _ in range(5):
        moved = best + np.concatenate([np.zeros((1, *heads.shape)), 0.01 * rng.standard_normal((4, *heads.shape))])
        assert nano.energy(U, Y, w, moved, heads, 0.5, 1.5) > least


def test_it_stays_one_short_file():
    """At most 150 ordinary lines, and nothing of the package."""
    text = Path(nano.__file__).read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 120
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    roots = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0] for node in imported
    }
    assert roots == {"numpy", "scipy"}
