"""What candidates of the choice make of sources: whose coefficients they are near, and what they are called."""

import numpy as np
import pytest

from choice.tasks import changed, left_out_by_refitting, make_family, make_task, posterior_mean, sample_of
from mixtune.choice import SummedTask, choose


def weights_of(found, *families):
    """Weights of the sources in candidates of these families."""
    return np.array([weight for (name, _), weight in zip(found.labels, found.weights) if name in families])


def only(index, labels):
    """Validation tasks, done elsewhere by very many sources, in which all candidates but one did badly."""
    root = np.where(np.arange(len(labels)) == index, 0.01, 1.0)
    squares, usable = np.outer(root, root), np.ones(len(labels), dtype=bool)
    alone = next(place for place, (name, _) in enumerate(labels) if name == "focal only" and place != index)
    return [SummedTask(k, 100.0, squares, squares, squares, usable, alone, stands_for=10**4) for k in range(40)]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("p", "count"), [(3, 2), (9, 2), (3, 5), (9, 5), (45, 3)])
def test_candidates_are_posterior_means_with_rows_left_out(p, count, intercept):
    """Each by the normal equations with its prior, and refits without each row."""
    rng = np.random.default_rng(p + count)
    head = rng.standard_normal(p)
    options = {"weights": [0.5, 1.0, 3.0], "intercept": intercept}
    sources = [make_task(rng, 40, p, head=head + 0.3 * rng.standard_normal(p), **options) for _ in range(count)]
    focal = make_task(rng, 8, p, head=head, noise=2.0, **options)
    labels, checked = choose(focal, sources).labels, 0
    for index in np.unique(np.linspace(0, len(labels) - 1, 12).astype(int)).tolist():
        found = choose(focal, sources, tasks=only(index, labels))
        share = found.shares[index]
        if found.top != index:  # the focal rows speak against it
            continue
        prior, unit = found.prior, changed(focal, y=focal.rows.y / found.size)

        def fit(part, prior=prior):
            covariance = prior.scale * prior.covariance
            return posterior_mean(part, prior.mean, covariance, prior.noise, free_intercept=prior.free_intercept)

        expected = share * found.size * fit(unit) + (1 - share) * found.focal_head
        np.testing.assert_allclose(found.head, expected, rtol=1e-5, atol=1e-6)
        left_out = share * found.size * left_out_by_refitting(unit, fit) + (1 - share) * found.focal_left_out
        np.testing.assert_allclose(found.left_out, left_out, rtol=1e-5, atol=1e-6)
        if labels[index][0] == "focal only":
            assert not found.weights[index].any()
        else:
            assert found.weights[index].sum() == pytest.approx(1.0)
            assert found.weights[index].min() >= 0
        if p == 3 and (prior.free_intercept or count > 2):
            # In the metric of a variance that is the same for all slopes, the mean of their variances.
            slopes = np.diagonal(prior.covariance)[:3]
            assert found.ridges[index] == pytest.approx(prior.noise / prior.scale / np.mean(slopes), rel=1e-7)
        checked += 1
    assert checked >= 6


@pytest.mark.parametrize(("p", "count"), [(3, 2), (3, 9), (45, 4)])
def test_labels_tell_candidates_apart(p, count):
    focal, sources, _ = make_family(sizes=(30,) * count, p=p)
    found = choose(focal, sources)
    assert len({str(label) for label in found.labels}) == len(found.labels)


@pytest.mark.parametrize(("columns", "learned"), [(39, True), (40, False)])
def test_up_to_forty_coefficients_a_covariance_is_learned(columns, learned):
    focal, sources, _ = make_family(n=9, sizes=(60,) * 3, p=columns)
    assert ("alike" in {name for name, _ in choose(focal, sources).labels}) == learned


def test_a_reversed_group_gets_little_weight():
    focal, sources, _ = make_family(sizes=(60,) * 9, flipped=4, n=30)
    found = choose(focal, sources)
    assert weights_of(found, "groups")[:, :4].sum(axis=1).max() < 0.01
    assert weights_of(found, "nearest")[:, :4].sum(axis=1).max() < 0.1


