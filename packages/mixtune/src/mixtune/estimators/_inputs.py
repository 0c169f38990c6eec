"""What users pass to ``fit`` and ``predict``: focal rows, other datasets, domain labels; checked and read as numbers.

Cross-validation and grid search slice every fit argument whose length equals the number of focal rows. A dict or list
of as many sources as there are rows would be sliced too, so :class:`Sources` has no length. Rows are checked here where
scikit-learn's own checks would not name the column or would let it through.
"""

from __future__ import annotations

import os
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, validate_data

from mixtune._messages import Note, nearest
from mixtune.arrays import MOST_FOCAL, Floats, Integers, check_unmasked, computed, is_collection, to_numpy
from mixtune.data import (
    Domain,
    Domains,
    as_floats,
    as_table,
    check_finite,
    check_names,
    check_pair,
    check_weight,
    column_difference,
    domain_parts,
    findings_first,
    is_table,
    known_frame,
    label_codes_of,
    label_key,
    leak_notes,
    numeric_suspects,
    repeat_notes,
    rows_by_label,
    same_labels,
    shared_notes,
)
from mixtune.errors import DataError, ParameterError
from mixtune.moments import Moments, Rows

if TYPE_CHECKING:
    from mixtune.streaming import StreamedSources

#: A domain column with more values than this is almost certainly an identifier of rows.
MOST_SOURCES = 100_000
#: The same where every domain gets a model: this many models take hours.
MOST_DOMAINS = 20_000
#: Memory-mapped arrays of more bytes than this in total are streamed instead of copied. Smaller ones, which joblib
#: creates when it passes arguments to its workers, are read like any other array.
MAPPED_BYTES = 2**26
#: Columns differ if their means are more than FAR spreads apart or, where the focal rows are standardised, if their
#: spreads differ by more than the factor WIDER. Targets differ if their spreads do by more than OTHER_UNITS.
FAR, WIDER, OTHER_UNITS = 5.0, 10.0, 1000.0
#: Columns of curves and targets must be nearer to 0 than this many of their spreads, or they have too few digits left;
#: with spreads below the second part of their size they are constant. Squares of squares of larger numbers than the
#: third are beyond float64.
FARTHEST, CONSTANT, LARGEST_SQUARED = 1e13, 1e-14, 1e75
#: So many focal rows, and rows of sources, are looked at to find columns that give the target away.
MOST_LOOKED_AT = 4000
#: Columns of curves must vary by less than this, and by more than its inverse.
LARGEST_CURVED = 1e150
#: Fewest rows that units are compared for; means and spreads of standardised columns are 0 and 1 to this tolerance.
FEWEST, STANDARD = 5, 1e-6
#: Spreads below this fraction of the largest number are rounding.
ROUNDED = 1e-13


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
        ``{name: (X, y)}`` or ``{name: (X, y, sample_weight)}``. Values may also be :class:`mixtune.Domain`, a pair of
        Dask arrays, or ready :class:`mixtune.Moments` over the features and a constant 1 as the last one. Dask arrays,
        and mapped arrays (:class:`numpy.memmap`) of more than 64 MB in all, are streamed as by
        :class:`StreamedSources`.

    Notes
    -----
    Use this class, rather than a plain dict, in cross-validation and grid search: scikit-learn slices a dict of as many
    sources as there are focal rows.

    The steps of a ``Pipeline`` before the estimator, and ``TransformedTargetRegressor``, transform the focal rows and
    not the sources: use :class:`mixtune.SourcesPipeline`, or transform the sources with :meth:`transformed`. ``fit``
    cannot see what contains the estimator; it warns only where the units of sources and focal rows clearly differ.

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
        check_once(map(plain_name, data))
        members = {plain_name(name): value for name, value in data.items()}
        self.moments = {name: value for name, value in members.items() if isinstance(value, Moments)}
        rows = {name: _as_source(name, value) for name, value in members.items() if name not in self.moments}
        large = _too_large(rows)
        self.streams = tuple(_as_stream(group) for group in large if group)
        self.names = tuple(members)
        self._members = {name: source for name, source in rows.items() if not any(name in group for group in large)}

    @classmethod
    def from_stream(cls, stream: StreamedSources) -> Sources:
        """Streamed sources; their names are known after reading.

        Examples
        --------
        >>> from mixtune.streaming import StreamedSources
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

    def transformed(self, X: Callable[[Any], Any] | None = None, y: Callable[[Any], Any] | None = None) -> Sources:
        """The same sources for an estimator inside a wrapper that transforms the focal rows.

        Parameters
        ----------
        X : callable, optional
            The transformation of the inputs before the estimator, such as ``pipeline[:-1].transform`` of fitted steps.
        y : callable, optional
            The transformation of the targets, such as ``numpy.log``.

        Examples
        --------
        >>> from sklearn.compose import TransformedTargetRegressor
        >>> from mixtune.estimators import RegretOptimalRegressor, Sources
        >>> X = np.arange(12.0)[:, None]
        >>> sources = Sources({"b": (X, 3 * np.exp(X[:, 0]))}).transformed(y=np.log)
        >>> model = TransformedTargetRegressor(RegretOptimalRegressor(), func=np.log, inverse_func=np.exp)
        >>> model.fit(X[:6], np.exp(X[:6, 0]), sources=sources).regressor_.domain_names_
        ('focal', 'b')
        """
        if (X or y) and (self.streams or self.moments):
            raise DataError("streamed sources and Moments cannot be transformed; transform what they are read from")
        same: Callable[[Any], Any] = lambda value: value  # noqa: E731
        made = Sources({})
        vars(made).update(vars(self))
        made._members = {
            name: source._replace(X=(X or same)(source.X), y=(y or same)(source.y)) for name, source in self.items()
        }
        return made

    def without(self, *names: str) -> Sources:
        """The same sources without some of them.

        Examples
        --------
        >>> Sources({"north": ([[1.0]], [1.0]), "south": ([[3.0]], [1.5])}).without("south")
        Sources('north')
        """
        left = [plain_name(name) for name in names]
        if self.names and (unknown := [name for name in left if name not in self.names]) and not self.streams:
            raise ParameterError(f'there is no source "{unknown[0]}"; {nearest(unknown[0], self.names)}')
        made = Sources({})
        made.names = tuple(name for name in self.names if name not in left)
        made._members = {name: source for name, source in self.items() if name not in left}
        made.moments = {name: moments for name, moments in self.moments.items() if name not in left}
        made.streams = tuple(stream.without(*left) for stream in self.streams)
        return made

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
    >>> from mixtune.streaming import StreamedSources
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
    if isinstance(value, Domains):
        value = Sources.from_domains(value)
    elif isinstance(value, Mapping):
        value = Sources(value)
    elif is_collection(value):
        raise DataError(
            "sources is a Dask collection; name its columns with StreamedSources(frame, target=..., "
            "domain=...), or pass {name: (X, y)} of Dask arrays"
        )
    elif not isinstance(value, Sources):
        # Most fits have no streams and need not import the code that reads them.
        from mixtune.streaming import StreamedSources

        if not isinstance(value, StreamedSources):
            raise DataError(
                f"sources is a {type(value).__name__}; pass Sources({{name: (X, y), ...}}). Cross-validation splits "
                "a plain dict or Domains with as many members as there are focal rows: wrap it in Sources"
            )
        value = Sources.from_stream(value)
    return value if value.names or value.streams else None


class TakesSources:
    """What estimators with a ``sources`` argument share towards scikit-learn."""

    # With this request metadata routing passes sources on without set_fit_request.
    __metadata_request__fit = {"sources": True}  # noqa: RUF012


def plain_name(name: Hashable) -> str:
    """The name of a domain as text, its accents composed.

    Examples
    --------
    >>> plain_name(3)
    '3'
    """
    return unicodedata.normalize("NFC", str(name))


def _location(rows: Floats) -> tuple[Floats, Floats]:
    """Means and spreads of columns; a spread that is only rounding counts as 0."""
    with np.errstate(all="ignore"):
        spread = rows.std(axis=0)
        return rows.mean(axis=0), np.where(spread > ROUNDED * np.abs(rows).max(axis=0), spread, 0.0)


def apart_notes(domains: Sequence[Rows]) -> tuple[Note, ...]:
    """Warn of sources that seem to be in other units than the focal rows, which come first.

    Returns the warnings, and what is found of columns that give the targets away and of rows that stand twice; columns
    are named by their places here.
    """
    names = [f"source {number}" for number in range(len(domains))]
    return (
        *_leak_notes(domains),
        *repeat_notes([(rows.X, rows.targets) for rows in domains], names),
        *_units_notes(domains),
    )


def every_notes(rows: Mapping[str, Rows], columns: Sequence[str] | None) -> tuple[str, ...]:
    """What is found of columns that give the targets away and of rows that stand in more than one domain.

    Parameters
    ----------
    rows
        Of every domain, none of which is the focal one.
    columns
        Their names, if they have any.
    """
    leaks = _leak_notes(tuple(rows.values()), list(rows))
    shared = shared_notes([(part.X, part.targets) for part in rows.values()], list(rows))
    return named_notes((*leaks, *shared), columns, list(rows))


def _leak_notes(domains: Sequence[Rows], names: Sequence[str] | None = None) -> tuple[Note, ...]:
    """Columns that give the targets away, in all rows or in the focal ones, or in those of each domain named."""
    # Some rows are enough to tell, however many there are.
    step = max(1, sum(len(rows.y) for rows in domains[1:]) // MOST_LOOKED_AT)
    some = [_evenly(domains[0].X, MOST_LOOKED_AT), *(rows.X[::step] for rows in domains[1:])]
    targets = np.concatenate(
        [_evenly(domains[0].targets, MOST_LOOKED_AT), *(rows.targets[::step] for rows in domains[1:])]
    )
    X, codes = np.concatenate(some), np.repeat(np.arange(len(some)), list(map(len, some)))
    looked_at = {"the focal rows": codes == 0} if names is None else domain_parts(codes, names)
    # A classifier has a column of 1 and -1 for each class.
    classes = bool(np.all(np.abs(targets) == 1))
    outputs = label_codes_of(targets).astype(np.float64)[:, None] if classes else targets
    suspects = list(numeric_suspects(X, range(X.shape[1])))
    about: dict[str, Any] = {"classes": classes, "target": "y", "fixes": False}
    notes = [note for output in outputs.T for note in leak_notes(suspects, output, looked_at, **about)]
    return tuple(dict.fromkeys(notes))


def _units_notes(domains: Sequence[Rows]) -> tuple[Note, ...]:
    focal, others = domains[0], _evenly(domains[1:])
    if min(len(focal.y), sum(len(rows.y) for rows in others)) < FEWEST:
        return ()
    found: list[Note] = []
    if apart := _columns_apart(focal.X, *_location(np.concatenate([_evenly(rows.X) for rows in others]))):
        told = (
            "{count} of {columns} columns of the sources lie far from the focal rows; were they prepared in the same "
            "way? Pipeline steps before the estimator are not applied to the sources: use feature_map"
        )
        found.append(Note("columns-apart", told, count=apart, columns=focal.X.shape[1]))
    # Targets may differ in level between domains, and in a few of them altogether; two rows may be equal by chance.
    clear = [rows for rows in others if len(rows.y) >= FEWEST] or (others if len(others) >= FEWEST else [focal])
    mean, spread = np.median([_location(_evenly(rows.targets)) for rows in clear], axis=0)
    if _columns_apart(focal.targets, mean, spread, np.inf, OTHER_UNITS):
        told = "y of the sources and of the focal rows differ in size; were they transformed in the same way?"
        found.append(Note("targets-apart", told))
    for note in found:
        warnings.warn(note, UserWarning, stacklevel=6)
    return tuple(found)


def named_notes(notes: Sequence[str], columns: Sequence[str] | None, domains: Sequence[str]) -> tuple[str, ...]:
    """The same notes, findings first, with names of columns and domains in place of their numbers."""
    named: list[str] = []
    for note in notes:
        fields = dict(note.fields) if isinstance(note, Note) else {}
        place, source = fields.get("column"), fields.get("source")
        if isinstance(place, int) and columns is not None:
            fields["column"] = columns[place]
        if isinstance(note, Note) and note.code == "focal-in-source" and str(source).startswith("source "):
            fields["source"] = domains[int(str(source).removeprefix("source "))]
        named.append(Note(note.code, note.message.template, **fields) if isinstance(note, Note) else note)
    return findings_first(named)


def _evenly(many: Any, most: int = 64) -> Any:
    """At most ``most`` of them, evenly spaced: enough to see units, however many rows there are."""
    return many[:: max(1, -(-len(many) // most))]


def _columns_apart(focal: Floats, mean: Floats, spread: Floats, far: float = FAR, factor: float = np.inf) -> int:
    """How many columns differ beyond doubt between the focal rows and others of this location; 0 unless most do.

    Columns differ if the means lie ``far`` spreads of either apart, or the spreads differ by ``factor``. If all focal
    columns have mean 0 and spread 1, somebody standardised them, and smaller differences count.
    """
    own_mean, own = _location(focal)
    with np.errstate(all="ignore"):  # a spread beyond float64 is infinite, and nothing is far apart beside it
        ratio = np.exp(np.abs(np.log(spread) - np.log(own)))  # infinite where only one of them varies
        unit = np.maximum(spread, own)
        standard = (np.abs(own_mean) < STANDARD) & ((np.abs(own - 1) < STANDARD) | (own == 0))
        if own.any() and standard.all():
            unit, far, factor = np.minimum(unit, 1.0), FAR, WIDER
        apart = np.abs(own_mean - mean) > far * np.where(unit > 0, unit, np.inf)
        apart |= np.isfinite(ratio) & (ratio > factor)
    return int(apart.sum()) if 2 * apart.sum() > len(apart) else 0


def check_once(names: Iterable[str], what: str = "more than one source is") -> None:
    """Raise if a name occurs more than once."""
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DataError(f"{what} named {', '.join(twice[:5])}; give each its own name")


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
        raise DataError(f'source "{name}" must be (X, y) or (X, y, sample_weight); got a {type(value).__name__}')
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
    from mixtune.streaming import StreamedSources

    for name, source in members.items():
        if source.sample_weight is not None:
            raise DataError(f'source "{name}" is streamed; streamed sources cannot have sample weights, leave them out')
        if hasattr(source.X, "columns"):
            raise DataError(
                f'source "{name}" is a Dask data frame; pass all of them in one, as StreamedSources(frame, target=..., '
                "domain=...), or Dask arrays"
            )
    return StreamedSources({name: (source.X, source.y) for name, source in members.items()})


def sampled(sources: Sources | None, columns: tuple[str, ...] | None) -> Sources | None:
    """The same sources, with rows drawn at random in place of those that are streamed."""
    if sources is None or not sources.streams:
        return sources
    members: dict[str, Any] = {**dict(sources.items()), **sources.moments}
    for stream in sources.streams:
        drawn = stream.samples(columns)
        check_once([*members, *drawn])
        members |= drawn
    return Sources(members)


def check_focal_name(names: Iterable[str], focal_name: str) -> None:
    """Raise if a source has the focal domain's name."""
    if plain_name(focal_name) in names:
        raise DataError(
            f'a source is named "{focal_name}", which is the name of the focal rows; rename it, set focal_name, or '
            "leave it out of streamed sources with leave_out"
        )


