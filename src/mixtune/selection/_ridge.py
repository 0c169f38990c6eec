"""One ridge by leave-one-out, for the price of one eigendecomposition.

With U'U = V diag(a) V' and Z = U V, the ridge fit of strength k has leverages h_i = sum_j Z_ij^2/(a_j + k) and leaves
out row i with residual e_i/(1 - h_i): every candidate costs O(n p) after the decomposition. With fewer rows than
features the same is said through K = U U': the left-out residual is c_i/(K + k)^{-1}_ii with c = (K + k)^{-1} y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtune._checks import check_nonnegative
from mixtune.errors import DataError, ParameterError

__all__ = ["RidgeChoice", "loo_ridge"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class RidgeChoice:
    """The chosen ridge, its head, and the leave-one-out mean squared error of every candidate."""

    ridge: float
    coef: Floats
    ridges: Floats
    errors: Floats


def loo_ridge(U: Floats, y: Floats, ridges: Sequence[float], *, relative: bool = True) -> RidgeChoice:
    """Ridge regression of ``y`` (n,) on ``U`` (n, p) with the ridge of least leave-one-out error.

    Parameters
    ----------
    U, y : arrays (n, p) and (n,)
    ridges : sequence of float
        Candidates > 0.
    relative : bool
        Candidates are multiples of the mean eigenvalue of U'U, so that they do not depend on units.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> U = rng.standard_normal((40, 3))
    >>> choice = loo_ridge(U, U @ [1.0, 2.0, 3.0] + rng.standard_normal(40), [0.01, 0.1, 1.0, 10.0])
    >>> choice.ridge < 40
    True
    """
    U, y = np.asarray(U, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if U.ndim != 2 or y.shape != (len(U),) or len(U) < 2:
        raise DataError(f"leave-one-out needs U (n, p) and y (n,) with n >= 2; got {U.shape} and {y.shape}")
    bad = int(np.sum(~np.isfinite(U))) + int(np.sum(~np.isfinite(y)))
    if bad:
        raise DataError(f"leave-one-out needs finite values; {bad} in U and y are NaN or infinite")
    candidates = np.array([check_nonnegative("ridges", r) for r in np.atleast_1d(np.asarray(ridges))])
    if len(candidates) == 0 or np.any(candidates == 0):
        raise ParameterError("ridges must be positive candidates, at least one")
    n, p = U.shape
    scale = float(np.vdot(U, U)) / min(n, p)
    if relative:
        candidates = candidates * (scale if scale > 0 else 1.0)
    errors, coefs = _primal(U, y, candidates) if n >= p else _dual(U, y, candidates)
    best = int(np.argmin(errors))
    return RidgeChoice(float(candidates[best]), coefs(best), candidates, errors)


def _primal(U: Floats, y: Floats, ridges: Floats) -> tuple[Floats, Any]:
    values, vectors = np.linalg.eigh(U.T @ U)
    values = np.maximum(values, 0.0)
    Z = U @ vectors
    projected, squares = Z.T @ y, Z**2
    filters = 1.0 / (values[:, None] + ridges)
    residuals = y[:, None] - Z @ (projected[:, None] * filters)
    left_out = residuals / np.maximum(1.0 - squares @ filters, 1e-12)
    return np.mean(left_out**2, axis=0), lambda best: vectors @ (projected * filters[:, best])


def _dual(U: Floats, y: Floats, ridges: Floats) -> tuple[Floats, Any]:
    values, vectors = np.linalg.eigh(U @ U.T)
    values = np.maximum(values, 0.0)
    filters = 1.0 / (values[:, None] + ridges)
    projected = vectors.T @ y
    duals = vectors @ (projected[:, None] * filters)
    left_out = duals / (vectors**2 @ filters)
    return np.mean(left_out**2, axis=0), lambda best: U.T @ duals[:, best]
