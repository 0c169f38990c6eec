"""Every candidate of every family against its prior's explicit posterior, and refits without each row."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from choice.tasks import left_out_by_refitting, make_family, make_task, posterior_mean
from mixtune.choice import SETTINGS
from mixtune.choice._families import FocalFamily
from mixtune.choice._hierarchy import LearnedFamily
from mixtune.choice._pooled import PooledFamily, StackedFamily, subset_sizes
from mixtune.moments import Regression, RowSystem

FAMILIES = {
    "focal": (lambda sources: FocalFamily(len(sources)), 5, 3),
    "focal, wide": (lambda sources: FocalFamily(len(sources)), 3, 9),
    "learned": (LearnedFamily.learn, 5, 3),
    "stacked": (lambda sources: StackedFamily(PooledFamily.learn(sources)), 3, 3),
    "stacked, wide": (lambda sources: StackedFamily(PooledFamily.learn(sources)), 3, 9),
    "pooled": (PooledFamily.learn, 2, 3),
    "pooled, wide": (PooledFamily.learn, 3, 9),
}


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", FAMILIES)
def test_candidates_are_posterior_means_with_rows_left_out(kind, intercept):
    make, count, p = FAMILIES[kind]
    rng = np.random.default_rng(len(kind))
    head = rng.standard_normal(p)
    options = {"weights": [0.5, 1.0, 3.0], "intercept": intercept}
    sources = [make_task(rng, 15, p, head=head + 0.3 * rng.standard_normal(p), **options) for _ in range(count)]
    task = make_task(rng, 8, p, head=head, **options)
    family, allowed = make(sources), np.ones(count)
    allowed[0] = 0.0
    fits = family.fits(task, allowed)
    assert len(fits.paths.heads) == len(fits.ridges) == len(fits.weights) == len(family.labels)
    chosen = np.unique(np.linspace(0, len(family.labels) - 1, 12).astype(int))
    for index in chosen:
        prior = family.prior(task, allowed, index)

        def fit(part, prior=prior):
            covariance = prior.scale * prior.covariance
            return posterior_mean(part, prior.mean, covariance, prior.noise, free_intercept=prior.free_intercept)

        np.testing.assert_allclose(fits.paths.heads[index], fit(task), rtol=1e-5, atol=1e-7)
        expected = left_out_by_refitting(task, fit)
        np.testing.assert_allclose(fits.paths.left_out[index], expected, rtol=1e-5, atol=1e-6)
        slopes = prior.covariance[:-1, :-1] if intercept and not prior.free_intercept else prior.covariance
        if "wide" not in kind:
            variance = np.mean(np.diag(slopes))
            np.testing.assert_allclose(fits.ridges[index], prior.noise / prior.scale / variance, rtol=1e-8)
    if "focal" in kind:
        assert not fits.weights.any()
    else:
        np.testing.assert_allclose(fits.weights.sum(axis=1), 1)
        assert not fits.weights[:, 0].any()
        assert (fits.weights >= 0).all()


def test_two_groups_mix_their_fits():
    task, sources, _ = make_family(sizes=(40,) * 9, flipped=4, n=3, spread=0.6, noise=3.0)
    family, allowed = LearnedFamily.learn(sources), np.ones(9)
    fits = family.fits(task, allowed)
    assert [name for name, _ in family.labels][-1] == "groups"
    noise = family.prior(task, allowed, 0).noise
    groups, (share, member, likelier) = family.groups, family._grouped(task, allowed, noise)
    np.testing.assert_allclose(share.sum(), 1)
    assert likelier == np.argmax(share)
    np.testing.assert_allclose(member.sum(), 1)
    for index in (-1, -4):
        scale = family.labels[index][1]["scale"]
        heads = [
            posterior_mean(task, m, scale * S, noise, free_intercept=False)
            for m, S in zip(groups.means, groups.covariances)
        ]
        np.testing.assert_allclose(fits.paths.heads[index], share @ heads, atol=1e-6)


def test_a_reversed_group_gets_little_weight():
    task, sources, _ = make_family(sizes=(60,) * 9, flipped=4, n=30)
    family = LearnedFamily.learn(sources)
    weights = family.fits(task, np.ones(9)).weights
    for (name, _), weight in zip(family.labels, weights):
        if name == "groups":
            assert weight[:4].sum() < 0.01
        if name == "nearest":
            assert weight[:4].sum() < 0.1


@pytest.mark.parametrize("p", [3, 12])
def test_the_pooled_prior_by_integrating_out_what_domains_have_of_their_own(p):
    """All rows of the sources as one normal vector given mu, and mu's posterior from that."""
    rng = np.random.default_rng(p)
    sources = [make_task(rng, n, p, head=np.ones(p), weights=[1.0, 2.0]) for n in (9, 14, 1)]
    task = make_task(rng, 7, p, head=np.ones(p))
    family = PooledFamily.learn(sources)
    index = next(i for i, (_, settings) in enumerate(family.labels) if settings.get("sources") == 3.0)
    prior = family.prior(task, np.ones(3), index)
    own, shared = SETTINGS.own_variance * family.variance, (1 - SETTINGS.own_variance) * family.variance
    precision, pull = np.eye(p) / shared, np.zeros(p)
    for source, known in zip(sources, family.sources):
        rows = source.free.rows
        marginal = own * rows.X @ rows.X.T + known.noise * np.diag(1 / rows.weight)
        solved = np.linalg.solve(marginal, np.column_stack([rows.X, rows.y]))
        precision += rows.X.T @ solved[:, :-1]
        pull += rows.X.T @ solved[:, -1]
    mean = np.linalg.solve(precision, pull)
    # The explicit way divides by the tiny noise of the source of one row.
    np.testing.assert_allclose(prior.mean, mean, atol=1e-6)
    expected = own * np.eye(p) + np.linalg.inv(precision) + SETTINGS.stretch * np.outer(mean, mean)
    np.testing.assert_allclose(prior.covariance, expected, atol=1e-6)