def read_sources(
    sources: Sources | None, focal: Rows, columns: tuple[str, ...] | None, focal_name: str
) -> dict[str, Rows]:
    """All sources as numbers, a sample of each that is streamed; none may bear the focal domain's name."""
    if sources is not None and sources.moments:
        raise ParameterError(
            f'source "{next(iter(sources.moments))}" came as Moments, and this needs rows; pass rows, or use '
            "RegretOptimalRegressor with weights='predictive' or 'equal'"
        )
    given = sampled(sources, columns)
    members = {} if given is None else dict(given.items())
    check_focal_name(members, focal_name)
    if columns is None:
        _check_orders(members)
    return {name: read_source(name, source, focal, columns) for name, source in members.items()}


def _check_orders(members: Mapping[str, Source]) -> None:
    """Refuse sources that have the same names in another order, where the focal rows have none to go by."""
    first: tuple[str, tuple[str, ...]] | None = None
    for name, source in members.items():
        known = source.columns or (as_table(source.X, "X").column_names if is_table(source.X) else None)
        if known is None:
            continue
        first = first or (name, tuple(known))
        if tuple(known) != first[1] and set(known) == set(first[1]):
            raise DataError(
                f'domains "{first[0]}" and "{name}" have the same columns in another order, and the focal rows have no '
                "names; pass the focal rows as a data frame too"
            )


