"""Several domains, one of them focal: what an estimator learns from.

The focal domain is the one to predict for; the others are sources that may help or hurt. Each constructor reads and
checks what it is given, cuts it into one domain per label or file, and names the focal one. Rows are sorted by label
once and the domains are slices of the sorted arrays, so a million rows in a hundred thousand domains take seconds.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array

from mixtune._messages import counted, nearest, quoted, setting
from mixtune.arrays import Array, Floats, Integers, check_unmasked, to_numpy
from mixtune.checks import check_whole, import_extra
from mixtune.data._csv_files import CsvFormat
from mixtune.data._domain import Domain, Names, check_alike, check_pair, column_difference
from mixtune.data._labels import SameLabels, same_labels
from mixtune.data._readers import as_paths, file_label, read_table
from mixtune.data._tables import (
    LIST_COLUMNS,
    Table,
    as_names,
    as_table,
    choose_inputs,
    composed,
    is_nothing,
    to_matrix,
)
from mixtune.errors import DataError, ParameterError


@dataclass(frozen=True, eq=False, repr=False)
class Domains:
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

    @classmethod
    def from_dict(cls, data: Mapping[str, tuple[Any, ...]], *, focal: str) -> Self:
        """Build from ``{name: (X, y)}`` or ``{name: (X, y, sample_weight)}``.

        Examples
        --------
        >>> Domains.from_dict({"a": ([[0.0], [1.0]], [0, 1]), "b": ([[2.0]], [2])}, focal="a").names
        ('a', 'b')
        """
        members = []
        for name, given in data.items():
            if not isinstance(given, tuple | list) or len(given) not in (2, 3):
                raise DataError(f'domain "{name}" must be a pair (X, y), or (X, y, sample_weight)')
            weight = given[2] if len(given) == 3 else None
            members.append(Domain(str(name), given[0], given[1], sample_weight=weight))
        return cls(tuple(members), focal=focal)

    @classmethod
    def from_arrays(cls, X: Any, y: Any, *, labels: Any, focal: Hashable) -> Self:
        """Build from one array of all rows and a label per row, in the order in which labels first appear.

        Parameters
        ----------
        X, y
            All rows, as for :class:`Domain`.
        labels
            One label per row, of any hashable kind; written as text, they are the names. None may be missing.
            Space around texts does not count: "x" and "x " are one domain.
        focal
            Label of the focal domain.

        Examples
        --------
        >>> domains = Domains.from_arrays([[1.0], [2.0], [3.0]], [1, 2, 3], labels=[7, 5, 7], focal=7)
        >>> domains.names, domains["7"].y
        (('7', '5'), array([1., 3.]))
        """
        X, y, columns = check_pair(X, y, "", columns=None, copy=False)
        codes, names, focal, same = label_codes(labels, focal, "labels", n_rows=X.shape[0])
        same.warn("labels")
        return cls(split_by_label(X, y, columns, codes, names), focal=focal)

    @classmethod
    def from_sample_domain(cls, X: Any, y: Any, sample_domain: Any, *, focal: int | None = None) -> Self:
        """Build from one array of all rows by skada's convention: positive labels are sources, negative ones targets.

        Parameters
        ----------
        X, y
            All rows, as for :class:`Domain`.
        sample_domain
            One whole number per row. Rows of the target whose ``y`` is NaN (skada masks them) are left out: only
            labelled rows can be learned from.
        focal
            The negative label of the focal domain, where there are several targets; rows of the others are left out.

        Examples
        --------
        >>> domains = Domains.from_sample_domain([[1.0], [2.0], [3.0]], [1.0, 2.0, float("nan")], [1, -2, -2])
        >>> domains.names, domains.focal, domains["-2"].y
        (('1', '-2'), '-2', array([2.]))
        """
        X, y, columns = check_pair(X, y, "", columns=None, copy=False)
        rows = rows_by_label(y, sample_domain, focal)
        own = {**rows.sources, rows.focal: rows.focal_rows}
        return cls(tuple(Domain(name, X[kept], y[kept], columns) for name, kept in own.items()), focal=rows.focal)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        target: str | Sequence[str],
        domain: str,
        focal: Hashable,
        columns: str | Sequence[str] | None = None,
    ) -> Self:
        """Build from a table with a column that names the domains.

        Parameters
        ----------
        table
            A pandas or polars frame, a pyarrow table or a dict of columns.
        target
            The column to predict, or several.
        domain
            The column of domain labels; space around texts does not count.
        focal
            Label of the focal domain.
        columns
            The input columns; all the others by default.

        Examples
        --------
        >>> table = {"school": ["n", "s", "n"], "size": [1, 2, 3], "score": [0.1, 0.2, 0.3]}
        >>> Domains.from_table(table, target="score", domain="school", focal="n")["n"].X
        array([[1.],
               [3.]])
        """
        where = "the table"
        return cls._from_labels(as_table(table, where), target, composed(domain), focal, columns, where)

    @classmethod
    def from_files(
        cls,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        target: str | Sequence[str],
        focal: str | None = None,
        domain: str | None = None,
        columns: str | Sequence[str] | None = None,
        encoding: str = "utf-8",
        separator: str | None = None,
        decimal: str = ".",
    ) -> Self:
        """Build from CSV or Parquet files: one file with a domain column, or one file per domain.

        Parameters
        ----------
        paths
            The file, or the files; without ``domain`` each is one domain, named after its file. CSV may be
            compressed (.csv.gz).
        target
            The column to predict, or several.
        focal
            Name of the focal domain; the first file by default. With ``domain`` it must be given.
        domain
            The column of domain labels, if all domains are in one file; space around texts does not count.
        columns
            The input columns; all the others by default, which must then be the same in every file.
        encoding, separator, decimal
            How CSV files are written: the text encoding, such as "latin-1"; the character between columns, by
            default a comma, and a tab for .tsv; and "." or "," before the decimals. Parquet needs none of them.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = [Path(folder, "north.csv"), Path(folder, "south.csv")]
        ...     _ = files[0].write_text("size,price\\n1,10\\n2,20\\n")
        ...     _ = files[1].write_text("price,size\\n30,3\\n")
        ...     Domains.from_files(files, target="price")["south"].X
        array([[3.]])
        """
        files = as_paths(paths)
        form = CsvFormat(encoding, separator, decimal)
        if domain is not None:
            domain = composed(domain)
            check_single_file(files, domain)
            if focal is None:
                raise ParameterError("focal is not given; name the focal domain, or use one file per domain")
            table = read_table(files[0], form, text=[domain])
            return cls._from_labels(table, target, domain, focal, columns, f'"{files[0]}"')
        targets = as_names(target, "target")
        target = targets[0] if isinstance(target, str) else targets
        members: list[Domain] = []
        inputs: tuple[str, ...] = ()
        for path in files:
            table, where = read_table(path, form), f'"{path}"'
            found = choose_inputs(table, targets=targets, domain=None, columns=columns, where=where)
            # The columns of every file in the order of the first.
            inputs = inputs or found
            if set(found) != set(inputs):
                raise DataError(f'{where} and "{files[0]}" differ in columns: {column_difference(found, inputs)}')
            members.append(Domain(file_label(path), *_rows(table, inputs, target, where), inputs))
        return cls(tuple(members), focal=members[0].name if focal is None else focal)

    @classmethod
    def _from_labels(
        cls, table: Table, target: str | Sequence[str], domain: str, focal: Hashable, columns: Any, where: str
    ) -> Self:
        """Cut a table by its column of labels."""
        targets = as_names(target, "target")
        inputs = choose_inputs(table, targets=targets, domain=domain, columns=columns, where=where)
        target = targets[0] if isinstance(target, str) else targets
        if table.num_rows == 0:
            raise DataError(f"{where} has no rows; pass at least one")
        labels = table.column(domain).to_pylist()
        codes, names, name, same = label_codes(labels, focal, f'column "{domain}" of {where}', n_rows=table.num_rows)
        same.warn(f'column "{domain}" of {where}')
        return cls(split_by_label(*_rows(table, inputs, target, where), inputs, codes, names), focal=name)

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
        """Hold out some of the focal rows, drawn at random, as test rows; the sources are not changed.

        Parameters
        ----------
        test_size
            A share of the focal rows, between 0 and 1, or a number of them; at least one row stays on each side.
        seed
            Seed of the draw.

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
        focal = self.focal_domain
        n_test, seed = _held_out_rows(focal, test_size), check_whole("seed", seed)
        order = np.random.default_rng(seed).permutation(focal.n_rows)
        kept, test = focal.take(np.sort(order[n_test:])), focal.take(np.sort(order[:n_test]))
        members = tuple(kept if domain.name == self.focal else domain for domain in self.members)
        return Domains(members, focal=self.focal), test

    def input_scaling(self) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each input column over the rows of all domains.

        They go to ``RandomFeatures(input_shift=mean, input_scale=spread)``. A constant column has spread 1.

        Examples
        --------
        >>> Domains.from_dict({"a": ([[0.0, 7.0]], [0]), "b": ([[4.0, 7.0]], [1])}, focal="a").input_scaling()
        (array([2., 7.]), array([2., 1.]))
        """
        parts = [to_numpy(domain.X) for domain in self.members]
        n_rows = sum(len(part) for part in parts)
        # Two passes: the sum of squares less the squared mean would lose a small spread about a large mean.
        mean = sum(part.sum(axis=0, dtype=np.float64) for part in parts) / n_rows
        spread = np.sqrt(sum(np.square(part - mean).sum(axis=0) for part in parts) / n_rows)
        # The mean of equal numbers may be off by rounding, so that equality decides what is constant.
        constant = np.all([(part == parts[0][0]).all(axis=0) for part in parts], axis=0)
        return np.asarray(mean), np.where(constant | (spread == 0), 1.0, spread)

    def map(self, feature_map: Any) -> Domains:
        """Return the domains with the features of ``X`` in place of ``X``, without column names.

        Parameters
        ----------
        feature_map
            Anything with ``transform(X)``. Where it was fitted on named columns and the columns here have names,
            it gets its columns by name, in any order; other columns are ignored.

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
            advice = "wrap a function as SklearnFeatures(FunctionTransformer(function).fit(X))"
            raise ParameterError(f"{feature_map!r} is not a feature map: it has no transform(X); {advice}")
        mapped = (
            Domain(domain.name, self._features(domain, feature_map), domain.y, sample_weight=domain.sample_weight)
            for domain in self.members
        )
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
        return feature_map.transform(arrange_columns(domain.X, columns, list(wanted), type(feature_map).__name__))

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


