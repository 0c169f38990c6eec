"""Sources larger than memory: files, mapped arrays and Dask collections, described now and read when a fit needs them.

Beside :class:`~mixtune.estimators.Sources`, which hold rows, this is the other way for data to enter the estimators.
What comes out is not rows but their sums (:mod:`mixtune.moments`), or a sample of each domain where single rows are
needed. For the sample every row draws a random number, and the rows with the smallest numbers are taken. So samples of
parts merge into a sample of the whole, in any order, and each row has the same chance.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixtune._messages import Wording, nearest, quoted
from mixtune.arrays import MOST_FOCAL, Array, Floats, is_collection, torch_device
from mixtune.checks import as_bytes, check_choice, check_whole, in_words
from mixtune.errors import DataError, ParameterError
from mixtune.moments import Moments, Origin, about
from mixtune.streaming._dask import Cluster, merge_domains, run_job
from mixtune.streaming._moments import DEFAULT_LIMIT, MomentJob, StreamFeatures, TargetCode, map_digest, work_device
from mixtune.streaming._stream import Block, Progress, Stream, open_stream

#: Memory for the rows that are read at a time, without a limit of the user's.
READING_BYTES = 2**26
#: Targets with more different values than this are not classes.
MOST_CLASSES = 10_000

Samples = dict[str, tuple[Array, Array]]
ClassCounts = dict[str, Counter[float]]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows of one domain: the ``most`` with the smallest draws, in the order of these; or all (None) as they came.

    Examples
    --------
    >>> one, other = (Sample.of(2, np.array(draws), np.array(draws), np.zeros(2)) for draws in ([0.3, 0.1], [0.2, 0.4]))
    >>> (one + other).X
    array([0.1, 0.2])
    """

    most: int | None
    draws: Floats
    X: Array
    y: Array

    @classmethod
    def of(cls, most: int | None, draws: Floats, X: Array, y: Array) -> Sample:
        """The sample of some rows."""
        first = slice(None) if most is None else np.argsort(draws, kind="stable")[:most]
        return cls(most, draws[first], X[first], y[first])

    def __add__(self, other: Sample) -> Sample:
        """The sample of the rows of both."""
        parts = ((self.draws, other.draws), (self.X, other.X), (self.y, other.y))
        return Sample.of(self.most, *map(np.concatenate, parts))

    @property
    def limit(self) -> float:
        """The draw that a further row must stay below."""
        return float(self.draws[-1]) if len(self.draws) == self.most else np.inf


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
        deque(self.sample_along(blocks, found, place), maxlen=0)
        return found

    def sample_along(self, blocks: Iterable[Block], found: dict[str, Sample], place: Sequence[int]) -> Iterator[Block]:
        """The same blocks; the sample of those that went by is in ``found``. It does not depend on their sizes."""
        rng = np.random.default_rng([self.seed, *place])
        for block in blocks:
            draws = rng.random(len(block.X))
            # Most rows of a long stream draw more than what is held already.
            limits = [found[name].limit if name in found else np.inf for name in block.names]
            near = np.flatnonzero(draws < np.array(limits)[block.codes])
            for name, own, drawn in Block(near, draws[near], block.names, block.codes[near]).by_domain():
                rows = None if name in self.whole else self.rows, drawn, block.X[own], block.y[own]
                found[name] = found[name] + Sample(*rows) if name in found else Sample.of(*rows)
            self._check(found)
            yield block

    def finish(self, found: Mapping[str, Sample]) -> Samples:
        """The rows alone; refuse a domain that is wanted whole and has no rows at all."""
        if missing := [name for name in self.whole if name not in found]:
            raise DataError(f'no row belongs to domain "{missing[0]}"; {nearest(missing[0], list(found))}')
        self._check(found)
        return {name: (sample.X, sample.y) for name, sample in found.items()}

    def _check(self, found: Mapping[str, Sample]) -> None:
        """Refuse domains that are too long to be held whole, and samples of more than half of the memory limit."""
        most, limit = self.most_whole, self.memory_limit
        for name in self.whole:
            if most is not None and name in found and len(found[name].X) > most:
                held = f"has more than {most:,} rows, and all of them are to be held in memory"
                raise DataError(f'domain "{name}" {held}; take a part of them as the focal rows')
        size = sum(part.nbytes for sample in found.values() for part in (sample.draws, sample.X, sample.y))
        if limit is not None and 2 * size > limit:
            held = f"samples of {len(found)} domains take {in_words(size)}"
            python = "memory_limit; raise memory_limit, or draw fewer rows of each"
            words = Wording(python, "--memory-limit; raise it, or lower --sample-rows")
            raise DataError("{size}, more than half of {limit}", size=held, limit=words)


