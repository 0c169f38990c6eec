"""Bad problems are refused before any work, with an error that says what to do."""

import numpy as np
import pytest

from mixtune import Moments, RegretProblem, solve
from mixtune.errors import DataError, MixtuneError, ParameterError, SingularError
from problems import make_arguments, make_problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0.5, 0.5]}, "one per dataset"),
        ({"weights": [0.5, 0.6, -0.1]}, "must be >= 0; the smallest is -0.1"),
        ({"weights": [0.5, 0.6, 0.1]}, "divide them by their sum"),
        ({"weights": [np.nan, 0.5, 0.5]}, "NaN"),
        ({"weights": "abc"}, "numbers"),
        ({"transfer": -1.0}, "transfer must be a finite number >= 0"),
        ({"transfer": np.nan}, "transfer must be"),
        ({"transfer": None}, "transfer must be"),
        ({"stability": np.inf}, "stability must be"),
        ({"stability": "1"}, "stability must be"),
        ({"horizon": -1}, "whole number"),
        ({"horizon": 2.5}, "whole number"),
        ({"horizon": True}, "whole number"),
        ({"horizon": 10**20}, "at most 2"),
        ({"horizon": 2**53 + 1}, "at most 2"),
        ({"ridge": -0.1}, "ridge must be"),
        ({"ridge": [1.0, 2.0]}, "one per dataset"),
        ({"ridge": None}, "give either heads"),
        ({"heads": np.zeros((3, 4))}, "not both"),
        ({"ridge": None, "heads": np.zeros((2, 4))}, "heads must have shape"),
        ({"ridge": None, "heads": np.full((3, 4), np.nan)}, "12 of its values"),
        ({"ridge": None, "heads": [np.ones(4), np.ones(3), np.ones(4)]}, "same shape"),
        ({"start": np.zeros(3)}, "start must have shape"),
        ({"reference": np.full(4, np.inf)}, "reference must be finite"),
        ({"moments": Moments.from_rows(np.ones((3, 4)), np.ones(3))}, "put a single one in a list"),
        ({"moments": []}, "no datasets"),
        ({"moments": [1, 2, 3]}, "Moments.from_rows"),
    ],
)
def test_refused(change, message):
    arguments = make_arguments()[1]
    with pytest.raises(MixtuneError, match=message) as caught:
        RegretProblem(**{**arguments, **change})
    assert isinstance(caught.value, ValueError)


def test_unequal_features_and_outputs_and_empty_moments():
    arguments = make_arguments()[1]
    other = Moments.from_rows(np.ones((3, 5)), np.ones(3))
    with pytest.raises(DataError, match="same feature map"):
        RegretProblem(**{**arguments, "moments": [*arguments["moments"][:2], other]})
    other = Moments.from_rows(np.ones((3, 4)), np.ones((3, 2)))
    with pytest.raises(DataError, match="same outputs"):
        RegretProblem(**{**arguments, "moments": [*arguments["moments"][:2], other]})
    empty = arguments["moments"][0] - arguments["moments"][0]
    with pytest.raises(DataError, match="no rows"):
        RegretProblem(**{**arguments, "moments": [*arguments["moments"][:2], empty]})


@pytest.mark.parametrize("method", ["riccati", "accelerated"])
def test_singular_recursions_point_to_the_closed_form(method):
    with pytest.raises(SingularError, match="closed-form"):
        solve(make_problem(transfer=0.0, stability=0.0), method=method)


def test_unknown_method_and_times_outside_the_path():
    problem = make_problem(horizon=5)
    with pytest.raises(ParameterError, match="closed-form"):
        solve(problem, method="magic")
    for t in (6, -1, 2.5, [0, 6], "x"):
        with pytest.raises(ParameterError, match="whole numbers from 0 to 5"):
            solve(problem).coef_at(t)


def test_float32_weights_are_forgiven_their_rounding():
    arguments = make_arguments()[1]
    weights = np.array([1 / 3] * 3, dtype=np.float32) * np.float32(1 + 1e-6)
    assert RegretProblem(**{**arguments, "weights": weights}).weights.sum() == pytest.approx(1.0, abs=1e-15)
    with pytest.raises(ParameterError, match="divide them by their sum"):
        RegretProblem(**{**arguments, "weights": [0.334, 0.334, 0.334]})


def test_predict_checks_its_features():
    solution = solve(make_problem())
    assert solution.predict(np.ones((2, 4), dtype=np.float32)).dtype == np.float64
    assert solution.predict([[1, 2, 3, 4]]).shape == (1,)
    with pytest.raises(DataError, match="did you forget"):
        solution.predict(np.ones((2, 3)))
    with pytest.raises(DataError, match="1 values are NaN"):
        solution.predict([[1.0, 2.0, np.nan, 4.0]])
    with pytest.raises(ParameterError, match="takes a RegretProblem"):
        solve([1, 2])


def test_given_arrays_are_not_shared():
    arguments = make_arguments()[1]
    heads, weights = np.ones((3, 4)), np.array([0.2, 0.3, 0.5])
    problem = RegretProblem(**{**arguments, "ridge": None, "heads": heads, "weights": weights})
    heads[:] = weights[:] = 7.0
    assert np.all(problem.heads == 1.0)
    assert problem.weights.sum() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="read-only"):
        problem.heads[0, 0] = 3.0


def test_heads_as_a_list_and_ridge_per_domain():
    arguments = make_arguments()[1]
    ridges = [0.1, 1.0, 10.0]
    heads = [m.head(k) for m, k in zip(arguments["moments"], ridges)]
    left = RegretProblem(**{**arguments, "ridge": ridges})
    right = RegretProblem(**{**arguments, "ridge": None, "heads": heads})
    assert np.array_equal(left.heads, right.heads)


@pytest.mark.parametrize("outputs", [None, 1, 3])
def test_shapes(outputs):
    problem = make_problem(outputs=outputs, horizon=6)
    solution = solve(problem)
    tail = () if outputs is None else (outputs,)
    assert solution.coef.shape == (4, *tail)
    assert solution.heads.shape == (3, 4, *tail)
    assert solution.coef_at(2).shape == (4, *tail)
    assert solution.coef_at([0, 3]).shape == (2, 4, *tail)
    assert solution.heads_at(np.array([[0, 1, 2], [4, 5, 6]])).shape == (2, 3, 3, 4, *tail)
    assert solution.loss_at(np.arange(7)).shape == (7,)
    assert np.ndim(solution.energy_at(3)) == 0
    assert solution.coef_at(np.arange(0)).shape == (0, 4, *tail)
    assert solution.predict(np.ones((2, 4))).shape == (2, *tail)
