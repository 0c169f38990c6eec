"""The Gaussian process over all domains: closed forms against slow, obvious twins."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process.kernels import RBF, Matern

from mixtune.arrays import Floats
from mixtune.choice import (
    Deviation,
    DeviationLikelihood,
    MarginalLikelihood,
    Pairs,
    ProcessFamily,
    fit_candidates,
    learn_process,
)
from mixtune.features import Coordinates, DomainKernel, InputUnits, KernelFeatures
from mixtune.moments import Rows


def drawn(rng, rows, slope=1.0, level=0.0):
    X = rng.standard_normal((rows, 2))
    y = slope * (np.sin(2 * X[:, 0]) + X[:, 1]) + level + 0.3 * rng.standard_normal(rows)
    return Rows(X, y)


@pytest.fixture(scope="module")
def process():
    rng = np.random.default_rng(0)
    sources = [drawn(rng, 60, sign, level) for sign, level in ((1.0, 0.0), (1.2, 0.5), (-1.0, 0.0), (0.9, -0.3))]
    weight = np.where(np.arange(25) < 5, 2.0, 1.0)
    focal = drawn(rng, 25)
    return learn_process([Rows(focal.X, focal.y, weight), *sources], seed=0)


@pytest.fixture(scope="module")
def family(process):
    shift = np.random.default_rng(1).standard_normal(process.features.n_features_out)
    return ProcessFamily(process, shift, 0.7)


def test_kernels_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    kernel = DomainKernel(np.array([0.5, 2.0]), np.array([3.0, 0.7]), np.zeros(2), 1.5, 0.0, 0.0, 1.0, 0.0, 1.0)
    left, right = (Coordinates(rng.standard_normal((n, 2)), rng.standard_normal((n, 2))) for n in (5, 7))
    matern = 1.5 * Matern(length_scale=[0.5, 2.0], nu=2.5)(left.curved, right.curved)
    np.testing.assert_allclose(kernel.shared(left, right), matern, rtol=1e-12)
    smooth = RBF(length_scale=[3.0, 0.7])(left.curved, right.curved)
    np.testing.assert_allclose(kernel.own_curves(left, right), smooth, rtol=1e-12)


def test_features_are_inner_products_of_the_kernel(process):
    """At landmarks they are exact, up to what is added to the diagonal."""
    features, kernel = process.features, process.kernel
    landmarks = features.units(features.landmarks)
    shared = features.shared(landmarks)
    np.testing.assert_allclose(shared @ shared.T, kernel.shared(landmarks, landmarks), atol=1e-4)
    own_landmarks = features.units(features.own_landmarks)
    own = features.own(own_landmarks)
    np.testing.assert_allclose(own @ own.T, kernel.own_curves(own_landmarks, own_landmarks), atol=1e-4)


def test_functions_of_the_features_are_sums_of_kernels(process):
    features, kernel, rng = process.features, process.kernel, np.random.default_rng(2)
    X, coef = rng.standard_normal((9, 2)), rng.standard_normal((features.n_features_out, 3))
    rows, landmarks, own = (features.units(part) for part in (X, features.landmarks, features.own_landmarks))
    kernels = np.hstack([rows.linear, kernel.shared(rows, landmarks), kernel.own_curves(rows, own)])
    expected = features.transform(X) @ coef
    np.testing.assert_allclose(kernels @ features.kernel_coefficients(coef), expected, rtol=1e-8, atol=1e-8)


def test_gradient_of_the_marginal_likelihood():
    rng = np.random.default_rng(0)
    X, y, domains = rng.standard_normal((20, 2)), rng.standard_normal(20), np.repeat([0, 1], 10)
    likelihood = MarginalLikelihood(InputUnits.of(X)(X), y, domains)
    mean, _ = likelihood.prior()
    logarithms = mean + 0.3 * rng.standard_normal(len(mean))
    pairs = Pairs.of(likelihood.rows, domains)
    _, gradient = likelihood.negative_density(logarithms, pairs)
    numerical = approx_fprime(logarithms, lambda z: likelihood.negative_density(z, pairs)[0], 1e-6)
    np.testing.assert_allclose(gradient, numerical, rtol=1e-3, atol=1e-4)


def test_the_marginal_likelihood_is_that_of_a_normal_distribution():
    rng = np.random.default_rng(1)
    X, y, domains = rng.standard_normal((12, 2)), rng.standard_normal(12), np.repeat([0, 1, 2], 4)
    rows = InputUnits.of(X)(X)
    likelihood = MarginalLikelihood(rows, y, domains)
    same = (domains[:, None] == domains).astype(float)

    def explicit(logarithms):
        kernel, (mean, spread) = likelihood.kernel(logarithms), likelihood.prior()
        covariance = kernel.shared(rows, rows) + same * (kernel.own(rows, rows) + kernel.own_level)
        covariance += (kernel.noise + 1e-7) * np.eye(12)
        _, logarithm = np.linalg.slogdet(covariance)
        deviation = (logarithms - mean) / spread
        return 0.5 * (y @ np.linalg.solve(covariance, y) + logarithm + deviation @ deviation)

    mean, spread = likelihood.prior()
    for logarithms in (mean, mean + 0.5 * spread):
        value, _ = likelihood.negative_density(logarithms, Pairs.of(rows, domains))
        assert value == pytest.approx(explicit(logarithms), rel=1e-9)


def test_the_learned_kernel_is_likelier_than_its_start():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 2))
    y = np.sin(3 * X[:, 0])
    likelihood = MarginalLikelihood(InputUnits.of(X)(X), y, np.zeros(60, dtype=int))
    kernel = likelihood.maximised()
    # The second input says nothing: functions hardly vary along it.
    assert kernel.lengths[1] > 2 * kernel.lengths[0]
    assert kernel.noise < 0.05


def deviation(rng, rows, slopes, level=0.0, noise=0.1):
    """A domain of whose deviation everything is known but its variances; its curve is zero."""
    linear, root = rng.standard_normal((rows, len(slopes))), rng.standard_normal((rows, rows))
    residuals = linear @ slopes / len(slopes) ** 0.5 + level + noise**0.5 * rng.standard_normal(rows)
    return Deviation(residuals, 1e-4 * root @ root.T, linear, np.eye(rows), 0.5 + rng.random(rows))


def test_the_likelihood_of_deviations_is_that_of_normal_distributions(process):
    rng = np.random.default_rng(3)
    parts = [deviation(rng, rows, np.array([1.0, -0.5])) for rows in (5, 9)]
    likelihood = DeviationLikelihood(process.kernel, parts)
    mean, spread = likelihood.prior()

    def explicit(logarithms):
        *slopes, curve, level, noise = np.exp(logarithms)
        total = 0.5 * np.sum(((logarithms - mean) / spread) ** 2)
        for residuals, uncertain, linear, curves, weight in parts:
            covariance = uncertain + linear @ np.diag(slopes) @ linear.T / 2 + curve * curves + level
            covariance += np.diag(noise / weight + 1e-7)
            total += 0.5 * (residuals @ np.linalg.solve(covariance, residuals) + np.linalg.slogdet(covariance)[1])
        return total

    for logarithms in (mean, mean + 0.5 * spread):
        value, gradient = likelihood.negative_density(logarithms)
        assert value == pytest.approx(explicit(logarithms), rel=1e-9)
        np.testing.assert_allclose(gradient, approx_fprime(logarithms, explicit, 1e-6), rtol=1e-3, atol=1e-4)


def test_variances_of_deviations_are_found_from_many_domains(process):
    rng = np.random.default_rng(4)
    parts = [
        deviation(rng, 30, np.array([2.0, 0.2]) * rng.standard_normal(2), level=3.0 * rng.standard_normal())._replace(
            weight=np.ones(30)
        )
        for _ in range(200)
    ]
    kernel = DeviationLikelihood(process.kernel, parts).maximised()
    np.testing.assert_allclose(kernel.own_slopes, [4.0, 0.04], rtol=0.35)
    assert kernel.own_level == pytest.approx(9.0, rel=0.25)
    assert kernel.noise + kernel.own_curve == pytest.approx(0.1, rel=0.1)
    assert (kernel.shared_curve, kernel.shared_level) == (process.kernel.shared_curve, process.kernel.shared_level)


def test_left_out_residuals_are_those_of_fits_without_each_row(family):
    """Each candidate is refitted without every row in turn."""
    process = family.process
    allowed = np.ones(4)
    prior = family.process.evidence.prior_without(allowed)
    source = process.sources[1].part(slice(0, 12))
    nothing = source.part(slice(0, 0))
    whole = fit_candidates(process.kernel, family.candidates, prior, source, nothing)
    # The scale of the shared function is about its mean over the rows, which leaving one out moves.
    plain = np.array([candidate.scale == 0 for candidate in family.candidates])
    for row in range(12):
        others = np.delete(np.arange(12), row)
        fitted = fit_candidates(process.kernel, family.candidates, prior, source.part(others), source.part([row]))
        residuals = source.targets[row] - fitted.predictions[:, 0]
        np.testing.assert_allclose(whole.left_out[plain, row], residuals[plain], rtol=1e-6, atol=1e-8)


def test_coefficients_give_the_predictions_of_the_process(family):
    """The posterior mean at new inputs, by the kernel alone, is linear in the features."""
    process = family.process
    fits = family.fits(None, np.ones(4))
    X = np.random.default_rng(3).standard_normal((10, 2))
    features = process.features.transform(X) - family.shift
    predicted = fits.paths.heads @ np.column_stack([features, np.ones(10)]).T
    places = process.features.units(X)
    tests = replace(process.focal.part(slice(0, 10)), places=places, shared=process.features.shared(places), own=None)
    focal = replace(process.focal, own=None)
    prior = family.process.evidence.oriented(family.process.evidence.prior_without(np.ones(4)), process.focal)
    expected = fit_candidates(process.kernel, family.candidates, prior, focal, tests).predictions
    offset = (process.level - family.target_shift) / process.unit
    np.testing.assert_allclose(predicted, expected + offset, atol=2e-3)


def test_priors_have_the_same_posterior_means(family):
    """Bayesian linear regression with a candidate's prior gives its coefficients: weights space, function space."""
    process = family.process
    fits = family.fits(None, np.ones(4))
    features = process.features.transform(_inputs(process)) - family.shift
    design = np.column_stack([features, np.ones(len(features))])
    targets = process.focal.targets + (process.level - family.target_shift) / process.unit
    for index in range(len(family.candidates)):
        prior = family.prior(None, np.ones(4), index)
        weight = process.focal.weight / prior.noise
        gain = prior.covariance @ design.T @ np.linalg.inv(design @ prior.covariance @ design.T + np.diag(1.0 / weight))
        posterior = prior.mean + gain @ (targets - design @ prior.mean)
        np.testing.assert_allclose(design @ posterior, design @ fits.paths.heads[index], atol=5e-3)


