"""Domains with features like those of the focal domain: whose sources count, and what that is good for."""

import numpy as np
import pytest

from choice.tasks import make_task, sample_of
from mixtune.choice import SETTINGS, choose


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


def at_places(rng, *, p, n=40, noise=1.0, away=6.0):
    """Eight domains, four about the origin and four elsewhere, where another law holds; a task about the origin."""

    def task(rows, place, head):
        x = rng.standard_normal((rows, p)) + place
        return sample_of(x, x @ head + noise * rng.standard_normal(rows))

    near, far = rng.standard_normal(p), rng.standard_normal(p)
    sources = [task(n, 0.0, near) for _ in range(4)] + [task(n, away, far) for _ in range(4)]
    return task(10, 0.0, near), sources, near


def similar_weights(task, sources):
    """Weights of the sources in candidates that go by features."""
    found = choose(task, sources)
    weights = np.array([weight for (name, _), weight in zip(found.labels, found.weights) if name == "similar"])
    assert len(weights)
    return weights


@pytest.mark.parametrize("p", [3, 45])
def test_only_sources_of_like_features_count(p):
    task, sources, _ = at_places(np.random.default_rng(2), p=p)
    for weight in similar_weights(task, sources):
        np.testing.assert_allclose(weight, np.repeat([0.25, 0.0], 4))
    for weight in similar_weights(task, sources[1:]):
        np.testing.assert_allclose(weight, np.repeat([1 / 3, 0.0], [3, 4]))


@pytest.mark.parametrize("p", [1, 2, 6])
def test_domains_of_one_distribution_are_mostly_alike(p):
    rng = np.random.default_rng(p)
    kept = []
    for _ in range(15):
        sources = [make_task(rng, n, p) for n in (8, 16, 200, 200)]
        kept.append(similar_weights(make_task(rng, 40, p), sources)[0] > 0)
    assert np.mean(kept, axis=0).min() > 0.8


def test_domains_whose_features_do_not_vary_are_all_alike():
    rng = np.random.default_rng(0)
    task, *sources = [sample_of(np.ones((n, 2)), rng.standard_normal(n)) for n in (5, 9, 20, 30)]
    np.testing.assert_allclose(similar_weights(task, sources), 1 / 3)


def test_features_tell_domains_apart_where_few_noisy_targets_do_not():
    """The same laws at one place are harder to tell apart."""
    errors = []
    for seed in range(6):
        problems = [at_places(np.random.default_rng(seed), p=60, noise=4.0, away=away) for away in (6.0, 0.0)]
        errors.append([np.sum((choose(task, sources).head[:-1] - head) ** 2) for task, sources, head in problems])
    apart, together = np.mean(errors, axis=0)
    assert apart < 0.9 * together


@pytest.mark.parametrize(("p", "apart"), [(1, 0.5), (45, 0.9)])
def test_sources_are_similar_up_to_a_multiple_of_the_least_distance_and_of_chance(p, apart):
    """Distances between normal distributions whose columns vary independently, by the textbook formula."""
    counts = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes, scales = rng.integers(10, 60, 8), rng.uniform(0.8, 1.2, (8, 1, p))
        shifts = apart * rng.uniform(0, 1, (8, 1)) * rng.standard_normal((8, p))
        features = [s * rng.standard_normal((n, p)) + shift for n, s, shift in zip(sizes, scales, shifts)]
        task, *sources = [sample_of(X, rng.standard_normal(len(X))) for X in features]
        means, spreads = (np.array([part(X, axis=0) for X in features]) for part in (np.mean, np.std))
        distance = np.sqrt(np.sum((means[1:] - means[0]) ** 2 + (spreads[1:] - spreads[0]) ** 2, axis=1))
        # Of rows of one distribution, means are apart by its variance times this, and deviations by half of that.
        rows, share = 1 / sizes[1:] + 1 / sizes[0], (sizes[0] / (sizes[0] + sizes[1:]))[:, None]
        chance = np.sqrt(1.5 * np.sum(share * spreads[0] ** 2 + (1 - share) * spreads[1:] ** 2, axis=1) * rows)
        nearest = np.argmin(distance)
        least = distance[nearest] * np.maximum(chance / chance[nearest], 1.0)
        expected = distance <= SETTINGS.similar_reach * np.maximum(least, chance)
        for weight in similar_weights(task, sources):
            np.testing.assert_allclose(weight, expected / expected.sum())
        counts.append(expected.sum())
    assert min(counts) < 7