@dataclass(frozen=True)
class ClassJob:
    """Count the rows of each class in every domain; classes are whole numbers.

    Examples
    --------
    >>> block = Block(np.zeros((3, 1)), np.array([1.0, 0.0, 1.0]), ("a", "b"), np.array([0, 1, 0]))
    >>> ClassJob(100).fold([block])
    {'a': Counter({1.0: 2}), 'b': Counter({0.0: 1})}
    """

    reading_rows: int

    def fold(self, blocks: Iterable[Block], place: Sequence[int] = ()) -> ClassCounts:
        """The counts of all blocks; ``place``, their position in the source, does not matter here."""
        return merge_domains(map(self._counts, blocks))

    def _counts(self, block: Block) -> ClassCounts:
        if block.y.ndim > 1:
            raise DataError(f"a classifier needs one label per row; the data have {block.y.shape[1]} targets")
        labels, places = np.unique(block.y, return_inverse=True)
        if len(broken := labels[labels != np.round(labels)]):
            raise DataError(f"the labels of streamed classes must be whole numbers; y holds {broken[0]:g}")
        if len(labels) > MOST_CLASSES:
            raise DataError(f"y has over {MOST_CLASSES:,} different values, too many for classes; use a regressor")
        counts = np.bincount(block.codes * len(labels) + places, minlength=len(block.names) * len(labels))
        table = counts.reshape(len(block.names), len(labels)).tolist()
        return {name: +Counter(dict(zip(labels.tolist(), row))) for name, row in zip(block.names, table) if any(row)}

    @staticmethod
    def finish(found: ClassCounts) -> ClassCounts:
        """The counts themselves."""
        return found


@dataclass(frozen=True, eq=False)
class WithSamplesJob:
    """The result of another job over all rows, and samples of every domain, from the same blocks."""

    whole: MomentJob | ClassJob
    samples: SampleJob

    @property
    def reading_rows(self) -> int:
        return min(self.whole.reading_rows, self.samples.reading_rows)

    def fold(self, blocks: Iterable[Block], place: Sequence[int] = ()) -> dict[tuple[int, str], Any]:
        """Both, of all blocks, by number and domain."""
        drawn: dict[str, Sample] = {}
        whole = self.whole.fold(self.samples.sample_along(blocks, drawn, place), place)
        return {(number, name): part for number, found in enumerate((whole, drawn)) for name, part in found.items()}

    def finish(self, found: Mapping[tuple[int, str], Any]) -> tuple[Any, Samples]:
        """The result of the other job, and the rows of the samples."""
        whole, drawn = ({name: part for (number, name), part in found.items() if number == each} for each in (0, 1))
        return self.whole.finish(whole), self.samples.finish(drawn)


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
    **reading: Any,
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
    return run_job(job, stream, progress, cluster)


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


class _CachedPass(NamedTuple):
    """What a pass over the data gave, and what it depends on."""

    key: Any
    found: Any
    origin: Any = None
    whole: frozenset[str] = frozenset()


