"""Leave-one-out on the focal rows in closed form, and what it says about predictive spread.

With the weighted system ``A`` centred at c (total weight W), ``G = (A + r I)^{-1}``, and the focal head's own system
centred at c_1 with ridge kappa, leaving out weight s of a row (u, y) means

    h = 1/W + (u-c)'G(u-c),   h_1 = 1/W_1 + (u-c_1)'G_1(u-c_1),   e = (y - focal head's prediction)/(1 - s h_1),
    prediction without it = [fitted - w_1 s h y - r w_1 s (u-c)'G G_1(u-c_1) e] / (1 - w_1 s h).

The 1/W terms come from the intercepts. Domain weights and the standardisation are held fixed. A row of sample weight 3
is three equal rows, of which one is left out at a time (s = 1); rows of weight below 1 go as a whole. Under the
Bayesian reading (noise of precision w_1 on the focal rows) a new focal row has variance ``s^2 (1 + w_1 h)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mixtune.arrays import Array, Floats, Integers, half_squares, is_numpy, match, namespace, slices, to_numpy
from mixtune.moments._rows import Rows
from mixtune.moments._system import GramSystem, RowSystem, System, factor_definite, solve_definite

if TYPE_CHECKING:
    from mixtune.moments._standardise import Center

#: Elements of one block of solutions (p times rows), if it has as many rows as features or more.
BLOCK = 4_194_304
#: Where 1 - leverage is below this, the row alone decides its own prediction and leaving it out says nothing.
SATURATED = 1e-9


@dataclass(frozen=True, eq=False)
class Fit:
    """A ridge-type fit on centred moments, as leave-one-out needs it.

    Attributes
    ----------
    coef, intercept : arrays (p, D) and (D,)
    system : System
        The (weighted) normal equations, centred at ``center``; focal rows, where kept, come first. It may be on a
        device, where leave-one-out is then computed; all else is NumPy.
    ridge : float
        r >= 0, or infinity: the coefficients stay at the prior mean.
    share : float
        w_1, what one focal row of sample weight 1 adds to the system; 0 where focal rows take no part.
    """

    coef: Floats
    intercept: Floats
    system: System
    center: Center
    ridge: float
    share: float

    def predict(self, U: Floats) -> Floats:
        """Predictions (n, D)."""
        return U @ self.coef + self.intercept

    @property
    def on_host(self) -> Fit:
        """The same fit with its system as NumPy arrays."""
        return self if is_numpy(self.system.zero) else replace(self, system=self.system.on_host)


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Predictions of each focal row without it.

    Attributes
    ----------
    predictions, residuals : arrays (n, D)
        Infinite residuals mark rows without which there is nothing to predict from.
    spreads : array (n,)
        ``1 + w_1 h`` without the row: predictive variance in units of the noise.
    sample_weight : array (n,)
        How much each row counts in averages.
    """

    predictions: Floats
    residuals: Floats
    spreads: Floats
    sample_weight: Floats

    @cached_property
    def error(self) -> float:
        """Weighted mean squared error over rows and outputs."""
        with np.errstate(over="ignore"):
            return float(np.average(np.mean(self.residuals**2, axis=1), weights=self.sample_weight))

    def repeated(self, places: Integers) -> LeaveOneOut:
        """For rows at these places, each with an equal part of the weight of its place."""
        weight = self.sample_weight / np.bincount(places, minlength=len(self.sample_weight))
        return LeaveOneOut(self.predictions[places], self.residuals[places], self.spreads[places], weight[places])

    @property
    def copies(self) -> Floats:
        """How many rows each one stands for: its sample weight, but at least itself."""
        return np.maximum(self.sample_weight, 1.0)

    @cached_property
    def noise(self) -> Floats:
        """Noise variance (D,) at which the left-out residuals have unit mean square."""
        return np.average(self.residuals**2 / self.spreads[:, None], axis=0, weights=self.sample_weight)


def left_out_residuals(residuals: Array, leverages: Array) -> Array:
    """Residuals of rows left out, ``e / (1 - h)``; infinite where a row alone decides its own prediction.

    This is the one rule for rows of leverage 1: leaving them out says nothing.
    """
    rest = 1.0 - leverages
    with np.errstate(all="ignore"):
        return namespace(rest).where(rest > SATURATED, residuals / rest, np.inf)


