"""Distances of features by assignment against SciPy's and POT's; thresholds; what they are good for."""

import numpy as np
import ot
import pytest
from scipy.stats import wasserstein_distance_nd

from mixtune.selection import choose
from mixtune.selection._families import LearnedFamily
from mixtune.selection._pooled import PooledFamily
from mixtune.selection._similar import THRESHOLD, Inputs, similar
from mixtune.selection._task import SAMPLED, Task
from selection.tasks import make_task


@pytest.mark.parametrize("intercept", [True, False])
def test_distances_are_those_of_scipy_and_pot(intercept):
    rng = np.random.default_rng(0)
    sources = [make_task(rng, n, 3, intercept=intercept) for n in (9, 12, 30)]
    task = make_task(rng, 12, 3, intercept=intercept)
    found = Inputs.of(sources).distances(task)
    for distance, source in zip(found, sources):
        count = min(12, len(source.y))
        first, second = task.sample[:count], source.sample[:count]
        np.testing.assert_allclose(distance, wasserstein_distance_nd(first, second), rtol=1e-9)
        np.testing.assert_allclose(distance, ot.emd2([], [], ot.dist(first, second, metric="euclidean")), rtol=1e-9)


def test_the_threshold_is_a_multiple_of_the_least_distance_of_the_allowed():
    distances = np.array([0.1, 1.0, THRESHOLD, THRESHOLD * 1.01])
    np.testing.assert_array_equal(similar(distances, np.array([0.0, 1, 1, 1])), [0, 1, 1, 0])
    np.testing.assert_array_equal(similar(distances, np.ones(4)), [1, 0, 0, 0])
    np.testing.assert_array_equal(similar(np.zeros(3), np.ones(3)), [1, 1, 1])


def test_a_sample_is_of_the_features_and_stays_where_only_some_rows_are_judged():
    rng = np.random.default_rng(1)
    task = make_task(rng, 100, 2, intercept=True)
    assert task.sample.shape == (SAMPLED, 2)
    rows = {tuple(row) for row in task.design[:, 1:]}
    assert all(tuple(row) in rows for row in task.sample)
    # Rows often come in order: the first ones would be a poor sample.
    assert not np.array_equal(task.sample, task.design[:SAMPLED, 1:])
    assert task.judged(slice(0, 10)).sample is task.sample


def test_domains_without_features_are_all_alike():
    tasks = [Task(np.ones((n, 1)), np.arange(n, dtype=float), np.ones(n), True) for n in (4, 6)]
    np.testing.assert_array_equal(Inputs.of(tasks).distances(tasks[0]), [0, 0])


def at_places(rng, *, p, n=40, noise=1.0):
    """Eight domains, four about the origin and four elsewhere, where another law holds; a task about the origin."""

    def task(rows, place, head):
        x = rng.standard_normal((rows, p)) + place
        return Task(
            np.column_stack([np.ones(rows), x]), x @ head + noise * rng.standard_normal(rows), np.ones(rows), True
        )

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
        with_distances.append(np.sum((choose(task, sources).head[1:] - head) ** 2))
        with monkeypatch.context() as patched:
            patched.setattr(Inputs, "distances", lambda self, task: np.ones(len(self.samples)))
            without.append(np.sum((choose(task, sources).head[1:] - head) ** 2))
    assert np.mean(with_distances) < 0.9 * np.mean(without)
