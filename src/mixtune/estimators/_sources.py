"""Sources: the other datasets, in a container that scikit-learn passes on unchanged.

Cross-validation and grid search slice every fit argument whose length equals the number of focal rows. A dict or list
of as many sources as there are rows would be sliced without warning, so :class:`Sources` has no length.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from mixtune._array import check_unmasked, is_collection
from mixtune.data import Domain, Domains, as_table, rows_by_label
from mixtune.errors import DataError
from mixtune.moments import Moments
from mixtune.streaming import StreamedSources

#: A domain column with more values than this is almost certainly an identifier of rows.
MOST_SOURCES = 100_000
#: Memory-mapped arrays of more bytes than this in total are streamed instead of copied. Smaller ones, which joblib
#: creates when it passes arguments to its workers, are read like any other array.
MAPPED_BYTES = 2**26


class Source(NamedTuple):
    """One source as the user passed it; ``columns`` names the columns of ``X`` if ``X`` has no names itself."""

    X: Any
    y: Any
    sample_weight: Any = None
    columns: tuple[str, ...] | None = None


class Sources:
    """Named source datasets for ``fit(X, y, sources=...)``.

    Parameters
    ----------
    data : mapping
        ``{name: (X, y)}`` or ``{name: (X, y, sample_weight)}``; values may also be :class:`mixtune.Domain`, a pair of
        Dask arrays, or ready :class:`mixtune.Moments` over the features and a constant 1 as the last one. Dask arrays,
        and mapped arrays (:class:`numpy.memmap`) of more than 64 MB in all, are streamed as by
        :class:`StreamedSources`.

    Examples
    --------
    >>> sources = Sources({"north": ([[1.0], [2.0]], [1.0, 2.0]), "south": ([[3.0]], [1.5])})
    >>> sources
    Sources('north', 'south')
    >>> [name for name, source in sources.items()]
    ['north', 'south']
    """

    def __init__(self, data: Mapping[Any, Any]) -> None:
        if not isinstance(data, Mapping):
            raise DataError(
                f"sources must be a mapping name -> (X, y) or (X, y, sample_weight); got a {type(data).__name__}"
            )
        _check_number(len(data))
        members = {str(name): value for name, value in data.items()}
        if len(members) < len(data):
            names = [str(name) for name in data]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise DataError(f"more than one source is named {', '.join(twice[:5])}; give each its own name")
        self.moments = {name: value for name, value in members.items() if isinstance(value, Moments)}
        rows = {name: _as_source(name, value) for name, value in members.items() if name not in self.moments}
        large = _too_large(rows)
        self.streams = tuple(_as_stream(group) for group in large if group)
        self.names = tuple(members)
        self._members = {name: source for name, source in rows.items() if not any(name in group for group in large)}

    @classmethod
    def from_stream(cls, stream: StreamedSources) -> Sources:
        """Sources that are streamed; their names are known once they are read.

        Examples
        --------
        >>> Sources.from_stream(StreamedSources("all.parquet", target="y", domain="site")).names
        ()
        """
        made = cls({})
        made.streams = (stream,)
        return made

    @classmethod
    def from_domains(cls, domains: Domains) -> Sources:
        """The sources of ``domains``: all but the focal one.

        Examples
        --------
        >>> domains = Domains.from_dict({"a": ([[0.0]], [0]), "b": ([[1.0]], [1])}, focal="a")
        >>> Sources.from_domains(domains)
        Sources('b')
        """
        return cls({domain.name: domain for domain in domains.sources})

    @classmethod
    def from_table(
        cls, table: Any, *, target: str | Sequence[str], domain: str, focal: Hashable, columns: Any = None
    ) -> Sources:
        """The sources in a table with a column of domain labels; :func:`split_table` also gives the focal rows.

        Examples
        --------
        >>> table = {"site": ["a", "b", "a"], "x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}
        >>> Sources.from_table(table, target="y", domain="site", focal="a")
        Sources('b')
        """
        return split_table(table, target=target, domain=domain, focal=focal, columns=columns).sources

    @classmethod
    def from_sample_domain(cls, X: Any, y: Any, sample_domain: Any) -> Sources:
        """The sources by skada's convention; :func:`split_sample_domain` also gives the focal rows.

        Examples
        --------
        >>> Sources.from_sample_domain([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0], [1, -2, 3])
        Sources('1', '3')
        """
        return split_sample_domain(X, y, sample_domain).sources

    def items(self) -> Iterator[tuple[str, Source]]:
        """Pairs of a name and its :class:`Source`, of the sources whose rows are in memory."""
        return iter(self._members.items())

    def __repr__(self) -> str:
        names = self.names
        if not names and self.streams:
            return f"Sources({', '.join(map(repr, self.streams))})"
        return f"Sources({', '.join(map(repr, names[:6]))}{', ...' if len(names) > 6 else ''})"


class FocalSplit(NamedTuple):
    """Focal rows and sources, ready for ``fit(split.X, split.y, sources=split.sources)``."""

    X: Any
    y: Any
    sources: Sources


def split_table(
    table: Any, *, target: str | Sequence[str], domain: str, focal: Hashable, columns: Any = None
) -> FocalSplit:
    """Focal rows and sources of one table with a column of domain labels.

    Parameters are those of :meth:`mixtune.Domains.from_table`.

    Examples
    --------
    >>> table = {"site": ["a", "b", "a"], "x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}
    >>> split = split_table(table, target="y", domain="site", focal="a")
    >>> split.y, split.sources
    (array([1., 3.]), Sources('b'))
    """
    labels = as_table(table, "the table")
    if domain in labels.column_names:  # raise before a million domains are built
        _check_number(len(labels.column(domain).unique()) - 1)
    domains = Domains.from_table(table, target=target, domain=domain, focal=focal, columns=columns)
    here = domains.focal_domain
    return FocalSplit(here.X, here.y, Sources.from_domains(domains))


def split_stream(stream: StreamedSources, focal: str) -> FocalSplit:
    """Split a stream into focal rows, which are loaded, and sources, in one pass.

    The sample of each source's rows is drawn in the same pass. There may be up to 100,000 focal rows.

    Examples
    --------
    >>> X, y = np.arange(5.0)[:, None], np.arange(5.0)
    >>> split = split_stream(StreamedSources((X, y), domain=["a", "b", "a", "b", "b"]), "a")
    >>> split.y
    array([0., 2.])
    """
    X, y = stream.samples(whole=(focal,))[focal]
    return FocalSplit(X, y, Sources.from_stream(stream.without(focal)))


def split_sample_domain(X: Any, y: Any, sample_domain: Any, *, focal: int | None = None) -> FocalSplit:
    """Focal rows and sources by skada's convention: positive labels are sources, the negative label is the target.

    Parameters are those of :meth:`mixtune.Domains.from_sample_domain`; ``X`` and ``y`` stay of the kind they are.

    Examples
    --------
    >>> split = split_sample_domain([[1.0], [2.0], [3.0]], [1.0, 2.0, float("nan")], [1, -2, -2])
    >>> split.X, split.y, split.sources
    ([[2.0]], [2.0], Sources('1'))
    """
    rows = rows_by_label(y, sample_domain, focal)

    def part(own: Any) -> tuple[Any, Any]:
        return _safe_indexing(X, own), _safe_indexing(y, own)

    return FocalSplit(*part(rows.focal_rows), Sources({name: part(own) for name, own in rows.sources.items()}))


def as_sources(value: Any) -> Sources | None:
    """Read the ``sources`` argument of fit: Sources, streamed ones, Domains, a mapping, or nothing at all.

    Examples
    --------
    >>> as_sources({"b": ([[1.0]], [1.0])})
    Sources('b')
    """
    if value is None:
        return None
    if isinstance(value, StreamedSources):
        value = Sources.from_stream(value)
    if isinstance(value, Domains):
        value = Sources.from_domains(value)
    if not isinstance(value, Sources):
        if is_collection(value):
            raise DataError(
                "sources came as a Dask collection; say which columns are what with StreamedSources(frame, "
                "target=..., domain=...), or pass {name: (X, y)} of Dask arrays"
            )
        if not isinstance(value, Mapping):
            raise DataError(
                f"sources came as a {type(value).__name__}; pass Sources({{name: (X, y), ...}}). A plain dict or "
                "Domains with as many members as there are focal rows is cut up by cross-validation: wrap it in Sources"
            )
        value = Sources(value)
    return value if value.names or value.streams else None


def _check_number(count: int) -> None:
    if count > MOST_SOURCES:
        raise DataError(
            f"there are {count} sources, more than {MOST_SOURCES}; is the domain column an identifier of rows? "
            "group the rows into fewer domains"
        )


def _as_source(name: str, value: Any) -> Source:
    if isinstance(value, Source):
        return value
    if isinstance(value, Domain):
        return Source(value.X, value.y, value.sample_weight, value.columns)
    if isinstance(value, str | os.PathLike):
        raise DataError(
            f'source "{name}" is a file; pass StreamedSources({{"{name}": {str(value)!r}}}, target=...) as sources'
        )
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise DataError(f'source "{name}" must come as (X, y) or (X, y, sample_weight); got a {type(value).__name__}')
    for what, part in zip(("X", "y", "sample_weight"), value):
        check_unmasked(part, f'{what} of domain "{name}"')
    return Source(*value)


def _too_large(rows: dict[str, Source]) -> tuple[dict[str, Source], dict[str, Source]]:
    """Sources to be streamed: Dask arrays, and memory-mapped arrays that are large in total."""
    collections = {name: each for name, each in rows.items() if is_collection(each.X) or is_collection(each.y)}
    mapped = {name: each for name, each in rows.items() if isinstance(each.X, np.memmap)}
    size = sum(each.X.nbytes for each in mapped.values())
    return collections, mapped if size > MAPPED_BYTES else {}


def _as_stream(members: dict[str, Source]) -> StreamedSources:
    for name, source in members.items():
        if source.sample_weight is not None:
            raise DataError(f'source "{name}" is streamed, which knows no sample weights; leave them out')
        if hasattr(source.X, "columns"):
            raise DataError(
                f'source "{name}" is a Dask data frame; pass all of them in one, as StreamedSources(frame, target=..., '
                "domain=...), or Dask arrays"
            )
    return StreamedSources({name: (source.X, source.y) for name, source in members.items()})