def read_source(name: str, source: Source, focal: Rows, columns: Sequence[str] | None) -> Rows:
    """A source as numbers, its columns arranged like the focal ones where both have names.

    Examples
    --------
    >>> focal = Rows(np.array([[1.0, 2.0]]), np.array([1.0]))
    >>> source = Source(np.array([[3.0, 4.0]]), [1.0], columns=("b", "a"))
    >>> read_source("north", source, focal, ["a", "b"]).X
    array([[4., 3.]])
    """
    # What Domain checks, without its copy: rows are only read here, and thousands of domains must not be held twice.
    of = f' of domain "{name}"'
    inputs, targets, known = check_pair(source.X, source.y, of, columns=source.columns, copy=False)
    check_finite(inputs, f"X{of}", known)
    check_finite(targets.reshape(targets.shape[0], -1), f"y{of}")
    X, y = np.asarray(to_numpy(inputs), np.float64), np.asarray(to_numpy(targets), np.float64)
    if columns is not None and known is not None and tuple(known) != tuple(columns):
        if set(known) != set(columns):
            difference = column_difference(known, columns)
            raise DataError(f'domain "{name}" and the focal rows differ in columns: {difference}')
        places = {column: place for place, column in enumerate(known)}
        X = X[:, [places[column] for column in columns]]
    check_same(name, "columns", X.shape[1], focal.X.shape[1])
    check_same(name, "outputs", Rows(X, y).targets.shape[1], focal.targets.shape[1])
    weight = check_weight(source.sample_weight, len(X), of)
    return trim(Rows(X, y.reshape(len(X), *focal.y.shape[1:]), weight))


