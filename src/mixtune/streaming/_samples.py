"""Uniform samples of every domain of a large source: what transport distances need when the rows do not fit.

Every row draws a random number, and a domain's sample are the rows with the smallest numbers. So samples of parts merge
into a sample of the whole, in any order, and each row has the same chance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np

from mixtune._array import Array, Floats
from mixtune._checks import as_bytes, check_whole, in_words
from mixtune._messages import Wording, nearest
from mixtune.errors import DataError
from mixtune.streaming._blocks import Block
from mixtune.streaming._dask import Cluster
from mixtune.streaming._stream import Progress, Reading, open_stream, reported

#: Memory for the rows that are read at a time, without a limit of the user's.
READING_BYTES = 2**26

Samples = dict[str, tuple[Array, Array]]


class Sample(NamedTuple):
    """Rows of one domain, by increasing draw; those of a domain that is kept whole, as they came."""

    draws: Floats
    X: Array
    y: Array


@dataclass(frozen=True)
class SampleJob:
    """Draw ``rows`` rows of each domain; domains in ``whole`` come with all of their rows, at most ``most_whole``.

    ``width`` is the number of inputs and outputs.
    """

    width: int
    rows: int
    whole: tuple[str, ...]
    most_whole: int | None
    seed: int
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        check_whole("rows", self.rows, least=1)
        check_whole("seed", self.seed)
        if self.most_whole is not None:
            check_whole("most_whole", self.most_whole, least=1)

    @property
    def reading_rows(self) -> int:
        """Rows read at once; a reader holds them as columns and as rows, and so does a draw."""
        room = READING_BYTES if self.memory_limit is None else min(READING_BYTES, self.memory_limit // 8)
        return max(64, room // (8 * self.width))

    def fold(self, blocks: Iterable[Block], place: Sequence[int] = ()) -> dict[str, Sample]:
        """The sample of all blocks; ``place`` tells their draws from those of other parts of the same source."""
        found: dict[str, Sample] = {}
        for index, block in enumerate(blocks):
            rng = np.random.default_rng([self.seed, *place, index])
            drawn = {name: self._cut(name, Sample(rng.random(len(X)), X, y)) for name, X, y in block.by_domain()}
            found = self.merge([found, drawn])
            self._check_size(found)
        return found

    def merge(self, parts: Sequence[Mapping[str, Sample]]) -> dict[str, Sample]:
        """The sample of several parts, from the samples of each."""
        merged = dict(parts[0])
        for part in parts[1:]:
            for name, sample in part.items():
                if name in merged:
                    joined = Sample(*(np.concatenate(pair) for pair in zip(merged[name], sample, strict=True)))
                    sample = self._cut(name, joined)
                merged[name] = sample
        return merged

    def finish(self, found: Mapping[str, Sample]) -> Samples:
        """The rows alone; refuse a domain that is wanted whole and has no rows at all."""
        for name in self.whole:
            if name not in found:
                raise DataError(f'no row belongs to domain "{name}"; {nearest(name, list(found))}')
        return {name: (sample.X, sample.y) for name, sample in found.items()}

    def _cut(self, name: str, sample: Sample) -> Sample:
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

    def _check_size(self, found: Mapping[str, Sample]) -> None:
        """Refuse samples that take more than half of the memory limit."""
        held = sum(part.nbytes for sample in found.values() for part in sample)
        if self.memory_limit is not None and 2 * held > self.memory_limit:
            raise DataError(
                "samples of {domains} domains take {size}, more than half of {remedy}",
                domains=len(found),
                size=in_words(held),
                remedy=Wording(
                    "memory_limit; raise memory_limit, or draw fewer rows of each",
                    "--memory-limit; raise it, or lower --sample-rows",
                ),
            )


def stream_samples(
    source: Any,
    *,
    rows: int = 1000,
    whole: Collection[str] = (),
    most_whole: int | None = None,
    seed: int = 0,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
    **reading: Unpack[Reading],
) -> Samples:
    """Draw at most ``rows`` rows of every domain, uniformly and without replacement, in one pass.

    Parameters
    ----------
    source, **reading
        The source, and ``target``, ``domain``, ``columns``, ``encoding``, ``separator``, ``decimal``, as for
        :func:`stream_moments`.
    rows
        The most rows of a domain; smaller domains come whole.
    whole
        Names of domains that come whole however large they are, such as the focal one, in the order of their rows.
    most_whole
        How many rows these may have; more are an error.
    seed
        Fixes the draw.
    memory_limit
        Memory, such as "1 GB", for the rows read at a time and, at most half of it, the samples; by default 64 MB are
        read at a time.
    progress
        Called with the rows done and the rows in all (None for CSV and Arrow files).
    cluster
        Draw on a Dask cluster instead; see :func:`gather_samples`.

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
    stream = open_stream(source, **reading)
    limit = None if memory_limit is None else as_bytes(memory_limit)
    job = SampleJob(stream.n_inputs + stream.n_outputs, rows, tuple(whole), most_whole, seed, limit)
    if cluster is not None:
        return job.finish(cluster.run(job, stream, progress))
    return job.finish(job.fold(reported(stream.blocks(job.reading_rows), progress, stream.rows)))


def gather_samples(
    source: Any, *, scheduler: Any = None, workers: int | None = None, block_rows: int = 100_000, **options: Any
) -> Samples:
    """Draw at most ``rows`` rows of every domain on a cluster: what weights from distances are computed on.

    Parameters
    ----------
    source
        As for :func:`gather_moments`.
    scheduler, workers, block_rows
        As for :class:`Cluster`.
    **options
        As for :func:`stream_samples`.

    Returns
    -------
    dict of str to (X, y)
        As :meth:`mixtune.Domains.from_dict` takes it.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> X = da.arange(60, chunks=20).reshape(60, 1)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     X, y = gather_samples({"a": (X, X[:, 0])}, rows=5, scheduler=client)["a"]
    >>> X.shape, bool((X[:, 0] == y).all())
    ((5, 1), True)
    """
    return stream_samples(source, cluster=Cluster(scheduler, workers, None, block_rows), **options)
