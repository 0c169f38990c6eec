"""What a pricing run does differently in NumPy and in PyTorch.

Random numbers are always drawn by NumPy, so that a run has the same paths wherever it computes; what follows works in
the array library of its inputs. A device of None means NumPy, "cuda" the graphics processor, and "cpu" PyTorch on the
processor, as in :mod:`mixtune._device`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mixtune._array import Array, is_numpy
from mixtune._device import torch_module

__all__ = ["empty", "put_where", "sending_buffer"]


def empty(shape: tuple[int, ...], device: str | None) -> Array:
    """An array to be filled, of float64."""
    return np.empty(shape) if device is None else _tensor(shape, device=device)


def sending_buffer(shape: tuple[int, ...], device: str | None) -> np.ndarray[Any, Any]:
    """A NumPy array to be filled and sent to the device; in memory that a CUDA device reads without a detour."""
    if device is None or not device.startswith("cuda"):
        return np.empty(shape)
    found: np.ndarray[Any, Any] = _tensor(shape, pin_memory=True).numpy()
    return found


def put_where(target: Array, source: Array, mask: Array) -> Array:
    """``target`` with ``source`` (or its broadcast) where the mask is true; done in place where the library can."""
    if is_numpy(target):
        np.copyto(target, source, where=mask)
        return target
    return torch_module().where(mask, source, target)


def _tensor(shape: tuple[int, ...], **options: Any) -> Any:
    torch = torch_module()
    return torch.empty(shape, dtype=torch.float64, **options)
