"""Ridge regressions of many runs side by side on a device: what one run after the other gives.

A device needs much work in one call and is slow at spectra, so that all is products, Cholesky factors and triangular
solves of stacks of matrices, with a factor for each ridge. All arrays are PyTorch tensors.
"""

from __future__ import annotations

import math

import numpy as np

from mixtune.arrays import to_numpy
from mixtune_options._arrays import Array, Floats, Integers, match, namespace

#: Coefficients (runs, p + 1), that of the constant last, and predictions (runs, n) of focal rows by fits without them.
RunFits = tuple[Array, Array]
#: Where 1 - leverage is below this, the row alone decides its own prediction and leaving it out says nothing.
SATURATED = 1e-9
#: Errors that differ by less than this part are equal: rounding.
TIED = 1e-9


def joint_runs(features: Array, targets: Array, ridges: Floats, *, focal: int) -> RunFits | None:
    """Ridge regression on all rows (runs, m, p) of every run at the ridge of least leave-one-out error on focal rows.

    The first ``focal`` rows are the focal ones. None if no ridge can do without one of these rows.
    """
    xp, (runs, rows, _) = namespace(features), features.shape
    shift, level = xp.mean(features, axis=1), xp.mean(targets, axis=1)
    U, y = features - shift[:, None], targets - level[:, None]
    spread = xp.sqrt(xp.mean(U**2, axis=1))
    # Rounding of the mean alone leaves a spread of this order in columns that do not vary.
    varies = spread > 10 * float(np.finfo(np.float64).eps) * math.sqrt(rows) * abs(shift)
    scale = xp.where(varies, spread, xp.ones_like(spread))
    # All rows lie about their mean, which is the intercept, and is left out with its share of each row.
    shifts = match(np.tile(ridges, (runs, 1)), U)
    heads, left_out = ridge_runs(U / scale[:, None], y, shifts, focal=focal, level=1.0 / rows)
    errors = to_numpy(xp.mean(left_out**2, axis=-1))
    if not np.all(np.isfinite(errors).any(axis=1)):
        return None
    each, best = np.arange(runs), np.argmin(errors, axis=1)
    slopes = heads[each, best] / scale
    intercept = level - xp.sum(slopes * shift, axis=1)
    coefficients = xp.concat([slopes, intercept[:, None]], axis=1)
    return coefficients, targets[:, :focal] - left_out[each, best]


def ridge_runs(U: Array, y: Array, shifts: Array, *, focal: int, level: float = 0.0) -> RunFits:
    """Ridge regressions of every run at shifts (runs, Q): coefficients, and residuals of left-out focal rows.

    By the smaller of two systems, of rows or of features. ``level`` is what an intercept adds to leverages.
    """
    xp, (_, rows, columns) = namespace(U), U.shape
    triangular = xp.linalg.solve_triangular
    gram = U @ U.mT if rows <= columns else U.mT @ U
    unit = xp.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    root = xp.linalg.cholesky(gram[:, None] + shifts[..., None, None] * unit)
    if rows <= columns:
        inverse = triangular(root, unit, upper=False)
        duals = (inverse.mT @ (inverse @ y[:, None, :, None]))[..., 0]
        shift, diagonals = shifts[..., None], xp.sum(inverse**2, axis=-2)
        left_out = _left_out(shift * duals, 1.0 - shift * diagonals + level)
        return duals @ U, left_out[..., :focal]
    own = U[:, :focal]
    half = triangular(root, xp.concat([U.mT @ y[..., None], own.mT], axis=-1)[:, None], upper=False)
    heads = triangular(root.mT, half[..., :1], upper=True)[..., 0]
    return heads, _left_out(y[:, None, :focal] - heads @ own.mT, xp.sum(half[..., 1:] ** 2, axis=-2) + level)


def best_ridges(ridges: Floats, errors: Floats) -> Integers:
    """The place of the largest ridge (runs,) among those of least error (runs, Q)."""
    tied = errors <= np.min(errors, axis=-1, keepdims=True) * (1 + TIED)
    return np.argmax(np.where(tied, ridges, -np.inf), axis=-1)


def _left_out(residuals: Array, leverages: Array) -> Array:
    """Residuals of rows left out; infinite where a row alone decides its own prediction."""
    rest = 1.0 - leverages
    return namespace(rest).where(rest > SATURATED, residuals / rest, np.inf)
