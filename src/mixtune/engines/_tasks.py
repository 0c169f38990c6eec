"""What the workers of a cluster do: blocks in, sums (or samples) out, sums of sums.

Every result carries the numbers of the blocks in it, so that the end can tell whether each was counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mixtune._files import array_digest
from mixtune.data._blocks import Block, Reading, label_block, table_block
from mixtune.data._pieces import Piece
from mixtune.data._sampling import Limits, Sample, merge_samples, sample_block
from mixtune.data._tables import as_table
from mixtune.engines._cluster import dask_module
from mixtune.engines._partials import Packed, PartialStore, add_moments, digest, pack, unpack
from mixtune.errors import DataError
from mixtune.moments import Moments
from mixtune.moments._block_sums import MomentSums
from mixtune.moments._budget import Budget
from mixtune.moments._stream_features import StreamFeatures

__all__ = [
    "MomentJob",
    "SampleJob",
    "Work",
    "array_block",
    "frame_block",
    "merge_moments",
    "merge_sample_parts",
    "moments_of_block",
    "moments_of_works",
    "samples_of_block",
    "samples_of_works",
]

Numbers = tuple[int, ...]
Part = tuple[Numbers, Packed]
SamplePart = tuple[Numbers, dict[str, Sample]]


@dataclass(frozen=True, eq=False)
class Work:
    """One block of a file: its number, its key, and where it lies."""

    number: int
    piece: Piece
    identity: Any
    key: str

    def check(self) -> None:
        """Refuse a file that changed since the work was given out: its key would not fit its content."""
        if self.piece.identity() != self.identity:
            raise DataError(f"a file changed while it was read ({self.identity}); run it again")


@dataclass(frozen=True, eq=False)
class MomentJob:
    """All that the blocks of one run share; ``topic`` is where progress is told."""

    features: StreamFeatures
    budget: Budget
    store: PartialStore
    settings: str
    topic: str


@dataclass(frozen=True, eq=False)
class SampleJob:
    """All that the samples of one run share; ``topic`` is where progress is told."""

    limits: Limits
    seed: int
    reading_rows: int
    topic: str


def frame_block(frame: Any, reading: Reading, number: int) -> Block:
    """A partition of a data frame as a block."""
    where = f"partition {number} of the data frame"
    return table_block(as_table(frame, where), reading, "0", where)


def array_block(X: Any, y: Any, labels: Any, name: str) -> Block:
    """Chunks of arrays as a block."""
    X, y = np.asarray(X), np.asarray(y)
    if labels is None:
        return Block(X, y, (name,))
    return Block(X, y, *label_block(np.asarray(labels), "domain"))


def moments_of_works(job: MomentJob, works: Sequence[Work]) -> Part:
    """The sum over several blocks of files, one after the other: one set of sums in memory."""
    total: dict[str, Moments] = {}
    for work in works:
        blocks = partial(_checked_blocks, work, job.budget.reading_rows)
        total = add_moments(total, _moments(job, work.number, work.key, blocks))
    return tuple(work.number for work in works), pack(total)


def moments_of_block(job: MomentJob, number: int, block: Block) -> Part:
    """The sums of a block that another task computed; its key is its content."""
    if not len(block.X):
        return (number,), pack({})
    codes = np.zeros(0, dtype=np.int64) if block.codes is None else block.codes
    content = array_digest({"X": block.X, "y": block.y, "codes": codes})
    # Equal blocks are still two blocks, hence the number.
    key = digest([job.settings, number, list(block.names), content])
    return (number,), pack(_moments(job, number, key, lambda: [block]))


def _checked_blocks(work: Work, rows: int) -> Iterator[Block]:
    work.check()
    yield from work.piece.blocks(rows)
    work.check()


def _moments(job: MomentJob, number: int, key: str, blocks: Callable[[], Any]) -> dict[str, Moments]:
    found = job.store.read(key)
    if found is None:
        sums = MomentSums(job.features, job.budget)
        for block in blocks():
            sums.add(block)
        found = sums.finish()
        job.store.write(key, found)
    _tell(job.topic, number, sum(moments.count for moments in found.values()))
    return found


def _tell(topic: str, number: int, rows: int) -> None:
    try:
        worker = dask_module("distributed").get_worker()
    except ValueError:  # not on a worker
        return
    worker.log_event(topic, {"block": number, "rows": rows})


def merge_moments(parts: Sequence[Part]) -> Part:
    """The sum of sums, in the order of the blocks: rounding is the same whoever computed them."""
    total: dict[str, Moments] = {}
    for _, packed in parts:
        total = add_moments(total, unpack(*packed))
    return _numbers(parts), pack(total)


def samples_of_works(job: SampleJob, works: Sequence[Work]) -> SamplePart:
    """The samples of several blocks of files."""
    found: dict[str, Sample] = {}
    for work in works:
        done = 0
        for index, block in enumerate(work.piece.blocks(job.reading_rows)):
            part = sample_block(block, job.limits, (job.seed, work.number, index))
            found = merge_samples(found, part, job.limits)
            done += len(block.X)
        _tell(job.topic, work.number, done)
    return tuple(work.number for work in works), found


def samples_of_block(job: SampleJob, number: int, block: Block) -> SamplePart:
    """The samples of a block that another task computed."""
    _tell(job.topic, number, len(block.X))
    return (number,), sample_block(block, job.limits, (job.seed, number, 0)) if len(block.X) else {}


def merge_sample_parts(job: SampleJob, parts: Sequence[SamplePart]) -> SamplePart:
    """The samples of several parts."""
    found: dict[str, Sample] = {}
    for _, samples in parts:
        found = merge_samples(found, samples, job.limits)
    return _numbers(parts), found


def _numbers(parts: Sequence[tuple[Numbers, Any]]) -> Numbers:
    return tuple(number for numbers, _ in parts for number in numbers)
