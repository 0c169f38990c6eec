"""Thousands of sources: which of them priors are learned from.

How domains differ is known well from some hundred of them: the mean of M heads is off by 1/M of their variance. So the
choice looks at a sample beyond that, drawn at random, since sources picked for how well they suit the focal rows would
make leave-one-out on these rows look too good.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mixtune.selection._task import Floats

__all__ = ["SAMPLED", "sample_sources"]

#: Most sources to learn from, unless their rows are very few.
SAMPLED = 512
#: Rows for each column that a sample has at least, where there are as many.
ROWS_A_COLUMN = 20


def sample_sources(sizes: Sequence[int], width: int, *, seed: int) -> Floats:
    """Places of the sources to learn from, in order: all of them up to 512, of more a draw.

    Parameters
    ----------
    sizes : sequence of int
        Rows of each source.
    width : int
        Columns: a draw of very small sources is so large that it has 20 rows for each.
    seed : int
        Of the draw.

    Examples
    --------
    >>> sample_sources([50, 60, 70], 4, seed=0)
    array([0, 1, 2])
    >>> len(sample_sources([50] * 10_000, 100, seed=0)), len(sample_sources([2] * 10_000, 100, seed=0))
    (512, 1000)
    """
    count = len(sizes)
    if count <= SAMPLED:
        return np.arange(count)
    wanted = int(np.ceil(ROWS_A_COLUMN * width / (sum(sizes) / count)))
    size = min(max(SAMPLED, wanted), count)
    # A generator of its own, so that what else is drawn does not depend on whether sources were.
    return np.sort(np.random.default_rng([seed, count]).choice(count, size, replace=False))