def check_same(name: str, what: str, count: int, wanted: int) -> None:
    """Raise if a domain has another number of columns or outputs than the focal rows."""
    if count != wanted:
        raise DataError(f'domain "{name}" has {count} {what}, the focal rows have {wanted}; pass the same {what}')


def trim(rows: Rows) -> Rows:
    """Without the rows of weight zero, which count as absent."""
    if rows.sample_weight is None or np.all(rows.sample_weight > 0):
        return rows
    return rows.part(rows.sample_weight > 0)


def read_focal(
    model: BaseEstimator, X: Any, y: Any, sample_weight: Any, *, reset: bool, labels: bool = False
) -> tuple[Any, Rows]:
    """The focal inputs in memory, as they came, and the same rows as numbers; targets may be ``labels``."""
    y, sample_weight = computed(y, sample_weight)
    if reset:
        vars(model).pop("text_encoded_", None)
        if takes_text(model, X):
            vars(model)["text_encoded_"] = True
    checked = check_frame(encoded(model, X))
    if not labels:
        _check_numbers(y, "y")
    with _within_bounds("X" if labels else "X or y"):
        rows, y = validate_data(
            model, checked, y, reset=reset, dtype=np.float64, multi_output=not labels, y_numeric=not labels
        )
        y = y if labels else np.asarray(y, dtype=np.float64)
    if reset:
        _check_sizes(model, rows, None if labels else y)
    return X if text_encoded(model) else checked, Rows(rows, y, check_weight(sample_weight, len(rows)))


