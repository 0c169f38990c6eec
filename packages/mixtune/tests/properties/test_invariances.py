"""What must not change the answer does not change it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixtune import Moments, PredictiveWeights, RegretProblem, solve
from problems import make_arguments, problem_options


def fit(rows, *, sharing, order=None, **arguments):
    order = list(range(len(rows))) if order is None else order
    moments = [Moments.from_rows(*rows[i]) for i in order]
    weights = PredictiveWeights(sharing).weigh(moments=moments, ridge=arguments["ridge"], focal=order.index(0))
    return weights, solve(RegretProblem(moments=moments, weights=weights, **arguments))


KEPT = ("ridge", "transfer", "stability", "horizon")


@settings(max_examples=40)
@given(problem_options(max_horizon=10), st.randoms(use_true_random=False))
def test_order_of_the_sources(options, random):
    rows, arguments = make_arguments(**{**options, "start": None, "reference": None})
    kept = {name: arguments[name] for name in KEPT}
    sources = list(range(1, len(rows)))
    random.shuffle(sources)
    _, here = fit(rows, sharing=2.0, **kept)
    _, there = fit(rows, sharing=2.0, order=[*sources, 0], **kept)
    np.testing.assert_allclose(here.coef, there.coef, atol=1e-8)
    assert here.energy == pytest.approx(there.energy, rel=1e-8, abs=1e-8)


@settings(max_examples=40)
@given(problem_options(max_horizon=10), st.integers(1, 7))
def test_splitting_rows_into_blocks(options, block):
    rows, arguments = make_arguments(**{**options, "start": None, "reference": None})
    kept = {name: arguments[name] for name in (*KEPT, "weights")}
    split = [
        Moments.from_blocks((U[i : i + block], Y[i : i + block]) for i in range(0, len(U), block)) for U, Y in rows
    ]
    merged = [sum(Moments.from_rows(U[i : i + 1], Y[i : i + 1]) for i in range(len(U))) for U, Y in rows]
    solutions = [solve(RegretProblem(moments=m, **kept)) for m in (arguments["moments"], split, merged)]
    for other in solutions[1:]:
        np.testing.assert_allclose(solutions[0].coef, other.coef, atol=1e-8)
        assert solutions[0].energy == pytest.approx(other.energy, rel=1e-8, abs=1e-8)


@settings(max_examples=40)
@given(problem_options(max_horizon=10), st.sampled_from([1e-6, 1e-3, 1e3, 1e6]))
def test_units_of_the_targets(options, scale):
    """Scaling all targets (and the sharing level with its square) scales the coefficients and nothing else."""
    rows, arguments = make_arguments(**{**options, "start": None, "reference": None})
    kept = {name: arguments[name] for name in KEPT}
    weights, here = fit(rows, sharing=2.0, **kept)
    scaled, there = fit([(U, Y * scale) for U, Y in rows], sharing=2.0 * scale**2, **kept)
    np.testing.assert_allclose(weights.values, scaled.values, atol=1e-8)
    np.testing.assert_allclose(here.coef, there.coef / scale, atol=1e-7)
    assert here.energy == pytest.approx(there.energy / scale**2, rel=1e-7, abs=1e-8)


@settings(max_examples=40)
@given(problem_options(max_horizon=10), st.integers(0, 1000))
def test_rotating_the_features(options, seed):
    """The transfer penalty is isotropic: an orthogonal change of features changes no prediction."""
    rows, arguments = make_arguments(**{**options, "start": None, "reference": None})
    kept = {name: arguments[name] for name in KEPT}
    p = rows[0][0].shape[1]
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((p, p)))[0]
    _, here = fit(rows, sharing=2.0, **kept)
    _, there = fit([(U @ turn, Y) for U, Y in rows], sharing=2.0, **kept)
    np.testing.assert_allclose(here.coef, turn @ there.coef, atol=1e-7)
    assert here.energy == pytest.approx(there.energy, rel=1e-7, abs=1e-8)


@settings(max_examples=30)
@given(problem_options(max_horizon=15))
def test_outputs_are_independent(options):
    """A multi-output problem is its outputs side by side, and its energy their sum."""
    rows, arguments = make_arguments(**{**options, "outputs": 3, "start": None, "reference": None})
    kept = {name: arguments[name] for name in (*KEPT, "weights")}
    joint = solve(RegretProblem(moments=arguments["moments"], **kept))
    single = [solve(RegretProblem(moments=[Moments.from_rows(U, Y[:, d]) for U, Y in rows], **kept)) for d in range(3)]
    np.testing.assert_allclose(joint.coef, np.stack([s.coef for s in single], axis=-1), atol=1e-8)
    assert joint.energy == pytest.approx(sum(s.energy for s in single), rel=1e-8, abs=1e-8)
