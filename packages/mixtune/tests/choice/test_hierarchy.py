"""The hierarchical model against simulated truths, limits and explicit normal densities."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from choice.tasks import changed, design_of, make_task, posterior_mean, sample_of
from mixtune.choice import SETTINGS
from mixtune.choice._hierarchy import (
    Shrinkage,
    StackedMoments,
    evidence,
    find_groups,
    learn_hierarchy,
    task_noise,
)

PLAIN = Shrinkage(0.0, 0.0)
MEAN = np.array([0.5, 1.0, -2.0])
ROOT = np.array([[0.6, 0.0, 0.0], [0.3, 0.5, 0.0], [-0.2, 0.1, 0.4]])


def domain(rng, head, n, noise):
    X = rng.standard_normal((n, 2))
    return sample_of(X, X @ head[:2] + head[2] + noise * rng.standard_normal(n))


def test_shrinkage_by_hand():
    sums = np.array([[6.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(Shrinkage(0.0, 0.0)(sums, 2.0), sums / 2)
    np.testing.assert_allclose(Shrinkage(2.0, 0.0)(sums, 2.0), sums / 4)
    # Off the diagonal 2/(2 + 1 + 3); on it 6 (1 + 3/2)/6 and 4 (1 + 3/2)/6.
    np.testing.assert_allclose(Shrinkage(1.0, 3.0)(sums, 2.0), [[2.5, 1 / 3], [1 / 3, 5 / 3]])
    stacked = Shrinkage(1.0, 3.0)(np.stack([sums, 2 * sums]), np.array([2.0, 4.0]))
    np.testing.assert_allclose(stacked[1], Shrinkage(1.0, 3.0)(2 * sums, 4.0))


def test_recovers_the_law_of_the_heads():
    rng = np.random.default_rng(0)
    heads = MEAN + rng.standard_normal((400, 3)) @ ROOT.T
    found = learn_hierarchy(StackedMoments.of([domain(rng, head, 15, 0.7) for head in heads]), PLAIN)
    np.testing.assert_allclose(found.mean, MEAN, atol=0.12)
    np.testing.assert_allclose(found.covariance, ROOT @ ROOT.T, atol=0.1)
    assert found.noise == pytest.approx(0.49, rel=0.15)


def test_huge_domains_give_the_covariance_of_least_squares_heads():
    rng = np.random.default_rng(1)
    tasks = [domain(rng, MEAN + ROOT @ rng.standard_normal(3), 20000, 0.5) for _ in range(12)]
    found = learn_hierarchy(StackedMoments.of(tasks), PLAIN)
    heads = np.stack([np.linalg.lstsq(design_of(t), t.rows.y, rcond=None)[0] for t in tasks])
    np.testing.assert_allclose(found.heads, heads, atol=1e-3)
    np.testing.assert_allclose(found.covariance, np.cov(heads.T, bias=True), atol=2e-3)
    np.testing.assert_allclose(found.noises, 0.25, rtol=0.05)


def test_sources_that_are_fitted_exactly_do_not_say_that_there_is_no_noise():
    """Two rows of three copies each: the noise stays at a small part of what a fit to all sources leaves."""
    rng = np.random.default_rng(3)
    tasks = [changed(domain(rng, MEAN, 2, 1.0), weight=np.full(2, 3.0)) for _ in range(9)]
    found = learn_hierarchy(StackedMoments.of(tasks), PLAIN)
    X, y = np.concatenate([design_of(t) for t in tasks]), np.concatenate([t.rows.y for t in tasks])
    left = np.mean((y - X @ np.linalg.lstsq(X, y, rcond=None)[0]) ** 2)
    np.testing.assert_allclose(found.noises, SETTINGS.smallest_noise * left, rtol=1e-3)


def test_posteriors_by_the_normal_equations():
    rng = np.random.default_rng(2)
    tasks = [make_task(rng, n, 2, weights=[0.5, 2.0]) for n in (1, 4, 20)]
    sums, covariance, noises = StackedMoments.of(tasks), ROOT @ ROOT.T, np.array([0.5, 1.0, 2.0])
    heads, uncertainties = sums.posteriors(noises, MEAN, covariance)
    for task, noise, head, uncertainty in zip(tasks, noises, heads, uncertainties):
        np.testing.assert_allclose(head, posterior_mean(task, MEAN, covariance, noise, free_intercept=False))
        np.testing.assert_allclose(np.linalg.inv(uncertainty), task.full.gram / noise + np.linalg.inv(covariance))


@pytest.mark.parametrize("n", [1, 2, 12])
def test_evidence_is_the_log_density(n):
    rng = np.random.default_rng(3)
    task = domain(rng, MEAN, n, 0.5)
    means = np.stack([MEAN, np.zeros(3)])
    covariances = np.stack([ROOT @ ROOT.T, np.diag([1.0, 0.0, 1e-8])])
    found = evidence(task.full, means, covariances, 0.3)
    expected = [
        multivariate_normal(design_of(task) @ m, design_of(task) @ S @ design_of(task).T + 0.3 * np.eye(n)).logpdf(
            task.rows.y
        )
        for m, S in zip(means, covariances)
    ]
    np.testing.assert_allclose(found - 0.5 * n * np.log(2 * np.pi), expected, rtol=1e-8)


def test_noise_of_a_task_lies_between_its_own_and_the_usual():
    rng = np.random.default_rng(4)
    sources = [domain(rng, MEAN + ROOT @ rng.standard_normal(3), 200, s) for s in np.exp(rng.normal(0, 0.4, 40))]
    prior = learn_hierarchy(StackedMoments.of(sources), PLAIN)
    assert prior.noise_spread == pytest.approx(0.64, rel=0.5)
    loud = domain(rng, MEAN, 500, 3.0)
    assert task_noise(loud.full, prior) == pytest.approx(9.0, rel=0.25)
    few = domain(rng, MEAN, 3, 3.0)
    assert task_noise(few.full, prior) < 9.0
    nothing = sample_of(np.zeros((1, 2)), np.zeros(1), np.full(1, 1e-9))
    assert task_noise(nothing.full, prior) == pytest.approx(prior.noise, rel=1e-6)


def test_noise_of_a_task_is_found_by_its_evidence():
    rng = np.random.default_rng(5)
    sources = [domain(rng, MEAN + ROOT @ rng.standard_normal(3), 50, s) for s in np.exp(rng.normal(0, 0.4, 12))]
    prior = learn_hierarchy(StackedMoments.of(sources), PLAIN)
    task = domain(rng, MEAN, 12, 2.0)
    steps = np.linspace(-3.0, 3.0, 13)
    noises = prior.noise * np.exp(steps)
    score = np.array([evidence(task.full, prior.mean[None], prior.covariance[None], noise)[0] for noise in noises])
    share = np.exp(score - 0.5 * steps**2 / prior.noise_spread - score.max())
    assert task_noise(task.full, prior) == pytest.approx(prior.noise * np.exp(share @ steps / share.sum()), rel=1e-9)


def test_local_mean_and_covariance_by_hand():
    rng = np.random.default_rng(5)
    prior = learn_hierarchy(
        StackedMoments.of([domain(rng, MEAN + rng.standard_normal(3), 30, 1.0) for _ in range(5)]), PLAIN
    )
    weights = np.array([0.5, 0.5, 0.0, 0.0, 0.0])
    mean, covariance = prior.local(weights, 0.3)
    np.testing.assert_allclose(mean, prior.heads[:2].mean(axis=0))
    # Two domains in effect: their scatter and uncertainties, two pseudo-domains, over four; then (1 + 1/2).
    apart = prior.heads[0] - prior.heads[1]
    sums = prior.uncertainties[:2].sum(axis=0) + np.outer(apart, apart) / 2 + 2 * 0.3 * prior.covariance
    np.testing.assert_allclose(covariance, sums / 4 * 1.5)


@pytest.mark.parametrize("sizes", [(6, 6), (9, 3)])
def test_two_planted_groups_are_told_apart(sizes):
    rng = np.random.default_rng(6)
    heads = [MEAN * sign + 0.1 * rng.standard_normal(3) for sign, size in zip((1, -1), sizes) for _ in range(size)]
    sums = StackedMoments.of([domain(rng, head, 40, 0.7) for head in heads])
    groups = find_groups(sums, learn_hierarchy(sums, Shrinkage(8.0, 30.0)))
    first = int(np.argmax(groups.memberships[:, 0]))
    expected = np.repeat([True, False], sizes)
    np.testing.assert_array_equal(groups.memberships[first] > 0.5, expected)
    assert np.all(np.abs(groups.memberships - 0.5) > 0.49)
    np.testing.assert_allclose(groups.means[first], MEAN, atol=0.2)
    np.testing.assert_allclose(groups.means[1 - first], -MEAN, atol=0.2)
    np.testing.assert_allclose(groups.shares[first], (sizes[0] + 1) / (sum(sizes) + 2), atol=1e-3)
    np.testing.assert_allclose(groups.memberships.sum(axis=0), 1)


def test_the_noise_of_few_rows_is_held_to_the_common_one():
    """Three rows are fitted exactly by three coefficients, and would say that there is no noise."""
    rng = np.random.default_rng(7)
    found = learn_hierarchy(
        StackedMoments.of([domain(rng, MEAN, n, 1.0) for n in (3, 3, 3, *(60,) * 9)]), Shrinkage(8.0, 30.0)
    )
    assert np.all(found.noises[:3] >= found.noise * 10 / 13)
    np.testing.assert_allclose(found.noises[3:], 1.0, rtol=0.5)


def test_a_source_that_says_nothing_belongs_to_groups_by_their_shares():
    rng = np.random.default_rng(7)
    heads = [MEAN * sign + 0.1 * rng.standard_normal(3) for sign in (1,) * 9 + (-1,) * 3]
    silent = domain(rng, MEAN, 1, 0.7)
    sums = StackedMoments.of(
        [*(domain(rng, head, 40, 0.7) for head in heads), changed(silent, weight=np.array([1e-9]))]
    )
    groups = find_groups(sums, learn_hierarchy(sums, Shrinkage(8.0, 30.0)))
    large = int(np.argmax(groups.shares))
    assert groups.shares[large] > 0.6
    np.testing.assert_allclose(groups.memberships[large, -1], groups.shares[large], atol=0.02)
