"""Blocks as leaves of a tree of sums: handed out in numbers, added in their order, each counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mixtune.engines import _tasks as tasks
from mixtune.engines._cluster import dask_module
from mixtune.engines._partials import PartialStore, digest
from mixtune.engines._sources import ClusterSource
from mixtune.errors import DataError, MixtuneError
from mixtune.moments._streaming import Progress

__all__ = ["check_numbers", "leaves_of", "reduce_parts", "store_in", "told", "works_of"]

#: Sums that meet at one node of the tree.
FAN = 4
#: The most blocks that one task folds, one after the other; fewer where there are not many tasks yet to share out.
MOST_BLOCKS, ENOUGH_TASKS = 8, 128


def store_in(folder: str | Path | None) -> PartialStore:
    if folder is None:
        return PartialStore(None)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be made: {error.strerror}; pass another one") from error
    return PartialStore(str(Path(folder).resolve()))


def works_of(opened: ClusterSource, rows: int, settings: str) -> list[tasks.Work]:
    """The blocks of files, numbered and keyed; none for Dask collections."""
    if opened.blocks is not None:
        return []
    works = []
    for number, piece in enumerate(opened.pieces(rows)):
        identity = piece.identity()
        works.append(tasks.Work(number, piece, identity, digest([settings, getattr(piece, "name", None), identity])))
    if len({work.key for work in works}) < len(works):
        raise DataError("the same file is given more than once; pass each file once")
    return works


def leaves_of(
    opened: ClusterSource, works: list[tasks.Work], job: Any, of_works: Callable[..., Any], of_block: Callable[..., Any]
) -> list[Any]:
    delayed = dask_module("dask").delayed
    # One node of the graph, so that the feature map is sent to a worker once and not with every block.
    shared = delayed(job, traverse=False, pure=False)
    if opened.blocks is not None:
        make = delayed(of_block, pure=False)
        return [make(shared, number, block) for number, block in enumerate(opened.blocks)]
    make = delayed(of_works, pure=False)
    # From the number of blocks and not of workers, so that rounding does not depend on the cluster.
    size = min(max(len(works) // ENOUGH_TASKS, 1), MOST_BLOCKS)
    return [make(shared, works[begin : begin + size]) for begin in range(0, len(works), size)]


def reduce_parts(client: Any, parts: list[Any], merge: Callable[..., Any]) -> Any:
    """Sums of sums, FAN at a time, until one is left; Dask walks the tree depth first, so few wait."""
    merge = dask_module("dask").delayed(merge, pure=False)
    while len(parts) > 1:
        parts = [merge(parts[begin : begin + FAN]) for begin in range(0, len(parts), FAN)]
    return client.compute(parts[0]).result()


def check_numbers(numbers: Sequence[int], count: int) -> None:
    if list(numbers) != list(range(count)):
        raise MixtuneError(  # pragma: no cover - the tree is built so that this cannot be
            f"of {count} blocks {len(set(numbers))} were counted, {len(numbers)} times in all; please report this"
        )


@contextmanager
def told(client: Any, topic: str, total: int | None, progress: Progress | None) -> Iterator[None]:
    """Pass on what workers tell about finished blocks; a block that is done twice is told once."""
    if progress is None:
        yield
        return
    done: dict[int, int] = {}

    def handle(event: tuple[Any, dict[str, int]]) -> None:
        told = event[1]
        if told["block"] not in done:
            done[told["block"]] = told["rows"]
            progress(sum(done.values()), total)

    progress(0, total)
    client.subscribe_topic(topic, handle)
    try:
        yield
    finally:
        client.unsubscribe_topic(topic)
