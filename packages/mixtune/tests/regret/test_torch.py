"""The array library comes from the inputs: the same numbers from PyTorch tensors."""

import numpy as np
import pytest

from mixtune import Moments, PredictiveWeights, RegretProblem, descend, solve
from mixtune.errors import DataError
from problems import make_arguments

torch = pytest.importorskip("torch")


def both(**options):
    rows, arguments = make_arguments(5, **options)
    tensors = [Moments.from_rows(torch.asarray(U), torch.asarray(Y)) for U, Y in rows]
    return RegretProblem(**arguments), RegretProblem(**{**arguments, "moments": tensors})


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("p", [4, 40])
@pytest.mark.parametrize("method", ["closed-form", "riccati", "accelerated"])
def test_solve_on_tensors(outputs, p, method):
    here, there = (solve(problem, method=method) for problem in both(outputs=outputs, p=p, start="own"))
    t = np.arange(7)
    assert isinstance(there.coef, torch.Tensor)
    np.testing.assert_allclose(there.heads_at(t).numpy(), here.heads_at(t), atol=1e-10)
    np.testing.assert_allclose(there.coef_at(t).numpy(), here.coef_at(t), atol=1e-10)
    np.testing.assert_allclose(there.energy_at(t), here.energy_at(t), rtol=1e-9)
    assert there.regret == pytest.approx(here.regret, rel=1e-7, abs=1e-9)


def test_heads_weights_and_descent_on_tensors():
    here, there = both()
    for ridge in (0.0, 1.0):
        np.testing.assert_allclose(there.moments[1].head(ridge).numpy(), here.moments[1].head(ridge), atol=1e-10)
    weigh = lambda problem: PredictiveWeights(1.0).weigh(moments=problem.moments, heads=problem.heads)  # noqa: E731
    np.testing.assert_allclose(weigh(there).values, weigh(here).values, atol=1e-12)
    a, b = (descend(problem, learning_rate=1e-3, steps=50) for problem in (here, there))
    np.testing.assert_allclose(b.coef_at([3, 50]).numpy(), a.coef_at([3, 50]), atol=1e-12)
    np.testing.assert_allclose(b.energy_at([3, 50]), a.energy_at([3, 50]))


def test_float32_tensors_can_be_predicted_and_weighed():
    _, there = both()
    solution = solve(there)
    features = torch.ones((2, 4), dtype=torch.float32)
    np.testing.assert_allclose(solution.predict(features).numpy(), np.full(2, float(solution.coef.sum())))
    with pytest.raises(DataError, match="different libraries"):
        solution.predict(np.ones((2, 4)))
    weights = torch.softmax(torch.tensor([0.1, 0.2, 0.3]), dim=0)
    problem = RegretProblem(moments=there.moments, weights=weights, ridge=1.0, transfer=1, stability=1, horizon=2)
    assert problem.weights.sum() == pytest.approx(1.0)


def test_rank_deficient_tensors():
    U = torch.ones((5, 3), dtype=torch.float64)
    np.testing.assert_allclose(Moments.from_rows(U, torch.ones(5)).head(0.0).numpy(), np.full(3, 1 / 3))


def test_gradients_stay_outside():
    U = torch.ones((5, 2), dtype=torch.float64, requires_grad=True)
    assert not Moments.from_rows(U, torch.ones(5)).gram.requires_grad


def test_sensitivity_takes_tensors():
    from mixtune.regret import adversarial_sensitivity

    rng = np.random.default_rng(0)
    rows = [(torch.asarray(rng.standard_normal((9, 2))), torch.asarray(rng.standard_normal(9))) for _ in range(2)]
    options = {"weights": [0.5, 0.5], "ridge": 1.0, "transfer": 1.0, "stability": 1.0, "horizon": 1}
    study = adversarial_sensitivity(rows, **options, epsilons=[0.1], shares=[0.5], trials=1, seed=0)
    assert study.worst[0, 0] > 0


def test_mixing_libraries_is_refused():
    with pytest.raises(DataError, match="different libraries"):
        Moments.from_rows(np.ones((5, 3)), np.ones(5)).loss(torch.ones(3))
    with pytest.raises(DataError, match="different libraries"):
        Moments.from_rows(torch.ones((5, 3)), np.ones(5))