def _check_sizes(model: Any, X: Floats, y: Floats | None) -> None:
    """Refuse numbers of which the fit would lose what they say to rounding, or their squares to overflow."""
    known = getattr(model, "feature_names_in_", None)
    names = [f'"{name}"' for name in known] if known is not None else [str(place) for place in range(X.shape[1])]
    if isinstance(getattr(model, "feature_map", None), str):
        check_near_zero(X, y, names)
    if getattr(model, "standardise", True) is False and len(X):
        place = int(np.argmax(sizes := np.abs(X).max(axis=0)))
        if hasattr(model, "seed") and sizes[place] > LARGEST_SQUARED:
            finding = f"column {names[place]} of X holds values of {sizes[place]:.0e}"
            remedy = "rescale it, or pass standardise=True"
            raise DataError(f"{finding}, whose squares overflow in a fit that is not standardised; {remedy}")


def check_near_zero(X: Floats, y: Floats | None, names: Sequence[str]) -> None:
    """Refuse columns and targets whose curves would be lost to rounding, or beyond float64.

    Parameters
    ----------
    X, y
        The focal rows; no targets where they are classes.
    names
        What errors call the columns.

    Examples
    --------
    >>> check_near_zero(np.array([[1e13], [1e13 + 1]]), None, ['"time"'])
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: column "time" of X lies about 2e+13 of its spreads from 0, which leaves it less than three digits; subtract a constant from it, such as its mean, here and in rows to predict
    """  # noqa: E501
    targets = [] if y is None else [("y", column) for column in y.reshape(len(y), -1).T]
    for what, values in (*((f"column {name} of X", column) for name, column in zip(names, X.T)), *targets):
        with np.errstate(all="ignore"):
            size = float(np.abs(values).max(initial=0.0))
            spread = size * float(np.std(values / size)) if size > 0 else 0.0
        if what != "y" and (spread > LARGEST_CURVED or 0 < spread < 1 / LARGEST_CURVED):
            finding = f"{what} varies by {spread:.3g}, so that its non-linear features would be beyond float64"
            raise DataError(f"{finding}; rescale it, or pass feature_map=None for a linear model")
        if (spreads := _from_zero(values)) > FARTHEST:
            finding = f"{what} lies about {spreads:.0e} of its spreads from 0, which leaves it less than three digits"
            raise DataError(f"{finding}; subtract a constant from it, such as its mean, here and in rows to predict")


