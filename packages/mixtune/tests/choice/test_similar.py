"""Distances of features against the textbook formula; thresholds; what they are good for."""

import numpy as np
import pytest
import scipy.linalg

from choice.tasks import make_task, sample_of
from mixtune.choice import SETTINGS, Sample, choose
from mixtune.choice._families import Distances, Inputs, similar
from mixtune.choice._hierarchy import LearnedFamily
from mixtune.choice._pooled import PooledFamily

THRESHOLD = SETTINGS.similar_reach


@pytest.mark.parametrize("p", [1, 3, 20])
@pytest.mark.parametrize("intercept", [True, False])
def test_distances_are_those_between_normal_distributions(intercept, p):
    """With many columns as if these varied independently."""
    rng = np.random.default_rng(0)
    sources = [make_task(rng, n, p, intercept=intercept, weights=[1.0, 2.0]) for n in (9, 12, 300)]
    task = make_task(rng, 12, p, intercept=intercept)

    def moments(sample):
        weight = sample.rows.weight
        covariance = np.cov(sample.rows.X.T, bias=True, fweights=weight.astype(int)).reshape(p, p)
        covariance = covariance if p <= SETTINGS.covariance_columns else np.diag(np.diag(covariance))
        return np.average(sample.rows.X, axis=0, weights=weight), covariance

    found = Inputs.of(sources).distances(task)
    mean, covariance = moments(task)
    root = scipy.linalg.sqrtm(covariance)
    for distance, source in zip(found.values, sources):
        other, spread = moments(source)
        cross = np.trace(scipy.linalg.sqrtm(root @ spread @ root)).real
        square = np.sum((mean - other) ** 2) + np.trace(covariance) + np.trace(spread) - 2 * cross
        np.testing.assert_allclose(distance, np.sqrt(square), rtol=1e-6)


@pytest.mark.parametrize("p", [1, 4, 20])
def test_chance_is_the_root_mean_square_distance_of_two_samples_of_one_distribution(p):
    rng = np.random.default_rng(p)
    scales = np.linspace(0.3, 2.0, p)
    squares, chances = [], []
    for _ in range(200):
        one, other = (sample_of(rng.standard_normal((n, p)) * scales + 5.0, np.zeros(n)) for n in (80, 200))
        found = Inputs.of([other]).distances(one)
        squares.append(found.values[0] ** 2)
        chances.append(found.chance[0] ** 2)
    assert np.mean(squares) == pytest.approx(np.mean(chances), rel=0.15)


def test_the_threshold_is_a_multiple_of_the_least_distance_of_the_allowed():
    found = Distances(np.array([0.1, 1.0, THRESHOLD, THRESHOLD * 1.01]), np.full(4, 1e-3))
    np.testing.assert_array_equal(similar(found, np.array([0.0, 1, 1, 1])), [0, 1, 1, 0])
    np.testing.assert_array_equal(similar(found, np.ones(4)), [1, 0, 0, 0])
    np.testing.assert_array_equal(similar(Distances(np.zeros(3), np.zeros(3)), np.ones(3)), [1, 1, 1])


def test_what_chance_makes_is_within_the_threshold():
    found = Distances(np.array([0.0, 0.19, 0.21]), np.full(3, 0.1))
    np.testing.assert_array_equal(similar(found, np.ones(3)), [1, 1, 0])
    # A source with few rows may be farther away than the nearest, which has many.
    found = Distances(np.array([1.0, 3.0, 3.0]), np.array([0.1, 0.1, 0.2]))
    np.testing.assert_array_equal(similar(found, np.ones(3)), [1, 0, 1])


@pytest.mark.parametrize("p", [1, 2, 6])
def test_domains_of_one_distribution_are_mostly_alike(p):
    rng = np.random.default_rng(p)
    kept = []
    for _ in range(30):
        sources = [make_task(rng, n, p) for n in (8, 16, 200, 200)]
        kept.append(similar(Inputs.of(sources).distances(make_task(rng, 40, p)), np.ones(4)))
    assert np.mean(kept, axis=0).min() > 0.8


@pytest.mark.parametrize("p", [1, 2])
def test_the_choice_does_not_depend_on_copies_given_as_weights(p):
    """Two sources, so that nobody plays: plays draw rows, whatever these count as."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sources = [make_task(rng, 40, p, head=np.full(p, slope)) for slope in (1.0, 0.3)]
        task = make_task(rng, 60, p, head=np.ones(p), weights=[1.0, 2.0])
        head = choose(task, sources).head
        np.testing.assert_allclose(choose(task.part(rng.permutation(60)), sources).head, head, rtol=1e-8)
        copies = np.repeat(np.arange(60), task.rows.weight.astype(int))
        twice = sample_of(task.rows.X[copies], task.rows.y[copies])
        np.testing.assert_allclose(choose(twice, sources).head, head, rtol=1e-6)


def test_domains_whose_features_do_not_vary_are_all_alike():
    tasks = [sample_of(np.ones((n, 2)), np.arange(n)) for n in (4, 6)]
    found = Inputs.of(tasks).distances(tasks[0])
    np.testing.assert_allclose(found.values, [0, 0], atol=1e-7)
    np.testing.assert_array_equal(similar(Distances(np.zeros(2), np.zeros(2)), np.ones(2)), [1, 1])


def test_sources_without_rows_are_as_far_away():
    rng = np.random.default_rng(3)
    sources = [make_task(rng, n, 20, weights=[1.0, 2.0]) for n in (9, 60)]
    task = make_task(rng, 12, 20)
    known, unknown = (
        Inputs.of(s).distances(task) for s in (sources, [Sample(s.moments.without_rows()) for s in sources])
    )
    np.testing.assert_allclose(unknown.values, known.values, rtol=1e-9)
    np.testing.assert_allclose(unknown.chance, known.chance, rtol=1e-9)


def at_places(rng, *, p, n=40, noise=1.0):
    """Eight domains, four about the origin and four elsewhere, where another law holds; a task about the origin."""

    def task(rows, place, head):
        x = rng.standard_normal((rows, p)) + place
        return sample_of(x, x @ head + noise * rng.standard_normal(rows))

    near, far = rng.standard_normal(p), rng.standard_normal(p)
    sources = [task(n, 0.0, near) for _ in range(4)] + [task(n, 6.0, far) for _ in range(4)]
    return task(10, 0.0, near), sources, near


@pytest.mark.parametrize("family", [LearnedFamily, PooledFamily])
def test_only_sources_of_like_features_count(family):
    task, sources, _ = at_places(np.random.default_rng(2), p=3)
    made = family.learn(sources)
    for allowed in (np.ones(8), np.r_[0.0, np.ones(7)]):
        weights = made.fits(task, allowed).weights
        found = [weight for (name, _), weight in zip(made.labels, weights) if name == "similar"]
        assert found
        for weight in found:
            np.testing.assert_allclose(weight, np.r_[allowed[:4], np.zeros(4)] / allowed[:4].sum())


def test_features_tell_domains_apart_where_few_noisy_targets_do_not(monkeypatch):
    """The same choice with distances that say nothing is worse."""
    with_distances, without = [], []
    for seed in range(6):
        task, sources, head = at_places(np.random.default_rng(seed), p=60, noise=4.0)
        with_distances.append(np.sum((choose(task, sources).head[:-1] - head) ** 2))
        with monkeypatch.context() as patched:
            patched.setattr(Inputs, "distances", lambda self, task: Distances(self.totals, self.totals))
            without.append(np.sum((choose(task, sources).head[:-1] - head) ** 2))
    assert np.mean(with_distances) < 0.9 * np.mean(without)
