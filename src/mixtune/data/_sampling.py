"""A few rows of every domain of a source on disk: what transport distances need when the rows do not fit.

Every row draws a random number, and a domain's sample are the rows with the smallest. So samples of parts merge into a
sample of the whole, in any order, and each row has the same chance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mixtune._checks import check_whole
from mixtune._messages import nearest
from mixtune.data._blocks import Block, Floats
from mixtune.data._streams import Stream, open_stream
from mixtune.errors import DataError

__all__ = [
    "Limits",
    "Sample",
    "check_limits",
    "check_whole_domains",
    "merge_samples",
    "sample_block",
    "sampling_rows",
    "stream_samples",
    "without_draws",
]

#: Memory for the rows that are read at a time, without a limit of the user's.
READING_BYTES = 2**26


class Sample(NamedTuple):
    """Rows of one domain, by increasing draw; those of a domain that is kept whole, as they came."""

    draws: Floats
    X: Floats
    y: Floats


class Limits(NamedTuple):
    """How many rows of a domain are drawn, which domains come whole, and how many rows these may have."""

    rows: int
    whole: Collection[str] = ()
    most_whole: int | None = None

    def cut(self, name: str, sample: Sample) -> Sample:
        """The rows of a domain with the smallest draws."""
        if name in self.whole:
            if self.most_whole is not None and len(sample.X) > self.most_whole:
                raise DataError(
                    f'domain "{name}" has more than {self.most_whole:,} rows, and all of them are to be held in '
                    "memory; take a part of them as the focal rows"
                )
            return sample
        first = np.argsort(sample.draws, kind="stable")[: self.rows]
        return Sample(*(part[first] for part in sample))


def stream_samples(
    source: Any,
    *,
    target: str | Sequence[str] | None = None,
    domain: Any = None,
    columns: str | Sequence[str] | None = None,
    rows: int = 1000,
    whole: Collection[str] = (),
    most_whole: int | None = None,
    seed: int = 0,
    memory_limit: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
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
    whole
        Names of domains that come whole however large they are, such as the focal one, in the order of their rows.
    most_whole
        How many rows these may have; more are an error.
    seed
        Fixes the draw.
    memory_limit
        Bytes for the rows read at a time and, at most half of it, the samples; by default 64 MB are read at a time.
    progress
        Called with the rows done and the rows in all (None for CSV and Arrow files).

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
    limits, seed = check_limits(rows, whole, most_whole), check_whole("seed", seed)
    options: dict[str, Any] = {"encoding": encoding, "separator": separator, "decimal": decimal}
    stream = open_stream(source, target=target, domain=domain, columns=columns, **options)
    found: dict[str, Sample] = {}
    done = 0
    if progress is not None:
        progress(0, stream.rows)
    for index, block in enumerate(stream.blocks(sampling_rows(stream, memory_limit))):
        found = merge_samples(found, sample_block(block, limits, (seed, index)), limits)
        check_held(found, memory_limit)
        done += len(block.X)
        if progress is not None:
            progress(done, stream.rows)
    check_whole_domains(found, whole)
    return without_draws(found)


def check_limits(rows: int, whole: Collection[str], most_whole: int | None) -> Limits:
    """Refuse limits that are no numbers of rows."""
    rows = check_whole("rows", rows, least=1)
    return Limits(rows, tuple(whole), None if most_whole is None else check_whole("most_whole", most_whole, least=1))


def sampling_rows(stream: Stream, memory_limit: int | None = None) -> int:
    """Rows to read at a time for samples; a reader holds them as columns and as rows, and so does a draw."""
    room = READING_BYTES if memory_limit is None else min(READING_BYTES, memory_limit // 8)
    return max(64, room // (8 * (stream.n_inputs + stream.n_outputs)))


def check_held(samples: Mapping[str, Sample], memory_limit: int | None) -> None:
    """Refuse samples that take more than half of the limit."""
    held = sum(part.nbytes for sample in samples.values() for part in sample)
    if memory_limit is not None and 2 * held > memory_limit:
        size = f"{held / 1e6:,.0f}" if held >= 1e7 else f"{held / 1e6:.2g}"
        raise DataError(
            f"samples of {len(samples)} domains take {size} MB, more than half of memory_limit; raise "
            "memory_limit, or draw fewer rows of each"
        )


def check_whole_domains(samples: Mapping[str, Any], whole: Collection[str]) -> None:
    """Refuse a domain that is wanted whole and has no rows at all."""
    if missing := [name for name in whole if name not in samples]:
        raise DataError(f'no row belongs to domain "{missing[0]}"; {nearest(missing[0], list(samples))}')


def sample_block(block: Block, limits: Limits, seed: Sequence[int]) -> dict[str, Sample]:
    """The sample of one block; ``seed`` must differ from block to block."""
    rng = np.random.default_rng(list(seed))
    return {name: limits.cut(name, Sample(rng.random(len(X)), X, y)) for name, X, y in block.by_domain()}


def merge_samples(one: Mapping[str, Sample], other: Mapping[str, Sample], limits: Limits) -> dict[str, Sample]:
    """The sample of two parts, from the samples of each."""
    merged = dict(one)
    for name, sample in other.items():
        if name in merged:
            joined = Sample(*(np.concatenate(pair) for pair in zip(merged[name], sample, strict=True)))
            sample = limits.cut(name, joined)
        merged[name] = sample
    return merged


def without_draws(samples: Mapping[str, Sample]) -> dict[str, tuple[Floats, Floats]]:
    """The rows alone."""
    return {name: (sample.X, sample.y) for name, sample in samples.items()}
