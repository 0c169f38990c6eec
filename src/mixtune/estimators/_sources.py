"""Sources: the other datasets, in a form that scikit-learn hands through untouched.

Cross-validation and grid search slice every fit argument that has a length equal to the number of focal rows. A dict or
list of as many sources as there are rows would be cut up in silence, so :class:`Sources` has neither a length nor
items. This is where data enter the estimators; next they are read as numbers and become features.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from mixtune.data import Domain, Domains
from mixtune.data._tables import as_table
from mixtune.errors import DataError

__all__ = ["FocalSplit", "Source", "Sources", "as_sources", "split_sample_domain", "split_table"]

#: Beyond this many, a domain column is almost surely an identifier of rows.
MOST_SOURCES = 20_000


class Source(NamedTuple):
    """One source as it was given; ``columns`` names the columns of ``X`` where ``X`` itself does not."""

    X: Any
    y: Any
    sample_weight: Any = None
    columns: tuple[str, ...] | None = None


class Sources:
    """Named source datasets for ``fit(X, y, sources=...)``.

    Parameters
    ----------
    data : mapping
        ``{name: (X, y)}`` or ``{name: (X, y, sample_weight)}``; values may also be :class:`mixtune.Domain`.

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
        members = [(str(name), _as_source(str(name), value)) for name, value in data.items()]
        self._members: dict[str, Source] = dict(members)
        if len(self._members) < len(members):
            names = [name for name, _ in members]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise DataError(f"more than one source is named {', '.join(twice[:5])}; give each its own name")

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

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sources, in order."""
        return tuple(self._members)

    def items(self) -> Iterator[tuple[str, Source]]:
        """Pairs of a name and its :class:`Source`."""
        return iter(self._members.items())

    def __repr__(self) -> str:
        names = self.names
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
    if domain in labels.column_names:  # before a million domains are cut out
        _check_number(len(labels.column(domain).unique()) - 1)
    domains = Domains.from_table(table, target=target, domain=domain, focal=focal, columns=columns)
    here = domains.focal_domain
    return FocalSplit(here.X, here.y, Sources.from_domains(domains))


def split_sample_domain(X: Any, y: Any, sample_domain: Any) -> FocalSplit:
    """Focal rows and sources by skada's convention: positive labels are sources, the negative label is the target.

    Target rows whose ``y`` is NaN (skada masks them) are left out: only labelled rows can be learnt from.

    Examples
    --------
    >>> split = split_sample_domain([[1.0], [2.0], [3.0]], [1.0, 2.0, float("nan")], [1, -2, -2])
    >>> split.X, split.y, split.sources
    ([[2.0]], [2.0], Sources('1'))
    """
    labels = np.asarray(sample_domain)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or np.any(labels == 0):
        raise DataError("sample_domain must be one whole number per row: positive for sources, negative for the target")
    targets = np.unique(labels[labels < 0])
    if len(targets) != 1:
        raise DataError(
            f"sample_domain has {len(targets)} negative labels; exactly one target domain is needed: "
            "keep the rows of one target"
        )
    values = np.asarray(y)
    if len(values) != len(labels):
        raise DataError(f"sample_domain has {len(labels)} labels for {len(values)} targets; pass one per row")
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    known = known.reshape(len(values), -1).all(axis=1)
    focal = np.flatnonzero((labels < 0) & known)
    if len(focal) == 0:
        raise DataError("no row of the target domain has a label (y is NaN in all of them); label at least one")
    members = {}
    for label in np.unique(labels[labels > 0]):
        rows = np.flatnonzero(labels == label)
        members[str(label)] = Source(_safe_indexing(X, rows), _safe_indexing(y, rows))
    return FocalSplit(_safe_indexing(X, focal), _safe_indexing(y, focal), Sources(members))


def as_sources(value: Any) -> Sources | None:
    """Read the ``sources`` argument of fit: Sources, Domains, a mapping, or nothing (None, or no source at all).

    Examples
    --------
    >>> as_sources({"b": ([[1.0]], [1.0])})
    Sources('b')
    """
    if value is None:
        return None
    if isinstance(value, Domains):
        value = Sources.from_domains(value)
    if not isinstance(value, Sources):
        if not isinstance(value, Mapping):
            raise DataError(
                f"sources came as a {type(value).__name__}; pass Sources({{name: (X, y), ...}}). A plain dict or "
                "Domains with as many members as there are focal rows is cut up by cross-validation: wrap it in Sources"
            )
        value = Sources(value)
    return value if value.names else None


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
        return Source(value.X, value.y, None, value.columns)
    if not isinstance(value, tuple | list) or len(value) not in (2, 3):
        raise DataError(f'source "{name}" must come as (X, y) or (X, y, sample_weight); got a {type(value).__name__}')
    return Source(*value)
