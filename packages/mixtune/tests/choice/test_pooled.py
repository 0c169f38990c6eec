"""Sums of what sources say: from wherever fewest are missing, kept or made when asked for, with sources left out."""

import tracemalloc
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from choice.tasks import make_task, sample_of
from mixtune.choice import SETTINGS, _pooled, choose
from mixtune.choice._families import FocalFamily
from mixtune.choice._hierarchy import LearnedFamily
from mixtune.choice._pooled import PooledFamily, PooledSource, _common


def make(count, p, *, n=12, seed=0):
    rng = np.random.default_rng(seed)
    head = rng.standard_normal(p)
    sources = [make_task(rng, n, p, head=head + 0.3 * rng.standard_normal(p)) for _ in range(count)]
    return sources, make_task(rng, 9, p, head=head)


def assert_same_fits(found, expected):
    for name in ("heads", "left_out", "leverages"):
        np.testing.assert_allclose(getattr(found.paths, name), getattr(expected.paths, name), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-12)
    np.testing.assert_allclose(found.ridges, expected.ridges, rtol=1e-9)


@pytest.mark.parametrize("level", [0.1, 1.0, 1 / 3, 1e3])
def test_targets_that_do_not_vary_take_the_largest_ridge(level):
    """What is left of them about their mean is rounding, which must not choose."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        source = sample_of(rng.standard_normal((3, 2)), np.full(3, level), rng.integers(1, 4, 3).astype(float))
        found = PooledSource.of(source.free)
        largest = SETTINGS.focal_ridges[-1] * source.free.mean_eigenvalue
        assert found.noise / found.variance == pytest.approx(largest)


@pytest.mark.parametrize("near", [None, 0, 5])
def test_a_sum_is_that_of_all_weighted_messages(near):
    sources, _ = make(6, 4)
    family = PooledFamily.learn(sources)
    rng = np.random.default_rng(1)
    weights = [np.zeros(6), np.ones(6), np.eye(6)[2], 1 - np.eye(6)[4], rng.uniform(size=6), np.full(6, 0.3)]
    start = None if near is None else family._sum(weights[near])
    for weight in weights:
        found = family._sum(weight, start)
        messages = [source.message(family.own) for source in family.sources]
        precision = np.eye(4) / ((1 - SETTINGS.own_variance) * family.variance)
        precision = precision + sum(w * told for w, (told, _) in zip(weight, messages))
        np.testing.assert_allclose(found.precision, precision, rtol=1e-10, atol=1e-10)
        pull = sum(w * toward for w, (_, toward) in zip(weight, messages))
        np.testing.assert_allclose(found.pull, pull, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(found.mean, np.linalg.solve(precision, pull), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(found.covariance, np.linalg.inv(precision), rtol=1e-9, atol=1e-10)


def test_the_weight_that_most_sources_have():
    assert _common(np.array([1.0, 1.0, 0.0])) == 1.0
    assert _common(np.array([0.2, 1.0, 0.2, 0.2])) == 0.2
    assert _common(np.array([0.2, 0.3, 0.4])) == 0.0
    assert _common(np.array([1.0, 1.0, 0.0, 0.0])) == 0.0


@pytest.mark.parametrize("p", [3, 14])
def test_messages_made_when_asked_for_are_those_kept(p, monkeypatch):
    sources, task = make(20, p)
    allowed = np.ones(20)
    allowed[3] = 0.0
    expected = PooledFamily.learn(sources).fits(task, allowed)
    monkeypatch.setattr(_pooled, "SETTINGS", replace(SETTINGS, message_bytes=0))
    family = PooledFamily.learn(sources)
    assert_same_fits(family.fits(task, allowed), expected)
    assert family._kept_messages is None


def test_one_source_of_few_rows_says_the_same_through_its_spectrum(monkeypatch):
    sources, task = make(4, 30, n=7)
    family = PooledFamily.learn(sources)
    made = []
    monkeypatch.setattr(family, "_sum", lambda *weights: made.append(1) or PooledFamily._sum(family, *weights))
    found = family.fits(task, np.ones(4))
    through_spectra = len(made)
    monkeypatch.setattr(_pooled, "FEW_DIRECTIONS", 0.0)
    assert_same_fits(found, family.fits(task, np.ones(4)))
    assert len(made) == 2 * through_spectra + 1


def test_released_messages_are_made_again():
    sources, task = make(6, 5)
    family = PooledFamily.learn(sources)
    before = family.fits(task, np.ones(6))
    assert family._kept_messages is not None
    family.release()
    assert family._kept_messages is None
    assert_same_fits(family.fits(task, np.ones(6)), before)
    found = choose(task, sources)
    assert all(getattr(one, "_kept_messages", None) is None for one in found.pool.families)


def test_memory_does_not_grow_with_a_matrix_for_each_source(monkeypatch):
    sources, task = make(150, 60, n=6)
    monkeypatch.setattr(_pooled, "SETTINGS", replace(SETTINGS, message_bytes=0))
    family = PooledFamily.learn(sources)
    tracemalloc.start()
    family.fits(task, np.ones(150))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All messages would be 150 x 60 x 60 numbers, 4 MB.
    assert peak < 2e6


@pytest.mark.parametrize(
    ("learn", "count", "p"),
    [
        (lambda sources: FocalFamily(len(sources)), 4, 3),
        (LearnedFamily.learn, 9, 3),
        (PooledFamily.learn, 5, 3),
        (PooledFamily.learn, 20, 14),
        (partial(PooledFamily.learn, one_level=True), 5, 3),
    ],
)
def test_what_was_made_with_all_sources_serves_when_one_is_left_out(learn, count, p):
    sources, task = make(count, p)
    family, memo = learn(sources), {}
    assert_same_fits(family.fits(task, np.ones(count), memo), family.fits(task, np.ones(count)))
    size = len(memo)
    assert size > 0
    for index in range(count):
        allowed = 1.0 - np.eye(count)[index]
        assert_same_fits(family.fits(task, allowed, memo), family.fits(task, allowed))
    assert len(memo) == size


@pytest.mark.parametrize("n", [4, 30])
def test_one_level_is_a_prior_on_the_constant_too(n):
    """Against the posterior of the same model written out: the constant is a feature like any other."""
    sources, task = make(5, 4, n=n)
    family = PooledFamily.learn(sources, one_level=True)
    prior = family.prior(task, np.ones(5), 3)
    assert not prior.free_intercept
    assert prior.mean.shape == (task.columns,)
    precision = np.linalg.inv(prior.scale * prior.covariance)
    system = task.full.gram / prior.noise + precision
    head = np.linalg.solve(system, task.full.cross / prior.noise + precision @ prior.mean)
    np.testing.assert_allclose(family.fits(task, np.ones(5)).paths.heads[3], head, rtol=1e-7, atol=1e-9)


def test_one_level_helps_where_there_is_one():
    """Heads and levels are the same everywhere: a free intercept costs, a shared one does not."""
    rng = np.random.default_rng(0)

    def draw(n):
        X = rng.standard_normal((n, 6))
        return sample_of(X, X.sum(axis=1) + 1 + rng.standard_normal(n))

    free, shared = [], []
    for _ in range(20):
        sources, task = [draw(60) for _ in range(6)], draw(8)
        for found, one_level in ((free, False), (shared, True)):
            family = PooledFamily.learn(sources, one_level=one_level)
            found.append(np.abs(family.fits(task, np.ones(6)).paths.heads[:, -1] - 1.0).min())
    assert np.mean(shared) < 0.5 * np.mean(free)


def test_of_many_sources_those_with_the_smallest_errors_on_the_task_are_likeliest():
    """The log likelihood of normal errors at their best variance: -n/2 log(mean square), by hand."""
    sources, task = make(SETTINGS.evidence_sources + 2, 3)
    family = PooledFamily.learn(sources)
    rows = task.free.rows
    errors = np.mean((rows.y - family.heads @ rows.X.T) ** 2, axis=1)
    expected = -0.5 * len(rows.y) * np.log(errors)
    np.testing.assert_allclose(family._scores(task.free, np.ones(len(sources))), expected, rtol=1e-9)
    nearest = family._weights(task, np.ones(len(sources)))[0]
    np.testing.assert_array_equal(nearest, np.arange(len(sources)) == np.argmin(errors))


def test_where_rows_are_as_many_as_columns_errors_do_instead_of_evidence(monkeypatch):
    sources, task = make(3, 3)
    assert not task.free.wide
    monkeypatch.setattr(PooledSource, "evidence", lambda *args: pytest.fail("evidence was computed"))
    PooledFamily.learn(sources)._scores(task.free, np.ones(3))


def test_sources_that_are_left_out_need_no_evidence():
    sources, task = make(4, 14)
    assert task.free.wide
    family = PooledFamily.learn(sources)
    allowed = np.array([1.0, 0.0, 1.0, 1.0])
    found, every = family._scores(task.free, allowed), family._scores(task.free, np.ones(4))
    np.testing.assert_allclose(found, np.where(allowed > 0, every, 0.0))


@pytest.mark.parametrize(("columns", "learned"), [(39, True), (40, False)])
def test_up_to_forty_coefficients_a_covariance_is_learned(columns, learned):
    sources, task = make(3, columns, n=60)
    assert ("alike" in {name for name, _ in choose(task, sources).labels}) == learned


def test_evidence_of_a_source_by_the_normal_density():
    """The task's head is mu + delta, mu known from the prior and the source's rows: densities by hand."""
    sources, task = make(3, 2)
    family = PooledFamily.learn(sources)
    own, shared = SETTINGS.own_variance * family.variance, (1 - SETTINGS.own_variance) * family.variance
    X, y = task.free.rows.X, task.free.rows.y
    found = np.array([each.evidence(task.free, own, shared, family.noise) for each in family.sources])
    expected = []
    for source, sample in zip(family.sources, sources):
        A, b = sample.free.rows.X, sample.free.rows.y
        noise = own * A @ A.T + source.noise * np.eye(len(A))
        precision = A.T @ np.linalg.solve(noise, A) + np.eye(2) / shared
        mean = np.linalg.solve(precision, A.T @ np.linalg.solve(noise, b))
        covariance = X @ (own * np.eye(2) + np.linalg.inv(precision)) @ X.T + family.noise * np.eye(len(y))
        expected.append(multivariate_normal(X @ mean, covariance).logpdf(y))
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], rtol=1e-6)


def test_typical_noise_counts_sources_by_what_they_know():
    """Geometric means, each source with freedom/(freedom + rows that the common noise counts as)."""
    rng = np.random.default_rng(2)
    family = PooledFamily.learn([make_task(rng, n, 3, noise=s) for n, s in ((4, 0.1), (30, 1.0), (200, 2.0))])
    freedom = np.array([source.freedom for source in family.sources])
    weight = freedom / (freedom + SETTINGS.noise_rows)
    for name in ("noise", "variance"):
        logs = np.log([getattr(source, name) for source in family.sources])
        assert getattr(family, name) == pytest.approx(np.exp(weight @ logs / weight.sum()))


@pytest.mark.parametrize(("count", "zero"), [(20, 8.0), (40, 10.0), (80, 16.0)])
def test_shrinkage_grows_with_the_sources(count, zero):
    sources, _ = make(count, 2)
    assert LearnedFamily.learn(sources).sparse.shrinkage.zero == zero


def test_targets_are_measured_in_their_standard_deviation():
    rng = np.random.default_rng(3)
    focal, *sources = [make_task(rng, n, 2, level=5.0) for n in (10, 30, 30)]
    y = np.concatenate([sample.rows.y for sample in (focal, *sources)])
    assert choose(focal, sources).size == pytest.approx(y.std())
