"""Gradient descent through the eigenbasis against a plain loop, and its stability limit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixtune import Moments, RegretProblem, descend, solve
from mixtune.errors import ConvergenceError, ParameterError
from problems import make_problem, problem_options


def largest_eigenvalue(problem):
    return np.linalg.eigvalsh(sum(w * m.gram for w, m in zip(problem.weights, problem.moments)))[-1]


def stability_limit(problem):
    return 1 / (problem.weight_square * largest_eigenvalue(problem))


def plain_loop(problem, rate, steps):
    """Heads, losses and energies by taking every step."""
    gram = sum(w * m.gram for w, m in zip(problem.weights, problem.moments))
    cross = sum(w * m.cross.reshape(len(gram), -1) for w, m in zip(problem.weights, problem.moments))
    theta, reference = problem.as_matrices(problem.start).copy(), problem.as_matrices(problem.reference)
    heads, losses, energies, running = [], [], [], 0.0
    for _ in range(steps + 1):
        coef = np.tensordot(problem.weights, theta, axes=(0, 0))
        loss = sum(w * m.loss(problem.as_given(coef)) for w, m in zip(problem.weights, problem.moments))
        heads.append(problem.as_given(theta))
        losses.append(loss)
        energies.append(running + loss)
        after = theta - 2 * rate * problem.weights[:, None, None] * (gram @ coef - cross)
        running += problem.transfer * np.sum((after - reference) ** 2)
        running += problem.stability * np.sum((after - theta) ** 2)
        theta = after
    return np.array(heads), np.array(losses), np.array(energies)


@settings(max_examples=60)
@given(problem_options(), st.sampled_from([1e-9, 0.01, 0.5, 0.75, 0.999]), st.integers(0, 40))
def test_equals_a_plain_loop(options, share, steps):
    problem = make_problem(**options)
    rate = share * stability_limit(problem)
    heads, losses, energies = plain_loop(problem, rate, steps)
    solution, t = descend(problem, learning_rate=rate, steps=steps), np.arange(steps + 1)
    scale = max(1.0, energies.max())
    np.testing.assert_allclose(solution.heads_at(t), heads, atol=1e-9 * max(1.0, np.abs(heads).max()))
    np.testing.assert_allclose(solution.loss_at(t), losses, atol=1e-9 * scale)
    np.testing.assert_allclose(solution.energy_at(t), energies, rtol=1e-9, atol=1e-9 * scale)
    assert solution.effective_ridge is None
    assert solution.method == "descent"


def test_a_billion_steps_reach_least_squares():
    problem = make_problem(0, sizes=(20, 20), p=4)
    rate = 0.9 * stability_limit(problem)
    solution = descend(problem, learning_rate=rate, steps=10**9)
    gram = sum(w * m.gram for w, m in zip(problem.weights, problem.moments))
    cross = sum(w * m.cross for w, m in zip(problem.weights, problem.moments))
    np.testing.assert_allclose(solution.coef, np.linalg.solve(gram, cross), atol=1e-10)
    assert solution.loss == pytest.approx(solve(problem).ideal_loss)
    assert np.isfinite(solution.energy)


@pytest.mark.parametrize("transfer", [0.0, 0.7])
def test_small_steps_keep_their_digits(transfer):
    """One coordinate, a millionth of the limit: sums of powers of q just below 1, in extended precision."""
    problem = make_problem(0, sizes=(20, 20), p=1, transfer=transfer)
    rate, steps = 1e-6 * stability_limit(problem), 50
    path = descend(problem, learning_rate=rate, steps=steps).path
    q = 1 - np.longdouble(2 * rate * problem.weight_square * largest_eigenvalue(problem))
    powers = q ** np.arange(steps)
    moved = np.cumsum(powers)  # (1 - q^t)/(1 - q)
    t = np.arange(1.0, steps + 1)
    sums = problem.stability * np.cumsum(powers**2) + problem.transfer * np.cumsum(moved**2)
    cost = path.running_cost(t)
    np.testing.assert_allclose(cost / cost[0], (sums / sums[0]).astype(float), rtol=1e-12)


def test_losses_are_never_negative():
    """Without noise the least loss is zero, and what is left of it after subtraction is rounding of either sign."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        U = rng.standard_normal((12, 3))
        moments = [Moments.from_rows(U, 1e3 * U @ rng.standard_normal(3))]
        problem = RegretProblem(
            moments=moments, weights=[1.0], heads=rng.standard_normal((1, 3)), transfer=0.0, stability=1.0, horizon=1
        )
        solution = descend(problem, learning_rate=0.9 * stability_limit(problem), steps=10**9)
        assert solution.loss >= 0


def test_directions_without_data_never_move():
    problem = make_problem(0, sizes=(3, 2), p=10)
    rate = 0.5 * stability_limit(problem)
    solution = descend(problem, learning_rate=rate, steps=10**6)
    rows = np.vstack([m.rows[0] for m in problem.moments])
    null = np.linalg.svd(rows)[2][5:]
    before, after = problem.weights @ problem.start, solution.coef
    np.testing.assert_allclose(null @ after, null @ before, atol=1e-10)


@pytest.mark.parametrize("factor", [1.01, 3.0])
def test_beyond_the_limit(factor):
    problem = make_problem(0)
    limit = stability_limit(problem)
    with pytest.raises(ParameterError, match=f"stability limit {limit:.6g}"):
        descend(problem, learning_rate=factor * limit, steps=10)
    solution = descend(problem, learning_rate=factor * limit, steps=10_000, allow_divergence=True)
    assert solution.loss_at(500) > solution.loss_at(0)
    np.testing.assert_allclose(solution.loss_at(5), plain_loop(problem, factor * limit, 5)[1][-1])
    if factor == 3.0:
        assert np.isinf(solution.loss)
        with pytest.raises(ConvergenceError, match="overflowed"):
            _ = solution.coef


def test_at_the_limit_it_still_runs():
    problem = make_problem(0)
    solution = descend(problem, learning_rate=stability_limit(problem) * (1 - 1e-12), steps=1000)
    assert solution.loss <= solution.loss_at(0) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"learning_rate": 0.0, "steps": 5}, "learning_rate"),
        ({"learning_rate": np.nan, "steps": 5}, "learning_rate"),
        ({"learning_rate": 1e-9, "steps": -1}, "steps"),
        ({"learning_rate": 1e-9, "steps": 1.5}, "steps"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ParameterError, match=message):
        descend(make_problem(0), **arguments)