def test_the_likeliest_sources_come_first():
    focal, sources, _ = make_family(sizes=(60, 60, 60), flipped=1, n=40, spread=0.05, p=45)
    found = choose(focal, sources)
    chosen = weights_of(found, "pooled")
    few = chosen[np.count_nonzero(chosen, axis=1) < 3]
    assert len(few)
    assert not few[:, 0].any()


def test_one_level_helps_where_there_is_one():
    """Coefficients and levels are the same everywhere: a free intercept costs, a shared one does not."""
    rng = np.random.default_rng(0)

    def draw(n):
        X = rng.standard_normal((n, 45))
        return sample_of(X, X.sum(axis=1) + 1 + 3 * rng.standard_normal(n))

    errors = []
    for _ in range(10):
        sources, focal = [draw(60) for _ in range(6)], draw(8)
        errors.append([abs(choose(focal, sources, every=every).head[-1] - 1.0) for every in (False, True)])
    free, shared = np.mean(errors, axis=0)
    assert shared < 0.7 * free


def test_a_difference_of_sources_is_found():
    """The coefficients are those of one source less those of the other, which no average of the two comes near."""
    found, averages, own = [], [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        first, second = rng.standard_normal((2, 50))
        truth = first - second
        sources = [make_task(rng, 200, 50, head=head) for head in (first, second)]
        focal = make_task(rng, 15, 50, head=truth)
        found.append(np.sum((choose(focal, sources).head[:-1] - truth) ** 2))
        own.append(np.sum((choose(focal, []).head[:-1] - truth) ** 2))
        share = np.linspace(0, 1, 21)[:, None]
        averages.append(np.sum((share * first + (1 - share) * second - truth) ** 2, axis=1).min())
    assert np.mean(found) < 0.2 * min(np.mean(averages), np.mean(own))


def test_near_the_best_that_is_possible_where_coefficients_follow_a_normal_law():
    """Against the posterior mean that knows the law of the coefficients and the noise."""
    law, root = np.array([0.5, 1.0, -2.0]), np.array([[0.6, 0.0, 0.0], [0.3, 0.5, 0.0], [-0.2, 0.1, 0.4]])
    ours, best, alone = [], [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        heads = law + rng.standard_normal((61, 3)) @ root.T
        focal, *sources = [make_task(rng, n, 3, head=head) for n, head in zip([6, *[40] * 60], heads)]
        X, y = focal.rows.X, focal.rows.y - 0.3
        precision = np.linalg.inv(root @ root.T)
        known = np.linalg.solve(X.T @ X + precision, X.T @ y + precision @ law)
        for errors, head in ((ours, choose(focal, sources).head), (best, known), (alone, choose(focal, []).head)):
            errors.append(np.sum((head[:3] - heads[0]) ** 2))
    assert np.mean(ours) < 1.25 * np.mean(best)
    assert np.mean(ours) < 0.6 * np.mean(alone)


def test_the_noise_of_the_focal_domain_is_found():
    """Whatever the coefficients that domains have in common explain."""
    rng = np.random.default_rng(0)
    law, noises = np.array([5.0, -3.0]), np.exp(rng.normal(0, 0.4, 12))
    sources = [make_task(rng, 60, 2, head=law + 0.3 * rng.standard_normal(2), noise=noise) for noise in noises]
    for noise in (0.5, 2.0):
        focal = make_task(rng, 40, 2, head=law, noise=noise)
        found = choose(focal, sources)
        assert found.labels[found.top][0] != "focal only"
        assert found.prior.noise * found.size**2 == pytest.approx(noise**2, rel=0.5)


def test_targets_are_measured_in_their_standard_deviation():
    rng = np.random.default_rng(3)
    focal, *sources = [make_task(rng, n, 2, level=5.0) for n in (10, 30, 30)]
    y = np.concatenate([sample.rows.y for sample in (focal, *sources)])
    assert choose(focal, sources).size == pytest.approx(y.std())
