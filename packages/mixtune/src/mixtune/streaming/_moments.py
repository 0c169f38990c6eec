"""Moments of data that do not fit into memory: read a block, compute its features, add its products, forget it.

Rows wait, as inputs and not as features, until their domain has a block's worth; so products are as large with a
thousand domains mixed in one file as with one. What remains in memory is the sums, and they are small.

Several blocks are computed at a time, each on a thread of its own: features and products then use all cores without
waiting for each other, which threads inside of one small product do. Sums are added in the order of the blocks.

Where features are computed on a device, products and sums are formed there; the result are NumPy arrays.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from joblib import cpu_count
from threadpoolctl import threadpool_limits

from mixtune.arrays import Array, namespace, to_device, to_numpy, torch_device
from mixtune.checks import as_bytes, check_choice, check_whole, in_words
from mixtune.errors import DataError, ParameterError
from mixtune.features import FeatureMap, Identity, RandomFeatures, map_rows, placed, to_spec
from mixtune.files import array_digest
from mixtune.moments import Moments, Origin
from mixtune.streaming._dask import Cluster, digest, run_job
from mixtune.streaming._stream import Block, Progress, Stream, open_stream

#: A function from the targets in the data to those of a fit; its ``repr`` identifies it.
TargetCode: TypeAlias = Callable[[Array], Array]

DEFAULT_LIMIT = "512 MB"
#: Larger blocks do not make products faster, they only use the cache less well.
_BLOCK_BYTES = 64 * 2**20
#: Blocks computed at a time: more would need more memory, or smaller blocks; further cores go to the products.
_MOST_LANES = 4


@dataclass(frozen=True)
class Budget:
    """Block sizes that follow from a memory limit: half of it for the sums, half for rows on their way.

    Of the latter one half goes to the features of ``lanes`` blocks at once (twice: maps need room to work), the other
    to rows that are read and wait for the block of their domain to fill.

    Examples
    --------
    >>> budget = Budget(as_bytes("512 MB"), n_inputs=20, n_outputs=1, n_features=1024)
    >>> budget.block_rows, budget.reading_rows
    (7804, 7804)
    """

    limit: int
    n_inputs: int
    n_outputs: int
    n_features: int
    lanes: int = 1

    def __post_init__(self) -> None:
        # Besides the sums, each lane computes the product of its block, and one sum is old and new at once.
        features = 64 * 16 * (self.n_features + self.n_outputs)
        needed = max(4 * self.lanes * features, (2 + self.lanes) * 8 * self.n_features**2)
        if self.limit < needed:
            little = f"memory_limit of {in_words(self.limit)} is too little for {self.n_features} features"
            raise ParameterError(f"{little}; at least {in_words(needed)} are needed", code="sums-too-large")

    @property
    def block_rows(self) -> int:
        """Rows whose features are computed at once."""
        enough = max(_BLOCK_BYTES // (8 * self.n_features), 8 * self.n_features)
        return max(64, min(self.limit // 4 // self.lanes // (16 * (self.n_features + self.n_outputs)), enough))

    @property
    def waiting_rows(self) -> int:
        """Rows that may wait for their blocks to fill."""
        return max(64, self.limit // 8 // (8 * (self.n_inputs + self.n_outputs + 1)))

    @property
    def reading_rows(self) -> int:
        """Rows read at once; a reader holds them as columns and as rows."""
        return max(64, min(self.limit // 8 // (24 * (self.n_inputs + self.n_outputs + 1)), self.block_rows))

    def check_sums(self, held: int, domains: int) -> None:
        """Refuse sums that take more than their half."""
        if held > self.limit // 2:
            size = f"the moments of {domains} domains with {self.n_features} features take {in_words(held)}"
            remedy = f"pass memory_limit of at least {in_words(2 * held)}, or fewer features"
            raise DataError(f"{size}, more than half of memory_limit; {remedy}", code="sums-too-large")


@dataclass(frozen=True, eq=False)
class StreamFeatures:
    """A feature map, the names of its inputs, the precision of its features and the point they are taken about.

    Sums of squares lose what is small beside the mean. Where means are to be taken out afterwards, rows are first
    moved to an ``origin`` near them, and a constant is kept as the last feature to tell how far off the origin was.
    With a ``device`` (None for NumPy, or what PyTorch calls it) features and targets are tensors there. A map with
    ``of_domain(name)`` has another map for each domain. A ``code`` transforms the targets.

    Examples
    --------
    >>> origin = Origin(np.array([1.0]), np.array(0.0))
    >>> StreamFeatures(Identity(1), 1, None, "float64", origin)(np.array([[3.0], [4.0]]))
    array([[2., 1.],
           [3., 1.]])
    """

    feature_map: FeatureMap
    n_inputs: int
    columns: tuple[str, ...] | None
    dtype: str
    origin: Origin | None = None
    device: str | None = None
    code: TargetCode | None = None

    @classmethod
    def of(
        cls,
        stream: Stream,
        feature_map: Any,
        dtype: str,
        origin: Origin | None = None,
        device: str | None = None,
        code: TargetCode | None = None,
    ) -> StreamFeatures:
        """Check that the map takes the columns of a stream."""
        check_choice("dtype", dtype, ("float64", "float32"))
        ready = Identity(stream.n_inputs) if feature_map is None else feature_map
        if isinstance(ready, type) or not isinstance(ready, FeatureMap):
            remedy = "wrap fitted scikit-learn transformers in SklearnFeatures and modules in TorchFeatures"
            lacks = "is not a feature map: it needs transform and n_features_out"
            raise ParameterError(f"feature_map={feature_map!r} {lacks}; {remedy}")
        known = getattr(ready, "n_inputs", None)
        if known is not None and known != stream.n_inputs:
            difference = f"the feature map takes {known} columns, the data have {stream.n_inputs}"
            raise DataError(f"{difference}; pass columns, the ones the map was made for")
        if isinstance(ready, RandomFeatures) and ready.dtype != dtype:
            ready = replace(ready, dtype=dtype)  # the same weights, rounded: no pass to convert the features
        if origin is not None:
            origin = Origin(*(np.asarray(part, dtype=np.float64) for part in origin))
            size = int(ready.n_features_out)
            outputs = ((), (stream.n_outputs,)) if code is None else (origin.targets.shape,)
            if origin.features.shape != (size,) or origin.targets.shape not in outputs:
                data = f"the data have {size} features and {stream.n_outputs} outputs"
                like = f"the rows that they are to be like have {origin.features.size} and {origin.targets.size}"
                raise DataError(f"{data}, {like}; pass the same columns and outputs")
        return cls(placed(ready, device), stream.n_inputs, stream.columns, dtype, origin, device, code)

    @property
    def n_features(self) -> int:
        """How many features the sums are over: those of the map, and the constant where there is an origin."""
        return int(self.feature_map.n_features_out) + (self.origin is not None)

    def __call__(self, X: Array) -> Array:
        """The features of a block of inputs."""
        U = map_rows(self.feature_map, X, self.columns, self.device)
        U = to_numpy(U) if self.device is None else U
        if tuple(U.shape) != (len(X), self.feature_map.n_features_out):
            made = f"feature_map made features of shape {tuple(U.shape)} from {len(X)} rows"
            raise DataError(f"{made}; it says that it makes {self.feature_map.n_features_out} of each row")
        xp = namespace(U)
        dtype = getattr(xp, self.dtype)
        if self.origin is None:
            return xp.astype(U, dtype, copy=False)
        shifted = xp.empty((len(X), self.n_features), dtype=dtype, device=U.device)
        shifted[:, -1] = 1.0
        # In float32 only where that is the same point; converting to float64 and back takes longer than the products.
        point, rounded = self.origin.features, self.origin.features.astype(self.dtype)
        point = to_device(rounded if np.array_equal(rounded, point) else point, self.device)
        xp.subtract(xp.astype(U, dtype, copy=False), point, out=shifted[:, :-1])
        return shifted

    def targets(self, y: Array) -> Array:
        """The targets of a block, in float64."""
        values = np.asarray(y if self.code is None else self.code(y), dtype=np.float64)
        return to_device(values if self.origin is None else values - self.origin.targets, self.device)

    def digest(self) -> str:
        """Tell maps and origins apart: maps by what they are made of, or else by the features of made-up rows.

        Examples
        --------
        >>> maps = (RandomFeatures(n_inputs=2, width=5, seed=seed) for seed in (0, 1))
        >>> one, other = (StreamFeatures(each, 2, None, "float64") for each in maps)
        >>> one.digest() == other.digest()
        False
        """
        key = map_digest(self.feature_map)
        if key is None:
            kind = type(self.feature_map).__qualname__
            rows = np.random.default_rng(0).standard_normal((32, self.n_inputs)) * np.logspace(-3, 3, 32)[:, None]
            try:
                key = digest([{"type": kind}, array_digest({"probe": self(rows)})])
            except ValueError as error:
                problem = f"this {kind} cannot be told from other maps ({error}), so no blocks can be kept for it"
                remedy = "register it with register_feature_map, or leave folder out"
                raise ParameterError(f"{problem}; {remedy}") from error
        coded = [] if self.code is None else [repr(self.code)]
        return digest([key, array_digest({} if self.origin is None else self.origin._asdict()), *coded])

    def moments(self, name: str, first: int, X: Array, y: Array) -> tuple[str, Moments]:
        """Moments of rows of one domain, of which ``first`` rows came before."""
        own = getattr(self.feature_map, "of_domain", None)
        make = self if own is None else replace(self, feature_map=own(name))
        try:
            return name, Moments.from_rows(make(X), self.targets(y), precision=self.dtype)
        except DataError as error:
            # The error counts rows from the beginning of this block.
            where = f" (the rows after its first {first:,})" if first else ""
            raise DataError(f'domain "{name}"{where}: {error}', code=error.code) from error


def map_digest(feature_map: Any) -> str | None:
    """A hash of a map; None for a map that cannot be serialised."""
    try:
        spec, arrays = to_spec(feature_map)
    except ParameterError:
        return None
    return digest([spec, array_digest(arrays)])


def regroup(blocks: Iterable[Block], budget: Budget, taken: Counter[str]) -> Iterator[tuple[str, int, Array, Array]]:
    """All rows as groups (name, rows of the domain before, X, y) of at most a block of one domain.

    Rows wait until their domain has a block's worth, or until there is no room for more. ``taken`` counts the rows that
    were handed on, by domain in the order in which the domains appear.

    Examples
    --------
    >>> block = Block(np.arange(3.0)[:, None], np.zeros(3), ("a", "b"), np.array([1, 0, 1]))
    >>> groups = regroup([block, block], Budget(10**6, 1, 1, 1), Counter())
    >>> [(name, X[:, 0].tolist()) for name, _, X, _ in groups]
    [('a', [1.0, 1.0]), ('b', [0.0, 2.0, 0.0, 2.0])]
    """
    waiting: dict[str, list[tuple[Array, Array]]] = {}
    counts: Counter[str] = Counter()

    def take(name: str, least: int) -> Iterator[tuple[str, int, Array, Array]]:
        X, y = (np.concatenate(side) for side in zip(*waiting.pop(name), strict=True))
        while len(X) >= least:
            size = min(len(X), budget.block_rows)
            yield name, taken[name], X[:size], y[:size]
            taken[name] += size
            X, y = X[size:], y[size:]
        counts[name] = len(X)
        if len(X):
            waiting[name] = [(X, y)]

    for block in blocks:
        for name, X, y in block.by_domain():
            taken.setdefault(name, 0)
            waiting.setdefault(name, []).append((X, y))
            counts[name] += len(X)
            if counts[name] >= budget.block_rows:
                yield from take(name, budget.block_rows)
        if counts.total() > budget.waiting_rows:
            for name in list(waiting):
                yield from take(name, 1)
    for name in list(waiting):
        yield from take(name, 1)


@dataclass(frozen=True, eq=False)
class MomentJob:
    """Add up the moments of every domain, block by block; ``threads`` are those of linear algebra, None for any number.

    Examples
    --------
    >>> stream = open_stream((np.ones((5, 1)), np.arange(5.0)), domain=["a", "b", "a", "a", "b"])
    >>> features = StreamFeatures.of(stream, None, "float64")
    >>> job = MomentJob(features, Budget(10**6, n_inputs=1, n_outputs=1, n_features=1))
    >>> {name: moments.count for name, moments in job.fold(stream.blocks(2)).items()}
    {'a': 3, 'b': 2}
    """

    features: StreamFeatures
    budget: Budget
    threads: int | None = None

    @classmethod
    def of(
        cls, features: StreamFeatures, stream: Stream, limit: int | str, cores: int | None, *, on_cluster: bool
    ) -> MomentJob:
        """The job within a memory limit, with as many threads as there are cores; workers of a cluster have one each.

        Where every chunk is one domain, too many of them are refused before reading.
        """
        p, outputs = features.n_features, stream.n_outputs
        if features.code is not None and features.origin is not None:
            outputs = features.origin.targets.size
        cores = cpu_count() if cores is None else check_whole("threads", cores, least=1)
        lanes = 1 if features.device or on_cluster else min(cores, _MOST_LANES)
        budget = Budget(as_bytes(limit), stream.n_inputs, outputs, p, lanes)
        if on_cluster:
            return cls(features, budget)
        counts: Counter[str] = Counter()
        for chunk in stream.chunks:
            if chunk.name is not None and getattr(chunk, "labels", None) is None:
                counts[chunk.name] += chunk.rows or 0
        budget.check_sums(sum(8 * p * min(rows, p) for rows in counts.values()), len(counts))
        return cls(features, budget, max(1, cores // lanes))

    @property
    def reading_rows(self) -> int:
        return self.budget.reading_rows

    def settings(self, reading: Any) -> list[Any]:
        """All that moments depend on besides the rows."""
        return [reading, self.features.columns, self.features.dtype, self.features.digest()]

    def fold(self, blocks: Iterable[Block], place: Sequence[int] = ()) -> dict[str, Moments]:
        """The moments of all blocks; ``place``, where they stand in the source, does not matter here."""
        totals: dict[str, Moments] = {}
        taken: Counter[str] = Counter()
        held = 0
        with threadpool_limits(limits=self.threads):
            for name, part in self._computed(regroup(blocks, self.budget, taken)):
                before = totals.get(name)
                totals[name] = part if before is None else before + part
                held += _bytes(totals[name]) - (0 if before is None else _bytes(before))
                self.budget.check_sums(held, len(taken))
        return {name: totals[name].on_device(None) for name in taken}

    def finish(self, found: Mapping[str, Moments]) -> dict[str, Moments]:
        """The result, which knows its rounding; refuse a source without rows."""
        if not found:
            raise DataError("the source has no rows")
        return {name: moments.rounded(self.features.dtype) for name, moments in found.items()}

    def _computed(self, groups: Iterable[tuple[str, int, Array, Array]]) -> Iterator[tuple[str, Moments]]:
        """The moments of each group, computed on several threads and handed over in order."""
        running: deque[Future[tuple[str, Moments]]] = deque()
        with ThreadPoolExecutor(self.budget.lanes) as pool:
            for group in groups:
                # One block more than lanes: as inputs, which are small, it waits for the next thread that is free.
                if len(running) > self.budget.lanes:
                    yield running.popleft().result()
                running.append(pool.submit(self.features.moments, *group))
            while running:
                yield running.popleft().result()


def work_device(device: str, *, on_cluster: bool) -> str | None:
    """The PyTorch device that a user means, or None for NumPy, which is what the workers of a cluster use."""
    if on_cluster and device != "cpu":
        raise ParameterError(f"device={device!r} cannot be used with Dask, whose workers use NumPy; omit it")
    return torch_device(device)


def stream_moments(
    source: Any,
    *,
    feature_map: FeatureMap | None = None,
    memory_limit: int | str = DEFAULT_LIMIT,
    dtype: str = "float64",
    origin: Origin | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress | None = None,
    cluster: Cluster | None = None,
    **reading: Any,
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
    cluster
        Compute on a Dask cluster instead, whose workers use NumPy on one thread each; see :func:`gather_moments`.
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
    there = work_device(device, on_cluster=cluster is not None)
    stream = open_stream(source, **reading)
    features = StreamFeatures.of(stream, feature_map, dtype, origin, there)
    job = MomentJob.of(features, stream, memory_limit, threads, on_cluster=cluster is not None)
    return run_job(job, stream, progress, cluster, reading)


def gather_moments(
    source: Any,
    *,
    scheduler: Any = None,
    workers: int | None = None,
    folder: str | Path | None = None,
    block_rows: int = 100_000,
    **options: Any,
) -> dict[str, Moments]:
    """Moments of every domain, computed on a Dask cluster.

    Parameters
    ----------
    source
        A Dask data frame; a pair ``(X, y)`` of Dask arrays, or ``{name: (X, y)}``; or files and folders as for
        :func:`stream_moments`, which the workers must find under the same names.
    scheduler, workers, folder, block_rows
        As for :class:`Cluster`.
    **options
        As for ``stream_moments``, but for ``device`` and ``threads``. For a pair of Dask arrays, ``domain`` is a Dask
        array of labels; ``memory_limit`` holds in each worker.

    Returns
    -------
    dict of str to Moments
        In the order in which the domains appear, the same on any cluster.

    Raises
    ------
    MixtuneError
        If the cluster is lost; what was finished is kept in ``folder``.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> X = da.arange(6, chunks=2).reshape(6, 1)
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     gather_moments({"a": (X, 2 * X[:, 0])}, scheduler=client)["a"].head(ridge=0.0)
    array([2.])
    """
    return stream_moments(source, cluster=Cluster(scheduler, workers, folder, block_rows), **options)


def _bytes(moments: Moments) -> int:
    return 8 * moments.n_features * (moments.count if moments.keeps_rows else moments.n_features)
