"""Where to compute: with NumPy, or with PyTorch on one of its devices.

Users say "cpu" for NumPy, and "cuda" or "cuda:1" for PyTorch on a CUDA device; "torch:cpu" is PyTorch on the processor,
which takes the same way as "cuda" and needs no such hardware. :func:`torch_device` makes of it what the code below
works with: None for NumPy, or the name that PyTorch has for the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mixtune._array import Array
from mixtune.errors import MissingExtraError, ParameterError

__all__ = [
    "check_device",
    "describe_device",
    "device_or_cpu",
    "to_device",
    "torch_device",
    "torch_module",
]


def torch_device(device: str) -> str | None:
    """The PyTorch device that a user means, or None for NumPy; refused where it is not there.

    Examples
    --------
    >>> torch_device("cpu")
    >>> torch_device("tpu")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: there is no device 'tpu'; use cpu, or cuda where PyTorch finds a CUDA device
    """
    if device == "cpu":
        return None
    return check_device("cpu" if device == "torch:cpu" else str(device))


def device_or_cpu(device: str) -> str:
    """The same device, or "cpu" where it is not there, so that a model goes on predicting on another machine.

    Examples
    --------
    >>> device_or_cpu("cuda:99")
    'cpu'
    """
    try:
        torch_device(device)
    except (ParameterError, MissingExtraError):
        return "cpu"
    return device


def check_device(device: str | None) -> str | None:
    """Refuse a device of PyTorch that is not there, before any work.

    Examples
    --------
    >>> check_device(None)
    >>> check_device("abacus")
    Traceback (most recent call last):
        ...
    mixtune.errors.ParameterError: there is no device 'abacus'; use cpu, or cuda where PyTorch finds a CUDA device
    """
    if device is None:
        return None
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ParameterError(f"there is no device {device!r}; use cpu, or cuda where PyTorch finds a CUDA device")
    torch = torch_module()
    if kind == "cuda" and int(number or 0) >= (found := torch.cuda.device_count() if torch.cuda.is_available() else 0):
        raise ParameterError(
            f"device {device!r} is not there: PyTorch {torch.__version__} finds {found or 'no'} CUDA devices here; "
            "use cpu, or install the PyTorch build for your CUDA driver"
        )
    return device


def describe_device(device: str) -> str:
    """What computed, for the record."""
    torch = torch_module()
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return f"torch {torch.__version__} on {name}"


def to_device(array: np.ndarray[Any, Any], device: str | None) -> Array:
    """``array`` as a tensor on the device; itself without one."""
    if device is None:
        return array
    # PyTorch takes neither read-only memory nor backward steps.
    usable = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch_module().from_numpy(array if usable else array.copy()).to(device)


def torch_module(purpose: str = "computing on a device") -> Any:
    """PyTorch, or an error that says how to get it."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch", purpose) from error
    return torch
