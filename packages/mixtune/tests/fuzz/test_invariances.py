"""What must not change a prediction does not change it: one table of invariances for all estimators."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.problems import CLASSIFIERS, REGRESSORS, problems

#: That targets of domains differ in size is advice, and true of some of these problems.
pytestmark = pytest.mark.filterwarnings("ignore:y of the sources:UserWarning")
#: Largest change of a prediction, in standard deviations of all targets (of probabilities: absolute).
TOLERANCE = 1e-5


def permute_focal_rows(problem, rng):
    order = rng.permutation(len(problem.X[0]))
    weight = problem.weight[0]
    return replace(
        problem,
        X=(problem.X[0][order], *problem.X[1:]),
        y=(problem.y[0][order], *problem.y[1:]),
        weight=(None if weight is None else weight[order], *problem.weight[1:]),
    )


def permute_source_rows(problem, rng):
    orders = [np.arange(len(problem.X[0])), *(rng.permutation(len(X)) for X in problem.X[1:])]
    take = lambda parts: tuple(None if p is None else p[o] for p, o in zip(parts, orders))  # noqa: E731
    return replace(problem, X=take(problem.X), y=take(problem.y), weight=take(problem.weight))


def permute_sources(problem, rng):
    order = rng.permutation(len(problem.X) - 1) + 1
    take = lambda parts: (parts[0], *(parts[i] for i in order))  # noqa: E731
    return replace(
        problem,
        X=take(problem.X),
        y=take(problem.y),
        weight=take(problem.weight),
        names=tuple(f"s{i}" for i in order),
    )


def permute_columns(problem, rng):
    order = rng.permutation(problem.new.shape[1])
    return problem.map(X=lambda X: X[:, order])


def reflect_columns(problem, rng):
    signs = rng.choice([-1.0, 1.0], problem.new.shape[1])
    return problem.map(X=lambda X: X * signs)


def change_units(problem, rng):
    scale = 10.0 ** rng.integers(-6, 7, problem.new.shape[1])
    shift = rng.integers(-3, 4, problem.new.shape[1]).astype(float)
    return problem.map(X=lambda X: (X + shift) * scale)


def add_absent_rows(problem, rng):
    """Rows of weight zero, with absurd values, in every domain."""
    X = tuple(np.vstack([X, 1e3 * rng.standard_normal((2, X.shape[1]))]) for X in problem.X)
    y = tuple(np.concatenate([y, y[:1], y[-1:]]) for y in problem.y)
    weight = tuple(
        np.concatenate([np.ones(len(y)) if w is None else w, [0.0, 0.0]]) for y, w in zip(problem.y, problem.weight)
    )
    return replace(problem, X=X, y=y, weight=weight)


SAME = {
    function.__name__: function
    for function in (
        permute_focal_rows,
        permute_source_rows,
        permute_sources,
        permute_columns,
        reflect_columns,
        change_units,
        add_absent_rows,
    )
}


def spread_of(problem):
    """What predictions are measured in: the standard deviation of all targets, and their size where they are equal."""
    y = np.concatenate(problem.y)
    return max(y.std(), 1e-3 * np.abs(y).max(), 1e-300)


@pytest.mark.parametrize("estimator", list(REGRESSORS))
@pytest.mark.parametrize("change", list(SAME))
@given(problem=problems, seed=st.integers(0, 2**32 - 1))
def test_predictions_stay(estimator, change, problem, seed):
    moved = SAME[change](problem, np.random.default_rng(seed))
    make = REGRESSORS[estimator]
    here, there = problem.fit(make).predict(problem.new), moved.fit(make).predict(moved.new)
    spread = spread_of(problem)
    np.testing.assert_allclose(here / spread, there / spread, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("estimator", list(REGRESSORS))
@given(problem=problems, shift=st.sampled_from([-1e3, 1.7, 1e3]), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_predictions_move_with_the_targets(estimator, problem, shift, scale):
    """Adding a constant to all targets, or changing their unit, does the same to all predictions."""
    moved = problem.map(y=lambda y: (y + shift) * scale)
    make = REGRESSORS[estimator]
    here, there = problem.fit(make).predict(problem.new), moved.fit(make).predict(problem.new) / scale - shift
    spread = spread_of(problem)
    np.testing.assert_allclose(here / spread, there / spread, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("estimator", list(CLASSIFIERS))
@pytest.mark.parametrize("change", list(SAME))
@given(problem=problems, seed=st.integers(0, 2**32 - 1))
def test_probabilities_stay(estimator, change, problem, seed):
    problem = problem.labels()
    if len({label for y in problem.y for label in y}) < 2:
        return
    moved = SAME[change](problem, np.random.default_rng(seed))
    make = CLASSIFIERS[estimator]
    here, there = problem.fit(make).predict_proba(problem.new), moved.fit(make).predict_proba(moved.new)
    np.testing.assert_allclose(here, there, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("change", list(SAME) if "MIXTUNE_FUZZ_EXAMPLES" in os.environ else ["permute_sources"])
@pytest.mark.parametrize("classes", [False, True])
@given(problem=problems, seed=st.integers(0, 2**32 - 1))
def test_models_for_every_domain_stay(classes, change, problem, seed):
    """In the test suite only one change, since each fit takes a tenth of a second."""
    problem = problem.labels() if classes else problem
    if len({label for y in problem.y for label in y}) < 2:
        return
    moved = SAME[change](problem, np.random.default_rng(seed))
    here, there = problem.predict_every(classes=classes), moved.predict_every(classes=classes)
    spread = 1.0 if classes else spread_of(problem)
    np.testing.assert_allclose(here / spread, there / spread, rtol=0, atol=TOLERANCE)