def _from_zero(values: Floats) -> float:
    """How many of its spreads a column lies from 0; nothing for one that is constant up to rounding."""
    largest = float(np.abs(values).max(initial=0.0))
    with np.errstate(all="ignore"):
        spread = float(np.std(values / largest)) if largest > 0 else 0.0
    return 1.0 / spread if spread > CONSTANT else 0.0


def takes_text(model: Any, X: Any) -> bool:
    """Whether the feature map was fitted to frames, and this is a frame that holds more than numbers."""
    named = getattr(getattr(model, "feature_map", None), "input_names", None)
    return named is not None and is_table(X) and _may_hold_others(X)


def text_encoded(model: Any) -> bool:
    """Whether the feature map of a fitted model gets frames as they come; models of older files do not say so."""
    return bool(getattr(model, "text_encoded_", False))


def encoded(model: Any, X: Any) -> Any:
    """The features of a frame with text; everything else as it is, since its map comes later."""
    return model.feature_map.transform(X) if text_encoded(model) else X


def encoded_sources(model: Any, sources: Sources | None) -> Sources | None:
    """The same for the sources, after the focal rows were read."""
    return sources if sources is None or not text_encoded(model) else sources.transformed(X=partial(encoded, model))


def map_after_encoding(model: Any, feature_map: Any) -> Any:
    """The map that is still to be applied to rows that were read."""
    return None if text_encoded(model) else feature_map


def check_frame(X: Any, *, most: int = MOST_FOCAL) -> Any:
    """Return ``X`` in memory; raise for repeated column names and for columns of text or dates.

    A Dask collection may have up to ``most`` rows.

    Examples
    --------
    >>> import pandas as pd
    >>> check_frame(pd.DataFrame({"area": [120.0], "sold": pd.to_datetime(["2026-01-01"])}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: column "sold" of X holds dates or times ...
    """
    X = known_frame(computed(X, most=most)[0], "X")
    check_names([str(name) for name in getattr(X, "column_names", getattr(X, "columns", ()))], "X")
    _check_numbers(X, "X")
    return X


