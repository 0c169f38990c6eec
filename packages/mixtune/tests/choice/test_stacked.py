"""Weights of the sources' heads that the task's rows find: against the explicit model, and with sources reversed."""

from dataclasses import replace

import numpy as np
import pytest

from choice.tasks import make_task
from mixtune.choice import SETTINGS, _pooled, choose
from mixtune.choice._pooled import PooledFamily, StackedFamily


@pytest.mark.parametrize("p", [3, 14])
def test_weights_and_heads_are_those_of_a_regression_on_the_sources_predictions(p):
    """Bayesian regression with the weights and what is the task's own as one vector of coefficients."""
    rng = np.random.default_rng(p)
    sources = [make_task(rng, 20, p, head=rng.standard_normal(p)) for _ in range(3)]
    task = make_task(rng, 9, p, head=sources[0].free.rows.y[:p], weights=[1.0, 2.0])
    family, allowed = StackedFamily(PooledFamily.learn(sources)), np.array([1.0, 0.0, 1.0])
    fits = family.fits(task, allowed)
    rows, heads = task.free.rows, family.pooled.heads[[0, 2]]
    design = np.hstack([rows.X @ heads.T, rows.X])
    for index, (_, settings) in enumerate(family.labels):
        spread = (
            np.r_[[SETTINGS.stacked_variance] * 2, [SETTINGS.own_variance * family.pooled.variance] * p]
            * settings["scale"]
        )
        start = np.r_[0.5, 0.5, np.zeros(p)]
        system = design.T @ (rows.weight[:, None] * design) / family.pooled.noise + np.diag(1 / spread)
        left = rows.weight * (rows.y - design @ start)
        found = start + np.linalg.solve(system, design.T @ left / family.pooled.noise)
        head = found[:2] @ heads + found[2:]
        np.testing.assert_allclose(fits.paths.heads[index][:-1], head, rtol=1e-6, atol=1e-8)
        positive = np.maximum(found[:2], 0)
        if positive.any():
            np.testing.assert_allclose(fits.weights[index][[0, 2]], positive / positive.sum(), atol=1e-6)
        assert fits.weights[index][1] == 0


def test_labels_tell_candidates_apart():
    rng = np.random.default_rng(0)
    family = StackedFamily(PooledFamily.learn([make_task(rng, 9, 2) for _ in range(2)]))
    assert len({str(label) for label in family.labels}) == len(SETTINGS.pooled_scales)


def test_a_sum_of_sources_with_a_sign_turned_is_found(monkeypatch):
    """The task is one source less the other, which no average of their heads comes near."""
    found, without = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        first, second = rng.standard_normal((2, 50))
        sources = [make_task(rng, 200, 50, head=head) for head in (first, second)]
        task = make_task(rng, 15, 50, head=first - second)
        found.append(np.sum((choose(task, sources).head[:-1] - first + second) ** 2))
        with monkeypatch.context() as patched:
            patched.setattr(_pooled, "SETTINGS", replace(SETTINGS, stacked_variance=1e-9))
            without.append(np.sum((choose(task, sources).head[:-1] - first + second) ** 2))
    assert np.mean(found) < 0.5 * np.mean(without)
