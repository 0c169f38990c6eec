"""One dataset with a name, and the checks that every dataset passes.

Lists, NumPy arrays, pandas and polars frames, pyarrow tables and PyTorch tensors come in; float arrays come out, NumPy
unless tensors came in. What cannot be read as finite numbers is refused here, with its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, device, is_torch_array

from mixtune._messages import counted, quoted
from mixtune.arrays import Array, Floats, check_unmasked, freeze, match, to_numpy
from mixtune.data._tables import RESCALE, as_table, is_table, to_matrix
from mixtune.errors import DataError

#: Names of columns, where they have any.
Names: TypeAlias = tuple[str, ...] | None


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """A named regression dataset, checked once and never changed afterwards.

    Parameters
    ----------
    name
        The name in errors, weights and reports.
    X
        Inputs, rows by columns; one dimension is read as one column. A list, NumPy array, pandas or polars
        frame, pyarrow table or PyTorch tensor.
    y
        Targets, one per row, or rows by outputs.
    columns
        Names of the columns of ``X``; a frame brings its own.
    sample_weight
        How much each row counts: numbers >= 0, or one number for all rows. By default every row counts the same.

    Attributes
    ----------
    X, y, sample_weight
        Copies of the data: read-only NumPy arrays, or tensors (detached) if tensors came in. float32 stays
        float32, everything else becomes float64.

    Raises
    ------
    DataError
        If the rows of ``X`` and ``y`` differ in number, or there are none, or a value is not a finite number.

    Examples
    --------
    >>> domain = Domain("north", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [1, 2, 3])
    >>> domain
    Domain('north', 3 rows, 2 columns, 1 output)
    >>> domain.targets.shape
    (3, 1)
    """

    name: str
    X: Array
    y: Array
    columns: Names = None
    sample_weight: Array | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check(copy=True)

    @classmethod
    def view(
        cls, name: str, X: Any, y: Any, columns: Sequence[str] | None = None, *, sample_weight: Any = None
    ) -> Domain:
        """Make a domain, checked as any other, that does not copy arrays which already fit.

        Its arrays are read-only views; do not change the original arrays while it is used.

        Examples
        --------
        >>> X = np.array([[1.0], [2.0]])
        >>> np.shares_memory(Domain.view("a", X, [0.0, 1.0]).X, X)
        True
        """
        domain = cls._from_checked(name, X, y, None if columns is None else tuple(columns), sample_weight)
        domain._check(copy=False)
        return domain

    def _check(self, *, copy: bool) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DataError(f"the name of a domain must be text that is not empty; got {self.name!r}")
        of = f' of domain "{self.name}"'
        X, y, columns = check_pair(self.X, self.y, of, columns=self.columns, copy=copy)
        check_finite(X, f"X{of}", columns)
        check_finite(y.reshape(y.shape[0], -1), f"y{of}")
        weight = check_weight(self.sample_weight, X.shape[0], of, copy=copy)
        self._store(X=X, y=y, columns=columns, sample_weight=weight if weight is None else match(weight, X))

    def _store(self, **fields: Any) -> Domain:
        for name, value in fields.items():
            # A read-only view: the array may be the caller's own, whose flags are not ours to change.
            object.__setattr__(self, name, freeze(value.view()) if isinstance(value, np.ndarray) else value)
        return self

    @classmethod
    def _from_checked(cls, name: str, X: Array, y: Array, columns: Names, sample_weight: Array | None = None) -> Domain:
        """Wrap arrays that are already checked and owned, without looking at them again."""
        return object.__new__(cls)._store(name=name, X=X, y=y, columns=columns, sample_weight=sample_weight)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of input columns."""
        return int(self.X.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number of targets per row."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def targets(self) -> Array:
        """The targets as rows by outputs, whether or not ``y`` came with one dimension."""
        return self.y.reshape(self.n_rows, self.n_outputs)

    def take(self, rows: Any) -> Domain:
        """Return the domain with some of its rows: a slice, which is not copied, row numbers or flags.

        Examples
        --------
        >>> Domain("a", [[1.0], [2.0], [3.0]], [1, 2, 3]).take([2, 0]).y
        array([3., 1.])
        """
        if not isinstance(rows, slice):
            rows = array_namespace(self.X).asarray(rows, device=device(self.X))
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return Domain._from_checked(self.name, self.X[rows], self.y[rows], self.columns, weight)

    def __repr__(self) -> str:
        size = counted((self.n_rows, "row"), (self.n_columns, "column"), (self.n_outputs, "output"))
        return f"Domain({self.name!r}, {size})"


def as_floats(value: Any, where: str, *, copy: bool) -> tuple[Array, Names]:
    """Read ``value`` as a float array and return it with its column names, where it has any.

    Parameters
    ----------
    value
        A list, NumPy array, frame, series, pyarrow table or PyTorch tensor.
    where
        How an error names the data, such as ``'X of domain "a"'``.
    copy
        Whether the result must own its memory. Without it, an array that fits already is passed on as it is.

    Returns
    -------
    tuple
        The array (float32 stays float32, all else becomes float64), and the names or ``None``.

    Examples
    --------
    >>> as_floats([[1, 2], [3, 4]], "X", copy=True)
    (array([[1., 2.],
           [3., 4.]]), None)
    """
    check_unmasked(value, where)
    if is_torch_array(value):
        return _from_tensor(value, where, copy=copy), None
    if is_series := hasattr(value, "to_frame"):
        value = value.to_frame()
    if is_table(value):
        table = as_table(value, where)
        matrix = to_matrix(table, table.column_names, where)
        return (matrix[:, 0] if is_series else matrix), tuple(table.column_names)
    return _from_numpy(value, where, copy=copy), None


def _from_tensor(value: Array, where: str, *, copy: bool) -> Array:
    xp = array_namespace(value)
    if xp.isdtype(value.dtype, "complex floating"):
        raise DataError(f"{where} holds complex numbers; pass real ones, such as their real and imaginary parts")
    dtype = value.dtype if value.dtype in (xp.float32, xp.float64) else xp.float64
    value = value.detach().to(dtype)
    return (value.clone() if copy else value).contiguous()


def _from_numpy(value: Any, where: str, *, copy: bool) -> Array:
    if hasattr(value, "toarray"):
        raise DataError(f"{where} is sparse; pass a dense array, such as its .toarray()")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "biuf":
        if array.dtype.kind == "O" and any(type(one) is int and not -(2**63) <= one < 2**64 for one in array.flat):
            raise DataError(f"{where} holds whole numbers beyond 64 bits; {RESCALE}")
        kind = _KINDS.get(array.dtype.kind, "objects")
        raise DataError(f"{where} holds {kind}, not numbers; encode it as numbers first")
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    return np.array(array, dtype=dtype, order="C") if copy else np.ascontiguousarray(array, dtype=dtype)


_KINDS = {"U": "text", "S": "text", "T": "text", "M": "dates", "m": "durations", "c": "complex numbers"}


def check_finite(matrix: Array, where: str, columns: Sequence[str] | None = None) -> None:
    """Refuse NaN and infinite values, saying how many there are and in which columns.

    Parameters
    ----------
    matrix
        A float array of two dimensions.
    where
        How the error names the data.
    columns
        The names of the columns; their positions stand in when there are none.

    Examples
    --------
    >>> check_finite(np.array([[1.0, np.nan], [2.0, np.inf]]), 'X')
    Traceback (most recent call last):
        ...
    mixtune.errors.DataError: X has 2 values that are NaN or infinite, in column 1; drop or fill these rows
    """
    xp = array_namespace(matrix)
    with np.errstate(over="ignore", invalid="ignore"):
        if bool(xp.isfinite(xp.sum(matrix))):  # one pass, and no mask
            return
    finite = xp.isfinite(matrix)
    if bool(xp.all(finite)):
        return
    counts = xp.sum(xp.astype(~finite, xp.int64), axis=0).tolist()
    bad = [index for index, count in enumerate(counts) if count]
    shown = ", ".join(f'"{columns[index]}"' if columns else str(index) for index in bad[:5])
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    values = "1 value that is" if sum(counts) == 1 else f"{sum(counts)} values that are"
    found = f"{where} has {values} NaN or infinite, in column{'s' if len(bad) > 1 else ''} {shown}{more}"
    raise DataError(f"{found}; drop or fill these rows")


def check_pair(X: Any, y: Any, of: str, *, columns: Names, copy: bool) -> tuple[Array, Array, Names]:
    """Read inputs and targets as float arrays of matching shapes, ``X`` with two dimensions.

    ``of`` ends the phrase that names the data in errors, such as ``' of domain "a"'``. Returns ``X``, ``y`` and the
    names of the columns, where there are any.
    """
    inputs, names = as_floats(X, f"X{of}", copy=copy)
    targets, _ = as_floats(y, f"y{of}", copy=copy)
    if is_torch_array(inputs) != is_torch_array(targets):
        raise DataError(f"only one of X and y{of} is a PyTorch tensor; pass both as tensors or both as arrays")
    if inputs.ndim == 1:
        inputs = inputs.reshape(-1, 1)
    shapes = f"X{of} has shape {tuple(inputs.shape)} and y has shape {tuple(targets.shape)}"
    if inputs.ndim != 2 or targets.ndim not in (1, 2):
        raise DataError(f"{shapes}; pass X as rows by columns, and y as one value per row or rows by outputs")
    if inputs.shape[0] != targets.shape[0]:
        fewer = "fewer" if targets.shape[0] < inputs.shape[0] else "more"
        counts = f"X{of} has {inputs.shape[0]} rows and y has {targets.shape[0]}"
        raise DataError(f"there are {fewer} targets than rows: {counts}; pass one target per row")
    if 0 in inputs.shape or 0 in targets.shape:
        raise DataError(f"{shapes}; pass at least one row and one column")
    if columns is None:
        return inputs, targets, names
    given, count = tuple(columns), inputs.shape[1]
    if len(given) != count or len(set(given)) < count:
        raise DataError(f"X{of} has {count} columns, columns={given!r}; pass one distinct name per column")
    if names is not None and names != given:
        raise DataError(f"X{of} brings its own column names, which differ from columns={given!r}; leave columns out")
    return inputs, targets, given


def check_weight(sample_weight: Any, count: int, of: str = "", *, copy: bool = False) -> Floats | None:
    """Read sample weights as float64 (n,): finite, >= 0, not all zero; a single number counts for every row.

    Examples
    --------
    >>> check_weight(2, 3)
    array([2., 2., 2.])
    """
    if sample_weight is None:
        return None
    check_unmasked(sample_weight, f"sample_weight{of}")
    try:
        given = np.asarray(to_numpy(sample_weight))
        if given.dtype.kind in _KINDS:  # NumPy would read dates as days, and of complex numbers the real parts
            raise TypeError(f"it holds {_KINDS[given.dtype.kind]}")
        weight = np.array(given, dtype=np.float64, copy=copy or None)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"sample_weight{of} must be one number per row: {error}") from error
    weight = np.full(count, float(weight)) if weight.ndim == 0 else weight
    if weight.shape != (count,):
        raise DataError(f"sample_weight{of} has shape {weight.shape} for {count} rows; pass one number per row")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise DataError(f"sample_weight{of} must be finite and >= 0")
    if not np.any(weight > 0):
        raise DataError(f"sample_weight{of} is zero for every row; give at least one row a positive weight")
    return weight


