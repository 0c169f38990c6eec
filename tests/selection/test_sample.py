"""Which of very many sources are learned from."""

import numpy as np

from mixtune.selection import sample_sources


def test_up_to_the_limit_all_sources_are_learned_from():
    for count in (0, 1, 512):
        np.testing.assert_array_equal(sample_sources([3] * count, 7, seed=0), np.arange(count))


def test_a_draw_is_in_order_without_repeats_and_by_the_seed():
    found = sample_sources([50] * 2000, 20, seed=3)
    assert len(found) == 512
    assert np.all(np.diff(found) > 0)
    assert 0 <= found[0] <= found[-1] < 2000
    np.testing.assert_array_equal(found, sample_sources([50] * 2000, 20, seed=3))
    assert len(np.intersect1d(found, sample_sources([50] * 2000, 20, seed=4))) < 300


def test_very_small_sources_are_drawn_in_larger_numbers():
    sizes = [2] * 3000 + [4] * 3000
    assert len(sample_sources(sizes, 200, seed=0)) == int(np.ceil(20 * 200 / 3))
    assert len(sample_sources(sizes, 10_000, seed=0)) == 6000
