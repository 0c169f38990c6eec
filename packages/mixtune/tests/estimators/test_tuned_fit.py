"""What a choice means to users: the solution, the ridge path, candidates and the posterior, against the choice."""

import numpy as np
import pytest

from choice.tasks import changed, posterior_mean
from estimators.transfer_data import Standardised, make_transfer
from mixtune.choice import learn_local_spread
from mixtune.estimators import RegretOptimalRegressorCV


def fitted(size=1.0, **options):
    """A model, and the choice that it made."""
    X, y, sources = make_transfer(**options)
    scaled = {name: (U, size * v) for name, (U, v) in sources.items()}
    model = RegretOptimalRegressorCV(feature_map=None).fit(X, size * y, sources=scaled)
    return model, Standardised(X, size * y, scaled).average()


@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("sizes", [(30, 25, 40), (30,), (25,) * 6])
def test_the_solution_ends_at_the_posterior_mean(size, sizes):
    """Of the largest share, from the prior mean, at the ridge noise/scale, in the metric of the covariance."""
    model, average = fitted(size, sizes=sizes, noise=2.0)
    choice, solution = average.largest, model.solution_
    top = int(np.argmax(choice.shares))
    assert choice.labels[top][0] != "groups"
    prior = choice.prior
    free = prior.free_intercept
    assert solution.effective_ridge == pytest.approx(prior.noise / prior.scale)
    values, vectors = np.linalg.eigh(prior.covariance)
    head = choice.size * prior.mean + vectors * np.sqrt(np.maximum(values, 0)) @ solution.coef
    unit = changed(choice.focal, y=choice.focal.rows.y / choice.size)
    expected = posterior_mean(unit, prior.mean, prior.scale * prior.covariance, prior.noise, free_intercept=free)
    expected = choice.size * (expected[:-1] if free else expected)
    if len(sizes) > 1:  # of one source, all directions have one variance, and the metric any axes
        np.testing.assert_allclose(head, expected, rtol=1e-6, atol=1e-8 * size)
    np.testing.assert_allclose(solution.coef_at(0), 0.0)
    assert solution.energy_at(solution.steps) <= solution.energy_at(0)
    # Losses are sums of squares in the targets' own units.
    rows = (choice.focal.free if free else choice.focal.full).rows
    assert solution.loss == pytest.approx(np.sum((rows.y - rows.X @ expected) ** 2), rel=1e-6)


def test_candidates_are_sorted_and_all_but_complete():
    model, choice = fitted()
    shares = [c.share for c in model.candidates_]
    assert shares == sorted(shares, reverse=True)
    assert 0.97 < sum(shares) <= 1 + 1e-12
    first = model.candidates_[0]
    top = int(np.argmax(choice.shares))
    assert (first.family, first.settings) == choice.labels[top]
    assert first.effective_ridge == pytest.approx(choice.ridges[top])
    assert first.loo_error == pytest.approx(choice.errors[top])
    for candidate in model.candidates_:
        assert candidate.weights.shape == (4,)
        assert candidate.weights.sum() == pytest.approx(1)
        assert candidate.weights.min() >= 0
        if candidate.family == "focal only":
            assert candidate.weights.tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(shares, np.sort(choice.shares[choice.shares >= 1e-4])[::-1])


def test_the_ridge_path_holds_the_chosen_point():
    model, choice = fitted()
    path, first = model.ridge_path_, model.candidates_[0]
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
    np.testing.assert_allclose(sorted(path.loo_errors), sorted(choice.errors[alike]))
    np.testing.assert_allclose(path.ridges, sorted(choice.ridges[alike]))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_the_spread_by_the_normal_equations(intercept, count):
    X, y, sources = make_transfer(sizes=(30,) * count)
    model = RegretOptimalRegressorCV(feature_map=None, fit_intercept=intercept).fit(X, y, sources=sources)
    rows = Standardised(X, y, sources, intercept=intercept)
    average = rows.average()
    choice = average.largest
    prior, task = choice.prior, choice.task
    precision = np.linalg.inv(prior.scale * prior.covariance)
    if prior.free_intercept and intercept:
        padded = np.zeros((5, 5))
        padded[:-1, :-1] = precision
        precision = padded
    covariance = np.linalg.inv(task.full.gram / prior.noise + precision) / prior.noise
    new = X[0] + np.random.default_rng(0).standard_normal((6, 4))
    U = rows.features(new)
    Z = np.column_stack([U, np.ones(6)]) if intercept else U
    expected = 1 + np.sum((Z @ covariance) * Z, axis=1)
    known = rows.features(X), y - average.left_out, average.left_out, average.spreads / average.inflation**2
    local = learn_local_spread(*known, np.ones(len(y)), np.arange(4), unit=1.0)
    predictions, std = model.predict(new, return_std=True)
    expected *= local(U, predictions, expected) ** 2
    np.testing.assert_allclose((std / std[0]) ** 2, expected / expected[0], rtol=1e-6)


def test_sources_of_few_rows_have_little_weight():
    """The part of their weight that sources keep rises smoothly with their rows."""
    rng = np.random.default_rng(0)
    drawn = [(X := rng.standard_normal((n, 2)), X @ [1.0, -1.0] + rng.standard_normal(n)) for n in (12, 3, 6, 40)]
    sources = dict(zip("abc", drawn[1:]))
    model = RegretOptimalRegressorCV(feature_map=None).fit(*drawn[0], sources=sources)
    choice = Standardised(*drawn[0], sources).average()
    alone = np.array([family == "focal only" for family, _ in choice.labels])
    own = np.where(alone, 1.0, choice.own)
    plain = (choice.shares * (1 - own)) @ choice.weights / (choice.shares @ own)
    kept = model.weights_.values[1:] / model.weights_.values[0] / plain
    assert 0.25 < kept[0] < 0.3
    assert 0.65 < kept[1] < 0.72
    assert kept[2] == pytest.approx(1.0)
