"""What a choice means to users: the solution, the ridge path, candidates and the posterior, against the choice."""

import numpy as np
import pytest

from choice.tasks import changed, posterior_mean, sample_of
from estimators.transfer_data import make_transfer
from mixtune.choice import Prior
from mixtune.estimators import RegretOptimalRegressorCV
from mixtune.estimators._cv import candidates_of, counted_part, path_of, solution_of
from mixtune.estimators._fits import posterior_of


def fitted(size=1.0, **options):
    X, y, sources = make_transfer(**options)
    scaled = {name: (U, size * v) for name, (U, v) in sources.items()}
    return RegretOptimalRegressorCV(feature_map=None).fit(X, size * y, sources=scaled)


def random_prior(rng, width, *, free):
    root = rng.standard_normal((width, width))
    return Prior(rng.standard_normal(width), root @ root.T, 0.7, 2.0, free)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("size", [1.0, 40.0])
def test_the_solution_ends_at_the_posterior_mean(free, size):
    """For targets in any units, from the prior mean, at the ridge noise/scale, in the metric of the covariance."""
    rng = np.random.default_rng(0)
    n, p = 12, 3
    task = sample_of(rng.standard_normal((n, p)), size * rng.standard_normal(n), rng.choice([0.5, 1.0, 3.0], n))
    prior = random_prior(rng, p if free else p + 1, free=free)
    solution = solution_of(prior, task, size)
    assert solution.effective_ridge == pytest.approx(prior.noise / prior.scale)
    values, vectors = np.linalg.eigh(prior.covariance)
    head = size * prior.mean + vectors * np.sqrt(values) @ solution.coef
    unit = changed(task, y=task.rows.y / size)
    expected = posterior_mean(
        unit, prior.mean, prior.scale * prior.covariance, prior.noise, free_intercept=prior.free_intercept
    )
    np.testing.assert_allclose(head, size * (expected[:-1] if free else expected), rtol=1e-7)
    np.testing.assert_allclose(solution.coef_at(0), 0.0)
    assert solution.energy_at(solution.steps) <= solution.energy_at(0)
    # Losses are sums of squares in the targets' own units.
    rows = (task.free if free else task.full).rows
    left = rows.y - rows.X @ head
    assert solution.loss == pytest.approx(rows.weight @ left**2, rel=1e-6)


@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("sizes", [(30, 25, 40), (30,), (25,) * 6])
def test_the_solution_is_that_of_the_largest_share(size, sizes):
    model = fitted(size, sizes=sizes, noise=2.0)
    choice = model._choices[0].largest
    top = int(np.argmax(choice.shares))
    assert choice.labels[top][0] != "groups"
    fits = choice.pool.fits(choice.task, np.ones(len(sizes)))
    head = choice.size * np.vstack([f.paths.heads for f in fits])[top]
    values, vectors = np.linalg.eigh(choice.prior.covariance)
    ended = choice.size * choice.prior.mean + vectors * np.sqrt(np.maximum(values, 0)) @ model.solution_.coef
    np.testing.assert_allclose(ended, head[:-1] if choice.prior.free_intercept else head, rtol=1e-6, atol=1e-8 * size)
    assert model.solution_.effective_ridge == pytest.approx(choice.prior.noise / choice.prior.scale)


def test_candidates_are_sorted_and_all_but_complete():
    model = fitted()
    shares = [c.share for c in model.candidates_]
    assert shares == sorted(shares, reverse=True)
    assert 0.97 < sum(shares) <= 1 + 1e-12
    choice = model._choices[0]
    first = model.candidates_[0]
    top = int(np.argmax(choice.shares))
    assert (first.family, first.settings) == choice.labels[top]
    assert (first.effective_ridge, first.loo_error) == (choice.ridges[top], choice.errors[top])
    for candidate in model.candidates_:
        assert candidate.weights.shape == (4,)
        assert candidate.weights.sum() == pytest.approx(1)
        assert candidate.weights.min() >= 0
        if candidate.family == "focal only":
            assert candidate.weights.tolist() == [1, 0, 0, 0]
    assert all(c.share >= 1e-4 for c in candidates_of(choice, len(model.domain_names_), np.arange(3)))


def test_the_ridge_path_holds_the_chosen_point():
    model = fitted()
    path, choice, first = model.ridge_path_, model._choices[0], model.candidates_[0]
    assert np.all(np.diff(path.ridges) > 0)
    assert path.ridges[path.chosen] == first.effective_ridge
    assert path.loo_errors[path.chosen] == first.loo_error
    varying = ("scale", "relative ridge")
    fixed = {key: value for key, value in first.settings.items() if key not in varying}
    alike = [
        i
        for i, (family, settings) in enumerate(choice.labels)
        if family == first.family and {k: v for k, v in settings.items() if k not in varying} == fixed
    ]
    assert sorted(choice.errors[alike]) == sorted(path.loo_errors)
    np.testing.assert_array_equal(path_of(choice).ridges, path.ridges)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_posterior_spread_by_the_normal_equations(intercept, count):
    X, y, sources = make_transfer(sizes=(30,) * count)
    model = RegretOptimalRegressorCV(feature_map=None, fit_intercept=intercept).fit(X, y, sources=sources)
    choice = model._choices[0].largest
    prior, task = choice.prior, choice.task
    precision = np.linalg.inv(prior.scale * prior.covariance)
    if prior.free_intercept and intercept:
        padded = np.zeros((5, 5))
        padded[:-1, :-1] = precision
        precision = padded
    covariance = np.linalg.inv(task.full.gram / prior.noise + precision) / prior.noise
    U = np.random.default_rng(0).standard_normal((6, 4))
    Z = np.column_stack([U, np.ones(6)]) if intercept else U
    expected = 1 + np.sum((Z @ covariance) * Z, axis=1)
    np.testing.assert_allclose(posterior_of(model._choices).spread(U), expected, rtol=1e-6)


def test_sources_of_few_rows_have_little_weight(monkeypatch):
    """Their part rises smoothly with their rows; predictions do not depend on it."""
    rng = np.random.default_rng(0)
    drawn = [(X := rng.standard_normal((n, 2)), X @ [1.0, -1.0] + rng.standard_normal(n)) for n in (12, 3, 9, 40)]
    sources = dict(zip("abc", drawn[1:]))
    here = RegretOptimalRegressorCV().fit(*drawn[0], sources=sources)
    with monkeypatch.context() as patched:
        patched.setattr("mixtune.estimators._cv.counted_part", np.ones_like)
        plain = RegretOptimalRegressorCV().fit(*drawn[0], sources=sources)
    ratio = here.weights_.values / plain.weights_.values
    np.testing.assert_allclose(ratio[1:] / ratio[0], counted_part(np.array([3.0, 9.0, 40.0])))
    np.testing.assert_array_equal(here.coef_, plain.coef_)
    assert np.all(np.diff(counted_part(np.arange(1.0, 40.0, 0.1))) < 0.03)
