"""Choices for all domains at once: nobody's rows inform their own priors or validation tasks."""

import numpy as np
import pytest

from mixtune.choice import choose, choose_every, coefficient_errors
from mixtune.moments import Rows, Sample


def sample(rng, rows, slope):
    X = rng.standard_normal((rows, 2))
    return Sample.of(Rows(X, X @ [slope, 1.0] + 0.3 * rng.standard_normal(rows)))


@pytest.fixture(scope="module")
def domains():
    rng = np.random.default_rng(0)
    return [sample(rng, 10 + 6 * (k % 3), 2.0 + 0.2 * rng.standard_normal()) for k in range(7)]


@pytest.fixture(scope="module")
def choices(domains):
    return [each[0] for each in choose_every([domains], places=np.arange(7), seed=0)]


def test_no_candidate_is_informed_by_the_domain_itself(choices):
    for index, choice in enumerate(choices):
        assert np.all(choice.weights[:, index] == 0)
        assert np.any(choice.weights > 0)
        assert all(task.source != index for task in choice.tasks)


def test_domains_of_other_sizes_have_other_tasks():
    """Sources in the focal role learn from about as many rows as the domain has."""
    rng = np.random.default_rng(1)
    domains = [sample(rng, rows, 2.0) for rows in (10, 10, 40, 40, 90, 90, 90, 90)]
    for index, (choice,) in enumerate(choose_every([domains], places=np.arange(8), seed=0)):
        if index < 4:
            rows = domains[index].size
            assert choice.tasks
            assert {task.left_out.shape[1] for task in choice.tasks} == {rows}
            assert all(domains[task.source].size > rows for task in choice.tasks)


def test_coefficients_are_near_those_of_the_choice_for_one_domain(domains, choices):
    for index in (0, 4):
        others = [domain for k, domain in enumerate(domains) if k != index]
        alone = choose(domains[index], others, seed=0)
        np.testing.assert_allclose(choices[index].head, alone.head, atol=0.15)
        assert [label[0] for label in choices[index].labels] == [label[0] for label in alone.labels]


def test_some_domains_to_learn_from_are_enough(domains):
    found = [each[0] for each in choose_every([domains], places=np.array([0, 2, 3, 5]), seed=0)]
    assert found[1].weights.shape[1] == 4
    assert np.all(found[2].weights[:, 1] == 0)
    assert np.any(found[1].weights[:, 1] > 0)


def test_errors_of_coefficients_are_those_of_integrals():
    """Against two-dimensional sums over the mean and the scatter of one coefficient."""
    rng = np.random.default_rng(0)
    x = [rng.standard_normal(n) for n in (6, 10, 15, 25, 40)]
    y = [slope * each + rng.standard_normal(len(each)) for slope, each in zip((0.8, 1.0, 1.1, 1.3, 0.9), x)]
    samples = [Sample.of(Rows(a[:, None], b)) for a, b in zip(x, y)]
    found = coefficient_errors(samples, np.ones(5), np.ones((5, 1)))[:, 0]
    centred = [a - a.mean() for a in x]
    b = np.array([a @ t / (a @ a) for a, t in zip(centred, y)])
    v = np.array([1 / (a @ a) for a in centred])
    mu, tau = np.linspace(-3, 5, 401)[:, None, None], np.linspace(1e-4, 8, 800)[:, None]
    density = np.exp(np.sum(-0.5 * np.log(tau**2 + v) - 0.5 * (b - mu) ** 2 / (tau**2 + v), axis=-1))
    density /= density.sum()
    part = tau**2 / (tau**2 + v)
    mean = part * b + (1 - part) * mu
    first = np.einsum("ij,ijk->k", density, mean)
    second = np.einsum("ij,ijk->k", density, mean**2 + part * v)
    np.testing.assert_allclose(found, np.sqrt(second - first**2 + (first - 1) ** 2), rtol=0.03)
