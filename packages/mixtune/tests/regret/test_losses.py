"""Smooth losses by Newton steps, against a general minimiser of the energy over all steps and heads."""

import numpy as np
import pytest

from mixtune import Moments, RegretProblem, solve
from mixtune.errors import ConvergenceError, DataError, ParameterError
from mixtune.regret import LOGISTIC, POISSON, PSEUDO_HUBER, SQUARED, SmoothLoss, least_energy, solve_smooth

COSTS = [(0.5, 1.0, 3), (0.0, 2.0, 4), ([0.1, 0.0, 2.0], [1.0, 3.0, 0.5], 3)]


def drawn(loss, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for n in (15, 25, 10):
        U = rng.standard_normal((n, 3))
        f = U @ rng.standard_normal(3)
        y = {
            "logistic": lambda f=f: (rng.uniform(size=len(f)) < 1 / (1 + np.exp(-f))).astype(float),
            "poisson": lambda f=f: rng.poisson(np.exp(0.5 * f)).astype(float),
        }.get(loss.name, lambda f=f: f + rng.standard_t(2, size=len(f)))()
        rows.append((U, y))
    return rows


@pytest.mark.parametrize("loss", [LOGISTIC, POISSON, PSEUDO_HUBER, SQUARED], ids=lambda loss: loss.name)
@pytest.mark.parametrize(("transfer", "stability", "horizon"), COSTS)
def test_against_a_general_minimiser(loss, transfer, stability, horizon):
    rows, w = drawn(loss), np.array([0.5, 0.3, 0.2])
    costs = {"transfer": transfer, "stability": stability, "horizon": horizon}
    found = solve_smooth(rows, loss=loss, weights=w, ridge=0.7, **costs)
    least, path = least_energy(rows, found, loss=loss, weights=w)
    assert found.energy == pytest.approx(least, rel=1e-8)
    np.testing.assert_allclose(found.heads_at(np.arange(1, horizon + 1)), path, atol=2e-4)
    np.testing.assert_allclose(w @ found.heads, found.coef)
    assert found.energy <= least * (1 + 1e-12)


@pytest.mark.parametrize("loss", [LOGISTIC, POISSON, PSEUDO_HUBER, SQUARED], ids=lambda loss: loss.name)
def test_derivatives(loss):
    f, y, step = np.linspace(-2, 2, 9), np.array([0.0, 1.0, 1.0] * 3), 1e-5
    slope = (loss.value(f + step, y) - loss.value(f - step, y)) / (2 * step)
    curvature = (loss.slope(f + step, y) - loss.slope(f - step, y)) / (2 * step)
    np.testing.assert_allclose(loss.slope(f, y), slope, atol=1e-8)
    np.testing.assert_allclose(loss.curvature(f, y), curvature, atol=1e-8)


def test_the_square_is_the_closed_form():
    rows, costs = drawn(SQUARED), {"transfer": 0.3, "stability": 1.0, "horizon": 6}
    found = solve_smooth(rows, loss=SQUARED, weights=[0.5, 0.3, 0.2], ridge=0.7, **costs)
    problem = RegretProblem(
        moments=[Moments.from_rows(*pair) for pair in rows], weights=[0.5, 0.3, 0.2], ridge=0.7, **costs
    )
    np.testing.assert_allclose(found.coef, solve(problem).coef, atol=1e-9)
    assert found.energy == pytest.approx(solve(problem).energy)
    assert found.steps <= 3


def test_separable_classes_and_no_steps():
    U = np.array([[1.0], [2.0], [-1.0], [-2.0]])
    rows = [(U, np.array([1.0, 1.0, 0.0, 0.0]))]
    found = solve_smooth(rows, loss=LOGISTIC, weights=[1.0], ridge=1e-3, transfer=1e-6, stability=0.0, horizon=1)
    assert np.isfinite(found.energy)
    still = solve_smooth(rows, loss=LOGISTIC, weights=[1.0], ridge=1.0, transfer=1.0, stability=0.0, horizon=0)
    np.testing.assert_array_equal(still.heads, still.start)


def test_what_is_refused():
    rows, options = drawn(SQUARED), {"weights": [0.5, 0.3, 0.2], "ridge": 1.0, "stability": 0.0, "horizon": 2}
    with pytest.raises(ParameterError, match="need transfer or stability"):
        solve_smooth(rows, loss=LOGISTIC, transfer=0.0, **options)
    with pytest.raises(DataError, match=r"rows\[1\] must be features"):
        solve_smooth([rows[0], (rows[1][0], rows[0][1])], loss=SQUARED, transfer=1.0, **options | {"weights": [1, 0]})
    concave = SmoothLoss("concave", lambda f, y: -(f**2), lambda f, y: -2 * f - 1, lambda f, y: np.full_like(f, 2.0))
    with pytest.raises(ConvergenceError, match="is it convex"):
        solve_smooth(rows, loss=concave, transfer=1.0, **options)