def check_scored(y: Any, sample_weight: Any) -> None:
    """Refuse masked targets and weights to score, of which scikit-learn would take what is behind the mask.

    Examples
    --------
    >>> check_scored(np.ma.array([1.0, 2.0], mask=[False, True]), None)
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: y has 1 masked value; fill or drop these rows
    """
    check_unmasked(y, "y")
    check_unmasked(sample_weight, "sample_weight")


def check_new(model: BaseEstimator, X: Any) -> Floats:
    """Validated rows to predict; they must have the columns that the model was fitted to."""
    with _within_bounds("X"):
        return validate_data(model, check_frame(encoded(model, X), most=sys.maxsize), reset=False, dtype=np.float64)


@contextmanager
def _within_bounds(where: str) -> Iterator[None]:
    """Turn the OverflowError of integers beyond float64 into a clear error."""
    try:
        yield
    except OverflowError as error:
        raise DataError(f"{where} holds whole numbers beyond 1e308; rescale them") from error


def _check_numbers(value: Any, where: str) -> None:
    """Raise for a frame, column or array of text or dates; scikit-learn checks everything else.

    NumPy would read dates as numbers of days or nanoseconds.
    """
    if isinstance(value, list | tuple | pa.Array | pa.ChunkedArray):
        try:
            value = np.asarray(value)
        except (TypeError, ValueError):
            return
    if isinstance(value, np.ndarray) and _has_complex(value):
        raise DataError(f"{where} holds complex numbers; pass real ones, such as their real and imaginary parts")
    if not _may_hold_others(value):
        return
    try:
        with _within_bounds(where):
            as_floats(value, where, copy=False)
    except DataError:
        if not _turns_into_numbers(value):
            raise


def _may_hold_others(value: Any) -> bool:
    """Whether a value may hold anything but numbers: text, dates, objects of a frame."""
    many: Any = getattr(value, "dtypes", None)
    types = list(many) if hasattr(many, "__iter__") else [getattr(value, "dtype", None)]
    # A pandas series shows itself as a table only from pandas 3 on.
    if is_table(value) or hasattr(value, "to_frame"):
        return isinstance(value, pa.Table) or not all(_is_numeric(dtype) for dtype in types)
    return getattr(types[0], "kind", "") in ("U", "S", "M", "m")


def _is_numeric(dtype: Any) -> bool:
    """Whether a dtype of NumPy, pandas or polars is numeric."""
    kind = getattr(dtype, "kind", None)
    return kind in "biuf" if kind is not None else bool(getattr(dtype, "is_numeric", bool)())


def _turns_into_numbers(value: Any) -> bool:
    """Whether objects convert to finite numbers, as True and 10**30 do; dates and complex ones do not."""
    try:
        array = np.asarray(value)
        real = array.dtype.kind not in "Mmc" and not _has_complex(array)
        return real and bool(np.all(np.isfinite(array.astype(np.float64))))
    except (TypeError, ValueError, OverflowError):
        return False


def _has_complex(array: Any) -> bool:
    """Whether there are complex numbers among objects, of which NumPy would take the real parts."""
    return array.dtype.kind == "O" and any(isinstance(each, complex | np.complexfloating) for each in array.flat)


@dataclass(frozen=True, eq=False)
class Labels:
    """The domain of each row: a place (n,) among names, which are in the order of their first row."""

    places: Integers
    names: tuple[str, ...]

    def among(self, known: Sequence[str]) -> Integers:
        """The place of each row's domain among ``known`` names; -1 where it is not one of them."""
        place = {label_key(name): k for k, name in enumerate(known)}
        return np.array([place.get(label_key(name), -1) for name in self.names], dtype=np.int64)[self.places]


