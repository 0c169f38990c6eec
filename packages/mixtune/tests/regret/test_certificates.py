"""Certificates: Theorem 1 and T-Gain recomputed by hand from their formulas."""

import math

import numpy as np
import pytest

from mixtune import Domains, EqualWeights, WassersteinWeights, descend, solve, wasserstein_distance
from mixtune.errors import ParameterError
from mixtune.regret import certify, generalisation_bound, kl_term, t_gain, transfer_gain
from problems import make_problem


@pytest.fixture
def domains():
    rng = np.random.default_rng(0)
    draw = lambda n, shift: (rng.standard_normal((n, 2)) + shift, rng.standard_normal(n))  # noqa: E731
    return Domains.from_dict({"a": draw(20, 0), "b": draw(60, 0.3), "c": draw(30, 5)}, focal="a")


def by_hand(domains, temperature, threshold):
    clouds = [np.column_stack([d.X, d.y]) for d in domains]
    pooled = np.vstack(clouds)
    diameter = max(np.linalg.norm(pooled - row, axis=1).max() for row in pooled)
    w1 = np.array([wasserstein_distance(clouds[0] / diameter, c / diameter).value for c in clouds])
    relevance = w1 + np.array([len(c) ** (-1 / 3) for c in clouds])
    raw = np.exp(-temperature * relevance) * (w1 <= threshold)
    return raw / raw.sum(), relevance, w1


@pytest.mark.parametrize(("temperature", "threshold"), [(3.0, 0.2), (3.0, math.inf), (0.0, 0.2), (50.0, math.inf)])
def test_terms_of_theorem_1(domains, temperature, threshold):
    weights = WassersteinWeights(temperature, threshold).weigh(domains=domains)
    w, relevance, w1 = by_hand(domains, temperature, threshold)
    np.testing.assert_allclose(weights.values, w, rtol=1e-9)
    admitted = np.sum(w1 <= threshold)
    kl = sum(wi * math.log(admitted * wi) for wi in w if wi > 0)
    assert kl_term(weights) == pytest.approx(kl, abs=1e-12)
    assert t_gain(weights) == pytest.approx(w @ relevance - relevance[0])
    bound = generalisation_bound(weights, delta=0.1, loss_lipschitz=2.0, model_lipschitz=3.0, constant=1.5)
    penalty = kl / temperature if temperature else 0.0
    assert bound.objective == pytest.approx(w @ relevance + penalty)
    assert bound.pac_as_printed == pytest.approx(math.sqrt(6 * math.log(2 * 3 / 0.1)) / math.sqrt(2 * 60))
    assert bound.pac == pytest.approx(6 * math.sqrt(math.log(2 * 3 / 0.1) / (2 * 20)))
    assert bound.total == pytest.approx(6 * 1.5 * bound.objective + bound.pac)


def test_the_weights_minimise_the_objective(domains):
    """Eq. (2) is the minimiser of power + KL/gamma over the simplex: nothing drawn at random does better."""
    weights = WassersteinWeights(4.0).weigh(domains=domains)
    best = generalisation_bound(weights, delta=0.1, loss_lipschitz=1, model_lipschitz=1).objective
    rng = np.random.default_rng(0)
    for w in rng.dirichlet(np.ones(3), size=200):
        assert w @ weights.relevance + np.sum(w * np.log(3 * w)) / 4.0 >= best - 1e-12


def test_weights_outside_the_admitted_have_infinite_kl(domains):
    import dataclasses

    weights = WassersteinWeights(1.0, 0.2).weigh(domains=domains)
    outside = dataclasses.replace(weights, values=np.array([0.5, 0.25, 0.25]))
    assert not weights.admitted[2]
    assert math.isinf(kl_term(outside))


def test_other_weights_are_refused_by_name(domains):
    weights = EqualWeights().weigh(domains=domains)
    for function in (t_gain, kl_term):
        with pytest.raises(ParameterError, match="WassersteinWeights"):
            function(weights)
    with pytest.raises(ParameterError, match="WassersteinWeights"):
        generalisation_bound(weights, delta=0.1, loss_lipschitz=1.0, model_lipschitz=1.0)


def test_sliced_distances_certify_nothing(domains):
    weights = WassersteinWeights(1.0, distance="sliced").weigh(domains=domains)
    with pytest.raises(ParameterError, match="Wasserstein distances themselves"):
        generalisation_bound(weights, delta=0.1, loss_lipschitz=1.0, model_lipschitz=1.0)


@pytest.mark.parametrize("transfer", [0.0, 0.5])
def test_descent_is_compared_over_its_own_steps(transfer):
    problem = make_problem(0, transfer=transfer, horizon=1)
    assert certify(descend(problem, learning_rate=1e-3, steps=1000)).suboptimality > 0


def test_certify_ranks_algorithms():
    problem = make_problem(0, sizes=(9, 9, 9))
    optimal, heuristic = certify(solve(problem)), certify(solve(problem, method="accelerated"))
    descent = certify(descend(problem, learning_rate=1e-3, steps=6))
    assert abs(optimal.suboptimality) < 1e-9
    assert heuristic.suboptimality > 0
    assert descent.suboptimality > 0
    assert optimal.regret == pytest.approx(optimal.energy - optimal.ideal_loss)
    assert 0 <= optimal.regret <= min(heuristic.regret, descent.regret)


@pytest.mark.parametrize(
    "change", [{"delta": 0.0}, {"delta": 1.5}, {"loss_lipschitz": -1}, {"model_lipschitz": math.nan}, {"constant": 0.5}]
)
def test_refused(domains, change):
    arguments = {"delta": 0.1, "loss_lipschitz": 1.0, "model_lipschitz": 1.0, **change}
    with pytest.raises(ParameterError, match=next(iter(change))):
        generalisation_bound(WassersteinWeights(1.0).weigh(domains=domains), **arguments)


def test_the_old_name_of_t_gain_still_works(domains):
    weights = WassersteinWeights(1.0).weigh(domains=domains)
    with pytest.warns(DeprecationWarning, match="t_gain"):
        assert transfer_gain(weights) == t_gain(weights)
