"""The paper's baselines, as plain functions over moments: LO-i, MLO, JO and JSO."""

from collections.abc import Sequence

from mixtune.arrays import Array, namespace
from mixtune.errors import ParameterError
from mixtune.moments import Moments, local_heads


def local_head(moments: Sequence[Moments], index: int, *, ridge: float) -> Array:
    """LO-i: the ridge head of dataset ``index`` alone."""
    return moments[_check_index(moments, index)].head(ridge)


def mean_local_head(moments: Sequence[Moments], *, ridge: float) -> Array:
    """MLO: the plain mean of all local heads."""
    if not moments:
        raise ParameterError("there are no datasets to average over")
    heads = local_heads(moments, [ridge] * len(moments))
    return namespace(heads).mean(heads, axis=0)


def joint_head(moments: Sequence[Moments], *, ridge: float) -> Array:
    """JO: the ridge head of all rows pooled."""
    return joint_subset_head(moments, range(len(moments)), ridge=ridge)


def joint_subset_head(moments: Sequence[Moments], subset: Sequence[int], *, ridge: float) -> Array:
    """JSO-I: the ridge head of the rows of the datasets in ``subset`` pooled.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments
    >>> from mixtune.regret.baselines import joint_subset_head
    >>> moments = [Moments.from_rows(np.ones((4, 1)), np.full(4, level)) for level in (1.0, 3.0, 100.0)]
    >>> joint_subset_head(moments, [0, 1], ridge=0.0)
    array([2.])
    """
    chosen = [_check_index(moments, index) for index in subset]
    if not chosen or len(set(chosen)) < len(chosen):
        raise ParameterError(f"subset must name at least one dataset, each once; got {list(subset)}")
    pooled: Moments = sum(moments[index] for index in chosen)  # type: ignore[assignment]
    return pooled.head(ridge)


def _check_index(moments: Sequence[Moments], index: int) -> int:
    if not 0 <= index < len(moments):
        raise ParameterError(f"there is no dataset {index}; there are {len(moments)}, counted from 0")
    return index
