"""Benchmarks of prices at tiny sizes: they run, and their other sides are what they say."""

import numpy as np
import pytest

from benchmarks import observed_markets, price_coverage, price_speed


def test_coverage_at_a_tiny_size(monkeypatch):
    monkeypatch.setattr(price_coverage, "PATHS", 100)
    monkeypatch.setattr(price_coverage, "CASES", {"put": price_coverage.CASES["put"]})
    share, claim, *_ = price_coverage.measure(3)
    assert 0 <= share.values["of seeds"] <= 1
    assert claim.ours == pytest.approx(abs(share.values["of seeds"] - 0.95))


def test_the_other_sides_price_the_same_options():
    plain, error = price_speed.plain_max_call(4000, 0)
    assert abs(plain - price_speed.PUBLISHED) < 4 * error + 0.03 * price_speed.PUBLISHED
    pytest.importorskip("QuantLib")
    ours, theirs = price_speed.our_put(2000, 0), price_speed.quantlib_put(2000, 0)
    assert abs(ours[0] - theirs[0]) < 4 * theirs[1] + 0.01 * ours[0]


def test_costs_end_at_the_first_good_size():
    spent, found = price_speed.cost(lambda paths, seed: (1.0, 1 / paths), lambda mean, error: error < 1e-3, seeds=2)
    assert spent >= 0
    assert found == "2000 paths 1.0000 +- 0.0005"
    never = price_speed.cost(lambda paths, seed: (1.0, 1.0), lambda mean, error: False, seeds=1)[1]
    assert never.endswith("not there yet")


def test_windows_and_their_intervals():
    prices = np.arange(1.0, 200.0)
    paths = observed_markets.windows(prices, 0, 121, 60)
    assert paths.shape == (2, 7)
    np.testing.assert_allclose(paths[1], 100 * prices[60:121:10] / prices[60])
    rng = np.random.default_rng(0)
    assert observed_markets.interval(np.full(50, 0.3), rng) == pytest.approx((0.3, 0.3))
    low, high = observed_markets.interval(np.random.default_rng(1).standard_normal(4000), rng)
    assert low < 0 < high
    assert high - low == pytest.approx(2 * 1.96 / 4000**0.5, rel=0.25)
