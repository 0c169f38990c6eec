"""python -m benchmarks intervals: what is compared."""

import numpy as np
import pytest

from benchmarks import intervals


def test_the_interval_score_is_the_width_and_what_lies_outside():
    low, high = np.zeros(4), np.full(4, 2.0)
    assert intervals.score(low, high, np.array([0.0, 1.0, 2.0, 1.5])) == 2.0
    assert intervals.score(low, high, np.array([-0.1, 1.0, 2.3, 1.5])) == pytest.approx(2.0 + 20 * 0.4 / 4)


@pytest.mark.parametrize("kind", intervals.KINDS)
def test_noise_is_what_its_name_says(kind):
    X, y, sources, new, truth, spread = intervals.problem(1, kind, 20, "alike")
    assert (len(X), len(y), len(new), len(truth)) == (20, 20, intervals.TESTS, intervals.TESTS)
    assert len(sources) == 12
    assert np.all(spread > 0)
    assert (np.ptp(spread) == 0) == (kind == "constant")
    assert intervals.problem(1, kind, 20, "none")[2] == {}