def _held_out_rows(domain: Domain, test_size: float | int) -> int:
    """Turn a share or a number of rows into a number that leaves rows on both sides."""
    if domain.n_rows < 2:
        raise DataError(f'domain "{domain.name}" has one row; at least two are needed to hold one out')
    whole = isinstance(test_size, int | np.integer) and not isinstance(test_size, bool)
    if whole and 1 <= test_size < domain.n_rows:
        return int(test_size)
    if isinstance(test_size, float | np.floating) and 0 < test_size < 1:
        return min(max(round(float(test_size) * domain.n_rows), 1), domain.n_rows - 1)
    rows = f'a number of rows from 1 to {domain.n_rows - 1}, one less than domain "{domain.name}" has'
    raise ParameterError(f"test_size={test_size!r} must be a share between 0 and 1, such as 0.25, or {rows}")


def arrange_columns(X: Array, columns: Sequence[str], wanted: Sequence[str], whose: str) -> Any:
    """Pick the wanted columns of ``X`` by name, in the wanted order.

    Parameters
    ----------
    X
        Rows by columns: an array or a tensor.
    columns
        The names of the columns of ``X``.
    wanted
        The names to pick.
    whose
        Who wants them, for the error.

    Returns
    -------
    DataFrame or ndarray
        A pandas frame, so that a transformer may go on choosing by name; without pandas, an array.

    Examples
    --------
    >>> np.asarray(arrange_columns(np.array([[1.0, 2.0]]), ["size", "age"], ["age", "size"], "the scaler"))
    array([[2., 1.]])
    >>> arrange_columns(np.array([[1.0, 2.0]]), ["size", "age"], ["rooms"], "the scaler")
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: the scaler was fitted on columns that the data lack: "rooms"; the data have "size", "age"; fit it on these columns
    """  # noqa: E501
    places = {name: place for place, name in enumerate(columns)}
    if missing := [name for name in wanted if name not in places]:
        raise DataError(
            f"{whose} was fitted on columns that the data lack: {quoted(missing, 20)}; "
            f"the data have {quoted(columns, 20)}; fit it on these columns"
        )
    rows = to_numpy(X)[:, [places[name] for name in wanted]]
    try:
        pandas = import_module("pandas")
    except ImportError:
        return rows
    return pandas.DataFrame(rows, columns=list(wanted))


