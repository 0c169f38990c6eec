"""Losses of many heads at once: side by side they need one product instead of one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from mixtune._array import Array, as_float64, is_numpy, match, namespace
from mixtune.errors import DataError

if TYPE_CHECKING:
    from mixtune.moments._moments import Moments

__all__ = ["check_head", "head_losses"]

Floats = np.ndarray[Any, Any]

#: From this many heads on, their losses come from one product; and how many numbers it may hold.
MANY_HEADS, LOSSES_AT_ONCE = 64, 4_000_000


def check_head(moments: Moments, theta: Array) -> Array:
    """A head of these moments as (p, D), in their array library."""
    if array_api_compat.is_array_api_obj(theta):
        namespace(theta, moments.cross)
    theta = as_float64(theta if is_numpy(moments.cross) else match(theta, moments.cross), what="theta")
    expected = tuple(moments.cross.shape)
    if tuple(theta.shape) != expected:
        raise DataError(f"a head of these moments has shape {expected}; got {tuple(theta.shape)}")
    return theta[:, None] if moments.single_output else theta


def head_losses(moments: Moments, heads: Array) -> Floats:
    """``|Y - U theta|^2`` of each of several heads, (N, p) or (N, p, D)."""
    stacked = _stacked(moments, heads)
    if stacked is None:
        return np.array([moments.loss(theta) for theta in heads])
    found = np.empty(len(stacked))
    step = max(1, LOSSES_AT_ONCE // (max(moments.n_features, moments.count) * moments.n_outputs))
    for begin in range(0, len(stacked), step):
        # Heads side by side, one column for each head and output: a single product.
        part = stacked[begin : begin + step]
        columns = part.transpose(1, 0, 2).reshape(moments.n_features, -1)
        found[begin : begin + step] = moments.system.column_losses(columns, moments.n_outputs)
    return found


def _stacked(moments: Moments, heads: Array) -> Floats | None:
    """Many NumPy heads as (N, p, D), or None where the plain loop is as good."""
    shape = tuple(moments.cross.shape)
    many = len(heads) >= MANY_HEADS and is_numpy(moments.cross)
    if not many or not all(is_numpy(head) and head.shape == shape for head in heads):
        return None
    stacked = np.stack([np.asarray(head, dtype=np.float64) for head in heads])
    return stacked[:, :, None] if moments.single_output else stacked
