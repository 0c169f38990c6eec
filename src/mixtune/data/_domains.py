"""Several domains, one of them focal: what an estimator learns from.

The focal domain is the one to predict for; the others are sources that may help or hurt. Downstream each
domain turns into features, then moments, then a weight, in the order kept here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from mixtune._messages import counted, nearest, quoted
from mixtune.data._arrays import Array
from mixtune.data._constructors import Constructors
from mixtune.data._domain import Domain
from mixtune.data._holdout import pooled_scaling, split_rows
from mixtune.data._members import check_alike
from mixtune.data._naming import arrange
from mixtune.errors import DataError, ParameterError

__all__ = ["Domains"]


class Transform(Protocol):
    """The part of a feature map that is needed here."""

    def transform(self, X: Array, /) -> Array:
        """Turn rows into rows of features."""


@dataclass(frozen=True, eq=False, repr=False)
class Domains(Constructors):
    """Named datasets with the same columns and outputs, one of which is the focal one.

    Parameters
    ----------
    members
        The domains, in the order to keep.
    focal
        Name of the domain to predict for.

    Raises
    ------
    DataError
        If names repeat, the focal name is unknown, or columns, outputs or array libraries differ.

    Examples
    --------
    >>> domains = Domains.from_dict({"a": ([[0.0], [1.0]], [0, 1]), "b": ([[2.0]], [2])}, focal="b")
    >>> domains
    Domains(2 domains, focal='b', 3 rows, 1 column, 1 output)
    >>> domains.names, domains.focal_index, domains["a"]
    (('a', 'b'), 1, Domain('a', 2 rows, 1 column, 1 output))
    """

    members: tuple[Domain, ...]
    focal: str = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members))
        if not self.members:
            raise DataError("there are no domains; pass at least the focal one")
        if len(self._positions) < len(self.members):
            repeated = [name for index, name in enumerate(self.names) if self._positions[name] != index]
            raise DataError(f"more than one domain is named {quoted(repeated)}; give each domain its own name")
        focal = self.focal_domain
        for domain in self.members:
            check_alike(domain, focal)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {domain.name: index for index, domain in enumerate(self.members)}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all domains, in order."""
        return tuple(domain.name for domain in self.members)

    @property
    def focal_index(self) -> int:
        """Position of the focal domain."""
        return self._position(self.focal)

    @property
    def focal_domain(self) -> Domain:
        """The focal domain itself."""
        return self.members[self.focal_index]

    @property
    def sources(self) -> tuple[Domain, ...]:
        """All domains but the focal one, in order."""
        return tuple(domain for domain in self.members if domain.name != self.focal)

    def with_focal(self, name: str) -> Domains:
        """Return the same domains with another one focal.

        Examples
        --------
        >>> domains = Domains.from_dict({"a": ([[0.0]], [0]), "b": ([[1.0]], [1])}, focal="a")
        >>> domains.with_focal("b").focal
        'b'
        """
        return Domains(self.members, focal=name)

    def without(self, name: str) -> Domains:
        """Return the domains without one of the sources.

        Examples
        --------
        >>> domains = Domains.from_dict({"a": ([[0.0]], [0]), "b": ([[1.0]], [1])}, focal="a")
        >>> domains.without("b").names
        ('a',)
        """
        position = self._position(name)
        if name == self.focal:
            raise ParameterError(f'"{name}" is the focal domain and cannot be left out; choose another with with_focal')
        return Domains(self.members[:position] + self.members[position + 1 :], focal=self.focal)

    def sorted_focal_first(self) -> Domains:
        """Return the domains with the focal one in front and the sources in their order."""
        return Domains((self.focal_domain, *self.sources), focal=self.focal)

    def split_focal(self, test_size: float | int, *, seed: int) -> tuple[Domains, Domain]:
        """Hold out some of the focal rows, drawn at random, to measure errors on; the sources stay.

        Parameters
        ----------
        test_size
            A share of the focal rows, between 0 and 1, or a number of them; at least one row stays on each side.
        seed
            Fixes which rows they are.

        Returns
        -------
        tuple
            The domains without these rows, and these rows as a domain of the same name.

        Examples
        --------
        >>> data = {"a": ([[0.0], [1.0], [2.0], [3.0]], [0, 1, 2, 3]), "b": ([[1.0]], [1])}
        >>> train, test = Domains.from_dict(data, focal="a").split_focal(0.25, seed=0)
        >>> train["a"].n_rows, train["b"].n_rows, test
        (3, 1, Domain('a', 1 row, 1 column, 1 output))
        """
        kept, test = split_rows(self.focal_domain, test_size, seed)
        members = tuple(kept if domain.name == self.focal else domain for domain in self.members)
        return Domains(members, focal=self.focal), test

    def input_scaling(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation of each input column over the rows of all domains.

        They go to ``RandomFeatures(input_shift=mean, input_scale=spread)``. A constant column has spread 1.

        Examples
        --------
        >>> Domains.from_dict({"a": ([[0.0, 7.0]], [0]), "b": ([[4.0, 7.0]], [1])}, focal="a").input_scaling()
        (array([2., 7.]), array([2., 1.]))
        """
        return pooled_scaling(self.members)

    def map(self, feature_map: Transform) -> Domains:
        """Return the domains with the features of ``X`` in place of ``X``, without column names.

        Parameters
        ----------
        feature_map
            Anything with ``transform(X)``. Where it was fitted on named columns and the columns here have names,
            it is handed its columns by name, whatever their order here; further columns are left out.

        Raises
        ------
        DataError
            If columns that the map was fitted on are missing.

        Examples
        --------
        >>> from sklearn.preprocessing import PolynomialFeatures
        >>> domains = Domains.from_dict({"a": ([[2.0]], [0]), "b": ([[3.0]], [1])}, focal="a")
        >>> domains.map(PolynomialFeatures(2).fit([[0.0]]))["b"].X
        array([[1., 3., 9.]])
        """
        if isinstance(feature_map, type) or not callable(getattr(feature_map, "transform", None)):
            raise ParameterError(
                f"{feature_map!r} is not a feature map: it needs transform(X), which gives a row of features for "
                "each row; wrap a function as SklearnFeatures(FunctionTransformer(function).fit(X))"
            )
        mapped = (Domain(domain.name, self._features(domain, feature_map), domain.y) for domain in self.members)
        return Domains(tuple(mapped), focal=self.focal)

    def _features(self, domain: Domain, feature_map: Any) -> Array:
        """Compute the features of one domain, by name where both sides know names."""
        # A domain without names has its columns in the order of the others, as everywhere.
        known = (member.columns for member in (domain, self.focal_domain, *self.members))
        columns = next((names for names in known if names is not None), None)
        if columns is not None and hasattr(feature_map, "transform_named"):
            return feature_map.transform_named(domain.X, columns)
        wanted = getattr(feature_map, "feature_names_in_", None)
        if columns is None or wanted is None or is_torch_array(domain.X):
            return feature_map.transform(domain.X)
        return feature_map.transform(arrange(domain.X, columns, list(wanted), type(feature_map).__name__))

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Domain]:
        return iter(self.members)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __getitem__(self, key: str | int) -> Domain:
        return self.members[self._position(key) if isinstance(key, str) else key]

    def __repr__(self) -> str:
        rows, focal = sum(domain.n_rows for domain in self.members), self.focal_domain
        size = counted((rows, "row"), (focal.n_columns, "column"), (focal.n_outputs, "output"))
        return f"Domains({counted((len(self), 'domain'))}, focal={self.focal!r}, {size})"

    def _position(self, name: str) -> int:
        if not isinstance(name, str) or name not in self._positions:
            raise DataError(f'there is no domain "{name}"; {nearest(str(name), self.names)}')
        return self._positions[name]
