"""What else one could have done with the same rows, for a fit at fixed parameters: the baselines at its own ridge.

Computed from the moments that the fit keeps when first asked for, so that fitting costs nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mixtune._array import Floats
from mixtune.estimators._baselines import JointRegressor, LocalRegressor, MeanOfLocalsRegressor
from mixtune.estimators._fixed_fit import State
from mixtune.estimators._uncertainty import Uncertainty
from mixtune.selection import Comparison, TransferGain, compare, transfer_gain

__all__ = ["ComparedFit", "compared_of"]

#: Left-out residuals below this part of the targets' standard deviation are rounding, and compared as zero.
ROUNDING = 1e-12


class ComparedFit:
    """Gives an estimator at fixed parameters ``compared_`` and ``transfer_gain_``."""

    ridge: float
    _state: State
    _uncertainty: Uncertainty
    _found: tuple[State, dict[str, Comparison]] | None = None

    @property
    def compared_(self) -> tuple[Comparison, ...]:
        """Leave-one-out error of this fit, of the focal rows alone, all rows pooled and the mean of local heads.

        All have the ridge of this fit; without sources only the first two are there.
        """
        return tuple(self._comparisons().values())

    @property
    def transfer_gain_(self) -> TransferGain:
        """By what part transfer cuts the error of the focal rows alone, by leave-one-out."""
        return transfer_gain(self._comparisons()["focal only"], np.empty(0), float(self._state.focal.weight.sum()))

    def _comparisons(self) -> dict[str, Comparison]:
        check_is_fitted(self, "coef_")
        if self._found is None or self._found[0] is not self._state:  # the state is another one once rows were added
            self._found = self._state, self._compare(self._state)
        return self._found[1]

    def _compare(self, state: State) -> dict[str, Comparison]:
        ridge = float(self.ridge)
        others: dict[str, Any] = {"focal only": LocalRegressor}
        if len(state.names) > 1:
            others |= {"joint": JointRegressor, "mean of locals": MeanOfLocalsRegressor}
        residuals = {"ours": self._uncertainty.left_out.residuals}
        for name, kind in others.items():
            residuals[name] = kind(ridge=ridge)._at(state, ridge).uncertainty.left_out.residuals
        weight = np.tile(state.focal.weight, state.focal.targets.shape[1])
        joined = {name: parts.T.ravel() for name, parts in residuals.items()}
        return compared_of(joined, weight, ROUNDING * state.target_variance**0.5)


def compared_of(residuals: Mapping[str, Floats], weight: Floats, least: Floats | float) -> dict[str, Comparison]:
    """Compare left-out residuals of all methods with "ours"; those of at most ``least`` count as zero.

    Examples
    --------
    >>> found = compared_of({"ours": np.array([1.0, 1.0]), "other": np.array([2.0, 2.0])}, np.ones(2), 1e-12)
    >>> found["other"].ratio
    0.5
    """
    counted = {name: np.where(np.abs(parts) > least, parts, 0.0) for name, parts in residuals.items()}
    return {name: compare(name, counted["ours"], parts, weight) for name, parts in counted.items()}