def split_labels(X: Any, domain: Any, column: Any) -> tuple[Any, Labels | None]:
    """Rows without the column of labels, and the labels: those of ``domain``, or else of the column.

    Parameters
    ----------
    X : array-like or data frame
    domain : array-like (n,) or None
    column : str, int or None
        The name of the column in a frame, or its place in an array.

    Examples
    --------
    >>> X, labels = split_labels({"x": [1.0, 2.0, 3.0], "site": ["b", "a", "b"]}, None, "site")
    >>> X.column_names, labels.names, labels.places.tolist()
    (['x'], ('b', 'a'), [0, 1, 0])
    """
    if column is None:
        return X, None if domain is None else read_labels(domain, _num_samples(known_frame(X, "X")))
    if domain is not None:
        raise ParameterError(f"the model reads labels from column {column!r}; leave domain out of this call")
    (X,) = computed(X)
    own, X = _taken_out(known_frame(X, "X"), column)
    return X, read_labels(own, _num_samples(X))


def _taken_out(X: Any, column: Any) -> tuple[Any, Any]:
    """A column, and the rows without it."""
    if is_table(X):
        names = [str(name) for name in getattr(X, "column_names", getattr(X, "columns", ()))]
        if column not in names:
            raise DataError(f"X has no column {column!r} of domain labels; {nearest(str(column), names)}")
        if isinstance(X, pa.Table):
            return X.column(column), X.drop_columns(column)
        return X[column], X.drop(columns=column) if hasattr(X, "iloc") else X.drop(column)
    array = np.asarray(X)
    if isinstance(column, str) or array.ndim != 2 or not -array.shape[1] <= column < array.shape[1]:
        raise DataError(
            f"X of shape {array.shape} has no column {column!r} of domain labels; pass a data frame that has it, or "
            "fit(X, y, domain=labels)"
        )
    return array[:, column], np.delete(array, column, axis=1)


def read_labels(labels: Any, count: int) -> Labels:
    """Read one label for each of ``count`` rows; numbers and texts are both named by their text.

    Examples
    --------
    >>> read_labels([14, 3, 14], 3).names
    ('14', '3')
    """
    (labels,) = computed(labels)
    try:
        encoded = _as_arrow(labels).dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise DataError(f"domain must be one text or number per row: {error}") from error
    if len(encoded) != count:
        raise DataError(f"there are {len(encoded)} domain labels for {count} rows; pass one label per row")
    missing = np.flatnonzero(np.asarray(encoded.indices.is_null()))
    same = same_labels(encoded.dictionary.to_pylist())
    same.warn("domain")
    names = same.names
    places = np.array([*same.numbers, 0])[np.asarray(encoded.indices.fill_null(0), dtype=np.int64)]
    absent = [k for k, name in enumerate(names) if name in ("", "nan")]
    if len(missing) or np.any(np.isin(places, absent)):
        rows = np.union1d(missing, np.flatnonzero(np.isin(places, absent)))
        raise DataError(
            f"{len(rows)} of {count} rows have no domain label, the first is row {rows[0]} (from 0); name them, or "
            "leave these rows out"
        )
    return Labels(places, tuple(names))


def _as_arrow(labels: Any) -> Any:
    if hasattr(labels, "to_arrow"):
        labels = labels.to_arrow()
    if not isinstance(labels, pa.Array | pa.ChunkedArray):
        array = labels if hasattr(labels, "iloc") else np.asarray(to_numpy(labels))
        if getattr(array, "ndim", 1) != 1:
            raise DataError(f"domain has shape {np.shape(array)}; pass one label per row")
        labels = pa.array(array, from_pandas=True)
    if isinstance(labels, pa.ChunkedArray):
        labels = labels.combine_chunks()
    if pa.types.is_dictionary(labels.type):
        labels = labels.dictionary_decode()
    return labels


def check_domains(names: Sequence[str]) -> None:
    """Raise if there are too many labels to name domains."""
    if len(names) > MOST_DOMAINS:
        raise DataError(
            f"there are {len(names)} domains, more than {MOST_DOMAINS}; is the label an identifier of rows? group the "
            "rows into fewer domains"
        )
