"""Sources larger than memory: files, mapped arrays and Dask collections, described now and read when a fit needs them.

Beside :class:`~mixtune.estimators.Sources`, which hold rows, this is the other way for data to enter the estimators.
What comes out is not rows but their sums (:mod:`mixtune.moments`), or a few rows of each domain where rows have to be
looked at one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixtune._checks import check_choice, check_whole
from mixtune._device import torch_device
from mixtune._files import array_digest
from mixtune._messages import nearest, quoted
from mixtune.data import stream_samples
from mixtune.data._streams import open_stream
from mixtune.engines._collections import MOST_FOCAL, is_collection
from mixtune.engines._partials import digest
from mixtune.errors import DataError, ParameterError
from mixtune.features._spec import to_spec
from mixtune.moments import Moments, Origin, stream_moments
from mixtune.moments._budget import DEFAULT_LIMIT, as_bytes

__all__ = ["StreamedSources"]

Floats = np.ndarray[Any, Any]
Samples = dict[str, tuple[Floats, Floats]]


class _Kept(NamedTuple):
    """What a pass over the data gave, and what it depends on."""

    key: Any
    origin: Origin
    moments: dict[str, Moments]


class StreamedSources:
    """Sources that are read block by block, for ``fit(X, y, sources=...)``.

    Estimators at fixed parameters (:class:`RegretOptimalRegressor` and the baselines) learn from all rows, through sums
    gathered in one pass. Whatever needs single rows uses ``sample_rows`` rows of each source, drawn at random: the
    choice that the CV estimators make, classifiers, and weights from distances. Sums are kept with this object, so that
    grid search and cross-validation read the data once; make a new one for arrays that changed.

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
        The input columns. By default those of the focal rows where these have names, else all others.
    leave_out : label or sequence of labels
        Domains that are not to be used, such as the focal one where its rows are in the same file.
    memory_limit : int or str
        Memory for blocks and sums, such as "1 GB", beside what Python itself takes; on a cluster, in each worker.
    dtype : {"float64", "float32"}
        Precision of the features; sums are in float64 in any case.
    sample_rows : int
        How many rows of each source are drawn where single rows are needed.
    seed : int
        Fixes the draw.
    engine : {"local", "dask"}
        Where to compute; Dask collections are always computed by Dask.
    scheduler : str or distributed.Client, optional
        Address of the Dask scheduler; by default the client that is open, or else a local cluster for each pass.
    workers : int, optional
        Processes of that local cluster.
    folder : path, optional
        With Dask, where sums of finished blocks are kept, so that a pass that was cut off can be continued.
    device : str, optional
        Where features and sums of the blocks are computed: "cpu" for NumPy, or "cuda" for PyTorch on a CUDA device, as
        for :func:`mixtune.moments.stream_moments`. By default that of the estimator; the workers of a cluster compute
        with NumPy.
    progress : bool or callable
        Show a bar in terminals and notebooks; or call this with the rows done and the rows in all (None where only
        reading tells).
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

    def __init__(
        self,
        data: Any,
        *,
        target: str | Sequence[str] | None = None,
        domain: Any = None,
        columns: Sequence[str] | None = None,
        leave_out: Any = (),
        memory_limit: int | str = DEFAULT_LIMIT,
        dtype: str = "float64",
        sample_rows: int = 2000,
        seed: int = 0,
        engine: str = "local",
        scheduler: Any = None,
        workers: int | None = None,
        folder: str | Path | None = None,
        device: str | None = None,
        progress: bool | Callable[[int, int | None], None] = True,
        encoding: str = "utf-8",
        separator: str | None = None,
        decimal: str = ".",
    ) -> None:
        self._data = data
        self._where = {"target": target, "domain": domain}
        self._columns = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
        self._csv: dict[str, Any] = {"encoding": encoding, "separator": separator, "decimal": decimal}
        one = isinstance(leave_out, str) or not hasattr(leave_out, "__iter__")
        self.leave_out = (str(leave_out),) if one else tuple(map(str, leave_out))
        self.memory_limit = as_bytes(memory_limit)
        self.dtype = check_choice("dtype", dtype, ("float64", "float32"))
        self.sample_rows = check_whole("sample_rows", sample_rows, least=1)
        self.seed = check_whole("seed", seed)
        self.progress = progress
        self.engine = "dask" if _has_collection(data) else check_choice("engine", engine, ("local", "dask"))
        self._cluster = {"scheduler": scheduler, "workers": workers}
        self._folder = folder
        if self.engine == "local" and (scheduler, workers, folder) != (None, None, None):
            raise ParameterError('scheduler, workers and folder are for engine="dask"; set it, or leave them out')
        if self.engine == "dask" and device not in (None, "cpu"):
            raise ParameterError(f"device={device!r} does not go with Dask, whose workers use NumPy; leave it out")
        if device is not None:
            torch_device(device)
        self.device = device
        self._moments: _Kept | None = None
        self._samples: tuple[Any, Samples] | None = None

    def moments(
        self, feature_map: Any, origin: Origin, columns: Sequence[str] | None = None, *, device: str = "cpu"
    ) -> _Kept:
        """Sums over ``[features, 1]`` of every domain, about a point near the rows, in one pass.

        Parameters
        ----------
        feature_map
            The features, or None for the inputs.
        origin
            The point, for example a mean of the focal rows. Sums that are there already may be about another one; the
            origin that comes with them says which.
        columns
            Names of the focal rows' columns, where these have any.
        device
            Where to compute, if these sources were not told.
        """
        chosen = self._chosen(columns)
        key = self._key(feature_map, chosen)
        if self._moments is None or key is None or self._moments.key != key:
            # Any point near the rows does, so take one that float32 can hold where features are float32.
            origin = origin._replace(features=origin.features.astype(self.dtype).astype(np.float64))
            options: dict[str, Any] = {"feature_map": feature_map, "origin": origin, "dtype": self.dtype}
            options |= {"memory_limit": self.memory_limit, "columns": chosen, **self._where, **self._csv}
            with _shown(self.progress, "Sums of the sources") as told:
                if self.engine == "dask":
                    from mixtune.engines.dask import gather_moments

                    options |= {**self._cluster, "folder": self._folder}
                    found = gather_moments(self._data, progress=told, **options)
                else:
                    there = device if self.device is None else self.device
                    found = stream_moments(self._data, progress=told, device=there, **options)
            self._check_left_out(found)
            self._moments = _Kept(key, origin, found)
        return self._moments._replace(moments=self._without(self._moments.moments))

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
        chosen = self._chosen(columns)
        key = (self._key(None, chosen), tuple(whole))
        if self._samples is None or self._samples[0] != key:
            options: dict[str, Any] = {"rows": self.sample_rows, "seed": self.seed, "columns": chosen}
            options |= {"whole": tuple(whole), "most_whole": MOST_FOCAL, **self._where, **self._csv}
            with _shown(self.progress, "Rows of the sources") as told:
                if self.engine == "dask":
                    from mixtune.engines.dask import gather_samples

                    found = gather_samples(self._data, progress=told, **self._cluster, **options)
                else:
                    found = stream_samples(self._data, progress=told, memory_limit=self.memory_limit, **options)
            self._check_left_out(found)
            self._samples = key, found
        return self._without(self._samples[1], kept=whole)

    def without(self, *names: str) -> StreamedSources:
        """The same sources but for some, and the rows that were drawn already.

        Examples
        --------
        >>> StreamedSources("all.parquet", target="y", domain="site").without("berlin").leave_out
        ('berlin',)
        """
        other = copy.copy(self)
        other.leave_out = (*self.leave_out, *names)
        if self._samples is not None:
            (key, whole), samples = self._samples
            if set(whole) <= set(other.leave_out):
                kept = {name: pair for name, pair in samples.items() if name not in whole}
                other._samples = (key, ()), kept
        return other

    def __repr__(self) -> str:
        kind = type(self._data).__name__ if not isinstance(self._data, str | Path) else repr(str(self._data))
        return f"StreamedSources({kind}, engine={self.engine!r})"

    def _chosen(self, columns: Sequence[str] | None) -> tuple[str, ...] | None:
        """The input columns to read: those of the focal rows, in their order, if the sources have names as well."""
        if columns is None or self._where["target"] is None:
            return self._columns
        if self._columns is not None and set(self._columns) != set(columns):
            raise DataError(
                f"columns={quoted(self._columns)} of the streamed sources are not those of the focal rows, "
                f"{quoted(list(columns))}; pass the same, or leave columns out"
            )
        return tuple(columns)

    def _check_left_out(self, found: dict[str, Any]) -> None:
        """Refuse names that no domain has: rows that should not count would count in silence."""
        for name in set(self.leave_out) - set(found):
            raise DataError(f'leave_out names "{name}", which no row belongs to; {nearest(name, list(found))}')

    def _without(self, found: dict[str, Any], *, kept: Sequence[str] = ()) -> dict[str, Any]:
        left = {name: value for name, value in found.items() if name not in self.leave_out or name in kept}
        if not left:
            raise DataError("the streamed sources have no domain besides those in leave_out; pass other sources")
        return left

    def _key(self, feature_map: Any, columns: tuple[str, ...] | None) -> Any:
        """What a pass depends on; None where the map cannot be told from others, so that nothing is kept."""
        identities: Any = None
        if not _has_collection(self._data):
            stream = open_stream(self._data, columns=columns, **self._where, **self._csv)
            identities = [piece.identity() for piece in stream.pieces]
        try:
            spec, arrays = to_spec(feature_map)
        except ParameterError:
            return None
        return columns, identities, digest([spec, array_digest(arrays)])


def _has_collection(data: Any) -> bool:
    parts = list(data.values()) if isinstance(data, Mapping) else [data]
    return any(is_collection(each) for part in parts for each in (part if isinstance(part, tuple) else (part,)))


@contextmanager
def _shown(progress: Any, words: str) -> Iterator[Any]:
    """What is to be told about progress: nothing, a callable, or a bar where somebody sees it."""
    if callable(progress) or not progress:
        yield progress if callable(progress) else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not (console.is_terminal or console.is_jupyter)
    with Progress(*bar, console=console, transient=True, disable=hidden) as shown:
        task = shown.add_task(words, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