@dataclass(eq=False, repr=False)
class StreamedSources:
    """Sources that are read block by block, for ``fit(X, y, sources=...)``.

    Estimators learn from all rows, through sums computed in one pass. What needs single rows uses ``sample_rows`` rows
    of each source, drawn at random in the same pass: cross-domain validation of the tuned estimators, maps that they
    make from the rows, intervals and probabilities of models of every domain, and weights from distances. Classifiers
    need one more pass to find all classes, whose labels must be whole numbers. Sums are kept with this object, so that
    grid search and cross-validation read the data once; create a new object if arrays have changed.

    Parameters
    ----------
    data
        Files or folders of Parquet, Arrow or CSV tables: one path or several; ``{name: files}``; arrays as
        ``{name: (X, y)}`` or one pair ``(X, y)``, mapped (:class:`numpy.memmap`) or names of .npy files; a Dask data
        frame, a pair ``(X, y)`` of Dask arrays, or ``{name: (X, y)}`` of them.
    target : str or sequence of str, optional
        The column, or columns, to predict; arrays have none.
    domain : str or array, optional
        The column that names each row's domain; for one pair of arrays, the labels of all rows. By default every file
        is a domain of its own, named after it.
    columns : sequence of str, optional
        The input columns. By default those of the focal rows if these have names, otherwise all other columns.
    leave_out : label or sequence of labels
        Domains that are not used, such as the focal one if its rows are in the same file.
    memory_limit : int or str
        Memory for blocks and sums, such as "1 GB", in addition to that of Python itself; on a cluster, for each worker.
        Samples may take half as much again.
    dtype : {"float64", "float32"}
        Precision of the features; sums are in float64 in any case.
    sample_rows : int
        Number of rows to draw from each source if single rows are needed.
    seed : int
        Fixes the draw.
    engine : {"local", "dask"}
        Where to compute; Dask collections are always computed by Dask.
    scheduler : str or distributed.Client, optional
        Address of the Dask scheduler; by default the client that is open, or else a local cluster for each pass.
    workers : int, optional
        Processes of that local cluster.
    folder : path, optional
        With Dask, where sums of finished blocks are kept, so that an interrupted pass can be continued. Samples of rows
        are not kept; they take a pass of their own then.
    device : str, optional
        Where features and sums of the blocks are computed: "cpu" for NumPy, or "cuda" for PyTorch on a CUDA device, as
        for :func:`mixtune.streaming.stream_moments`. By default that of the estimator; the workers of a cluster compute
        with NumPy.
    progress : bool or callable
        Whether to show a progress bar in terminals and notebooks; or a function of the number of rows read and of all
        rows (None if unknown).
    encoding, separator, decimal
        How CSV is written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet
    >>> from mixtune.estimators import JointRegressor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pa.table({"x": [2.0, 3.0, 9.0], "y": [2.0, 3.0, 0.0], "site": ["a", "a", "b"]})
    ...     pa.parquet.write_table(table, f"{folder}/others.parquet")
    ...     sources = StreamedSources(folder, target="y", domain="site", leave_out="b")
    ...     model = JointRegressor(ridge=0.0).fit([[0.0], [1.0]], [0.0, 1.0], sources=sources)
    >>> model.predict([[4.0]]).round(6)
    array([4.])
    """

    data: Any
    _: KW_ONLY
    target: str | Sequence[str] | None = None
    domain: Any = None
    columns: Sequence[str] | None = None
    leave_out: Any = ()
    memory_limit: int | str = DEFAULT_LIMIT
    dtype: str = "float64"
    sample_rows: int = 2000
    seed: int = 0
    engine: str = "local"
    scheduler: Any = None
    workers: int | None = None
    folder: str | Path | None = None
    device: str | None = None
    progress: bool | Progress = True
    encoding: str = "utf-8"
    separator: str | None = None
    decimal: str = "."
    #: Results of earlier passes: "moments", "samples" and "classes"; copies of these sources share them.
    _passes: dict[str, _CachedPass] = field(default_factory=dict, init=False)
    _code: TargetCode | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.columns is not None:
            self.columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        one = isinstance(self.leave_out, str) or not hasattr(self.leave_out, "__iter__")
        self.leave_out = (str(self.leave_out),) if one else tuple(map(str, self.leave_out))
        self.memory_limit = as_bytes(self.memory_limit)
        check_choice("dtype", self.dtype, ("float64", "float32"))
        check_whole("sample_rows", self.sample_rows, least=1)
        check_whole("seed", self.seed)
        self.engine = "dask" if _has_collection(self.data) else check_choice("engine", self.engine, ("local", "dask"))
        if self.engine == "local" and (self.scheduler, self.workers, self.folder) != (None, None, None):
            raise ParameterError('scheduler, workers and folder are for engine="dask"; set it, or leave them out')
        work_device(self.device or "cpu", on_cluster=self.engine == "dask")

    def moments(
        self,
        feature_map: Any,
        origin: Origin,
        columns: Sequence[str] | None = None,
        *,
        device: str = "cpu",
        sampled: bool = False,
    ) -> dict[str, Moments]:
        """Sums over ``[features - origin, 1]`` and ``targets - origin`` of every domain, in one pass.

        Parameters
        ----------
        feature_map
            The features, or None for the inputs.
        origin
            A point near the rows, for example a mean of the focal rows. Sums that were computed before are shifted to
            it.
        columns
            Names of the focal rows' columns, where these have any.
        device
            Where to compute, if ``device`` of these sources is None.
        sampled
            Whether to draw the :meth:`samples` in the same pass, if there are none yet.
        """
        stream, reading = self._open(columns)
        # Sums that were kept can be moved to another point only if it has as many features and outputs.
        key = self._cache_key(stream, feature_map, origin.features.size, origin.targets.size, repr(self._code))
        done = self._passes.get("moments")
        if done is None or key is None or done.key != key:
            # Any point near the rows does, so take one that float32 can hold where features are float32.
            near = origin._replace(features=origin.features.astype(self.dtype).astype(np.float64))
            on_cluster = self.engine == "dask"
            compute = None if on_cluster else torch_device(self.device or device)
            features = StreamFeatures.of(stream, feature_map, self.dtype, near, compute, self._code)
            job = MomentJob.of(features, stream, self.memory_limit, None, on_cluster=on_cluster)
            # Rows are not written to the folder of the sums.
            found = self._run("Sums of the sources", job, stream, reading, sampled=sampled and self.folder is None)
            done = self._passes["moments"] = _CachedPass(key, found, near)
        return {name: about(sums, done.origin, origin) for name, sums in self._without_left_out(done.found).items()}

    def class_counts(self, columns: Sequence[str] | None = None) -> ClassCounts:
        """The number of rows of each class in every domain, where targets are classes.

        The same pass draws :meth:`samples`.

        Parameters
        ----------
        columns
            Names of the focal rows' columns, where these have any.

        Examples
        --------
        >>> import numpy as np
        >>> stream = StreamedSources((np.ones((3, 1)), np.array([0, 1, 1])), domain=["a", "a", "b"])
        >>> stream.class_counts()
        {'a': Counter({0.0: 1, 1.0: 1}), 'b': Counter({1.0: 1})}
        """
        stream, _ = self._open(columns)
        key, done = self._cache_key(stream), self._passes.get("classes")
        if done is None or done.key != key:
            job = ClassJob(max(64, READING_BYTES // (8 * (stream.n_inputs + stream.n_outputs))))
            done = _CachedPass(key, self._run("Classes of the sources", job, stream, sampled=True))
            self._passes["classes"] = done
        return self._without_left_out(done.found)

    def coded(self, code: TargetCode) -> StreamedSources:
        """The same sources with targets that a function transforms; results of earlier passes are shared.

        Examples
        --------
        >>> import numpy as np
        >>> stream = StreamedSources((np.ones((2, 1)), np.ones(2)), domain=["a", "a"])
        >>> stream.coded(np.negative).samples()["a"][1]
        array([-1., -1.])
        """
        other = copy.copy(self)
        other._code = code
        return other

    def samples(self, columns: Sequence[str] | None = None, *, whole: Sequence[str] = ()) -> Samples:
        """At most ``sample_rows`` rows of every domain, drawn at random in one pass.

        Parameters
        ----------
        columns
            Names of the focal rows' columns, where these have any.
        whole
            Names of domains that come with all of their rows.

        Examples
        --------
        >>> import numpy as np
        >>> stream = StreamedSources((np.ones((9, 1)), np.ones(9)), domain=["a", "b", "b"] * 3, sample_rows=2)
        >>> {name: len(X) for name, (X, y) in stream.samples(whole=["b"]).items()}
        {'a': 2, 'b': 6}
        """
        stream, _ = self._open(columns)
        key, before = self._cache_key(stream), self._passes.get("samples")
        # Domains that an earlier pass read whole may stay if they are left out now.
        if before is None or before.key != key or not set(whole) <= before.whole <= {*whole, *self.leave_out}:
            found = self._run("Rows of the sources", self._sample_job(stream, tuple(whole)), stream)
            before = self._passes["samples"] = _CachedPass(key, found, whole=frozenset(whole))
        left: Samples = self._without_left_out(before.found, kept=whole)
        return left if self._code is None else {name: (X, self._code(y)) for name, (X, y) in left.items()}

    def rows_used(self, columns: Sequence[str] | None = None) -> dict[str, int]:
        """How many rows of each domain a fit has seen: all of them if it took their sums, else those of the samples.

        Examples
        --------
        >>> import numpy as np
        >>> StreamedSources((np.ones((9, 1)), np.ones(9)), domain=["a", "b", "b"] * 3, sample_rows=2).rows_used()
        {'a': 2, 'b': 2}
        """
        if (done := self._passes.get("moments")) is not None:
            return {name: sums.count for name, sums in self._without_left_out(done.found).items()}
        return {name: len(y) for name, (_, y) in self.samples(columns).items()}

    def without(self, *names: str) -> StreamedSources:
        """The same sources without some of them; what was read already is kept.

        Examples
        --------
        >>> StreamedSources("all.parquet", target="y", domain="site").without("berlin").leave_out
        ('berlin',)
        """
        other = copy.copy(self)
        other.leave_out = (*self.leave_out, *names)
        for done in self._passes.values():
            other._without_left_out(done.found)
        return other

    def __repr__(self) -> str:
        kind = type(self.data).__name__ if not isinstance(self.data, str | Path) else repr(str(self.data))
        return f"StreamedSources({kind}, engine={self.engine!r})"

    def _sample_job(self, stream: Stream, whole: tuple[str, ...] = ()) -> SampleJob:
        limit = None if self.engine == "dask" else int(self.memory_limit)
        return SampleJob(stream.n_inputs + stream.n_outputs, self.sample_rows, whole, MOST_FOCAL, self.seed, limit)

    def _run(self, words: str, job: Any, stream: Stream, reading: Any = None, *, sampled: bool = False) -> Any:
        """The result of a job over all rows; with ``sampled``, the same pass draws samples, if there are none yet."""
        cluster = Cluster(self.scheduler, self.workers, self.folder) if self.engine == "dask" else None
        key, done = self._cache_key(stream), self._passes.get("samples")
        if not sampled or (done is not None and done.key == key):
            with self._reported(words) as progress:
                return run_job(job, stream, progress, cluster, reading)
        whole, rows = self._run(words, WithSamplesJob(job, self._sample_job(stream)), stream)
        self._passes["samples"] = _CachedPass(key, rows)
        return whole

    @contextmanager
    def _reported(self, words: str) -> Iterator[Progress | None]:
        """What to report a pass to: nothing, a callable, or a bar if one is wanted."""
        if callable(self.progress) or not self.progress:
            yield self.progress or None
            return
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        hidden = not (console.is_terminal or console.is_jupyter)
        with Progress(console=console, transient=True, disable=hidden) as shown:
            task = shown.add_task(words, total=None)
            yield lambda done, total: shown.update(task, completed=done, total=total)

    def _open(self, columns: Sequence[str] | None) -> tuple[Stream, dict[str, Any]]:
        """The data and how to read them; input columns are those of the focal rows, in their order, if named."""
        chosen = self.columns
        if columns is not None and self.target is not None:
            if chosen is not None and set(chosen) != set(columns):
                others = f"those of the focal rows, {quoted(list(columns))}; pass the same, or leave columns out"
                raise DataError(f"columns={quoted(chosen)} of the streamed sources are not {others}")
            chosen = tuple(columns)
        csv = {"encoding": self.encoding, "separator": self.separator, "decimal": self.decimal}
        reading = {"target": self.target, "domain": self.domain, "columns": chosen, **csv}
        return open_stream(self.data, **reading), reading

    def _without_left_out(self, found: Mapping[str, Any], *, kept: Sequence[str] = ()) -> dict[str, Any]:
        """What was found, without the domains that are left out; names that no domain has are refused."""
        for name in self.leave_out:
            if name not in found:
                raise DataError(f'leave_out names "{name}", which no row belongs to; {nearest(name, list(found))}')
        left = {name: value for name, value in found.items() if name not in self.leave_out or name in kept}
        if not left:
            raise DataError("the streamed sources have no domain besides those in leave_out; pass other sources")
        return left

    @staticmethod
    def _cache_key(stream: Stream, feature_map: Any = None, *others: Any) -> Any:
        """What a pass depends on; None where the map cannot be told from others, so that nothing is kept."""
        made = map_digest(feature_map)
        return None if made is None else (stream.columns, [chunk.identity() for chunk in stream.chunks], made, others)


def _has_collection(data: Any) -> bool:
    pairs = list(data.values()) if isinstance(data, Mapping) else [data]
    return any(is_collection(part) for pair in pairs for part in (pair if isinstance(pair, tuple) else (pair,)))