def frame_of(columns: Mapping[str, Any]) -> Any:
    """A pandas frame of columns by name.

    Examples
    --------
    >>> frame_of({"x": [1.0, 2.0]}).shape
    (2, 1)
    """
    return import_extra("pandas", "data", "a frame of results").DataFrame(dict(columns))


def check_single_file(files: Sequence[Path], domain: str) -> None:
    """Refuse a domain column together with several files."""
    if len(files) > 1:
        template = "{given} goes with one file, {count} are given; drop domain or join the files"
        raise ParameterError(template, given=setting("domain", domain), count=len(files))


def _rows(table: Table, inputs: Sequence[str], target: str | Sequence[str], where: str) -> tuple[Array, Array]:
    """Inputs and targets of a table; the targets have one dimension where one column is named."""
    X, y = to_matrix(table, inputs, where, LIST_COLUMNS), to_matrix(table, as_names(target, "target"), where)
    return X, y[:, 0] if isinstance(target, str) else y


class LabelCodes(NamedTuple):
    """The number of each row's label, the labels as text, the focal label as text, and how labels are spelt."""

    codes: Integers
    names: list[str]
    focal: str
    same: SameLabels


def label_codes(labels: Any, focal: Hashable, where: str, *, n_rows: int) -> LabelCodes:
    """Number the labels in the order of their first appearance.

    Parameters
    ----------
    labels
        One hashable label per row. Space around texts does not count: "x" and "x " are one label, and so are 1 and 1.0,
        and "1" and "1.0".
    focal
        The label of the focal domain.
    where
        How an error names the labels.
    n_rows
        How many labels there must be.

    Returns
    -------
    LabelCodes

    Examples
    --------
    >>> label_codes(["b", "a", "b"], "a", "labels", n_rows=3)[:3]
    (array([0, 1, 0]), ['b', 'a'], 'a')
    """
    rows = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    try:
        hash(focal)
    except TypeError as error:
        raise ParameterError(f"focal={focal!r} must be one label, such as a text or a number, not several") from error
    if len(rows) != n_rows:
        raise DataError(f"there are {len(rows)} {where} for {n_rows} rows; pass one label per row")
    numbers: dict[Hashable, int] = {}
    try:
        codes = np.array([numbers.setdefault(label, len(numbers)) for label in rows], dtype=np.int64)
    except TypeError as error:
        raise DataError(f"{where} must be one text or number per row: {error}") from error
    if missing := [number for label, number in numbers.items() if _is_missing(label)]:
        lost = np.isin(codes, missing)
        finding = f"{int(lost.sum())} of {n_rows} rows have no label (the first is data row {int(lost.argmax()) + 1})"
        raise DataError(f"{where}: {finding}; label or drop these rows")
    same = same_labels(list(numbers))
    # Each distinct spelling is looked at once, not each row's.
    texts, others = (
        {number for number, label in zip(same.numbers, numbers) if isinstance(label, str) == text}
        for text in (True, False)
    )
    if twice := sorted(same.names[number] for number in texts & others):
        raise DataError(f"more than one domain is named {quoted(twice)}, by a number and by a text; write one of them")
    codes = np.array(same.numbers, dtype=np.int64)[codes]
    return LabelCodes(codes, same.names, same.name_of(focal), same)


