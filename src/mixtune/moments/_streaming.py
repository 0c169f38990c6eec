"""Moments of data that do not fit into memory: read a block, compute its features, add its products, forget it.

Rows wait, as inputs and not as features, until their domain has a block's worth; so products are as large with a
thousand domains mixed in one file as with one. What remains in memory is the sums, and they are small.

Several blocks are at work at a time, each on a thread of its own: features and products then use all cores without
waiting for each other, which threads inside of one small product do. Sums are added in the order of the blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from threadpoolctl import threadpool_limits

from mixtune._checks import check_whole
from mixtune._device import torch_device
from mixtune.data._streams import Stream, open_stream
from mixtune.features import FeatureMap
from mixtune.moments._block_sums import MomentSums
from mixtune.moments._budget import DEFAULT_LIMIT, Budget
from mixtune.moments._moments import Moments
from mixtune.moments._standardise import Origin
from mixtune.moments._stream_features import StreamFeatures

__all__ = ["Progress", "stream_moments"]

Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the rows done and the rows in all, None where only reading tells."""

#: Blocks at work at a time: more would need more memory, or smaller blocks; further cores go to the products.
MOST_LANES = 4


def stream_moments(
    source: Any,
    *,
    feature_map: FeatureMap | None = None,
    target: str | Sequence[str] | None = None,
    domain: Any = None,
    columns: str | Sequence[str] | None = None,
    memory_limit: int | str = DEFAULT_LIMIT,
    dtype: str = "float64",
    origin: Origin | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
    encoding: str = "utf-8",
    separator: str | None = None,
    decimal: str = ".",
) -> dict[str, Moments]:
    """Moments of every domain of a source on disk, within a memory limit however many rows there are.

    Parameters
    ----------
    source
        Files or folders of tables (Parquet, Arrow, CSV): one path or several; ``{name: files}`` with the files of each
        domain; or arrays, as ``{name: (X, y)}`` or one pair ``(X, y)`` of arrays, mapped arrays or .npy files.
    feature_map
        The features, computed block by block; by default the inputs themselves.
    target
        The column, or columns, to predict; arrays have none.
    domain
        The column that names each row's domain (for one pair of arrays, the labels); by default every file is a
        domain of its own, named after it.
    columns
        The input columns; by default all but the target and the domain.
    memory_limit
        Memory for sums and blocks, such as "512 MB" or a number of bytes, beside what Python, BLAS and Arrow take (150
        to 300 MB).
        Half of it is for the sums of all domains, which are the result; if they take more, that is an error.
    dtype
        Precision of the features: "float64", or "float32", where products of max(1024, p) rows are formed in float32
        and added up in float64. That is faster, with a relative error of about 1e-7 in the moments.
    origin
        A pair of features (p,) and targets, of a point near the rows. Moments are then those of ``[U - origin, 1]``
        and ``Y - origin``, from which means can be taken out without loss; the constant is the last feature.
    device
        "cpu" for NumPy, or "cuda" ("cuda:1" is the second) for PyTorch on a CUDA device. Blocks are read here and sent
        there; features, products and sums are computed there, one block at a time, and the sums come back as NumPy
        arrays. Maps that take only NumPy arrays, such as scikit-learn's, compute here, and their features are sent. The
        blocks' features and the sums then take memory of the device; larger blocks, and so a larger ``memory_limit``,
        keep it busier.
    threads
        How many to use; by default all cores. With more than one the map's ``transform`` is called from several
        threads at once.
    progress
        Called with the rows done and the rows in all (None for CSV and Arrow files).
    encoding, separator, decimal
        How CSV is written.

    Returns
    -------
    dict of str to Moments
        In the order in which the domains appear.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pa.table({"x": [1.0, 2.0, 3.0], "y": [2.0, 4.0, 6.0], "site": ["a", "b", "a"]})
    ...     pa.parquet.write_table(table, f"{folder}/all.parquet")
    ...     moments = stream_moments(f"{folder}/all.parquet", target="y", domain="site")
    >>> moments["a"]
    Moments(count=2, n_features=1, n_outputs=1)
    >>> moments["a"].head(ridge=0.0)
    array([2.])
    """
    there = torch_device(device)
    stream = open_stream(
        source,
        target=target,
        domain=domain,
        columns=columns,
        encoding=encoding,
        separator=separator,
        decimal=decimal,
    )
    features = StreamFeatures.of(stream, feature_map, dtype, origin, there)
    threads = _cores() if threads is None else check_whole("threads", threads, least=1)
    budget = features.budget(stream.n_outputs, memory_limit, lanes=1 if there else min(threads, MOST_LANES))
    _check_known_sizes(stream, budget)
    with threadpool_limits(limits=max(1, threads // budget.lanes)), ThreadPoolExecutor(budget.lanes) as pool:
        sums, done = MomentSums(features, budget, pool), 0
        if progress is not None:
            progress(0, stream.rows)
        for block in stream.blocks(budget.reading_rows):
            sums.add(block)
            done += len(block.X)
            if progress is not None:
                progress(done, stream.rows)
        return sums.finish()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_known_sizes(stream: Stream, budget: Budget) -> None:
    """Refuse too many domains before reading them, where every piece is one."""
    p = budget.n_features
    sizes: dict[str, int] = {}
    for piece in stream.pieces:
        if (name := getattr(piece, "name", None)) is not None and getattr(piece, "labels", None) is None:
            sizes[name] = sizes.get(name, 0) + (piece.rows or 0)
    budget.check_sums(sum(8 * p * min(rows, p) for rows in sizes.values()), len(sizes))
