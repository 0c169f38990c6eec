"""The model for domains that were not seen: ridge fits to all domains, averaged by leaving domains out."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from mixtune.choice import SETTINGS, learn_population
from mixtune.moments import Rows, Sample


def test_without_a_domain_it_is_a_fit_without_it():
    """Left-out predictions of every domain are one average of ridge fits to the other domains, pooled and within."""
    rng = np.random.default_rng(0)
    domains = []
    for rows in (14, 15, 16, 17, 14, 15):
        X = rng.standard_normal((rows, 3)) + 0.5 * rng.standard_normal(3)
        slopes = [1.0, 1.5, 2.0] + 0.3 * rng.standard_normal(3)
        domains.append((X, X @ slopes + rng.standard_normal() + 0.5 * rng.standard_normal(rows)))
    found = learn_population([[Sample.of(Rows(*each)) for each in domains]])
    candidates = []
    for k, (new, _) in enumerate(domains):
        others = [each for place, each in enumerate(domains) if place != k]
        pooled = np.concatenate([U for U, _ in others]), np.concatenate([v for _, v in others])
        within = [(U - U.mean(axis=0), v - v.mean()) for U, v in others]
        trust = np.array([len(v) / (len(v) + SETTINGS.level_rows) for _, v in others])
        means = [np.append(U.mean(axis=0), v.mean()) for U, v in others]
        *middle, level = np.average(means, axis=0, weights=trust)
        own = []
        for ridge in SETTINGS.population_ridges:
            size = np.sum(pooled[0] ** 2) / 3
            own.append(Ridge(alpha=ridge * size).fit(*pooled).predict(new))
        for ridge in SETTINGS.population_ridges:
            U, v = (np.concatenate(parts) for parts in zip(*within))
            slopes = Ridge(alpha=ridge * np.sum(U**2) / 3, fit_intercept=False).fit(U, v).coef_
            own.append(new @ slopes + level - middle @ slopes)
        candidates.append(np.array(own))
    predicted = [v - residuals for (_, v), residuals in zip(domains, found.left_out, strict=True)]
    design, wanted = np.concatenate(candidates, axis=1).T, np.concatenate(predicted)
    shares = np.linalg.lstsq(design, wanted, rcond=None)[0]
    np.testing.assert_allclose(design @ shares, wanted, atol=1e-8)
    assert shares.sum() == pytest.approx(1.0)
    assert shares.min() > 0
    # All domains together predict for others, by the same average.
    assert found.heads[0].shape == (4,)
    np.testing.assert_allclose(found.heads[0][:3], [1.0, 1.5, 2.0], atol=0.5)
