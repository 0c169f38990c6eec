"""Comparisons against refits by scikit-learn, and by hand."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from sklearn.linear_model import Ridge

from choice.tasks import changed, make_family, without_row
from mixtune.choice import SETTINGS, Comparison, compare, joint_left_out, transfer_gain
from mixtune.moments import weighted_system


def centred_together(tasks):
    """As the estimators hand them over: all rows about their common weighted means."""
    weight = np.concatenate([t.rows.weight for t in tasks])
    design = np.vstack([t.rows.X for t in tasks])
    y = np.concatenate([t.rows.y for t in tasks])
    center, level = weight @ design / weight.sum(), weight @ y / weight.sum()
    return [changed(t, X=t.rows.X - center, y=t.rows.y - level) for t in tasks]


def test_joint_is_ridge_on_all_rows_refitted_without_each():
    focal, sources, _ = make_family(sizes=(12, 9), n=7)
    weight = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 1.0])
    focal, *sources = centred_together([changed(focal, weight=weight), *sources])
    pooled = sum(t.moments.gram[:-1, :-1] for t in (focal, *sources))
    candidates = []
    for ridge in np.array(SETTINGS.joint_ridges) * np.trace(pooled) / 3:
        residuals = []
        for i in range(7):
            parts = [without_row(focal, i), *sources]
            model = Ridge(alpha=ridge).fit(
                np.vstack([t.rows.X for t in parts]),
                np.concatenate([t.rows.y for t in parts]),
                sample_weight=np.concatenate([t.rows.weight for t in parts]),
            )
            residuals.append(focal.rows.y[i] - model.predict(focal.rows.X[i : i + 1])[0])
        candidates.append(residuals)
    errors = [np.average(np.square(r), weights=weight) for r in candidates]
    system = weighted_system([t.moments for t in (focal, *sources)], np.ones(3))
    np.testing.assert_allclose(joint_left_out(focal, system), candidates[int(np.argmin(errors))], atol=1e-9)


def test_intervals_of_few_rows_have_the_unbiased_variance():
    """The standard error of a mean, which divides by n - 1."""
    ours, other = np.array([[1.0, -2.0, 0.5, 1.5, -1.0], [2.0, 1.0, -1.5, 3.0, 0.5]])
    found = compare("other", ours, other, np.ones(5))
    apart = ours**2 / np.mean(ours**2) - other**2 / np.mean(other**2)
    assert found.standard_error == pytest.approx(np.std(other**2, ddof=1) / 5**0.5)
    assert found.ratio_high / found.ratio == pytest.approx(np.exp(0.98 * np.std(apart, ddof=1) / 5**0.5))
    assert found.ratio / found.ratio_low == pytest.approx(found.ratio_high / found.ratio)


def test_comparison_by_hand_and_by_bootstrap():
    rng = np.random.default_rng(0)
    other = rng.standard_normal(400)
    ours = 0.8 * other + 0.3 * rng.standard_normal(400)
    found = compare("other", ours, other, np.ones(400))
    assert found.loo_error == pytest.approx(np.mean(other**2))
    assert found.standard_error == pytest.approx(np.std(other**2, ddof=1) / 20, rel=0.01)
    assert found.ratio == pytest.approx(np.sqrt(np.mean(ours**2) / np.mean(other**2)))
    draws = rng.integers(0, 400, (2000, 400))
    ratios = np.sqrt(np.mean(ours[draws] ** 2, axis=1) / np.mean(other[draws] ** 2, axis=1))
    np.testing.assert_allclose([found.ratio_low, found.ratio_high], np.quantile(ratios, [0.025, 0.975]), atol=0.01)


def test_weights_of_two_are_two_rows():
    ours, other = np.array([1.0, 2.0, 0.3]), np.array([1.5, 1.0, 2.0])
    once = compare("x", ours, other, np.array([2.0, 1.0, 1.0]))
    twice = compare("x", ours[[0, 0, 1, 2]], other[[0, 0, 1, 2]], np.ones(4))
    for name in ("loo_error", "standard_error", "ratio", "ratio_low", "ratio_high"):
        assert getattr(once, name) == pytest.approx(getattr(twice, name))


@pytest.mark.parametrize(
    ("ours", "other", "ratio"),
    [([0.0, 0.0], [0.0, 0.0], 1.0), ([1.0, 0.0], [0.0, 0.0], np.inf), ([0.0, 0.0], [1.0, 0.0], 0.0)],
)
def test_nothing_left_over(ours, other, ratio):
    found = compare("x", np.array(ours), np.array(other), np.ones(2))
    sure = ratio == 1.0  # nothing left over on either side
    assert (found.ratio, found.ratio_low, found.ratio_high) == (ratio, 1.0 if sure else 0.0, 1.0 if sure else np.inf)
    assert np.isfinite(found.loo_error)
    gain = transfer_gain(found, np.empty(0), 2.0)
    assert gain.reduction == pytest.approx(0.0, abs=1e-9)
    assert gain.low < 0 < gain.high
    assert gain.from_validation is None


def test_rows_that_cannot_be_left_out():
    found = compare("x", np.array([np.inf, 1.0]), np.array([np.inf, 1.0]), np.ones(2))
    assert (found.loo_error, found.standard_error, found.ratio) == (np.inf, np.inf, 1.0)


def test_gain_as_normal_prior_and_likelihood():
    half = 1.96 * 0.1
    rows = Comparison("own rows alone", 1.0, 0.1, 0.9, 0.9 * np.exp(-half), 0.9 * np.exp(half))
    plays = np.log([0.7, 0.8, 0.75, 0.72, 0.9])
    found = transfer_gain(rows, plays, 400.0)
    between = np.var(plays, ddof=1) * (1 + 1 / 5)

    def prior(g):
        usual = scipy.stats.norm(plays.mean(), between**0.5).pdf(g)
        return 0.9 * usual + 0.1 * scipy.stats.norm(0, 0.5).pdf(g)

    def mass(upper, power=0):
        likelihood = scipy.stats.norm(np.log(0.9), 0.1)
        return scipy.integrate.quad(lambda g: g**power * prior(g) * likelihood.pdf(g), -1.5, upper, limit=200)[0]

    assert found.reduction == pytest.approx(1 - np.exp(mass(1.5, 1) / mass(1.5)), abs=1e-4)
    assert mass(np.log(1 - found.high)) / mass(1.5) == pytest.approx(0.025, abs=0.003)
    assert mass(np.log(1 - found.low)) / mass(1.5) == pytest.approx(0.975, abs=0.003)
    assert found.from_validation == pytest.approx(1 - np.exp(plays.mean()))
    assert found.from_rows == pytest.approx(0.1)
    # Two plays say what is usual, not how much it varies.
    shrunk = np.log(0.9) * 0.5**2 / (0.5**2 + 0.1**2)
    assert transfer_gain(rows, plays[:2], 400.0).reduction == pytest.approx(1 - np.exp(shrunk), abs=1e-4)
    unknown = compare("own rows alone", np.full(2, np.inf), np.full(2, np.inf), np.ones(2))
    assert transfer_gain(unknown, plays, 2.0).reduction == pytest.approx(1 - np.exp(0.9 * plays.mean()), abs=1e-4)
    # Rows that contradict the plays clearly are believed.
    worse = Comparison("own rows alone", 1.0, 0.1, 1.6, 1.6 * np.exp(-half), 1.6 * np.exp(half))
    assert transfer_gain(worse, plays, 400.0).high < -0.2


def test_former_names_still_work_with_a_warning():
    row = compare("own rows alone", np.ones(3), np.full(3, 2.0), np.ones(3))
    assert row.method == "own rows alone"
    assert row.method != "pooled"
    with pytest.warns(DeprecationWarning, match="`focal only` is deprecated .* use `own rows alone`"):
        assert row.method == "focal only"
    # Files of version 0.1 hold former names.
    assert Comparison("joint", 1.0, 0.1, 1.0, 0.9, 1.1).method == "pooled"
    gain = transfer_gain(row, np.empty(0), 3.0)
    with pytest.warns(DeprecationWarning, match="use `from_validation`"):
        assert gain.from_plays is gain.from_validation


def test_a_method_is_compared_with_anything():
    (found,) = [compare("pooled", np.ones(3), np.ones(3), np.ones(3))]
    assert found.method != ["pooled"]
    assert found.method != 1
