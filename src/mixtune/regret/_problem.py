"""The problem: datasets as moments, their weights, where the heads start and what holds them back.

The paper's energy functional, with Theta = (theta_1, ..., theta_N) and theta^w = sum_i w_i theta_i:

    L(Theta^{0..T}) = sum_{t=0}^{T-1} [ lambda |Theta(t+1) - Theta_ref|^2 + beta |Theta(t+1) - Theta(t)|^2 ]
                      + sum_i w_i |Y_i - U_i theta^w(T)|^2,            Theta(0) = Theta_start.

lambda is ``transfer``, beta ``stability``, T ``horizon``, kappa ``ridge``; start and reference are both the local heads
Theta* unless given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mixtune._array import Array, Floats, all_finite, as_float64, count_nonfinite, freeze, is_numpy, match, namespace
from mixtune._checks import check_nonnegative, check_simplex, check_whole
from mixtune.errors import DataError, ParameterError
from mixtune.moments import Moments, System, local_heads, weighted_system

MOST_STEPS = 2**53

_assign = object.__setattr__  # how a frozen dataclass fills its own fields


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RegretProblem:
    """What :func:`mixtune.solve` solves.

    Parameters
    ----------
    moments : sequence of Moments
        One per dataset D_1..D_N, all over the same feature map.
    weights : array (N,)
        w on the simplex; any object NumPy can read, such as the result of a weighting rule.
    heads : array (N, p) or (N, p, D), optional
        Pre-trained heads Theta*. Give these or ``ridge``.
    ridge : float or array (N,), optional
        kappa: make the heads by local ridge regression.
    transfer : float
        lambda >= 0: how strongly iterates are held to the reference.
    stability : float
        beta >= 0: how strongly steps are kept small.
    horizon : int
        T >= 0: the number of steps.
    start, reference : array, optional
        Theta(0) and Theta_ref, (N, p[, D]) or one head (p[, D]) for all; the pre-trained heads by default.

    Examples
    --------
    >>> import numpy as np
    >>> from mixtune import Moments, RegretProblem, solve
    >>> rng = np.random.default_rng(0)
    >>> U, truth = rng.standard_normal((2, 20, 3)), np.array([1.0, -1.0, 0.5])
    >>> moments = [Moments.from_rows(u, u @ truth) for u in U]
    >>> problem = RegretProblem(
    ...     moments=moments, weights=[0.7, 0.3], ridge=1.0, transfer=0.1, stability=1.0, horizon=5
    ... )
    >>> solve(problem).coef.round(1)
    array([ 1. , -1. ,  0.5])
    """

    moments: Sequence[Moments]
    weights: Array
    heads: Array = None
    ridge: float | Sequence[float] | None = None
    transfer: float
    stability: float
    horizon: int
    start: Array = None
    reference: Array = None
    _single: bool = field(init=False)

    def __post_init__(self) -> None:
        moments = _check_moments(self.moments)
        _assign(self, "moments", moments)
        _assign(self, "_single", moments[0].single_output)
        _assign(self, "weights", check_simplex(self.weights, len(moments)))
        _assign(self, "transfer", check_nonnegative("transfer", self.transfer))
        _assign(self, "stability", check_nonnegative("stability", self.stability))
        _assign(self, "horizon", check_whole("horizon", self.horizon))
        if self.horizon > MOST_STEPS:
            raise ParameterError(f"horizon must be at most 2**53, where float64 skips integers; got {self.horizon}")
        if (self.heads is None) == (self.ridge is None):
            raise ParameterError("give either heads (the pre-trained ones) or ridge (to make them), and not both")
        ridges = None if self.ridge is None else _check_ridges(self.ridge, len(moments))
        start = None if self.start is None else self._check_heads("start", self.start)
        reference = None if self.reference is None else self._check_heads("reference", self.reference)
        if ridges is None:
            heads = self._check_heads("heads", self.heads, one_for_all=False)
        else:
            heads = local_heads(moments, ridges)
        _assign(self, "heads", freeze(heads))
        _assign(self, "start", self.heads if start is None else freeze(start))
        _assign(self, "reference", self.heads if reference is None else freeze(reference))

    def __repr__(self) -> str:
        sizes = f"n_domains={self.n_domains}, n_features={self.moments[0].n_features}"
        return (
            f"RegretProblem({sizes}, transfer={self.transfer:g}, stability={self.stability:g}, horizon={self.horizon})"
        )

    def replaced(self, **changes: Any) -> RegretProblem:
        """The same problem, its heads kept, with some arguments changed.

        Examples
        --------
        >>> from mixtune import Moments, RegretProblem
        >>> moments = [Moments(2, [[1.0]], [1.0], 1.0)]
        >>> problem = RegretProblem(moments=moments, weights=[1.0], ridge=1.0, transfer=1, stability=1, horizon=2)
        >>> problem.replaced(horizon=5)
        RegretProblem(n_domains=1, n_features=1, transfer=1, stability=1, horizon=5)
        """
        names = ("moments", "weights", "heads", "transfer", "stability", "horizon", "start", "reference")
        kept = {name: getattr(self, name) for name in names}
        for name in ("start", "reference"):  # by default the heads themselves, which the solver recognises
            kept[name] = None if kept[name] is self.heads else kept[name]
        return RegretProblem(**{**kept, **changes})

    @property
    def n_domains(self) -> int:
        return len(self.moments)

    @property
    def single_output(self) -> bool:
        return self._single

    @cached_property
    def system(self) -> System:
        """The weighted least-squares problem of the terminal loss: A, b, c."""
        return weighted_system(self.moments, self.weights)

    @property
    def weight_square(self) -> float:
        """``|w|^2``."""
        return float(self.weights @ self.weights)

    def mix(self, heads: Array) -> Array:
        """``theta^w = sum_k w_k theta_k`` for heads (..., N, p, D)."""
        return namespace(heads).sum(heads_weights(self.weights, heads) * heads, axis=-3)

    def as_matrices(self, heads: Array) -> Array:
        """Heads (..., N, p) of a single-output problem as (..., N, p, 1); others as they are."""
        return heads[..., None] if self._single else heads

    def as_given(self, array: Array) -> Array:
        """The inverse of :meth:`as_matrices` for heads or coefficients."""
        return array[..., 0] if self._single else array

    def _check_heads(self, name: str, heads: Array, *, one_for_all: bool = True) -> Array:
        like = self.moments[0].cross
        xp = namespace(like)
        if isinstance(heads, list | tuple) and heads and hasattr(heads[0], "ndim"):
            if len({tuple(head.shape) for head in heads}) > 1:
                raise DataError(f"{name} must all have the same shape; got {sorted({tuple(h.shape) for h in heads})}")
            heads = namespace(*heads).stack(list(heads))
        if not is_numpy(like):
            heads = match(heads, like)
        heads = as_float64(heads, what=name, copy=True)
        namespace(heads, like)
        full = (len(self.moments), *tuple(like.shape))
        if one_for_all and tuple(heads.shape) == full[1:]:
            heads = xp.asarray(xp.broadcast_to(heads, full), copy=True)
        if tuple(heads.shape) != full:
            options = f"{full} or {full[1:]}" if one_for_all else f"{full}"
            raise DataError(f"{name} must have shape {options}; got {tuple(heads.shape)}")
        if not all_finite(heads):
            raise DataError(f"{name} must be finite; {count_nonfinite(heads)} of its values are NaN or infinite")
        return heads


def heads_weights(weights: Floats, heads: Array) -> Array:
    """``weights`` (N,) in the library of ``heads``, shaped to multiply (..., N, p, D)."""
    return match(weights, heads)[:, None, None]


def _check_moments(moments: Any) -> tuple[Moments, ...]:
    if isinstance(moments, Moments):
        raise DataError("moments must be a list with one entry per dataset; put a single one in a list: [moments]")
    moments = tuple(moments)
    if not moments:
        raise DataError("there are no datasets: moments is empty")
    for index, m in enumerate(moments):
        if not isinstance(m, Moments):
            raise DataError(f"moments[{index}] is a {type(m).__name__}; build it with Moments.from_rows(U, Y)")
        if m.count == 0:
            raise DataError(f"moments[{index}] is empty: it has no rows; leave that dataset out")
    shapes = {(m.n_features, m.n_outputs, m.single_output) for m in moments}
    if len(shapes) > 1:
        sizes = ", ".join(f"{m.n_features} x {m.n_outputs}" for m in moments[:6])
        raise DataError(f"moments have unequal features x outputs ({sizes}); use one feature map and the same targets")
    return moments


def _check_ridges(ridge: float | Sequence[float], count: int) -> list[float]:
    values = [ridge] * count if np.ndim(ridge) == 0 else list(ridge)  # type: ignore[arg-type]
    if len(values) != count:
        raise ParameterError(f"ridge must be one number or one per dataset ({count}); got {len(values)}")
    return [check_nonnegative("ridge", value) for value in values]
