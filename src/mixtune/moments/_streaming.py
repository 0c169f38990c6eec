"""Moments of data that do not fit into memory: read a block, compute its features, add its products, forget it.

Rows wait, as inputs and not as features, until their domain has a block's worth; so products are as large with a
thousand domains mixed in one file as with one. What remains in memory is the sums, and they are small.

Several blocks are at work at a time, each on a thread of its own: features and products then use all cores without
waiting for each other, which threads inside of one small product do. Sums are added in the order of the blocks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from mixtune._array import all_finite, to_numpy
from mixtune._checks import check_choice, check_whole
from mixtune.data._pieces import Block
from mixtune.data._streams import Stream, open_stream
from mixtune.errors import DataError, ParameterError
from mixtune.features import FeatureMap, Identity, RandomFeatures
from mixtune.moments._budget import DEFAULT_LIMIT, Budget, as_bytes
from mixtune.moments._moments import Moments

__all__ = ["MomentSums", "Progress", "StreamFeatures", "stream_moments"]

Floats = np.ndarray[Any, Any]
Progress: TypeAlias = Callable[[int, int | None], None]
"""Called with the rows done and the rows in all, None where only reading tells."""

#: Blocks at work at a time: more would need more memory, or smaller blocks; further cores go to the products.
MOST_LANES = 4
#: Rows multiplied in float32 before their products are added in float64.
SINGLE_ROWS = 1024


def stream_moments(
    source: Any,
    *,
    feature_map: FeatureMap | None = None,
    target: str | Sequence[str] | None = None,
    domain: Any = None,
    columns: str | Sequence[str] | None = None,
    memory_limit: int | str = DEFAULT_LIMIT,
    dtype: str = "float64",
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
    stream = open_stream(
        source,
        target=target,
        domain=domain,
        columns=columns,
        encoding=encoding,
        separator=separator,
        decimal=decimal,
    )
    features = StreamFeatures.of(stream, feature_map, dtype)
    threads = _cores() if threads is None else check_whole("threads", threads, least=1)
    budget = features.budget(stream.n_outputs, memory_limit, lanes=min(threads, MOST_LANES))
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


@dataclass(frozen=True, eq=False)
class StreamFeatures:
    """A feature map, the names of its inputs and the precision of its features."""

    feature_map: FeatureMap
    n_inputs: int
    columns: tuple[str, ...] | None
    dtype: str

    @classmethod
    def of(cls, stream: Stream, feature_map: FeatureMap | None, dtype: str) -> StreamFeatures:
        """Check that the map takes the columns of a stream."""
        check_choice("dtype", dtype, ("float64", "float32"))
        ready = Identity(stream.n_inputs) if feature_map is None else feature_map
        if isinstance(ready, type) or not isinstance(ready, FeatureMap):
            raise ParameterError(
                f"feature_map={feature_map!r} is not a feature map: it needs transform and n_features_out; "
                "wrap fitted scikit-learn transformers in SklearnFeatures and modules in TorchFeatures"
            )
        known = getattr(ready, "n_inputs", None)
        if known is not None and known != stream.n_inputs:
            raise DataError(
                f"the feature map takes {known} columns, the data have {stream.n_inputs}; "
                "pass columns, the ones the map was made for"
            )
        if isinstance(ready, RandomFeatures) and ready.dtype != dtype:
            ready = replace(ready, dtype=dtype)  # the same weights, rounded: no pass to convert the features
        return cls(ready, stream.n_inputs, stream.columns, dtype)

    def budget(self, n_outputs: int, memory_limit: int | str, *, lanes: int = 1) -> Budget:
        """The sizes of blocks under a memory limit."""
        return Budget(as_bytes(memory_limit), self.n_inputs, n_outputs, int(self.feature_map.n_features_out), lanes)

    def __call__(self, X: Floats) -> Floats:
        """The features of a block of inputs."""
        if self.columns is not None and hasattr(self.feature_map, "transform_named"):
            U = self.feature_map.transform_named(X, self.columns)
        else:
            U = self.feature_map.transform(X)
        U = np.asarray(to_numpy(U), dtype=self.dtype)
        if U.shape != (len(X), self.feature_map.n_features_out):
            raise DataError(
                f"feature_map made features of shape {U.shape} from {len(X)} rows; "
                f"it says that it makes {self.feature_map.n_features_out} of each row"
            )
        return U


@dataclass(eq=False)
class MomentSums:
    """Moments of domains whose rows come in blocks, in any order; computed in the threads of ``pool``, if there is one.

    Examples
    --------
    >>> stream = open_stream((np.ones((5, 1)), np.arange(5.0)), domain=["a", "b", "a", "a", "b"])
    >>> features = StreamFeatures.of(stream, None, "float64")
    >>> sums = MomentSums(features, features.budget(1, "1 MB"))
    >>> for block in stream.blocks(2):
    ...     sums.add(block)
    >>> {name: moments.count for name, moments in sums.finish().items()}
    {'a': 3, 'b': 2}
    """

    features: StreamFeatures
    budget: Budget
    pool: ThreadPoolExecutor | None = None
    _flying: deque[tuple[str, Future[Moments]]] = field(default_factory=deque)
    _totals: dict[str, Moments | None] = field(default_factory=dict)
    _waiting: dict[str, list[tuple[Floats, Floats]]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _held: int = 0

    def add(self, block: Block) -> None:
        """Take a block of rows."""
        for name, X, y in block.by_domain():
            self._totals.setdefault(name, None)
            self._waiting.setdefault(name, []).append((X, y))
            self._counts[name] = self._counts.get(name, 0) + len(X)
            while self._counts.get(name, 0) >= self.budget.block_rows:
                self._flush(name)
        while self._counts and sum(self._counts.values()) > self.budget.waiting_rows:
            self._flush(max(self._counts, key=lambda name: self._counts[name]))

    def finish(self) -> dict[str, Moments]:
        """Add the rows that still wait, and hand the moments over."""
        for name in list(self._waiting):
            while self._counts.get(name):
                self._flush(name)
        while self._flying:
            self._land()
        if not self._totals:
            raise DataError("the source has no rows")
        return {name: total for name, total in self._totals.items() if total is not None}

    def _flush(self, name: str) -> None:
        """Send one block of waiting rows on its way into moments."""
        parts = self._waiting.pop(name)
        X, y = parts[0] if len(parts) == 1 else (np.concatenate(side) for side in zip(*parts, strict=True))
        size = min(len(X), self.budget.block_rows)
        if size < len(X):
            self._waiting[name] = [(X[size:], y[size:])]
        self._counts[name] = len(X) - size
        if not self._counts[name]:
            del self._counts[name]
        if self.pool is None:
            self._count(name, self._compute(X[:size], y[:size]))
            return
        # One block more than lanes: as inputs, which are small, it waits for the next thread that is free.
        while len(self._flying) > self.budget.lanes:
            self._land()
        self._flying.append((name, self.pool.submit(self._compute, X[:size], y[:size])))

    def _compute(self, X: Floats, y: Floats) -> Moments:
        U, y = self.features(X), np.asarray(y, dtype=np.float64)
        return _single_precision(U, y) if U.dtype == np.float32 else Moments.from_rows(U, y)

    def _land(self) -> None:
        name, future = self._flying.popleft()
        self._count(name, future.result())

    def _count(self, name: str, part: Moments) -> None:
        before = self._totals[name]
        total = part if before is None else before + part
        self._held += _bytes(total) - (0 if before is None else _bytes(before))
        self.budget.check_sums(self._held, len(self._totals))
        self._totals[name] = total


def _single_precision(U: Floats, y: Floats) -> Moments:
    """Moments of float32 features: products of a few rows in float32, their sums in float64."""
    if len(U) < U.shape[1]:
        return Moments.from_rows(U, y)
    targets = y if y.ndim == 2 else y[:, None]
    gram, cross = np.zeros((U.shape[1],) * 2), np.zeros((U.shape[1], targets.shape[1]))
    step = max(SINGLE_ROWS, U.shape[1])
    with np.errstate(all="ignore"):  # what is not finite is diagnosed below
        for begin in range(0, len(U), step):
            rows = U[begin : begin + step]
            gram += rows.T @ rows
            cross += rows.T.astype(np.float64) @ targets[begin : begin + step]
        square = np.sum(targets**2, axis=0)
    if not (all_finite(np.diagonal(gram)) and all_finite(cross) and all_finite(square)):
        Moments.from_rows(U, y)  # names what is not finite, if it is the rows
        raise DataError('the squares of the features overflow float32; pass dtype="float64" or scale the features')
    return Moments._make(len(U), y.ndim == 1, gram=gram, cross=cross, square=square, rows=None)


def _bytes(moments: Moments) -> int:
    return 8 * moments.n_features * (moments.n_features if moments.rows is None else moments.count)


def _check_known_sizes(stream: Stream, budget: Budget) -> None:
    """Refuse too many domains before reading them, where every piece is one."""
    p = budget.n_features
    sizes: dict[str, int] = {}
    for piece in stream.pieces:
        if (name := getattr(piece, "name", None)) is not None and getattr(piece, "labels", None) is None:
            sizes[name] = sizes.get(name, 0) + (piece.rows or 0)
    budget.check_sums(sum(8 * p * min(rows, p) for rows in sizes.values()), len(sizes))