def _inputs(process) -> Floats:
    units = process.features.units
    return process.focal.places.linear * units.deviation + units.mean


def test_sources_are_added_and_left_out_by_sums(family):
    process = family.process
    without = family.process.evidence.prior_without(np.array([1.0, 0.0, 1.0, 1.0]))
    kept = tuple(process.sources[k] for k in (0, 2, 3))
    again = replace(process.evidence, sources=kept).prior_without(np.ones(3))
    np.testing.assert_allclose(without.mean, again.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(without.root, again.root, rtol=1e-6, atol=1e-9)


def test_the_shared_function_is_that_of_one_process_over_all_rows(family):
    """The prior of the focal domain is the posterior of the joint process at its inputs, where landmarks suffice."""
    process, kernel = family.process, family.process.kernel
    prior = family.process.evidence.prior_without(np.ones(4))
    blocks, cross = [], []
    for source in process.sources:
        own = kernel.own(source.places, source.places) + kernel.own_level
        noise = kernel.noise + source.missing_shared(kernel)
        blocks.append(own + np.diag(noise))
        cross.append(source.shared)
    shared = np.concatenate(cross)
    covariance = shared @ shared.T
    start = 0
    for block in blocks:
        covariance[start : start + len(block), start : start + len(block)] += block
        start += len(block)
    targets = np.concatenate([source.targets for source in process.sources])
    expected = process.focal.shared @ shared.T @ np.linalg.solve(covariance, targets)
    np.testing.assert_allclose(process.focal.shared @ prior.mean, expected, rtol=1e-6, atol=1e-8)


def test_reversed_sources_are_reflected_and_have_no_weight(process, family):
    np.testing.assert_array_equal(process.signs, [1.0, 1.0, -1.0, 1.0])
    weights = family.fits(None, np.ones(4)).weights[0]
    assert weights[2] == 0
    assert weights.sum() == pytest.approx(1.0)
    assert np.all(weights[[0, 1, 3]] > 0.1)


def test_of_two_sources_with_opposite_signs_the_one_unlike_the_focal_domain_is_reflected():
    rng = np.random.default_rng(0)
    like, unlike, focal = drawn(rng, 60), drawn(rng, 60, -1.0), drawn(rng, 25)
    flipped = Rows(focal.X, -focal.y)
    for rows, signs in ((focal, [1.0, -1.0]), (flipped, [-1.0, 1.0])):
        np.testing.assert_array_equal(learn_process([rows, like, unlike], seed=0).signs, signs)
        np.testing.assert_array_equal(learn_process([rows, unlike, like], seed=0).signs, signs[::-1])


def test_sources_with_a_constant_target_do_not_teach_that_there_is_no_noise():
    rng = np.random.default_rng(0)
    focal, source = drawn(rng, 25), drawn(rng, 60)
    constant = Rows(rng.standard_normal((60, 2)), np.full(60, 3.0))
    kernel = learn_process([focal, source, constant, constant], seed=0).kernel
    assert kernel.noise == pytest.approx(learn_process([focal, source], seed=0).kernel.noise, rel=0.5)


def test_a_single_row_cannot_be_left_out():
    rng = np.random.default_rng(0)
    process = learn_process([drawn(rng, 1), drawn(rng, 30), drawn(rng, 30)], seed=0)
    family = ProcessFamily(process, np.zeros(process.features.n_features_out), 0.0)
    paths = family.fits(None, np.ones(2)).paths
    assert np.all(np.isinf(paths.left_out))
    assert np.all(np.isfinite(paths.heads))


def test_a_focal_domain_of_the_other_sign_is_told_by_its_rows():
    rng = np.random.default_rng(5)
    sources = [drawn(rng, 60, -1.0) for _ in range(4)]
    process = learn_process([drawn(rng, 25), *sources], seed=0)
    family = ProcessFamily(process, np.zeros(process.features.n_features_out), 0.0)
    prior = family.process.evidence.prior_without(np.ones(4))
    oriented = family.process.evidence.oriented(prior, process.focal)
    np.testing.assert_array_equal(oriented.mean, -prior.mean)


def test_scales_of_sources_that_are_far_off_do_not_count():
    rng = np.random.default_rng(6)
    focal, sources = drawn(rng, 25), [drawn(rng, 60) for _ in range(3)]
    large = [Rows(rows.X, 1e6 * rows.y + 1e9) for rows in sources]
    process = learn_process([focal, *large], seed=0)
    assert process.unit < 10
    assert np.all(np.abs(np.concatenate([rows.targets for rows in process.sources])) < 20)


def test_a_kernel_of_a_file_is_checked(process):
    features = process.features
    for name in ("lengths", "own_lengths", "noise"):
        value = getattr(features.kernel, name)
        broken = replace(features.kernel, **{name: np.full_like(value, np.nan) if np.ndim(value) else np.nan})
        with pytest.raises(ValueError, match="save the model again"):
            KernelFeatures(features.units, broken, features.landmarks, features.own_landmarks)
    flat = replace(features.units, spread=0 * features.units.spread)
    with pytest.raises(ValueError, match="must be positive"):
        KernelFeatures(flat, features.kernel, features.landmarks, features.own_landmarks)
    assert [field.name for field in fields(DomainKernel)][:3] == ["lengths", "own_lengths", "own_slopes"]