def _is_missing(label: Hashable) -> bool:
    """Whether a label is None, NaN, a missing-value marker or blank."""
    return is_nothing(label) or (isinstance(label, str) and not label.strip())


def split_by_label(X: Array, y: Array, columns: Names, codes: Integers, names: Sequence[str]) -> tuple[Domain, ...]:
    """Cut ``X`` and ``y`` into one domain per label, keeping the order of rows within each.

    Examples
    --------
    >>> X, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 2.0, 3.0])
    >>> [domain.y.tolist() for domain in split_by_label(X, y, None, np.array([0, 1, 0]), ["a", "b"])]
    [[1.0, 3.0], [2.0]]
    """
    xp = array_namespace(X, y)
    order = xp.asarray(np.argsort(codes, kind="stable"), device=device(X))
    # Taking rows makes the one copy that the domains then share as slices.
    X, y = xp.take(X, order, axis=0), xp.take(y, order, axis=0)
    ends = np.cumsum(np.bincount(codes, minlength=len(names))).tolist()
    finite = bool(xp.all(xp.isfinite(X))) and bool(xp.all(xp.isfinite(y)))
    # One look at all rows is enough if they are fine; if not, the domain's own check says where.
    build = Domain._from_checked if finite else Domain
    spans = zip(names, [0, *ends[:-1]], ends, strict=True)
    return tuple(build(name, X[start:end], y[start:end], columns) for name, start, end in spans)


