"""How the spread of errors varies with inputs and predictions, from left-out rows and validation tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mixtune.choice import ValidationTask, learn_local_spread


def draw(seed, count, slope, level=0.5):
    """Inputs, predictions, and errors whose spread is ``level exp(slope x)`` for the first input."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, 2))
    return X, X @ np.array([0.3, 1.0]), level * np.exp(slope * X[:, 0]) * rng.standard_normal(count)


def learned(rows, tasks=(), **options):
    X, predictions, errors = rows
    ones = np.ones(len(errors))
    return learn_local_spread(X, predictions, errors, ones, ones, np.arange(2), tasks, unit=1.0, **options)


def task(source, slope, level=0.5, learning=20):
    X, predictions, errors = draw(100 + source, 150, slope, level)
    _, _, left_out = draw(200 + source, learning, slope, level)
    residuals, inside = np.vstack([errors, errors]), np.vstack([left_out, left_out])
    return ValidationTask(source, residuals, np.ones(150), inside, 1, targets=predictions + errors, inputs=X)


def ratio(local):
    """The spread at 1 over that at -1 of the first input."""
    places = np.array([[1.0, 0.0], [-1.0, 0.0]])
    high, low = local(places, np.zeros(2), np.ones(2))
    return high / low


def test_many_rows_show_how_the_spread_varies():
    assert ratio(learned(draw(0, 400, 0.7))) == pytest.approx(np.exp(1.4), rel=0.25)
    assert ratio(learned(draw(0, 400, 0.0))) == pytest.approx(1.0, abs=0.15)


def test_few_rows_take_the_pattern_that_the_tasks_have_in_common():
    tasks = [task(k, 0.7) for k in range(6)]
    found = [[ratio(learned(draw(seed, 10, 0.7), own)) for own in (tasks, ())] for seed in range(12)]
    with_tasks, alone = np.exp(np.mean(np.log(found), axis=0))
    assert with_tasks > 2.5 > 2.0 > alone


def test_rows_that_contradict_the_tasks_decide():
    assert ratio(learned(draw(0, 200, 0.0), [task(k, 0.7) for k in range(6)])) == pytest.approx(1.0, abs=0.2)


def test_the_spread_of_left_out_rows_does_not_know_their_own_error():
    X, predictions, errors = rows = draw(1, 40, 0.7)
    before = learned(rows)
    large = errors.copy()
    place = int(np.argmin(X[:, 0]))
    large[place] *= 30.0
    after = learned((X, predictions, large))
    # The fit to all rows follows the row; the one without it follows the others.
    fitted = [np.log(each(X, predictions, np.ones(40)))[place] for each in (before, after)]
    assert after.rows[place] < fitted[1] - 0.1
    assert fitted[1] > fitted[0] + 0.1


def test_outside_the_rows_the_spread_stays_what_it_is_at_their_edge():
    local = learned(draw(0, 200, 0.7))
    found = local(np.array([[1e6, -1e6], [-1e6, 1e6]]), np.array([1e9, -1e9]), np.full(2, 1e12))
    assert np.all((found >= np.exp(local.low)) & (found <= np.exp(local.high)))
    assert local.low < 0 < local.high < 3


def test_errors_of_tasks_stand_in_for_few_left_out_rows():
    tasks = [task(k, 0.0, level) for k, level in enumerate((0.4, 0.5, 0.6, 0.5))]
    local = learned(draw(0, 20, 0.0), tasks)
    expected = np.quantile(np.abs(np.random.default_rng(0).standard_normal(10_000)) * 0.5, 0.9)
    assert np.quantile(local.validated, 0.9) == pytest.approx(expected, rel=0.3)
    assert 0.2 < local.share < 0.5
    assert learned(draw(0, 200, 0.0), tasks).share < 0.1
    assert learned(draw(0, 20, 0.0)).share == 0.0


def test_equal_rows_say_as_little_of_the_level_as_one():
    tasks = [task(k, 0.0, learning=5) for k in range(4)]
    nothing = np.zeros((5, 2)), np.zeros(5), np.zeros(5)
    local = learned(nothing, tasks)
    assert np.mean(local.validated) > 0.2
    assert local.share == 1.0
    distinct = learned((draw(0, 5, 0.0)[0], *nothing[1:]), tasks)
    assert np.mean(distinct.validated) < np.mean(local.validated)


def test_the_posterior_spread_is_part_of_the_errors_of_tasks():
    tasks = [task(k, 0.0, learning=5) for k in range(4)]
    nothing = np.zeros((5, 2)), np.zeros(5), np.zeros(5)
    plain, wide = (learned(nothing, tasks, typical=typical) for typical in (1.0, 4.0))
    np.testing.assert_allclose(wide.validated, plain.validated / 2.0)


@pytest.mark.parametrize("change", ["exact", "no inputs", "tasks exact", "one row", "rows without tests"])
def test_what_says_nothing_gives_a_constant_or_finite_spread(change):
    X, predictions, errors = draw(0, 1 if change == "one row" else 30, 0.3)
    tasks = [task(k, 0.3) for k in range(3)]
    if change == "exact":
        errors = 0.0 * errors
    elif change == "no inputs":
        tasks = [replace(each, inputs=None) for each in tasks]
    elif change == "tasks exact":
        tasks = [replace(each, residuals=0.0 * each.residuals) for each in tasks]
    elif change == "rows without tests":
        tasks = [replace(each, left_out=each.residuals) for each in tasks]
    local = learned((X, predictions, errors), tasks)
    spread = local(X, predictions, np.ones(len(X)))
    assert np.all(np.isfinite(spread) & (spread > 0))
    assert np.all(np.isfinite(local.rows))
    assert (local.share == 0.0) == (change in ("tasks exact", "rows without tests"))
    if change == "exact":
        np.testing.assert_array_equal(spread, 1.0)