def leave_one_out(focal: Rows, fit: Fit, head: Fit | None = None) -> LeaveOneOut:
    """Leave each focal row out of ``fit``, and of the focal ``head`` that its prior mean contains with share w_1.

    ``head=None`` means that the prior mean does not depend on the focal rows, as in plain ridge regression.
    """
    U, Y, s = focal.X, focal.targets, focal.weight
    fitted = fit.predict(U)
    if fit.share == 0:
        return LeaveOneOut(fitted, Y - fitted, np.ones(len(U)), s)
    # With as many rows as features a block is as large as the matrix that is factorised anew for each.
    blocks = slices(len(U), max(U.shape[1], BLOCK // U.shape[1]))
    parts = [_leverages(U[block], s[block], block, fit, head) for block in blocks]
    h, h1, crossed = (np.concatenate(column) for column in zip(*parts))
    gone = np.minimum(s, 1.0)
    loss = fit.share * gone
    residuals = Y - fitted
    with np.errstate(invalid="ignore"):  # zero times infinity, where the focal head cannot do without the row
        if head is not None:
            # The prior mean moves as well: it holds the focal head, which loses the same row.
            left = left_out_residuals(Y - head.predict(U), (gone * h1)[:, None])
            residuals = residuals + (loss * crossed)[:, None] * left
        residuals = left_out_residuals(residuals, (loss * h)[:, None])
    known = np.all(np.isfinite(residuals), axis=1)
    residuals = np.where(known[:, None], residuals, np.inf)
    predictions = np.where(known[:, None], Y - residuals, fitted)
    return LeaveOneOut(predictions, residuals, 1.0 + fit.share * h / np.where(known, 1.0 - loss * h, 1.0), s)


def _leverages(U: Floats, s: Floats, block: slice, fit: Fit, head: Fit | None) -> tuple[Floats, Floats, Floats]:
    """``h``, ``h_1`` and ``r (u-c)'G G_1(u-c_1)`` of the focal rows in ``block``."""
    V = _about(U, fit)
    if head is None and isinstance(fit.system, GramSystem) and math.isfinite(fit.ridge):
        factor = factor_definite(fit.system.gram, fit.ridge, fit.system.summed)
        if factor is not None:
            h = 1.0 / fit.center.total + half_squares(factor, V)
            return h, np.zeros_like(h), np.zeros_like(h)
    solved = _solve(fit, V, s, block) if math.isfinite(fit.ridge) else 0.0 * V.T
    h = 1.0 / fit.center.total + _column_sums(V.T * solved)
    if head is None:
        return h, np.zeros_like(h), np.zeros_like(h)
    V1 = _about(U, head)
    solved1 = _solve(head, V1, s, block)
    h1 = 1.0 / head.center.total + _column_sums(V1.T * solved1)
    pulled = fit.ridge * solved if math.isfinite(fit.ridge) else V.T
    return h, h1, _column_sums(pulled * solved1)


def _about(U: Floats, fit: Fit) -> Array:
    """The rows about the center of a fit, where its system is."""
    like = fit.system.zero
    return match(U, like) - match(fit.center.features, like)


def _column_sums(entries: Array) -> Floats:
    return to_numpy(entries.sum(axis=0))


def _solve(fit: Fit, V: Array, s: Floats, block: slice) -> Array:
    """``(A + r I)^{-1} V'`` (p, n) for focal rows V; the pseudo-inverse where r = 0 leaves A singular."""
    system = fit.system
    if isinstance(system, RowSystem):
        # Row i of the system is root * V_i, so X'(X X' + r)^{-1} e_i = root (X'X + r)^{-1} V_i.
        units = match(np.eye(len(system.rows), len(V), k=-block.start), V)
        return RowSystem(system.rows, units).step(0.0 * V.T, fit.ridge) / match(np.sqrt(fit.share * s), V)
    assert isinstance(system, GramSystem)
    solved = solve_definite(system.gram, fit.ridge, V.T, system.summed)
    return solved if solved is not None else system.eigenbasis().solve(fit.ridge, V.T)


@dataclass(frozen=True, eq=False)
class Missing:
    """Variances over the noise that features lack of several functions: of each, level + slopes'(u - origin)^2.

    Attributes
    ----------
    levels : array (g,)
    slopes : array (g, p)
    origin : array (p,)
    """

    levels: Floats
    slopes: Floats
    origin: Floats

    def __call__(self, U: Floats) -> Floats:
        """For rows of prepared features, the sum over the functions."""
        return np.sum(np.maximum(self.levels + (U - self.origin) ** 2 @ self.slopes.T, 0.0), axis=1)


@dataclass(frozen=True, eq=False)
class Posterior:
    """``1 + w_1 (1/W + (u-c)'G(u-c))`` for any row: what is unknown about a focal prediction, in units of the noise.

    Attributes
    ----------
    factor : array (p, k)
        G = factor factor' + rest (I - basis basis'); ``basis`` (p, k) and ``rest`` are those of directions no row has.
    missing : Missing or None
        What the features lack of the function that they stand for.
    """

    center: Floats
    constant: float
    share: float
    factor: Floats
    basis: Floats
    rest: float
    missing: Missing | None = None

    def spread(self, U: Floats) -> Floats:
        """The spread of rows of prepared features."""
        V = U - self.center
        inside = np.sum((V @ self.factor) ** 2, axis=1)
        outside = np.sum(V**2, axis=1) - np.sum((V @ self.basis) ** 2, axis=1)
        lacking = 0.0 if self.missing is None else self.missing(U)
        return 1.0 + self.share * (self.constant + inside + self.rest * np.maximum(outside, 0.0)) + lacking


def posterior(fit: Fit) -> Posterior:
    """The posterior spread of ``fit``; directions that no row has are left out where r = 0 says nothing of them."""
    constant = 1.0 / fit.center.total
    if fit.share == 0 or not math.isfinite(fit.ridge):
        nothing = np.zeros((len(fit.coef), 0))
        return Posterior(fit.center.features, constant, fit.share, nothing, nothing, 0.0)
    eigen = fit.system.eigenbasis()
    factor = eigen.vectors / np.sqrt(eigen.values + fit.ridge)
    rest = 1.0 / fit.ridge if fit.ridge > 0 else 0.0
    return Posterior(fit.center.features, constant, fit.share, factor, eigen.vectors, rest)