class LabelledRows(NamedTuple):
    """Which rows belong where: the focal label as text with its rows, and those of the sources by label."""

    focal: str
    focal_rows: Integers
    sources: dict[str, Integers]


def rows_by_label(y: Any, sample_domain: Any, focal: int | None = None) -> LabelledRows:
    """Find the rows of the focal domain that have a target, and those of each source.

    Parameters
    ----------
    y
        Targets; NaN marks rows of a target domain without a label.
    sample_domain
        One whole number per row, not 0.
    focal
        Which negative label is the focal one; there may be only one by default.

    Examples
    --------
    >>> rows = rows_by_label([1.0, 2.0, float("nan"), 3.0], [3, -2, -2, 1])
    >>> rows.focal, rows.focal_rows.tolist(), {name: own.tolist() for name, own in rows.sources.items()}
    ('-2', [1], {'1': [3], '3': [0]})
    """
    check_unmasked(sample_domain, "sample_domain")
    labels = np.asarray(sample_domain)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or np.any(labels == 0):
        raise DataError("sample_domain must be one whole number per row: positive for sources, negative for the target")
    values = np.asarray(y)
    if len(values) != len(labels):
        raise DataError(f"sample_domain has {len(labels)} labels for {len(values)} targets; pass one per row")
    order = np.argsort(labels, kind="stable")
    found, starts = np.unique(labels[order], return_index=True)
    rows = {int(label): own for label, own in zip(found, np.split(order, starts[1:]))}
    targets = [label for label in rows if label < 0]
    if focal is None and len(targets) != 1:
        advice = "name the target domain with focal, or keep the rows of one"
        raise DataError(f"sample_domain has {len(targets)} negative labels, not one; {advice}")
    if focal is not None and focal not in targets:
        hint = nearest(str(focal), list(map(str, targets)))
        raise ParameterError(f"focal={focal!r} is not a target of sample_domain; {hint}")
    here = targets[0] if focal is None else int(focal)
    known = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    labelled = rows[here][known.reshape(len(values), -1)[rows[here]].all(axis=1)]
    if len(labelled) == 0:
        raise DataError("no row of the target domain has a label (y is NaN in all of them); label at least one")
    return LabelledRows(str(here), labelled, {str(label): own for label, own in rows.items() if label > 0})
