"""The synthetic family: reproducible, and made so that some sources help and others hurt."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from mixtune.data import make_domains
from mixtune.errors import ParameterError


def test_shapes_and_names():
    problem = make_domains(n_domains=5, n_unrelated=2, n_rows=7, n_source_rows=9, n_columns=3, n_outputs=2, seed=1)
    assert problem.domains.names == ("focal", "related_1", "related_2", "unrelated_1", "unrelated_2")
    assert problem.domains.focal == "focal"
    assert problem.related == ("related_1", "related_2")
    assert problem.domains["focal"].X.shape == (7, 3)
    assert problem.domains["unrelated_2"].y.shape == (9, 2)
    assert problem.test.y.shape == (1000, 2)


def test_the_seed_decides_and_domains_do_not_depend_on_their_number():
    few, many, other = (make_domains(n_domains=n, seed=seed) for n, seed in ((4, 0), (8, 0), (4, 1)))
    for name in few.domains.names:
        np.testing.assert_array_equal(few.domains[name].X, many.domains[name].X)
        np.testing.assert_array_equal(few.domains[name].y, many.domains[name].y)
    np.testing.assert_array_equal(few.test.y, many.test.y)
    assert not np.array_equal(few.test.y, other.test.y)


def test_noise_and_similarity_mean_what_they_say():
    noisy, clean = (make_domains(noise=noise, n_source_rows=4000, seed=3).domains["related_1"] for noise in (0.3, 0))
    assert np.std(noisy.y - clean.y) == pytest.approx(0.3, rel=0.05)
    same = make_domains(similarity=1.0, noise=0, n_rows=300, n_source_rows=300, n_unrelated=0, n_domains=2, seed=2)
    focal, source = same.domains
    # With similarity 1 both come from one function, so rows of both obey the same smooth fit.
    assert error_of([focal, source], same.test) < error_of([focal], same.test)


def error_of(members, test):
    weights = np.random.default_rng(0).standard_normal((test.n_columns + 1, 200))

    def features(X):
        return np.maximum(np.c_[X, np.ones(len(X))] @ weights, 0) / np.sqrt(200)

    head = Ridge(alpha=0.1).fit(
        features(np.vstack([domain.X for domain in members])), np.concatenate([domain.y for domain in members])
    )
    return np.sqrt(np.mean((head.predict(features(test.X)) - test.y) ** 2))


def test_related_sources_help_and_unrelated_ones_hurt():
    alone, helped, hurt = [], [], []
    for seed in range(5):
        problem = make_domains(seed=seed)
        focal = problem.domains.focal_domain
        related = [problem.domains[name] for name in problem.related]
        others = [domain for domain in problem.domains.sources if domain.name not in problem.related]
        alone.append(error_of([focal], problem.test))
        helped.append(error_of([focal, *related], problem.test))
        hurt.append(error_of([focal, *others], problem.test))
    assert np.mean(helped) < 0.9 * np.mean(alone)
    assert np.mean(hurt) > 1.5 * np.mean(alone)


@pytest.mark.parametrize(
    "options",
    [{"n_rows": 0}, {"n_unrelated": 6}, {"n_unrelated": -1}, {"similarity": 1.1}, {"noise": -1}, {"n_outputs": 0}],
)
def test_options_out_of_range(options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        make_domains(seed=0, **options)