@pytest.mark.parametrize("p", [2, 10])
def test_evidence_of_one_source_both_ways_is_the_log_density(p):
    rng = np.random.default_rng(p)
    family = PooledFamily.learn([make_task(rng, n, p, head=np.ones(p)) for n in (6, 30)])
    task = make_task(rng, 10, p, head=np.ones(p)).free
    X, y = task.rows.X, task.rows.y
    own, shared, noise = 0.3, 0.9, 0.5
    for source in family.sources:
        told, toward = source.message(own)
        known = np.linalg.inv(np.eye(p) / shared + told)
        mean, covariance = known @ toward, own * np.eye(p) + known
        density = multivariate_normal(X @ mean, X @ covariance @ X.T + noise * np.eye(10))
        expected = density.logpdf(y) + 5 * np.log(2 * np.pi)
        assert source.evidence(task, own, shared, noise) == pytest.approx(expected, rel=1e-8)
        # Through p x p and through n x n matrices.
        for system in (RowSystem(X, y[:, None])._primal, RowSystem(X, y[:, None])):
            one = Regression(system, task.rows, 10.0, task.center)
            assert one.wide == isinstance(system, RowSystem)
            assert source.evidence(one, own, shared, noise) == pytest.approx(expected, rel=1e-8)


def test_the_likeliest_sources_come_first():
    task, sources, _ = make_family(sizes=(60, 60, 60), flipped=1, n=40, spread=0.05)
    family = PooledFamily.learn(sources)
    weights = family._weights(task, np.ones(3))
    assert subset_sizes(3) == [1, 3]
    assert [int(w.sum()) for w in weights[:2]] == [1, 3]
    scores = family._scores(task.free, np.ones(3))
    assert scores[0] < min(scores[1:]) - 1.0
    assert np.argmax(weights[0]) == np.argmax(scores)
    masked = family._weights(task, np.array([1.0, 0.0, 1.0]))
    assert all(w[1] == 0 for w in masked)
    assert [int(w.sum()) for w in masked[:2]] == [1, 2]


@pytest.mark.parametrize(("n", "p"), [(40, 4), (12, 20)])
def test_the_ridge_of_a_source_is_that_of_generalised_cross_validation(n, p):
    """Mean square residual over the square of the part of the degrees of freedom that is left, by the hat matrix."""
    task = make_task(np.random.default_rng(1), n, p, head=np.full(p, 0.5))
    (source,) = PooledFamily.learn([task]).sources
    fits = FocalFamily(0).fits(task, np.empty(0))
    X, y = task.free.rows.X, task.free.rows.y
    hats = [X @ np.linalg.solve(X.T @ X + ridge * np.eye(p), X.T) for ridge in fits.ridges]
    free = np.array([n - 1 - np.trace(hat) for hat in hats])
    squares = np.array([np.sum((y - hat @ y) ** 2) for hat in hats])
    errors, found, left = task.free.generalised_errors(fits.ridges)
    np.testing.assert_allclose(errors, n * squares / free**2, rtol=1e-6)
    np.testing.assert_allclose(found, squares, rtol=1e-6)
    np.testing.assert_allclose(left, free, rtol=1e-9)
    best = int(np.argmin(errors))
    assert source.noise / source.variance == pytest.approx(fits.ridges[best])
    assert source.noise == pytest.approx(squares[best] / max(free[best], 1.0))
    np.testing.assert_allclose(source.head, fits.paths.heads[best, :-1], atol=1e-9)


def test_a_source_of_one_row_does_not_say_how_much_noise_there_is():
    rng = np.random.default_rng(0)
    sources = [make_task(rng, n, 3, head=np.ones(3)) for n in (30, 40, 1)]
    with_one, without = PooledFamily.learn(sources), PooledFamily.learn(sources[:2])
    assert (with_one.noise, with_one.variance) == (without.noise, without.variance)
