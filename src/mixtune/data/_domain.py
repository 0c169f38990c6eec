"""One dataset with a name: the unit everything downstream counts, weighs and compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import is_torch_array

from mixtune._messages import counted
from mixtune.data._arrays import Array, as_floats, check_finite
from mixtune.errors import DataError

__all__ = ["Domain"]


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """A named regression dataset, checked once and never changed afterwards.

    Parameters
    ----------
    name
        What errors, weights and reports call it.
    X
        Inputs, rows by columns; one dimension is read as one column. A list, NumPy array, pandas or polars
        frame, pyarrow table or PyTorch tensor.
    y
        Targets, one per row, or rows by outputs.
    columns
        Names of the columns of ``X``; a frame brings its own.

    Attributes
    ----------
    X, y
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
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise DataError(f"a domain is named by a text that is not empty, not by {self.name!r}")
        X, y, columns = check_pair(self.X, self.y, f' of domain "{self.name}"', columns=self.columns, copy=True)
        check_finite(X, f'X of domain "{self.name}"', columns)
        check_finite(y.reshape(y.shape[0], -1), f'y of domain "{self.name}"')
        self._store(self.name, X, y, columns)

    def _store(self, name: str, X: Array, y: Array, columns: tuple[str, ...] | None) -> None:
        for field, value in (("name", name), ("X", X), ("y", y), ("columns", columns)):
            object.__setattr__(self, field, value)
        if not is_torch_array(X):
            X.flags.writeable = False
            y.flags.writeable = False

    @classmethod
    def _from_checked(cls, name: str, X: Array, y: Array, columns: tuple[str, ...] | None) -> Domain:
        """Wrap arrays that are already checked and owned, without looking at them again."""
        domain = object.__new__(cls)
        domain._store(name, X, y, columns)
        return domain

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

    def __repr__(self) -> str:
        size = counted((self.n_rows, "row"), (self.n_columns, "column"), (self.n_outputs, "output"))
        return f"Domain({self.name!r}, {size})"


def check_pair(
    X: Any, y: Any, of: str, *, columns: tuple[str, ...] | None, copy: bool
) -> tuple[Array, Array, tuple[str, ...] | None]:
    """Read inputs and targets as float arrays of matching shapes, ``X`` with two dimensions.

    ``of`` ends the phrase that names the data in errors, such as ``' of domain "a"'``.
    """
    inputs, names = as_floats(X, f"X{of}", copy=copy)
    targets, _ = as_floats(y, f"y{of}", copy=copy)
    if is_torch_array(inputs) != is_torch_array(targets):
        raise DataError(f"only one of X and y{of} is a PyTorch tensor; pass both as tensors or both as arrays")
    if inputs.ndim == 1:
        inputs = inputs.reshape(-1, 1)
    if inputs.ndim != 2 or targets.ndim not in (1, 2):
        raise DataError(
            f"X{of} has shape {tuple(inputs.shape)} and y has shape {tuple(targets.shape)}; "
            "pass X as rows by columns, and y as one value per row or rows by outputs"
        )
    if inputs.shape[0] != targets.shape[0]:
        fewer = "fewer" if targets.shape[0] < inputs.shape[0] else "more"
        raise DataError(
            f"there are {fewer} targets than rows: X{of} has {inputs.shape[0]} rows and "
            f"y has {targets.shape[0]}; pass one target per row"
        )
    if 0 in inputs.shape or 0 in targets.shape:
        raise DataError(
            f"X{of} has shape {tuple(inputs.shape)} and y {tuple(targets.shape)}; pass at least one row and one column"
        )
    return inputs, targets, _check_columns(columns, names, inputs.shape[1], of)


def _check_columns(
    given: tuple[str, ...] | None, found: tuple[str, ...] | None, count: int, of: str
) -> tuple[str, ...] | None:
    if given is None:
        return found
    given = tuple(given)
    if len(given) != count or len(set(given)) < count:
        raise DataError(f"X{of} has {count} columns, columns={given!r}; pass one distinct name per column")
    if found is not None and found != given:
        raise DataError(f"X{of} brings its own column names, which differ from columns={given!r}; leave columns out")
    return given
