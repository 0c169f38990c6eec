"""Distances of features by assignment against SciPy's; thresholds; what they are good for."""

import numpy as np
import pytest
from scipy.stats import wasserstein_distance_nd

from mixtune.selection import SETTINGS, choose
from mixtune.selection._families import LearnedFamily
from mixtune.selection._pooled import PooledFamily
from mixtune.selection._similar import Distances, Inputs, similar
from selection.tasks import make_task, sample_of

THRESHOLD = SETTINGS.similar_reach


@pytest.mark.parametrize("intercept", [True, False])
def test_distances_are_those_of_scipy(intercept):
    rng = np.random.default_rng(0)
    sources = [make_task(rng, n, 3, intercept=intercept) for n in (9, 12, 300)]
    task = make_task(rng, 12, 3, intercept=intercept)
    found = Inputs.of(sources).distances(task)
    for distance, source in zip(found.values, sources):
        pair = task.sample, source.sample
        np.testing.assert_allclose(distance, wasserstein_distance_nd(*pair), rtol=1e-9)


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


def test_a_sample_is_of_the_features_whatever_the_order_of_the_rows():
    rng = np.random.default_rng(1)
    task = make_task(rng, 100, 2, intercept=True, weights=[1.0, 2.0])
    assert task.sample.shape == (SAMPLE_ROWS, 2)
    rows = {tuple(row) for row in design_of(task)[:, 1:]}
    assert all(tuple(row) in rows for row in task.sample)
    np.testing.assert_array_equal(task.part(rng.permutation(100)).sample, task.sample)
    copies = np.repeat(np.arange(100), task.rows.weight.astype(int))
    twice = sample_of(task.rows.X[copies], task.rows.y[copies])
    np.testing.assert_array_equal(twice.sample, task.sample)
    assert task.judged(slice(0, 10)).sample is task.sample


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


def test_domains_without_features_are_all_alike():
    tasks = [Task(np.ones((n, 1)), np.arange(n, dtype=float), np.ones(n), True) for n in (4, 6)]
    np.testing.assert_array_equal(Inputs.of(tasks).distances(tasks[0]).values, [0, 0])
    np.testing.assert_array_equal(similar(Inputs.of(tasks).distances(tasks[0]), np.ones(2)), [1, 1])


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
            patched.setattr(Inputs, "distances", lambda self, task: Distances(self.counts, self.counts))
            without.append(np.sum((choose(task, sources).head[:-1] - head) ** 2))
    assert np.mean(with_distances) < 0.9 * np.mean(without)
