"""Arrays of NumPy and PyTorch, and the few places where the two differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj
from numpy.typing import NDArray

from mixtune.errors import DataError

#: An array of NumPy or PyTorch.
Array = Any
#: NumPy arrays by what they hold.
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


def namespace(*arrays: Array) -> Any:
    """The array library that all the given arrays belong to."""
    try:
        return array_namespace(*arrays)
    except TypeError as error:
        kinds = ", ".join(sorted({type(array).__module__.split(".")[0] for array in arrays}))
        raise DataError(f"arrays of different libraries were mixed ({kinds}); pass them all as one") from error


def is_numpy(array: Array) -> bool:
    return isinstance(array, np.ndarray)


def all_finite(array: Array) -> bool:
    xp = namespace(array)
    return bool(xp.all(xp.isfinite(array)))


def as_float64(values: Any, what: str) -> Array:
    """``values`` as float64 in their own library; masked values, text and objects are refused by name."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        count = int(np.ma.getmaskarray(values).sum())
        raise DataError(f"{what} has {count} masked value{'' if count == 1 else 's'}; fill or drop these rows")
    if not is_array_api_obj(values):
        try:
            values = np.asarray(values)
        except ValueError as error:
            raise DataError(f"{what} is ragged: all its rows must have the same length") from error
    if is_numpy(values):
        if values.dtype.kind not in "fiub":
            raise DataError(f"{what} holds values of type {values.dtype}; pass numbers")
        return np.asarray(values, dtype=np.float64)
    xp = namespace(values)
    return xp.asarray(values.detach(), dtype=xp.float64)


def match(values: Array, like: Array) -> Array:
    """``values`` as float64 in the library and on the device of ``like``."""
    if is_numpy(like):
        return np.asarray(values, dtype=np.float64)
    xp = namespace(like)
    # On the processor, PyTorch would share NumPy's memory; and it takes no read-only memory.
    values = np.array(values) if is_numpy(values) else values
    return xp.asarray(values, dtype=xp.float64, device=like.device)


def to_device(array: Array, device: str | None) -> Array:
    """``array`` as a tensor on a device of PyTorch; itself without one."""
    if device is None:
        return array
    return torch_module().from_numpy(array if array.flags.writeable else array.copy()).to(device)


def torch_module() -> Any:
    """PyTorch, which is imported only where a device was asked for."""
    import torch

    return torch


def read_only(array: Floats) -> Floats:
    """Make an array read-only, in place."""
    array.flags.writeable = False
    return array
