"""Shares of candidates from validation tasks and left-out focal rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from mixtune.choice import Judgement, TaskErrors, average, least_error, mean_products


def products(rng, errors):
    residuals = rng.standard_normal((len(errors), 400)) * np.sqrt(errors)[:, None]
    return residuals @ residuals.T / 400


@pytest.mark.parametrize("pull", [0.01, 0.1, 1.0])
def test_shares_minimise_the_error_on_the_simplex(pull):
    rng = np.random.default_rng(0)
    C = products(rng, np.array([1.0, 1.2, 3.0, 8.0]))
    shares = least_error(C, pull)
    penalised = C + pull * np.diagonal(C).min() * np.eye(4)
    peer = minimize(
        lambda s: s @ penalised @ s,
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda s: s.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(shares, peer.x, atol=1e-5)


def test_units_and_a_candidate_that_is_exact():
    rng = np.random.default_rng(1)
    C = products(rng, np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(least_error(1e12 * C, 0.05), least_error(C, 0.05), rtol=1e-8)
    residuals = np.vstack([np.zeros(50), rng.standard_normal((2, 50))])
    shares = least_error(mean_products(residuals, np.ones(50)), 0.05)
    assert shares[0] == pytest.approx(1.0, abs=1e-6)


def test_an_outlier_does_not_decide():
    rng = np.random.default_rng(2)
    residuals = np.vstack([rng.standard_normal(100), 2.0 * rng.standard_normal(100)])
    residuals[0, 3] = 1000.0
    assert least_error(mean_products(residuals, np.ones(100)), 0.05)[0] > 0.6


def test_clipping_is_by_candidate():
    """A candidate that is exact must not hide how far off another one is."""
    residuals = np.vstack([1e-6 * np.ones(20), 5.0 * np.ones(20)])
    C = mean_products(residuals, np.ones(20))
    assert C[1, 1] == pytest.approx(25.0)


def test_sample_weights_count_as_repeated_rows():
    rng = np.random.default_rng(3)
    residuals = rng.uniform(-1, 1, (3, 10))
    twice = mean_products(np.hstack([residuals, residuals[:, :4]]), np.ones(14))
    weighted = mean_products(residuals, np.where(np.arange(10) < 4, 2.0, 1.0))
    np.testing.assert_allclose(weighted, twice, rtol=1e-12)


def judged(focal, rows=30.0, tasks=6, seed=0):
    """Tasks in which the second candidate, which transfers, has half of the error of the first."""
    rng = np.random.default_rng(seed)
    said = []
    for _ in range(tasks):
        C = products(rng, np.array([2.0, 1.0]))
        said.append(TaskErrors(C, np.diagonal(products(rng, np.array([2.0, 1.0])))))
    return average(Judgement(said, products(rng, np.array(focal)), rows, np.array([True, False])))


def test_tasks_decide_while_the_focal_domain_is_like_them():
    assert judged([2.0, 1.0])[1] > 0.6
    assert judged([1.0, 1.0])[1] > 0.4


def test_left_out_rows_decide_where_the_focal_domain_is_unlike_all():
    shares = judged([1.0, 8.0])
    assert shares[0] > 0.8
    assert shares[0] > judged([1.0, 1.0])[0]


def test_without_tasks_left_out_rows_decide():
    shares = judged([1.0, 4.0], tasks=0)
    assert shares[0] > 0.7
    assert shares.sum() == pytest.approx(1.0)


def test_a_single_row_leaves_the_choice_to_the_tasks():
    """Without tasks, candidates that learn from sources count alike; those of own rows alone know one row only."""
    own = np.array([False, False, True])
    products = np.diag([1.0, 4.0, 9.0])
    task = TaskErrors(products, np.diagonal(products))
    single = Judgement([task], None, rows=1.0, own=own)
    np.testing.assert_allclose(average(single), least_error(products, 0.02))
    np.testing.assert_allclose(average(replace(single, tasks=[])), [0.5, 0.5, 0.0])
    np.testing.assert_allclose(average(replace(single, tasks=[], own=np.ones(3, dtype=bool))), np.full(3, 1 / 3))
