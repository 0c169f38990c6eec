"""The clock: equidistant and given dates, flat and curved rates, and refusals."""

import dataclasses
import pickle

import numpy as np
import pytest

from mixtune.errors import ParameterError
from mixtune_options import TimeGrid


def test_equidistant_dates_with_a_flat_rate():
    grid = TimeGrid(maturity=3, dates=9, rate=0.05)
    assert (grid.n_dates, grid.dates, grid.maturity) == (9, 9, 3.0)
    np.testing.assert_allclose(grid.times, np.arange(10) / 3)
    np.testing.assert_allclose(grid.steps, np.full(9, 1 / 3))
    np.testing.assert_array_equal(grid.rates, np.full(9, 0.05))
    np.testing.assert_allclose(grid.discount, np.exp(-0.05 * grid.times))


def test_given_times_with_a_curve():
    grid = TimeGrid.from_times([0, 0.25, 1, 3], rate=[0.01, 0.03, -0.02])
    assert (grid.n_dates, grid.maturity) == (3, 3.0)
    np.testing.assert_allclose(grid.discount, np.exp([0, -0.0025, -0.025, 0.015]))
    same = TimeGrid(maturity=3, dates=2, rate=[0.1, 0.2])
    np.testing.assert_array_equal(TimeGrid.from_times(same.times, rate=same.rates).discount, same.discount)


def test_grids_do_not_change():
    times = np.array([0.0, 1.0])
    grid = TimeGrid.from_times(times)
    times[1] = 5.0
    assert grid.times[1] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        grid.discount[0] = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        grid.maturity = 2.0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(grid)).times, grid.times)  # noqa: S301


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maturity": 1, "dates": 0}, "dates must be a whole number >= 1; got 0"),
        ({"maturity": 1, "dates": 2.0}, "dates must be a whole number"),
        ({"maturity": 0, "dates": 3}, "maturity must be a finite number > 0; got 0"),
        ({"maturity": -1, "dates": 3}, "maturity must be a finite number > 0"),
        ({"maturity": np.nan, "dates": 3}, "maturity must be a finite number > 0"),
        ({"maturity": 1, "dates": 3, "rate": [0.1, 0.2]}, "one number, or 3 of them, one per interval"),
        ({"maturity": 1, "dates": 3, "rate": np.inf}, "rate must be finite"),
        ({"maturity": 1, "dates": 3, "rate": "high"}, "rate must be numbers"),
        ({"maturity": 1, "dates": 3, "rate": -1e6}, "pass 0.05 for 5%"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ParameterError, match=message):
        TimeGrid(**options)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0.0], "at least one date"),
        ([[0.0, 1.0]], "at least one date"),
        ([0.5, 1.0], "begin with 0"),
        ([0, 1, 1], "times must increase; entry 2 is 1, after 1"),
        ([0, 2, 1], "times must increase; entry 2 is 1, after 2"),
        ([0, np.nan], "times must be finite"),
        ("soon", "times must be numbers"),
    ],
)
def test_bad_times(times, message):
    with pytest.raises(ParameterError, match=message):
        TimeGrid.from_times(times)
