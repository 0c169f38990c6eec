"""A few rows of every domain of a source on disk: what transport distances need when the rows do not fit.

Every row draws a random number, and a domain's sample are the rows with the smallest. So samples of parts merge into a
sample of the whole, in any order, and each row has the same chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mixtune._checks import check_whole
from mixtune.data._pieces import Block, Floats
from mixtune.data._streams import Stream, open_stream

__all__ = ["Sample", "merge_samples", "sample_block", "sampling_rows", "stream_samples", "without_draws"]


class Sample(NamedTuple):
    """Rows of one domain, by increasing draw."""

    draws: Floats
    X: Floats
    y: Floats


def stream_samples(
    source: Any,
    *,
    target: str | Sequence[str] | None = None,
    domain: Any = None,
    columns: str | Sequence[str] | None = None,
    rows: int = 1000,
    seed: int = 0,
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str = ".",
) -> dict[str, tuple[Floats, Floats]]:
    """Draw at most ``rows`` rows of every domain, uniformly and without replacement, in one pass.

    Parameters
    ----------
    source, target, domain, columns, encoding, separator, decimal
        As for :func:`mixtune.moments.stream_moments`.
    rows
        The most rows of a domain; smaller domains come whole.
    seed
        Fixes the draw.

    Returns
    -------
    dict of str to (X, y)
        As :meth:`mixtune.Domains.from_dict` takes it, in the order in which the domains appear.

    Examples
    --------
    >>> arrays = np.arange(10.0)[:, None], np.zeros(10)
    >>> samples = stream_samples(arrays, domain=["a", "b"] * 5, rows=3)
    >>> {name: X.shape for name, (X, y) in samples.items()}
    {'a': (3, 1), 'b': (3, 1)}
    """
    rows, seed = check_whole("rows", rows, least=1), check_whole("seed", seed)
    options: dict[str, Any] = {"encoding": encoding, "separator": separator, "decimal": decimal}
    stream = open_stream(source, target=target, domain=domain, columns=columns, **options)
    found: dict[str, Sample] = {}
    for index, block in enumerate(stream.blocks(sampling_rows(stream))):
        found = merge_samples(found, sample_block(block, rows, (seed, index)), rows)
    return without_draws(found)


def sampling_rows(stream: Stream) -> int:
    """Rows to read at a time for samples: about 64 MB."""
    return max(64, 2**23 // (stream.n_inputs + stream.n_outputs))


def sample_block(block: Block, rows: int, seed: Sequence[int]) -> dict[str, Sample]:
    """The sample of one block; ``seed`` must differ from block to block."""
    rng = np.random.default_rng(list(seed))
    found = {}
    for name, X, y in block.by_domain():
        draws = rng.random(len(X))
        first = np.argsort(draws, kind="stable")[:rows]
        found[name] = Sample(draws[first], X[first], y[first])
    return found


def merge_samples(one: Mapping[str, Sample], other: Mapping[str, Sample], rows: int) -> dict[str, Sample]:
    """The sample of two parts, from the samples of each."""
    merged = dict(one)
    for name, sample in other.items():
        if name in merged:
            draws, X, y = (np.concatenate(pair) for pair in zip(merged[name], sample, strict=True))
            first = np.argsort(draws, kind="stable")[:rows]
            sample = Sample(draws[first], X[first], y[first])
        merged[name] = sample
    return merged


def without_draws(samples: Mapping[str, Sample]) -> dict[str, tuple[Floats, Floats]]:
    """The rows alone."""
    return {name: (sample.X, sample.y) for name, sample in samples.items()}