def check_alike(domain: Domain, focal: Domain) -> None:
    """Refuse a domain whose columns, outputs or kind of array differ from those of the focal domain."""
    here, there = f'domain "{domain.name}"', f'the focal domain "{focal.name}"'
    both = f"{here} and {there}"
    for what in ("columns", "outputs"):
        count, wanted = getattr(domain, f"n_{what}"), getattr(focal, f"n_{what}")
        if count != wanted:
            raise DataError(f"{here} has {count} {what}, {there} has {wanted}; pass the same {what}")
    if domain.y.ndim != focal.y.ndim:
        shapes = f"{here} has targets of shape {tuple(domain.y.shape)}, {there} of {tuple(focal.y.shape)}"
        raise DataError(f"{shapes}; pass all of them as (n,) or all as (n, outputs)")
    if domain.columns is not None and focal.columns is not None and domain.columns != focal.columns:
        raise DataError(f"{both} differ in columns: {column_difference(domain.columns, focal.columns)}")
    if is_torch_array(domain.X) != is_torch_array(focal.X):
        raise DataError(f"{both}: only one of them holds PyTorch tensors; pass one kind of array")
    if device(domain.X) != device(focal.X):
        raise DataError(f"{both} are on {device(domain.X)} and {device(focal.X)}; pass them on one device")


def column_difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    """Say how one list of column names differs from another, and what to do.

    Examples
    --------
    >>> column_difference(["size", "age"], ["size", "rooms"])
    'missing "rooms" and extra "age"; pass the same columns'
    >>> column_difference(["age", "size"], ["size", "age"])
    'the same names in another order ("age", "size"); pass them in one order'
    """
    known, needed = set(found), set(wanted)
    missing = [name for name in wanted if name not in known]
    extra = [name for name in found if name not in needed]
    parts = [f"{verb} {quoted(names)}" for verb, names in (("missing", missing), ("extra", extra)) if names]
    if parts:
        return f"{' and '.join(parts)}; pass the same columns"
    swapped = [name for name, other in zip(found, wanted) if name != other]
    return f"the same names in another order ({quoted(swapped)}); pass them in one order"
